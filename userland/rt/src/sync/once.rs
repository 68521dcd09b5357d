//! Something that happens once.
//!
//! ```text
//!   0 ──first──▶ who runs it ──a thread waits──▶ who | AWAITED ──▶ DONE: wakes all
//! ```

use core::sync::atomic::{AtomicU32, Ordering};

use dyad_abi::{Error, Result};

use super::{AWAITED, is_lost, me, owner, wait_for};
use crate::futex::{self, What};

const NEW: u32 = 0;
const DONE: u32 = u32::MAX;

/// Panics because it does not happen.
#[cold]
pub(super) fn never(why: Error) -> ! {
    match why {
        Error::Denied => panic!("what happens once cannot happen in an invocation"),
        why => panic!("the thread that was to do something once was lost: {why}"),
    }
}

/// Runs a function once, in the thread that comes first. If the function panics, the program ends.
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

    /// Calls `f` if no thread has yet; it has been called, and has come back, when this comes back.
    ///
    /// # Panics
    ///
    /// If the thread that runs it was lost with its node; if `f` itself comes here; in an invocation, if it has not
    /// happened.
    pub fn call_once(&self, f: impl FnOnce()) {
        match self.call_once_or_lost(f) {
            Ok(()) => {}
            Err(e) => never(e),
        }
    }

    /// As [`call_once`](Once::call_once), with an error for a thread that was lost.
    ///
    /// # Errors
    ///
    /// `NodeDead` if the thread that runs it was lost with its node: it never happens. `Denied` in an invocation, if it
    /// has not happened.
    ///
    /// # Panics
    ///
    /// If `f` itself comes here.
    pub fn call_once_or_lost(&self, f: impl FnOnce()) -> Result<()> {
        if self.is_done() {
            return Ok(());
        }
        let me = me()?;
        let first = self
            .state
            .compare_exchange(NEW, me, Ordering::Acquire, Ordering::Relaxed);
        if first.is_ok() {
            f();
            if self.state.swap(DONE, Ordering::Release) & AWAITED != 0 {
                futex::wake_all(&self.state);
            }
            return Ok(());
        }
        loop {
            let now = self.state.load(Ordering::Acquire);
            if now == DONE {
                return Ok(());
            }
            if is_lost(now) {
                return Err(Error::NodeDead);
            }
            assert!(
                now & !AWAITED != me,
                "what happens once waits for itself: it has been asked for while it happens"
            );
            let awaited = now | AWAITED;
            if now != awaited
                && self
                    .state
                    .compare_exchange(now, awaited, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            // Whatever ends the wait: the state is looked at again.
            let _ = wait_for((What::Once, owner(now)), &self.state, awaited);
        }
    }
}

impl Default for Once {
    fn default() -> Once {
        Once::new()
    }
}
