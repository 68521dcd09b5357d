//! Threads that wait at endpoints: how a thread goes to sleep, is found, and is reported ready.
//!
//! ```text
//!   RUNNING ──line.wait──▶ the waiter of its endpoint, still RUNNING ──▶ BLOCKED
//!      ▲                        │                                          │ taken off: by a message, by its
//!      └── something has come ──┴── taken off before it was BLOCKED ──┐    │ deadline, by Stop
//!                                                                     │    ▼
//!                 READY ◀──wake── (one CPU only: the owner word is exchanged)
//! ```
//!
//! The order of the steps, and what each is needed for, is in [`dyad_ring::sleep`].
//!
//! | race | closed by |
//! |---|---|
//! | a message comes while the receiver goes to sleep | [`Line::wait`] checks again after the thread has become the waiter |
//! | a message takes the waiter off while the thread is still RUNNING | the thread becomes BLOCKED, fences and reads the waiter word; the sender takes it off, fences and reads the owner word: one of them sees the other |
//! | a thread is stopped while it goes to sleep | it cannot be stopped before it is BLOCKED, and then it is the waiter: `Stop` takes it off there |
//! | a thread continues and waits again while another CPU still handles an older wait of it | every wait has a number, in the waiter word and in the owner word: only the wait that was found is ended |
//! | two CPUs want to wake the same thread | one of them exchanges the waiter word, and one the owner word: the latter wakes the thread |
//! | a thread moves to another CPU while its event is on a list | [`take_pending`] forwards it |

use core::sync::atomic::Ordering;

use dyad_abi::cap::{Event, Stopped, Woken};
use dyad_abi::{CpuId, Error, Result};
use dyad_ring::sleep;
use dyad_shm::frame::WeakRef;

use super::chain::{give, give_back, go_on, take_dispatcher};
use super::{
    OpOutcome, complete_frame, current, has_news, interrupt, is_root, release, was_dispatched,
};
use super::{SwitchReason, budget};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, inbox};
use dyad_object::endpoint::{self, Endpoints, Line, SleepWords, Waiter, Waits, Word};
use dyad_object::thread::{Owner, State, Thread};
use dyad_object::{find, follow};

/// How many links from a scheduler to its own scheduler a wake-up follows. The bound ends cycles of
/// schedulers, which programs can build.
const MAX_SCHEDULERS: usize = 4;

/// Makes a thread ready that has been taken off an endpoint or has timed out there. Only the CPU that has
/// taken it off calls this: of several messages that come at once, one has found the thread.
///
/// # Errors
///
/// [`Error::NotReady`] if that wait is over: the thread has been stopped and belongs to its stopper, or it
/// has not gone to sleep and checks the endpoint again. Also the errors of [`tell_scheduler`].
pub fn wake<P: Platform>(cx: &KernelCtx, waiter: Waiter, why: Woken) -> Result<()> {
    if !make_ready(cx, waiter)? {
        return Err(Error::NotReady);
    }
    tell_scheduler::<P>(cx, waiter.thread, why)
}

/// Makes a thread ready that has been taken off its endpoint; returns `false` if that wait is over. A thread
/// that is not BLOCKED may be about to become so. Then either the second look here sees that it is BLOCKED,
/// or the thread sees that it has been taken off.
///
/// # Errors
///
/// [`Error::Corrupt`] if the owner word is malformed.
fn make_ready(cx: &KernelCtx, Waiter { thread, number }: Waiter) -> Result<bool> {
    let is_asleep = |word| {
        Owner::from_bits(word).is_some_and(|o| {
            let same = o.seq == number || lacks!("dispatch::wait::make_ready::number");
            o.state == State::Blocked && same
        })
    };
    match sleep::find_asleep(&SleepWords(cx.words()), Word::Owner(thread), is_asleep) {
        Some(asleep) => Ok(thread.change_word(cx.words(), asleep, asleep ^ MADE_READY)),
        None => match thread.owner(cx.words()) {
            Some(_) => Ok(false),
            None => Err(Error::Corrupt),
        },
    }
}

/// Reports a ready thread to its scheduler, on whichever node that is. If the scheduler waits, it becomes
/// ready and is reported to its own scheduler, and so on up to a root thread, which its CPU checks itself.
///
/// # Errors
///
/// [`Error::Revoked`], [`Error::NotFound`] if the scheduler is gone; the errors of [`Line::push_event`];
/// [`Error::TooDeep`] if there are too many schedulers of schedulers. The thread is ready in any case: any
/// holder of a capability for it may dispatch it.
pub fn tell_scheduler<P: Platform>(cx: &KernelCtx, t: &'static Thread, why: Woken) -> Result<()> {
    let mut t = t;
    let mut why = why;
    for _ in 0..MAX_SCHEDULERS {
        let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
        let cpu = CpuId::new(t.cpu.load(Ordering::Relaxed)).ok_or(Error::Corrupt)?;
        let here = owner.node == cx.node.id() && cpu == cx.cpu();
        let word = t.scheduler.load(Ordering::Relaxed);
        if word == 0 {
            // A root thread: its CPU looks at it by itself.
            if !here {
                inbox::notify::<P>(owner.node, cpu);
            }
            return Ok(());
        }
        let (endpoints, _) = follow::<Endpoints>(cx.node, word, Endpoints::KIND)?;
        let line = endpoints.line(dyad_abi::service::scheduler_line(owner.node, cpu))?;
        line.push_event(cx.node, t, why)?;
        let Some(waiter) = line.take_waiter(cx.node) else {
            // It runs something else: interrupt that.
            match here {
                true => cx.local.has_told.set(true),
                false => inbox::notify::<P>(owner.node, cpu),
            }
            return Ok(());
        };
        // It has been stopped meanwhile, and does not want to know; or it has not gone to sleep yet, and
        // looks once more.
        if !make_ready(cx, waiter)? {
            return Ok(());
        }
        (t, why) = (waiter.thread, Woken::Ready);
    }
    Err(Error::TooDeep)
}

/// Takes what is pending at an endpoint: the event of a thread first, else all bits; 0 if nothing is pending.
/// A thread that has moved to another CPU since it was put on the list is forwarded to the scheduler of that
/// CPU, which has not been told of it.
pub fn take_pending<P: Platform>(cx: &KernelCtx, line: &Line) -> u64 {
    // Bounded: others may put threads on the list as fast as they are taken off.
    if line.has_threads(cx.node) {
        for _ in 0..endpoint::LINES {
            let Some((t, why)) = line.take_thread(cx.node) else {
                break;
            };
            let Some(why) = Woken::from_number(why) else {
                continue;
            };
            if scheduler_line(cx, t).is_none_or(|at| core::ptr::eq(at, line)) {
                let tag = t.tag.load(Ordering::Relaxed) as u32;
                return Event { tag, why }.bits();
            }
            let _ = tell_scheduler::<P>(cx, t, why);
        }
    }
    line.take_bits(cx.node)
}

/// The endpoint that reports a thread to its scheduler; `None` if the thread is in transit. A scheduler
/// object has one endpoint for each CPU of the system, so that each CPU's scheduler is told only of its own
/// threads.
fn scheduler_line(cx: &KernelCtx, t: &Thread) -> Option<&'static Line> {
    let owner = t.owner(cx.words())?;
    if owner.state == State::Transit {
        return None;
    }
    let cpu = CpuId::new(t.cpu.load(Ordering::Relaxed))?;
    let word = t.scheduler.load(Ordering::Relaxed);
    let (endpoints, _) = follow::<Endpoints>(cx.node, word, Endpoints::KIND).ok()?;
    endpoints
        .line(dyad_abi::service::scheduler_line(owner.node, cpu))
        .ok()
}

/// Blocks the running thread at an endpoint that has nothing pending, until fused time `deadline`; 0 means
/// for ever. Its dispatcher is told the deadline, because the kernel has no timer for it: a scheduler wakes
/// its threads in time, and a CPU its root thread.
///
/// # Errors
///
/// [`Error::Exists`] if another thread waits there.
// Not part of `Receive`: a call that finds news would save the registers that a wait needs.
#[inline(never)]
pub fn block<P: Platform>(
    cx: &KernelCtx,
    endpoints: u64,
    index: u64,
    line: &'static Line,
    deadline: u64,
) -> Result<OpOutcome> {
    let t = current(cx);
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    // What the endpoint has is looked at when the thread next runs.
    t.waits_at.store(endpoints, Ordering::Relaxed);
    t.waits_line.store(index, Ordering::Relaxed);
    t.deadline.store(deadline, Ordering::Relaxed);
    t.result.store(2, Ordering::Relaxed);
    let next = take_dispatcher::<P>(cx, t);
    // The sender goes on without a turn of the run loop, and has not been chosen again since: what has become ready
    // meanwhile may be more urgent. Looked at before this thread's own news.
    let sent = matches!(next, Some((_, SwitchReason::Send)));
    let overdue = sent && cx.local.has_told.get() && {
        let pending = has_news(cx);
        cx.local.has_told.set(pending);
        pending
    };
    if next.is_none() {
        listens(cx, t, endpoints, line)?;
    }
    if !is_root(t) && !was_dispatched(&next) && deadline != 0 {
        // Its scheduler has not dispatched it, so it does not learn otherwise that it is to be
        // woken; and it gets the CPU back in time for that. Before anybody can wake it: newer news
        // take the place of these.
        // If it has no scheduler any more, it is not woken, and the sender goes on all the same.
        let _ = tell_scheduler::<P>(cx, t, Woken::Sleeps);
        if let Some((d, _)) = next {
            let end = d.slice_end.load(Ordering::Relaxed).min(deadline);
            d.slice_end.store(end, Ordering::Relaxed);
            cx.local.set_slice_end(end);
        }
    }
    release::<P>(cx, t);
    match sleep_at(cx, t, owner, line) {
        Ok(true) => {
            go_on(cx, next, Stopped::Blocked, deadline);
            if overdue {
                interrupt::<P>(cx);
            }
        }
        // It goes on at once.
        sleeps => {
            give_back(cx, next);
            if let Err(e) = sleeps {
                t.set_result(e.code(), 0);
            }
        }
    }
    Ok(OpOutcome::Switched)
}

/// Notes the endpoint where the thread under all others receives, if that is a root thread: what comes there interrupts the
/// thread that runs. Calls that do not wait count as well, because a scheduler that always has a ready thread never waits.
///
/// # Errors
///
/// [`Error::Corrupt`] if `endpoints` names no object.
#[cold]
pub fn listens(cx: &KernelCtx, t: &Thread, endpoints: u64, line: &'static Line) -> Result<()> {
    if is_root(t) {
        let object = WeakRef::from_bits(endpoints).ok_or(Error::Corrupt)?;
        cx.local.root_line.set(Some((object, line)));
    }
    Ok(())
}

/// Puts a running thread, whose whole state is in its frame, to sleep at an endpoint. Returns `true` if it
/// sleeps, or has been woken or stopped since and may run elsewhere. Returns `false` if something has come
/// and the thread still runs.
///
/// The thread becomes the waiter before it is BLOCKED. It can only be stopped once it is BLOCKED, so `Stop`
/// always finds it at its endpoint. This CPU therefore never stores to the endpoint after a later wait.
///
/// # Errors
///
/// [`Error::Exists`] if another thread waits there; [`Error::Corrupt`] if the thread was not running. In both
/// cases it does not wait.
#[inline]
pub fn sleep_at(cx: &KernelCtx, t: &'static Thread, owner: Owner, line: &Line) -> Result<bool> {
    let asleep = owner.asleep();
    let waiter = match line.wait(cx.node, t, asleep.seq)? {
        Waits::Yes { word } => word,
        Waits::No => return Ok(false),
        Waits::TakenOff => {
            // The CPU that has taken it off must not end its next wait, which has another number.
            t.change(cx.words(), owner, asleep.with(State::Running));
            return Ok(false);
        }
    };
    let words = SleepWords(cx.words());
    if !sleep::block(&words, Word::Owner(t), owner.bits(), asleep.bits()) {
        line.take_off(cx.node, t);
        return Err(Error::Corrupt);
    }
    // From here on it may run elsewhere. A sender that has taken it off while it was still RUNNING does not
    // wake it: either that sender sees that it is BLOCKED, or this sees that it is the waiter no more.
    let still_waits = sleep::still_waits(&words, Word::Waiter(&line.waiter), waiter);
    if still_waits || lacks!("dispatch::wait::sleep_at::look") {
        return Ok(true);
    }
    // The exchange fails if the thread has been woken or stopped since.
    Ok(!t.change(cx.words(), asleep, asleep.with(State::Running)))
}

/// Wakes a thread that a message has taken off an endpoint. Switches to it if it belongs to this CPU and has
/// a higher priority than the running thread.
pub fn wake_receiver<P: Platform>(
    cx: &KernelCtx,
    waiter: Waiter,
    at: Endpoint,
) -> Result<OpOutcome> {
    let (me, t) = (current(cx), waiter.thread);
    let waits = t.owner_word(cx.words());
    let here = Owner::says(waits, State::Blocked, cx.node.id(), cx.node.incarnation())
        && waiter.is_in(waits)
        && t.cpu.load(Ordering::Relaxed) == cx.cpu().index() as u64;
    // Priorities are those of the last dispatch: they decide which thread goes first, and no scheduler need
    // be asked.
    let urgent = t.priority.load(Ordering::Relaxed) > me.priority.load(Ordering::Relaxed);
    // A root thread is a scheduler: it decides itself who goes first.
    let scheduled = |t: &Thread| t.scheduler.load(Ordering::Relaxed) != 0;
    if !(here && urgent && scheduled(me) && scheduled(t) && !cx.local.chain.is_full()) {
        return match make_ready(cx, waiter)? {
            true => tell_scheduler::<P>(cx, t, Woken::Ready).map(|()| OpOutcome::Value(0)),
            false => Ok(OpOutcome::Value(0)),
        };
    }
    if !t.change_at_home(cx.words(), waits, waits ^ WOKEN) {
        return Ok(OpOutcome::Value(0));
    }
    // It was dispatched before, perhaps on a budget; now it is the sender that pays.
    t.budget.store(budget::inherited(me), Ordering::Relaxed);
    // What has come is taken now if it waits at this endpoint, where nothing need be looked up. It may
    // have been stopped, and wait somewhere else by now: then it looks there when it runs.
    if at.is_where(t) || lacks!("dispatch::wait::wake_receiver::place") {
        t.set_result(0, take_pending::<P>(cx, at.line));
    }
    // It runs within the sender's slice, and the sender goes on when it waits again.
    complete_frame::<P>(cx, me);
    me.set_result(0, 0);
    t.slice_end
        .store(me.slice_end.load(Ordering::Relaxed), Ordering::Relaxed);
    give(cx, t, SwitchReason::Send);
    Ok(OpOutcome::Switched)
}

/// The bits of an owner word that change when a waiting thread becomes ready.
const MADE_READY: u64 = State::Blocked as u64 ^ State::Ready as u64;
/// The bits of an owner word that change when a waiting thread is taken to run at once.
const WOKEN: u64 = State::Blocked as u64 ^ State::Running as u64;

/// An endpoint, with the names that its waiters store for it.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// The object: a weak reference to one that is alive.
    pub object: u64,
    /// The number of the line in the object.
    pub number: u64,
    /// The line.
    pub line: &'static Line,
}

impl Endpoint {
    /// Whether a thread that belongs to this CPU last waited at this endpoint.
    fn is_where(&self, t: &Thread) -> bool {
        t.waits_at.load(Ordering::Relaxed) == self.object
            && t.waits_line.load(Ordering::Relaxed) == self.number
    }
}

/// Takes a thread that must no longer wait off an endpoint, if it is there. Afterwards nothing refers to the
/// thread, and its frame may be untyped.
pub fn withdraw<P: Platform>(cx: &KernelCtx, t: &'static Thread, line: &Line) {
    let Some(waiter) = line.take_off(cx.node, t) else {
        return;
    };
    // Should it have begun to wait there again meanwhile, it looks again.
    if line_of(cx, t).is_ok_and(|now| core::ptr::eq(now, line)) {
        let _ = wake::<P>(cx, waiter, Woken::Ready);
    }
}

/// Takes a stopped thread off the endpoint that it waited at, if it is still there. The thread's own words
/// name the endpoint and stay as they are; they may be old, and then no endpoint has the thread.
pub fn wait_no_more<P: Platform>(cx: &KernelCtx, t: &'static Thread) {
    if let Ok(line) = line_of(cx, t) {
        withdraw::<P>(cx, t, line);
    }
}

/// The endpoint that a thread waits at, or last waited at.
///
/// # Errors
///
/// [`Error::NotFound`], [`Error::Revoked`] if the thread has never waited, or the endpoints are gone and no
/// sender finds it there.
pub(super) fn line_of(cx: &KernelCtx, t: &Thread) -> Result<&'static Line> {
    let word = t.waits_at.load(Ordering::Relaxed);
    let (endpoints, _) = follow::<Endpoints>(cx.node, word, Endpoints::KIND)?;
    endpoints.line(t.waits_line.load(Ordering::Relaxed))
}

/// Whether a blocked thread is the waiter of the endpoint that its words name. If not, another CPU has taken
/// it off and is about to wake it. Returns `true` if the endpoints are gone, because then nothing can be
/// said.
pub fn is_waiter(cx: &KernelCtx, t: &'static Thread) -> bool {
    let Ok(line) = line_of(cx, t) else {
        return true;
    };
    line.is_waiter(cx.node, t)
}

/// Takes a blocked thread off its endpoint; the caller must wake it. Returns `None` if another CPU has just
/// taken it off, and wakes it.
pub fn stop_waiting(cx: &KernelCtx, t: &'static Thread) -> Option<Waiter> {
    match line_of(cx, t) {
        Ok(line) => line.take_off(cx.node, t),
        // An endpoint that is gone finds no thread.
        Err(_) => t.owner(cx.words()).map(|o| Waiter::of(t, o)),
    }
}

/// Posts a message of the kernel itself, an interrupt, to an endpoint. No capability is checked: that was
/// done when the interrupt was attached.
///
/// # Errors
///
/// [`Error::Revoked`] if the endpoint is gone.
pub fn post<P: Platform>(cx: &KernelCtx, object: WeakRef, line: u64, bits: u64) -> Result<()> {
    let endpoints: &'static Endpoints = find(cx.node, object, Endpoints::KIND)?;
    let line = endpoints.line(line)?;
    match line.post(cx.node, bits) {
        None => {
            notify_bound::<P>(cx, line);
            Ok(())
        }
        // Not switched to at once: interrupts are delivered in the run loop, where there may be no
        // running thread to switch from.
        Some(waiter) => wake::<P>(cx, waiter, Woken::Ready),
    }
}

/// Notifies the CPU that an endpoint without a waiter is bound to, if that is another CPU. That CPU may be
/// asleep: the root thread that receives there does not count as a waiter, and the CPU checks its endpoint in
/// the run loop.
pub(crate) fn notify_bound<P: Platform>(cx: &KernelCtx, line: &Line) -> OpOutcome {
    if let Some((node, cpu)) = line.home()
        && (node != cx.node.id() || cpu != cx.cpu())
    {
        dyad_machine::inbox::notify::<P>(node, cpu);
    }
    OpOutcome::Value(0)
}
