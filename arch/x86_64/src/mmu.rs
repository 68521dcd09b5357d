//! The kernel half of the address space, user roots, TLB maintenance, device windows.
//!
//! | window | content | permissions |
//! |---|---|---|
//! | `FUSED_BASE` + PA | the pools that exist | RW |
//! | `PRIVATE_BASE` + PA | private RAM: page tables, per-CPU areas, the page other CPUs start in | RW |
//! | `MMIO_BASE` + PA | the devices in [`WINDOWS`] | RW, uncached |
//! | `PERCPU_BASE` + ... | stacks and per-CPU areas, with unmapped pages between | RW |
//! | image | text RX, constants R, data RW | |
//!
//! Writable memory is never executable, and neither text nor constants have a writable alias. The
//! kernel half is built once; its root entries are copied into every user root
//! ([`root_entries`]), and are the same on all x86-64 nodes because all run the same image. Kernel
//! pages are global: loading a root drops user translations only.

use core::arch::asm;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use dyad_abi::boot::BootParams;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{CpuId, Isa};
use dyad_boot::kernel_map::{BootFrames, Builder, PrivateMem, PrivateRam, pools};
use dyad_coherence::GlobalMem;
#[cfg(feature = "ktest")]
use dyad_pgtbl::RemoteCpu;
use dyad_pgtbl::{FrameSource, Level, MapError, Memory, Perms};
use dyad_shm::superblock::{ROOT_ENTRIES, ROOT_SLOTS};
use dyad_shm::{FusedMap, IMAGE_BASE, LayoutHash, MMIO_BASE, PRIVATE_BASE, PhysAddr};
use x86_64::registers::control::{Cr3, Cr3Flags, Cr4, Cr4Flags};
use x86_64::structures::paging::PhysFrame;

use crate::cpu;

/// Length of the part of private RAM that the kernel uses.
const PRIVATE_LEN: u64 = 64 << 20;
/// Page in low memory where other CPUs start.
pub const TRAMPOLINE: u64 = 0x8000;
/// Link address minus load address of the image.
pub const IMAGE_OFFSET: u64 = IMAGE_BASE;

/// Root of the kernel's page table; 0 before [`build`].
pub static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_start: u8;
    static __rodata_end: u8;
    static __data_start: u8;
    static __image_end: u8;
    static trampoline_start: u8;
    static trampoline_end: u8;
    static trampoline_cpu: u8;
}

// --- devices ------------------------------------------------------------------------------

/// Registers of a device.
pub struct Window {
    base: u64,
    len: u64,
}

/// The local APIC: each CPU sees its own.
pub const LOCAL_APIC: Window = Window::new(0xfee0_0000, 0x1000);
/// PCI configuration space of bus 0.
pub const PCI_CONFIG: Window = Window::new(0xb000_0000, 1 << 20);
/// The window in which base address registers are placed.
pub const BARS: Window = Window::new(0xc000_0000, 16 << 20);

const WINDOWS: [Window; 3] = [LOCAL_APIC, PCI_CONFIG, BARS];

impl Window {
    const fn new(base: u64, len: u64) -> Window {
        // The boot tables map the third and fourth GiB as devices.
        assert!(base >= 2 << 30 && base + len <= 4 << 30);
        assert!(base.is_multiple_of(PAGE_SIZE) && len.is_multiple_of(PAGE_SIZE));
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
    fn register(&self, at: u64) -> *mut u32 {
        assert!(
            at.is_multiple_of(4) && at < self.len,
            "no such register: {at:#x} of {:#x}",
            self.base
        );
        (MMIO_BASE + self.base + at) as *mut u32
    }

    /// Reads 32 bits.
    pub fn read32(&self, at: u64) -> u32 {
        // SAFETY: 1. `register` gives an aligned address inside a window, and all windows are
        // mapped, uncached, from the first compiled code on; 2. it is not memory of any Rust
        // object. The same holds for writes.
        unsafe { self.register(at).read_volatile() }
    }

    /// Writes 32 bits.
    pub fn write32(&self, at: u64, value: u32) {
        // SAFETY: 1. see `read32`.
        unsafe { self.register(at).write_volatile(value) }
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
    end.next_multiple_of(Level::L2.size())..PRIVATE_LEN
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
    let kernel = Builder::new(Isa::X86_64, root, &frames);
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
    for private in [TRAMPOLINE..TRAMPOLINE + PAGE_SIZE, ram] {
        let window = PRIVATE_BASE + private.start..PRIVATE_BASE + private.end;
        kernel.map(window, private.start, Perms::WRITE, Memory::Normal)?;
    }
    // Each CPU's stacks and area.
    for range in CpuId::first(params.cpus).flat_map(cpu::mapped_ranges) {
        kernel.map_new(range)?;
    }
    let pools = pools(params);
    for (size, va) in pools {
        let pa = va.wrapping_sub(dyad_shm::FUSED_BASE);
        kernel.map(va..va + size, pa, Perms::WRITE, Memory::Normal)?;
    }
    #[cfg(feature = "ktest")]
    {
        // So that the tables for the window exist.
        let page = frames.alloc_table().ok_or(MapError::NoMemory)?;
        let window = CODE_WINDOW..CODE_WINDOW + PAGE_SIZE;
        kernel.map(window, page.0, Perms::EXECUTE, Memory::Normal)?;
    }
    KERNEL_ROOT.store(root.0, Ordering::Release);
    use_kernel_root();
    // SAFETY: 1. just mapped, for good; 2. only core uses pools, through this map; 3. page-aligned;
    // 4. core allocates no frame of the bundle and stores to none.
    Ok(unsafe { FusedMap::new(pools) })
}

/// Switches this CPU from the boot tables to the kernel's, and protection on.
pub fn use_kernel_root() {
    switch_root(idle_root());
    // SAFETY: 1. the kernel never touches user addresses (SMAP), never executes them (SMEP);
    // 2. it reads counters at level 0, where TSD does not matter; 3. toggling PGE drops what is
    // left of the boot tables' translations.
    unsafe {
        Cr4::update(|f| f.remove(Cr4Flags::PAGE_GLOBAL));
        Cr4::update(|f| {
            f.insert(
                Cr4Flags::PAGE_GLOBAL
                    | Cr4Flags::OSFXSR
                    | Cr4Flags::OSXMMEXCPT_ENABLE
                    | Cr4Flags::TIMESTAMP_DISABLE
                    | Cr4Flags::USER_MODE_INSTRUCTION_PREVENTION
                    | Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION
                    | Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION,
            );
        });
    }
}

/// Puts the code that a CPU starts with into its page.
pub fn write_trampoline(cpu: CpuId) {
    let start = &raw const trampoline_start;
    let len = &raw const trampoline_end as usize - start as usize;
    assert!(
        len <= PAGE_SIZE as usize,
        "the start-up code must fit a page"
    );
    let to = (PRIVATE_BASE + TRAMPOLINE) as *mut u8;
    for i in 0..len {
        // SAFETY: 1. the code lies in the image, the page in private RAM, both mapped; 2. the CPU
        // that reads it has not been started.
        unsafe { to.add(i).write_volatile(start.add(i).read()) };
    }
    let at = &raw const trampoline_cpu as usize - start as usize;
    // SAFETY: 1. a 32-bit word of the code just copied, aligned there.
    unsafe { to.add(at).cast::<u32>().write_volatile(cpu.index() as u32) };
    fence(Ordering::SeqCst);
}

// --- running ------------------------------------------------------------------------------

/// See [`dyad_machine::Platform::switch_root`].
pub fn switch_root(root: PhysAddr) {
    // SAFETY: 1. a root is a frame of a pool: an aligned address with less than 52 bits; 2. its kernel
    // half is the kernel's, as every root's is.
    unsafe {
        let start = x86_64::PhysAddr::new_unsafe(root.0);
        let frame = PhysFrame::from_start_address_unchecked(start);
        Cr3::write(frame, Cr3Flags::empty());
    }
}

/// See [`dyad_machine::Platform::idle_root`]: the kernel's own root has no user half.
pub fn idle_root() -> PhysAddr {
    PhysAddr(KERNEL_ROOT.load(Ordering::Acquire))
}

/// The root in use.
pub fn current_root() -> u64 {
    Cr3::read().0.start_address().as_u64()
}

/// See [`dyad_machine::Platform::flush_tlb`].
pub fn flush_user() {
    x86_64::instructions::tlb::flush_all();
}

/// See [`dyad_machine::Platform::zero_frame`].
pub fn zero_frame(map: &FusedMap, pa: PhysAddr) -> bool {
    let Some(at) = map.address(pa, PAGE_SIZE).filter(|_| pa.offset() == 0) else {
        return false;
    };
    // SAFETY: 1. the frame is in a pool, which is mapped, and consists of atomic words, whose
    // owner is the caller; 2. the direction flag is clear in the kernel.
    unsafe {
        asm!(
            "rep stosq",
            inout("rcx") PAGE_SIZE / 8 => _,
            inout("rdi") at => _,
            in("rax") 0u64,
            options(nostack, preserves_flags)
        );
    }
    true
}

/// See [`dyad_machine::Platform::root_entries`].
pub fn root_entries() -> [u64; ROOT_ENTRIES] {
    let root = idle_root();
    ROOT_SLOTS.map(|slot| PrivateMem::<Ram>::NEW.load(root.add(slot as u64 * 8), Ordering::Relaxed))
}

/// The address at which tests execute code, behind the slots of all CPUs.
#[cfg(feature = "ktest")]
const CODE_WINDOW: u64 = dyad_shm::PERCPU_BASE + (1 << 30);

/// Maps a frame executable in the test window, for this CPU.
#[cfg(feature = "ktest")]
pub fn map_code_window(pa: PhysAddr) -> Option<u64> {
    let table = RemoteCpu::new(&PrivateMem::<Ram>::NEW, Isa::X86_64, idle_root());
    let node = dyad_object::node::node().id();
    table
        .unmap(CODE_WINDOW, node, |_, _| {}, || dyad_shm::Epoch::ZERO)
        .ok()?;
    let leaf = dyad_pgtbl::Leaf::kernel(pa, Perms::EXECUTE, Memory::Normal);
    table
        .map(CODE_WINDOW, leaf, Level::L1, &BootFrames::<Ram>::none())
        .ok()?;
    x86_64::instructions::tlb::flush(x86_64::VirtAddr::new(CODE_WINDOW));
    Some(CODE_WINDOW)
}

/// Calls `f` for every leaf of the kernel half.
#[cfg(feature = "ktest")]
pub fn kernel_leaves(f: &mut dyn FnMut(u64, Level, dyad_pgtbl::Leaf)) {
    RemoteCpu::new(&PrivateMem::<Ram>::NEW, Isa::X86_64, idle_root())
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

/// Writes back and drops everything this CPU's caches hold.
pub fn flush_caches() {
    // SAFETY: 1. it changes no memory that anybody can see; 2. the kernel runs at the level that may
    // execute it.
    unsafe { asm!("wbinvd", options(nostack, preserves_flags)) };
}
