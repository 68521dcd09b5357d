//! Which lines there are, and where the words of each are.
//!
//! ```text
//! word 0..64       accesses made, by node and CPU
//! word 64          rounds of quiescence that nodes have completed, all together
//! word 65..81      by node: what that was at the end of its last round, and of the one before
//! word 81..89      by node: how often it has flushed everything: 48 | been switched on: 16
//! then, per line   meta | memory: 8 | writers: 8 | changed: 8 | per node (copy: 8 | meta | fetched | since | stored | flushes)
//! ```

use crate::config::{LINE_BYTES, Pool};

/// Words of a line.
pub const WORDS: usize = (LINE_BYTES / 8) as usize;
/// Nodes that a system can have.
pub const MAX_NODES: usize = dyad_abi::ident::MAX_NODES;
/// CPUs that a node can have.
pub const MAX_CPUS: usize = dyad_abi::ident::MAX_CPUS;

/// Words before those of the first line.
pub(super) const HEADER: usize = FLUSHES + MAX_NODES;
/// The word that counts rounds.
pub(super) const ROUNDS: usize = MAX_NODES * MAX_CPUS;
/// The word of the first node's flushes of everything, and lives.
pub(super) const FLUSHES: usize = ROUNDS + 1 + 2 * MAX_NODES;
/// Words of a line besides those of the nodes.
pub(super) const OF_LINE: usize = 1 + 3 * WORDS;
/// Words of a node's copy.
pub(super) const OF_COPY: usize = WORDS + 5;

/// The lines of the fused pools of a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    nodes: usize,
    /// Physical start, lines, and number of the first line.
    pools: Vec<(u64, u64, u64)>,
    lines: u64,
}

impl Shape {
    /// The lines of these pools, for that many nodes.
    ///
    /// # Errors
    ///
    /// If there are no nodes, or more than there can be, or a pool does not consist of lines.
    pub fn new(nodes: usize, pools: &[Pool]) -> Result<Shape, String> {
        if !(1..=MAX_NODES).contains(&nodes) {
            return Err(format!("{nodes} nodes; possible: 1 to {MAX_NODES}"));
        }
        let mut shape = Shape {
            nodes,
            pools: Vec::new(),
            lines: 0,
        };
        for pool in pools.iter().filter(|p| p.size != 0) {
            if !(pool.base | pool.size).is_multiple_of(LINE_BYTES) {
                return Err(format!("the pool at {:#x} is not made of lines", pool.base));
            }
            let lines = pool.size / LINE_BYTES;
            shape.pools.push((pool.base, lines, shape.lines));
            shape.lines += lines;
        }
        Ok(shape)
    }

    /// Number of nodes.
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    /// Words of the shared state. All zeros is the state at the start, and most stay so: a file
    /// for it may be sparse.
    pub const fn words(&self) -> u64 {
        HEADER as u64 + self.lines * self.words_of_line() as u64
    }

    pub(super) const fn words_of_line(&self) -> usize {
        OF_LINE + self.nodes * OF_COPY
    }

    /// Where the words of the line of a physical address begin; `None` if it is in no pool.
    pub(super) fn line(&self, at: u64) -> Option<usize> {
        self.pools.iter().find_map(|&(base, lines, first)| {
            let line = at.checked_sub(base)? / LINE_BYTES;
            (line < lines).then(|| HEADER + (first + line) as usize * self.words_of_line())
        })
    }

    /// Whether a physical address is in a pool.
    pub fn contains(&self, at: u64) -> bool {
        self.line(at).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_pools_are_numbered_through() {
        let pool = |base, size| Pool { base, size };
        let shape = Shape::new(2, &[pool(0x1000, 128), pool(0, 0), pool(0x4000, 64)]).unwrap();
        let n = shape.words_of_line();
        assert_eq!(shape.words() as usize, HEADER + 3 * n);
        assert_eq!(shape.line(0x1000), Some(HEADER));
        assert_eq!(shape.line(0x107f), Some(HEADER + n));
        assert_eq!(shape.line(0x403f), Some(HEADER + 2 * n));
        for outside in [0, 0xfff, 0x1080, 0x3fff, 0x4040, u64::MAX] {
            assert!(!shape.contains(outside), "{outside:#x}");
        }
        assert!(Shape::new(0, &[]).is_err() && Shape::new(9, &[]).is_err());
        assert!(Shape::new(1, &[pool(32, 64)]).is_err());
        assert!(Shape::new(1, &[pool(64, 60)]).is_err());
    }
}
