//! The two ends of a ring. The module header of the crate has layout and ordering.

use core::fmt;
use core::sync::atomic::Ordering;

use dyad_coherence::{GlobalMem, LINE_BYTES};
use dyad_ring_ends::{Receiving, Sending};
use dyad_shm::PhysAddr;

pub use dyad_ring_ends::Corrupt;

use crate::{HEAD_OFFSET, MESSAGE_WORDS, SLOTS, SLOTS_OFFSET, TAIL_OFFSET};

/// One message: a cache line of words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message(pub [u64; MESSAGE_WORDS]);

/// The reasons why a message was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// The consumer has not taken enough messages yet.
    Full,
    /// See [`Corrupt`].
    Corrupt,
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PushError::Full => f.write_str("the ring is full"),
            PushError::Corrupt => Corrupt.fmt(f),
        }
    }
}

impl core::error::Error for PushError {}

/// The address of a ring.
#[derive(Clone, Copy, Debug)]
struct RingAt<const N: u64>(PhysAddr);

impl<const N: u64> RingAt<N> {
    const POWER_OF_TWO: () = assert!(N.is_power_of_two());

    fn new(base: PhysAddr) -> RingAt<N> {
        // Message numbers wrap at 2^64; slots follow on only if N divides that.
        let () = RingAt::<N>::POWER_OF_TWO;
        debug_assert!(base.0.is_multiple_of(LINE_BYTES), "ring not at a line");
        RingAt(base)
    }

    fn tail(self) -> PhysAddr {
        self.0.add(TAIL_OFFSET)
    }

    fn head(self) -> PhysAddr {
        self.0.add(HEAD_OFFSET)
    }

    fn slot(self, number: u64) -> PhysAddr {
        self.0.add(SLOTS_OFFSET + number % N * LINE_BYTES)
    }
}

/// The sending end. There must be one at a time.
#[derive(Debug)]
pub struct Producer<const N: u64 = SLOTS> {
    place: RingAt<N>,
    end: Sending,
}

impl Producer {
    /// Takes over the sending end of the ring at `base`, where the last producer stopped.
    pub fn attach<M: GlobalMem + ?Sized>(mem: &M, base: PhysAddr) -> Producer {
        Producer::attach_sized(mem, base)
    }
}

impl<const N: u64> Producer<N> {
    /// Attaches to a ring of `N` slots (a power of two), like [`attach`](Producer::attach).
    pub fn attach_sized<M: GlobalMem + ?Sized>(mem: &M, base: PhysAddr) -> Producer<N> {
        let place = RingAt::new(base);
        let tail = mem.load_fresh(place.tail(), Ordering::Relaxed);
        let end = Sending::resume(tail, N);
        Producer { place, end }
    }

    /// The number of messages sent, including those of earlier producers.
    pub const fn sent(&self) -> u64 {
        self.end.tail()
    }

    /// Whether every message has been taken.
    pub fn is_drained<M: GlobalMem + ?Sized>(&self, mem: &M) -> bool {
        mem.load_fresh(self.place.head(), Ordering::Acquire) == self.end.tail()
    }

    /// Sends a message. Takes constant time; changes nothing when it fails.
    pub fn push<M: GlobalMem + ?Sized>(
        &mut self,
        mem: &M,
        message: &Message,
    ) -> Result<(), PushError> {
        if !self.end.has_room(1, N) {
            let head = mem.load_fresh(self.place.head(), Ordering::Acquire);
            match self.end.look(head, 1, N) {
                Ok(true) => {}
                Ok(false) => return Err(PushError::Full),
                Err(Corrupt) => return Err(PushError::Corrupt),
            }
        }
        let slot = self.place.slot(self.end.tail());
        for (at, word) in words(slot).zip(message.0) {
            mem.store(at, word, Ordering::Relaxed);
        }
        mem.writeback(slot, LINE_BYTES);
        let tail = self.end.advance(1);
        mem.store_through(self.place.tail(), tail, Ordering::Release);
        Ok(())
    }
}

/// The receiving end. There must be one at a time.
#[derive(Debug)]
pub struct Consumer<const N: u64 = SLOTS> {
    place: RingAt<N>,
    end: Receiving,
}

impl Consumer {
    /// Takes over the receiving end of the ring at `base` and drops its contents, because messages to an
    /// older incarnation of this node are not for this one. It is also the way to continue after [`Corrupt`].
    pub fn attach<M: GlobalMem + ?Sized>(mem: &M, base: PhysAddr) -> Consumer {
        Consumer::attach_sized(mem, base)
    }

    /// Takes over the receiving end of the ring at `base` where the last consumer stopped.
    pub fn resume<M: GlobalMem + ?Sized>(mem: &M, base: PhysAddr) -> Consumer {
        Consumer::resume_sized(mem, base)
    }
}

impl<const N: u64> Consumer<N> {
    /// Attaches to a ring of `N` slots (a power of two), like [`attach`](Consumer::attach).
    pub fn attach_sized<M: GlobalMem + ?Sized>(mem: &M, base: PhysAddr) -> Consumer<N> {
        let place = RingAt::new(base);
        let head = mem.load_fresh(place.tail(), Ordering::Acquire);
        mem.store_through(place.head(), head, Ordering::Release);
        let end = Receiving::at(head);
        Consumer { place, end }
    }

    /// Resumes on a ring of `N` slots (a power of two), like [`resume`](Consumer::resume).
    pub fn resume_sized<M: GlobalMem + ?Sized>(mem: &M, base: PhysAddr) -> Consumer<N> {
        let place = RingAt::new(base);
        let end = Receiving::at(mem.load_fresh(place.head(), Ordering::Relaxed));
        Consumer { place, end }
    }

    /// Takes the next message, if there is one. Takes constant time; changes nothing when it
    /// fails.
    pub fn pop<M: GlobalMem + ?Sized>(&mut self, mem: &M) -> Result<Option<Message>, Corrupt> {
        let tail = mem.load_fresh(self.place.tail(), Ordering::Acquire);
        if self.end.readable(tail, N)? == 0 {
            return Ok(None);
        }
        let slot = self.place.slot(self.end.head());
        mem.invalidate(slot, LINE_BYTES);
        let mut message = Message::default();
        for (at, word) in words(slot).zip(&mut message.0) {
            *word = mem.load(at, Ordering::Relaxed);
        }
        let head = self.end.advance(1);
        mem.store_through(self.place.head(), head, Ordering::Release);
        Ok(Some(message))
    }
}

/// Addresses of the words of a slot.
fn words(slot: PhysAddr) -> impl Iterator<Item = PhysAddr> {
    (0..MESSAGE_WORDS as u64).map(move |i| slot.add(8 * i))
}
