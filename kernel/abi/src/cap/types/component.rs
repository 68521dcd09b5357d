//! Components and their entries: operations, and the capabilities that they take.

use crate::cap::authority::{Argument, Operations, cap, place};
use crate::cap::{CapType, Rights};

numbered! {
    /// Operations on [`CapType::Component`].
    ComponentOp {
        /// `(sinv capability)`: where faults of its threads go (0: nowhere; the thread stops). What the
        /// capability refers to is noted, not the capability: it has no guard.
        SetFaultHandler = 1,
        /// `(node bits)`: where its code may run (0: everywhere). Invocations from elsewhere cross.
        SetHome = 2,
        /// `(table << 32 | index, entry address, badge, rights)`: makes an invocation endpoint.
        MakeSinv = 3,
        /// `(root of a capability table, space)`: what the component consists of; both need [`COPY`](crate::cap::COPY).
        /// What it had before is given back.
        Configure = 4,
    }
}

impl Operations for ComponentOp {
    fn arguments(self) -> &'static [Argument] {
        match self {
            ComponentOp::SetFaultHandler => {
                const {
                    &[cap(0, CapType::Sinv, SinvOp::Invoke.right())
                        .or_none()
                        .unguarded()]
                }
            }
            ComponentOp::SetHome => &[],
            ComponentOp::MakeSinv => const { &[place(0)] },
            ComponentOp::Configure => {
                const {
                    &[
                        cap(0, CapType::Captbl, Rights::COPY),
                        cap(1, CapType::Space, Rights::COPY),
                    ]
                }
            }
        }
    }
}

numbered! {
    /// Operations on [`CapType::Sinv`].
    SinvOp {
        /// `(a0, a1, a2, a3)`: calls the component's entry point. Result: up to four words.
        Invoke = 0,
    }
}

impl Operations for SinvOp {}
