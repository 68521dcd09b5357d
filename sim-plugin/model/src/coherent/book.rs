//! Costs and counts of accesses.

use super::{Core, Found, Kind};
use crate::account::Stalls;
use crate::directory::{State, Step, Word};
use crate::memory::Class;

impl Core<'_> {
    /// What has been waited for memory so far.
    pub const fn stalls(&self) -> Stalls {
        self.counts.stalls()
    }

    /// The CPU has not waited so long, because it did something else meanwhile.
    pub fn has_not_waited(&mut self, stalls: &Stalls) {
        self.counts.remove_stalls(stalls);
    }

    /// The CPU has waited for what was under way.
    pub fn has_waited(&mut self, stalls: &Stalls) {
        self.counts.add_stalls(stalls);
    }

    /// The nodes other than this CPU's that may have copies, by bit.
    const fn peers(&self, word: Word) -> u64 {
        word.sharers() & !(1 << self.me.node)
    }

    /// Cycles of the caches from which a request takes a line away.
    fn invalidation(&self, step: Step) -> u64 {
        let further = step.inv.saturating_sub(1);
        self.snoop.inv + u64::from(further) * self.snoop.per_sharer
    }

    /// Accounts for the messages that a request of the coherence protocol sends to other nodes, and for their cost
    /// but for their ways.
    fn book_messages(&mut self, step: Step) -> u64 {
        let mut cycles = 0;
        if step.data != 0 {
            self.counts.snp_data += u64::from(step.data);
            cycles += self.snoop.data;
        }
        if step.inv != 0 {
            self.counts.snp_inv += u64::from(step.inv);
            self.counts.invalidations += 1;
            cycles += self.invalidation(step);
        }
        self.counts.snoop_cycles += cycles;
        cycles
    }

    /// Waits until a line has been written that an access brings in.
    pub(super) fn book_release(&mut self, index: usize) -> u64 {
        let cycles = self.releases.map_or(0, |releases| releases.wait(index));
        self.counts.release_cycles += cycles;
        cycles
    }

    fn book_link(&mut self, cycles: u64) -> u64 {
        self.counts.link_cycles += cycles;
        cycles
    }

    pub(super) fn book_writeback(&mut self) -> u64 {
        self.counts.writebacks += 1;
        self.counts.snoop_cycles += self.snoop.writeback;
        self.snoop.writeback
    }

    /// Accounts for the messages of an access, and for their cost.
    pub(super) fn book_snoops(
        &mut self,
        kind: Kind,
        before: Word,
        step: Step,
        found: Found,
        line: u64,
    ) -> u64 {
        let mut cycles = self.book_messages(step);
        if step.writeback {
            cycles += self.book_writeback();
            self.queue_writeback(before, line, step.forward && found != Found::L3);
        }
        let held = before.shared_by(self.me.node) && found != Found::Nowhere;
        if kind.writes() && held && before.state() != State::Modified {
            if step.inv == 0 {
                self.counts.upgrades_silent += 1;
            } else {
                self.counts.upgrades_snooped += 1;
            }
        }
        if step.data + step.inv != 0 {
            let home = self.home(line);
            let detour = self.paths.detour(home, self.peers(before));
            // What comes from memory pays the way to it as part of memory's latency.
            let from_cache = held || (step.forward && self.snoop.forward.is_some());
            let way = match from_cache {
                true => self.paths.there_and_back(home) + detour,
                false => detour,
            };
            cycles += self.book_link(way);
        }
        cycles
    }

    /// The last level asks the siblings for their copies, however near the own one is.
    pub(super) fn book_siblings(&mut self, found: Found) -> u64 {
        self.counts.sibling_writes += 1;
        let further = self.latency.l3.saturating_sub(match found {
            Found::L1 => self.latency.l1,
            Found::L2 => self.latency.l2,
            Found::L3 | Found::Nowhere => u64::MAX,
        });
        let wait = further + self.snoop.sibling;
        self.counts.l3_cycles += wait;
        wait
    }

    /// The cost of the line's data for a CPU that has no copy, and the memory class that it comes from unless
    /// the last level has it.
    fn supply(&self, found: Found, line: u64) -> (u64, Option<Class>) {
        match found {
            Found::L3 => (self.latency.l3, None),
            _ => match self.memory.class(line) {
                Class::Local => (self.latency.local, Some(Class::Local)),
                Class::Remote => (self.latency.remote, Some(Class::Remote)),
                Class::Pool => (self.latency.pool, Some(Class::Pool)),
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
    pub(super) fn book(&mut self, kind: Kind, found: Found, line: u64) -> u64 {
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
            Some(Class::Pool) => {
                counts.pool += 1;
                counts.pool_cycles += cycles;
            }
        }
        counts.l3_misses += u64::from(class.is_some());
        match class {
            None => cycles,
            Some(_) => cycles + self.queue_fill(line),
        }
    }

    /// Books data that another node's cache forwards.
    pub(super) fn book_forward(
        &mut self,
        kind: Kind,
        before: Word,
        found: Found,
        line: u64,
    ) -> u64 {
        let cycles = match self.snoop.forward {
            Some(cycles) => cycles,
            None => self.supply(found, line).0,
        };
        self.miss_l1(kind);
        self.counts.l2_misses += 1;
        self.counts.l3_misses += 1;
        self.counts.forwarded += 1;
        self.counts.forward_cycles += cycles;
        cycles + self.queue_forward(before, line)
    }

    /// Books a line that its home has taken away from all nodes: from the home to the nodes and back.
    pub(super) fn book_back_invalidation(&mut self, before: Word, step: Step, line: u64) -> u64 {
        self.counts.back_invalidations += 1;
        let mut cycles = self.invalidation(step);
        self.counts.snoop_cycles += cycles;
        cycles += self.book_link(self.paths.device_to_nodes());
        if step.writeback {
            cycles += self.book_writeback() + self.queue_flush(before, line);
        }
        cycles
    }

    /// Books what a flush or a clean of a line asks of other nodes and of the line's memory.
    pub(super) fn book_flush(&mut self, before: Word, step: Step, line: u64) -> u64 {
        let queue = match step.writeback {
            true => self.queue_flush(before, line),
            false => 0,
        };
        if step.data + step.inv == 0 {
            return queue;
        }
        let home = self.home(line);
        let way = self.paths.there_and_back(home) + self.paths.detour(home, self.peers(before));
        queue + self.book_messages(step) + self.book_link(way)
    }

    /// Books a line that left the last level. `own` says whether this CPU's levels had to be asked.
    pub(super) fn book_drop(&mut self, step: Step, own: bool) -> u64 {
        let mut cycles = 0;
        if own || step.back {
            self.counts.inclusion_snoops += 1;
            self.counts.snoop_cycles += self.snoop.back;
            cycles += self.snoop.back;
        }
        if step.writeback {
            cycles += self.book_writeback();
        }
        cycles
    }
}
