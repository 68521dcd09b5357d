//! From the machine's reset state to `dyad_boot`.
//!
//! ```text
//! QEMU: EL1, MMU off ─▶ _start ─▶ boot tables on ─▶ boot_primary (boot stack)
//!                                                       │ serial, parameters, kernel tables,
//!                                                       │ per-CPU areas
//!                                                       ▼
//!                                                  on_kernel_stack ─▶ dyad_boot::primary
//!
//! PSCI: EL1, MMU off ─▶ _secondary_start ─▶ kernel tables on ─▶ boot_secondary
//! ```
//!
//! While the MMU is off all memory is Device memory, in which compiled code must not run (it may
//! access memory unaligned). The boot tables are constants: one root and one table, whose entries
//! for devices, RAM and the image serve all windows at once. They make RAM executable and
//! writable, for as long as nothing but `boot_primary` runs; `mmu` then replaces them.

use core::arch::global_asm;

use aarch64_cpu::registers::{ID_AA64ISAR0_EL1, ID_AA64MMFR1_EL1, Readable};
use dyad_abi::CpuId;
use dyad_abi::boot::BootParams;
use dyad_abi::record::{self, EXIT_BOOT};
use dyad_boot::{BootMachine, early, refuse};
use dyad_machine::fused;

use crate::platform::Aarch64;
use crate::{cpu, doorbell, exit, fwcfg, irq, mmu, serial, smp};

/// Size of the stack that [`boot_primary`] runs on.
const BOOT_STACK: usize = 64 * 1024;
// The boot CPU builds every CPU's area on it, in one piece and its copy.
const _: () = assert!(2 * cpu::AREA_BYTES < BOOT_STACK - 8 * 1024);
/// Size of the stack for exceptions while [`boot_primary`] runs.
const BOOT_FAULT_STACK: usize = 32 * 1024;

global_asm!(
    r#"
    .arch_extension pan

    .section .text.boot, "ax"
    .globl _start
_start:
    mov     x19, xzr                    // x19: number of this CPU
    adrp    x20, boot_root              // x20: TTBR1
    add     x20, x20, #0x800
    b       1f

    .globl _secondary_start
_secondary_start:
    mov     x19, x0
    adrp    x20, {kernel_ttbr1}
    ldr     x20, [x20, :lo12:{kernel_ttbr1}]

1:  msr     daifset, #0xf
    mrs     x0, CurrentEL
    cmp     x0, #(1 << 2)
    b.ne    9f
    ldr     x0, ={mair}
    msr     mair_el1, x0
    // Physical addresses of 48 bits, or fewer if the CPU has fewer.
    mrs     x1, id_aa64mmfr0_el1
    and     x1, x1, #0xf
    mov     x2, #5
    cmp     x1, #5
    csel    x1, x1, x2, lo
    ldr     x0, ={tcr}
    orr     x0, x0, x1, lsl #32
    msr     tcr_el1, x0
    adrp    x0, boot_root
    msr     ttbr0_el1, x0
    msr     ttbr1_el1, x20
    tlbi    vmalle1
    dsb     nsh
    isb
    ldr     x0, ={sctlr_boot}
    msr     sctlr_el1, x0
    isb
    ldr     x0, =2f                     // where this code is linked
    br      x0

2:  msr     spsel, #1
    adrp    x0, exception_vectors
    add     x0, x0, :lo12:exception_vectors
    msr     vbar_el1, x0
    // Floating point is off in user mode until a thread uses it. The kernel saves and loads the
    // registers, in `context`, and has no other instruction that uses them.
    mov     x0, #(1 << 20)
    msr     cpacr_el1, x0
    // No counters, timers, performance monitors or debug channel in user mode.
    msr     cntkctl_el1, xzr
    msr     pmuserenr_el0, xzr
    mov     x0, #(1 << 12)
    msr     mdscr_el1, x0
    msr     tpidrro_el0, xzr
    mrs     x0, id_aa64mmfr1_el1
    tst     x0, #(0xf << 20)
    b.eq    4f                          // refused in boot_primary
    msr     pan, #1
4:  isb
    mov     x29, xzr
    mov     x30, xzr
    cbnz    x19, 3f

    adrp    x0, {early}
    add     x0, x0, :lo12:{early}
    adrp    x1, boot_fault_stack_top
    str     x1, [x0, #{fault_stack}]
    adrp    x1, boot_stack_top
    str     x1, [x0, #{kernel_stack}]
    msr     tpidr_el1, x0
    mov     sp, x1
    bl      {boot_primary}

3:  // The low half has done its work.
    adrp    x0, {idle_root}
    ldr     x0, [x0, :lo12:{idle_root}]
    msr     ttbr0_el1, x0
    ldr     x0, ={sctlr}
    msr     sctlr_el1, x0
    isb
    tlbi    vmalle1
    dsb     nsh
    isb
    ldr     x0, ={areas}
    add     x0, x0, x19, lsl #{slot_shift}
    msr     tpidr_el1, x0
    ldr     x1, [x0, #{kernel_stack}]
    mov     sp, x1
    bl      {boot_secondary}

9:  // Not EL1: nothing of the above would work. End the machine, saying that it did not boot.
    mov     x0, #0x18
    adr     x1, 8f
    hlt     #0xf000
7:  wfi
    b       7b
    .balign 8
8:  .quad   0x20026, {exit_boot}
    .ltorg

    // fn(stack_top, function) -> !
    .section .text.on_stack, "ax"
    .globl  run_on_stack
run_on_stack:
    mov     sp, x0
    mov     x29, xzr
    mov     x30, xzr
    br      x1

    .section .rodata.boot_tables, "a"
    .balign 4096
boot_root:
    .quad   boot_table - {image_offset} + 3     // 0: identity
    .fill   447, 8, 0
    .quad   boot_table - {image_offset} + 3     // 448: private RAM
    .fill   15, 8, 0
    .quad   boot_table - {image_offset} + 3     // 464: devices
    .fill   46, 8, 0
    .quad   boot_table - {image_offset} + 3     // 511: image
boot_table:
    .quad   {device_block}                      // 0: devices
    .quad   {ram_block}                         // 1: RAM, identity and window
    .fill   508, 8, 0
    .quad   {ram_block}                         // 510: RAM as the image
    .quad   0

    .section .bss.boot_stack, "aw", @nobits
    .balign 4096
    .skip   {boot_stack}
boot_stack_top:
    .skip   {boot_fault_stack}
boot_fault_stack_top:
    "#,
    mair = const mmu::MAIR,
    tcr = const mmu::TCR,
    sctlr_boot = const mmu::SCTLR_BOOT,
    sctlr = const mmu::SCTLR,
    kernel_ttbr1 = sym mmu::KERNEL_TTBR1,
    idle_root = sym mmu::IDLE_ROOT,
    image_offset = const mmu::IMAGE_OFFSET,
    ram_block = const mmu::BOOT_RAM_BLOCK,
    device_block = const mmu::BOOT_DEVICE_BLOCK,
    early = sym cpu::EARLY,
    kernel_stack = const cpu::OFFSET_KERNEL_STACK,
    fault_stack = const cpu::OFFSET_FAULT_STACK,
    areas = const cpu::AREAS,
    slot_shift = const cpu::SLOT_SHIFT,
    boot_primary = sym boot_primary,
    boot_secondary = sym boot_secondary,
    boot_stack = const BOOT_STACK,
    boot_fault_stack = const BOOT_FAULT_STACK,
    exit_boot = const record::aarch64_exit_value(EXIT_BOOT),
);

unsafe extern "C" {
    /// Continues with `function` on an empty stack.
    fn run_on_stack(stack_top: u64, function: extern "C" fn() -> !) -> !;
}

/// Ends a machine whose CPUs lack features that the kernel relies on. Reports it without the console's lock,
/// because atomic instructions may be what is missing.
fn check_features() {
    let field = |register: u64, shift: u32| register >> shift & 0xf;
    let (isar0, mmfr1) = (ID_AA64ISAR0_EL1.get(), ID_AA64MMFR1_EL1.get());
    let needed = [
        ("atomic instructions (LSE)", field(isar0, 20) >= 2),
        (
            "hardware accessed and dirty bits (HAFDBS)",
            field(mmfr1, 0) >= 2,
        ),
        ("privileged access never (PAN)", field(mmfr1, 20) >= 1),
    ];
    for (what, _) in needed.iter().filter(|n| !n.1) {
        for part in [
            &[record::LOG],
            "0 0 E cannot boot: this CPU has no ".as_bytes(),
            what.as_bytes(),
            b": use -cpu max or neoverse-n1\n",
        ] {
            serial::write(part);
        }
    }
    if needed.iter().any(|n| !n.1) {
        exit::exit(EXIT_BOOT);
    }
}

/// First compiled code of the boot CPU.
extern "C" fn boot_primary() -> ! {
    serial::init();
    check_features();
    let text = early::boot_text::<Aarch64>(fwcfg::read_file);
    let params = match BootParams::parse(text) {
        Ok(p) => p,
        Err(e) => refuse::<Aarch64>(format_args!("bad boot parameters: {e}")),
    };
    if params.cpus > smp::MAX_PSCI_CPUS {
        refuse::<Aarch64>(format_args!("{} CPUs are too many", params.cpus));
    }
    let map = match mmu::build(&params) {
        Ok(map) => map,
        Err(e) => refuse::<Aarch64>(format_args!("cannot build the kernel's page tables: {e}")),
    };
    for c in CpuId::first(params.cpus) {
        cpu::init_area(c);
    }
    smp::set_count(params.cpus);
    let machine = BootMachine {
        params,
        map,
        #[cfg(feature = "ktest")]
        ktests: crate::ktest::entries(),
    };
    early::keep(machine);
    let top = cpu::use_area(CpuId::first(1).next().unwrap_or_else(|| unreachable!()));
    // SAFETY: 1. the kernel stack of this CPU is mapped and nothing is on it; 2. nothing on the
    // boot stack is used any more.
    unsafe { run_on_stack(top, on_kernel_stack) }
}

/// Continues on the boot CPU's kernel stack, with everything of the boot phase behind it.
extern "C" fn on_kernel_stack() -> ! {
    let machine = early::kept::<Aarch64>();
    if let Err(e) = fused::attach::<Aarch64>(&machine.map, &machine.params) {
        refuse::<Aarch64>(format_args!("no clock: {e}"));
    }
    irq::init_distributor();
    irq::init_cpu();
    let cpus = smp::count();
    if let Err(e) = doorbell::init(cpus) {
        refuse::<Aarch64>(format_args!("no doorbell: {e}"));
    }
    dyad_boot::primary::<Aarch64>(machine)
}

/// First compiled code of the other CPUs, on their kernel stacks.
extern "C" fn boot_secondary() -> ! {
    irq::init_cpu();
    dyad_boot::secondary::<Aarch64>()
}
