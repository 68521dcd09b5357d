//! Something that happens once.

use core::sync::atomic::{AtomicU32, Ordering};

use super::wait;
use crate::futex;

const NEW: u32 = 0;
const RUNNING: u32 = 1;
/// As [`RUNNING`], and somebody waits.
const AWAITED: u32 = 2;
const DONE: u32 = 3;

/// Runs something once, whoever comes first.
///
/// If the thread that runs it is lost with its node, the others wait for ever; if it panics, the
/// program ends.
pub struct Once {
    state: AtomicU32,
}

impl Once {
    /// It has not happened.
    pub const fn new() -> Once {
        Once {
            state: AtomicU32::new(NEW),
        }
    }

    /// Whether it has happened.
    pub fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Calls `f` if nobody has yet; it has been called, and has come back, when this comes back.
    pub fn call_once(&self, f: impl FnOnce()) {
        if self.is_done() {
            return;
        }
        let first = self
            .state
            .compare_exchange(NEW, RUNNING, Ordering::Acquire, Ordering::Relaxed);
        if first.is_ok() {
            f();
            if self.state.swap(DONE, Ordering::Release) == AWAITED {
                futex::wake_all(&self.state);
            }
            return;
        }
        while !self.is_done() {
            // It says that somebody waits, or has happened.
            let _ =
                self.state
                    .compare_exchange(RUNNING, AWAITED, Ordering::Relaxed, Ordering::Relaxed);
            wait(&self.state, AWAITED);
        }
    }
}

impl Default for Once {
    fn default() -> Once {
        Once::new()
    }
}
