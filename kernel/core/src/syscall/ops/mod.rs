//! Operations on capabilities: from the words of a call to the object.
//!
//! Every call names a capability of the running component and an operation, whose number is the bit of its
//! right. The capability is looked up (two loads), its rights are compared, its guard and the version of its
//! object are checked (one load each), and only then does the operation begin. An operation that is refused
//! has changed nothing, unless its page says otherwise. Recovery undoes or finishes an operation that is
//! under way when its node dies.
//!
//! | type | operations in | may end with another thread running |
//! |---|---|---|
//! | Captbl, Liveness | [`captbl`] | no |
//! | Memory | [`memory`] | no |
//! | Space | [`space`]; Frame and PageTable are authority for it | no |
//! | Component | [`component`] | no |
//! | Thread | [`thread`], [`registers`] | `Dispatch`, `Yield`, `Exit`, `Migrate`, `Jump`, `Load` |
//! | Time | [`time`] | no |
//! | Send, Receive | [`endpoint`] | `Send` to a thread with a higher priority, `Receive` that waits |
//! | Hardware | [`hardware`] | if a round finds that the caller's component or address space is gone |
//! | Sinv | [`crate::syscall::invoke`] | if it crosses |
//! | ThreadIds | none; the authority of `Thread.Configure` over ids | no |
//!
//! The payload of a capability, beside the reference to its object:
//!
//! | type | payload |
//! |---|---|
//! | Captbl | level |
//! | PageTable | [`TableAt`](dyad_abi::cap::TableAt) |
//! | Sinv | entry address, badge; the object is the component |
//! | Send | endpoint, bits |
//! | Receive, Time, Liveness | first entry, entries |
//! | Memory | first frame, frames; no object |
//! | Frame | first page, pages; the object is the head of the block |
//! | Hardware | node; no object |
//! | ThreadIds | first id, ids; no object |

pub mod captbl;
pub mod component;
pub mod endpoint;
pub mod evacuate;
pub mod hardware;
pub mod inside;
pub mod memory;
pub mod ranges;
pub mod reclaim;
pub mod registers;
pub mod space;
pub mod stop;
pub mod thread;
pub mod time;

use dyad_abi::cap::{
    CapIndex, CapType, CaptblOp, ComponentOp, HardwareOp, INTROSPECT, LivenessOp, MemoryOp, Rights,
    TimeOp,
};
use dyad_abi::{Error, Result};
use dyad_shm::FrameRef;

use crate::sched::dispatch::{self, Endpoint, OpOutcome};
use dyad_machine::Platform;
use dyad_machine::capcache::{self, CachedCap, ObjectAt};
use dyad_machine::kernel_ctx::{KernelCtx, Operand};
use dyad_machine::lookup::operand;
use dyad_object::component::Entry;

/// Carries out a call: `word` has the index of a capability, and the number of an operation in bits 32 up.
///
/// Errors are checked in this order: an invalid index, an invalid operation number, an empty slot, a missing
/// right, a revoked guard or object, then the operation's own errors. A caller without the right gets the
/// same error whether or not the object is alive.
///
/// # Errors
///
/// The reason of the refusal; nothing has changed, unless the operation's page says so.
#[inline]
pub fn call<P: Platform>(cx: &KernelCtx, word: u64, a: [u64; 5]) -> Result<OpOutcome> {
    let index = CapIndex::new(word & 0xffff_ffff).ok_or(Error::NoCap)?;
    let number = word >> 32;
    if number >= 32 {
        return Err(Error::BadSyscall);
    }
    // What this CPU remembers is alive. If it does not permit the operation, the slot is looked at once
    // more: it decides which error it is.
    if let Some(cached) = capcache::capability(cx.local, index) {
        if cached.rights().contains(Rights(1 << number)) || lacks!("ops::call::right") {
            return on_known::<P>(cx, cached, number, a);
        }
        if let ObjectAt::Empty = cached.place() {
            return Err(Error::NoCap);
        }
    }
    let (this, place) = look_up(cx, index, number)?;
    with::<P>(cx, &this, place, number, a)
}

/// Carries out an operation on a cached capability that permits it. The most frequent types come first, with
/// only the words that they need; introspection is the same for all types and has no branch of its own.
///
/// # Errors
///
/// The errors of [`call`].
#[inline(always)]
pub fn on_known<P: Platform>(
    cx: &KernelCtx,
    cached: &CachedCap,
    number: u64,
    a: [u64; 5],
) -> Result<OpOutcome> {
    if number != INTROSPECT as u64 {
        match (cached.ty(), cached.place()) {
            (CapType::Thread, ObjectAt::Thread(t)) => {
                return thread::dispatch::<P>(cx, t, number, a);
            }
            (CapType::Send, ObjectAt::Line(_, line)) => {
                let to = Endpoint {
                    object: cached.object(),
                    number: cached.payload(0),
                    line,
                };
                return endpoint::send::<P>(cx, to, cached.payload(1), number);
            }
            (CapType::Space, ObjectAt::Space(s)) => {
                let object = cached.operand().object()?;
                return space::dispatch::<P>(cx, s, object, number, a).map(OpOutcome::Value);
            }
            (CapType::Captbl | CapType::Memory | CapType::Liveness, _) => {
                return on::<P>(cx, &cached.operand(), number, a).map(OpOutcome::Value);
            }
            _ => {}
        }
    }
    with::<P>(cx, &cached.operand(), cached.place(), number, a)
}

/// Carries out an operation on a live capability that permits it, with the object if its type has one.
/// Operations that may switch threads return [`OpOutcome::Switched`]; the others have a value.
#[inline(never)]
fn with<P: Platform>(
    cx: &KernelCtx,
    this: &Operand,
    place: ObjectAt,
    number: u64,
    a: [u64; 5],
) -> Result<OpOutcome> {
    match (this.ty, place) {
        (_, _) if number == INTROSPECT as u64 => Ok(OpOutcome::Value(captbl::describe(this))),
        (CapType::Thread, ObjectAt::Thread(t)) => thread::dispatch::<P>(cx, t, number, a),
        (CapType::Send, ObjectAt::Line(_, line)) => {
            let [at, bits, _] = this.payload;
            let to = Endpoint {
                object: this.object()?.bits(),
                number: at,
                line,
            };
            endpoint::send::<P>(cx, to, bits, number)
        }
        (CapType::Receive, ObjectAt::Endpoints(e)) => {
            endpoint::receive::<P>(cx, e, this, number, a)
        }
        (CapType::Space, ObjectAt::Space(s)) => {
            space::dispatch::<P>(cx, s, this.object()?, number, a).map(OpOutcome::Value)
        }
        // A quiescence round may make this CPU leave the thread's address space.
        (CapType::Hardware, _) => {
            on::<P>(cx, this, number, a).map(|value| dispatch::still_here::<P>(cx, value))
        }
        _ => on::<P>(cx, this, number, a).map(OpOutcome::Value),
    }
}

/// Looks a capability up on the slow path, and caches it or its absence. The right is compared before the
/// guard and the object are read.
#[cold]
fn look_up(cx: &KernelCtx, index: CapIndex, number: u64) -> Result<(Operand, ObjectAt)> {
    let found = match cx.lookup(index) {
        Ok(found) => found,
        Err(e) => {
            capcache::fill_empty(cx, index);
            return Err(e);
        }
    };
    if !found.rights.contains(Rights(1 << number)) && !lacks!("ops::look_up::right") {
        return Err(Error::Denied);
    }
    let contents = cx.alive(&found)?;
    capcache::fill_capability(cx, index, &found, &contents);
    let this = operand(&contents);
    Ok((this, ObjectAt::of(cx, &this)))
}

/// Carries out an operation on a live capability that permits it, for the types that need no thread switch.
#[inline(never)]
fn on<P: Platform>(cx: &KernelCtx, this: &Operand, number: u64, a: [u64; 5]) -> Result<u64> {
    let bad = Error::BadSyscall;
    match this.ty {
        CapType::Captbl => {
            let op = CaptblOp::from_number(number).ok_or(bad)?;
            captbl::dispatch(cx, this, op, a)
        }
        CapType::Memory => {
            let op = MemoryOp::from_number(number).ok_or(bad)?;
            memory::dispatch::<P>(cx, this, op, a)
        }
        CapType::Component => {
            let op = ComponentOp::from_number(number).ok_or(bad)?;
            component::dispatch(cx, this, op, a)
        }
        CapType::Hardware => {
            let op = HardwareOp::from_number(number).ok_or(bad)?;
            hardware::dispatch::<P>(cx, this, op, a)
        }
        CapType::Liveness => {
            let op = LivenessOp::from_number(number).ok_or(bad)?;
            captbl::liveness(cx, this, op, a)
        }
        CapType::Time => {
            let op = TimeOp::from_number(number).ok_or(bad)?;
            time::dispatch(cx, this, op, a)
        }
        // They have a place whenever they are alive: their frames lie in pools.
        CapType::Thread | CapType::Send | CapType::Receive | CapType::Space => Err(Error::Corrupt),
        // Their rights are for other operations; invocations go another way.
        CapType::PageTable | CapType::Frame | CapType::Sinv | CapType::ThreadIds => Err(bad),
    }
}

/// The target of an invocation endpoint. Whether the component is still alive is checked when it is entered.
///
/// # Errors
///
/// [`Error::Corrupt`] if the slot names no component.
#[inline]
pub fn sinv_entry(sinv: &Operand) -> Result<Entry> {
    Ok(Entry {
        component: sinv.object()?,
        address: sinv.payload[0],
        badge: sinv.payload[1],
    })
}

/// The frame at an offset of a Memory capability. Operations name frames by offset, so they can name only
/// frames of the capability.
///
/// # Errors
///
/// [`Error::BadArgument`] beyond its end.
pub fn frame_at(memory: &Operand, at: u64) -> Result<FrameRef> {
    dyad_captbl::FrameRange::from_payload(memory.payload)
        .ok_or(Error::Corrupt)?
        .get(at)
        .ok_or(Error::BadArgument)
}
