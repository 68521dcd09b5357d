//! The interface between the user-level system and programs: well-known capability slots, the info page, the
//! protocols of the services. The kernel uses only the part that it needs to start `init`.

pub mod peer;
mod served;

use crate::cap::CapIndex;
use crate::ident::{MAX_CPUS, MAX_NODES};
use crate::user::{MAX_PROGRAM_THREADS, PAGE_SIZE, SysInfo};

pub use served::{GUESTS, INIT_THREADS, SERVED, SERVED_BY_INIT, Served};

/// Well-known slots of init, some of which other programs have too. With [`Grant::All`] the program has them
/// all.
pub mod slot {
    use super::{CapIndex, MAX_NODES};
    use crate::NodeId;
    use crate::cap::{LEAF_SLOTS, ROOT_ENTRIES};

    /// The program's own capability table (init only).
    pub const TABLE: CapIndex = CapIndex(1);
    /// Its address space (init: all rights; the program: translate; services: not at all).
    pub const SPACE: CapIndex = CapIndex(2);
    /// Its component (init only).
    pub const COMPONENT: CapIndex = CapIndex(3);
    /// Its first thread (init: all rights; the program: migrate, yield, exit; services: not here).
    pub const THREAD: CapIndex = CapIndex(4);
    /// Endpoints to wait at (init: all rights; others: receive only; console and pager: none).
    pub const ENDPOINT: CapIndex = CapIndex(5);
    /// Processor time that does not run out (init only).
    pub const TIME: CapIndex = CapIndex(6);
    /// Thread ids (init: all of them).
    pub const THREAD_IDS: CapIndex = CapIndex(7);
    /// The hardware of node `n` (init: all rights; others: now, where, node state; of services, the
    /// console may also write and report on its node, `quiesced` drive rounds).
    pub const fn hardware(n: NodeId) -> CapIndex {
        CapIndex(8 + n.index() as u32)
    }
    /// Memory of pool `p`, by pool index (init only).
    pub const fn memory(pool: usize) -> CapIndex {
        assert!(pool <= MAX_NODES);
        CapIndex(16 + pool as u32)
    }
    /// Invokes the console service.
    pub const CONSOLE: CapIndex = CapIndex(33);
    /// Invokes the pager.
    pub const PAGER: CapIndex = CapIndex(34);
    /// Invokes the process service of init.
    pub const PROCESS: CapIndex = CapIndex(35);
    /// The first slot that has no fixed meaning: a root entry of its own, so that a program can be
    /// given leaves without touching the well-known ones.
    pub const FIRST_FREE: CapIndex = CapIndex(64);
    /// One past the last of them.
    pub const END_FREE: CapIndex = CapIndex((ROOT_ENTRIES - 2) * LEAF_SLOTS);

    /// Thread `n` of the program, which alone can use it: migrate, yield, exit. Of `n` other than 0
    /// in the last root entry.
    pub const fn thread(n: u64) -> CapIndex {
        match n {
            0 => THREAD,
            _ => CapIndex(END_FREE.0 + LEAF_SLOTS + n as u32 % LEAF_SLOTS),
        }
    }
    /// Wakes thread `n` of the program: sends to line `n` of [`ENDPOINT`], where it waits. In the
    /// last root entry but one.
    pub const fn wake(n: u64) -> CapIndex {
        CapIndex(END_FREE.0 + n as u32 % LEAF_SLOTS)
    }
}

/// Address of the info page, read-only, in every program.
pub const INFO_BASE: u64 = 0x1_8000_0000;
/// Address of the standard input of the run's program, read-only; [`Info::input_len`] bytes.
pub const INPUT_BASE: u64 = 0x1_A000_0000;
/// Most bytes of standard input.
pub const MAX_INPUT: u64 = 1 << 20;
/// Start of the text buffer that a program shares with the console: one page per thread.
pub const CONSOLE_BUFFER: u64 = 0x1_9000_0000;
/// Threads with a buffer page: all that a program can have.
pub const CONSOLE_THREADS: u64 = MAX_PROGRAM_THREADS;
/// The address of the archive, which the kernel maps read-only in init's space.
pub const ARCHIVE_BASE: u64 = 0x8_0000_0000;
/// The address of the pages of [`ask`](crate::ask), which the kernel maps in init's space: requests,
/// read-only, then answers.
pub const ASK_BASE: u64 = 0x1_C000_0000;
/// Stacks of invocations: one slot for each `token` (`thread id << 8 | depth`).
pub const INVOKE_STACKS: u64 = 0x6000_0000_0000;
/// Distance between invocation stacks.
pub const INVOKE_STACK_STRIDE: u64 = 1 << 18;
/// Size of an invocation stack; the rest of the stride is guard.
pub const INVOKE_STACK_SIZE: u64 = 1 << 16;
/// Entries of a thread's invocation stack.
pub const INVOKE_DEPTH: usize = 16;

/// Address range `(bottom, top)` of the stack of an invocation. The same on every ISA: a thread
/// runs an invocation on one ISA from its start to its end.
pub const fn invoke_stack(token: u64) -> (u64, u64) {
    let top = INVOKE_STACKS + (token + 1) * INVOKE_STACK_STRIDE;
    (top - INVOKE_STACK_SIZE, top)
}

/// Longest argument text.
pub const MAX_ARGS: usize = 2048;

/// "DYADINFO", little-endian.
pub const INFO_MAGIC: u64 = u64::from_le_bytes(*b"DYADINFO");

/// The info page.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Info {
    /// [`INFO_MAGIC`].
    pub magic: u64,
    /// Length of the archive (init only).
    pub archive_len: u64,
    /// Length of the argument text.
    pub args_len: u64,
    /// CPUs per node.
    pub cpus: u64,
    /// Node of the console: that of init.
    pub console_node: u64,
    /// `quiesced` rounds per second.
    pub rounds_per_second: u64,
    /// The [`Grant`] of the program.
    pub grant: u64,
    /// Bytes of a block of the [block allocator](memory).
    pub block_size: u64,
    /// Length of the environment, which is behind the argument text.
    pub env_len: u64,
    /// Wall-clock time when the machines were started, in nanoseconds since 1970-01-01 UTC.
    pub wall_ns: u64,
    /// Seed of the program's random numbers.
    pub random: u64,
    /// Bytes of standard input, at [`INPUT_BASE`]; 0 for all programs but the run's.
    pub input_len: u64,
    /// How the kernels work together: [`peer::Kernels`].
    pub kernels: u64,
    /// How the peers' messages travel: [`peer::Transport`].
    pub transport: u64,
    /// Where the peers' rings lie: [`peer::RingPlace`].
    pub ring_place: u64,
    /// How long they are in transit: [`peer::Delay`].
    pub delay: u64,
    /// 1: peers measure the parts of faults.
    pub fault_parts: u64,
    /// The system in its state at the start.
    pub system: SysInfo,
    /// The argument text, and the environment: `NAME=VALUE` texts, separated by tabs. UTF-8.
    pub args: [u8; MAX_ARGS],
}

/// The capabilities that the program of a run gets beyond those of every program. Only the command that
/// starts the run can request them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum Grant {
    /// Nothing.
    #[default]
    Nothing = 0,
    /// All that init has, for the program itself and a part of the memory, with all rights and in the same
    /// [slots](slot): its own table, address space, component, first thread and endpoints; unlimited time;
    /// thread ids; the hardware of every node; and [`GRANTED_FRAMES`] untyped frames of every pool. The
    /// program can therefore build whatever the kernel can, and stop the whole system. The use of this memory
    /// is neither counted nor reclaimed when the program ends; the program must have released its other
    /// memory by then.
    All = 1,
}

/// Frames of each pool that [`Grant::All`] gives.
pub const GRANTED_FRAMES: u64 = 4096;

impl Grant {
    /// All kinds of grants.
    pub const ALL: [Grant; 2] = [Grant::Nothing, Grant::All];

    /// Name on command lines and in boot parameters.
    pub const fn name(self) -> &'static str {
        match self {
            Grant::Nothing => "nothing",
            Grant::All => "all",
        }
    }

    /// The one with this number.
    pub const fn from_number(n: u64) -> Option<Grant> {
        match n {
            0 => Some(Grant::Nothing),
            1 => Some(Grant::All),
            _ => None,
        }
    }
}

/// The archive: all programs of a run, `init` first, and the standard input of the run's program, if it has any.
///
/// ```text
/// 0    "DYADARCH"   u64
/// 8    count        u64
/// 16   entries: { name [u8; 32], offset u64, len u64 }, count times
/// ...  bundles, each at a page boundary
/// ```
pub mod archive {
    /// "DYADARCH", little-endian.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"DYADARCH");
    /// Bytes before the entries.
    pub const HEADER: usize = 16;
    /// Bytes of an entry.
    pub const ENTRY: usize = 48;
    /// Most entries.
    pub const MAX_ENTRIES: usize = 64;

    /// Name of the entry that is no bundle: the standard input.
    pub const INPUT: &str = "<input>";

    /// The bundle with this name; `None` if there is none or the archive is malformed.
    pub fn find<'a>(archive: &'a [u8], name: &str) -> Option<&'a [u8]> {
        entries(archive)?.find(|(n, _)| *n == name).map(|(_, b)| b)
    }

    /// All entries: name and bytes. Malformed entries end the list.
    pub fn entries(archive: &[u8]) -> Option<impl Iterator<Item = (&str, &[u8])>> {
        let word = |at: usize| -> Option<u64> {
            Some(u64::from_le_bytes(
                archive.get(at..at + 8)?.try_into().ok()?,
            ))
        };
        if word(0)? != MAGIC {
            return None;
        }
        let count = usize::try_from(word(8)?)
            .ok()
            .filter(|&n| n <= MAX_ENTRIES)?;
        Some((0..count).map_while(move |i| {
            let at = HEADER + i * ENTRY;
            let name = archive.get(at..at + 32)?;
            let end = name.iter().position(|&b| b == 0).unwrap_or(32);
            let name = core::str::from_utf8(&name[..end]).ok()?;
            let offset = usize::try_from(word(at + 32)?).ok()?;
            let len = usize::try_from(word(at + 40)?).ok()?;
            Some((name, archive.get(offset..offset.checked_add(len)?)?))
        }))
    }

    /// The bundles: all entries but the standard input.
    pub fn bundles(archive: &[u8]) -> Option<impl Iterator<Item = (&str, &[u8])>> {
        Some(entries(archive)?.filter(|(name, _)| *name != INPUT))
    }
}

/// Result words of every invocation of a service.
pub mod reply {
    /// Result word 0: 0, or the code of an [`Error`](crate::Error).
    pub const STATUS: usize = 0;
    /// Result word 1: the value; 0 unless the status is 0.
    pub const VALUE: usize = 1;
}

/// Numbers of the programs of a run; also their badges at the services.
pub mod program {
    /// `init`.
    pub const INIT: u64 = 0;
    /// `sched`, whose threads are as many as the system can have CPUs.
    pub const SCHED: u64 = 1;
    /// `console`.
    pub const CONSOLE: u64 = 5;
    /// `pager`.
    pub const PAGER: u64 = 6;
    /// `quiesced`.
    pub const QUIESCED: u64 = 7;
    /// The first program that is no service. The processes of a [group](super::peer) have the numbers from here on, by
    /// node.
    pub const FIRST: u64 = 8;
    /// The peer on node 0; those on other nodes follow.
    pub const PEER: u64 = FIRST + crate::ident::MAX_NODES as u64;
    /// One past the last.
    pub const MAX: u64 = 32;

    /// The name of a service with this number.
    pub const fn name(number: u64) -> &'static str {
        match number {
            INIT => "init",
            SCHED..CONSOLE => "sched",
            CONSOLE => "console",
            PAGER => "pager",
            QUIESCED => "quiesced",
            PEER.. if number < PEER + super::MAX_NODES as u64 => "peer",
            _ => "no service",
        }
    }
}

/// One past the largest thread id: there are stacks of invocations for this many ids.
pub const MAX_THREAD_IDS: u64 = 4096;

/// Id of thread `n` of a program. It is unique in the system, because stacks of invocations are
/// found by it in every component: it numbers stacks, thread control blocks and invocation stacks.
/// `n` is below [`MAX_PROGRAM_THREADS`].
pub const fn thread_id(program: u64, n: u64) -> u32 {
    (program * MAX_PROGRAM_THREADS + n) as u32
}

/// The program and the number in it of the thread with an id.
pub const fn thread_of_id(id: u64) -> (u64, u64) {
    (id / MAX_PROGRAM_THREADS, id % MAX_PROGRAM_THREADS)
}

/// In the console: the address of the buffer of the program with number (and badge) `program`.
pub const fn console_client(program: u64) -> u64 {
    CONSOLE_CLIENTS + program * CONSOLE_THREADS * PAGE_SIZE
}

/// Start of the clients' buffers in the console.
pub const CONSOLE_CLIENTS: u64 = 0x1_A000_0000;

/// The scheduler service.
pub mod sched {
    use crate::cap::CapIndex;

    /// The thread table, read-only, in `sched`: [`THREADS`] words as of [`entry`], 0: no thread.
    pub const TABLE: u64 = 0x1_B000_0000;
    /// Bytes of the table, whole pages.
    pub const TABLE_BYTES: u64 = (THREADS as u64 * 8).next_multiple_of(super::PAGE_SIZE);
    /// A page of words, read-only in `sched`: one of the first [`HELD`] threads of the table whose word is not 0 is not
    /// dispatched. The thread that clears the word makes the held thread ready again.
    pub const HOLD: u64 = TABLE + TABLE_BYTES;
    /// Threads that can be scheduled: 64 of the system, and those of all programs that are no services.
    pub const THREADS: u32 =
        (super::MAX_PROGRAM_THREADS as usize * (1 + crate::ident::MAX_NODES)) as u32;
    /// Threads that init can hold: those of the system, of the program and of the program beside it. A process of a
    /// [group](super::peer) has no such threads.
    pub const HELD: u32 = 3 * super::MAX_PROGRAM_THREADS as u32;
    /// The tag of thread `n` of the table. It is the index of the thread's capability in
    /// `sched`'s capability table.
    pub const fn tag(n: u32) -> u32 {
        64 + n
    }
    /// In `sched`: the capability that tells init that thread `n` has ended. It sets a bit at init's
    /// endpoint: bit `n` for the first 64 threads, the program's bit for threads of a program.
    pub const fn ended(n: u32) -> CapIndex {
        CapIndex(tag(THREADS) + n)
    }
    /// Root entries of `sched`'s capability table that all this takes.
    pub const LEAVES: u32 = (tag(THREADS) + THREADS) / crate::cap::LEAF_SLOTS;
    /// Groups of threads: each has one share of the time of its priority, however many threads it has.
    pub const GROUPS: u8 = 8;
    /// The priority of programs.
    pub const PROGRAM_PRIORITY: u8 = 8;
    /// The group of the system's own threads.
    pub const SYSTEM_GROUP: u8 = 0;
    /// The group of a program's threads.
    pub const fn group(program: u64) -> u8 {
        (program - super::program::FIRST) as u8 + 1
    }
    /// An entry of the table: `group << 40 | slice in microseconds << 8 | priority`. Higher priorities are more
    /// urgent, at most 63; the slice is not 0; the group is below [`GROUPS`].
    pub const fn entry(priority: u8, slice_us: u32, group: u8) -> u64 {
        (group as u64) << 40 | (slice_us as u64) << 8 | priority as u64
    }
    /// In an [`entry`]: the thread is as urgent as its priority says for a part of the time only.
    pub const ON_ALLOWANCE: u64 = 1 << 48;
    /// Priority, slice in microseconds and group of an [`entry`], and whether it is [`ON_ALLOWANCE`].
    pub const fn entry_parts(entry: u64) -> (u8, u32, u8, bool) {
        let group = (entry >> 40) as u8;
        (
            entry as u8,
            (entry >> 8) as u32,
            group,
            entry & ON_ALLOWANCE != 0,
        )
    }
    /// Position of the deadline (fused ns, 0: none) of a blocked thread in the value of `Dispatch`; the eight
    /// bits below are a [`Stopped`](crate::cap::Stopped).
    pub const DEADLINE_SHIFT: u32 = 8;
}

/// First word of an invocation of the console service.
pub mod console {
    /// `(offset in the buffer, length)`: writes text. Value: bytes taken.
    pub const WRITE: u64 = 1;
    /// `(offset in the buffer)`: a check or counter: [`ReportText`](super::ReportText).
    pub const REPORT: u64 = 2;
    /// `(program)`: the program has ended: writes its unfinished line. From init only.
    pub const END: u64 = 3;
}

/// The contents of the buffer for `console::REPORT`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ReportText {
    /// A [`ReportKind`](crate::user::ReportKind).
    pub kind: u64,
    /// Check: 1 or 0. Counter: the number to add.
    pub value: u64,
    /// Length of the name.
    pub name_len: u64,
    /// Length of the detail.
    pub detail_len: u64,
    /// The name.
    pub name: [u8; crate::user::MAX_REPORT_NAME],
    /// The detail.
    pub detail: [u8; crate::user::MAX_REPORT_DETAIL],
}

/// First word of an invocation of the pager.
pub mod pager {
    /// `(length, home)`: new zero-filled memory. `home` is 0: each page is of the node that touches it
    /// first; or 1 and the number of a node: of that one, while it lives. With [`INCOHERENT`] its address is from
    /// [`INCOHERENT_BASE`](crate::user::INCOHERENT_BASE) on. Value: its address.
    pub const MAP_ANON: u64 = 1;
    /// A bit of `home`: the program keeps caches of this memory coherent by itself.
    pub const INCOHERENT: u64 = 1 << 8;
    /// `(address, length)`: gives back memory that `MAP_ANON` gave.
    pub const UNMAP: u64 = 2;
    /// `(program)`: the program has ended: takes away all it had. From init only.
    pub const END: u64 = 3;
    /// A bit in the badge of a fault handler: the call is a fault of the program in the low bits.
    pub const FAULT: u64 = 1 << 8;
    /// In the pager: the address space of a program.
    pub const fn space(program: u64) -> crate::cap::CapIndex {
        crate::cap::CapIndex(64 + program as u32)
    }
}

pub mod process;

/// The block allocator of init's process service.
pub mod memory {
    /// Smallest block.
    pub const MIN_BLOCK: u64 = 32 << 20;
    /// Largest block.
    pub const MAX_BLOCK: u64 = 4 << 30;
    /// A node asks for another block when this share of the frames it owns is in use, in per cent.
    pub const PRESSURE: u64 = 70;

    /// Whether blocks may have this size.
    pub const fn is_block_size(bytes: u64) -> bool {
        bytes.is_power_of_two() && bytes >= MIN_BLOCK && bytes <= MAX_BLOCK
    }

    /// The questions to the block allocator. Frames are 4 KiB.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u64)]
    pub enum Question {
        /// Bytes of a block.
        BlockSize = 0,
        /// The number of blocks.
        Blocks = 1,
        /// Blocks without an owner.
        Free = 2,
        /// Blocks that the node owns.
        Owned = 3,
        /// Frames that the node owns, in blocks and otherwise.
        Frames = 4,
        /// Frames that the node owned when the program began.
        AtStart = 5,
        /// Frames that the node owns and its faults may take.
        Open = 6,
        /// Frames of the CXL pool that nodes owned when the program began.
        SharedAtStart = 7,
        /// How often the node has asked for memory.
        Requests = 8,
        /// Free blocks that the node was given.
        Assigned = 9,
        /// Blocks that were taken from the node.
        Evicted = 10,
        /// Pages that were moved out of blocks of the node.
        Moved = 11,
        /// How often a block of the node could not be taken from it.
        Refused = 12,
        /// Whether a block is just being taken from some node, or will be if there is one to be had: 1 or 0.
        Busy = 13,
        /// Instructions that this node has executed for the last free block that it put to use; 0 if the
        /// simulator does not count them.
        Online = 14,
        /// Instructions for the last block that the node emptied, counted like [`Online`](Question::Online): its
        /// pages are moved.
        Offline = 15,
        /// Instructions for the last block that the node had emptied and put to use again, counted like
        /// [`Online`](Question::Online): its frames are checked.
        Again = 16,
        /// Nanoseconds that [`Online`](Question::Online) took.
        OnlineTime = 17,
        /// Nanoseconds that [`Offline`](Question::Offline) took, without the pauses between pieces.
        OfflineTime = 18,
        /// Nanoseconds that [`Again`](Question::Again) took.
        AgainTime = 19,
    }

    impl Question {
        /// All questions, in the order of their numbers.
        pub const ALL: [Question; 20] = [
            Question::BlockSize,
            Question::Blocks,
            Question::Free,
            Question::Owned,
            Question::Frames,
            Question::AtStart,
            Question::Open,
            Question::SharedAtStart,
            Question::Requests,
            Question::Assigned,
            Question::Evicted,
            Question::Moved,
            Question::Refused,
            Question::Busy,
            Question::Online,
            Question::Offline,
            Question::Again,
            Question::OnlineTime,
            Question::OfflineTime,
            Question::AgainTime,
        ];

        /// The one with this number.
        pub fn from_number(n: u64) -> Option<Question> {
            Question::ALL.get(usize::try_from(n).ok()?).copied()
        }
    }
}

/// A number for `AttachIrq` that no device has: a node has died and has been recovered. Each node sends the
/// message to the endpoint that is attached there. `NodeState` tells which node: its state is vacant, or its
/// incarnation has changed. Threads that the node had taken along are ready with an error, or stopped; their
/// schedulers have been told ([`Woken::NodeDied`](crate::cap::Woken)).
pub const NODE_DIED: u64 = 62;
/// The interrupt number of a question: the launcher asks something of init ([`ask`](crate::ask)).
pub const ASKED: u64 = 61;
/// The interrupt number of a node that has joined. Its CPUs are idle until they get threads (`StartCpu`).
pub const NODE_JOINED: u64 = 63;

/// Endpoint of a CPU in a scheduler's endpoints.
pub const fn scheduler_line(node: crate::NodeId, cpu: crate::CpuId) -> u64 {
    (node.index() * MAX_CPUS + cpu.index()) as u64
}

const _: () = {
    assert!(size_of::<Info>() as u64 <= PAGE_SIZE);
    assert!(size_of::<ReportText>() as u64 <= PAGE_SIZE);
    assert!(MAX_NODES * MAX_CPUS == 64);
    assert!(INFO_BASE + PAGE_SIZE <= CONSOLE_BUFFER);
    assert!(CONSOLE_BUFFER + CONSOLE_THREADS * PAGE_SIZE <= CONSOLE_CLIENTS);
    assert!(console_client(program::MAX) <= sched::TABLE);
    assert!(MAX_PROGRAM_THREADS >= (MAX_NODES * MAX_CPUS) as u64);
    assert!(MAX_PROGRAM_THREADS == crate::cap::LEAF_SLOTS as u64);
    assert!(sched::HELD as u64 * 8 <= PAGE_SIZE && sched::HELD <= sched::THREADS);
    assert!(sched::group(program::FIRST) != sched::SYSTEM_GROUP);
    assert!(matches!(
        sched::entry_parts(sched::entry(63, u32::MAX, sched::GROUPS - 1)),
        (63, u32::MAX, 7, false)
    ));
    assert!(matches!(
        sched::entry_parts(sched::entry(8, 10_000, 1)),
        (8, 10_000, 1, false)
    ));
    assert!(matches!(
        sched::entry_parts(sched::entry(62, 10_000, 0) | sched::ON_ALLOWANCE),
        (62, 10_000, 0, true)
    ));
    assert!(sched::tag(sched::THREADS).is_multiple_of(crate::cap::LEAF_SLOTS));
    assert!(thread_id(program::MAX, 0) as u64 <= MAX_THREAD_IDS);
};
