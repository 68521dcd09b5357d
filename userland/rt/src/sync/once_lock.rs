//! A value that is made once.

use core::cell::UnsafeCell;

use dyad_abi::Error;

use super::once::{Once, never};

/// A value that the first caller makes, and that all threads read from then on.
///
/// ```
/// use dyad_rt::sync::OnceLock;
///
/// static TABLE: OnceLock<Vec<u64>> = OnceLock::new();
///
/// assert_eq!(TABLE.get(), None);
/// assert_eq!(TABLE.get_or_init(|| vec![1, 2, 3]).len(), 3);
/// assert_eq!(TABLE.set(vec![]), Err(vec![]));
/// assert_eq!(TABLE.get().map(Vec::len), Some(3));
/// ```
pub struct OnceLock<T> {
    once: Once,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: 1. The value is written within `call_once`, by one thread, and before any thread reads it: readers ask
// `is_done`, which acquires what `call_once` has released. From then on it is only shared, which `Sync` allows; that
// it was made on another thread `Send` allows.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// There is no value yet.
    pub const fn new() -> OnceLock<T> {
        OnceLock {
            once: Once::new(),
            value: UnsafeCell::new(None),
        }
    }

    /// The value, if there is one.
    pub fn get(&self) -> Option<&T> {
        if !self.once.is_done() {
            return None;
        }
        // SAFETY: 1. It has happened, so no thread writes any more.
        unsafe { (*self.value.get()).as_ref() }
    }

    /// The value, which `make` makes if there is none. Waits for another thread that is just making it.
    ///
    /// # Panics
    ///
    /// If the thread that makes it was lost with its node; if `make` itself asks for the value; in an invocation, if
    /// there is none.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        match self.get_or_init_or_lost(make) {
            Ok(value) => value,
            Err(e) => never(e),
        }
    }

    /// As [`get_or_init`](OnceLock::get_or_init), with an error for a thread that was lost.
    ///
    /// # Errors
    ///
    /// `NodeDead` if the thread that makes it was lost with its node: there never is a value. `Denied` in an invocation,
    /// if there is none.
    ///
    /// # Panics
    ///
    /// If `make` itself asks for the value.
    pub fn get_or_init_or_lost(&self, make: impl FnOnce() -> T) -> Result<&T, Error> {
        self.once.call_once_or_lost(|| {
            let value = make();
            // SAFETY: 1. This runs once, and no thread reads before it is over.
            unsafe { *self.value.get() = Some(value) };
        })?;
        match self.get() {
            Some(value) => Ok(value),
            None => unreachable!("it has been made"),
        }
    }

    /// Gives it its value.
    ///
    /// # Errors
    ///
    /// That value, if it has one already.
    ///
    /// # Panics
    ///
    /// As [`get_or_init`](OnceLock::get_or_init).
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| match value.take() {
            Some(value) => value,
            None => unreachable!("it is made once"),
        });
        match value {
            None => Ok(()),
            Some(value) => Err(value),
        }
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}
