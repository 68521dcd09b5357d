//! Stamps that one CPU knows to be quiesced, so that it does not read every node's words again for each
//! stamp.
//!
//! Whether a stamp is quiesced, once true, stays true; but a *later* stamp with the same number may
//! come after the look at the nodes: one of them slept then, woke up, and found what was unpublished
//! afterwards. So what is remembered is less than the epoch that was read before the nodes were:
//!
//! | step | order | otherwise |
//! |---|---|---|
//! | load E at memory; fence | before the nodes | a stamp below E is taken after a node that slept has woken up |
//! | states and publications, at memory, acquire | before what is reused | as without this |
//!
//! Let E be the epoch read, s < E a stamp that is used by the remembered answer, and n a node that did
//! not count, or slept, when it was looked at, and uses what s was taken for. Its fence (of `wake`, of
//! `join`) comes before the fence of the stamp, or it would have seen that it is unpublished; that
//! one before ours, or the stamp would not be below E; ours before its fence, or we would have seen
//! it awake: a circle. Nodes that had published more than s are as quiet as without this.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use dyad_abi::NodeId;
use dyad_abi::ident::MAX_NODES;
use dyad_coherence::GlobalMem;
use dyad_shm::frame::Epoch;
use dyad_shm::superblock::NodeState;

use crate::words::Quiescence;

/// A bound below which all stamps are known to be quiesced by one CPU. It only grows.
#[derive(Debug, Default)]
pub struct Known(Cell<u64>);

impl Known {
    /// No stamp is known.
    pub const fn new() -> Known {
        Known(Cell::new(0))
    }

    /// Whether a stamp is known to be quiesced.
    #[inline]
    pub fn covers(&self, stamp: Epoch) -> bool {
        stamp.get() < self.0.get()
    }
}

impl<M: GlobalMem> Quiescence<'_, M> {
    /// Checks a stamp like [`quiesced`](Quiescence::quiesced), and caches the result for this CPU.
    #[inline]
    pub fn quiesced_or_known(&self, bound: &Known, stamp: Epoch) -> bool {
        bound.covers(stamp) || self.find_out(bound, stamp)
    }

    #[cold]
    fn find_out(&self, bound: &Known, stamp: Epoch) -> bool {
        bound.0.set(self.quiet_below().get().max(bound.0.get()));
        bound.covers(stamp) || self.quiesced(stamp).is_ok()
    }

    /// An epoch such that every stamp below it is quiesced, now and whenever it is taken.
    fn quiet_below(&self) -> Epoch {
        let mut below = Epoch::saturating(self.mem.load_fresh(self.epoch(), Ordering::Acquire));
        self.mem.fence();
        for node in NodeId::first(MAX_NODES) {
            let Ok(word) = self.node(node) else {
                return Epoch::ZERO;
            };
            if matches!(word.state, NodeState::Live | NodeState::Suspect) {
                let published = self.publication(node);
                if published.awake() != 0 {
                    below = below.min(published.epoch());
                }
            }
        }
        below
    }
}
