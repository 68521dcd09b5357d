//! A small pool, a clock that tests turn, and intents that can be looked at.

pub mod races;
pub mod words;

use std::cell::Cell;

use dyad_abi::NodeId;
use dyad_abi::boot::CXL_BASE;
use dyad_abi::user::PAGE_SIZE;
use dyad_coherence::GlobalMem;
use dyad_retype::{
    Claim, Epoch, EpochSource, FrameRef, FrameTable, IntentRecord, Intents, PoolTables, Refused,
    Use, WeakRef,
};
use dyad_shm::pool::{PhysAddr, PoolId};
use proptest::test_runner::Config as ProptestConfig;

/// Frames of the pool.
pub const FRAMES: u64 = 64;

pub fn node(n: u64) -> NodeId {
    NodeId::new(n).unwrap()
}

pub fn frame(index: u64) -> FrameRef {
    FrameRef::of(PhysAddr(CXL_BASE + index * PAGE_SIZE)).unwrap()
}

/// Records at the start of the CXL pool.
pub fn pools() -> PoolTables {
    PoolTables::new().with(PoolId::Cxl, PhysAddr(CXL_BASE), FRAMES)
}

pub fn w0(index: u64) -> PhysAddr {
    pools().record(frame(index)).unwrap()
}

pub fn w1(index: u64) -> PhysAddr {
    w0(index).add(8)
}

pub fn table<M: GlobalMem>(mem: &M, n: u64) -> FrameTable<'_, M> {
    FrameTable::new(mem, pools(), node(n))
}

/// The epoch and what two nodes have published.
#[derive(Debug)]
pub struct Clock {
    pub now: Cell<u64>,
    pub published: [Cell<u64>; 2],
}

impl Default for Clock {
    fn default() -> Clock {
        Clock {
            now: Cell::new(1),
            published: [Cell::new(1), Cell::new(1)],
        }
    }
}

impl Clock {
    pub fn round(&self, n: usize) {
        self.now.set(self.now.get() + 1);
        self.published[n].set(self.now.get());
    }

    /// A round of each node.
    pub fn rounds(&self) {
        self.round(0);
        self.round(1);
        // The node that went first has published no more than the other's epoch.
        self.round(0);
    }
}

impl EpochSource for Clock {
    fn now(&self) -> Epoch {
        Epoch::new(self.now.get()).unwrap()
    }

    fn quiesced(&self, stamp: Epoch) -> bool {
        self.published.iter().all(|p| p.get() > stamp.get())
    }
}

/// Intents of one CPU.
#[derive(Debug, Default)]
pub struct Log {
    pub open: Cell<Option<IntentRecord>>,
    pub begun: Cell<u32>,
}

impl Intents for Log {
    fn begin(&self, record: &IntentRecord) {
        assert_eq!(self.open.get(), None, "two intents at once");
        self.open.set(Some(*record));
        self.begun.set(self.begun.get() + 1);
    }

    fn clear(&self) {
        self.open.set(None);
    }
}

/// Intents and logs that are not read.
pub struct Unrecorded;

impl Intents for Unrecorded {
    fn begin(&self, _: &IntentRecord) {}

    fn clear(&self) {}
}

impl dyad_retype::Log for Unrecorded {
    fn line(&self, _: PhysAddr) {}

    fn object(&self, _: FrameRef) {}
}

/// Gives every frame of a claim its contents: nothing.
pub fn initialise<M: GlobalMem>(mem: &M, claim: &mut Claim) {
    while claim.next_frame().is_some() {
        claim.frame_done(&table(mem, 0)).unwrap();
    }
}

/// The whole row `untyped -> Y`.
pub fn retype<M: GlobalMem>(
    frames: &FrameTable<'_, M>,
    mem: &M,
    head: FrameRef,
    used: Use,
    epochs: &impl EpochSource,
) -> Result<WeakRef, Refused> {
    let mut claim = frames.from_untyped_begin(head, None, epochs, &Unrecorded)?;
    initialise(mem, &mut claim);
    frames.from_untyped_finish(claim, used, &Unrecorded)
}

/// Runs that many cases, or a few under Miri, and leaves no file behind when one fails.
pub fn cases(n: u32, with_miri: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if cfg!(miri) { with_miri } else { n })
    }
}
