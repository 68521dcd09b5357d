//! Types of capabilities and kinds of kernel objects, with the operations of each type.
//!
//! A module declares the operations of its types, and next to them the capabilities that each takes. A new type is
//! a module, a number in [`CapType`], a line in [`operation`] and, if it stands for an object, a number in
//! [`ObjectKind`].

mod captbl;
mod component;
mod endpoint;
mod hardware;
mod liveness;
mod memory;
mod space;
mod thread;
mod time;

use super::authority::{Authority, Operations};

pub use captbl::*;
pub use component::*;
pub use endpoint::*;
pub use hardware::*;
pub use liveness::*;
pub use memory::*;
pub use space::*;
pub use thread::*;
pub use time::*;

numbered! {
    /// The type of a capability: the kind of its target.
    CapType {
        /// A node of a capability table: leaf (level 0) or root (level 1).
        Captbl = 1,
        /// A node of a page table of one ISA.
        PageTable = 2,
        /// An address space.
        Space = 3,
        /// A protection domain: capability table, address space, fault handler.
        Component = 4,
        /// A thread.
        Thread = 5,
        /// An entry point of a component for synchronous invocation (sinv).
        Sinv = 6,
        /// The sending end of an asynchronous endpoint.
        Send = 7,
        /// The receiving end of an asynchronous endpoint.
        Receive = 8,
        /// A range of physical frames: the authority to retype them.
        Memory = 9,
        /// A block of user memory, or a part of one: the authority to map it.
        Frame = 10,
        /// A budget of processor time.
        Time = 11,
        /// The hardware of one node.
        Hardware = 12,
        /// Entries that revoke the capabilities guarded by them.
        Liveness = 13,
        /// A range of thread ids: the authority to give them to threads.
        ThreadIds = 14,
    }
}

numbered! {
    /// Kernel objects that a frame can be retyped to.
    ObjectKind {
        /// Leaf of a capability table.
        CaptblLeaf = 0,
        /// Root of a capability table.
        CaptblRoot = 1,
        /// Page table of x86-64, level 1 (entries map 4 KiB).
        PageTableX86L1 = 2,
        /// Page table of x86-64, level 2.
        PageTableX86L2 = 3,
        /// Page table of x86-64, level 3.
        PageTableX86L3 = 4,
        /// Page table of x86-64, level 4: a root.
        PageTableX86L4 = 5,
        /// Page table of AArch64, level 1 (entries map 4 KiB).
        PageTableA64L1 = 6,
        /// Page table of AArch64, level 2.
        PageTableA64L2 = 7,
        /// Page table of AArch64, level 3.
        PageTableA64L3 = 8,
        /// Page table of AArch64, level 4: a root.
        PageTableA64L4 = 9,
        /// Address space.
        Space = 10,
        /// Component.
        Component = 11,
        /// Thread.
        Thread = 12,
        /// 64 asynchronous endpoints.
        Endpoints = 13,
        /// 64 time budgets.
        Time = 14,
        /// 512 liveness entries.
        Liveness = 15,
    }
}

/// The operation of a type with a number; `None` if the type has no such operation.
pub fn operation(ty: CapType, number: u32) -> Option<Authority> {
    macro_rules! row {
        ($ops:ident) => {{
            let op = $ops::from_number(number.into())?;
            (op.name(), op.arguments(), op.only_a_right())
        }};
    }
    let (name, arguments, only_a_right) = match ty {
        CapType::Captbl => row!(CaptblOp),
        CapType::PageTable => row!(PageTableOp),
        CapType::Space => row!(SpaceOp),
        CapType::Component => row!(ComponentOp),
        CapType::Thread => row!(ThreadOp),
        CapType::Sinv => row!(SinvOp),
        CapType::Send => row!(SendOp),
        CapType::Receive => row!(ReceiveOp),
        CapType::Memory => row!(MemoryOp),
        CapType::Frame => row!(FrameOp),
        CapType::Time => row!(TimeOp),
        CapType::Hardware => row!(HardwareOp),
        CapType::Liveness => row!(LivenessOp),
        CapType::ThreadIds => row!(ThreadIdsOp),
    };
    Some(Authority {
        ty,
        number,
        name,
        only_a_right,
        arguments,
    })
}
