//! So many at a time.

use core::sync::atomic::{AtomicU32, Ordering};

use dyad_abi::Error;

use super::{SPINS, wait, wait_until};
use crate::futex;

/// A number of permits.
pub struct Semaphore {
    permits: AtomicU32,
}

impl Semaphore {
    /// So many permits.
    pub const fn new(permits: u32) -> Semaphore {
        Semaphore {
            permits: AtomicU32::new(permits),
        }
    }

    /// Takes a permit if there is one.
    pub fn try_acquire(&self) -> bool {
        self.permits
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |n| n.checked_sub(1))
            .is_ok()
    }

    /// Takes a permit, waiting for one until fused time reaches `deadline_ns` at most; `false`: there
    /// was none.
    pub fn acquire_until(&self, deadline_ns: u64) -> bool {
        while !self.try_acquire() {
            match wait_until(&self.permits, 0, deadline_ns) {
                Err(Error::TimedOut) => return self.try_acquire(),
                Err(Error::Denied) => crate::raw::relax(),
                _ => {}
            }
        }
        true
    }

    /// Takes a permit, waiting for one if need be: for ever, if those who have them were lost with
    /// their nodes.
    pub fn acquire(&self) {
        for _ in 0..SPINS {
            if self.try_acquire() {
                return;
            }
            crate::raw::relax();
        }
        while !self.try_acquire() {
            wait(&self.permits, 0);
        }
    }

    /// Gives a permit back, or a new one. Whoever waits is woken.
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
