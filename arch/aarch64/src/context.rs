//! Registers of user threads: layout of the register areas, floating point.
//!
//! | word of the register area | register |
//! |---|---|
//! | 0 to 30 | `x0` to `x30` |
//! | 31 | stack pointer |
//! | 32 | program counter |
//! | 33 | flags (`SPSR_EL1`) |
//! | 34 | thread pointer (`TPIDR_EL0`) |
//!
//! A floating-point area holds `q0` to `q31`, then `FPCR` and `FPSR`.

use core::arch::global_asm;
use core::sync::atomic::Ordering;

use dyad_core::platform::{FP_WORDS, FpArea, REG_WORDS, RegArea};

/// Word of the stack pointer.
pub const AREA_SP: usize = 31;
/// Word of the program counter; the flags follow.
pub const AREA_PC: usize = 32;
const AREA_FLAGS: usize = 33;
/// Word of the thread pointer.
pub const AREA_TP: usize = 34;
const AREA_FP: usize = 29;
const FP_CONTROL: usize = 64;

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

    .arch_extension nosimd
    .arch_extension nofp
    "#,
    control = const FP_CONTROL * 8,
);

unsafe extern "C" {
    fn save_float_registers(area: &FpArea);
    fn load_float_registers(area: &FpArea);
}

fn get(area: &RegArea, word: usize) -> u64 {
    area.0[word].load(Ordering::Relaxed)
}

fn set(area: &RegArea, word: usize, value: u64) {
    area.0[word].store(value, Ordering::Relaxed);
}

/// See [`dyad_core::Platform::init_regs`].
pub fn init_regs(area: &RegArea, entry: u64, stack_top: u64, arg: u64, tp: u64) {
    for word in 0..REG_WORDS {
        set(area, word, 0);
    }
    set(area, 0, arg);
    set(area, AREA_SP, stack_top);
    set(area, AREA_PC, entry);
    set(area, AREA_TP, tp);
}

/// See [`dyad_core::Platform::init_fp`]. All zeros: round to nearest, no traps, no flushing.
pub fn init_fp(area: &FpArea) {
    for word in &area.0 {
        word.store(0, Ordering::Relaxed);
    }
}

/// See [`dyad_core::Platform::syscall_args`].
pub fn syscall_args(area: &RegArea) -> [u64; 6] {
    [0, 1, 2, 3, 4, 5].map(|word| get(area, word))
}

/// See [`dyad_core::Platform::set_result`].
pub fn set_result(area: &RegArea, status: u64, value: u64) {
    set(area, 0, status);
    set(area, 1, value);
}

/// See [`dyad_core::Platform::user_pc_fp`].
pub fn user_pc_fp(area: &RegArea) -> (u64, u64) {
    (get(area, AREA_PC), get(area, AREA_FP))
}

/// See [`dyad_core::Platform::dump_regs`].
pub fn dump_regs(area: &RegArea, line: &mut dyn FnMut(&str, u64)) {
    const NAMES: [&str; AREA_TP + 1] = [
        "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13",
        "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26",
        "x27", "x28", "x29", "x30", "sp", "pc", "flags", "tp",
    ];
    const { assert!(AREA_FLAGS == AREA_PC + 1) };
    for (word, name) in NAMES.into_iter().enumerate() {
        line(name, get(area, word));
    }
}

/// See [`dyad_core::Platform::save_fp`].
pub fn save_fp(area: &FpArea) {
    // SAFETY: 1. the area is large enough (asserted above) and aligned; 2. it consists of atomic
    // words, which may be written through a shared reference; 3. its owner, this CPU, is the only
    // one to access it.
    unsafe { save_float_registers(area) }
}

/// See [`dyad_core::Platform::restore_fp`].
pub fn restore_fp(area: &FpArea) {
    // SAFETY: 1. as for `save_fp`; 2. compiled kernel code uses none of the registers loaded.
    unsafe { load_float_registers(area) }
}
