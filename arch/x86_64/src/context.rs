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
//!
//! The vector is 0x100 after a system call; 0x101 as long as the area is partial, 0x102 if not even
//! the registers that the C convention preserves are in it. User mode can set
//! the base of fs to 0 at most, and only until its area is resumed or an invocation begins or
//! ends: the area's word is the kernel's.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::emulation::FLOAT_WORDS;
use dyad_abi::user::USER_END;
use dyad_machine::platform::{FpArea, RegArea};

use crate::cpu::{USER_CODE, USER_DATA};

const NAMES: [&str; 23] = [
    "r15", "r14", "r13", "r12", "r11", "r10", "r9", "r8", "rbp", "rdi", "rsi", "rdx", "rcx", "rbx",
    "rax", "vector", "error", "rip", "cs", "rflags", "rsp", "ss", "fsbase",
];
/// Words of registers, by name.
pub const R15: usize = 0;
pub const R14: usize = 1;
pub const R13: usize = 2;
pub const R12: usize = 3;
const R11: usize = 4;
const R10: usize = 5;
const R9: usize = 6;
const R8: usize = 7;
pub const RBP: usize = 8;
/// Word of rdi.
pub const RDI: usize = 9;
const RSI: usize = 10;
const RDX: usize = 11;
const RCX: usize = 12;
pub const RBX: usize = 13;
const RAX: usize = 14;
/// Word of the vector.
pub const VECTOR: usize = 15;
/// Word of the error code.
pub const ERROR: usize = 16;
/// Words of what the CPU pushes.
pub const RIP: usize = 17;
const CS: usize = 18;
pub const RFLAGS: usize = 19;
pub const RSP: usize = 20;
const SS: usize = 21;
/// Word of the base of fs.
pub const FS_BASE: usize = 22;
/// Words that have a meaning.
pub const USED_WORDS: usize = FS_BASE + 1;
/// Words that are pushed; the stack pointer for entries starts behind them.
pub const PUSHED_WORDS: usize = 22;

/// "Vector" of system calls.
const SYSCALL: u64 = 0x100;
/// "Vector" of system calls whose register area is partial.
pub const PARTIAL: u64 = 0x101;
/// "Vector" of the end of an invocation, which saves no general registers.
pub const PARTIAL_END: u64 = 0x102;

/// Interrupts enabled, and the bit that is always set.
pub const FLAGS_FIXED: u64 = 0x202;
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

/// See [`dyad_machine::Platform::init_regs`].
pub fn init_regs(area: &RegArea, entry: u64, stack_top: u64, arg: u64, tp: u64) {
    for w in &area.0[..USED_WORDS] {
        w.store(0, Ordering::Relaxed);
    }
    set(area, RIP, entry);
    // As after a call: the return address (0) is on the stack. Programs choose the address, 0 included.
    set(area, RSP, stack_top.wrapping_sub(8));
    set(area, RDI, arg);
    set(area, FS_BASE, tp);
    set(area, RFLAGS, FLAGS_FIXED);
}

/// Sets the fields of an area that must have certain values before it is resumed, whatever they are.
pub fn sanitise(area: &RegArea) {
    set(area, CS, USER_CODE as u64);
    set(area, SS, USER_DATA as u64);
    set(area, RFLAGS, get(area, RFLAGS) & FLAGS_USER | FLAGS_FIXED);
    for i in [RIP, FS_BASE] {
        set(area, i, user_address(get(area, i)));
    }
}

/// See [`dyad_machine::Platform::syscall_args`].
pub fn syscall_args(area: &RegArea) -> [u64; 6] {
    [RDI, RSI, RDX, R10, R8, R9].map(|i| get(area, i))
}

/// Whether only a part of the registers has been saved.
pub fn is_partial(area: &RegArea) -> bool {
    matches!(get(area, VECTOR), PARTIAL | PARTIAL_END)
}

/// See [`dyad_machine::Platform::complete_area`].
pub fn complete(area: &RegArea, word: u64, [a0, a1, a2, a3, a4]: [u64; 5]) {
    if get(area, VECTOR) == PARTIAL_END {
        // What an earlier call has left in them may be another component's.
        for i in [RBX, RBP, R12, R13, R14, R15] {
            set(area, i, 0);
        }
    }
    for (i, v) in [
        (RDI, word),
        (RSI, a0),
        (RDX, a1),
        (R10, a2),
        (R8, a3),
        (R9, a4),
        (RAX, 0),
        (RCX, 0),
        (R11, 0),
        (VECTOR, SYSCALL),
        (ERROR, 0),
    ] {
        set(area, i, v);
    }
}

/// See [`dyad_machine::Platform::set_result`].
pub fn set_result(area: &RegArea, status: u64, value: u64) {
    set(area, RAX, status);
    set(area, RDX, value);
    for i in [RCX, RSI, RDI, R8, R9, R10, R11] {
        set(area, i, 0);
    }
}

/// All general registers 0 but those given, no flags.
#[inline(always)]
fn set_only<const N: usize>(area: &RegArea, registers: [(usize, u64); N]) {
    for i in 0..VECTOR {
        set(area, i, 0);
    }
    set(area, VECTOR, SYSCALL);
    set(area, ERROR, 0);
    set(area, RFLAGS, FLAGS_FIXED);
    for (i, v) in registers {
        set(area, i, v);
    }
}

/// See [`dyad_machine::Platform::set_arguments`].
pub fn set_arguments(area: &RegArea, [a0, a1, a2, a3, a4, a5]: [u64; 6]) {
    let args = [
        (RDI, a0),
        (RSI, a1),
        (RDX, a2),
        (RCX, a3),
        (R8, a4),
        (R9, a5),
    ];
    set_only(area, args);
}

/// See [`dyad_machine::Platform::set_results`].
pub fn set_results(area: &RegArea, status: u64, [r0, r1, r2, r3]: [u64; 4]) {
    let results = [(RDX, r0), (RSI, r1), (RDI, r2), (R8, r3), (RAX, status)];
    set_only(area, results);
}

/// See [`dyad_machine::Platform::call_registers`].
#[inline(always)]
pub fn call_registers(area: &RegArea) -> ([u64; 6], u64) {
    let args = [RDI, RSI, RDX, RCX, R8, R9].map(|i| get(area, i));
    (args, get(area, RAX))
}

/// Registers that functions preserve, including the stack pointer; return addresses are on the stack.
const PRESERVED: [usize; 7] = [RBX, RBP, R12, R13, R14, R15, RSP];

/// See [`dyad_machine::Platform::park`].
#[inline(always)]
pub fn park(area: &RegArea, parked: &RegArea) {
    for i in PRESERVED {
        set(parked, i, get(area, i));
    }
}

/// See [`dyad_machine::Platform::set_at_gate`].
#[inline(always)]
pub fn set_at_gate(area: &RegArea, parked: &RegArea, pc: u64, args: [u64; 6], function: u64) {
    for i in PRESERVED {
        set(area, i, get(parked, i));
    }
    for (i, v) in [RDI, RSI, RDX, RCX, R8, R9].into_iter().zip(args) {
        set(area, i, v);
    }
    for (i, v) in [
        (RAX, 0),
        (R10, 0),
        (R11, function),
        (VECTOR, SYSCALL),
        (ERROR, 0),
        (RIP, pc),
        (RFLAGS, FLAGS_FIXED),
    ] {
        set(area, i, v);
    }
}

/// See [`dyad_machine::Platform::call_fp`].
pub fn call_fp(area: &FpArea) -> ([u64; 8], [u64; 8]) {
    let args = core::array::from_fn(|i| area.0[XMM + 2 * i].load(Ordering::Relaxed));
    (args, [0; 8])
}

/// See [`dyad_machine::Platform::take_call_fp`].
pub fn take_call_fp(args: &[AtomicU64; 8]) {
    // SAFETY: 1. stores 64 bytes, all of the array; 2. its words are atomics, and the thread that they
    // are of belongs to this CPU.
    unsafe {
        asm!(
            "movq [{at}], xmm0",
            "movq [{at} + 8], xmm1",
            "movq [{at} + 16], xmm2",
            "movq [{at} + 24], xmm3",
            "movq [{at} + 32], xmm4",
            "movq [{at} + 40], xmm5",
            "movq [{at} + 48], xmm6",
            "movq [{at} + 56], xmm7",
            at = in(reg) args.as_ptr(),
            options(nostack, preserves_flags),
        );
    }
}

/// See [`dyad_machine::Platform::give_call_fp`].
pub fn give_call_fp(args: &[AtomicU64; 8]) {
    // SAFETY: 1. reads 64 bytes, all of the array; 2. the kernel has no floating-point state of its own.
    unsafe {
        asm!(
            "movq xmm0, [{at}]",
            "movq xmm1, [{at} + 8]",
            "movq xmm2, [{at} + 16]",
            "movq xmm3, [{at} + 24]",
            "movq xmm4, [{at} + 32]",
            "movq xmm5, [{at} + 40]",
            "movq xmm6, [{at} + 48]",
            "movq xmm7, [{at} + 56]",
            at = in(reg) args.as_ptr(),
            options(nostack, preserves_flags, readonly),
        );
    }
}

/// See [`dyad_machine::Platform::set_call_fp`].
pub fn set_call_fp(area: &FpArea, args: [u64; 8]) {
    for (to, from) in area.0.iter().zip(INITIAL.0) {
        to.store(from, Ordering::Relaxed);
    }
    for (i, v) in args.into_iter().enumerate() {
        area.0[XMM + 2 * i].store(v, Ordering::Relaxed);
    }
}

/// See [`dyad_machine::Platform::user_pc_sp`].
pub fn user_pc_sp(area: &RegArea) -> (u64, u64) {
    (get(area, RIP), get(area, RSP))
}

/// See [`dyad_machine::Platform::set_user_pc_sp`].
pub fn set_user_pc_sp(area: &RegArea, pc: u64, sp: u64) {
    set(area, RIP, user_address(pc));
    set(area, RSP, user_address(sp));
}

/// See [`dyad_machine::Platform::set_frame_pointer`].
pub fn set_frame_pointer(area: &RegArea, fp: u64) {
    set(area, RBP, fp);
}

/// See [`dyad_machine::Platform::set_entry`].
#[inline(always)]
pub fn set_entry(area: &RegArea, pc: u64) {
    set(area, RIP, pc);
    set(area, RSP, 0);
}

/// See [`dyad_machine::Platform::set_return`]. The stack pointer may be anything in user mode.
#[inline(always)]
pub fn set_return(area: &RegArea, pc: u64, sp: u64) {
    set(area, RIP, user_address(pc));
    set(area, RSP, sp);
}

/// An address that is not canonical would fault in the kernel, at the return instruction.
const fn user_address(va: u64) -> u64 {
    if va < USER_END { va } else { 0 }
}

/// Words of registers by number: the order of the psABI, then program counter, flags, base of fs.
const NUMBERED: [usize; 19] = [
    RAX, RDX, RCX, RBX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13, R14, R15, RIP, RFLAGS,
    FS_BASE,
];

fn numbered(n: u64) -> Option<usize> {
    NUMBERED.get(usize::try_from(n).ok()?).copied()
}

/// See [`dyad_machine::Platform::read_register`].
pub fn read_register(area: &RegArea, n: u64) -> Option<u64> {
    numbered(n).map(|i| get(area, i))
}

/// See [`dyad_machine::Platform::write_register`].
pub fn write_register(area: &RegArea, n: u64, value: u64) -> bool {
    let Some(i) = numbered(n) else {
        return false;
    };
    let value = match i {
        RIP | RSP | FS_BASE => user_address(value),
        RFLAGS => value & FLAGS_USER | FLAGS_FIXED,
        _ => value,
    };
    set(area, i, value);
    true
}

/// See [`dyad_machine::Platform::user_pc_fp`].
pub fn user_pc_fp(area: &RegArea) -> (u64, u64) {
    (get(area, RIP), get(area, RBP))
}

/// Vector and error code of the last entry.
pub fn cause(area: &RegArea) -> (u64, u64) {
    (get(area, VECTOR), get(area, ERROR))
}

/// See [`dyad_machine::Platform::dump_regs`].
pub fn dump_regs(area: &RegArea, line: &mut dyn FnMut(&str, u64)) {
    for (i, name) in NAMES.iter().enumerate() {
        line(name, get(area, i));
    }
}

/// See [`dyad_machine::Platform::fp_on`].
pub fn fp_on() {
    // SAFETY: 1. clears CR0.TS alone; 2. kernel code has no instruction that this lets through.
    unsafe { asm!("clts", options(nomem, nostack, preserves_flags)) };
}

/// See [`dyad_machine::Platform::fp_off`].
pub fn fp_off() {
    // SAFETY: 1. sets CR0.TS alone; 2. code that saves or loads the registers turns them on before.
    unsafe {
        asm!(
            "mov {cr0}, cr0",
            "or {cr0}, 8",
            "mov cr0, {cr0}",
            cr0 = out(reg) _,
            options(nomem, nostack),
        );
    }
}

/// See [`dyad_machine::Platform::save_fp`].
pub fn save_fp(area: &FpArea) {
    let at = area.0.as_ptr();
    // SAFETY: 1. the area is 16-byte aligned and longer than the 512 bytes stored; 2. its words
    // are atomics, and the thread belongs to this CPU.
    unsafe { asm!("fxsave64 [{}]", in(reg) at, options(nostack, preserves_flags)) };
}

/// See [`dyad_machine::Platform::restore_fp`].
pub fn restore_fp(area: &FpArea) {
    // A reserved MXCSR bit would fault in the kernel; keep those that exist on every CPU.
    let mxcsr = area.0[3].load(Ordering::Relaxed);
    area.0[3].store(mxcsr & 0xffff_ffff_0000_ffbf, Ordering::Relaxed);
    let at = area.0.as_ptr();
    // Where the last x87 instruction was need not come with the image: that goes first.
    // SAFETY: 1. see `save_fp`; 2. the kernel has no floating-point state of its own.
    unsafe { asm!("fninit", "fxrstor64 [{}]", in(reg) at, options(nostack, preserves_flags)) };
}

/// First word of the vector registers in an FXSAVE image; two words each.
const XMM: usize = 20;
/// Words of them.
const XMM_WORDS: usize = 2 * 16;
/// Bits of MXCSR that a thread may be given: not denormals-are-zero, which not every CPU has.
const MXCSR_LOADED: u64 = 0xffbf;
/// Exceptions are masked.
const MXCSR_MASKS: u64 = 0x1f80;

/// See [`dyad_machine::Platform::unload_fp`].
pub fn unload_fp(area: &FpArea) -> [u64; FLOAT_WORDS] {
    let mut words = [0; FLOAT_WORDS];
    words[0] = area.0[3].load(Ordering::Relaxed) & 0xffff;
    for (to, from) in words[2..].iter_mut().zip(&area.0[XMM..XMM + XMM_WORDS]) {
        *to = from.load(Ordering::Relaxed);
    }
    words
}

/// See [`dyad_machine::Platform::load_fp`]. The x87 part is the initial one.
pub fn load_fp(area: &FpArea, words: &[u64; FLOAT_WORDS]) {
    for word in &area.0 {
        word.store(0, Ordering::Relaxed);
    }
    let mxcsr = words[0] & MXCSR_LOADED | MXCSR_MASKS;
    area.0[0].store(INITIAL.0[0], Ordering::Relaxed);
    area.0[3].store(mxcsr, Ordering::Relaxed);
    for (to, &from) in area.0[XMM..XMM + XMM_WORDS].iter().zip(&words[2..]) {
        to.store(from, Ordering::Relaxed);
    }
}

/// An FXSAVE image.
#[repr(C, align(16))]
struct Image([u64; 64]);

/// FCW at byte 0, MXCSR at byte 24: all exceptions masked, round to nearest.
static INITIAL: Image = {
    let mut words = [0; 64];
    words[0] = 0x037f;
    words[3] = 0x1f80;
    Image(words)
};

/// See [`dyad_machine::Platform::reset_fp`].
pub fn reset_fp() {
    let at = INITIAL.0.as_ptr();
    // SAFETY: 1. the image is aligned, constant, and has no reserved bit of MXCSR set; 2. the kernel
    // has no floating-point state of its own.
    unsafe {
        asm!("fninit", "fxrstor64 [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
}
