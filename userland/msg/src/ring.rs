//! A ring of records: one producer, one consumer.
//!
//! ```text
//! line 0        word 0: tail, lines ever written      word 1: lines that the producer waits for
//! line 1        word 0: head, lines ever read         written by the consumer only
//! line 2 + i    position p is in line p mod N
//! ```
//!
//! Zeroed memory is an empty ring. Each side keeps its own index in private memory and never reads
//! it back. The other side's index, and the header of each record, are untrusted: what is impossible
//! is [`RingError::Corrupt`], and nothing outside of the ring is read or written because of it. A
//! header is read once, and what was read is what is used.
//!
//! | step | order | pairs with |
//! |---|---|---|
//! | push: read head | acquire | pop's release of head: the old record has been read |
//! | push: write the lines | relaxed | - |
//! | push: write tail | release | pop's acquire of tail: the record is complete |
//! | pop: read tail | acquire | push's release of tail |
//! | pop: read the lines | relaxed | - |
//! | pop: write head | release | push's acquire of head |
//!
//! # Waiting for room
//!
//! A producer that finds the ring full says how many lines it waits for, and tells the consumer by
//! its bit in `pending` ([`wake`](crate::wake)), then looks once more. The consumer looks at the
//! word when it takes the bit, and tells the producer as soon as that many lines are free: at once,
//! or after a pop. So pops need no fence.

use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use dyad_ring_ends::{Corrupt, Receiving, Sending};

use crate::record::{Header, Slots};
use crate::words::{LINE_WORDS, Words};

pub(crate) const TAIL: u64 = 0;
const WANT: u64 = 1;
pub(crate) const HEAD: u64 = LINE_WORDS;
const SLOTS: u64 = 2 * LINE_WORDS;

/// Words of a ring of `lines` lines.
pub const fn ring_words(lines: u64) -> u64 {
    SLOTS + lines * LINE_WORDS
}

/// The reason why an operation on a ring failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// The consumer has not read enough yet.
    Full,
    /// The other side has written something that it cannot have written.
    Corrupt,
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RingError::Full => "the ring is full",
            RingError::Corrupt => "the other side of the ring has damaged it",
        })
    }
}

impl core::error::Error for RingError {}

impl From<Corrupt> for RingError {
    fn from(_: Corrupt) -> RingError {
        RingError::Corrupt
    }
}

/// The place of a ring in memory.
#[derive(Clone, Copy, Debug)]
pub struct RingSpan {
    pub(crate) base: u64,
    pub(crate) lines: u64,
}

impl RingSpan {
    /// A ring of `lines` lines, a power of two, from word `base` on, which begins a line.
    pub const fn new(base: u64, lines: u64) -> RingSpan {
        assert!(lines.is_power_of_two() && base.is_multiple_of(LINE_WORDS));
        RingSpan { base, lines }
    }

    /// The first word of the line at a position.
    pub(crate) const fn line(self, position: u64) -> u64 {
        self.base + SLOTS + position % self.lines * LINE_WORDS
    }

    const fn slots(self) -> Slots {
        Slots {
            first: self.base + SLOTS,
            lines: self.lines,
        }
    }
}

/// The sending end. There must be one at a time.
#[derive(Debug)]
pub struct Producer {
    place: RingSpan,
    end: Sending,
}

impl Producer {
    /// Takes over the sending end, where the last producer stopped.
    pub fn attach<W: Words + ?Sized>(w: &W, place: RingSpan) -> Producer {
        let tail = w.load(place.base + TAIL, Relaxed);
        let end = Sending::resume(tail, place.lines);
        Producer { place, end }
    }

    /// Lines of the ring.
    pub fn lines(&self) -> u64 {
        self.place.lines
    }

    /// Checks that `lines` lines are free; at most those of the ring.
    ///
    /// # Errors
    ///
    /// [`RingError::Full`] if they are not; [`RingError::Corrupt`].
    pub fn reserve<W: Words + ?Sized>(&mut self, w: &W, lines: u64) -> Result<(), RingError> {
        let n = self.place.lines;
        if lines > n {
            return Err(RingError::Full);
        }
        if self.end.has_room(lines, n) {
            return Ok(());
        }
        let head = w.load(self.place.base + HEAD, Acquire);
        match self.end.look(head, lines, n)? {
            true => Ok(()),
            false => Err(RingError::Full),
        }
    }

    /// Writes a record, whose header says how many bytes there are; changes nothing when it fails.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Producer::reserve).
    pub fn push<W: Words + ?Sized>(
        &mut self,
        w: &W,
        header: &Header,
        bytes: &[u8],
    ) -> Result<(), RingError> {
        debug_assert_eq!(header.bytes, bytes.len());
        let lines = header.lines();
        self.reserve(w, lines)?;
        self.place.slots().write(w, self.end.tail(), header, bytes);
        let tail = self.end.advance(lines);
        w.store(self.place.base + TAIL, tail, Release);
        Ok(())
    }

    /// Says how many lines this end waits for (0: it does not). The caller then tells the consumer,
    /// and tries again before it sleeps.
    pub fn want<W: Words + ?Sized>(&self, w: &W, lines: u64) {
        w.store(self.place.base + WANT, lines, Relaxed);
    }
}

/// The lines that the writer waits for, as far as the reader has noted them.
#[derive(Debug, Default)]
pub(crate) struct Wanted(pub(crate) u64);

impl Wanted {
    /// Whether anybody waits.
    pub(crate) fn is_some(&self) -> bool {
        self.0 != 0
    }

    /// Whether the requested room is free in a ring of `lines` lines of which `used` are used; if so, the
    /// request is cleared.
    pub(crate) fn is_there(&mut self, used: u64, lines: u64) -> bool {
        let enough = used + self.0.min(lines) <= lines;
        if enough {
            self.0 = 0;
        }
        enough
    }
}

/// The receiving end. There must be one at a time.
#[derive(Debug)]
pub struct Consumer {
    place: RingSpan,
    end: Receiving,
    /// A tail the producer has had.
    tail_seen: u64,
    /// The header of the record at `head`, once it has been read.
    header: Option<Header>,
    /// Lines that the producer waits for; 0: it does not.
    wanted: Wanted,
}

impl Consumer {
    /// Takes over the receiving end where the last consumer stopped.
    pub fn resume<W: Words + ?Sized>(w: &W, place: RingSpan) -> Consumer {
        let head = w.load(place.base + HEAD, Relaxed);
        Consumer::at(place, head)
    }

    /// Takes over the receiving end and drops the contents of the ring, which were meant for its previous
    /// user. It is also the way to continue after [`RingError::Corrupt`].
    pub fn attach<W: Words + ?Sized>(w: &W, place: RingSpan) -> Consumer {
        let head = w.load(place.base + TAIL, Acquire);
        w.store(place.base + HEAD, head, Release);
        Consumer::at(place, head)
    }

    fn at(place: RingSpan, head: u64) -> Consumer {
        Consumer {
            place,
            end: Receiving::at(head),
            tail_seen: head,
            header: None,
            wanted: Wanted::default(),
        }
    }

    /// The header of the next record, if there is one.
    ///
    /// # Errors
    ///
    /// [`RingError::Corrupt`].
    #[inline]
    pub fn peek<W: Words + ?Sized>(&mut self, w: &W) -> Result<Option<Header>, RingError> {
        if self.header.is_some() {
            return Ok(self.header);
        }
        if self.tail_seen == self.end.head() && self.used(w)? == 0 {
            return Ok(None);
        }
        let used = self.tail_seen.wrapping_sub(self.end.head());
        let header = self.place.slots().header(w, self.end.head());
        self.header = header.filter(|h| h.lines() <= used);
        match self.header {
            Some(_) => Ok(self.header),
            // It is written before tail is: it cannot be incomplete.
            None => Err(RingError::Corrupt),
        }
    }

    /// Takes the record that has been [peeked](Consumer::peek) at: appends its contents to `to`.
    /// `None` if none has been.
    pub fn pop<W: Words + ?Sized>(&mut self, w: &W, to: &mut Vec<u8>) -> Option<Header> {
        let header = self.header.take()?;
        self.place.slots().read(w, self.end.head(), &header, to);
        let head = self.end.advance(header.lines());
        w.store(self.place.base + HEAD, head, Release);
        Some(header)
    }

    /// Lines in use, as of now.
    fn used<W: Words + ?Sized>(&mut self, w: &W) -> Result<u64, RingError> {
        let tail = w.load(self.place.base + TAIL, Acquire);
        let used = self.end.readable(tail, self.place.lines)?;
        self.tail_seen = tail;
        Ok(used)
    }

    /// Looks whether the producer waits for room; to be called when its bit in `pending` has been
    /// taken.
    pub fn note_want<W: Words + ?Sized>(&mut self, w: &W) {
        self.wanted = Wanted(w.load(self.place.base + WANT, Relaxed));
    }

    /// Whether the producer must be told now that the room it waits for is free. Returns `true` once for each
    /// request.
    #[must_use = "the producer sleeps on unless it is told"]
    pub fn has_room_for_waiter<W: Words + ?Sized>(&mut self, w: &W) -> bool {
        if !self.wanted.is_some() {
            return false;
        }
        // A damaged tail is found by the next peek.
        let used = self.used(w).unwrap_or(0);
        self.wanted.is_there(used, self.place.lines)
    }
}
