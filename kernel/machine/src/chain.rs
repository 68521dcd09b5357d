//! The chain of dispatchers under the running thread: which thread gave this CPU to which.
//!
//! The chain belongs to one CPU, which alone changes it. `dyad_core::sched::dispatch` decides when.

use core::cell::Cell;

use crate::object::thread::Thread;

/// Longest chain of dispatchers.
pub const MAX_CHAIN: usize = 8;

/// How a thread got the CPU from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchReason {
    /// The dispatcher called `Dispatch` and is told when this thread stops.
    Dispatch,
    /// The sender sent to an endpoint where this thread waited, and continues when this thread waits again.
    Send,
}

/// The threads under the running one on this CPU: each gave the CPU to the next, the last one to the running
/// thread. They stay RUNNING on this CPU meanwhile.
pub struct Chain {
    links: [Cell<Option<(&'static Thread, SwitchReason)>>; MAX_CHAIN],
    len: Cell<usize>,
}

impl Chain {
    /// An empty chain.
    pub const fn new() -> Chain {
        Chain {
            links: [const { Cell::new(None) }; MAX_CHAIN],
            len: Cell::new(0),
        }
    }

    /// Whether there is no room for another thread.
    pub fn is_full(&self) -> bool {
        self.len.get() >= MAX_CHAIN
    }

    /// Whether the running thread got the CPU from no other thread.
    pub fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// The thread that gave the CPU to the running thread, and how.
    pub fn last(&self) -> Option<(&'static Thread, SwitchReason)> {
        self.links
            .get(self.len.get().wrapping_sub(1))
            .and_then(Cell::get)
    }

    /// Adds the running thread, which gives the CPU to another one. The caller has checked that there is
    /// room.
    pub fn push(&self, t: &'static Thread, how: SwitchReason) {
        let n = self.len.get();
        if let Some(link) = self.links.get(n) {
            link.set(Some((t, how)));
            self.len.set(n + 1);
        }
    }

    /// Removes and returns the thread that gave the CPU to the running thread, and how.
    pub fn pop(&self) -> Option<(&'static Thread, SwitchReason)> {
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
