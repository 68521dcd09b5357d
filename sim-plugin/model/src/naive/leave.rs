//! Lines that leave the caches: evicted from a last level, or flushed.

use super::{Exclusive, FlushKind, Id, Invalid, Modified, Naive, Shared, Who};

impl Naive {
    /// A line has left the last level and the own levels of `who`. `asked` says whether those had
    /// to be asked. Returns what that costs.
    pub(super) fn leave(&mut self, who: Who, id: Id, asked: bool) -> u64 {
        let (others, dirty) = self.departs(who, id);
        if dirty {
            self.queue_evicted(who, who.node, id);
        }
        self.left(who, asked || others, dirty)
    }

    /// Likewise. Returns whether others had to be asked, and whether the line was modified.
    fn departs(&mut self, who: Who, id: Id) -> (bool, bool) {
        let mut asked = false;
        let node = self.config.nodes[who.node].clone();
        let together = self.one_last_level();
        let line = self.line(id);
        let mine = line.mesi[who.node];
        let mut dirty = false;
        match line.owner() {
            Some(owner) if owner == who.node || together => {
                dirty = line.mesi[owner] == Modified;
                line.mesi[owner] = Invalid;
                if owner != who.node || line.sole != Some(who.cpu) {
                    asked = true;
                    self.invalidate_above(owner, (owner == who.node).then_some(who.cpu), id);
                }
            }
            None if together => {
                let others = line.others(who.node);
                if !others.is_empty() || mine == Shared && node.cpus > 1 {
                    line.mesi.fill(Invalid);
                    asked = true;
                    for other in 0..self.cpus.len() {
                        self.invalidate_above(other, None, id);
                    }
                }
            }
            _ => {}
        }
        (asked, dirty)
    }

    /// Everything leaves the levels of `who` and the last level.
    fn flush_everything(&mut self, who: Who) -> u64 {
        for level in self.cpu(who).levels() {
            level.empty();
        }
        let mut cycles = 0;
        let mut all = self.last(who.node).empty();
        all.sort_by_key(|id| id.line());
        for id in all {
            if self.coherent(id) && self.departs(who, id).1 {
                cycles += self.write_back(who) + self.queue_flushed(who, who.node, id);
            }
        }
        cycles
    }

    /// Counts a line that has left a last level.
    fn left(&mut self, who: Who, asked: bool, dirty: bool) -> u64 {
        let back = self.config.nodes[who.node].snoop.back;
        let mut cycles = 0;
        if asked {
            let counts = self.counts_mut(who);
            counts.inclusion_snoops += 1;
            counts.snoop_cycles += back;
            cycles += back;
        }
        if dirty {
            cycles += self.write_back(who);
        }
        cycles
    }

    /// Cache maintenance of a line. Returns the latency in cycles.
    pub fn flush(&mut self, node: usize, cpu: usize, kind: FlushKind, line: u64) -> u64 {
        let who = Who { node, cpu };
        let id = self.id(node, line);
        self.counts_mut(who).flushes += 1;
        self.begin_queues();
        if kind == FlushKind::Everything {
            return self.flush_everything(who);
        }
        if kind == FlushKind::Flush {
            let levels = self.cpu(who).levels();
            levels.into_iter().for_each(|level| level.take_any(id));
            self.last(node).take_any(id);
        }
        match kind {
            _ if !self.coherent(id) => 0,
            FlushKind::Clean => self.clean_anywhere(who, id),
            FlushKind::Flush | FlushKind::Everything => self.flush_everywhere(who, id),
        }
    }

    /// Every cache of every node loses the line.
    fn flush_everywhere(&mut self, who: Who, id: Id) -> u64 {
        let cpus = self.config.nodes[who.node].cpus;
        let together = self.one_last_level();
        let before = self.line(id).clone();
        let owner = before.mesi.iter().position(|&mesi| mesi == Modified);
        // Behind the same last level, others of this node, or all.
        let others = before.others(who.node);
        let siblings = match before.mesi[who.node] {
            Modified | Exclusive => before.sole != Some(who.cpu),
            Shared => cpus > 1,
            Invalid => false,
        };
        let asked = siblings || together && !others.is_empty();
        for other in 0..self.cpus.len() {
            self.invalidate_above(other, None, id);
            if before.mesi[other] != Invalid && other != who.node && !together {
                self.last(other).invalidate(id);
            }
        }
        self.line(id).mesi.fill(Invalid);
        let mut cycles = 0;
        if !together && !others.is_empty() {
            let ways = self.ways(who.node, id.line());
            cycles += self.invalidations(who, &others);
            cycles += self.link(who, ways.plain() + ways.asked(&others));
        }
        if let Some(owner) = owner {
            cycles += self.queue_flushed(who, owner, id);
        }
        cycles + self.left(who, asked, owner.is_some())
    }

    /// The node that has modified the line writes it back, and keeps it.
    fn clean_anywhere(&mut self, who: Who, id: Id) -> u64 {
        let line = self.line(id);
        let Some(owner) = line.mesi.iter().position(|&mesi| mesi == Modified) else {
            return 0;
        };
        line.mesi[owner] = Exclusive;
        let mut cycles = self.write_back(who) + self.queue_flushed(who, owner, id);
        if owner != who.node && !self.one_last_level() {
            let ways = self.ways(who.node, id.line());
            let data = self.config.nodes[who.node].snoop.data;
            let counts = self.counts_mut(who);
            counts.snp_data += 1;
            counts.snoop_cycles += data;
            cycles += data + self.link(who, ways.plain() + ways.asked(&[owner]));
        }
        cycles
    }
}
