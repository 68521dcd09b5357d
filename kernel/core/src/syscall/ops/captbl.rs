//! Operations on capability tables and liveness entries.
//!
//! [`dyad_captbl`] defines how slots and edges change, and in which order. This module checks what callers
//! need besides the right of the operation.
//!
//! | operation | needs | row |
//! |---|---|---|
//! | copy | the source, in the caller's own table | slot activate |
//! | deactivate | nothing else | slot deactivate: no other slot is read, copies stay |
//! | cons, decons | a root; the leaf to link, with the rights of [`CONS_LEAF`] | cons, decons |
//! | read | nothing else | none |
//! | revoke | a liveness entry | one word changes, and all capabilities that it guards are dead, however many there are |
//!
//! Nothing is checked in the named table except that the slot exists. A holder of the right to fill slots
//! cannot overwrite a capability, because a slot that is in use is refused.
//!
//! | what may be stale | consequence |
//! |---|---|
//! | the leaf that an index leads to: it may be unlinked just after | the slot is filled wherever the leaf is then; its frame is not reused before this CPU leaves the kernel |
//! | the source of a copy: it may be deactivated just after | the copy stands: copies do not depend on their source |
//! | the source's guard | the guard is copied, and the copy is dead if it is revoked |
//!
//! A table is named by a capability. A component can therefore change other components' tables if it has been
//! given them, and has no implicit right to its own.

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

/// The number of endpoints, or time budgets, in a frame.
const LINES: u64 = 64;

/// The slot with number `index`, counted from a node of a capability table.
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

/// The slot that `table << 32 | index` names, in a table that the caller may put capabilities into.
///
/// # Errors
///
/// The errors of [`KernelCtx::operand`] and [`place`].
pub fn destination(cx: &KernelCtx, word: u64) -> Result<SlotPlace> {
    let table = CapIndex::new(word >> 32).ok_or(Error::NoCap)?;
    let table = cx.operand(table, CapType::Captbl, CaptblOp::Activate.right())?;
    place(cx, &table, word & 0xffff_ffff)
}

/// Puts a capability into a slot.
///
/// # Errors
///
/// [`Error::Exists`] if the slot is in use; [`Error::Again`] if its last capability has not quiesced.
#[inline]
pub fn activate(cx: &KernelCtx, place: SlotPlace, contents: &Contents) -> Result<()> {
    let line = SlotLine::at(cx.words(), place.address()).ok_or(Error::Corrupt)?;
    Ok(cx.captbls().slot_activate_in(&line, place, contents, cx)?)
}

/// The result of introspection. The detail is the size or the kind of what the capability is for, and never
/// its location: nothing can be learnt about other objects.
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

/// The payload of a copy that is narrowed to a part of its source. For lines and budgets this is a part of
/// the list within their frame.
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

/// Carries out an operation on a capability table.
///
/// # Errors
///
/// [`Error::BadArgument`] if the table has no such slot, or is of the wrong level; [`Error::NoCap`] if no
/// leaf is there. `Deactivate`: [`Error::NoCap`] for an empty slot. `CopyIn`, `Cons`: [`Error::Exists`] if
/// something is there; [`Error::Again`] if the earlier content has not quiesced or another CPU is changing
/// the slot. `CopyIn`: [`Error::Denied`] without `COPY`; [`Error::Exists`] also if the source has a guard and
/// another one is requested. `Decons`: [`Error::NotFound`].
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
            cx.captbls().cons(root, index, leaf, cx, cx)?;
            Ok(0)
        }
        CaptblOp::Decons => {
            if table.payload[0] == 0 {
                return Err(Error::BadArgument);
            }
            let index = u32::try_from(a[0]).map_err(|_| Error::BadArgument)?;
            let root = table.object()?;
            let gone = cx.captbls().decons(root, index, cx, cx)?;
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

/// Copies any capability; the most frequent copies take the fast path ([`crate::syscall::fastpath`]).
///
/// The copy has those of the requested rights that the source has. A guarded source gets no second guard,
/// because each use would then have to check both; its copies have the source's guard. The row compares the
/// source once with what has been read here.
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
    cx.captbls().copy(
        &source,
        place,
        how,
        |ty, payload| narrowed(ty, payload, p0, p1),
        cx,
    )?;
    Ok(0)
}

/// The number, within its frame, of the `index`-th entry of a liveness capability.
fn entry_of(liveness: &Operand, index: u64) -> Result<u64> {
    Span::entries(liveness.payload)
        .ok_or(Error::Corrupt)?
        .get(index)
        .ok_or(Error::BadArgument)
}

/// Carries out an operation on liveness entries. Value: the stamp after which no CPU uses what has been
/// revoked; where caches are coherent no CPU does from here on.
pub fn liveness(cx: &KernelCtx, this: &Operand, op: LivenessOp, a: [u64; 5]) -> Result<u64> {
    match op {
        LivenessOp::Revoke => {
            let entry = entry_of(this, a[0])?;
            let frame = this.object()?.frame;
            let stamp = cx.captbls().revoke(frame, entry, cx)?;
            Ok(stamp.get())
        }
        LivenessOp::Guard => Err(Error::BadSyscall),
    }
}
