//! Capability tables: operations, and the capabilities that they take.

use crate::cap::authority::{Argument, Form, Operations, cap};
use crate::cap::{CapType, LivenessOp, Rights};

numbered! {
    /// Operations on [`CapType::Captbl`]. `index` counts slots from the node on: 0..64 in a leaf,
    /// 0..32768 below a root.
    CaptblOp {
        /// Only a right: new capabilities may be put here.
        Activate = 0,
        /// `(index)`: removes the capability there. The slot can be used again after quiescence.
        /// Value: the stamp.
        Deactivate = 1,
        /// `(index, source, rights | guard << 32, p0, p1)`: copies the capability at `source` of the
        /// caller's own table, which needs [`COPY`](crate::cap::COPY), to `index` here, with no more than `rights`.
        /// `guard` is 0 or [`Guard::bits`](crate::cap::Guard::bits). `p0, p1` narrow: Memory `(first frame, frames)`, Frame
        /// `(first page, pages)`, Liveness, Receive and Time `(first entry, entries)`, ThreadIds `(first
        /// id, ids)`, counted from the start of the source; `(0, 0)` is all of it, and all there is for
        /// other types.
        CopyIn = 2,
        /// `(root index, leaf capability)`: hangs a leaf into this root. The leaf's capability needs
        /// [`COPY`](crate::cap::COPY), `Activate`, `Deactivate`, `CopyIn` and `Read`
        /// ([`CONS_LEAF`]): by the root all of that can be done to its slots.
        Cons = 3,
        /// `(root index)`: takes the leaf out. Value: the stamp.
        Decons = 4,
        /// `(index)`: as [`INTROSPECT`](crate::cap::INTROSPECT), of the capability in that slot, alive or not.
        Read = 5,
    }
}

impl Operations for CaptblOp {
    fn arguments(self) -> &'static [Argument] {
        match self {
            CaptblOp::CopyIn => {
                const {
                    &[
                        Argument {
                            ty: None,
                            ..cap(1, CapType::Captbl, Rights::COPY)
                        },
                        Argument {
                            form: Form::Guard,
                            optional: true,
                            ..cap(2, CapType::Liveness, LivenessOp::Guard.right())
                        },
                    ]
                }
            }
            CaptblOp::Cons => const { &[cap(1, CapType::Captbl, CONS_LEAF)] },
            CaptblOp::Activate | CaptblOp::Deactivate | CaptblOp::Decons | CaptblOp::Read => &[],
        }
    }

    fn only_a_right(self) -> bool {
        matches!(self, CaptblOp::Activate)
    }
}

/// The rights that the capability of a leaf needs for the leaf to be linked into a root. A component with a
/// capability for the root can then use all these rights on the leaf's slots, so the leaf's own capability
/// must have them.
pub const CONS_LEAF: Rights = Rights::COPY
    .or(CaptblOp::Activate.right())
    .or(CaptblOp::Deactivate.right())
    .or(CaptblOp::CopyIn.right())
    .or(CaptblOp::Read.right());
