//! From the machine's reset state to `dyad_boot`.
//!
//! ```text
//! QEMU (PVH): 32-bit, paging off ─▶ _start ─▶ boot tables, long mode ─▶ boot_primary (boot stack)
//!                                                       │ serial, parameters, kernel tables,
//!                                                       │ per-CPU areas
//!                                                       ▼
//!                                                  on_kernel_stack ─▶ dyad_boot::primary
//!
//! start-up message: 16-bit ─▶ trampoline ─▶ boot tables, long mode ─▶ boot_secondary
//!                        (boot stack, free again) ─▶ on_kernel_stack_secondary
//! ```
//!
//! The boot tables are constants: one root and one table, whose entries for RAM, devices and the
//! image serve all windows at once. They make RAM executable and writable, for as long as nothing
//! but boot code runs; `mmu` then replaces them.

use core::arch::{asm, global_asm};

use dyad_abi::CpuId;
use dyad_abi::boot::{BootParams, ClockKind};
use dyad_boot::{BootMachine, early, refuse};
use dyad_machine::fused;

use crate::platform::X86;
use crate::{clock, cpu, doorbell, fwcfg, irq, mmu, serial, smp, traps};

/// Size of the stack that boot code runs on.
const BOOT_STACK: usize = 64 * 1024;
// The boot CPU builds every CPU's area on it, in one piece and its copy.
const _: () = assert!(2 * cpu::AREA_BYTES < BOOT_STACK - 8 * 1024);

/// Boot-table entries: present, writable, accessed, dirty, 1 GiB; for devices uncached and not
/// executable.
const RAM_LEAF: u64 = 0xe3;
const DEVICE_LEAF: u64 = 0xfb | 1 << 63;
const TABLE: u64 = 0x23;

global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .balign 4
    .long   4, 4, 18                    // name, descriptor, XEN_ELFNOTE_PHYS32_ENTRY
    .asciz  "Xen"
    .long   _start - {image_offset}

    .section .text.boot, "ax"
    .code32
    .globl  _start
_start:
    cli
    cld
    xor     ebp, ebp                    // ebp: number of this CPU
protected:
    mov     eax, offset boot_root - {image_offset}
    mov     cr3, eax
    mov     eax, 0xa0                   // PAE, PGE
    mov     cr4, eax
    mov     ecx, 0xc0000080
    rdmsr
    or      eax, 0x900                  // long mode, no-execute
    wrmsr
    // Floating point is off (TS) until a thread uses it; the kernel never does.
    mov     eax, 0x8001003b             // PG, WP, NE, ET, TS, MP, PE
    mov     cr0, eax
    lgdt    [boot_gdt_pointer - {image_offset}]
    // A far jump to 64-bit code, at its physical address.
    .byte   0xea
    .long   long_mode - {image_offset}
    .word   0x08

    .code64
long_mode:
    mov     ax, 0x10
    mov     ss, ax
    xor     eax, eax
    mov     ds, ax
    mov     es, ax
    mov     fs, ax
    mov     gs, ax
    mov     rsp, offset boot_stack_top
    mov     edi, ebp
    xor     ebp, ebp
    mov     rax, offset {boot_any}
    call    rax                         // from the identity map to where it is linked
    ud2

    // Copied to its own page below 1 MiB; started there in 16-bit mode.
    .section .rodata.boot_tables, "a"
    .balign 16
    .code16
    .globl  trampoline_start
trampoline_start:
    cli
    cld
    mov     ax, cs
    mov     ds, ax
    .byte   0x66, 0x0f, 0x01, 0x16      // lgdt with a 32-bit base, of a 16-bit address
    .word   trampoline_gdt_pointer - trampoline_start
    mov     eax, cr0
    or      eax, 1
    mov     cr0, eax
    .byte   0x66, 0xea                  // far jump to 32-bit code
    .long   {trampoline} + trampoline_32 - trampoline_start
    .word   0x18
    .code32
trampoline_32:
    mov     ax, 0x10
    mov     ds, ax
    mov     es, ax
    mov     ss, ax
    .byte   0x8b, 0x2d                  // mov ebp, of a 32-bit address
    .long   {trampoline} + trampoline_cpu - trampoline_start
    mov     eax, offset protected - {image_offset}
    jmp     eax
    .balign 8
trampoline_gdt:
    .quad   0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x00cf9b000000ffff
trampoline_gdt_pointer:
    .word   4 * 8 - 1
    .long   {trampoline} + trampoline_gdt - trampoline_start
    .balign 4
    .globl  trampoline_cpu
trampoline_cpu:
    .long   0
    .globl  trampoline_end
trampoline_end:
    .code64

    .balign 8
boot_gdt:
    .quad   0, 0x00af9b000000ffff, 0x00cf93000000ffff
boot_gdt_pointer:
    .word   3 * 8 - 1
    .long   boot_gdt - {image_offset}

    .balign 4096
boot_root:
    .quad   boot_table - {image_offset} + {table}       // 0: identity
    .fill   447, 8, 0
    .quad   boot_table - {image_offset} + {table}       // 448: private RAM
    .fill   15, 8, 0
    .quad   boot_table - {image_offset} + {table}       // 464: devices
    .fill   46, 8, 0
    .quad   boot_table - {image_offset} + {table}       // 511: image
boot_table:
    .quad   {ram}                                       // 0: RAM, identity and window
    .quad   0
    .quad   0x80000000 + {device}                       // 2, 3: devices
    .quad   0xc0000000 + {device}
    .fill   506, 8, 0
    .quad   {ram}                                       // 510: RAM as the image
    .quad   0

    .section .bss.boot_stack, "aw", @nobits
    .balign 4096
    .skip   {boot_stack}
boot_stack_top:

    // fn(stack_top, function) -> !
    .section .text.on_stack, "ax"
    .globl  run_on_stack
run_on_stack:
    mov     rsp, rdi
    xor     ebp, ebp
    call    rsi
    ud2
    "#,
    image_offset = const mmu::IMAGE_OFFSET,
    trampoline = const mmu::TRAMPOLINE,
    boot_any = sym boot_any,
    table = const TABLE,
    ram = const RAM_LEAF,
    device = const DEVICE_LEAF,
    boot_stack = const BOOT_STACK,
);

unsafe extern "C" {
    /// Continues with `function` on an empty stack.
    fn run_on_stack(stack_top: u64, function: extern "C" fn() -> !) -> !;
}

/// Ends a machine whose CPUs lack what the kernel relies on.
fn check_features() {
    use core::arch::x86_64::__cpuid_count as cpuid;
    let (basic, more, extended) = (cpuid(1, 0), cpuid(7, 0), cpuid(0x8000_0001, 0));
    let needed = [
        ("FXSAVE", basic.edx >> 24),
        ("SSE2", basic.edx >> 26),
        ("SMEP", more.ebx >> 7),
        ("SMAP", more.ebx >> 20),
        ("UMIP", more.ecx >> 2),
        ("LZCNT", extended.ecx >> 5),
        ("no-execute pages", extended.edx >> 20),
        ("1 GiB pages", extended.edx >> 26),
    ];
    for (what, bit) in needed {
        if bit & 1 == 0 {
            refuse::<X86>(format_args!("this CPU has no {what}: use -cpu max"));
        }
    }
}

/// First compiled code of every CPU, on the boot stack.
extern "C" fn boot_any(number: u64) -> ! {
    if number == 0 {
        boot_primary()
    } else {
        boot_secondary(number)
    }
}

fn boot_primary() -> ! {
    cpu::use_early();
    traps::init_machine();
    traps::init_cpu();
    serial::init();
    check_features();
    let params = match BootParams::parse(early::boot_text::<X86>(fwcfg::read_file)) {
        Ok(p) => p,
        Err(e) => refuse::<X86>(format_args!("bad boot parameters: {e}")),
    };
    if params.clock == ClockKind::Hardware {
        clock::init();
    }
    let cpus = params.cpus;
    let map = match mmu::build(&params) {
        Ok(map) => map,
        Err(e) => refuse::<X86>(format_args!("cannot build the kernel's page tables: {e}")),
    };
    for c in CpuId::first(cpus) {
        cpu::init_area(c);
    }
    smp::set_count(cpus);
    let machine = BootMachine {
        params,
        map,
        #[cfg(feature = "ktest")]
        ktests: crate::ktest::entries(),
    };
    early::keep(machine);
    let top = cpu::use_area(cpu::BOOT);
    // SAFETY: 1. the kernel stack of this CPU is mapped and nothing is on it; 2. nothing on the
    // boot stack is used any more.
    unsafe { run_on_stack(top, on_kernel_stack) }
}

/// Continues on the boot CPU's kernel stack, with everything of the boot phase behind it.
extern "C" fn on_kernel_stack() -> ! {
    let machine = early::kept::<X86>();
    if let Err(e) = fused::attach::<X86>(&machine.map, &machine.params) {
        refuse::<X86>(format_args!("no clock: {e}"));
    }
    irq::init_machine();
    irq::init_cpu();
    if let Err(e) = doorbell::init(smp::count()) {
        refuse::<X86>(format_args!("no doorbell: {e}"));
    }
    dyad_boot::primary::<X86>(machine)
}

/// The other CPUs, on the boot stack that the first one has left long ago.
fn boot_secondary(number: u64) -> ! {
    let Some(cpu) = CpuId::new(number) else {
        // SAFETY: 1. nothing else can be done with a CPU that has no number.
        unsafe { asm!("cli", "hlt", options(noreturn, nomem)) }
    };
    mmu::use_kernel_root();
    let top = cpu::use_area(cpu);
    traps::init_cpu();
    // SAFETY: 1. see `boot_primary`.
    unsafe { run_on_stack(top, on_kernel_stack_secondary) }
}

extern "C" fn on_kernel_stack_secondary() -> ! {
    irq::init_cpu();
    dyad_boot::secondary::<X86>()
}
