//! Liveness entries: operations.

use crate::cap::authority::Operations;

numbered! {
    /// Operations on [`CapType::Liveness`](crate::cap::CapType::Liveness)(crate::cap::CapType::Liveness).
    LivenessOp {
        /// Only a right: copies may be guarded by its entries. A capability has one guard at most,
        /// and hands it to its copies and to what operations make of it.
        Guard = 1,
        /// `(index)`: every capability guarded by the entry is dead from now on. One step, however
        /// many there are. Value: the stamp after whose quiescence nothing uses them any more.
        Revoke = 2,
    }
}

impl Operations for LivenessOp {
    fn only_a_right(self) -> bool {
        matches!(self, LivenessOp::Guard)
    }
}
