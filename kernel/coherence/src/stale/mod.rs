//! The back end for tests of incoherent machines: nodes whose caches are not coherent.
//!
//! One [`StaleMem`] is the memory; each [`StaleNode`] accesses it through a cache of its own:
//!
//! ```text
//!            load, store: fill              store
//!   absent ───────────────────▶ clean ───────────────▶ dirty
//!     ▲  ▲                      │   ▲                  │   │
//!     │  └── invalidate, evict ─┘   └── write back ────┘   │
//!     └───────── invalidate, evict, any RMW: write back ───┘
//! ```
//!
//! | operation | here | so a program that relies on more fails because |
//! |---|---|---|
//! | `load` | the cached line, however old; else the line is filled | it reads what is no longer so |
//! | `store` | the cached line, filled first | no other node sees it |
//! | `writeback` | the whole line goes to memory, the copy stays, clean | other words of the line are undone |
//! | `invalidate` | written back if dirty, then dropped | - |
//! | read-modify-writes | at memory; this node's copy is written back and dropped before | - |
//! | `load_fresh` | at memory; this node's copy is replaced | - |
//! | `store_through` | `store`, then `writeback`, two steps | it expects both at once |
//! | any | caches may evict a line (writing it back if dirty) or fetch one, unasked | it relies on what is not cached, or on stores that stay private |
//!
//! What caches do unasked, and which thread runs next ([`StaleMem::interleave`]), is decided by a
//! generator: the same seed gives the same run. Within one node, and at memory, everything is
//! sequentially consistent: weak ordering is for the models with loom.
//!
//! The memory watches for what a correct program never does and keeps a list ([`StaleMem::faults`]).
//! [`mutant`] takes flushes away, one place in the source at a time.

pub mod mutant;
mod turns;

use core::fmt;
use core::ops::Range;
use core::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::string::String;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use dyad_random::SplitMix64;
use dyad_shm::PhysAddr;

use crate::host::{largest_pools, lies_in};
use crate::{GlobalMem, LINE_BYTES};

pub use turns::{Task, pause};

const WORDS: usize = (LINE_BYTES / 8) as usize;

/// Choices of a run, which follow from its seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(SplitMix64(seed))
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0.below(n.max(1) as u64) as usize
    }

    /// True in `chance` of 256 cases.
    pub(crate) fn happens(&mut self, chance: u8) -> bool {
        (self.0.next() & 0xff) < chance as u64
    }
}

/// The spontaneous actions of caches, and the switches between threads: chances in 256 per operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// A line is evicted, and written back if it is dirty.
    pub evict: u8,
    /// A line is fetched: the next one, or any that has been used.
    pub fetch: u8,
    /// Another thread continues.
    pub switch: u8,
}

impl Habits {
    /// Caches without spontaneous actions: stale copies stay stale, private stores stay private.
    pub const LAZY: Habits = Habits {
        evict: 0,
        fetch: 0,
        switch: 64,
    };

    /// A different mix for every seed; every fourth is lazy, every fourth only fetches.
    pub fn of(seed: u64) -> Habits {
        let mut random = Random::new(!seed);
        Habits {
            evict: [0, 0, 40, 8][(seed % 4) as usize],
            fetch: [0, 64, 0, 64][(seed % 4) as usize],
            switch: 16 << random.below(4),
        }
    }
}

/// An event that never occurs with a correct program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A load returned a value that is no longer in memory.
    StaleRead {
        /// The reader.
        node: usize,
        /// The word.
        at: PhysAddr,
        /// The value that the access read.
        got: u64,
        /// The value in memory.
        memory: u64,
    },
    /// A line was written back for the sake of one word, and with it a word of the same line that
    /// another node had changed since.
    Undone {
        /// The node whose cache wrote the line back.
        node: usize,
        /// The word that lost the other node's change.
        at: PhysAddr,
        /// The value of the word now.
        old: u64,
        /// The value that the other node had stored, and that is lost.
        lost: u64,
    },
    /// Two nodes stored to one word at the same time.
    Overwritten {
        /// The node whose store came later.
        node: usize,
        /// The word.
        at: PhysAddr,
        /// The value that another node had stored meanwhile, and that is lost.
        lost: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::StaleRead {
                node,
                at,
                got,
                memory,
            } => write!(
                f,
                "node {node} read {got:#x} at {at} from its cache; memory holds {memory:#x}"
            ),
            Fault::Undone {
                node,
                at,
                old,
                lost,
            } => write!(
                f,
                "node {node} wrote back a line and set {at} from {lost:#x} back to {old:#x}"
            ),
            Fault::Overwritten { node, at, lost } => {
                write!(f, "node {node} overwrote {lost:#x} at {at} unseen")
            }
        }
    }
}

/// Counts of a node's operations. Composed operations count as their parts too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Loads, those of `load_fresh` included.
    pub loads: u64,
    /// Stores, those of `store_through` included.
    pub stores: u64,
    /// Read-modify-writes.
    pub rmws: u64,
    /// Full fences.
    pub fences: u64,
    /// Lines that write-backs named.
    pub writebacks: u64,
    /// Lines that invalidations named, those of `load_fresh` included.
    pub invalidates: u64,
    /// Lines filled from memory, unasked ones included.
    pub fills: u64,
    /// Lines evicted unasked.
    pub evictions: u64,
}

/// The contents of a line. Versions distinguish changes that restore an old value.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    words: [u64; WORDS],
    versions: [u64; WORDS],
}

/// A line in a cache.
#[derive(Clone, Copy, Debug)]
struct CachedLine {
    line: Line,
    /// One bit per word stored to since the line was last clean.
    dirty: u8,
}

/// A line that has been used.
#[derive(Debug)]
struct Known {
    at: u64,
    memory: Line,
    /// The copies, by node.
    copies: Vec<Option<CachedLine>>,
}

/// Everything behind the lock.
#[derive(Debug)]
struct State {
    /// Lines ever used, in order: what may be fetched unasked.
    lines: Vec<Known>,
    /// Indexes of the known lines, by address.
    index: BTreeMap<u64, usize>,
    /// The one that was asked for last; most often it is the next one too.
    last: usize,
    /// The number of lines in each node's cache.
    cached: Vec<usize>,
    counts: Vec<Counts>,
    random: Random,
    habits: Habits,
    faults: Vec<Fault>,
}

/// The address of the line of a word, and which word of it.
fn split(at: PhysAddr) -> (u64, usize) {
    (at.0 & !(LINE_BYTES - 1), (at.0 % LINE_BYTES / 8) as usize)
}

impl State {
    /// The index of a line, if it is known.
    fn find(&mut self, line: u64) -> Option<usize> {
        if self.lines.get(self.last).is_none_or(|k| k.at != line) {
            self.last = *self.index.get(&line)?;
        }
        Some(self.last)
    }

    /// The entry of a line, added if it is not known.
    fn line(&mut self, line: u64) -> &mut Known {
        let found = self.find(line).unwrap_or_else(|| {
            self.last = self.lines.len();
            self.index.insert(line, self.last);
            self.lines.push(Known {
                at: line,
                memory: Line::default(),
                copies: std::vec![None; self.counts.len()],
            });
            self.last
        });
        &mut self.lines[found]
    }

    /// A line of which the node has a copy, filled if there was none.
    fn cached(&mut self, node: usize, line: u64) -> (&Line, &mut CachedLine) {
        if self.line(line).copies[node].is_none() {
            self.counts[node].fills += 1;
            self.cached[node] += 1;
        }
        let entry = self.line(line);
        let copy = entry.copies[node].get_or_insert(CachedLine {
            line: entry.memory,
            dirty: 0,
        });
        (&entry.memory, copy)
    }

    fn load(&mut self, node: usize, at: PhysAddr) -> u64 {
        let (line, word) = split(at);
        let (memory, copy) = self.cached(node, line);
        let (got, memory) = (copy.line.words[word], memory.words[word]);
        if copy.dirty >> word & 1 == 0 && got != memory {
            self.faults.push(Fault::StaleRead {
                node,
                at,
                got,
                memory,
            });
        }
        self.counts[node].loads += 1;
        got
    }

    fn store(&mut self, node: usize, at: PhysAddr, value: u64) {
        let (line, word) = split(at);
        let (memory, copy) = self.cached(node, line);
        copy.line.words[word] = value;
        // The store comes after everything that is in memory by now.
        if copy.dirty >> word & 1 == 0 {
            copy.line.versions[word] = memory.versions[word];
        }
        copy.dirty |= 1 << word;
        self.counts[node].stores += 1;
    }

    fn write_back(&mut self, node: usize, line: u64) {
        let Some(found) = self.find(line) else {
            return;
        };
        let Known { memory, copies, .. } = &mut self.lines[found];
        let Some(copy) = copies[node].as_mut().filter(|c| c.dirty != 0) else {
            return;
        };
        for word in 0..WORDS {
            let at = PhysAddr(line + 8 * word as u64);
            let (new, lost) = (copy.line.words[word], memory.words[word]);
            let changed = copy.line.versions[word] != memory.versions[word];
            let stored = copy.dirty >> word & 1 != 0;
            if changed && stored {
                self.faults.push(Fault::Overwritten { node, at, lost });
            } else if changed && new != lost {
                let old = new;
                self.faults.push(Fault::Undone {
                    node,
                    at,
                    old,
                    lost,
                });
            }
            if stored || changed {
                memory.words[word] = new;
                memory.versions[word] += 1;
            }
        }
        copy.line = *memory;
        copy.dirty = 0;
    }

    fn drop_line(&mut self, node: usize, line: u64) {
        self.write_back(node, line);
        if let Some(found) = self.find(line)
            && self.lines[found].copies[node].take().is_some()
        {
            self.cached[node] -= 1;
        }
    }

    /// The lines that a node's cache holds, by address.
    fn cached_lines(&self, node: usize) -> impl Iterator<Item = u64> {
        let holds = move |&&k: &&usize| self.lines[k].copies[node].is_some();
        self.index.values().filter(holds).map(|&k| self.lines[k].at)
    }

    /// Performs the spontaneous actions of the node's cache after an access to `line`.
    fn habits(&mut self, node: usize, line: u64) {
        if self.random.happens(self.habits.fetch) && !self.lines.is_empty() {
            let next = line + LINE_BYTES;
            let any = self.random.below(self.lines.len());
            let any = self.lines[any].at;
            let beside = self.random.happens(128) && self.index.contains_key(&next);
            self.cached(node, if beside { next } else { any });
        }
        if self.random.happens(self.habits.evict) && self.cached[node] != 0 {
            let victim = self.random.below(self.cached[node]);
            let victim = self.cached_lines(node).nth(victim).expect("in range");
            self.drop_line(node, victim);
            self.counts[node].evictions += 1;
        }
    }
}

/// Memory of all pools a system can have, zeroed, and a cache per node. The header of the module
/// says how it behaves.
#[derive(Debug)]
pub struct StaleMem {
    ranges: Vec<Range<u64>>,
    state: Mutex<State>,
    turns: turns::Turns,
}

impl StaleMem {
    /// Memory for that many nodes, with the [`Habits::of`] a seed.
    pub fn new(nodes: usize, seed: u64) -> StaleMem {
        StaleMem::with_habits(nodes, seed, Habits::of(seed))
    }

    /// Makes a memory like [`new`](StaleMem::new), with the given habits.
    pub fn with_habits(nodes: usize, seed: u64, habits: Habits) -> StaleMem {
        StaleMem {
            ranges: largest_pools(),
            state: Mutex::new(State {
                lines: Vec::new(),
                index: BTreeMap::new(),
                last: 0,
                cached: std::vec![0; nodes],
                counts: std::vec![Counts::default(); nodes],
                random: Random::new(seed),
                habits,
                faults: Vec::new(),
            }),
            turns: turns::Turns::new(seed, habits.switch),
        }
    }

    /// The memory as one of the nodes sees it.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn node(&self, node: usize) -> StaleNode<'_> {
        assert!(node < self.state().counts.len(), "no node {node}");
        StaleNode { mem: self, node }
    }

    /// The value of a word in memory, whatever caches hold.
    pub fn in_memory(&self, at: PhysAddr) -> u64 {
        let (line, word) = split(at);
        self.state().line(line).memory.words[word]
    }

    /// The faults so far.
    pub fn faults(&self) -> Vec<Fault> {
        self.state().faults.clone()
    }

    /// The first fault as an error, if there was one.
    pub fn check(&self) -> Result<(), String> {
        match self.state().faults.first() {
            None => Ok(()),
            Some(first) => Err(std::format!("{first}")),
        }
    }

    /// The first fault as an error, but for stale reads: for protocols that find out by themselves what is old.
    pub fn check_writes(&self) -> Result<(), String> {
        let state = self.state();
        let mut faults = state.faults.iter();
        match faults.find(|f| !matches!(f, Fault::StaleRead { .. })) {
            None => Ok(()),
            Some(first) => Err(std::format!("{first}")),
        }
    }

    /// The counts of a node's operations.
    pub fn counts(&self, node: usize) -> Counts {
        self.state().counts[node]
    }

    /// Evicts everything from a node's cache.
    pub fn evict_all(&self, node: usize) {
        let mut state = self.state();
        let lines: Vec<_> = state.cached_lines(node).collect();
        for line in lines {
            state.drop_line(node, line);
        }
    }

    /// A node has died: what only its cache had is lost.
    pub fn lose(&self, node: usize) {
        let mut state = self.state();
        for line in &mut state.lines {
            line.copies[node] = None;
        }
        state.cached[node] = 0;
    }

    /// Runs tasks as threads, one at a time; before each operation on this memory the generator may switch to
    /// another task. Fails with the first failure of a task, or if a task has not ended after `steps`
    /// operations, because it waits for an event that never occurs.
    pub fn interleave(&self, steps: u64, tasks: Vec<Task<'_>>) -> Result<(), String> {
        self.turns.run(steps, tasks)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node: its access to a [`StaleMem`].
#[derive(Clone, Copy, Debug)]
pub struct StaleNode<'m> {
    mem: &'m StaleMem,
    node: usize,
}

impl StaleNode<'_> {
    /// One operation on the line of `at`, when it is this thread's turn.
    fn act<R>(&self, at: PhysAddr, f: impl FnOnce(&mut State) -> R) -> R {
        assert!(
            at.0.is_multiple_of(8) && self.contains(at, 8),
            "no word of shared memory at {at}"
        );
        self.mem.turns.step();
        let mut state = self.mem.state();
        let result = f(&mut state);
        state.habits(self.node, split(at).0);
        result
    }

    fn rmw(&self, at: PhysAddr, f: impl FnOnce(u64) -> Option<u64>) -> (u64, bool) {
        self.act(at, |state| {
            let (line, word) = split(at);
            state.drop_line(self.node, line);
            state.counts[self.node].rmws += 1;
            let memory = &mut state.line(line).memory;
            let old = memory.words[word];
            let new = f(old);
            if let Some(new) = new {
                memory.words[word] = new;
                memory.versions[word] += 1;
            }
            (old, new.is_some())
        })
    }

    fn for_lines(&self, at: PhysAddr, len: u64, mut f: impl FnMut(&mut State, u64)) {
        if len == 0 {
            return;
        }
        assert!(self.contains(at, len), "no shared memory at {at}");
        self.mem.turns.step();
        let mut state = self.mem.state();
        let first = split(at).0;
        for line in (first..at.0 + len).step_by(LINE_BYTES as usize) {
            f(&mut state, line);
        }
        state.habits(self.node, first);
    }
}

impl GlobalMem for StaleNode<'_> {
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        lies_in(&self.mem.ranges, at, len)
    }

    fn load(&self, at: PhysAddr, _order: Ordering) -> u64 {
        self.act(at, |state| state.load(self.node, at))
    }

    fn store(&self, at: PhysAddr, value: u64, _order: Ordering) {
        self.act(at, |state| state.store(self.node, at, value));
    }

    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        match self.rmw(at, |now| (now == old).then_some(new)) {
            (now, true) => Ok(now),
            (now, false) => Err(now),
        }
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        self.rmw(at, |_| Some(value)).0
    }

    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        self.rmw(at, |now| Some(now.wrapping_add(n))).0
    }

    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        self.rmw(at, |now| Some(now | bits)).0
    }

    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        self.rmw(at, |now| Some(now & bits)).0
    }

    fn fence(&self) {
        self.mem.turns.step();
        self.mem.state().counts[self.node].fences += 1;
    }

    fn writeback(&self, at: PhysAddr, len: u64) {
        self.for_lines(at, len, |state, line| {
            state.counts[self.node].writebacks += 1;
            state.write_back(self.node, line);
        });
    }

    fn invalidate(&self, at: PhysAddr, len: u64) {
        self.for_lines(at, len, |state, line| {
            state.counts[self.node].invalidates += 1;
            state.drop_line(self.node, line);
        });
    }

    /// Loads fresh in one step: a line that hardware fetches between the two parts is as new as this load.
    fn load_fresh(&self, at: PhysAddr, _order: Ordering) -> u64 {
        self.act(at, |state| {
            state.counts[self.node].invalidates += 1;
            state.drop_line(self.node, split(at).0);
            state.load(self.node, at)
        })
    }
}

#[cfg(test)]
mod tests;
