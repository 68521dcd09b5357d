//! CPUs that have handed a thread over for an invocation or a call, and look out for it for a little
//! while: what has been called is mostly short, and nothing is shorter than finding the thread here
//! again, with its component, its dispatchers and its slice as they were.
//!
//! ```text
//!              hand over: owner TRANSIT(n)            owner TRANSIT(here): taken
//!   runs t ─────────────────────────────▶ LINGERS ──────────────────────────────▶ runs t
//!                                            │ something else comes in, or the time is up
//!                                            ▼
//!                           the dispatcher goes on and is told that t has left
//! ```
//!
//! While it lingers, a CPU says so with the thread's address in its `activity`. Who hands it just that
//! thread need not tell it: neither message nor doorbell.
//!
//! | here | who hands the thread over |
//! |---|---|
//! | `activity` := lingering for t; fence; look at t's owner word | t's owner word := TRANSIT(here); fence; look at `activity`: lingering for t, nothing more to do |
//! | stop: `activity` := attentive; fence; look once more | anything else: a message, as for every hand-over |
//!
//! One of them sees the other, or both do; then the message finds that the thread has been taken.
//!
//! No other thread of this CPU's scheduler runs meanwhile, so the wait is short ([`LINGER_NS`]), and ends
//! at once if anything comes in. Threads on a time budget are not waited for. Only where caches are
//! coherent: elsewhere looking at a word costs more than the message.

use core::sync::atomic::Ordering;

use dyad_abi::NodeId;
use dyad_abi::cap::Stopped;
use dyad_abi::marker::Marker;
use dyad_shm::superblock::{CpuEntry, activity};

use crate::cx::Cx;
use crate::dispatch;
use crate::handover::{self, what};
use crate::object::thread::{Owner, State, Thread};
use crate::{Platform, crossing, cycle, inbox};

/// How long a CPU lingers at least: as long as an idle one polls before it sleeps.
pub const LINGER_NS: u64 = 20_000;
/// Looks between two looks at the clock.
const LOOKS: u32 = 64;
/// How often it looks at the clock at least: on machines that are slow for their clock, as under a
/// simulator, others take their time, too.
const ROUNDS: u32 = 64;

/// What changes in an owner word when a thread in transit is taken to run.
const TAKEN: u64 = State::Transit as u64 ^ State::Running as u64;

/// What a CPU that lingers for a thread says in its `activity`.
#[inline(always)]
pub(crate) fn doing(t: &'static Thread) -> u64 {
    activity::lingering(core::ptr::from_ref(t) as u64)
}

/// Whether the CPU of a thread that is about to be handed over may look out for it.
#[inline]
pub(crate) fn may(cx: &Cx, t: &Thread) -> bool {
    cx.words().is_coherent() && t.budget.load(Ordering::Relaxed) == 0
}

/// The thread's owner word, if it has been handed to this node and nobody has taken it.
#[inline(always)]
fn handed_here(cx: &Cx, t: &Thread) -> Option<u64> {
    let word = t.owner.load(Ordering::Acquire);
    Owner::says(word, State::Transit, cx.node.id(), cx.node.incarnation()).then_some(word)
}

/// Lingers for a thread that has been handed to node `to`, and goes on with it, or without.
#[inline(never)]
pub(crate) fn wait<P: Platform>(cx: &Cx, t: &'static Thread, to: NodeId) -> ! {
    let me = cx.node.sb.cpu(cx.node.id(), cx.cpu());
    me.activity.store(doing(t), Ordering::Relaxed);
    core::sync::atomic::fence(Ordering::SeqCst);
    look::<P>(cx, me, t, to)
}

/// The same of a CPU that has said already that it lingers.
pub(crate) fn look<P: Platform>(
    cx: &Cx,
    me: &'static CpuEntry,
    t: &'static Thread,
    to: NodeId,
) -> ! {
    P::mark::<{ Marker::WAITS.word() }>();
    let came = watch::<P>(cx, me, t);
    P::mark::<{ Marker::WORKS.word() }>();
    cx.local.lingers.set(None);
    if let Some(word) = came {
        handover::mark_arrival::<P>(t.carried[0].load(Ordering::Relaxed));
        if !take(cx, t, word) {
            stop::<P>(cx, me, t, to);
        }
        go_on_with::<P>(cx, me, t);
    }
    stop::<P>(cx, me, t, to)
}

/// Looks at the thread's owner word until it is this node's, something else has come, or the time is up.
#[inline(always)]
fn watch<P: Platform>(cx: &Cx, me: &CpuEntry, t: &'static Thread) -> Option<u64> {
    let mut since = None;
    for round in 0u32.. {
        for _ in 0..LOOKS {
            if let Some(word) = handed_here(cx, t) {
                return Some(word);
            }
            if me.pending.load(Ordering::Relaxed) != 0 {
                return None;
            }
        }
        let now = P::clock_ns();
        if now.wrapping_sub(*since.get_or_insert(now)) > LINGER_NS && round >= ROUNDS {
            break;
        }
    }
    None
}

/// Takes a thread that has come back; `false` if somebody else has.
#[inline(always)]
fn take(cx: &Cx, t: &'static Thread, word: u64) -> bool {
    let taken = t
        .owner
        .compare_exchange(word, word ^ TAKEN, Ordering::AcqRel, Ordering::Acquire)
        .is_ok();
    if taken {
        let local = cx.local;
        t.cpu.store(local.id().index() as u64, Ordering::Relaxed);
        // Whoever had it run elsewhere has charged it for that.
        t.budget.store(0, Ordering::Relaxed);
        t.slice_end.store(local.slice_end(), Ordering::Relaxed);
        local.thread.set(Some(t));
    }
    taken
}

/// Goes on with a thread that has come back, in the place where it was when it left.
#[inline(always)]
fn go_on_with<P: Platform>(cx: &Cx, me: &CpuEntry, t: &'static Thread) -> ! {
    // As `inbox::prepare`.
    let ready = || {
        me.activity.store(activity::USER, Ordering::Relaxed);
        core::sync::atomic::fence(Ordering::SeqCst);
        if cx.local.timer_at.get() == 0 {
            cycle::set_tick::<P>(cx);
        }
        me.pending.load(Ordering::Relaxed) == 0
    };
    if matches!(
        t.carried[0].load(Ordering::Relaxed),
        what::CALL | what::ANSWER
    ) {
        crossing::go_on_with::<P>(cx, t, ready);
    } else {
        handover::arrive::<P>(cx, t);
        if ready() {
            dispatch::resume::<P>(cx);
        }
    }
    inbox::attentive::<P>();
    cycle::run::<P>()
}

/// Does not linger any more: whoever dispatched the thread goes on, unless it has come at the last moment.
#[cold]
fn stop<P: Platform>(cx: &Cx, me: &'static CpuEntry, t: &'static Thread, to: NodeId) -> ! {
    me.activity.store(activity::ATTENTIVE, Ordering::Relaxed);
    core::sync::atomic::fence(Ordering::SeqCst);
    if let Some(word) = handed_here(cx, t)
        && take(cx, t, word)
    {
        go_on_with::<P>(cx, me, t);
    }
    // Nothing of the thread may be looked at any more: it is somebody else's.
    let next = cx.local.chain.pop();
    dispatch::go_on(cx, next, Stopped::Left, to.index() as u64);
    cycle::run::<P>()
}
