//! System calls: entry, and the way back of those that are done at once.
//!
//! The program counter, stack pointer, flags and the registers that the C convention preserves go
//! to the current thread's register area, which is *partial* from then on; the arguments stay in
//! registers:
//!
//! ```text
//!  word (x0)
//!  operation not 0 ─▶ syscall ─▶ status ─▶ rest 0, ERET where it came from
//!  operation 0 ─▶ invoke_fastpath ─ LONG ─▶ invoke_slowpath
//!                       └─ token ──────────────────┬─ ENTER ─▶ arguments, badge, token; rest 0, ERET
//!                                                  └─ status ─▶ as above, preserved registers 0, too
//!  word 0 ─▶ return_fastpath, return_slowpath ─┬─ ENTER ─▶ status 0, results; rest 0, ERET to area
//!                                              └─ status ─▶ as above, preserved registers 0, too
//!  any of them ─▶ complete_area ─▶ ... ─▶ resume_user (never returns here)
//! ```
//!
//! Who invokes, or ends an invocation, keeps nothing in registers: none are saved for that. The
//! thread pointer is set again both ways, because user mode can change it.
//!
//! While Rust runs, `x27` is the area and `x28` the CPU's own area. `ELR_EL1`, `SPSR_EL1` and
//! `SP_EL0` keep what the trap found until something enters or resumes: exceptions in the kernel
//! end the machine. So a return to where the call came from does not load them; what
//! `set_user_pc_sp` puts into the area counts for the other ways back only.
//!
//! Registers are zeroed by pairs, from two words of zeros in the CPU's area.

use core::arch::global_asm;
use core::mem::offset_of;

use dyad_core::syscall::entry;
use dyad_core::syscall::slowpath::{ENTER, FastReturn};
use dyad_machine::cpu::CpuLocal;

use crate::context::{AREA_CAUSE, AREA_FLAGS, AREA_PC, AREA_SP, AREA_TP};
use crate::cpu;
use crate::platform::Aarch64;

global_asm!(
    r#"
    // Program counter, stack pointer and flags to the area, on to the kernel stack.
    .macro  enter_kernel cause
    mov     x27, sp
    mrs     x16, sp_el0
    mrs     x18, elr_el1
    stp     x16, x18, [sp, #{area_sp}]
    mrs     x16, spsr_el1
    stp     x16, \cause, [sp, #{area_flags}]
    mrs     x28, tpidr_el1
    ldr     x16, [x28, #{kernel_stack}]
    mov     sp, x16
    mov     x29, xzr                    // the end of the chain of frame records
    .endm

    .section .text.vectors, "ax"
    // From the vector: x16 and x17 are in the area, x17 is what is in ESR_EL1.
    .balign 64
    .globl  syscall_entry
syscall_entry:
    lsr     x16, x0, #32
    cbz     x16, 2f
    stp     x19, x20, [sp, #152]
    stp     x21, x22, [sp, #168]
    stp     x23, x24, [sp, #184]
    stp     x25, x26, [sp, #200]
    stp     x27, x28, [sp, #216]
    stp     x29, x30, [sp, #232]
    enter_kernel x17
    bl      {syscall}

    // x0: status, x1: value, x19 to x26 as they were
5:  mov     sp, x27
    ldp     x2, x3, [x28, #{zeros}]
    ldp     x4, x5, [x28, #{zeros}]
    ldp     x6, x7, [x28, #{zeros}]
    ldp     x8, x9, [x28, #{zeros}]
    ldp     x10, x11, [x28, #{zeros}]
    ldp     x12, x13, [x28, #{zeros}]
    ldp     x14, x15, [x28, #{zeros}]
    ldp     x16, x17, [x28, #{zeros}]
    mov     x18, xzr
    ldp     x27, x28, [sp, #216]
    ldp     x29, x30, [sp, #232]
    eret

    // Invocations and their ends: who makes them keeps nothing in registers.
2:  enter_kernel x27                    // not what is in x17, and not 0
    cbz     x0, 3f
    mov     x19, x1
    mov     x20, x2
    mov     x21, x3
    mov     x22, x4
    mov     x23, x0
    bl      {invoke_fastpath}
    cmn     x0, #2
    b.eq    7f
    mov     x5, x0
4:  mov     sp, x27
    ldp     x6, x7, [sp, #{area_sp}]
    msr     sp_el0, x6
    msr     elr_el1, x7
    msr     spsr_el1, xzr
    ldr     x8, [sp, #{area_tp}]
    msr     tpidr_el0, x8
    mov     x4, x1
    mov     x0, x19
    mov     x1, x20
    mov     x2, x21
    mov     x3, x22
    ldp     x6, x7, [x28, #{zeros}]
    ldp     x8, x9, [x28, #{zeros}]
    ldp     x10, x11, [x28, #{zeros}]
    ldp     x12, x13, [x28, #{zeros}]
    ldp     x14, x15, [x28, #{zeros}]
    ldp     x16, x17, [x28, #{zeros}]
    ldp     x18, x19, [x28, #{zeros}]
    ldp     x20, x21, [x28, #{zeros}]
    ldp     x22, x23, [x28, #{zeros}]
    ldp     x24, x25, [x28, #{zeros}]
    ldp     x26, x27, [x28, #{zeros}]
    ldp     x28, x30, [x28, #{zeros}]   // x29 is 0
    eret

    // The slow path.
7:  mov     x0, x23
    mov     x1, x19
    mov     x2, x20
    mov     x3, x21
    mov     x4, x22
    bl      {invoke_slowpath}
    ldr     x5, [x28, #{token}]
    cmn     x0, #1
    b.eq    4b
    b       6f

3:  mov     x19, x1
    mov     x20, x2
    mov     x21, x3
    mov     x22, x4
    bl      {return_fastpath}
    cmn     x0, #1
    b.ne    9f
10: mov     sp, x27
    ldp     x6, x7, [sp, #{area_sp}]
    ldr     x8, [sp, #{area_tp}]
    msr     sp_el0, x6
    msr     elr_el1, x7
    msr     spsr_el1, xzr
    msr     tpidr_el0, x8
    mov     x0, xzr
    mov     x1, x19
    mov     x2, x20
    mov     x3, x21
    mov     x4, x22
    mov     x5, xzr
    ldp     x6, x7, [x28, #{zeros}]
    ldp     x8, x9, [x28, #{zeros}]
    ldp     x10, x11, [x28, #{zeros}]
    ldp     x12, x13, [x28, #{zeros}]
    ldp     x14, x15, [x28, #{zeros}]
    ldp     x16, x17, [x28, #{zeros}]
    ldp     x18, x19, [x28, #{zeros}]
    ldp     x20, x21, [x28, #{zeros}]
    ldp     x22, x23, [x28, #{zeros}]
    ldp     x24, x25, [x28, #{zeros}]
    ldp     x26, x27, [x28, #{zeros}]
    ldp     x28, x30, [x28, #{zeros}]
    eret

    // The slow path.
9:  mov     x0, x19
    mov     x1, x20
    mov     x2, x21
    mov     x3, x22
    bl      {return_slowpath}
    cmn     x0, #1
    b.eq    10b

    // Refused: nothing has been saved that could be given back.
6:  ldp     x19, x20, [x28, #{zeros}]
    ldp     x21, x22, [x28, #{zeros}]
    ldp     x23, x24, [x28, #{zeros}]
    ldp     x25, x26, [x28, #{zeros}]
    stp     xzr, xzr, [x27, #216]
    stp     xzr, xzr, [x27, #232]
    b       5b
    "#,
    kernel_stack = const cpu::OFFSET_KERNEL_STACK,
    zeros = const cpu::OFFSET_ZEROS,
    token = const cpu::OFFSET_LOCAL + offset_of!(CpuLocal, fast_token),
    area_sp = const AREA_SP * 8,
    area_flags = const AREA_FLAGS * 8,
    area_tp = const AREA_TP * 8,
    syscall = sym syscall,
    invoke_fastpath = sym invoke_fastpath,
    invoke_slowpath = sym invoke_slowpath,
    return_fastpath = sym return_fastpath,
    return_slowpath = sym return_slowpath,
);

// What the assembly above has in numbers.
const _: () = {
    assert!(AREA_SP == 31 && AREA_PC == 32 && AREA_CAUSE == AREA_FLAGS + 1);
    assert!(cpu::OFFSET_ZEROS <= 504);
    assert!(entry::LONG == -2i64 as u64 && ENTER == -1i64 as u64);
};

extern "C" fn syscall(word: u64, a0: u64, a1: u64, a2: u64, a3: u64, a4: u64) -> FastReturn {
    #[cfg(feature = "ktest")]
    if let Some(r) = dyad_core::ktest::user_calls::intercept::<Aarch64>(word, [a0, a1, a2, a3, a4])
    {
        return r;
    }
    entry::syscall::<Aarch64>(word, a0, a1, a2, a3, a4)
}

extern "C" fn invoke_fastpath(word: u64) -> FastReturn {
    entry::invoke_fastpath::<Aarch64>(word)
}

extern "C" fn invoke_slowpath(word: u64, a0: u64, a1: u64, a2: u64, a3: u64) -> FastReturn {
    #[cfg(feature = "ktest")]
    if let Some(r) = dyad_core::ktest::user_calls::intercept::<Aarch64>(word, [a0, a1, a2, a3, 0]) {
        return r;
    }
    entry::invoke_slowpath::<Aarch64>(word, a0, a1, a2, a3)
}

extern "C" fn return_fastpath(_word: u64, a0: u64) -> FastReturn {
    entry::return_fastpath::<Aarch64>(a0)
}

extern "C" fn return_slowpath(a0: u64, a1: u64, a2: u64, a3: u64) -> FastReturn {
    #[cfg(feature = "ktest")]
    if let Some(r) = dyad_core::ktest::user_calls::intercept::<Aarch64>(0, [a0, a1, a2, a3, 0]) {
        return r;
    }
    entry::return_slowpath::<Aarch64>(a0, a1, a2, a3)
}
