//! What is asked of the kernel to carry out what the books say.

use dyad_abi::cap::{Counted, Step};
use dyad_abi::{NodeId, Result};

use crate::Run;

/// The kernel, for the address space whose memory the books are about. Init's calls system calls; that of
/// tests is a model of it, in which whoever calls may die within any call.
///
/// `Again` and `TimedOut` mean that something is in the way that goes away by itself: what was done stays
/// done, and the same call again does no harm. All other errors are for good.
pub trait Kernel {
    /// How many nodes the system has.
    fn nodes(&self) -> usize;

    /// The node that this runs on.
    fn here(&self) -> NodeId;

    /// Whether a node lives.
    ///
    /// # Errors
    ///
    /// As the kernel says; so everywhere below.
    fn lives(&self, node: NodeId) -> Result<bool>;

    /// What has been executed here so far, and the time.
    fn now(&self) -> Cost;

    /// What the first frames of a run are used for: of fewer than all, but of one at least.
    ///
    /// # Errors
    ///
    /// See [`lives`](Kernel::lives).
    fn count(&self, run: &Run) -> Result<Counted>;

    /// Makes frames run `n` of those that faults on a node take frames from. Without any, the list of runs
    /// ends before it.
    ///
    /// # Errors
    ///
    /// See [`lives`](Kernel::lives).
    fn supply(&self, node: NodeId, n: usize, run: Option<&Run>) -> Result<()>;

    /// A step of moving pages out of a run to other frames of what is open to a node, for up to `pages`
    /// pages from `start` on. Gives how many have been looked at and, of these, for how many something
    /// was done.
    ///
    /// Pages are moved only if all CPUs have [dropped](Kernel::shootdown) their translations since they
    /// were parked: what is written through those is lost.
    ///
    /// # Errors
    ///
    /// `NoMemory` if there is no frame to move a page to; see [`lives`](Kernel::lives).
    fn evacuate(
        &self,
        step: Step,
        places: (u64, u64),
        run: &Run,
        node: NodeId,
    ) -> Result<(u64, u64)>;

    /// Has all CPUs drop their translations, and waits until they have. Faults that were under way before
    /// are over then.
    ///
    /// # Errors
    ///
    /// See [`lives`](Kernel::lives).
    fn shootdown(&self, at: u64) -> Result<()>;

    /// Gives frames of a run back that are user memory without any reference: what nodes that have died had
    /// in hand.
    ///
    /// # Errors
    ///
    /// See [`lives`](Kernel::lives).
    fn give_back_lost(&self, run: &Run) -> Result<()>;

    /// Has the leader look at what there is to do.
    fn call_leader(&self);
}

/// What something has cost, or two readings of the clocks that count that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Instructions; 0 if nobody counts them.
    pub instructions: u64,
    /// Nanoseconds.
    pub ns: u64,
}

impl Cost {
    /// Nothing.
    pub const ZERO: Cost = Cost {
        instructions: 0,
        ns: 0,
    };

    /// From one reading to this one.
    pub const fn since(self, before: Cost) -> Cost {
        Cost {
            instructions: self.instructions.wrapping_sub(before.instructions),
            ns: self.ns.wrapping_sub(before.ns),
        }
    }

    /// Both together.
    pub const fn and(self, other: Cost) -> Cost {
        Cost {
            instructions: self.instructions.wrapping_add(other.instructions),
            ns: self.ns.wrapping_add(other.ns),
        }
    }
}
