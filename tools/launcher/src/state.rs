//! The launcher's view of the superblock: plain reads and writes of the CXL pool's file.
//!
//! The launcher writes three things only: what it wants of all nodes (`control`), DEAD into the
//! state word of a node whose machine is gone, which nobody else writes any more then, and the line of
//! its requests to init.

use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use dyad_abi::NodeId;
use dyad_abi::ask::{Answer, Line, REQUEST_PAGES, Request, WORDS};
use dyad_abi::boot::CXL_BASE;
use dyad_abi::user::PAGE_SIZE;
use dyad_shm::superblock::{
    ASK_OFFSET, MAGIC, NodeEntry, NodeState, NodeWord, PoolEntry, Superblock, control,
    format as sb_format,
};
use dyad_shm::{FrameEntry, PoolId};

use crate::error::Error;

/// The control word is changed in two steps, by several threads of the launcher.
static CONTROL: Mutex<()> = Mutex::new(());

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
        self.change_control(|word| control::with_command(word, control::REPORT_AND_STOP))
    }

    fn change_control(&self, change: impl Fn(u64) -> u64) -> Result<(), Error> {
        let _one = CONTROL.lock().unwrap_or_else(PoisonError::into_inner);
        let at = offset_of!(Superblock, control);
        self.write(at, change(self.read(at).unwrap_or(control::NONE)))
    }

    /// Puts a request to init where it looks, and counts it. The nodes are to be rung then.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn ask(&self, request: Request) -> Result<(), Error> {
        let line = request.line();
        for (i, word) in line.into_iter().enumerate().rev() {
            self.write(ASK_OFFSET as usize + i * 8, word)?;
        }
        self.change_control(control::with_request)
    }

    /// What init has answered last.
    pub fn answer(&self) -> Option<Answer> {
        let mut line: Line = [0; WORDS];
        let at = (ASK_OFFSET + REQUEST_PAGES * PAGE_SIZE) as usize;
        for (i, word) in line.iter_mut().enumerate() {
            *word = self.read(at + i * 8)?;
        }
        Answer::read(&line).ok()
    }

    /// A page of the CXL pool, as words. One after the other: they may change meanwhile.
    pub fn page(&self, offset: u64) -> Option<Vec<u64>> {
        let mut bytes = [0; PAGE_SIZE as usize];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(words(&bytes).collect())
    }

    /// The first words of the frame records of the CXL pool, with the offset of the frame of each.
    pub fn frames(&self) -> Option<impl Iterator<Item = (u64, u64)> + use<>> {
        let entry = offset_of!(Superblock, pools) + PoolId::Cxl.index() * size_of::<PoolEntry>();
        let field = |field| self.read(entry + field);
        let table = field(offset_of!(PoolEntry, frame_table))?.checked_sub(CXL_BASE)?;
        let first = field(offset_of!(PoolEntry, first_frame))?;
        let end = field(offset_of!(PoolEntry, end_frame))?;
        let size = self.file.metadata().ok()?.len();
        let count = end.checked_sub(first).filter(|_| end <= size / PAGE_SIZE)?;
        let record = size_of::<FrameEntry>();
        let mut bytes = vec![0; count as usize * record];
        let from = table.checked_add(first * record as u64)?;
        self.file.read_exact_at(&mut bytes, from).ok()?;
        let w0 = offset_of!(FrameEntry, w0) / 8;
        let all: Vec<u64> = words(&bytes).collect();
        let heads: Vec<u64> = all.chunks(record / 8).map(|r| r[w0]).collect();
        Some(
            (first..)
                .zip(heads)
                .map(|(frame, word)| (frame * PAGE_SIZE, word)),
        )
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let word = |b: &[u8]| b.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b));
    bytes.chunks_exact(8).map(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::Pools;
    use dyad_abi::ask::{Ask, BadLine};
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

    #[test]
    fn requests_are_counted_and_a_stop_is_not_forgotten() {
        let pools = Pools::create(Path::new("/dev/shm"), 2, 2 << 20, 2 << 20, None).unwrap();
        let s = SharedState::new(pools.cxl());
        let request = |number| Request {
            number,
            ask: Ask::Change {
                program: 8,
                thread: 0,
                old: 0,
                new: 2,
            },
        };
        let there = || {
            let page = s.page(ASK_OFFSET).unwrap();
            Request::read(&core::array::from_fn(|i| page[i]))
        };
        assert_eq!(there(), Err(BadLine::Nothing));
        assert_eq!(s.answer(), None);
        s.ask(request(1)).unwrap();
        assert_eq!(there(), Ok(request(1)));
        s.stop_all(0).unwrap();
        s.ask(request(2)).unwrap();
        assert_eq!(there(), Ok(request(2)));
        let word = s.read(offset_of!(Superblock, control)).unwrap();
        assert_eq!((control::command(word), control::asked(word)), (1, 2));
        let answer = Answer {
            number: 2,
            result: Err(dyad_abi::Error::NodeDead),
            at: 7,
        };
        let at = (ASK_OFFSET + PAGE_SIZE) as usize;
        for (i, word) in answer.line().into_iter().enumerate() {
            assert_eq!(s.answer(), None);
            s.write(at + i * 8, word).unwrap();
            if i == 4 {
                break;
            }
        }
        assert_eq!(s.answer(), Some(answer));
        assert!(s.frames().is_none_or(|mut f| f.next().is_none()));
    }
}
