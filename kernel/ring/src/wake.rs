//! How a CPU goes to sleep (or into user mode) without missing a message, and how a sender knows
//! whether to ring its doorbell.
//!
//! ```text
//!                        prepare(USER or ASLEEP) = true
//!   ATTENTIVE ───────────────────────────────────────────▶ USER / ASLEEP
//!    │  ▲  ▲                                                    │
//!    │  │  └──────────────── attentive() ◀── interrupt ─────────┘
//!    └──┘
//!   prepare = false: something is pending, take it first
//! ```
//!
//! Receiver and sender each store one word and then look at the other's; with a full fence in
//! between on both sides at least one of them sees the other (store buffering, "Dekker"):
//!
//! | receiver, [`prepare`] | sender, [`notify`] |
//! |---|---|
//! | - | push the message (release) |
//! | store `activity` | set own bit in `pending` (read-modify-write) |
//! | full fence | full fence |
//! | read `pending`; a bit set: do not sleep | read `activity`; USER or ASLEEP and bit was 0: ring |
//!
//! | step | order | why |
//! |---|---|---|
//! | `pending` or | acquire, release | [`take_pending`] sees the messages of every bit it takes |
//! | `pending` swap 0 | acquire, release | a bit set later is found 0 and may ring again |
//! | `activity` store, `pending` or | before the fence | `SeqCst` accesses alone do not order them on every machine |
//!
//! The two words are on lines of their own: `activity` is stored to, and writing its line back
//! would undo a bit that a sender has set in the same line meanwhile. `pending` is changed by
//! read-modify-writes only.
//!
//! | flush | without it, on incoherent machines |
//! |---|---|
//! | [`notify`]: `activity` is read at memory | a receiver asleep is taken for attentive: never woken |
//! | [`prepare`]: `activity` is written through | a receiver asleep is taken for attentive: never woken |
//! | [`prepare`]: `pending` is read at memory | a bit set before it told anybody is not seen: never woken |
//! | [`attentive`]: `activity` is written through | the next sender rings for nothing |
//!
//! The doorbell is rung only when the bit goes from 0 to 1: while it is 1, the receiver has not
//! taken it yet and will look, because the sender that set it rang if the receiver was not attentive.
//! A receiver calls [`take_pending`] *before* it looks at the rings of the bits it took.

use core::sync::atomic::Ordering;

use dyad_coherence::GlobalMem;
use dyad_shm::PhysAddr;
use dyad_shm::superblock::activity;

/// Addresses of the two words of a receiving CPU: `pending` and `activity` of its
/// [`CpuEntry`](dyad_shm::superblock::CpuEntry). They must be on different lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeLine {
    /// One bit per sender.
    pub pending: PhysAddr,
    /// One of [`activity`].
    pub activity: PhysAddr,
}

/// Tells a receiver that there is something in this sender's ring. Call it after the push.
/// `true`: the caller must ring the receiver's doorbell.
///
/// `sender_bit` is below 64: `node * 8 + cpu` of the sender.
#[must_use = "the receiver sleeps on unless its doorbell is rung"]
pub fn notify<M: GlobalMem + ?Sized>(mem: &M, line: &WakeLine, sender_bit: u32) -> bool {
    debug_assert!(sender_bit < 64, "no such sender");
    let bit = 1u64.wrapping_shl(sender_bit);
    let before = mem.or(line.pending, bit);
    mem.fence();
    let doing = mem.load_fresh(line.activity, Ordering::Relaxed);
    before & bit == 0 && (doing == activity::USER || doing == activity::ASLEEP)
}

/// Takes the bits of all senders that have notified this CPU. The caller must then read their rings.
#[must_use = "the senders of these bits will not ring again"]
pub fn take_pending<M: GlobalMem + ?Sized>(mem: &M, line: &WakeLine) -> u64 {
    mem.swap(line.pending, 0)
}

/// Declares that this CPU is about to go to sleep or into user mode (`doing` is
/// [`activity::ASLEEP`] or [`activity::USER`]). Interrupts are masked, so that a doorbell rung
/// from now on stays pending until the CPU waits or leaves the kernel.
///
/// `false`: something is pending; the CPU is attentive again and must not go.
#[must_use = "a CPU that goes although something is pending may never be woken"]
pub fn prepare<M: GlobalMem + ?Sized>(mem: &M, line: &WakeLine, doing: u64) -> bool {
    mem.store_through(line.activity, doing, Ordering::Relaxed);
    mem.fence();
    if mem.load_fresh(line.pending, Ordering::Relaxed) == 0 {
        return true;
    }
    attentive(mem, line);
    false
}

/// Declares that this CPU reads `pending` before it runs user code or sleeps, so that it need not be
/// interrupted.
pub fn attentive<M: GlobalMem + ?Sized>(mem: &M, line: &WakeLine) {
    mem.store_through(line.activity, activity::ATTENTIVE, Ordering::Relaxed);
}
