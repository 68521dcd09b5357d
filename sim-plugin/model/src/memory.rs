//! Physical lines: which of them are fused, where they are in the directory, and how far they are
//! from a node.
//!
//! A *line* is a physical address divided by [`LINE_BYTES`]. Lines of the pools are *fused*: every
//! node can reach them, and each has a word in the directory. All other memory is a machine's own;
//! it is local, and the same number is another line in another machine.
//!
//! ```text
//!  37      34 33                      0
//! |   view   | physical address / 64   |
//! ```
//!
//! View 0 of a fused line is that of all nodes together, whose caches keep it coherent. Without coherence each node has
//! a view of its own of the lines of kernels ([`view_of`]): there it is alone with the line, so it sends no message, and
//! what it has modified comes to memory when it is written back. The memory of users is coherent in any case, because
//! kernels promise so.

use crate::config::{Coherence, LINE_BYTES, MemoryModel, SimConfig};

/// Bits of a line's number, its view included.
pub const LINE_BITS: u32 = 38;
/// Bits of a line's number without its view.
pub const PHYSICAL_BITS: u32 = 34;
/// The bits of a line's number without its view.
pub const PHYSICAL_MASK: u64 = (1 << PHYSICAL_BITS) - 1;
/// The bits of a line's number.
pub const LINE_MASK: u64 = (1 << LINE_BITS) - 1;

/// What [`Memory::index_base`] says for memory without a directory word: with any line added it is
/// beyond every directory, and so is twice the sum.
pub const PRIVATE_BASE: u64 = 1 << 62;

/// The line of a physical address.
pub const fn line_of(address: u64) -> u64 {
    address / LINE_BYTES
}

/// A fused line as the caches of `node` alone have it, whatever other nodes have.
pub const fn view_of(node: usize, line: u64) -> u64 {
    line & PHYSICAL_MASK | (node as u64 + 1) << PHYSICAL_BITS
}

/// The physical address of an address whose line has a view.
pub const fn physical_of(address: u64) -> u64 {
    address & (PHYSICAL_MASK * LINE_BYTES + (LINE_BYTES - 1))
}

/// How far memory is from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The node's own.
    Local,
    /// Another node's, behind the link.
    Remote,
    /// A device's, behind the link.
    Pool,
}

/// Where the memory of a fused line is: there, requests for it are put in order, and there it is known who has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Home {
    /// With a node.
    Node(usize),
    /// In a device behind the link.
    Device,
}

/// Where a fused line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of its directory word.
    pub index: usize,
    /// How far it is from the node that asks.
    pub class: Class,
}

#[derive(Clone, Copy, Debug)]
struct PoolLines {
    first: u64,
    lines: u64,
    index: u64,
    class: Class,
    home: Home,
}

/// Memory as one node sees it.
#[derive(Clone, Debug)]
pub struct Memory {
    pools: Box<[PoolLines]>,
    /// Lines of all pools.
    fused: u64,
    views: u64,
}

/// The home of pool `pool` of `nodes` + 1.
fn home(model: MemoryModel, pool: usize, nodes: usize) -> Home {
    match (model, pool == nodes) {
        (MemoryModel::Pool, _) => Home::Device,
        (_, false) => Home::Node(pool),
        (MemoryModel::Separated, true) => Home::Node(0),
        (_, true) => Home::Device,
    }
}

/// How far pool `pool` of `nodes` + 1 is from `node`. Pool `nodes` is the CXL pool.
fn class(model: MemoryModel, pool: usize, nodes: usize, node: usize) -> Class {
    match (model, home(model, pool, nodes)) {
        (MemoryModel::FullyShared, _) => Class::Local,
        (_, Home::Node(with)) if with == node => Class::Local,
        (_, Home::Node(_)) => Class::Remote,
        (_, Home::Device) => Class::Pool,
    }
}

impl Memory {
    /// Memory as `node` sees it. Directory indices are dense over the pools in their order and the
    /// same for all nodes.
    pub fn new(config: &SimConfig, node: usize) -> Self {
        let mut fused = 0;
        let pools = config
            .pools
            .iter()
            .enumerate()
            .map(|(i, pool)| {
                let lines = pool.size / LINE_BYTES;
                let index = fused;
                fused += lines;
                PoolLines {
                    first: line_of(pool.base),
                    lines,
                    index,
                    class: class(config.model, i, config.nodes.len(), node),
                    home: home(config.model, i, config.nodes.len()),
                }
            })
            .collect();
        let views = match config.coherence {
            Coherence::Coherent => 1,
            Coherence::Incoherent => 1 + config.nodes.len() as u64,
        };
        Self {
            pools,
            fused,
            views,
        }
    }

    /// Number of words of a directory: one for each view of each fused line.
    pub fn words(&self) -> usize {
        (self.fused * self.views) as usize
    }

    /// Number of fused lines.
    pub fn fused_lines(&self) -> usize {
        self.fused as usize
    }

    /// Whether a place in the directory is that of a line in the view of all nodes.
    pub fn is_common(&self, index: usize) -> bool {
        (index as u64) < self.fused
    }

    fn pool(&self, line: u64) -> Option<&PoolLines> {
        let line = line & PHYSICAL_MASK;
        self.pools
            .iter()
            .find(|pool| line.wrapping_sub(pool.first) < pool.lines)
    }

    /// Where a line is, or `None` if it is not fused.
    pub fn locate(&self, line: u64) -> Option<Place> {
        self.pool(line).map(|pool| Place {
            index: self.base_in(pool, line).wrapping_add(line) as usize,
            class: pool.class,
        })
    }

    /// What is added to a line of a pool to get its index.
    const fn base_in(&self, pool: &PoolLines, line: u64) -> u64 {
        let view = line >> PHYSICAL_BITS;
        (view * self.fused + pool.index).wrapping_sub(pool.first + (view << PHYSICAL_BITS))
    }

    /// How far a line is.
    pub fn class(&self, line: u64) -> Class {
        self.pool(line).map_or(Class::Local, |pool| pool.class)
    }

    /// The home of a line; `None` if the line is not fused.
    pub fn home(&self, line: u64) -> Option<Home> {
        self.pool(line).map(|pool| pool.home)
    }

    /// The number to be added (wrapping) to a line's number to get its index in the directory. It holds for
    /// all lines of the pool and the view of `line`, and so for its page. For private memory the sum is beyond every
    /// directory, by which accesses recognise private memory.
    pub fn index_base(&self, line: u64) -> u64 {
        self.pool(line)
            .map_or(PRIVATE_BASE, |pool| self.base_in(pool, line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn indices_are_dense_and_classes_follow_the_model() {
        for (model, expected) in [
            // Per node: local pool 0, local pool 1, CXL.
            (MemoryModel::Separated, ["LRL", "RLR"]),
            (MemoryModel::Shared, ["LRP", "RLP"]),
            (MemoryModel::Pool, ["PPP", "PPP"]),
            (MemoryModel::FullyShared, ["LLL", "LLL"]),
        ] {
            let mut config = fixture::config(2, 1);
            config.model = model;
            for (node, expected) in expected.iter().enumerate() {
                let memory = Memory::new(&config, node);
                let mut next = 0;
                for (pool, letter) in config.pools.iter().zip(expected.chars()) {
                    let class = match letter {
                        'L' => Class::Local,
                        'R' => Class::Remote,
                        _ => Class::Pool,
                    };
                    for line in line_of(pool.base)..line_of(pool.base + pool.size) {
                        assert_eq!(memory.locate(line), Some(Place { index: next, class }));
                        let base = memory.index_base(line);
                        assert_eq!(base.wrapping_add(line), next as u64);
                        assert_eq!(memory.class(line), class);
                        next += 1;
                    }
                }
                assert_eq!(memory.words(), next);
            }
        }
    }

    #[test]
    fn memory_outside_the_pools_is_local_and_has_no_word() {
        let config = fixture::config(2, 1);
        let memory = Memory::new(&config, 0);
        let pool = config.pools[0];
        for address in [
            0,
            pool.base - LINE_BYTES,
            pool.base + pool.size,
            (LINE_MASK << 6),
        ] {
            let line = line_of(address);
            assert_eq!(memory.locate(line), None);
            assert_eq!(memory.class(line), Class::Local);
            let index = memory.index_base(line).wrapping_add(line);
            assert!(index >= memory.words() as u64);
        }
    }

    /// Without coherence no two views of all lines have a word in common, and a view is as far as its line.
    #[test]
    fn views_have_words_of_their_own() {
        let mut config = fixture::config(2, 1);
        config.coherence = Coherence::Incoherent;
        let memory = Memory::new(&config, 1);
        let mut words = std::collections::BTreeSet::new();
        for pool in &config.pools {
            for line in line_of(pool.base)..line_of(pool.base + pool.size) {
                for view in [line, view_of(0, line), view_of(1, line)] {
                    let index = memory.index_base(view).wrapping_add(view) as usize;
                    assert_eq!(memory.locate(view).map(|p| p.index), Some(index));
                    assert!(words.insert(index), "{view:#x}");
                    assert_eq!(memory.class(view), memory.class(line));
                    assert_eq!(memory.home(view), memory.home(line));
                }
            }
        }
        assert_eq!(words.len(), memory.words());
        assert_eq!(words.last(), Some(&(memory.words() - 1)));
    }
}
