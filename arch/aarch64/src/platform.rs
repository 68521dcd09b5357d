//! The `Platform` of AArch64 machines: its constants, and functions that differ between the architectures.

use core::arch::asm;
use core::sync::atomic::AtomicU64;

use dyad_abi::Isa;
use dyad_machine::Platform;
use dyad_machine::platform::{FpArea, RegArea};
use dyad_shm::superblock::ROOT_ENTRIES;
use dyad_shm::{FusedMap, PhysAddr};

#[cfg(feature = "ktest")]
use crate::ktest;
use crate::{clock, context, cpu, doorbell, exit, irq, mmu, serial, smp, traps};

/// AArch64 machines.
pub enum Aarch64 {}

impl Platform for Aarch64 {
    dyad_machine::platform_of_modules!();

    const ISA: Isa = Isa::Aarch64;
    const REG_WORDS_USED: usize = context::USED_WORDS;

    fn set_entry(area: &RegArea, pc: u64) {
        context::set_return(area, pc, 0);
    }

    const KEEPS_FP: bool = true;

    fn take_call_fp(args: &[AtomicU64; 8], kept: &[AtomicU64; 8]) {
        context::take_call_fp(args, kept);
    }

    fn give_call_fp(args: Option<&[AtomicU64; 8]>, kept: Option<&[AtomicU64; 8]>) {
        context::give_call_fp(args, kept);
    }

    fn set_call_fp(area: &FpArea, args: [u64; 8], kept: [u64; 8]) {
        context::set_call_fp(area, args, kept);
    }

    fn resume_user(area: &'static RegArea) -> ! {
        debug_assert!(
            !context::is_partial(area),
            "a partial area cannot be resumed"
        );
        // SAFETY: 1. the area lives forever and is 16-byte aligned, as a stack pointer must be;
        // 2. nothing on the kernel stack is used again; 3. the flags are reduced to user mode.
        unsafe { traps::resume_registers(area) }
    }

    fn go_on(area: &'static RegArea) -> ! {
        // SAFETY: 1. the area lives forever and is 16-byte aligned; 2. nothing on the kernel stack is used again; 3. no exception has been taken since the one that has filled
        // the area: the kernel takes them only while it waits.
        unsafe { traps::go_on_registers(area) }
    }

    fn enter_user(area: &'static RegArea, pc: u64, args: [u64; 6]) -> ! {
        // SAFETY: 1. the area lives forever and is 16-byte aligned; 2. nothing on the kernel stack is used again but the arguments, which
        // are read before anything else can come onto it; 3. the flags are those of user mode.
        unsafe { traps::enter_registers(area, &args, context::user_address(pc)) }
    }

    fn flush_caches(piece: u64) -> bool {
        mmu::flush_cache_piece(piece)
    }
    fn sync_code(map: &FusedMap, pa: PhysAddr, len: u64) {
        mmu::sync_code(map, pa, len);
    }

    fn root_entries() -> [u64; ROOT_ENTRIES] {
        // The kernel half hangs off TTBR1, not off user roots.
        [0; ROOT_ENTRIES]
    }

    fn relax() {
        // SAFETY: 1. a hint without effect on registers or memory.
        unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) };
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
