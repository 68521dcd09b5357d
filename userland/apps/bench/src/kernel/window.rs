//! Windows: one function each, not inlined, so that nothing else can get into them.
//!
//! What is in a window is what a program pays: the stub of the system call and the entry, the
//! operation and the exit of the kernel. Arguments are in their registers when it begins.

#![allow(unsafe_code)]

use core::hint::black_box;

use dyad::sys::marker;
use dyad::sys::raw::{self, SyscallReturn};

/// The control.
#[inline(never)]
pub fn empty<const ID: u16>() {
    marker::begin::<ID>();
    marker::end::<ID>();
}

/// A call in window `ID`.
#[inline(never)]
pub fn call<const ID: u16>(w: u64, a: u64, b: u64, c: u64, d: u64, e: u64) -> SyscallReturn {
    marker::begin::<ID>();
    // SAFETY: 1. The calls made here take no memory away that is in use, and no addresses.
    let r = unsafe { raw::call_raw(w, [a, b, c, d, e]) };
    marker::end::<ID>();
    r
}

/// A call that begins window `ID`; another thread ends it.
#[inline(never)]
pub fn begin<const ID: u16>(w: u64, a: u64) -> SyscallReturn {
    marker::begin::<ID>();
    // SAFETY: 1. The calls made here take no memory away that is in use, and no addresses.
    let r = unsafe { raw::call_raw(w, [a, 0, 0, 0, 0]) };
    // No thread has ended it, if it is still open.
    marker::abandon();
    r
}

/// Two calls in window `ID`: a send, and a receive of what has come back. The bits received.
#[inline(never)]
pub fn there_and_back<const ID: u16>(send: u64, receive: u64, line: u64, until: u64) -> u64 {
    marker::begin::<ID>();
    // SAFETY: 1. The calls made here take no memory away that is in use, and no addresses.
    let _ = unsafe { raw::call_raw(send, [0; 5]) };
    // SAFETY: 1. The calls made here take no memory away that is in use, and no addresses.
    let r = unsafe { raw::call_raw(receive, [line, until, 0, 0, 0]) };
    marker::end::<ID>();
    r.value
}

/// An invocation in window `ID`, four words each way, by a caller whose floating-point registers are
/// off: there has been another one just before, and nothing that uses them since.
#[inline(never)]
pub fn invoke_again<const ID: u16>(word: u64, words: [u64; 4], reply: &mut [u64; 4]) -> u64 {
    let first = raw::invoke(word, words, reply);
    marker::begin::<ID>();
    let status = raw::invoke(word, words, reply);
    marker::end::<ID>();
    first | status
}

/// An invocation in window `ID`, four words each way.
#[inline(never)]
pub fn invoke<const ID: u16>(word: u64, words: [u64; 4], reply: &mut [u64; 4]) -> u64 {
    marker::begin::<ID>();
    let status = raw::invoke(word, words, reply);
    marker::end::<ID>();
    status
}

/// An invocation of a component on another node: begins window `BEGIN`, ends window `END`. Kernels
/// do the rest.
#[inline(never)]
pub fn invoke_elsewhere<const BEGIN: u16, const END: u16>(
    word: u64,
    words: [u64; 4],
    reply: &mut [u64; 4],
) -> u64 {
    marker::begin::<BEGIN>();
    let status = raw::invoke(word, words, reply);
    marker::end::<END>();
    status
}

/// A function that is on one ISA only, and returns what it is given.
pub type Elsewhere = extern "C" fn(u64) -> u64;

/// That of x86-64.
#[dyad::isa(x86_64)]
extern "C" fn on_x86_64(n: u64) -> u64 {
    black_box(n)
}

/// That of AArch64.
#[dyad::isa(aarch64)]
extern "C" fn on_aarch64(n: u64) -> u64 {
    black_box(n)
}

/// The one of an ISA.
pub fn elsewhere(isa: dyad::Isa) -> Elsewhere {
    match isa {
        dyad::Isa::X86_64 => on_x86_64,
        dyad::Isa::Aarch64 => on_aarch64,
    }
}

/// A crossing call: begins window `BEGIN`, ends window `END`. Kernels do the rest.
#[inline(never)]
pub fn call_elsewhere<const BEGIN: u16, const END: u16>(function: Elsewhere, n: u64) -> u64 {
    marker::begin::<BEGIN>();
    let n = function(n);
    marker::end::<END>();
    n
}

/// A load in window `ID`.
#[inline(never)]
pub fn touch<const ID: u16>(at: *const u64) -> u64 {
    marker::begin::<ID>();
    // SAFETY: 1. The worker has seen to it that a page gets there.
    let v = unsafe { at.read_volatile() };
    marker::end::<ID>();
    v
}

/// Counts the operation in a thread whose floating-point registers are off, because of an invocation just
/// before. In one function: on AArch64, the end of a function that has invoked uses such registers.
#[inline(never)]
pub fn touch_after<const ID: u16>(word: u64, at: *const u64) -> u64 {
    let first = raw::invoke1(word, [0; 4]);
    marker::begin::<ID>();
    // SAFETY: 1. The worker has seen to it that a page gets there.
    let v = unsafe { at.read_volatile() };
    marker::end::<ID>();
    v | first.status
}

/// A conversion in window `ID`, also after an invocation.
#[inline(never)]
pub fn convert_after<const ID: u16>(word: u64, value: u64) -> f64 {
    let first = raw::invoke1(word, [0; 4]);
    marker::begin::<ID>();
    let v = black_box(black_box(value) as f64);
    marker::end::<ID>();
    if first.status == 0 { v } else { f64::NAN }
}

/// The samples so far were for warming up.
pub fn forget<const ID: u16>() {
    marker::forget::<ID>();
}

/// Calls a function whose window is that of an operation on objects in some memory.
#[macro_export]
macro_rules! in_window {
    ($op:ident, $memory:expr, $f:ident($($a:expr),*)) => {
        match $memory {
            dyad_abi::marker::BenchMemory::Local => $crate::kernel::window::$f::<
                { dyad_abi::marker::BenchOp::$op.window(dyad_abi::marker::BenchMemory::Local).0 },
            >($($a),*),
            dyad_abi::marker::BenchMemory::Fused => $crate::kernel::window::$f::<
                { dyad_abi::marker::BenchOp::$op.window(dyad_abi::marker::BenchMemory::Fused).0 },
            >($($a),*),
        }
    };
}
