//! A CPU's caches in front of the directory: what an access costs, and which messages it sends.
//!
//! Rules, which the module `naive` checks access by access:
//!
//! - An access costs the latency of the level that has the line; instructions found in the first
//!   level cost nothing. Where all nodes share the last level, a line that another node has modified is
//!   found there. All levels on the way get a copy, the last level first.
//! - A fill takes an invalid way of the set, if there is one, before it evicts the least recently used line.
//! - First and second level evict silently. The last level holds all fused lines that are above it:
//!   evicting one removes it there, which takes an inclusion snoop if a cache above had it, and
//!   ends its node's ownership. Shared copies of other CPUs of the node stay, and it knows nothing of
//!   private lines above it.
//! - An access that asks a device for a line can cost another line its tag in the filter of the device, and thereby its
//!   copies in all nodes (see `filter`).
//! - A line that is flushed leaves all caches of all nodes; what is dead of it leaves the CPU's levels and
//!   the last level, too.
//! - A flush of everything empties the CPU's levels and the last level, as if the last level evicted each line. It pays
//!   for what is written back, and sends nothing.
//! - Private lines have no state: what is dirty of them is not known, and never written back.
//!
//! `index` is a line's place in the directory. Beyond its end lines are private: they never touch
//! it. See [`Memory::index_base`].

mod book;
mod filter;
mod invalid;
mod leave;
mod paths;
mod queue;
mod release;
mod system;

pub(crate) use filter::filter_shape;
#[cfg(test)]
pub(crate) use queue::Channel;
pub use queue::Queues;
pub use release::Releases;
pub use system::{Storage, System};

use std::sync::atomic::AtomicU64;

use self::invalid::Invalid;
use crate::account::Counters;
use crate::cache::{Cache, identity};
use crate::config::{Latencies, MemoryModel, SimConfig, SnoopCosts};
use crate::directory::{Agent, Mine, State, Step, Word, read, update};
use crate::disturb::Disturbed;
use crate::first::{FirstLevel, Name, Promise};
use crate::last::LastLevel;
use crate::lines::Lines;
use crate::memory::{LINE_BITS, LINE_MASK, Memory};
use paths::Paths;

/// The kind of an access.
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
    /// Whether the access writes.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Store | Self::Rmw)
    }
}

/// The kind of a cache maintenance operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushKind {
    /// Writes back and drops (CLFLUSH, CLFLUSHOPT, DC CIVAC, and DC IVAC, which hardware may
    /// strengthen so).
    Flush,
    /// Writes back and keeps (CLWB, DC CVAC).
    Clean,
    /// Writes back and drops all that this CPU's levels and the last level hold, whatever the line (WBINVD; the first of
    /// the operations by set and way that do it on AArch64).
    Everything,
}

/// The place of a valid copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    L1,
    L2,
    L3,
    Nowhere,
}

/// State that CPUs share, other than last levels. Initially zero.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    /// Words and times of fused lines.
    pub lines: Lines<'a>,
    /// [`Disturbed::words`] words.
    pub disturbed: &'a [AtomicU64],
}

/// What a CPU may do with a line.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// The key that good copies have.
    key: u64,
    fused: bool,
    readable: bool,
    /// Whether the CPU may write without a message.
    writable: bool,
}

impl Look {
    #[inline(always)]
    const fn good_for(self, kind: Kind) -> bool {
        if kind.writes() {
            self.writable
        } else {
            self.readable
        }
    }

    #[inline(always)]
    const fn promise(self) -> Promise {
        match self.writable {
            true => Promise::Write,
            false => Promise::Read,
        }
    }
}

/// A CPU: its caches and counters.
#[derive(Debug)]
pub struct Core<'a> {
    l1d: FirstLevel,
    disturbed: Disturbed<'a>,
    invalid: Invalid,
    lines: Lines<'a>,
    mine: Mine,
    pub(crate) counts: Counters,
    latency: Latencies,
    l1i: Cache,
    l2: Cache,
    l3: LastLevel<'a>,
    /// See [`NodeConfig::l3_query`](crate::config::NodeConfig::l3_query); the ways of the last level, or 0.
    queries: u32,
    me: Agent,
    snoop: SnoopCosts,
    paths: Paths,
    memory: Memory,
    releases: Option<Releases<'a>>,
    /// Tags of the device's filter, if it has one.
    filter: Option<LastLevel<'a>>,
    queues: Option<Queues<'a>>,
}

impl<'a> Core<'a> {
    /// CPU `cpu` of `node`, with empty caches.
    ///
    /// # Panics
    ///
    /// If a cache has a geometry that [`Cache::new`] refuses.
    pub fn new(
        config: &SimConfig,
        node: usize,
        cpu: usize,
        shared: Shared<'a>,
        l3: LastLevel<'a>,
    ) -> Self {
        let shape = &config.nodes[node];
        let memory = Memory::new(config, node);
        let me = Agent {
            node,
            cpu,
            alone: shape.cpus == 1,
            one_last_level: config.model == MemoryModel::FullyShared,
            through_home: shape.snoop.through_home,
        };
        Self {
            l1i: Cache::new(shape.l1i),
            l1d: FirstLevel::new(shape.l1d),
            l2: Cache::new(shape.l2),
            l3,
            queries: if shape.l3_query { shape.l3.ways } else { 0 },
            lines: shared.lines,
            disturbed: Disturbed::new(config, me, shared.disturbed),
            invalid: Invalid::new(shape),
            memory,
            me,
            mine: Mine::new(me),
            latency: Latencies {
                l1: shape.l1_cycles(),
                ..shape.latency
            },
            snoop: shape.snoop,
            paths: Paths::new(config, node),
            counts: Counters::default(),
            releases: None,
            filter: None,
            queues: None,
        }
    }

    /// Accesses wait for the times at which others have written what they take.
    pub fn heed_releases(&mut self, releases: Releases<'a>) {
        self.releases = Some(releases);
    }

    /// Counters, without those that the driver of the model counts.
    pub const fn counts(&self) -> Counters {
        let mut counts = self.counts;
        // Whatever else accesses data is counted.
        counts.loads = self.l1d.uses() - counts.stores - counts.rmws;
        counts
    }

    /// Memory as this CPU's node sees it.
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Locks of the last level that were taken away from CPUs that held them for too long.
    pub const fn stolen_locks(&self) -> u64 {
        self.l3.stolen()
    }

    /// Promises of the memo that do not hold, with what has been announced so far.
    #[cfg(test)]
    pub(crate) fn broken_promises(&mut self) -> usize {
        self.heed();
        let broken = self.l1d.promises().filter(|&(key, promise)| {
            let line = key & LINE_MASK;
            let index = self.memory.index_base(line).wrapping_add(line) as usize;
            let look = self.look(line, index);
            let allowed = match promise {
                Promise::Read => look.readable,
                Promise::Write => look.readable && look.writable,
            };
            look.key != key || !allowed
        });
        broken.count()
    }

    /// Sets whether the fast paths do nothing. Names stay valid.
    pub fn hide_names(&mut self, hidden: bool) {
        self.l1d.hide_names(hidden);
    }

    /// The line that an access by this name would be taken for without looking further.
    pub fn remembered(&self, name: Name) -> Option<u64> {
        self.l1d.remembered(name).map(|key| key & LINE_MASK)
    }

    /// Declares that names stand for other lines from here on.
    pub fn forget_names(&mut self) {
        self.l1d.forget_names();
    }

    /// Loads from a line, if the first level has a good copy that has been accessed by this name;
    /// then the latency is that of the first level. Otherwise nothing happens.
    #[inline(always)]
    pub fn quick_load(&mut self, name: Name) -> bool {
        // Loads are what is counted as nothing else.
        self.l1d.recall::<false>(name, self.disturbed.news())
    }

    /// Stores to a line, as [`quick_load`](Core::quick_load) loads, if this CPU has modified it before.
    #[inline(always)]
    pub fn quick_store(&mut self, name: Name) -> bool {
        let good = self.l1d.recall::<true>(name, self.disturbed.news());
        if good {
            self.counts.stores += 1;
        }
        good
    }

    /// Reads, modifies and writes a line, as [`quick_store`](Core::quick_store) stores.
    #[inline(always)]
    pub fn quick_rmw(&mut self, name: Name) -> bool {
        let good = self.l1d.recall::<true>(name, self.disturbed.news());
        if good {
            self.counts.rmws += 1;
        }
        good
    }

    /// Fetches a line of instructions. Returns the latency in cycles.
    #[inline(always)]
    pub fn fetch(&mut self, line: u64, index: usize) -> u64 {
        self.counts.fetches += 1;
        let look = self.look(line, index);
        if look.readable && (self.l1i.first(line) == look.key || self.l1i.promote(look.key)) {
            return 0;
        }
        if self.disturbed.news() != 0 {
            self.heed();
        }
        self.slow(Kind::Fetch, line, index)
    }

    /// Loads from a line. Returns the latency in cycles.
    #[inline(always)]
    pub fn load(&mut self, name: Name, line: u64, index: usize) -> u64 {
        self.near(Kind::Load, name, line, index)
    }

    /// Stores to a line. Returns the latency in cycles.
    #[inline(always)]
    pub fn store(&mut self, name: Name, line: u64, index: usize) -> u64 {
        self.counts.stores += 1;
        self.near(Kind::Store, name, line, index)
    }

    /// Reads, modifies and writes a line. Returns the latency in cycles.
    #[inline(always)]
    pub fn rmw(&mut self, name: Name, line: u64, index: usize) -> u64 {
        self.counts.rmws += 1;
        self.near(Kind::Rmw, name, line, index)
    }

    /// Any of these. Instructions have no names. Returns the latency in cycles.
    #[inline(always)]
    pub fn access(&mut self, kind: Kind, name: Name, line: u64, index: usize) -> u64 {
        match kind {
            Kind::Fetch => self.fetch(line, index),
            Kind::Load => self.load(name, line, index),
            Kind::Store => self.store(name, line, index),
            Kind::Rmw => self.rmw(name, line, index),
        }
    }

    /// The second line of an access that spans two: counted as a line, not as an access. Returns
    /// the latency in cycles.
    pub fn second_line(&mut self, kind: Kind, name: Name, line: u64, index: usize) -> u64 {
        self.split(u64::from(kind != Kind::Fetch));
        self.access(kind, name, line, index)
    }

    /// Lines that were accessed were the second ones of accesses that span two.
    pub const fn split(&mut self, lines: u64) {
        self.counts.split += lines;
    }

    /// The key of a line, and what may be done with a copy that has it.
    #[inline(always)]
    fn look(&self, line: u64, index: usize) -> Look {
        match self.lines.word(index) {
            None => Look {
                key: line,
                fused: false,
                readable: true,
                writable: true,
            },
            Some(word) => {
                let word = read(word);
                Look {
                    key: word.key(line),
                    fused: true,
                    readable: self.mine.shared(word),
                    writable: self.mine.modified(word),
                }
            }
        }
    }

    /// An access that the memo has not answered.
    #[inline(always)]
    fn near(&mut self, kind: Kind, name: Name, line: u64, index: usize) -> u64 {
        if self.disturbed.news() != 0 {
            self.heed();
        }
        let look = self.look(line, index);
        let identity = identity(look.fused);
        if self.l1d.touch(look.key, identity, look.good_for(kind)) {
            self.l1d.remember(name, look.promise());
            return self.latency.l1;
        }
        let cycles = self.slow(kind, line, index);
        // What has happened to it since then, if anything, is heeded by the next access.
        self.l1d.remember(name, self.look(line, index).promise());
        cycles
    }

    /// An access that finds no usable copy in the first level.
    #[cold]
    #[inline(never)]
    fn slow(&mut self, kind: Kind, line: u64, index: usize) -> u64 {
        let Some(word) = self.lines.word(index) else {
            return self.private(kind, line);
        };
        let look = self.look(line, index);
        if !look.readable {
            self.foresee(line);
        } else if self.me.alone {
            // A second CPU of a node has to tell the directory.
            let key = look.key;
            if look.good_for(kind)
                && let Some(cycles) = self.below(kind, line, key, key, identity(true))
            {
                return cycles;
            }
        }
        self.fused(kind, line, index, word)
    }

    /// Reads in advance what a miss is going to change, while the host waits for memory anyway. A locked
    /// operation waits for everything before it, and everything after it waits for the operation.
    #[inline(always)]
    fn foresee(&self, line: u64) {
        std::hint::black_box((self.l2.first(line), self.l2.oldest(line)));
        let victim = self.l3.oldest(line) & LINE_MASK;
        let index = self.memory.index_base(victim).wrapping_add(victim) as usize;
        std::hint::black_box(self.lines.word(index).map(read));
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
            self.fill_second(key, identity);
            Found::L3
        } else {
            return None;
        };
        self.fill_first(kind, key, identity);
        Some(self.book(kind, found, line))
    }

    fn fill_second(&mut self, key: u64, identity: u64) {
        self.make_room_second(key & LINE_MASK);
        self.l2.push(key, identity);
    }

    fn fill_first(&mut self, kind: Kind, key: u64, identity: u64) {
        self.make_room_first(kind, key & LINE_MASK);
        if kind == Kind::Fetch {
            self.l1i.push(key, identity);
        } else {
            self.l1d.fill(key);
        }
    }

    fn first_holds(&self, kind: Kind, key: u64) -> bool {
        match kind {
            Kind::Fetch => self.l1i.holds(key),
            Kind::Load | Kind::Store | Kind::Rmw => self.l1d.holds(key),
        }
    }

    /// Changes a line's word, and tells whom it concerns; see [`update`].
    fn change<T>(
        &mut self,
        line: u64,
        word: &AtomicU64,
        mut step: impl FnMut(&mut Self, Word) -> Option<(Step, T)>,
    ) -> Option<(Word, Step, T)> {
        let taken = update(word, |word| step(self, word))?;
        self.disturbed.announce(line, taken.0, taken.1.next);
        Some(taken)
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
        self.begin_queues(0);
        let cycles =
            self.book(kind, Found::Nowhere, line) + self.fill_last(last_key, identity(false));
        self.fill_second(line, identity(false));
        self.fill_first(kind, line, identity(false));
        cycles
    }

    /// The place of a copy with this key. `own` says whether copies in the CPU's own levels are valid, `last`
    /// whether a copy in the last level is.
    fn find(&mut self, kind: Kind, key: u64, own: bool, last: bool) -> Found {
        if own && self.first_holds(kind, key) {
            Found::L1
        } else if own && self.l2.holds(key) {
            Found::L2
        } else if last && self.l3.holds(key) {
            Found::L3
        } else {
            Found::Nowhere
        }
    }

    fn fused(&mut self, kind: Kind, line: u64, index: usize, word: &AtomicU64) -> u64 {
        let me = self.me;
        let taken = self.change(line, word, |this, word| {
            let own = word.shared_by(me.node);
            let last = own || (me.one_last_level && word.state() != State::Uncached);
            let found = this.find(kind, word.key(line), own, last);
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
        let comes = found == Found::Nowhere || step.forward || !before.shared_by(me.node);
        let mut cycles = if comes { self.book_release(index) } else { 0 };
        self.begin_queues(cycles);
        if self.filter.is_some() && filter::reaches_home(step, found == Found::Nowhere) {
            cycles += self.track(line, index);
        }
        cycles += self.book_snoops(kind, before, step, found, line);
        if step.forward && found != Found::L3 {
            cycles += self.book_forward(kind, before, found, line);
        } else {
            cycles += self.book(kind, found, line);
        }
        if step.sibling {
            cycles += self.book_siblings(found);
        }
        if step.asks {
            self.counts.l3_cycles += self.snoop.sibling;
            cycles += self.snoop.sibling;
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
                self.fill_second(new, identity(true));
            }
        }
        self.fill_first(kind, new, identity(true));
        if kind.writes() && self.memory.is_common(index) {
            self.written(index, cycles);
        }
        cycles
    }

    /// A line is written, for all nodes to see, when this many cycles have passed.
    fn written(&self, index: usize, cycles: u64) {
        if let Some(releases) = self.releases {
            releases.written(index, cycles);
        }
    }
}
