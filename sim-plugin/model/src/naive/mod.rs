//! The model again, as simply as possible, to compare [`crate::coherent`] with: every access of
//! every trace has to cost the same and count the same.
//!
//! It shares no code with the fast one but the configuration and the counters' names. The whole
//! system is in one structure; every node has an explicit MESI state for every line; whoever loses
//! a line has its blocks invalidated at once, wherever they are.

mod compare;
mod files;
mod filter;
mod leave;
mod level;
mod queue;
mod ways;

pub use compare::{Both, Difference};
pub use files::{Replayed, replay_files};

use std::collections::HashMap;

use crate::account::Counters;
use crate::coherent::{FlushKind, Kind};
use crate::config::{CacheShape, LINE_BYTES, MemoryModel, SimConfig};
use level::{Id, Level};
use queue::Queues;
use ways::Ways;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mesi {
    Modified,
    Exclusive,
    /// It may have copies; they leave silently.
    Shared,
    Invalid,
}
use Mesi::{Exclusive, Invalid, Modified, Shared};

#[derive(Clone, Debug)]
struct Line {
    /// By node.
    mesi: Vec<Mesi>,
    /// The only CPU of the owner that can have copies in its own levels; `None`: several can.
    sole: Option<usize>,
}

impl Line {
    fn owner(&self) -> Option<usize> {
        let owned = |mesi: &Mesi| matches!(mesi, Modified | Exclusive);
        self.mesi.iter().position(owned)
    }

    fn others(&self, node: usize) -> Vec<usize> {
        let others = (0..self.mesi.len()).filter(|&n| n != node && self.mesi[n] != Invalid);
        others.collect()
    }
}

#[derive(Clone, Debug)]
struct Cpu {
    l1i: Level,
    l1d: Level,
    l2: Level,
    counts: Counters,
}

impl Cpu {
    fn levels(&mut self) -> [&mut Level; 3] {
        [&mut self.l1i, &mut self.l1d, &mut self.l2]
    }
}

/// Who asks.
#[derive(Clone, Copy)]
struct Who {
    node: usize,
    cpu: usize,
}

/// All CPUs of all nodes.
#[derive(Clone, Debug)]
pub struct Naive {
    config: SimConfig,
    cpus: Vec<Vec<Cpu>>,
    /// Last levels: one for each node, or one.
    last: Vec<Level>,
    /// Tags of the device's filter, if it has one.
    filter: Option<Level>,
    lines: HashMap<u64, Line>,
    queues: Queues,
    now: u64,
}

impl Naive {
    /// A system with empty caches.
    pub fn new(config: &SimConfig) -> Self {
        let cpu = |node: &crate::config::NodeConfig| Cpu {
            l1i: Level::new(node.l1i),
            l1d: Level::new(node.l1d),
            l2: Level::new(node.l2),
            counts: Counters::default(),
        };
        let nodes = &config.nodes;
        let last = match config.model {
            MemoryModel::FullyShared => 1,
            MemoryModel::Separated | MemoryModel::Shared | MemoryModel::Pool => nodes.len(),
        };
        Self {
            cpus: nodes.iter().map(|n| vec![cpu(n); n.cpus]).collect(),
            last: nodes[..last].iter().map(|n| Level::new(n.l3)).collect(),
            filter: (config.filter_entries != 0).then(|| {
                Level::new(CacheShape {
                    size: config.filter_entries * LINE_BYTES,
                    ways: 8,
                })
            }),
            lines: HashMap::new(),
            queues: Queues::default(),
            now: 0,
            config: {
                let mut config = config.clone();
                for node in &mut config.nodes {
                    let hidden = node.overlap.l1.min(node.latency.l1);
                    node.latency.l1 -= hidden;
                }
                config
            },
        }
    }

    /// Whether there is such a CPU.
    pub fn has(&self, node: usize, cpu: usize) -> bool {
        self.cpus.get(node).is_some_and(|cpus| cpu < cpus.len())
    }

    /// Counters of a CPU.
    pub fn counts(&self, node: usize, cpu: usize) -> Counters {
        self.cpus[node][cpu].counts
    }

    fn counts_mut(&mut self, who: Who) -> &mut Counters {
        &mut self.cpu(who).counts
    }

    fn cpu(&mut self, who: Who) -> &mut Cpu {
        &mut self.cpus[who.node][who.cpu]
    }

    fn one_last_level(&self) -> bool {
        self.config.model == MemoryModel::FullyShared
    }

    fn last(&mut self, node: usize) -> &mut Level {
        let i = if self.one_last_level() { 0 } else { node };
        &mut self.last[i]
    }

    fn l1(&mut self, who: Who, kind: Kind) -> &mut Level {
        match kind {
            Kind::Fetch => &mut self.cpu(who).l1i,
            Kind::Load | Kind::Store | Kind::Rmw => &mut self.cpu(who).l1d,
        }
    }

    fn pool(&self, line: u64) -> Option<usize> {
        // Above 16 TiB of memory is whose view of it this is.
        let address = line % (1 << 34) * LINE_BYTES;
        let mut pools = self.config.pools.iter();
        pools.position(|pool| (pool.base..pool.base + pool.size).contains(&address))
    }

    fn id(&self, node: usize, line: u64) -> Id {
        match self.pool(line) {
            Some(_) => Id::Common(line),
            None => Id::Own(node, line),
        }
    }

    /// Whether it is known who has the line.
    fn coherent(&self, id: Id) -> bool {
        matches!(id, Id::Common(_))
    }

    /// Where memory's data comes from: 0 near the node, 1 another node, 2 a device.
    fn distance(&self, node: usize, line: u64) -> u32 {
        let cxl = self.config.nodes.len();
        match (self.pool(line), self.config.model) {
            (None, _) | (_, MemoryModel::FullyShared) => 0,
            (Some(_), MemoryModel::Pool) => 2,
            (Some(pool), MemoryModel::Shared) if pool == cxl => 2,
            (Some(pool), MemoryModel::Separated) if pool == cxl => u32::from(node != 0),
            (Some(pool), _) => u32::from(pool != node),
        }
    }

    fn ways(&self, asker: usize, line: u64) -> Ways {
        let snoop = self.config.nodes[asker].snoop;
        let nodes = self.config.nodes.len();
        let home = match (self.pool(line), self.config.model) {
            (Some(pool), MemoryModel::Separated) if pool == nodes => Some(0),
            (_, MemoryModel::Pool) => None,
            (pool, _) => pool.filter(|&pool| pool < nodes),
        };
        let linked = u64::from(!self.one_last_level());
        Ways {
            hop: snoop.hop * linked,
            look: snoop.home * linked,
            over_home: snoop.through_home,
            asker,
            home,
        }
    }

    fn link(&mut self, who: Who, cycles: u64) -> u64 {
        self.counts_mut(who).link_cycles += cycles;
        cycles
    }

    /// Messages that take copies of `others` away.
    fn invalidations(&mut self, who: Who, others: &[usize]) -> u64 {
        let snoop = self.config.nodes[who.node].snoop;
        let counts = self.counts_mut(who);
        let mut cycles = 0;
        for i in 0..others.len() {
            counts.snp_inv += 1;
            cycles += if i == 0 { snoop.inv } else { snoop.per_sharer };
        }
        counts.invalidations += u64::from(!others.is_empty());
        counts.snoop_cycles += cycles;
        cycles
    }

    fn write_back(&mut self, who: Who) -> u64 {
        let cycles = self.config.nodes[who.node].snoop.writeback;
        let counts = self.counts_mut(who);
        counts.writebacks += 1;
        counts.snoop_cycles += cycles;
        cycles
    }

    fn line(&mut self, id: Id) -> &mut Line {
        let nodes = self.config.nodes.len();
        self.lines.entry(id.line()).or_insert_with(|| Line {
            mesi: vec![Invalid; nodes],
            sole: None,
        })
    }

    /// First, second or last level, whichever has a valid copy; 4 if none has.
    fn find(&mut self, who: Who, kind: Kind, id: Id) -> u32 {
        if self.l1(who, kind).has(id) {
            1
        } else if self.cpu(who).l2.has(id) {
            2
        } else if self.last(who.node).has(id) {
            3
        } else {
            4
        }
    }

    /// Invalidates what the CPUs of `node` have above the last level, but for CPU `but`.
    fn invalidate_above(&mut self, node: usize, but: Option<usize>, id: Id) {
        for (i, cpu) in self.cpus[node].iter_mut().enumerate() {
            if Some(i) != but {
                cpu.levels().into_iter().for_each(|l| l.invalidate(id));
            }
        }
    }

    /// Takes a line away from another node.
    fn take_away(&mut self, node: usize, id: Id) {
        self.invalidate_above(node, None, id);
        if !self.one_last_level() {
            self.last(node).invalidate(id);
        }
        self.line(id).mesi[node] = Invalid;
    }

    /// An access to a line. Returns the latency in cycles.
    pub fn access(&mut self, node: usize, cpu: usize, kind: Kind, line: u64) -> u64 {
        self.now += 1;
        self.begin_queues();
        let who = Who { node, cpu };
        let counts = self.counts_mut(who);
        match kind {
            Kind::Fetch => counts.fetches += 1,
            Kind::Load => counts.loads += 1,
            Kind::Store => counts.stores += 1,
            Kind::Rmw => counts.rmws += 1,
        }
        let id = self.id(node, line);
        if !self.coherent(id) {
            let found = self.find(who, kind, id);
            let cycles = self.data(who, kind, id, found);
            return cycles + self.fill(who, kind, id, found);
        }
        let tag = self.track(who, kind, id);
        tag + match kind {
            Kind::Fetch | Kind::Load => self.read(who, kind, id),
            Kind::Store | Kind::Rmw => self.write(who, kind, id),
        }
    }

    /// The second line of an access that spans two.
    pub fn second_line(&mut self, node: usize, cpu: usize, kind: Kind, line: u64) -> u64 {
        if kind != Kind::Fetch {
            self.counts_mut(Who { node, cpu }).split += 1;
        }
        self.access(node, cpu, kind, line)
    }

    fn read(&mut self, who: Who, kind: Kind, id: Id) -> u64 {
        let found = self.find(who, kind, id);
        let cpus = self.config.nodes[who.node].cpus;
        let line = self.line(id);
        let mine = line.mesi[who.node];
        match line.owner() {
            Some(owner) if owner == who.node => {
                let sole = line.sole;
                if sole != Some(who.cpu) {
                    line.sole = None;
                }
                if sole.is_some_and(|sole| sole != who.cpu) {
                    let ask = self.config.nodes[who.node].snoop.sibling;
                    self.counts_mut(who).l3_cycles += ask;
                    let data = self.data(who, kind, id, found);
                    return ask + data + self.fill(who, kind, id, found);
                }
            }
            Some(owner) => {
                let dirty = line.mesi[owner] == Modified;
                line.mesi[owner] = Shared;
                line.mesi[who.node] = Shared;
                let snoop = self.config.nodes[who.node].snoop.data;
                let ways = self.ways(who.node, id.line());
                let counts = self.counts_mut(who);
                counts.snp_data += 1;
                counts.snoop_cycles += snoop;
                let mut cycles = snoop + self.link(who, ways.asked(&[owner]));
                if dirty {
                    cycles += self.write_back(who);
                    self.queue_copied(who, owner, id);
                }
                if dirty && !self.one_last_level() {
                    cycles += self.forward(who, owner, kind, id, found);
                    return cycles + self.fill(who, kind, id, 4);
                }
                cycles += self.data(who, kind, id, found);
                return cycles + self.fill(who, kind, id, found);
            }
            None if mine == Shared && found != 4 => {}
            None if !line.others(who.node).is_empty() => line.mesi[who.node] = Shared,
            None => {
                line.mesi[who.node] = Exclusive;
                line.sole = Some(who.cpu);
                if mine == Shared && cpus > 1 {
                    line.sole = None; // Siblings may have it still.
                }
            }
        }
        let data = self.data(who, kind, id, found);
        data + self.fill(who, kind, id, found)
    }

    fn write(&mut self, who: Who, kind: Kind, id: Id) -> u64 {
        let found = self.find(who, kind, id);
        let node = self.config.nodes[who.node].clone();
        let line = self.line(id);
        let before = line.clone();
        let mine = before.mesi[who.node];
        let others = before.others(who.node);
        line.mesi[who.node] = Modified;
        line.sole = Some(who.cpu);
        let mut cycles = 0;

        // Others.
        for &other in &others {
            self.take_away(other, id);
        }
        let ways = self.ways(who.node, id.line());
        cycles += self.invalidations(who, &others);
        cycles += self.link(who, ways.asked(&others));
        let has_data = found != 4 && mine != Invalid;
        if has_data && !others.is_empty() {
            // Nothing comes from memory, so nothing else pays the way to the home.
            cycles += self.link(who, ways.plain());
        }
        let counts = self.counts_mut(who);
        if found != 4 && matches!(mine, Exclusive | Shared) {
            if others.is_empty() {
                counts.upgrades_silent += 1;
            } else {
                counts.upgrades_snooped += 1;
            }
        }

        // Siblings.
        let may_have = match mine {
            Modified | Exclusive => before.sole != Some(who.cpu),
            Shared => node.cpus > 1,
            Invalid => false,
        };
        if may_have {
            counts.sibling_writes += 1;
            let level = match found {
                1 => node.latency.l1,
                2 => node.latency.l2,
                _ => node.latency.l3,
            };
            let wait = node.latency.l3.saturating_sub(level) + node.snoop.sibling;
            counts.l3_cycles += wait;
            cycles += wait;
        }
        if mine != Invalid {
            self.invalidate_above(who.node, Some(who.cpu), id);
        }

        // The line. What is owned is in the last level, even if it is above it already.
        let mut theirs = others.into_iter();
        if let Some(owner) = theirs.find(|&other| before.mesi[other] == Modified) {
            if node.snoop.through_home {
                cycles += self.write_back(who);
                self.queue_copied(who, owner, id);
            }
            if !self.one_last_level() {
                cycles += self.forward(who, owner, kind, id, found);
                return cycles + self.fill(who, kind, id, 4);
            }
        }
        cycles += self.data(who, kind, id, found);
        if found < 3 && !self.last(who.node).has(id) {
            cycles += self.fill_last(who, id);
        }
        cycles + self.fill(who, kind, id, found)
    }

    /// Cycles until memory or the last level has the data.
    fn supply(&self, node: usize, id: Id, found: u32) -> u64 {
        let latency = self.config.nodes[node].latency;
        match (found, self.distance(node, id.line())) {
            (3, _) => latency.l3,
            (_, 0) => latency.local,
            (_, 1) => latency.remote,
            _ => latency.pool,
        }
    }

    fn count_misses(&mut self, who: Who, kind: Kind, found: u32) {
        let counts = self.counts_mut(who);
        match kind {
            Kind::Fetch => counts.l1i_misses += u64::from(found > 1),
            Kind::Load | Kind::Store | Kind::Rmw => counts.l1d_misses += u64::from(found > 1),
        }
        counts.l2_misses += u64::from(found > 2);
        counts.l3_misses += u64::from(found > 3);
    }

    /// Counts an access that another cache serves.
    fn forward(&mut self, who: Who, owner: usize, kind: Kind, id: Id, found: u32) -> u64 {
        self.count_misses(who, kind, 4);
        let (cycles, way) = match self.config.nodes[who.node].snoop.forward {
            Some(cycles) => (cycles, self.ways(who.node, id.line()).plain()),
            None => (self.supply(who.node, id, found), 0),
        };
        let counts = self.counts_mut(who);
        counts.forwarded += 1;
        counts.forward_cycles += cycles;
        cycles + self.link(who, way) + self.queue_from_owner(who, owner, id)
    }

    /// Counts an access that is served by level `found`, or memory.
    fn data(&mut self, who: Who, kind: Kind, id: Id, found: u32) -> u64 {
        self.count_misses(who, kind, found);
        let latency = self.config.nodes[who.node].latency;
        let distance = self.distance(who.node, id.line());
        let supply = self.supply(who.node, id, found);
        let counts = self.counts_mut(who);
        match (found, kind) {
            (1, Kind::Fetch) => 0,
            (1, _) => latency.l1,
            (2, _) => {
                counts.l2_cycles += latency.l2;
                latency.l2
            }
            (3, _) => {
                counts.l3_cycles += supply;
                supply
            }
            _ => {
                let (lines, cycles) = match distance {
                    0 => (&mut counts.local, &mut counts.local_cycles),
                    1 => (&mut counts.remote, &mut counts.remote_cycles),
                    _ => (&mut counts.pool, &mut counts.pool_cycles),
                };
                *lines += 1;
                *cycles += supply;
                supply + self.queue_from_memory(who, id)
            }
        }
    }

    /// Uses the line in level `found` and brings it into those above. Returns what removing another
    /// from the last level costs.
    fn fill(&mut self, who: Who, kind: Kind, id: Id, found: u32) -> u64 {
        let now = self.now;
        let mut cycles = 0;
        match found {
            1 | 2 => {}
            3 => self.last(who.node).use_it(id, now),
            _ => cycles = self.fill_last(who, id),
        }
        match found {
            1 => {}
            2 => self.cpu(who).l2.use_it(id, now),
            _ => {
                self.cpu(who).l2.bring(id, now);
            }
        }
        match found {
            1 => self.l1(who, kind).use_it(id, now),
            _ => {
                self.l1(who, kind).bring(id, now);
            }
        }
        cycles
    }

    /// The last level uses lines that the CPU has above, until the one that a fill takes is not among them. Returns how many.
    fn ask_above(&mut self, who: Who, id: Id) -> u64 {
        let mut asked = 0;
        let shape = &self.config.nodes[who.node];
        let most = if shape.l3_query {
            shape.l3.ways as u64 - 1
        } else {
            0
        };
        while asked < most
            && let Some(oldest) = self.last(who.node).evicts(id)
            && self.cpu(who).levels().into_iter().any(|l| l.has(oldest))
        {
            let now = self.now + asked;
            self.last(who.node).use_it(oldest, now);
            asked += 1;
        }
        asked
    }

    fn fill_last(&mut self, who: Who, id: Id) -> u64 {
        // Behind those that are asked.
        let now = self.now + self.ask_above(who, id);
        self.now = now;
        match self.last(who.node).bring(id, now) {
            Some(gone) if self.coherent(gone) => {
                let removed = self.cpu(who).levels().map(|level| level.take_valid(gone));
                let removed = removed.into_iter().filter(|&there| there).count();
                self.counts_mut(who).inclusion_victims += removed as u64;
                self.leave(who, gone, removed != 0)
            }
            _ => 0,
        }
    }
}
