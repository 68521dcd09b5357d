//! The context of an operation: the tables, as this CPU accesses them.

use dyad_abi::CpuId;
use dyad_abi::Result;
use dyad_abi::cap::{CapType, Rights};
use dyad_captbl::{GuardRef, Pins};
use dyad_quiesce::{CpuIntents, DirtyEntry, Quiescence};
use dyad_retype::FrameTable;
use dyad_shm::PhysAddr;
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};
use dyad_shm::intent::IntentRecord;
use dyad_shm::protocol::{EpochSource, Intents, Log};

use crate::Platform;
use crate::cpu::CpuLocal;
use crate::memory::Words;
use crate::node::{Node, node};
use crate::object::kinds::{CAPTBL_LEAF, CAPTBL_ROOT};

/// This CPU's references to its node and its private state. Made anew at every entry to the kernel.
#[derive(Clone, Copy)]
pub struct KernelCtx {
    /// This node.
    pub node: &'static Node,
    /// This CPU.
    pub local: &'static CpuLocal,
}

/// A capability that an operation has been given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The type of the capability.
    pub ty: CapType,
    /// The rights of the capability.
    pub rights: Rights,
    /// The object that it refers to, if any. Its version has been checked.
    pub object: Option<WeakRef>,
    /// The guard that it depends on, if any, which has been alive. Any capability that an operation derives
    /// from this one depends on the same guard.
    pub guard: Option<GuardRef>,
    /// The type-specific words; see `dyad_core::syscall::ops`.
    pub payload: [u64; 3],
}

impl KernelCtx {
    /// The context of the CPU that this runs on.
    #[inline]
    pub fn here<P: Platform>() -> KernelCtx {
        KernelCtx {
            node: node(),
            local: P::local(),
        }
    }

    /// This CPU's number.
    #[inline]
    pub fn cpu(&self) -> CpuId {
        self.local.id()
    }

    /// The address space this CPU is in.
    ///
    /// # Errors
    ///
    /// [`Error::NotReady`](dyad_abi::Error::NotReady) if it is in none.
    pub fn space(&self) -> Result<WeakRef> {
        match self.local.space.get() {
            0 => Err(dyad_abi::Error::NotReady),
            word => WeakRef::from_bits(word).ok_or(dyad_abi::Error::Corrupt),
        }
    }

    /// The frame table.
    #[inline]
    pub fn frames(&self) -> &'static FrameTable<'static, Words> {
        &self.node.tables.frames
    }

    /// The quiescence protocol with its epochs.
    #[inline]
    pub fn epochs(&self) -> &'static Quiescence<'static, Words> {
        &self.node.tables.quiescence
    }

    /// The record of this CPU's intents.
    #[inline]
    pub fn intents(&self) -> CpuIntents<'static, Words> {
        self.node.tables.intents(self.node.id(), self.cpu())
    }

    /// Words of shared memory.
    #[inline]
    pub fn words(&self) -> &'static Words {
        self.node.words
    }

    /// Logs that a line or object has been changed of which other nodes may hold copies. Must come before the
    /// stamp is taken.
    #[inline]
    pub fn log(&self, what: DirtyEntry) {
        if self.words().is_coherent() {
            return;
        }
        self.record(what);
    }

    #[cold]
    fn record(&self, what: DirtyEntry) {
        if let Some(log) = self.local.log.borrow_mut().as_mut() {
            log.record(self.epochs(), what);
        }
    }
}

impl EpochSource for KernelCtx {
    #[inline]
    fn now(&self) -> Epoch {
        self.epochs().now()
    }

    #[inline]
    fn quiesced(&self, stamp: Epoch) -> bool {
        self.epochs().quiesced_or_known(&self.local.quiet, stamp)
    }
}

impl Intents for KernelCtx {
    #[inline]
    fn begin(&self, record: &IntentRecord) {
        self.intents().begin(record);
    }

    #[inline]
    fn clear(&self) {
        self.intents().clear();
    }
}

impl Log for KernelCtx {
    #[inline]
    fn line(&self, at: PhysAddr) {
        self.log(DirtyEntry::Line(at));
    }

    #[inline]
    fn object(&self, frame: FrameRef) {
        self.log(DirtyEntry::Object(frame.address()));
    }
}

impl Pins for KernelCtx {
    fn pin_leaf(&self, leaf: WeakRef) -> Result<()> {
        Ok(self.frames().pin_kernel(leaf, CAPTBL_LEAF)?)
    }

    fn pin_root(&self, root: WeakRef) -> Result<()> {
        Ok(self.frames().pin_kernel(root, CAPTBL_ROOT)?)
    }

    fn unpin(&self, frame: FrameRef) -> Result<()> {
        Ok(self.frames().unpin(frame)?)
    }

    fn may_unpin(&self, leaf: FrameRef, root: FrameRef) -> Result<()> {
        Ok(self.frames().may_unpin(leaf, root)?)
    }

    fn current(&self, frame: FrameRef) -> Result<WeakRef> {
        Ok(self.frames().current(frame)?)
    }
}
