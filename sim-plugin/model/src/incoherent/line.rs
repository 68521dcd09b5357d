//! The shared words of one line.
//!
//! ```text
//! meta      lock:1 | given up:1 | ... | unknown:8      what memory holds there is not known
//! writer    valid:1 | ... | cpu:3 | node:3 | pc:48     who has written a word last
//! copy      8 words
//! its meta  write-backs:24 | unknown:8 | older:8 | owed:8 | dirty:8 | ... | valid:1
//! fetched   as writer: who has fetched the copy
//! since     accesses of the writing CPU when it began to owe
//! stored    as writer: who has stored to the copy last
//! flushes   flushes of everything by the node, and its lives, when the copy was fetched
//! changed   rounds of all nodes when memory's word was changed last
//! ```
//!
//! A line is changed under its lock. A machine may be killed while it holds one: who has waited too
//! long gives the line up, for good and for everyone, because nobody knows what the holder may still
//! write. So there is no unbounded wait for another machine, and no finding made of half a change.

use std::sync::atomic::{AtomicU64, Ordering};

use super::shape::{OF_COPY, OF_LINE, WORDS};

const LOCKED: u64 = 1 << 63;
const GIVEN_UP: u64 = 1 << 62;
/// Attempts at a lock, and how many of them go by before the CPU is offered to others: holders
/// execute a few hundred instructions, but may have lost their CPU.
const ATTEMPTS: u32 = 100_000;
const SPINS: u32 = 1_000;

const PC_BITS: u32 = 48;
const PC: u64 = (1 << PC_BITS) - 1;

/// An instruction of a CPU of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// Node.
    pub node: u8,
    /// Its CPU.
    pub cpu: u8,
    /// Address of the instruction.
    pub pc: u64,
}

impl Who {
    const fn bits(self) -> u64 {
        1 << 63 | (self.cpu as u64) << (PC_BITS + 3) | (self.node as u64) << PC_BITS | self.pc & PC
    }

    const fn from_bits(w: u64) -> Option<Who> {
        if w >> 63 == 0 {
            return None;
        }
        Some(Who {
            node: (w >> PC_BITS) as u8 & 7,
            cpu: (w >> (PC_BITS + 3)) as u8 & 7,
            // Addresses are sign-extended, as on both ISAs.
            pc: ((w << (64 - PC_BITS)).cast_signed() >> (64 - PC_BITS)).cast_unsigned(),
        })
    }
}

/// What is known of a node's copy, besides its words. One bit per word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// There is a copy.
    pub valid: bool,
    /// Stored to, and nobody has seen it.
    pub dirty: u8,
    /// Stored to, another node has seen it, and it has not been written back.
    pub owed: u8,
    /// Dirty, and what memory holds is newer.
    pub older: u8,
    /// What the copy holds there is not known.
    pub unknown: u8,
    /// Write-backs so far, modulo 2^24: tells two debts apart.
    pub writebacks: u32,
}

impl Held {
    const fn bits(self) -> u64 {
        self.valid as u64
            | (self.dirty as u64) << 8
            | (self.owed as u64) << 16
            | (self.older as u64) << 24
            | (self.unknown as u64) << 32
            | (self.writebacks as u64 & 0xff_ffff) << 40
    }

    const fn from_bits(w: u64) -> Held {
        Held {
            valid: w & 1 != 0,
            dirty: (w >> 8) as u8,
            owed: (w >> 16) as u8,
            older: (w >> 24) as u8,
            unknown: (w >> 32) as u8,
            writebacks: (w >> 40) as u32,
        }
    }
}

/// A line that this thread has locked.
pub(super) struct Line<'s> {
    /// Physical address of its first byte.
    pub at: u64,
    words: &'s [AtomicU64],
    nodes: usize,
}

impl<'s> Line<'s> {
    /// Locks a line; `None` if it has been given up, or is now.
    pub fn lock(at: u64, words: &'s [AtomicU64], nodes: usize) -> Option<Line<'s>> {
        let meta = &words[0];
        for attempt in 1..=ATTEMPTS {
            let now = meta.load(Ordering::Relaxed);
            if now & GIVEN_UP != 0 {
                return None;
            }
            let locked = |now| {
                meta.compare_exchange_weak(now, now | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            };
            if now & LOCKED == 0 && locked(now).is_ok() {
                return Some(Line { at, words, nodes });
            }
            match attempt < SPINS {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
        }
        meta.fetch_or(GIVEN_UP, Ordering::Relaxed);
        None
    }

    fn get(&self, i: usize) -> u64 {
        self.words[i].load(Ordering::Relaxed)
    }

    fn set(&self, i: usize, value: u64) {
        self.words[i].store(value, Ordering::Relaxed);
    }

    fn copy(node: usize) -> usize {
        OF_LINE + node * OF_COPY
    }

    /// What memory holds, if it is known.
    pub fn memory(&self, word: usize) -> Option<u64> {
        (self.get(0) >> word & 1 == 0).then(|| self.get(1 + word))
    }

    /// Memory holds something else from now on.
    pub fn set_memory(&self, word: usize, value: Option<u64>) {
        let bit = 1 << word;
        // Others may set the bit that gives the line up.
        match value {
            Some(value) => {
                self.set(1 + word, value);
                self.words[0].fetch_and(!bit, Ordering::Relaxed);
            }
            None => {
                self.words[0].fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Who has written a word last, published or not.
    pub fn writer(&self, word: usize) -> Option<Who> {
        Who::from_bits(self.get(1 + WORDS + word))
    }

    pub fn set_writer(&self, word: usize, who: Who) {
        self.set(1 + WORDS + word, who.bits());
    }

    /// A word of a node's copy; means nothing if it is unknown.
    pub fn word(&self, node: usize, word: usize) -> u64 {
        self.get(Line::copy(node) + word)
    }

    pub fn set_word(&self, node: usize, word: usize, value: u64) {
        self.set(Line::copy(node) + word, value);
    }

    /// The state of a node's copy.
    pub fn held(&self, node: usize) -> Held {
        Held::from_bits(self.get(Line::copy(node) + WORDS))
    }

    pub fn set_held(&self, node: usize, held: Held) {
        self.set(Line::copy(node) + WORDS, held.bits());
    }

    /// Who has fetched a node's copy.
    pub fn fetched(&self, node: usize) -> Option<Who> {
        Who::from_bits(self.get(Line::copy(node) + WORDS + 1))
    }

    pub fn set_fetched(&self, node: usize, who: Who) {
        self.set(Line::copy(node) + WORDS + 1, who.bits());
    }

    /// Accesses of the writing CPU when a node began to owe a write-back.
    pub fn since(&self, node: usize) -> u64 {
        self.get(Line::copy(node) + WORDS + 2)
    }

    pub fn set_since(&self, node: usize, accesses: u64) {
        self.set(Line::copy(node) + WORDS + 2, accesses);
    }

    /// Who of a node has stored to its copy last.
    pub fn stored(&self, node: usize) -> Option<Who> {
        Who::from_bits(self.get(Line::copy(node) + WORDS + 3))
    }

    pub fn set_stored(&self, node: usize, who: Who) {
        self.set(Line::copy(node) + WORDS + 3, who.bits());
    }

    /// Flushes of everything by a node when its copy was fetched.
    pub fn flushes(&self, node: usize) -> u64 {
        self.get(Line::copy(node) + WORDS + 4)
    }

    pub fn set_flushes(&self, node: usize, flushes: u64) {
        self.set(Line::copy(node) + WORDS + 4, flushes);
    }

    /// Rounds of all nodes when a word was changed in memory for the last time.
    pub fn changed(&self, word: usize) -> u64 {
        self.get(1 + 2 * WORDS + word)
    }

    pub fn set_changed(&self, word: usize, rounds: u64) {
        self.set(1 + 2 * WORDS + word, rounds);
    }

    /// All nodes but one.
    pub fn others(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.nodes).filter(move |&m| m != node)
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.words[0].fetch_and(!LOCKED, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for pc in [0, 0x40_1000, 0xffff_ffff_8000_1234, 0xffff_8000_0000_0000] {
            for (node, cpu) in [(0, 0), (7, 7), (1, 0), (0, 5)] {
                let who = Who { node, cpu, pc };
                assert_eq!(Who::from_bits(who.bits()), Some(who));
            }
        }
        assert_eq!(Who::from_bits(0), None);
        let held = Held {
            valid: true,
            dirty: 1,
            owed: 2,
            older: 4,
            unknown: 0x88,
            writebacks: 0xff_fffe,
        };
        assert_eq!(Held::from_bits(held.bits()), held);
        assert_eq!(Held::from_bits(0), Held::default());
    }

    #[test]
    fn a_line_whose_holder_does_not_come_back_is_given_up() {
        let words: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
        drop(Line::lock(0, &words, 2).unwrap());
        let held = Line::lock(0, &words, 2).unwrap();
        assert!(Line::lock(0, &words, 2).is_none());
        drop(held);
        assert!(Line::lock(0, &words, 2).is_none(), "for good");
    }
}
