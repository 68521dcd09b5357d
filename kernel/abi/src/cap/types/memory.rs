//! Memory, and blocks of it that are user memory: operations, and the capabilities that they take.

use crate::cap::authority::{Argument, Operations, place};

numbered! {
    /// Operations on [`CapType::Memory`](crate::cap::CapType::Memory)(crate::cap::CapType::Memory). `at` counts frames from the start of the range.
    MemoryOp {
        /// `(at, kind)`: the untyped frame there becomes a kernel object of an [`ObjectKind`](crate::cap::ObjectKind). Larger
        /// untyped blocks are split on the way.
        RetypeKernel = 1,
        /// `(at)`: the block or object there becomes untyped; capabilities to it are dead. It can be
        /// used again after quiescence. Value: the stamp.
        RetypeUntyped = 2,
        /// `(at)`: makes two untyped blocks of the one there.
        Split = 3,
        /// `(at)`: makes one untyped block of the one there and the one of the same size behind it.
        Merge = 4,
        /// `(at, table << 32 | index, rights)`: puts a capability for the object or the user block
        /// there into a slot of the capability table `table`.
        Activate = 5,
        /// `(at)`: what the frame there is: the word that the frame table has of it.
        Inspect = 6,
        /// `(at, order)`: the untyped block there becomes user memory, zero-filled. Larger untyped
        /// blocks are split on the way. A block of more than 16 frames must never have been used.
        RetypeUser = 7,
        /// `(at, frames)`: what the frames there are used for. Value: a [`Counted`](crate::cap::Counted), which may be of fewer
        /// frames than asked for: the caller goes on behind them.
        Count = 8,
    }
}

impl Operations for MemoryOp {
    fn arguments(self) -> &'static [Argument] {
        match self {
            MemoryOp::Activate => const { &[place(1)] },
            MemoryOp::RetypeKernel
            | MemoryOp::RetypeUntyped
            | MemoryOp::Split
            | MemoryOp::Merge
            | MemoryOp::Inspect
            | MemoryOp::RetypeUser
            | MemoryOp::Count => &[],
        }
    }
}

numbered! {
    /// Operations on [`CapType::Frame`](crate::cap::CapType::Frame)(crate::cap::CapType::Frame): rights only. Without `Write` and `Execute` it maps
    /// read-only.
    FrameOp {
        /// It may be mapped.
        Map = 0,
        /// It may be mapped writable.
        Write = 1,
        /// It may be mapped executable.
        Execute = 2,
    }
}

impl Operations for FrameOp {
    fn only_a_right(self) -> bool {
        true
    }
}
