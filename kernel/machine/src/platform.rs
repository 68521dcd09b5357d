//! What the kernel requires of a machine. Implemented once per ISA, in `arch/*`.
//!
//! # How a CPU moves through the kernel
//!
//! ```text
//!             trap, interrupt                             resume_user(area)
//!   user ───────────────────────────────────▶ kernel ───────────────────────▶ user
//!            (arch code has saved every        │  ▲ ▲
//!             general register in the          │  │ │ complete_area(area)
//!             thread's register area)          ▼  │ │
//!                                             idle  │
//!             system call                           │         return
//!   user ───────────────────────────────────▶ fast_* ───────────────────────▶ user
//!            (arch code has saved what the
//!             C convention preserves)
//! ```
//!
//! After a system call the area is *partial*: program counter, stack pointer, flags and the
//! registers that the C convention preserves are in it. The functions `syscall`, `invoke_slowpath`
//! and `return_slowpath` of `dyad_core::syscall::entry` either return, and the arch code goes back to user
//! mode at once, or call [`Platform::complete_area`], which makes the area *full*, and end in
//! `resume_user` like any other trap. Only full areas can be resumed, dumped or handed on.
//!
//! The contents of registers in user mode after each of them:
//!
//! | left by | program counter, stack pointer, flags | thread pointer | status, value registers | results 1 to 3 | arguments 0 to 5 | preserved by C | other general registers |
//! |---|---|---|---|---|---|---|---|
//! | system call, returned | as at the call | as at the call | set | 0 | 0 | as at the call | 0 |
//! | `ENTER` from `invoke_slowpath`, [`Platform::set_arguments`] | area's, area's, none set | area's | - | - | set | 0 | 0 |
//! | `ENTER` from `return_slowpath`, [`Platform::set_results`] | area's, area's, none set | area's | set | set | - | 0 | 0 |
//! | [`Platform::enter_user`] | given, 0, none set | area's | - | - | set | 0 | 0 |
//! | [`Platform::set_result`] | area's | area's | set | 0 | 0 | area's | 0 |
//! | [`Platform::go_on`] | as at the trap | as at the trap | as at the trap | as at the trap | as at the trap | as at the trap | as at the trap |
//!
//! Registers that are in two columns hold the value that was set. A refused end of an invocation (word
//! [`RETURN`](dyad_abi::cap::RETURN)) preserves the program counter and the stack pointer only. On x86-64,
//! `rcx` and `r11` belong to the `syscall` instruction: after a fast return they hold program counter and
//! flags.
//!
//! Floating-point registers are not touched by any of them, but may be off afterwards: see
//! `dyad_core::sched::fp`.
//!
//! There is one kernel stack per CPU. Every entry from user mode starts at its top and ends in
//! [`Platform::resume_user`] or one of its shorter forms, which do not return. No kernel state lives on the
//! stack between two entries. The kernel runs with interrupts masked; only [`Platform::wait`] takes them.
//! The kernel does not touch floating-point registers.

use dyad_abi::emulation::FLOAT_WORDS;
use dyad_abi::marker::Marker;
use dyad_abi::{CpuId, Isa, NodeId};
use dyad_shm::superblock::ROOT_ENTRIES;
use dyad_shm::{FusedMap, PhysAddr};

use crate::cpu::CpuLocal;
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the caches that one piece of [`Platform::flush_caches`] drops.
pub const FLUSH_BYTES: u64 = 16 << 10;

pub use dyad_object::thread::{FP_WORDS, FpArea, REG_WORDS, RegArea};

/// The cause of a fault in user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Data read of `address`.
    Read,
    /// Data write to `address`.
    Write,
    /// Instruction fetch from `address`.
    Execute,
    /// An undefined or privileged instruction.
    Illegal,
    /// A breakpoint, debug or software-interrupt instruction.
    Breakpoint,
    /// An arithmetic or floating-point exception.
    Arithmetic,
    /// A misaligned access.
    Alignment,
    /// Anything else the ISA has.
    Other,
}

impl FaultKind {
    /// Whether the fault is an access to an address, where a page may be missing.
    pub const fn is_access(self) -> bool {
        matches!(
            self,
            FaultKind::Read | FaultKind::Write | FaultKind::Execute
        )
    }
}

/// A fault of a user thread.
#[derive(Clone, Copy, Debug)]
pub struct UserFault {
    /// The cause.
    pub kind: FaultKind,
    /// The address it happened at (for the three access kinds), else 0.
    pub address: u64,
    /// The ISA's own description: error code and vector, or syndrome register.
    pub raw: u64,
}

/// An interrupt, as far as the kernel distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// The doorbell of this CPU was rung.
    Doorbell,
    /// The deadline given to `set_timer` has passed.
    Timer,
    /// Any other interrupt; counted.
    Other(u32),
}

/// User code that exposes its registers, and the ISA's convention for them. Registers are numbered as for
/// [`Platform::read_register`].
#[cfg(feature = "ktest")]
pub struct UserProbe {
    /// Position-independent code; it starts with the stack pointer at a table of words:
    ///
    /// | words | content |
    /// |---|---|
    /// | 0 to 31 | registers to be loaded before the call |
    /// | 32 | flags to be set |
    /// | 64 to 95 | registers after it |
    /// | 96 | flags after it |
    /// | 97 | the word that the thread pointer, which is spoilt before the call, points at |
    ///
    /// The last word is stored only if the code has been entered at `entered`. Afterwards it makes
    /// the call `dyad_core::ktest::user_calls::DONE`.
    pub code: &'static [u8],
    /// Offset in the code where an invocation may start, or come back to.
    pub entered: u64,
    /// Offset in the code where a fault handler starts: the table is at argument 5, and there is no stack yet.
    pub handler: u64,
    /// Offset of code that uses floating-point registers. It starts like the other; see
    /// `dyad_core::ktest::user_calls::FpWords`.
    pub fp: u64,
    /// Offset of code that enters a component and uses floating-point registers, on a table at
    /// `dyad_core::ktest::user_calls::FP_TABLE`. It makes the call in the table, then returns 0.
    pub fp_entered: u64,
    /// Floating-point control words: the initial one, and two with other rounding modes.
    pub fp_control: [u64; 3],
    /// Flags to try, and those of them that are left after the slow path.
    pub flags: [u64; 2],
    /// Flags that user mode must not choose.
    pub forbidden_flags: u64,
    /// Values of the flags register with which the return to user mode would give it more than is its own: another
    /// exception level, masked interrupts, ports. The ones without a crash come first.
    pub raised_flags: &'static [u64],
    /// The flag by which user mode has each of its instructions trap; 0 if it has none.
    pub step_flag: u64,
    /// The words of a register area that hold program counter, flags and thread pointer.
    pub raw: [usize; 3],
    /// Whether the return instruction faults in the kernel if the program counter or the thread pointer is no user
    /// address.
    pub returns_to_user_addresses_only: bool,
    /// The instruction of a system call.
    pub trap: &'static [u8],
    /// Instructions that maintain the caches of the line at the address in [`arguments`](UserProbe::arguments)`[0]`, and
    /// whether user mode may execute them.
    pub cache_maintenance: &'static [(&'static [u8], bool)],
    /// Instructions that user mode may not execute: those by which only the machine itself enters the kernel, or firmware.
    pub privileged: &'static [&'static [u8]],
    /// The machine's own descriptions of faults ([`UserFault::raw`]), and what each of them is.
    pub faults: &'static [(u64, FaultKind)],
    /// The value of the flags register when no flag is set.
    pub no_flags: u64,
    /// Registers of the call word and arguments 0 to 4.
    pub call: [usize; 6],
    /// Argument registers 0 to 5 of the C convention.
    pub arguments: [usize; 6],
    /// Registers of the status and the four results.
    pub results: [usize; 5],
    /// Registers that a system call preserves, without the stack pointer.
    pub preserved: &'static [usize],
    /// The stack pointer.
    pub sp: usize,
    /// The frame pointer.
    pub frame: usize,
    /// General registers, the stack pointer among them.
    pub registers: usize,
    /// Registers that the trap instruction overwrites with unspecified contents.
    pub spent: &'static [usize],
}

/// Copies the used words of a register area of this machine.
#[inline(always)]
pub fn copy_used<P: Platform>(from: &RegArea, to: &RegArea) {
    let used = P::REG_WORDS_USED;
    for (f, t) in from.0[..used].iter().zip(&to.0[..used]) {
        t.store(f.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// A machine.
pub trait Platform: Sized + 'static {
    /// The instruction set of the machine.
    const ISA: Isa;
    /// The number of words of a register area that are used: the first ones.
    const REG_WORDS_USED: usize = REG_WORDS;

    // --- identity -------------------------------------------------------------------------

    /// The CPU this runs on.
    fn cpu() -> CpuId;
    /// State of this CPU. The reference is used on this CPU only, with interrupts masked.
    fn local() -> &'static CpuLocal;
    /// Identity of the kernel image (a hash over its text), equal on all nodes that run it.
    fn image_id() -> u64;

    // --- registers of user threads ----------------------------------------------------------

    /// The area that entries from user mode save into: that of the thread resumed last on this
    /// CPU.
    fn current_area() -> &'static RegArea;
    /// Makes the partial area of a system call full: `word` is the operation, `args` its
    /// arguments. Other registers become 0 if they have not been saved.
    fn complete_area(area: &RegArea, word: u64, args: [u64; 5]);
    /// Sets an area up so that resuming it calls `entry(arg)` by the C convention of the ISA, on
    /// an empty stack that ends at `stack_top`, with thread pointer `tp`, interrupts enabled.
    fn init_regs(area: &RegArea, entry: u64, stack_top: u64, arg: u64, tp: u64);
    /// Operation and arguments 0 to 4 of the system call an area has stopped at.
    fn syscall_args(area: &RegArea) -> [u64; 6];
    /// Sets status and value of the system call an area has stopped at; other registers that the
    /// C convention does not preserve become 0.
    fn set_result(area: &RegArea, status: u64, value: u64);
    /// Program counter and frame pointer of a stopped thread.
    fn user_pc_fp(area: &RegArea) -> (u64, u64);
    /// Program counter and stack pointer of a stopped thread; the area may be partial.
    fn user_pc_sp(area: &RegArea) -> (u64, u64);
    /// Sets program counter and stack pointer; the area may be partial. An address that is no user address
    /// becomes 0.
    fn set_user_pc_sp(area: &RegArea, pc: u64, sp: u64);
    /// Sets the frame pointer of a stopped thread.
    fn set_frame_pointer(area: &RegArea, fp: u64);
    /// Sets the program counter for the fast path of an invocation, and the stack pointer to 0: `pc` is a
    /// user address.
    fn set_entry(area: &RegArea, pc: u64);
    /// Sets program counter and stack pointer for a return by a fast path, to values that
    /// [`user_pc_sp`](Platform::user_pc_sp) has returned on any ISA.
    fn set_return(area: &RegArea, pc: u64, sp: u64);
    /// Sets the registers that an invocation starts with: argument registers 0 to 5; 0 in all other general
    /// registers, no flags. Program counter and stack pointer stay. The area is full afterwards.
    fn set_arguments(area: &RegArea, args: [u64; 6]);
    /// Sets the registers that an invocation returns with: status and four results; 0 in all other general
    /// registers, no flags. Program counter and stack pointer stay. The area is full afterwards.
    fn set_results(area: &RegArea, status: u64, results: [u64; 4]);
    /// The arguments and the result of a function: argument registers 0 to 5, and the register of its result.
    fn call_registers(area: &RegArea) -> ([u64; 6], u64);
    /// Copies the callee-saved registers, with the stack pointer and the return address, from a full or
    /// partial area to the place where they are kept while a call is under way.
    fn park(area: &RegArea, parked: &RegArea);
    /// Sets a thread up to continue at a [gate](dyad_abi::user::gate) with the parked registers, argument
    /// registers 0 to 5, and the address of a function in its register; 0 in all other general registers, no
    /// flags. The thread pointer stays. The area is full afterwards.
    fn set_at_gate(area: &RegArea, parked: &RegArea, pc: u64, args: [u64; 6], function: u64);
    /// Whether functions of this ISA preserve eight floating-point registers.
    const KEEPS_FP: bool;
    /// The arguments of a function in floating-point registers 0 to 7 (the first is also the result), and the
    /// eight callee-saved registers, if there are any.
    fn call_fp(area: &FpArea) -> ([u64; 8], [u64; 8]);
    /// Stores the values of [`call_fp`](Platform::call_fp) from the registers of this CPU, which are on.
    fn take_call_fp(args: &[AtomicU64; 8], kept: &[AtomicU64; 8]);
    /// Sets the floating-point registers of this CPU, which are on, to the initial state, except for those
    /// that are given.
    fn give_call_fp(args: Option<&[AtomicU64; 8]>, kept: Option<&[AtomicU64; 8]>);
    /// Sets an area to the initial state, except for these registers.
    fn set_call_fp(area: &FpArea, args: [u64; 8], kept: [u64; 8]);
    /// A register of a stopped thread, by its DWARF number in the ISA's psABI (x86-64: `rax rdx
    /// rcx rbx rsi rdi rbp rsp r8`..`r15`, 0 to 15; AArch64: `x0`..`x30 sp`, 0 to 31). Then
    /// follow program counter, flags, thread pointer. `None`: no such register.
    fn read_register(area: &RegArea, n: u64) -> Option<u64>;
    /// Sets a register, numbered as for `read_register`. Returns `false` if there is no such register. Values
    /// that user mode must not have are corrected: an address that is no user address becomes 0, flags are
    /// reduced to those that programs may set.
    fn write_register(area: &RegArea, n: u64, value: u64) -> bool;
    /// Calls `line` with one `name value` pair per register, for dumps.
    fn dump_regs(area: &RegArea, line: &mut dyn FnMut(&str, u64));
    /// Saves the floating-point registers of this CPU.
    fn save_fp(area: &FpArea);
    /// Loads the floating-point registers of this CPU.
    fn restore_fp(area: &FpArea);
    /// Puts the initial state into the floating-point registers of this CPU: zeros, round to
    /// nearest, no traps, no flushing of subnormal numbers.
    fn reset_fp();
    /// The contents of an area of floating-point registers: control, status, then the vector registers, in
    /// the order of [`Registers`](dyad_abi::emulation::Registers); zeros beyond the last register.
    fn unload_fp(area: &FpArea) -> [u64; FLOAT_WORDS];
    /// Fills an area from words in the format of [`unload_fp`](Platform::unload_fp). Control bits that user
    /// mode must not have are cleared: traps, and bits that do not exist.
    fn load_fp(area: &FpArea, words: &[u64; FLOAT_WORDS]);
    /// Allows user mode to use floating-point registers on this CPU.
    fn fp_on();
    /// Forbids it: the first instruction that uses them traps, and arch code calls
    /// `dyad_core::syscall::entry::fp_wanted`. CPUs start in this state.
    fn fp_off();
    /// Continues a thread in user mode; its area must be full. Entries from user mode save into
    /// this area until another is resumed.
    fn resume_user(area: &'static RegArea) -> !;
    /// Continues the running thread where a trap other than a system call has interrupted it. Its area is
    /// what that trap has saved, and no other thread has run since.
    fn go_on(area: &'static RegArea) -> !;
    /// Does the work of [`set_arguments`](Platform::set_arguments),
    /// [`set_user_pc_sp`](Platform::set_user_pc_sp) with a stack pointer of 0, and
    /// [`resume_user`](Platform::resume_user), for the running thread after a trap other than a system call.
    /// Values that end up in registers need not pass through the area.
    fn enter_user(area: &'static RegArea, pc: u64, args: [u64; 6]) -> !;

    // --- memory ---------------------------------------------------------------------------

    /// Makes `root` the user half of this CPU's address space, and removes all effects of older roots'
    /// translations. The kernel half does not change.
    fn switch_root(root: PhysAddr);
    /// A root with an empty user half, for CPUs that run no thread.
    fn idle_root() -> PhysAddr;
    /// Drops all user translations of this CPU.
    fn flush_tlb();
    /// Writes back and drops piece number `piece` of everything that this machine's caches hold, at most
    /// [`FLUSH_BYTES`] or one instruction. Returns `true` for the last piece. Only where caches are not
    /// coherent.
    fn flush_caches(piece: u64) -> bool;
    /// Makes instructions that this CPU has just written (through the fused map) visible to its
    /// own instruction fetches.
    fn sync_code(map: &FusedMap, pa: PhysAddr, len: u64);
    /// Fills the frame at `pa` with zeros by the fastest means. Returns `false`, and writes nothing, if it is
    /// not a frame of a pool.
    #[must_use]
    fn zero_frame(map: &FusedMap, pa: PhysAddr) -> bool;
    /// Entries of the kernel half in the root slots `dyad_shm::superblock::ROOT_SLOTS`. All zero
    /// if the ISA keeps its kernel half out of user roots.
    fn root_entries() -> [u64; ROOT_ENTRIES];

    // --- time, interrupts -------------------------------------------------------------------

    /// Nanoseconds by this machine's own clock; monotonic on each CPU, equal on all its CPUs.
    fn clock_ns() -> u64;
    /// Interrupts this CPU once when `clock_ns` reaches the deadline (at once if it has);
    /// replaces the deadline set before. `None`: no interrupt.
    fn set_timer(deadline: Option<u64>);
    /// Sleeps until an interrupt is pending, takes it (and any others pending) by calling
    /// [`CpuLocal::note_interrupt`], returns with interrupts masked. An interrupt that became
    /// pending before the call ends the wait at once.
    fn wait();
    /// Takes interrupts that are pending, without waiting.
    fn poll_interrupts();

    /// Takes interrupts that have come, and notes them, like [`poll_interrupts`](Platform::poll_interrupts).
    /// The simulator counts the stretches with interrupts masked before and after this call separately. The
    /// run loop serves the interrupts.
    fn breathe() {
        Self::mark::<{ Marker::WAITS.word() }>();
        Self::poll_interrupts();
        Self::mark::<{ Marker::WORKS.word() }>();
    }
    /// Calls [`breathe`](Platform::breathe) within an operation. An operation can end in user mode without
    /// the run loop, which serves interrupts and sets the timer. If an interrupt has come, the timer
    /// therefore interrupts user mode at once.
    fn breathe_within(local: &CpuLocal) {
        let before = local.interrupts();
        Self::breathe();
        if local.interrupts() != before && !lacks!("platform::breathe_within::timer") {
            Self::set_timer(Some(Self::clock_ns()));
            local.timer_at.set(CpuLocal::AT_ONCE);
        }
    }
    /// A short pause in a polling loop.
    fn relax();
    /// A marker for the simulator, given by its [word](dyad_abi::marker::Marker::word): an
    /// instruction without effect.
    fn mark<const WORD: u32>();
    /// Rings the doorbell of a CPU, whose machine has doorbell identifier `peer`.
    fn ring(to: NodeId, cpu: CpuId, peer: u64);
    /// Doorbell identifier of this machine.
    fn doorbell_id() -> u64;

    // --- tests ------------------------------------------------------------------------------

    /// Maps the frame at `pa` executable in the kernel's test window and calls it.
    #[cfg(feature = "ktest")]
    fn call_code(pa: PhysAddr) -> Option<u64>;
    /// Instructions of the ISA that return `n`, as little-endian words.
    #[cfg(feature = "ktest")]
    fn code_returning(n: u8) -> [u64; 2];
    /// User code for tests of system calls.
    #[cfg(feature = "ktest")]
    fn user_probe() -> UserProbe;
    /// Resumes an area; returns when a system call calls `leave_user`.
    #[cfg(feature = "ktest")]
    fn run_user(area: &'static RegArea);
    /// Returns to the caller of `run_user`.
    #[cfg(feature = "ktest")]
    fn leave_user() -> !;
    /// What arch code makes of its own description of a fault ([`UserFault::raw`]).
    #[cfg(feature = "ktest")]
    fn fault_kind(raw: u64) -> FaultKind;
    /// Whether the flags that protect the kernel are set as they must be, and no user flags are.
    #[cfg(feature = "ktest")]
    fn kernel_flags_are_right() -> bool;
    /// Calls `f` for every leaf of the kernel half of the address space.
    #[cfg(feature = "ktest")]
    fn kernel_leaves(f: &mut dyn FnMut(u64, dyad_pgtbl::Level, dyad_pgtbl::Leaf));

    // --- life -----------------------------------------------------------------------------

    /// Writes bytes to the serial line. Callers keep lines whole.
    fn serial_write(bytes: &[u8]);
    /// Starts another CPU of this machine, which will enter the kernel as `dyad_boot::secondary`.
    fn start_cpu(cpu: CpuId) -> Result<(), &'static str>;
    /// Return addresses of the kernel stack, innermost first.
    fn backtrace(each: &mut dyn FnMut(u64));
    /// Ends the machine.
    fn exit(code: u32) -> !;
}
