//! State of one CPU, private to it.
//!
//! The kernel runs with interrupts masked and does not preempt itself, so plain cells suffice:
//! nobody else, not even an interrupt handler, touches them (handlers run inside
//! [`Platform::wait`](crate::Platform::wait) and only call [`CpuLocal::note_interrupt`]).

use core::cell::{Cell, RefCell};

use dyad_abi::ident::MAX_NODES;
use dyad_abi::{CpuId, NodeId};
use dyad_quiesce::{Known, LogWriter};
use dyad_ring::Consumer;
use dyad_shm::PhysAddr;
use dyad_shm::frame::WeakRef;

use crate::capcache::CapCache;
use crate::chain::Chain;
use crate::node::Node;
use crate::note::FaultNote;
use crate::object::endpoint::Line;
use crate::object::thread::Thread;
use crate::platform::Interrupt;

/// The CPU of every node that looks after others: it answers clock exchanges, beats, sees deaths.
pub const FIRST_CPU: CpuId = match CpuId::new(0) {
    Some(cpu) => cpu,
    None => unreachable!(),
};

/// Work of a CPU that a crate above the run loop does.
pub type Duty = fn(&'static Node, &'static CpuLocal);

/// State of one CPU.
pub struct CpuLocal {
    cpu: CpuId,
    /// The token that an invocation entered by `ENTER` of `dyad_core::syscall::entry` gets; read by arch
    /// code.
    pub fast_token: Cell<u64>,
    /// Receiving ends of this CPU's inboxes, by sender node.
    pub inboxes: RefCell<[Option<Consumer>; MAX_NODES]>,
    /// The thread id with which it goes on to take threads that have been handed to it.
    pub next_arrival: Cell<u32>,
    /// This CPU's flush log.
    pub log: RefCell<Option<LogWriter>>,
    /// Stamps that it knows to be quiesced.
    pub quiet: Known,
    /// The node whose supply of frames was last found to have none.
    pub short_of: Cell<Option<NodeId>>,
    /// What page faults may still cost during this stay in the kernel, in instructions, roughly: see
    /// `dyad_space::supply`.
    pub fault_budget: Cell<u32>,
    /// What is still to be written of the fault that has ended a thread here.
    pub fault_note: FaultNote,
    /// The threads under the running one.
    pub chain: Chain,
    /// The thread that runs here.
    pub thread: Cell<Option<&'static Thread>>,
    /// The thread whose component this CPU holds.
    pub holding: Cell<Option<&'static Thread>>,
    /// The same thread if it may invoke, return and fault by the fast path, because it has nothing in
    /// floating-point registers; see `dyad_core::sched::fp`.
    pub fastpath_thread: Cell<Option<&'static Thread>>,
    /// The thread whose floating-point registers are in this CPU's; they are on then.
    pub fp_of: Cell<Option<&'static Thread>>,
    /// The component it holds: a weak reference.
    pub component: Cell<u64>,
    /// Root of that component's capability table.
    pub captbl: Cell<PhysAddr>,
    /// The address space it is in: a weak reference; 0: none.
    pub space: Cell<u64>,
    /// Where the root thread of this CPU waits.
    pub root_line: Cell<Option<(WeakRef, &'static Line)>>,
    /// The running thread, or the lowest of those under it, was not dispatched: it has come from
    /// another node while the root thread waited.
    pub direct: Cell<bool>,
    /// The thread that this CPU has handed over, and is to look out for, and to which node; see
    /// `dyad_core::migrate::spin_handoff`.
    pub spins: Cell<Option<(&'static Thread, NodeId)>>,
    /// What it remembers of invocations.
    pub cache: CapCache,
    /// The bit of this node in homes of components.
    pub home: Cell<u64>,
    /// The running thread has entered by the fast path, and its register area is not complete.
    pub partial_frame: Cell<bool>,
    /// Fused time at which the present slice ends.
    slice_end: Cell<u64>,
    /// Fused time to which the timer is set; 0: it has fired since.
    pub timer_at: Cell<u64>,
    /// Interrupts other than doorbell and timer that have come since the last look, one bit each.
    other_bits: Cell<u64>,
    doorbells: Cell<u64>,
    timers: Cell<u64>,
    others: Cell<u64>,
    /// Fused time of the last housekeeping.
    pub last_tick: Cell<u64>,
    /// Requests to init from outside that this CPU, the first of its node, has told of.
    pub asked: Cell<u64>,
    /// It has said what it does since the launcher asked.
    pub stop_reported: Cell<bool>,
    /// Turns of the run loop so far. Of a system that hangs, this and the next tell whether the
    /// program goes round, or the kernel, or both wait.
    pub turns: Cell<u64>,
    /// Page faults so far.
    pub faults: Cell<u64>,
    /// What the run loop of a node's first CPU does for other nodes in each turn, a bounded piece at a time: recovers
    /// those that have died. Boot sets it, because recovery is in a crate above the run loop's. `None` on other CPUs,
    /// and on machines of the host.
    pub look_after_others: Cell<Option<Duty>>,
    /// The last page fault that was resolved (address, program counter) and how often it has come
    /// again since the thread last got anywhere.
    last_fault: Cell<(u64, u64, u32)>,
}

impl CpuLocal {
    /// Fresh state for a CPU.
    pub const fn new(cpu: CpuId) -> CpuLocal {
        CpuLocal {
            cpu,
            fast_token: Cell::new(0),
            inboxes: RefCell::new([const { None }; MAX_NODES]),
            next_arrival: Cell::new(0),
            log: RefCell::new(None),
            quiet: Known::new(),
            chain: Chain::new(),
            short_of: Cell::new(None),
            fault_budget: Cell::new(0),
            fault_note: FaultNote::new(),
            thread: Cell::new(None),
            holding: Cell::new(None),
            fastpath_thread: Cell::new(None),
            fp_of: Cell::new(None),
            component: Cell::new(0),
            captbl: Cell::new(PhysAddr(0)),
            space: Cell::new(0),
            root_line: Cell::new(None),
            direct: Cell::new(false),
            spins: Cell::new(None),
            cache: CapCache::new(),
            home: Cell::new(0),
            partial_frame: Cell::new(false),
            slice_end: Cell::new(u64::MAX),
            timer_at: Cell::new(0),
            other_bits: Cell::new(0),
            doorbells: Cell::new(0),
            timers: Cell::new(0),
            others: Cell::new(0),
            last_tick: Cell::new(0),
            asked: Cell::new(0),
            stop_reported: Cell::new(false),
            turns: Cell::new(0),
            faults: Cell::new(0),
            look_after_others: Cell::new(None),
            last_fault: Cell::new((0, 0, 0)),
        }
    }

    /// Which CPU this is.
    pub const fn id(&self) -> CpuId {
        self.cpu
    }

    /// As [`timer_at`](CpuLocal::timer_at): the timer is set, and its time has come.
    pub const AT_ONCE: u64 = 1;

    /// How many interrupts this CPU has taken.
    pub fn interrupts(&self) -> u64 {
        let all = [&self.doorbells, &self.timers, &self.others];
        all.into_iter().map(Cell::get).sum()
    }

    /// Called by the platform for each interrupt it has acknowledged.
    pub fn note_interrupt(&self, i: Interrupt) {
        match i {
            Interrupt::Doorbell => self.doorbells.set(self.doorbells.get() + 1),
            Interrupt::Timer => {
                self.timers.set(self.timers.get() + 1);
                self.timer_at.set(0);
            }
            Interrupt::Other(n) => {
                self.others.set(self.others.get() + 1);
                self.other_bits.set(self.other_bits.get() | 1 << (n % 64));
            }
        }
    }

    /// Notes a page fault at `address` of the instruction at `pc`; returns how often just that
    /// one has come in a row.
    pub fn note_fault(&self, address: u64, pc: u64) -> u32 {
        self.faults.set(self.faults.get() + 1);
        let (a, p, n) = self.last_fault.get();
        let n = if (a, p) == (address, pc) {
            n.saturating_add(1)
        } else {
            1
        };
        self.last_fault.set((address, pc, n));
        n
    }

    /// The number of an interrupt that has come since the last look, if one has.
    pub fn take_other(&self) -> Option<u32> {
        let bits = self.other_bits.get();
        if bits == 0 {
            return None;
        }
        self.other_bits.set(bits & (bits - 1));
        Some(bits.trailing_zeros())
    }

    /// Whether [`take_other`](CpuLocal::take_other) would return one.
    pub fn has_other(&self) -> bool {
        self.other_bits.get() != 0
    }

    /// Whether this CPU holds a thread's component.
    #[inline]
    pub fn has_loaded(&self, t: &'static Thread) -> bool {
        self.holding.get().is_some_and(|h| core::ptr::eq(h, t))
    }

    /// Fused time at which the present slice ends.
    pub fn slice_end(&self) -> u64 {
        self.slice_end.get()
    }

    /// The running thread's slice ends then.
    pub fn set_slice_end(&self, at: u64) {
        self.slice_end.set(at);
    }

    /// Interrupts taken so far: doorbells, timer, others.
    pub fn interrupt_counts(&self) -> (u64, u64, u64) {
        (self.doorbells.get(), self.timers.get(), self.others.get())
    }
}
