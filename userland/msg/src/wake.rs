//! Sleeping of a receiver without missing a message, and the sender's decision whether to ring.
//!
//! ```text
//!                     prepare = true
//!   ATTENTIVE ─────────────────────────────▶ ASLEEP
//!    │  ▲  ▲                                   │
//!    │  │  └───────── attentive() ◀── rung, ───┘
//!    └──┘                             or time
//!   prepare = false: something is pending, take it first
//! ```
//!
//! This is the kernels' protocol for their CPUs (`dyad-ring`), here between the threads of programs.
//! Receiver and sender each store one word and then look at the other's; with a full fence in between
//! on both sides at least one of them sees the other:
//!
//! | receiver, [`prepare`] | sender, [`notify`] |
//! |---|---|
//! | - | push the message (release) |
//! | store `activity` | set own bit in `pending` (read-modify-write) |
//! | full fence | full fence |
//! | read `pending`; a bit set: do not sleep | read `activity`; asleep and the bit was 0: ring |
//!
//! The doorbell is rung only when the bit goes from 0 to 1 and the receiver sleeps: while the bit is
//! 1 the receiver has not taken it yet, and the sender that set it rang if that was needed; a receiver that
//! drains its rings is attentive. So under load there are fewer doorbells than messages, and when
//! the receiver is idle there is one for each.
//! A receiver calls [`take_pending`] *before* it looks at the rings of the senders whose bits it took.

use core::sync::atomic::Ordering::Relaxed;

use crate::words::Words;

/// State of a receiver that checks `pending` before it sleeps.
pub const ATTENTIVE: u64 = 0;
/// The receiver has to be woken.
pub const ASLEEP: u64 = 1;

/// The two words of a receiver. They are on different lines, because one is written by the receiver alone and
/// the other by all senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeLine {
    /// One bit for each sender.
    pub pending: u64,
    /// [`ATTENTIVE`] or [`ASLEEP`].
    pub activity: u64,
}

/// Tells a receiver that there is something for it from sender `bit` (below 64). Call it after the
/// push. `true`: the caller must ring the receiver's doorbell.
#[must_use = "the receiver sleeps on unless its doorbell is rung"]
pub fn notify<W: Words + ?Sized>(w: &W, line: &WakeLine, bit: usize) -> bool {
    let bit = 1u64.wrapping_shl(bit as u32);
    let before = w.or(line.pending, bit);
    w.fence();
    before & bit == 0 && w.load(line.activity, Relaxed) == ASLEEP
}

/// Takes the bits of all senders that have told this receiver something; cheap if there are none.
#[must_use = "the senders of these bits will not ring again"]
pub fn take_pending<W: Words + ?Sized>(w: &W, line: &WakeLine) -> u64 {
    // Looking first keeps the line shared while nothing comes in.
    if w.load(line.pending, Relaxed) == 0 {
        return 0;
    }
    w.swap(line.pending, 0)
}

/// Declares that this receiver is about to sleep. `false`: something is pending; it is attentive
/// again and must not.
#[must_use = "a receiver that sleeps although something is pending may never be woken"]
pub fn prepare<W: Words + ?Sized>(w: &W, line: &WakeLine) -> bool {
    w.store(line.activity, ASLEEP, Relaxed);
    w.fence();
    if w.load(line.pending, Relaxed) == 0 {
        return true;
    }
    attentive(w, line);
    false
}

/// Declares that this receiver checks `pending` before it sleeps, so no sender needs to ring.
pub fn attentive<W: Words + ?Sized>(w: &W, line: &WakeLine) {
    w.store(line.activity, ATTENTIVE, Relaxed);
}
