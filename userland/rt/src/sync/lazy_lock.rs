//! A value that is made when it is first used.

use core::fmt;
use core::ops::Deref;

use super::OnceLock;
use crate::Lock;

/// A value that its first user makes, by the function that it was built with.
///
/// ```
/// use dyad_rt::sync::LazyLock;
///
/// static SQUARES: LazyLock<Vec<u64>> = LazyLock::new(|| (0..4).map(|n| n * n).collect());
///
/// assert_eq!(SQUARES[3], 9);
/// ```
///
/// The first use panics for the reasons of [`OnceLock::get_or_init`].
pub struct LazyLock<T, F = fn() -> T> {
    value: OnceLock<T>,
    make: Lock<Option<F>>,
}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// There is no value yet.
    pub const fn new(make: F) -> LazyLock<T, F> {
        LazyLock {
            value: OnceLock::new(),
            make: Lock::new(Some(make)),
        }
    }

    /// The value; the first caller makes it, and the others wait.
    ///
    /// # Panics
    ///
    /// For the reasons of [`OnceLock::get_or_init`].
    pub fn force(this: &LazyLock<T, F>) -> &T {
        this.value.get_or_init(|| {
            let make = this.make.lock().take();
            match make {
                Some(make) => make(),
                None => unreachable!("the value is made once"),
            }
        })
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> LazyLock<T> {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyLock").field(&self.value.get()).finish()
    }
}
