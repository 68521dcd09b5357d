//! The shared words, and the two questions that they answer: the current epoch, and whether every node has
//! passed a given one.
//!
//! | question | loads | pairs with |
//! |---|---|---|
//! | `now` | fence, then E | a round's add to E, then fence |
//! | `quiesced` | state, then publication, both at memory, acquire | publish, wake, LIVE |

use core::mem::{offset_of, size_of};
use core::sync::atomic::Ordering;

use dyad_abi::ident::{MAX_CPUS, MAX_NODES};
use dyad_abi::{CpuId, NodeId};
use dyad_coherence::{GlobalMem, LINE_BYTES};
use dyad_shm::PhysAddr;
use dyad_shm::frame::Epoch;
use dyad_shm::protocol::EpochSource;
use dyad_shm::quiesce::{
    CpuAcknowledgement, FlushLog, IntentLine, LogSet, NodePublication, NodeRequest, QuiesceArea,
};
use dyad_shm::superblock::{NodeEntry, NodeState, NodeWord, Superblock};

use crate::error::{Error, NotQuiesced};

/// A node's publication word: `epoch:48 | 0:7 | leaving:1 | awake:8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Publication(u64);

impl Publication {
    const EPOCH_SHIFT: u32 = 16;
    /// The last CPU that is awake flushes in order to sleep.
    pub(crate) const LEAVING: u64 = 1 << 8;

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn bit(cpu: CpuId) -> u64 {
        1 << cpu.index()
    }

    pub(crate) const fn joined(epoch: Epoch, cpu: CpuId) -> Publication {
        Publication(epoch.get() << Publication::EPOCH_SHIFT | Publication::bit(cpu))
    }

    /// A copy of the word in which other CPUs are awake as well.
    pub(crate) const fn with_awake(self, cpus: u8) -> Publication {
        Publication(self.0 | cpus as u64)
    }

    /// The amount to add in order to publish `to`.
    pub(crate) const fn step(self, to: Epoch) -> u64 {
        to.get().saturating_sub(self.epoch().get()) << Publication::EPOCH_SHIFT
    }

    /// The newest epoch published.
    pub const fn epoch(self) -> Epoch {
        Epoch::saturating(self.0 >> Publication::EPOCH_SHIFT)
    }

    /// Bit set of the CPUs that take part.
    pub const fn awake(self) -> u8 {
        self.0 as u8
    }

    /// Whether the node holds nothing that was unpublished before `stamp` was taken.
    pub const fn is_quiet_since(self, stamp: Epoch) -> bool {
        self.awake() == 0 || self.epoch().get() > stamp.get()
    }
}

const _: () = assert!(Publication::EPOCH_SHIFT + Epoch::BITS == u64::BITS);

/// The protocol's words in shared memory.
#[derive(Debug)]
pub struct Quiescence<'m, M> {
    pub(crate) mem: &'m M,
    superblock: PhysAddr,
    area: PhysAddr,
}

impl<M> Clone for Quiescence<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Quiescence<'_, M> {}

impl<'m, M: GlobalMem> Quiescence<'m, M> {
    /// The words of the [`Superblock`] and the [`QuiesceArea`] at these addresses.
    pub fn new(
        mem: &'m M,
        superblock: PhysAddr,
        area: PhysAddr,
    ) -> Result<Quiescence<'m, M>, Error> {
        let fits = |at: PhysAddr, len: usize| {
            at.0.is_multiple_of(LINE_BYTES) && mem.contains(at, len as u64)
        };
        if fits(superblock, size_of::<Superblock>()) && fits(area, size_of::<QuiesceArea>()) {
            Ok(Quiescence {
                mem,
                superblock,
                area,
            })
        } else {
            Err(Error::NoMemory)
        }
    }

    /// The stamp for what this CPU has unpublished just before: never earlier than that CAS, hence
    /// the fence.
    pub fn now(&self) -> Epoch {
        self.mem.fence();
        Epoch::saturating(self.mem.load_fresh(self.epoch(), Ordering::Acquire))
    }

    /// Takes a new epoch. What follows sees everything that was stamped with a smaller one.
    pub(crate) fn advance(&self) -> Result<Epoch, Error> {
        // Looking first keeps an exhausted word from wrapping, however often this is called.
        if self.mem.load_fresh(self.epoch(), Ordering::Relaxed)
            >= Epoch::MAX.get() - MAX_NODES as u64
        {
            return Err(Error::EpochsExhausted);
        }
        let e = self.mem.add(self.epoch(), 1) + 1;
        self.mem.fence();
        Epoch::new(e).ok_or(Error::EpochsExhausted)
    }

    /// Whether every node that takes part has moved on since `stamp`; if not, one that has not.
    /// Once true it stays true. Suspect nodes count, dead ones do not, and damaged state words
    /// do: they block reuse.
    pub fn quiesced(&self, stamp: Epoch) -> Result<(), NotQuiesced> {
        for node in NodeId::first(MAX_NODES) {
            let counts = match self.node(node) {
                Ok(w) => matches!(w.state, NodeState::Live | NodeState::Suspect),
                Err(_) => true,
            };
            if !counts {
                continue;
            }
            let published = self.publication(node);
            if !published.is_quiet_since(stamp) {
                return Err(NotQuiesced {
                    node,
                    published,
                    stamp,
                });
            }
        }
        Ok(())
    }

    /// The publication of a node.
    pub fn publication(&self, node: NodeId) -> Publication {
        Publication(self.mem.load_fresh(self.published(node), Ordering::Acquire))
    }

    /// A node's state.
    pub fn node(&self, node: NodeId) -> Result<NodeWord, Error> {
        NodeWord::from_bits(self.mem.load_fresh(self.state(node), Ordering::Acquire))
            .ok_or(Error::Damaged)
    }

    pub(crate) fn epoch(&self) -> PhysAddr {
        self.superblock.add(offset_of!(Superblock, epoch) as u64)
    }

    pub(crate) fn state(&self, n: NodeId) -> PhysAddr {
        let entry = offset_of!(Superblock, nodes) + n.index() * size_of::<NodeEntry>();
        self.superblock
            .add((entry + offset_of!(NodeEntry, state)) as u64)
    }

    fn word(&self, array: usize, size: usize, index: usize, field: usize) -> PhysAddr {
        self.area.add((array + size * index + field) as u64)
    }

    fn publication_line(&self, n: NodeId, field: usize) -> PhysAddr {
        let array = offset_of!(QuiesceArea, publications);
        self.word(array, size_of::<NodePublication>(), n.index(), field)
    }

    pub(crate) fn published(&self, n: NodeId) -> PhysAddr {
        self.publication_line(n, offset_of!(NodePublication, published))
    }

    /// The address of the claim for recovery.
    pub(crate) fn recoverer(&self) -> PhysAddr {
        self.superblock
            .add(offset_of!(Superblock, recoverer) as u64)
    }

    fn request_line(&self, n: NodeId, field: usize) -> PhysAddr {
        let array = offset_of!(QuiesceArea, requests);
        self.word(array, size_of::<NodeRequest>(), n.index(), field)
    }

    pub(crate) fn request(&self, n: NodeId) -> PhysAddr {
        self.request_line(n, offset_of!(NodeRequest, request))
    }

    pub(crate) fn full_flushes(&self, n: NodeId) -> PhysAddr {
        self.request_line(n, offset_of!(NodeRequest, full_flushes))
    }

    pub(crate) fn acknowledged(&self, n: NodeId, c: CpuId) -> PhysAddr {
        let array = offset_of!(QuiesceArea, acknowledgements);
        let index = n.index() * MAX_CPUS + c.index();
        self.word(array, size_of::<CpuAcknowledgement>(), index, 0)
    }

    pub(crate) fn intent_line(&self, n: NodeId, c: CpuId) -> PhysAddr {
        let array = offset_of!(QuiesceArea, intents);
        let index = n.index() * MAX_CPUS + c.index();
        self.word(array, size_of::<IntentLine>(), index, 0)
    }

    /// The address of the set of logs.
    pub(crate) fn log_set(&self) -> PhysAddr {
        let line = offset_of!(QuiesceArea, log_set);
        self.area.add((line + offset_of!(LogSet, logs)) as u64)
    }

    /// The log with this index, `node * MAX_CPUS + cpu`.
    pub(crate) fn log(&self, index: usize) -> PhysAddr {
        let array = offset_of!(QuiesceArea, logs);
        self.word(array, size_of::<FlushLog>(), index, 0)
    }
}

impl<M: GlobalMem> EpochSource for Quiescence<'_, M> {
    fn now(&self) -> Epoch {
        Quiescence::now(self)
    }

    fn quiesced(&self, stamp: Epoch) -> bool {
        Quiescence::quiesced(self, stamp).is_ok()
    }
}
