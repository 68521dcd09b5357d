//! One shared word, independently of how a caller finds it: the rows of the protocol are written for this
//! trait.
//!
//! A word is found anew for each access ([`WordAt`]), or cached by a caller that runs where caches are
//! coherent.

use core::sync::atomic::Ordering;

use dyad_shm::PhysAddr;

use crate::GlobalMem;

/// A shared word, with what [`GlobalMem`] promises of each operation.
pub trait Word: Copy {
    /// Reads the word at memory; acquires.
    fn load(&self) -> u64;

    /// Replaces the word; acquires and releases.
    ///
    /// # Errors
    ///
    /// The word that is there instead.
    fn replace(&self, old: u64, new: u64) -> Result<u64, u64>;

    /// Adds to the word, and returns the old value; acquires and releases.
    fn add(&self, n: u64) -> u64;

    /// A full fence.
    fn fence(&self);
}

/// The word at an address of some memory.
#[derive(Debug)]
pub struct WordAt<'m, M: ?Sized> {
    /// The memory.
    pub mem: &'m M,
    /// The address.
    pub at: PhysAddr,
}

impl<M: ?Sized> Clone for WordAt<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: ?Sized> Copy for WordAt<'_, M> {}

impl<M: GlobalMem + ?Sized> Word for WordAt<'_, M> {
    #[inline]
    #[track_caller]
    fn load(&self) -> u64 {
        self.mem.load_fresh(self.at, Ordering::Acquire)
    }

    #[inline]
    #[track_caller]
    fn replace(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.mem.cas(self.at, old, new)
    }

    #[inline]
    #[track_caller]
    fn add(&self, n: u64) -> u64 {
        self.mem.add(self.at, n)
    }

    #[inline]
    fn fence(&self) {
        self.mem.fence();
    }
}
