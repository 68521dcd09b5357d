//! Where the arch crates hand traps over. Every function here starts on an empty kernel stack.
//! System calls come with a partial area and return if the thread goes on; all other traps find every general
//! register saved. See [`platform`](dyad_machine::platform).
//!
//! | trap | comes to | ends |
//! |---|---|---|
//! | system call with an operation | [`syscall`] | by returning a status and a value, or in the run loop if another thread runs |
//! | invocation | [`invoke_fastpath`], then [`invoke_slowpath`] | by returning [`ENTER`]; in the run loop if it crosses |
//! | end of an invocation | [`return_fastpath`], then [`return_slowpath`] | the same |
//! | interrupt | [`interrupted`] | in the run loop |
//! | instruction fetch from the other ISA's window | [`foreign_fault`] | on the other ISA's node, or as the next |
//! | fault in user mode | [`page_fault`] if it has an address, else [`user_fault`] | where it came from, in the handler, or in the run loop |
//! | exception in kernel mode | [`kernel_fault`] | with the machine |
//!
//! System calls and faults of addresses have a fast path, on what this CPU has cached
//! ([`dyad_machine::capcache`]), and a slow path, which looks everything up and fills the cache. Both do the same:
//! a fast path that finds anything it does not expect has changed nothing that the slow path would
//! not change first, and leaves the rest, errors included, to it.
//!
//! Everything that arrives here is the program's: words, addresses, the program counter itself. None
//! of it is relied on further than it has been compared.
//!
//! # The partial area
//!
//! `partial_frame` is set from where a slow path begins until the call is answered in registers.
//! Whoever has the thread leave in any other way meanwhile completes its area first
//! ([`complete_frame`](crate::sched::dispatch::complete_frame)): to whom the area belongs afterwards cannot tell that it
//! was not complete. What ends in registers in any case does not set it.

use core::sync::atomic::Ordering;

use dyad_abi::Error;
use dyad_abi::cap::{CapIndex, CapType, SinvOp, Stopped};

use crate::migrate::{Departure, crossing};
use crate::run_loop;
use crate::sched::dispatch;
use crate::sched::fp;
use crate::syscall::fastpath;
use crate::syscall::invoke::{self, Entering, Handler, Returned};
use crate::syscall::slowpath::{ENTER, FastReturn};
use dyad_machine::capcache::Callee;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::note::{Facts, MAX_PCS, words_of};
use dyad_machine::platform::{RegArea, UserFault};
use dyad_machine::{Platform, capcache, console, inbox, panic};
use dyad_object::thread::{Thread, info};
use dyad_space::{copy, resolve};

/// How often one instruction may fault at one address in a row, without the thread's getting
/// anywhere. A page that others unmap and map at the same time costs a few; a page that the tables
/// allow and the machine does not would fault for ever.
const MAX_SAME_FAULT: u32 = 1_000;

/// A system call whose word has bits above the capability index: an operation other than 0. The
/// capability is that of the component which the CPU holds, whatever the thread's own words say.
#[inline(always)]
pub fn syscall<P: Platform>(word: u64, a0: u64, a1: u64, a2: u64, a3: u64, a4: u64) -> FastReturn {
    fastpath::syscall::<P>(word, a0, a1, a2, a3, a4)
}

/// As the status of a [`FastReturn`] of [`invoke_fastpath`]: nothing has happened; it is to go the long
/// way.
pub const LONG: u64 = u64::MAX - 1;

/// An invocation, if this CPU has cached where it leads (see [`dyad_machine::capcache`]). `word` is the index of
/// a capability, not 0. The area says where; the argument registers there are those of the call, the
/// badge, which is the value, and the token, which is the status. Else the status is [`LONG`].
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

/// An invocation, the slow path. [`ENTER`]: as a token from [`invoke_fastpath`], and that is in
/// [`CpuLocal::fast_token`](dyad_machine::cpu::CpuLocal).
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

/// The fast path for those who have come the slow path: [`ENTER`] as from [`invoke_slowpath`].
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

/// Looks an invocation endpoint up and enters what it leads to.
///
/// # Errors
///
/// [`Error::NoCap`], [`Error::Denied`], [`Error::BadSyscall`] of another type; [`Error::Revoked`]; as
/// [`invoke::enter`]. The caller goes on.
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

/// The end of an invocation, if this CPU has cached where it leads. [`ENTER`]: the area says where;
/// status 0 and the call's words, of which `a0` is the first, are the results there. Else [`LONG`].
/// Does not return if it was a fault handler that leads back to what had faulted.
#[inline(always)]
pub fn return_fastpath<P: Platform>(a0: u64) -> FastReturn {
    let status = match capcache::leave::<P>(P::local(), a0) {
        Some(()) => ENTER,
        None => LONG,
    };
    FastReturn { status, value: 0 }
}

/// The end of an invocation, the slow path. [`ENTER`] as from [`return_fastpath`].
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

/// A system call as arch code divides them up: by the bits above the index, which are the
/// operation, and by the word 0, which names no capability and is the end of an invocation; for
/// machines made of nothing and for tests.
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

/// One or more interrupts, already acknowledged and noted. What is to be done about them is seen in
/// the run loop, and the thread goes on from there, if it does: its area is full.
pub fn interrupted<P: Platform>(_area: &'static RegArea) -> ! {
    inbox::attentive::<P>();
    run_loop::run::<P>()
}

/// User mode has used floating-point registers, which are off: goes on with them, if they only have
/// to be loaded.
pub fn fp_wanted<P: Platform>(area: &'static RegArea) {
    if fp::wanted::<P>(P::local()) {
        P::go_on(area);
    }
}

/// A fault in user mode.
pub fn user_fault<P: Platform>(area: &'static RegArea, f: UserFault) -> ! {
    #[cfg(feature = "ktest")]
    crate::ktest::user_calls::intercept_fault::<P>(area);
    if f.kind.is_access() {
        page_fault::<P>(area, f);
    }
    handle::<P>(area, f, None)
}

/// A fault in user mode at an address, by the page table: to read, write or execute. What the
/// kernel can put there by itself it does, without the run loop: a program that touches new memory
/// does this all the time.
pub fn page_fault<P: Platform>(area: &'static RegArea, f: UserFault) -> ! {
    #[cfg(feature = "ktest")]
    crate::ktest::user_calls::note_fault::<P>();
    let local = P::local();
    let why = match resolve::resolve_here::<P>(local, f.address, f.kind) {
        // The tables say by now what the thread wants. If the machine does not agree, it would come
        // back here for ever.
        Ok(_) => {
            let (pc, _) = P::user_pc_fp(area);
            if local.note_fault(f.address, pc) <= MAX_SAME_FAULT {
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

/// An instruction fetch from where nothing can be executed on this ISA, but on the other one: a crossing
/// call or its end, if it can be one ([`crossing`]).
pub fn foreign_fault<P: Platform>(area: &'static RegArea, f: UserFault) -> ! {
    let cx = &KernelCtx::here::<P>();
    match crossing::fault::<P>(cx, area, f.address) {
        Ok(Departure::Away) => run_loop::run::<P>(),
        Ok(Departure::Switched) => run_loop::switched::<P>(cx),
        Err(why) => handle::<P>(area, f, Some(why)),
    }
}

/// Has the component's handler deal with a fault; or the thread ends, and its registers, its stack
/// and the reason go to the console: nobody else could tell.
fn handle<P: Platform>(area: &'static RegArea, f: UserFault, why: Option<Error>) -> ! {
    let cx = KernelCtx::here::<P>();
    match cx.local.fastpath_thread.get() {
        Some(t) => deal::<P>(&cx, t, area, f, why, info::FAULT),
        None => keep_and_handle::<P>(&cx, area, f, why),
    }
}

/// The same of a thread that has something in floating-point registers: the handler has its own.
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

/// `what` is as for [`invoke::fault`].
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

/// Keeps what a user thread did wrong, with all its registers; the run loop writes it ([`crate::run_loop::faults`]). `why` is
/// what has kept the kernel from resolving a page fault. Beyond the node's budget of reports, and while
/// another report is being written, it is counted only.
fn report_fault<P: Platform>(
    cx: &KernelCtx,
    thread: &Thread,
    area: &RegArea,
    fault: UserFault,
    why: Option<Error>,
) {
    if !console::may_report::<P>() {
        return;
    }
    let (pc, fp) = P::user_pc_fp(area);
    let (pcs, depth) = user_backtrace::<P>(cx, pc, fp);
    // Where this CPU writes one, it is in the run loop, and no thread of it faults.
    cx.local.fault_note.begin(&Facts {
        thread: thread.id.load(Ordering::Relaxed),
        fault,
        pc,
        why: why.map(Error::text),
        pcs,
        depth,
        registers: words_of(area),
    });
}

/// Return addresses of a user stack by its frame records `{previous, return address}`, which both
/// ISAs have in the same form. Bounded; stops at the first record that is not readable.
///
/// Everything here is what a program that has gone wrong has left: records are copied like any user
/// memory, and each must lie above the one before, so that a circle ends.
fn user_backtrace<P: Platform>(cx: &KernelCtx, pc: u64, fp: u64) -> ([u64; MAX_PCS], usize) {
    let mut pcs = [0; MAX_PCS];
    pcs[0] = pc;
    let mut n = 1;
    let mut at = fp;
    while n < pcs.len() && at.is_multiple_of(8) {
        let mut record = [0; 16];
        if cx
            .space()
            .and_then(|s| copy::copy_in::<P>(cx, s, at, &mut record))
            .is_err()
        {
            break;
        }
        let word = |i: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&record[i..i + 8]);
            u64::from_le_bytes(w)
        };
        let (previous, ret) = (word(0), word(8));
        if ret == 0 {
            break;
        }
        pcs[n] = ret;
        n += 1;
        if previous <= at {
            break;
        }
        at = previous;
    }
    (pcs, n)
}

/// An exception in kernel mode: a bug. Dumps registers, reports, ends the machine. Nothing is
/// repaired here: the other nodes recover what this one was in the middle of, as if it had been
/// killed.
pub fn kernel_fault<P: Platform>(what: &str, regs: &[(&str, u64)]) -> ! {
    panic::fault::<P>(what, regs)
}
