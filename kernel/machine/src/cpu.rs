//! State of one CPU, private to it.
//!
//! The kernel runs with interrupts masked and does not preempt itself, so plain cells suffice: no other code
//! accesses them, not even an interrupt handler (handlers run inside
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

/// The CPU of every node that serves other nodes: it answers clock exchanges, increments the heartbeat,
/// detects deaths.
pub const FIRST_CPU: CpuId = match CpuId::new(0) {
    Some(cpu) => cpu,
    None => unreachable!(),
};

/// Work of a CPU that a crate above the run loop does.
pub type Duty = fn(&'static Node, &'static CpuLocal);

/// State of one CPU.
pub struct CpuLocal {
    cpu: CpuId,
    /// The token of an invocation that is entered by `ENTER` of `dyad_core::syscall::entry`; arch code reads
    /// it.
    pub fast_token: Cell<u64>,
    /// Receiving ends of this CPU's inboxes, by sender node.
    pub inboxes: RefCell<[Option<Consumer>; MAX_NODES]>,
    /// The thread id from which this CPU next searches for threads that have been handed to it.
    pub next_arrival: Cell<u32>,
    /// This CPU's flush log.
    pub log: RefCell<Option<LogWriter>>,
    /// Stamps that this CPU knows to be quiesced.
    pub quiet: Known,
    /// The node whose supply of frames was last found empty.
    pub short_of: Cell<Option<NodeId>>,
    /// The remaining cost that page faults may have during this stay in the kernel, in instructions, roughly:
    /// see `dyad_space::supply`.
    pub fault_budget: Cell<u32>,
    /// The unwritten rest of the report on the fault that has ended a thread here.
    pub fault_note: FaultNote,
    /// The threads under the running one.
    pub chain: Chain,
    /// The running thread of this CPU.
    pub thread: Cell<Option<&'static Thread>>,
    /// The thread whose component this CPU holds.
    pub holding: Cell<Option<&'static Thread>>,
    /// The running thread if it may invoke, return and fault by the fast path, because it has nothing in
    /// floating-point registers; see `dyad_core::sched::fp`.
    pub fastpath_thread: Cell<Option<&'static Thread>>,
    /// The thread whose floating-point values are in this CPU's registers, which are then on.
    pub fp_of: Cell<Option<&'static Thread>>,
    /// How many threads have arrived here that used these registers where they came from.
    pub fp_arrivals: Cell<u8>,
    /// The component that this CPU holds: a weak reference.
    pub component: Cell<u64>,
    /// Root of that component's capability table.
    pub captbl: Cell<PhysAddr>,
    /// The address space that this CPU is in: a weak reference; 0 means none.
    pub space: Cell<u64>,
    /// The endpoint where the root thread of this CPU has last received.
    pub root_line: Cell<Option<(WeakRef, &'static Line)>>,
    /// Whether this CPU has told its own scheduler something that it may not have taken yet.
    pub has_told: Cell<bool>,
    /// Whether the running thread, or the lowest of those under it, came from another node while the root
    /// thread waited, and so was not dispatched.
    pub direct: Cell<bool>,
    /// The thread that this CPU has handed over and must spin for, with the receiving node; see
    /// `dyad_core::migrate::spin_handoff`.
    pub spins: Cell<Option<(&'static Thread, NodeId)>>,
    /// The capability cache.
    pub cache: CapCache,
    /// The bit of this node in homes of components.
    pub home: Cell<u64>,
    /// Whether the running thread has entered by the fast path, so that its register area is not complete.
    pub partial_frame: Cell<bool>,
    /// Fused time at which the present slice ends.
    slice_end: Cell<u64>,
    /// Fused time to which the timer is set; 0 means that it has fired.
    pub timer_at: Cell<u64>,
    /// Interrupts other than doorbell and timer that have not been taken yet, one bit each.
    other_bits: Cell<u64>,
    doorbells: Cell<u64>,
    timers: Cell<u64>,
    others: Cell<u64>,
    /// Fused time of the last housekeeping.
    pub last_tick: Cell<u64>,
    /// The number of the last request to init from outside that this CPU, the first of its node, has
    /// announced.
    pub asked: Cell<u64>,
    /// Whether this CPU has reported its state since the launcher asked.
    pub stop_reported: Cell<bool>,
    /// Turns of the run loop so far. In a system that hangs, this count and the next tell whether the program
    /// loops, the kernel loops, or both wait.
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
            fp_arrivals: Cell::new(0),
            component: Cell::new(0),
            captbl: Cell::new(PhysAddr(0)),
            space: Cell::new(0),
            root_line: Cell::new(None),
            has_told: Cell::new(false),
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

    /// The number of this CPU.
    pub const fn id(&self) -> CpuId {
        self.cpu
    }

    /// A value of [`timer_at`](CpuLocal::timer_at): the timer is set, and its time has come.
    pub const AT_ONCE: u64 = 1;

    /// How many interrupts this CPU has taken.
    pub fn interrupts(&self) -> u64 {
        let all = [&self.doorbells, &self.timers, &self.others];
        all.into_iter().map(Cell::get).sum()
    }

    /// Counts an interrupt. The platform calls this for each interrupt that it has acknowledged.
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

    /// Notes a page fault at `address` of the instruction at `pc`; returns how often this fault has occurred
    /// in a row.
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

    /// Takes the number of an interrupt that has come since the last call, if one has.
    pub fn take_other(&self) -> Option<u32> {
        let bits = self.other_bits.get();
        if bits == 0 {
            return None;
        }
        self.other_bits.set(bits & (bits - 1));
        Some(bits.trailing_zeros())
    }

    /// Whether [`take_other`](CpuLocal::take_other) would return an interrupt.
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

    /// Sets the end of the running thread's slice.
    pub fn set_slice_end(&self, at: u64) {
        self.slice_end.set(at);
    }

    /// Interrupts taken so far: doorbells, timer, others.
    pub fn interrupt_counts(&self) -> (u64, u64, u64) {
        (self.doorbells.get(), self.timers.get(), self.others.get())
    }
}
