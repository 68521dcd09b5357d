//! Threads: one frame each, with one register area per ISA.
//!
//! A thread is a *heterogeneous continuation*: its state on each ISA is kept apart, and exactly one of the
//! areas is the one that runs. The owner word says which CPU may access the frame:
//!
//! ```text
//!            dispatch                       migrate, cross: registers and floating point
//!   READY ─────────────▶ RUNNING ──────────────saved, then────▶ TRANSIT(m)
//!    ▲ ▲                  │   │                                     │
//!    │ └──── preempted ───┘   │ receive: saved, then                │ m's CAS, after the message
//!    │                        ▼                                     │
//!    ├────── wake ───────── BLOCKED                                 │
//!    └──────────────────────────────────────────────────────────────┘
//!   READY, BLOCKED ── stop ──▶ CHANGING ──▶ STOPPED ── resume ──▶ CHANGING ──▶ READY
//!                                 └──within an invocation──▶ READY, and STOPPED when it leaves that
//!   NONE, STOPPED ── configure, registers ──▶ CHANGING ──▶ STOPPED
//!   NONE, STOPPED ── give up ──▶ GONE
//!
//!   of a node that has died, by its recoverer:
//!   READY, BLOCKED ──▶ ORPHANED    TRANSIT ──▶ STRANDED    then, as RUNNING and CHANGING: TRANSIT, STOPPED
//! ```
//!
//! | step | order |
//! |---|---|
//! | give up the CPU: registers and floating point saved, then the owner word | release |
//! | take a thread: CAS of the owner word | acquire |
//!
//! Only the owner of a thread stores to its words. Other CPUs change only the owner word and the words of
//! event lists, and change them at memory. A thread without an owner, stopped or not configured, is therefore
//! taken before it is changed: of two CPUs that configure or resume it at the same time, one is refused
//! before it has stored anything. The words of event lists change whichever CPU owns the thread, and have a
//! line of their own: writing back a line that the owner also stores to could undo their changes.
//!
//! `seq` counts changes of owner and waits, so that a CPU that holds an older owner word cannot take the
//! thread.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::service::INVOKE_DEPTH;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Isa, NodeId};
use dyad_coherence::LINE_BYTES;
use dyad_retype::KernelKind;
use dyad_shm::{LayoutHash, shared_layout, shared_struct};

use crate::memory::Words;

/// The states of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Not configured, or ended.
    None = 0,
    /// Ready to be dispatched by a CPU of its node.
    Ready = 1,
    /// Runs on a CPU of its node, or waits there for a thread that it has dispatched.
    Running = 2,
    /// In transit to `node`.
    Transit = 3,
    /// Waits at an endpoint.
    Blocked = 4,
    /// Taken out of scheduling.
    Stopped = 5,
    /// Its frame is being untyped; the thread never changes its state again.
    Gone = 6,
    /// Taken by a CPU of the node, which configures or resumes the thread, or accesses its registers.
    Changing = 7,
    /// Taken by recovery: it was ready or blocked at a node that has died.
    Orphaned = 8,
    /// Taken by recovery: it was in transit to a node that has died.
    Stranded = 9,
}

/// The owner word: `seq:24 | incarnation:24 | node:8 | state:8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// State.
    pub state: State,
    /// The node that owns it, or that it is in transit to.
    pub node: NodeId,
    /// Incarnation of that node (24 bits).
    pub incarnation: u32,
    /// Changes of owner so far (24 bits, wrapping).
    pub seq: u32,
}

const FIELD: u32 = 0xff_ffff;

impl Owner {
    /// The encoded word.
    pub const fn bits(self) -> u64 {
        self.state as u64
            | (self.node.index() as u64) << 8
            | ((self.incarnation & FIELD) as u64) << 16
            | ((self.seq & FIELD) as u64) << 40
    }

    /// Decodes a word; `None` if it is malformed.
    pub const fn from_bits(w: u64) -> Option<Owner> {
        let state = match w as u8 {
            0 => State::None,
            1 => State::Ready,
            2 => State::Running,
            3 => State::Transit,
            4 => State::Blocked,
            5 => State::Stopped,
            6 => State::Gone,
            7 => State::Changing,
            8 => State::Orphaned,
            9 => State::Stranded,
            _ => return None,
        };
        match NodeId::new(w >> 8 & 0xff) {
            Some(node) => Some(Owner {
                state,
                node,
                incarnation: (w >> 16) as u32 & FIELD,
                seq: (w >> 40) as u32,
            }),
            None => None,
        }
    }

    /// The owner word of the same thread and owner, with another state.
    #[must_use]
    pub const fn with(self, state: State) -> Owner {
        Owner { state, ..self }
    }

    /// The next owner. The new number distinguishes two stays at the same node: a message about an older stay
    /// has no effect.
    #[must_use]
    pub const fn passed(self, to: NodeId, incarnation: u32, state: State) -> Owner {
        Owner {
            state,
            node: to,
            incarnation,
            seq: self.seq.wrapping_add(1),
        }
    }

    /// The owner word of a running thread that goes to sleep. The new number distinguishes its waits: see
    /// [`Waiter`](crate::endpoint::Waiter).
    #[must_use]
    pub const fn asleep(self) -> Owner {
        let next = self.passed(self.node, self.incarnation, State::Blocked);
        Owner {
            seq: next.seq & FIELD,
            ..next
        }
    }

    /// Whether the word is that of a thread in this state at this node, in this incarnation, whatever its
    /// number.
    #[inline]
    pub const fn says(word: u64, state: State, node: NodeId, incarnation: u32) -> bool {
        const HANDS: u32 = 24;
        let wanted = Owner {
            state,
            node,
            incarnation,
            seq: 0,
        };
        (word ^ wanted.bits()) << HANDS == 0
    }

    /// Whether this node, in this incarnation, owns the thread.
    pub fn is(&self, node: NodeId, incarnation: u32) -> bool {
        self.node == node && self.incarnation == incarnation & FIELD
    }
}

shared_struct! {
    /// An invocation that is under way: the place it returns to.
    #[derive(Debug)]
    #[repr(align(32))]
    pub struct Frame {
        /// The component that invoked: a weak reference.
        pub component: AtomicU64,
        /// The address at which the caller continues.
        pub pc: AtomicU64,
        /// The stack pointer of the caller.
        pub sp: AtomicU64,
        /// 0, or flags of the return: see [`info`].
        pub info: AtomicU64,
    }
}

/// Words of a register area: general registers, stack pointer, program counter, flags, thread
/// pointer, in an order that only the owning ISA's `arch` crate knows.
pub const REG_WORDS: usize = 36;
/// Words of a floating-point area (16-byte aligned, at least 528 bytes).
pub const FP_WORDS: usize = 68;

shared_struct! {
    /// A thread's general registers on one ISA; lies in the thread's frame in fused memory.
    #[derive(Debug)]
    #[repr(align(16))]
    pub struct RegArea(pub [AtomicU64; REG_WORDS]);
}

shared_struct! {
    /// A thread's floating-point state on one ISA; lies in the thread's frame in fused memory.
    #[derive(Debug)]
    #[repr(align(16))]
    pub struct FpArea(pub [AtomicU64; FP_WORDS]);
}

/// Flags of an invocation's return.
pub mod info {
    /// The invocation is a fault handler: the registers of the fault are in the save area, and result word 0
    /// decides whether the thread continues.
    pub const FAULT: u64 = 1;
    /// The thread has come from another node for the invocation: the node is in bits 8..16.
    pub const CROSSED: u64 = 2;
    /// With `FAULT`: floating-point registers are in their save area.
    pub const FP: u64 = 4;
    /// Only in the bottom entry: the thread stops when it returns there. Bits [`ASKED_SHIFT`] and above hold
    /// the fused time of the first request, in units of 2^[`ASKED_SHIFT`] ns.
    pub const STOP: u64 = 8;
    /// Position of the time of the request; see [`STOP`].
    pub const ASKED_SHIFT: u32 = 16;
}

shared_struct! {
    /// A thread.
    #[derive(Debug)]
    #[repr(align(4096))]
    pub struct Thread {
        /// The encoded [`Owner`].
        pub owner: AtomicU64,
        /// The crossing calls under way; see `dyad_core::migrate::crossing`.
        pub crossing: AtomicU64,
        /// Bits 0 to 7: the node that the thread left in its last handoff, plus one; above: migrations so
        /// far. See [`leaves`](Thread::leaves).
        pub trail: AtomicU64,
        /// The CPU of its node that the thread belongs to.
        pub cpu: AtomicU64,
        /// Fused time at which the slice ends; `u64::MAX` means never.
        pub slice_end: AtomicU64,
        /// One bit for each ISA on which the thread has values in floating-point registers. On the others
        /// they have the initial state, whatever is in `fp`. Higher bits: whether those of a side that waits
        /// in `Migrate` are kept, and where. See `dyad_core::sched::fp`.
        pub used_fp: AtomicU64,
        /// The state of the thread on each ISA, see [`begun`].
        pub started: [AtomicU64; dyad_abi::ident::ISA_COUNT],
        /// The words that the thread carries in a handoff; see `dyad_core::migrate::carried`.
        pub carried: [AtomicU64; 8],
        /// The id, which no other live thread has ([`crate::ids`]); it selects the thread's stacks of invocations.
        pub id: AtomicU64,
        /// The scheduler's name for the thread.
        pub tag: AtomicU64,
        /// The component that the thread runs in: a weak reference.
        pub component: AtomicU64,
        /// Endpoints of the scheduler: a weak reference.
        pub scheduler: AtomicU64,
        /// Time budgets that the thread runs on: a weak reference; 0 means no limited budget;
        /// [`INHERITED`](crate::time::INHERITED) means that of the thread that gave it the CPU.
        pub budget: AtomicU64,
        /// Entries of `frames` in use.
        pub depth: AtomicU64,
        /// Entry point and its argument, for the first entry on each ISA.
        pub entry: AtomicU64,
        /// The argument of `entry`.
        pub arg: AtomicU64,
        /// 1: the result of the pending call is set when the thread next runs, from `result_status` and
        /// `result_value`. 2: the result is what is pending at the endpoint that the thread waited at.
        pub result: AtomicU64,
        /// Status for `result` 1.
        pub result_status: AtomicU64,
        /// Value for `result` 1.
        pub result_value: AtomicU64,
        /// The endpoint that the thread waits at: weak reference to the frame.
        pub waits_at: AtomicU64,
        /// Number of that endpoint in the frame.
        pub waits_line: AtomicU64,
        /// Fused time until which the thread waits; 0 means for ever.
        pub deadline: AtomicU64,
        /// Priority of the last dispatch; a larger number is more urgent.
        pub priority: AtomicU64,
        /// Whether a handler is handling a fault of the thread, whose registers are in `saved`.
        pub fault: AtomicU64,
        /// Fused time of the last dispatch on a budget.
        pub budget_from: AtomicU64,
        /// Number of the budget in its frame.
        pub budget_line: AtomicU64,
        /// Exit code, once the thread has ended.
        pub exit_code: AtomicU64,
        /// Nanoseconds that have been reserved from the budget for the present dispatch.
        pub budget_reserved: AtomicU64,
        /// The id by which the thread's own stacks and control block are found; 0: `id`. See
        /// [`layout_id`](Thread::layout_id).
        pub layout: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 3],
        /// Link word: the next thread on an event list. Changed at memory only, like `event`.
        pub event_link: AtomicU64,
        /// The reason why the thread is on an event list (a [`Woken`](dyad_abi::cap::Woken)); 0 if it is on
        /// none. [`DOUBTED`] is added while recovery checks whether it is on any.
        pub event: AtomicU64,
        /// Reserved; zero.
        pub unused: [AtomicU64; 6],
        /// The floating-point registers that a crossing call carries, as bits of `f64`s.
        pub carried_fp: [AtomicU64; 8],
        /// Callee-saved floating-point registers, on an ISA that has some, while a call that was made there
        /// is under way.
        pub kept_fp: [AtomicU64; 8],
        /// Invocations under way.
        pub frames: [Frame; INVOKE_DEPTH],
        /// Registers at the `Migrate` call with which the thread left an ISA, by ISA.
        pub parked: [RegArea; dyad_abi::ident::ISA_COUNT],
        /// General registers, by ISA.
        pub regs: [RegArea; dyad_abi::ident::ISA_COUNT],
        /// Registers at the fault that a handler is handling.
        pub saved: RegArea,
        /// Floating-point state, by ISA; or, in the area of either ISA, that of a waiting side.
        pub fp: [FpArea; dyad_abi::ident::ISA_COUNT],
        /// Floating-point registers at the fault that a handler is handling, if the fault's entry has
        /// [`info::FP`].
        pub saved_fp: FpArea,
    }
}

const _: () = assert!(size_of::<Thread>() as u64 == PAGE_SIZE);

/// Bytes of a thread before the words of event lists, the invocation stack and the registers.
const HEAD_BYTES: u64 = core::mem::offset_of!(Thread, reserved) as u64;

/// Checks that the words of event lists have a cache line of their own, without any other field that is
/// stored to.
const _: () = {
    use core::mem::offset_of;
    let line = LINE_BYTES as usize;
    assert!(offset_of!(Thread, event_link) % line == 0);
    assert!(offset_of!(Thread, event) / line == offset_of!(Thread, event_link) / line);
    assert!(offset_of!(Thread, carried_fp) - offset_of!(Thread, event_link) >= line);
    // What changes with every hand-over is on two lines; what a CPU only looks at then is on another.
    assert!(offset_of!(Thread, carried) == line && offset_of!(Thread, id) == 2 * line);
    assert!(offset_of!(Thread, result) == 3 * line);
    // No line with registers of both ISAs that are in use: x86-64 uses only the first half of what it has
    // on the line where AArch64's begin.
    assert!(offset_of!(Thread, parked) % line == 0 && offset_of!(Thread, regs) % line == 0);
};

pub(crate) const fn layout(h: LayoutHash) -> LayoutHash {
    shared_layout!(h;
        Frame { component, pc, sp, info },
        Thread {
            owner, crossing, trail, cpu, slice_end, used_fp, started, carried, id, tag, component,
            scheduler, budget, depth, entry, arg, result, result_status, result_value, waits_at,
            waits_line, deadline, priority, fault, budget_from, budget_line, exit_code,
            budget_reserved, layout, reserved,
            event_link, event, unused, carried_fp, kept_fp, frames, parked, regs, saved, fp, saved_fp,
        },
    )
    .word(REG_WORDS as u64)
    .word(FP_WORDS as u64)
}

impl Thread {
    /// The kind of its frame.
    pub const KIND: KernelKind = KernelKind::THREAD;

    /// The id by which the thread's own stacks and control block are found. Threads of several components may have the
    /// same one, so that a program of several components has each of its threads at the same addresses in all of them.
    pub fn layout_id(&self) -> u32 {
        match self.layout.load(Ordering::Relaxed) {
            0 => self.id.load(Ordering::Relaxed) as u32,
            layout => layout as u32,
        }
    }

    /// The owner word, decoded. Where caches are not coherent, the words of a thread that other nodes read
    /// are also refreshed from memory.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn owner(&self, words: &Words) -> Option<Owner> {
        Owner::from_bits(self.owner_word(words))
    }

    /// The owner word, read like [`owner`](Thread::owner).
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn owner_word(&self, words: &Words) -> u64 {
        words.read_first(&self.owner, HEAD_BYTES)
    }

    /// Changes the owner word like [`change`](Thread::change), for a thread that stays at its node and is not
    /// handed over.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn change_at_home(&self, words: &Words, from: u64, to: u64) -> bool {
        words.exchange_first(&self.owner, from, to, || HEAD_BYTES)
    }

    /// Changes the owner word, which must be `from`. Where caches are not coherent, this node's stores to the
    /// thread reach memory before, and no copy of other nodes' stores stays. This covers the whole frame if
    /// the thread changes its owner or stops running, because any node may take it afterwards; otherwise it
    /// covers the words that other nodes read.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn change(&self, words: &Words, from: Owner, to: Owner) -> bool {
        words.exchange_first(&self.owner, from.bits(), to.bits(), || changed(from, to))
    }

    /// Changes the owner word like [`change`](Thread::change), from and to encoded words.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn change_word(&self, words: &Words, from: u64, to: u64) -> bool {
        words.exchange_first(&self.owner, from, to, || {
            match (Owner::from_bits(from), Owner::from_bits(to)) {
                (Some(from), Some(to)) => changed(from, to),
                _ => PAGE_SIZE,
            }
        })
    }

    /// The general registers on an ISA.
    #[inline]
    pub fn regs(&self, isa: Isa) -> &RegArea {
        &self.regs[isa.index()]
    }

    /// The floating-point state on an ISA.
    #[inline]
    pub fn fp(&self, isa: Isa) -> &FpArea {
        &self.fp[isa.index()]
    }

    /// The token of the invocation at a depth: `id << 8 | depth`. No two invocations that are under way have
    /// the same token, so the callee can select a stack by it.
    #[inline]
    pub fn token_at(&self, depth: u64) -> u64 {
        self.id.load(Ordering::Relaxed) << 8 | depth
    }

    /// The token of the innermost invocation.
    #[inline]
    pub fn token(&self) -> u64 {
        self.token_at(self.depth.load(Ordering::Relaxed))
    }

    /// Pushes a return entry onto the invocation stack: component, program counter and stack pointer, and the
    /// [`info`] of the return. Returns the new depth; `None` if the stack is full. Only for the CPU that runs
    /// the thread.
    #[inline(always)]
    pub fn push(&self, component: u64, (pc, sp): (u64, u64), what: u64) -> Option<u64> {
        let depth = self.depth.load(Ordering::Relaxed);
        let frame = self.frames.get(depth as usize)?;
        frame.pc.store(pc, Ordering::Relaxed);
        frame.sp.store(sp, Ordering::Relaxed);
        frame.component.store(component, Ordering::Relaxed);
        frame.info.store(what, Ordering::Relaxed);
        let depth = depth.wrapping_add(1);
        self.depth.store(depth, Ordering::Relaxed);
        Some(depth)
    }

    /// The entry that the next return leads to, and the depth after that return; `None` outside of
    /// invocations. Only for the CPU that runs the thread, which stores that depth.
    #[inline(always)]
    pub fn top(&self) -> Option<(u64, &Frame)> {
        let at = self.depth.load(Ordering::Relaxed).wrapping_sub(1);
        Some((at, self.frames.get(at as usize)?))
    }

    /// Whether an invocation is under way. The thread then runs the code of a service, its registers on any
    /// ISA are the service's, and the client that owns the thread must not choose where it continues.
    #[inline]
    pub fn is_invoking(&self) -> bool {
        self.depth.load(Ordering::Relaxed) != 0
    }

    /// The node that the thread left in its last handoff, plus one; 0 if there was none.
    #[inline]
    pub fn came_from(&self) -> u64 {
        self.trail.load(Ordering::Relaxed) & 0xff
    }

    /// Migrations so far.
    #[inline]
    pub fn migrations(&self) -> u64 {
        self.trail.load(Ordering::Relaxed) >> 8
    }

    /// Records the node from which the thread is about to be handed over, and whether that counts as a
    /// migration. Only the owner changes the word. Its line is in the owner's cache, where a
    /// read-modify-write would not act at memory.
    #[inline]
    pub fn leaves(&self, node: NodeId, migrates: bool) {
        let migrations = self.migrations().wrapping_add(migrates as u64);
        let trail = migrations << 8 | (node.index() as u64 + 1);
        self.trail.store(trail, Ordering::Relaxed);
    }

    /// Undoes the counting of a migration for a thread that was not handed over after all.
    pub fn stays(&self) {
        let trail = self.trail.load(Ordering::Relaxed);
        self.trail
            .store(trail.wrapping_sub(1 << 8), Ordering::Relaxed);
    }

    /// The state of the thread on an ISA: a word of [`begun`].
    #[inline]
    pub fn begun(&self, isa: Isa) -> u64 {
        self.started[isa.index()].load(Ordering::Relaxed)
    }

    /// Sets the state of the thread on an ISA: a word of [`begun`].
    #[inline]
    pub fn set_begun(&self, isa: Isa, what: u64) {
        self.started[isa.index()].store(what, Ordering::Relaxed);
    }

    /// When the owner of this thread first asked it to stop on the return from its outermost invocation:
    /// fused time, rounded down to 2^16 ns. `None` if no such request is pending. Only the owner of the
    /// thread may call this.
    pub fn stop_asked(&self) -> Option<u64> {
        let what = self.frames[0].info.load(Ordering::Relaxed);
        (what & info::STOP != 0).then_some(what >> info::ASKED_SHIFT << info::ASKED_SHIFT)
    }

    /// Records a request to stop. Only the owner of the thread may call this, while the thread is within an
    /// invocation.
    pub fn ask_stop(&self, now: u64) {
        let what = self.without_stop();
        let asked = now >> info::ASKED_SHIFT << info::ASKED_SHIFT;
        self.frames[0]
            .info
            .store(what | info::STOP | asked, Ordering::Relaxed);
    }

    /// Withdraws a request to stop. Only the owner of the thread may call this.
    pub fn withdraw_stop(&self) {
        self.frames[0]
            .info
            .store(self.without_stop(), Ordering::Relaxed);
    }

    /// The `info` of the outermost return without a request to stop.
    fn without_stop(&self) -> u64 {
        let what = self.frames[0].info.load(Ordering::Relaxed);
        what & ((1 << info::ASKED_SHIFT) - 1) & !info::STOP
    }

    /// Marks the registers of a thread as lost on every ISA: it cannot be resumed before it is configured anew.
    pub fn lose(&self) {
        for isa in Isa::ALL {
            self.set_begun(isa, begun::LOST);
        }
    }

    /// Stores the result of the thread's pending call, which returns it when the thread next runs.
    pub fn set_result(&self, status: u64, value: u64) {
        self.result_status.store(status, Ordering::Relaxed);
        self.result_value.store(value, Ordering::Relaxed);
        self.result.store(1, Ordering::Release);
    }
}

/// How many bytes of a thread must be in memory before its owner word changes.
fn changed(from: Owner, to: Owner) -> u64 {
    let at_home = |o: Owner| matches!(o.state, State::Ready | State::Running | State::Blocked);
    let stops = from.state == State::Running && to.state != State::Running;
    let stays = from.node == to.node && at_home(from) && at_home(to) && !stops;
    if stays { HEAD_BYTES } else { PAGE_SIZE }
}

/// The state of a thread on an ISA: values of [`Thread::started`].
pub mod begun {
    /// No state: the thread begins at its entry point there.
    pub const NOT: u64 = 0;
    /// Its registers are in `regs`.
    pub const HERE: u64 = 1;
    /// The registers at the `Migrate` with which the thread left are in `parked`.
    pub const PARKED: u64 = 2;
    /// The registers have been lost with a node: the thread has to be configured anew.
    pub const LOST: u64 = 3;
    /// The callee-saved registers at a call that has crossed to the other ISA are in `parked`.
    pub const CALLS: u64 = 4;
    /// The registers at the `Jump` with which the thread left are in `regs`; it is in transit.
    pub const JUMPED: u64 = 5;
}

/// An `event` value: the thread will never be on an event list again.
pub const NO_MORE_EVENTS: u64 = u64::MAX;

/// A bit of `event`: recovery doubts that the thread is on an event list. The bit is only set while the word
/// is not 0, so taking the thread off its list also ends the doubt.
pub const DOUBTED: u64 = 1 << 32;

/// Copies a register area.
pub fn copy_registers(from: &RegArea, to: &RegArea) {
    for (f, t) in from.0.iter().zip(&to.0) {
        t.store(f.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
