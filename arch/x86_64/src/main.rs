//! The kernel for x86-64 machines: the leaf crate that makes a QEMU `q35` machine a
//! [`dyad_machine::Platform`] and starts the ISA-neutral kernel on it.
//!
//! | module | concern |
//! |---|---|
//! | [`boot`] | from the reset state to `dyad_boot` |
//! | [`cpu`] | per-CPU areas, stacks, segments, backtraces |
//! | [`traps`], [`context`] | entries from user mode and back, register areas |
//! | [`fast`] | system calls |
//! | [`mmu`] | kernel address space, roots, TLB |
//! | [`irq`], [`clock`] | local APIC, timer, time |
//! | [`doorbell`], [`fwcfg`], [`serial`] | devices |
//! | [`smp`], [`exit`] | other CPUs, the end |
//!
//! Its twin is `arch/aarch64`, file by file.
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
mod port;
mod serial;
mod smp;
mod traps;

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    dyad_machine::panic::on_panic::<platform::X86>(info)
}
