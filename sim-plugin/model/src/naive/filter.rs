//! The filter of the device: tags of the lines that nodes may hold.

use super::{Id, Invalid, Kind, MemoryModel, Modified, Naive, Who};

impl Naive {
    /// Whether an access asks the home of its line: nobody near has the line, or other nodes have to be asked.
    fn asks_home(&mut self, who: Who, kind: Kind, id: Id) -> bool {
        if self.find(who, kind, id) == 4 {
            return true;
        }
        let line = self.line(id);
        match kind {
            Kind::Fetch | Kind::Load => line.owner().is_some_and(|owner| owner != who.node),
            Kind::Store | Kind::Rmw => !line.others(who.node).is_empty(),
        }
    }

    /// An access gives its line a tag if it asks the device. Returns what it costs to take another line away.
    pub(super) fn track(&mut self, who: Who, kind: Kind, id: Id) -> u64 {
        let device = self.config.nodes.len();
        let in_device = match (self.pool(id.line()), self.config.model) {
            (pool, MemoryModel::Pool) => pool.is_some(),
            (pool, _) => pool == Some(device),
        };
        let common = id.line() < 1 << 34;
        if !common || !in_device || !self.asks_home(who, kind, id) {
            return 0;
        }
        let now = self.now;
        let Some(mut tags) = self.filter.take() else {
            return 0;
        };
        for tag in tags.in_set(id) {
            if self.line(tag).mesi.iter().all(|&mesi| mesi == Invalid) {
                tags.take_any(tag);
            }
        }
        let gone = tags.bring(id, now);
        self.filter = Some(tags);
        gone.map_or(0, |gone| self.back_invalidate(who, gone))
    }

    /// All nodes lose a line, for which `who` waits.
    fn back_invalidate(&mut self, who: Who, gone: Id) -> u64 {
        let snoop = self.config.nodes[who.node].snoop;
        let (mut snooped, mut holders) = (0, 0);
        let mut dirty = None;
        for node in 0..self.cpus.len() {
            let mesi = self.line(gone).mesi[node];
            if mesi != Invalid {
                snooped += if holders == 0 {
                    snoop.inv
                } else {
                    snoop.per_sharer
                };
                holders += 1;
                dirty = dirty.or((mesi == Modified).then_some(node));
                self.take_away(node, gone);
            }
        }
        let counts = self.counts_mut(who);
        counts.back_invalidations += 1;
        counts.snoop_cycles += snooped;
        let mut cycles = snooped + self.link(who, snoop.hop + snoop.hop);
        if let Some(owner) = dirty {
            cycles += self.write_back(who) + self.queue_flushed(who, owner, gone);
        }
        cycles
    }
}
