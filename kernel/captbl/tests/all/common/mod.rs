//! A few frames, a clock that tests turn, references that are counted, and a log and intents that
//! can be looked at.

pub mod races;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use dyad_abi::boot::CXL_BASE;
use dyad_abi::cap::{CapIndex, CapType, LEAF_SLOTS, Rights};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, NodeId};
use dyad_captbl::{Contents, Log, Owner, Pins, SlotPlace, Table};
use dyad_coherence::GlobalMem;
use dyad_shm::frame::{Epoch, FrameRef, Version, WeakRef};
use dyad_shm::intent::IntentRecord;
use dyad_shm::pool::PhysAddr;
use dyad_shm::protocol::{EpochSource, Intents};
use proptest::test_runner::Config as ProptestConfig;

pub fn frame(index: u64) -> FrameRef {
    FrameRef::of(PhysAddr(CXL_BASE + index * PAGE_SIZE)).unwrap()
}

pub fn weak(index: u64) -> WeakRef {
    WeakRef {
        frame: frame(index),
        version: Version(1),
    }
}

pub const ROOT: u64 = 1;
pub const LEAF: u64 = 2;
pub const OTHER_LEAF: u64 = 3;
pub const LIVENESS: u64 = 4;
pub const OBJECT: u64 = 5;

pub fn owner(node: u64, incarnation: u32) -> Owner {
    Owner {
        node: NodeId::new(node).unwrap(),
        incarnation,
    }
}

/// Tables changed by a node in its first incarnation.
pub fn table<M: GlobalMem>(mem: &M, node: u64) -> Table<'_, M> {
    Table::new(mem, owner(node, 1))
}

pub fn place(leaf: u64, slot: u32) -> SlotPlace {
    SlotPlace::new(weak(leaf), slot).unwrap()
}

pub fn entry_place(index: u32) -> PhysAddr {
    frame(ROOT).address().add(8 * index as u64)
}

pub fn cap(entry: u32, slot: u32) -> CapIndex {
    CapIndex(entry * LEAF_SLOTS + slot)
}

/// A capability all of whose words say `n`.
pub fn sample(n: u32) -> Contents {
    Contents {
        ty: CapType::Sinv,
        rights: Rights(n),
        object: Some(WeakRef {
            frame: frame(n as u64),
            version: Version(n),
        }),
        guard: None,
        payload: [n as u64; 3],
    }
}

/// Time, intents and log of one CPU.
#[derive(Debug)]
pub struct World {
    pub now: Cell<u64>,
    pub published: [Cell<u64>; 2],
    pub open: Cell<Option<IntentRecord>>,
    pub begun: Cell<u32>,
    pub lines: RefCell<Vec<PhysAddr>>,
}

impl Default for World {
    fn default() -> World {
        World {
            now: Cell::new(1),
            published: [Cell::new(1), Cell::new(1)],
            open: Cell::new(None),
            begun: Cell::new(0),
            lines: RefCell::default(),
        }
    }
}

impl World {
    pub fn round(&self, n: usize) {
        self.now.set(self.now.get() + 1);
        self.published[n].set(self.now.get());
    }

    /// Everybody has been quiet since now.
    pub fn rounds(&self) {
        self.round(0);
        self.round(1);
        // The node that went first has published no more than the other's epoch.
        self.round(0);
    }

    pub fn took_lines(&self) -> Vec<PhysAddr> {
        self.lines.take()
    }
}

impl EpochSource for World {
    fn now(&self) -> Epoch {
        Epoch::new(self.now.get()).unwrap()
    }

    fn quiesced(&self, stamp: Epoch) -> bool {
        self.published.iter().all(|p| p.get() > stamp.get())
    }
}

impl Intents for World {
    fn begin(&self, record: &IntentRecord) {
        assert_eq!(self.open.get(), None, "two intents at once");
        self.open.set(Some(*record));
        self.begun.set(self.begun.get() + 1);
    }

    fn clear(&self) {
        self.open.set(None);
    }
}

impl Log for World {
    fn line(&self, at: PhysAddr) {
        self.lines.borrow_mut().push(at);
    }

    fn object(&self, _: FrameRef) {
        unreachable!("rows of capability tables give no frame up");
    }
}

/// A log that does something with lines.
pub struct Lines<F>(pub F);

impl<F: Fn(PhysAddr)> Log for Lines<F> {
    fn line(&self, at: PhysAddr) {
        self.0(at);
    }

    fn object(&self, _: FrameRef) {}
}

/// Nodes of tables and how many references they have. Frames that are not in here are no nodes.
#[derive(Debug)]
pub struct Nodes {
    pub roots: Vec<u64>,
    pub leaves: Vec<u64>,
    pub refs: RefCell<BTreeMap<FrameRef, i64>>,
    /// The frame that is being recovered.
    pub frozen: Cell<Option<FrameRef>>,
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes {
            roots: vec![ROOT],
            leaves: vec![LEAF, OTHER_LEAF],
            refs: RefCell::default(),
            frozen: Cell::new(None),
        }
    }
}

impl Nodes {
    pub fn refs(&self, index: u64) -> i64 {
        let refs = self.refs.borrow();
        refs.get(&frame(index)).copied().unwrap_or(0)
    }

    fn pin(&self, among: &[u64], node: WeakRef) -> Result<(), Error> {
        if node.version != Version(1) {
            return Err(Error::Revoked);
        }
        if !among.iter().any(|&n| frame(n) == node.frame) {
            return Err(Error::WrongCap);
        }
        *self.refs.borrow_mut().entry(node.frame).or_default() += 1;
        Ok(())
    }
}

impl Pins for Nodes {
    fn pin_leaf(&self, leaf: WeakRef) -> Result<(), Error> {
        self.pin(&self.leaves, leaf)
    }

    fn pin_root(&self, root: WeakRef) -> Result<(), Error> {
        self.pin(&self.roots, root)
    }

    fn unpin(&self, frame: FrameRef) -> Result<(), Error> {
        *self.refs.borrow_mut().entry(frame).or_default() -= 1;
        Ok(())
    }

    fn may_unpin(&self, leaf: FrameRef, root: FrameRef) -> Result<(), Error> {
        match self.frozen.get() {
            Some(frozen) if frozen == leaf || frozen == root => Err(Error::Again),
            _ => Ok(()),
        }
    }

    fn current(&self, frame: FrameRef) -> Result<WeakRef, Error> {
        Ok(WeakRef {
            frame,
            version: Version(1),
        })
    }
}

/// Runs that many cases, or a few under Miri, and leaves no file behind when one fails.
pub fn cases(n: u32, with_miri: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if cfg!(miri) { with_miri } else { n })
    }
}
