//! Budgets of time: operations, and the capabilities that they take.

use crate::cap::authority::{Argument, Operations, cap};
use crate::cap::{CapType, Rights};

numbered! {
    /// Operations on [`CapType::Time`]. A capability for several budgets stands for the first.
    TimeOp {
        /// Only a right: threads may be dispatched on it.
        Use = 1,
        /// Value: nanoseconds left.
        Read = 2,
        /// `(to, nanoseconds)`: moves budget to another time capability, which needs no right.
        /// `u64::MAX` is a budget that does not run out, and stays so.
        Transfer = 3,
    }
}

impl Operations for TimeOp {
    fn arguments(self) -> &'static [Argument] {
        match self {
            TimeOp::Transfer => const { &[cap(0, CapType::Time, Rights::NONE)] },
            TimeOp::Use | TimeOp::Read => &[],
        }
    }

    fn only_a_right(self) -> bool {
        matches!(self, TimeOp::Use)
    }
}
