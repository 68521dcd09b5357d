//! Operations on memory: retyping, splitting and merging of frames.
//!
//! ```text
//!                 Split                RetypeUser, RetypeKernel
//!   UNTYPED(n) ◀────────▶ UNTYPED(n-1) ───────────────────────▶ RETYPING ──zeroed──▶ USER(n), KERNEL(kind)
//!                 Merge       ▲                                                         │
//!                             └──────────── RetypeUntyped: no references, stamped ──────┘
//! ```
//!
//! The transitions are rows of [`dyad_retype`]. Each begins with one compare-and-swap of the head's word,
//! which holds type, version and references: of two operations on a block one is refused. This module checks
//! that the whole block belongs to the capability, and what an object requires before it is untyped.
//!
//! | condition for reusing a frame | ensured by |
//! |---|---|
//! | nothing refers to it | its references, in the word that is exchanged |
//! | no CPU still uses it | its stamp: it is claimed only when every node has been quiet since |
//! | nothing of its former contents is left | zeros, written while it is RETYPING, when no other CPU reads it |
//! | capabilities for its former use are dead | its version, which has been incremented |
//!
//! A holder of the memory makes the capability for a new object (`Activate`). The capability gets the guard
//! of the memory, so that it is revoked with the memory, and the frame's version, so that it is dead when the
//! frame is retyped.
//!
//! Bounds: an operation changes one block. Blocks that have been used are zeroed when they are used again, at
//! most 2^[`MAX_ZEROED`] frames at once. A block that has not been used since the pools were formatted is
//! zero already and costs the same whatever its size. An operation splits at most [`MAX_SPLITS`] times;
//! splitting a largest block down to a frame takes 20. `Count` reads [`MAX_COUNTED`] words.

use dyad_abi::cap::{CapType, Counted, MemoryOp, ObjectKind, Rights};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Result};
use dyad_captbl::Contents;
use dyad_coherence::GlobalMem;
use dyad_retype::{Claim, FrameType, FrameWord, Order, Refused, Use, plain, row};
use dyad_shm::FrameRef;
use dyad_shm::frame::{Epoch, WeakRef};

use super::captbl::{activate, destination};
use super::{component, frame_at};
use crate::sched::dispatch;
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::{KernelCtx, Operand};
use dyad_object::endpoint::Endpoints;
use dyad_object::find;
use dyad_object::kinds::{self, Farewell};
use dyad_object::thread::{NO_MORE_EVENTS, State, Thread};

/// Largest block that is zeroed in one operation: 16 frames, 64 KiB.
pub const MAX_ZEROED: u32 = 4;

/// Splits of one operation. A call that needs more is refused with `Again`, and the next call finds a smaller
/// block.
pub const MAX_SPLITS: u32 = 10;

/// Frame words that one `Count` reads.
pub const MAX_COUNTED: u32 = 64;

/// Carries out an operation on memory: on the frame at offset `a[0]` of the capability, or on the block that
/// begins there.
///
/// # Errors
///
/// [`Error::BadArgument`] beyond the capability, or if the frame is no block of that size; the errors of
/// [`claim`] and [`to_untyped`]; the errors of [`destination`] and [`activate`] for the slot of a new
/// capability.
pub fn dispatch<P: Platform>(
    cx: &KernelCtx,
    memory: &Operand,
    op: MemoryOp,
    a: [u64; 5],
) -> Result<u64> {
    let frame = frame_at(memory, a[0])?;
    match op {
        MemoryOp::RetypeUser => {
            let order = Order::new(a[1]).ok_or(Error::BadArgument)?;
            // The whole block must be the caller's. (The sum cannot run over: an offset that the
            // capability has is a number of 32 bits.)
            if !lacks!("ops::memory::dispatch::range") {
                frame_at(memory, a[0] + (order.frames() - 1))?;
            }
            let claim = claim::<P>(cx, frame, order)?;
            cx.frames()
                .from_untyped_finish(claim, Use::User, &cx.intents())?;
            Ok(0)
        }
        MemoryOp::RetypeKernel => {
            let kind = ObjectKind::from_number(a[1]).ok_or(Error::BadArgument)?;
            retype_kernel::<P>(cx, frame, kind).map(|_| 0)
        }
        MemoryOp::RetypeUntyped => {
            let word = cx.frames().look(frame)?;
            block_within(memory, a[0], word)?;
            // What has been looked at: it may be a larger block by now.
            untype(cx, frame, word)
        }
        MemoryOp::Split => {
            cx.frames().split(frame, &cx.intents())?;
            Ok(0)
        }
        MemoryOp::Merge => {
            let (word, _) = cx.frames().read(frame)?;
            let FrameType::Untyped(order) = word.ty else {
                return Err(Refused::unusable(word.ty).into());
            };
            // The other half must be the caller's, too.
            frame_at(memory, a[0] + (2 * order.frames() - 1))?;
            cx.frames().merge_of(frame, order, &cx.intents())?;
            Ok(0)
        }
        MemoryOp::Activate => {
            let place = destination(cx, a[1])?;
            let word = cx.frames().look(frame)?;
            block_within(memory, a[0], word)?;
            // For what the frame is now: if it is given up meanwhile, its version is another one,
            // and the capability was never alive.
            let contents = Contents {
                guard: memory
                    .guard
                    .filter(|_| !lacks!("ops::memory::dispatch::guard")),
                ..contents_of(frame, word, Rights(a[2] as u32))?
            };
            activate(cx, place, &contents)?;
            Ok(0)
        }
        MemoryOp::Count => count(cx, memory, a[0], a[1]),
        // The word as it is, references included: the holder of the memory may know what becomes of it.
        MemoryOp::Inspect => {
            let (word, _) = cx.frames().read(frame)?;
            Ok(word.bits())
        }
    }
}

/// Counts the frames by use: `frames` frames from `at` on, or as many of them as [`MAX_COUNTED`] reads cover.
/// Words are read one after the other, so the result is no snapshot.
fn count(cx: &KernelCtx, memory: &Operand, at: u64, frames: u64) -> Result<u64> {
    let last = frames
        .checked_sub(1)
        .and_then(|n| at.checked_add(n))
        .ok_or(Error::BadArgument)?;
    frame_at(memory, at)?;
    frame_at(memory, last)?;
    let mut counted = Counted::default();
    for _ in 0..MAX_COUNTED {
        if counted.looked >= frames || counted.looked >= Counted::MAX {
            break;
        }
        let frame = frame_at(memory, at + counted.looked)?;
        let (head, word) = match cx.frames().head(frame) {
            Ok(found) => found,
            // Its head is changing: this one frame is neither free nor in use.
            Err(_) => {
                counted.looked += 1;
                continue;
            }
        };
        let into = u64::from(frame.bits() - head.bits());
        let block = match word.ty {
            FrameType::Untyped(order) | FrameType::User(order) => order.frames(),
            _ => 1,
        };
        // The block may have become smaller since.
        let left = (block.saturating_sub(into).max(1)).min(frames - counted.looked);
        let left = left.min(Counted::MAX - counted.looked);
        counted.looked += left;
        match word.ty {
            FrameType::Untyped(_) => counted.untyped += left,
            FrameType::User(_) => counted.user += left,
            _ => {}
        }
    }
    Ok(counted.bits())
}

/// Checks that a user block lies within the capability as a whole: a holder of one of its frames must not
/// reach the others by a capability for the block. Objects are one frame.
fn block_within(memory: &Operand, at: u64, word: FrameWord) -> Result<()> {
    if let FrameType::User(order) = word.ty
        && !lacks!("ops::memory::block_within::range")
    {
        frame_at(memory, at + (order.frames() - 1))?;
    }
    Ok(())
}

/// Claims the untyped block of `order` that starts at `frame`, splitting a larger one if necessary, and fills
/// it with zeros.
///
/// # Errors
///
/// [`Error::Exists`] if the block is in use, [`Error::Denied`] if it is the system's, [`Error::BadArgument`]
/// if no block of that size begins there, [`Error::TooLarge`] if more would have to be zeroed than one
/// operation may; [`Error::Again`] if the block is being changed, is not quiesced, or has been split as often
/// as one operation may.
pub fn claim<P: Platform>(cx: &KernelCtx, frame: FrameRef, order: Order) -> Result<Claim> {
    let frames = cx.frames();
    // The way from a tail to its head is gone once. Behind each split, the half with the frame is known.
    let (mut head, word) = frames.head(frame)?;
    let mut has = match word.ty {
        FrameType::Untyped(has) => has,
        FrameType::Reserved => return Err(Error::Denied),
        FrameType::Retyping(_) | FrameType::Frozen(_) => return Err(Error::Again),
        _ => return Err(Error::Exists),
    };
    // One step at a time, each a row: what is left of the larger block is what `Split` leaves.
    let mut splits = 0;
    while has > order
        && let Some(half) = has.half()
    {
        if splits == MAX_SPLITS {
            return Err(Error::Again);
        }
        splits += 1;
        let other = frames.split(head, &cx.intents())?;
        if frame >= other {
            head = other;
        }
        has = half;
    }
    // Smaller, or around it: what has not been merged is not one block.
    if head != frame || has != order {
        return Err(Error::BadArgument);
    }
    let (word, stamp) = frames.read(frame)?;
    if word.ty != FrameType::Untyped(order) {
        return Err(Error::Again);
    }
    // Splitting changes versions, and copies stamps: a frame that has been used has one.
    let dirty = stamp.epoch != Epoch::ZERO && !lacks!("ops::memory::claim::zero");
    if dirty && order.get() > MAX_ZEROED {
        return Err(Error::TooLarge);
    }
    let mut claim = frames.from_untyped_begin(frame, Some(word.version), cx, cx)?;
    if !dirty {
        claim.never_used();
    }
    while let Some(f) = claim.next_frame() {
        if !P::zero_frame(cx.node.map, f.address()) {
            frames.from_untyped_abandon(claim, &cx.intents())?;
            return Err(Error::Corrupt);
        }
        if let Err(why) = claim.frame_done(frames) {
            frames.from_untyped_abandon(claim, &cx.intents())?;
            return Err(why.into());
        }
    }
    Ok(claim)
}

/// Retypes an untyped frame to a kernel object. All zeros is a valid object of every kind, in its initial
/// state: there is no set-up that a crash could leave half done.
///
/// # Errors
///
/// The errors of [`claim`].
pub fn retype_kernel<P: Platform>(
    cx: &KernelCtx,
    frame: FrameRef,
    kind: ObjectKind,
) -> Result<WeakRef> {
    let used = Use::Kernel(kinds::of(kind).kernel);
    let words = (plain::retyping(cx.node.id()), plain::used(used));
    let zero = || {
        let zeroed = P::zero_frame(cx.node.map, frame.address());
        if zeroed {
            cx.words().invalidate(frame.address(), PAGE_SIZE);
        }
        zeroed
    };
    // A frame that is by itself already, as it mostly is: one look and one exchange.
    let record = cx.frames().record_of(frame)?;
    match row::retype(&record, frame, words, zero, cx) {
        Ok(object) => Ok(object),
        Err(Refused::NotQuiesced) => Err(Refused::NotQuiesced.into()),
        Err(Refused::NoFrame) => Err(Error::Corrupt),
        Err(_) => split_off::<P>(cx, frame, used),
    }
}

/// Retypes a frame that has to be split off first, and finds the error for one that cannot be.
#[cold]
fn split_off<P: Platform>(cx: &KernelCtx, frame: FrameRef, used: Use) -> Result<WeakRef> {
    let claim = claim::<P>(cx, frame, Order::FRAME)?;
    Ok(cx.frames().from_untyped_finish(claim, used, cx)?)
}

/// Untypes a frame's object, or the user block that it heads. Returns the stamp: the frame can be used again
/// once every node has been quiet since. Capabilities for it are dead at once; other CPUs may use references
/// that they hold until then.
///
/// # Errors
///
/// [`Error::Exists`] if something still refers to it; [`Error::NotReady`] if it is a thread that has not been
/// stopped or is on a list, or endpoints whose lists are not empty; [`Error::Denied`] for frames of the
/// system.
pub fn to_untyped(cx: &KernelCtx, frame: FrameRef) -> Result<u64> {
    untype(cx, frame, cx.frames().look(frame)?)
}

/// Untypes a frame if its word is still `word`, except for references.
///
/// What an object needs besides comes before its frame changes its type, and is such that a refusal
/// after it does no harm: a component without parts can be configured again, lists are opened
/// again, and a thread that is GONE can still be given up.
fn untype(cx: &KernelCtx, frame: FrameRef, word: FrameWord) -> Result<u64> {
    let object = WeakRef {
        frame,
        version: word.version,
    };
    let used = match word.ty {
        FrameType::User(_) => Use::User,
        FrameType::Kernel(kind) => Use::Kernel(kind),
        FrameType::Reserved => return Err(Error::Denied),
        FrameType::Frozen(_) | FrameType::Retyping(_) => return Err(Error::Again),
        _ => return Err(Error::BadArgument),
    };
    let farewell = match used {
        Use::User => Farewell::Nothing,
        Use::Kernel(kind) => kinds::named(kind).ok_or(Error::Corrupt)?.farewell,
    };
    match farewell {
        Farewell::Nothing => {}
        // What it refers to: while it is there, so that a recoverer finds those references.
        Farewell::TakeParts => component::take_parts(cx, object)?,
        Farewell::EndThread => {
            end_thread(cx, find::<Thread>(cx.node, object, Thread::KIND)?)?;
        }
        Farewell::CloseLists => {
            // Before the frame goes: a CPU that tells a scheduler of a thread must not put it on a list that
            // no scheduler will read. Opened again if the frame stays.
            let endpoints = find::<Endpoints>(cx.node, object, Endpoints::KIND)?;
            endpoints.close(cx.node)?;
            let stamp = cx.frames().to_untyped(object, used, cx, cx, cx);
            if stamp.is_err() {
                endpoints.reopen(cx.node, cx.node.id());
            }
            return Ok(stamp?.get());
        }
    }
    let stamp = cx.frames().to_untyped(object, used, cx, cx, cx)?;
    Ok(stamp.get())
}

/// Prepares a thread whose frame is untyped: it must be on no list and on no CPU, and stay so. From here on
/// it cannot be configured or resumed. If its frame cannot be untyped after all, the caller can try again.
fn end_thread(cx: &KernelCtx, t: &'static Thread) -> Result<()> {
    let words = cx.words();
    let owner = t.owner(words).ok_or(Error::Corrupt)?;
    if !matches!(owner.state, State::None | State::Stopped | State::Gone) {
        return Err(Error::NotReady);
    }
    // GONE is never left but by who has set it: `Configure` and `Resume` want other states.
    let gone = owner.with(State::Gone);
    if !t.change(words, owner, gone) {
        return Err(Error::NotReady);
    }
    // A CPU that woke it before it was stopped may not have told its scheduler yet, and does not then.
    // One that is on a list is refused: the list would lead through a frame that is something else.
    if !words.exchange(&t.event, 0, NO_MORE_EVENTS) && words.read(&t.event) != NO_MORE_EVENTS {
        t.change(words, gone, owner);
        return Err(Error::NotReady);
    }
    // The CPU that has stopped it may not have come to that yet.
    dispatch::stop_waiting(cx, t);
    Ok(())
}

/// The capability for the current object or block of a frame, with the given rights: the holder of the memory
/// decides them.
fn contents_of(frame: FrameRef, word: FrameWord, rights: Rights) -> Result<Contents> {
    let (ty, payload) = match word.ty {
        FrameType::User(order) => (CapType::Frame, [0, order.frames(), 0]),
        FrameType::Kernel(kind) => kinds::named(kind).ok_or(Error::Corrupt)?.capability(),
        FrameType::Reserved => return Err(Error::Denied),
        FrameType::Frozen(_) | FrameType::Retyping(_) => return Err(Error::Again),
        _ => return Err(Error::BadArgument),
    };
    Ok(Contents {
        ty,
        rights,
        object: Some(WeakRef {
            frame,
            version: word.version,
        }),
        guard: None,
        payload,
    })
}
