//! Threads and their ids: operations, and the capabilities that they take.

use crate::cap::authority::{Argument, Form, Operations, cap};
use crate::cap::{CapType, ComponentOp, ReceiveOp, TimeOp};

numbered! {
    /// Operations on [`CapType::Thread`].
    ThreadOp {
        /// `(slice in ns | priority << 56, time capability or 0)`: runs the thread on this CPU until it
        /// blocks, ends, faults, leaves, uses its slice up or something comes for the caller.
        /// Value: `why | detail << 8`, see [`Stopped`](crate::cap::Stopped); a detail beyond 2^56 - 1 is told as that. Slice 0: as long as the caller's own.
        Dispatch = 1,
        /// `(isa, register number)`: reads a register of a stopped thread, on a node of that ISA.
        ReadRegister = 2,
        /// `(isa, register number, value)`: writes one.
        WriteRegister = 3,
        /// `(node)`: moves the calling thread to another node. Not within an invocation. Value: the node it is
        /// on when it returns.
        Migrate = 4,
        /// `()`: takes a ready or blocked thread out of scheduling; its dispatch is refused. Not a
        /// running one. A thread that is within an invocation stops when it has returned from all of them. Value:
        /// see [`StopOutcome`].
        Stop = 5,
        /// `(place)`: makes a stopped thread ready again where it was, or with
        /// `1 << 63 | cpu << 8 | node` there. Ends the waiting of a blocked one, as if nothing had come. Withdraws
        /// a `Stop` that is to take effect when the thread leaves a service.
        Resume = 6,
        /// `()`: gives the CPU back to the thread that dispatched the calling thread.
        Yield = 7,
        /// `(code)`: the calling thread ends. A code beyond 2^32 - 1 is told as that.
        Exit = 8,
        /// Value: fused time until which the thread waits; 0 if it does not wait, or for ever.
        Deadline = 9,
        /// `(component, entry, arg, id | layout << 16 | tag << 32, scheduler endpoints | thread ids << 32)`: makes a new
        /// or stopped thread begin at `entry`. The component's capability needs `Configure`; the
        /// endpoints are a receive capability for all lines of the object with `Bind`, or 0 for a thread
        /// that has no scheduler; the id is in the range of the [`ThreadIds`](crate::cap::CapType::ThreadIds)
        /// capability, which needs `Use`, and no other live thread has it. The layout id selects the thread's own
        /// stacks and control block; 0: the id does.
        Configure = 10,
        /// `(node, program counter, stack pointer, frame pointer, arg)`: moves the calling thread to a node,
        /// which may be its own, and continues it at the program counter with the stack and frame pointer:
        /// `arg` in argument register 0, the thread pointer as before, zeros elsewhere. Nothing of what it was
        /// doing on any ISA is kept. Not within an invocation. Comes back only with an error.
        Jump = 11,
        /// `(isa, address)`: writes the registers of a stopped thread, as
        /// [`Registers`](crate::emulation::Registers), to the caller's memory; on a node of that ISA. Not
        /// within an invocation of the thread. Value: the node where it was stopped.
        Unload = 12,
        /// `(address, node)`: moves the calling thread to `node`, and continues it with the
        /// [`Registers`](crate::emulation::Registers) that are at an address in its memory. Nothing else of
        /// what it was doing, on either ISA, is kept. Not within an invocation.
        Load = 13,
    }
}

impl Operations for ThreadOp {
    fn arguments(self) -> &'static [Argument] {
        match self {
            ThreadOp::Dispatch => const { &[cap(1, CapType::Time, TimeOp::Use.right()).or_none()] },
            ThreadOp::Configure => {
                const {
                    &[
                        cap(0, CapType::Component, ComponentOp::Configure.right()),
                        cap(4, CapType::Receive, ReceiveOp::Bind.right()).or_none(),
                        Argument {
                            form: Form::Upper,
                            ..cap(4, CapType::ThreadIds, ThreadIdsOp::Use.right())
                        },
                    ]
                }
            }
            ThreadOp::ReadRegister
            | ThreadOp::WriteRegister
            | ThreadOp::Migrate
            | ThreadOp::Stop
            | ThreadOp::Resume
            | ThreadOp::Yield
            | ThreadOp::Exit
            | ThreadOp::Deadline
            | ThreadOp::Jump
            | ThreadOp::Unload
            | ThreadOp::Load => &[],
        }
    }
}

numbered! {
    /// Values of [`ThreadOp::Stop`].
    StopOutcome {
        /// The thread is stopped.
        Stopped = 0,
        /// The thread was stopped already, or has ended.
        Already = 1,
        /// The thread is within an invocation and stops when it has left that; another `Stop` tells whether
        /// it has.
        WhenItLeaves = 2,
        /// The thread was within an invocation for [`STOP_GRACE_NS`] after the first request. It has ended
        /// there: it cannot be resumed before it is configured anew.
        Ended = 3,
    }
}

/// How long a thread may continue within an invocation after the first [`ThreadOp::Stop`], in ns of fused
/// time. A later `Stop` ends it there.
pub const STOP_GRACE_NS: u64 = 1_000_000_000;

numbered! {
    /// Rights of [`CapType::ThreadIds`]; it has no operations of its own.
    ThreadIdsOp {
        /// Only a right: threads may be configured with ids of the range.
        Use = 1,
    }
}

impl Operations for ThreadIdsOp {
    fn only_a_right(self) -> bool {
        true
    }
}
