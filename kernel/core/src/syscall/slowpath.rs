//! Where the fast path ends: operations that are carried out by [`ops`], and what a system call returns.

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

/// What system calls return: two registers on both ISAs. They are the two that the program
/// gets back, so nothing else has to be put anywhere when a call is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FastReturn {
    /// Status of the system call, or [`ENTER`].
    pub status: u64,
    /// Value of the system call; with `ENTER` from an invocation, the badge.
    pub value: u64,
}

/// As the status of a [`FastReturn`]: user mode is left for another place. Program counter and
/// stack pointer have been set in the area ([`Platform::set_user_pc_sp`]), and the address space
/// switched to.
pub const ENTER: u64 = u64::MAX;

impl FastReturn {
    /// The call is answered in registers after all: nobody has to complete the area any more.
    #[inline]
    pub(crate) fn of(cx: &KernelCtx, result: Result<u64, Error>) -> FastReturn {
        cx.local.partial_frame.set(false);
        match result {
            Ok(value) => FastReturn::value(value),
            Err(e) => FastReturn::refused(e),
        }
    }

    /// The operation is done.
    #[inline(always)]
    pub(crate) fn value(value: u64) -> FastReturn {
        FastReturn { status: 0, value }
    }

    /// The operation has been refused.
    #[inline(always)]
    pub(crate) fn refused(e: Error) -> FastReturn {
        FastReturn {
            status: e.code(),
            value: 0,
        }
    }

    /// User mode goes on in the component that has been entered. What is not in the area is set by
    /// arch code, which knows what has become of each register.
    #[inline]
    pub(crate) fn enter(cx: &KernelCtx, badge: u64) -> FastReturn {
        cx.local.partial_frame.set(false);
        FastReturn {
            status: ENTER,
            value: badge,
        }
    }
}

/// A system call that [`fastpath`](super::fastpath) does not know or could not do: from the beginning, with the same
/// arguments.
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

/// A system call of a capability that this CPU has cached and has just looked at. Nothing has
/// been looked up since, so the entry is still that capability's.
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
        let known = capcache::last_called(cx.local, word);
        ops::on_known::<P>(cx, known, word >> 32 & 31, [a0, a1, a2, a3, a4])
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

/// `Jump` of a thread.
#[inline(never)]
pub(crate) fn jumped<P: Platform>(word: u64, t: &'static Thread, a: [u64; 5]) -> FastReturn {
    let cx = &KernelCtx::here::<P>();
    match jump::fast::<P>(cx, t, a) {
        None => {}
        Some(Departure::Switched) => run_loop::switched::<P>(cx),
        Some(Departure::Away) => run_loop::run::<P>(),
    }
    let [a0, a1, a2, a3, a4] = a;
    slow_syscall::<P>(word, a0, a1, a2, a3, a4)
}

/// The rest of a `Send` whose bits are set: somebody may wait there, or want to know.
#[inline(never)]
pub(crate) fn sent<P: Platform>(known: &CachedCap, line: &'static Line) -> FastReturn {
    let to = Endpoint {
        object: known.object(),
        number: known.payload(0),
        line,
    };
    carried_out::<P>(|cx| ops::endpoint::sent::<P>(cx, to))
}

/// Carries an operation of the running thread out, which has entered with a partial area, and says
/// what becomes of it. `Switched`: its area is complete and its result, if it has one already, is set
/// when it next runs; it is not this function's any more.
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
