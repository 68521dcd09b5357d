//! The executor: runs the program's tasks on the present node of the program's thread.
//!
//! It uses one thread, the program's first; all state is in the program's heap and statics, and none on the
//! native stack between two rounds. The loop therefore begins anew wherever the thread arrives, on an empty stack
//! of that ISA:
//!
//! ```text
//!           on one node                                on another
//!  start ─▶ run ─▶ ┌─ step ◀─┐                moved ─▶ run ─▶ arrive ─▶ ┌─ step ◀─┐
//!                  ▼         │                  ▲                       ▼         │
//!           Move(n): restart ┼──────────────────┘                    Move(n) ...  │
//!                  └▶ arrive ┘ (it has not left)
//! ```
//!
//! The node that the thread goes to is kept in [`State::moving`], and no borrow of the state is held meanwhile.
//!
//! A task belongs to a node, its *home*: where it was spawned, then where it last migrated to. It is polled
//! only there. Between rounds the loop checks whether a request asks the thread to move
//! ([`sys::take_request`]). The requested node then becomes the home of all tasks, except for those that are
//! just about to migrate themselves, and the thread moves there, even if all tasks sleep. A round polls the
//! tasks that are ready on this node. If tasks are ready on other nodes, the thread then moves to the one
//! that has waited longest, so tasks that are always ready cannot keep the others waiting.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::task::{Context, Waker};

use dyad_abi::ident::MAX_NODES;
use dyad_abi::user::stack_slot;
use dyad_rt::emulation::{self, Apart, Arrived, Going};
use dyad_rt::{Lock, program_local};
use dyad_sys as sys;
use dyad_sys::NodeId;
use thunderdome::{Arena, Index};

use crate::migration::MigrationStats;

pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;
/// How a move has ended.
type MoveResult = Result<(), sys::Error>;
/// The place where the result of a requested move appears.
pub(crate) type MoveOutcome = Rc<Cell<Option<MoveResult>>>;

/// A task's place, which no other task has while a waker of this one may be there.
type TaskId = Index;

/// Tasks to be polled, longest waiting first.
struct ReadyQueue {
    tasks: Lock<VecDeque<TaskId>>,
    /// Whether there may be any: set with each that is added. Only the executor clears it, under the lock.
    is_used: AtomicBool,
}

impl ReadyQueue {
    fn add(&self, id: TaskId) {
        let mut tasks = self.tasks.lock();
        tasks.push_back(id);
        self.is_used.store(true, Ordering::Relaxed);
    }
}

/// Puts its task into the queue, at most once until the task is polled.
struct TaskWaker {
    id: TaskId,
    queued: AtomicBool,
    ready: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.add(self.id);
        }
    }
}

struct Task {
    home: NodeId,
    request: Option<Request>,
    /// What a poll needs. `None` while it is being polled.
    rest: Option<(TaskFuture, Waker)>,
    waker: Arc<TaskWaker>,
}

/// A task's request to move.
struct Request {
    to: NodeId,
    outcome: MoveOutcome,
    waker: Waker,
    /// Whether the waker is that of the task.
    is_own: bool,
}

impl Task {
    /// The node where the task is polled next.
    fn node(&self) -> NodeId {
        self.request.as_ref().map_or(self.home, |r| r.to)
    }

    /// The thread has arrived `here` on its way to a node, or could not leave. The waker of the future that asked for the
    /// move, if it has to be woken: the task itself is polled next if it moves alone.
    fn arrive(
        &mut self,
        moving: Moving,
        here: NodeId,
        result: MoveResult,
        alone: bool,
    ) -> Option<Waker> {
        let Some(request) = self.request.take_if(|r| r.to == moving.to) else {
            // A node that cannot be reached: its tasks go on here rather than never.
            if result.is_err() && self.home == moving.to {
                self.home = here;
            }
            return None;
        };
        if result.is_ok() {
            self.home = here;
        }
        request.outcome.set(Some(result));
        (!alone || !request.is_own).then_some(request.waker)
    }
}

/// A move of the thread that is under way.
#[derive(Clone, Copy)]
struct Moving {
    from: NodeId,
    to: NodeId,
}

struct State {
    here: Option<NodeId>,
    tasks: Arena<Task>,
    polled: Option<TaskId>,
    ready: Option<Arc<ReadyQueue>>,
    timers: BTreeMap<(u64, u64), Waker>,
    next_timer: u64,
    /// Tasks that wait for something that comes in at the thread's endpoint.
    watching: Vec<Waker>,
    moving: Option<Moving>,
    /// The task that moves by itself: nothing else was ready when it asked for that, and it is polled first where it
    /// arrives, without the queue.
    alone: Option<TaskId>,
    /// The data stack pointer of a thread with `#[dyad::main]` when it began to run tasks.
    data_stack: Option<u64>,
    /// Wakers of tasks that have arrived; kept, so that an arrival allocates nothing.
    woken: Vec<Waker>,
    /// The place of an earlier outcome, for the next one.
    spare: Option<MoveOutcome>,
    /// How often the thread has moved, from each node to each.
    crossings: [[u64; MAX_NODES]; MAX_NODES],
    exit: Option<u32>,
}

program_local! {
    static EXECUTOR: RefCell<State> = RefCell::new(State::new());
}

/// Records the data stack pointer when tasks begin on a thread that has a data stack.
pub(crate) fn begin_on_data_stack() {
    with(|s| s.data_stack = Some(dyad_rt::spine::data_stack_pointer()));
}

/// Rounds so far, as counted by this side. The value is not used.
static TURNS: AtomicU64 = AtomicU64::new(0);

/// How far a round has come in the queue.
#[derive(Default)]
struct Round {
    /// Tasks that are ready elsewhere: they stay, at the queue's start.
    past: usize,
    /// These, and what is still to be looked at. `None` before the first look.
    left: Option<usize>,
}

/// The next action of the loop.
#[derive(Clone, Copy)]
enum Step {
    Poll,
    Move(NodeId),
    Sleep(u64),
    Exit(u32),
    Stalled,
}

impl State {
    const fn new() -> State {
        State {
            here: None,
            tasks: Arena::new(),
            polled: None,
            ready: None,
            timers: BTreeMap::new(),
            next_timer: 0,
            watching: Vec::new(),
            moving: None,
            alone: None,
            data_stack: None,
            woken: Vec::new(),
            spare: None,
            crossings: [[0; MAX_NODES]; MAX_NODES],
            exit: None,
        }
    }

    fn here(&mut self) -> NodeId {
        *self.here.get_or_insert_with(ask_where)
    }

    fn ready(&mut self) -> Arc<ReadyQueue> {
        self.ready
            .get_or_insert_with(|| {
                Arc::new(ReadyQueue {
                    tasks: Lock::new(VecDeque::new()),
                    is_used: AtomicBool::new(false),
                })
            })
            .clone()
    }

    /// The next task of a round: of those that were in the queue when the round began, which `round` tells, the first one
    /// that is ready on this node. Wake-ups add to the queue's end, and only this takes out of it.
    fn next_ready(&mut self, round: &mut Round) -> Option<TaskId> {
        if round.left == Some(round.past) {
            return None;
        }
        let here = self.here();
        let ready = self.ready.as_ref()?;
        let mut queue = ready.tasks.lock();
        let left = round.left.get_or_insert(queue.len());
        while round.past < *left {
            let id = *queue.get(round.past)?;
            match self.tasks.get(id).map(Task::node) {
                Some(node) if node != here => round.past += 1,
                known => {
                    match round.past {
                        0 => queue.pop_front(),
                        past => queue.remove(past),
                    };
                    *left -= 1;
                    if queue.is_empty() {
                        ready.is_used.store(false, Ordering::Relaxed);
                    }
                    if known.is_some() {
                        return Some(id);
                    }
                }
            }
        }
        None
    }

    /// Whether a task may be in the queue. A wake-up by another thread that is just being made may be missed, as if it came
    /// later.
    fn is_any_ready(&self) -> bool {
        let ready = self.ready.as_ref();
        ready.is_some_and(|ready| ready.is_used.load(Ordering::Relaxed))
    }

    /// The action after a round.
    fn next_step(&mut self) -> Step {
        if let Some(code) = self.exit {
            return Step::Exit(code);
        }
        let here = self.here();
        if let Some(ready) = self.ready.as_ref().filter(|_| self.is_any_ready()) {
            let queue = ready.tasks.lock();
            let mut nodes = queue
                .iter()
                .filter_map(|id| self.tasks.get(*id))
                .map(Task::node);
            if let Some(first) = nodes.next() {
                let elsewhere = core::iter::once(first).chain(nodes).find(|&n| n != here);
                return elsewhere.map_or(Step::Poll, Step::Move);
            }
        }
        match self.timers.first_key_value() {
            Some((&(deadline, _), _)) => Step::Sleep(deadline),
            None => Step::Stalled,
        }
    }

    /// Makes `to` the home of all tasks that are not about to migrate. Returns whether the thread has to
    /// move.
    fn send_all(&mut self, to: NodeId) -> bool {
        for (_, task) in self.tasks.iter_mut() {
            task.home = to;
        }
        self.here() != to
    }

    /// The polled task waits. If it waits for a move of its own and nothing else is to be done, it moves alone: the node
    /// that it goes to. Otherwise a task that is to move waits in the queue.
    fn wait(&mut self, id: TaskId, rest: (TaskFuture, Waker)) -> Option<NodeId> {
        self.polled = None;
        let is_any_ready = self.is_any_ready();
        let task = self.tasks.get_mut(id)?;
        let moves = task.request.as_mut().map(|request| {
            request.is_own = request.waker.will_wake(&rest.1);
            request.to
        });
        task.rest = Some(rest);
        let to = moves?;
        if is_any_ready || self.exit.is_some() || sys::is_requested() {
            task.waker.wake_by_ref();
            return None;
        }
        self.alone = Some(id);
        Some(to)
    }

    /// Completes a move: the thread has arrived, or has failed to leave. The wakers of the tasks concerned are then in
    /// `woken`.
    fn arrive(&mut self, result: Result<NodeId, sys::Error>) {
        let Some(moving) = self.moving.take() else {
            return;
        };
        let here = result.unwrap_or_else(|_| ask_where());
        let result = result.map(drop);
        self.here = Some(here);
        if result.is_ok() {
            self.crossings[moving.from.index()][here.index()] += 1;
        }
        // No other task is about to move with one that moves alone.
        if let Some(id) = self.alone.filter(|_| result.is_ok()) {
            if let Some(task) = self.tasks.get_mut(id) {
                self.woken.extend(task.arrive(moving, here, result, true));
            }
            return;
        }
        for (id, task) in self.tasks.iter_mut() {
            let alone = self.alone == Some(id);
            self.woken.extend(task.arrive(moving, here, result, alone));
        }
    }

    /// Takes the waker of a timer that is due.
    fn next_timer(&mut self, now: u64) -> Option<Waker> {
        let first = self.timers.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// The place for the outcome of a move: that of an earlier one, if that is no longer in use.
    fn place_of_outcome(&mut self) -> MoveOutcome {
        let spare = self.spare.take().filter(|s| Rc::strong_count(s) == 1);
        let outcome = spare.unwrap_or_else(|| Rc::new(Cell::new(None)));
        outcome.set(None);
        self.spare = Some(outcome.clone());
        outcome
    }
}

pub(crate) fn ask_where() -> NodeId {
    match sys::where_am_i() {
        Ok(w) => w.node,
        Err(e) => panic!("the kernel does not know where this thread is: {e}"),
    }
}

fn with<R>(f: impl FnOnce(&mut State) -> R) -> R {
    EXECUTOR.with(|e| f(&mut e.borrow_mut()))
}

/// A point where a thread whose code is interpreted can continue natively, because all its state is in
/// [`State`].
#[inline(never)]
pub(crate) fn between_rounds() {
    // Something to do, so that it is called.
    TURNS.store(TURNS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Continues a thread that was about to call [`between_rounds`] while it was interpreted. It starts with an
/// empty stack, because all its state is in [`State`].
pub(crate) fn land(at: &Arrived, _: Apart) -> sys::Result<Going> {
    let (_, top) = stack_slot(sys::isa(), sys::thread::id_of(at.thread));
    Ok(Going {
        node: at.here,
        pc: sys::entry::Entry::Landed.to(landed),
        stack: [emulation::empty(top), 0],
        argument: at.from.index() as u64,
    })
}

/// Continues on the node that has interpreted a thread from another node. The homes of tasks move from the
/// thread's old node to this one.
fn landed(from: u64) -> ! {
    with(|s| {
        let here = ask_where();
        // As far as the side knew that was interpreted.
        let from = s.here.replace(here).or(NodeId::new(from)).unwrap_or(here);
        let tasks = s.tasks.iter_mut().map(|(_, t)| t);
        tasks.filter(|t| t.home == from).for_each(|t| t.home = here);
    });
    run()
}

/// Runs the program's tasks until one calls [`finish`]; then exits. Begins anew wherever the thread arrives.
pub(crate) fn run() -> ! {
    EXECUTOR.with(|state| {
        let is_moving = state.borrow().moving.is_some();
        if is_moving {
            arrive(state, Ok(ask_where()));
        }
        rounds(state)
    })
}

fn rounds(state: &RefCell<State>) -> ! {
    loop {
        between_rounds();
        wake_watching(state);
        wake_timers(state);
        match poll_round(state) {
            Some(node) => go(state, node),
            None => behind_polls(state),
        }
    }
}

/// What is to be done behind the polls of a round. A function of its own: tasks that move do not come here.
#[inline(never)]
fn behind_polls(state: &RefCell<State>) {
    let step = state.borrow_mut().next_step();
    // Only here: a task that has just arrived where it wanted to be finds itself there.
    let asked = match step {
        Step::Exit(_) => None,
        _ => sys::take_request(),
    };
    match step {
        _ if let Some(node) = asked => {
            let moves = state.borrow_mut().send_all(node);
            if moves {
                go(state, node);
            }
        }
        Step::Poll => {}
        Step::Move(node) => go(state, node),
        Step::Sleep(deadline) => {
            // Waking early only costs a turn.
            let _ = sys::sleep_until(deadline);
        }
        Step::Exit(code) => sys::exit(code),
        Step::Stalled => {
            crate::eprintln!("error: every task waits for something that cannot happen");
            sys::exit(1)
        }
    }
}

/// Wakes the watching tasks after each step, so that they check again: after a sleep, because an event may
/// have ended it; after other steps, moves included, because they take time.
fn wake_watching(state: &RefCell<State>) {
    if state.borrow().watching.is_empty() {
        return;
    }
    let watching = core::mem::take(&mut state.borrow_mut().watching);
    watching.into_iter().for_each(Waker::wake);
}

/// Wakes `waker` when something has come in at the thread's endpoint, or earlier. The caller sets a timer as
/// well.
pub(crate) fn watch(waker: Waker) {
    with(|s| s.watching.push(waker));
}

/// Moves the thread to another node, where it begins with [`moved`]. Returns if it cannot leave.
fn go(state: &RefCell<State>, to: NodeId) {
    {
        let mut s = state.borrow_mut();
        // The data stack is the same on every ISA, and nothing of the executor may be on it.
        let used = dyad_rt::spine::data_stack_pointer();
        assert!(
            s.data_stack.is_none_or(|first| first == used),
            "tasks cannot move: they contain migration points of plain threads"
        );
        let from = s.here();
        s.moving = Some(Moving { from, to });
    }
    arrive(state, leave(to));
}

/// Leaves for another node.
#[cfg(target_os = "none")]
fn leave(node: NodeId) -> Result<NodeId, sys::Error> {
    // All state is in `State`, and no borrow of it is held: nothing on this stack is needed.
    Err(dyad_rt::spine::restart(node, moved, node.index() as u64))
}

/// On the host the thread stays where it is, and the emulated system says that it has moved.
#[cfg(not(target_os = "none"))]
fn leave(node: NodeId) -> Result<NodeId, sys::Error> {
    sys::migrate(node)
}

/// The thread has arrived on a node.
#[cfg(target_os = "none")]
fn moved(here: u64) -> ! {
    EXECUTOR.with(|state| {
        arrive(state, NodeId::new(here).ok_or(sys::Error::Corrupt));
        rounds(state)
    })
}

fn arrive(state: &RefCell<State>, result: Result<NodeId, sys::Error>) {
    let mut woken = {
        let mut s = state.borrow_mut();
        s.arrive(result);
        if s.woken.is_empty() {
            return;
        }
        core::mem::take(&mut s.woken)
    };
    // With no borrow held: a waker may use the executor.
    woken.drain(..).for_each(Waker::wake);
    state.borrow_mut().woken = woken;
}

fn wake_timers(state: &RefCell<State>) {
    if state.borrow().timers.is_empty() {
        return;
    }
    let now = now();
    while let Some(waker) = state.borrow_mut().next_timer(now) {
        waker.wake();
    }
}

/// Polls the tasks that are ready here. The node of a task that then moves alone, if there is one.
fn poll_round(state: &RefCell<State>) -> Option<NodeId> {
    let mut round = Round::default();
    loop {
        let (id, mut future, waker) = {
            let mut s = state.borrow_mut();
            let id = match s.alone.take() {
                Some(id) => id,
                None => s.next_ready(&mut round)?,
            };
            let Some(task) = s.tasks.get_mut(id) else {
                continue;
            };
            let Some((future, waker)) = task.rest.take() else {
                continue;
            };
            // From here on a wake-up means another poll, even if it comes during this one.
            task.waker.queued.store(false, Ordering::Release);
            s.polled = Some(id);
            (id, future, waker)
        };
        let done = future.as_mut().poll(&mut Context::from_waker(&waker));
        if done.is_ready() {
            // Dropped with no borrow held: destructors may use the executor.
            drop(future);
            let task = {
                let mut s = state.borrow_mut();
                s.polled = None;
                s.tasks.remove(id)
            };
            drop(task);
        } else {
            let moves = state.borrow_mut().wait(id, (future, waker));
            if moves.is_some() {
                return moves;
            }
        }
        if state.borrow().exit.is_some() {
            return None;
        }
    }
}

/// Adds a task, at home on this node.
pub(crate) fn spawn(future: TaskFuture) {
    let waker = with(|s| {
        let task = Task {
            home: s.here(),
            request: None,
            rest: None,
            waker: Arc::new(TaskWaker {
                id: Index::DANGLING,
                queued: AtomicBool::new(false),
                ready: s.ready(),
            }),
        };
        let id = s.tasks.insert(task);
        let task = &mut s.tasks[id];
        // No other thread has it yet.
        if let Some(waker) = Arc::get_mut(&mut task.waker) {
            waker.id = id;
        }
        let waker = task.waker.clone();
        task.rest = Some((future, Waker::from(waker.clone())));
        waker
    });
    waker.wake();
}

/// Ends the program after the poll that is under way.
pub(crate) fn finish(code: u32) {
    with(|s| s.exit = Some(code));
}

/// Requests that the polled task continue on the node that `to` names, given the present one. `None` if that is the
/// present one. An older request of the task ends with `Again`.
///
/// # Errors
///
/// That of `to`.
pub(crate) fn request_move(
    to: impl FnOnce(NodeId) -> Result<NodeId, sys::Error>,
    waker: &Waker,
) -> Result<Option<MoveOutcome>, sys::Error> {
    let (outcome, older) = with(|s| -> Result<_, sys::Error> {
        let here = s.here();
        let to = to(here)?;
        if to == here {
            return Ok((None, None));
        }
        let outcome = s.place_of_outcome();
        let Some(task) = s.polled.and_then(|id| s.tasks.get_mut(id)) else {
            // Only tasks can move.
            outcome.set(Some(Err(sys::Error::Denied)));
            return Ok((Some(outcome), None));
        };
        let older = task.request.replace(Request {
            to,
            outcome: outcome.clone(),
            waker: waker.clone(),
            is_own: false,
        });
        Ok((Some(outcome), older))
    })?;
    if let Some(older) = older {
        older.outcome.set(Some(Err(sys::Error::Again)));
        older.waker.wake();
    }
    Ok(outcome)
}

/// Withdraws a request whose future was dropped.
pub(crate) fn cancel_move(outcome: &MoveOutcome) {
    with(|s| {
        for (_, task) in s.tasks.iter_mut() {
            task.request.take_if(|r| Rc::ptr_eq(&r.outcome, outcome));
        }
    });
}

/// Sets a timer, or replaces the waker of timer `old` of the same deadline.
pub(crate) fn set_timer(deadline: u64, old: Option<u64>, waker: Waker) -> u64 {
    with(|s| {
        let timer = old.unwrap_or_else(|| {
            s.next_timer += 1;
            s.next_timer
        });
        s.timers.insert((deadline, timer), waker);
        timer
    })
}

pub(crate) fn cancel_timer(deadline: u64, timer: u64) {
    drop(with(|s| s.timers.remove(&(deadline, timer))));
}

pub(crate) fn crossings() -> Vec<MigrationStats> {
    let all = with(|s| s.crossings);
    let pairs = NodeId::first(MAX_NODES)
        .flat_map(|from| NodeId::first(MAX_NODES).map(move |to| (from, to)));
    pairs
        .map(|(from, to)| MigrationStats {
            from,
            to,
            count: all[from.index()][to.index()],
        })
        .filter(|c| c.count != 0)
        .collect()
}

pub(crate) fn here() -> NodeId {
    with(State::here)
}

pub(crate) fn now() -> u64 {
    match sys::now() {
        Ok(ns) => ns,
        Err(e) => panic!("the kernel has no time: {e}"),
    }
}
