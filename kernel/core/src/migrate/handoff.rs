//! The transfer of a thread to another node, with `Migrate` and `Load`. What a thread carries is described in
//! [`carried`](super::carried).
//!
//! ```text
//! giver:    registers complete, floating point saved; words put down; owner := TRANSIT(to, seq + 1)
//!           bit of the thread's id at a CPU of `to`, unless one spins for it ──▶
//! receiver: CAS owner TRANSIT -> READY; registers set as the words say; its scheduler is told
//! ```
//!
//! In transit the thread belongs to no CPU. If the receiver dies before it takes the thread, recovery of the
//! receiver sends the thread back with [`Error::NodeDead`]. If the receiver is dead already, the sender takes
//! the thread back. The announcement itself cannot fail otherwise: every CPU has a bit for every thread id
//! ([`dyad_ring::arrivals`]), and no two live threads have the same id ([`ids`]).
//!
//! | step | order |
//! |---|---|
//! | give up: everything in the frame, then the owner word | release |
//! | the bit, behind the owner word | the receiver that takes it finds the thread in transit, or owned by another node by now |
//! | take: CAS of the owner word | acquire |
//!
//! A bit is only a hint: the owner word decides. A bit may be lost (recovery of the sender sets it again), be
//! set twice, or be left from an older handoff. The CPU that reads the bit takes the thread by one exchange
//! if it is in transit to this node now; otherwise there is nothing to do.
//!
//! The whole state is in the frame, where recovery finds it.
//!
//! Bounds: one area copied, one bit set; no CPU waits.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{Stopped, Woken};
use dyad_abi::emulation::WORDS;
use dyad_abi::{Error, NodeId, Result};
use dyad_shm::frame::WeakRef;
use dyad_shm::permitted::Permitted;
use dyad_shm::superblock::NodeWord;

use crate::migrate::arrive::{arrive, takes_stop};
use crate::migrate::carried::{HandoffKind, store_handoff};
use crate::migrate::crossing_state::CrossingState;
use crate::migrate::spin_handoff;
use crate::sched::dispatch::{self, OpOutcome};
use crate::sched::registers::GENERAL_WORDS;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, inbox};
use dyad_object::component::Entry;
use dyad_object::ids;
use dyad_object::thread::{Owner, State, Thread, begun, copy_registers};

/// Hands the running thread to another node. Its dispatcher continues, or this CPU spins for the thread.
///
/// # Errors
///
/// [`Error::NoSuchNode`], [`Error::NodeDead`]; [`Error::NotReady`] if the thread has no scheduler. The thread
/// continues here.
pub fn send<P: Platform>(cx: &KernelCtx, t: &'static Thread, to: NodeId) -> Result<()> {
    if to.index() >= cx.node.params.node_count {
        return Err(Error::NoSuchNode);
    }
    if t.scheduler.load(Ordering::Relaxed) == 0 {
        return Err(Error::NotReady);
    }
    // The incarnation that is there now. If that dies, and the node comes back, the owner word names
    // no live CPU, and recovery of the dead node finds the thread.
    let target = cx.node.word_of(to);
    if !target.state.is_live() {
        return Err(Error::NodeDead);
    }
    let mine = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    // Read while the thread is this CPU's.
    let kind = HandoffKind::of(t);
    // Its dispatcher need not know yet.
    let spins = kind.is_brief() && spin_handoff::can_spin(cx, t);
    let next = match spins {
        true => None,
        false => dispatch::take_dispatcher::<P>(cx, t),
    };
    let sent = transfer::<P>(cx, t, mine, (to, target));
    match sent {
        Ok(()) => {
            kind.mark_sent::<P>();
            if !kind.crosses() {
                cx.words().increase(&cx.node.entry().migrations, 1);
            }
            match spins {
                true => {
                    cx.local.thread.set(None);
                    cx.local.spins.set(Some((t, to)));
                }
                false => dispatch::go_on(cx, next, Stopped::Left, to.index() as u64),
            }
            Ok(())
        }
        Err(e) => {
            // Its component is still this CPU's.
            cx.local.holding.set(Some(t));
            dispatch::give_back(cx, next);
            Err(e)
        }
    }
}

/// Transfers a thread that this CPU owns to a node whose state word has been read. Notifies a CPU there,
/// unless one spins for the thread and sees the owner word itself.
///
/// # Errors
///
/// The errors of [`inbox::announce`]: the thread belongs to this CPU again, and its saved state is in its
/// frame. [`Error::Corrupt`] if the thread did not belong to this CPU.
#[inline(always)]
fn transfer<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    mine: Owner,
    (to, target): (NodeId, NodeWord),
) -> Result<()> {
    let handed = mine.passed(to, target.incarnation, State::Transit);
    t.leaves(cx.node.id(), true);
    let id = t.id.load(Ordering::Relaxed);
    // This CPU keeps nothing of the thread. Where caches are not coherent, all of it is in memory before
    // the owner word changes.
    dispatch::release::<P>(cx, t);
    if !t.change(cx.words(), mine, handed) {
        return Err(Error::Corrupt);
    }
    if spin_handoff::is_awaited(cx, t, to, target) {
        return Ok(());
    }
    let cpu = inbox::pick_cpu(cx.node, to, id);
    inbox::announce::<P>(to, cpu, id).or_else(|e| {
        // If the receiver has died, its recoverer may have found the thread and taken it; then it
        // is not ours any more, and comes back as others do.
        if t.change(cx.words(), handed, mine) {
            t.stays();
            return Err(e);
        }
        Ok(())
    })
}

/// `Migrate`: the running thread continues on another node.
///
/// # Errors
///
/// The errors of [`send`]; [`Error::TooDeep`] within an invocation or a crossing call.
pub fn migrate<P: Platform>(cx: &KernelCtx, to: NodeId) -> Result<OpOutcome> {
    let t = dispatch::current(cx);
    // Asking for where one is, is allowed at any depth: nothing moves.
    if to == cx.node.id() {
        return Ok(OpOutcome::Value(to.index() as u64));
    }
    if t.depth.load(Ordering::Relaxed) != 0 || CrossingState::of(t).depth() != 0 {
        return Err(Error::TooDeep);
    }
    let nowhere = Entry {
        component: WeakRef::from_bits(0).ok_or(Error::Corrupt)?,
        address: 0,
        badge: 0,
    };
    leave::<P>(cx, t, to, (HandoffKind::Migrate, [0; 4], nowhere))
}

/// Parks the state of the running thread on this ISA, and hands the thread over with `words` and `at`. The
/// thread is in no invocation.
///
/// # Errors
///
/// [`Error::Denied`] if its component may not run on `to`; the errors of [`send`].
pub(crate) fn leave<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    to: NodeId,
    (kind, words, at): (HandoffKind, [u64; 4], Entry),
) -> Result<OpOutcome> {
    dispatch::may_run_on(cx, t, to)?;
    dispatch::complete_frame::<P>(cx, t);
    // The registers are complete from here on, because recovery of a node that dies reads them. The thread's work on
    // this ISA waits in `parked` for its return. Services that the thread calls on other nodes of this ISA meanwhile use
    // the registers proper.
    copy_registers(t.regs(P::ISA), &t.parked[P::ISA.index()]);
    t.set_begun(P::ISA, begun::PARKED);
    store_handoff(t, kind, words, at);
    if let Err(e) = send::<P>(cx, t, to) {
        // It has not left this ISA: its call returns the error, from the registers proper.
        t.set_begun(P::ISA, begun::HERE);
        return Err(e);
    }
    Ok(OpOutcome::Switched)
}

/// `Load` on another node: the running thread continues there with registers that it carries. Its state here
/// is kept until it has arrived.
///
/// # Errors
///
/// The errors of [`send`]: the thread is unchanged.
pub(crate) fn load<P: Platform>(
    cx: &KernelCtx,
    t: &'static Thread,
    to: NodeId,
    words: &[u64; WORDS],
) -> Result<OpOutcome> {
    let (general, float) = words.split_at(GENERAL_WORDS);
    for (to, &word) in t.saved.0.iter().zip(general) {
        to.store(word, Ordering::Relaxed);
    }
    for (to, &word) in t.saved_fp.0.iter().zip(float) {
        to.store(word, Ordering::Relaxed);
    }
    let nowhere = Entry {
        component: WeakRef::from_bits(0).ok_or(Error::Corrupt)?,
        address: 0,
        badge: 0,
    };
    leave::<P>(cx, t, to, (HandoffKind::Load, [0; 4], nowhere))
}

/// Takes the thread with this id if it is in transit to this node. Afterwards the thread belongs to this CPU.
/// It is READY and its scheduler is told, or it runs at once.
///
/// # Errors
///
/// [`Error::Corrupt`] if the owner word is malformed, or changes although the thread is this CPU's; else the
/// errors of [`dispatch::tell_scheduler`].
pub fn receive<P: Platform>(cx: &KernelCtx, id: u64) -> Result<()> {
    // The bit may be of a thread that has been given up since.
    let Some(t) = ids::find_thread(cx.node, id) else {
        return Ok(());
    };
    let handed = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    if handed.state != State::Transit || !handed.is(cx.node.id(), cx.node.incarnation()) {
        return Ok(());
    }
    let announced = cx
        .words()
        .hint::<{ Permitted::Announced as u32 }>(&t.carried[0]);
    HandoffKind::from_word(announced).mark_arrival::<P>();
    // Its words are read only after it has been won, by which old copies of them are dropped; what they
    // say of the way, to mark it, does no harm if it is out of date. One that has been taken already may
    // have been found by a CPU that spun for it.
    if !t.change(cx.words(), handed, handed.with(State::Running)) {
        return Ok(());
    }
    // RUNNING meanwhile, so that no other CPU dispatches it half set up. If this node dies here, the
    // words that it carries still say what it was to do.
    arrive::<P>(cx, t);
    if takes_stop(t) {
        t.withdraw_stop();
        let running = handed.with(State::Running);
        return match t.change(cx.words(), running, handed.with(State::Stopped)) {
            true => Ok(()),
            false => Err(Error::Corrupt),
        };
    }
    if dispatch::run_at_once::<P>(cx, t) {
        return Ok(());
    }
    if !t.change(
        cx.words(),
        handed.with(State::Running),
        handed.with(State::Ready),
    ) {
        return Err(Error::Corrupt);
    }
    let why = match HandoffKind::of(t) {
        HandoffKind::Fail => Woken::NodeDied,
        _ => Woken::Arrived,
    };
    dispatch::tell_scheduler::<P>(cx, t, why)
}
