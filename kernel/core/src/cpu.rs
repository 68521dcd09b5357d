//! State of one CPU, private to it.
//!
//! The kernel runs with interrupts masked and does not preempt itself, so plain cells suffice:
//! nobody else, not even an interrupt handler, touches them (handlers run inside
//! [`Platform::wait`](crate::Platform::wait) and only call [`CpuLocal::note_interrupt`]).

use core::cell::{Cell, RefCell};

use dyad_abi::CpuId;
use dyad_abi::ident::MAX_NODES;
use dyad_quiesce::LogWriter;
use dyad_ring::Consumer;

use crate::platform::Interrupt;
use crate::sched::RunQueue;
use crate::thread::ThreadFrame;

/// State of one CPU.
pub struct CpuLocal {
    cpu: CpuId,
    /// The token that an invocation entered by [`ENTER`](crate::entry::ENTER) gets; read by arch
    /// code.
    pub fast_token: Cell<u64>,
    /// The thread whose registers are in its register area because it was stopped on this CPU
    /// last and has not been handed on.
    pub(crate) current: Cell<Option<&'static ThreadFrame>>,
    /// The thread whose address space and floating-point registers this CPU holds.
    pub(crate) loaded: Cell<Option<&'static ThreadFrame>>,
    /// Whether the idle root is loaded.
    pub(crate) idle_root: Cell<bool>,
    /// Threads that are ready or asleep here.
    pub(crate) queue: RunQueue,
    /// Receiving ends of this CPU's inboxes, by sender node.
    pub(crate) inboxes: RefCell<[Option<Consumer>; MAX_NODES]>,
    /// This CPU's flush log.
    pub(crate) log: RefCell<Option<LogWriter>>,
    doorbells: Cell<u64>,
    timers: Cell<u64>,
    others: Cell<u64>,
    timer_fired: Cell<bool>,
    pub(crate) last_tick: Cell<u64>,
    /// Last system call, for reports; number plus one.
    pub(crate) last_syscall: Cell<u64>,
    pub(crate) stop_reported: Cell<bool>,
    /// Turns of the run loop, system calls and page faults so far. Of a system that hangs they tell
    /// whether the program goes round, or the kernel, or both wait.
    pub(crate) turns: Cell<u64>,
    pub(crate) syscalls: Cell<u64>,
    pub(crate) faults: Cell<u64>,
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
            current: Cell::new(None),
            loaded: Cell::new(None),
            idle_root: Cell::new(true),
            queue: RunQueue::new(),
            inboxes: RefCell::new([const { None }; MAX_NODES]),
            log: RefCell::new(None),
            doorbells: Cell::new(0),
            timers: Cell::new(0),
            others: Cell::new(0),
            timer_fired: Cell::new(false),
            last_tick: Cell::new(0),
            last_syscall: Cell::new(0),
            stop_reported: Cell::new(false),
            turns: Cell::new(0),
            syscalls: Cell::new(0),
            faults: Cell::new(0),
            last_fault: Cell::new((0, 0, 0)),
        }
    }

    /// Which CPU this is.
    pub const fn id(&self) -> CpuId {
        self.cpu
    }

    /// Called by the platform for each interrupt it has acknowledged.
    pub fn note_interrupt(&self, i: Interrupt) {
        match i {
            Interrupt::Doorbell => self.doorbells.set(self.doorbells.get() + 1),
            Interrupt::Timer => {
                self.timers.set(self.timers.get() + 1);
                self.timer_fired.set(true);
            }
            Interrupt::Other(_) => self.others.set(self.others.get() + 1),
        }
    }

    /// Notes a page fault at `address` of the instruction at `pc`; returns how often just that
    /// one has come in a row.
    pub(crate) fn note_fault(&self, address: u64, pc: u64) -> u32 {
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

    /// The thread has got somewhere: faults start to count anew.
    pub(crate) fn forget_faults(&self) {
        self.last_fault.set((0, 0, 0));
    }

    /// Whether the timer has fired since the last call.
    pub(crate) fn take_timer(&self) -> bool {
        self.timer_fired.replace(false)
    }

    /// Interrupts taken so far: doorbells, timer, others.
    pub fn interrupt_counts(&self) -> (u64, u64, u64) {
        (self.doorbells.get(), self.timers.get(), self.others.get())
    }
}
