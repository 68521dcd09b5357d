//! State of a program that is not shared between its threads.
//!
//! It belongs to the program's first thread, which runs its async tasks. That thread may run now on
//! one ISA and now on the other, each with its own native stack, but the kernel runs only one side at
//! a time and orders what they do. So such a static can hold values that are neither `Send` nor
//! `Sync`. Other threads of the program, and those of others that run in it in invocations, cannot
//! use it. Host tests run several programs in one process; there each program has a value of its own.

/// A static that belongs to the program; see [`program_local!`](crate::program_local).
pub struct ProgramLocal<T: 'static> {
    #[cfg(target_os = "none")]
    value: T,
    #[cfg(not(target_os = "none"))]
    init: fn() -> T,
}

// SAFETY: 1. `with` refuses all threads but the program's first one, so no value is ever seen by two;
// the sides of that thread on different ISAs take turns, and the kernel orders one after the other
// with release and acquire. `with_any` is for values that may be shared. 2. On the host the static
// holds a function pointer only; values are found through the program that the calling host thread
// belongs to, whose sides take turns under a mutex.
unsafe impl<T> Sync for ProgramLocal<T> {}

impl<T: 'static> ProgramLocal<T> {
    /// Used by [`program_local!`](crate::program_local).
    #[doc(hidden)]
    #[cfg(target_os = "none")]
    pub const fn new(value: T) -> Self {
        ProgramLocal { value }
    }

    /// Used by [`program_local!`](crate::program_local).
    #[doc(hidden)]
    #[cfg(not(target_os = "none"))]
    pub const fn new(init: fn() -> T) -> Self {
        ProgramLocal { init }
    }

    /// Calls `f` with this program's value.
    ///
    /// # Panics
    ///
    /// In an invocation, and on other threads of the program than its first.
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        assert!(
            dyad_sys::thread::number() == Some(dyad_sys::thread::Number::FIRST),
            "async tasks, and what else is the program's first thread's, are not for other threads"
        );
        #[cfg(target_os = "none")]
        return f(&self.value);
        #[cfg(not(target_os = "none"))]
        f(dyad_host::local(self as *const Self as usize, self.init))
    }

    /// Calls `f` with this program's value, on any thread.
    pub fn with_any<R>(&self, f: impl FnOnce(&T) -> R) -> R
    where
        T: Sync,
    {
        #[cfg(target_os = "none")]
        return f(&self.value);
        #[cfg(not(target_os = "none"))]
        f(dyad_host::local(self as *const Self as usize, self.init))
    }
}

/// Declares a static that belongs to the program:
/// `program_local! { static NAME: Type = constant; }`.
#[macro_export]
macro_rules! program_local {
    ($(#[$m:meta])* $vis:vis static $name:ident: $t:ty = $init:expr;) => {
        #[cfg(target_os = "none")]
        $(#[$m])* $vis static $name: $crate::ProgramLocal<$t> = $crate::ProgramLocal::new($init);
        #[cfg(not(target_os = "none"))]
        $(#[$m])* $vis static $name: $crate::ProgramLocal<$t> =
            $crate::ProgramLocal::new(|| $init);
    };
}
