//! The two ends of a ring. The module header of the crate has layout and ordering.

use core::fmt;
use core::sync::atomic::Ordering;

use dyad_coherence::{GlobalMem, LINE_BYTES};
use dyad_shm::PhysAddr;

use crate::{HEAD_OFFSET, MESSAGE_WORDS, SLOTS, SLOTS_OFFSET, TAIL_OFFSET};

/// One message: a cache line of words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message(pub [u64; MESSAGE_WORDS]);

/// The other side's index makes no sense: its memory is damaged, or it misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the peer's ring index is out of range")
    }
}

impl core::error::Error for Corrupt {}

/// Why a message was not pushed.
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

/// Where a ring lies.
#[derive(Clone, Copy, Debug)]
struct Place<const N: u64>(PhysAddr);

impl<const N: u64> Place<N> {
    const POWER_OF_TWO: () = assert!(N.is_power_of_two());

    fn new(base: PhysAddr) -> Place<N> {
        // Message numbers wrap at 2^64; slots follow on only if N divides that.
        let () = Place::<N>::POWER_OF_TWO;
        debug_assert!(base.0.is_multiple_of(LINE_BYTES), "ring not at a line");
        Place(base)
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
    place: Place<N>,
    tail: u64,
    /// A head the consumer has had: it can only have moved on since.
    head_seen: u64,
}

impl Producer {
    /// Takes over the sending end of the ring at `base`, where the last producer stopped.
    pub fn attach<M: GlobalMem + ?Sized>(mem: &M, base: PhysAddr) -> Producer {
        Producer::attach_sized(mem, base)
    }
}

impl<const N: u64> Producer<N> {
    /// As [`attach`](Producer::attach), for a ring of `N` slots (a power of two).
    pub fn attach_sized<M: GlobalMem + ?Sized>(mem: &M, base: PhysAddr) -> Producer<N> {
        let place = Place::new(base);
        let tail = mem.load_fresh(place.tail(), Ordering::Relaxed);
        // As if full: the first push looks at the real head, and checks it.
        let head_seen = tail.wrapping_sub(N);
        Producer {
            place,
            tail,
            head_seen,
        }
    }

    /// How many messages have been sent, by producers before this one too.
    pub const fn sent(&self) -> u64 {
        self.tail
    }

    /// Sends a message. Takes constant time; changes nothing when it fails.
    pub fn push<M: GlobalMem + ?Sized>(
        &mut self,
        mem: &M,
        message: &Message,
    ) -> Result<(), PushError> {
        if self.tail.wrapping_sub(self.head_seen) >= N {
            let head = mem.load_fresh(self.place.head(), Ordering::Acquire);
            let used = self.tail.wrapping_sub(head);
            if used > N {
                return Err(PushError::Corrupt);
            }
            self.head_seen = head;
            if used == N {
                return Err(PushError::Full);
            }
        }
        let slot = self.place.slot(self.tail);
        for (at, word) in words(slot).zip(message.0) {
            mem.store(at, word, Ordering::Relaxed);
        }
        mem.writeback(slot, LINE_BYTES);
        self.tail = self.tail.wrapping_add(1);
        mem.store_through(self.place.tail(), self.tail, Ordering::Release);
        Ok(())
    }
}

/// The receiving end. There must be one at a time.
#[derive(Debug)]
pub struct Consumer<const N: u64 = SLOTS> {
    place: Place<N>,
    head: u64,
}

impl Consumer {
    /// Takes over the receiving end of the ring at `base` and drops what is in it: messages to an
    /// older incarnation of this node are not for this one. Also the way to go on after
    /// [`Corrupt`].
    pub fn attach<M: GlobalMem + ?Sized>(mem: &M, base: PhysAddr) -> Consumer {
        Consumer::attach_sized(mem, base)
    }

    /// Takes over the receiving end of the ring at `base` where the last consumer stopped.
    pub fn resume<M: GlobalMem + ?Sized>(mem: &M, base: PhysAddr) -> Consumer {
        Consumer::resume_sized(mem, base)
    }
}

impl<const N: u64> Consumer<N> {
    /// As [`attach`](Consumer::attach), for a ring of `N` slots (a power of two).
    pub fn attach_sized<M: GlobalMem + ?Sized>(mem: &M, base: PhysAddr) -> Consumer<N> {
        let place = Place::new(base);
        let head = mem.load_fresh(place.tail(), Ordering::Acquire);
        mem.store_through(place.head(), head, Ordering::Release);
        Consumer { place, head }
    }

    /// As [`resume`](Consumer::resume), for a ring of `N` slots (a power of two).
    pub fn resume_sized<M: GlobalMem + ?Sized>(mem: &M, base: PhysAddr) -> Consumer<N> {
        let place = Place::new(base);
        let head = mem.load_fresh(place.head(), Ordering::Relaxed);
        Consumer { place, head }
    }

    /// Takes the next message, if there is one. Takes constant time; changes nothing when it
    /// fails.
    pub fn pop<M: GlobalMem + ?Sized>(&mut self, mem: &M) -> Result<Option<Message>, Corrupt> {
        let tail = mem.load_fresh(self.place.tail(), Ordering::Acquire);
        match tail.wrapping_sub(self.head) {
            0 => return Ok(None),
            used if used > N => return Err(Corrupt),
            _ => {}
        }
        let slot = self.place.slot(self.head);
        mem.invalidate(slot, LINE_BYTES);
        let mut message = Message::default();
        for (at, word) in words(slot).zip(&mut message.0) {
            *word = mem.load(at, Ordering::Relaxed);
        }
        self.head = self.head.wrapping_add(1);
        mem.store_through(self.place.head(), self.head, Ordering::Release);
        Ok(Some(message))
    }
}

/// Addresses of the words of a slot.
fn words(slot: PhysAddr) -> impl Iterator<Item = PhysAddr> {
    (0..MESSAGE_WORDS as u64).map(move |i| slot.add(8 * i))
}
