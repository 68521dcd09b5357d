//! Threads that go to another node: migration, crossing invocations and their returns.
//!
//! ```text
//! giver:    registers complete, floating point saved; words put down; owner := TRANSIT(to, seq + 1)
//!           bit of the thread's id at a CPU of `to`, unless one lingers for it ──▶
//! receiver: CAS owner TRANSIT -> READY; registers set as the words say; its scheduler is told
//! ```
//!
//! Between the two the thread belongs to nobody. If the receiver dies before taking it, whoever
//! recovers the receiver sends it back with [`Error::NodeDead`]. If the receiver is dead already,
//! the giver takes it back. Nothing else can keep the giver from telling: there is a bit for every
//! thread id at every CPU ([`dyad_ring::arrivals`]), and no two live threads have the same id
//! ([`ids`]).
//!
//! | step | order |
//! |---|---|
//! | give up: everything in the frame, then the owner word | release |
//! | the bit, behind the owner word | the receiver that takes it finds the thread in transit, or owned by another node by now |
//! | take: CAS of the owner word | acquire |
//!
//! A bit says only where to look: the owner word decides. So a bit may be lost (the recoverer of the giver
//! sets it again), be set twice, or stay from an older hand-over: the CPU that looks takes the thread if it is in
//! transit to this node now, by one exchange, and finds nothing to do else.
//!
//! What a thread carries, in eight words of its frame:
//!
//! | what | words 1 to 4 | component, address, badge | the receiver |
//! |---|---|---|---|
//! | [`MIGRATE`](what::MIGRATE) | nothing | nothing | takes the registers it left here up again, or starts it |
//! | [`JUMP`](what::JUMP) | argument; frame pointer | nothing; where it goes on, its stack pointer | sets these, forgets the rest |
//! | [`INVOKE`](what::INVOKE) | arguments | the callee, its entry point, the badge | enters it |
//! | [`RETURN`](what::RETURN) | results | the caller; where it goes on, its stack pointer | goes back to it |
//! | [`FAIL`](what::FAIL) | status; entry of the stack to return to, or [`NO_ENTRY`]; what it had been doing, and from where | as for a return | returns the status |
//! | [`CALL`](what::CALL), [`ANSWER`](what::ANSWER), [`LOST`](what::LOST) | see [`crossing`] | | goes on at a gate |
//! | [`MOVE`](what::MOVE) | as above | nothing | leaves its registers as they are |
//! | [`LOAD`](what::LOAD) | nothing; its registers are in `saved` and `saved_fp` | nothing | gives it these, and forgets what it did on any ISA |
//!
//! Nothing of this is relied on before the thread has been won: the words are its owner's. And it
//! is trusted no more than other shared words: a component is checked when it is entered, an
//! address when it is put into a register.
//!
//! All that goes along is in the frame: recovery finds it where it always is.
//!
//! Bounds: one area copied, one bit set; nobody waits.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{Stopped, Woken};
use dyad_abi::emulation::{FLOAT_WORDS, WORDS};
use dyad_abi::user::{stack_slot, tcb_address};
use dyad_abi::{Error, NodeId, Result};
use dyad_shm::frame::WeakRef;
use dyad_shm::permitted::Permitted;
use dyad_shm::superblock::NodeWord;

use crate::migrate::crossing::Crossing;
use crate::migrate::{crossing, jump, spin_handoff};
use crate::sched::dispatch::{self, After};
use crate::sched::fp;
use crate::syscall::ops::registers::{self, GENERAL_WORDS};
use dyad_machine::Platform;
use dyad_machine::cx::Cx;
use dyad_machine::inbox;
use dyad_object::component::Entry;
use dyad_object::ids;
use dyad_object::thread::{FP_WORDS, Owner, REG_WORDS, State, Thread, begun, copy_registers, info};

// What `Load` brings along fits.
const _: () = assert!(GENERAL_WORDS <= REG_WORDS && FLOAT_WORDS <= FP_WORDS);

/// Why a thread is handed over.
pub mod what {
    /// It migrates: goes on in the context it left on the receiver's ISA, or starts there.
    pub const MIGRATE: u64 = 1;
    /// It invokes a component that lives there.
    pub const INVOKE: u64 = 2;
    /// It returns from such an invocation.
    pub const RETURN: u64 = 3;
    /// The node it was on or on its way to has died: its call returns an error. See
    /// `dyad_recovery::threads`, also for what it carries.
    pub const FAIL: u64 = 4;
    /// The node it was ready on has died: it goes on as it is.
    pub const MOVE: u64 = 5;
    /// It goes on where it has said; see [`jump`](crate::migrate::jump).
    pub const JUMP: u64 = 6;
    /// It goes on with the registers that it carries; see [`crate::syscall::ops::registers`].
    pub const LOAD: u64 = 7;
    /// It calls a function that is on the receiver's ISA only; see [`crossing`](crate::migrate::crossing), also
    /// for what it carries in this and the next two.
    pub const CALL: u64 = 8;
    /// It returns from such a function.
    pub const ANSWER: u64 = 9;
    /// The node that such a function ran on has died: it returns an error.
    pub const LOST: u64 = 10;
}

/// Markers for the simulator: where the parts of an invocation that crosses begin and end. They are
/// here because programs cannot see these places.
mod mark {
    use dyad_abi::marker::{BenchMemory, BenchOp, Marker, MarkerOp};

    const fn word(op: MarkerOp, part: u16) -> u32 {
        part_of(BenchOp::IpcCrossIsaRoundTrip, op, part)
    }

    const fn call(op: MarkerOp, part: u16) -> u32 {
        part_of(BenchOp::CrossingCallRoundTrip, op, part)
    }

    const fn part_of(what: BenchOp, op: MarkerOp, part: u16) -> u32 {
        let id = what.part(BenchMemory::Fused, part);
        Marker { op, id }.word()
    }

    /// The request has been sent.
    pub const REQUESTED: u32 = word(MarkerOp::End, 0);
    /// It has come.
    pub const CAME: u32 = word(MarkerOp::Begin, 1);
    /// The answer has been sent.
    pub const ANSWERED: u32 = word(MarkerOp::End, 1);
    /// It has come back.
    pub const CAME_BACK: u32 = word(MarkerOp::Begin, 2);
    /// The same four of a crossing call.
    pub const CALL_SENT: u32 = call(MarkerOp::End, 0);
    /// See above.
    pub const CALLED: u32 = call(MarkerOp::Begin, 1);
    /// See above.
    pub const CALL_ANSWERED: u32 = call(MarkerOp::End, 1);
    /// See above.
    pub const CALL_BACK: u32 = call(MarkerOp::Begin, 2);
}

/// Puts down what the thread is to do where it goes, and its four words. Its owner does this, before it
/// gives the thread up: the owner word announces it.
pub fn carry(t: &Thread, what: u64, words: [u64; 4], to: Entry) {
    for (w, v) in t.carried.iter().zip([
        what,
        words[0],
        words[1],
        words[2],
        words[3],
        to.component.bits(),
        to.address,
        to.badge,
    ]) {
        w.store(v, Ordering::Relaxed);
    }
}

/// Hands the running thread to another node. Its dispatcher goes on.
///
/// # Errors
///
/// [`Error::NoSuchNode`], [`Error::NodeDead`], [`Error::NotReady`] if nobody would schedule it there: the
/// thread goes on here.
pub fn send<P: Platform>(cx: &Cx, t: &'static Thread, to: NodeId) -> Result<()> {
    if to.index() >= cx.node.params.node_count {
        return Err(Error::NoSuchNode);
    }
    if t.scheduler.load(Ordering::Relaxed) == 0 {
        return Err(Error::NotReady);
    }
    // The incarnation that is there now. If that dies, and the node comes back, the owner word names
    // nobody who lives, and recovery of the dead one finds it.
    let target = cx.node.word_of(to);
    if !target.state.is_live() {
        return Err(Error::NodeDead);
    }
    let mine = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    // Read while the thread is this CPU's.
    let what = t.carried[0].load(Ordering::Relaxed);
    // It comes back, or comes again, soon, if at all: who has given it the CPU need not know yet.
    let calls = matches!(what, what::CALL | what::ANSWER);
    let soon = calls || matches!(what, what::INVOKE | what::RETURN | what::JUMP);
    let lingers = soon && spin_handoff::may(cx, t);
    let next = match lingers {
        true => None,
        false => dispatch::take_dispatcher::<P>(cx, t),
    };
    let sent = transfer::<P>(cx, t, mine, (to, target));
    match sent {
        Ok(()) => {
            mark_sent::<P>(what);
            if !calls {
                cx.words().increase(&cx.node.entry().migrations, 1);
            }
            match lingers {
                true => {
                    cx.local.thread.set(None);
                    cx.local.lingers.set(Some((t, to)));
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

/// Hands a thread that this CPU owns over to a node whose state word has been read, and tells a CPU there,
/// unless one lingers for the thread and sees the owner word by itself.
///
/// # Errors
///
/// As [`inbox::announce`]: the thread is this CPU's again, and what has been saved of it is in its frame.
/// [`Error::Corrupt`] if it was not this CPU's.
#[inline(always)]
fn transfer<P: Platform>(
    cx: &Cx,
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

/// `Migrate`: the running thread goes on on another node.
///
/// # Errors
///
/// As [`send`]; [`Error::TooDeep`] within an invocation or a crossing call.
pub fn migrate<P: Platform>(cx: &Cx, to: NodeId) -> Result<After> {
    let t = dispatch::current(cx);
    // Asking for where one is, is allowed at any depth: nothing moves.
    if to == cx.node.id() {
        return Ok(After::Value(to.index() as u64));
    }
    if t.depth.load(Ordering::Relaxed) != 0 || Crossing::of(t).depth() != 0 {
        return Err(Error::TooDeep);
    }
    let nowhere = Entry {
        component: WeakRef::from_bits(0).ok_or(Error::Corrupt)?,
        address: 0,
        badge: 0,
    };
    leave::<P>(cx, t, to, (what::MIGRATE, [0; 4], nowhere))
}

/// Parks what the running thread, which is in no invocation, does on this ISA, and hands it over with
/// what it carries.
///
/// # Errors
///
/// [`Error::Denied`] if its component may not run there; as [`send`].
pub(crate) fn leave<P: Platform>(
    cx: &Cx,
    t: &'static Thread,
    to: NodeId,
    (what, words, at): (u64, [u64; 4], Entry),
) -> Result<After> {
    dispatch::may_run_on(cx, t, to)?;
    dispatch::settle::<P>(cx, t);
    // From here on the registers are whole: whoever takes the thread over for a node that dies
    // reads them. What it was doing on this ISA waits for its return. Services that it calls on
    // other nodes of this ISA meanwhile use the registers proper.
    copy_registers(t.regs(P::ISA), &t.parked[P::ISA.index()]);
    t.set_begun(P::ISA, begun::PARKED);
    carry(t, what, words, at);
    if let Err(e) = send::<P>(cx, t, to) {
        // It has not left this ISA: its call returns the error, from the registers proper.
        t.set_begun(P::ISA, begun::HERE);
        return Err(e);
    }
    Ok(After::Switched)
}

/// `Load` on another node: the running thread goes on there with registers that it brings along. What it
/// was doing here is kept until it has arrived.
///
/// # Errors
///
/// As [`send`]: the thread is as it was.
pub(crate) fn load<P: Platform>(
    cx: &Cx,
    t: &'static Thread,
    to: NodeId,
    words: &[u64; WORDS],
) -> Result<After> {
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
    leave::<P>(cx, t, to, (what::LOAD, [0; 4], nowhere))
}

/// The registers that a thread has brought along.
fn brought(t: &Thread) -> [u64; WORDS] {
    core::array::from_fn(|i| {
        let word = match i.checked_sub(GENERAL_WORDS) {
            None => &t.saved.0[i],
            Some(i) => &t.saved_fp.0[i],
        };
        word.load(Ordering::Relaxed)
    })
}

/// The thread with this id may have been handed to this node: takes it, if it is in transit to it. It is READY
/// afterwards, a thread of this CPU, whose scheduler is told; or it runs at once.
///
/// # Errors
///
/// [`Error::Corrupt`] if its owner word is none, or changes although it is this CPU's; else what keeps its
/// scheduler from being told.
pub fn receive<P: Platform>(cx: &Cx, id: u64) -> Result<()> {
    // The bit may be of a thread that has been given up since.
    let Some(t) = ids::find_thread(cx.node, id) else {
        return Ok(());
    };
    let handed = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    if handed.state != State::Transit || !handed.is(cx.node.id(), cx.node.incarnation()) {
        return Ok(());
    }
    let announced = &t.carried[0];
    mark_arrival::<P>(
        cx.words()
            .hint::<{ Permitted::Announced as u32 }>(announced),
    );
    // Its words are read only after it has been won, by which old copies of them are dropped; what they
    // say of the way, to mark it, does no harm if it is out of date. One that has been taken already may
    // have been found by a CPU that lingered for it.
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
    let why = match t.carried[0].load(Ordering::Relaxed) {
        what::FAIL => Woken::NodeDied,
        _ => Woken::Arrived,
    };
    dispatch::tell_scheduler::<P>(cx, t, why)
}

/// Whether a thread that has just arrived has returned from its outermost invocation, and its owner asked
/// meanwhile that it stop there.
#[inline]
pub(crate) fn takes_stop(t: &Thread) -> bool {
    matches!(
        t.carried[0].load(Ordering::Relaxed),
        what::RETURN | what::FAIL
    ) && t.depth.load(Ordering::Relaxed) == 0
        && t.stop_asked().is_some()
        && !lacks!("handoff::takes_stop::stop")
}

/// Marks where a part of a crossing begins, by what a thread that comes carries.
#[inline(always)]
pub(crate) fn mark_arrival<P: Platform>(what: u64) {
    match what {
        what::INVOKE => P::mark::<{ mark::CAME }>(),
        what::RETURN => P::mark::<{ mark::CAME_BACK }>(),
        what::CALL => P::mark::<{ mark::CALLED }>(),
        what::ANSWER => P::mark::<{ mark::CALL_BACK }>(),
        _ => {}
    }
}

/// Marks where one ends.
#[inline(always)]
pub(crate) fn mark_sent<P: Platform>(what: u64) {
    match what {
        what::INVOKE => P::mark::<{ mark::REQUESTED }>(),
        what::RETURN => P::mark::<{ mark::ANSWERED }>(),
        what::CALL => P::mark::<{ mark::CALL_SENT }>(),
        what::ANSWER => P::mark::<{ mark::CALL_ANSWERED }>(),
        _ => {}
    }
}

/// Sets the registers of a thread that has come here. The giver cannot: only this ISA's `arch`
/// crate knows the layout of its areas.
pub(crate) fn arrive<P: Platform>(cx: &Cx, t: &'static Thread) {
    t.cpu.store(cx.cpu().index() as u64, Ordering::Relaxed);
    let carried: [u64; 8] = core::array::from_fn(|i| t.carried[i].load(Ordering::Relaxed));
    let [what, a, b, c, d, component, address, badge] = carried;
    let area = t.regs(P::ISA);
    match what {
        what::INVOKE => {
            t.component.store(component, Ordering::Relaxed);
            // Where it has come from it has forgotten them; here it may have some from before.
            fp::renew::<P>(t);
            // Here it begins with the service, not at its entry point, to which `Migrate` leads it.
            if t.begun(P::ISA) == begun::NOT {
                t.set_begun(P::ISA, begun::HERE);
            }
            P::set_arguments(area, [a, b, c, d, badge, t.token()]);
            P::set_user_pc_sp(area, address, 0);
        }
        // The registers that its caller has had are those in the area: it has crossed from here. A
        // return brings four results and nothing else.
        what::RETURN => {
            t.component.store(component, Ordering::Relaxed);
            P::set_results(area, 0, [a, b, c, d]);
            P::set_user_pc_sp(area, address, badge);
        }
        what::FAIL => arrive_failed::<P>(t, carried),
        // Its registers are as they were: it was ready on a node of this ISA.
        what::MOVE => {}
        what::CALL | what::ANSWER | what::LOST => crossing::arrive::<P>(cx, t, carried),
        what::JUMP => jump::arrive::<P>(cx, t, (address, badge), (b, a)),
        what::LOAD => registers::put::<P>(cx, t, &brought(t)),
        _ => {
            if t.begun(P::ISA) == begun::PARKED {
                copy_registers(&t.parked[P::ISA.index()], area);
                t.set_begun(P::ISA, begun::HERE);
                fp::take_up::<P>(t);
                P::set_result(area, 0, cx.node.id().index() as u64);
            } else {
                start::<P>(t);
            }
        }
    }
}

/// Sets a thread up to begin at its entry point on this ISA. On each ISA it has a stack of its own,
/// found by its number, and the thread control block of both.
pub fn start<P: Platform>(t: &Thread) {
    let id = t.id.load(Ordering::Relaxed) as u32;
    let (_, top) = stack_slot(P::ISA, id);
    P::init_regs(
        t.regs(P::ISA),
        t.entry.load(Ordering::Relaxed),
        top,
        t.arg.load(Ordering::Relaxed),
        tcb_address(id),
    );
    fp::begin::<P>(t);
    t.set_begun(P::ISA, begun::HERE);
}

/// In `carried`: no invocation is returned from.
pub const NO_ENTRY: u64 = u64::MAX;

/// Sets the registers of a thread that has come here because a node has died ([`what::FAIL`]): it
/// returns from an invocation, or from `Migrate`, with an error. `carried` is what it carries.
fn arrive_failed<P: Platform>(t: &Thread, carried: [u64; 8]) {
    let [_, status, depth, _, _, component, pc, sp] = carried;
    let area = t.regs(P::ISA);
    if depth == NO_ENTRY {
        if t.begun(P::ISA) != begun::JUMPED {
            copy_registers(&t.parked[P::ISA.index()], area);
        }
        t.set_begun(P::ISA, begun::HERE);
        P::set_result(area, status, 0);
        return;
    }
    // A fault that somebody further in was dealing with is over, too.
    let all = t.depth.swap(depth, Ordering::Relaxed);
    let over = t.frames.iter().take(all as usize).skip(depth as usize);
    if over
        .into_iter()
        .any(|f| f.info.load(Ordering::Relaxed) & info::FAULT != 0)
    {
        t.fault.store(0, Ordering::Relaxed);
    }
    t.component.store(component, Ordering::Relaxed);
    // Whatever is over was with services, on either ISA: what they had in the registers of the node
    // that has died is still noted as the thread's.
    if !lacks!("handoff::arrive_failed::fp") {
        fp::renew_used(t);
    }
    P::set_results(area, status, [0; 4]);
    P::set_user_pc_sp(area, pc, sp);
}
