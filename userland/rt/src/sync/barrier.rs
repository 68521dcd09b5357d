//! Waiting until all have come.
//!
//! The words count who has come to this round, and rounds. The last one to come begins the next round
//! and wakes the others.

use core::sync::atomic::{AtomicU32, Ordering};

use dyad_abi::{Error, Result};

use super::{LostBefore, me, wait_for};
use dyad_sys::thread;

use crate::futex::{self, What};

/// Whether this was the last one to come to a barrier: one of each round is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last(pub bool);

/// A meeting point of a fixed number of threads. It can be used again and again.
pub struct Barrier {
    threads: u32,
    come: AtomicU32,
    round: AtomicU32,
    lost: LostBefore,
}

impl Barrier {
    /// For so many threads; 0 is as 1.
    pub const fn new(threads: u32) -> Barrier {
        Barrier {
            threads,
            come: AtomicU32::new(0),
            round: AtomicU32::new(0),
            lost: LostBefore::new(),
        }
    }

    /// Waits for the others.
    ///
    /// # Errors
    ///
    /// `NodeDead` if a thread of the program was lost with its node since the barrier was first used, or before that
    /// and the others do not come: the barrier is of no use any more then. `Denied` in an invocation.
    pub fn wait(&self) -> Result<Last> {
        me()?;
        self.lost.used();
        let round = self.round.load(Ordering::Acquire);
        // Releases what this one has done, and the last one acquires it from all.
        if self.come.fetch_add(1, Ordering::AcqRel) + 1 >= self.threads {
            // Before the round: no thread of the next one has come yet.
            self.come.store(0, Ordering::Relaxed);
            self.round.fetch_add(1, Ordering::Release);
            futex::wake_all(&self.round);
            return Ok(Last(true));
        }
        while self.round.load(Ordering::Acquire) == round {
            let in_vain = self.lost.has_changed()
                || wait_for((What::Barrier, None), &self.round, round) == Err(Error::TimedOut)
                    && thread::lost() != 0;
            if in_vain && self.round.load(Ordering::Acquire) == round {
                return Err(Error::NodeDead);
            }
        }
        Ok(Last(false))
    }
}
