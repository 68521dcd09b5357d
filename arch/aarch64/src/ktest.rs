//! What in-kernel tests need of the machine.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_core::ktest::user_calls::{DONE, FP_TABLE, FpWords};
use dyad_core::ktest::{Entry, UserProbe};
use dyad_machine::platform::{FaultKind, RegArea};
use dyad_shm::PhysAddr;

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

/// `mov w0, #n; ret`.
pub fn code_returning(n: u8) -> [u64; 2] {
    [0xd65f_03c0 << 32 | 0x5280_0000 | (n as u64) << 5, 0]
}

global_asm!(
    r#"
    // What `UserProbe::code` describes.
    .section .rodata.user_probe, "a"
    .macro show_registers
    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
    str     x\n, [sp, #512 + \n * 8]
    .endr
    mov     x0, sp
    str     x0, [sp, #760]
    mrs     x0, nzcv
    str     x0, [sp, #768]
    .endm
    .macro done
    ldr     x0, 7f
    svc     #0
    brk     #1
    .balign 8
7:  .quad   {done}
    .endm

    .arch_extension fp
    .arch_extension simd
    .macro show_fp at
    str     q0, [sp, #\at]
    str     q31, [sp, #\at + 16]
    mrs     x9, fpcr
    str     x9, [sp, #\at + 32]
    .endm
    .macro spoil_fp
    movi    v0.16b, #255
    movi    v31.16b, #255
    ldr     x9, [sp, #{control} * 8]
    msr     fpcr, x9
    .endm
    .macro make_call
    ldp     x0, x1, [sp]
    ldp     x2, x3, [sp, #16]
    ldp     x4, x5, [sp, #32]
    svc     #0
    .endm

    .balign 16
    .globl  user_probe_start
user_probe_start:
    ldr     x0, [sp, #256]
    msr     nzcv, x0
    msr     tpidr_el0, x0
    ldp     x0, x1, [sp]
    ldp     x2, x3, [sp, #16]
    ldp     x4, x5, [sp, #32]
    ldp     x6, x7, [sp, #48]
    ldp     x8, x9, [sp, #64]
    ldp     x10, x11, [sp, #80]
    ldp     x12, x13, [sp, #96]
    ldp     x14, x15, [sp, #112]
    ldp     x16, x17, [sp, #128]
    ldp     x18, x19, [sp, #144]
    ldp     x20, x21, [sp, #160]
    ldp     x22, x23, [sp, #176]
    ldp     x24, x25, [sp, #192]
    ldp     x26, x27, [sp, #208]
    ldp     x28, x29, [sp, #224]
    ldr     x30, [sp, #240]
    svc     #0
    show_registers
    done
    .globl  user_probe_handler
user_probe_handler:
    mov     sp, x5
    .globl  user_probe_entered
user_probe_entered:
    show_registers
    mrs     x0, tpidr_el0
    ldr     x0, [x0]
    str     x0, [sp, #776]
    done
    .globl  user_probe_fp
user_probe_fp:
    show_fp {before} * 8
    spoil_fp
    ldr     x9, [sp, #{address} * 8]
    ldr     x9, [x9]
    make_call
    show_fp {after} * 8
    done
    .globl  user_probe_fp_entered
user_probe_fp_entered:
    movz    x9, #{fp_table} >> 16, lsl #16
    movk    x9, #{fp_table} & 0xffff
    mov     sp, x9
    show_fp {before} * 8
    spoil_fp
    make_call
    mov     x0, xzr
    mov     x1, xzr
    svc     #0
    brk     #1
    .globl  user_probe_end
user_probe_end:
    .arch_extension nosimd
    .arch_extension nofp

    .section .text.run_user, "ax"
    // fn(area, &mut stack_pointer)
run_user_registers:
    stp     x29, x30, [sp, #-96]!
    stp     x19, x20, [sp, #16]
    stp     x21, x22, [sp, #32]
    stp     x23, x24, [sp, #48]
    stp     x25, x26, [sp, #64]
    stp     x27, x28, [sp, #80]
    mov     x2, sp
    str     x2, [x1]
    b       resume_registers
    // fn(stack_pointer) -> !
leave_user_registers:
    mov     sp, x0
    ldp     x19, x20, [sp, #16]
    ldp     x21, x22, [sp, #32]
    ldp     x23, x24, [sp, #48]
    ldp     x25, x26, [sp, #64]
    ldp     x27, x28, [sp, #80]
    ldp     x29, x30, [sp], #96
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

/// Class and syndrome of an exception.
const fn esr(class: u64, iss: u64) -> u64 {
    class << 26 | 1 << 25 | iss
}

/// Exceptions in user mode; Arm ARM, section D24.2.40 (`ESR_EL1`). A data abort has WnR in bit 6 and CM in bit 8: cache
/// maintenance is always reported as a write, whatever it does.
const FAULTS: &[(u64, FaultKind)] = &[
    // Translation faults of levels 1 and 3, access flag, permission.
    (esr(0x24, 0x05), FaultKind::Read),
    (esr(0x24, 0x07), FaultKind::Read),
    (esr(0x24, 0x0b), FaultKind::Read),
    (esr(0x24, 0x0f), FaultKind::Read),
    (esr(0x24, 1 << 6 | 0x07), FaultKind::Write),
    (esr(0x24, 1 << 6 | 0x0f), FaultKind::Write),
    (esr(0x24, 1 << 8 | 1 << 6 | 0x07), FaultKind::Read),
    (esr(0x24, 1 << 8 | 1 << 6 | 0x0f), FaultKind::Read),
    (esr(0x20, 0x07), FaultKind::Execute),
    (esr(0x20, 0x0f), FaultKind::Execute),
    // An address size fault, an external abort, a conflict in the TLB: not what a page cures.
    (esr(0x24, 0x00), FaultKind::Other),
    (esr(0x24, 1 << 6 | 0x10), FaultKind::Other),
    (esr(0x24, 0x30), FaultKind::Other),
    (esr(0x20, 0x10), FaultKind::Other),
    (esr(0x24, 0x21), FaultKind::Alignment),
    (esr(0x22, 0), FaultKind::Alignment),
    (esr(0x26, 0), FaultKind::Alignment),
    (esr(0x00, 0), FaultKind::Illegal),
    (esr(0x01, 0), FaultKind::Illegal),
    (esr(0x0e, 0), FaultKind::Illegal),
    (esr(0x18, 0), FaultKind::Illegal),
    (esr(0x15, 1), FaultKind::Breakpoint),
    (esr(0x3c, 1), FaultKind::Breakpoint),
    (esr(0x32, 0x22), FaultKind::Breakpoint),
    (esr(0x2c, 0), FaultKind::Arithmetic),
];

/// svc #0.
const TRAP: &[u8] = &0xd400_0001u32.to_le_bytes();

/// dc civac, cvac, cvau, zva, and ic ivau, all of x0: all but zva change nothing that anybody could tell.
const CACHE_MAINTENANCE: &[(&[u8], bool)] = &[
    (&0xd50b_7e20u32.to_le_bytes(), true),
    (&0xd50b_7a20u32.to_le_bytes(), true),
    (&0xd50b_7b20u32.to_le_bytes(), true),
    (&0xd50b_7420u32.to_le_bytes(), false),
    (&0xd50b_7520u32.to_le_bytes(), true),
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
        // FPCR: no traps; to nearest, towards zero, down.
        fp_control: [0, 3 << 22, 2 << 22],
        flags: [0xb000_0000, 0xb000_0000],
        forbidden_flags: !0xf000_0000,
        // Interrupts masked at EL0; single step; an illegal state; EL1, on either stack pointer.
        raised_flags: &[0x3c0, 0xf000_0080, 1 << 21, 1 << 20, 0x3c4, 0x3c5],
        step_flag: 0,
        raw: [context::AREA_PC, context::AREA_FLAGS, context::AREA_TP],
        returns_to_user_addresses_only: false,
        trap: TRAP,
        cache_maintenance: CACHE_MAINTENANCE,
        // hvc #0, smc #0, eret, msr daifset, #15, msr ttbr0_el1, x0.
        privileged: &[
            &[0x02, 0x00, 0x00, 0xd4],
            &[0x03, 0x00, 0x00, 0xd4],
            &[0xe0, 0x03, 0x9f, 0xd6],
            &[0xdf, 0x4f, 0x03, 0xd5],
            &[0x00, 0x20, 0x18, 0xd5],
        ],
        faults: FAULTS,
        no_flags: 0,
        call: [0, 1, 2, 3, 4, 5],
        arguments: [0, 1, 2, 3, 4, 5],
        results: [0, 1, 2, 3, 4],
        preserved: &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30],
        sp: 31,
        frame: 29,
        registers: 32,
        spent: &[],
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
    unsafe { asm!("mov {}, sp", out(reg) here, options(nomem, nostack, preserves_flags)) };
    let before = cpu::replace_kernel_stack((here - ROOM) & !15);
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

/// See [`dyad_machine::Platform::kernel_flags_are_right`]: everything masked, no access to user
/// pages.
pub fn kernel_flags_are_right() -> bool {
    let (masks, pan): (u64, u64);
    // SAFETY: 1. reads registers; PAN exists (`boot` checks).
    unsafe {
        asm!(
            "mrs {}, daif",
            "mrs {}, s3_0_c4_c2_3",
            out(reg) masks,
            out(reg) pan,
            options(nomem, nostack, preserves_flags)
        );
    }
    masks == 0xf << 6 && pan == 1 << 22
}
