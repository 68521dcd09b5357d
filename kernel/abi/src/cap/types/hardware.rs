//! The hardware of a node: operations, and the capabilities that they take.

use crate::cap::authority::{Argument, Operations, cap};
use crate::cap::{CapType, SendOp, ThreadOp};

numbered! {
    /// Operations on [`CapType::Hardware`]. `FlushStep`, `FlushTlb`, `AttachIrq`, `Write` and `Report`
    /// want the caller to run on the node; `Now`, `Quiesced`, `Where`, `NodeState` and `Shutdown` are
    /// the same with each node's.
    HardwareOp {
        /// Drops all translations of this CPU.
        FlushTlb = 1,
        /// `(interrupt, send capability)`: interrupts become messages; 0 detaches. Numbers are those
        /// of the platform, modulo 64, but for [`NODE_DIED`](crate::service::NODE_DIED),
        /// [`NODE_JOINED`](crate::service::NODE_JOINED) and [`ASKED`](crate::service::ASKED). The capability has no guard.
        AttachIrq = 2,
        /// Value: fused time in nanoseconds.
        Now = 3,
        /// `(address, length)`: writes text to the node's console, lines kept whole. Value: bytes
        /// taken: at most [`MAX_WRITE`](crate::user::MAX_WRITE), and not beyond the end of a line. The
        /// caller goes on behind them.
        Write = 4,
        /// `(address)`: a check or counter of the run, as [`ReportArgs`](crate::user::ReportArgs).
        Report = 5,
        /// `(code)`: ends the run on all nodes.
        Shutdown = 6,
        /// `(cpu, thread capability)`: makes the thread, a ready or stopped one whose capability needs
        /// `Resume`, the root thread of that CPU of the node: the one that runs when no other thread does.
        /// On another node it becomes so when the message arrives.
        StartCpu = 7,
        /// `(stamp)`: value 1 if quiesced since; 0 not yet.
        Quiesced = 8,
        /// Value: where the caller runs ([`Where`](crate::user::Where)).
        Where = 9,
        /// `(node)`: value: state of a node (as in the superblock) and its incarnation << 32.
        NodeState = 10,
        /// `(steps)`: drives this node's quiescence round by at most that many steps. Value: epoch
        /// published by it, 0 if it goes on.
        FlushStep = 11,
        /// `(counter)`: value: what the simulator has counted of this CPU
        /// ([`SimCounter`](crate::clock::SimCounter)), or what kernels count by themselves
        /// ([`KernelCounter`](crate::clock::KernelCounter)).
        Count = 12,
        /// `(token)`: whether an invocation of the caller's component, `thread id << 8 | depth`, may still go on.
        /// Value: 1 if it may; 0 if it is over for good. A thread that is stopped in it is ended there.
        Inside = 13,
    }
}

impl Operations for HardwareOp {
    fn arguments(self) -> &'static [Argument] {
        match self {
            HardwareOp::AttachIrq => {
                const {
                    &[cap(1, CapType::Send, SendOp::Send.right())
                        .or_none()
                        .unguarded()]
                }
            }
            HardwareOp::StartCpu => const { &[cap(1, CapType::Thread, ThreadOp::Resume.right())] },
            HardwareOp::FlushTlb
            | HardwareOp::Now
            | HardwareOp::Write
            | HardwareOp::Report
            | HardwareOp::Shutdown
            | HardwareOp::Quiesced
            | HardwareOp::Where
            | HardwareOp::NodeState
            | HardwareOp::FlushStep
            | HardwareOp::Count
            | HardwareOp::Inside => &[],
        }
    }
}
