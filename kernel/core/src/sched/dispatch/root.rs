//! Root threads: the scheduler of each CPU, which runs when no other thread does.
//!
//! A root thread has no dispatcher and no scheduler. Its CPU checks it in each turn of the run loop, takes it
//! if it is ready, and ends its waits at their deadlines.
//!
//! | the root thread | the action of its CPU |
//! |---|---|
//! | is ready here | takes it if no other thread runs |
//! | has dispatched others, and its last endpoint has something pending | takes the CPU back for it, at the next turn ([`serve_root`]) |
//! | waits, and a thread comes from another node | runs that thread ([`run_at_once`]) until something is sent to the root thread |
//! | waits | sleeps until a sender wakes it, or its deadline |
//! | is stopped, on another node, or untyped | sleeps until the CPU gets another root thread |
//!
//! The word that names the root thread belongs to the node and is written with release once the thread is
//! ready. A CPU that has read it finds a thread that it can take, or one that another CPU has taken since.

use core::sync::atomic::Ordering;

use dyad_abi::cap::Woken;
use dyad_abi::{CpuId, Error, Result};

use super::place::{can_go_on, take, untake};
use super::wait::{stop_waiting, wait_no_more, wake};
use super::{has_news, interrupt};
use dyad_machine::cpu::CpuLocal;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, clock, inbox};
use dyad_object::node::Node;
use dyad_object::thread::{Owner, State, Thread};
use dyad_object::{self, follow};

/// This CPU's root thread, or `None` if it has been untyped.
fn root(cx: &KernelCtx) -> Option<&'static Thread> {
    let word = cx.node.roots[cx.cpu().index()].load(Ordering::Acquire);
    if word == 0 {
        return None;
    }
    follow::<Thread>(cx.node, word, Thread::KIND)
        .ok()
        .map(|(t, _)| t)
}

/// Whether this CPU can take a thread: it is ready and belongs to this node. The check is made before
/// sleeping as well as before taking, so that no CPU stays awake for a thread that it cannot take.
fn is_takable(cx: &KernelCtx, owner: &Owner) -> bool {
    owner.state == State::Ready && owner.is(cx.node.id(), cx.node.incarnation())
}

/// Whether the root thread of this CPU is ready to run here. This is the last check before sleep: a CPU that
/// makes the thread ready afterwards rings.
pub fn root_ready(cx: &KernelCtx) -> bool {
    root(cx)
        .and_then(|t| t.owner(cx.words()))
        .is_some_and(|o| is_takable(cx, &o))
}

/// Fused time until which the root thread waits; `u64::MAX` if it does not wait, or has no deadline. The CPU
/// sleeps no longer than that: no other timer ends the wait of a root thread.
pub fn root_deadline(cx: &KernelCtx) -> u64 {
    root(cx)
        .filter(|t| {
            t.owner(cx.words())
                .is_some_and(|o| o.state == State::Blocked)
        })
        .map(|t| t.deadline.load(Ordering::Relaxed))
        .filter(|&d| d != 0)
        .unwrap_or(u64::MAX)
}

/// Wakes the root thread if its deadline has passed. No other CPU does.
pub fn root_timeout<P: Platform>(cx: &KernelCtx) {
    if root_deadline(cx) <= clock::now::<P>().0
        && let Some(t) = root(cx)
        && let Some(waiter) = stop_waiting(cx, t)
    {
        // No other CPU can have woken it: this CPU has taken it off the only list that it was on.
        let _ = wake::<P>(cx, waiter, Woken::Ready);
    }
}

/// Takes the root thread of this CPU if it is ready, and runs it with an unlimited slice. Returns `false`
/// also if another CPU of this node was faster: any holder of a capability for the thread can dispatch it.
pub fn take_root(cx: &KernelCtx) -> bool {
    let Some(root) = root(cx) else {
        return false;
    };
    let Some(owner) = root.owner(cx.words()) else {
        return false;
    };
    if !is_takable(cx, &owner) || !root.change(cx.words(), owner, owner.with(State::Running)) {
        return false;
    }
    // It has no dispatcher, so there is no slice to end, and no thread to give the CPU to.
    root.slice_end.store(u64::MAX, Ordering::Relaxed);
    // It may have been dispatched, before it became the root thread.
    root.budget.store(0, Ordering::Relaxed);
    // The scheduler of a CPU decides who goes first: there is no more urgent thread that could dispatch.
    root.priority.store(u64::MAX, Ordering::Relaxed);
    cx.local.set_slice_end(u64::MAX);
    cx.local.direct.set(false);
    cx.local.thread.set(Some(root));
    true
}

/// How long a newly arrived thread runs while the root thread waits, before the root thread is told of it.
const DIRECT_NS: u64 = 10_000_000;

/// Runs a thread that has just arrived, RUNNING and set up, if this CPU is idle and its scheduler waits. The
/// scheduler would dispatch this thread at once, because there is no other. Returns `false` if the scheduler
/// must be told instead.
///
/// The thread runs as if dispatched without a budget, until it stops, something is sent to the root thread,
/// or its slice ends. In the last two cases the scheduler is told that the thread is ready. A thread with a
/// budget, or within the budget of a thread that gave it the CPU, is always left to its scheduler.
pub fn run_at_once<P: Platform>(cx: &KernelCtx, t: &'static Thread) -> bool {
    let local = cx.local;
    let idle = local.thread.get().is_none() && local.chain.is_empty();
    let scheduled =
        t.scheduler.load(Ordering::Relaxed) != 0 && t.budget.load(Ordering::Relaxed) == 0;
    let waits = || {
        let owner = root(cx).and_then(|r| r.owner(cx.words()));
        owner
            .is_some_and(|o| o.state == State::Blocked && o.is(cx.node.id(), cx.node.incarnation()))
    };
    if !(idle && scheduled && waits()) {
        return false;
    }
    let end = clock::now::<P>().after(DIRECT_NS).0.min(root_deadline(cx));
    t.slice_end.store(end, Ordering::Relaxed);
    local.set_slice_end(end);
    local.direct.set(true);
    local.spins.set(None);
    local.thread.set(Some(t));
    true
}

/// Gives the CPU back to its root thread if the root thread's endpoint has something pending. All threads
/// above it become ready, and the scheduler decides anew.
pub fn serve_root<P: Platform>(cx: &KernelCtx) {
    if has_news(cx) || (cx.local.direct.get() && root_ready(cx)) {
        interrupt::<P>(cx);
    }
}

/// Makes a thread the root thread of a CPU of this node: the CPU runs it when no other thread runs.
///
/// The previous root thread keeps its state. If it runs, it continues until it gives the CPU up; from then on
/// any holder of a capability may dispatch it, stop it or give it a scheduler. A program hands its own CPU to
/// a scheduler in this way.
///
/// # Errors
///
/// [`Error::NotReady`] if the thread runs, waits, is in transit or is ready on another node, or if another
/// CPU has just taken it; [`Error::Corrupt`]; the errors of [`can_go_on`] at this node.
pub fn set_root<P: Platform>(cx: &KernelCtx, cpu: CpuId, t: &'static Thread) -> Result<()> {
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    // A thread that waits or runs belongs to an endpoint or to a CPU; a root thread belongs to neither. A thread that
    // is ready on another node stays there: should that node die while this CPU has the thread, recovery of the node
    // would miss it.
    if owner.state != State::Stopped && !is_takable(cx, &owner) {
        return Err(Error::NotReady);
    }
    // Its words are stored to only once it is this CPU's: a dispatch that wins instead finds its scheduler.
    let reference = dyad_object::reference(cx.node, t).ok_or(Error::Corrupt)?;
    let taken = take(cx, t, owner).ok_or(Error::NotReady)?;
    if let Err(e) = can_go_on(cx, t, &owner, cx.node.id()) {
        untake::<P>(cx, t, taken, owner)?;
        return Err(e);
    }
    if owner.state == State::Stopped {
        // Its stopper may not have taken it off the endpoint yet.
        wait_no_more::<P>(cx, t);
    }
    t.cpu.store(cpu.index() as u64, Ordering::Relaxed);
    t.scheduler.store(0, Ordering::Relaxed);
    // It belongs to this node from the exchange below on, ready. Should its CPU look before the word in the
    // table names it, the CPU finds the thread before; it is notified behind that.
    let ready = taken.passed(cx.node.id(), cx.node.incarnation(), State::Ready);
    if !t.change(cx.words(), taken, ready) {
        return Err(Error::NotReady);
    }
    cx.node.set_root(cpu, reference);
    if cpu != cx.cpu() {
        inbox::notify::<P>(cx.node.id(), cpu);
    }
    Ok(())
}

/// The state of a CPU's root thread, for reports. For an idle CPU it distinguishes three cases: there is
/// nothing to do, a wake-up has been lost, or the scheduler has been taken away.
pub fn describe_root(node: &Node, local: &CpuLocal) -> &'static str {
    let word = node.roots[local.id().index()].load(Ordering::Acquire);
    if word == 0 {
        return "no scheduler";
    }
    let Ok((thread, _)) = follow::<Thread>(node, word, Thread::KIND) else {
        return "its scheduler has been given up";
    };
    let owner = thread.owner(node.words);
    if owner.is_some_and(|o| !o.is(node.id(), node.incarnation())) {
        return "its scheduler is on another node";
    }
    let state = owner.map(|o| o.state);
    let news = local
        .root_line
        .get()
        .is_some_and(|(_, line)| line.has_pending(node));
    match (state, news) {
        (None, _) => "its scheduler's owner word is damaged",
        (Some(State::Blocked), false) => "its scheduler waits",
        (Some(State::Blocked), true) => "its scheduler waits although there are news",
        (Some(State::Ready), _) => "its scheduler is ready",
        (Some(State::Running), _) => "its scheduler counts as running",
        (Some(State::Stopped | State::None), _) => "its scheduler is stopped",
        (Some(_), _) => "its scheduler neither waits nor is ready",
    }
}
