//! Deadlines of sleeping threads: one leftist heap for each priority, so that it is known when the next thread wakes up that is
//! more urgent than another.

use crate::ready::{PRIORITIES, Priority};

/// No thread.
const NONE: u16 = u16::MAX;
/// What the first of a heap has above it.
const TOP: u16 = u16::MAX - 1;

/// A thread in its heap.
#[derive(Clone, Copy)]
struct Sleeper {
    deadline: u64,
    priority: Priority,
    /// The one that is not later; [`NONE`]: the thread is in no heap.
    above: u16,
    /// Those that are not earlier.
    below: [u16; 2],
    /// Length of the way down at the right, which is never longer than that at the left: so it is at most the logarithm of
    /// the number of threads.
    rank: u8,
}

/// Deadlines, at most one for each thread number below `N` (at most 65533).
pub struct Timers<const N: usize> {
    sleepers: [Sleeper; N],
    /// The thread of each priority with the earliest deadline.
    first: [u16; PRIORITIES],
    /// A bit for each priority that has deadlines.
    used: u64,
}

impl<const N: usize> Default for Timers<N> {
    fn default() -> Self {
        Timers::new()
    }
}

impl<const N: usize> Timers<N> {
    const FITS: () = assert!(N < TOP as usize && PRIORITIES <= u64::BITS as usize);

    /// Timers of no thread.
    pub const fn new() -> Self {
        const { Self::FITS };
        Timers {
            sleepers: [Sleeper {
                deadline: 0,
                priority: Priority::LOWEST,
                above: NONE,
                below: [NONE; 2],
                rank: 1,
            }; N],
            first: [NONE; PRIORITIES],
            used: 0,
        }
    }

    /// Sets the deadline of a thread of a priority, which replaces a previous one. `false` if the thread number is out of
    /// range.
    pub fn set(&mut self, thread: usize, deadline: u64, priority: Priority) -> bool {
        if thread >= N {
            return false;
        }
        self.cancel(thread);
        let me = thread as u16;
        self.sleepers[thread] = Sleeper {
            deadline,
            priority,
            above: TOP,
            below: [NONE; 2],
            rank: 1,
        };
        let first = self.merge(self.first[priority.index()], me);
        self.put_first(priority, first);
        true
    }

    /// Takes the deadline of a thread away. `false` if it has none.
    pub fn cancel(&mut self, thread: usize) -> bool {
        let Some(&sleeper) = self.sleepers.get(thread).filter(|p| p.above != NONE) else {
            return false;
        };
        self.sleepers[thread].above = NONE;
        let [left, right] = sleeper.below;
        let rest = self.merge(left, right);
        if sleeper.above == TOP {
            self.put_first(sleeper.priority, rest);
            return true;
        }
        if rest != NONE {
            self.sleepers[rest as usize].above = sleeper.above;
        }
        let above = &mut self.sleepers[sleeper.above as usize].below;
        above[usize::from(above[1] == thread as u16)] = rest;
        // Ways have become shorter, up to where another way was the shorter one.
        let mut at = sleeper.above;
        while at != TOP && self.level(at) {
            at = self.sleepers[at as usize].above;
        }
        true
    }

    /// The next deadline.
    pub fn next(&self) -> Option<u64> {
        self.earliest(self.used).map(|(at, _)| at)
    }

    /// The next deadline of a thread that is more urgent than `priority`.
    pub fn next_above(&self, priority: Priority) -> Option<u64> {
        let lower = u64::MAX >> (u64::BITS - 1 - priority.index() as u32);
        self.earliest(self.used & !lower).map(|(at, _)| at)
    }

    /// Takes out one thread whose deadline is not after `now`, the earliest first.
    pub fn expired(&mut self, now: u64) -> Option<usize> {
        let (_, thread) = self.earliest(self.used).filter(|&(at, _)| at <= now)?;
        self.cancel(thread);
        Some(thread)
    }

    /// The earliest deadline of these priorities, and its thread.
    fn earliest(&self, mut priorities: u64) -> Option<(u64, usize)> {
        let mut earliest: Option<(u64, usize)> = None;
        while priorities != 0 {
            let thread = self.first[priorities.trailing_zeros() as usize] as usize;
            priorities &= priorities - 1;
            let at = self.sleepers[thread].deadline;
            if earliest.is_none_or(|(other, _)| at < other) {
                earliest = Some((at, thread));
            }
        }
        earliest
    }

    fn put_first(&mut self, priority: Priority, first: u16) {
        self.first[priority.index()] = first;
        if first == NONE {
            self.used &= !(1 << priority.index());
        } else {
            self.sleepers[first as usize].above = TOP;
            self.used |= 1 << priority.index();
        }
    }

    /// Makes one heap of two. Goes down the right of both, so at most twice the logarithm of the number of threads deep.
    fn merge(&mut self, a: u16, b: u16) -> u16 {
        if a == NONE || b == NONE {
            return a.min(b);
        }
        let is_later = self.sleepers[b as usize].deadline < self.sleepers[a as usize].deadline;
        let (first, second) = if is_later { (b, a) } else { (a, b) };
        let below = self.merge(self.sleepers[first as usize].below[1], second);
        self.sleepers[below as usize].above = first;
        self.sleepers[first as usize].below[1] = below;
        self.level(first);
        first
    }

    /// Puts the shorter way at the right. Whether the length of the way has changed.
    fn level(&mut self, at: u16) -> bool {
        let rank = |at: u16| match at {
            NONE => 0,
            at => self.sleepers[at as usize].rank,
        };
        let [left, right] = self.sleepers[at as usize].below;
        let (left_rank, right_rank) = (rank(left), rank(right));
        let sleeper = &mut self.sleepers[at as usize];
        if left_rank < right_rank {
            sleeper.below = [right, left];
        }
        let before = sleeper.rank;
        sleeper.rank = 1 + left_rank.min(right_rank);
        before != sleeper.rank
    }
}
