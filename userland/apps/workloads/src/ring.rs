//! Pointer chase: a closed way through lines of memory, each load of which needs the one before.
//!
//! With more lines than a cache of true LRU has room for in a set, every load misses; with fewer,
//! none does after the first round. In random order that shows which level memory of a size fits
//! into; in order with a stride, how many ways a set has.

use alloc::vec;
use alloc::vec::Vec;

use crate::rng::Xorshift;
use crate::{LINE, Load};

/// Bytes of the ring that the speed is measured with.
pub const DEFAULT: usize = 4 << 20;
/// Steps of a pass, at least.
const MIN_STEPS: u64 = 1 << 18;

/// A line of memory, and which one comes next.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line {
    next: u32,
}

const _: () = assert!(size_of::<Line>() == LINE);

/// A closed way.
#[derive(Clone, Debug)]
pub struct Ring {
    lines: Vec<Line>,
    length: u64,
    steps: u64,
    /// Where the last pass has ended.
    at: Option<u32>,
}

impl Ring {
    /// Through all lines of `bytes` of memory in random order. At least two lines.
    pub fn random(bytes: usize) -> Ring {
        let mut order: Vec<u32> = (0..(bytes / LINE) as u32).collect();
        let mut rng = Xorshift::new();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i + 1));
        }
        Ring::through(&order)
    }

    /// A ring through `lines` lines, `stride` bytes apart, in order. There are at least two lines, and the
    /// stride is a multiple of a line.
    pub fn strided(lines: usize, stride: usize) -> Ring {
        let order: Vec<u32> = (0..lines).map(|i| (i * stride / LINE) as u32).collect();
        Ring::through(&order)
    }

    /// Its first line, for questions of where it lies.
    pub(crate) fn first(&self) -> &impl Sized {
        &self.lines[0]
    }

    fn through(order: &[u32]) -> Ring {
        let last = order.iter().max().map_or(0, |&i| i as usize);
        let mut lines = vec![Line { next: 0 }; last + 1];
        for (i, &from) in order.iter().enumerate() {
            lines[from as usize].next = order[(i + 1) % order.len()];
        }
        let length = order.len() as u64;
        Ring {
            lines,
            length,
            steps: MIN_STEPS.next_multiple_of(length),
            at: None,
        }
    }

    /// Goes so many steps from a line; where that leads.
    #[inline(always)]
    pub fn follow(&self, mut at: u32, steps: u64) -> u32 {
        for _ in 0..steps {
            at = self.lines[at as usize].next;
        }
        at
    }

    /// Number of lines on the way.
    pub fn length(&self) -> u64 {
        self.length
    }
}

impl Load for Ring {
    /// Follows the ring from line 0 for `steps` steps.
    #[inline(never)]
    fn pass(&mut self) {
        self.at = Some(self.follow(0, self.steps));
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    /// The pass has ended where it began, and the way is what it was: through that many lines.
    fn check(&self) -> bool {
        let mut round = 0;
        let mut at = 0;
        loop {
            at = self.lines[at as usize].next;
            round += 1;
            if at == 0 || round > self.length {
                break;
            }
        }
        self.at == Some(0) && round == self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_closed_and_visit_every_line_once() {
        for mut ring in [Ring::random(1 << 16), Ring::strided(9, 4096)] {
            assert!(!ring.check());
            ring.pass();
            assert!(ring.check());
            assert!(ring.steps() >= MIN_STEPS && ring.steps().is_multiple_of(ring.length()));
        }
        assert_eq!(Ring::random(1 << 16).length(), 1024);
        assert_eq!(Ring::strided(9, 4096).lines.len(), 8 * 64 + 1);
    }

    #[test]
    fn a_way_that_is_too_short_or_endless_is_seen() {
        let mut ring = Ring::random(1 << 12);
        ring.pass();
        let first = ring.lines[0].next as usize;
        let second = ring.lines[first].next;
        ring.lines[0].next = second;
        assert!(!ring.check(), "a line is left out");
        ring.lines[0].next = first as u32;
        ring.lines[second as usize].next = second;
        assert!(!ring.check(), "never comes back");
    }
}
