//! Interrupt vectors, entry from user mode and back, decoding.
//!
//! While a thread runs in user mode, the CPU's stack pointer for interrupts points at the end of
//! the pushed part of its register area, so that the CPU itself saves the first five words there:
//!
//! ```text
//!   user ── interrupt ─▶ CPU: ss rsp rflags cs rip ─▶ area; stub: error, vector, registers
//!                        rsp = top of the kernel stack ─▶ user_trap(area)
//!   resume(area): registers from it, IRETQ ─▶ user; go_on: the same, base of fs and stack
//!                 pointer for interrupts still are what they were
//! ```
//!
//! System calls are the concern of [`fast`].
//!
//! Interrupts in the kernel happen only while it waits; they are recorded and the kernel continues.
//! Exceptions in the kernel are always fatal: they are reported once, and an exception while reporting ends
//! the machine at once.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;

use dyad_abi::record::EXIT_PANIC;
use dyad_core::migrate::crossing;
use dyad_core::syscall::entry;
use dyad_machine::platform::{FaultKind, RegArea, UserFault};
use x86_64::VirtAddr;
use x86_64::instructions::tables::lidt;
use x86_64::registers::model_specific::{Efer, EferFlags, Msr};
use x86_64::structures::DescriptorTablePointer;

use crate::context::{self, FLAGS_FIXED, FS_BASE, PUSHED_WORDS, RFLAGS, RIP};
use crate::cpu::{self, FAULT_IST, KERNEL_CODE, KERNEL_DATA};
use crate::platform::X86;
use crate::{exit, fast, irq};

const PAGE_FAULT: u64 = 14;
/// Bits of a page fault's error code: present, write, user, instruction fetch.
const PAGE_FAULT_KNOWN: u64 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 4;
const DOUBLE_FAULT: u64 = 8;
const NMI: u64 = 2;
/// An instruction needs floating-point registers, which are off.
const NO_FP: u64 = 7;
const MACHINE_CHECK: u64 = 18;

global_asm!(
    r#"
    .section .text.vectors, "ax"
    .macro save_registers
    push    rax
    push    rbx
    push    rcx
    push    rdx
    push    rsi
    push    rdi
    push    rbp
    push    r8
    push    r9
    push    r10
    push    r11
    push    r12
    push    r13
    push    r14
    push    r15
    .endm
    .macro load_registers
    pop     r15
    pop     r14
    pop     r13
    pop     r12
    pop     r11
    pop     r10
    pop     r9
    pop     r8
    pop     rbp
    pop     rdi
    pop     rsi
    pop     rdx
    pop     rcx
    pop     rbx
    pop     rax
    .endm

    // One stub per vector, 16 bytes apart: error code if the CPU has pushed none, vector.
    .balign 16
    .globl  vector_stubs
vector_stubs:
    .set    vector, 0
    .rept   256
    .balign 16
    // The vectors for which the CPU pushes an error code.
    .if     (vector == 8) || (vector == 10) || (vector == 11) || (vector == 12) || (vector == 13) || (vector == 14) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30)
    .else
    push    0
    .endif
    push    vector
    jmp     vector_common
    .set    vector, vector + 1
    .endr

    .balign 16
vector_common:
    cld
    clac
    save_registers
    mov     rdi, rsp
    test    byte ptr [rsp + {cs_offset}], 3
    jz      2f
    swapgs
    mov     rsp, gs:[{kernel_stack}]
    xor     ebp, ebp
    call    {user_trap}
    ud2

2:  // In the kernel. What comes on a stack of its own may find gs still, or already, the user's;
    // it never goes back. The kernel's is an address of the upper half, the user's is 0.
    mov     ecx, 0xc0000101             // base of gs
    rdmsr
    test    edx, edx
    js      4f
    swapgs
4:  // A frame record first, so that a backtrace goes on into what was interrupted.
    push    qword ptr [rsp + {rip_offset}]
    push    rbp
    mov     rbp, rsp
    and     rsp, -16
    call    {kernel_trap}
    mov     rsp, rbp
    pop     rbp
    add     rsp, 8
    load_registers
    add     rsp, 16
    iretq

    // fn(area) -> !
    .balign 16
    .globl  resume_registers
resume_registers:
    mov     gs:[{area}], rdi
    lea     rax, [rdi + {pushed}]
    mov     gs:[{rsp0}], rax
    mov     rax, [rdi + {fs_base}]
    mov     rdx, rax
    shr     rdx, 32
    mov     ecx, 0xc0000100             // base of fs
    wrmsr
    // fn(area) -> !
    .globl  go_on_registers
go_on_registers:
    mov     rsp, rdi
    load_registers
    add     rsp, 16
    swapgs
    iretq

    // fn(area, arguments) -> !
    .balign 16
    .globl  enter_registers
enter_registers:
    mov     qword ptr [rdi + {rflags}], {flags}
    mov     eax, [rdi + {fs_base}]
    mov     edx, [rdi + {fs_base} + 4]
    mov     ecx, 0xc0000100             // base of fs
    wrmsr
    lea     rsp, [rdi + {rip}]
    mov     r9, [rsi + 40]
    mov     r8, [rsi + 32]
    mov     rcx, [rsi + 24]
    mov     rdx, [rsi + 16]
    mov     rdi, [rsi]
    mov     rsi, [rsi + 8]
    xor     eax, eax
    xor     ebx, ebx
    xor     ebp, ebp
    xor     r10d, r10d
    xor     r11d, r11d
    xor     r12d, r12d
    xor     r13d, r13d
    xor     r14d, r14d
    xor     r15d, r15d
    swapgs
    iretq
    "#,
    cs_offset = const 18 * 8,
    rip_offset = const 17 * 8,
    kernel_stack = const cpu::OFFSET_KERNEL_STACK,
    area = const cpu::OFFSET_AREA,
    rsp0 = const cpu::OFFSET_RSP0,
    pushed = const PUSHED_WORDS * 8,
    fs_base = const FS_BASE * 8,
    rip = const RIP * 8,
    rflags = const RFLAGS * 8,
    flags = const FLAGS_FIXED,
    user_trap = sym user_trap,
    kernel_trap = sym kernel_trap,
);

unsafe extern "C" {
    static vector_stubs: u8;
    /// Continues a thread in user mode with the registers in its area.
    pub fn resume_registers(area: &'static RegArea) -> !;
    /// Continues a thread whose registers are what an interrupt of the running thread has saved.
    pub fn go_on_registers(area: &'static RegArea) -> !;
    /// Enters user mode where the area says, with these in the registers of arguments and 0 in the
    /// others.
    pub fn enter_registers(area: &'static RegArea, args: &[u64; 6]) -> !;
}

/// The interrupt descriptor table, the same for all CPUs.
struct Table(UnsafeCell<[[u64; 2]; 256]>);

// SAFETY: 1. written by the boot CPU before any other CPU is started; then only read.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new([[0; 2]; 256]));

/// Fills the descriptor table; once, by the boot CPU.
pub fn init_machine() {
    // SAFETY: 1. the boot CPU is alone; no other reference exists.
    let table = unsafe { &mut *TABLE.0.get() };
    for (v, entry) in table.iter_mut().enumerate() {
        let at = &raw const vector_stubs as u64 + v as u64 * 16;
        // These may come on a broken stack, or when no code expects them.
        let own_stack = matches!(v as u64, NMI | DOUBLE_FAULT | MACHINE_CHECK);
        let ist = if own_stack { FAULT_IST as u64 + 1 } else { 0 };
        // Present interrupt gate. Only breakpoints may be raised by the program itself.
        let level = if v == 3 { 3 } else { 0 };
        entry[0] = at & 0xffff
            | (KERNEL_CODE as u64) << 16
            | ist << 32
            | (0x8e | level << 5) << 40
            | (at >> 16 & 0xffff) << 48;
        entry[1] = at >> 32;
    }
}

/// Loads the table and the entry point of `syscall`.
pub fn init_cpu() {
    let pointer = DescriptorTablePointer {
        limit: (size_of::<[[u64; 2]; 256]>() - 1) as u16,
        base: VirtAddr::from_ptr(TABLE.0.get()),
    };
    // SAFETY: 1. the table lives forever and has a handler for every vector.
    unsafe { lidt(&pointer) };
    let star = (KERNEL_CODE as u64) << 32 | (KERNEL_DATA as u64 | 3) << 48;
    let masked = 0x0004_7700; // AC, NT, IOPL, DF, IF, TF: off on entry
    // SAFETY: 1. the entry code expects exactly these segments and flags.
    unsafe {
        Msr::new(0xc000_0081).write(star);
        Msr::new(0xc000_0082).write(&raw const fast::syscall_entry as u64);
        Msr::new(0xc000_0084).write(masked);
        Efer::update(|e| *e |= EferFlags::SYSTEM_CALL_EXTENSIONS);
    }
}

fn fault_address() -> u64 {
    let at: u64;
    // SAFETY: 1. reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

/// What the error code of a page fault says that mapping a page would cure.
const fn access(error: u64) -> FaultKind {
    if error & 1 << 1 != 0 {
        FaultKind::Write
    } else if error & 1 << 4 != 0 {
        FaultKind::Execute
    } else {
        FaultKind::Read
    }
}

/// Decodes a page fault from user mode that mapping a page would cure.
fn page_fault(error: u64) -> UserFault {
    UserFault {
        kind: access(error),
        address: fault_address(),
        raw: PAGE_FAULT << 32 | error,
    }
}

/// Decodes another exception from user mode.
fn decode(vector: u64, error: u64) -> UserFault {
    let kind = match vector {
        // A reserved bit, a protection key.
        PAGE_FAULT => FaultKind::Other,
        0 | 4 | 16 | 19 => FaultKind::Arithmetic,
        1 | 3 => FaultKind::Breakpoint,
        6 | 13 => FaultKind::Illegal,
        17 => FaultKind::Alignment,
        _ => FaultKind::Other,
    };
    let address = if vector == PAGE_FAULT {
        fault_address()
    } else {
        0
    };
    UserFault {
        kind,
        address,
        raw: vector << 32 | error,
    }
}

/// What becomes of an exception in user mode, by vector and error code.
#[cfg(feature = "ktest")]
pub fn fault_kind(raw: u64) -> FaultKind {
    match (raw >> 32, raw & 0xffff_ffff) {
        (PAGE_FAULT, error) if error & !PAGE_FAULT_KNOWN == 0 => page_fault(error).kind,
        (vector, error) => decode(vector, error).kind,
    }
}

/// An exception in user mode that is not, as most are, a page fault.
#[cold]
fn other_fault(area: &'static RegArea, vector: u64, error: u64) -> ! {
    if vector == NO_FP {
        entry::fp_wanted::<X86>(area);
    }
    entry::user_fault::<X86>(area, decode(vector, error))
}

/// Every interrupt and exception in user mode ends here, on an empty kernel stack.
extern "C" fn user_trap(area: &'static RegArea) -> ! {
    let (vector, error) = context::cause(area);
    match vector {
        PAGE_FAULT if error & !PAGE_FAULT_KNOWN == 0 => {
            let fault = page_fault(error);
            if fault.kind == FaultKind::Execute && crossing::is_foreign::<X86>(fault.address) {
                entry::foreign_fault::<X86>(area, fault);
            }
            entry::page_fault::<X86>(area, fault)
        }
        NMI | DOUBLE_FAULT | MACHINE_CHECK => {
            // Whatever it is, it is not the thread's fault.
            entry::kernel_fault::<X86>(name(vector), &[("vector", vector), ("error", error)])
        }
        0..32 => other_fault(area, vector, error),
        v => {
            irq::acknowledge(v as u8);
            irq::take_pending();
            #[cfg(feature = "ktest")]
            if dyad_core::ktest::user_calls::runs() {
                <X86 as dyad_machine::Platform>::resume_user(area);
            }
            entry::interrupted::<X86>(area)
        }
    }
}

const fn name(vector: u64) -> &'static str {
    match vector {
        0 => "divide error",
        NMI => "non-maskable interrupt",
        3 => "breakpoint",
        6 => "undefined instruction",
        DOUBLE_FAULT => "double fault (has a stack run over?)",
        10 => "invalid task state segment",
        11 => "segment not present",
        12 => "stack segment fault",
        13 => "general protection fault",
        PAGE_FAULT => "page fault",
        MACHINE_CHECK => "machine check",
        _ => "unexpected exception",
    }
}

/// Registers pushed by an interrupt in the kernel, lowest address first.
#[repr(C)]
struct KernelFrame([u64; PUSHED_WORDS]);

const FRAME_NAMES: [&str; PUSHED_WORDS] = [
    "r15", "r14", "r13", "r12", "r11", "r10", "r9", "r8", "rbp", "rdi", "rsi", "rdx", "rcx", "rbx",
    "rax", "vector", "error", "rip", "cs", "rflags", "rsp", "ss",
];

/// Every interrupt and exception in the kernel comes here; only interrupts return.
extern "C" fn kernel_trap(frame: &KernelFrame) {
    let vector = frame.0[context::VECTOR];
    if vector >= 32 {
        irq::acknowledge(vector as u8);
        return;
    }
    if cpu::this().faults.replace(1) != 0 {
        // Reporting has failed.
        exit::exit(EXIT_PANIC);
    }
    let mut regs = [("", 0); PUSHED_WORDS + 2];
    for (i, (name, value)) in FRAME_NAMES.iter().zip(frame.0).enumerate() {
        regs[i] = (name, value);
    }
    regs[PUSHED_WORDS] = ("cr2", fault_address());
    regs[PUSHED_WORDS + 1] = ("cr3", crate::mmu::current_root());
    entry::kernel_fault::<X86>(name(vector), &regs)
}
