// SPDX-License-Identifier: GPL-2.0-or-later
//! Callbacks of the levels that simulate caches: what runs for every access to memory, so nothing
//! is looked up, locked or dispatched on the way.
//!
//! Each CPU has a [`Cpu`], made when QEMU initialises the CPU and used by its thread only. Callbacks
//! find it in a table by the CPU's number.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use dyad_abi::ident::MAX_CPUS;
use dyad_sim_model::system::Operation;

use super::{
    AccessCallback, Block, ExecCallback, Instruction, MemInfo, NO_REGISTERS, READS, RawBlock,
    RawInsn, RawU64, Score, accessed_place, qemu_plugin_insn_vaddr, qemu_plugin_mem_get_value,
    qemu_plugin_mem_size_shift, qemu_plugin_register_vcpu_insn_exec_cb,
    qemu_plugin_register_vcpu_mem_cb,
};
use crate::cache::{Cpu, EDGE_NARROW, EDGE_WIDE, Fetch, Kind, LineAction, Probe, Quick};
use crate::cached::MarkerSite;
use crate::invalidation::Invalidation;
use crate::tlb::Frame;
use crate::windows::Place;

const WRITES: c_int = 2;
const READ_REGISTERS: c_int = 1;
const IF_EQUAL: c_int = 2;
const IF_NOT_EQUAL: c_int = 3;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        tb: *mut RawBlock,
        cb: ExecCallback,
        flags: c_int,
        userdata: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_tb_exec_cond_cb(
        tb: *mut RawBlock,
        cb: ExecCallback,
        flags: c_int,
        condition: c_int,
        entry: RawU64,
        imm: u64,
        userdata: *mut c_void,
    );
    fn qemu_plugin_insn_haddr(insn: *const RawInsn) -> *mut c_void;
}

static CPUS: [AtomicPtr<Cpu>; MAX_CPUS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_CPUS];

/// The state of the CPU whose thread calls.
///
/// # Safety
///
/// Only in a callback of that CPU, and once per callback.
#[inline(always)]
unsafe fn this(cpu: c_uint) -> &'static mut Cpu {
    let at = CPUS[cpu as usize & (MAX_CPUS - 1)].load(Ordering::Relaxed);
    // SAFETY: 1. CPUs are initialised before they execute anything, and their state is never freed.
    // 2. Only the CPU's own thread has it, and its callbacks do not nest (the caller's promise).
    unsafe { &mut *at }
}

/// The same, where `only` is the state of the machine's only CPU if it has but one.
///
/// # Safety
///
/// As of [`this`], and `only` is what it should be.
#[inline(always)]
unsafe fn this_or_only<const ALONE: bool>(cpu: c_uint, only: *mut c_void) -> &'static mut Cpu {
    if ALONE {
        // SAFETY: 1. and 2. as in `this`; what `only` is, is the caller's promise.
        unsafe { &mut *only.cast::<Cpu>() }
    } else {
        // SAFETY: 1. The caller's promise.
        unsafe { this(cpu) }
    }
}

/// What QEMU can tell about the access that is being reported.
struct Report {
    info: MemInfo,
    address: u64,
}

impl Probe for Report {
    #[inline(never)]
    fn place(&self, address: u64) -> Option<Place> {
        accessed_place(self.info, address)
    }

    #[inline(always)]
    fn bytes(&self) -> u64 {
        // SAFETY: 1. No requirements.
        1 << (unsafe { qemu_plugin_mem_size_shift(self.info) } & 7)
    }

    fn value(&self) -> u128 {
        // SAFETY: 1. This is inside of the callback of the access.
        unsafe { qemu_plugin_mem_get_value(self.info) }.value()
    }

    #[inline(always)]
    fn address(&self) -> u64 {
        self.address
    }
}

// Short ways end in a call of the long way, or in nothing, so that they need no frame of their own.

extern "C" fn accessed<const KIND: u8, const EDGE: u64, const TIMED: bool, const ALONE: bool>(
    cpu: c_uint,
    info: MemInfo,
    address: u64,
    only: *mut c_void,
) {
    // SAFETY: 1. A callback of this CPU. 2. See `Instruction::report_accesses`.
    let this = unsafe { this_or_only::<ALONE>(cpu, only) };
    match this.quick::<KIND, EDGE, TIMED>(address) {
        Quick::Done => {}
        Quick::Elsewhere(frame) => elsewhere::<KIND>(this, address, frame),
        Quick::Unknown => anywhere::<KIND>(this, info, address),
    }
}

/// What loads and stores are reported to.
type Accesses = [AccessCallback; 2];

const fn accesses<const EDGE: u64, const TIMED: bool>(alone: bool) -> Accesses {
    const LOAD: u8 = Kind::LOAD;
    const STORE: u8 = Kind::STORE;
    match alone {
        true => [
            accessed::<LOAD, EDGE, TIMED, true>,
            accessed::<STORE, EDGE, TIMED, true>,
        ],
        false => [
            accessed::<LOAD, EDGE, TIMED, false>,
            accessed::<STORE, EDGE, TIMED, false>,
        ],
    }
}

#[inline(never)]
fn elsewhere<const KIND: u8>(cpu: &mut Cpu, address: u64, frame: Frame) {
    cpu.elsewhere::<KIND>(address, frame);
}

#[inline(never)]
fn anywhere<const KIND: u8>(cpu: &mut Cpu, info: MemInfo, address: u64) {
    cpu.access::<KIND>(&Report { info, address });
}

extern "C" fn modified(cpu: c_uint, info: MemInfo, address: u64, _: *mut c_void) {
    // SAFETY: 1. A callback of this CPU.
    unsafe { this(cpu) }.access::<{ Kind::MODIFY }>(&Report { info, address });
}

extern "C" fn watched_load(cpu: c_uint, info: MemInfo, address: u64, at: *mut c_void) {
    // SAFETY: 1. A callback of this CPU.
    unsafe { this(cpu) }.watched(Kind::LOAD, &Report { info, address }, at.addr() as u64);
}

extern "C" fn watched_store(cpu: c_uint, info: MemInfo, address: u64, at: *mut c_void) {
    // SAFETY: 1. A callback of this CPU.
    unsafe { this(cpu) }.watched(Kind::STORE, &Report { info, address }, at.addr() as u64);
}

extern "C" fn watched_modify(cpu: c_uint, info: MemInfo, address: u64, at: *mut c_void) {
    // SAFETY: 1. A callback of this CPU.
    unsafe { this(cpu) }.watched(Kind::MODIFY, &Report { info, address }, at.addr() as u64);
}

extern "C" fn fetched(cpu: c_uint, fetch: *mut c_void) {
    // SAFETY: 1. A callback of this CPU. 2. What was registered with it is a `Fetch` that lives for ever.
    unsafe { this(cpu).fetch(&*fetch.cast::<Fetch>()) }
}

extern "C" fn acts_on_line(cpu: c_uint, action: *mut c_void) {
    // SAFETY: 1. A callback of this CPU. 2. What was registered with it is a `LineAction` that lives for ever.
    unsafe { this(cpu).act(&*action.cast::<LineAction>()) }
}

extern "C" fn flushes_everything(cpu: c_uint, at: *mut c_void) {
    // SAFETY: 1. A callback of this CPU.
    unsafe { this(cpu) }.everything(at.addr() as u64);
}

extern "C" fn changes_translations(cpu: c_uint, machine: *mut c_void) {
    // SAFETY: 1. A callback of this CPU.
    unsafe { this(cpu) }.forget_translations();
    if !machine.is_null() {
        for other in CPUS.iter().filter(|c| !c.load(Ordering::Acquire).is_null()) {
            // SAFETY: 1. Never freed. 2. The flag is an atomic beside the state, and the only thing that
            // other threads touch.
            unsafe { (*other.load(Ordering::Acquire)).translations_changed() };
        }
    }
}

extern "C" fn invalidates(cpu: c_uint, invalidation: *mut c_void) {
    // SAFETY: 1. A callback of this CPU. 2. What was registered with it is an `Invalidation` that lives for ever.
    unsafe { this(cpu).invalidate(&*invalidation.cast::<Invalidation>()) }
}

extern "C" fn operates(cpu: c_uint, operation: *mut c_void) {
    if let Some(&operation) = Operation::ALL.get(operation.addr()) {
        // SAFETY: 1. A callback of this CPU.
        unsafe { this(cpu) }.operate(operation);
    }
}

extern "C" fn marked(cpu: c_uint, site: *mut c_void) {
    // SAFETY: 1. A callback of this CPU. 2. What was registered with it is a `MarkerSite` that lives for ever.
    let (this, site) = unsafe { (this(cpu), &*site.cast::<MarkerSite>()) };
    if let Some(marker) = site.marker() {
        this.marker(marker, site.left);
    }
}

/// QEMU initialises a CPU; it has executed nothing.
pub(super) fn initialised(cpu: c_uint) {
    let Some(setup) = crate::cached::this() else {
        return;
    };
    let state = Box::into_raw(Box::new(Cpu::new(cpu, setup)));
    CPUS[cpu as usize & (MAX_CPUS - 1)].store(state, Ordering::Release);
}

/// Calls `f` with the state of a CPU. Only in a callback of that CPU that has not got it yet, or when no
/// CPU executes any more.
pub fn with<R>(cpu: u32, f: impl FnOnce(&mut Cpu) -> R) -> Option<R> {
    let at = CPUS.get(cpu as usize)?.load(Ordering::Acquire);
    if at.is_null() {
        return None;
    }
    // SAFETY: 1. Never freed. 2. The caller's promise.
    Some(f(unsafe { &mut *at }))
}

impl Block {
    /// Reports the lines the block's instructions are in whenever it is entered. With `sparing`, only if
    /// what was fetched last has another name.
    pub fn fetch_on_entry(&self, fetch: &'static Fetch, sparing: bool) {
        let data = std::ptr::from_ref(fetch).cast_mut().cast::<c_void>();
        // SAFETY: 1. The block is valid as long as `self` is lent out. 2. The callback has the parameters
        // of the supported versions and gets what it expects.
        unsafe {
            if sparing {
                qemu_plugin_register_vcpu_tb_exec_cond_cb(
                    self.raw,
                    fetched,
                    NO_REGISTERS,
                    IF_NOT_EQUAL,
                    Score::fetched().0,
                    fetch.name(),
                    data,
                );
            } else {
                qemu_plugin_register_vcpu_tb_exec_cb(self.raw, fetched, NO_REGISTERS, data);
            }
        }
    }
}

impl Block {
    /// Calls [`Level::enters_kernel`](super::Level::enters_kernel) whenever the block is entered by a CPU that
    /// was not in the kernel.
    pub fn call_on_kernel_entry(&self) {
        let at = std::ptr::without_provenance_mut(self.address() as usize);
        // SAFETY: 1. The block is valid as long as `self` is lent out. 2. The callback has the parameters
        // of the supported versions, and takes the pointer for the number that it is.
        unsafe {
            qemu_plugin_register_vcpu_tb_exec_cond_cb(
                self.raw,
                super::enters_kernel,
                NO_REGISTERS,
                IF_EQUAL,
                Score::inside().0,
                0,
                at,
            );
        }
    }

    /// Calls [`Level::leaves_kernel`](super::Level::leaves_kernel) whenever the block is entered by a CPU that
    /// was in the kernel.
    pub fn call_on_kernel_exit(&self) {
        // SAFETY: 1. The block is valid as long as `self` is lent out. 2. The callback has the parameters of the
        // supported versions, and does not use the pointer.
        unsafe {
            qemu_plugin_register_vcpu_tb_exec_cond_cb(
                self.raw,
                super::leaves_kernel,
                NO_REGISTERS,
                IF_NOT_EQUAL,
                Score::inside().0,
                0,
                std::ptr::null_mut(),
            );
        }
    }
}

impl Instruction<'_> {
    /// Its virtual address.
    pub fn address(&self) -> u64 {
        // SAFETY: 1. The instruction is valid as long as its block.
        unsafe { qemu_plugin_insn_vaddr(self.raw) }
    }

    /// The address of the instruction in this process; `None` if it is not in memory.
    pub fn host_address(&self) -> Option<u64> {
        // SAFETY: 1. The instruction is valid as long as its block.
        let at = unsafe { qemu_plugin_insn_haddr(self.raw) };
        (!at.is_null()).then_some(at.addr() as u64)
    }

    /// Reports its loads and stores. `narrow`: none is longer than 8 bytes. `timed`: hits of the first
    /// level take time. `alone`: the machine has one CPU, and never another.
    pub fn report_accesses(&self, narrow: bool, timed: bool, alone: bool) {
        let cpu = CPUS[0].load(Ordering::Acquire);
        // Code is translated by CPUs, so there is one.
        let alone = alone && !cpu.is_null();
        let [load, store] = match (narrow, timed) {
            (true, true) => accesses::<EDGE_NARROW, true>(alone),
            (true, false) => accesses::<EDGE_NARROW, false>(alone),
            (false, true) => accesses::<EDGE_WIDE, true>(alone),
            (false, false) => accesses::<EDGE_WIDE, false>(alone),
        };
        self.report_with(load, READS, cpu.cast());
        self.report_with(store, WRITES, cpu.cast());
    }

    /// Reports its loads as read-modify-writes. (QEMU shows a load and a store of each.)
    pub fn report_modifications(&self) {
        self.report(modified, READS, 0);
    }

    /// As [`report_accesses`](Instruction::report_accesses), by the slower way that can be watched.
    pub fn watch_accesses(&self) {
        let at = self.address();
        self.report(watched_load, READS, at);
        self.report(watched_store, WRITES, at);
    }

    /// As [`report_modifications`](Instruction::report_modifications), likewise.
    pub fn watch_modifications(&self) {
        self.report(watched_modify, READS, self.address());
    }

    fn report(&self, to: AccessCallback, which: c_int, at: u64) {
        self.report_with(to, which, std::ptr::without_provenance_mut(at as usize));
    }

    fn report_with(&self, to: AccessCallback, which: c_int, data: *mut c_void) {
        // SAFETY: 1. The instruction is valid as long as its block. 2. The callback has the parameters of
        // the supported versions, and takes the pointer for what it is.
        unsafe { qemu_plugin_register_vcpu_mem_cb(self.raw, to, NO_REGISTERS, which, data) };
    }

    /// Reports that it acts on a line, before it does.
    pub fn report_action(&self, action: &'static LineAction) {
        let data = std::ptr::from_ref(action).cast_mut().cast::<c_void>();
        // SAFETY: 1. The instruction is valid as long as its block; the callback gets what it expects.
        unsafe {
            qemu_plugin_register_vcpu_insn_exec_cb(self.raw, acts_on_line, READ_REGISTERS, data);
        }
    }

    /// Reports that it changes TLBs or the root, before it does.
    pub fn report_invalidation(&self, invalidation: &'static Invalidation) {
        let data = std::ptr::from_ref(invalidation).cast_mut().cast::<c_void>();
        // SAFETY: 1. The instruction is valid as long as its block; the callback gets what it expects.
        unsafe {
            qemu_plugin_register_vcpu_insn_exec_cb(self.raw, invalidates, READ_REGISTERS, data);
        }
    }

    /// Reports that it is one of those that flush everything, before it does.
    pub fn report_everything(&self) {
        let at = std::ptr::without_provenance_mut(self.address() as usize);
        // SAFETY: 1. The instruction is valid as long as its block; the callback takes the pointer for the number that it is.
        unsafe {
            qemu_plugin_register_vcpu_insn_exec_cb(self.raw, flushes_everything, NO_REGISTERS, at);
        }
    }

    /// Reports that an operation begins with it, before it is executed.
    pub fn report_operation(&self, operation: Operation) {
        let number = std::ptr::without_provenance_mut(operation as usize);
        // SAFETY: 1. The instruction is valid as long as its block; the callback takes the pointer for the number that it is.
        unsafe { qemu_plugin_register_vcpu_insn_exec_cb(self.raw, operates, NO_REGISTERS, number) };
    }

    /// Reports that it is a marker, before it is executed.
    pub fn report_marker(&self, site: &'static MarkerSite) {
        let data = std::ptr::from_ref(site).cast_mut().cast::<c_void>();
        // SAFETY: 1. The instruction is valid as long as its block; the callback gets what it expects.
        unsafe { qemu_plugin_register_vcpu_insn_exec_cb(self.raw, marked, NO_REGISTERS, data) };
    }

    /// Reports that it changes translations of its CPU, or of all of the machine, before it does. No
    /// access comes between: blocks end with such an instruction.
    pub fn report_translation_change(&self, machine: bool) {
        let data = std::ptr::without_provenance_mut(usize::from(machine));
        // SAFETY: 1. The instruction is valid as long as its block.
        unsafe {
            qemu_plugin_register_vcpu_insn_exec_cb(
                self.raw,
                changes_translations,
                NO_REGISTERS,
                data,
            );
        }
    }
}
