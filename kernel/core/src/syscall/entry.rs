//! The functions to which the arch crates pass traps. Each starts on an empty kernel stack. System calls
//! arrive with a partial register area, and the functions return if the thread continues. All other traps
//! arrive with every general register saved. See [`platform`](dyad_machine::platform).
//!
//! | trap | handled by | ends |
//! |---|---|---|
//! | system call with an operation | [`syscall`] | by returning a status and a value, or in the run loop if another thread runs |
//! | invocation | [`invoke_fastpath`], then [`invoke_slowpath`] | by returning [`ENTER`]; in the run loop if it crosses |
//! | end of an invocation | [`return_fastpath`], then [`return_slowpath`] | by returning [`ENTER`]; in the run loop if it crosses |
//! | interrupt | [`interrupted`] | in the run loop |
//! | instruction fetch from the other ISA's window | [`foreign_fault`] | on a node of the other ISA, or as a fault in user mode |
//! | fault in user mode | [`page_fault`] if it has an address, else [`user_fault`] | at the faulting instruction, in the handler, or in the run loop |
//! | exception in kernel mode | [`kernel_fault`] | with a panic of the machine |
//!
//! System calls and faults with an address have a fast path, which uses what this CPU has cached
//! ([`dyad_machine::capcache`]), and a slow path, which looks everything up and caches it. Both have the same
//! effect. A fast path that finds anything unexpected has changed nothing that the slow path would not change
//! first, and leaves the rest, errors included, to the slow path.
//!
//! All arguments come from the program: words, addresses, the program counter itself. Each is trusted only as
//! far as it has been checked.
//!
//! # The partial area
//!
//! `partial_frame` is set from the start of a slow path until the call is answered in registers. Code that
//! makes the thread leave in any other way first completes its area
//! ([`complete_frame`](crate::sched::dispatch::complete_frame)), because later owners of the area cannot tell
//! that it was partial. Paths that always end in registers do not set it.

use dyad_abi::Error;
use dyad_abi::cap::{CapIndex, CapType, SinvOp, Stopped};

use crate::migrate::{Departure, crossing};
use crate::run_loop;
use crate::sched::dispatch;
use crate::sched::fp;
use crate::syscall::fastpath;
use crate::syscall::fault_report::report_fault;
use crate::syscall::invoke::{self, Entering, Handler, Returned};
use crate::syscall::slowpath::{ENTER, FastReturn};
use dyad_machine::capcache::Callee;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::platform::{RegArea, UserFault};
use dyad_machine::{Platform, capcache, inbox, panic};
use dyad_object::thread::{Thread, info};
use dyad_space::resolve;

/// How often one instruction may fault at one address in a row without progress. A page that other threads
/// unmap and map at the same time costs a few faults; a page that the tables allow and the machine refuses
/// would fault for ever.
const MAX_SAME_FAULT: u32 = 1_000;

/// Handles a system call whose word has an operation other than 0 above the capability index. The capability
/// is looked up in the component that the CPU holds, whatever the thread's own words say.
#[inline(always)]
pub fn syscall<P: Platform>(word: u64, a0: u64, a1: u64, a2: u64, a3: u64, a4: u64) -> FastReturn {
    fastpath::syscall::<P>(word, a0, a1, a2, a3, a4)
}

/// The status of a [`FastReturn`] of [`invoke_fastpath`] and [`return_fastpath`]: nothing has happened, and
/// the caller must take the slow path.
pub const LONG: u64 = u64::MAX - 1;

/// Handles an invocation if this CPU has cached its target (see [`dyad_machine::capcache`]). `word` is the
/// index of a capability, not 0. On success the area has the entry point, the argument registers are those of
/// the call, the value is the badge, and the status is the token. Otherwise the status is [`LONG`].
#[inline(always)]
pub fn invoke_fastpath<P: Platform>(word: u64) -> FastReturn {
    match capcache::invoke::<P>(P::local(), word) {
        Some((badge, token)) => FastReturn {
            status: token,
            value: badge,
        },
        None => FastReturn {
            status: LONG,
            value: 0,
        },
    }
}

/// Handles an invocation on the slow path. With [`ENTER`] the result is that of [`invoke_fastpath`], but the
/// token is in [`CpuLocal::fast_token`](dyad_machine::cpu::CpuLocal).
pub fn invoke_slowpath<P: Platform>(word: u64, a0: u64, a1: u64, a2: u64, a3: u64) -> FastReturn {
    let cx = KernelCtx::here::<P>();
    if cx.local.fastpath_thread.get().is_none() && !lacks!("entry::invoke_slowpath::forget") {
        fp::forget::<P>(cx.local);
        let short = retry_fastpath::<P>(word);
        if short.status != LONG {
            return short;
        }
    }
    cx.local.partial_frame.set(true);
    match invocation::<P>(&cx, word, [a0, a1, a2, a3]) {
        Ok(Entering::Here { badge, token }) => {
            cx.local.fast_token.set(token);
            FastReturn::enter(&cx, badge)
        }
        Ok(Entering::Elsewhere) => run_loop::switched::<P>(&cx),
        Err(e) => FastReturn::of(&cx, Err(e)),
    }
}

/// Tries the fast path again within a slow path; a success returns [`ENTER`], like [`invoke_slowpath`].
fn retry_fastpath<P: Platform>(word: u64) -> FastReturn {
    let short = invoke_fastpath::<P>(word);
    if short.status == LONG {
        return short;
    }
    P::local().fast_token.set(short.status);
    FastReturn {
        status: ENTER,
        ..short
    }
}

/// Looks an invocation endpoint up and enters its target.
///
/// # Errors
///
/// [`Error::NoCap`], [`Error::Denied`]; [`Error::BadSyscall`] for a capability of another type;
/// [`Error::Revoked`]; the errors of [`invoke::enter`]. The caller continues.
#[inline]
fn invocation<P: Platform>(cx: &KernelCtx, word: u64, words: [u64; 4]) -> Result<Entering, Error> {
    let index = CapIndex::new(word).ok_or(Error::NoCap)?;
    let route = capcache::route(cx, index);
    let found = cx.lookup(index)?;
    // Rights first, as for all operations; then: no other type has operation 0.
    if !found.rights.contains(SinvOp::Invoke.right()) {
        return Err(Error::Denied);
    }
    if found.ty != CapType::Sinv {
        return Err(Error::BadSyscall);
    }
    let (to, guarded) = cx.sinv(&found)?;
    // A weak reference from the capability: checked here, each time.
    let callee = Callee::find(cx, to.component)?;
    invoke::enter::<P>(cx, to, &callee, words, |opened| {
        // A guard would have to be looked at each time, which is what the slow path does.
        if !guarded {
            capcache::fill_sinv(cx, (index, route), &found, &to, opened);
        }
    })
}

/// Handles the end of an invocation if this CPU has cached where it returns to. With [`ENTER`] the area has
/// the program counter; status 0 and the words of the call, of which `a0` is the first, are the results.
/// Otherwise the status is [`LONG`]. Does not return if the invocation was a fault handler that resumes the
/// faulting instruction.
#[inline(always)]
pub fn return_fastpath<P: Platform>(a0: u64) -> FastReturn {
    let status = match capcache::leave::<P>(P::local(), a0) {
        Some(()) => ENTER,
        None => LONG,
    };
    FastReturn { status, value: 0 }
}

/// Handles the end of an invocation on the slow path. [`ENTER`] means the same as from [`return_fastpath`].
pub fn return_slowpath<P: Platform>(a0: u64, a1: u64, a2: u64, a3: u64) -> FastReturn {
    let cx = KernelCtx::here::<P>();
    if cx.local.fastpath_thread.get().is_none() && !lacks!("entry::return_slowpath::forget") {
        fp::forget::<P>(cx.local);
        let short = return_fastpath::<P>(a0);
        if short.status != LONG {
            return short;
        }
    }
    cx.local.partial_frame.set(true);
    match invoke::leave::<P>(&cx, [a0, a1, a2, a3]) {
        Ok(Returned::Here) => FastReturn::enter(&cx, 0),
        Ok(Returned::Switched) => run_loop::switched::<P>(&cx),
        Err(e) => FastReturn::of(&cx, Err(e)),
    }
}

/// Dispatches a system call as arch code does: bits above the index are the operation, and the word 0, which
/// names no capability, is the end of an invocation. For tests, and for platforms without hardware.
pub fn system_call<P: Platform>(word: u64, a: [u64; 5]) -> FastReturn {
    let [a0, a1, a2, a3, a4] = a;
    if word >> 32 != 0 {
        return syscall::<P>(word, a0, a1, a2, a3, a4);
    }
    if word == 0 {
        let short = return_fastpath::<P>(a0);
        return match short.status {
            LONG => return_slowpath::<P>(a0, a1, a2, a3),
            _ => short,
        };
    }
    let short = retry_fastpath::<P>(word);
    match short.status {
        LONG => invoke_slowpath::<P>(word, a0, a1, a2, a3),
        _ => short,
    }
}

/// Handles one or more interrupts, which are already acknowledged and noted. The run loop serves them and
/// then resumes the thread, whose area is complete, if it still runs.
pub fn interrupted<P: Platform>(_area: &'static RegArea) -> ! {
    inbox::attentive::<P>();
    run_loop::run::<P>()
}

/// Handles the first use of floating-point registers by user mode, which are off. Resumes the thread if the
/// registers only had to be loaded; otherwise returns.
pub fn fp_wanted<P: Platform>(area: &'static RegArea) {
    if fp::wanted::<P>(P::local()) {
        P::go_on(area);
    }
}

/// Handles a fault in user mode.
pub fn user_fault<P: Platform>(area: &'static RegArea, f: UserFault) -> ! {
    if f.kind.is_access() {
        page_fault::<P>(area, f);
    }
    handle::<P>(area, f, None)
}

/// Handles a page fault in user mode: a read, write or instruction fetch at an address. A fault that the
/// kernel can resolve by itself does not enter the run loop, because programs that touch new memory cause
/// such faults all the time.
pub fn page_fault<P: Platform>(area: &'static RegArea, f: UserFault) -> ! {
    #[cfg(feature = "ktest")]
    crate::ktest::user_calls::note_fault::<P>();
    let local = P::local();
    let why = match resolve::resolve_here::<P>(local, f.address, f.kind) {
        // The tables say by now what the thread wants. If the machine does not agree, it would come
        // back here for ever.
        Ok(_) => {
            let (pc, _) = P::user_pc_fp(area);
            if local.note_fault(f.address, pc) <= MAX_SAME_FAULT
                || lacks!("entry::page_fault::same")
            {
                P::go_on(area);
            }
            Error::Corrupt
        }
        // Not the thread's fault, and nothing for its handler. The page changes under us, or what
        // was there has not quiesced, which takes as long as a round; the thread faults anew if it
        // still needs to, and others have their turn.
        Err(Error::Again) => run_loop::switched::<P>(&KernelCtx::here::<P>()),
        Err(e) => e,
    };
    handle::<P>(area, f, Some(why))
}

/// Handles an instruction fetch from an address that is executable on the other ISA only: a crossing call or
/// its return, if the thread may cross ([`crossing`]).
pub fn foreign_fault<P: Platform>(area: &'static RegArea, f: UserFault) -> ! {
    let cx = &KernelCtx::here::<P>();
    match crossing::fault::<P>(cx, area, f.address) {
        Ok(Departure::Away) => run_loop::run::<P>(),
        Ok(Departure::Switched) => run_loop::switched::<P>(cx),
        Err(why) => handle::<P>(area, f, Some(why)),
    }
}

/// Enters the component's fault handler. Without one the thread ends, and its registers, its stack and the
/// reason go to the console.
fn handle<P: Platform>(area: &'static RegArea, f: UserFault, why: Option<Error>) -> ! {
    #[cfg(feature = "ktest")]
    crate::ktest::user_calls::intercept_fault::<P>(area, f);
    let cx = KernelCtx::here::<P>();
    match cx.local.fastpath_thread.get() {
        Some(t) => deal::<P>(&cx, t, area, f, why, info::FAULT),
        None => keep_and_handle::<P>(&cx, area, f, why),
    }
}

/// Handles a fault of a thread that has values in floating-point registers. They are kept, because the
/// handler has its own.
#[cold]
fn keep_and_handle<P: Platform>(
    cx: &KernelCtx,
    area: &'static RegArea,
    f: UserFault,
    why: Option<Error>,
) -> ! {
    let t = dispatch::current(cx);
    let what = fp::keep::<P>(cx.local, t);
    deal::<P>(cx, t, area, f, why, what)
}

/// Enters the handler, resumes or ends the thread. `what` is as for [`invoke::fault`].
#[inline(always)]
fn deal<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    area: &'static RegArea,
    f: UserFault,
    why: Option<Error>,
    what: u64,
) -> ! {
    match invoke::fault::<P>(cx, t, f, why, what) {
        Handler::Entered { pc, args } => P::enter_user(area, pc, args),
        Handler::Retry => run_loop::switched::<P>(cx),
        Handler::None => {}
    }
    inbox::attentive::<P>();
    report_fault::<P>(cx, t, area, f, why);
    dispatch::end_thread::<P>(cx, t, Stopped::Faulted, 0);
    run_loop::run::<P>()
}

/// Handles an exception in kernel mode, which is a bug: dumps registers, reports, ends the machine. Nothing
/// is repaired here: the other nodes recover the rows that this node had open, as if it had been killed.
pub fn kernel_fault<P: Platform>(what: &str, regs: &[(&str, u64)]) -> ! {
    panic::fault::<P>(what, regs)
}
