//! Rings of messages between two CPUs, and the protocol by which a receiver sleeps and is woken.
//!
//! # Ring
//!
//! One producer, one consumer, [`SLOTS`] messages of one cache line each:
//!
//! ```text
//! line 0        tail: messages ever pushed       written by the producer only
//! line 1        head: messages ever popped       written by the consumer only
//! line 2 + i    slot i: message number n is in slot n mod SLOTS
//!
//!               head                 tail                  head + SLOTS
//!   ──── free ───▶│◀── readable ──────▶│◀──── writable ──────▶│
//!               pop moves head ▶     push moves tail ▶
//! ```
//!
//! Zeroed memory is an empty ring. Each side keeps its own index in private memory and never
//! reads it back; the other side's index is untrusted: a distance outside of `0..=SLOTS` is
//! reported as [`Corrupt`], and nothing is read or written because of it. A peer that misbehaves
//! can deliver wrong messages, nothing more.
//!
//! | step | order | pairs with |
//! |---|---|---|
//! | push: read head | acquire | pop's release of head: the slot's old message has been read |
//! | push: write the slot | plain, then write-back | - |
//! | push: write tail | release | pop's acquire of tail: the message is complete |
//! | pop: read tail | acquire | push's release of tail |
//! | pop: read the slot | invalidate, then plain | - |
//! | pop: write head | release | push's acquire of head |
//!
//! | flush | without it, on incoherent machines |
//! |---|---|
//! | both: the other's index is read at memory | messages, or room for them, are never seen |
//! | both: the own index is written through | the other never sees messages, or room for them |
//! | push: the slot is written back before tail | the slot's old contents are taken for a message |
//! | pop: the slot is invalidated after tail is read | the slot's old contents are taken for a message: a line may be fetched at any time |
//! | attach: indices are read at memory | the ring's other end, or this one's last user, is misjudged |
//!
//! # Sleep and wake
//!
//! See [`wake`].
//!
//! # Threads that wait at endpoints
//!
//! See [`sleep`].
//!
//! # Threads that are handed over
//!
//! They come by no ring, which may be full: see [`arrivals`].
#![no_std]
#![forbid(unsafe_code)]

pub mod arrivals;
pub mod handoff;
pub mod sleep;
mod spsc;
pub mod wake;

use dyad_coherence::LINE_BYTES;
use dyad_shm::LayoutHash;

pub use spsc::{Consumer, Corrupt, Message, Producer, PushError};

/// Messages a ring holds.
pub const SLOTS: u64 = 64;
/// Bytes of a ring in shared memory. Rings start at a multiple of [`LINE_BYTES`].
pub const RING_BYTES: u64 = ring_bytes(SLOTS);
/// Words of a message.
pub const MESSAGE_WORDS: usize = 8;

/// The offset of the number of messages ever sent, on a line that the sender stores to.
pub const TAIL_OFFSET: u64 = 0;
/// The offset of the number of messages ever taken, on a line that the receiver stores to.
pub const HEAD_OFFSET: u64 = LINE_BYTES;
/// The offset of the messages.
pub const SLOTS_OFFSET: u64 = 2 * LINE_BYTES;

/// Bytes of a ring of `slots` messages.
pub const fn ring_bytes(slots: u64) -> u64 {
    SLOTS_OFFSET + slots * LINE_BYTES
}

/// Adds the layout of a ring to the layout hash.
#[must_use]
pub const fn layout(h: LayoutHash) -> LayoutHash {
    h.text("ring")
        .word(SLOTS)
        .word(MESSAGE_WORDS as u64)
        .word(TAIL_OFFSET)
        .word(HEAD_OFFSET)
        .word(SLOTS_OFFSET)
}

const _: () = assert!(MESSAGE_WORDS as u64 * 8 == LINE_BYTES && SLOTS.is_power_of_two());
