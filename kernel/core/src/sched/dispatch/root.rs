//! Root threads: the scheduler of each CPU, which runs whenever nobody else does.
//!
//! Nobody dispatches a root thread, and it has no scheduler to be told of it: its CPU looks at it in
//! each turn, takes it if it is ready, and ends its waits when they are over.
//!
//! | the root thread | its CPU |
//! |---|---|
//! | is ready here | takes it: nobody else runs then |
//! | has dispatched others, and something comes to where it last waited | takes the CPU back for it, at the next turn ([`serve_root`]) |
//! | waits, and a thread comes from another node | runs that ([`run_at_once`]), until something comes for the root thread |
//! | waits | sleeps; whoever sends wakes it, and the CPU itself when its time has come |
//! | is stopped, elsewhere, or given up | sleeps, until somebody makes another one its root |
//!
//! Which thread it is, is a word of the node, written with release once the thread is ready: a CPU that
//! has read it finds a thread that it can take, or one that somebody has taken since.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{Stopped, Woken};
use dyad_abi::{CpuId, Error, Result};

use super::place::{can_go_on, take, untake};
use super::preempt;
use super::wait::{stop_waiting, wait_no_more, wake};
use dyad_machine::cpu::CpuLocal;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, clock, inbox};
use dyad_object::endpoint::Endpoints;
use dyad_object::node::Node;
use dyad_object::thread::{Owner, State, Thread};
use dyad_object::{self, follow};

/// This CPU's root thread, unless it has been given up.
fn root(cx: &KernelCtx) -> Option<&'static Thread> {
    let word = cx.node.roots[cx.cpu().index()].load(Ordering::Acquire);
    if word == 0 {
        return None;
    }
    follow::<Thread>(cx.node, word, Thread::KIND)
        .ok()
        .map(|(t, _)| t)
}

/// Whether a thread is there for this CPU to take: one that is ready elsewhere is not. Asked before
/// sleeping as well as before taking it, so that no CPU stays awake for a thread it cannot have.
fn is_takable(cx: &KernelCtx, owner: &Owner) -> bool {
    owner.state == State::Ready && owner.is(cx.node.id(), cx.node.incarnation())
}

/// Whether the root thread of this CPU could run here. The last question before sleep: whoever makes it
/// ready afterwards rings.
pub fn root_ready(cx: &KernelCtx) -> bool {
    root(cx)
        .and_then(|t| t.owner(cx.words()))
        .is_some_and(|o| is_takable(cx, &o))
}

/// Fused time until which the root thread waits; never, if it is not waiting. The CPU sleeps no
/// longer than that: no other timer would end the wait of a thread that nobody schedules.
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

/// Ends the waiting of the root thread if it has waited long enough: nobody else would.
pub fn root_timeout<P: Platform>(cx: &KernelCtx) {
    if root_deadline(cx) <= clock::now::<P>().0
        && let Some(t) = root(cx)
        && let Some(waiter) = stop_waiting(cx, t)
    {
        // Nobody else can have woken it, having found it nowhere: this has taken it off.
        let _ = wake::<P>(cx, waiter, Woken::Ready);
    }
}

/// Takes the root thread of this CPU if it is ready. It runs with all the time there is. `false`
/// also if another CPU of this node was faster: a capability for the thread is enough to dispatch
/// it.
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
    // Nobody has dispatched it, so there is no slice to end, and nobody to give the CPU to.
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

/// How long a thread runs that has come while the root thread waited, before that is told of it.
const DIRECT_NS: u64 = 10_000_000;

/// Has a thread run here that has just come, RUNNING and set up, if this CPU has nothing to do and its
/// scheduler waits: that would dispatch it at once, as there is nobody else. `false`: the scheduler is to
/// be told.
///
/// It runs as if it had been dispatched without a budget, until it stops, something comes for the root
/// thread, or its slice ends; in the last two cases the scheduler is told that it is ready. Threads on a
/// budget are their scheduler's to dispatch.
pub fn run_at_once<P: Platform>(cx: &KernelCtx, t: &'static Thread) -> bool {
    let local = cx.local;
    let idle = local.thread.get().is_none() && local.chain.last().is_none();
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

/// Gives the CPU back to its root thread if something has come in for that. All threads above it are
/// ready again, and it decides anew who goes first.
pub fn serve_root<P: Platform>(cx: &KernelCtx) {
    let news = cx
        .local
        .root_line
        .get()
        // Endpoints that are gone have no news; their frame may be anything.
        .is_some_and(|(object, line)| {
            line.has_pending(cx.node) && cx.frames().is_object(object, Endpoints::KIND)
        });
    if news || (cx.local.direct.get() && root_ready(cx)) {
        preempt::<P>(cx, Stopped::Interrupted, |_| true);
    }
}

/// Makes a thread the root thread of a CPU of this node: the one it runs when nobody else does.
///
/// The one before stays what it is, without being anybody's root: if it runs, it goes on until it
/// gives the CPU up, and from then on whoever has a capability for it may dispatch it, stop it or give
/// it a scheduler. That is how a program hands its own CPU to a scheduler.
///
/// # Errors
///
/// [`Error::NotReady`] if the thread runs, waits, is on its way or ready on another node, or another CPU has just taken it;
/// [`Error::Corrupt`]; as [`can_go_on`] at this node.
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

/// What the root thread of a CPU is doing, for reports. Of a CPU that does nothing this says
/// whether there is nothing to do, or a wake-up has been lost, or somebody has taken its scheduler
/// away.
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
