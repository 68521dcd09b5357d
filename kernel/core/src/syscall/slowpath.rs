//! Slow paths of system calls, which [`ops`] carries out, and the values that system calls return.

use dyad_abi::Error;

use crate::migrate::{Departure, jump};
use crate::run_loop;
use crate::sched::dispatch::{Endpoint, OpOutcome};
use crate::syscall::ops;
use dyad_machine::Platform;
use dyad_machine::capcache::{self, CachedCap};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::endpoint::Line;
use dyad_object::thread::Thread;

/// The return value of a fast-path function: two registers on both ISAs. They are the two registers that the
/// program gets back, so nothing has to be moved when a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FastReturn {
    /// Status of the system call, or [`ENTER`].
    pub status: u64,
    /// Value of the system call; with `ENTER` from an invocation, the badge.
    pub value: u64,
}

/// The status of a [`FastReturn`] that continues user mode at another place. Program counter and stack
/// pointer have been set in the area ([`Platform::set_user_pc_sp`]), and the address space has been switched.
pub const ENTER: u64 = u64::MAX;

impl FastReturn {
    /// The answer in registers of a call that entered with a partial area, which need not be completed any
    /// more.
    #[inline]
    pub(crate) fn of(cx: &KernelCtx, result: Result<u64, Error>) -> FastReturn {
        cx.local.partial_frame.set(false);
        match result {
            Ok(value) => FastReturn::value(value),
            Err(e) => FastReturn::refused(e),
        }
    }

    /// The answer of an operation that has succeeded.
    #[inline(always)]
    pub(crate) fn value(value: u64) -> FastReturn {
        FastReturn { status: 0, value }
    }

    /// The answer of an operation that has been refused.
    #[inline(always)]
    pub(crate) fn refused(e: Error) -> FastReturn {
        FastReturn {
            status: e.code(),
            value: 0,
        }
    }

    /// The answer that continues user mode in the component that has been entered. Arch code sets the
    /// registers that are not in the area.
    #[inline]
    pub(crate) fn enter(cx: &KernelCtx, badge: u64) -> FastReturn {
        cx.local.partial_frame.set(false);
        FastReturn {
            status: ENTER,
            value: badge,
        }
    }
}

/// Carries out a system call that [`fastpath`](super::fastpath) does not support or could not complete, from
/// the beginning with the same arguments.
#[inline(never)]
pub(crate) fn slow_syscall<P: Platform>(
    word: u64,
    a0: u64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
) -> FastReturn {
    carried_out::<P>(|cx| ops::call::<P>(cx, word, [a0, a1, a2, a3, a4]))
}

/// Carries out a system call on a capability that this CPU has cached and has just read. Nothing has been
/// looked up since, so the entry is still that capability's.
#[inline(never)]
pub(crate) fn slow_cached<P: Platform>(
    word: u64,
    a0: u64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
) -> FastReturn {
    carried_out::<P>(|cx| {
        let cached = capcache::last_called(cx.local, word);
        ops::on_known::<P>(cx, cached, word >> 32 & 31, [a0, a1, a2, a3, a4])
    })
}

/// `Receive` at an endpoint of an object.
#[inline(always)]
pub(crate) fn received<P: Platform>(
    object: u64,
    at: (&'static Line, u64),
    deadline: u64,
) -> FastReturn {
    carried_out::<P>(|cx| ops::endpoint::receive_at::<P>(cx, object, at, deadline))
}

/// `Dispatch` of a thread, without a budget.
#[inline(always)]
pub(crate) fn dispatched<P: Platform>(t: &'static Thread, how: u64) -> FastReturn {
    carried_out::<P>(|cx| ops::thread::run::<P>(cx, t, how))
}

/// `Jump` of a thread: the fast path, and the slow path if that leaves the call to it.
#[inline(never)]
pub(crate) fn jump_or_slow<P: Platform>(word: u64, t: &'static Thread, a: [u64; 5]) -> FastReturn {
    let cx = &KernelCtx::here::<P>();
    match jump::fast::<P>(cx, t, a) {
        None => {}
        Some(Departure::Switched) => run_loop::switched::<P>(cx),
        Some(Departure::Away) => run_loop::run::<P>(),
    }
    let [a0, a1, a2, a3, a4] = a;
    slow_syscall::<P>(word, a0, a1, a2, a3, a4)
}

/// Carries out the second half of a `Send` whose bits are set, when the endpoint has a waiter or is bound to
/// a CPU.
#[inline(never)]
pub(crate) fn sent<P: Platform>(cached: &CachedCap, line: &'static Line) -> FastReturn {
    let to = Endpoint {
        object: cached.object(),
        number: cached.payload(0),
        line,
    };
    carried_out::<P>(|cx| ops::endpoint::sent::<P>(cx, to))
}

/// Carries out an operation of the running thread, which has entered with a partial area. With `Switched`,
/// its area is complete, its result is stored when it next runs, and this function does not return.
#[inline(always)]
fn carried_out<P: Platform>(
    operation: impl FnOnce(&KernelCtx) -> dyad_abi::Result<OpOutcome>,
) -> FastReturn {
    let cx = &KernelCtx::here::<P>();
    cx.local.partial_frame.set(true);
    match operation(cx) {
        Ok(OpOutcome::Value(v)) => FastReturn::of(cx, Ok(v)),
        Err(e) => FastReturn::of(cx, Err(e)),
        Ok(OpOutcome::Switched) => run_loop::switched::<P>(cx),
    }
}
