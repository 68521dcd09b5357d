//! A ring whose records are copied straight between where their contents are and the ring: a head of eight words, and as
//! many lines behind it as the head says.
//!
//! It lies in memory like [`ring`](crate::ring), with the same orders, and has the same two ends. A record is read where it
//! is, and its lines are given back when the reader is [done](Receiver::done). Word 0 of a head is the record's tag, with
//! the number of lines behind the head in its low byte; all other words are the caller's.
//!
//! What the sender writes is untrusted: a record that is longer than what has been written is [`RingError::Corrupt`]. A
//! reader copies each word once.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use dyad_ring_ends::{Receiving, Sending};

use crate::ring::{HEAD, RingError, RingSpan, TAIL};
use crate::words::{LINE_WORDS, Words};

/// Words of a head.
pub const HEAD_WORDS: usize = LINE_WORDS as usize;
/// The bits of word 0 that say how many lines are behind the head.
pub const LINES_MASK: u64 = 0xff;

/// The head of a record.
pub type Head = [u64; HEAD_WORDS];

/// The lines behind a head.
pub const fn lines_behind(head: &Head) -> u64 {
    head[0] & LINES_MASK
}

/// The sending end. There must be one at a time.
#[derive(Debug)]
pub struct Sender {
    place: RingSpan,
    end: Sending,
}

impl Sender {
    /// Takes over the sending end, where the last sender stopped.
    pub fn attach<W: Words + ?Sized>(w: &W, place: RingSpan) -> Sender {
        let tail = w.load(place.base + TAIL, Relaxed);
        let end = Sending::resume(tail, place.lines);
        Sender { place, end }
    }

    /// Whether a record with so many lines behind its head has room.
    ///
    /// # Errors
    ///
    /// [`RingError::Corrupt`].
    pub fn has_room<W: Words + ?Sized>(&mut self, w: &W, behind: u64) -> Result<bool, RingError> {
        let (lines, n) = (behind + 1, self.place.lines);
        if self.end.has_room(lines.min(n), n) {
            return Ok(lines <= n);
        }
        let head = w.load(self.place.base + HEAD, Acquire);
        Ok(self.end.look(head, lines, n)?)
    }

    /// Whether the receiver has taken all records that were sent.
    pub fn is_taken<W: Words + ?Sized>(&self, w: &W) -> bool {
        w.load(self.place.base + HEAD, Relaxed) == self.end.tail()
    }

    /// Writes a record; `word` gives the words behind the head. `seal` changes the head when all other words are written.
    /// Changes nothing when it fails.
    ///
    /// # Errors
    ///
    /// [`RingError::Full`], [`RingError::Corrupt`].
    pub fn push<W: Words + ?Sized>(
        &mut self,
        w: &W,
        head: &Head,
        word: impl Fn(usize) -> u64,
        seal: impl FnOnce(&mut Head),
    ) -> Result<(), RingError> {
        let behind = lines_behind(head);
        if !self.has_room(w, behind)? {
            return Err(RingError::Full);
        }
        let first = self.end.tail();
        for line in 0..behind {
            let at = self.place.line(first.wrapping_add(1 + line));
            for i in 0..LINE_WORDS {
                w.store(at + i, word((line * LINE_WORDS + i) as usize), Relaxed);
            }
        }
        let mut sealed = *head;
        seal(&mut sealed);
        // The reader goes by the lines that were written.
        sealed[0] = head[0];
        let at = self.place.line(first);
        for (i, value) in (0..).zip(sealed) {
            w.store(at + i, value, Relaxed);
        }
        let tail = self.end.advance(behind + 1);
        w.store(self.place.base + TAIL, tail, Release);
        Ok(())
    }
}

/// A record that has come, and is still in its ring.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Its head.
    pub head: Head,
    first: u64,
}

/// The receiving end. There must be one at a time.
#[derive(Debug)]
pub struct Receiver {
    place: RingSpan,
    end: Receiving,
    /// A tail the sender has had.
    tail_seen: u64,
}

impl Receiver {
    /// Takes over the receiving end where the last receiver stopped.
    pub fn resume<W: Words + ?Sized>(w: &W, place: RingSpan) -> Receiver {
        let head = w.load(place.base + HEAD, Relaxed);
        Receiver {
            place,
            end: Receiving::at(head),
            tail_seen: head,
        }
    }

    /// The next record, if one has come.
    ///
    /// # Errors
    ///
    /// [`RingError::Corrupt`].
    pub fn next<W: Words + ?Sized>(&mut self, w: &W) -> Result<Option<Record>, RingError> {
        let first = self.end.head();
        if self.tail_seen == first {
            self.tail_seen = w.load(self.place.base + TAIL, Acquire);
        }
        let used = self.end.readable(self.tail_seen, self.place.lines)?;
        if used == 0 {
            return Ok(None);
        }
        let at = self.place.line(first);
        let head: Head = core::array::from_fn(|i| w.load(at + i as u64, Relaxed));
        // Its lines are written before the tail is.
        match lines_behind(&head) < used {
            true => Ok(Some(Record { head, first })),
            false => Err(RingError::Corrupt),
        }
    }

    /// Copies the lines behind the head of the record to where `put` puts word `i`. Words of lines that the record does
    /// not have are not put.
    pub fn copy<W: Words + ?Sized>(&self, w: &W, record: &Record, mut put: impl FnMut(usize, u64)) {
        for line in 0..lines_behind(&record.head) {
            let at = self.place.line(record.first.wrapping_add(1 + line));
            for i in 0..LINE_WORDS {
                put((line * LINE_WORDS + i) as usize, w.load(at + i, Relaxed));
            }
        }
    }

    /// Gives the lines of the record back to the sender.
    pub fn done<W: Words + ?Sized>(&mut self, w: &W, record: &Record) {
        let head = self.end.advance(lines_behind(&record.head) + 1);
        w.store(self.place.base + HEAD, head, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::ring_words;
    use crate::words::lines;

    const LINES: u64 = 128;

    fn memory() -> alloc::sync::Arc<[crate::words::Line]> {
        lines((ring_words(LINES) / LINE_WORDS) as usize)
    }

    fn head(tag: u64, behind: u64) -> Head {
        [tag << 8 | behind, tag, 2, 3, 4, 5, 6, 7]
    }

    #[test]
    fn records_come_as_they_were_sent_also_where_the_ring_wraps() {
        let (m, place) = (memory(), RingSpan::new(0, LINES));
        let mut to = Sender::attach(&m[..], place);
        let mut from = Receiver::resume(&m[..], place);
        for n in 0..1000 {
            let behind = n * 7 % 65;
            let sent = head(n, behind);
            to.push(&m[..], &sent, |i| n << 32 | i as u64, |_| ())
                .unwrap();
            let record = from.next(&m[..]).unwrap().unwrap();
            assert!(!to.is_taken(&m[..]));
            assert_eq!(record.head, sent);
            let mut count = 0;
            from.copy(&m[..], &record, |i, word| {
                assert_eq!((i, word), (count, n << 32 | i as u64));
                count += 1;
            });
            assert_eq!(count as u64, behind * LINE_WORDS);
            // Until it is done, it is still there.
            assert_eq!(from.next(&m[..]).unwrap().unwrap().head, sent);
            from.done(&m[..], &record);
            assert!(from.next(&m[..]).unwrap().is_none());
            assert!(to.is_taken(&m[..]));
        }
    }

    #[test]
    fn a_full_ring_takes_nothing_until_a_record_is_done() {
        let (m, place) = (memory(), RingSpan::new(0, LINES));
        let mut to = Sender::attach(&m[..], place);
        let mut from = Receiver::resume(&m[..], place);
        to.push(&m[..], &head(1, 64), |_| 1, |_| ()).unwrap();
        assert!(!to.has_room(&m[..], 64).unwrap());
        let full = to.push(&m[..], &head(2, 64), |_| 2, |_| ());
        assert_eq!(full, Err(RingError::Full));
        assert!(to.has_room(&m[..], 62).unwrap(), "a smaller one");
        let record = from.next(&m[..]).unwrap().unwrap();
        from.done(&m[..], &record);
        assert!(from.next(&m[..]).unwrap().is_none(), "the refused one");
        to.push(&m[..], &head(2, 64), |_| 2, |_| ()).unwrap();
        // One that never has room is refused, and does no harm.
        let small = memory();
        let mut to = Sender::attach(&small[..], RingSpan::new(0, 4));
        assert_eq!(to.has_room(&small[..], 64), Ok(false));
    }

    #[test]
    fn what_the_other_end_cannot_have_written_is_refused() {
        let (m, place) = (memory(), RingSpan::new(0, LINES));
        let mut to = Sender::attach(&m[..], place);
        let mut from = Receiver::resume(&m[..], place);
        to.push(&m[..], &head(1, 1), |_| 1, |_| ()).unwrap();
        // A head that names more lines than there are.
        m[..].store(place.line(0), 1 << 8 | 2, Relaxed);
        assert_eq!(from.next(&m[..]).err(), Some(RingError::Corrupt));
        m[..].store(place.line(0), 1 << 8 | 1, Relaxed);
        assert!(from.next(&m[..]).unwrap().is_some());
        let mut from = Receiver::resume(&m[..], place);
        m[..].store(TAIL, LINES + 1, Relaxed);
        assert_eq!(from.next(&m[..]).err(), Some(RingError::Corrupt));
        m[..].store(HEAD, 9, Relaxed);
        let full = to.push(&m[..], &head(2, 127), |_| 0, |_| ());
        assert_eq!(full, Err(RingError::Corrupt));
    }
}
