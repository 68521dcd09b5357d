//! Moving a task to another node.
//!
//! The task's future continues on the new node, at the same addresses, with everything that it holds. The
//! cost is the handoff of the thread and the cold caches of the new node; no memory is copied.
//!
//! # Requests to move
//!
//! A request can also move a program to another node: from outside by `cargo xtask migrate`, from inside by
//! [`request_migration`]. The executor checks for requests between rounds of polls, also while all tasks
//! sleep. It moves the program's thread to the requested node, which becomes the home of **all** tasks,
//! except for a task that waits for a move of its own. A task that never reaches an `.await` that waits
//! cannot be moved. A program that relies on its node between two `.await`s therefore checks again, by
//! [`node`](crate::node).
//!
//! If the node dies on the way, the tasks continue where they were.

use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use dyad_sys as sys;
use dyad_sys::{Isa, NodeId};

use crate::executor::{self, MoveOutcome};

/// Continues this task on a node of the given ISA: this node if it has that ISA, else the live one with the
/// lowest number.
///
/// The future returns `NoIsa` if no live node has that ISA, or the error of [`migrate_to`]; the task then
/// continues on its node.
pub fn migrate(isa: Isa) -> Migrate {
    Migrate {
        target: Target::Isa(isa),
        outcome: None,
    }
}

/// Continues this task on the given node.
///
/// The future returns `NoSuchNode` or `NodeDead` if the task cannot move, or `Again` if the task asks for
/// another move before this one is done; the task then continues on its node.
pub fn migrate_to(node: NodeId) -> Migrate {
    Migrate {
        target: Target::Node(node),
        outcome: None,
    }
}

#[derive(Clone, Copy)]
enum Target {
    Isa(Isa),
    Node(NodeId),
}

/// Future of [`migrate`] and [`migrate_to`].
#[must_use = "nothing moves until this is awaited"]
pub struct Migrate {
    target: Target,
    outcome: Option<MoveOutcome>,
}

impl Future for Migrate {
    type Output = Result<(), sys::Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.outcome.as_ref().map(|o| o.get()) {
            Some(Some(result)) => Poll::Ready(result),
            Some(None) => Poll::Pending,
            None => self.begin(cx.waker()),
        }
    }
}

impl Migrate {
    /// Requests the move.
    fn begin(&mut self, waker: &Waker) -> Poll<Result<(), sys::Error>> {
        let target = self.target;
        let to = |here| match target {
            Target::Node(node) => Ok(node),
            Target::Isa(isa) => crate::system::nearest(isa, here),
        };
        let Some(outcome) = executor::request_move(to, waker)? else {
            return Poll::Ready(Ok(()));
        };
        match self.outcome.insert(outcome).get() {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

impl Drop for Migrate {
    #[inline]
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome.take_if(|o| o.get().is_none()) {
            executor::cancel_move(&outcome);
        }
    }
}

/// Requests that the thread that runs the tasks move to a node. Replaces a request that the thread has not
/// carried out yet, and returns it. The thread moves between two polls, and that node is then the home of all
/// tasks.
///
/// ```no_run
/// # use dyad::prelude::task::*;
/// # async fn f() -> Result<()> {
/// request_migration(NodeId::new(1).unwrap())?;
/// yield_now().await;
/// assert_eq!(node().index(), 1);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// `NoSuchNode`, `NodeDead`; `Again` if other requests keep arriving.
pub fn request_migration(to: NodeId) -> Result<Option<NodeId>, sys::Error> {
    sys::request_move(0, to)
}

/// Withdraws the pending request for the thread that runs the tasks, and returns it: `None` if there was
/// none, or the thread has begun to carry it out.
///
/// # Errors
///
/// The errors of [`request_migration`].
pub fn withdraw_migration() -> Result<Option<NodeId>, sys::Error> {
    sys::withdraw_request(0)
}

/// How often the program's first thread has migrated from one node to another so far. What a migration takes is
/// measured by round trips: start and end of one are read from different nodes' clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationStats {
    /// The node where the migrations started.
    pub from: NodeId,
    /// The node where the migrations ended.
    pub to: NodeId,
    /// The number of migrations.
    pub count: u64,
}

/// All migrations of the program's thread so far, by direction.
pub fn migrations() -> Vec<MigrationStats> {
    executor::crossings()
}
