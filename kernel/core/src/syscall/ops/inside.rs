//! `HardwareOp::Inside`: whether an invocation that a service has seen begin may still continue.
//!
//! A service records in its locks the token of the invocation that holds them, as the kernel gave it to that
//! invocation (`thread id << 8 | depth`). A thread can end within the service: its node dies; its owner stops
//! it and the grace period of [`stop`](super::stop) passes; or its component is untyped. The lock then stays
//! held, and the next invocation that wants it calls this operation.
//!
//! | the thread with that id is | value |
//! |---|---|
//! | not there; or ready or waiting, with a smaller depth | 0 |
//! | stopped | 0, for good: this call ends a thread that is stopped within the caller's component there, so that it cannot be resumed |
//! | in any other state: it runs, is in transit, is being changed, or has at least that depth | 1 |
//!
//! # Why 0 means never again
//!
//! Thread ids belong to one live thread each, and an invocation stack has one entry for each depth: no two
//! invocations that are under way have one token. A ready or waiting thread stored its depth before its owner
//! word changed, and a thread with a smaller depth has left the invocation. A stopped thread is taken if it is
//! in the caller's component there, so no other CPU changes its depth and components; of another one the owner word is the same
//! before and after they are read. Only `Configure` sets LOST registers again, and it begins with
//! an empty stack. The value 1 may be stale, and a new invocation can have the token of an old one: the
//! service asks again.
//!
//! A thread with that depth in another component counts as inside, because the components of a thread that
//! can be dispatched cannot be read consistently. The holder's program can thereby keep a lock held for as
//! long as it likes, so no two programs share a lock.

use core::sync::atomic::Ordering;

use dyad_abi::service::MAX_THREAD_IDS;
use dyad_abi::{Error, Result};

use crate::sched::dispatch::{take, untake};
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::thread::{State, Thread};
use dyad_object::{find, ids};

const OVER: u64 = 0;
const INSIDE: u64 = 1;

/// `Inside`: see the table of this module.
///
/// # Errors
///
/// [`Error::BadArgument`] if no invocation can have that token.
pub fn inside<P: Platform>(cx: &KernelCtx, token: u64) -> Result<u64> {
    let (id, depth) = (token >> 8, token & 0xff);
    if depth == 0 || id >= MAX_THREAD_IDS {
        return Err(Error::BadArgument);
    }
    let found = ids::thread_with(cx.node, id);
    let found = found.and_then(|object| find::<Thread>(cx.node, object, Thread::KIND).ok());
    let Some(t) = found else {
        return Ok(OVER);
    };
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    match owner.state {
        State::None => Ok(OVER),
        State::Ready | State::Blocked if t.depth.load(Ordering::Relaxed) < depth => Ok(OVER),
        State::Stopped => {
            // The thread of another service is left alone: who owns it is refused while it is taken.
            if seen_at(cx, t, depth) != Some(cx.local.component.get())
                && !lacks!("ops::inside::inside::elsewhere")
            {
                let is_same = t.owner(cx.words()) == Some(owner);
                return Ok(if is_same { OVER } else { INSIDE });
            }
            let Some(taken) = take(cx, t, owner) else {
                return Ok(INSIDE);
            };
            if component_at(t, depth) == Some(cx.local.component.get())
                && !lacks!("ops::inside::inside::lose")
            {
                t.lose();
            }
            untake::<P>(cx, t, taken, owner)?;
            Ok(OVER)
        }
        _ => Ok(INSIDE),
    }
}

/// The component that a stopped thread is in at a depth, and that is not taken. What was read is right if the owner word is the same
/// afterwards.
fn seen_at(cx: &KernelCtx, t: &Thread, depth: u64) -> Option<u64> {
    let refresh = || {
        let entries = size_of_val(&t.frames) as u64;
        cx.words().refresh(&t.frames[0].info, entries);
        cx.words().refresh(&t.depth, size_of::<u64>() as u64);
        cx.words().refresh(&t.component, size_of::<u64>() as u64);
    };
    refresh();
    let seen = component_at(t, depth);
    // A copy would hide what another node writes before this one has the thread.
    refresh();
    seen
}

/// The component that a thread, which the caller has taken, is in at a depth.
fn component_at(t: &Thread, depth: u64) -> Option<u64> {
    let word = match t.depth.load(Ordering::Relaxed) {
        now if now < depth => return None,
        now if now == depth => &t.component,
        _ => &t.frames.get(usize::try_from(depth).ok()?)?.component,
    };
    Some(word.load(Ordering::Relaxed))
}
