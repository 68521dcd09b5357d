//! The kernel for AArch64 machines: QEMU `virt`, GICv2 with its MSI frame, EL1.
//!
//! A leaf: it implements [`dyad_machine::Platform`] and hands over to [`dyad_core`]. The x86-64
//! kernel has the same files.
//!
//! | module | concern |
//! |---|---|
//! | [`boot`] | from the machine's reset state to `dyad_boot` |
//! | [`cpu`] | per-CPU areas and stacks |
//! | [`traps`] | exception vectors, decoding |
//! | [`context`] | registers of user threads |
//! | [`fast`] | system calls |
//! | [`mmu`] | kernel page tables, roots, TLB, device windows |
//! | [`irq`] | interrupt controller |
//! | [`clock`] | counter and timer |
//! | [`doorbell`] | interrupts between machines |
//! | [`smp`] | other CPUs |
//! | [`serial`], [`fwcfg`], [`exit`] | console, boot parameters, end |
//! | [`platform`] | the `Platform` |
#![no_std]
#![no_main]

mod boot;
mod clock;
mod context;
mod cpu;
mod doorbell;
mod exit;
mod fast;
mod fwcfg;
mod irq;
#[cfg(feature = "ktest")]
mod ktest;
mod mmu;
mod platform;
mod serial;
mod smp;
mod traps;

use core::panic::PanicInfo;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    dyad_machine::panic::on_panic::<platform::Aarch64>(info)
}
