//! Physical lines: which of them are fused, where they are in the directory, and how far they are
//! from a node.
//!
//! A *line* is a physical address divided by [`LINE_BYTES`]. Lines of the pools are *fused*: every
//! node can reach them, and each has a word in the directory. All other memory is a machine's own;
//! it is local, and the same number is another line in another machine.

use crate::config::{LINE_BYTES, MemoryModel, SimConfig};

/// Bits of a line's number.
pub const LINE_BITS: u32 = 34;
/// The bits of a line's number.
pub const LINE_MASK: u64 = (1 << LINE_BITS) - 1;

/// What [`Memory::index_base`] says for memory without a directory word: with any line added it is
/// beyond every directory.
pub const PRIVATE_BASE: u64 = 1 << 62;

/// The line of a physical address.
pub const fn line_of(address: u64) -> u64 {
    address / LINE_BYTES
}

/// How far memory is from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The node's own.
    Local,
    /// Behind the link.
    Remote,
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
    fused: u64,
}

/// The home of pool `pool` of `nodes` + 1.
fn home(model: MemoryModel, pool: usize, nodes: usize) -> Home {
    match (model, pool == nodes) {
        (_, false) => Home::Node(pool),
        (MemoryModel::Separated, true) => Home::Node(0),
        (_, true) => Home::Device,
    }
}

/// How far pool `pool` of `nodes` + 1 is from `node`. Pool `nodes` is the CXL pool.
fn class(model: MemoryModel, pool: usize, nodes: usize, node: usize) -> Class {
    let near = match model {
        MemoryModel::FullyShared => true,
        MemoryModel::Shared => pool == node,
        MemoryModel::Separated => pool == node || (pool == nodes && node == 0),
    };
    if near { Class::Local } else { Class::Remote }
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
        Self { pools, fused }
    }

    /// Number of fused lines, and so of words of a directory.
    pub fn fused_lines(&self) -> usize {
        self.fused as usize
    }

    fn pool(&self, line: u64) -> Option<&PoolLines> {
        self.pools
            .iter()
            .find(|pool| line.wrapping_sub(pool.first) < pool.lines)
    }

    /// Where a line is, or `None` if it is not fused.
    pub fn locate(&self, line: u64) -> Option<Place> {
        self.pool(line).map(|pool| Place {
            index: (line - pool.first + pool.index) as usize,
            class: pool.class,
        })
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
    /// all lines of the pool of `line`, and so for its page. For private memory the sum is beyond every
    /// directory, by which accesses recognise private memory.
    pub fn index_base(&self, line: u64) -> u64 {
        self.pool(line)
            .map_or(PRIVATE_BASE, |pool| pool.index.wrapping_sub(pool.first))
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
            (MemoryModel::Shared, ["LRR", "RLR"]),
            (MemoryModel::FullyShared, ["LLL", "LLL"]),
        ] {
            let mut config = fixture::config(2, 1);
            config.model = model;
            for (node, expected) in expected.iter().enumerate() {
                let memory = Memory::new(&config, node);
                let mut next = 0;
                for (pool, letter) in config.pools.iter().zip(expected.chars()) {
                    let class = if letter == 'L' {
                        Class::Local
                    } else {
                        Class::Remote
                    };
                    for line in line_of(pool.base)..line_of(pool.base + pool.size) {
                        assert_eq!(memory.locate(line), Some(Place { index: next, class }));
                        let base = memory.index_base(line);
                        assert_eq!(base.wrapping_add(line), next as u64);
                        assert_eq!(memory.class(line), class);
                        next += 1;
                    }
                }
                assert_eq!(memory.fused_lines(), next);
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
            assert!(index >= memory.fused_lines() as u64);
        }
    }
}
