//! So many at a time.

use core::sync::atomic::{AtomicU32, Ordering};

use dyad_abi::{Error, Result};

use super::{LostBefore, SPINS, me, refused, wait_for, wait_until};
use dyad_sys::thread;

use crate::futex::{self, What};

/// A number of permits.
pub struct Semaphore {
    pub(super) permits: AtomicU32,
    lost: LostBefore,
}

impl Semaphore {
    /// So many permits.
    pub const fn new(permits: u32) -> Semaphore {
        Semaphore {
            permits: AtomicU32::new(permits),
            lost: LostBefore::new(),
        }
    }

    /// Takes a permit if there is one.
    pub fn try_acquire(&self) -> bool {
        self.permits
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |n| n.checked_sub(1))
            .is_ok()
    }

    /// Takes a permit, waiting for one until fused time reaches `deadline_ns` at most; `false`: there
    /// was none. In an invocation this does not wait.
    pub fn acquire_until(&self, deadline_ns: u64) -> bool {
        while !self.try_acquire() {
            let waited = wait_until(What::Permit, &self.permits, 0, deadline_ns);
            if let Err(Error::TimedOut | Error::Denied) = waited {
                return self.try_acquire();
            }
        }
        true
    }

    /// Takes a permit, waiting for one if need be: for ever, if the threads with the permits were lost with
    /// their nodes. [`acquire_or_lost`](Semaphore::acquire_or_lost) does not wait then.
    ///
    /// # Panics
    ///
    /// If there is none in an invocation.
    pub fn acquire(&self) {
        self.lost.used();
        if self.spin() {
            return;
        }
        if let Err(e) = me() {
            refused("a permit", e);
        }
        while !self.try_acquire() {
            let _ = wait_for((What::Permit, None), &self.permits, 0);
        }
    }

    /// Takes a permit, waiting for one if need be.
    ///
    /// # Errors
    ///
    /// `NodeDead` if there is no permit, and a thread of the program was lost with its node since a permit was first
    /// waited for, or before that and no permit comes: the lost thread may have had one. `Denied` if there is none in an
    /// invocation.
    pub fn acquire_or_lost(&self) -> Result<()> {
        self.lost.used();
        if self.spin() {
            return Ok(());
        }
        me()?;
        while !self.try_acquire() {
            let in_vain = self.lost.has_changed()
                || wait_for((What::Permit, None), &self.permits, 0) == Err(Error::TimedOut)
                    && thread::lost() != 0;
            if in_vain {
                return self.try_acquire().then_some(()).ok_or(Error::NodeDead);
            }
        }
        Ok(())
    }

    /// Tries for a while.
    fn spin(&self) -> bool {
        for _ in 0..SPINS {
            if self.try_acquire() {
                return true;
            }
            dyad_sys::raw::relax();
        }
        false
    }

    /// Gives a permit back, or a new one. Wakes a waiting thread.
    ///
    /// # Panics
    ///
    /// If there are more than 2^32 - 1.
    pub fn release(&self) {
        let before = self.permits.fetch_add(1, Ordering::Release);
        assert!(before != u32::MAX, "too many permits");
        futex::wake(&self.permits, 1);
    }
}
