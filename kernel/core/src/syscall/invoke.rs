//! Invocation: a thread enters another component and returns.
//!
//! The thread stays the same. What changes is the component it runs in, and with it the capability table and
//! the address space. The return address is on the thread's invocation stack. Registers carry four words each
//! way and nothing else: a component that invokes another keeps nothing of its own in registers.
//!
//! ```text
//!   client ──Invoke: push {component, pc, sp}──▶ entry point of the callee
//!          ◀──RETURN: pop──────────────────────
//! ```
//!
//! | step | order |
//! |---|---|
//! | enter: the return entry; depth; component entered; the thread's component | an entry beyond the depth means nothing, so a partly written one is never returned to |
//! | leave: depth; component entered; the thread's component, program counter, stack pointer | if the component is gone, the invocation is over all the same: the next return leads one entry further out, and from the outermost one the thread ends |
//! | fault: as enter; then all registers to the save area | before anything else uses the area |
//!
//! Only the CPU that runs the thread accesses these words. They stay in the thread's frame, so a thread that
//! is handed over, or whose node dies, keeps its stack.
//!
//! Bounds: an invocation is one lookup and one component entered; the stack has
//! [`INVOKE_DEPTH`](dyad_abi::service::INVOKE_DEPTH) entries, and a deeper call is refused.
//!
//! The owner of a thread that is within an invocation can ask it to stop. The request is a bit of the bottom
//! entry's `info` ([`info::STOP`]) and takes effect when the thread returns to that entry
//! (`crate::syscall::ops::stop`).
//!
//! If the callee may not run on this node, the same call *crosses*: the thread is handed to a node of the
//! callee's home with its words, runs there, and the return brings it back ([`crate::migrate::handoff`]). A
//! fault is an invocation of the component's fault handler by the kernel. All registers are saved meanwhile,
//! and the handler's first result word decides whether the instruction is retried (0) or the thread ends.

use core::sync::atomic::Ordering;

use dyad_abi::cap::Stopped;
use dyad_abi::user::{FAULT_CROSSING_SHIFT, FAULT_NO_MEMORY, FAULT_SUPPLY_SHIFT};
use dyad_abi::{Error, NodeId, Result};
use dyad_shm::frame::WeakRef;

use crate::migrate::carried::{HandoffKind, store_handoff};
use crate::migrate::crossing::is_foreign;
use crate::migrate::handoff;
use crate::sched::dispatch;
use crate::sched::fp;
use crate::syscall::fault_report::report_callers;
use dyad_machine::Platform;
use dyad_machine::capcache::{self, Callee, Opened};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::platform::copy_used;
use dyad_machine::platform::{FaultKind, UserFault};
use dyad_object::component::{Entry, Parts};
use dyad_object::thread::{Frame, Thread, info};

/// Where a prepared invocation continues. In both cases the callee's arguments are in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entering {
    /// In this node, in the component that the CPU holds now. The area's program counter and stack
    /// pointer are set.
    Here {
        /// The badge of the capability, which the callee gets.
        badge: u64,
        /// The number of the invocation; it selects the stack.
        token: u64,
    },
    /// The thread has been handed over.
    Elsewhere,
}

/// Enters the component that `to` refers to, and that the caller has just found as `callee`, with the running
/// thread. `remember` is called before this CPU leaves its current component, if the callee runs here.
///
/// # Errors
///
/// [`Error::TooDeep`]; the errors of [`Callee::open`], and those of crossing. Nothing has changed then.
#[inline]
pub fn enter<P: Platform>(
    cx: &KernelCtx,
    to: Entry,
    callee: &Callee,
    words: [u64; 4],
    remember: impl FnOnce(&Opened),
) -> Result<Entering> {
    let t = dispatch::current(cx);
    if !callee.parts.runs_on(cx.node.id()) {
        return cross::<P>(cx, t, callee.parts, to, words);
    }
    let opened = callee.open::<P>(cx)?;
    remember(&opened);
    let area = t.regs(P::ISA);
    let from = cx.local.component.get();
    let depth = t.push(from, P::user_pc_sp(area), 0).ok_or(Error::TooDeep)?;
    opened.enter::<P>(cx, callee);
    t.component.store(to.component.bits(), Ordering::Relaxed);
    P::set_user_pc_sp(area, to.address, 0);
    Ok(Entering::Here {
        badge: to.badge,
        token: t.token_at(depth),
    })
}

/// Invokes a component on another node: the first live one of the callee's home. The stack entry names the
/// node to come back to; recovery reads it too if the other node dies.
///
/// # Errors
///
/// [`Error::NodeDead`] if no node of its home lives; the errors of [`handoff::send`].
#[cold]
fn cross<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    component: Parts<'_>,
    to: Entry,
    words: [u64; 4],
) -> Result<Entering> {
    let node = cx
        .node
        .all()
        .find(|&n| component.runs_on(n) && cx.node.is_live(n))
        .ok_or(Error::NodeDead)?;
    let from = cx.local.component.get();
    let here = info::CROSSED | (cx.node.id().index() as u64) << 8;
    let depth = t
        .push(from, P::user_pc_sp(t.regs(P::ISA)), here)
        .ok_or(Error::TooDeep)?;
    store_handoff(t, HandoffKind::Invoke, words, to);
    match handoff::send::<P>(cx, t, node) {
        Ok(()) => Ok(Entering::Elsewhere),
        Err(e) => {
            t.depth.store(depth - 1, Ordering::Relaxed);
            Err(e)
        }
    }
}

/// Where a return has led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// To the caller, on this node. Program counter and stack pointer are set; the caller of this function
    /// puts status and words into registers.
    Here,
    /// To an instruction that had faulted; or the thread has ended or been handed over. All registers are
    /// complete.
    Switched,
}

/// Ends the invocation that the running thread is in.
///
/// # Errors
///
/// [`Error::TooDeep`] if the thread is in no invocation. [`Error::Revoked`] if the component it would return
/// to is gone: the return can be tried again, and leads one entry further out. If that was the outermost one,
/// the thread ends. If the caller's node is dead, the return leads to the last caller whose node lives, which
/// gets [`Error::NodeDead`]; without one, the thread ends.
#[inline]
pub fn leave<P: Platform>(cx: &KernelCtx, words: [u64; 4]) -> Result<Returned> {
    let t = dispatch::current(cx);
    let (at, frame) = t.top().ok_or(Error::TooDeep)?;
    let what = frame.info.load(Ordering::Relaxed);
    if what != 0 {
        return leave_specially::<P>(cx, t, at, what, words);
    }
    let component = frame.component.load(Ordering::Relaxed);
    // First: see the order above.
    t.depth.store(at, Ordering::Relaxed);
    if let Err(e) = capcache::enter::<P>(cx, component) {
        if at != 0 || lacks!("invoke::leave::nowhere") {
            return Err(e);
        }
        // There is nowhere further out. Without an invocation its owner may choose where the thread goes on, so it
        // must not stay in the service.
        dispatch::complete_frame::<P>(cx, t);
        t.component.store(component, Ordering::Relaxed);
        dispatch::end_thread::<P>(cx, t, Stopped::Faulted, 0);
        return Ok(Returned::Switched);
    }
    t.component.store(component, Ordering::Relaxed);
    P::set_user_pc_sp(
        t.regs(P::ISA),
        frame.pc.load(Ordering::Relaxed),
        frame.sp.load(Ordering::Relaxed),
    );
    Ok(Returned::Here)
}

/// Ends an invocation that has crossed, a fault handler, or an invocation after which the thread must stop.
#[cold]
fn leave_specially<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    at: u64,
    what: u64,
    words: [u64; 4],
) -> Result<Returned> {
    let frame = t.frames.get(at as usize).ok_or(Error::Corrupt)?;
    let component = frame.component.load(Ordering::Relaxed);
    let area = t.regs(P::ISA);
    if what & info::CROSSED != 0 {
        // A request to stop stays in the entry: the thread stops where it arrives.
        let node = NodeId::new(what >> 8 & 0xff).ok_or(Error::Corrupt)?;
        t.depth.store(at, Ordering::Relaxed);
        store_handoff(t, HandoffKind::Return, words, caller(frame)?);
        return match handoff::send::<P>(cx, t, node) {
            Ok(()) => Ok(Returned::Switched),
            Err(e) => {
                t.depth.store(at + 1, Ordering::Relaxed);
                match e {
                    Error::NodeDead => leave_dead_caller::<P>(cx, t, at),
                    // It is in the callee still, which may try again.
                    e => Err(e),
                }
            }
        };
    }
    let stops = what & info::STOP != 0 && !lacks!("invoke::leave_specially::stop");
    if what & info::FAULT == 0 {
        return leave_here::<P>(cx, t, at, words, stops);
    }
    // The end of a fault handler. Registers and component belong together: also a thread that ends
    // is out of the handler's component, should it ever be resumed. The whole area is replaced:
    // what is missing of it need not be completed.
    cx.local.partial_frame.set(false);
    t.depth.store(at, Ordering::Relaxed);
    fp::bring_back::<P>(cx.local, t, what);
    t.fault.store(0, Ordering::Relaxed);
    copy_used::<P>(&t.saved, area);
    t.component.store(component, Ordering::Relaxed);
    if words[0] != 0 {
        // The stack is in the faulting component's space. Without it there is nothing to tell.
        if capcache::enter::<P>(cx, component).is_ok() {
            report_callers::<P>(cx, t, area);
        }
        dispatch::end_thread::<P>(cx, t, Stopped::Faulted, 0);
    } else if stops {
        dispatch::stop_left::<P>(cx, t);
    } else if capcache::enter::<P>(cx, component).is_err() {
        dispatch::end_thread::<P>(cx, t, Stopped::Faulted, 0);
    }
    Ok(Returned::Switched)
}

/// The caller that an entry of an invocation stack leads back to.
fn caller(frame: &Frame) -> Result<Entry> {
    Ok(Entry {
        component: WeakRef::from_bits(frame.component.load(Ordering::Relaxed))
            .ok_or(Error::Corrupt)?,
        address: frame.pc.load(Ordering::Relaxed),
        badge: frame.sp.load(Ordering::Relaxed),
    })
}

/// The last caller on a live node that a thread has crossed from, in the entries below `depth`: its entry and
/// its node. Invocations further in have no caller left to return to.
pub fn living_caller(cx: &KernelCtx, t: &Thread, depth: u64) -> Option<(u64, NodeId)> {
    let below = depth.min(t.frames.len() as u64);
    (0..below).rev().find_map(|at| {
        let info = t.frames[at as usize].info.load(Ordering::Relaxed);
        let from = NodeId::new(info >> 8 & 0xff).filter(|_| info & info::CROSSED != 0)?;
        let lives = from.index() < cx.node.params.node_count && cx.node.is_live(from);
        lives.then_some((at, from))
    })
}

/// Returns to the last caller on a live node, because the node of the caller in entry `at` is dead. Recovery
/// would send a thread that had been *on* the dead node to that caller with [`Error::NodeDead`]; this thread
/// takes the same path by itself. If there is no such caller, the thread ends.
#[cold]
fn leave_dead_caller<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    mut at: u64,
) -> Result<Returned> {
    while let Some((back, node)) = living_caller(cx, t, at) {
        let to = caller(&t.frames[back as usize])?;
        let words = [Error::NodeDead.code(), back, HandoffKind::Return as u64, 0];
        store_handoff(t, HandoffKind::Fail, words, to);
        match handoff::send::<P>(cx, t, node) {
            Ok(()) => return Ok(Returned::Switched),
            // It has died just now.
            Err(Error::NodeDead) => at = back,
            Err(e) => return Err(e),
        }
    }
    dispatch::complete_frame::<P>(cx, t);
    dispatch::end_thread::<P>(cx, t, Stopped::Faulted, 0);
    Ok(Returned::Switched)
}

/// Ends an invocation on this node; the thread then stops if `stops`.
#[cold]
#[inline(never)]
fn leave_here<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    at: u64,
    words: [u64; 4],
    stops: bool,
) -> Result<Returned> {
    let frame = t.frames.get(at as usize).ok_or(Error::Corrupt)?;
    let component = frame.component.load(Ordering::Relaxed);
    let area = t.regs(P::ISA);
    // The component is entered when the thread next runs, which is its owner's decision.
    dispatch::complete_frame::<P>(cx, t);
    t.depth.store(at, Ordering::Relaxed);
    t.component.store(component, Ordering::Relaxed);
    P::set_results(area, 0, words);
    let (pc, sp) = (&frame.pc, &frame.sp);
    P::set_user_pc_sp(area, pc.load(Ordering::Relaxed), sp.load(Ordering::Relaxed));
    if stops {
        dispatch::stop_left::<P>(cx, t);
    } else {
        capcache::enter::<P>(cx, component)?;
    }
    Ok(Returned::Switched)
}

/// The outcome of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// There is no handler, or it cannot run here.
    None,
    /// The thread is resumed at the same instruction. It finds that its component is gone, or faults again
    /// because its handler was just being changed.
    Retry,
    /// The handler's component has been entered, and the thread's registers are saved. User mode continues
    /// in the handler ([`Platform::enter_user`]).
    Entered {
        /// Program counter.
        pc: u64,
        /// The argument registers.
        args: [u64; 6],
    },
}

/// Enters the fault handler of the running thread's component. Its arguments are the address, the kind, the
/// program counter, the ISA's description of the fault, the handler's badge and the token. The kind also says
/// whether the kernel lacked memory to resolve the fault (`why`), and why a call did not cross. `what` goes into the `info` of the stack
/// entry: [`info::FAULT`], or the value of [`fp::keep`].
#[inline(always)]
pub fn fault<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    f: UserFault,
    why: Option<Error>,
    what: u64,
) -> Handler {
    // One fault at a time: a handler that faults has no handler.
    if t.fault.load(Ordering::Relaxed) != 0 {
        return Handler::None;
    }
    let area = t.regs(P::ISA);
    let (pc, sp) = P::user_pc_sp(area);
    let from = cx.local.component.get();
    // No room for one more: a fault at the deepest invocation has no handler.
    let Some(depth) = t.push(from, (pc, sp), what) else {
        fp::bring_back::<P>(cx.local, t, what);
        return Handler::None;
    };
    let to = match capcache::enter_handler::<P>(cx.local) {
        Some(to) => to,
        None => match enter_handler::<P>(cx, from) {
            Ok(to) => to,
            Err(none) => {
                t.depth.store(depth - 1, Ordering::Relaxed);
                fp::bring_back::<P>(cx.local, t, what);
                return none;
            }
        },
    };
    // All registers, not only those that an invocation keeps: the instruction is to find them again.
    copy_used::<P>(area, &t.saved);
    t.fault.store(1, Ordering::Relaxed);
    t.component.store(to.component.bits(), Ordering::Relaxed);
    let token = t.token_at(depth);
    let short = if why == Some(Error::NoMemory) {
        let node = cx.local.short_of.get();
        FAULT_NO_MEMORY | node.map_or(0, |n| n.index() as u64 + 1) << FAULT_SUPPLY_SHIFT
    } else {
        0
    };
    let crossing = match why {
        Some(e) if f.kind == FaultKind::Execute && is_foreign::<P>(f.address) => {
            e.code() << FAULT_CROSSING_SHIFT
        }
        _ => 0,
    };
    let kind = kind_number(f.kind) | short | crossing;
    Handler::Entered {
        pc: to.address,
        args: [f.address, kind, pc, f.raw, to.badge, token],
    }
}

/// Enters the fault handler of a component on the slow path. The error is the value that [`fault`] returns.
#[cold]
fn enter_handler<P: Platform>(cx: &KernelCtx, from: u64) -> core::result::Result<Entry, Handler> {
    let from = WeakRef::from_bits(from).ok_or(Handler::None)?;
    let from = Callee::find(cx, from).map_err(|_| Handler::None)?;
    let handler = from.parts.fault_entry(cx.words());
    // A handler that changes all the time is asked when the thread faults the next time.
    let to = handler.map_err(|_| Handler::Retry)?.ok_or(Handler::None)?;
    let callee = Callee::find(cx, to.component).map_err(|_| Handler::None)?;
    // A handler is asked here or not at all: the page that is missing is missing on this node.
    if !callee.parts.runs_on(cx.node.id()) {
        return Err(Handler::None);
    }
    let opened = callee.open::<P>(cx).map_err(|_| Handler::None)?;
    capcache::fill_component::<P>(cx, &from);
    opened.enter::<P>(cx, &callee);
    Ok(to)
}

/// The number of a fault's kind, as handlers get it: part of the interface to programs.
pub const fn kind_number(kind: FaultKind) -> u64 {
    match kind {
        FaultKind::Read => 1,
        FaultKind::Write => 2,
        FaultKind::Execute => 3,
        FaultKind::Illegal => 4,
        FaultKind::Breakpoint => 5,
        FaultKind::Arithmetic => 6,
        FaultKind::Alignment => 7,
        FaultKind::Other => 8,
    }
}
