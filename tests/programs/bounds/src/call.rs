//! Calls in windows, and what was wrong with their outcomes.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::Error;
use dyad_services::text::Text;
use dyad_sys::marker;
use dyad_sys::raw::{self, SyscallReturn};

/// Calls whose outcome was not the expected one.
pub static WRONG: AtomicU64 = AtomicU64::new(0);

/// A call in window `ID`.
#[inline(never)]
pub fn call<const ID: u16>(word: u64, args: [u64; 5]) -> SyscallReturn {
    marker::begin::<ID>();
    // SAFETY: 1. What the calls of this program take away, it does not use. 2. Addresses are those of
    // its own buffers, or of spaces in which nothing runs.
    let result = unsafe { raw::call_raw(word, args) };
    marker::end::<ID>();
    result
}

/// An invocation in window `ID`.
#[inline(never)]
pub fn invoke<const ID: u16>(word: u64, words: [u64; 4]) -> u64 {
    let mut reply = [0; 4];
    marker::begin::<ID>();
    let status = raw::invoke(word, words, &mut reply);
    marker::end::<ID>();
    status
}

/// A store in window `ID`.
#[inline(never)]
pub fn touch<const ID: u16>(at: *mut u64) {
    marker::begin::<ID>();
    // SAFETY: 1. The callers name addresses of their own regions, or mean the fault.
    unsafe { at.write_volatile(1) };
    marker::end::<ID>();
}

/// Takes note of a call that should have gone well.
pub fn expect(name: &str, status: u64) {
    expect_one_of(name, status, &[0]);
}

/// Takes note of a call that should have ended with one of these. If it tells of a dead node the program ends: what
/// comes next would name that node, too.
pub fn expect_one_of(name: &str, status: u64, wanted: &[u64]) {
    if !wanted.contains(&status) {
        if status == Error::NodeDead.code() {
            crate::service::end(false, &Text::of(format_args!("{name}: a node has died")));
        }
        WRONG.fetch_add(1, Ordering::Relaxed);
        crate::service::say(format_args!("{name}: status {status}"));
    }
}

/// Performs an operation in its window; the value of the expression is what the kernel returns.
#[macro_export]
macro_rules! operation {
    ($ty:ident, $ops:ident::$op:ident, $cap:expr $(, $a:expr)* $(,)?) => {{
        const ID: u16 = dyad_abi::marker::WindowId::of_operation(
            dyad_abi::cap::CapType::$ty as u32,
            dyad_abi::cap::$ops::$op as u32,
        ).0;
        let given: &[u64] = &[$($a),*];
        let args = core::array::from_fn(|i| given.get(i).copied().unwrap_or(0));
        let word = dyad_abi::cap::call_word($cap.index(), dyad_abi::cap::$ops::$op as u32);
        $crate::call::call::<ID>(word, args)
    }};
}

/// Performs an operation in its window, which is to succeed; its value.
#[macro_export]
macro_rules! succeed {
    ($ty:ident, $ops:ident::$op:ident, $cap:expr $(, $a:expr)* $(,)?) => {{
        let r = $crate::operation!($ty, $ops::$op, $cap $(, $a)*);
        $crate::call::expect(concat!(stringify!($ty), ".", stringify!($op)), r.status);
        r.value
    }};
}
