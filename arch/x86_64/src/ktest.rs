//! What in-kernel tests need of the machine.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_core::ktest::user_calls::{DONE, FP_TABLE, FpWords};
use dyad_core::ktest::{Entry, UserProbe};
use dyad_machine::platform::{FaultKind, RegArea};
use dyad_shm::PhysAddr;
use x86_64::registers::model_specific::Msr;

use crate::{context, cpu, mmu};

unsafe extern "C" {
    static __start_ktests: u8;
    static __stop_ktests: u8;
}

/// The tests in the image.
pub fn entries() -> &'static [Entry] {
    let start = &raw const __start_ktests;
    let bytes = &raw const __stop_ktests as usize - start as usize;
    // SAFETY: 1. the linker script puts the symbols around the section that `#[ktest]` fills with
    // entries and nothing else, aligned; 2. it is constant.
    unsafe { core::slice::from_raw_parts(start.cast(), bytes / size_of::<Entry>()) }
}

/// Maps the frame at `pa` executable in the test window and calls it.
pub fn call_code(pa: PhysAddr) -> Option<u64> {
    let va = mmu::map_code_window(pa)?;
    // SAFETY: 1. the frame is mapped executable; 2. tests put `code_returning` there, which is a
    // function of this type.
    let f: extern "C" fn() -> u64 = unsafe { core::mem::transmute(va as usize) };
    Some(f())
}

/// `mov eax, n; ret`.
pub fn code_returning(n: u8) -> [u64; 2] {
    let bytes = [0xb8, n, 0, 0, 0, 0xc3, 0x90, 0x90];
    [u64::from_le_bytes(bytes), 0x9090_9090_9090_9090]
}

global_asm!(
    r#"
    // What `UserProbe::code` describes. Registers are in the order of their numbers.
    .section .rodata.user_probe, "a"
    .macro show_registers
    mov     [rsp + 512], rax
    mov     [rsp + 520], rdx
    mov     [rsp + 528], rcx
    mov     [rsp + 536], rbx
    mov     [rsp + 544], rsi
    mov     [rsp + 552], rdi
    mov     [rsp + 560], rbp
    mov     [rsp + 568], rsp
    mov     [rsp + 576], r8
    mov     [rsp + 584], r9
    mov     [rsp + 592], r10
    mov     [rsp + 600], r11
    mov     [rsp + 608], r12
    mov     [rsp + 616], r13
    mov     [rsp + 624], r14
    mov     [rsp + 632], r15
    pushfq
    pop     qword ptr [rsp + 768]
    .endm
    .macro done
    mov     rdi, {done}
    syscall
    ud2
    .endm

    .macro show_fp at
    movups  [rsp + \at], xmm0
    movups  [rsp + \at + 16], xmm15
    mov     qword ptr [rsp + \at + 32], 0
    stmxcsr [rsp + \at + 32]
    .endm
    .macro spoil_fp
    pcmpeqd xmm0, xmm0
    movaps  xmm15, xmm0
    ldmxcsr [rsp + {control} * 8]
    .endm
    .macro make_call
    mov     rdx, [rsp + 8]
    mov     rsi, [rsp + 32]
    mov     rdi, [rsp + 40]
    mov     r8, [rsp + 64]
    mov     r9, [rsp + 72]
    mov     r10, [rsp + 80]
    syscall
    .endm

    .balign 16
    .globl  user_probe_start
user_probe_start:
    xor     eax, eax
    mov     fs, eax
    mov     rax, [rsp]
    mov     rdx, [rsp + 8]
    mov     rcx, [rsp + 16]
    mov     rbx, [rsp + 24]
    mov     rsi, [rsp + 32]
    mov     rdi, [rsp + 40]
    mov     rbp, [rsp + 48]
    mov     r8, [rsp + 64]
    mov     r9, [rsp + 72]
    mov     r10, [rsp + 80]
    mov     r11, [rsp + 88]
    mov     r12, [rsp + 96]
    mov     r13, [rsp + 104]
    mov     r14, [rsp + 112]
    mov     r15, [rsp + 120]
    push    qword ptr [rsp + 256]
    popfq
    syscall
    show_registers
    done
    .globl  user_probe_handler
user_probe_handler:
    mov     rsp, r9
    .globl  user_probe_entered
user_probe_entered:
    show_registers
    mov     rax, fs:[0]
    mov     [rsp + 776], rax
    done
    .globl  user_probe_fp
user_probe_fp:
    show_fp {before} * 8
    spoil_fp
    mov     rax, [rsp + {address} * 8]
    mov     rax, [rax]
    make_call
    show_fp {after} * 8
    done
    .globl  user_probe_fp_entered
user_probe_fp_entered:
    mov     rsp, {fp_table}
    show_fp {before} * 8
    spoil_fp
    make_call
    xor     edi, edi
    xor     esi, esi
    syscall
    ud2
    .globl  user_probe_end
user_probe_end:

    .section .text.run_user, "ax"
    // fn(area, &mut stack_pointer)
run_user_registers:
    push    rbx
    push    rbp
    push    r12
    push    r13
    push    r14
    push    r15
    mov     [rsi], rsp
    jmp     resume_registers
    // fn(stack_pointer) -> !
leave_user_registers:
    mov     rsp, rdi
    pop     r15
    pop     r14
    pop     r13
    pop     r12
    pop     rbp
    pop     rbx
    ret
    "#,
    done = const DONE,
    fp_table = const FP_TABLE,
    control = const FpWords::CONTROL,
    address = const FpWords::ADDRESS,
    before = const FpWords::BEFORE,
    after = const FpWords::AFTER,
);

unsafe extern "C" {
    static user_probe_start: u8;
    static user_probe_entered: u8;
    static user_probe_handler: u8;
    static user_probe_fp: u8;
    static user_probe_fp_entered: u8;
    static user_probe_end: u8;
    fn run_user_registers(area: &'static RegArea, stack_pointer: *mut u64);
    fn leave_user_registers(stack_pointer: u64) -> !;
}

/// Carry, direction, nested task, alignment check; interrupts enabled and the bit that is always set.
const FLAGS: u64 = 0x4_4603;

/// Vectors and error codes of exceptions in user mode; Intel SDM volume 3, sections 6.15 and 4.7.
const FAULTS: &[(u64, FaultKind)] = &[
    (14 << 32 | 0b0_0100, FaultKind::Read),
    (14 << 32 | 0b0_0101, FaultKind::Read),
    (14 << 32 | 0b0_0110, FaultKind::Write),
    (14 << 32 | 0b0_0111, FaultKind::Write),
    (14 << 32 | 0b1_0100, FaultKind::Execute),
    (14 << 32 | 0b1_0101, FaultKind::Execute),
    // A reserved bit; a protection key.
    (14 << 32 | 0b0_1101, FaultKind::Other),
    (14 << 32 | 0b10_0101, FaultKind::Other),
    (0, FaultKind::Arithmetic),
    (1 << 32, FaultKind::Breakpoint),
    (3 << 32, FaultKind::Breakpoint),
    (6 << 32, FaultKind::Illegal),
    (12 << 32, FaultKind::Other),
    (13 << 32, FaultKind::Illegal),
    (16 << 32, FaultKind::Arithmetic),
    (17 << 32, FaultKind::Alignment),
    (19 << 32, FaultKind::Arithmetic),
];

/// See [`dyad_machine::Platform::user_probe`].
pub fn user_probe() -> UserProbe {
    let start = &raw const user_probe_start;
    let at = |end: *const u8| end as usize - start as usize;
    UserProbe {
        // SAFETY: 1. the symbols are around the code, which is constant.
        code: unsafe { core::slice::from_raw_parts(start, at(&raw const user_probe_end)) },
        entered: at(&raw const user_probe_entered) as u64,
        handler: at(&raw const user_probe_handler) as u64,
        fp: at(&raw const user_probe_fp) as u64,
        fp_entered: at(&raw const user_probe_fp_entered) as u64,
        // MXCSR: all exceptions masked; to nearest, towards zero, down.
        fp_control: [0x1f80, 0x7f80, 0x3f80],
        flags: [FLAGS, FLAGS & !0x4_4000],
        forbidden_flags: !0xed7,
        // Ports; interrupts masked; a nested task; both with all that a program may set.
        raised_flags: &[0x3202, 0x0002, 0x4202, 0x7cd7],
        step_flag: 0x100,
        raw: [context::RIP, context::RFLAGS, context::FS_BASE],
        returns_to_user_addresses_only: true,
        trap: &[0x0f, 0x05],
        // clflush, clflushopt, clwb [rdi].
        cache_maintenance: &[
            (&[0x0f, 0xae, 0x3f], true),
            (&[0x66, 0x0f, 0xae, 0x3f], true),
            (&[0x66, 0x0f, 0xae, 0x37], true),
        ],
        // int 2, int 8, int 14, int 0x40, int 0xff; hlt; mov cr3, rax.
        privileged: &[
            &[0xcd, 2],
            &[0xcd, 8],
            &[0xcd, 14],
            &[0xcd, 0x40],
            &[0xcd, 0xff],
            &[0xf4],
            &[0x0f, 0x22, 0xd8],
        ],
        faults: FAULTS,
        no_flags: 0x202,
        call: [5, 4, 1, 10, 8, 9],
        arguments: [5, 4, 1, 2, 8, 9],
        results: [0, 1, 4, 5, 8],
        preserved: &[3, 6, 12, 13, 14, 15],
        sp: 7,
        frame: 6,
        registers: 16,
        spent: &[2, 11],
    }
}

/// Stack pointer of the test that waits for user mode to be left.
static WAITING: AtomicU64 = AtomicU64::new(0);
/// Bytes of the kernel stack that are left to tests that wait.
const ROOM: u64 = 0x2000;

/// See [`dyad_machine::Platform::run_user`].
pub fn run_user(area: &'static RegArea) {
    let here: u64;
    // SAFETY: 1. reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags)) };
    let before = cpu::replace_kernel_stack((here - ROOM) & !15);
    context::sanitise(area);
    // SAFETY: 1. see `Platform::resume_user`; 2. entries from user mode start below this frame;
    // 3. `leave_user_registers` comes back as a return from here.
    unsafe { run_user_registers(area, WAITING.as_ptr()) };
    cpu::replace_kernel_stack(before);
}

/// See [`dyad_machine::Platform::leave_user`].
pub fn leave_user() -> ! {
    // SAFETY: 1. `run_user` waits, and its frame is above all that has run since.
    unsafe { leave_user_registers(WAITING.load(Ordering::Relaxed)) }
}

/// See [`dyad_machine::Platform::kernel_flags_are_right`]: interrupts masked, no access to user
/// pages, strings upwards, no trap after an instruction, and no nested task, with which IRETQ faults. The
/// mask of system calls clears all these flags.
pub fn kernel_flags_are_right() -> bool {
    let flags: u64;
    // SAFETY: 1. reads the flags; the stack is balanced.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags) };
    // Emulators clear the direction flag at every system call, CPUs only where the mask says so.
    // SAFETY: 1. reads a register that every CPU with system calls has.
    let mask = unsafe { Msr::new(0xc000_0084).read() };
    flags & 0x4_4700 == 0 && mask & 0x4_4700 == 0x4_4700
}
