//! Registers of user threads: layout of the register areas, floating point.
//!
//! | word of the register area | register |
//! |---|---|
//! | 0 to 30 | `x0` to `x30` |
//! | 31 | stack pointer |
//! | 32 | program counter |
//! | 33 | flags (`SPSR_EL1`) |
//! | 34 | 0, or what is missing (below) |
//! | 35 | thread pointer (`TPIDR_EL0`) |
//!
//! Word 34 is [`SYSCALL`] while the area is partial, and anything else while not even the registers
//! that the C convention preserves are in it.
//!
//! The thread pointer is the kernel's: what user mode writes to `TPIDR_EL0` lasts until its area is
//! resumed, or an invocation begins or ends, at most. So no component is entered with the caller's.
//!
//! A floating-point area holds `q0` to `q31`, then `FPCR` and `FPSR`.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::emulation::FLOAT_WORDS;
use dyad_abi::user::USER_END;
use dyad_machine::platform::{FP_WORDS, FpArea, REG_WORDS, RegArea};

/// Word of the stack pointer.
pub const AREA_SP: usize = 31;
/// Word of the program counter; the flags follow.
pub const AREA_PC: usize = 32;
/// Word of the flags.
pub const AREA_FLAGS: usize = 33;
/// Word that says whether the area is partial.
pub const AREA_CAUSE: usize = 34;
/// Word of the thread pointer.
pub const AREA_TP: usize = 35;
/// Words that have a meaning.
pub const USED_WORDS: usize = AREA_TP + 1;
/// `ESR_EL1` at a system call: `svc #0`.
pub const SYSCALL: u64 = 0x5600_0000;
const AREA_FP: usize = 29;
/// First register that the C convention preserves; `x30` is among them for us, because a call stub
/// has nowhere else to keep its return address.
const PRESERVED: usize = 19;
const FP_CONTROL: usize = 64;

/// Flags that are the thread's own: negative, zero, carry, overflow.
const FLAGS_USER: u64 = 0xf000_0000;

const _: () = assert!(AREA_TP < REG_WORDS && FP_CONTROL + 1 < FP_WORDS);

global_asm!(
    r#"
    .arch_extension fp
    .arch_extension simd

    .section .text.fp_context, "ax"
    // fn(area)
    .globl  save_float_registers
save_float_registers:
    stp     q0, q1, [x0]
    stp     q2, q3, [x0, #32]
    stp     q4, q5, [x0, #64]
    stp     q6, q7, [x0, #96]
    stp     q8, q9, [x0, #128]
    stp     q10, q11, [x0, #160]
    stp     q12, q13, [x0, #192]
    stp     q14, q15, [x0, #224]
    stp     q16, q17, [x0, #256]
    stp     q18, q19, [x0, #288]
    stp     q20, q21, [x0, #320]
    stp     q22, q23, [x0, #352]
    stp     q24, q25, [x0, #384]
    stp     q26, q27, [x0, #416]
    stp     q28, q29, [x0, #448]
    stp     q30, q31, [x0, #480]
    mrs     x1, fpcr
    mrs     x2, fpsr
    str     x1, [x0, #{control}]
    str     x2, [x0, #{control} + 8]
    ret

    // fn(area)
    .globl  load_float_registers
load_float_registers:
    ldr     x1, [x0, #{control}]
    ldr     x2, [x0, #{control} + 8]
    msr     fpcr, x1
    msr     fpsr, x2
    ldp     q0, q1, [x0]
    ldp     q2, q3, [x0, #32]
    ldp     q4, q5, [x0, #64]
    ldp     q6, q7, [x0, #96]
    ldp     q8, q9, [x0, #128]
    ldp     q10, q11, [x0, #160]
    ldp     q12, q13, [x0, #192]
    ldp     q14, q15, [x0, #224]
    ldp     q16, q17, [x0, #256]
    ldp     q18, q19, [x0, #288]
    ldp     q20, q21, [x0, #320]
    ldp     q22, q23, [x0, #352]
    ldp     q24, q25, [x0, #384]
    ldp     q26, q27, [x0, #416]
    ldp     q28, q29, [x0, #448]
    ldp     q30, q31, [x0, #480]
    ret

    // fn(args, kept)
    .globl  take_call_registers
take_call_registers:
    stp     d0, d1, [x0]
    stp     d2, d3, [x0, #16]
    stp     d4, d5, [x0, #32]
    stp     d6, d7, [x0, #48]
    stp     d8, d9, [x1]
    stp     d10, d11, [x1, #16]
    stp     d12, d13, [x1, #32]
    stp     d14, d15, [x1, #48]
    ret

    // fn(args)
    .globl  give_call_arguments
give_call_arguments:
    ldp     d0, d1, [x0]
    ldp     d2, d3, [x0, #16]
    ldp     d4, d5, [x0, #32]
    ldp     d6, d7, [x0, #48]
    ret

    // fn(kept)
    .globl  give_call_kept
give_call_kept:
    ldp     d8, d9, [x0]
    ldp     d10, d11, [x0, #16]
    ldp     d12, d13, [x0, #32]
    ldp     d14, d15, [x0, #48]
    ret

    // fn(): round to nearest, no traps, no flushing, no exceptions so far.
    .globl  reset_float_registers
reset_float_registers:
    msr     fpcr, xzr
    msr     fpsr, xzr
    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    movi    v\n\().2d, #0
    .endr
    ret

    .arch_extension nosimd
    .arch_extension nofp
    "#,
    control = const FP_CONTROL * 8,
);

unsafe extern "C" {
    fn save_float_registers(area: &FpArea);
    fn load_float_registers(area: &FpArea);
    fn reset_float_registers();
    fn take_call_registers(args: &[AtomicU64; 8], kept: &[AtomicU64; 8]);
    fn give_call_arguments(args: &[AtomicU64; 8]);
    fn give_call_kept(kept: &[AtomicU64; 8]);
}

fn get(area: &RegArea, word: usize) -> u64 {
    area.0[word].load(Ordering::Relaxed)
}

fn set(area: &RegArea, word: usize, value: u64) {
    area.0[word].store(value, Ordering::Relaxed);
}

/// See [`dyad_machine::Platform::init_regs`].
pub fn init_regs(area: &RegArea, entry: u64, stack_top: u64, arg: u64, tp: u64) {
    for word in 0..REG_WORDS {
        set(area, word, 0);
    }
    set(area, 0, arg);
    set(area, AREA_SP, stack_top);
    set(area, AREA_PC, entry);
    set(area, AREA_TP, tp);
}

/// See [`dyad_machine::Platform::syscall_args`].
pub fn syscall_args(area: &RegArea) -> [u64; 6] {
    [0, 1, 2, 3, 4, 5].map(|word| get(area, word))
}

/// Whether only a part of the registers has been saved.
pub fn is_partial(area: &RegArea) -> bool {
    get(area, AREA_CAUSE) != 0
}

/// See [`dyad_machine::Platform::complete_area`].
pub fn complete(area: &RegArea, word: u64, args: [u64; 5]) {
    set(area, 0, word);
    for (i, v) in args.into_iter().enumerate() {
        set(area, 1 + i, v);
    }
    // If none of them has been saved, what an earlier call has left there may be another
    // component's.
    let saved = if get(area, AREA_CAUSE) == SYSCALL {
        PRESERVED
    } else {
        AREA_SP
    };
    for i in 6..saved {
        set(area, i, 0);
    }
    set(area, AREA_CAUSE, 0);
}

/// See [`dyad_machine::Platform::set_result`].
pub fn set_result(area: &RegArea, status: u64, value: u64) {
    set(area, 0, status);
    set(area, 1, value);
    for i in 2..PRESERVED {
        set(area, i, 0);
    }
}

/// All general registers 0 but the first ones, no flags.
#[inline(always)]
fn set_only<const N: usize>(area: &RegArea, registers: [u64; N]) {
    for i in 0..AREA_SP {
        set(area, i, 0);
    }
    set(area, AREA_FLAGS, 0);
    set(area, AREA_CAUSE, 0);
    for (i, v) in registers.into_iter().enumerate() {
        set(area, i, v);
    }
}

/// See [`dyad_machine::Platform::set_arguments`].
pub fn set_arguments(area: &RegArea, args: [u64; 6]) {
    set_only(area, args);
}

/// See [`dyad_machine::Platform::set_results`].
pub fn set_results(area: &RegArea, status: u64, [r0, r1, r2, r3]: [u64; 4]) {
    set_only(area, [status, r0, r1, r2, r3]);
}

/// See [`dyad_machine::Platform::call_registers`].
#[inline(always)]
pub fn call_registers(area: &RegArea) -> ([u64; 6], u64) {
    ([0, 1, 2, 3, 4, 5].map(|i| get(area, i)), get(area, 0))
}

/// See [`dyad_machine::Platform::park`].
#[inline(always)]
pub fn park(area: &RegArea, parked: &RegArea) {
    for i in PRESERVED..=AREA_SP {
        set(parked, i, get(area, i));
    }
}

/// The register that holds the function which the gate is to call.
const FUNCTION: usize = 16;

/// See [`dyad_machine::Platform::set_at_gate`].
#[inline(always)]
pub fn set_at_gate(area: &RegArea, parked: &RegArea, pc: u64, args: [u64; 6], function: u64) {
    for i in PRESERVED..=AREA_SP {
        set(area, i, get(parked, i));
    }
    for (i, v) in args.into_iter().enumerate() {
        set(area, i, v);
    }
    for i in 6..PRESERVED {
        set(area, i, 0);
    }
    for (i, v) in [
        (FUNCTION, function),
        (AREA_PC, pc),
        (AREA_FLAGS, 0),
        (AREA_CAUSE, 0),
    ] {
        set(area, i, v);
    }
}

/// First of the registers of which functions preserve the lower half.
const KEPT_FP: usize = 8;

/// See [`dyad_machine::Platform::call_fp`].
pub fn call_fp(area: &FpArea) -> ([u64; 8], [u64; 8]) {
    let low = |n: usize| area.0[2 * n].load(Ordering::Relaxed);
    (
        core::array::from_fn(low),
        core::array::from_fn(|i| low(KEPT_FP + i)),
    )
}

/// See [`dyad_machine::Platform::take_call_fp`].
pub fn take_call_fp(args: &[AtomicU64; 8], kept: &[AtomicU64; 8]) {
    // SAFETY: 1. stores all of both arrays; 2. their words are atomics, and the thread that they are of
    // belongs to this CPU; 3. the registers are on.
    unsafe { take_call_registers(args, kept) };
}

/// See [`dyad_machine::Platform::give_call_fp`].
pub fn give_call_fp(args: Option<&[AtomicU64; 8]>, kept: Option<&[AtomicU64; 8]>) {
    // SAFETY: 1. the registers are on; 2. the kernel has no floating-point state of its own.
    unsafe { reset_float_registers() };
    if let Some(args) = args {
        // SAFETY: 1. the registers are on; 2. reads all of the array.
        unsafe { give_call_arguments(args) };
    }
    if let Some(kept) = kept {
        // SAFETY: 1. the registers are on; 2. reads all of the array.
        unsafe { give_call_kept(kept) };
    }
}

/// See [`dyad_machine::Platform::set_call_fp`].
pub fn set_call_fp(area: &FpArea, args: [u64; 8], kept: [u64; 8]) {
    for word in &area.0 {
        word.store(0, Ordering::Relaxed);
    }
    for (n, v) in args.into_iter().chain(kept).enumerate() {
        area.0[2 * n].store(v, Ordering::Relaxed);
    }
}

/// See [`dyad_machine::Platform::user_pc_sp`].
pub fn user_pc_sp(area: &RegArea) -> (u64, u64) {
    (get(area, AREA_PC), get(area, AREA_SP))
}

/// See [`dyad_machine::Platform::set_user_pc_sp`].
pub fn set_user_pc_sp(area: &RegArea, pc: u64, sp: u64) {
    set(area, AREA_PC, user_address(pc));
    set(area, AREA_SP, user_address(sp));
}

/// See [`dyad_machine::Platform::set_frame_pointer`].
pub fn set_frame_pointer(area: &RegArea, fp: u64) {
    set(area, AREA_FP, fp);
}

/// See [`dyad_machine::Platform::set_return`]. Both may be anything in user mode.
#[inline(always)]
pub fn set_return(area: &RegArea, pc: u64, sp: u64) {
    set(area, AREA_PC, pc);
    set(area, AREA_SP, sp);
}

pub const fn user_address(va: u64) -> u64 {
    if va < USER_END { va } else { 0 }
}

/// Word of a register by number: the order is the same, but there is no number for the cause.
fn numbered(n: u64) -> Option<usize> {
    match usize::try_from(n) {
        Ok(n) if n < AREA_CAUSE => Some(n),
        Ok(AREA_CAUSE) => Some(AREA_TP),
        _ => None,
    }
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
        AREA_SP | AREA_PC | AREA_TP => user_address(value),
        AREA_FLAGS => value & FLAGS_USER,
        _ => value,
    };
    set(area, i, value);
    true
}

/// See [`dyad_machine::Platform::user_pc_fp`].
pub fn user_pc_fp(area: &RegArea) -> (u64, u64) {
    (get(area, AREA_PC), get(area, AREA_FP))
}

/// See [`dyad_machine::Platform::dump_regs`].
pub fn dump_regs(area: &RegArea, line: &mut dyn FnMut(&str, u64)) {
    const NAMES: [&str; AREA_TP + 1] = [
        "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13",
        "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26",
        "x27", "x28", "x29", "x30", "sp", "pc", "flags", "cause", "tp",
    ];
    const { assert!(AREA_FLAGS == AREA_PC + 1) };
    for (word, name) in NAMES.into_iter().enumerate() {
        line(name, get(area, word));
    }
}

/// See [`dyad_machine::Platform::fp_on`].
pub fn fp_on() {
    // SAFETY: 1. traps nothing of floating point at any level; 2. as for `fp_off`.
    unsafe { asm!("msr cpacr_el1, {}", in(reg) 3u64 << 20, options(nomem, nostack)) };
}

/// See [`dyad_machine::Platform::fp_off`].
pub fn fp_off() {
    // SAFETY: 1. traps floating point in user mode only; 2. the return to user mode is what makes it
    // take effect, and the kernel does not depend on it.
    unsafe { asm!("msr cpacr_el1, {}", in(reg) 1u64 << 20, options(nomem, nostack)) };
}

/// See [`dyad_machine::Platform::save_fp`].
pub fn save_fp(area: &FpArea) {
    // SAFETY: 1. the area is large enough (asserted above) and aligned; 2. it consists of atomic
    // words, which may be written through a shared reference; 3. its owner, this CPU, is the only
    // one to access it.
    unsafe { save_float_registers(area) }
}

/// See [`dyad_machine::Platform::restore_fp`].
pub fn restore_fp(area: &FpArea) {
    // SAFETY: 1. as for `save_fp`; 2. compiled kernel code uses none of the registers loaded.
    unsafe { load_float_registers(area) }
}

/// Bits of FPCR that a thread may be given: rounding, flushing, NaNs, the alternative half precision; no
/// traps.
const FPCR_LOADED: u64 = 0x07c0_0000;
/// The bits of FPSR that are loaded: the cumulative exceptions and saturation.
const FPSR_LOADED: u64 = 0x0800_009f;

/// See [`dyad_machine::Platform::unload_fp`].
pub fn unload_fp(area: &FpArea) -> [u64; FLOAT_WORDS] {
    core::array::from_fn(|i| {
        let word = match i {
            0 | 1 => FP_CONTROL + i,
            _ => i - 2,
        };
        area.0[word].load(Ordering::Relaxed)
    })
}

/// See [`dyad_machine::Platform::load_fp`].
pub fn load_fp(area: &FpArea, words: &[u64; FLOAT_WORDS]) {
    let [control, status, vector @ ..] = words;
    for (to, &from) in area.0[..FP_CONTROL].iter().zip(vector) {
        to.store(from, Ordering::Relaxed);
    }
    area.0[FP_CONTROL].store(control & FPCR_LOADED, Ordering::Relaxed);
    area.0[FP_CONTROL + 1].store(status & FPSR_LOADED, Ordering::Relaxed);
}

/// See [`dyad_machine::Platform::reset_fp`].
pub fn reset_fp() {
    // SAFETY: 1. compiled kernel code uses none of the registers changed; 2. no memory is touched.
    unsafe { reset_float_registers() }
}
