//! The `Platform` of AArch64 machines: each method is one of another module.

use core::arch::asm;
use core::sync::atomic::AtomicU64;

use dyad_abi::boot::doorbell_vector;
use dyad_abi::emulation::FLOAT_WORDS;
use dyad_abi::{CpuId, Isa, NodeId};
use dyad_machine::cpu::CpuLocal;
use dyad_machine::platform::{FpArea, RegArea};
use dyad_machine::{Platform, fused};
use dyad_shm::superblock::ROOT_ENTRIES;
use dyad_shm::{FusedMap, PhysAddr};

#[cfg(feature = "ktest")]
use crate::ktest;
use crate::{clock, context, cpu, doorbell, exit, irq, mmu, serial, smp, traps};

/// This machine.
pub enum Aarch64 {}

impl Platform for Aarch64 {
    const ISA: Isa = Isa::Aarch64;
    const REG_WORDS_USED: usize = context::USED_WORDS;

    fn cpu() -> CpuId {
        cpu::local().id()
    }

    fn local() -> &'static CpuLocal {
        cpu::local()
    }

    fn image_id() -> u64 {
        mmu::image_id()
    }

    fn current_area() -> &'static RegArea {
        cpu::current_area()
    }

    fn complete_area(area: &RegArea, word: u64, args: [u64; 5]) {
        context::complete(area, word, args);
    }

    fn init_regs(area: &RegArea, entry: u64, stack_top: u64, arg: u64, tp: u64) {
        context::init_regs(area, entry, stack_top, arg, tp);
    }

    fn syscall_args(area: &RegArea) -> [u64; 6] {
        context::syscall_args(area)
    }

    fn set_result(area: &RegArea, status: u64, value: u64) {
        context::set_result(area, status, value);
    }

    fn user_pc_fp(area: &RegArea) -> (u64, u64) {
        context::user_pc_fp(area)
    }

    fn user_pc_sp(area: &RegArea) -> (u64, u64) {
        context::user_pc_sp(area)
    }

    fn set_user_pc_sp(area: &RegArea, pc: u64, sp: u64) {
        context::set_user_pc_sp(area, pc, sp);
    }

    fn set_frame_pointer(area: &RegArea, fp: u64) {
        context::set_frame_pointer(area, fp);
    }

    fn set_entry(area: &RegArea, pc: u64) {
        context::set_return(area, pc, 0);
    }

    fn set_return(area: &RegArea, pc: u64, sp: u64) {
        context::set_return(area, pc, sp);
    }

    fn set_arguments(area: &RegArea, args: [u64; 6]) {
        context::set_arguments(area, args);
    }

    fn set_results(area: &RegArea, status: u64, results: [u64; 4]) {
        context::set_results(area, status, results);
    }

    fn read_register(area: &RegArea, n: u64) -> Option<u64> {
        context::read_register(area, n)
    }

    fn write_register(area: &RegArea, n: u64, value: u64) -> bool {
        context::write_register(area, n, value)
    }

    fn dump_regs(area: &RegArea, line: &mut dyn FnMut(&str, u64)) {
        context::dump_regs(area, line);
    }

    fn call_registers(area: &RegArea) -> ([u64; 6], u64) {
        context::call_registers(area)
    }

    fn park(area: &RegArea, parked: &RegArea) {
        context::park(area, parked);
    }

    fn set_at_gate(area: &RegArea, parked: &RegArea, pc: u64, args: [u64; 6], function: u64) {
        context::set_at_gate(area, parked, pc, args, function);
    }

    const KEEPS_FP: bool = true;

    fn call_fp(area: &FpArea) -> ([u64; 8], [u64; 8]) {
        context::call_fp(area)
    }

    fn take_call_fp(args: &[AtomicU64; 8], kept: &[AtomicU64; 8]) {
        context::take_call_fp(args, kept);
    }

    fn give_call_fp(args: Option<&[AtomicU64; 8]>, kept: Option<&[AtomicU64; 8]>) {
        context::give_call_fp(args, kept);
    }

    fn set_call_fp(area: &FpArea, args: [u64; 8], kept: [u64; 8]) {
        context::set_call_fp(area, args, kept);
    }

    fn fp_on() {
        context::fp_on();
    }

    fn fp_off() {
        context::fp_off();
    }

    fn unload_fp(area: &FpArea) -> [u64; FLOAT_WORDS] {
        context::unload_fp(area)
    }
    fn load_fp(area: &FpArea, words: &[u64; FLOAT_WORDS]) {
        context::load_fp(area, words);
    }
    fn reset_fp() {
        context::reset_fp();
    }

    fn save_fp(area: &FpArea) {
        context::save_fp(area);
    }

    fn restore_fp(area: &FpArea) {
        context::restore_fp(area);
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
        // SAFETY: 1. and 2. as above; 3. no exception has been taken since the one that has filled
        // the area: the kernel takes them only while it waits.
        unsafe { traps::go_on_registers(area) }
    }

    fn enter_user(area: &'static RegArea, pc: u64, args: [u64; 6]) -> ! {
        // SAFETY: 1. as above; 2. nothing on the kernel stack is used again but the arguments, which
        // are read before anything else can come onto it; 3. the flags are those of user mode.
        unsafe { traps::enter_registers(area, &args, context::user_address(pc)) }
    }

    fn switch_root(root: PhysAddr) {
        mmu::switch_root(root);
    }

    fn idle_root() -> PhysAddr {
        mmu::idle_root()
    }

    fn flush_tlb() {
        mmu::flush_user();
    }

    fn flush_caches(piece: u64) -> bool {
        mmu::flush_cache_piece(piece)
    }
    fn sync_code(map: &FusedMap, pa: PhysAddr, len: u64) {
        mmu::sync_code(map, pa, len);
    }

    fn zero_frame(map: &FusedMap, pa: PhysAddr) -> bool {
        mmu::zero_frame(map, pa)
    }

    fn root_entries() -> [u64; ROOT_ENTRIES] {
        // The kernel half hangs off TTBR1, not off user roots.
        [0; ROOT_ENTRIES]
    }

    fn clock_ns() -> u64 {
        match fused::is_on() {
            true => fused::now_ns::<Self>(),
            false => clock::now_ns(),
        }
    }

    fn set_timer(deadline: Option<u64>) {
        clock::set_timer(deadline);
    }

    fn wait() {
        irq::wait();
    }

    fn poll_interrupts() {
        irq::take_pending();
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
    fn ring(to: NodeId, cpu: CpuId, peer: u64) {
        match fused::is_on() {
            true => fused::ring::<Self>(to, cpu),
            false => doorbell::ring(peer, doorbell_vector(cpu) as u32),
        }
    }

    fn doorbell_id() -> u64 {
        match fused::is_on() {
            true => fused::doorbell_id(),
            false => doorbell::id(),
        }
    }

    #[cfg(feature = "ktest")]
    fn call_code(pa: PhysAddr) -> Option<u64> {
        ktest::call_code(pa)
    }
    #[cfg(feature = "ktest")]
    fn code_returning(n: u8) -> [u64; 2] {
        ktest::code_returning(n)
    }
    #[cfg(feature = "ktest")]
    fn user_probe() -> dyad_core::ktest::UserProbe {
        ktest::user_probe()
    }
    #[cfg(feature = "ktest")]
    fn run_user(area: &'static RegArea) {
        ktest::run_user(area);
    }
    #[cfg(feature = "ktest")]
    fn leave_user() -> ! {
        ktest::leave_user()
    }
    #[cfg(feature = "ktest")]
    fn kernel_flags_are_right() -> bool {
        ktest::kernel_flags_are_right()
    }
    #[cfg(feature = "ktest")]
    fn kernel_leaves(f: &mut dyn FnMut(u64, dyad_pgtbl::Level, dyad_pgtbl::Leaf)) {
        mmu::kernel_leaves(f);
    }

    fn serial_write(bytes: &[u8]) {
        match fused::is_on() {
            true => fused::write::<Self>(bytes),
            false => serial::write(bytes),
        }
    }

    fn start_cpu(cpu: CpuId) -> Result<(), &'static str> {
        smp::start(cpu)
    }

    fn backtrace(each: &mut dyn FnMut(u64)) {
        cpu::backtrace(each);
    }

    fn exit(code: u32) -> ! {
        fused::exit::<Self>();
        exit::exit(code)
    }
}
