//! Exception vectors, entry from user mode and back, decoding.
//!
//! While a thread runs in user mode, `SP_EL1` points at its register area, so that the vectors
//! can save registers without having one free:
//!
//! ```text
//!   user ── exception ─▶ vector: x0..x30, SP_EL0, ELR, SPSR ─▶ [SP_EL1] = area
//!                        SP_EL1 = top of the kernel stack ─▶ user_trap(area)
//!   resume(area): SP_EL1 = area, registers from it, ERET ─▶ user; go_on: the same, but system
//!                 registers still are what they were
//! ```
//!
//! System calls are the concern of [`fast`](crate::fast).
//!
//! Exceptions in the kernel are always fatal. They are taken on a stack of their own (the kernel
//! stack may be what has run over), save everything, and are reported once; an exception while
//! reporting ends the machine at once.

use core::arch::global_asm;

use aarch64_cpu::registers::{ESR_EL1, FAR_EL1, Readable};
use dyad_abi::record::{EXIT_PANIC, aarch64_exit_value};
use dyad_core::migrate::crossing;
use dyad_core::syscall::entry;
use dyad_machine::platform::{FaultKind, RegArea, UserFault};

use crate::context::{AREA_CAUSE, AREA_PC, AREA_SP, AREA_TP, SYSCALL};
use crate::platform::Aarch64;
use crate::{cpu, irq};

const KIND_SYNC: u64 = 0;
const KIND_IRQ: u64 = 1;
const KIND_FIQ: u64 = 2;
const KIND_SERROR: u64 = 3;
/// Added for exceptions taken on SP_EL0, which the kernel never uses.
const KIND_SP0: u64 = 4;

/// Words of a [`FaultFrame`].
const FRAME_WORDS: usize = 36;

/// Registers at an exception in the kernel: x0 to x30, then those in [`FRAME_NAMES`].
#[repr(C)]
struct FaultFrame([u64; FRAME_WORDS]);

const FRAME_NAMES: [&str; FRAME_WORDS] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",
    "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27",
    "x28", "x29", "x30", "sp", "pc", "pstate", "esr", "far",
];

global_asm!(
    r#"
    .macro user_vector kind
    .balign 128
    stp     x0, x1, [sp]
    mov     x0, #\kind
    b       user_entry
    .endm

    // x0 to x29 from the area.
    .macro load_registers
    ldp     x28, x29, [sp, #224]
    ldp     x26, x27, [sp, #208]
    ldp     x24, x25, [sp, #192]
    ldp     x22, x23, [sp, #176]
    ldp     x20, x21, [sp, #160]
    ldp     x18, x19, [sp, #144]
    ldp     x16, x17, [sp, #128]
    ldp     x14, x15, [sp, #112]
    ldp     x12, x13, [sp, #96]
    ldp     x10, x11, [sp, #80]
    ldp     x8, x9, [sp, #64]
    ldp     x6, x7, [sp, #48]
    ldp     x4, x5, [sp, #32]
    ldp     x2, x3, [sp, #16]
    ldp     x0, x1, [sp]
    .endm

    // System calls go their own way: `svc #0` is all of ESR_EL1.
    .macro user_sync_vector kind
    .balign 128
    stp     x16, x17, [sp, #128]
    mrs     x16, esr_el1
    mov     x17, #{syscall}
    cmp     x16, x17
    b.eq    syscall_entry
    ldp     x16, x17, [sp, #128]
    stp     x0, x1, [sp]
    mov     x0, #\kind
    b       user_entry
    .endm

    // TPIDRRO_EL0 is readable in user mode, but no user code runs after this.
    .macro kernel_vector kind
    .balign 128
    msr     tpidrro_el0, x0
    mrs     x0, tpidr_el1
    tbz     x0, #63, fault_dead_end     // damaged; storing through it would fault for ever
    str     x1, [x0, #{scratch}]
    mov     x1, #\kind
    b       kernel_entry
    .endm

    .section .text.vectors, "ax"
    .balign 2048
    .globl  exception_vectors
exception_vectors:
    kernel_vector {sync_sp0}
    kernel_vector {irq_sp0}
    kernel_vector {fiq_sp0}
    kernel_vector {serror_sp0}
    kernel_vector {sync}
    kernel_vector {irq}
    kernel_vector {fiq}
    kernel_vector {serror}
    user_sync_vector {sync}
    user_vector {irq}
    user_vector {fiq}
    user_vector {serror}
    // User mode is never AArch32, but if it were, these would be the vectors.
    user_vector {sync}
    user_vector {irq}
    user_vector {fiq}
    user_vector {serror}
    .balign 128

user_entry:
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x19, [sp, #144]
    stp     x20, x21, [sp, #160]
    stp     x22, x23, [sp, #176]
    stp     x24, x25, [sp, #192]
    stp     x26, x27, [sp, #208]
    stp     x28, x29, [sp, #224]
    mrs     x2, sp_el0
    stp     x30, x2, [sp, #240]
    mrs     x2, elr_el1
    mrs     x3, spsr_el1
    stp     x2, x3, [sp, #{area_pc}]
    str     xzr, [sp, #{area_cause}]
    mov     x1, x0
    mov     x0, sp
    mrs     x2, tpidr_el1
    ldr     x2, [x2, #{kernel_stack}]
    mov     sp, x2
    mov     x29, xzr
    mov     x30, xzr
    b       {user_trap}

    // fn(area) -> !
    .globl  resume_registers
resume_registers:
    mov     sp, x0
    mrs     x1, tpidr_el1
    str     x0, [x1, #{area}]
    ldp     x1, x2, [sp, #{area_pc}]
    msr     elr_el1, x1
    // Only the condition flags are the thread's: always EL0, nothing masked.
    and     x2, x2, #0xf0000000
    msr     spsr_el1, x2
    ldr     x1, [sp, #{area_tp}]
    msr     tpidr_el0, x1
    ldp     x30, x1, [sp, #240]
    msr     sp_el0, x1
    load_registers
    eret

    // fn(area) -> !
    .globl  go_on_registers
go_on_registers:
    mov     sp, x0
    ldr     x30, [sp, #240]
    load_registers
    eret

    // fn(area, arguments, pc) -> !
    .globl  enter_registers
enter_registers:
    ldr     x3, [x0, #{area_tp}]
    mrs     x28, tpidr_el1
    msr     elr_el1, x2
    msr     sp_el0, xzr
    msr     spsr_el1, xzr
    msr     tpidr_el0, x3
    mov     sp, x0
    ldp     x4, x5, [x1, #32]
    ldp     x2, x3, [x1, #16]
    ldp     x0, x1, [x1]
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
    ldp     x29, x30, [x28, #{zeros}]
    mov     x28, xzr
    eret

    // x0: this CPU's area, x1: kind; x0 and x1 of the exception are in TPIDRRO_EL0 and scratch.
kernel_entry:
    str     x2, [x0, #{scratch} + 8]
    mov     x2, sp
    str     x2, [x0, #{scratch} + 16]
    ldr     x2, [x0, #{fault_stack}]
    mov     sp, x2
    ldr     x2, [x0, #{faults}]
    cbnz    x2, 5f
    mov     x2, #1
    str     x2, [x0, #{faults}]
    // A frame record first, so that a backtrace goes on into the code that faulted.
    mrs     x2, elr_el1
    stp     x29, x2, [sp, #-16]!
    mov     x29, sp
    sub     sp, sp, #{frame_size}
    stp     x3, x4, [sp, #24]
    stp     x5, x6, [sp, #40]
    stp     x7, x8, [sp, #56]
    stp     x9, x10, [sp, #72]
    stp     x11, x12, [sp, #88]
    stp     x13, x14, [sp, #104]
    stp     x15, x16, [sp, #120]
    stp     x17, x18, [sp, #136]
    stp     x19, x20, [sp, #152]
    stp     x21, x22, [sp, #168]
    stp     x23, x24, [sp, #184]
    stp     x25, x26, [sp, #200]
    stp     x27, x28, [sp, #216]
    ldr     x3, [x29]
    stp     x3, x30, [sp, #232]
    mrs     x3, tpidrro_el0
    ldr     x4, [x0, #{scratch}]
    stp     x3, x4, [sp]
    ldp     x3, x4, [x0, #{scratch} + 8]
    str     x3, [sp, #16]
    stp     x4, x2, [sp, #248]
    mrs     x3, spsr_el1
    mrs     x4, esr_el1
    stp     x3, x4, [sp, #264]
    mrs     x3, far_el1
    str     x3, [sp, #280]
    mov     x0, sp
    bl      {kernel_trap}
5:  // Reporting has failed: end the machine without anything that could fail again but the
    // semihosting call itself, which is one of the reasons to come here.
    add     x3, x2, #1
    str     x3, [x0, #{faults}]
    cmp     x2, #1
    b.hi    6f
fault_dead_end:
    mov     x0, #0x18
    adr     x1, 8f
    hlt     #0xf000
6:  movz    x0, #0x8400, lsl #16
    movk    x0, #0x0008                 // PSCI SYSTEM_OFF
    hvc     #0
7:  wfi
    b       7b
    .balign 8
8:  .quad   0x20026, {exit_panic}
    "#,
    sync = const KIND_SYNC,
    irq = const KIND_IRQ,
    fiq = const KIND_FIQ,
    serror = const KIND_SERROR,
    sync_sp0 = const KIND_SP0 + KIND_SYNC,
    irq_sp0 = const KIND_SP0 + KIND_IRQ,
    fiq_sp0 = const KIND_SP0 + KIND_FIQ,
    serror_sp0 = const KIND_SP0 + KIND_SERROR,
    scratch = const cpu::OFFSET_SCRATCH,
    kernel_stack = const cpu::OFFSET_KERNEL_STACK,
    fault_stack = const cpu::OFFSET_FAULT_STACK,
    faults = const cpu::OFFSET_FAULTS,
    area = const cpu::OFFSET_AREA,
    syscall = const SYSCALL,
    area_pc = const AREA_PC * 8,
    area_tp = const AREA_TP * 8,
    area_cause = const AREA_CAUSE * 8,
    zeros = const cpu::OFFSET_ZEROS,
    frame_size = const size_of::<FaultFrame>(),
    exit_panic = const aarch64_exit_value(EXIT_PANIC),
    user_trap = sym user_trap,
    kernel_trap = sym kernel_trap,
);

// What the assembly above has in numbers.
const _: () = {
    assert!(AREA_SP == 31 && AREA_PC == 32);
    assert!(size_of::<FaultFrame>() == 288 && size_of::<FaultFrame>().is_multiple_of(16));
};

unsafe extern "C" {
    /// Continues a thread in user mode with the registers in its area.
    pub fn resume_registers(area: &'static RegArea) -> !;
    /// Continues a thread whose registers are what an exception of the running thread has saved, if the values
    /// of ELR_EL1, SPSR_EL1, SP_EL0 and the thread pointer have not changed since.
    pub fn go_on_registers(area: &'static RegArea) -> !;
    /// Enters user mode at `pc` with these in the registers of arguments and 0 in the others.
    pub fn enter_registers(area: &'static RegArea, args: &[u64; 6], pc: u64) -> !;
}

/// Exception classes (ESR_EL1 bits 26 to 31).
mod class {
    pub const UNKNOWN: u64 = 0x00;
    pub const WAIT: u64 = 0x01;
    pub const FLOAT_ACCESS: u64 = 0x07;
    pub const BRANCH_TARGET: u64 = 0x0d;
    pub const ILLEGAL_STATE: u64 = 0x0e;
    pub const VECTOR_ACCESS: u64 = 0x19;
    pub const POINTER_AUTHENTICATION: u64 = 0x1c;
    pub const MATRIX_ACCESS: u64 = 0x1d;
    /// Left to us: an immediate other than 0.
    pub const SVC: u64 = 0x15;
    pub const SYSTEM_REGISTER: u64 = 0x18;
    pub const FETCH_USER: u64 = 0x20;
    pub const FETCH_KERNEL: u64 = 0x21;
    pub const PC_ALIGNMENT: u64 = 0x22;
    pub const DATA_USER: u64 = 0x24;
    pub const DATA_KERNEL: u64 = 0x25;
    pub const SP_ALIGNMENT: u64 = 0x26;
    pub const FLOAT: u64 = 0x2c;
    pub const BREAKPOINT_USER: u64 = 0x30;
    pub const STEP_USER: u64 = 0x32;
    pub const WATCHPOINT_USER: u64 = 0x34;
    pub const BRK: u64 = 0x3c;
}

/// Fault status of an access to memory whose address is not aligned as it must be.
const STATUS_ALIGNMENT: u64 = 0x21;
/// ISS of data aborts: caused by a write.
const ISS_WRITE: u64 = 1 << 6;
/// ISS of data aborts: caused by cache maintenance, for which the write bit says nothing.
const ISS_CACHE: u64 = 1 << 8;

/// Whether the fault status is a translation, access flag or permission fault of any level.
const fn is_page_fault(esr: u64) -> bool {
    matches!(esr & 0x3f, 0x04..=0x0f)
}

const fn class_of(esr: u64) -> u64 {
    esr >> 26 & 0x3f
}

/// Decodes an access to memory by user mode that mapping a page would cure, as most are.
fn page_fault(esr: u64) -> Option<UserFault> {
    if class_of(esr) != class::DATA_USER || !is_page_fault(esr) {
        return None;
    }
    let kind = if esr & (ISS_WRITE | ISS_CACHE) == ISS_WRITE {
        FaultKind::Write
    } else {
        FaultKind::Read
    };
    Some(UserFault {
        kind,
        address: FAR_EL1.get(),
        raw: esr,
    })
}

/// Decodes an instruction fetch by user mode from where only the other ISA's code can be.
fn foreign_fault(esr: u64) -> Option<UserFault> {
    let address = FAR_EL1.get();
    let fetch = class_of(esr) == class::FETCH_USER && is_page_fault(esr);
    (fetch && crossing::is_foreign::<Aarch64>(address)).then_some(UserFault {
        kind: FaultKind::Execute,
        address,
        raw: esr,
    })
}

/// Decodes a synchronous exception from user mode that is no system call.
fn decode(esr: u64, far: u64) -> UserFault {
    let kind = match class_of(esr) {
        // The convention is `svc #0`; other immediates have no meaning.
        class::SVC => FaultKind::Breakpoint,
        class::DATA_USER if esr & 0x3f == STATUS_ALIGNMENT => FaultKind::Alignment,
        // Only what the page tables decide is a page fault. Taking anything else (an external
        // abort, an address size fault, a TLB conflict) for one would repeat it for ever.
        class::FETCH_USER | class::DATA_USER if !is_page_fault(esr) => FaultKind::Other,
        class::FETCH_USER => FaultKind::Execute,
        class::DATA_USER if esr & (ISS_WRITE | ISS_CACHE) == ISS_WRITE => FaultKind::Write,
        class::DATA_USER => FaultKind::Read,
        class::PC_ALIGNMENT | class::SP_ALIGNMENT => FaultKind::Alignment,
        class::FLOAT => FaultKind::Arithmetic,
        class::BRK | class::BREAKPOINT_USER | class::STEP_USER | class::WATCHPOINT_USER => {
            FaultKind::Breakpoint
        }
        class::UNKNOWN
        | class::WAIT
        | class::FLOAT_ACCESS
        | class::BRANCH_TARGET
        | class::ILLEGAL_STATE
        | class::VECTOR_ACCESS
        | class::POINTER_AUTHENTICATION
        | class::MATRIX_ACCESS
        | class::SYSTEM_REGISTER => FaultKind::Illegal,
        _ => FaultKind::Other,
    };
    let address = match kind {
        FaultKind::Read | FaultKind::Write | FaultKind::Execute => far,
        _ => 0,
    };
    UserFault {
        kind,
        address,
        raw: esr,
    }
}

/// What becomes of a synchronous exception in user mode, by its syndrome.
#[cfg(feature = "ktest")]
pub fn fault_kind(esr: u64) -> FaultKind {
    match page_fault(esr) {
        Some(fault) => fault.kind,
        None => decode(esr, 0).kind,
    }
}

/// A synchronous exception in user mode that is neither a system call nor, as most are, a page fault.
#[cold]
fn other_fault(area: &'static RegArea, esr: u64) -> ! {
    if class_of(esr) == class::FLOAT_ACCESS {
        entry::fp_wanted::<Aarch64>(area);
    }
    entry::user_fault::<Aarch64>(area, decode(esr, FAR_EL1.get()))
}

/// Every exception in user mode but system calls ends here, on an empty kernel stack.
extern "C" fn user_trap(area: &'static RegArea, kind: u64) -> ! {
    match kind {
        KIND_SYNC => {
            let esr = ESR_EL1.get();
            if let Some(fault) = page_fault(esr) {
                entry::page_fault::<Aarch64>(area, fault);
            }
            if let Some(fault) = foreign_fault(esr) {
                entry::foreign_fault::<Aarch64>(area, fault);
            }
            other_fault(area, esr)
        }
        KIND_IRQ => {
            irq::take_pending();
            #[cfg(feature = "ktest")]
            if dyad_core::ktest::user_calls::runs() {
                <Aarch64 as dyad_machine::Platform>::resume_user(area);
            }
            entry::interrupted::<Aarch64>(area)
        }
        _ => {
            // The machine has no source of either: whatever it is, it is not the thread's fault.
            let regs = [("esr", ESR_EL1.get()), ("far", FAR_EL1.get())];
            let what = if kind == KIND_FIQ {
                "fast interrupt in user mode"
            } else {
                "asynchronous abort in user mode"
            };
            entry::kernel_fault::<Aarch64>(what, &regs)
        }
    }
}

fn describe(kind: u64, esr: u64) -> &'static str {
    match kind {
        KIND_SYNC => {}
        KIND_IRQ => return "interrupt while interrupts are masked",
        KIND_FIQ => return "fast interrupt",
        KIND_SERROR => return "asynchronous abort",
        _ => return "exception on the user's stack pointer",
    }
    match class_of(esr) {
        class::DATA_KERNEL if esr & 0x3f == STATUS_ALIGNMENT => "misaligned access",
        class::DATA_KERNEL if esr & (ISS_WRITE | ISS_CACHE) == ISS_WRITE => "write fault",
        class::DATA_KERNEL => "read fault",
        class::FETCH_KERNEL => "instruction fetch fault",
        class::UNKNOWN => "undefined instruction",
        class::PC_ALIGNMENT => "misaligned program counter",
        class::SP_ALIGNMENT => "misaligned stack pointer",
        class::BRK => "breakpoint instruction",
        class::ILLEGAL_STATE => "illegal execution state",
        class::SYSTEM_REGISTER => "trapped system register",
        _ => "unexpected exception",
    }
}

/// Every exception in the kernel ends here, on a stack of its own.
extern "C" fn kernel_trap(frame: &FaultFrame, kind: u64) -> ! {
    let mut regs = [("", 0); FRAME_WORDS];
    for (r, (name, value)) in regs.iter_mut().zip(FRAME_NAMES.into_iter().zip(frame.0)) {
        *r = (name, value);
    }
    let esr = frame.0[FRAME_WORDS - 2];
    entry::kernel_fault::<Aarch64>(describe(kind, esr), &regs)
}
