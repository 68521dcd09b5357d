//! Register areas of user threads.
//!
//! | word | content |
//! |---|---|
//! | 0..=14 | r15 r14 r13 r12 r11 r10 r9 r8 rbp rdi rsi rdx rcx rbx rax |
//! | 15, 16 | vector, error code |
//! | 17..=21 | rip cs rflags rsp ss, as the CPU pushes them |
//! | 22 | base of fs |
//!
//! The order is that of pushes onto the end of the first 22 words: while a thread runs, that is
//! where the CPU's stack pointer for entries from user mode points.

use core::arch::asm;
use core::sync::atomic::Ordering;

use dyad_core::platform::{FpArea, RegArea};

use crate::cpu::{USER_CODE, USER_DATA};

const NAMES: [&str; 23] = [
    "r15", "r14", "r13", "r12", "r11", "r10", "r9", "r8", "rbp", "rdi", "rsi", "rdx", "rcx", "rbx",
    "rax", "vector", "error", "rip", "cs", "rflags", "rsp", "ss", "fsbase",
];
const R9: usize = 6;
const R8: usize = 7;
const R10: usize = 5;
const RBP: usize = 8;
const RDI: usize = 9;
const RSI: usize = 10;
const RDX: usize = 11;
const RAX: usize = 14;
/// Word of the vector.
pub const VECTOR: usize = 15;
/// Word of the error code.
pub const ERROR: usize = 16;
const RIP: usize = 17;
const CS: usize = 18;
const RFLAGS: usize = 19;
const RSP: usize = 20;
const SS: usize = 21;
/// Word of the base of fs.
pub const FS_BASE: usize = 22;
/// Words that are pushed; the stack pointer for entries starts behind them.
pub const PUSHED_WORDS: usize = 22;

/// Interrupts enabled, and the bit that is always set.
const FLAGS_FIXED: u64 = 0x202;
/// Flags that are the thread's own: carry, parity, adjust, zero, sign, direction, overflow.
const FLAGS_USER: u64 = 0xcd5;

// The CPU aligns the stack pointer to 16 bytes before it pushes.
const _: () = assert!(PUSHED_WORDS.is_multiple_of(2));

fn get(area: &RegArea, i: usize) -> u64 {
    area.0[i].load(Ordering::Relaxed)
}

fn set(area: &RegArea, i: usize, v: u64) {
    area.0[i].store(v, Ordering::Relaxed);
}

/// See [`dyad_core::Platform::init_regs`].
pub fn init_regs(area: &RegArea, entry: u64, stack_top: u64, arg: u64, tp: u64) {
    for w in &area.0 {
        w.store(0, Ordering::Relaxed);
    }
    set(area, RIP, entry);
    // As after a call: the return address (0) is on the stack.
    set(area, RSP, stack_top - 8);
    set(area, RDI, arg);
    set(area, FS_BASE, tp);
    set(area, RFLAGS, FLAGS_FIXED);
}

/// Forces what must hold of an area before it is resumed, whatever is in it.
pub fn sanitise(area: &RegArea) {
    set(area, CS, USER_CODE as u64);
    set(area, SS, USER_DATA as u64);
    set(area, RFLAGS, get(area, RFLAGS) & FLAGS_USER | FLAGS_FIXED);
    // An address that is not canonical would fault in the kernel, at the return instruction.
    for i in [RIP, FS_BASE] {
        if get(area, i) >= dyad_abi::user::USER_END {
            set(area, i, 0);
        }
    }
}

/// See [`dyad_core::Platform::init_fp`].
pub fn init_fp(area: &FpArea) {
    for w in &area.0 {
        w.store(0, Ordering::Relaxed);
    }
    // FXSAVE image: FCW at byte 0, MXCSR at byte 24: all exceptions masked, round to nearest.
    area.0[0].store(0x037f, Ordering::Relaxed);
    area.0[3].store(0x1f80, Ordering::Relaxed);
}

/// See [`dyad_core::Platform::syscall_args`].
pub fn syscall_args(area: &RegArea) -> [u64; 6] {
    [RDI, RSI, RDX, R10, R8, R9].map(|i| get(area, i))
}

/// See [`dyad_core::Platform::set_result`].
pub fn set_result(area: &RegArea, status: u64, value: u64) {
    set(area, RAX, status);
    set(area, RDX, value);
}

/// See [`dyad_core::Platform::user_pc_fp`].
pub fn user_pc_fp(area: &RegArea) -> (u64, u64) {
    (get(area, RIP), get(area, RBP))
}

/// Vector and error code of the last entry.
pub fn cause(area: &RegArea) -> (u64, u64) {
    (get(area, VECTOR), get(area, ERROR))
}

/// See [`dyad_core::Platform::dump_regs`].
pub fn dump_regs(area: &RegArea, line: &mut dyn FnMut(&str, u64)) {
    for (i, name) in NAMES.iter().enumerate() {
        line(name, get(area, i));
    }
}

/// See [`dyad_core::Platform::save_fp`].
pub fn save_fp(area: &FpArea) {
    let at = area.0.as_ptr();
    // SAFETY: 1. the area is 16-byte aligned and longer than the 512 bytes stored; 2. its words
    // are atomics, and the thread belongs to this CPU.
    unsafe { asm!("fxsave64 [{}]", in(reg) at, options(nostack, preserves_flags)) };
}

/// See [`dyad_core::Platform::restore_fp`].
pub fn restore_fp(area: &FpArea) {
    // A reserved MXCSR bit would fault in the kernel; keep those that exist on every CPU.
    let mxcsr = area.0[3].load(Ordering::Relaxed);
    area.0[3].store(mxcsr & 0xffff_ffff_0000_ffbf, Ordering::Relaxed);
    let at = area.0.as_ptr();
    // SAFETY: 1. see `save_fp`; 2. the kernel has no floating-point state of its own.
    unsafe { asm!("fxrstor64 [{}]", in(reg) at, options(nostack, preserves_flags)) };
}
