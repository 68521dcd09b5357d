//! What the plugins of all machines share of the model: one file of zeros, and what is where in it.
//!
//! | from | content |
//! |---|---|
//! | 0 | the directory, and at level timing the times of lines, see [`crate::lines`] |
//! | after it | the words of [`crate::disturb`] |
//! | after them, at level timing | the calendars of memories and links of limited bandwidth, see [`crate::calendar`] |
//! | after them, if the device has a filter | its tags, see [`crate::coherent`] |
//! | after them | the last levels that more than one CPU uses: one per node, or one for all |
//! | after them | what CPUs publish of what they have counted, and the regions of interest that they have open |

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use crate::account::Counters;
use crate::cache::Cache;
use crate::coherent::{Core, Queues, Shared, filter_shape};
use crate::config::{Level, MemoryModel, SimConfig};
use crate::disturb::Disturbed;
use crate::last::{LastLevel, SharedCache};
use crate::lines::Lines;
use crate::memory::Memory;

/// Words of a page of the host, so that no two areas are on one.
const PAGE_WORDS: usize = 512;

/// Words of what a CPU publishes: all counters, the time, and the parts of it that are sleep; all of that, and what of it was
/// waiting for messages.
pub const PUBLISHED_WORDS: usize = 2 * (Counters::NAMES.len() + 3);

/// In parallel order a CPU publishes at every so many looks around; in strict order at each.
pub const LOOKS_PER_PUBLICATION: u32 = 4;

/// Words of a CPU's regions, of `cpus` of which each publishes this many words: a sequence number; twice a life, a state and
/// what is published; what is open; and the life of each CPU with what that CPU had published.
pub const fn region_words(cpus: usize, words: usize) -> usize {
    1 + 2 * (2 + words) + 1 + cpus * (1 + words)
}

/// CPUs of all nodes.
fn all_cpus(config: &SimConfig) -> usize {
    config.nodes.iter().map(|node| node.cpus).sum()
}

/// Where everything is, in words.
#[derive(Clone, Debug)]
pub struct Areas {
    memory: Memory,
    /// Whether lines have times.
    times: bool,
    lines: Range<usize>,
    disturbed: Range<usize>,
    calendars: Range<usize>,
    filter: Range<usize>,
    /// By node; one for all nodes that share it. Empty if its only CPU keeps it for itself.
    last: Vec<Range<usize>>,
    regions: Range<usize>,
}

impl Areas {
    /// The areas of a system.
    pub fn new(config: &SimConfig) -> Areas {
        let one = config.model == MemoryModel::FullyShared;
        let memory = Memory::new(config, 0);
        let times = config.level == Level::Timing;
        let mut end = Lines::words(&memory, times);
        let lines = 0..end;
        let start = end.next_multiple_of(PAGE_WORDS);
        end = start + Disturbed::words(config);
        let disturbed = start..end;
        let start = end.next_multiple_of(PAGE_WORDS);
        end = start + Queues::words(config);
        let calendars = start..end;
        let start = end.next_multiple_of(PAGE_WORDS);
        end = start + filter_shape(config).map_or(0, SharedCache::words);
        let filter = start..end;
        let levels = if one { 1 } else { config.nodes.len() };
        let last = config.nodes[..levels]
            .iter()
            .map(|node| {
                let words = match one || node.cpus > 1 {
                    true => SharedCache::words(node.l3),
                    false => 0,
                };
                let start = end.next_multiple_of(PAGE_WORDS);
                end = start + words;
                start..end
            })
            .collect();
        let start = end.next_multiple_of(PAGE_WORDS);
        let cpus = all_cpus(config);
        let regions = start..start + cpus * region_words(cpus, PUBLISHED_WORDS);
        Areas {
            memory,
            times,
            lines,
            disturbed,
            calendars,
            filter,
            last,
            regions,
        }
    }

    /// The words and times of lines, of the words that all share.
    pub fn lines<'a>(&self, words: &'a [AtomicU64]) -> Lines<'a> {
        Lines::new(&words[self.lines.clone()], &self.memory, self.times)
    }

    /// The calendars, of the words that all share.
    pub fn calendars<'a>(&self, words: &'a [AtomicU64]) -> &'a [AtomicU64] {
        &words[self.calendars.clone()]
    }

    /// What CPUs publish, of the words that all share.
    pub fn regions<'a>(&self, words: &'a [AtomicU64]) -> &'a [AtomicU64] {
        &words[self.regions.clone()]
    }

    /// Words of all of them together.
    pub fn words(&self) -> usize {
        self.regions.end
    }

    /// A CPU of a node. `words` is what all share; at first it is zero.
    ///
    /// # Panics
    ///
    /// If there are too few words, or no such node.
    pub fn core<'a>(
        &self,
        config: &SimConfig,
        node: usize,
        cpu: usize,
        words: &'a [AtomicU64],
    ) -> Core<'a> {
        let home = if self.last.len() == 1 { 0 } else { node };
        let shape = config.nodes[home].l3;
        let area = &words[self.last[home].clone()];
        let who = (node << 8 | cpu) as u16;
        let last = if area.is_empty() {
            LastLevel::Own(Cache::new(shape))
        } else {
            LastLevel::Shared(SharedCache::new(shape, area, who))
        };
        let shared = Shared {
            lines: self.lines(words),
            disturbed: &words[self.disturbed.clone()],
        };
        let mut core = Core::new(config, node, cpu, shared, last);
        if let Some(shape) = filter_shape(config) {
            let tags = SharedCache::new(shape, &words[self.filter.clone()], who);
            core.heed_filter(LastLevel::Shared(tags));
        }
        core
    }
}
