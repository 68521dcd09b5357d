//! Functions that run on one ISA only, and calls of them from the other ISA.
//!
//! ```no_run
//! # #![no_main]
//! #[dyad::isa(aarch64)]
//! extern "C" fn sum(of: &[u64; 4], times: u64) -> u64 {
//!     of.iter().sum::<u64>() * times
//! }
//!
//! # fn f() {
//! let here = [1, 2, 3, 4];
//! assert_eq!(sum(&here, 2), 20);
//! # }
//! ```
//!
//! Such a function is called like any other, from anywhere: directly, through a pointer, or through a table
//! that mixes functions of both ISAs. A call on the function's own ISA is an ordinary call. On the other ISA
//! its text cannot be executed, so the call faults. The kernel then continues the thread on the function's
//! ISA, with the arguments, on the thread's stack of that ISA, and brings it back with the result. Arguments
//! passed by reference are used in place, because all memory has the same address on both ISAs. The function
//! may call functions of the caller's ISA in turn, up to a depth of 256.
//!
//! # What can cross
//!
//! Calls are carried over register by register, so arguments and results must be in the same registers on
//! both ISAs ([`Crosses`]): at most six integers of 32 or 64 bits or thin pointers, at most eight
//! floating-point numbers, and one of these as a result. The attribute checks that, and the build checks the
//! compiler's output again.
//!
//! # Running them locally
//!
//! Both ISAs have a body of each function, so whether a call crosses is a matter of policy. With
//! [`policy`]`(Policy::Local)`, functions that the calling thread calls run on its present ISA, by whatever
//! pointer they are called, with the same results. The policy takes effect with the next call, and a thread
//! starts with the policy of the thread that starts it.
//!
//! ```no_run
//! # #[dyad::isa(aarch64)]
//! # extern "C" fn sum(of: &[u64; 4], times: u64) -> u64 {
//! #     of.iter().sum::<u64>() * times
//! # }
//! use dyad::crossing::{Policy, policy};
//!
//! # fn main() {
//! let before = policy(Policy::Local);
//! assert_eq!(sum(&[1, 2, 3, 4], 2), 20); // on this ISA
//! policy(before);
//! # }
//! ```
//!
//! A function that must run on its ISA, for example because it measures something there, is declared
//! `#[dyad::isa(aarch64, always)]`: calls of it cross whatever the policy is.
//!
//! # When the other machine dies
//!
//! A call that cannot come back ends the program with a message; [`try_call`] makes a call that returns an
//! error instead.

pub use dyad_rt::crossing::{
    Callable, ComesBack, Crosses, Policy, Word, comes_back, crosses, current_policy, fits, kind,
    policy, try_call,
};

/// Uses of `#[dyad::isa]` that must fail to compile.
///
/// ```compile_fail,E0277
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Pair(u64, u64);
/// #[dyad::isa(aarch64)]
/// extern "C" fn f(pair: Pair) -> u64 { pair.0 }
/// ```
/// ```compile_fail,E0277
/// #[dyad::isa(aarch64)]
/// extern "C" fn f(text: &str) -> u64 { text.len() as u64 }
/// ```
/// ```compile_fail,E0277
/// #[dyad::isa(aarch64)]
/// extern "C" fn f(a: u64) -> (u64, u64) { (a, a) }
/// ```
/// ```compile_fail,E0277
/// #[dyad::isa(x86_64)]
/// extern "C" fn f(a: u128) {}
/// ```
/// ```compile_fail,E0277
/// #[dyad::isa(x86_64)]
/// extern "C" fn f(a: fn(&u64) -> u64) {}
/// ```
/// ```compile_fail,E0080
/// #[dyad::isa(x86_64)]
/// extern "C" fn f(a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64) {}
/// ```
/// ```compile_fail,E0080
/// #[dyad::isa(x86_64)]
/// extern "C" fn f(a: f64, b: f64, c: f64, d: f64, e: f64, f: f64, g: f64, h: f64, i: f64) {}
/// ```
/// ```compile_fail
/// #[dyad::isa(aarch64)]
/// extern "C" fn f<T>(a: &T) {}
/// ```
/// ```compile_fail
/// #[dyad::isa(aarch64)]
/// extern "C" fn f(a: &impl Copy) {}
/// ```
/// ```compile_fail
/// #[dyad::isa(aarch64)]
/// async extern "C" fn f() {}
/// ```
/// ```compile_fail
/// #[dyad::isa(aarch64)]
/// fn f() {}
/// ```
/// ```compile_fail
/// #[dyad::isa]
/// extern "C" fn f() {}
/// ```
/// ```compile_fail
/// #[dyad::isa(riscv)]
/// extern "C" fn f() {}
/// ```
/// ```compile_fail
/// #[dyad::isa(aarch64, sometimes)]
/// extern "C" fn f() {}
/// ```
/// ```compile_fail
/// struct S;
/// impl S {
///     #[dyad::isa(aarch64)]
///     extern "C" fn f(&self) {}
/// }
/// ```
/// ```compile_fail
/// #[dyad::isa(aarch64)]
/// struct S;
/// ```
///
/// These compile:
///
/// ```no_run
/// #[dyad::isa(aarch64)]
/// extern "C" fn f(a: u64, b: &mut [u8; 3], c: *const u32, d: f64, e: extern "C" fn(u64) -> u64) -> f64 {
///     d
/// }
/// #[dyad::isa(x86_64)]
/// unsafe extern "C" fn g(a: i32) -> i32 {
///     a
/// }
/// #[dyad::isa(x86_64, always)]
/// pub extern "C" fn h() {}
/// #[dyad::isa(x86_64)]
/// extern "C" fn i(less: extern "C" fn(&u64, &u64) -> i32, at: for<'a> unsafe extern "C" fn(&'a u64) -> &'a u64) {}
/// # fn main() { h() }
/// ```
#[cfg(doctest)]
pub struct RefusedByIsa;
