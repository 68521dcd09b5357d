//! Capabilities as programs see them: types, operations, rights, the shape of a call.
//!
//! Every system call names a capability of the caller's component and an operation on it. The
//! first word of the call, in the operation register, is
//!
//! ```text
//! 63            40 39      32 31                     0
//! |      0        | operation |   capability index    |
//! ```
//!
//! and up to five words follow (see [`syscall`](crate::syscall) for registers). An operation's number
//! is also the bit of its *right* in the slot's operation bitmap: a capability permits exactly the
//! operations whose bits it has, copies can only lose bits. Operation 0 is the invocation of a
//! [`Sinv`](CapType::Sinv): no other type has an operation of that number (at most a right). The one
//! call without a capability is [`RETURN`], which ends the invocation the thread is in.
//!
//! # Common rights
//!
//! | bit | right |
//! |---|---|
//! | 31 | [`COPY`]: the capability may be copied |
//! | 30 | [`INTROSPECT`]: `Introspect` tells what it refers to |
//!
//! # Arguments
//!
//! An argument that names a capability is an index into the caller's own table. `table << 32 | index`
//! names a slot: `table` is a capability for a node of a capability table with the right
//! [`CaptblOp::Activate`], `index` counts slots from that node on. There is no short form for the
//! caller's own table, which needs a capability like any other.
//!
//! # What every operation may return
//!
//! Before it begins: [`NoCap`](crate::Error::NoCap) (the slot is empty, or there is no such slot),
//! [`BadSyscall`](crate::Error::BadSyscall) (operation 32 or more),
//! [`Denied`](crate::Error::Denied) (the right is missing), [`Revoked`](crate::Error::Revoked) (the
//! guard is dead, or the object is gone), `BadSyscall` again (the type has no such operation, or the
//! bit is only a right). [`Corrupt`](crate::Error::Corrupt) means damaged shared memory.
//!
//! The reference pages of the book (*Capabilities*) give arguments, results and errors of every
//! operation; the tables here are their summary. A test compares the two.

/// Index of a capability in a component's table: root index in bits 6..15, slot in bits 0..6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct CapIndex(pub u32);

/// Slots of a leaf node of a capability table.
pub const LEAF_SLOTS: u32 = 64;
/// Entries of the root node of a capability table.
pub const ROOT_ENTRIES: u32 = 512;
/// Capabilities a component can have.
pub const TABLE_SLOTS: u32 = LEAF_SLOTS * ROOT_ENTRIES;

impl CapIndex {
    /// No capability: slot 0 of every table stays empty.
    pub const NONE: CapIndex = CapIndex(0);

    /// The index with this number, if there is one.
    pub const fn new(n: u64) -> Option<CapIndex> {
        if n < TABLE_SLOTS as u64 {
            Some(CapIndex(n as u32))
        } else {
            None
        }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Right to copy a capability.
pub const COPY: u32 = 31;
/// Right to ask what a capability refers to; also the operation that does. Value: see
/// [`Introspection`].
pub const INTROSPECT: u32 = 30;
/// First word of the call that ends the present invocation with up to four result words.
pub const RETURN: u64 = 0;

/// First word of a call.
pub const fn call_word(cap: CapIndex, operation: u32) -> u64 {
    (operation as u64) << 32 | cap.0 as u64
}

macro_rules! numbered {
    ($(#[$m:meta])* $name:ident { $($(#[$v:meta])* $variant:ident = $n:literal,)* }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$v])* $variant = $n,)* }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The one with this number.
            pub const fn from_number(n: u64) -> Option<$name> {
                match n { $($n => Some($name::$variant),)* _ => None }
            }

            /// Name for reports.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => stringify!($variant),)* }
            }

            /// The right, as a bit of a slot's operation bitmap.
            pub const fn right(self) -> Rights {
                Rights(1 << self as u32)
            }
        }
    };
}

// Behind the macro, which it uses.
pub mod authority;
mod words;

pub use words::*;

/// Operation bitmap of a capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Rights(pub u32);

impl Rights {
    /// No operation.
    pub const NONE: Rights = Rights(0);
    /// Every operation there may be.
    pub const ALL: Rights = Rights(u32::MAX);
    /// The right to copy.
    pub const COPY: Rights = Rights(1 << COPY);
    /// The right to introspect.
    pub const INTROSPECT: Rights = Rights(1 << INTROSPECT);

    /// Whether all of `other` is in here.
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    /// What both permit.
    #[must_use]
    pub const fn and(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }

    /// What either permits.
    #[must_use]
    pub const fn or(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

numbered! {
    /// What a capability refers to.
    CapType {
        /// A node of a capability table: leaf (level 0) or root (level 1).
        Captbl = 1,
        /// A node of a page table of one ISA.
        PageTable = 2,
        /// An address space.
        Space = 3,
        /// A protection domain: capability table, address space, fault handler.
        Component = 4,
        /// A thread.
        Thread = 5,
        /// An entry point of a component for synchronous invocation (sinv).
        Sinv = 6,
        /// The sending end of an asynchronous endpoint.
        Send = 7,
        /// The receiving end of an asynchronous endpoint.
        Receive = 8,
        /// A range of physical frames: the authority to retype them.
        Memory = 9,
        /// A block of user memory, or a part of one: the authority to map it.
        Frame = 10,
        /// A budget of processor time.
        Time = 11,
        /// The hardware of one node.
        Hardware = 12,
        /// Entries that revoke the capabilities guarded by them.
        Liveness = 13,
        /// A range of thread ids: the authority to give them to threads.
        ThreadIds = 14,
    }
}

numbered! {
    /// Operations on [`CapType::Captbl`]. `index` counts slots from the node on: 0..64 in a leaf,
    /// 0..32768 below a root.
    CaptblOp {
        /// Only a right: new capabilities may be put here.
        Activate = 0,
        /// `(index)`: removes the capability there. The slot can be used again after quiescence.
        /// Value: the stamp.
        Deactivate = 1,
        /// `(index, source, rights | guard << 32, p0, p1)`: copies the capability at `source` of the
        /// caller's own table, which needs [`COPY`], to `index` here, with no more than `rights`.
        /// `guard` is 0 or [`Guard::bits`]. `p0, p1` narrow: Memory `(first frame, frames)`, Frame
        /// `(first page, pages)`, Liveness, Receive and Time `(first entry, entries)`, ThreadIds `(first
        /// id, ids)`, counted from the start of the source; `(0, 0)` is all of it, and all there is for
        /// other types.
        CopyIn = 2,
        /// `(root index, leaf capability)`: hangs a leaf into this root. The leaf's capability needs
        /// [`COPY`], `Activate`, `Deactivate`, `CopyIn` and `Read`
        /// ([`CONS_LEAF`](authority::CONS_LEAF)): by the root all of that can be done to its slots.
        Cons = 3,
        /// `(root index)`: takes the leaf out. Value: the stamp.
        Decons = 4,
        /// `(index)`: as [`INTROSPECT`], of the capability in that slot, alive or not.
        Read = 5,
    }
}

numbered! {
    /// Operations on [`CapType::Memory`]. `at` counts frames from the start of the range.
    MemoryOp {
        /// `(at, kind)`: the untyped frame there becomes a kernel object of an [`ObjectKind`]. Larger
        /// untyped blocks are split on the way.
        RetypeKernel = 1,
        /// `(at)`: the block or object there becomes untyped; capabilities to it are dead. It can be
        /// used again after quiescence. Value: the stamp.
        RetypeUntyped = 2,
        /// `(at)`: makes two untyped blocks of the one there.
        Split = 3,
        /// `(at)`: makes one untyped block of the one there and the one of the same size behind it.
        Merge = 4,
        /// `(at, table << 32 | index, rights)`: puts a capability for the object or the user block
        /// there into a slot of the capability table `table`.
        Activate = 5,
        /// `(at)`: what the frame there is: the word that the frame table has of it.
        Inspect = 6,
        /// `(at, order)`: the untyped block there becomes user memory, zero-filled. Larger untyped
        /// blocks are split on the way. A block of more than 16 frames must never have been used.
        RetypeUser = 7,
        /// `(at, frames)`: what the frames there are used for. Value: a [`Counted`], which may be of fewer
        /// frames than asked for: the caller goes on behind them.
        Count = 8,
    }
}

numbered! {
    /// Kernel objects that a frame can be retyped to.
    ObjectKind {
        /// Leaf of a capability table.
        CaptblLeaf = 0,
        /// Root of a capability table.
        CaptblRoot = 1,
        /// Page table of x86-64, level 1 (entries map 4 KiB).
        PageTableX86L1 = 2,
        /// Page table of x86-64, level 2.
        PageTableX86L2 = 3,
        /// Page table of x86-64, level 3.
        PageTableX86L3 = 4,
        /// Page table of x86-64, level 4: a root.
        PageTableX86L4 = 5,
        /// Page table of AArch64, level 1 (entries map 4 KiB).
        PageTableA64L1 = 6,
        /// Page table of AArch64, level 2.
        PageTableA64L2 = 7,
        /// Page table of AArch64, level 3.
        PageTableA64L3 = 8,
        /// Page table of AArch64, level 4: a root.
        PageTableA64L4 = 9,
        /// Address space.
        Space = 10,
        /// Component.
        Component = 11,
        /// Thread.
        Thread = 12,
        /// 64 asynchronous endpoints.
        Endpoints = 13,
        /// 64 time budgets.
        Time = 14,
        /// 512 liveness entries.
        Liveness = 15,
    }
}

numbered! {
    /// Rights of [`CapType::PageTable`]; it has no operations of its own.
    PageTableOp {
        /// Only a right: it may be linked into an address space.
        Link = 0,
    }
}

numbered! {
    /// Operations on [`CapType::Frame`]: rights only. Without `Write` and `Execute` it maps
    /// read-only.
    FrameOp {
        /// It may be mapped.
        Map = 0,
        /// It may be mapped writable.
        Write = 1,
        /// It may be mapped executable.
        Execute = 2,
    }
}

numbered! {
    /// Operations on [`CapType::Space`]. `where` is [`TableAt::bits`]: the ISA and, for `Map`, `Link`
    /// and `Unlink`, the level; elsewhere any level will do.
    SpaceOp {
        /// `(where, va)`: unmaps what covers `va`. Value: the stamp after whose quiescence no
        /// translation is left.
        Unmap = 1,
        /// `(where, va, permissions)`: changes permissions only. Value: the stamp after whose
        /// quiescence nobody has the old ones.
        Protect = 2,
        /// `(where, va)`: reads and clears accessed (1) and dirty (2).
        Harvest = 3,
        /// `(where, va)`: value: physical address of the byte, with
        /// [`TRANSLATE_WRITE`](crate::user::TRANSLATE_WRITE) and
        /// [`TRANSLATE_EXEC`](crate::user::TRANSLATE_EXEC).
        Translate = 4,
        /// `(where, va, page-table capability)`: links a table of the level of `where` in; level 4 is
        /// the root.
        Link = 5,
        /// `(where, va)`: takes the table of that level out. It must be empty of present entries.
        /// Value: the stamp after whose quiescence it can be linked again.
        Unlink = 6,
        /// `(start, length, kind | write << 8 | home << 9 | stripes << 16)`: declares a region, see
        /// [`RegionKind`]; `stripes` is 0 or [`Stripes::bits`]. `home` is 0, or 1 and the number of the node
        /// from whose supply faults there take pages, wherever they are, while it lives.
        AddRegion = 7,
        /// `(start)`: takes the region that starts there away. Pages in it stay mapped.
        RemoveRegion = 8,
        /// `(node, memory capability, run, at, frames)`: where faults on that node take frames and tables
        /// from: a run, of up to five, of so many frames from `at` on of the memory; `(0, 0)` is all of it.
        /// Without memory (0) the list of runs ends there. Tables come from run 0 if there is room. The
        /// capability needs `RetypeUser`, `RetypeKernel`, `RetypeUntyped` and `Split`.
        Supply = 9,
        /// `(start, length)`: asks all CPUs that may hold translations to drop them (all of them:
        /// the range is not looked at). Value: a ticket. `(ticket, 0)`: value 1 if they have, else 0.
        Shootdown = 10,
        /// `(start, pages)`: from `start` on, unmaps pages that faults have filled, on all ISAs, and
        /// gives their frames and empty tables back; other pages stay. Value: pages looked at, which
        /// may be fewer than `pages`: the caller goes on behind them.
        Reclaim = 11,
        /// `(where, va, frame capability, first page of it, permissions)`: maps one page (level of
        /// `where` 1) or one 2 MiB block (level 2). Permissions: [`MAP_WRITE`], [`MAP_EXECUTE`].
        Map = 12,
        /// `(start, pages | node << 40 | step << 48, memory capability, at, frames)`: a [`Step`] of moving pages
        /// that faults have put into these frames elsewhere, in the supply of the node; from `start` on. The
        /// capability needs what `Supply` wants. Value: pages looked at, and how many of them the step was
        /// done for `<< 40`; the caller goes on behind them.
        Evacuate = 13,
        /// `(va, old, new)`: the word of user memory at `va`, which may be written there, becomes `new`
        /// if it is `old`, in one step for all who look. Value: what it was. The page is mapped in if
        /// need be.
        Exchange = 14,
    }
}

numbered! {
    /// A step of `Evacuate`.
    Step {
        /// Nobody may use the pages any more; faults on them wait. Translations may stay: before the
        /// pages are moved, every CPU has to drop them ([`SpaceOp::Shootdown`]).
        Park = 0,
        /// Parked pages get other frames, with the same contents, and can be used again.
        Move = 1,
        /// Parked pages can be used again where they are.
        Unpark = 2,
    }
}

/// In permissions: writable.
pub const MAP_WRITE: u64 = 1;
/// In permissions: executable.
pub const MAP_EXECUTE: u64 = 2;

numbered! {
    /// What faults in a region do.
    RegionKind {
        /// Zero-filled frames from the supply of the faulting node, mapped on every ISA.
        Anonymous = 1,
        /// Mapped by the owner; a page that one ISA has is shown to the others.
        Shared = 2,
        /// Mapped by the owner for each ISA apart (program text).
        PerIsa = 3,
        /// Never accessible: an access is the program's error.
        Guard = 4,
    }
}

numbered! {
    /// Operations on [`CapType::Component`].
    ComponentOp {
        /// `(sinv capability)`: where faults of its threads go (0: nowhere; the thread stops). What the
        /// capability refers to is noted, not the capability: it has no guard.
        SetFaultHandler = 1,
        /// `(node bits)`: where its code may run (0: everywhere). Invocations from elsewhere cross.
        SetHome = 2,
        /// `(table << 32 | index, entry address, badge, rights)`: makes an invocation endpoint.
        MakeSinv = 3,
        /// `(root of a capability table, space)`: what the component consists of; both need [`COPY`].
        /// What it had before is given back.
        Configure = 4,
    }
}

numbered! {
    /// Operations on [`CapType::Thread`].
    ThreadOp {
        /// `(slice in ns | priority << 56, time capability or 0)`: runs the thread on this CPU until it
        /// blocks, ends, faults, leaves, uses its slice up or something comes for the caller.
        /// Value: `why | detail << 8`, see [`Stopped`]; a detail beyond 2^56 - 1 is told as that. Slice 0: as long as the caller's own.
        Dispatch = 1,
        /// `(isa, register number)`: reads a register of a stopped thread, on a node of that ISA.
        ReadRegister = 2,
        /// `(isa, register number, value)`: writes one.
        WriteRegister = 3,
        /// `(node)`: the calling thread itself goes on on another node. Not within an invocation.
        /// Value: the node it is on when it returns.
        Migrate = 4,
        /// `()`: takes a ready or blocked thread out of scheduling; its dispatch is refused. Not a
        /// running one. A thread that is within an invocation stops when it has returned from all of them. Value:
        /// see [`StopOutcome`].
        Stop = 5,
        /// `(place)`: makes a stopped thread ready again where it was, or with
        /// `1 << 63 | cpu << 8 | node` there. Ends the waiting of a blocked one, as if nothing had come. Withdraws
        /// a `Stop` that is to take effect when the thread leaves a service.
        Resume = 6,
        /// `()`: gives the CPU back to whoever dispatched this, the calling, thread.
        Yield = 7,
        /// `(code)`: the calling thread ends. A code beyond 2^32 - 1 is told as that.
        Exit = 8,
        /// Value: fused time until which the thread waits; 0 if it does not wait, or for ever.
        Deadline = 9,
        /// `(component, entry, arg, id | tag << 32, scheduler endpoints | thread ids << 32)`: makes a new
        /// or stopped thread begin at `entry`. The component's capability needs `Configure`; the
        /// endpoints are a receive capability for all lines of the object with `Bind`, or 0 for a thread
        /// that has no scheduler; the id is in the range of the [`ThreadIds`](CapType::ThreadIds)
        /// capability, which needs `Use`, and no other live thread has it.
        Configure = 10,
        /// `(node, program counter, stack pointer, frame pointer, arg)`: the calling thread itself goes on
        /// on a node, its own too, there and with these: `arg` in argument register 0, the thread pointer
        /// as before, zeros elsewhere. Nothing of what it was doing on any ISA is kept. Not within an
        /// invocation. Comes back only with an error.
        Jump = 11,
        /// `(isa, address)`: writes the registers of a stopped thread, as
        /// [`Registers`](crate::emulation::Registers), to the caller's memory; on a node of that ISA. Not
        /// within an invocation of the thread. Value: the node where it was stopped.
        Unload = 12,
        /// `(address, node)`: the calling thread itself goes on on `node`, with the
        /// [`Registers`](crate::emulation::Registers) that are at an address in its memory. Nothing else of
        /// what it was doing, on either ISA, is kept. Not within an invocation.
        Load = 13,
    }
}

numbered! {
    /// Values of [`ThreadOp::Stop`].
    StopOutcome {
        /// The thread is stopped.
        Stopped = 0,
        /// It was stopped already, or has ended.
        Already = 1,
        /// It is within an invocation and stops when it has left that; ask again to learn whether it has.
        WhenItLeaves = 2,
        /// It was within an invocation for [`STOP_GRACE_NS`] after the first request. It has ended there: it cannot
        /// be resumed before it is configured anew.
        Ended = 3,
    }
}

/// How long a thread may go on within an invocation after the first [`ThreadOp::Stop`], in ns of fused time. A
/// `Stop` that comes later ends it there.
pub const STOP_GRACE_NS: u64 = 1_000_000_000;

numbered! {
    /// Operations on [`CapType::Sinv`].
    SinvOp {
        /// `(a0, a1, a2, a3)`: calls the component's entry point. Result: up to four words.
        Invoke = 0,
    }
}

numbered! {
    /// Operations on [`CapType::Send`].
    SendOp {
        /// `()`: sets the capability's badge bits at the endpoint, wakes who waits there.
        Send = 1,
    }
}

numbered! {
    /// Operations on [`CapType::Receive`]: one endpoint, by `index` if the capability has several.
    ReceiveOp {
        /// `(index, table << 32 | slot, badge bits)`: makes a sending end with the rights `Send`,
        /// [`COPY`] and [`INTROSPECT`]. The badge is not 0.
        MakeSend = 1,
        /// `(index, node | cpu << 8 | priority << 16)`: where it is received: that CPU is told of what
        /// comes while nobody waits. The priority is not used yet.
        Bind = 2,
        /// `(index, deadline in fused ns, 0 for none, 1 for now)`: takes the bits that have been set,
        /// waiting if there are none. Value: bits, 0 if the time has come. At a scheduler's endpoint:
        /// see [`Event`]. Deadlines are kept by the thread's scheduler, for root threads by the kernel.
        Receive = 3,
    }
}

numbered! {
    /// Operations on [`CapType::Time`]. A capability for several budgets stands for the first.
    TimeOp {
        /// Only a right: threads may be dispatched on it.
        Use = 1,
        /// Value: nanoseconds left.
        Read = 2,
        /// `(to, nanoseconds)`: moves budget to another time capability, which needs no right.
        /// `u64::MAX` is a budget that does not run out, and stays so.
        Transfer = 3,
    }
}

numbered! {
    /// Rights of [`CapType::ThreadIds`]; it has no operations of its own.
    ThreadIdsOp {
        /// Only a right: threads may be configured with ids of the range.
        Use = 1,
    }
}

numbered! {
    /// Operations on [`CapType::Hardware`]. `FlushStep`, `FlushTlb`, `AttachIrq`, `Write` and `Report`
    /// want the caller to run on the node; `Now`, `Quiesced`, `Where`, `NodeState` and `Shutdown` are
    /// the same with each node's.
    HardwareOp {
        /// Drops all translations of this CPU.
        FlushTlb = 1,
        /// `(interrupt, send capability)`: interrupts become messages; 0 detaches. Numbers are those
        /// of the platform, modulo 64, but for [`NODE_DIED`](crate::service::NODE_DIED),
        /// [`NODE_JOINED`](crate::service::NODE_JOINED) and [`ASKED`](crate::service::ASKED). The capability has no guard.
        AttachIrq = 2,
        /// Value: fused time in nanoseconds.
        Now = 3,
        /// `(address, length)`: writes text to the node's console, lines kept whole. Value: bytes
        /// taken: at most [`MAX_WRITE`](crate::user::MAX_WRITE), and not beyond the end of a line. The
        /// caller goes on behind them.
        Write = 4,
        /// `(address)`: a check or counter of the run, as [`ReportArgs`](crate::user::ReportArgs).
        Report = 5,
        /// `(code)`: ends the run on all nodes.
        Shutdown = 6,
        /// `(cpu, thread capability)`: makes the thread, a ready or stopped one whose capability needs
        /// `Resume`, the root thread of that CPU of the node: the one that runs when nobody else does.
        /// On another node it becomes so when the message arrives.
        StartCpu = 7,
        /// `(stamp)`: value 1 if quiesced since; 0 not yet.
        Quiesced = 8,
        /// Value: where the caller runs ([`Where`](crate::user::Where)).
        Where = 9,
        /// `(node)`: value: state of a node (as in the superblock) and its incarnation << 32.
        NodeState = 10,
        /// `(steps)`: drives this node's quiescence round by at most that many steps. Value: epoch
        /// published by it, 0 if it goes on.
        FlushStep = 11,
        /// `(counter)`: value: what the simulator has counted of this CPU
        /// ([`SimCounter`](crate::clock::SimCounter)), or what kernels count by themselves
        /// ([`KernelCounter`](crate::clock::KernelCounter)).
        Count = 12,
        /// `(token)`: whether an invocation of the caller's component, `thread id << 8 | depth`, may still go on.
        /// Value: 1 if it may; 0 if it is over for good. A thread that is stopped in it is ended there.
        Inside = 13,
    }
}

numbered! {
    /// Operations on [`CapType::Liveness`].
    LivenessOp {
        /// Only a right: copies may be guarded by its entries. A capability has one guard at most,
        /// and hands it to its copies and to what operations make of it.
        Guard = 1,
        /// `(index)`: every capability guarded by the entry is dead from now on. One step, however
        /// many there are. Value: the stamp after whose quiescence nothing uses them any more.
        Revoke = 2,
    }
}
