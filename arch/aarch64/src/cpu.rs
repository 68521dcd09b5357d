//! Per-CPU areas and stacks.
//!
//! Every CPU has a slot in the per-CPU window, the same on every AArch64 node. What is not listed
//! is not mapped, so that a stack that runs over faults instead of destroying its neighbour.
//!
//! | offset in the slot | content |
//! |---|---|
//! | `0x0_1000 .. 0x2_1000` | kernel stack |
//! | `0x2_2000 .. 0x2_a000` | stack for exceptions in the kernel |
//! | `0x3_0000 ..` | [`PerCpu`] |
//!
//! `TPIDR_EL1` holds the address of the CPU's [`PerCpu`]; before the window exists, that of
//! [`EARLY`].

use core::cell::Cell;
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::AtomicU64;

use aarch64_cpu::registers::{Readable, TPIDR_EL1, Writeable};
use dyad_abi::CpuId;
use dyad_machine::cpu::CpuLocal;
use dyad_machine::platform::{REG_WORDS, RegArea};
use dyad_shm::PERCPU_BASE;

/// Distance between slots, as a power of two.
pub const SLOT_SHIFT: u32 = 18;
const STACK: Range<u64> = 0x1000..0x2_1000;
const FAULT_STACK: Range<u64> = 0x2_2000..0x2_a000;
const AREA: u64 = 0x3_0000;

/// Address of CPU 0's [`PerCpu`].
pub const AREAS: u64 = PERCPU_BASE + AREA;

/// Words the vectors use while they have no register free.
pub const SCRATCH_WORDS: usize = 3;

/// Data of a CPU, which it reaches through `TPIDR_EL1`. The fields before `timer`, and `local`, are used by
/// assembly.
#[repr(C)]
pub struct PerCpu {
    /// Top of the kernel stack.
    kernel_stack: Cell<u64>,
    /// Top of the stack for exceptions in the kernel.
    fault_stack: Cell<u64>,
    /// Exceptions taken in the kernel: the first is reported, a second one while reporting ends
    /// the machine.
    faults: Cell<u64>,
    scratch: [Cell<u64>; SCRATCH_WORDS],
    /// The register area of the thread resumed last.
    area: Cell<&'static RegArea>,
    /// Zeros, to load into registers that must be zero.
    zeros: [u64; 2],
    /// Deadline of this CPU's timer, in nanoseconds of `clock`.
    timer: Cell<Option<u64>>,
    local: CpuLocal,
}

/// Offset of the top of the kernel stack.
pub const OFFSET_KERNEL_STACK: usize = offset_of!(PerCpu, kernel_stack);
/// Offset of the top of the stack for exceptions in the kernel.
pub const OFFSET_FAULT_STACK: usize = offset_of!(PerCpu, fault_stack);
/// Offset of the count of exceptions in the kernel.
pub const OFFSET_FAULTS: usize = offset_of!(PerCpu, faults);
/// Offset of the scratch words.
pub const OFFSET_SCRATCH: usize = offset_of!(PerCpu, scratch);

/// Offset of the address of the current register area.
pub const OFFSET_AREA: usize = offset_of!(PerCpu, area);
/// Offset of two words of zeros.
pub const OFFSET_ZEROS: usize = offset_of!(PerCpu, zeros);
/// Offset of the state core keeps.
pub const OFFSET_LOCAL: usize = offset_of!(PerCpu, local);

/// The current area of CPUs that have resumed no thread yet. Nothing is ever saved here.
static NO_AREA: RegArea = RegArea([const { AtomicU64::new(0) }; REG_WORDS]);

impl PerCpu {
    const fn new(cpu: CpuId, kernel_stack: u64, fault_stack: u64) -> PerCpu {
        PerCpu {
            kernel_stack: Cell::new(kernel_stack),
            fault_stack: Cell::new(fault_stack),
            faults: Cell::new(0),
            scratch: [const { Cell::new(0) }; SCRATCH_WORDS],
            area: Cell::new(&NO_AREA),
            zeros: [0; 2],
            timer: Cell::new(None),
            local: CpuLocal::new(cpu),
        }
    }
}

/// The boot CPU's area until its slot is mapped; the entry code fills the stacks in.
#[repr(transparent)]
pub struct Early(PerCpu);

// SAFETY: 1. only the boot CPU refers to it, through its TPIDR_EL1.
unsafe impl Sync for Early {}

/// See [`Early`].
pub static EARLY: Early = Early(PerCpu::new(
    match CpuId::new(0) {
        Some(c) => c,
        None => unreachable!(),
    },
    0,
    0,
));

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

/// Initialises the area of a CPU. Its slot must have been mapped. The boot CPU calls it once for each CPU,
/// before that CPU uses the area. It is not inlined, because it builds the area on the stack, of which the
/// area takes a large part.
#[inline(never)]
pub fn init_area(cpu: CpuId) {
    let [stack, fault_stack, area] = mapped_ranges(cpu);
    // SAFETY: 1. `mmu::build` has mapped the range, which is page-aligned and large enough;
    // 2. nothing refers to it yet.
    unsafe { (area.start as *mut PerCpu).write(PerCpu::new(cpu, stack.end, fault_stack.end)) };
}

/// Makes the area of `cpu` this CPU's; returns the top of its kernel stack.
pub fn use_area(cpu: CpuId) -> u64 {
    let [stack, _, area] = mapped_ranges(cpu);
    TPIDR_EL1.set(area.start);
    stack.end
}

fn this() -> &'static PerCpu {
    // SAFETY: 1. the entry code has set TPIDR_EL1 to an initialised `PerCpu` before any compiled
    // code ran, and `use_area` to another; 2. both live forever; 3. only this CPU uses it.
    unsafe { &*(TPIDR_EL1.get() as *const PerCpu) }
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

/// Deadline of this CPU's timer; maintained by `clock`.
pub fn timer() -> &'static Cell<Option<u64>> {
    &this().timer
}

/// Calls `each` with the return addresses of this CPU's kernel stacks, innermost first.
///
/// Follows the chain of frame records. The chain may be damaged (this is for panics): records
/// are read only where a stack of this CPU is mapped, and their number is bounded.
pub fn backtrace(each: &mut dyn FnMut(u64)) {
    const MOST: usize = 64;
    let here = this();
    let readable = |at: u64| {
        let within = |top: u64, size: u64| at >= top.wrapping_sub(size) && at < top - 15;
        at.is_multiple_of(8)
            && (within(here.kernel_stack.get(), STACK.end - STACK.start)
                || within(here.fault_stack.get(), FAULT_STACK.end - FAULT_STACK.start))
    };
    let mut frame: u64;
    // SAFETY: 1. reads a register.
    unsafe {
        core::arch::asm!("mov {}, x29", out(reg) frame, options(nomem, nostack, preserves_flags));
    }
    for _ in 0..MOST {
        if !readable(frame) {
            break;
        }
        // SAFETY: 1. both words of the record lie in a stack of this CPU, which is mapped (the
        // boot stacks are smaller than, and follow one another in, the image).
        let [next, ret] = unsafe { (frame as *const [u64; 2]).read() };
        if ret == 0 {
            break;
        }
        each(ret);
        frame = next;
    }
}
