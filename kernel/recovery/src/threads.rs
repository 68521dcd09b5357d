//! Threads of a node that has died.
//!
//! | it was | where its registers are | it |
//! |---|---|---|
//! | on its way to the dead node, or running there, for or within an invocation that had crossed | where it crossed: callers keep nothing in registers | returns to the last caller whose node lives, with [`Error::NodeDead`]; invocations further in are over |
//! | on its way there to migrate, jump or load | in its frame, parked unless it jumps | returns from `Migrate`, `Jump` or `Load` with the error, on a node of the ISA it came from |
//! | on its way there for a [crossing call](dyad_core::migrate::crossing), or within one | parked in its frame where it has called | its caller is told [`Error::NodeDead`], on a node of that ISA |
//! | ready or waiting there | in its frame | goes on, on another node of that ISA; its wait ends |
//! | ready or waiting there, and there is no other node of that ISA | in its frame | is stopped, and its scheduler told; it can be resumed where that ISA is again |
//! | being configured or resumed there, or its registers looked at | in its frame, or not | as the next: what had been changed is unknown |
//! | anything else | lost with the machine | is stopped, and its scheduler told; it cannot be resumed before it is configured anew |
//! | on its way from there to a live node | in its frame | is announced once more: the dead node may not have come to that |
//!
//! A thread that its component forbids other nodes, and a thread without a scheduler (the root thread of
//! a CPU), does not go on elsewhere.
//!
//! Other CPUs may change the owner word of a thread that was ready, blocked or in transit: one wakes it,
//! stops it, or takes it back because its receiver has died. So the recoverer takes such a thread
//! by an exchange, before it stores anything:
//!
//! | from | to | who may be faster | then |
//! |---|---|---|---|
//! | READY, BLOCKED | [`Orphaned`](State::Orphaned) | a waker | the recoverer looks again, and takes it from READY |
//! | READY, BLOCKED | the same | `Stop` | the thread is stopped, and stays so |
//! | TRANSIT | [`Stranded`](State::Stranded) | the giver, who takes it back | the thread is not the dead node's any more |
//! | RUNNING, CHANGING | nothing | no CPU | |
//!
//! Stores before that exchange would change a thread that belongs to another CPU by then. Where caches are
//! not coherent they would also share a line with the owner word, and writing that line back would undo
//! an exchange that another CPU has made at memory.
//!
//! What is to become of a thread follows from its owner word and its frame. The state tells apart what
//! was taken, and `carried` keeps what had been there. So the work can be repeated, by another recoverer
//! too. Threads change nodes as always, by the owner word and a bit at a CPU of the receiver
//! ([`dyad_core::migrate::handoff`]): the receiver sets registers, because only it knows their layout.
//!
//! News of threads that the dead node had in hand, between a list and a scheduler or on the way to a list,
//! are told anew: [`doubt`] before anything else, [`tell_lost`] at the end. What it was doing to threads of
//! live nodes: [`half_woken`](super::half_woken).

use core::sync::atomic::Ordering;

use dyad_abi::cap::Woken;
use dyad_abi::{Error, Isa, NodeId};
use dyad_captbl::Owner as Dead;
use dyad_shm::FrameRef;
use dyad_shm::frame::WeakRef;

use dyad_core::migrate::carried::{HandoffKind, NO_ENTRY, store_handoff};
use dyad_core::migrate::crossing_state;
use dyad_core::sched::dispatch;
use dyad_core::syscall::invoke;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, inbox};
use dyad_object::component::{Component, Entry};
use dyad_object::endpoint;
use dyad_object::follow;
use dyad_object::thread::{Owner, State, Thread, begun};

/// A thread, by its id, that has been given to a node which must be told about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed {
    id: u64,
    to: NodeId,
}

impl Handed {
    /// Tells the node.
    pub fn announce<P: Platform>(&self, cx: &KernelCtx) {
        let cpu = inbox::pick_cpu(cx.node, self.to, self.id);
        // If that node has died as well, the recovery of that node finds the thread.
        let _ = inbox::announce::<P>(self.to, cpu, self.id);
    }

    fn of(t: &Thread, to: NodeId) -> Handed {
        let id = t.id.load(Ordering::Relaxed);
        Handed { id, to }
    }
}

/// What recovery does with a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The thread returns from the invocation in entry `at` of its invocation stack.
    Returns { at: u64, to: NodeId },
    /// The thread's crossing call at this depth is lost.
    Lost { depth: u64, to: NodeId },
    /// The thread returns from `Migrate` or `Jump` with an error.
    StaysBehind { to: NodeId },
    /// The thread continues on another node.
    Moves { to: NodeId },
    /// The thread is stopped; its registers are in its frame.
    Stops,
    /// The thread is stopped; its registers are lost.
    Ends,
}

fn lives(cx: &KernelCtx, n: NodeId) -> bool {
    n.index() < cx.node.params.node_count && cx.node.is_live(n)
}

/// Repairs one thread, if it is the dead node's.
pub fn repair<P: Platform>(cx: &KernelCtx, dead: Dead, frame: FrameRef) -> Option<Handed> {
    let t: &'static Thread = cx.node.map.get(frame.address())?;
    // A waker, and then a CPU that stops it, may be faster; no other row.
    for _ in 0..4 {
        let owner = t.owner(cx.words())?;
        if !owner.is(dead.node, dead.incarnation) && !lacks!("threads::repair::owner") {
            return announced(cx, dead, t, owner);
        }
        let taken = match owner.state {
            State::None | State::Stopped | State::Gone => return None,
            State::Ready | State::Blocked => owner.with(State::Orphaned),
            State::Transit => owner.with(State::Stranded),
            // Only its recoverers change these.
            State::Running | State::Changing | State::Orphaned | State::Stranded => owner,
        };
        if taken != owner && !t.change(cx.words(), owner, taken) {
            continue;
        }
        cx.words().hand_over(t);
        if taken.state == State::Orphaned {
            // A CPU that finds it at its endpoint nevertheless finds that it does not wait.
            dispatch::stop_waiting(cx, t);
        }
        return match fate(cx, dead, t, taken) {
            Fate::Stops => stop::<P>(cx, dead, t, taken, false),
            Fate::Ends => stop::<P>(cx, dead, t, taken, true),
            Fate::Returns { at, to } => give(cx, t, taken, to, (HandoffKind::Fail, Some(at))),
            Fate::Lost { depth, to } => give(cx, t, taken, to, (HandoffKind::Lost, Some(depth))),
            Fate::StaysBehind { to } => give(cx, t, taken, to, (HandoffKind::Fail, None)),
            Fate::Moves { to } => give(cx, t, taken, to, (HandoffKind::Move, None)),
        };
    }
    None
}

/// Marks a thread as in doubt if its event says that it is on an event list.
pub fn doubt(cx: &KernelCtx, frame: FrameRef) {
    if let Some(t) = cx.node.map.get::<Thread>(frame.address()) {
        endpoint::doubt(cx.node, t);
    }
}

/// Tells the scheduler of a thread that is still in doubt, and so is on no list, about it once more. If it is
/// not `sure` which threads are on lists, nothing is told and the doubt is cleared.
pub fn tell_lost<P: Platform>(cx: &KernelCtx, frame: FrameRef, sure: bool) {
    let Some(t) = cx.node.map.get::<Thread>(frame.address()) else {
        return;
    };
    if !sure {
        endpoint::trust(cx.node, t);
    } else if let Some(why) = endpoint::lost(cx.node, t) {
        // A scheduler that is gone is told nothing.
        let _ = dispatch::tell_scheduler::<P>(cx, t, why);
    }
}

/// A thread that the dead node has handed to a live one, or a dead recoverer has.
fn announced(cx: &KernelCtx, dead: Dead, t: &'static Thread, owner: Owner) -> Option<Handed> {
    let from = t.came_from();
    if owner.state != State::Transit || from != dead.node.index() as u64 + 1 {
        return None;
    }
    let to = cx.node.word_of(owner.node);
    let lives = lives(cx, owner.node) && owner.is(owner.node, to.incarnation);
    lives.then(|| Handed::of(t, owner.node))
}

/// What a thread was doing when it was handed over, as a [`HandoffKind`], and from where; also if a recoverer that has died
/// has begun to send it back. 0, or another number that is none, if it was never handed over or its words are damaged.
fn carried(t: &Thread) -> (u64, Option<NodeId>) {
    let word = |i: usize| t.carried[i].load(Ordering::Relaxed);
    let (was, from) = match HandoffKind::of_number(word(0)) {
        Some(HandoffKind::Fail | HandoffKind::Move | HandoffKind::Lost) => (word(3), word(4)),
        _ => (word(0), t.came_from()),
    };
    (was, from.checked_sub(1).and_then(NodeId::new))
}

fn fate(cx: &KernelCtx, dead: Dead, t: &Thread, owner: Owner) -> Fate {
    let scheduled = t.scheduler.load(Ordering::Relaxed) != 0;
    let isa = cx.node.isa(dead.node);
    let in_transit = owner.state == State::Stranded;
    let moved = in_transit && HandoffKind::of(t) == HandoffKind::Move;
    let whole = moved || owner.state == State::Orphaned;
    let stopped = if whole { Fate::Stops } else { Fate::Ends };
    if !scheduled || owner.state == State::Changing {
        return stopped;
    }
    if whole {
        let started = t.begun(isa) != begun::NOT || t.depth.load(Ordering::Relaxed) != 0;
        if let Some(to) = place_for(cx, t, started.then_some(isa)) {
            return Fate::Moves { to };
        }
    }
    let depth = t.depth.load(Ordering::Relaxed);
    if let Some((at, to)) = invoke::living_caller(cx, t, depth) {
        return Fate::Returns { at, to };
    }
    if let Some(lost) = lost_call(cx, t, isa, owner) {
        return lost;
    }
    if in_transit
        && depth == 0
        && let (was, Some(from)) = carried(t)
        && let Some(HandoffKind::Migrate | HandoffKind::Jump | HandoffKind::Load) =
            HandoffKind::of_number(was)
    {
        let isa = cx.node.isa(from);
        let parked = matches!(t.begun(isa), begun::PARKED | begun::JUMPED);
        let there = Some(from).filter(|&n| lives(cx, n));
        if let Some(to) = there.or_else(|| place_for(cx, t, Some(isa)))
            && parked
        {
            return Fate::StaysBehind { to };
        }
    }
    stopped
}

/// What becomes of a thread that ran on the dead node for a crossing call, or was on its way there for one:
/// its caller is told on any node of the caller's ISA. The same applies if the node that was to tell the
/// caller has died.
fn lost_call(cx: &KernelCtx, t: &Thread, isa: Isa, owner: Owner) -> Option<Fate> {
    if owner.state == State::Stranded && HandoffKind::of(t) == HandoffKind::Lost {
        let depth = t.carried[2].load(Ordering::Relaxed);
        return place_for(cx, t, Some(isa)).map(|to| Fate::Lost { depth, to });
    }
    let (depth, at) = crossing_state::caller_of(t, isa)?;
    let to = at.filter(|&n| lives(cx, n));
    let to = to.or_else(|| place_for(cx, t, Some(isa.other())))?;
    Some(Fate::Lost { depth, to })
}

/// A live node where a thread may go on: of this ISA, if it has registers there. This node, if it
/// will do.
fn place_for(cx: &KernelCtx, t: &Thread, isa: Option<Isa>) -> Option<NodeId> {
    let word = t.component.load(Ordering::Relaxed);
    let component = follow::<Component>(cx.node, word, Component::KIND).ok();
    let fits = |n: &NodeId| {
        lives(cx, *n)
            && isa.is_none_or(|isa| cx.node.isa(*n) == isa)
            && (component.is_none_or(|(c, _)| c.parts(cx.words()).runs_on(*n))
                || lacks!("threads::place_for::home"))
    };
    let me = cx.node.id();
    core::iter::once(me).chain(cx.node.all()).find(fits)
}

/// Gives a thread to a node: how, and from which entry of its stack it returns.
fn give(
    cx: &KernelCtx,
    t: &'static Thread,
    owner: Owner,
    to: NodeId,
    (how, at): (HandoffKind, Option<u64>),
) -> Option<Handed> {
    let (was, from) = carried(t);
    let from = from.map_or(0, |n| n.index() as u64 + 1);
    let nowhere = Entry {
        component: WeakRef::from_bits(0)?,
        address: 0,
        badge: 0,
    };
    let frame = at.filter(|_| how == HandoffKind::Fail);
    let entry = match frame.and_then(|at| t.frames.get(at as usize)) {
        Some(f) => Entry {
            // Refused when it is entered, if damaged.
            component: WeakRef::from_bits(f.component.load(Ordering::Relaxed))
                .unwrap_or(nowhere.component),
            address: f.pc.load(Ordering::Relaxed),
            badge: f.sp.load(Ordering::Relaxed),
        },
        None => nowhere,
    };
    let words = [Error::NodeDead.code(), at.unwrap_or(NO_ENTRY), was, from];
    store_handoff(t, how, words, entry);
    let me = cx.node.id();
    t.leaves(me, false);
    t.budget.store(0, Ordering::Relaxed);
    let incarnation = cx.node.word_of(to).incarnation;
    let handed = owner.passed(to, incarnation, State::Transit);
    // Before the thread is another node's.
    let told = Handed::of(t, to);
    t.change(cx.words(), owner, handed).then_some(told)
}

/// Stops a thread that cannot continue now or, if its registers are lost, ever. No node has to be told.
fn stop<P: Platform>(
    cx: &KernelCtx,
    dead: Dead,
    t: &'static Thread,
    owner: Owner,
    lost: bool,
) -> Option<Handed> {
    t.budget.store(0, Ordering::Relaxed);
    // Its owner is a node of any ISA from here on, which says nothing of where its registers are.
    for isa in Isa::ALL {
        if lost {
            t.set_begun(isa, begun::LOST);
        } else if isa != cx.node.isa(dead.node) && t.begun(isa) == begun::HERE {
            // What a service has left there.
            t.set_begun(isa, begun::NOT);
        }
    }
    // Its scheduler on this CPU is told.
    t.cpu.store(cx.cpu().index() as u64, Ordering::Relaxed);
    let stopped = owner.passed(cx.node.id(), cx.node.incarnation(), State::Stopped);
    if t.change(cx.words(), owner, stopped) && t.scheduler.load(Ordering::Relaxed) != 0 {
        // A scheduler that is gone is told nothing.
        let _ = dispatch::tell_scheduler::<P>(cx, t, Woken::Ended);
    }
    None
}
