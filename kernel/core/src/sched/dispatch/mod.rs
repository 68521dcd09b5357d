//! Which thread a CPU runs: dispatch, blocking, waking, preemption.
//!
//! The kernel has no run queue and no policy. A CPU has a *root thread*, its scheduler. A thread gets the CPU
//! from another thread, its dispatcher. When the thread stops, the dispatcher continues and is told why:
//!
//! ```text
//!   root ──Dispatch──▶ A ──Dispatch──▶ B          who runs is at the right end
//!        ◀── Stopped ──  ◀── Stopped ──           preempted, blocked, left, ended, faulted, yielded
//!              A ──Send, B waits with higher priority──▶ B ──waits again──▶ A
//! ```
//!
//! A thread is in one place at a time, and its owner word says in which:
//!
//! | owner word | the thread is | taken from there by |
//! |---|---|---|
//! | NONE, STOPPED | nowhere; its last event may still be on a list | `Configure`, `Resume`, or an untype of its frame |
//! | READY | on its scheduler's list of events, or already reported to it | `Dispatch` by a CPU of its node; `Stop` |
//! | RUNNING | `thread` of a CPU, or under it in the chain | that CPU |
//! | BLOCKED | the waiter of an endpoint, or just taken off by the CPU that wakes it | a sender or its deadline, by the waiter word; `Stop`, by the owner word |
//! | TRANSIT | in a message | the receiver |
//!
//! If the node in the owner word dies, recovery takes the thread from wherever it is.
//!
//! A thread that becomes ready without a dispatcher is reported to its scheduler, by the scheduler's endpoint
//! ([`dyad_object::endpoint`]), from any node.
//!
//! Bounds: each operation changes a fixed number of words, with two exceptions: preemption takes at most
//! [`MAX_CHAIN`] threads off the CPU, and [`take_pending`] forwards at most as many events as an object has
//! endpoints. No operation waits for another CPU: one that loses an exchange returns an error.
//!
//! | module | concern |
//! |---|---|
//! | `budget` | time that a dispatch reserves and gives back |
//! | `chain` | the chain of dispatchers |
//! | `load` | the state of a thread that a CPU holds |
//! | `place` | the nodes where a thread may continue |
//! | `root` | schedulers |
//! | `wait` | waiting at endpoints, waking |
//!
//! | step | order |
//! |---|---|
//! | a thread is given up: registers complete, floating point saved; then its owner word | release |
//! | a thread is taken: CAS READY -> RUNNING | acquire |
//! | a thread is woken: CAS BLOCKED -> READY; event; the scheduler's CPU is notified | each before the next |

use core::sync::atomic::Ordering;

use dyad_abi::cap::{Stopped, Woken};
use dyad_abi::{Error, Result};

use crate::sched::fp;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, clock};
use dyad_object::endpoint::Endpoints;
use dyad_object::thread::{Owner, State, Thread};
use dyad_object::time::Budgets;

pub(crate) mod budget;
mod chain;
mod load;
mod place;
mod root;
mod wait;

use chain::give;
pub(crate) use chain::{give_back, go_on, take_dispatcher};
pub use dyad_machine::chain::{Chain, MAX_CHAIN, SwitchReason};
pub use load::{leave_space, resume, start};
pub use place::{can_go_on, may_run_on, take, untake};
pub use root::{
    describe_root, root_deadline, root_ready, root_timeout, run_at_once, serve_root, set_root,
    take_root,
};
pub(crate) use wait::notify_bound;
pub use wait::{
    Endpoint, block, is_waiter, listens, post, sleep_at, stop_waiting, take_pending,
    tell_scheduler, wait_no_more, wake, wake_receiver, withdraw,
};

/// The outcome of an operation for the running thread. Code that returns `Switched` has completed the
/// register areas of both threads; no result is passed in registers then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpOutcome {
    /// The thread continues with this value.
    Value(u64),
    /// The thread's result is set, or will be; another thread may be running now.
    Switched,
}

/// The running thread of this CPU.
///
/// # Panics
///
/// If there is none: only operations of a running thread call this.
#[inline]
pub fn current(cx: &KernelCtx) -> &'static Thread {
    cx.local
        .thread
        .get()
        .expect("an operation without a running thread")
}

/// Completes the register area of the running thread, which entered by the fast path and will not leave by
/// it. Registers that a system call does not preserve become zero, so that no values of the kernel or of
/// another thread leak. Must come before another CPU can own the thread.
#[inline]
pub fn complete_frame<P: Platform>(cx: &KernelCtx, t: &'static Thread) {
    if cx.local.partial_frame.replace(false) {
        P::complete_area(t.regs(P::ISA), 0, [0; 5]);
    }
}

/// The outcome of an operation that may have made this CPU leave the thread's address space. If it has, the
/// thread is loaded anew before it continues.
pub fn still_here<P: Platform>(cx: &KernelCtx, value: u64) -> OpOutcome {
    if cx.local.space.get() != 0 {
        return OpOutcome::Value(value);
    }
    let t = current(cx);
    complete_frame::<P>(cx, t);
    t.set_result(0, value);
    OpOutcome::Switched
}

/// Takes a thread off this CPU: its whole state is in its frame afterwards. Must come before the owner word
/// makes the thread ready or gives it to another CPU. Where caches are not coherent, the change of the owner
/// word writes the frame to memory ([`Thread::change`]).
pub fn release<P: Platform>(cx: &KernelCtx, t: &'static Thread) {
    complete_frame::<P>(cx, t);
    if cx.local.has_loaded(t) {
        fp::put_away::<P>(cx.local);
        cx.local.holding.set(None);
    }
}

/// Whether a running thread is a root thread: one without a scheduler.
#[inline]
fn is_root(t: &Thread) -> bool {
    t.scheduler.load(Ordering::Relaxed) == 0
}

/// Whether a stopped thread was dispatched, so that its dispatcher is told. It was not if a message or the
/// thread's arrival ran it.
#[inline]
fn was_dispatched(next: &Option<(&'static Thread, SwitchReason)>) -> bool {
    matches!(next, Some((_, SwitchReason::Dispatch)))
}

/// The bits of an owner word that change when a ready thread is taken.
const TAKEN: u64 = State::Ready as u64 ^ State::Running as u64;

/// `Dispatch`: runs a thread of this node on this CPU.
///
/// # Errors
///
/// [`Error::NotReady`] if the thread is not ready, or not on this node; [`Error::TooDeep`] if the chain of
/// dispatchers is too long; [`Error::NoTime`] if the budget is used up; [`Error::Again`] if other CPUs change
/// the budget at each attempt. The caller continues.
#[inline(always)]
pub fn dispatch<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    slice_ns: u64,
    priority: u64,
    budget: Option<(&'static Budgets, usize, u64)>,
) -> Result<OpOutcome> {
    let me = current(cx);
    let ready = t.owner_word(cx.words());
    if !Owner::says(ready, State::Ready, cx.node.id(), cx.node.incarnation()) {
        return Err(Owner::from_bits(ready).map_or(Error::Corrupt, |_| Error::NotReady));
    }
    if cx.local.chain.is_full() {
        return Err(Error::TooDeep);
    }
    // Never longer than the dispatcher itself may run: what it has been given it can only pass on.
    let mut end = me.slice_end.load(Ordering::Relaxed);
    let mut reserved = None;
    if slice_ns != 0 || budget.is_some() {
        let now = clock::now::<P>();
        if slice_ns != 0 {
            end = end.min(now.after(slice_ns).0);
        }
        if let Some(budget) = budget {
            reserved = budget::reserve(cx, budget, now, &mut end)?;
        }
    }
    if !t.change_at_home(cx.words(), ready, ready ^ TAKEN) {
        if let Some(reserved) = reserved {
            reserved.cancel(cx);
        }
        return Err(Error::NotReady);
    }
    // Nothing can be refused from here on, and the thread is this CPU's to write to.
    complete_frame::<P>(cx, me);
    t.cpu.store(cx.cpu().index() as u64, Ordering::Relaxed);
    // A dispatcher hands on no more urgency than it has itself.
    let mine = me.priority.load(Ordering::Relaxed);
    t.priority.store(priority.min(mine), Ordering::Relaxed);
    // Only now: a dispatch that has lost the exchange must not write to the winner's thread.
    match reserved {
        None => t.budget.store(budget::inherited(me), Ordering::Relaxed),
        Some(reserved) => reserved.note(t),
    }
    t.slice_end.store(end, Ordering::Relaxed);
    cx.local.set_slice_end(end);
    give(cx, t, SwitchReason::Dispatch);
    Ok(OpOutcome::Switched)
}

/// Takes the CPU from the running thread and from those under it, as long as `must` returns true. Each
/// becomes ready, and its scheduler is told.
fn preempt<P: Platform>(cx: &KernelCtx, why: Stopped, must: impl Fn(&Thread) -> bool) {
    for _ in 0..=MAX_CHAIN {
        let Some(t) = cx.local.thread.get() else {
            return;
        };
        let how = cx.local.chain.last().map(|(_, how)| how);
        // A root thread has no dispatcher to give the CPU to.
        if how.is_none() && is_root(t) || !must(t) {
            return;
        }
        let Some(owner) = t.owner(cx.words()) else {
            return;
        };
        // In this order: the budget is charged while the thread is this CPU's, and it is ready, for
        // whichever CPU of this node, once all of it is in its frame.
        go_on(cx, take_dispatcher::<P>(cx, t), why, 0);
        release::<P>(cx, t);
        t.change(cx.words(), owner, owner.with(State::Ready));
        // A thread that a message switched to has no dispatcher that knows of it.
        if how != Some(SwitchReason::Dispatch) {
            let _ = tell_scheduler::<P>(cx, t, Woken::Ready);
        }
    }
}

/// Whether the endpoint of this CPU's root thread has something pending that the root thread has not taken.
fn has_news(cx: &KernelCtx) -> bool {
    // Endpoints that are gone have no news; their frame may be anything.
    cx.local.root_line.get().is_some_and(|(object, line)| {
        line.has_pending(cx.node) && cx.frames().is_object(object, Endpoints::KIND)
    })
}

/// Gives the CPU back to its root thread. All threads above it become ready.
fn interrupt<P: Platform>(cx: &KernelCtx) {
    preempt::<P>(cx, Stopped::Interrupted, |_| true);
}

/// Preempts the threads whose slices are used up. A slice never ends later than the slice of the thread under
/// it, so all these threads are at the end of the chain.
pub fn slice_over<P: Platform>(cx: &KernelCtx) {
    let now = clock::now::<P>().0;
    preempt::<P>(cx, Stopped::Preempted, |t| {
        t.slice_end.load(Ordering::Relaxed) <= now
    });
    if let Some(t) = cx.local.thread.get() {
        cx.local.set_slice_end(t.slice_end.load(Ordering::Relaxed));
    }
}

/// `Yield`: the running thread gives the CPU back and stays ready. A root thread, which has no dispatcher,
/// continues at once.
pub fn yield_now<P: Platform>(cx: &KernelCtx, t: &'static Thread) -> OpOutcome {
    let Some(owner) = t.owner(cx.words()) else {
        return OpOutcome::Value(0);
    };
    let next = take_dispatcher::<P>(cx, t);
    if next.is_none() && is_root(t) {
        return OpOutcome::Value(0);
    }
    t.set_result(0, 0);
    release::<P>(cx, t);
    t.change(cx.words(), owner, owner.with(State::Ready));
    if !was_dispatched(&next) {
        // The sender's dispatcher does not know that this thread is ready.
        let _ = tell_scheduler::<P>(cx, t, Woken::Ready);
    }
    go_on(cx, next, Stopped::Yielded, 0);
    OpOutcome::Switched
}

/// Ends the running thread, and tells its dispatcher why. The thread becomes STOPPED: its frame keeps its
/// contents, and any holder of a capability may configure it anew or untype it.
pub fn end_thread<P: Platform>(cx: &KernelCtx, t: &'static Thread, why: Stopped, detail: u64) {
    let owner = t.owner(cx.words());
    let next = take_dispatcher::<P>(cx, t);
    if !was_dispatched(&next) && !is_root(t) {
        let _ = tell_scheduler::<P>(cx, t, Woken::Ended);
    }
    go_on(cx, next, why, detail);
    release::<P>(cx, t);
    // A service that sees a thread end inside it may give the thread's locks to others: the thread must not go
    // on there.
    if t.depth.load(Ordering::Relaxed) != 0 && !lacks!("dispatch::end_thread::lose") {
        t.lose();
    }
    if let Some(o) = owner {
        t.change(cx.words(), o, o.with(State::Stopped));
    }
}

/// Stops the running thread, which has returned from its outermost invocation: its owner asked for the stop
/// during the invocation ([`Thread::ask_stop`]). The dispatcher is told that the thread is blocked without a
/// deadline. A scheduler is told when the thread is resumed.
#[cold]
pub fn stop_left<P: Platform>(cx: &KernelCtx, t: &'static Thread) {
    let owner = t.owner(cx.words());
    t.withdraw_stop();
    let next = take_dispatcher::<P>(cx, t);
    go_on(cx, next, Stopped::Blocked, 0);
    release::<P>(cx, t);
    if let Some(o) = owner {
        t.change(cx.words(), o, o.with(State::Stopped));
    }
}
