//! The kernel half of the address space, user roots, TLB maintenance, device windows.
//!
//! | window | content | permissions |
//! |---|---|---|
//! | `FUSED_BASE` + PA | the pools that exist | RW |
//! | `PRIVATE_BASE` + PA | private RAM behind the image: page tables, per-CPU areas | RW |
//! | `MMIO_BASE` + PA | the devices in [`WINDOWS`] | RW, Device |
//! | `PERCPU_BASE` + ... | stacks and per-CPU areas, with unmapped pages between | RW |
//! | image | text RX, constants R, data RW | |
//!
//! Writable memory is never executable, and neither text nor constants have a writable alias. The
//! kernel half hangs off `TTBR1_EL1` and is built once; user roots are in `TTBR0_EL1`. Address
//! space identifiers are not used: the code that changes a root flushes.

use core::arch::{asm, global_asm};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use aarch64_cpu::asm::barrier::{self, ISH, SY};
use aarch64_cpu::registers::{TTBR0_EL1, Writeable};
use dyad_abi::boot::BootParams;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{CpuId, Isa};
use dyad_boot::kernel_map::{BootFrames, Builder, PrivateRam, pools};
use dyad_machine::platform::FLUSH_BYTES;
#[cfg(feature = "ktest")]
use dyad_pgtbl::RemoteCpu;
use dyad_pgtbl::{FrameSource, Level, MapError, Memory, Perms};
use dyad_shm::{FUSED_BASE, FusedMap, IMAGE_BASE, LayoutHash, MMIO_BASE, PRIVATE_BASE, PhysAddr};

use crate::cpu;

/// Start of RAM.
const RAM_BASE: u64 = 0x4000_0000;
/// Length of the part of private RAM that the kernel uses.
const PRIVATE_LEN: u64 = 64 << 20;
/// Link address minus load address of the image.
pub const IMAGE_OFFSET: u64 = IMAGE_BASE - RAM_BASE;

/// `MAIR_EL1`: what the page-table format says: 0 Normal write-back, 1 Device-nGnRE.
pub const MAIR: u64 = 0x04ff;
/// `TCR_EL1` without the physical address size: both halves of 47 bits, 4 KiB granule, walks
/// cached and inner shareable, hardware sets accessed and dirty.
pub const TCR: u64 = 17
    | 0b01 << 8
    | 0b01 << 10
    | 0b11 << 12
    | 17 << 16
    | 0b01 << 24
    | 0b01 << 26
    | 0b11 << 28
    | 0b10 << 30
    | 1 << 39
    | 1 << 40;
/// `SCTLR_EL1` with the boot tables: MMU, caches, stack alignment checks. Privileged access to
/// user pages is off after every exception (SPAN = 0). User mode may write back and drop lines of pages that
/// it may read (UCI); it may not wait for events or interrupts, zero lines, or read what describes caches.
pub const SCTLR_BOOT: u64 = 1 << 0    // M
    | 1 << 2                          // C
    | 1 << 3                          // SA
    | 1 << 4                          // SA0
    | 1 << 11                         // EOS
    | 1 << 12                         // I
    | 1 << 20                         // TSCXT
    | 1 << 22                         // EIS
    | 1 << 26                         // UCI
    | 1 << 28 | 1 << 29; // nTLSMD, LSMAOE: as reset
/// `SCTLR_EL1` with the kernel's tables: writable memory is never executable, whatever the tables permit.
pub const SCTLR: u64 = SCTLR_BOOT | 1 << 19;

/// Entry of the boot tables: 1 GiB of RAM, all permissions for the kernel.
pub const BOOT_RAM_BLOCK: u64 = RAM_BASE | 1 | 0b11 << 8 | 1 << 10 | 1 << 54;
/// Entry of the boot tables: 1 GiB of devices, not executable.
pub const BOOT_DEVICE_BLOCK: u64 = 1 | 1 << 2 | 1 << 10 | 0b11 << 53;

/// `TTBR1_EL1` of all CPUs; 0 before [`build`].
pub static KERNEL_TTBR1: AtomicU64 = AtomicU64::new(0);
/// Root with an empty user half; 0 before [`build`].
pub static IDLE_ROOT: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_start: u8;
    static __rodata_end: u8;
    static __data_start: u8;
    static __image_end: u8;

    /// Replaces the boot tables; see the assembly.
    fn replace_boot_tables(ttbr1: u64, empty: u64, sctlr: u64);
}

global_asm!(
    r#"
    .section .text.replace_boot_tables, "ax"
    // fn(ttbr1, empty, sctlr): from the identity map, since the map of the image is replaced by
    // one with other page sizes: no entry of the old may be in use, or in a TLB, with the new.
replace_boot_tables:
    adr     x3, 1f
    ldr     x4, ={image_offset}
    sub     x3, x3, x4
    adr     x5, 2f
    dsb     sy
    br      x3
1:  msr     ttbr1_el1, x1
    isb
    tlbi    vmalle1
    dsb     nsh
    isb
    msr     ttbr1_el1, x0
    isb
    br      x5
2:  msr     ttbr0_el1, x1
    msr     sctlr_el1, x2
    isb
    tlbi    vmalle1
    dsb     nsh
    isb
    ret
    .ltorg
    "#,
    image_offset = const IMAGE_OFFSET,
);

// --- devices ------------------------------------------------------------------------------

/// Registers of a device, or of several side by side.
pub struct Window {
    base: u64,
    len: u64,
}

/// Distributor of the interrupt controller.
pub const GIC_DISTRIBUTOR: Window = Window::new(0x0800_0000, 0x1_0000);
/// CPU interface of the interrupt controller.
pub const GIC_CPU: Window = Window::new(0x0801_0000, 0x1_0000);
/// Frame that turns messages of devices into interrupts.
pub const GIC_MESSAGES: Window = Window::new(0x0802_0000, 0x1000);
/// Serial line.
pub const UART: Window = Window::new(0x0900_0000, 0x1000);
/// Firmware configuration.
pub const FW_CFG: Window = Window::new(0x0902_0000, 0x1000);
/// The window in which base address registers are placed.
pub const BARS: Window = Window::new(0x1000_0000, 16 << 20);
/// PCI configuration space of bus 0.
pub const PCI_CONFIG: Window = Window::new(0x3f00_0000, 1 << 20);

const WINDOWS: [Window; 7] = [
    GIC_DISTRIBUTOR,
    GIC_CPU,
    GIC_MESSAGES,
    UART,
    FW_CFG,
    BARS,
    PCI_CONFIG,
];

impl Window {
    const fn new(base: u64, len: u64) -> Window {
        // The boot tables map the first GiB.
        assert!(
            base + len <= RAM_BASE
                && base.is_multiple_of(PAGE_SIZE)
                && len.is_multiple_of(PAGE_SIZE)
        );
        Window { base, len }
    }

    /// Physical address.
    pub const fn physical(&self) -> u64 {
        self.base
    }

    /// Length in bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Offset of a physical address, if it is in here.
    pub fn offset(&self, pa: u64) -> Option<u64> {
        pa.checked_sub(self.base).filter(|&at| at < self.len)
    }

    #[inline]
    fn register<T>(&self, at: u64) -> *mut T {
        let size = size_of::<T>() as u64;
        assert!(
            at.is_multiple_of(size) && at < self.len,
            "no such register: {at:#x} of {:#x}",
            self.base
        );
        (MMIO_BASE + self.base + at) as *mut T
    }

    /// Reads a byte.
    pub fn read8(&self, at: u64) -> u8 {
        // SAFETY: 1. `register` gives an aligned address inside a window, and all windows are
        // mapped, as Device memory, from the first compiled code on; 2. it is not memory of any
        // Rust object. The same holds for the accesses below.
        unsafe { self.register::<u8>(at).read_volatile() }
    }

    /// Writes a byte.
    pub fn write8(&self, at: u64, value: u8) {
        // SAFETY: 1. see `read8`.
        unsafe { self.register::<u8>(at).write_volatile(value) }
    }

    /// Writes 16 bits.
    pub fn write16(&self, at: u64, value: u16) {
        // SAFETY: 1. see `read8`.
        unsafe { self.register::<u16>(at).write_volatile(value) }
    }

    /// Reads 32 bits.
    pub fn read32(&self, at: u64) -> u32 {
        // SAFETY: 1. see `read8`.
        unsafe { self.register::<u32>(at).read_volatile() }
    }

    /// Writes 32 bits.
    pub fn write32(&self, at: u64, value: u32) {
        // SAFETY: 1. see `read8`.
        unsafe { self.register::<u32>(at).write_volatile(value) }
    }
}

// --- building -----------------------------------------------------------------------------

/// Physical address of something in the image.
pub const fn image_to_physical(va: u64) -> u64 {
    va - IMAGE_OFFSET
}

/// Private RAM that the kernel may use: the part behind the image.
fn private_ram() -> Range<u64> {
    let end = image_to_physical(&raw const __image_end as u64);
    end.next_multiple_of(Level::L2.size())..RAM_BASE + PRIVATE_LEN
}

/// The window onto private RAM.
struct Ram;

impl PrivateRam for Ram {
    fn range() -> Range<u64> {
        private_ram()
    }

    fn word(at: PhysAddr) -> &'static AtomicU64 {
        assert!(
            at.0.is_multiple_of(8) && private_ram().contains(&at.0),
            "{at} is no word of private RAM"
        );
        // SAFETY: 1. the range is RAM, mapped both by the boot tables and by the kernel's;
        // 2. aligned; 3. frames of it that hold page tables are accessed through here only.
        unsafe { &*((PRIVATE_BASE + at.0) as *const AtomicU64) }
    }
}

/// Builds the kernel half for these parameters and switches this CPU to it; the boot tables, and
/// with them the identity map, are gone. Called once, by the boot CPU, while it is alone.
pub fn build(params: &BootParams<'_>) -> Result<FusedMap, MapError> {
    let ram = private_ram();
    let frames = BootFrames::<Ram>::all();
    let root = frames.alloc_table().ok_or(MapError::NoMemory)?;
    let idle = frames.alloc_table().ok_or(MapError::NoMemory)?;
    let kernel = Builder::new(Isa::Aarch64, root, &frames);
    let image = [
        (
            &raw const __text_start,
            &raw const __text_end,
            Perms::EXECUTE,
        ),
        (
            &raw const __rodata_start,
            &raw const __rodata_end,
            Perms::READ,
        ),
        (
            &raw const __data_start,
            &raw const __image_end,
            Perms::WRITE,
        ),
    ];
    kernel.map_image(image, image_to_physical)?;
    for w in &WINDOWS {
        let va = MMIO_BASE + w.base..MMIO_BASE + w.base + w.len;
        kernel.map(va, w.base, Perms::WRITE, Memory::Device)?;
    }
    let window = PRIVATE_BASE + ram.start..PRIVATE_BASE + ram.end;
    kernel.map(window, ram.start, Perms::WRITE, Memory::Normal)?;
    // Each CPU's stacks and area.
    for range in CpuId::first(params.cpus).flat_map(cpu::mapped_ranges) {
        kernel.map_new(range)?;
    }
    let pools = pools(params);
    for (size, va) in pools {
        kernel.map(
            va..va + size,
            va.wrapping_sub(FUSED_BASE),
            Perms::WRITE,
            Memory::Normal,
        )?;
    }

    #[cfg(feature = "ktest")]
    {
        // So that the tables for the window exist.
        let page = frames.alloc_table().ok_or(MapError::NoMemory)?;
        let window = CODE_WINDOW..CODE_WINDOW + PAGE_SIZE;
        kernel.map(window, page.0, Perms::EXECUTE, Memory::Normal)?;
    }
    KERNEL_TTBR1.store(root.0 + 0x800, Ordering::Release);
    IDLE_ROOT.store(idle.0, Ordering::Release);
    // SAFETY: 1. the new tables map text, constants, data, devices and private RAM where the boot
    // tables did; 2. the boot stack is data of the image; 3. nothing in Rust has an address in
    // the identity map.
    unsafe { replace_boot_tables(root.0 + 0x800, idle.0, SCTLR) };
    // SAFETY: 1. just mapped, for good; 2. only core uses pools, through this map; 3. page-aligned.
    Ok(unsafe { FusedMap::new(pools) })
}

/// Writes what a CPU with its MMU off needs back to memory.
pub fn publish_roots() {
    for word in [&KERNEL_TTBR1, &IDLE_ROOT] {
        // SAFETY: 1. cache maintenance by an address that is mapped; contents do not change.
        unsafe { asm!("dc cvac, {}", in(reg) word, options(nostack, preserves_flags)) };
    }
    barrier::dsb(SY);
}

// --- running ------------------------------------------------------------------------------

/// See [`dyad_machine::Platform::switch_root`].
pub fn switch_root(root: PhysAddr) {
    barrier::dsb(ISH);
    TTBR0_EL1.set(root.0);
    barrier::isb(SY);
    flush_user();
}

/// See [`dyad_machine::Platform::idle_root`].
pub fn idle_root() -> PhysAddr {
    PhysAddr(IDLE_ROOT.load(Ordering::Acquire))
}

/// See [`dyad_machine::Platform::flush_tlb`]. User pages are never global and always of address
/// space 0.
pub fn flush_user() {
    // SAFETY: 1. drops cached translations only; 2. barriers order it after earlier stores to
    // tables and before anything that follows.
    unsafe {
        asm!(
            "dsb ishst",
            "tlbi aside1, xzr",
            "dsb nsh",
            "isb",
            options(nostack, preserves_flags)
        );
    }
}

/// See [`dyad_machine::Platform::sync_code`].
pub fn sync_code(map: &FusedMap, pa: PhysAddr, len: u64) {
    let Some(start) = map.address(pa, len) else {
        return;
    };
    let kinds: u64;
    // SAFETY: 1. reads a register.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) kinds, options(nomem, nostack, preserves_flags)) };
    let data_line = 4 << (kinds >> 16 & 0xf);
    let code_line = 4 << (kinds & 0xf);
    let lines = |line: u64| (start & !(line - 1)..start + len).step_by(line as usize);
    for at in lines(data_line) {
        // SAFETY: 1. cache maintenance by an address that is mapped; contents do not change.
        unsafe { asm!("dc cvau, {}", in(reg) at, options(nostack, preserves_flags)) };
    }
    barrier::dsb(ISH);
    for at in lines(code_line) {
        // SAFETY: 1. cache maintenance by an address that is mapped; contents do not change.
        unsafe { asm!("ic ivau, {}", in(reg) at, options(nostack, preserves_flags)) };
    }
    barrier::dsb(ISH);
    barrier::isb(SY);
}

/// See [`dyad_machine::Platform::zero_frame`].
pub fn zero_frame(map: &FusedMap, pa: PhysAddr) -> bool {
    let Some(at) = map.address(pa, PAGE_SIZE).filter(|_| pa.offset() == 0) else {
        return false;
    };
    let dczid: u64;
    // SAFETY: 1. reads a register.
    unsafe { asm!("mrs {}, dczid_el0", out(reg) dczid, options(nomem, nostack, preserves_flags)) };
    // Bit 4: DC ZVA is prohibited. Else blocks of 4 << bits 0..4 bytes.
    let block = 4u64 << (dczid & 0xf);
    if dczid & 1 << 4 != 0 || block > PAGE_SIZE {
        return map.zero_frame(pa);
    }
    // SAFETY: 1. the frame is in a pool, which is mapped as Normal memory, and consists of atomic
    // words, whose owner is the caller; 2. blocks are a power of two and not larger than it, so
    // that none reaches beyond it.
    unsafe {
        asm!(
            "2: dc zva, {at}",
            "add {at}, {at}, {block}",
            "cmp {at}, {end}",
            "b.lo 2b",
            at = inout(reg) at => _,
            block = in(reg) block,
            end = in(reg) at + PAGE_SIZE,
            options(nostack)
        );
    }
    true
}

/// The address at which tests execute code, behind the slots of all CPUs.
#[cfg(feature = "ktest")]
const CODE_WINDOW: u64 = dyad_shm::PERCPU_BASE + (1 << 30);

/// The kernel's root: `TTBR1_EL1` points at its upper half.
#[cfg(feature = "ktest")]
fn kernel_root() -> PhysAddr {
    PhysAddr(KERNEL_TTBR1.load(Ordering::Acquire) - 0x800)
}

/// Maps a frame executable in the test window, for this CPU. Break before make: the old
/// translation is gone from the TLB before the new one is there.
#[cfg(feature = "ktest")]
pub fn map_code_window(pa: PhysAddr) -> Option<u64> {
    let table = RemoteCpu::new(
        &dyad_boot::kernel_map::PrivateMem::<Ram>::NEW,
        Isa::Aarch64,
        kernel_root(),
    );
    let node = dyad_object::node::node().id();
    table
        .unmap(CODE_WINDOW, node, |_, _| {}, || dyad_shm::Epoch::ZERO)
        .ok()?;
    // SAFETY: 1. drops cached translations only.
    unsafe {
        asm!(
            "dsb ishst",
            "tlbi vmalle1",
            "dsb nsh",
            "isb",
            options(nostack, preserves_flags)
        );
    }
    let leaf = dyad_pgtbl::Leaf::kernel(pa, Perms::EXECUTE, Memory::Normal);
    table
        .map(CODE_WINDOW, leaf, Level::L1, &BootFrames::<Ram>::none())
        .ok()?;
    barrier::dsb(ISH);
    barrier::isb(SY);
    Some(CODE_WINDOW)
}

/// Calls `f` for every leaf of the kernel half.
#[cfg(feature = "ktest")]
pub fn kernel_leaves(f: &mut dyn FnMut(u64, Level, dyad_pgtbl::Leaf)) {
    RemoteCpu::new(
        &dyad_boot::kernel_map::PrivateMem::<Ram>::NEW,
        Isa::Aarch64,
        kernel_root(),
    )
    .for_each_leaf(dyad_shm::FUSED_BASE..u64::MAX, f);
}

/// Identity of the kernel image: a hash over its text.
pub fn image_id() -> u64 {
    static ID: AtomicU64 = AtomicU64::new(0);
    let known = ID.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let start = &raw const __text_start;
    let len = &raw const __text_end as usize - start as usize;
    // SAFETY: 1. the linker script puts the symbols around the text, which is mapped and never
    // written.
    let text = unsafe { core::slice::from_raw_parts(start, len) };
    let hash = text.iter().fold(LayoutHash::EMPTY, |h, &b| h.byte(b));
    // 0 says that nothing has been published.
    let id = hash.value().max(1);
    ID.store(id, Ordering::Relaxed);
    id
}

/// Writes back and drops a part of what the data caches hold, by set and way (Arm ARM, "Cache maintenance by
/// set/way"): the levels one after the other, from the first on, [`FLUSH_BYTES`] in each piece, which is about
/// 1500 instructions. `true` if there is no piece after it.
pub fn flush_cache_piece(piece: u64) -> bool {
    let clidr: u64;
    // SAFETY: 1. reads a register.
    unsafe { asm!("mrs {}, clidr_el1", out(reg) clidr, options(nomem, nostack, preserves_flags)) };
    let kind = |level: u64| clidr >> (3 * level) & 7;
    let mut before = 0;
    for level in (0..7).take_while(|&level| kind(level) != 0) {
        // 2 and up have data.
        if kind(level) < 2 {
            continue;
        }
        let cache = DataCache::of(level);
        let lines = FLUSH_BYTES >> cache.line_shift;
        let pieces = cache.lines().div_ceil(lines);
        let of_this = piece - before;
        if of_this < pieces {
            cache.flush(of_this * lines, lines);
            return of_this + 1 == pieces && (level == 6 || kind(level + 1) == 0);
        }
        before += pieces;
    }
    true
}

/// The data cache of a level.
#[derive(Clone, Copy)]
struct DataCache {
    level: u64,
    line_shift: u64,
    sets: u64,
    ways: u64,
}

impl DataCache {
    /// The data cache of a level (from 0), which must exist.
    fn of(level: u64) -> DataCache {
        let ccsidr: u64;
        // SAFETY: 1. selects which cache is described, then reads the description; no other code on
        // this CPU uses the selection.
        unsafe {
            asm!(
                "msr csselr_el1, {select}",
                "isb",
                "mrs {ccsidr}, ccsidr_el1",
                select = in(reg) level << 1,
                ccsidr = out(reg) ccsidr,
                options(nomem, nostack, preserves_flags),
            );
        }
        DataCache {
            level,
            line_shift: (ccsidr & 7) + 4,
            sets: (ccsidr >> 13 & 0x7fff) + 1,
            ways: (ccsidr >> 3 & 0x3ff) + 1,
        }
    }

    const fn lines(self) -> u64 {
        self.sets * self.ways
    }

    /// Writes back and drops `count` lines from `first` on, or as many as there are. Lines are numbered by way,
    /// then by set.
    fn flush(self, first: u64, count: u64) {
        let last_way = (self.ways - 1) as u32;
        let way_shift = match last_way {
            0 => 0,
            n => n.leading_zeros(),
        };
        let (mut way, mut set) = (first / self.sets, first % self.sets);
        for _ in first..self.lines().min(first + count) {
            let at = way << way_shift | set << self.line_shift | self.level << 1;
            // SAFETY: 1. writes lines back to where they belong, which changes no memory that
            // anybody can see.
            unsafe { asm!("dc cisw, {}", in(reg) at, options(nostack, preserves_flags)) };
            set += 1;
            if set == self.sets {
                (way, set) = (way + 1, 0);
            }
        }
        // SAFETY: 1. a barrier.
        unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
    }
}
