//! Functions that run on one ISA only, and calls of them from the other one.
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
//! Such a function is called like any other, from anywhere: directly, through a pointer, through a table
//! in which functions of both ISAs are mixed. On its own ISA that is all. On the other one its text cannot
//! be executed; the call faults, and the kernel has the thread go on over there, with the arguments, on the
//! thread's stack of that ISA, and come back with the result. What it is given by reference it uses where
//! that is: all memory is at the same address on both. It may call functions of the caller's ISA in turn,
//! to any depth (of 256).
//!
//! # What can cross
//!
//! Calls are carried over register by register, so arguments and results are such that both ISAs have
//! them in the same registers ([`Crosses`]): at most six integers of 32 or 64 bits or thin pointers, at most
//! eight floating-point numbers, and one of these as a result. The attribute checks that, and the build
//! once more, of what the compiler has made of it.
//!
//! # Running them here
//!
//! Both ISAs have a body of each function, so whether a call crosses is a matter of policy. With
//! [`policy`]`(Policy::Local)` what the calling thread calls runs where it is, by whatever pointer it is
//! called; results are the same. It takes effect with the next call, and threads start with the policy
//! of the thread that starts them.
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
//! A function that has to be on its ISA, because it measures something there, say, is
//! `#[dyad::isa(aarch64, always)]`: calls of it cross whatever the policy is.
//!
//! # When the other machine dies
//!
//! A call that cannot come back ends the program with a message; [`try_call`] makes one whose caller wants
//! to hear of it.

pub use dyad_rt::crossing::{
    Callable, ComesBack, Crosses, Policy, Word, comes_back, crosses, current_policy, fits, policy,
    try_call,
};

/// What `#[dyad::isa]` refuses: each of these must fail to compile.
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
