//! The word of a thread that counts its crossing calls and records where the thread last was on each ISA.

use core::sync::atomic::Ordering;

use dyad_abi::{CpuId, Isa, NodeId};
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::thread::{Thread, begun};

/// The word `crossing` of a thread.
///
/// | bits | content |
/// |---|---|
/// | 0 to 15 | calls under way |
/// | 16 | the ISA of the first callee had a `Migrate` parked |
/// | 17 | floating-point registers are carried |
/// | 18 | floating-point registers are kept |
/// | 32 to 47, 48 to 63 | where the thread was last on each ISA: `1 << 15 \| cpu << 8 \| node`; 0: nowhere yet |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossingState(pub u64);

impl CrossingState {
    pub(super) const DEPTH: u64 = 0xffff;
    pub(super) const OVER_MIGRATE: u64 = 1 << 16;
    pub(super) const CARRIES_FP: u64 = 1 << 17;
    pub(super) const KEEPS_FP: u64 = 1 << 18;
    const PLACED: u64 = 1 << 15;

    /// The word of a thread.
    #[inline(always)]
    pub fn of(t: &Thread) -> CrossingState {
        CrossingState(t.crossing.load(Ordering::Relaxed))
    }

    /// The number of calls under way.
    #[inline(always)]
    pub const fn depth(self) -> u64 {
        self.0 & CrossingState::DEPTH
    }

    /// The node and CPU where the thread last was on an ISA.
    #[inline(always)]
    pub(crate) fn place(self, isa: Isa) -> Option<(NodeId, CpuId)> {
        let place = self.0 >> CrossingState::shift(isa);
        if place & CrossingState::PLACED == 0 {
            return None;
        }
        Some((NodeId::new(place & 0x7f)?, CpuId::new(place >> 8 & 0x7f)?))
    }

    #[inline(always)]
    const fn shift(isa: Isa) -> u32 {
        32 + 16 * isa as u32
    }

    #[inline(always)]
    pub(crate) fn placed(self, isa: Isa, node: NodeId, cpu: CpuId) -> CrossingState {
        let place = CrossingState::PLACED | (cpu.index() as u64) << 8 | node.index() as u64;
        let shift = CrossingState::shift(isa);
        CrossingState(self.0 & !(0xffff << shift) | place << shift)
    }

    /// Records in a thread that it last was on this CPU, for this ISA.
    #[inline(always)]
    pub(crate) fn note_here<P: Platform>(self, cx: &KernelCtx, t: &Thread) {
        let here = self.placed(P::ISA, cx.node.id(), cx.local.id());
        if here != self {
            t.crossing.store(here.0, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    pub(crate) fn at_depth(self, depth: u64) -> CrossingState {
        CrossingState(self.0 & !CrossingState::DEPTH | depth & CrossingState::DEPTH)
    }

    pub(super) fn with(self, bit: u64, on: bool) -> CrossingState {
        CrossingState(if on { self.0 | bit } else { self.0 & !bit })
    }
}

/// How a thread continues whose crossing call was in transit to, or ran on, a node that has died. Value: the
/// depth at which it continues on the other ISA, and the node where it last was there, if any.
pub fn caller_of(t: &Thread, dead: Isa) -> Option<(u64, Option<NodeId>)> {
    let crossing = CrossingState::of(t);
    let depth = crossing.depth();
    let waits = t.begun(dead.other()) == begun::CALLS;
    // In transit to return, it is that far out already: the other one of its sides is the caller.
    (waits && depth > 0).then(|| {
        let at = crossing.place(dead.other()).map(|(n, _)| n);
        (depth - 1, at)
    })
}
