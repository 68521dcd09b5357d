//! Lines that wait for each other: slots that are taken are in a set for each memory and each direction of each link.

use std::collections::{BTreeMap, BTreeSet};

use super::{Id, MemoryModel, Naive, Who};

/// What carries one line at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Carrier {
    Memory(usize),
    Device,
    Into(usize),
    OutOf(usize),
}
use Carrier::{Device, Into, Memory, OutOf};

/// All slots that are taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues {
    /// The time. Without one nothing waits.
    clock: Option<fn(u32) -> u64>,
    taken: BTreeMap<Carrier, BTreeSet<u64>>,
    /// The time of the access at hand, waits included.
    time: u64,
}

impl Naive {
    /// Lines wait for each other. All CPUs have the time `now(0)`, in picoseconds.
    pub fn heed_queues(&mut self, now: fn(u32) -> u64) {
        self.queues.clock = Some(now);
    }

    pub(super) fn begin_queues(&mut self) {
        if let Some(clock) = self.queues.clock {
            self.queues.time = clock(0);
        }
    }

    /// Where the memory of a line is; `None`: in a device.
    fn keeper(&self, node: usize, line: u64) -> Option<usize> {
        let cxl = self.config.nodes.len();
        match (self.pool(line), self.config.model) {
            (None, _) => Some(node),
            (Some(_), MemoryModel::Pool) => None,
            (Some(pool), MemoryModel::Shared) if pool == cxl => None,
            (Some(pool), _) if pool == cxl => Some(0),
            (Some(pool), _) => Some(pool),
        }
    }

    /// What carries a line from one place to another.
    fn link_between(&self, from: Option<usize>, to: Option<usize>) -> Vec<Carrier> {
        if self.config.model == MemoryModel::FullyShared || from == to {
            return Vec::new();
        }
        let leaves = from.map(OutOf);
        leaves.into_iter().chain(to.map(Into)).collect()
    }

    /// The time at which a line has passed all these.
    fn pass(&mut self, carriers: &[Carrier]) -> u64 {
        let mut time = self.queues.time;
        if self.queues.clock.is_none() {
            return time;
        }
        for &carrier in carriers {
            let bandwidth = self.config.bandwidth;
            let rate = match carrier {
                Memory(_) => bandwidth.memory,
                Device => bandwidth.device,
                Into(_) | OutOf(_) => bandwidth.link,
            };
            if rate != 0 {
                // 64 bytes in picoseconds.
                let slot = (64.0e6 / rate as f64).round() as u64;
                let taken = self.queues.taken.entry(carrier).or_default();
                let now = time / slot;
                let free = (now..).find(|n| !taken.contains(n)).expect("time goes on");
                taken.insert(free);
                time += (free - now) * slot;
            }
        }
        time
    }

    /// An access waits until a line has passed all these.
    fn wait(&mut self, who: Who, carriers: &[Carrier]) -> u64 {
        let ps = self.pass(carriers) - self.queues.time;
        let cycle = self.config.nodes[who.node].cycle_ps;
        let cycles = ps.div_ceil(cycle);
        self.queues.time += cycles * cycle;
        self.counts_mut(who).queue_cycles += cycles;
        cycles
    }

    /// A line comes from memory.
    pub(super) fn queue_from_memory(&mut self, who: Who, id: Id) -> u64 {
        let home = self.keeper(who.node, id.line());
        let mut way = vec![home.map_or(Device, Memory)];
        way.extend(self.link_between(home, Some(who.node)));
        self.wait(who, &way)
    }

    /// A line comes from the node that has modified it.
    pub(super) fn queue_from_owner(&mut self, who: Who, owner: usize, id: Id) -> u64 {
        let mut stops = vec![Some(owner), Some(who.node)];
        if self.config.nodes[who.node].snoop.through_home {
            stops.insert(1, self.keeper(who.node, id.line()));
        }
        let ways = stops.windows(2).map(|w| self.link_between(w[0], w[1]));
        let way: Vec<Carrier> = ways.flatten().collect();
        self.wait(who, &way)
    }

    fn to_memory(&self, who: Who, owner: usize, id: Id) -> Vec<Carrier> {
        let home = self.keeper(who.node, id.line());
        let mut way = self.link_between(Some(owner), home);
        way.push(home.map_or(Device, Memory));
        way
    }

    /// The owner's line goes to memory, and `who` waits for it.
    pub(super) fn queue_flushed(&mut self, who: Who, owner: usize, id: Id) -> u64 {
        let way = self.to_memory(who, owner, id);
        self.wait(who, &way)
    }

    /// The owner's line goes to memory, and no access waits.
    pub(super) fn queue_evicted(&mut self, who: Who, owner: usize, id: Id) {
        let way = self.to_memory(who, owner, id);
        self.pass(&way);
    }

    /// The owner's line goes to `who` and to memory, where the way to `who` may be the same.
    pub(super) fn queue_copied(&mut self, who: Who, owner: usize, id: Id) {
        let mut way = self.to_memory(who, owner, id);
        let home = self.keeper(who.node, id.line());
        if self.config.nodes[who.node].snoop.through_home || home == Some(who.node) {
            way = way.split_off(way.len() - 1);
        }
        self.pass(&way);
    }
}
