//! The snoop filter of the device: the lines of its memory that caches of nodes may hold.
//!
//! A filter has a tag for each such line, in sets of [`FILTER_WAYS`]. An access that asks the device for a line makes the
//! line's tag the most recently used one of its set. A new line takes a tag whose line no node holds any more, or else the
//! least recently used tag. In the second case the device takes the former line away from every node (BISnp of CXL 3.x),
//! which writes the line back if it has modified it. The access waits until the nodes have answered.
//!
//! Lines that a node has for itself, without coherence, have no tags.

use std::sync::atomic::AtomicU64;

use super::{Core, State};
use crate::cache::identity;
use crate::config::{CacheShape, FILTER_WAYS, LINE_BYTES, SimConfig};
use crate::directory::{Step, read};
use crate::last::LastLevel;
use crate::memory::{Home, LINE_MASK};

/// The shape of the tags of a filter, as of a cache with a line for each tag. `None`: the system has no filter.
pub(crate) fn filter_shape(config: &SimConfig) -> Option<CacheShape> {
    (config.filter_entries != 0).then_some(CacheShape {
        size: config.filter_entries * LINE_BYTES,
        ways: FILTER_WAYS,
    })
}

/// Whether a request for a line reaches the home of the line.
pub(super) const fn reaches_home(step: Step, nowhere: bool) -> bool {
    nowhere || step.data + step.inv != 0
}

impl<'a> Core<'a> {
    /// The device has a filter with these tags.
    pub fn heed_filter(&mut self, tags: LastLevel<'a>) {
        self.filter = Some(tags);
    }

    /// A request for a line reaches the line's home, where the line gets a tag. Returns the cycles until the line that
    /// had the tag has left all nodes.
    pub(super) fn track(&mut self, line: u64, index: usize) -> u64 {
        let tracked = self.memory.is_common(index) && self.home(line) == Home::Device;
        let Some(tags) = self.filter.as_mut().filter(|_| tracked) else {
            return 0;
        };
        // Tags can be of several pools.
        let (memory, lines) = (&self.memory, self.lines);
        let word = |tag: u64| lines.word(memory.locate(tag)?.index);
        let is_held = |tag| word(tag).is_some_and(|word| read(word).state() != State::Uncached);
        if let Some(Some(free)) = tags.invalid_in_full_set(line, is_held) {
            tags.remove(free, u64::MAX);
        }
        match tags.push(line, LINE_MASK) {
            Some(victim) => word(victim).map_or(0, |word| self.back_invalidate(victim, word)),
            None => 0,
        }
    }

    /// The device takes a line away from all nodes. Returns the cycles until all have answered.
    fn back_invalidate(&mut self, line: u64, word: &AtomicU64) -> u64 {
        let taken = self.change(line, word, |_, word| Some((word.back_invalidate()?, ())));
        let Some((before, step, ())) = taken else {
            return 0; // The last node that had the line has dropped it meanwhile.
        };
        // Other CPUs see by the word that their copies are invalid.
        self.remove_own(line, identity(true));
        self.l3.remove(line, identity(true));
        self.book_back_invalidation(before, step, line)
    }
}
