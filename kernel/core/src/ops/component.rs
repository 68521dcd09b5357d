//! Operations on components.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{CapIndex, CapType, ComponentOp, Rights, SinvOp};
use dyad_abi::{Error, Result};
use dyad_captbl::Contents;
use dyad_retype::KernelKind;
use dyad_shm::frame::WeakRef;

use super::captbl::{activate, destination};
use super::sinv_entry;
use crate::cx::{Cx, Operand};
use crate::object::component::Component;
use crate::object::{find, kernel_kind};

const ROOT: KernelKind = kernel_kind(dyad_abi::cap::ObjectKind::CaptblRoot);

/// Carries an operation on a component out.
pub fn dispatch(cx: &Cx, this: &Operand, op: ComponentOp, a: [u64; 5]) -> Result<u64> {
    let object = this.object()?;
    let component: &'static Component = find(cx.node, object, Component::KIND)?;
    match op {
        ComponentOp::Configure => configure(cx, component, a),
        ComponentOp::SetFaultHandler => {
            if a[0] == 0 {
                cx.words().replace(&component.handler, 0);
                return Ok(0);
            }
            let sinv = CapIndex::new(a[0]).ok_or(Error::NoCap)?;
            let sinv = cx.operand(sinv, CapType::Sinv, SinvOp::Invoke.right())?;
            let to = sinv_entry(&sinv)?;
            // A fault that comes in between finds no handler, not half of one.
            cx.words().replace(&component.handler, 0);
            cx.words().replace(&component.handler_entry, to.address);
            cx.words().replace(&component.handler_badge, to.badge);
            cx.words().replace(&component.handler, to.component.bits());
            Ok(0)
        }
        ComponentOp::SetHome => {
            let all = (1u64 << cx.node.params.node_count) - 1;
            if a[0] & !all != 0 {
                return Err(Error::NoSuchNode);
            }
            cx.words().replace(&component.home, a[0]);
            Ok(0)
        }
        ComponentOp::MakeSinv => {
            let place = destination(cx, a[0])?;
            if a[1] == 0 || a[1] >= dyad_abi::user::USER_END {
                return Err(Error::BadAddress);
            }
            let contents = Contents {
                ty: CapType::Sinv,
                rights: Rights(a[3] as u32),
                object: Some(object),
                guard: None,
                payload: [a[1], a[2], 0],
            };
            activate(cx, place, &contents)?;
            Ok(0)
        }
    }
}

/// Gives a component a capability table and an address space, which it pins.
fn configure(cx: &Cx, component: &Component, a: [u64; 5]) -> Result<u64> {
    let table = CapIndex::new(a[0]).ok_or(Error::NoCap)?;
    let table = cx.operand(table, CapType::Captbl, Rights::COPY)?;
    let space = CapIndex::new(a[1]).ok_or(Error::NoCap)?;
    let space = cx.operand(space, CapType::Space, Rights::COPY)?;
    if table.payload[0] != 1 {
        return Err(Error::BadArgument);
    }
    set_parts(cx, component, table.object()?, space.object()?)?;
    Ok(0)
}

/// Pins what a component is to consist of, puts it there, and unpins what was there before.
///
/// # Errors
///
/// What keeps table or space from being pinned; nothing has changed.
pub fn set_parts(cx: &Cx, component: &Component, table: WeakRef, space: WeakRef) -> Result<()> {
    let frames = cx.frames();
    frames.pin_kernel(table, ROOT)?;
    if let Err(e) = frames.pin_kernel(space, KernelKind::ADDRESS_SPACE) {
        frames.unpin(table.frame)?;
        return Err(e.into());
    }
    let old = [
        cx.words().replace(&component.captbl, table.bits()),
        cx.words().replace(&component.space, space.bits()),
    ];
    unpin_parts(cx, old)
}

/// Gives back what a component has pinned.
///
/// # Errors
///
/// [`Error::Corrupt`] if there was no reference.
pub fn unpin_parts(cx: &Cx, parts: [u64; 2]) -> Result<()> {
    for word in parts.into_iter().filter(|&w| w != 0) {
        let part = WeakRef::from_bits(word).ok_or(Error::Corrupt)?;
        cx.frames().unpin(part.frame)?;
    }
    Ok(())
}

/// What a component that is given up has pinned: to be unpinned after its frame has been taken.
pub fn parts(component: &Component) -> [u64; 2] {
    [
        component.captbl.load(Ordering::Acquire),
        component.space.load(Ordering::Acquire),
    ]
}
