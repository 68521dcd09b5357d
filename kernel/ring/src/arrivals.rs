//! The threads that have been handed to a CPU: one bit for each thread id, so that there is always room.
//!
//! A sender hands a thread over by its owner word and then sets the bit of the thread's id at a CPU of the
//! receiving node. A bit is a hint: the receiver looks the id up and takes the thread by its owner word, or
//! finds nothing to take. A bit may therefore be set twice, or be left from an older handoff.
//!
//! ```text
//!  summary   bit w: there may be bits in word w        (one word)
//!               │
//!               ▼
//!  words     word w, bit b: thread 64 * w + b          (64 words)
//! ```
//!
//! | giver, [`post`], then [`notify`](crate::wake::notify) | receiver, [`take_pending`](crate::wake::take_pending), then [`take`] |
//! |---|---|
//! | set the bit in its word | take the bits in `pending` |
//! | set the bit of the word in the summary | take the summary (to 0) |
//! | set the own bit in `pending` | read the words whose bits were set; clear the bits that are taken |
//! | | set the summary bits of words in which bits are left |
//!
//! Each side goes the other way: a receiver that takes a bit of one step sees what the giver has set before.
//! A bit that the receiver does not see in its word has its summary bit set later, and is found the next time.
//!
//! | step | order | without it |
//! |---|---|---|
//! | [`post`]: the word, then the summary | both acquire and release | the receiver takes the summary bit, finds nothing, and the bit in the word stays |
//! | [`take`]: the summary, then the words | the swap acquires | a bit that is set in between loses its summary bit |
//! | [`take`]: clear only the bits that are returned | read-modify-write | a bit that is set in between is lost |
//! | [`take`]: summary bits of words that are not empty are set again | acquire and release | what did not fit waits until another thread of the same word comes |
//!
//! | flush | without it, on incoherent machines |
//! |---|---|
//! | [`take`]: words are read at memory | arrivals are not seen |
//!
//! All words are changed by read-modify-writes only.
//!
//! Bounds: [`post`] is two read-modify-writes. [`take`] returns at most [`BATCH`] ids and looks at each word at
//! most twice. It goes round: an id is returned after at most `IDS / BATCH` calls, whichever others are posted.

use core::sync::atomic::Ordering;

use dyad_coherence::GlobalMem;
use dyad_shm::{LayoutHash, PhysAddr};

/// Thread ids that there is a bit for.
pub const IDS: u32 = WORDS * 64;
/// Words of bits; each has a bit in the summary.
pub const WORDS: u32 = 64;
/// Bytes of the words of bits, without the summary.
pub const BYTES: u64 = WORDS as u64 * 8;
/// Most ids that one [`take`] returns: bounds the time that a CPU spends on arrivals in one turn.
pub const BATCH: usize = 16;

/// Adds the layout of the words to the layout hash.
#[must_use]
pub const fn layout(h: LayoutHash) -> LayoutHash {
    h.text("arrivals").word(IDS as u64).word(BYTES)
}

/// Addresses of the words of a receiving CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrivals {
    /// The summary.
    pub summary: PhysAddr,
    /// The first word of bits.
    pub words: PhysAddr,
}

impl Arrivals {
    fn word(&self, w: u32) -> PhysAddr {
        self.words.add(8 * w as u64)
    }
}

/// Ids that [`take`] has returned, and whether there are more.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    ids: [u16; BATCH],
    used: usize,
    /// Whether there are more: the receiver must call again before it sleeps or runs user code.
    pub more: bool,
}

impl Batch {
    /// The ids.
    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.ids.iter().take(self.used).map(|&id| id as u32)
    }

    /// Takes the lowest of these bits of a word, as long as there are fewer than `most` ids; returns the bits
    /// that it has taken.
    fn fill(&mut self, w: u32, bits: u64, most: usize) -> u64 {
        let mut left = bits;
        while left != 0 && self.used < most {
            self.ids[self.used] = (w * 64 + left.trailing_zeros()) as u16;
            self.used += 1;
            left &= left - 1;
        }
        bits & !left
    }
}

/// Sets the bit of a thread that has been handed to this CPU. The owner word names the CPU's node already,
/// and the caller must notify the CPU afterwards. Returns `false` if there is no such id.
#[must_use = "a thread without an id is not noted"]
pub fn post<M: GlobalMem + ?Sized>(mem: &M, at: &Arrivals, id: u32) -> bool {
    if id >= IDS {
        return false;
    }
    let w = id / 64;
    mem.or(at.word(w), 1 << (id % 64));
    mem.or(at.summary, 1 << w);
    true
}

/// Takes ids that have been posted, from `next` on and then round; sets `next` behind the last one.
pub fn take<M: GlobalMem + ?Sized>(mem: &M, at: &Arrivals, next: &mut u32) -> Batch {
    take_up_to(mem, at, next, BATCH)
}

/// Takes ids like [`take`], at most `most` of them.
pub fn take_up_to<M: GlobalMem + ?Sized>(
    mem: &M,
    at: &Arrivals,
    next: &mut u32,
    most: usize,
) -> Batch {
    let most = most.min(BATCH);
    let mut batch = Batch {
        ids: [0; BATCH],
        used: 0,
        more: false,
    };
    let found = mem.swap(at.summary, 0);
    if found == 0 {
        return batch;
    }
    let (first, behind) = (*next / 64 % WORDS, u64::MAX << (*next % 64));
    let mut left = 0;
    let mut look = |w: u32, part: u64| {
        let bits = mem.load_fresh(at.word(w), Ordering::Relaxed) & part;
        let taken = batch.fill(w, bits, most);
        if taken != 0 {
            mem.and(at.word(w), !taken);
        }
        if taken != bits {
            left |= 1 << w;
        }
    };
    // The first word comes at both ends: with the ids from `next` on, and with those before. Bit n of `rest` is for
    // the word n behind the first.
    let mut rest = found.rotate_right(first);
    if rest & 1 != 0 {
        look(first, behind);
    }
    let begun = rest & 1 != 0 && behind != u64::MAX;
    rest &= !1;
    while rest != 0 {
        look((first + rest.trailing_zeros()) % WORDS, u64::MAX);
        rest &= rest - 1;
    }
    if begun {
        look(first, !behind);
    }
    if left != 0 {
        mem.or(at.summary, left);
        batch.more = true;
    }
    if let Some(last) = batch.ids().last() {
        *next = (last + 1) % IDS;
    }
    batch
}
