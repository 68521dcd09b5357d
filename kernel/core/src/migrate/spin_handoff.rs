//! CPUs that hand a thread over for an invocation, a call or a jump, and spin for its return for a short
//! time. The callee usually takes little time, and nothing is faster than finding the thread here again, with
//! its component, dispatchers and slice in place.
//!
//! ```text
//!              hand over: owner TRANSIT(n)            owner TRANSIT(here): taken
//!   runs t ─────────────────────────────▶ SPINS ──────────────────────────────▶ runs t
//!                                            │ something else comes in, or the time is up
//!                                            ▼
//!                           the dispatcher goes on and is told that t has left
//! ```
//!
//! While it spins, a CPU announces the thread's address in its `activity` word. A CPU that hands this thread
//! to it sends neither message nor doorbell.
//!
//! [`dyad_ring::handoff`] has the protocol and its orderings. This module applies it to threads.
//!
//! No other thread of this CPU's scheduler runs meanwhile. The wait is therefore short ([`SPIN_NS`]) and ends
//! at once if anything comes in. A CPU does not spin for threads on a time budget. It spins only where caches
//! are coherent: elsewhere polling a word costs more than the message.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::Stopped;
use dyad_abi::marker::Marker;
use dyad_abi::{CpuId, NodeId};
use dyad_ring::handoff;
use dyad_shm::superblock::{CpuEntry, NodeWord, activity};

use crate::migrate::carried::HandoffKind;
use crate::migrate::{IntoRunLoop, arrive};
use crate::sched::{dispatch, timer};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, inbox};
use dyad_object::memory::{CoherentWords, look_coherent};
use dyad_object::thread::{Owner, State, Thread};

/// The least time that a CPU spins: as long as an idle CPU polls before it sleeps.
pub const SPIN_NS: u64 = 20_000;
/// Polls of the owner word between two reads of the clock.
const LOOKS: u32 = 64;
/// The least number of clock reads. On a machine that is slow compared with its clock, such as a simulated
/// one, the other node is slow too.
const ROUNDS: u32 = 64;

/// The bits of an owner word that change when a thread in transit is taken to run.
const TAKEN: u64 = State::Transit as u64 ^ State::Running as u64;

/// The `activity` word of a CPU that spins for a thread.
#[inline(always)]
pub(crate) fn activity_word(t: &'static Thread) -> u64 {
    activity::spinning(core::ptr::from_ref(t) as u64)
}

/// Whether this CPU may spin for a thread that is about to be handed over.
#[inline]
pub(crate) fn can_spin(cx: &KernelCtx, t: &Thread) -> bool {
    cx.words().is_coherent() && t.budget.load(Ordering::Relaxed) == 0
}

/// Whether a CPU of node `to` spins for a thread that has just been handed to that node. Such a CPU sees the
/// owner word itself and need not be notified. `was` is the state word of the node before the handoff. If the
/// state word has changed, recovery of the node may have run before the owner word named the node.
#[inline]
pub(crate) fn is_awaited(cx: &KernelCtx, t: &'static Thread, to: NodeId, was: NodeWord) -> bool {
    let Some(words) = cx.words().if_coherent() else {
        return false;
    };
    let activity = |cpu| &cx.node.sb.cpu(to, cpu).activity;
    CpuId::first(cx.node.params.cpus)
        .find(|&cpu| look_coherent(activity(cpu)) == activity_word(t))
        .is_some_and(|cpu| {
            handoff::is_awaited(&Direct(words), activity(cpu), activity_word(t))
                && (look_coherent(&cx.node.sb.node(to).state) == was.bits()
                    || lacks!("spin_handoff::is_awaited::node"))
        })
}

/// Coherent memory as [`dyad_ring::handoff`] accesses it.
struct Direct(CoherentWords);

impl handoff::Words for Direct {
    type Word = &'static AtomicU64;

    #[inline(always)]
    fn load(&self, at: &'static AtomicU64) -> u64 {
        look_coherent(at)
    }

    #[inline(always)]
    fn store(&self, at: &'static AtomicU64, value: u64) {
        self.0.store_relaxed(at, value);
    }

    #[inline(always)]
    fn exchange(&self, at: &'static AtomicU64, old: u64, new: u64) -> bool {
        self.0.exchange(at, old, new)
    }

    #[inline(always)]
    fn fence(&self) {
        self.0.fence();
    }
}

/// The outcome of a handoff by [`Handoff::pass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// The thread still runs on this CPU: the caller must undo what it has stored.
    RolledBack,
    /// The thread does not run on this CPU now. The CPU continues in the run loop.
    Away,
}

/// A handoff of a thread to a CPU of another ISA that probably spins for it. All preconditions have been
/// checked.
pub(crate) struct Handoff {
    words: CoherentWords,
    to: NodeId,
    cpu: CpuId,
    /// The state word of the receiving node, and the value that was read.
    node: &'static AtomicU64,
    state: u64,
    /// The `activity` word of the receiving CPU.
    peer: &'static AtomicU64,
    /// The owner word now, and after the handoff.
    mine: u64,
    handed: u64,
}

impl Handoff {
    /// Prepares a handoff of the running thread to a CPU of a node. Returns `None` if any precondition fails;
    /// nothing has changed then.
    #[inline(always)]
    pub fn find(cx: &KernelCtx, t: &'static Thread, (to, cpu): (NodeId, CpuId)) -> Option<Handoff> {
        let words = cx.words().if_coherent()?;
        let special = t.depth.load(Ordering::Relaxed) | t.budget.load(Ordering::Relaxed);
        // The component may run over there: this CPU remembers it.
        let component = t.component.load(Ordering::Relaxed);
        if special != 0 || !dyad_machine::capcache::may_run_at(cx.local, component, to) {
            return None;
        }
        let node = &cx.node.sb.node(to).state;
        let state = node.load(Ordering::Acquire);
        let word = NodeWord::from_bits(state).filter(|w| w.state.is_live())?;
        let mine = t.owner.load(Ordering::Relaxed);
        let owner = Owner::from_bits(mine)?;
        Some(Handoff {
            words,
            to,
            cpu,
            node,
            state,
            peer: &cx.node.sb.cpu(to, cpu).activity,
            mine,
            handed: owner.passed(to, word.incarnation, State::Transit).bits(),
        })
    }

    /// Whether the receiving CPU spins for the thread, as far as can be known before the handoff.
    #[inline(always)]
    pub fn is_looked_out_for(&self, t: &'static Thread) -> bool {
        look_coherent(self.peer) == activity_word(t)
    }

    /// Hands over the running thread, whose words are stored, and spins for it. Returns only if the thread
    /// does not continue here at once.
    #[inline(always)]
    #[must_use]
    pub fn pass<P: Platform>(
        self,
        cx: &KernelCtx,
        t: &'static Thread,
        kind: HandoffKind,
    ) -> Passed {
        let me = cx.node.sb.cpu(cx.node.id(), cx.cpu());
        // Before the thread can come back.
        handoff::begin(&Direct(self.words), &me.activity, activity_word(t));
        cx.local.holding.set(None);
        cx.local.fastpath_thread.set(None);
        cx.local.thread.set(None);
        if !handoff::hand_over(&Direct(self.words), &t.owner, self.mine, self.handed) {
            rollback::<P>(cx, t);
            return Passed::RolledBack;
        }
        kind.mark_sent::<P>();
        // It sees the owner word by itself if it spins. If it has died meanwhile, its recovery may have
        // been over before the owner word said whose the thread is.
        let awaited = handoff::is_awaited(&Direct(self.words), self.peer, activity_word(t));
        let told = awaited && look_coherent(self.node) == self.state || self.announce::<P>(cx, t);
        if !told {
            rollback::<P>(cx, t);
            return Passed::RolledBack;
        }
        let IntoRunLoop = look::<P>(cx, me, t, self.to, self.words);
        Passed::Away
    }

    /// Notifies the receiving CPU of the thread. Returns `false` if that was not possible and the thread
    /// belongs to this CPU again.
    #[cold]
    fn announce<P: Platform>(&self, cx: &KernelCtx, t: &'static Thread) -> bool {
        let sent = inbox::announce::<P>(self.to, self.cpu, t.id.load(Ordering::Relaxed));
        // Another CPU may have taken it nevertheless: then it comes back like any other thread.
        sent.is_ok() || !cx.words().exchange(&t.owner, self.handed, self.mine)
    }
}

/// Continues a thread that has not left. A sender that has seen this CPU spin has rung no doorbell. If
/// something has come since, the first instruction in user mode is interrupted, so that the run loop checks.
#[cold]
fn rollback<P: Platform>(cx: &KernelCtx, t: &'static Thread) {
    cx.local.thread.set(Some(t));
    cx.local.holding.set(Some(t));
    if !inbox::prepare::<P>(activity::USER) {
        timer::interrupt_soon::<P>(cx);
    }
}

/// A predicate on owner words: the thread is in transit to this node.
#[inline(always)]
fn is_here(cx: &KernelCtx) -> impl Fn(u64) -> bool {
    let (node, incarnation) = (cx.node.id(), cx.node.incarnation());
    move |word| Owner::says(word, State::Transit, node, incarnation)
}

/// Spins for a thread that has been handed to node `to`. Resumes the thread if it comes back; otherwise
/// returns, and the caller enters the run loop.
#[inline(never)]
pub(crate) fn wait<P: Platform>(cx: &KernelCtx, t: &'static Thread, to: NodeId) -> IntoRunLoop {
    let me = cx.node.sb.cpu(cx.node.id(), cx.cpu());
    match cx.words().if_coherent() {
        Some(words) => {
            handoff::begin(&Direct(words), &me.activity, activity_word(t));
            look::<P>(cx, me, t, to, words)
        }
        None => given_up(cx, to),
    }
}

/// Spins on a CPU whose `activity` word announces it. Resumes the thread or returns, like [`wait`].
pub(crate) fn look<P: Platform>(
    cx: &KernelCtx,
    me: &'static CpuEntry,
    t: &'static Thread,
    to: NodeId,
    words: CoherentWords,
) -> IntoRunLoop {
    P::mark::<{ Marker::WAITS.word() }>();
    let came = watch::<P>(cx, me, t, words);
    P::mark::<{ Marker::WORKS.word() }>();
    cx.local.spins.set(None);
    if let Some(word) = came {
        HandoffKind::of(t).mark_arrival::<P>();
        if take(cx, t, word, words) {
            return go_on_with::<P>(cx, me, t);
        }
    }
    stop::<P>(cx, me, t, to, words)
}

/// Polls the thread's owner word until it names this node, something else has come in, or the time is up.
#[inline(always)]
fn watch<P: Platform>(
    cx: &KernelCtx,
    me: &CpuEntry,
    t: &'static Thread,
    words: CoherentWords,
) -> Option<u64> {
    let is_here = is_here(cx);
    let mut since = None;
    for round in 0u32.. {
        for _ in 0..LOOKS {
            if let Some(word) = handoff::poll(&Direct(words), &t.owner, &is_here) {
                return Some(word);
            }
            if look_coherent(&me.pending) != 0 {
                return None;
            }
        }
        let now = P::clock_ns();
        if now.wrapping_sub(*since.get_or_insert(now)) > SPIN_NS && round >= ROUNDS {
            break;
        }
    }
    None
}

/// Takes a thread that has come back; returns `false` if another CPU has taken it.
#[inline(always)]
fn take(cx: &KernelCtx, t: &'static Thread, word: u64, words: CoherentWords) -> bool {
    let taken = handoff::claim(&Direct(words), &t.owner, word, word ^ TAKEN);
    if taken {
        let local = cx.local;
        t.cpu.store(local.id().index() as u64, Ordering::Relaxed);
        // The CPU that ran it elsewhere has charged it for that.
        if t.budget.load(Ordering::Relaxed) != 0 {
            t.budget.store(0, Ordering::Relaxed);
        }
        t.slice_end.store(local.slice_end(), Ordering::Relaxed);
        local.thread.set(Some(t));
    }
    taken
}

/// Resumes a thread that has come back; returns if it cannot run here now.
#[inline(always)]
fn go_on_with<P: Platform>(cx: &KernelCtx, me: &CpuEntry, t: &'static Thread) -> IntoRunLoop {
    // As `inbox::prepare`.
    let ready = || {
        me.activity.store(activity::USER, Ordering::Relaxed);
        core::sync::atomic::fence(Ordering::SeqCst);
        if cx.local.timer_at.get() == 0 {
            timer::set_tick::<P>(cx);
        }
        look_coherent(&me.pending) == 0
    };
    arrive::go_on_with::<P>(cx, t, ready);
    inbox::attentive::<P>();
    IntoRunLoop
}

/// Stops spinning. The dispatcher of the thread continues, unless the thread has come back at the last
/// moment.
#[cold]
fn stop<P: Platform>(
    cx: &KernelCtx,
    me: &'static CpuEntry,
    t: &'static Thread,
    to: NodeId,
    words: CoherentWords,
) -> IntoRunLoop {
    if let Some(word) = handoff::stop(&Direct(words), &me.activity, &t.owner, is_here(cx))
        && take(cx, t, word, words)
    {
        return go_on_with::<P>(cx, me, t);
    }
    given_up(cx, to)
}

/// Continues the dispatcher. The thread belongs to another CPU, so this function does not read it.
#[cold]
fn given_up(cx: &KernelCtx, to: NodeId) -> IntoRunLoop {
    let next = cx.local.chain.pop();
    dispatch::go_on(cx, next, Stopped::Left, to.index() as u64);
    IntoRunLoop
}
