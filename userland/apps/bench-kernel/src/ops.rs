//! One repetition of each operation.
//!
//! What is in a window is what a program pays: the stub of the system call and the entry, the
//! operation and the exit of the kernel. Arguments are made before it.

#![allow(unsafe_code)]

use core::hint::black_box;

use dyad::sys::marker;
use dyad::sys::raw::{self, SyscallReturn};
use dyad_abi::Error;
use dyad_abi::marker::BenchMemory::Fused;
use dyad_abi::marker::{BenchMemory, BenchOp};
use dyad_abi::syscall::Syscall;

const EMPTY: u16 = BenchOp::Empty.window(BenchMemory::Local).0;
// The state of threads is in fused memory.
const NULL_SYSCALL: u16 = BenchOp::NullSyscall.window(Fused).0;
const NOW: u16 = BenchOp::Now.window(Fused).0;

/// A number that no system call has.
const NO_SUCH_CALL: u64 = 1 << 20;

/// The control. As every window it has a function of its own, which is not inlined, so that
/// nothing else can get into it.
#[inline(never)]
fn empty() {
    marker::begin::<EMPTY>();
    marker::end::<EMPTY>();
}

/// A system call in window `ID`.
#[inline(never)]
fn call<const ID: u16>(op: u64) -> SyscallReturn {
    let (op, args) = black_box((op, [0; 5]));
    // SAFETY: 1. The calls made here take no addresses and no memory away.
    marker::window::<ID, _>(|| unsafe { raw::call_raw(op, args) })
}

/// Makes one repetition of every operation; returns how many had another outcome than expected.
pub fn all() -> u64 {
    empty();
    let null = call::<NULL_SYSCALL>(NO_SUCH_CALL);
    let now = call::<NOW>(Syscall::Now as u64);
    let good = [
        null.status == Error::BadSyscall.code(),
        now.status == 0 && now.value != 0,
    ];
    good.into_iter().filter(|good| !good).count() as u64
}

/// Drops the samples of all operations so far.
pub fn forget_all() {
    marker::forget::<EMPTY>();
    marker::forget::<NULL_SYSCALL>();
    marker::forget::<NOW>();
}
