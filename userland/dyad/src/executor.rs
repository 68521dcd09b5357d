//! The executor: runs the program's tasks on the present node of the program's thread.
//!
//! It uses one thread, the program's first; all state is in the program's heap and statics. Its loop exists
//! once per ISA side of the thread, on that side's native stack, and both work on the same state:
//!
//! ```text
//!            side of ISA X                                  side of ISA A
//!  start ─▶ init ─▶ ┌─ step ◀────────┐            start ─▶ (no init) ─▶ arrive ─▶ ┌─ step ◀─┐
//!                   ▼                │                                           ▼         │
//!           Move(n): sys::migrate ───┼─── thread continues there ───▶     ...   Move(n) ... │
//!                   └──▶ arrive ─────┘ ◀──── and comes back here ────────────────┘─────────┘
//! ```
//!
//! No value on a native stack may therefore be used across `sys::migrate`: the requested node, the request
//! and its time are kept in [`State::moving`], and no borrow of the state is held.
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

use dyad_abi::user::stack_slot;
use dyad_rt::emulation::{self, Apart, Arrived, Going};
use dyad_rt::{Lock, program_local};
use dyad_sys as sys;
use dyad_sys::NodeId;

use crate::migration::MigrationStats;

pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;
/// The place where the result of a requested move appears.
pub(crate) type MoveOutcome = Rc<Cell<Option<Result<(), sys::Error>>>>;

type TaskId = u64;

/// Tasks to be polled, longest waiting first.
type ReadyQueue = Lock<VecDeque<TaskId>>;

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
            self.ready.lock().push_back(self.id);
        }
    }
}

struct Task {
    home: NodeId,
    request: Option<Request>,
    /// `None` while it is being polled.
    future: Option<TaskFuture>,
    waker: Arc<TaskWaker>,
}

/// A task's request to move.
struct Request {
    to: NodeId,
    outcome: MoveOutcome,
    waker: Waker,
}

impl Task {
    /// The node where the task is polled next.
    fn node(&self) -> NodeId {
        self.request.as_ref().map_or(self.home, |r| r.to)
    }
}

/// A move of the thread that is under way.
#[derive(Clone, Copy)]
struct Moving {
    from: NodeId,
    to: NodeId,
    since: u64,
}

struct State {
    here: Option<NodeId>,
    tasks: BTreeMap<TaskId, Task>,
    next_task: TaskId,
    polled: Option<TaskId>,
    ready: Option<Arc<ReadyQueue>>,
    timers: BTreeMap<(u64, u64), Waker>,
    next_timer: u64,
    /// Tasks that wait for something that comes in at the thread's endpoint.
    watching: Vec<Waker>,
    moving: Option<Moving>,
    crossings: Vec<MigrationStats>,
    exit: Option<u32>,
}

program_local! {
    static EXECUTOR: RefCell<State> = RefCell::new(State::new());
}

program_local! {
    /// The data stack pointer of a thread with `#[dyad::main]` when it began to run tasks.
    static DATA_STACK: Cell<Option<u64>> = Cell::new(None);
}

/// Records the data stack pointer when tasks begin on a thread that has a data stack.
pub(crate) fn begin_on_data_stack() {
    DATA_STACK.with(|d| d.set(Some(dyad_rt::spine::data_stack_pointer())));
}

/// Rounds so far, as counted by this side. The value is not used.
static TURNS: AtomicU64 = AtomicU64::new(0);

/// The next action of the loop.
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
            tasks: BTreeMap::new(),
            next_task: 0,
            polled: None,
            ready: None,
            timers: BTreeMap::new(),
            next_timer: 0,
            watching: Vec::new(),
            moving: None,
            crossings: Vec::new(),
            exit: None,
        }
    }

    fn here(&mut self) -> NodeId {
        *self.here.get_or_insert_with(ask_where)
    }

    fn ready(&mut self) -> Arc<ReadyQueue> {
        self.ready
            .get_or_insert_with(|| Arc::new(Lock::new(VecDeque::new())))
            .clone()
    }

    /// Takes the tasks that are ready on this node out of the queue.
    fn take_round(&mut self) -> VecDeque<TaskId> {
        let here = self.here();
        let ready = self.ready();
        let mut queue = ready.lock();
        let (round, rest) = core::mem::take(&mut *queue)
            .into_iter()
            .filter(|id| self.tasks.contains_key(id))
            .partition(|id| self.tasks.get(id).is_some_and(|t| t.node() == here));
        *queue = rest;
        round
    }

    /// The action after a round.
    fn next_step(&mut self) -> Step {
        if let Some(code) = self.exit {
            return Step::Exit(code);
        }
        let here = self.here();
        let ready = self.ready();
        let queue = ready.lock();
        let mut nodes = queue
            .iter()
            .filter_map(|id| self.tasks.get(id))
            .map(Task::node);
        if let Some(node) = nodes.clone().find(|&n| n != here) {
            return Step::Move(node);
        }
        if nodes.next().is_some() {
            return Step::Poll;
        }
        match self.timers.first_key_value() {
            Some((&(deadline, _), _)) => Step::Sleep(deadline),
            None => Step::Stalled,
        }
    }

    /// Makes `to` the home of all tasks that are not about to migrate. Returns whether the thread has to
    /// move.
    fn send_all(&mut self, to: NodeId) -> bool {
        for task in self.tasks.values_mut() {
            task.home = to;
        }
        self.here() != to
    }

    /// Completes a move: the thread has arrived, or has failed to leave. Returns the wakers of the tasks
    /// concerned.
    fn arrive(&mut self, result: Result<(), sys::Error>) -> Vec<Waker> {
        let Some(moving) = self.moving.take() else {
            return Vec::new();
        };
        let here = ask_where();
        self.here = Some(here);
        if result.is_ok() {
            self.note_crossing(moving.from, here, now().saturating_sub(moving.since));
        }
        let mut woken = Vec::new();
        for task in self.tasks.values_mut() {
            match task.request.take_if(|r| r.to == moving.to) {
                Some(request) => {
                    if result.is_ok() {
                        task.home = here;
                    }
                    request.outcome.set(Some(result));
                    woken.push(request.waker);
                }
                // A node that cannot be reached: its tasks go on here rather than never.
                None if result.is_err() && task.home == moving.to => task.home = here,
                None => {}
            }
        }
        woken
    }

    fn note_crossing(&mut self, from: NodeId, to: NodeId, ns: u64) {
        match self
            .crossings
            .iter_mut()
            .find(|c| (c.from, c.to) == (from, to))
        {
            Some(c) => c.add(ns),
            None => self.crossings.push(MigrationStats::first(from, to, ns)),
        }
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
        pc: landed as extern "C" fn(u64) -> ! as usize as u64,
        stack: [emulation::empty(top), 0],
        argument: at.from.index() as u64,
    })
}

/// Continues on the node that has interpreted a thread from another node. The homes of tasks move from the
/// thread's old node to this one.
extern "C" fn landed(from: u64) -> ! {
    with(|s| {
        let here = ask_where();
        // As far as the side knew that was interpreted.
        let from = s.here.replace(here).or(NodeId::new(from)).unwrap_or(here);
        s.tasks
            .values_mut()
            .filter(|t| t.home == from)
            .for_each(|t| t.home = here);
    });
    run()
}

/// Runs the program's tasks until one calls [`finish`]; then exits. Called once per ISA side.
pub(crate) fn run() -> ! {
    // The first entry on an ISA is an arrival like any other.
    arrive(Ok(()));
    loop {
        between_rounds();
        wake_timers();
        poll_round();
        let step = with(State::next_step);
        // Behind the polls: a task that has just arrived where it wanted to be finds itself there.
        let asked = match step {
            Step::Exit(_) => None,
            _ => sys::take_request(),
        };
        match step {
            _ if let Some(node) = asked => {
                if with(|s| s.send_all(node)) {
                    go(node);
                }
            }
            Step::Poll => {}
            Step::Move(node) => go(node),
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
        wake_watching();
    }
}

/// Wakes the watching tasks after each step, so that they check again: after a sleep, because an event may
/// have ended it; after other steps, because they take time.
fn wake_watching() {
    for waker in with(|s| core::mem::take(&mut s.watching)) {
        waker.wake();
    }
}

/// Wakes `waker` when something has come in at the thread's endpoint, or earlier. The caller sets a timer as
/// well.
pub(crate) fn watch(waker: Waker) {
    with(|s| s.watching.push(waker));
}

/// Moves the thread to another node. Returns there, or in the loop of the other ISA's side.
fn go(node: NodeId) {
    // Both sides have one data stack, and neither may have a frame on it.
    let used = dyad_rt::spine::data_stack_pointer();
    let first = DATA_STACK.with(|d| d.get().unwrap_or(used));
    assert!(
        first == used,
        "tasks cannot move: they contain migration points of plain threads"
    );
    with(|s| {
        s.moving = Some(Moving {
            from: s.here(),
            to: node,
            since: now(),
        });
    });
    // When this returns, nothing read before it may be used: see the module header.
    let result = sys::migrate(node);
    arrive(result.map(drop));
}

fn arrive(result: Result<(), sys::Error>) {
    for waker in with(|s| s.arrive(result)) {
        waker.wake();
    }
}

fn wake_timers() {
    if with(|s| s.timers.is_empty()) {
        return;
    }
    let now = now();
    while let Some(waker) = with(|s| {
        let first = s.timers.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }) {
        waker.wake();
    }
}

fn poll_round() {
    for id in with(State::take_round) {
        let Some((mut future, waker)) = with(|s| {
            let task = s.tasks.get_mut(&id)?;
            let future = task.future.take()?;
            // From here on a wake-up means another poll, even if it comes during this one.
            task.waker.queued.store(false, Ordering::Release);
            let waker = Waker::from(task.waker.clone());
            s.polled = Some(id);
            Some((future, waker))
        }) else {
            continue;
        };
        let done = future.as_mut().poll(&mut Context::from_waker(&waker));
        if done.is_ready() {
            // Dropped with no borrow held: destructors may use the executor.
            drop(future);
            drop(with(|s| {
                s.polled = None;
                s.tasks.remove(&id)
            }));
        } else {
            with(|s| {
                s.polled = None;
                if let Some(task) = s.tasks.get_mut(&id) {
                    task.future = Some(future);
                }
            });
        }
        if with(|s| s.exit.is_some()) {
            return;
        }
    }
}

/// Adds a task, at home on this node.
pub(crate) fn spawn(future: TaskFuture) {
    let waker = with(|s| {
        let id = s.next_task;
        s.next_task += 1;
        let waker = Arc::new(TaskWaker {
            id,
            queued: AtomicBool::new(false),
            ready: s.ready(),
        });
        let task = Task {
            home: s.here(),
            request: None,
            future: Some(future),
            waker: waker.clone(),
        };
        s.tasks.insert(id, task);
        waker
    });
    waker.wake();
}

/// Ends the program after the poll that is under way.
pub(crate) fn finish(code: u32) {
    with(|s| s.exit = Some(code));
}

/// Requests that the polled task continue at `to`. An older request of the task ends with `Again`.
pub(crate) fn request_move(to: NodeId, waker: Waker) -> MoveOutcome {
    let outcome: MoveOutcome = Rc::new(Cell::new(None));
    let (task_waker, older) = with(|s| {
        let task = s.polled.and_then(|id| s.tasks.get_mut(&id));
        let Some(task) = task else {
            // Only tasks can move.
            outcome.set(Some(Err(sys::Error::Denied)));
            return (None, None);
        };
        let request = Request {
            to,
            outcome: outcome.clone(),
            waker,
        };
        (Some(task.waker.clone()), task.request.replace(request))
    });
    if let Some(older) = older {
        older.outcome.set(Some(Err(sys::Error::Again)));
        older.waker.wake();
    }
    if let Some(waker) = task_waker {
        waker.wake();
    }
    outcome
}

/// Withdraws a request whose future was dropped.
pub(crate) fn cancel_move(outcome: &MoveOutcome) {
    with(|s| {
        for task in s.tasks.values_mut() {
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
    with(|s| s.crossings.clone())
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
