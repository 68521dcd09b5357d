//! The authority that operations need beyond the right of their own: which capabilities they take as
//! arguments, and which rights those must have.
//!
//! The book's table of authority is compared with this, and the attack suite tries every row: without
//! the capability, with one of another type, without each of the rights, and with a guard where none
//! may be.

use super::{CapType, CaptblOp, Rights, operation};

/// The forms in which an argument names a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The index of a slot of the caller's table.
    Index,
    /// The index of a slot of the caller's table, in the upper half of the argument.
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
    /// The form in which the argument names the capability.
    pub form: Form,
    /// The type it must have; `None`: any.
    pub ty: Option<CapType>,
    /// The rights it must have.
    pub rights: Rights,
    /// Whether 0 stands for none.
    pub optional: bool,
    /// Whether the capability may have a guard.
    pub may_be_guarded: bool,
}

/// The authority that an operation needs beyond its own right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The type that has the operation.
    pub ty: CapType,
    /// Number of the operation, and of its right.
    pub number: u32,
    /// The name of the operation.
    pub name: &'static str,
    /// Whether the operation is only a right, which other operations ask for.
    pub only_a_right: bool,
    /// The capabilities it takes.
    pub arguments: &'static [Argument],
}

/// A capability named by index, which must be there.
pub(super) const fn cap(at: usize, ty: CapType, rights: Rights) -> Argument {
    Argument {
        at,
        form: Form::Index,
        ty: Some(ty),
        rights,
        optional: false,
        may_be_guarded: true,
    }
}

/// An argument that names the place for a new capability, by the table's capability.
pub(super) const fn place(at: usize) -> Argument {
    Argument {
        form: Form::Place,
        ..cap(at, CapType::Captbl, CaptblOp::Activate.right())
    }
}

impl Argument {
    pub(super) const fn or_none(self) -> Argument {
        Argument {
            optional: true,
            ..self
        }
    }

    pub(super) const fn unguarded(self) -> Argument {
        Argument {
            may_be_guarded: false,
            ..self
        }
    }
}

/// The properties of each operation of an enumeration.
pub trait Operations: Copy {
    /// The capabilities that the operation takes as arguments.
    fn arguments(self) -> &'static [Argument] {
        &[]
    }

    /// Whether the operation is only a right, which other operations ask for.
    fn only_a_right(self) -> bool {
        false
    }
}

/// Every operation of every type, in the order of their numbers.
pub fn all() -> impl Iterator<Item = Authority> {
    CapType::ALL.iter().flat_map(|&ty| of(ty))
}

/// Every operation of a type.
pub fn of(ty: CapType) -> impl Iterator<Item = Authority> {
    (0..32).filter_map(move |number| operation(ty, number))
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
                let defined = of(ty).fold(Rights::COPY.or(Rights::INTROSPECT), |all, r| {
                    all.or(Rights(1 << r.number))
                });
                assert!(
                    defined.contains(a.rights),
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
