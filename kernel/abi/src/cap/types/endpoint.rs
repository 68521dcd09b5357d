//! The ends of endpoints: operations, and the capabilities that they take.

use crate::cap::authority::{Argument, Operations, place};

numbered! {
    /// Operations on [`CapType::Send`](crate::cap::CapType::Send)(crate::cap::CapType::Send).
    SendOp {
        /// `()`: sets the capability's badge bits at the endpoint, and wakes a thread that waits there.
        Send = 1,
    }
}

impl Operations for SendOp {}

numbered! {
    /// Operations on [`CapType::Receive`](crate::cap::CapType::Receive)(crate::cap::CapType::Receive): one endpoint, by `index` if the capability has several.
    ReceiveOp {
        /// `(index, table << 32 | slot, badge bits)`: makes a sending end with the rights `Send`,
        /// [`COPY`](crate::cap::COPY) and [`INTROSPECT`](crate::cap::INTROSPECT). The badge is not 0.
        MakeSend = 1,
        /// `(index, node | cpu << 8 | priority << 16)`: where it is received: that CPU is told of what
        /// comes while no thread waits. The priority is not used yet.
        Bind = 2,
        /// `(index, deadline in fused ns, 0 for none, 1 for now)`: takes the bits that have been set,
        /// waiting if there are none. Value: bits, 0 if the time has come. At a scheduler's endpoint:
        /// see [`Event`](crate::cap::Event). Deadlines are kept by the thread's scheduler, for root threads by the kernel.
        Receive = 3,
    }
}

impl Operations for ReceiveOp {
    fn arguments(self) -> &'static [Argument] {
        match self {
            ReceiveOp::MakeSend => const { &[place(1)] },
            ReceiveOp::Bind | ReceiveOp::Receive => &[],
        }
    }
}
