// SPDX-License-Identifier: GPL-2.0-or-later
//! QEMU's plugin interface, declared by hand: what this plugin uses of API versions 4 to 6.
//!
//! The functions are in the emulator that loads the plugin, so they are undefined in the shared
//! object. Everything outside this file is safe code and works through [`Counter`], [`Block`],
//! [`Instruction`], [`Access`] and [`Level`].

mod clock;
mod hot;
mod map;
mod registers;
mod score;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use dyad_abi::boot::LOCAL_STRIDE;
use dyad_abi::marker::Marker;

use crate::version;
use crate::windows::Place;

pub use hot::with as with_cpu;
pub use map::{halves, map_words};
pub use registers::Registers;
pub use score::{Score, Words};

/// The version this plugin asks for; QEMU loads it if it still offers that.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = *version::SUPPORTED.start();

type Id = u64;

/// `qemu_info_t`, for system emulation.
#[repr(C)]
pub struct RawInfo {
    target_name: *const c_char,
    version_min: c_int,
    version_cur: c_int,
    system_emulation: bool,
    smp_vcpus: c_int,
    max_vcpus: c_int,
}

#[repr(C)]
struct RawBlock {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawInsn {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawScoreboard {
    _opaque: [u8; 0],
}

/// `qemu_plugin_u64`: a word in the entry that each CPU has in a scoreboard.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawU64 {
    score: *mut RawScoreboard,
    offset: usize,
}

#[repr(C)]
struct RawPhysical {
    _opaque: [u8; 0],
}

/// `qemu_plugin_mem_value`: the type is the logarithm of the number of bytes.
#[derive(Clone, Copy)]
#[repr(C)]
struct MemValue {
    bytes_log: c_int,
    data: [u64; 2],
}

impl MemValue {
    /// The bytes, little-endian.
    fn value(self) -> u128 {
        let all = u128::from(self.data[1]) << 64 | u128::from(self.data[0]);
        // What is beyond the value is not initialised to anything.
        match self.bytes_log {
            log @ 0..4 => all & ((1 << (8 << log)) - 1),
            _ => all,
        }
    }
}

/// `qemu_plugin_meminfo_t`.
type MemInfo = u32;
type ExecCallback = extern "C" fn(c_uint, *mut c_void);
type AccessCallback = extern "C" fn(c_uint, MemInfo, u64, *mut c_void);

const INLINE_ADD_U64: c_int = 0;
const NO_REGISTERS: c_int = 0;
const READS: c_int = 1;
const READS_AND_WRITES: c_int = 3;

/// Longest instruction of any ISA, rounded up.
pub const MAX_CODE: usize = 16;
const LINE: u64 = 64;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_init_cb(id: Id, cb: extern "C" fn(Id, c_uint));
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, cb: extern "C" fn(Id, *mut RawBlock));
    fn qemu_plugin_register_atexit_cb(
        id: Id,
        cb: extern "C" fn(Id, *mut c_void),
        userdata: *mut c_void,
    );
    fn qemu_plugin_tb_n_insns(tb: *const RawBlock) -> usize;
    fn qemu_plugin_tb_vaddr(tb: *const RawBlock) -> u64;
    fn qemu_plugin_tb_get_insn(tb: *const RawBlock, index: usize) -> *mut RawInsn;
    fn qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
        tb: *mut RawBlock,
        op: c_int,
        entry: RawU64,
        imm: u64,
    );
    fn qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
        insn: *mut RawInsn,
        op: c_int,
        entry: RawU64,
        imm: u64,
    );
    fn qemu_plugin_insn_data(insn: *const RawInsn, to: *mut c_void, len: usize) -> usize;
    fn qemu_plugin_insn_vaddr(insn: *const RawInsn) -> u64;
    fn qemu_plugin_insn_size(insn: *const RawInsn) -> usize;
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut RawInsn,
        cb: ExecCallback,
        flags: c_int,
        userdata: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut RawInsn,
        cb: AccessCallback,
        flags: c_int,
        rw: c_int,
        userdata: *mut c_void,
    );
    fn qemu_plugin_mem_size_shift(info: MemInfo) -> c_uint;
    fn qemu_plugin_mem_is_store(info: MemInfo) -> bool;
    fn qemu_plugin_mem_get_value(info: MemInfo) -> MemValue;
    fn qemu_plugin_get_hwaddr(info: MemInfo, address: u64) -> *const RawPhysical;
    fn qemu_plugin_hwaddr_is_io(physical: *const RawPhysical) -> bool;
    fn qemu_plugin_hwaddr_phys_addr(physical: *const RawPhysical) -> u64;
    fn qemu_plugin_num_vcpus() -> c_int;
    fn qemu_plugin_scoreboard_new(element_size: usize) -> *mut RawScoreboard;
    fn qemu_plugin_scoreboard_find(score: *mut RawScoreboard, vcpu: c_uint) -> *mut c_void;
    fn qemu_plugin_u64_get(entry: RawU64, vcpu: c_uint) -> u64;
}

/// A 64-bit counter of which every CPU has its own. Lives as long as the process.
#[derive(Clone, Copy)]
pub struct Counter(RawU64);

// SAFETY: 1. A counter is the name of a word in a scoreboard that is never freed. 2. QEMU's own
// functions are the only ones that use the pointer, and they may be called from any thread.
unsafe impl Send for Counter {}
// SAFETY: 1. QEMU's functions may be called with it from any thread.
unsafe impl Sync for Counter {}

impl Counter {
    /// A new counter, zero for every CPU.
    pub fn new() -> Counter {
        // SAFETY: 1. Called while the plugin is installed or later, when scoreboards exist.
        let score = unsafe { qemu_plugin_scoreboard_new(size_of::<u64>()) };
        Counter(RawU64 { score, offset: 0 })
    }

    /// Its values, by CPU.
    pub fn values(self) -> Vec<u64> {
        // SAFETY: 1. No requirements.
        let cpus = unsafe { qemu_plugin_num_vcpus() };
        (0..c_uint::try_from(cpus).unwrap_or(0))
            .map(|cpu| self.value(cpu))
            .collect()
    }

    /// The value of a CPU that there is.
    pub fn value(self, cpu: u32) -> u64 {
        // SAFETY: 1. The scoreboard has an entry for every CPU. 2. A CPU that still runs may add
        // meanwhile; a word is read whole.
        unsafe { qemu_plugin_u64_get(self.0, cpu) }
    }
}

/// A block that is being translated; valid during the callback.
pub struct Block {
    raw: *mut RawBlock,
}

impl Block {
    /// Number of instructions.
    pub fn instructions(&self) -> usize {
        // SAFETY: 1. The block is valid as long as `self` is lent out.
        unsafe { qemu_plugin_tb_n_insns(self.raw) }
    }

    /// Virtual address of the first instruction.
    pub fn address(&self) -> u64 {
        // SAFETY: 1. The block is valid as long as `self` is lent out.
        unsafe { qemu_plugin_tb_vaddr(self.raw) }
    }

    /// Whether it is code of a kernel.
    pub fn is_of_kernel(&self) -> bool {
        self.address() >> 63 != 0
    }

    /// Adds `n` to the executing CPU's counter whenever the block is entered.
    pub fn add_on_entry(&self, counter: Counter, n: u64) {
        // SAFETY: 1. The block is valid as long as `self` is lent out, the counter for ever.
        unsafe {
            qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
                self.raw,
                INLINE_ADD_U64,
                counter.0,
                n,
            );
        }
    }

    /// Adds 1 to the executing CPU's counter whenever one of the block's instructions starts.
    pub fn add_per_instruction(&self, counter: Counter) {
        for i in 0..self.instructions() {
            self.instruction(i).add_on_start(counter);
        }
    }

    /// An instruction of the block, which must have that many.
    pub fn instruction(&self, index: usize) -> Instruction<'_> {
        assert!(index < self.instructions(), "no instruction {index}");
        // SAFETY: 1. The index is below the number of instructions of a valid block.
        let raw = unsafe { qemu_plugin_tb_get_insn(self.raw, index) };
        Instruction { raw, _block: self }
    }
}

/// An instruction of a block that is being translated.
pub struct Instruction<'a> {
    raw: *mut RawInsn,
    _block: &'a Block,
}

impl Instruction<'_> {
    /// Its machine code and the length of that.
    pub fn code(&self) -> ([u8; MAX_CODE], usize) {
        let mut code = [0; MAX_CODE];
        // SAFETY: 1. The instruction is valid as long as its block. 2. At most as many bytes are
        // written as there is room for.
        let copied = unsafe {
            let len = qemu_plugin_insn_size(self.raw).min(MAX_CODE);
            qemu_plugin_insn_data(self.raw, code.as_mut_ptr().cast(), len)
        };
        (code, copied.min(MAX_CODE))
    }

    /// Adds 1 to the executing CPU's counter whenever it starts.
    pub fn add_on_start(&self, counter: Counter) {
        // SAFETY: 1. The instruction is valid as long as its block, the counter for ever.
        unsafe {
            qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
                self.raw,
                INLINE_ADD_U64,
                counter.0,
                1,
            );
        }
    }

    /// Calls [`Level::marker`] whenever it starts.
    pub fn call_as_marker(&self, marker: Marker) {
        let word = std::ptr::without_provenance_mut(marker.word() as usize);
        // SAFETY: 1. The instruction is valid as long as its block. 2. The callback has the parameters of the supported versions and
        // takes the pointer for the number that it is.
        unsafe {
            qemu_plugin_register_vcpu_insn_exec_cb(self.raw, marked, NO_REGISTERS, word);
        }
    }

    /// Calls [`Level::executes`] whenever it starts.
    pub fn call_on_start(&self) {
        // SAFETY: 1. The instruction is valid as long as its block. 2. The callback has the
        // parameters of the supported versions and takes the pointer for the number that it is.
        unsafe {
            let at = std::ptr::without_provenance_mut(qemu_plugin_insn_vaddr(self.raw) as usize);
            qemu_plugin_register_vcpu_insn_exec_cb(self.raw, executes, NO_REGISTERS, at);
        }
    }

    /// Calls [`Level::system_call`] whenever it starts.
    pub fn call_as_system_call(&self) {
        // SAFETY: 1. The instruction is valid as long as its block; the pointer is not used.
        unsafe {
            qemu_plugin_register_vcpu_insn_exec_cb(
                self.raw,
                system_call,
                NO_REGISTERS,
                std::ptr::null_mut(),
            );
        }
    }

    /// Calls [`Level::halts`] whenever it starts.
    pub fn call_as_halt(&self) {
        // SAFETY: 1. The instruction is valid as long as its block; the pointer is not used.
        unsafe {
            qemu_plugin_register_vcpu_insn_exec_cb(
                self.raw,
                halts,
                NO_REGISTERS,
                std::ptr::null_mut(),
            );
        }
    }

    /// Calls [`Level::access`] after each of its accesses to memory, or after its reads only.
    pub fn call_on_access(&self, reads_only: bool) {
        let which = if reads_only { READS } else { READS_AND_WRITES };
        // SAFETY: 1. The instruction is valid as long as its block. 2. The callback has the parameters of the supported versions.
        unsafe {
            qemu_plugin_register_vcpu_mem_cb(
                self.raw,
                accessed,
                NO_REGISTERS,
                which,
                std::ptr::null_mut(),
            );
        }
    }
}

/// An access to memory that has just been made; valid during the callback.
pub struct Access {
    info: MemInfo,
    address: u64,
}

impl Access {
    /// Whether it is a store.
    pub fn is_store(&self) -> bool {
        // SAFETY: 1. No requirements.
        unsafe { qemu_plugin_mem_is_store(self.info) }
    }

    /// Where its first byte goes.
    pub fn place(&self) -> Place {
        self.place_of(self.address)
    }

    /// An address in the line that its last byte is in, if that is another one than the first
    /// byte's.
    pub fn second_line(&self) -> Option<u64> {
        // SAFETY: 1. No requirements.
        let bytes = 1u64.checked_shl(unsafe { qemu_plugin_mem_size_shift(self.info) })?;
        let last = self.address.wrapping_add(bytes - 1);
        if last / LINE == self.address / LINE {
            return None;
        }
        match self.place_of(last) {
            Place::Memory(address) => Some(address),
            Place::Device(_) => None,
        }
    }

    fn place_of(&self, address: u64) -> Place {
        // If QEMU has dropped the translation, any address that is not another line's will do,
        // outside of the pools, so that no line is taken for fused that may not be.
        accessed_place(self.info, address).unwrap_or(Place::Memory(address % LOCAL_STRIDE))
    }
}

/// Where an address on a page of the access is that is being reported; `None` if QEMU has dropped
/// the translation. Only in the callback of that access.
fn accessed_place(info: MemInfo, address: u64) -> Option<Place> {
    // SAFETY: 1. This is inside of the callback, for whose CPU and access it is valid. The
    // result lives until the callback returns.
    let physical = unsafe { qemu_plugin_get_hwaddr(info, address) };
    if physical.is_null() {
        return None;
    }
    // SAFETY: 1. The callback has not returned.
    let (device, at) = unsafe {
        (
            qemu_plugin_hwaddr_is_io(physical),
            qemu_plugin_hwaddr_phys_addr(physical),
        )
    };
    Some(match device {
        true => Place::Device(at),
        false => Place::Memory(at),
    })
}

/// The emulator that loads the plugin.
pub struct Emulator {
    /// ISA as QEMU calls it.
    pub target: String,
    /// Version of the plugin interface.
    pub api: i32,
    /// CPUs it can have.
    pub cpus: usize,
    /// CPUs it starts with.
    pub running: usize,
}

/// What a simulation level does. Methods are called by any CPU's thread.
pub trait Level: Send + Sync {
    /// A block is being translated.
    fn translated(&self, block: &Block);
    /// A CPU is about to execute a marker.
    fn marker(&self, cpu: u32, marker: Marker);
    /// A CPU is about to execute the instruction at an address; only if asked for.
    fn executes(&self, cpu: u32, at: u64);
    /// A CPU that was not in the kernel is about to execute the block of the kernel at an address; only if
    /// asked for.
    fn enters_kernel(&self, cpu: u32, at: u64);
    /// A CPU that was in the kernel is about to execute user code; only if asked for.
    fn leaves_kernel(&self, cpu: u32);
    /// A CPU is about to execute a system call; only if asked for.
    fn system_call(&self, cpu: u32);
    /// A CPU is about to halt; only if asked for.
    fn halts(&self, cpu: u32);
    /// A CPU has made an access to memory.
    fn access(&self, cpu: u32, access: &Access);
    /// QEMU ends.
    fn ended(&self);
}

static LEVEL: OnceLock<Box<dyn Level>> = OnceLock::new();

extern "C" fn translated(_: Id, raw: *mut RawBlock) {
    if let Some(level) = LEVEL.get() {
        level.translated(&Block { raw });
    }
}

extern "C" fn initialised(_: Id, cpu: c_uint) {
    hot::initialised(cpu);
    clock::initialised(cpu);
}

extern "C" fn marked(cpu: c_uint, word: *mut c_void) {
    if let Some(level) = LEVEL.get()
        && let Some(marker) = Marker::from_word(word.addr() as u32)
    {
        level.marker(cpu, marker);
    }
}

extern "C" fn executes(cpu: c_uint, at: *mut c_void) {
    if let Some(level) = LEVEL.get() {
        level.executes(cpu, at.addr() as u64);
    }
}

extern "C" fn enters_kernel(cpu: c_uint, at: *mut c_void) {
    Words::of(cpu).set_inside(true);
    if let Some(level) = LEVEL.get() {
        level.enters_kernel(cpu, at.addr() as u64);
    }
}

extern "C" fn leaves_kernel(cpu: c_uint, _: *mut c_void) {
    Words::of(cpu).set_inside(false);
    if let Some(level) = LEVEL.get() {
        level.leaves_kernel(cpu);
    }
}

extern "C" fn system_call(cpu: c_uint, _: *mut c_void) {
    if let Some(level) = LEVEL.get() {
        level.system_call(cpu);
    }
}

extern "C" fn halts(cpu: c_uint, _: *mut c_void) {
    Words::of(cpu).set_inside(false);
    if let Some(level) = LEVEL.get() {
        level.halts(cpu);
    }
}

extern "C" fn accessed(cpu: c_uint, info: MemInfo, address: u64, _: *mut c_void) {
    if let Some(level) = LEVEL.get() {
        level.access(cpu, &Access { info, address });
    }
}

extern "C" fn ended(_: Id, _: *mut c_void) {
    if let Some(level) = LEVEL.get() {
        level.ended();
    }
}

/// Called by QEMU when it has loaded the plugin. 0 is success; otherwise QEMU ends.
///
/// # Safety
///
/// `info` must be QEMU's description of itself and `argv` hold `argc` C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const RawInfo,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: 1. The caller's promise.
    let level = unsafe { prepare(info, argc, argv) };
    let installed = level.and_then(|level| {
        let twice = "the plugin is loaded twice; give -plugin once";
        LEVEL.set(level).map_err(|_| twice.to_string())
    });
    if let Err(message) = installed {
        eprintln!("dyad-sim: {message}");
        return 1;
    }
    clock::register(id);
    // SAFETY: 1. The callbacks have the parameters of the versions that `prepare` lets pass.
    // 2. They live as long as the plugin, which is never unloaded.
    unsafe {
        // One callback of each kind: QEMU replaces the first by a second.
        qemu_plugin_register_vcpu_init_cb(id, initialised);
        qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        qemu_plugin_register_atexit_cb(id, ended, std::ptr::null_mut());
    }
    0
}

/// # Safety
///
/// As for [`qemu_plugin_install`].
unsafe fn prepare(
    info: *const RawInfo,
    argc: c_int,
    argv: *const *const c_char,
) -> Result<Box<dyn Level>, String> {
    // SAFETY: 1. The caller's promise. The first members are the same in every version.
    let (min, api) = unsafe { ((*info).version_min, (*info).version_cur) };
    version::check(min, api)?;
    // SAFETY: 1. The caller's promise, and the version is one whose layout this is.
    let info = unsafe { &*info };
    if !info.system_emulation {
        return Err("this is not a system emulator".into());
    }
    // SAFETY: 1. QEMU's name of its target is a C string.
    let target = unsafe { CStr::from_ptr(info.target_name) };
    let args = (0..usize::try_from(argc).unwrap_or(0))
        // SAFETY: 1. The caller's promise: there are that many C strings.
        .map(|i| unsafe { CStr::from_ptr(*argv.add(i)) })
        .map(|arg| {
            arg.to_str()
                .map_err(|_| "an option is not text".to_string())
        })
        .collect::<Result<Vec<&str>, String>>()?;
    let emulator = Emulator {
        target: target.to_string_lossy().into_owned(),
        api,
        cpus: usize::try_from(info.max_vcpus).unwrap_or(0),
        running: usize::try_from(info.smp_vcpus).unwrap_or(0),
    };
    crate::count::install(emulator, &args)
}
