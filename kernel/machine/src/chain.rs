//! The chain of dispatchers under the running thread: who gave this CPU to whom.
//!
//! It belongs to one CPU and is changed by it only. When it is changed is decided by
//! `dyad_core::sched::dispatch`.

use core::cell::Cell;

use crate::object::thread::Thread;

/// Longest chain of dispatchers.
pub const MAX_CHAIN: usize = 8;

/// How a thread got the CPU from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchReason {
    /// The other called `Dispatch` and is told when this one stops.
    Dispatch,
    /// The other sent to an endpoint where this one waited, and goes on when this one waits again.
    Send,
}

/// The threads under the running one on this CPU: each gave the CPU to the next, the last one to the
/// running thread. They stay this CPU's meanwhile.
pub struct Chain {
    links: [Cell<Option<(&'static Thread, SwitchReason)>>; MAX_CHAIN],
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

    /// Whether there is no room for one more.
    pub fn is_full(&self) -> bool {
        self.len.get() >= MAX_CHAIN
    }

    /// Who gave the CPU to the running thread, and how.
    pub fn last(&self) -> Option<(&'static Thread, SwitchReason)> {
        self.links
            .get(self.len.get().wrapping_sub(1))
            .and_then(Cell::get)
    }

    /// Adds the running thread, which gives the CPU to another one. The caller has seen that there is
    /// room.
    pub fn push(&self, t: &'static Thread, how: SwitchReason) {
        let n = self.len.get();
        if let Some(link) = self.links.get(n) {
            link.set(Some((t, how)));
            self.len.set(n + 1);
        }
    }

    /// The same, and takes it off.
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
