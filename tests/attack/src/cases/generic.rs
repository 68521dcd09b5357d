//! What is the same for all types of capabilities: rights, versions, guards, arguments.

use dyad_abi::cap::authority::{self, Argument, Form};
use dyad_abi::cap::{
    CapIndex, CapType, CaptblOp, Guard, INTROSPECT, ObjectKind, Rights, SpaceOp, TableAt, ThreadOp,
};
use dyad_abi::user::TEXT_BASE;
use dyad_abi::{Error, Isa, Result};
use dyad_services::first::{CXL, HOME};
use dyad_services::rt;
use dyad_sys::cap::{
    Cap, Component, Liveness, Memory, Place, Receive, Send, Sinv, Space, ThreadIds,
};

use super::{Case, IDLE};
use crate::me::{call, copy, invoke, place, without};
use crate::run::{ATTACKERS, Scene};
use crate::shared::{NOWHERE, at};
use crate::store::patiently;
use crate::{refuse, work};

/// A capability whose type does not matter.
type Any = Cap<Space>;

/// Every right of tables, to copy and introspect included.
const OWN_TABLE: Rights = CaptblOp::CopyIn
    .right()
    .or(CaptblOp::Activate.right())
    .or(CaptblOp::Deactivate.right());

const fn ty<const T: u8>() -> CapType {
    match CapType::from_number(T as u64) {
        Some(ty) => ty,
        None => panic!("no such type"),
    }
}

fn object<T: dyad_sys::cap::Kind>(s: &mut Scene<'_>, kind: ObjectKind) -> Result<Any> {
    let cap: Cap<T> = s.attacker.object(s.store, kind)?;
    Ok(Cap::at(cap.index()))
}

/// A new capability of a type, of the attacker's own frames, in the warden's table.
pub fn sample(s: &mut Scene<'_>, ty: CapType) -> Result<Any> {
    match ty {
        CapType::Captbl => object::<Space>(s, ObjectKind::CaptblLeaf),
        CapType::PageTable => object::<Space>(s, ObjectKind::PageTableX86L1),
        CapType::Space => object::<Space>(s, ObjectKind::Space),
        CapType::Component => object::<Space>(s, ObjectKind::Component),
        CapType::Thread => object::<Space>(s, ObjectKind::Thread),
        CapType::Receive => object::<Space>(s, ObjectKind::Endpoints),
        CapType::Time => object::<Space>(s, ObjectKind::Time),
        CapType::Liveness => object::<Space>(s, ObjectKind::Liveness),
        CapType::Sinv => {
            let component: Cap<Component> = s.attacker.object(s.store, ObjectKind::Component)?;
            component.configure(s.attacker.table, s.attacker.space)?;
            let (place, entry) = (s.store.slot()?, s.image.invoked()?);
            sinv_of(component, place, entry)
        }
        CapType::Send => {
            let endpoints: Cap<Receive> = s.attacker.object(s.store, ObjectKind::Endpoints)?;
            let place = s.store.slot()?;
            let send: Cap<Send> = endpoints.make_send(1, place, 2)?;
            Ok(Cap::at(send.index()))
        }
        CapType::Memory => {
            let (first, _) = s.attacker.scratch();
            let memory: Cap<Memory> = s.store.memory(CXL, first, 8)?;
            Ok(Cap::at(memory.index()))
        }
        CapType::Frame => {
            let frame = s.attacker.page(s.store)?;
            Ok(Cap::at(frame.index()))
        }
        CapType::Hardware => Ok(Cap::at(rt::hardware(HOME).index())),
        CapType::ThreadIds => {
            let place = s.store.slot()?;
            let ids: Cap<ThreadIds> = crate::build::ids(place, ATTACKERS)?;
            Ok(Cap::at(ids.index()))
        }
    }
}

#[allow(unsafe_code)]
fn sinv_of(component: Cap<Component>, place: Place, entry: u64) -> Result<Any> {
    // SAFETY: 1. The address is where invocations enter, by the bundle of the attacker's image.
    let sinv: Cap<Sinv> =
        patiently(|| unsafe { component.make_sinv(place, entry, 0, Rights::ALL) })?;
    Ok(Cap::at(sinv.index()))
}

/// Gives the attacker its own table, to copy into.
pub fn own_table(s: &mut Scene<'_>) -> Result<()> {
    s.attacker.give(at::TABLE, s.attacker.table, OWN_TABLE)
}

/// One that is without any right, and one with all.
fn with_and_without(s: &mut Scene<'_>, ty: CapType) -> Result<()> {
    own_table(s)?;
    let cap = sample(s, ty)?;
    s.attacker.give(at::full(ty), cap, Rights::ALL)?;
    s.attacker.give(at::bare(ty), cap, Rights::NONE)
}

/// Calls an operation by number, also that of number 0.
fn any_call(cap: u32, number: u32) -> Result<u64> {
    match number {
        0 => invoke(cap, [0; 4]).map(|words| words[0]),
        // `Receive` with this second argument does not wait.
        _ => call(cap, number, [0, 1, 0, 0, 0]),
    }
}

/// A call on a capability that is dead. Where the right is missing, that is the answer; what is no
/// operation of any type but entries is none here, dead or alive.
fn refused_as_dead(line: u32, slot: u32, number: u32, ty: CapType) {
    let with: &[Error] = match (number, ty) {
        (0, CapType::Sinv) => &[Error::Revoked],
        (0, _) => &[Error::Revoked, Error::BadSyscall, Error::Denied],
        (_, CapType::Send | CapType::Receive | CapType::Component | CapType::Memory) => {
            &[Error::Revoked, Error::Denied]
        }
        _ => &[Error::Revoked],
    };
    crate::me::refused(line, any_call(slot, number), with);
}

/// Calls without the right, and copies that are to bring it back.
pub const fn rights_not_held<const T: u8>() -> Case {
    Case {
        grant: |s| with_and_without(s, ty::<T>()),
        act: || {
            let ty = ty::<T>();
            for number in 0..32 {
                refuse!(any_call(at::bare(ty), number), Denied);
            }
            refuse!(any_call(at::bare(ty), 32), BadSyscall);
            refuse!(any_call(at::bare(ty), u32::MAX), BadSyscall);
            // Nothing brings a right back: not a copy, not all rights asked for.
            refuse!(copy(at::FREE, at::bare(ty), Rights::ALL), Denied);
            let operations = authority::of(ty).filter(|o| !o.only_a_right);
            for (n, row) in (1..).zip(operations) {
                let slot = at::FREE + n;
                work!(copy(slot, at::full(ty), without(Rights(1 << row.number))));
                refuse!(any_call(slot, row.number), Denied);
                // A copy of the copy has no more.
                work!(copy(slot + 32, slot, Rights::ALL));
                refuse!(any_call(slot + 32, row.number), Denied);
            }
        },
        ..IDLE
    }
}

/// The frame in which the object of a capability is becomes another object of the same kind.
fn retyped(s: &mut Scene<'_>, ty: CapType) -> Result<()> {
    own_table(s)?;
    // The object is the last one of the attacker's frames that is made for it: its frame is known then.
    let kind = match ty {
        CapType::Captbl => ObjectKind::CaptblLeaf,
        CapType::PageTable => ObjectKind::PageTableX86L1,
        CapType::Space => ObjectKind::Space,
        CapType::Component | CapType::Sinv => ObjectKind::Component,
        CapType::Thread => ObjectKind::Thread,
        CapType::Send | CapType::Receive => ObjectKind::Endpoints,
        CapType::Time => ObjectKind::Time,
        _ => ObjectKind::Liveness,
    };
    let (first, _) = s.attacker.scratch();
    let memory = s.store.memory(CXL, first, 8)?;
    let is_frame = ty == CapType::Frame;
    let make = || match is_frame {
        true => patiently(|| memory.retype_user(0, 0)),
        false => patiently(|| memory.retype_kernel(0, kind)),
    };
    make()?;
    let place = s.store.slot()?;
    let object: Any = memory.activate(0, place, Rights::ALL)?;
    let given = match ty {
        CapType::Sinv => {
            let component: Cap<Component> = Cap::at(object.index());
            component.configure(s.attacker.table, s.attacker.space)?;
            let (place, entry) = (s.store.slot()?, s.image.invoked()?);
            sinv_of(component, place, entry)?
        }
        CapType::Send => {
            let endpoints: Cap<Receive> = Cap::at(object.index());
            let send: Cap<Send> = endpoints.make_send(0, s.store.slot()?, 2)?;
            Cap::at(send.index())
        }
        _ => object,
    };
    s.attacker.give(at::full(ty), given, Rights::ALL)?;
    patiently(|| memory.retype_untyped(0))?;
    make()?;
    // It is the victim's now.
    let now: Any = memory.activate(0, s.store.slot()?, Rights::ALL)?;
    s.victim.give(at::SUBJECT, now, Rights::ALL)
}

/// Calls by a capability of what was in the frame before.
pub const fn stale_after_retype<const T: u8>() -> Case {
    Case {
        grant: |s| retyped(s, ty::<T>()),
        act: || {
            let ty = ty::<T>();
            for _ in 0..2 {
                for number in 0..32 {
                    refused_as_dead(line!(), at::full(ty), number, ty);
                }
                refuse!(copy(at::FREE, at::full(ty), Rights::ALL), Revoked);
            }
        },
        ..IDLE
    }
}

fn guarded(s: &mut Scene<'_>, ty: CapType) -> Result<()> {
    own_table(s)?;
    let cap = sample(s, ty)?;
    let liveness: Cap<Liveness> = s.attacker.object(s.store, ObjectKind::Liveness)?;
    s.attacker
        .give_guarded(at::full(ty), cap, Rights::ALL, liveness.guard(3))?;
    // The warden finds the entry again, when it is to be revoked.
    s.tell(8, liveness.index().get().into());
    Ok(())
}

/// Revokes the entry that [`guarded`] has noted.
fn revoke(s: &mut Scene<'_>, _: u64) -> Result<()> {
    let index = CapIndex::new(s.note(8)).ok_or(Error::Corrupt)?;
    Cap::<Liveness>::at(index).revoke(3)
}

/// Calls by a capability, its copies, and what was made of it, once its guard is revoked.
pub const fn revoked_by_guard<const T: u8>() -> Case {
    Case {
        grant: |s| guarded(s, ty::<T>()),
        act: || {
            let ty = ty::<T>();
            // Alive, and known to this CPU.
            work!(call(at::full(ty), INTROSPECT, [0; 5]));
            work!(copy(at::FREE, at::full(ty), Rights::ALL));
            work!(copy(at::FREE + 1, at::FREE, Rights::ALL));
            work!(call(at::FREE + 1, INTROSPECT, [0; 5]));
            // What operations make of it has the same guard.
            let mut last = at::FREE + 1;
            let made = match ty {
                CapType::Component => Some((3, [place(at::FREE + 2), TEXT_BASE, 1, !0 >> 32, 0])),
                CapType::Receive => Some((1, [1, place(at::FREE + 2), 1, 0, 0])),
                CapType::Memory => {
                    work!(call(at::full(ty), 7, [0; 5]));
                    Some((5, [0, place(at::FREE + 2), !0 >> 32, 0, 0]))
                }
                _ => None,
            };
            if let Some((number, args)) = made {
                work!(call(at::full(ty), number, args));
                last = at::FREE + 2;
            }
            crate::me::step();
            for slot in [at::full(ty)].into_iter().chain(at::FREE..=last) {
                for number in 0..32 {
                    refused_as_dead(line!(), slot, number, ty);
                }
                refuse!(call(slot, INTROSPECT, [0; 5]), Revoked);
                refuse!(copy(at::FREE + 8, slot, Rights::ALL), Revoked);
            }
        },
        step: revoke,
        ..IDLE
    }
}

/// One of every type, and one with a guard of those that can be arguments.
fn all_types(s: &mut Scene<'_>) -> Result<()> {
    own_table(s)?;
    let liveness: Cap<Liveness> = s.attacker.object(s.store, ObjectKind::Liveness)?;
    for &ty in CapType::ALL {
        let cap = sample(s, ty)?;
        // Nothing that ends the run, or takes a CPU away, should a check be missing.
        let rights = match ty {
            CapType::Hardware => Rights::ALL.and(without(Rights(1 << 6))),
            _ => Rights::ALL,
        };
        s.attacker.give(at::full(ty), cap, rights)?;
        s.attacker
            .give_guarded(at::guarded(ty), cap, rights, liveness.guard(9))?;
    }
    Ok(())
}

/// An argument that names a capability, in its form.
fn named(a: &Argument, slot: u64) -> u64 {
    match a.form {
        Form::Index => slot,
        Form::Upper => slot << 32,
        Form::Place => slot << 32 | 1,
        Form::Guard => {
            let guard = Guard {
                liveness: CapIndex(slot as u32),
                entry: 1,
            };
            u64::from(guard.bits()) << 32 | u64::from(u32::MAX)
        }
    }
}

/// The arguments of an operation with one of its capabilities as given, and such that nothing else can be
/// wrong.
fn with_one(row: &authority::Authority, one: &Argument, value: u64) -> [u64; 5] {
    let mut args = match (row.ty, row.number) {
        (CapType::Thread, n) if n == ThreadOp::Configure as u32 => {
            [0, TEXT_BASE, 0, (ATTACKERS.end - 1).into(), 0]
        }
        (CapType::Space, n) if n == SpaceOp::Map as u32 || n == SpaceOp::Link as u32 => {
            let at = TableAt {
                isa: Isa::X86_64,
                level: 1,
            };
            [at.bits(), NOWHERE, 0, 0, 0]
        }
        (CapType::Captbl, _) => [9, 0, 0, 0, 0],
        _ => [0; 5],
    };
    for a in row.arguments {
        args[a.at] |= match a.ty {
            _ if a == one => value,
            _ if a.optional => 0,
            Some(ty) => named(a, at::full(ty).into()),
            None => at::full(CapType::Time).into(),
        };
    }
    args
}

fn try_arguments(ty: CapType) {
    let mut free = at::FREE;
    for row in authority::of(ty) {
        for a in row.arguments {
            let tried = |slot: u32| {
                let args = with_one(&row, a, named(a, slot.into()));
                call(at::full(ty), row.number, args)
            };
            refuse!(tried(at::EMPTY), NoCap);
            if let Some(wanted) = a.ty {
                let other = match wanted {
                    CapType::Space => CapType::Time,
                    _ => CapType::Space,
                };
                refuse!(tried(at::full(other)), WrongCap);
                for n in (0..32).filter(|n| a.rights.0 & 1 << n != 0) {
                    work!(copy(free, at::full(wanted), without(Rights(1 << n))));
                    refuse!(tried(free), Denied);
                    free += 1;
                }
                if !a.may_be_guarded {
                    refuse!(tried(at::guarded(wanted)), Denied);
                }
            }
            for beyond in [1 << 15, 1 << 31, 0xffff_ffff] {
                let value = match a.form {
                    // No guard has these bits.
                    Form::Guard => 1 << 63 | 1 << 32,
                    _ => named(a, beyond),
                };
                let args = with_one(&row, a, value);
                refuse!(call(at::full(ty), row.number, args), NoCap | BadArgument);
            }
        }
    }
}

/// Arguments that are not what the table of authority says.
pub const fn arguments_without_authority<const T: u8>() -> Case {
    Case {
        grant: all_types,
        act: || try_arguments(ty::<T>()),
        ..IDLE
    }
}
