//! Operations on capability tables and liveness entries.
//!
//! What becomes of slots and edges, in which order, is in [`dyad_captbl`]; here is what callers must
//! have for it beside the right of the operation.
//!
//! | operation | needs | row |
//! |---|---|---|
//! | copy | the source, in the caller's own table | slot activate |
//! | deactivate | nothing else | slot deactivate: no other slot is looked at, copies stay |
//! | cons, decons | a root; the leaf that is to hang there, with the rights of [`CONS_LEAF`] | cons, decons |
//! | read | nothing else | none |
//! | revoke | a liveness entry | one word changes, and all that it guards is dead, however much there is |
//!
//! Nothing is looked at in a table that is named but whether the place is there: who may fill a table's
//! slots may overwrite nobody's, as a slot that is in use is refused.
//!
//! | what may be out of date | and what then |
//! |---|---|
//! | the leaf that an index leads to: it may be taken out just after | the slot is filled where the leaf is then; its frame is nothing else before this CPU leaves the kernel |
//! | the source of a copy: it may be deactivated just after | the copy stands: copies do not depend on their source |
//! | the source's guard | it is copied, and dead if it is revoked |
//!
//! A table is named by capability, so a component can work on others' tables if it has been given
//! them, and never on its own by right of being it.

use dyad_abi::cap::CONS_LEAF;
use dyad_abi::cap::{
    CapIndex, CapType, CaptblOp, Guard, Introspection, LEAF_SLOTS, LivenessOp, Rights,
};
use dyad_abi::{Error, Result};
use dyad_captbl::{Contents, Narrowed, Refused, SlotPlace, Span, narrow};

use dyad_machine::capcache;
use dyad_machine::kernel_ctx::{KernelCtx, Operand};
use dyad_machine::lookup::operand;
use dyad_object::memory::SlotLine;

/// Endpoints, or time budgets, in a frame.
const LINES: u64 = 64;

/// The slot `index` counts to from a node of a capability table on.
///
/// # Errors
///
/// [`Error::BadArgument`]; [`Error::NoCap`] if no leaf is there.
#[inline]
pub fn place(cx: &KernelCtx, node: &Operand, index: u64) -> Result<SlotPlace> {
    let object = node.object()?;
    // A leaf by itself: its slots are counted from 0, and none is left out.
    if node.payload[0] == 0 {
        let index = u32::try_from(index).map_err(|_| Error::BadArgument)?;
        return SlotPlace::new(object, index).ok_or(Error::BadArgument);
    }
    let index = CapIndex::new(index).ok_or(Error::BadArgument)?;
    let leaf = cx.captbls().leaf_at(object.frame.address(), index)?;
    let leaf = cx.frames().current(leaf)?;
    SlotPlace::new(leaf, index.get() % LEAF_SLOTS).ok_or(Error::Corrupt)
}

/// The slot that `table << 32 | index` names: of a table the caller may put capabilities into.
///
/// # Errors
///
/// As [`KernelCtx::operand`] and [`place`].
pub fn destination(cx: &KernelCtx, word: u64) -> Result<SlotPlace> {
    let table = CapIndex::new(word >> 32).ok_or(Error::NoCap)?;
    let table = cx.operand(table, CapType::Captbl, CaptblOp::Activate.right())?;
    place(cx, &table, word & 0xffff_ffff)
}

/// Puts a capability into a slot.
///
/// # Errors
///
/// [`Error::Exists`] if there is one; [`Error::Again`] if the slot's last one has not quiesced.
#[inline]
pub fn activate(cx: &KernelCtx, place: SlotPlace, contents: &Contents) -> Result<()> {
    let line = SlotLine::at(cx.words(), place.address()).ok_or(Error::Corrupt)?;
    Ok(cx.captbls().slot_activate_in(&line, place, contents, cx)?)
}

/// What introspection tells. The detail is how much of something a capability is for, or which kind;
/// never where it is: nothing can be learnt about other objects.
pub fn describe(c: &Operand) -> u64 {
    let detail = match c.ty {
        CapType::Captbl | CapType::PageTable | CapType::Hardware => c.payload[0],
        CapType::Memory | CapType::Frame | CapType::ThreadIds => c.payload[1],
        _ => 0,
    };
    let told = Introspection {
        rights: c.rights,
        kind: c.ty,
        detail,
    };
    told.bits()
}

/// What a copy stands for: a part of what the source does. Of lines and budgets, a part of the list
/// within their frame.
fn narrowed(
    ty: CapType,
    payload: [u64; 3],
    at: u64,
    count: u64,
) -> core::result::Result<[u64; 3], Refused> {
    match ty {
        CapType::Receive | CapType::Time => Span::new(payload[0], payload[1], LINES)
            .ok_or(Refused::Corrupt)?
            .narrow(at, count)
            .map(Span::payload)
            .ok_or(Refused::BadRange),
        _ => narrow(ty, payload, at, count),
    }
}

/// Carries an operation on a capability table out.
///
/// # Errors
///
/// [`Error::BadArgument`] if the table has no such place, or is of the wrong level;
/// [`Error::NoCap`] if no leaf is there. `Deactivate`: [`Error::NoCap`] of an empty slot. `CopyIn`,
/// `Cons`: [`Error::Exists`] if something is there, [`Error::Again`] if what was there has not
/// quiesced or somebody else is changing it. `CopyIn`: [`Error::Denied`] without `COPY`,
/// [`Error::Exists`] also if the source has a guard and is to get another. `Decons`:
/// [`Error::NotFound`].
pub fn dispatch(cx: &KernelCtx, table: &Operand, op: CaptblOp, a: [u64; 5]) -> Result<u64> {
    match op {
        CaptblOp::Activate => Err(Error::BadSyscall),
        CaptblOp::Deactivate => {
            let place = place(cx, table, a[0])?;
            let line = SlotLine::at(cx.words(), place.address()).ok_or(Error::Corrupt)?;
            // Whatever is there: who may empty a table need not know what he takes away.
            let stamp = cx.captbls().slot_deactivate_in(&line, place, None, cx)?;
            Ok(stamp.get())
        }
        CaptblOp::CopyIn => copy_in(cx, table, a),
        CaptblOp::Cons => {
            // Hanging a leaf in gives all that is in it to the components that have the root, and its slots to
            // each capability for the root: the leaf's own must permit what those may.
            let needed = match lacks!("ops::captbl::dispatch::cons") {
                false => CONS_LEAF,
                true => Rights::COPY,
            };
            let leaf = CapIndex::new(a[1]).ok_or(Error::NoCap)?;
            let leaf = cx.operand(leaf, CapType::Captbl, needed)?;
            if table.payload[0] == 0 || leaf.payload[0] != 0 {
                return Err(Error::BadArgument);
            }
            let index = u32::try_from(a[0]).map_err(|_| Error::BadArgument)?;
            let (root, leaf) = (table.object()?, leaf.object()?);
            cx.with_services(|s| cx.captbls().cons(root, index, leaf, cx, s))?;
            Ok(0)
        }
        CaptblOp::Decons => {
            if table.payload[0] == 0 {
                return Err(Error::BadArgument);
            }
            let index = u32::try_from(a[0]).map_err(|_| Error::BadArgument)?;
            let root = table.object()?;
            let gone = cx.with_services(|s| cx.captbls().decons(root, index, cx, s))?;
            Ok(gone.stamp.get())
        }
        CaptblOp::Read => {
            let at = place(cx, table, a[0])?;
            // Dead capabilities show, too: this is how one sees that a slot is taken.
            let found = cx.captbls().found(at.address())?;
            Ok(describe(&operand(&cx.captbls().contents(&found)?)))
        }
    }
}

/// Any copy: what is mostly copied has gone a shorter way ([`crate::syscall::fastpath`]).
///
/// Its rights are those asked for that the source has. A guarded source gets no other guard, or both
/// would have to be looked at at each use; its copies have the one it has. The row compares all this
/// with the source as it has been read here, once.
fn copy_in(cx: &KernelCtx, table: &Operand, a: [u64; 5]) -> Result<u64> {
    let [index, source, how, p0, p1] = a;
    let from = CapIndex::new(source).ok_or(Error::NoCap)?;
    let found = cx.lookup(from)?;
    let source = cx.alive(&found)?;
    // What is copied once is mostly copied again.
    capcache::fill_capability(cx, from, &found, &source);
    let guard = match (how >> 32) as u32 {
        0 => None,
        bits => {
            let guard = Guard::from_bits(bits).ok_or(Error::BadArgument)?;
            let liveness =
                cx.operand(guard.liveness, CapType::Liveness, LivenessOp::Guard.right())?;
            let entry = entry_of(&liveness, guard.entry as u64)?;
            // As it counts now: revoking it counts it on, and the copy is dead.
            Some(cx.captbls().expected(liveness.object()?, entry)?)
        }
    };
    let how = Narrowed {
        rights: Rights(how as u32),
        guard,
    };
    let place = place(cx, table, index)?;
    cx.with_services(|s| {
        cx.captbls().copy(
            &source,
            place,
            how,
            |ty, payload| narrowed(ty, payload, p0, p1),
            s,
        )
    })?;
    Ok(0)
}

/// The entry of its frame that the `index`-th of a liveness capability is.
fn entry_of(liveness: &Operand, index: u64) -> Result<u64> {
    Span::entries(liveness.payload)
        .ok_or(Error::Corrupt)?
        .get(index)
        .ok_or(Error::BadArgument)
}

/// Carries an operation on liveness entries out. Value: the stamp after which nobody uses what has been
/// revoked; where caches are coherent nobody does from here on.
pub fn liveness(cx: &KernelCtx, this: &Operand, op: LivenessOp, a: [u64; 5]) -> Result<u64> {
    match op {
        LivenessOp::Revoke => {
            let entry = entry_of(this, a[0])?;
            let frame = this.object()?.frame;
            let stamp = cx.with_services(|s| cx.captbls().revoke(frame, entry, s))?;
            Ok(stamp.get())
        }
        LivenessOp::Guard => Err(Error::BadSyscall),
    }
}
