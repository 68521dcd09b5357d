//! Per-CPU areas, stacks and segments.
//!
//! Every CPU has a slot in the per-CPU window, the same on every x86-64 node. What is not listed
//! is not mapped, so that a stack that runs over faults instead of destroying its neighbour.
//!
//! | offset in the slot | content |
//! |---|---|
//! | `0x0_1000 .. 0x2_1000` | kernel stack |
//! | `0x2_2000 .. 0x2_a000` | stack for double faults, NMI and machine checks |
//! | `0x3_0000 ..` | [`PerCpu`] |
//!
//! The base of gs in kernel mode is the address of the CPU's [`PerCpu`]; before the window exists,
//! that of [`EARLY`].

use core::arch::asm;
use core::cell::{Cell, UnsafeCell};
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::AtomicU64;

use dyad_abi::CpuId;
use dyad_machine::cpu::CpuLocal;
use dyad_machine::platform::{REG_WORDS, RegArea};
use dyad_shm::PERCPU_BASE;
use x86_64::VirtAddr;
use x86_64::instructions::segmentation::{CS, DS, ES, FS, GS, SS, Segment};
use x86_64::instructions::tables::{lgdt, load_tss};
use x86_64::registers::model_specific::{GsBase, KernelGsBase};
use x86_64::registers::segmentation::SegmentSelector;
use x86_64::structures::DescriptorTablePointer;
use x86_64::structures::tss::TaskStateSegment;

/// Kernel code segment.
pub const KERNEL_CODE: u16 = 0x08;
/// Kernel data segment; must follow the code segment for `syscall`.
pub const KERNEL_DATA: u16 = 0x10;
/// User data segment, with privilege level 3.
pub const USER_DATA: u16 = 0x18 | 3;
/// User code segment, with privilege level 3.
pub const USER_CODE: u16 = 0x20 | 3;
const TSS: u16 = 0x28;
/// Interrupt stack used by exceptions that may come at any time or on a broken stack.
pub const FAULT_IST: u16 = 0;

const SLOT_SHIFT: u32 = 18;
const STACK: Range<u64> = 0x1000..0x2_1000;
const FAULT_STACK: Range<u64> = 0x2_2000..0x2_a000;
const AREA: u64 = 0x3_0000;

/// Data of a CPU, which it reaches through gs. The first three fields, `tss` and `local` are used by
/// assembly.
#[repr(C, align(16))]
pub struct PerCpu {
    /// Address of this structure, because the base of gs cannot be read by a load.
    this: Cell<u64>,
    /// Top of the kernel stack.
    kernel_stack: Cell<u64>,
    /// The register area of the thread resumed last.
    area: Cell<&'static RegArea>,
    /// Exceptions taken in the kernel: the first is reported, another ends the machine.
    pub faults: Cell<u64>,
    /// The timer's deadline by [`crate::clock`].
    pub deadline: Cell<Option<u64>>,
    tss: UnsafeCell<TaskStateSegment>,
    gdt: UnsafeCell<[u64; 7]>,
    local: CpuLocal,
}

/// Offset of the top of the kernel stack.
pub const OFFSET_KERNEL_STACK: usize = offset_of!(PerCpu, kernel_stack);
/// Offset of the address of the current register area.
pub const OFFSET_AREA: usize = offset_of!(PerCpu, area);
/// Offset of the state core keeps.
pub const OFFSET_LOCAL: usize = offset_of!(PerCpu, local);
/// Offset of the stack pointer the CPU takes for interrupts from user mode.
pub const OFFSET_RSP0: usize =
    offset_of!(PerCpu, tss) + offset_of!(TaskStateSegment, privilege_stack_table);

/// The current area of CPUs that have resumed no thread yet. Nothing is ever saved here.
static NO_AREA: RegArea = RegArea([const { AtomicU64::new(0) }; REG_WORDS]);

impl PerCpu {
    const fn new(cpu: CpuId) -> PerCpu {
        PerCpu {
            this: Cell::new(0),
            kernel_stack: Cell::new(0),
            area: Cell::new(&NO_AREA),
            faults: Cell::new(0),
            deadline: Cell::new(None),
            tss: UnsafeCell::new(TaskStateSegment::new()),
            gdt: UnsafeCell::new([0; 7]),
            local: CpuLocal::new(cpu),
        }
    }
}

/// The boot CPU's area until its slot is mapped.
#[repr(transparent)]
pub struct Early(PerCpu);

// SAFETY: 1. only the boot CPU refers to it, through its gs.
unsafe impl Sync for Early {}

static EARLY: Early = Early(PerCpu::new(BOOT));

/// The CPU that boots the machine.
pub const BOOT: CpuId = match CpuId::new(0) {
    Some(c) => c,
    None => unreachable!(),
};

/// The ranges of a CPU's slot that must be mapped, readable and writable.
pub fn mapped_ranges(cpu: CpuId) -> [Range<u64>; 3] {
    let slot = PERCPU_BASE + ((cpu.index() as u64) << SLOT_SHIFT);
    [
        STACK,
        FAULT_STACK,
        AREA..AREA + (size_of::<PerCpu>() as u64).next_multiple_of(4096),
    ]
    .map(|r| slot + r.start..slot + r.end)
}

/// Bytes of a CPU's area.
pub const AREA_BYTES: usize = size_of::<PerCpu>();

const _: () = assert!(
    AREA + size_of::<PerCpu>() as u64 + 4096 <= 1 << SLOT_SHIFT,
    "a per-CPU area must leave room for a guard page in its slot"
);

/// Lets the boot CPU find its early area. Called first of all.
pub fn use_early() {
    let at = &raw const EARLY as u64;
    EARLY.0.this.set(at);
    GsBase::write(VirtAddr::new(at));
}

/// Fills the area of a CPU in. Its slot must have been mapped; called once per CPU, by the boot
/// CPU, before that CPU uses it.
#[inline(never)]
pub fn init_area(cpu: CpuId) {
    let [stack, fault_stack, range] = mapped_ranges(cpu);
    let at = range.start as *mut PerCpu;
    // SAFETY: 1. `mmu::build` has mapped the range, which is page-aligned and large enough;
    // 2. nothing refers to it yet.
    let area: &'static PerCpu = unsafe {
        at.write(PerCpu::new(cpu));
        &*at
    };
    area.this.set(range.start);
    area.kernel_stack.set(stack.end);
    // SAFETY: 1. no other reference to the block's segments exists before the CPU loads them.
    let (tss, gdt) = unsafe { (&mut *area.tss.get(), &mut *area.gdt.get()) };
    tss.privilege_stack_table[0] = VirtAddr::new(stack.end);
    tss.interrupt_stack_table[FAULT_IST as usize] = VirtAddr::new(fault_stack.end);
    let base = area.tss.get() as u64;
    let limit = size_of::<TaskStateSegment>() as u64 - 1;
    *gdt = [
        0,
        0x00af_9b00_0000_ffff, // kernel code, 64 bits
        0x00cf_9300_0000_ffff, // kernel data
        0x00cf_f300_0000_ffff, // user data
        0x00af_fb00_0000_ffff, // user code, 64 bits
        // Available 64-bit task state segment. Its I/O bitmap lies beyond its limit: no port is
        // open to user mode.
        limit | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56,
        base >> 32,
    ];
}

/// Makes the area of `cpu` this CPU's, with its segments; returns the top of its kernel stack.
pub fn use_area(cpu: CpuId) -> u64 {
    let [stack, _, area] = mapped_ranges(cpu);
    // SAFETY: 1. `init_area` has filled it in; 2. it lives forever.
    let block: &'static PerCpu = unsafe { &*(area.start as *const PerCpu) };
    let pointer = DescriptorTablePointer {
        limit: (size_of::<[u64; 7]>() - 1) as u16,
        base: VirtAddr::from_ptr(block.gdt.get()),
    };
    // SAFETY: 1. the table has been filled in and lives forever; 2. the selectors name entries of
    // it of the right kind; 3. each CPU has its own task state segment, loaded once.
    unsafe {
        lgdt(&pointer);
        CS::set_reg(SegmentSelector(KERNEL_CODE));
        SS::set_reg(SegmentSelector(KERNEL_DATA));
        DS::set_reg(SegmentSelector(0));
        ES::set_reg(SegmentSelector(0));
        FS::set_reg(SegmentSelector(0));
        GS::set_reg(SegmentSelector(0));
        load_tss(SegmentSelector(TSS));
    }
    // There is no local descriptor table. At reset there is one, of 64 KiB at address 0, which `lar` and call gates of user
    // mode would look into; see Intel SDM volume 3, section 3.5.1.
    // SAFETY: 1. Selector 0 means that there is none. 2. No segment register holds a selector of that table.
    unsafe { core::arch::asm!("lldt {0:x}", in(reg) 0u32, options(nostack, preserves_flags)) };
    GsBase::write(VirtAddr::new(area.start));
    // What user mode has as its base of gs: nothing.
    KernelGsBase::write(VirtAddr::new(0));
    stack.end
}

/// The area of this CPU.
pub fn this() -> &'static PerCpu {
    let at: u64;
    // SAFETY: 1. in the kernel the base of gs is always the area of this CPU, whose first word is
    // its address.
    unsafe { asm!("mov {}, gs:[0]", out(reg) at, options(readonly, nostack, preserves_flags)) };
    // SAFETY: 1. it is initialised and lives forever; 2. only this CPU uses it.
    unsafe { &*(at as *const PerCpu) }
}

/// The state core keeps of this CPU.
pub fn local() -> &'static CpuLocal {
    &this().local
}

/// Sets the top of the kernel stack for entries from user mode; returns the previous one.
#[cfg(feature = "ktest")]
pub fn replace_kernel_stack(top: u64) -> u64 {
    this().kernel_stack.replace(top)
}

/// See [`dyad_machine::Platform::current_area`].
pub fn current_area() -> &'static RegArea {
    this().area.get()
}

/// Calls `each` with the return addresses of this CPU's kernel stacks, innermost first.
///
/// Follows the chain of frame records. The chain may be damaged (this is for panics): records
/// are read only where a stack of this CPU is mapped, and their number is bounded.
pub fn backtrace(each: &mut dyn FnMut(u64)) {
    const MOST: usize = 64;
    let [stack, fault_stack, _] = mapped_ranges(local().id());
    let readable = |at: u64| {
        let within = |r: &Range<u64>| at >= r.start && at < r.end - 15;
        at.is_multiple_of(8) && (within(&stack) || within(&fault_stack))
    };
    let mut frame: u64;
    // SAFETY: 1. reads a register.
    unsafe { asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags)) };
    for _ in 0..MOST {
        if !readable(frame) {
            break;
        }
        // SAFETY: 1. both words of the record lie in a stack of this CPU, which is mapped.
        let [next, ret] = unsafe { (frame as *const [u64; 2]).read() };
        if ret == 0 {
            break;
        }
        each(ret);
        frame = next;
    }
}
