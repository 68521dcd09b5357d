//! Moving a task to another node.
//!
//! The task's future goes on there, at the same addresses, with everything it holds. What costs
//! time is the hand-over of the thread and the caches that are cold on the other side; no memory
//! is copied.
//!
//! # Being asked to move
//!
//! A program can also be asked to go elsewhere: from outside by `cargo xtask migrate`, from inside by
//! [`request_migration`]. The executor looks between rounds of polls, also while all tasks sleep: it takes the
//! program's thread there, and that node becomes the home of **all** tasks. Only a task that has asked for a
//! move itself, and waits for it, keeps what it asked for. A task that never reaches an `.await` that
//! waits cannot be moved. So a program that relies on where it is between two `.await`s asks again, by
//! [`node`](crate::node).
//!
//! If the node dies on the way, the tasks go on where they were.

use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use dyad_sys as sys;
use dyad_sys::{Isa, NodeId};

use crate::executor::{self, MoveOutcome};

/// Continues this task on a node of the given ISA: this one if it has it, else the live one with
/// the lowest number.
///
/// The future gives `NoIsa` if no live node has that ISA, or the error of [`migrate_to`]; the
/// task then goes on where it is.
pub fn migrate(isa: Isa) -> Migrate {
    Migrate {
        target: Target::Isa(isa),
        outcome: None,
    }
}

/// Continues this task on the given node.
///
/// The future gives `NoSuchNode` or `NodeDead` if it cannot, or `Again` if the task asks for
/// another move before this one is done; the task then goes on where it is.
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

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.outcome.is_none() {
            let here = executor::here();
            let node = match self.target {
                Target::Node(node) => node,
                Target::Isa(isa) => match crate::system()?.nearest(isa, here) {
                    Some(node) => node,
                    None => return Poll::Ready(Err(sys::Error::NoIsa)),
                },
            };
            if node == here {
                return Poll::Ready(Ok(()));
            }
            self.outcome = Some(executor::request_move(node, cx.waker().clone()));
        }
        match self.outcome.as_ref().and_then(|o| o.get()) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

impl Drop for Migrate {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome.take_if(|o| o.get().is_none()) {
            executor::cancel_move(&outcome);
        }
    }
}

/// Asks the thread that runs the tasks to move to a node. Replaces a request that the thread has not carried
/// out yet, and returns it. It goes between two polls, and that node is then the home of all tasks.
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
/// `NoSuchNode`, `NodeDead`; `Again` if others keep asking.
pub fn request_migration(to: NodeId) -> Result<Option<NodeId>, sys::Error> {
    sys::request_move(0, to)
}

/// Takes back what the thread that runs the tasks is asked. Gives what that was: `None` if it was asked nothing, or
/// has begun to do it.
///
/// # Errors
///
/// As [`request_migration`].
pub fn withdraw_migration() -> Result<Option<NodeId>, sys::Error> {
    sys::withdraw_request(0)
}

/// Migrations of the program's first thread from one node to another so far, and what they took:
/// from the decision to move to the first instruction of the runtime there.
///
/// Start and end are read on different nodes, so the times are as good as the nodes' clocks agree;
/// what looks negative is booked as zero. For exact times, time round trips on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationStats {
    /// Where they started.
    pub from: NodeId,
    /// Where they ended.
    pub to: NodeId,
    /// How many there were.
    pub count: u64,
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    /// All together.
    pub total: Duration,
}

impl MigrationStats {
    pub(crate) fn first(from: NodeId, to: NodeId, ns: u64) -> MigrationStats {
        let d = Duration::from_nanos(ns);
        MigrationStats {
            from,
            to,
            count: 1,
            min: d,
            max: d,
            total: d,
        }
    }

    pub(crate) fn add(&mut self, ns: u64) {
        let d = Duration::from_nanos(ns);
        self.count += 1;
        self.min = self.min.min(d);
        self.max = self.max.max(d);
        self.total += d;
    }
}

/// All migrations of the program's thread so far, by direction.
pub fn migrations() -> Vec<MigrationStats> {
    executor::crossings()
}
