//! So many at a time.

use core::sync::atomic::{AtomicU32, Ordering};

use super::{SPINS, wait};
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

    /// Takes a permit, waiting for one if need be.
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
