//! Which thread a CPU runs: dispatch, blocking, waking, preemption.
//!
//! There is no run queue in the kernel and no policy. A CPU has a *root thread*, its scheduler. A
//! thread gets the CPU from another one, its dispatcher, and when it stops the dispatcher goes on
//! and is told why:
//!
//! ```text
//!   root ──Dispatch──▶ A ──Dispatch──▶ B          who runs is at the right end
//!        ◀── Stopped ──  ◀── Stopped ──           preempted, blocked, left, ended, faulted, yielded
//!              A ──Send, B waits with higher priority──▶ B ──waits again──▶ A
//! ```
//!
//! A thread is in one place at a time, and its owner word says in which:
//!
//! | owner word | the thread is | who may take it from there |
//! |---|---|---|
//! | NONE, STOPPED | nowhere; its last news may still be on a list | `Configure`, `Resume`, whoever gives its frame up |
//! | READY | its scheduler's: on a list of events, or told of | `Dispatch` by a CPU of its node; `Stop` |
//! | RUNNING | `thread` of a CPU, or under it in the chain | that CPU |
//! | BLOCKED | the waiter of an endpoint, or just taken off by the CPU that wakes it | a sender or its deadline, by the waiter word; `Stop`, by the owner word |
//! | TRANSIT | in a message | the receiver |
//!
//! If the node in the word dies, recovery takes the thread from wherever it is.
//!
//! Threads that become ready while nobody runs them are told to their scheduler by its endpoint
//! ([`dyad_object::endpoint`]), from whichever node.
//!
//! Bounds: everything here is a fixed number of words and exchanges, but for preemption, which
//! takes at most [`MAX_CHAIN`] threads off the CPU, and news that are passed on, of which there are
//! at most as many as an object has endpoints at once. Nothing waits for another CPU: who loses an
//! exchange is told so.
//!
//! | module | concern |
//! |---|---|
//! | `budget` | time that a dispatch reserves and gives back |
//! | `chain` | who gave the CPU to whom |
//! | `load` | what a CPU holds of the thread it runs |
//! | `place` | where a thread may go on |
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
    Endpoint, block, is_waiter, post, sleep_at, stop_waiting, take_pending, tell_scheduler,
    wait_no_more, wake, wake_receiver, withdraw,
};

/// What has become of the running thread in an operation. Whoever says `Switched` has seen to the
/// register areas of both threads; nothing goes back by registers then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpOutcome {
    /// It goes on with this value.
    Value(u64),
    /// Its result is set, or will be; somebody else may be running now.
    Switched,
}

/// The thread that runs here.
///
/// # Panics
///
/// If none does: only operations of a running thread ask.
#[inline]
pub fn current(cx: &KernelCtx) -> &'static Thread {
    cx.local
        .thread
        .get()
        .expect("an operation without a running thread")
}

/// Completes the registers of the running thread, which entered by the fast path, because it will
/// not leave by it. What a system call does not preserve is zero in the area: nothing of the
/// kernel's, or of another thread's, shows there. Before anybody else can own the thread.
#[inline]
pub fn complete_frame<P: Platform>(cx: &KernelCtx, t: &'static Thread) {
    if cx.local.partial_frame.replace(false) {
        P::complete_area(t.regs(P::ISA), 0, [0; 5]);
    }
}

/// The value of an operation that may have made this CPU leave what the thread runs in, because
/// that is gone: then the thread is looked up anew before it goes on.
pub fn still_here<P: Platform>(cx: &KernelCtx, value: u64) -> OpOutcome {
    if cx.local.space.get() != 0 {
        return OpOutcome::Value(value);
    }
    let t = current(cx);
    complete_frame::<P>(cx, t);
    t.set_result(0, value);
    OpOutcome::Switched
}

/// Takes a thread off this CPU for good: whoever owns it next finds everything in its frame. Before the
/// owner word says that it is somebody else's, or that it is ready: changing that puts the frame into
/// memory where caches are not coherent ([`Thread::change`]).
pub fn release<P: Platform>(cx: &KernelCtx, t: &'static Thread) {
    complete_frame::<P>(cx, t);
    if cx.local.has_loaded(t) {
        fp::put_away::<P>(cx.local);
        cx.local.holding.set(None);
    }
}

/// Whether a running thread is one that nobody schedules: the root thread of its CPU.
#[inline]
fn is_root(t: &Thread) -> bool {
    t.scheduler.load(Ordering::Relaxed) == 0
}

/// Whether a thread that has stopped was dispatched by somebody who learns of it: not if a message or its
/// arrival had it run.
#[inline]
fn was_dispatched(next: &Option<(&'static Thread, SwitchReason)>) -> bool {
    matches!(next, Some((_, SwitchReason::Dispatch)))
}

/// What changes in an owner word when a ready thread is taken.
const TAKEN: u64 = State::Ready as u64 ^ State::Running as u64;

/// `Dispatch`: runs a thread of this node on this CPU.
///
/// # Errors
///
/// [`Error::NotReady`] if it is not ready, or not here; [`Error::TooDeep`] if the chain of
/// dispatchers is too long; [`Error::NoTime`] if the budget is used up; [`Error::Again`] if others change the
/// budget each time. The caller goes on.
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
        None => t.budget.store(0, Ordering::Relaxed),
        Some(reserved) => reserved.note(t),
    }
    t.slice_end.store(end, Ordering::Relaxed);
    cx.local.set_slice_end(end);
    give(cx, t, SwitchReason::Dispatch);
    Ok(OpOutcome::Switched)
}

/// Takes the CPU from the running thread and those under it as long as `must` says so: each is
/// ready again, and its scheduler knows it.
fn preempt<P: Platform>(cx: &KernelCtx, why: Stopped, must: impl Fn(&Thread) -> bool) {
    for _ in 0..=MAX_CHAIN {
        let Some(t) = cx.local.thread.get() else {
            return;
        };
        let how = cx.local.chain.last().map(|(_, how)| how);
        // A root thread has nobody to give the CPU to.
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
        // Whoever was switched to by a message was dispatched by nobody who would know of it.
        if how != Some(SwitchReason::Dispatch) {
            let _ = tell_scheduler::<P>(cx, t, Woken::Ready);
        }
    }
}

/// Ends the slices that are used up. As slices never end later than those of the threads under
/// them, all that are over are at the end of the chain.
pub fn slice_over<P: Platform>(cx: &KernelCtx) {
    let now = clock::now::<P>().0;
    preempt::<P>(cx, Stopped::Preempted, |t| {
        t.slice_end.load(Ordering::Relaxed) <= now
    });
    if let Some(t) = cx.local.thread.get() {
        cx.local.set_slice_end(t.slice_end.load(Ordering::Relaxed));
    }
}

/// `Yield`: the running thread gives the CPU back and stays ready. A root thread, which has nobody
/// to give it to, goes on at once.
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
        // Whoever dispatched the sender does not know that this one is ready.
        let _ = tell_scheduler::<P>(cx, t, Woken::Ready);
    }
    go_on(cx, next, Stopped::Yielded, 0);
    OpOutcome::Switched
}

/// Ends the running thread; whoever dispatched it learns why. STOPPED, not gone: its frame, with
/// all that is in it, is whoever's who has a capability, until it is configured anew or given up.
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

/// Stops the running thread, which has returned from its outermost invocation: its owner asked for that while it
/// was inside ([`Thread::ask_stop`]). Its dispatcher learns that it waits, for nothing; a scheduler is told when
/// the thread is resumed.
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
