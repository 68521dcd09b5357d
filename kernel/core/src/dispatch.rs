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
//! Threads that become ready while nobody runs them are told to their scheduler by its endpoint
//! ([`crate::object::endpoint`]), from whichever node.
//!
//! | step | order |
//! |---|---|
//! | a thread is given up: registers complete, floating point saved; then its owner word | release |
//! | a thread is taken: CAS READY -> RUNNING | acquire |
//! | a thread is woken: CAS BLOCKED -> READY; event; the scheduler's CPU is notified | each before the next |

use core::cell::Cell;
use core::sync::atomic::Ordering;

use dyad_abi::cap::{Event, Stopped, Woken};
use dyad_abi::{CpuId, Error, Result};
use dyad_shm::frame::WeakRef;

use crate::cpu::CpuLocal;
use crate::cx::Cx;
use crate::node::Node;
use crate::object::component::Component;
use crate::object::endpoint::{self, Endpoints, Line};
use crate::object::space::Space;
use crate::object::thread::{Owner, State, Thread, begun};
use crate::object::time::{Budgets, UNLIMITED};
use crate::object::{self, find, follow, frame_of, link_to};
use crate::{Platform, clock, handover, inbox, view};

/// Links of schedulers of schedulers that a wake-up follows.
const MAX_SCHEDULERS: usize = 4;
/// Attempts at changing a budget that others change at the same time.
const CHARGE_TRIES: usize = 64;
/// Longest chain of dispatchers.
pub const MAX_CHAIN: usize = 8;

/// What has become of the running thread in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
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
pub fn current(cx: &Cx) -> &'static Thread {
    cx.local
        .thread
        .get()
        .expect("an operation without a running thread")
}

/// Completes the registers of the running thread, which entered by the short way, because it will
/// not leave by it.
#[inline]
pub fn settle<P: Platform>(cx: &Cx, t: &'static Thread) {
    if cx.local.short_entry.replace(false) {
        P::complete_area(t.regs(P::ISA), 0, [0; 5]);
    }
}

/// The value of an operation that may have made this CPU leave what the thread runs in, because
/// that is gone: then the thread is looked up anew before it goes on.
pub fn still_here<P: Platform>(cx: &Cx, value: u64) -> After {
    if cx.local.space.get() != 0 {
        return After::Value(value);
    }
    let t = current(cx);
    settle::<P>(cx, t);
    t.set_result(0, value);
    After::Switched
}

/// Takes a thread off this CPU for good: whoever owns it next finds everything in its frame.
pub fn release<P: Platform>(cx: &Cx, t: &'static Thread) {
    settle::<P>(cx, t);
    if cx.local.holds(t) {
        P::save_fp(t.fp(P::ISA));
        cx.local.holding.set(None);
    }
    cx.words().hand_over(t);
}

/// How a thread got the CPU from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The other called `Dispatch` and is told when this one stops.
    Dispatch,
    /// The other sent to an endpoint where this one waited, and goes on when this one waits again.
    Send,
}

/// The threads under the running one on this CPU: each gave the CPU to the next, the last one to the
/// running thread. They stay this CPU's meanwhile.
pub struct Chain {
    links: [Cell<Option<(&'static Thread, By)>>; MAX_CHAIN],
    len: Cell<usize>,
}

impl Chain {
    /// Nobody.
    pub const fn new() -> Chain {
        Chain {
            links: [const { Cell::new(None) }; MAX_CHAIN],
            len: Cell::new(0),
        }
    }

    fn is_full(&self) -> bool {
        self.len.get() >= MAX_CHAIN
    }

    fn last(&self) -> Option<(&'static Thread, By)> {
        self.links
            .get(self.len.get().wrapping_sub(1))
            .and_then(Cell::get)
    }

    /// The caller has seen that there is room.
    fn push(&self, t: &'static Thread, how: By) {
        let n = self.len.get();
        if let Some(link) = self.links.get(n) {
            link.set(Some((t, how)));
            self.len.set(n + 1);
        }
    }

    pub(crate) fn pop(&self) -> Option<(&'static Thread, By)> {
        let last = self.last();
        if last.is_some() {
            self.len.set(self.len.get() - 1);
        }
        last
    }
}

impl Default for Chain {
    fn default() -> Chain {
        Chain::new()
    }
}

/// Gives the CPU from the running thread, which stays this CPU's, to `next`, which has been taken.
fn give(cx: &Cx, next: &'static Thread, how: By) {
    cx.local.chain.push(current(cx), how);
    cx.local.thread.set(Some(next));
}

/// Takes the time a thread has run off the budget it ran on.
#[cold]
fn charge<P: Platform>(cx: &Cx, t: &Thread) {
    let word = t.budget.swap(0, Ordering::Relaxed);
    let used = clock::now::<P>()
        .0
        .saturating_sub(t.budget_from.load(Ordering::Relaxed));
    let at = t.budget_line.load(Ordering::Relaxed) as usize;
    // A budget that has been given up meanwhile takes no charge.
    if let Ok((budgets, _)) = follow::<Budgets>(cx.node, word, Budgets::KIND)
        && let Some(left) = budgets.left.get(at)
    {
        for _ in 0..CHARGE_TRIES {
            let has = cx.words().read(left);
            if has == UNLIMITED || cx.words().exchange(left, has, has.saturating_sub(used)) {
                break;
            }
        }
    }
}

/// Takes note of who goes on when `t` stops. While `t` still belongs to this CPU.
pub(crate) fn take_dispatcher<P: Platform>(cx: &Cx, t: &Thread) -> Option<(&'static Thread, By)> {
    if t.budget.load(Ordering::Relaxed) != 0 {
        charge::<P>(cx, t);
    }
    cx.local.chain.pop()
}

/// The running thread has stopped: whoever gave it the CPU goes on.
pub(crate) fn go_on(cx: &Cx, next: Option<(&'static Thread, By)>, why: Stopped, detail: u64) {
    if let Some((d, By::Dispatch)) = next {
        d.set_result(0, why as u64 | detail << 8);
    }
    cx.local.thread.set(next.map(|(d, _)| d));
}

/// The running thread does not stop after all.
pub(crate) fn give_back(cx: &Cx, next: Option<(&'static Thread, By)>) {
    if let Some((d, how)) = next {
        cx.local.chain.push(d, how);
    }
}

/// `Dispatch`: runs a thread of this node on this CPU.
///
/// # Errors
///
/// [`Error::NotReady`] if it is not ready, not here, or the chain of dispatchers is too long.
pub fn dispatch<P: Platform>(
    cx: &Cx,
    t: &'static Thread,
    slice_ns: u64,
    priority: u64,
    budget: Option<(&'static Budgets, usize, u64)>,
) -> Result<After> {
    let me = current(cx);
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    if owner.state != State::Ready || !owner.is(cx.node.id(), cx.node.incarnation()) {
        return Err(Error::NotReady);
    }
    if cx.local.chain.is_full() {
        return Err(Error::TooDeep);
    }
    let mut end = me.slice_end.load(Ordering::Relaxed);
    let mut charged = 0;
    if slice_ns != 0 || budget.is_some() {
        let now = clock::now::<P>();
        if slice_ns != 0 {
            end = end.min(now.after(slice_ns).0);
        }
        if let Some((budgets, at, frame)) = budget {
            let left = cx.words().read(&budgets.left[at]);
            if left == 0 {
                return Err(Error::NoTime);
            }
            if left != UNLIMITED {
                end = end.min(now.after(left).0);
                t.budget_line.store(at as u64, Ordering::Relaxed);
                t.budget_from.store(now.0, Ordering::Relaxed);
                charged = frame;
            }
        }
    }
    if !t.change(cx.words(), owner, owner.with(State::Running)) {
        return Err(Error::NotReady);
    }
    settle::<P>(cx, me);
    t.cpu.store(cx.cpu().index() as u64, Ordering::Relaxed);
    t.priority.store(priority, Ordering::Relaxed);
    t.budget.store(charged, Ordering::Relaxed);
    t.slice_end.store(end, Ordering::Relaxed);
    cx.local.set_slice_end(end);
    give(cx, t, By::Dispatch);
    Ok(After::Switched)
}

/// Takes the CPU from the running thread and those under it as long as `must` says so: each is
/// ready again, and its scheduler knows it.
fn preempt<P: Platform>(cx: &Cx, why: Stopped, must: impl Fn(&Thread) -> bool) {
    for _ in 0..=MAX_CHAIN {
        let Some(t) = cx.local.thread.get() else {
            return;
        };
        let Some((_, how)) = cx.local.chain.last() else {
            return;
        };
        if !must(t) {
            return;
        }
        let Some(owner) = t.owner(cx.words()) else {
            return;
        };
        go_on(cx, take_dispatcher::<P>(cx, t), why, 0);
        release::<P>(cx, t);
        t.change(cx.words(), owner, owner.with(State::Ready));
        // Whoever was switched to by a message was dispatched by nobody who would know of it.
        if how == By::Send {
            let _ = tell_scheduler::<P>(cx, t, Woken::Ready);
        }
    }
}

/// Ends the slices that are used up.
pub fn slice_over<P: Platform>(cx: &Cx) {
    let now = clock::now::<P>().0;
    preempt::<P>(cx, Stopped::Preempted, |t| {
        t.slice_end.load(Ordering::Relaxed) <= now
    });
    if let Some(t) = cx.local.thread.get() {
        cx.local.set_slice_end(t.slice_end.load(Ordering::Relaxed));
    }
}

/// Gives the CPU back to its root thread if something has come in for that.
pub fn serve_root<P: Platform>(cx: &Cx) {
    let news = cx
        .local
        .root_line
        .get()
        // Endpoints that are gone have no news; their frame may be anything.
        .is_some_and(|(object, line)| {
            line.has_news(cx.node) && cx.frames().is_object(object, Endpoints::KIND)
        });
    if news {
        preempt::<P>(cx, Stopped::Interrupted, |_| true);
    }
}

/// Makes a thread that has been taken off an endpoint, or timed out there, ready.
pub fn wake<P: Platform>(cx: &Cx, t: &'static Thread, why: Woken) -> Result<()> {
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    if owner.state != State::Blocked || !t.change(cx.words(), owner, owner.with(State::Ready)) {
        return Err(Error::NotReady);
    }
    tell_scheduler::<P>(cx, t, why)
}

/// Tells the scheduler of a ready thread, wherever it is.
pub fn tell_scheduler<P: Platform>(cx: &Cx, t: &'static Thread, why: Woken) -> Result<()> {
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
        let Some(scheduler) = line.take_waiter(cx.node) else {
            // It runs something else: interrupt that.
            if !here {
                inbox::notify::<P>(owner.node, cpu);
            }
            return Ok(());
        };
        let s = scheduler.owner(cx.words()).ok_or(Error::Corrupt)?;
        if s.state != State::Blocked || !scheduler.change(cx.words(), s, s.with(State::Ready)) {
            return Ok(());
        }
        (t, why) = (scheduler, Woken::Ready);
    }
    Err(Error::TooDeep)
}

/// Takes what has come to an endpoint: the event of a thread first, else all bits; 0 if there is
/// nothing. Threads that have moved to another CPU since they were put on the list are passed on to
/// the scheduler there, which has not been told because they were on this one.
pub fn take_news<P: Platform>(cx: &Cx, line: &Line) -> u64 {
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

/// The endpoint at which the scheduler of a thread hears of it, unless it is on its way.
fn scheduler_line(cx: &Cx, t: &Thread) -> Option<&'static Line> {
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

/// The running thread waits at an endpoint with nothing to take.
///
/// # Errors
///
/// [`Error::Exists`] if another thread waits there.
pub fn block<P: Platform>(
    cx: &Cx,
    endpoints: u64,
    index: u64,
    line: &'static Line,
    deadline: u64,
) -> Result<After> {
    let t = current(cx);
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    // What the endpoint has is looked at when the thread next runs.
    t.waits_at.store(endpoints, Ordering::Relaxed);
    t.waits_line.store(index, Ordering::Relaxed);
    t.deadline.store(deadline, Ordering::Relaxed);
    t.result.store(2, Ordering::Relaxed);
    let next = take_dispatcher::<P>(cx, t);
    if next.is_none() {
        // A root thread: what comes here interrupts whoever runs.
        let object = WeakRef::from_bits(endpoints).ok_or(Error::Corrupt)?;
        cx.local.root_line.set(Some((object, line)));
    }
    if let Some((d, By::Send)) = next
        && deadline != 0
    {
        // Its scheduler has not dispatched it, so it does not learn otherwise that it is to be
        // woken; and it gets the CPU back in time for that. Before anybody can wake it: newer news
        // take the place of these.
        tell_scheduler::<P>(cx, t, Woken::Sleeps)?;
        let end = d.slice_end.load(Ordering::Relaxed).min(deadline);
        d.slice_end.store(end, Ordering::Relaxed);
        cx.local.set_slice_end(end);
    }
    release::<P>(cx, t);
    if !t.change(cx.words(), owner, owner.with(State::Blocked)) {
        return Err(Error::Corrupt);
    }
    let waits = line.wait(cx.node, t);
    if let Ok(true) = waits {
        // From here on it may run elsewhere. Whoever stopped it before it was the waiter did not find
        // it there: either they see the waiter, or this sees that it is stopped.
        if t.owner(cx.words()) != Some(owner.with(State::Blocked)) {
            withdraw::<P>(cx, t, line);
        }
        go_on(cx, next, Stopped::Blocked, deadline);
        return Ok(After::Switched);
    }
    // Something came, or somebody else waits here: it goes on at once, unless it has been stopped
    // meanwhile.
    if t.change(cx.words(), owner.with(State::Blocked), owner) {
        give_back(cx, next);
        if let Err(e) = waits {
            t.set_result(e.code(), 0);
        }
    } else {
        go_on(cx, next, Stopped::Blocked, deadline);
    }
    Ok(After::Switched)
}

/// Wakes the thread taken off an endpoint after a message: switches to it if it belongs to this
/// CPU and is more urgent than the running one.
pub fn wake_receiver<P: Platform>(cx: &Cx, t: &'static Thread) -> Result<After> {
    let me = current(cx);
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    let mine = owner.is(cx.node.id(), cx.node.incarnation())
        && t.cpu.load(Ordering::Relaxed) == cx.cpu().index() as u64;
    let urgent = t.priority.load(Ordering::Relaxed) > me.priority.load(Ordering::Relaxed);
    if owner.state != State::Blocked {
        return Ok(After::Value(0));
    }
    // A root thread is a scheduler: it decides itself who goes first.
    let scheduled = |t: &Thread| t.scheduler.load(Ordering::Relaxed) != 0;
    if !(mine && urgent && scheduled(me) && scheduled(t) && !cx.local.chain.is_full()) {
        wake::<P>(cx, t, Woken::Ready)?;
        return Ok(After::Value(0));
    }
    if !t.change(cx.words(), owner, owner.with(State::Running)) {
        return Ok(After::Value(0));
    }
    settle::<P>(cx, me);
    me.set_result(0, 0);
    t.slice_end
        .store(me.slice_end.load(Ordering::Relaxed), Ordering::Relaxed);
    give(cx, t, By::Send);
    Ok(After::Switched)
}

/// Makes this CPU hold a thread's component, address space and floating-point registers.
///
/// # Errors
///
/// [`Error::Revoked`] if its component is gone; [`Error::NoIsa`] if its space has no table here.
#[inline]
fn load<P: Platform>(cx: &Cx, t: &'static Thread) -> Result<()> {
    if !cx.local.holds(t) {
        if let Some(other) = cx.local.holding.get() {
            P::save_fp(other.fp(P::ISA));
        }
        cx.local.holding.set(None);
        if t.begun(P::ISA) == begun::NOT {
            handover::start::<P>(t);
        }
        if t.fresh_fp.load(Ordering::Relaxed) != 0 {
            t.fresh_fp.store(0, Ordering::Relaxed);
            P::init_fp(t.fp(P::ISA));
        }
        P::restore_fp(t.fp(P::ISA));
        enter_component::<P>(cx, t.component.load(Ordering::Relaxed))?;
        cx.local.holding.set(Some(t));
    }
    match t.result.load(Ordering::Acquire) {
        0 => {}
        1 => {
            t.result.store(0, Ordering::Relaxed);
            let status = t.result_status.load(Ordering::Relaxed);
            let value = t.result_value.load(Ordering::Relaxed);
            P::set_result(t.regs(P::ISA), status, value);
        }
        _ => {
            t.result.store(0, Ordering::Relaxed);
            let news = line_of(cx, t).map(|line| take_news::<P>(cx, line));
            match news {
                Ok(bits) => P::set_result(t.regs(P::ISA), 0, bits),
                Err(e) => P::set_result(t.regs(P::ISA), e.code(), 0),
            }
        }
    }
    Ok(())
}

/// Makes this CPU hold a component: capability table and address space.
#[inline]
pub fn enter_component<P: Platform>(cx: &Cx, word: u64) -> Result<()> {
    if view::enter_component::<P>(cx.local, word) {
        return Ok(());
    }
    enter_slowly::<P>(cx, word)?;
    view::learn_component::<P>(cx, word);
    Ok(())
}

#[cold]
fn enter_slowly<P: Platform>(cx: &Cx, word: u64) -> Result<()> {
    let (component, _) = follow::<Component>(cx.node, word, Component::KIND)?;
    let captbl = component.captbl_root()?;
    let space = component.space()?;
    // All or nothing: nobody must go on in one component with the capabilities of another.
    if cx.local.space.get() != space.bits() {
        let frame: &'static Space = find(cx.node, space, Space::KIND)?;
        P::switch_root(frame.root(cx.words(), P::ISA).ok_or(Error::NoIsa)?);
        cx.local.space.set(space.bits());
    }
    cx.local.captbl.set(captbl);
    cx.local.component.set(word);
    Ok(())
}

/// Leaves whatever address space this CPU is in.
pub fn leave_space<P: Platform>(cx: &Cx) {
    if cx.local.space.replace(0) != 0 {
        P::switch_root(P::idle_root());
    }
    cx.local.component.set(0);
}

/// Continues the running thread, by the shortest way; comes back only if it cannot run.
#[inline]
pub fn resume<P: Platform>(cx: &Cx) {
    while let Some(t) = cx.local.thread.get() {
        if load::<P>(cx, t).is_ok() {
            P::resume_user(t.regs(P::ISA));
        }
        cannot_run::<P>(cx, t);
    }
}

/// The running thread has nothing to run in.
fn cannot_run<P: Platform>(cx: &Cx, t: &'static Thread) {
    crate::error!(
        P,
        "thread {} cannot run here: its component or address space is gone",
        t.id.load(Ordering::Relaxed)
    );
    end_thread::<P>(cx, t, Stopped::Faulted, 0);
}

/// Ends the running thread; whoever dispatched it learns why.
pub fn end_thread<P: Platform>(cx: &Cx, t: &'static Thread, why: Stopped, detail: u64) {
    let owner = t.owner(cx.words());
    let next = take_dispatcher::<P>(cx, t);
    if let Some((_, By::Send)) = next {
        let _ = tell_scheduler::<P>(cx, t, Woken::Ended);
    }
    go_on(cx, next, why, detail);
    release::<P>(cx, t);
    if let Some(o) = owner {
        t.change(cx.words(), o, o.with(State::Stopped));
    }
}

/// `Yield`: the running thread gives the CPU back and stays ready.
pub fn yield_now<P: Platform>(cx: &Cx, t: &'static Thread) -> After {
    let Some(owner) = t.owner(cx.words()) else {
        return After::Value(0);
    };
    let Some(next) = take_dispatcher::<P>(cx, t) else {
        return After::Value(0);
    };
    t.set_result(0, 0);
    release::<P>(cx, t);
    t.change(cx.words(), owner, owner.with(State::Ready));
    if next.1 == By::Send {
        // Whoever dispatched the sender does not know that this one is ready.
        let _ = tell_scheduler::<P>(cx, t, Woken::Ready);
    }
    go_on(cx, Some(next), Stopped::Yielded, 0);
    After::Switched
}

/// Takes a thread that is not to wait there any more off an endpoint, if it is there. Its frame may
/// be given up after that: nothing leads to it.
pub(crate) fn withdraw<P: Platform>(cx: &Cx, t: &'static Thread, line: &Line) {
    if !frame_of(cx.node, t).is_some_and(|f| cx.words().exchange(&line.waiter, link_to(f), 0)) {
        return;
    }
    // Should it have begun to wait there again meanwhile, it looks again.
    if line_of(cx, t).is_ok_and(|now| core::ptr::eq(now, line)) {
        let _ = wake::<P>(cx, t, Woken::Ready);
    }
}

/// Takes a thread that has been stopped off the endpoint it waited at, if it is still there.
pub fn wait_no_more<P: Platform>(cx: &Cx, t: &'static Thread) {
    if let Ok(line) = line_of(cx, t) {
        withdraw::<P>(cx, t, line);
    }
}

/// The endpoint a thread waits at, or has waited at last.
fn line_of(cx: &Cx, t: &Thread) -> Result<&'static Line> {
    let word = t.waits_at.load(Ordering::Relaxed);
    let (endpoints, _) = follow::<Endpoints>(cx.node, word, Endpoints::KIND)?;
    endpoints.line(t.waits_line.load(Ordering::Relaxed))
}

/// Takes a blocked thread off the endpoint it waits at. `false`: somebody has just found it there,
/// and wakes it.
pub fn stop_waiting(cx: &Cx, t: &'static Thread) -> bool {
    // An endpoint that is gone finds nobody.
    let Ok(line) = line_of(cx, t) else {
        return true;
    };
    frame_of(cx.node, t).is_some_and(|f| cx.words().exchange(&line.waiter, link_to(f), 0))
}

fn root(cx: &Cx) -> Option<&'static Thread> {
    let word = cx.node.roots[cx.cpu().index()].load(Ordering::Acquire);
    if word == 0 {
        return None;
    }
    follow::<Thread>(cx.node, word, Thread::KIND)
        .ok()
        .map(|(t, _)| t)
}

/// Whether the root thread of this CPU could run.
pub fn root_ready(cx: &Cx) -> bool {
    root(cx)
        .and_then(|t| t.owner(cx.words()))
        .is_some_and(|o| o.state == State::Ready)
}

/// Fused time until which the root thread waits; never, if it is not waiting.
pub fn root_deadline(cx: &Cx) -> u64 {
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
pub fn root_timeout<P: Platform>(cx: &Cx) {
    if root_deadline(cx) <= clock::now::<P>().0
        && let Some(t) = root(cx)
        && stop_waiting(cx, t)
    {
        // Nobody else can have woken it, having found it nowhere.
        let _ = wake::<P>(cx, t, Woken::Ready);
    }
}

/// Takes the root thread of this CPU if it is ready. It runs with all the time there is.
pub fn take_root(cx: &Cx) -> bool {
    let Some(root) = root(cx) else {
        return false;
    };
    let Some(owner) = root.owner(cx.words()) else {
        return false;
    };
    if owner.state != State::Ready
        || !owner.is(cx.node.id(), cx.node.incarnation())
        || !root.change(cx.words(), owner, owner.with(State::Running))
    {
        return false;
    }
    root.slice_end.store(u64::MAX, Ordering::Relaxed);
    cx.local.set_slice_end(u64::MAX);
    cx.local.thread.set(Some(root));
    true
}

/// Makes a thread the root thread of a CPU of this node: the one it runs when nobody else does.
pub fn set_root<P: Platform>(cx: &Cx, cpu: CpuId, t: &'static Thread) -> Result<()> {
    let owner = t.owner(cx.words()).ok_or(Error::Corrupt)?;
    if owner.state != State::Ready && owner.state != State::Stopped {
        return Err(Error::NotReady);
    }
    let reference = object::reference(cx.node, t).ok_or(Error::Corrupt)?;
    t.cpu.store(cpu.index() as u64, Ordering::Relaxed);
    t.scheduler.store(0, Ordering::Relaxed);
    let ours = Owner {
        state: State::Ready,
        node: cx.node.id(),
        incarnation: cx.node.incarnation(),
        seq: owner.seq.wrapping_add(1),
    };
    if !t.change(cx.words(), owner, ours) {
        return Err(Error::NotReady);
    }
    cx.node.roots[cpu.index()].store(reference.bits(), Ordering::Release);
    if cpu != cx.cpu() {
        inbox::notify::<P>(cx.node.id(), cpu);
    }
    Ok(())
}

/// What the root thread of a CPU is doing, for reports.
pub fn describe_root(node: &Node, local: &CpuLocal) -> &'static str {
    let word = node.roots[local.id().index()].load(Ordering::Acquire);
    let state = follow::<Thread>(node, word, Thread::KIND)
        .ok()
        .and_then(|(t, _)| t.owner(node.words))
        .map(|o| o.state);
    let news = local
        .root_line
        .get()
        .is_some_and(|(_, line)| line.has_news(node));
    match (state, news) {
        (None, _) => "no scheduler",
        (Some(State::Blocked), false) => "its scheduler waits",
        (Some(State::Blocked), true) => "its scheduler waits although there are news",
        (Some(State::Ready), _) => "its scheduler is ready",
        (Some(_), _) => "its scheduler neither waits nor is ready",
    }
}
