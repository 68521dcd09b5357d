//! Operations on capabilities: from the words of a call to the object.
//!
//! Every call names a capability of the running component and an operation, whose number is the
//! bit of its right. The capability is looked up (two loads), its rights are compared, its guard
//! and the version of its object are checked (one load each), and only then does the operation
//! begin. An operation that is refused has changed nothing, but where its page says so; one that is not
//! over when its CPU's node dies is undone or finished by whoever recovers that.
//!
//! | type | operations in | may end with another thread running |
//! |---|---|---|
//! | Captbl, Liveness | [`captbl`] | no |
//! | Memory | [`memory`] | no |
//! | Space | [`space`], as authority also Frame and PageTable | no |
//! | Component | [`component`] | no |
//! | Thread | [`thread`], [`registers`] | `Dispatch`, `Yield`, `Exit`, `Migrate`, `Jump`, `Load` |
//! | Time | [`time`] | no |
//! | Send, Receive | [`endpoint`] | `Send` to a thread that is more urgent, `Receive` that waits |
//! | Hardware | [`hardware`] | if a round finds that what the caller runs in is gone |
//! | Sinv | [`crate::syscall::invoke`] | if it crosses |
//! | ThreadIds | none; the authority of `Thread.Configure` over ids | no |
//!
//! What the object's capability keeps besides the object:
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

/// Carries a call out: `word` is the index of a capability, and the number of an operation in bits
/// 32 up.
///
/// In the order in which it is told: an index that is none, a number that is none, an empty slot, a
/// right that is missing, a guard or object that is gone, then the operation's own errors. So
/// nobody learns whether something is alive who may not use it.
///
/// # Errors
///
/// Why it was refused; nothing has changed, unless the operation's page says so.
#[inline]
pub fn call<P: Platform>(cx: &KernelCtx, word: u64, a: [u64; 5]) -> Result<OpOutcome> {
    let index = CapIndex::new(word & 0xffff_ffff).ok_or(Error::NoCap)?;
    let number = word >> 32;
    if number >= 32 {
        return Err(Error::BadSyscall);
    }
    // What this CPU remembers is alive. If it does not permit the operation, the slot is looked at once
    // more: it decides which error it is.
    if let Some(known) = capcache::capability(cx.local, index) {
        if known.rights().contains(Rights(1 << number)) || lacks!("ops::call::right") {
            return on_known::<P>(cx, known, number, a);
        }
        if let ObjectAt::Empty = known.place() {
            return Err(Error::NoCap);
        }
    }
    let (this, place) = look_up(cx, index, number)?;
    with::<P>(cx, &this, place, number, a)
}

/// On a capability that this CPU remembers, which permits it. The types that are used most come
/// first, and with the words they need only; introspection is the same for all and has no way of
/// its own.
///
/// # Errors
///
/// As [`call`].
#[inline(always)]
pub fn on_known<P: Platform>(
    cx: &KernelCtx,
    known: &CachedCap,
    number: u64,
    a: [u64; 5],
) -> Result<OpOutcome> {
    if number != INTROSPECT as u64 {
        match (known.ty(), known.place()) {
            (CapType::Thread, ObjectAt::Thread(t)) => {
                return thread::dispatch::<P>(cx, t, number, a);
            }
            (CapType::Send, ObjectAt::Line(_, line)) => {
                let to = Endpoint {
                    object: known.object(),
                    number: known.payload(0),
                    line,
                };
                return endpoint::send::<P>(cx, to, known.payload(1), number);
            }
            (CapType::Space, ObjectAt::Space(s)) => {
                let object = known.operand().object()?;
                return space::dispatch::<P>(cx, s, object, number, a).map(OpOutcome::Value);
            }
            (CapType::Captbl | CapType::Memory | CapType::Liveness, _) => {
                return on::<P>(cx, &known.operand(), number, a).map(OpOutcome::Value);
            }
            _ => {}
        }
    }
    with::<P>(cx, &known.operand(), known.place(), number, a)
}

/// With a capability that permits the operation and is alive, and the object where its type has a
/// place. Operations that may switch threads tell so ([`OpOutcome::Switched`]); the others have a
/// value.
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
        // Rounds look at what this CPU is in.
        (CapType::Hardware, _) => {
            on::<P>(cx, this, number, a).map(|value| dispatch::still_here::<P>(cx, value))
        }
        _ => on::<P>(cx, this, number, a).map(OpOutcome::Value),
    }
}

/// Looks a capability up the slow path, and remembers it, or that there is none. The right is compared
/// before the guard and the object are looked at.
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

/// Carries an operation out on a capability that permits it and is alive, of the types that need no
/// thread switch.
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

/// Where an invocation endpoint leads. Whether the component still is one is looked at when it is
/// entered.
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

/// The frame at an offset of a Memory capability: operations name frames by offset, so no frame can be
/// named that is not the capability's.
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
