//! The two ends of a ring with one producer and one consumer, without the memory that it lies in.
//!
//! ```text
//!               head                 tail                  head + size
//!   ──── free ───▶│◀── readable ──────▶│◀──── writable ──────▶│
//!               consumer moves head  producer moves tail
//! ```
//!
//! Indices count slots from the beginning and wrap at 2^64. Each end keeps its own index in private memory and never
//! reads it back. The index of the other end is untrusted: a distance outside of `0..=size` is [`Corrupt`], and no
//! index is followed because of it.
//!
//! The caller loads the other index (acquire) and passes it in, and publishes its own index (release) after `advance`.
//! Both rings of the project use these ends: the ring of kernels (`dyad-ring`), whose memory need not be coherent, and
//! the ring of programs (`dyad-msg`), whose records have several lines.
#![no_std]
#![forbid(unsafe_code)]

use core::fmt;

/// The other end's index makes no sense: its memory is damaged, or it misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the peer's ring index is out of range")
    }
}

impl core::error::Error for Corrupt {}

/// The number of slots in use. At most `size`, the slots that there are.
///
/// # Errors
///
/// [`Corrupt`] if there are more.
#[inline]
pub const fn used(head: u64, tail: u64, size: u64) -> Result<u64, Corrupt> {
    let used = tail.wrapping_sub(head);
    if used > size {
        return Err(Corrupt);
    }
    Ok(used)
}

/// The index of the sending end, and the last index that it has read of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    tail: u64,
    /// A head that the consumer has had. It can only have moved on since.
    head_seen: u64,
}

impl Sending {
    /// Resumes at the index where the last producer stopped. The first check for room reads the real head.
    #[inline]
    pub const fn resume(tail: u64, size: u64) -> Sending {
        Sending {
            tail,
            head_seen: tail.wrapping_sub(size),
        }
    }

    /// The index of the next slot that is written; slots that were ever written.
    #[inline]
    pub const fn tail(&self) -> u64 {
        self.tail
    }

    /// Whether `slots` are free as far as this end has seen.
    #[inline]
    pub const fn has_room(&self, slots: u64, size: u64) -> bool {
        // Not more than `size` are in use, so the sum does not wrap if `slots` are as few.
        self.tail.wrapping_sub(self.head_seen) + slots <= size
    }

    /// Updates the known head, and returns whether `slots` are free now.
    ///
    /// # Errors
    ///
    /// [`Corrupt`]; nothing has changed then.
    #[inline]
    pub const fn look(&mut self, head: u64, slots: u64, size: u64) -> Result<bool, Corrupt> {
        match used(head, self.tail, size) {
            Ok(used) => {
                self.head_seen = head;
                Ok(used + slots <= size)
            }
            Err(e) => Err(e),
        }
    }

    /// Advances the tail by slots that have been written. Returns the tail to publish.
    #[inline]
    pub const fn advance(&mut self, slots: u64) -> u64 {
        self.tail = self.tail.wrapping_add(slots);
        self.tail
    }
}

/// The index of the receiving end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiving {
    head: u64,
}

impl Receiving {
    /// Begins at an index: the head, where the last consumer stopped, or the tail, which drops the contents
    /// of the ring.
    #[inline]
    pub const fn at(index: u64) -> Receiving {
        Receiving { head: index }
    }

    /// The index of the next slot that is read; slots that were ever read.
    #[inline]
    pub const fn head(&self) -> u64 {
        self.head
    }

    /// The number of slots that can be read, given the tail.
    ///
    /// # Errors
    ///
    /// [`Corrupt`].
    #[inline]
    pub const fn readable(&self, tail: u64, size: u64) -> Result<u64, Corrupt> {
        used(self.head, tail, size)
    }

    /// Advances the head by slots that have been read. Returns the head to publish.
    #[inline]
    pub const fn advance(&mut self, slots: u64) -> u64 {
        self.head = self.head.wrapping_add(slots);
        self.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 8;

    #[test]
    fn a_full_ring_has_no_room_until_the_head_is_seen_to_move() {
        // Also where indices wrap.
        for start in [0, 5, u64::MAX - 3] {
            let mut end = Sending::resume(start, SIZE);
            assert!(!end.has_room(1, SIZE), "the first look is a real one");
            assert_eq!(end.look(start, SIZE, SIZE), Ok(true));
            assert!(end.has_room(SIZE, SIZE));
            assert_eq!(end.advance(SIZE), start.wrapping_add(SIZE));
            assert!(!end.has_room(1, SIZE));
            assert_eq!(end.look(start, 1, SIZE), Ok(false));
            assert_eq!(end.look(start.wrapping_add(3), 3, SIZE), Ok(true));
            assert!(end.has_room(3, SIZE) && !end.has_room(4, SIZE));
        }
    }

    #[test]
    fn impossible_distances_change_nothing() {
        for start in [0u64, 5, u64::MAX - 3] {
            let mut end = Sending::resume(start, SIZE);
            let before = end;
            // A head beyond the tail, or further behind than there are slots.
            for head in [start.wrapping_add(1), start.wrapping_sub(SIZE + 1)] {
                assert_eq!(end.look(head, 1, SIZE), Err(Corrupt));
                assert_eq!(end, before);
            }
            let end = Receiving::at(start);
            for tail in [start.wrapping_sub(1), start.wrapping_add(SIZE + 1)] {
                assert_eq!(end.readable(tail, SIZE), Err(Corrupt));
            }
            assert_eq!(end.readable(start.wrapping_add(SIZE), SIZE), Ok(SIZE));
            assert_eq!(end.readable(start, SIZE), Ok(0));
        }
    }
}
