//! Threads: one frame each, with one register area per ISA.
//!
//! A thread is a *heterogeneous continuation*: what it was doing on each ISA is kept apart, and
//! exactly one of the areas is the one that runs. The owner word says who may touch the frame:
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
//! Only who owns a thread stores to its words; what others change in it, the owner word and those of event
//! lists, they change at memory. So a thread that is nobody's, stopped or not configured, is taken before
//! it is changed: of two who configure or resume it at the same time, one is refused before it has stored
//! anything. The words of event lists change whoever owns the thread, and have a line of their own: were
//! there a word on it that the owner stores to, writing that back could undo their changes.
//!
//! `seq` counts changes of hands and waits, so that a CPU that has an older one in hand cannot take the
//! thread.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::service::INVOKE_DEPTH;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Isa, NodeId};
use dyad_coherence::LINE_BYTES;
use dyad_retype::KernelKind;
use dyad_shm::{LayoutHash, shared_layout, shared_struct};

use crate::memory::Words;

/// Who owns a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Not configured, or ended.
    None = 0,
    /// May be dispatched by a CPU of its node.
    Ready = 1,
    /// Runs on a CPU of its node, or waits there for a thread that it has dispatched.
    Running = 2,
    /// On its way to `node`.
    Transit = 3,
    /// Waits at an endpoint.
    Blocked = 4,
    /// Taken out of scheduling.
    Stopped = 5,
    /// Its frame is being given up: it is nothing else any more.
    Gone = 6,
    /// A CPU of the node configures or resumes the thread, or accesses its registers.
    Changing = 7,
    /// It was ready or blocked at its node, which has died. A recoverer has taken it.
    Orphaned = 8,
    /// It was on its way to its node, which has died. A recoverer has taken it.
    Stranded = 9,
}

/// The owner word: `seq:24 | incarnation:24 | node:8 | state:8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// State.
    pub state: State,
    /// The node that owns it, or that it is on its way to.
    pub node: NodeId,
    /// Incarnation of that node (24 bits).
    pub incarnation: u32,
    /// Changes of hands so far (24 bits, wrapping).
    pub seq: u32,
}

const FIELD: u32 = 0xff_ffff;

impl Owner {
    /// The word.
    pub const fn bits(self) -> u64 {
        self.state as u64
            | (self.node.index() as u64) << 8
            | ((self.incarnation & FIELD) as u64) << 16
            | ((self.seq & FIELD) as u64) << 40
    }

    /// Reads a word; `None` if it is none.
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

    /// The next owner. The number tells two stays at the same node apart: a message about an older
    /// one takes nothing.
    #[must_use]
    pub const fn passed(self, to: NodeId, incarnation: u32, state: State) -> Owner {
        Owner {
            state,
            node: to,
            incarnation,
            seq: self.seq.wrapping_add(1),
        }
    }

    /// The owner of a running thread that goes to sleep. The number tells its waits apart: see
    /// [`Waiter`](crate::endpoint::Waiter).
    #[must_use]
    pub const fn asleep(self) -> Owner {
        let next = self.passed(self.node, self.incarnation, State::Blocked);
        Owner {
            seq: next.seq & FIELD,
            ..next
        }
    }

    /// Whether the word is that of a thread in this state at this node, in this incarnation, however
    /// often it has changed hands.
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
    /// An invocation that is under way: where it returns to.
    #[derive(Debug)]
    #[repr(align(32))]
    pub struct Frame {
        /// The component that invoked: a weak reference.
        pub component: AtomicU64,
        /// The address at which the caller continues.
        pub pc: AtomicU64,
        /// Its stack pointer.
        pub sp: AtomicU64,
        /// 0, or what is special about the return: see [`info`].
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

/// What is special about an invocation's return.
pub mod info {
    /// The registers of a fault are in the save area: word 0 decides whether to go on.
    pub const FAULT: u64 = 1;
    /// The thread has come from another node for it: the node is in bits 8..16.
    pub const CROSSED: u64 = 2;
    /// With `FAULT`: floating-point registers are in their save area.
    pub const FP: u64 = 4;
    /// Only in the bottom entry: the thread stops when it returns there. Bits [`ASKED_SHIFT`] and above hold the
    /// fused time at which this was first asked, in units of 2^[`ASKED_SHIFT`] ns.
    pub const STOP: u64 = 8;
    /// See [`STOP`].
    pub const ASKED_SHIFT: u32 = 16;
}

shared_struct! {
    /// A thread.
    #[derive(Debug)]
    #[repr(align(4096))]
    pub struct Thread {
        /// An [`Owner`].
        pub owner: AtomicU64,
        /// Its crossing calls under way; see `dyad_core::migrate::crossing`.
        pub crossing: AtomicU64,
        /// Bits 0 to 7: the node it left in its last hand-over, plus one; above: migrations so far. See
        /// [`leaves`](Thread::leaves).
        pub trail: AtomicU64,
        /// The CPU of its node it belongs to.
        pub cpu: AtomicU64,
        /// Fused time at which its slice ends; `u64::MAX`: never.
        pub slice_end: AtomicU64,
        /// A bit for each ISA on which it has something in floating-point registers. On the others
        /// they are as at the start, whatever is in `fp`. Bits above: whether those of a side that waits
        /// in `Migrate` are kept, and where. See `dyad_core::sched::fp`.
        pub used_fp: AtomicU64,
        /// Per ISA: what there is of the thread there, see [`begun`].
        pub started: [AtomicU64; dyad_abi::ident::ISA_COUNT],
        /// What it does where it has been handed to; see `dyad_core::migrate::handoff`.
        pub carried: [AtomicU64; 8],
        /// Its id, which no other live thread has ([`crate::ids`]); decides its stacks.
        pub id: AtomicU64,
        /// What its scheduler calls it.
        pub tag: AtomicU64,
        /// The component it runs in: a weak reference.
        pub component: AtomicU64,
        /// Endpoints of its scheduler: a weak reference.
        pub scheduler: AtomicU64,
        /// Time budgets it runs on: a weak reference; 0: none that can run out.
        pub budget: AtomicU64,
        /// Entries in use of `frames`.
        pub depth: AtomicU64,
        /// Entry point and its argument, for the first entry on each ISA.
        pub entry: AtomicU64,
        /// See `entry`.
        pub arg: AtomicU64,
        /// 1: its call's result is to be set when it next runs: `result_status`, `result_value`.
        /// 2: the result is what is at the endpoint it waited at.
        pub result: AtomicU64,
        /// See `result`.
        pub result_status: AtomicU64,
        /// See `result`.
        pub result_value: AtomicU64,
        /// Endpoint it waits at: weak reference of the frame.
        pub waits_at: AtomicU64,
        /// Number of that endpoint in the frame.
        pub waits_line: AtomicU64,
        /// Fused time until which it waits; 0 for ever.
        pub deadline: AtomicU64,
        /// Priority it was last dispatched with; larger is more urgent.
        pub priority: AtomicU64,
        /// Whether a handler deals with a fault, whose registers are in `saved`.
        pub fault: AtomicU64,
        /// Fused time at which it was last dispatched on a budget.
        pub budget_from: AtomicU64,
        /// Number of the budget in its frame.
        pub budget_line: AtomicU64,
        /// Exit code, once it has ended.
        pub exit_code: AtomicU64,
        /// Nanoseconds that have been taken off its budget for the present dispatch.
        pub budget_reserved: AtomicU64,
        /// Reserved; zero.
        pub reserved: [AtomicU64; 4],
        /// Next on an event list: link word. Changed at memory only, as `event`.
        pub event_link: AtomicU64,
        /// Why it is on an event list (a [`Woken`](dyad_abi::cap::Woken)); 0: it is not. With
        /// [`DOUBTED`] while a recoverer looks whether it is on any.
        pub event: AtomicU64,
        /// Reserved; zero.
        pub unused: [AtomicU64; 6],
        /// What a crossing call carries in floating-point registers, as bits of `f64`s.
        pub carried_fp: [AtomicU64; 8],
        /// Floating-point registers that callees preserve, on the ISA that has some, while a call that
        /// has been made there is under way.
        pub kept_fp: [AtomicU64; 8],
        /// Invocations under way.
        pub frames: [Frame; INVOKE_DEPTH],
        /// Registers at the `Migrate` call with which it left an ISA, by ISA.
        pub parked: [RegArea; dyad_abi::ident::ISA_COUNT],
        /// General registers, by ISA.
        pub regs: [RegArea; dyad_abi::ident::ISA_COUNT],
        /// Registers at a fault that a handler deals with.
        pub saved: RegArea,
        /// Floating-point state, by ISA; or, in the area of either ISA, that of a side that waits.
        pub fp: [FpArea; dyad_abi::ident::ISA_COUNT],
        /// Floating-point registers at a fault that a handler deals with, if the frame of the fault says so.
        pub saved_fp: FpArea,
    }
}

const _: () = assert!(size_of::<Thread>() as u64 == PAGE_SIZE);

/// Bytes of a thread's words, but for those of event lists, its stack of invocations and its registers.
const HEAD_BYTES: u64 = core::mem::offset_of!(Thread, reserved) as u64;

/// The words of event lists have a cache line of their own, to which no other field that is stored to belongs.
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
            budget_reserved, reserved,
            event_link, event, unused, carried_fp, kept_fp, frames, parked, regs, saved, fp, saved_fp,
        },
    )
    .word(REG_WORDS as u64)
    .word(FP_WORDS as u64)
}

impl Thread {
    /// The kind of its frame.
    pub const KIND: KernelKind = KernelKind::THREAD;

    /// The owner word, decoded. Where caches are not coherent, the words of a thread that other
    /// nodes look at are as memory has them from here on.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn owner(&self, words: &Words) -> Option<Owner> {
        Owner::from_bits(self.owner_word(words))
    }

    /// The owner word as [`owner`](Thread::owner) reads it.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn owner_word(&self, words: &Words) -> u64 {
        words.read_first(&self.owner, HEAD_BYTES)
    }

    /// As [`change`](Thread::change), of a thread that stays at its node and is not handed over.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn change_at_home(&self, words: &Words, from: u64, to: u64) -> bool {
        words.exchange_first(&self.owner, from, to, || HEAD_BYTES)
    }

    /// Changes the owner word, which must be `from`. Where caches are not coherent, what this node
    /// has stored to the thread is in memory before, and no copy stays of what others have stored: of
    /// all of it if it changes hands or stops running, after which any node may take it; else of the
    /// words that other nodes look at.
    #[inline]
    #[cfg_attr(feature = "ktest", track_caller)]
    pub fn change(&self, words: &Words, from: Owner, to: Owner) -> bool {
        words.exchange_first(&self.owner, from.bits(), to.bits(), || changed(from, to))
    }

    /// As [`change`](Thread::change), by the words.
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

    /// Its general registers on an ISA.
    #[inline]
    pub fn regs(&self, isa: Isa) -> &RegArea {
        &self.regs[isa.index()]
    }

    /// Its floating-point state on an ISA.
    #[inline]
    pub fn fp(&self, isa: Isa) -> &FpArea {
        &self.fp[isa.index()]
    }

    /// What the invocation at a depth is called: `id << 8 | depth`. No two invocations that are under way have the same
    /// token, so the token finds the callee a stack.
    #[inline]
    pub fn token_at(&self, depth: u64) -> u64 {
        self.id.load(Ordering::Relaxed) << 8 | depth
    }

    /// What the invocation that is under way is called.
    #[inline]
    pub fn token(&self) -> u64 {
        self.token_at(self.depth.load(Ordering::Relaxed))
    }

    /// Puts where the thread is onto its stack of invocations: component, program counter and stack pointer, and what the
    /// return is to do. Returns the depth; `None` if the stack is full. For the CPU that runs the thread.
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

    /// The entry that the next return leads to, and the depth then; `None` in no invocation. For the CPU that runs the
    /// thread, which stores that depth.
    #[inline(always)]
    pub fn top(&self) -> Option<(u64, &Frame)> {
        let at = self.depth.load(Ordering::Relaxed).wrapping_sub(1);
        Some((at, self.frames.get(at as usize)?))
    }

    /// Whether an invocation is under way: then the thread runs the code of a service, its registers on any ISA
    /// are the service's, and the client that owns the thread must not choose where it goes on.
    #[inline]
    pub fn is_invoking(&self) -> bool {
        self.depth.load(Ordering::Relaxed) != 0
    }

    /// The node it left in its last hand-over, plus one; 0: none yet.
    #[inline]
    pub fn came_from(&self) -> u64 {
        self.trail.load(Ordering::Relaxed) & 0xff
    }

    /// Migrations so far.
    #[inline]
    pub fn migrations(&self) -> u64 {
        self.trail.load(Ordering::Relaxed) >> 8
    }

    /// Notes the node from which it is about to be handed over, and whether that counts as a migration.
    /// Nobody but its owner changes the word, whose line is in that node's cache, where a
    /// read-modify-write would not act at memory.
    #[inline]
    pub fn leaves(&self, node: NodeId, migrates: bool) {
        let migrations = self.migrations().wrapping_add(migrates as u64);
        let trail = migrations << 8 | (node.index() as u64 + 1);
        self.trail.store(trail, Ordering::Relaxed);
    }

    /// It has not been handed over after all: takes a migration back.
    pub fn stays(&self) {
        let trail = self.trail.load(Ordering::Relaxed);
        self.trail
            .store(trail.wrapping_sub(1 << 8), Ordering::Relaxed);
    }

    /// What there is of it on an ISA: a word of [`begun`].
    #[inline]
    pub fn begun(&self, isa: Isa) -> u64 {
        self.started[isa.index()].load(Ordering::Relaxed)
    }

    /// Changes that.
    #[inline]
    pub fn set_begun(&self, isa: Isa, what: u64) {
        self.started[isa.index()].store(what, Ordering::Relaxed);
    }

    /// When the owner of this thread first asked that it stop on its return from its outermost invocation:
    /// fused time, rounded down to 2^16 ns. `None`: no such request is pending. Only the owner of the thread
    /// may call this.
    pub fn stop_asked(&self) -> Option<u64> {
        let what = self.frames[0].info.load(Ordering::Relaxed);
        (what & info::STOP != 0).then_some(what >> info::ASKED_SHIFT << info::ASKED_SHIFT)
    }

    /// Notes a request to stop. Only the owner of the thread may call this, and the thread is within an
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

    /// The word about the outermost return without a request to stop.
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

    /// Has its call return this when it next runs.
    pub fn set_result(&self, status: u64, value: u64) {
        self.result_status.store(status, Ordering::Relaxed);
        self.result_value.store(value, Ordering::Relaxed);
        self.result.store(1, Ordering::Release);
    }
}

/// How much of a thread is to be in memory before its owner word changes, in bytes.
fn changed(from: Owner, to: Owner) -> u64 {
    let at_home = |o: Owner| matches!(o.state, State::Ready | State::Running | State::Blocked);
    let stops = from.state == State::Running && to.state != State::Running;
    let stays = from.node == to.node && at_home(from) && at_home(to) && !stops;
    if stays { HEAD_BYTES } else { PAGE_SIZE }
}

/// What a thread has on an ISA: words of [`Thread::started`].
pub mod begun {
    /// Nothing: there it begins at its entry point.
    pub const NOT: u64 = 0;
    /// Its registers.
    pub const HERE: u64 = 1;
    /// The registers that the thread had when it left by `Migrate` are in `parked`.
    pub const PARKED: u64 = 2;
    /// They have been lost with a machine: it has to be configured anew.
    pub const LOST: u64 = 3;
    /// What callees preserve, at a call that has crossed to the other ISA, in `parked`.
    pub const CALLS: u64 = 4;
    /// Its registers at the `Jump` with which it left and is on its way: in `regs`.
    pub const JUMPED: u64 = 5;
}

/// As the reason for which a thread is on an event list: it will be on none any more.
pub const NO_MORE_EVENTS: u64 = u64::MAX;

/// With the reason for which a thread is on an event list: a recoverer doubts that it is on any. The bit is
/// only set while the word is not 0, so taking the thread off its list also ends the doubt.
pub const DOUBTED: u64 = 1 << 32;

/// Copies an area.
pub fn copy_registers(from: &RegArea, to: &RegArea) {
    for (f, t) in from.0.iter().zip(&to.0) {
        t.store(f.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
