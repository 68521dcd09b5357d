//! The `Platform` of x86-64 machines: its constants, and functions that differ between the architectures.

use core::sync::atomic::AtomicU64;

use dyad_abi::Isa;
use dyad_machine::Platform;
use dyad_machine::platform::{FpArea, RegArea};
use dyad_shm::superblock::ROOT_ENTRIES;
use dyad_shm::{FusedMap, PhysAddr};

#[cfg(feature = "ktest")]
use crate::ktest;
use crate::{clock, context, cpu, doorbell, exit, irq, mmu, serial, smp, traps};

/// X86-64 machines.
pub enum X86 {}

impl Platform for X86 {
    dyad_machine::platform_of_modules!();

    const ISA: Isa = Isa::X86_64;
    const REG_WORDS_USED: usize = context::USED_WORDS;

    fn set_entry(area: &RegArea, pc: u64) {
        context::set_entry(area, pc);
    }
    const KEEPS_FP: bool = false;
    fn take_call_fp(args: &[AtomicU64; 8], _kept: &[AtomicU64; 8]) {
        context::take_call_fp(args);
    }
    fn give_call_fp(args: Option<&[AtomicU64; 8]>, _kept: Option<&[AtomicU64; 8]>) {
        context::reset_fp();
        if let Some(args) = args {
            context::give_call_fp(args);
        }
    }
    fn set_call_fp(area: &FpArea, args: [u64; 8], _kept: [u64; 8]) {
        context::set_call_fp(area, args);
    }
    fn resume_user(area: &'static RegArea) -> ! {
        debug_assert!(
            !context::is_partial(area),
            "a partial area cannot be resumed"
        );
        context::sanitise(area);
        // SAFETY: 1. the area lives forever and is 16-byte aligned; 2. nothing on the kernel
        // stack is used again; 3. segments, flags and addresses have just been made those of user
        // mode.
        unsafe { traps::resume_registers(area) }
    }

    fn go_on(area: &'static RegArea) -> ! {
        // SAFETY: 1. the area lives forever and is 16-byte aligned; 2. nothing on the kernel stack is used again; 3. the CPU has saved segments, flags and addresses of user mode
        // there, and has been in the kernel since.
        unsafe { traps::go_on_registers(area) }
    }

    fn enter_user(area: &'static RegArea, pc: u64, args: [u64; 6]) -> ! {
        context::set_user_pc_sp(area, pc, 0);
        // SAFETY: 1. the area lives forever and is 16-byte aligned; 2. nothing on the kernel stack is used again but the arguments, which
        // are read before the stack is left; 3. the CPU has saved segments of user mode there, the
        // address has just been made one, and the flags are set.
        unsafe { traps::enter_registers(area, &args) }
    }

    fn flush_caches(_piece: u64) -> bool {
        mmu::flush_caches();
        true
    }
    fn sync_code(_map: &FusedMap, _pa: PhysAddr, _len: u64) {
        // Instruction fetches see stores of their own CPU after a jump, and every return to user
        // mode is one.
    }
    fn root_entries() -> [u64; ROOT_ENTRIES] {
        mmu::root_entries()
    }

    fn relax() {
        core::hint::spin_loop();
    }
    fn mark<const WORD: u32>() {
        // SAFETY: 1. The words are a no-operation (`dyad_abi::marker`).
        unsafe {
            core::arch::asm!(
                ".4byte {prefix}",
                ".4byte {word}",
                prefix = const dyad_abi::marker::PREFIX,
                word = const WORD,
                options(nostack, preserves_flags),
            );
        }
    }
}
