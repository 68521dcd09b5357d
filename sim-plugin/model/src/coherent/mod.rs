//! A CPU's caches in front of the directory: what an access costs, and which messages it sends.
//!
//! Rules, which the module `naive` checks access by access:
//!
//! - An access costs the latency of the level that has the line; instructions found in the first
//!   level cost nothing. All levels on the way get a copy, the last level first.
//! - First and second level evict silently. The last level holds all fused lines that are above it:
//!   evicting one removes it there, which takes a back-invalidation (BISnp) if somebody had it, and
//!   ends its node's ownership. It knows nothing of private lines above it.
//! - A line that is flushed leaves the CPU's levels and the last level, good or dead.
//! - Private lines have no state: what is dirty of them is not known, and never written back.
//!
//! `index` is a line's place in the directory. Beyond its end lines are private: they never touch
//! it. See [`Memory::index_base`].

mod system;

pub use system::{Storage, System};

use std::sync::atomic::AtomicU64;

use crate::account::Counters;
use crate::cache::{Cache, identity};
use crate::config::{Coherence, Latencies, MemoryModel, SimConfig, SnoopCosts};
use crate::directory::{Agent, Drop, Mine, State, Step, Word, read, update};
use crate::last::LastLevel;
use crate::memory::{Class, LINE_BITS, LINE_MASK, Memory};

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Fetches instructions.
    Fetch,
    /// Loads.
    Load,
    /// Stores.
    Store,
    /// Reads, modifies and writes: one request for ownership.
    Rmw,
}

impl Kind {
    /// Whether it writes.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Store | Self::Rmw)
    }
}

/// What cache maintenance does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushKind {
    /// Writes back and drops (CLFLUSH, CLFLUSHOPT, DC CIVAC, and DC IVAC, which hardware may
    /// strengthen so).
    Flush,
    /// Writes back and keeps (CLWB, DC CVAC).
    Clean,
}

/// Where a good copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    L1,
    L2,
    L3,
    Nowhere,
}

/// A CPU: its caches and counters.
#[derive(Debug)]
pub struct Core<'a> {
    l1d: Cache,
    directory: &'a [AtomicU64],
    mine: Mine,
    /// Counters. Some are counted by whoever drives the model.
    pub counts: Counters,
    latency: Latencies,
    l1i: Cache,
    l2: Cache,
    l3: LastLevel<'a>,
    me: Agent,
    snoop: SnoopCosts,
    memory: Memory,
}

impl<'a> Core<'a> {
    /// CPU `cpu` of `node`, with empty caches. In the incoherent mode no line is in the directory.
    ///
    /// # Panics
    ///
    /// If a cache has a geometry that [`Cache::new`] refuses, or the directory has fewer words than
    /// there are fused lines.
    pub fn new(
        config: &SimConfig,
        node: usize,
        cpu: usize,
        directory: &'a [AtomicU64],
        l3: LastLevel<'a>,
    ) -> Self {
        let shape = &config.nodes[node];
        let memory = Memory::new(config, node);
        let directory = match config.coherence {
            Coherence::Coherent => &directory[..memory.fused_lines()],
            Coherence::Incoherent => &[],
        };
        let me = Agent {
            node,
            cpu,
            alone: shape.cpus == 1,
            one_last_level: config.model == MemoryModel::FullyShared,
        };
        Self {
            l1i: Cache::new(shape.l1i),
            l1d: Cache::new(shape.l1d),
            l2: Cache::new(shape.l2),
            l3,
            directory,
            memory,
            me,
            mine: Mine::new(me),
            latency: shape.latency,
            snoop: shape.snoop,
            counts: Counters::default(),
        }
    }

    /// Memory as this CPU's node sees it.
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Locks of the last level that were taken away from CPUs that held them for too long.
    pub const fn stolen_locks(&self) -> u64 {
        self.l3.stolen()
    }

    /// Loads from a line, if that is the line of its set that was used last and the copy is good; then
    /// the latency is that of the first level. Otherwise nothing happens.
    #[inline(always)]
    pub fn quick_load(&mut self, line: u64, index: usize) -> bool {
        let good = first(&self.l1d, self.directory, self.mine, line, index);
        if good {
            self.counts.loads += 1;
        }
        good
    }

    /// Stores to a line, as [`quick_load`](Core::quick_load) loads, if this CPU has modified it before.
    #[inline(always)]
    pub fn quick_store(&mut self, line: u64, index: usize) -> bool {
        let good = self.owns_first(line, index);
        if good {
            self.counts.stores += 1;
        }
        good
    }

    /// Fetches a line of instructions. Returns the latency in cycles.
    #[inline(always)]
    pub fn fetch(&mut self, line: u64, index: usize) -> u64 {
        self.counts.fetches += 1;
        if first(&self.l1i, self.directory, self.mine, line, index) {
            return 0;
        }
        self.near(Kind::Fetch, line, index)
    }

    /// Loads from a line. Returns the latency in cycles.
    #[inline(always)]
    pub fn load(&mut self, line: u64, index: usize) -> u64 {
        if self.quick_load(line, index) {
            return self.latency.l1;
        }
        self.other_load(line, index)
    }

    /// A load that [`quick_load`](Core::quick_load) has not done. Returns the latency in cycles.
    #[inline(never)]
    pub fn other_load(&mut self, line: u64, index: usize) -> u64 {
        self.counts.loads += 1;
        self.near(Kind::Load, line, index)
    }

    /// Stores to a line. Returns the latency in cycles.
    #[inline(always)]
    pub fn store(&mut self, line: u64, index: usize) -> u64 {
        if self.quick_store(line, index) {
            return self.latency.l1;
        }
        self.other_store(line, index)
    }

    /// A store that [`quick_store`](Core::quick_store) has not done. Returns the latency in cycles.
    #[inline(never)]
    pub fn other_store(&mut self, line: u64, index: usize) -> u64 {
        self.counts.stores += 1;
        self.near(Kind::Store, line, index)
    }

    /// Reads, modifies and writes a line. Returns the latency in cycles.
    #[inline(always)]
    pub fn rmw(&mut self, line: u64, index: usize) -> u64 {
        self.counts.rmws += 1;
        if self.owns_first(line, index) {
            return self.latency.l1;
        }
        self.near(Kind::Rmw, line, index)
    }

    /// Any of these. Returns the latency in cycles.
    #[inline(always)]
    pub fn access(&mut self, kind: Kind, line: u64, index: usize) -> u64 {
        match kind {
            Kind::Fetch => self.fetch(line, index),
            Kind::Load => self.load(line, index),
            Kind::Store => self.store(line, index),
            Kind::Rmw => self.rmw(line, index),
        }
    }

    /// The second line of an access that spans two: counted as a line, not as an access. Returns
    /// the latency in cycles.
    pub fn second_line(&mut self, kind: Kind, line: u64, index: usize) -> u64 {
        self.counts.split += u64::from(kind != Kind::Fetch);
        self.access(kind, line, index)
    }

    #[inline(always)]
    fn owns_first(&self, line: u64, index: usize) -> bool {
        let first = self.l1d.first(line);
        match self.directory.get(index) {
            None => first == line,
            Some(word) => {
                let word = read(word);
                first == word.key(line) && self.mine.modified(word)
            }
        }
    }

    /// What the first way has not answered: perhaps another way of the first level does.
    #[inline(always)]
    fn near(&mut self, kind: Kind, line: u64, index: usize) -> u64 {
        let (key, good) = match self.directory.get(index) {
            None => (line, true),
            Some(word) => {
                let word = read(word);
                let good = match kind.writes() {
                    true => self.mine.modified(word),
                    false => self.mine.shared(word),
                };
                (word.key(line), good)
            }
        };
        match kind {
            Kind::Fetch if good && self.l1i.promote(key) => 0,
            Kind::Load | Kind::Store | Kind::Rmw if good && self.l1d.promote(key) => {
                self.latency.l1
            }
            _ => self.slow(kind, line, index),
        }
    }

    /// An access that finds no copy in the first level that can be used as it is.
    #[cold]
    #[inline(never)]
    fn slow(&mut self, kind: Kind, line: u64, index: usize) -> u64 {
        let Some(word) = self.directory.get(index) else {
            return self.private(kind, line);
        };
        // A second CPU of a node has to tell the directory.
        if self.me.alone {
            let seen = read(word);
            let good = match kind.writes() {
                true => self.mine.modified(seen),
                false => self.mine.shared(seen),
            };
            let key = seen.key(line);
            if good && let Some(cycles) = self.below(kind, line, key, key, identity(true)) {
                return cycles;
            }
        }
        self.fused(kind, line, word)
    }

    /// An access that the second or the last level serves, or else `None`.
    fn below(
        &mut self,
        kind: Kind,
        line: u64,
        key: u64,
        last_key: u64,
        identity: u64,
    ) -> Option<u64> {
        let found = if self.l2.touch(key) {
            Found::L2
        } else if self.l3.touch(last_key) {
            self.l2.push(key, identity);
            Found::L3
        } else {
            return None;
        };
        self.l1(kind).push(key, identity);
        Some(self.book(kind, found, line))
    }

    fn l1(&mut self, kind: Kind) -> &mut Cache {
        if kind == Kind::Fetch {
            &mut self.l1i
        } else {
            &mut self.l1d
        }
    }

    /// The key in the last level of a line that is not in the directory. One that all nodes share
    /// has to tell the nodes' own memories apart.
    fn last_key(&self, line: u64) -> u64 {
        if self.me.one_last_level && self.memory.locate(line).is_none() {
            line | (self.me.node as u64) << LINE_BITS
        } else {
            line
        }
    }

    /// An access to a line that is not in the directory, nor in the first level.
    fn private(&mut self, kind: Kind, line: u64) -> u64 {
        let last_key = self.last_key(line);
        if let Some(cycles) = self.below(kind, line, line, last_key, identity(false)) {
            return cycles;
        }
        let cycles =
            self.book(kind, Found::Nowhere, line) + self.fill_last(last_key, identity(false));
        self.l2.push(line, identity(false));
        self.l1(kind).push(line, identity(false));
        cycles
    }

    /// Where there is a copy with this key. `own` says whether those of the CPU's own levels are
    /// good, `last` whether that of the last level is.
    fn find(&mut self, kind: Kind, key: u64, own: bool, last: bool) -> Found {
        if own && self.l1(kind).holds(key) {
            Found::L1
        } else if own && self.l2.holds(key) {
            Found::L2
        } else if last && self.l3.holds(key) {
            Found::L3
        } else {
            Found::Nowhere
        }
    }

    fn fused(&mut self, kind: Kind, line: u64, word: &AtomicU64) -> u64 {
        let me = self.me;
        let taken = update(word, |word| {
            let own = word.shared_by(me.node);
            let last = own || (me.one_last_level && word.state() != State::Uncached);
            let found = self.find(kind, word.key(line), own, last);
            let step = if kind.writes() {
                word.store(me)
            } else {
                word.load(me, own && found != Found::Nowhere)
            };
            Some((step, found))
        });
        let Some((before, step, found)) = taken else {
            return 0; // Every word has a next step.
        };
        let mut cycles = self.book_snoops(kind, before, step, found);
        if step.forward {
            cycles += self.book_forward(kind, found, line);
        } else {
            cycles += self.book(kind, found, line);
        }
        if step.sibling {
            // However near the copy is, the last level has to ask the siblings.
            let wait = self.latency.l3.saturating_sub(match found {
                Found::L1 => self.latency.l1,
                Found::L2 => self.latency.l2,
                Found::L3 | Found::Nowhere => u64::MAX,
            });
            self.counts.l3_cycles += wait;
            cycles += wait;
        }

        // Copies: those that stay get the new version, then the levels on the way are filled.
        let (old, new) = (before.key(line), step.next.key(line));
        let mut in_last = true;
        if old != new {
            if before.shared_by(me.node) {
                self.l1i.rekey(old, new);
                self.l1d.rekey(old, new);
                self.l2.rekey(old, new);
            }
            in_last = self.l3.rekey(old, new);
        }
        match found {
            Found::L1 | Found::L2 if in_last => {}
            Found::L3 => {
                self.l3.touch(new);
            }
            _ => cycles += self.fill_last(new, identity(true)),
        }
        match found {
            Found::L1 => {}
            Found::L2 => {
                self.l2.touch(new);
            }
            Found::L3 | Found::Nowhere => {
                self.l2.push(new, identity(true));
            }
        }
        self.l1(kind).push(new, identity(true));
        cycles
    }

    /// Books the messages of an access, and what they cost.
    fn book_snoops(&mut self, kind: Kind, before: Word, step: Step, found: Found) -> u64 {
        let counts = &mut self.counts;
        let mut cycles = 0;
        if step.data != 0 {
            counts.snp_data += u64::from(step.data);
            cycles += self.snoop.data;
        }
        if step.inv != 0 {
            counts.snp_inv += u64::from(step.inv);
            counts.invalidations += 1;
            cycles += self.snoop.inv;
        }
        counts.writebacks += u64::from(step.writeback);
        counts.sibling_writes += u64::from(step.sibling);
        let held = before.shared_by(self.me.node) && found != Found::Nowhere;
        if kind.writes() && held && before.state() != State::Modified {
            if step.inv == 0 {
                counts.upgrades_silent += 1;
            } else {
                counts.upgrades_snooped += 1;
            }
        }
        counts.snoop_cycles += cycles;
        cycles
    }

    /// What the line's data costs a CPU that has no copy, and whether the last level has it.
    fn supply(&self, found: Found, line: u64) -> (u64, Option<Class>) {
        match found {
            Found::L3 => (self.latency.l3, None),
            _ => match self.memory.class(line) {
                Class::Local => (self.latency.local, Some(Class::Local)),
                Class::Remote => (self.latency.remote, Some(Class::Remote)),
            },
        }
    }

    fn miss_l1(&mut self, kind: Kind) {
        if kind == Kind::Fetch {
            self.counts.l1i_misses += 1;
        } else {
            self.counts.l1d_misses += 1;
        }
    }

    /// Books where an access found its line, and returns what that costs.
    fn book(&mut self, kind: Kind, found: Found, line: u64) -> u64 {
        if found == Found::L1 {
            return if kind == Kind::Fetch {
                0
            } else {
                self.latency.l1
            };
        }
        self.miss_l1(kind);
        if found == Found::L2 {
            self.counts.l2_cycles += self.latency.l2;
            return self.latency.l2;
        }
        self.counts.l2_misses += 1;
        let (cycles, class) = self.supply(found, line);
        let counts = &mut self.counts;
        match class {
            None => counts.l3_cycles += cycles,
            Some(Class::Local) => {
                counts.local += 1;
                counts.local_cycles += cycles;
            }
            Some(Class::Remote) => {
                counts.remote += 1;
                counts.remote_cycles += cycles;
            }
        }
        counts.l3_misses += u64::from(class.is_some());
        cycles
    }

    /// Books data that another node's cache forwards.
    fn book_forward(&mut self, kind: Kind, found: Found, line: u64) -> u64 {
        let cycles = match self.snoop.forward {
            Some(cycles) => cycles,
            None => self.supply(found, line).0,
        };
        self.miss_l1(kind);
        self.counts.l2_misses += 1;
        self.counts.l3_misses += 1;
        self.counts.forwarded += 1;
        self.counts.forward_cycles += cycles;
        cycles
    }

    /// Puts a line into the last level. Returns what removing another costs.
    fn fill_last(&mut self, key: u64, identity: u64) -> u64 {
        match self.l3.push(key, identity) {
            Some(victim) => self.evicted(victim),
            None => 0,
        }
    }

    /// The last level has evicted a copy.
    fn evicted(&mut self, victim: u64) -> u64 {
        let place = self.memory.locate(victim & LINE_MASK);
        let Some(word) = place.and_then(|place| self.directory.get(place.index)) else {
            return 0;
        };
        let me = self.me;
        let taken = update(word, |word| {
            // A dead copy is nobody's.
            let good = word.key(victim & LINE_MASK) == victim;
            let step = good.then(|| word.drop_line(me, Drop::Evict)).flatten()?;
            Some((step, ()))
        });
        let Some((_, step, ())) = taken else { return 0 };
        let removed = self.remove_own(victim, u64::MAX);
        self.counts.back_invalidated += removed;
        self.book_drop(step, removed != 0)
    }

    /// Removes a line from this CPU's own levels. Returns how many copies there were.
    fn remove_own(&mut self, key: u64, identity: u64) -> u64 {
        [&mut self.l1i, &mut self.l1d, &mut self.l2]
            .into_iter()
            .map(|level| u64::from(level.remove(key, identity)))
            .sum()
    }

    /// Books a line that left the last level. `own` says whether this CPU's levels had to be asked.
    fn book_drop(&mut self, step: Step, own: bool) -> u64 {
        let mut cycles = 0;
        if own || step.back {
            self.counts.bi_snp += 1;
            cycles += self.snoop.back;
        }
        if step.writeback {
            self.counts.writebacks += 1;
            cycles += self.snoop.writeback;
        }
        self.counts.snoop_cycles += cycles;
        cycles
    }

    /// Cache maintenance of a line. Returns the latency in cycles.
    pub fn flush(&mut self, kind: FlushKind, line: u64, index: usize) -> u64 {
        self.counts.flushes += 1;
        let me = self.me;
        let word = self.directory.get(index);
        let taken = word.and_then(|word| {
            update(word, |word| {
                let step = match kind {
                    FlushKind::Flush => word.drop_line(me, Drop::Flush),
                    FlushKind::Clean => word.clean(me),
                };
                step.map(|step| (step, ()))
            })
        });
        if kind == FlushKind::Flush {
            let fused = word.is_some();
            self.remove_own(line, identity(fused));
            let key = if fused { line } else { self.last_key(line) };
            self.l3.remove(key, identity(fused));
        }
        match taken {
            Some((_, step, ())) => self.book_drop(step, false),
            None => 0,
        }
    }
}

/// Whether a load or fetch finds its line in the first way.
#[inline(always)]
fn first(l1: &Cache, directory: &[AtomicU64], mine: Mine, line: u64, index: usize) -> bool {
    let first = l1.first(line);
    match directory.get(index) {
        None => first == line,
        Some(word) => {
            let word = read(word);
            first == word.key(line) && mine.shared(word)
        }
    }
}
