//! Operations on components.
//!
//! A component consists of a capability table and an address space, which it pins; the nodes that its code
//! may run on; and a fault handler. CPUs cache what they look up of it ([`dyad_machine::capcache`]), and look
//! it up anew once its generation has changed.
//!
//! | what changes | how | order |
//! |---|---|---|
//! | table, space | claimed; rows cons and decons: intent, pins, exchange, unpins | the generation is incremented afterwards: a CPU that has read the new generation finds the new parts |
//! | home | one word | the generation is incremented afterwards |
//! | fault handler | claimed; the inactive record is written, then made active | a fault finds a complete handler; the generation is incremented afterwards |
//!
//! A claim ([`Component::change`]) keeps two CPUs from changing parts or handler at the same time: a
//! component never has the table of one change with the space of the other.
//!
//! | operation | needs besides its right |
//! |---|---|
//! | `Configure` | the table and the space, with the right to copy them |
//! | `SetFaultHandler` | an invocation endpoint, with the right to invoke it and without a guard |
//! | `MakeSinv` | the table for the new endpoint, with the right to put capabilities there |
//!
//! The state of a part:
//!
//! ```text
//! none ──cons──▶ part ──cons, another one──▶ part ──decons──▶ none
//!   pins: the part and the component │ the new part, not the old one │ neither
//! ```
//!
//! Threads that run in a component continue with its old parts until they next enter it or their CPU
//! acknowledges a round; the old parts are not reused before that.

use core::sync::atomic::AtomicU64;

use dyad_abi::cap::{CapIndex, CapType, ComponentOp, Rights, SinvOp};
use dyad_abi::{Error, Result};
use dyad_captbl::Contents;
use dyad_retype::{KernelKind, Use};
use dyad_shm::frame::WeakRef;
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::protocol::Intents;

use super::captbl::{activate, destination};
use super::sinv_entry;
use dyad_machine::kernel_ctx::{KernelCtx, Operand};
use dyad_object::component::Component;
use dyad_object::kinds::CAPTBL_ROOT;
use dyad_object::space::Space;
use dyad_object::{find, reference};

/// Carries out an operation on a component.
///
/// # Errors
///
/// [`Error::Revoked`] if the component is gone; the errors of [`KernelCtx::operand`] for capabilities in
/// arguments. `SetFaultHandler`: [`Error::Denied`] if the endpoint is guarded, [`Error::Again`] if another
/// CPU changes handler or parts. `SetHome`: [`Error::NoSuchNode`]. `MakeSinv`: [`Error::BadAddress`];
/// [`Error::Exists`], [`Error::Again`] for the slot. `Configure`: the errors of [`set_parts`].
pub fn dispatch(cx: &KernelCtx, this: &Operand, op: ComponentOp, a: [u64; 5]) -> Result<u64> {
    let object = this.object()?;
    let component: &'static Component = find(cx.node, object, Component::KIND)?;
    match op {
        ComponentOp::Configure => configure(cx, component, a),
        ComponentOp::SetFaultHandler => {
            let to = match a[0] {
                0 => None,
                n => {
                    let sinv = CapIndex::new(n).ok_or(Error::NoCap)?;
                    let sinv = cx
                        .operand(sinv, CapType::Sinv, SinvOp::Invoke.right())?
                        .unguarded()?;
                    Some(sinv_entry(&sinv)?)
                }
            };
            // It is a weak reference, and a badge: the capability is not looked at again, so it must
            // not be guarded.
            let change = component.change(cx.node, cx.cpu())?;
            change.set_handler(to);
            // Behind it, as for the home: CPUs remember where faults go.
            if !lacks!("ops::component::dispatch::handler") {
                cx.words().increase(&component.generation, 1);
            }
            change.end();
            Ok(0)
        }
        ComponentOp::SetHome => {
            let all = (1u64 << cx.node.params.node_count) - 1;
            if a[0] & !all != 0 {
                return Err(Error::NoSuchNode);
            }
            // The generation behind it: a CPU that remembers the component and has read the old
            // word looks at the generation before each use. Threads that are inside already stay
            // until they leave.
            cx.words().replace(&component.home, a[0]);
            cx.words().increase(&component.generation, 1);
            Ok(0)
        }
        ComponentOp::MakeSinv => {
            let place = destination(cx, a[0])?;
            // Here and not when it is invoked: fast paths take the address as it is.
            if a[1] == 0 || a[1] >= dyad_abi::user::USER_END {
                return Err(Error::BadAddress);
            }
            let contents = Contents {
                ty: CapType::Sinv,
                rights: Rights(a[3] as u32),
                object: Some(object),
                // Who loses the component by its guard loses what he has made of it, too.
                guard: this.guard,
                payload: [a[1], a[2], 0],
            };
            activate(cx, place, &contents)?;
            Ok(0)
        }
    }
}

/// Gives a component a capability table and an address space, which it pins. The caller needs `COPY` of both:
/// the component can then do with them whatever the caller could have given it.
fn configure(cx: &KernelCtx, component: &'static Component, a: [u64; 5]) -> Result<u64> {
    let table = CapIndex::new(a[0]).ok_or(Error::NoCap)?;
    let table = cx.operand(table, CapType::Captbl, Rights::COPY)?;
    let space = CapIndex::new(a[1]).ok_or(Error::NoCap)?;
    let space = cx.operand(space, CapType::Space, Rights::COPY)?;
    // A root, not a leaf: lookups begin with an entry of a root.
    if table.payload[0] != 1 {
        return Err(Error::BadArgument);
    }
    set_parts(cx, component, table.object()?, space.object()?)?;
    Ok(0)
}

/// Pins the new parts of a component, stores them, and unpins the old ones.
///
/// # Errors
///
/// The errors of pinning table or space. [`Error::Again`] if another CPU changes handler or parts; nothing
/// has changed then.
pub fn set_parts(
    cx: &KernelCtx,
    component: &'static Component,
    table: WeakRef,
    space: WeakRef,
) -> Result<()> {
    let object = reference(cx.node, component).ok_or(Error::Corrupt)?;
    cx.frames().check(table, Use::Kernel(CAPTBL_ROOT))?;
    cx.frames().check(space, Use::Kernel(Space::KIND))?;
    let change = component.change(cx.node, cx.cpu())?;
    // Two rows, one after the other. A CPU that enters in between finds the new table with the old
    // space; the generation, which grows behind both, makes it look again.
    let done = change_part(cx, object, &component.captbl, Some((table, CAPTBL_ROOT)))
        .and_then(|()| change_part(cx, object, &component.space, Some((space, Space::KIND))));
    // Also if only the first part has been changed: the caller sees an error, and may configure it
    // again.
    if !lacks!("ops::component::set_parts::generation") {
        cx.words().increase(&component.generation, 1);
    }
    change.end();
    done
}

/// Removes and unpins the parts of a component that is to be untyped. Called before its frame changes its
/// type: a frame with references is not untyped, and each part holds one.
///
/// # Errors
///
/// [`Error::Again`] if another CPU changes handler or parts.
pub fn take_parts(cx: &KernelCtx, object: WeakRef) -> Result<()> {
    let component: &'static Component = find(cx.node, object, Component::KIND)?;
    let change = component.change(cx.node, cx.cpu())?;
    let done = change_part(cx, object, &component.captbl, None)
        .and_then(|()| change_part(cx, object, &component.space, None));
    cx.words().increase(&component.generation, 1);
    change.end();
    done
}

/// Rows cons and decons for a part: intent; pin the new part; CAS old -> new; unpin the old part; intent
/// cleared. The first part also pins the component, and the last one unpins it: a component that gets a part
/// while it is being untyped stays, because otherwise nothing would ever unpin the part. The intent names all
/// frames whose references change, so that recovery counts them.
fn change_part(
    cx: &KernelCtx,
    object: WeakRef,
    word: &'static AtomicU64,
    new: Option<(WeakRef, KernelKind)>,
) -> Result<()> {
    // What the exchange below is compared with: of two changes of a part, one is refused.
    let bits = cx.words().read(word);
    let old = WeakRef::from_bits(bits).filter(|_| bits != 0);
    let (row, frame, table) = match (new, old) {
        (Some((new, _)), old) => (Row::Cons, new, old.unwrap_or(object)),
        (None, Some(old)) => (Row::Decons, old, object),
        (None, None) => return Ok(()),
    };
    // Before the first reference is taken, as of all rows: recovery of this node counts the
    // references of what is named here.
    let words = cx.words();
    let place = words.map().physical(core::ptr::from_ref(word) as u64);
    cx.intents().begin(&IntentRecord {
        row,
        frame,
        table: Some(table),
        place: place.ok_or(Error::Corrupt)?,
    });
    let done = pin_part(cx, object, new, old.is_none()).and_then(|()| {
        let changed = words.exchange(word, bits, new.map_or(0, |(part, _)| part.bits()));
        // What is not referred to from here any more, or has not come to be.
        let (part, without) = match changed {
            true => (old, new.is_none()),
            false => (new.map(|(part, _)| part), old.is_none()),
        };
        if let Some(part) = part.filter(|_| !lacks!("ops::component::change_part::unpin")) {
            cx.frames().unpin(part.frame)?;
            if without {
                cx.frames().unpin(object.frame)?;
            }
        }
        if changed { Ok(()) } else { Err(Error::Again) }
    });
    cx.intents().clear();
    done
}

/// Pins a new part, and its component if it had none in its place. The component comes first: if the part
/// cannot be pinned, only one pin has to be undone, and no entry has shown it.
fn pin_part(
    cx: &KernelCtx,
    object: WeakRef,
    new: Option<(WeakRef, KernelKind)>,
    first: bool,
) -> Result<()> {
    let Some((part, kind)) = new else {
        return Ok(());
    };
    if first {
        cx.frames().pin_kernel(object, Component::KIND)?;
    }
    let pinned = cx.frames().pin_kernel(part, kind);
    if pinned.is_err() && first {
        cx.frames().unpin(object.frame)?;
    }
    Ok(pinned?)
}
