//! Nodes on host memory, and hardware that writes down what it is told.

pub mod model;

use std::cell::{Cell, RefCell};

use dyad_abi::boot::CXL_BASE;
use dyad_abi::{CpuId, NodeId};
use dyad_coherence::HostMem;
use dyad_quiesce::{NodeHardware, Progress, Quiescence, Round};
use dyad_shm::PhysAddr;

pub const SUPERBLOCK: PhysAddr = PhysAddr(CXL_BASE);
pub const AREA: PhysAddr = PhysAddr(CXL_BASE + 0x100_0000);

pub fn node(n: u64) -> NodeId {
    NodeId::new(n).unwrap()
}

pub fn cpu(c: u64) -> CpuId {
    CpuId::new(c).unwrap()
}

pub fn words(mem: &HostMem) -> Quiescence<'_, HostMem> {
    Quiescence::new(mem, SUPERBLOCK, AREA).unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    Lines(PhysAddr, u64),
    Everything,
    Tlb,
    Revalidate,
    Detach,
    Call(CpuId),
}

#[derive(Default)]
pub struct Hardware {
    pub did: RefCell<Vec<Did>>,
    /// Pieces that a full flush takes besides the last.
    pub pieces: Cell<u64>,
    /// Steps that a piece costs, if not 1.
    pub everything: Cell<u32>,
}

impl Hardware {
    pub fn take(&self) -> Vec<Did> {
        self.did.take()
    }
}

impl NodeHardware for Hardware {
    fn writeback_invalidate(&self, at: PhysAddr, len: u64) {
        self.did.borrow_mut().push(Did::Lines(at, len));
    }
    fn flush_everything(&self, piece: u64) -> bool {
        self.did.borrow_mut().push(Did::Everything);
        piece == self.pieces.get()
    }
    fn steps_of_everything(&self) -> u32 {
        self.everything.get().max(1)
    }
    fn flush_tlb(&self) {
        self.did.borrow_mut().push(Did::Tlb);
    }
    fn revalidate(&self) {
        self.did.borrow_mut().push(Did::Revalidate);
    }
    fn detach(&self) {
        self.did.borrow_mut().push(Did::Detach);
    }
    fn call(&self, cpu: CpuId) {
        self.did.borrow_mut().push(Did::Call(cpu));
    }
}

/// Nodes 0 and 1, one CPU each.
pub fn pair(q: &Quiescence<'_, HostMem>) -> [Round; 2] {
    [0, 1].map(|n| q.join(node(n), cpu(0), &Hardware::default()).unwrap().0)
}

/// A whole round of a node whose CPU 0 alone is awake.
pub fn whole_round(q: &Quiescence<'_, HostMem>, n: u64, round: &mut Round, hw: &Hardware) {
    loop {
        match round.flush_step(q, hw, 16).unwrap() {
            Progress::Working => {}
            Progress::Waiting(c) => assert!(q.acknowledge(node(n), c, hw)),
            Progress::Published(_) => return,
        }
    }
}
