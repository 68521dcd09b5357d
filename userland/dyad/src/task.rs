//! Tasks: spawning, joining, yielding.
//!
//! Tasks of a program share one thread, so they need not be `Send`. A task stays on its node
//! (where it was spawned) until it migrates.

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};

use crate::executor;

mod channel;
mod wait;

pub use crate::migration::{
    Migrate, MigrationStats, migrate, migrate_to, migrations, request_migration, withdraw_migration,
};
pub use channel::{Receiver, SendError, Sender, TrySendError, channel};
pub use wait::{Either, Elapsed, select, timeout, timeout_at};

pub use crate::time::{Sleep, sleep, sleep_until};

struct Joined<T> {
    value: Option<T>,
    waiting: Option<Waker>,
}

/// A spawned task; awaiting it returns its value. Dropping the handle lets the task run on.
#[must_use = "the task runs anyway, but its value is lost"]
pub struct JoinHandle<T> {
    state: Rc<RefCell<Joined<T>>>,
}

impl<T> JoinHandle<T> {
    /// Whether awaiting would return the value at once.
    pub fn is_finished(&self) -> bool {
        self.state.borrow().value.is_some()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.state.borrow_mut();
        match state.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                state.waiting = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Turns the first thread of a program with [`#[dyad::main]`](macro@crate::main) into the thread that runs
/// tasks, for good: `main` is the main task, and the program ends with its return value. A program can
/// thereby choose by its arguments whether it works as plain threads or as tasks.
///
/// ```no_run
/// # #![no_main]
/// use dyad::prelude::thread::*;
///
/// async fn as_task() -> Result<()> {
///     dyad::task::migrate(isa().other()).await?;
///     Ok(())
/// }
///
/// #[dyad::main]
/// fn main(args: Args) -> Result<()> {
///     match args.one_of("--style", &["thread", "task"], "thread")? {
///         "task" => dyad::task::run(as_task()),
///         _ => migrate(isa().other())?,
///     }
///     Ok(())
/// }
/// ```
///
/// Other threads of the program stay plain threads. In tasks, [migration points](crate::thread::migrate_point)
/// of plain threads have no effect, and [`thread::migrate`](crate::thread::migrate) returns `Denied`.
///
/// # Panics
///
/// On any thread but the first, or if the program runs tasks already. A migration of a task panics if the
/// build has put the executor on the data stack: the program then has tasks that contain [migration
/// points](crate::thread::migrate_point) of plain threads.
pub fn run<F>(main: F) -> !
where
    F: Future<Output: crate::rt::Outcome> + 'static,
{
    crate::rt::run_tasks(main)
}

/// Starts a task on this node. It runs whenever the current task waits.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
{
    let state = Rc::new(RefCell::new(Joined {
        value: None,
        waiting: None,
    }));
    let shared = state.clone();
    executor::spawn(Box::pin(async move {
        let value = future.await;
        let waiting = {
            let mut state = shared.borrow_mut();
            state.value = Some(value);
            state.waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
    }));
    JoinHandle { state }
}

/// Lets the other ready tasks run first.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits for both futures, within this task.
pub async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut out_a, mut out_b) = (None, None);
    poll_fn(|cx| {
        if out_a.is_none()
            && let Poll::Ready(v) = a.as_mut().poll(cx)
        {
            out_a = Some(v);
        }
        if out_b.is_none()
            && let Poll::Ready(v) = b.as_mut().poll(cx)
        {
            out_b = Some(v);
        }
        match (out_a.take(), out_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (out_a, out_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}
