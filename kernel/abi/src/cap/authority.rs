//! The authority that operations need beyond the right of their own: which capabilities they take as
//! arguments, and which rights those must have.
//!
//! The book's table of authority is compared with this, and the attack suite tries every row: without
//! the capability, with one of another type, without each of the rights, and with a guard where none
//! may be.

use super::{
    CapType, CaptblOp, ComponentOp, FrameOp, HardwareOp, LivenessOp, MemoryOp, PageTableOp,
    ReceiveOp, Rights, SendOp, SinvOp, SpaceOp, ThreadIdsOp, ThreadOp, TimeOp,
};

/// How an argument names a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The index of a slot of the caller's table.
    Index,
    /// The same, in the upper half of the argument.
    Upper,
    /// `table << 32 | index`: the capability is that of the table.
    Place,
    /// A [`Guard`](super::Guard), in the upper half of the argument.
    Guard,
}

/// A capability that an operation takes as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Number of the argument, from 0.
    pub at: usize,
    /// How it names the capability.
    pub form: Form,
    /// The type it must have; `None`: any.
    pub ty: Option<CapType>,
    /// The rights it must have.
    pub rights: Rights,
    /// Whether 0 stands for none.
    pub optional: bool,
    /// Whether it may have a guard.
    pub may_be_guarded: bool,
}

/// What an operation needs beyond its own right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The type that has the operation.
    pub ty: CapType,
    /// Number of the operation, and of its right.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// Whether it is only a right, which other operations ask for.
    pub only_a_right: bool,
    /// The capabilities it takes.
    pub arguments: &'static [Argument],
}

/// A capability named by index, which must be there.
const fn cap(at: usize, ty: CapType, rights: Rights) -> Argument {
    Argument {
        at,
        form: Form::Index,
        ty: Some(ty),
        rights,
        optional: false,
        may_be_guarded: true,
    }
}

/// The table that a new capability goes to.
const fn place(at: usize) -> Argument {
    Argument {
        form: Form::Place,
        ..cap(at, CapType::Captbl, CaptblOp::Activate.right())
    }
}

impl Argument {
    const fn or_none(self) -> Argument {
        Argument {
            optional: true,
            ..self
        }
    }

    const fn unguarded(self) -> Argument {
        Argument {
            may_be_guarded: false,
            ..self
        }
    }
}

/// What faults do with memory in the name of its supplier.
const SUPPLY: Rights = MemoryOp::RetypeUser
    .right()
    .or(MemoryOp::RetypeKernel.right())
    .or(MemoryOp::RetypeUntyped.right())
    .or(MemoryOp::Split.right());

const fn captbl(op: CaptblOp) -> &'static [Argument] {
    match op {
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

/// What the capability of a leaf must permit to be hung into a root: a component with a capability for the
/// root can then do to the leaf's slots what that permits, so the leaf's own must permit all of it.
pub const CONS_LEAF: Rights = Rights::COPY
    .or(CaptblOp::Activate.right())
    .or(CaptblOp::Deactivate.right())
    .or(CaptblOp::CopyIn.right())
    .or(CaptblOp::Read.right());

const fn space(op: SpaceOp) -> &'static [Argument] {
    match op {
        // Beside `Map`: `Write` and `Execute`, if the page is mapped so.
        SpaceOp::Map => const { &[cap(2, CapType::Frame, FrameOp::Map.right())] },
        SpaceOp::Link => const { &[cap(2, CapType::PageTable, PageTableOp::Link.right())] },
        SpaceOp::Supply => const { &[cap(1, CapType::Memory, SUPPLY).or_none().unguarded()] },
        SpaceOp::Evacuate => const { &[cap(2, CapType::Memory, SUPPLY).unguarded()] },
        SpaceOp::Unmap
        | SpaceOp::Protect
        | SpaceOp::Harvest
        | SpaceOp::Translate
        | SpaceOp::Unlink
        | SpaceOp::AddRegion
        | SpaceOp::RemoveRegion
        | SpaceOp::Shootdown
        | SpaceOp::Reclaim
        | SpaceOp::Exchange => &[],
    }
}

const fn component(op: ComponentOp) -> &'static [Argument] {
    match op {
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

const fn thread(op: ThreadOp) -> &'static [Argument] {
    match op {
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

const fn memory(op: MemoryOp) -> &'static [Argument] {
    match op {
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

const fn receive(op: ReceiveOp) -> &'static [Argument] {
    match op {
        ReceiveOp::MakeSend => const { &[place(1)] },
        ReceiveOp::Bind | ReceiveOp::Receive => &[],
    }
}

const fn time(op: TimeOp) -> &'static [Argument] {
    match op {
        TimeOp::Transfer => const { &[cap(0, CapType::Time, Rights::NONE)] },
        TimeOp::Use | TimeOp::Read => &[],
    }
}

const fn hardware(op: HardwareOp) -> &'static [Argument] {
    match op {
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

/// Every operation of every type, in the order of their numbers: an operation that is added to a type is
/// one of them, and the functions above do not compile without it.
pub fn all() -> impl Iterator<Item = Authority> {
    CapType::ALL.iter().flat_map(|&ty| of(ty))
}

/// Every operation of a type.
pub fn of(ty: CapType) -> impl Iterator<Item = Authority> {
    (0..32).filter_map(move |number| row(ty, number))
}

/// The operation of a type with a number; none if the type has no such operation.
pub fn row(ty: CapType, number: u32) -> Option<Authority> {
    macro_rules! row {
        ($ops:ident, $arguments:expr) => {{
            let op = $ops::from_number(number.into())?;
            (op.name(), $arguments(op))
        }};
    }
    const NONE: &[Argument] = &[];
    let (name, arguments) = match ty {
        CapType::Captbl => row!(CaptblOp, captbl),
        CapType::PageTable => row!(PageTableOp, |_| NONE),
        CapType::Space => row!(SpaceOp, space),
        CapType::Component => row!(ComponentOp, component),
        CapType::Thread => row!(ThreadOp, thread),
        CapType::Sinv => row!(SinvOp, |_| NONE),
        CapType::Send => row!(SendOp, |_| NONE),
        CapType::Receive => row!(ReceiveOp, receive),
        CapType::Memory => row!(MemoryOp, memory),
        CapType::Frame => row!(FrameOp, |_| NONE),
        CapType::Time => row!(TimeOp, time),
        CapType::Hardware => row!(HardwareOp, hardware),
        CapType::Liveness => row!(LivenessOp, |_| NONE),
        CapType::ThreadIds => row!(ThreadIdsOp, |_| NONE),
    };
    let only_a_right = match ty {
        CapType::PageTable | CapType::Frame | CapType::ThreadIds => true,
        CapType::Captbl => number == CaptblOp::Activate as u32,
        CapType::Time => number == TimeOp::Use as u32,
        CapType::Liveness => number == LivenessOp::Guard as u32,
        _ => false,
    };
    Some(Authority {
        ty,
        number,
        name,
        only_a_right,
        arguments,
    })
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    #[test]
    fn arguments_name_capabilities_that_can_be() {
        for row in all() {
            for a in row.arguments {
                assert!(a.at < 5, "{row:?}");
                let Some(ty) = a.ty else { continue };
                let known = of(ty).fold(Rights::COPY.or(Rights::INTROSPECT), |all, r| {
                    all.or(Rights(1 << r.number))
                });
                assert!(
                    known.contains(a.rights),
                    "{row:?}: {ty:?} has no such right"
                );
            }
        }
    }

    #[test]
    fn every_type_has_operations_or_rights() {
        let rows: Vec<Authority> = all().collect();
        for &ty in CapType::ALL {
            assert!(rows.iter().any(|r| r.ty == ty), "{ty:?}");
        }
    }
}
