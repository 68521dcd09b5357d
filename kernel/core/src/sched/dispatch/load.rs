//! The state of a thread that a CPU holds: component, address space, floating-point registers.
//!
//! The state stays in place when a thread stops, and is replaced only when another thread runs next.
//! `holding` names the thread that the state belongs to. Code that gives a thread to another CPU
//! ([`release`](super::release)) saves the registers first. Floating-point registers are loaded on first use
//! ([`fp`]).
//!
//! | this CPU's word | meaning | valid until |
//! |---|---|---|
//! | `thread` | the thread that runs here, or is about to | it waits, ends, or gives the CPU away |
//! | `holding` | the thread whose component is loaded, and whose values may be in the registers | another thread is loaded, the thread is given to another CPU, this CPU sleeps |
//! | `space`, `component`, `captbl` | what user mode would run in now | another component is entered, a round finds this one revoked, this CPU sleeps |
//!
//! All three are of the same thread when user mode is resumed; at other times each may be behind.

use core::sync::atomic::Ordering;

use dyad_abi::Result;
use dyad_abi::cap::Stopped;
use dyad_abi::record::Level;
use dyad_abi::user::{stack_slot, tcb_address};

use super::end_thread;
use super::wait::{line_of, take_pending};
use crate::sched::fp;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, capcache};
use dyad_object::thread::{Thread, begun};

/// Loads a thread's component and address space on this CPU, and stores the result of the call that the
/// thread stopped in. Floating-point registers are loaded on first use.
///
/// # Errors
///
/// [`Revoked`](dyad_abi::Error::Revoked) if the thread's component is gone; [`NoIsa`](dyad_abi::Error::NoIsa)
/// if its space has no table for this ISA.
#[inline]
fn load<P: Platform>(cx: &KernelCtx, t: &'static Thread) -> Result<()> {
    if !cx.local.has_loaded(t) {
        fp::put_away::<P>(cx.local);
        // The CPU holds no thread until all is in place: what follows may fail, and then the thread is ended.
        cx.local.holding.set(None);
        // The first time on this ISA, wherever it was dispatched: only this machine's code can set
        // it up.
        if t.begun(P::ISA) == begun::NOT {
            start::<P>(t);
        }
        fp::load::<P>(cx.local, t);
        capcache::enter::<P>(cx, t.component.load(Ordering::Relaxed))?;
        cx.local.holding.set(Some(t));
    }
    // The outcome of the call that it has stopped in is stored by the CPU that makes it ready, or looked up only
    // now: the bits of the endpoint may have grown since.
    match t.result.load(Ordering::Acquire) {
        0 => {}
        1 => {
            t.result.store(0, Ordering::Relaxed);
            let status = t.result_status.load(Ordering::Relaxed);
            let value = t.result_value.load(Ordering::Relaxed);
            P::set_result(t.regs(P::ISA), status, value);
        }
        // It waited at an endpoint. Another receiver may have taken the bits first: the call then returns 0, and the
        // thread waits again if it likes.
        _ => {
            t.result.store(0, Ordering::Relaxed);
            let news = line_of(cx, t).map(|line| take_pending::<P>(cx, line));
            match news {
                Ok(bits) => P::set_result(t.regs(P::ISA), 0, bits),
                Err(e) => P::set_result(t.regs(P::ISA), e.code(), 0),
            }
        }
    }
    Ok(())
}

/// Sets a thread up to begin at its entry point on this ISA. The thread has a stack for each ISA, found by
/// the thread's number, and one thread control block for all ISAs.
pub fn start<P: Platform>(t: &Thread) {
    let id = t.layout_id();
    let (_, top) = stack_slot(P::ISA, id);
    P::init_regs(
        t.regs(P::ISA),
        t.entry.load(Ordering::Relaxed),
        top,
        t.arg.load(Ordering::Relaxed),
        tcb_address(id),
    );
    fp::begin::<P>(t);
    t.set_begun(P::ISA, begun::HERE);
}

/// Leaves the address space that this CPU is in: user memory is no longer reachable, and the next thread's
/// component is looked up anew.
pub fn leave_space<P: Platform>(cx: &KernelCtx) {
    fp::put_away::<P>(cx.local);
    if cx.local.space.replace(0) != 0 {
        P::switch_root(P::idle_root());
    }
    cx.local.component.set(0);
}

/// Resumes the running thread in user mode. Returns only if no thread is left that can run.
#[inline]
pub fn resume<P: Platform>(cx: &KernelCtx) {
    while let Some(t) = cx.local.thread.get() {
        if load::<P>(cx, t).is_ok() {
            P::resume_user(t.regs(P::ISA));
        }
        cannot_run::<P>(cx, t);
    }
}

/// Ends the running thread, whose component or address space is gone; its dispatcher continues and is told.
/// Bounded: each call shortens the chain.
fn cannot_run<P: Platform>(cx: &KernelCtx, t: &'static Thread) {
    dyad_machine::console::log_limited::<P>(
        Level::Error,
        format_args!(
            "thread {} cannot run here: its component or address space is gone",
            t.id.load(Ordering::Relaxed)
        ),
    );
    end_thread::<P>(cx, t, Stopped::Faulted, 0);
}
