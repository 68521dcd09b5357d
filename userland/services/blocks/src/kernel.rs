//! Kernel operations that carry out what the books decide.

use dyad_abi::cap::{Counted, Step};
use dyad_abi::{NodeId, Result};

use crate::Run;

/// The kernel, for the address space whose memory the books describe. Init's implementation makes system
/// calls. That of the tests is a model in which the caller may die within any call.
///
/// `Again` and `TimedOut` mean a temporary obstacle: what was done stays done, and the same call can be
/// repeated. All other errors are permanent.
pub trait Kernel {
    /// Number of nodes of the system.
    fn nodes(&self) -> usize;

    /// The node that this runs on.
    fn here(&self) -> NodeId;

    /// Whether a node lives.
    ///
    /// # Errors
    ///
    /// As the kernel says; so everywhere below.
    fn lives(&self, node: NodeId) -> Result<bool>;

    /// The instructions executed here so far, and the time.
    fn now(&self) -> Cost;

    /// Counts the uses of the first frames of a run: of at least one frame, but possibly not of all.
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

    /// A step of moving pages out of a run to other open frames of a node, for up to `pages` pages from
    /// `start` on. Returns how many pages have been examined and for how many of these something was done.
    ///
    /// Pages are moved only if all CPUs have [dropped](Kernel::shootdown) their translations since the pages
    /// were parked: writes through old translations are lost.
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

    /// Has all CPUs drop their translations, and waits until they have. Faults that began before have ended
    /// then.
    ///
    /// # Errors
    ///
    /// See [`lives`](Kernel::lives).
    fn shootdown(&self, at: u64) -> Result<()>;

    /// Gives back the frames of a run that are user memory without a reference: those that dead nodes were
    /// about to use.
    ///
    /// # Errors
    ///
    /// See [`lives`](Kernel::lives).
    fn give_back_lost(&self, run: &Run) -> Result<()>;

    /// Asks the leader to check for pending work.
    fn call_leader(&self);
}

/// The cost of an action, or a reading of the clocks that measure it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Instructions; 0 if they are not counted.
    pub instructions: u64,
    /// Nanoseconds.
    pub ns: u64,
}

impl Cost {
    /// No cost.
    pub const ZERO: Cost = Cost {
        instructions: 0,
        ns: 0,
    };

    /// The cost from an earlier reading to this one.
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
