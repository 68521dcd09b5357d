//! Types that crossing calls can carry, checked when programs are compiled, and a call that reports its loss.
//! See the module of this name of `dyad`.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use dyad_abi::{Error, Result};
use dyad_sys::raw;

use crate::spine;

mod sealed {
    pub trait Sealed {}
}

/// Types that a function may take which runs on one ISA only.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot cross between instruction sets",
    label = "neither an integer of 32 or 64 bits, nor a floating-point number, nor a thin pointer",
    note = "pass it by reference: memory has the same addresses on both"
)]
pub trait Crosses: sealed::Sealed {
    /// Whether the value is in a floating-point register.
    const FLOAT: bool;
}

/// Types that such a function may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot come back from another instruction set",
    label = "neither nothing, nor an integer of 32 or 64 bits, a floating-point number, or a thin pointer",
    note = "have the caller pass a reference to where the result is to be put"
)]
pub trait ComesBack {
    /// Whether the value is in a floating-point register.
    const FLOAT: bool;
}

impl ComesBack for () {
    const FLOAT: bool = false;
}
impl<T: Crosses> ComesBack for T {
    const FLOAT: bool = T::FLOAT;
}

/// Integers and pointers in the form that they have in a register.
pub trait Word: Sized {
    /// The register.
    fn word(self) -> u64;
    /// The value in a register. The upper half of the register is ignored if the type has 32 bits.
    fn of(word: u64) -> Self;
}

impl Word for () {
    fn word(self) -> u64 {
        0
    }
    fn of(_: u64) {}
}

macro_rules! integers {
    ($($ty:ty)*) => {$(
        impl sealed::Sealed for $ty {}
        impl Crosses for $ty {
            const FLOAT: bool = false;
        }
        impl Word for $ty {
            #[allow(clippy::cast_lossless, reason = "the same for all")]
            fn word(self) -> u64 {
                self as u64
            }
            #[allow(clippy::unnecessary_cast, reason = "the same for all")]
            fn of(word: u64) -> $ty {
                word as $ty
            }
        }
    )*};
}

integers! { u32 i32 u64 i64 usize isize }

macro_rules! pointers {
    ($($ty:ty)*) => {$(
        impl<T> sealed::Sealed for $ty {}
        impl<T> Crosses for $ty {
            const FLOAT: bool = false;
        }
    )*};
}

pointers! { *const T *mut T &T &mut T Option<&T> Option<&mut T> NonNull<T> }

impl<T> Word for *const T {
    fn word(self) -> u64 {
        self.expose_provenance() as u64
    }
    fn of(word: u64) -> *const T {
        core::ptr::with_exposed_provenance(word as usize)
    }
}

impl<T> Word for *mut T {
    fn word(self) -> u64 {
        self.expose_provenance() as u64
    }
    fn of(word: u64) -> *mut T {
        core::ptr::with_exposed_provenance_mut(word as usize)
    }
}

macro_rules! floats {
    ($($ty:ty)*) => {$(
        impl sealed::Sealed for $ty {}
        impl Crosses for $ty {
            const FLOAT: bool = true;
        }
    )*};
}

floats! { f32 f64 }

/// Compiles only for argument types that can cross: `#[dyad::isa]` calls it for each argument.
#[doc(hidden)]
pub const fn crosses<T: Crosses>() {}

/// Compiles only for types that may be returned.
#[doc(hidden)]
pub const fn comes_back<T: ComesBack>() {}

/// The letter that tells the build where a value is: in a floating-point register, or not.
#[doc(hidden)]
pub const fn kind(float: bool) -> u8 {
    if float { b'f' } else { b'w' }
}

/// Checks that `all` arguments, `floats` of them floating-point numbers, are passed in registers on both
/// ISAs.
///
/// # Panics
///
/// If they are not. Programs call it at compile time.
#[doc(hidden)]
pub const fn fits(all: usize, floats: usize) {
    assert!(
        all - floats <= 6,
        "at most six integers or pointers can cross between instruction sets"
    );
    assert!(
        floats <= 8,
        "at most eight floating-point numbers can cross between instruction sets"
    );
}

/// Where a thread's calls of functions of the other ISA run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// On the function's ISA: the thread goes there and comes back.
    #[default]
    Cross,
    /// The call stays on the caller's ISA: the function's other body runs.
    Local,
}

/// Sets where the calling thread's calls of functions of the other ISA run from now on, direct or by
/// pointers. Returns the previous setting. Such a function checks it with two instructions; there is no
/// system call and no wait.
///
/// A thread starts with the setting of the thread that starts it. Calls in progress return as they would
/// have. Functions with `#[dyad::isa(.., always)]` ignore it.
pub fn policy(new: Policy) -> Policy {
    let word = &spine::block().local;
    let old = current_policy();
    word.store((new == Policy::Local).into(), Ordering::Relaxed);
    old
}

/// The calling thread's current [`policy`].
pub fn current_policy() -> Policy {
    match spine::block().local.load(Ordering::Relaxed) {
        0 => Policy::Cross,
        _ => Policy::Local,
    }
}

/// Functions of integers and pointers that [`try_call`] can call, by their arguments.
pub trait Callable<A>: sealed::Sealed {
    /// The return type of the function.
    type Output: Word;
    /// Address and arguments.
    #[doc(hidden)]
    fn prepare(self, arguments: A) -> (*const (), [u64; 6]);
}

macro_rules! functions {
    ($(($($name:ident)*))*) => {$(
        impl<R, $($name),*> sealed::Sealed for extern "C" fn($($name),*) -> R {}
        impl<R, $($name),*> Crosses for extern "C" fn($($name),*) -> R {
            const FLOAT: bool = false;
        }
        impl<R: Word, $($name: Word),*> Callable<($($name,)*)> for extern "C" fn($($name),*) -> R {
            type Output = R;
            #[allow(non_snake_case, unused_mut, unused_assignments, reason = "the same for all")]
            fn prepare(self, ($($name,)*): ($($name,)*)) -> (*const (), [u64; 6]) {
                let given: &[u64] = &[$($name.word()),*];
                let mut words = [0; 6];
                words[..given.len()].copy_from_slice(given);
                (self as *const (), words)
            }
        }
    )*};
}

functions! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

/// Calls a function that may run on the other ISA only.
///
/// # Errors
///
/// `NodeDead` if the crossing call was lost: the node that it ran on died, or there is no node of that ISA
/// any more. The function may have done nothing, a part of its work, or all; locks that it had taken stay
/// locked.
pub fn try_call<F, A>(function: F, arguments: A) -> Result<F::Output>
where
    F: Callable<A>,
{
    let (at, words) = function.prepare(arguments);
    // SAFETY: 1. `Callable` is for safe functions of the C convention with just these arguments. 2. What
    // is lost had nothing but references to what others share, or pointers.
    let (value, error) = unsafe { raw::try_call(at, &words) };
    match error {
        0 => Ok(F::Output::of(value)),
        code => Err(Error::from_code(code).unwrap_or(Error::Corrupt)),
    }
}
