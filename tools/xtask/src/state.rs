//! The launcher's view of the superblock: plain reads and writes of the CXL pool's file.
//!
//! The launcher writes two things only: what it wants of all nodes (`control`), and DEAD into the
//! state word of a node whose machine is gone, which nobody else writes any more then.

use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

use dyad_abi::NodeId;
use dyad_shm::superblock::{
    MAGIC, NodeEntry, NodeState, NodeWord, Superblock, control, format as sb_format,
};

use crate::error::Error;

/// The superblock in a CXL pool's file.
#[derive(Clone, Copy, Debug)]
pub struct SharedState<'a> {
    file: &'a File,
}

impl<'a> SharedState<'a> {
    /// The superblock of this CXL pool.
    pub fn new(file: &'a File) -> SharedState<'a> {
        SharedState { file }
    }

    fn read(&self, offset: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, offset as u64).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn write(&self, offset: usize, word: u64) -> Result<(), Error> {
        self.file
            .write_all_at(&word.to_le_bytes(), offset as u64)
            .map_err(|e| Error::io("cannot write to the superblock", e))
    }

    const fn node_offset(node: NodeId) -> usize {
        offset_of!(Superblock, nodes)
            + node.index() * size_of::<NodeEntry>()
            + offset_of!(NodeEntry, state)
    }

    /// Whether a node has formatted it.
    pub fn is_ready(&self) -> bool {
        self.read(offset_of!(Superblock, magic)) == Some(MAGIC)
            && self.read(offset_of!(Superblock, format)) == Some(sb_format::READY)
    }

    /// A node's state word; `None` if damaged.
    pub fn node(&self, node: NodeId) -> Option<NodeWord> {
        NodeWord::from_bits(self.read(Self::node_offset(node))?)
    }

    /// Marks a node dead, keeping its incarnation. Only for nodes whose machine is gone. A node
    /// that has left in good order stays as it is.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn mark_dead(&self, node: NodeId) -> Result<(), Error> {
        let word = self.node(node);
        if word.is_some_and(|w| w.state == NodeState::Left) {
            return Ok(());
        }
        let dead = NodeWord {
            state: NodeState::Dead,
            incarnation: word.map_or(0, |w| w.incarnation),
        };
        self.write(Self::node_offset(node), dead.bits())
    }

    /// Asks all nodes to say what they are doing and to stop; `dead` is the set of dead nodes.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn stop_all(&self, dead: u64) -> Result<(), Error> {
        self.write(offset_of!(Superblock, control_arg), dead)?;
        self.write(offset_of!(Superblock, control), control::REPORT_AND_STOP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::Pools;
    use std::path::Path;

    #[test]
    fn death_keeps_the_incarnation_and_respects_those_who_left() {
        let pools = Pools::create(Path::new("/dev/shm"), 2, 2 << 20, 2 << 20, None).unwrap();
        let s = SharedState::new(pools.cxl());
        assert!(!s.is_ready());
        let at = |n: u64| SharedState::node_offset(NodeId::new(n).unwrap());
        let set = |n, state| {
            let incarnation = 7;
            s.write(at(n), NodeWord { state, incarnation }.bits())
                .unwrap();
            let node = NodeId::new(n).unwrap();
            s.mark_dead(node).unwrap();
            s.node(node).unwrap()
        };
        let w = set(1, NodeState::Live);
        assert_eq!((w.state, w.incarnation), (NodeState::Dead, 7));
        assert_eq!(set(0, NodeState::Left).state, NodeState::Left);
        s.stop_all(0b10).unwrap();
        assert_eq!(s.read(offset_of!(Superblock, control_arg)), Some(2));
        assert_eq!(s.read(offset_of!(Superblock, control)), Some(1));
    }
}
