//! Lines that leave the caches: evicted from the last level, or flushed.

use super::{Core, FlushKind};
use crate::cache::{EMPTY, identity};
use crate::directory::{Step, Word};
use crate::memory::{Home, LINE_MASK};

impl Core<'_> {
    /// Whether this CPU's own levels have the line of a copy in the last level.
    fn holds_above(&self, last: u64) -> bool {
        let line = last & LINE_MASK;
        let key = match self.memory.locate(line) {
            Some(_) => last,
            None if self.last_key(line) == last => line,
            None => return false,
        };
        self.l1d.holds(key) || self.l2.holds(key) || self.l1i.holds(key)
    }

    /// Puts a line into the last level. Returns what removing another costs.
    pub(super) fn fill_last(&mut self, key: u64, identity: u64) -> u64 {
        self.make_room_last(key & LINE_MASK);
        for _ in 1..self.queries {
            let oldest = self.l3.oldest(key & LINE_MASK);
            if oldest == EMPTY || !self.holds_above(oldest) {
                break;
            }
            self.l3.touch(oldest);
        }
        match self.l3.push(key, identity) {
            Some(victim) => self.evicted(victim),
            None => 0,
        }
    }

    /// A copy has left the last level: what that changes in the directory. `None` if the copy is dead, or of no fused
    /// line.
    fn departs(&mut self, victim: u64) -> Option<Step> {
        let place = self.memory.locate(victim & LINE_MASK)?;
        let word = self.lines.word(place.index)?;
        let me = self.me;
        let taken = self.change(victim & LINE_MASK, word, |_, word| {
            let good = word.key(victim & LINE_MASK) == victim;
            let step = good.then(|| word.evict(me)).flatten()?;
            Some((step, ()))
        });
        let step = taken.map(|(_, step, ())| step)?;
        self.written_back(place.index, step);
        Some(step)
    }

    /// Where a node has a line for itself, others see what it writes back.
    fn written_back(&self, index: usize, step: Step) {
        if step.writeback && !self.memory.is_common(index) {
            self.written(index, 0);
        }
    }

    /// The last level has evicted a copy.
    pub(super) fn evicted(&mut self, victim: u64) -> u64 {
        let Some(step) = self.departs(victim) else {
            return 0;
        };
        if step.writeback {
            self.queue_writeback(Word::default(), victim & LINE_MASK, false);
        }
        let removed = self.remove_own(victim, u64::MAX);
        self.counts.inclusion_victims += removed;
        self.book_drop(step, removed != 0)
    }

    /// Removes a line from this CPU's own levels. Returns how many copies there were.
    pub(super) fn remove_own(&mut self, key: u64, identity: u64) -> u64 {
        let first = self.l1d.remove(key, identity);
        [&mut self.l1i, &mut self.l2]
            .into_iter()
            .map(|level| u64::from(level.remove(key, identity)))
            .sum::<u64>()
            + u64::from(first)
    }

    /// All that this CPU's levels and the last level hold is written back and dropped. Returns the latency in cycles.
    fn flush_everything(&mut self) -> u64 {
        self.l1i.clear();
        self.l1d.clear();
        self.l2.clear();
        let mut written = Vec::new();
        for key in self.l3.drain() {
            let step = self.departs(key);
            if step.is_some_and(|step| step.writeback) {
                written.push(key & LINE_MASK);
            }
        }
        // In the order of their addresses, which decides how long each waits in the queues.
        written.sort_unstable();
        let costs = written
            .into_iter()
            .map(|line| self.book_writeback() + self.queue_flush(Word::default(), line));
        costs.sum()
    }

    /// Cache maintenance of a line. Returns the latency in cycles.
    pub fn flush(&mut self, kind: FlushKind, line: u64, index: usize) -> u64 {
        self.counts.flushes += 1;
        self.begin_queues(0);
        if kind == FlushKind::Everything {
            return self.flush_everything();
        }
        // What is clean must be upgraded again.
        self.l1d.forget_line(line);
        let me = self.me;
        let word = self.lines.word(index);
        let taken = word.and_then(|word| {
            self.change(line, word, |_, word| {
                let step = match kind {
                    FlushKind::Clean => word.clean(me),
                    FlushKind::Flush | FlushKind::Everything => word.flush(me),
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
            Some((before, step, ())) => {
                self.written_back(index, step);
                self.book_flush(before, step, line) + self.book_drop(step, false)
            }
            None => 0,
        }
    }

    /// The home of a line that is in the directory.
    pub(super) fn home(&self, line: u64) -> Home {
        self.memory.home(line).unwrap_or(Home::Device)
    }
}
