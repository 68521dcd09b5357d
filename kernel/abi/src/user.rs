//! The user half of the address space and the structures that cross the system-call boundary.
//!
//! One address space looks the same on every ISA: only pages of program text and of constant
//! pools have different contents per ISA at the same address.
//!
//! | addresses | content |
//! |---|---|
//! | `0x4100_0000 ..` | program text, one alias per ISA |
//! | [`only_window`] | text of functions of one ISA, and the places that mean them from the other one |
//! | `0x4800_0000 ..` | per-ISA constants, one alias per ISA |
//! | `0x5000_0000 ..` | shared read-only data, data, bss |
//! | [`TCB_BASE`]` ..` | thread control blocks |
//! | [`HEAP_BASE`]`..`[`INCOHERENT_BASE`] | memory from `MapAnon` |
//! | [`INCOHERENT_BASE`]`..`[`HEAP_END`] | the same, whose caches the program does not count on to be coherent |
//! | [`data_stack`] | data stacks, one per thread, the same on every ISA |
//! | [`stack_slot`] | native stacks, one per thread and ISA |

pub mod waiting;

use crate::{CpuId, Isa, NodeId};

/// Page and frame size, the same on both ISAs.
pub const PAGE_SIZE: u64 = 4096;
/// First address a program may use.
pub const USER_MIN: u64 = 0x0001_0000;
/// One past the last user address (the lower half of a 48-bit, sign-extended address space).
pub const USER_END: u64 = 0x0000_8000_0000_0000;

/// The address where program text is linked, on both ISAs.
pub const TEXT_BASE: u64 = 0x4100_0000;
/// The address where functions are linked that belong to one ISA; see [`only_window`].
pub const ONLY_BASE: u64 = 0x4700_0000;
/// Bytes of each ISA's window, with its [`gate::AWAY`] half.
pub const ONLY_SIZE: u64 = 0x0080_0000;
/// The address where per-ISA constants (jump tables, constant pools) are linked.
pub const ISA_RO_BASE: u64 = 0x4800_0000;
/// The address where shared constants, data and bss are linked.
pub const SHARED_BASE: u64 = 0x5000_0000;
/// One past the last address a bundle may occupy.
pub const IMAGE_END: u64 = 0xF000_0000;

/// Thread control blocks: one page per thread.
pub const TCB_BASE: u64 = 0x1_0000_0000;
/// Start of the addresses that `MapAnon` hands out.
pub const HEAP_BASE: u64 = 0x10_0000_0000;
/// Start of the addresses for memory whose lines the program writes back and drops by itself. To kernels it is memory as any other. The
/// simulator, without coherent caches, does not keep caches of it coherent.
pub const INCOHERENT_BASE: u64 = 0x0800_0000_0000;
/// End of the addresses that `MapAnon` hands out.
pub const HEAP_END: u64 = 0x1000_0000_0000;

/// Most threads a program can have at a time, its first included.
pub const MAX_PROGRAM_THREADS: u64 = 64;

/// Size of a native stack, without its guard.
pub const STACK_SIZE: u64 = 1 << 20;
/// Distance between stack slots; the rest of each slot is guard.
pub const STACK_STRIDE: u64 = 1 << 24;
const STACKS_BASE: u64 = 0x7000_0000_0000;
const STACKS_PER_ISA: u64 = 0x0100_0000_0000;

/// Address range `(bottom, top)` of the native stack of `thread` on `isa`.
pub const fn stack_slot(isa: Isa, thread: u32) -> (u64, u64) {
    let slot = STACKS_BASE + isa as u64 * STACKS_PER_ISA + thread as u64 * STACK_STRIDE;
    let top = slot + STACK_STRIDE;
    (top - STACK_SIZE, top)
}

/// Start of the data stacks.
pub const DATA_STACKS_BASE: u64 = 0x6800_0000_0000;
/// Size of a data stack, without its guard.
pub const DATA_STACK_SIZE: u64 = 1 << 20;
/// Distance between data stacks; the rest of each stride is guard.
pub const DATA_STACK_STRIDE: u64 = 1 << 24;

/// Address range `(bottom, top)` of the data stack of `thread`, the same on every ISA.
pub const fn data_stack(thread: u32) -> (u64, u64) {
    let top = DATA_STACKS_BASE + (thread as u64 + 1) * DATA_STACK_STRIDE;
    (top - DATA_STACK_SIZE, top)
}

/// Id of the thread in one of whose stacks, native or for data, an address lies.
///
/// Locks and statics of threads ask this at each use: regions of stacks begin at multiples of their size, and slots of
/// both kinds have one size.
pub const fn thread_at(address: u64) -> Option<u32> {
    const REGION: u32 = STACKS_PER_ISA.ilog2();
    const SLOT: u32 = STACK_STRIDE.ilog2();
    const {
        assert!(DATA_STACK_STRIDE == STACK_STRIDE && USER_END.is_multiple_of(STACKS_PER_ISA));
        assert!(DATA_STACKS_BASE.is_multiple_of(STACKS_PER_ISA));
        assert!(STACKS_BASE.is_multiple_of(STACKS_PER_ISA));
    }
    let region = address >> REGION;
    let is_native = region >= STACKS_BASE >> REGION && region < USER_END >> REGION;
    if !is_native && region != DATA_STACKS_BASE >> REGION {
        return None;
    }
    Some((address >> SLOT) as u32 & ((1 << (REGION - SLOT)) - 1))
}

/// A stack of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// The data stack, which is the same on every ISA.
    Data,
    /// The native stack of an ISA.
    Native(Isa),
}

/// The stack of `thread` that has overflowed, if `address` is in its guard: between that stack and the slot
/// below.
pub fn run_over(thread: u32, address: u64) -> Option<Stack> {
    let natives = Isa::ALL.map(|isa| (Stack::Native(isa), stack_slot(isa, thread), STACK_STRIDE));
    natives
        .into_iter()
        .chain([(Stack::Data, data_stack(thread), DATA_STACK_STRIDE)])
        .find(|&(_, (bottom, top), stride)| (top - stride..bottom).contains(&address))
        .map(|(stack, ..)| stack)
}

/// Address range `[start, end)` of the functions of `isa`. On the other ISA such a function begins with code
/// that decides where it runs. It runs locally if the thread's [`Tcb::local`] says so; otherwise it jumps to
/// the function's place in [`away_window`].
pub const fn only_window(isa: Isa) -> (u64, u64) {
    let start = ONLY_BASE + isa as u64 * ONLY_SIZE;
    (start, start + gate::AWAY)
}

/// Address range `[start, end)` in which there is nothing, as far from [`only_window`] as [`gate::AWAY`]. A
/// thread of the other ISA that jumps into the range crosses to a node of `isa`, calls the function that the
/// address stands for, and returns with the result.
pub const fn away_window(isa: Isa) -> (u64, u64) {
    let (_, start) = only_window(isa);
    (start, ONLY_BASE + (isa as u64 + 1) * ONLY_SIZE)
}

/// Places at the start of each [`only_window`], at which kernels have threads go on that cross. What
/// programs have there is of the window's ISA; functions begin behind them.
pub mod gate {
    /// Distance from a function to its place in the away window of the other ISA.
    pub const AWAY: u64 = super::ONLY_SIZE / 2;
    /// A call has come: calls the function whose address is in its register (`r11`, `x16`), with unchanged
    /// arguments, then jumps to [`RETURN`] in the window of the other ISA.
    pub const ENTER: u64 = 0;
    /// A call has come back: returns the first argument.
    pub const BACK: u64 = 0x40;
    /// A call will not come back; the first argument is the error.
    pub const LOST: u64 = 0x80;
    /// An unmapped address in the [`away_window`](super::away_window): a thread that jumps there, on the
    /// other ISA, returns the value that it would return from a function.
    pub const RETURN: u64 = AWAY + 0x1f0;
    /// The offset of the first function.
    pub const FIRST: u64 = 0x200;
}

/// Word of [`Tcb::migrate`] for a caller on an ISA that handles lost calls itself: the stack pointer at which
/// the called function begins.
pub const fn tcb_crossing(isa: Isa) -> usize {
    3 + isa as usize
}

/// Address of the thread control block of `thread`.
pub const fn tcb_address(thread: u32) -> u64 {
    TCB_BASE + thread as u64 * PAGE_SIZE
}

/// Most bytes one `Write` takes.
pub const MAX_WRITE: usize = 256;
/// Longest name in a report.
pub const MAX_REPORT_NAME: usize = 64;
/// Longest detail text in a report.
pub const MAX_REPORT_DETAIL: usize = 256;

/// The divisor for the last part (a quarter) of the first run of a supply with several runs. That part is for
/// page tables only.
pub const TABLES_PART: u64 = 4;
/// A bit in the kind of a fault, as a fault handler gets it: the supply has no frame for the page. The
/// handler may add to the supply and let the thread try again.
pub const FAULT_NO_MEMORY: u64 = 1 << 8;
/// Beside [`FAULT_NO_MEMORY`], from this bit on: 1 and the number of the node whose supply it is, in four
/// bits.
pub const FAULT_SUPPLY_SHIFT: u32 = 9;
/// From this bit of the kind of a fault on, in eight bits: the code of the [`Error`](crate::Error) because of which an
/// instruction fetch from an [`away_window`] was no crossing call; 0 in all other faults.
pub const FAULT_CROSSING_SHIFT: u32 = 16;
/// Most crossing calls of a thread within each other, in both directions together.
pub const MAX_CROSSINGS: u64 = 256;
/// A bit in the value of `Translate`: the page is writable.
pub const TRANSLATE_WRITE: u64 = 1 << 62;
/// A bit in the value of `Translate`: the page is executable.
pub const TRANSLATE_EXEC: u64 = 1 << 61;
/// The bits of the physical address in the value of `Translate`.
pub const TRANSLATE_PA: u64 = (1 << 52) - 1;

/// The start of a thread control block. The thread pointer (`fs` base, `TPIDR_EL0`) holds its
/// address, which is the same on every ISA. There is no ELF TLS.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Tcb {
    /// The address of this control block, so that it can be read through the thread pointer on x86-64.
    pub this: u64,
    /// Id of the thread, unique in the system ([`thread_id`](crate::service::thread_id)).
    pub thread: u64,
    /// Top of the data stack; 0 when the thread has none.
    pub data_sp: u64,
    /// Words of migration ([`request`], [`migrate_word`]) and crossing calls ([`tcb_crossing`]); zero at the
    /// start.
    pub migrate: [u64; 7],
    /// Slots the user runtime may use as it likes.
    pub slots: [u64; 20],
    /// What the thread waits for ([`waiting`]); 0: nothing.
    pub waiting: u64,
    /// 0: calls of functions of the other ISA ([`only_window`]) cross. Anything else: they run on the ISA
    /// the thread is on. Read by the first instructions of such functions.
    pub local: u64,
}

/// The word of a thread control block by which a thread is asked to move to another node: 0, or the node's
/// number plus one.
///
/// Any thread that can reach the word may write it. The thread that is asked takes the request (exchanges
/// it for 0) at its next migration point and moves, so the word is 0 before the thread arrives. The word
/// is not ordered with other words.
pub mod request {
    use crate::NodeId;

    /// No request.
    pub const NONE: u64 = 0;
    /// The offset of the request in the thread control block.
    pub const OFFSET: u64 = core::mem::offset_of!(super::Tcb, migrate) as u64;

    /// The address of the request of a thread.
    pub const fn address(thread: u32) -> u64 {
        super::tcb_address(thread) + OFFSET
    }

    /// The word that asks for a node.
    pub const fn word(node: NodeId) -> u64 {
        node.index() as u64 + 1
    }

    /// The node that a word asks for; `None` if it asks for nothing that there is.
    pub const fn node(word: u64) -> Option<NodeId> {
        NodeId::new(word.wrapping_sub(1))
    }
}

/// The word that says which threads of a program have been lost with nodes that died: bit by number in the program.
///
/// It is the last word of the page of the first thread's control block. The process service sets a bit when it finds
/// that the thread has been lost, and then wakes all other threads of the program; no bit is cleared again. Programs
/// read the word, so asking whether a thread is lost costs one load. It carries nothing but itself: no order with other
/// words.
pub mod losses {
    /// The address of the word, in the program whose first thread is `first`.
    pub const fn address(first: u32) -> u64 {
        super::tcb_address(first) + super::PAGE_SIZE - 8
    }
}

/// Meaning of the words [`Tcb::migrate`] of threads that change their ISA inside of plain functions.
pub mod migrate_word {
    /// The requested node for the thread's next migration point: 0, or 1 and the number of the node. Any
    /// thread with access to the program's memory may store it; the thread itself clears it.
    pub const REQUEST: usize = 0;
    /// The result of the last migration: 0, or the code of an [`Error`](crate::Error).
    pub const RESULT: usize = 2;
    /// Not 0: the pages of the program that the node has go before the thread, at its next migration over kernels that
    /// exchange messages. The thread itself stores and clears it.
    pub const WITH_PAGES: usize = 6;
}

/// One node as user programs see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NodeInfo {
    /// [`Isa`] index.
    pub isa: u32,
    /// Number of CPUs.
    pub cpus: u32,
    /// 1 if the node is live.
    pub live: u32,
    /// How often this node has joined.
    pub incarnation: u32,
    /// Start of its pool, physical.
    pub pool_base: u64,
    /// Size of its pool in bytes.
    pub pool_size: u64,
}

/// The structure that `SysInfo` copies out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SysInfo {
    /// [`ABI_VERSION`](crate::ABI_VERSION) of the kernel.
    pub abi_version: u32,
    /// Number of nodes in `nodes` that exist.
    pub node_count: u32,
    /// Start of the CXL pool, physical.
    pub cxl_base: u64,
    /// Size of the CXL pool in bytes.
    pub cxl_size: u64,
    /// The nodes.
    pub nodes: [NodeInfo; crate::ident::MAX_NODES],
}

/// The place where a thread runs; packed into one word for `Where`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Where {
    /// The node.
    pub node: NodeId,
    /// The CPU within the node.
    pub cpu: CpuId,
    /// The instruction set of the node.
    pub isa: Isa,
}

impl Where {
    /// Packs: node in bits 0..8, CPU in bits 8..16, ISA in bits 16..24.
    pub const fn pack(self) -> u64 {
        self.node.index() as u64 | (self.cpu.index() as u64) << 8 | (self.isa as u64) << 16
    }

    /// Undoes [`Where::pack`].
    pub const fn unpack(v: u64) -> Option<Where> {
        match (
            NodeId::new(v & 0xff),
            CpuId::new(v >> 8 & 0xff),
            Isa::from_index(v >> 16),
        ) {
            (Some(node), Some(cpu), Some(isa)) => Some(Where { node, cpu, isa }),
            _ => None,
        }
    }
}

/// The subject of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum ReportKind {
    /// A check: `value` is 1 if it passed, 0 if it failed.
    Check = 0,
    /// A counter: `value` is added to the run's counter of that name.
    Counter = 1,
}

impl ReportKind {
    /// The kind with this number.
    pub const fn from_number(n: u64) -> Option<ReportKind> {
        match n {
            0 => Some(ReportKind::Check),
            1 => Some(ReportKind::Counter),
            _ => None,
        }
    }

    /// The first word of [`ReportArgs`]: a report of this kind which a program has made; 0: the caller itself.
    pub const fn word(self, program: u64) -> u64 {
        self as u64 | program << 8
    }

    /// Decodes the word of a report's kind and program.
    pub const fn from_word(word: u64) -> Option<(ReportKind, u64)> {
        match ReportKind::from_number(word & 0xff) {
            Some(kind) if word >> 8 < crate::service::program::MAX => Some((kind, word >> 8)),
            _ => None,
        }
    }
}

/// Argument of the `Report` system call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ReportArgs {
    /// A [`ReportKind`], and the program that has made the report: [`ReportKind::word`].
    pub kind: u64,
    /// Check: 1 or 0. Counter: the number to add.
    pub value: u64,
    /// Name: address of UTF-8 text.
    pub name: u64,
    /// Length of the name, at most [`MAX_REPORT_NAME`].
    pub name_len: u64,
    /// Detail: address of UTF-8 text.
    pub detail: u64,
    /// Length of the detail, at most [`MAX_REPORT_DETAIL`].
    pub detail_len: u64,
}

const _: () = {
    assert!(size_of::<Tcb>() == 256 && align_of::<Tcb>() == 8);
    assert!(losses::address(0) - tcb_address(0) >= size_of::<Tcb>() as u64);
    assert!(size_of::<NodeInfo>() == 32 && align_of::<NodeInfo>() == 8);
    assert!(size_of::<SysInfo>() == 24 + 32 * crate::ident::MAX_NODES);
    assert!(size_of::<ReportArgs>() == 48);
    assert!(data_stack(4095).1 <= stack_slot(Isa::X86_64, 0).0);
    assert!(
        crate::service::invoke_stack(crate::service::MAX_THREAD_IDS << 8).1 <= DATA_STACKS_BASE
    );
    assert!(away_window(Isa::Aarch64).1 == ISA_RO_BASE && TEXT_BASE < ONLY_BASE);
    assert!(away_window(Isa::X86_64).1 == only_window(Isa::Aarch64).0);
    assert!(stack_slot(Isa::X86_64, 4095).1 <= stack_slot(Isa::Aarch64, 0).0);
    assert!(stack_slot(Isa::Aarch64, 4095).1 <= USER_END);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_say_which_program_has_made_them() {
        for kind in [ReportKind::Check, ReportKind::Counter] {
            for program in [0, 8, crate::service::program::MAX - 1] {
                let word = kind.word(program);
                assert_eq!(ReportKind::from_word(word), Some((kind, program)));
            }
            // The caller itself.
            assert_eq!(kind.word(0), kind as u64);
        }
        for none in [
            2,
            0xff,
            8 << 8 | 2,
            crate::service::program::MAX << 8,
            u64::MAX,
        ] {
            assert_eq!(ReportKind::from_word(none), None, "{none:#x}");
        }
    }

    #[test]
    fn where_round_trips() {
        for isa in Isa::ALL {
            for node in NodeId::first(8) {
                for cpu in CpuId::first(8) {
                    let w = Where { node, cpu, isa };
                    assert_eq!(Where::unpack(w.pack()), Some(w));
                }
            }
        }
        assert_eq!(Where::unpack(8), None);
        assert_eq!(Where::unpack(2 << 16), None);
    }

    #[test]
    fn requests_name_nodes() {
        for node in NodeId::first(crate::ident::MAX_NODES) {
            assert_eq!(request::node(request::word(node)), Some(node));
        }
        for word in [request::NONE, crate::ident::MAX_NODES as u64 + 1, u64::MAX] {
            assert_eq!(request::node(word), None);
        }
        assert_eq!(request::address(2), tcb_address(2) + 24);
    }

    #[test]
    fn stacks_have_guards_on_both_sides() {
        for isa in Isa::ALL {
            let (_, top0) = stack_slot(isa, 0);
            let (bottom1, _) = stack_slot(isa, 1);
            assert!(bottom1 - top0 >= STACK_STRIDE - STACK_SIZE);
        }
        assert!(data_stack(1).0 - data_stack(0).1 >= DATA_STACK_STRIDE - DATA_STACK_SIZE);
        assert!(data_stack(0).0 > DATA_STACKS_BASE);
    }

    #[test]
    fn stacks_run_over_into_their_own_guards() {
        for thread in [0, 1, 67, 4095] {
            let natives = Isa::ALL.map(|isa| (Stack::Native(isa), stack_slot(isa, thread)));
            for (stack, (bottom, top)) in natives
                .into_iter()
                .chain([(Stack::Data, data_stack(thread))])
            {
                for below in [1, 8, PAGE_SIZE, STACK_STRIDE - STACK_SIZE] {
                    assert_eq!(run_over(thread, bottom - below), Some(stack));
                    assert_eq!(run_over(thread + 1, bottom - below), None);
                }
                for inside in [bottom, top - 1, top, top - STACK_STRIDE - 1] {
                    assert_eq!(run_over(thread, inside), None);
                }
            }
        }
        assert_eq!(run_over(0, 0), None);
        assert_eq!(run_over(0, u64::MAX), None);
    }

    #[test]
    fn threads_are_known_by_their_stacks() {
        for thread in [0, 1, 64, 511, 4095] {
            let stacks = Isa::ALL.map(|isa| stack_slot(isa, thread));
            for (bottom, top) in stacks.into_iter().chain([data_stack(thread)]) {
                assert_eq!(thread_at(bottom), Some(thread));
                assert_eq!(thread_at(top - 1), Some(thread));
            }
        }
        let (bottom, top) = crate::service::invoke_stack(64 << 8 | 1);
        for address in [0, TEXT_BASE, HEAP_BASE, bottom, top - 1, USER_END] {
            assert_eq!(thread_at(address), None);
        }
    }
}
