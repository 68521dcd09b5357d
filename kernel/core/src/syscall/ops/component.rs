//! Operations on components.
//!
//! A component is a capability table and an address space, which it pins; the nodes its code may run
//! on; and a fault handler. CPUs remember what they have looked up of it ([`dyad_machine::capcache`]), and look
//! it up anew once its generation is another one.
//!
//! | what changes | how | order |
//! |---|---|---|
//! | table, space | claimed; rows cons and decons: intent, pins, exchange, unpins | the generation grows behind it: who has read the new one finds the new parts |
//! | home | one word | the same |
//! | fault handler | claimed; the record that does not hold is written, then holds | a fault finds a whole handler; the generation behind it |
//!
//! A claim ([`Component::change`]) keeps two CPUs from changing parts or handler at the same time: a component
//! never has the table that one of them has given it and the space that the other one has.
//!
//! | operation | needs besides its right |
//! |---|---|
//! | `Configure` | the table and the space, with the right to copy them |
//! | `SetFaultHandler` | an invocation endpoint, with the right to invoke it and without a guard |
//! | `MakeSinv` | the table that the endpoint goes to, with the right to put capabilities there |
//!
//! The state of a part:
//!
//! ```text
//! none ──cons──▶ part ──cons, another one──▶ part ──decons──▶ none
//!   pins: the part and the component │ the new part, not the old one │ neither
//! ```
//!
//! Threads that run in a component go on with its old parts until they next enter it or their CPU
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

/// Carries an operation on a component out.
///
/// # Errors
///
/// [`Error::Revoked`] if it is gone; of capabilities in arguments, as [`KernelCtx::operand`].
/// `SetFaultHandler`: [`Error::Denied`] if the endpoint is guarded, [`Error::Again`] if another CPU changes
/// handler or parts. `SetHome`:
/// [`Error::NoSuchNode`]. `MakeSinv`: [`Error::BadAddress`], [`Error::Exists`], [`Error::Again`] of the
/// slot. `Configure`: as [`set_parts`].
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
            // It is a weak reference, and a badge: nobody looks at the capability again, so it must
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

/// Gives a component a capability table and an address space, which it pins. `COPY` of both is what it
/// takes: the component can then do with them whatever the caller could have given it.
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

/// Pins what a component is to consist of, puts it there, and unpins what was there before.
///
/// # Errors
///
/// What keeps table or space from being pinned. [`Error::Again`] if another CPU changes handler or parts;
/// nothing has changed then.
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

/// Unpins what a component that is to be given up consists of. Before its frame changes its type: a
/// frame with references is not given up, and each part has one.
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

/// Rows cons and decons for a part: intent; pin the new one; CAS old -> new; unpin the old one; intent
/// cleared. The first part also pins the component, the last one unpins it: a component that is given
/// a part while it is being given up stays, or nobody would ever unpin the part. The intent names all
/// whose references change, so that a recoverer counts them.
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
    // Before the first reference is taken, as of all rows: whoever recovers this node counts the
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

/// The pins of a new part, and of its component if it had none in its place. The component first:
/// if the part cannot be pinned, one pin has to be undone that nobody can have seen as an entry.
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
