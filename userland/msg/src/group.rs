//! Multicast: one writer, several members; each record is written once and read by every member.
//!
//! ```text
//! line 0        word 0: tail    word 1: lines the writer waits for    word 2: the writer, plus one
//! line 1        word 0: members, one bit each          changed by read-modify-writes only
//! line 2 + m    word 0: head of member m               written by the member only
//! line 2 + MEMBERS + i    position p is in line p mod N
//! ```
//!
//! A line is written again when the slowest member has read it. Members come and go:
//!
//! | member joins | writer pushes |
//! |---|---|
//! | head := `JOINING` | |
//! | set own bit in `members` | (its last push: store tail, release) |
//! | full fence | full fence |
//! | head := tail, as read now | read `members`; the heads of those that are in bound it |
//!
//! Either the writer sees the member, and waits while it is `JOINING`; or the member sees the tail
//! that the writer has reached, and the next push destroys nothing that comes after it.
//!
//! A member that is dead, or too slow, or whose head is impossible, is put out by the writer, who
//! clears its bit. It notices: a member looks at its bit again, behind a fence, after it has copied a
//! record, and gives the record to no receiver if the bit is gone.
//!
//! | a member that was put out reads | writer |
//! |---|---|
//! | read the lines | clear the member's bit |
//! | full fence | full fence (the next push) |
//! | read `members`: own bit gone, the copy is dropped | write the lines |

use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::MAX_STATIONS;
use crate::record::{Header, Slots};
use crate::ring::{RingError, Wanted};
use crate::words::{LINE_WORDS, Words};

const TAIL: u64 = 0;
const WANT: u64 = 1;
const WRITER: u64 = 2;
const MEMBERS: u64 = LINE_WORDS;
const HEADS: u64 = 2 * LINE_WORDS;
const SLOTS: u64 = HEADS + MAX_STATIONS as u64 * LINE_WORDS;
/// Head of a member that has not yet determined where it begins.
const JOINING: u64 = u64::MAX;

/// Words of a group with `lines` lines.
pub const fn group_words(lines: u64) -> u64 {
    SLOTS + lines * LINE_WORDS
}

/// The place of a group in memory.
#[derive(Clone, Copy, Debug)]
pub struct GroupPlace {
    base: u64,
    lines: u64,
}

impl GroupPlace {
    /// A group of `lines` lines, a power of two, from word `base` on, which begins a line.
    pub const fn new(base: u64, lines: u64) -> GroupPlace {
        assert!(lines.is_power_of_two() && base.is_multiple_of(LINE_WORDS));
        GroupPlace { base, lines }
    }

    const fn slots(self) -> Slots {
        Slots {
            first: self.base + SLOTS,
            lines: self.lines,
        }
    }

    const fn head(self, member: usize) -> u64 {
        self.base + HEADS + member as u64 * LINE_WORDS
    }

    /// The station that writes the group, if there is one.
    pub fn writer<W: Words + ?Sized>(self, w: &W) -> Option<usize> {
        let writer = w.load(self.base + WRITER, Relaxed).checked_sub(1)?;
        usize::try_from(writer).ok().filter(|&n| n < MAX_STATIONS)
    }
}

/// The writing end. There must be one at a time.
#[derive(Debug)]
pub struct Writer {
    place: GroupPlace,
    tail: u64,
    /// The position up to which every member has read when last checked: they can only have read more since.
    read_by_all: u64,
}

/// The reason why a push has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Members, by bit, that have not read enough; to be waited for, or put out.
    pub by: u64,
}

impl Writer {
    /// Takes over the writing end, for station `own`.
    pub fn attach<W: Words + ?Sized>(w: &W, place: GroupPlace, own: usize) -> Writer {
        let tail = w.load(place.base + TAIL, Relaxed);
        w.store(place.base + WRITER, own as u64 + 1, Relaxed);
        Writer {
            place,
            tail,
            // As if full: the first push looks at the heads.
            read_by_all: tail.wrapping_sub(place.lines),
        }
    }

    /// Lines of the group.
    pub fn lines(&self) -> u64 {
        self.place.lines
    }

    /// The members now, by bit.
    pub fn members<W: Words + ?Sized>(&self, w: &W) -> u64 {
        w.load(self.place.base + MEMBERS, Acquire)
    }

    /// Makes sure that `lines` lines, at most those of the group, can be written, and returns the members.
    /// Removes members whose heads are impossible.
    ///
    /// # Errors
    ///
    /// [`Blocked`].
    pub fn reserve<W: Words + ?Sized>(&mut self, w: &W, lines: u64) -> Result<u64, Blocked> {
        let n = self.place.lines;
        w.fence();
        let mut members = self.members(w) & ((1 << MAX_STATIONS) - 1);
        if self.tail.wrapping_sub(self.read_by_all) + lines <= n {
            return Ok(members);
        }
        let mut most = 0;
        let mut by = 0;
        let mut out = 0;
        for m in (0..MAX_STATIONS).filter(|m| members >> m & 1 != 0) {
            let head = w.load(self.place.head(m), Acquire);
            let used = match self.tail.wrapping_sub(head) {
                _ if head == JOINING => n,
                used if used > n => {
                    out |= 1 << m;
                    continue;
                }
                used => used,
            };
            most = used.max(most);
            if used + lines > n {
                by |= 1 << m;
            }
        }
        if out != 0 {
            self.put_out(w, out);
            members &= !out;
        }
        self.read_by_all = self.tail.wrapping_sub(most);
        match by {
            0 => Ok(members),
            by => Err(Blocked { by }),
        }
    }

    /// Writes a record for all members; gives those that were there. Changes nothing when it fails.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Writer::reserve).
    pub fn push<W: Words + ?Sized>(
        &mut self,
        w: &W,
        header: &Header,
        bytes: &[u8],
    ) -> Result<u64, Blocked> {
        debug_assert_eq!(header.bytes, bytes.len());
        let lines = header.lines();
        let members = self.reserve(w, lines)?;
        self.place.slots().write(w, self.tail, header, bytes);
        self.tail = self.tail.wrapping_add(lines);
        w.store(self.place.base + TAIL, self.tail, Release);
        Ok(members)
    }

    /// Removes members from the group. They lose what they have not read yet, and learn of the removal at
    /// their next check.
    pub fn put_out<W: Words + ?Sized>(&mut self, w: &W, members: u64) {
        // The fence of the next push comes before any line is written that they may be reading.
        w.and(self.place.base + MEMBERS, !members);
    }

    /// Declares how many lines the writer waits for, like [`Producer::want`](crate::ring::Producer::want).
    pub fn want<W: Words + ?Sized>(&self, w: &W, lines: u64) {
        w.store(self.place.base + WANT, lines, Relaxed);
    }
}

/// A member's end.
#[derive(Debug)]
pub struct Member {
    place: GroupPlace,
    own: usize,
    head: u64,
    tail_seen: u64,
    header: Option<Header>,
    wanted: Wanted,
}

/// The reason why a member receives nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberError {
    /// The writer has put it out. It can join again.
    PutOut,
    /// The writer has written something that it cannot have written.
    Corrupt,
}

impl Member {
    /// Makes station `own`, which must not be a member, a member. It receives what is written from now on.
    pub fn join<W: Words + ?Sized>(w: &W, place: GroupPlace, own: usize) -> Member {
        w.store(place.head(own), JOINING, Relaxed);
        w.or(place.base + MEMBERS, 1 << own);
        w.fence();
        // What comes before is not read, so nothing need be acquired or released.
        let head = w.load(place.base + TAIL, Relaxed);
        w.store(place.head(own), head, Relaxed);
        Member {
            place,
            own,
            head,
            tail_seen: head,
            header: None,
            wanted: Wanted::default(),
        }
    }

    /// Ends the membership: the writer no longer waits for this station.
    pub fn leave<W: Words + ?Sized>(self, w: &W) {
        w.and(self.place.base + MEMBERS, !(1 << self.own));
    }

    fn is_in<W: Words + ?Sized>(&self, w: &W) -> bool {
        w.load(self.place.base + MEMBERS, Relaxed) >> self.own & 1 != 0
    }

    fn used<W: Words + ?Sized>(&mut self, w: &W) -> Result<u64, RingError> {
        let tail = w.load(self.place.base + TAIL, Acquire);
        let used = tail.wrapping_sub(self.head);
        if used > self.place.lines {
            return Err(RingError::Corrupt);
        }
        self.tail_seen = tail;
        Ok(used)
    }

    /// The reason for an impossible value: a member that has been removed may read any value. What it has
    /// read orders this check after the removal.
    fn why<W: Words + ?Sized>(&self, w: &W) -> MemberError {
        if self.is_in(w) {
            MemberError::Corrupt
        } else {
            MemberError::PutOut
        }
    }

    /// The header of the next record, if there is one. Until it is popped it may turn out to be none.
    ///
    /// # Errors
    ///
    /// [`MemberError`].
    pub fn peek<W: Words + ?Sized>(&mut self, w: &W) -> Result<Option<Header>, MemberError> {
        if self.header.is_some() {
            return Ok(self.header);
        }
        if self.tail_seen == self.head {
            match self.used(w) {
                Ok(0) if self.is_in(w) => return Ok(None),
                Ok(0) => return Err(MemberError::PutOut),
                Ok(_) => {}
                Err(_) => return Err(self.why(w)),
            }
        }
        let used = self.tail_seen.wrapping_sub(self.head);
        let header = self.place.slots().header(w, self.head);
        self.header = header.filter(|h| h.lines() <= used);
        // It may be what the writer has put over it, also if it looks like a header.
        w.fence();
        match self.header {
            Some(_) if self.is_in(w) => Ok(self.header),
            _ => {
                self.header = None;
                Err(self.why(w))
            }
        }
    }

    /// Takes the record that was returned by the last peek: appends its contents to `to`, which is unchanged
    /// on failure. `None` if there was no peek.
    ///
    /// # Errors
    ///
    /// [`MemberError::PutOut`].
    pub fn pop<W: Words + ?Sized>(
        &mut self,
        w: &W,
        to: &mut Vec<u8>,
    ) -> Result<Option<Header>, MemberError> {
        let Some(header) = self.header.take() else {
            return Ok(None);
        };
        let before = to.len();
        self.place.slots().read(w, self.head, &header, to);
        w.fence();
        if !self.is_in(w) {
            to.truncate(before);
            return Err(MemberError::PutOut);
        }
        self.head = self.head.wrapping_add(header.lines());
        w.store(self.place.head(self.own), self.head, Release);
        Ok(Some(header))
    }

    /// Like [`Consumer::note_want`](crate::ring::Consumer::note_want).
    pub fn note_want<W: Words + ?Sized>(&mut self, w: &W) {
        self.wanted = Wanted(w.load(self.place.base + WANT, Relaxed));
    }

    /// Like [`Consumer::has_room_for_waiter`](crate::ring::Consumer::has_room_for_waiter), for this member
    /// alone.
    #[must_use = "the writer sleeps on unless it is told"]
    pub fn has_room_for_waiter<W: Words + ?Sized>(&mut self, w: &W) -> bool {
        if !self.wanted.is_some() {
            return false;
        }
        let used = self.used(w).unwrap_or(0);
        self.wanted.is_there(used, self.place.lines)
    }
}
