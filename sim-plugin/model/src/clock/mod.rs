//! The fused clock: how far the CPUs of all machines are in simulated time, and what happens when.
//!
//! Every CPU counts its own time, in picoseconds, while it executes. Everything that couples CPUs of
//! different machines is here: nobody runs far ahead of others, interrupts come at the moment that
//! they are due, and time jumps when everybody sleeps. There is no thread that does any of it: CPUs
//! look around when their quantum is over and when they fall asleep, and find out what is to be
//! done.
//!
//! The machines are processes, which share the words of a file ([`words`]). Guests cannot see it.
//!
//! | module | concern |
//! |---|---|
//! | [`words`] | the file: where what is; reading and changing words |
//! | [`state`] | what a CPU does, as one word |
//! | [`events`] | deadlines, doorbells on their way |
//! | [`coupling`] | quantum, sleep, waking, all asleep |
//! | [`supervise`] | waits that end; who is no longer waited for |
//! | [`turns`] | strict order: one CPU at a time, by a seed |
//!
//! # A CPU
//!
//! ```text
//!             begins                   falls asleep
//! Absent ───────────────▶ Running ──────────────────────▶ Idle
//!   ▲                      │  ▲  ▲                        │ │
//!   │ a new life           │  │  │ takes its event,       │ │ event due: claimed by a CPU
//!   │                      │  │  │ time jumps there       │ │ that has come so far, or by
//! Gone ◀── end ────────────┤  │  └──────── Waking ◀───────┘ │ the last that fell asleep
//!   (or its process        │  │              │              │
//!    is gone)              │  │ follows      │ stopped      │
//!                  stopped ▼  │              │              │
//!                        Stalled ◀───────────┘              │
//!                             ▲    woken from outside       │
//!                             └─ (to Running) ◀─────────────┘
//! ```
//!
//! | transition | by whom | how |
//! |---|---|---|
//! | Running → Idle, Gone | the CPU itself | exchange, then a fence, then a look at all others |
//! | Idle → Waking | any CPU, once | compare and exchange with the word it has looked at |
//! | Waking, Idle, Stalled → Running | the CPU itself | compare and exchange |
//! | Running, Waking → Stalled, Gone | who waits for it | compare and exchange |
//!
//! Every transition changes the word's number, so who has looked at a CPU and then changes its word
//! knows that nothing has happened in between.
//!
//! # Why an event never comes too late
//!
//! A doorbell rung at time t is due at t + ipi. A receiver that runs is at most lag + quantum + one
//! block ahead of the sender, and ipi is not less, so the event is in its queue before it is due. A
//! receiver that sleeps does not move.

pub mod coupling;
pub mod events;
pub mod state;
pub mod supervise;
pub mod turns;
pub mod words;

#[cfg(test)]
mod tests;

use dyad_abi::ident::{MAX_CPUS, MAX_NODES};
use dyad_abi::{CpuId, NodeId};

pub use coupling::{Coupling, Resumed, Slice, Stats};
pub use state::State;
pub use words::Words;

/// Picoseconds in a nanosecond.
pub const PS: u64 = 1000;
/// Most CPUs of a system.
pub const MAX_WHO: usize = MAX_NODES * MAX_CPUS;

/// A CPU of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who(u8);

impl Who {
    /// A CPU of a node.
    pub const fn new(node: NodeId, cpu: CpuId) -> Who {
        Who((node.index() * MAX_CPUS + cpu.index()) as u8)
    }

    /// Number of the CPU, below [`MAX_WHO`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Number of its node.
    pub const fn node(self) -> usize {
        self.0 as usize / MAX_CPUS
    }

    /// Number of the CPU in its node.
    pub const fn cpu(self) -> usize {
        self.0 as usize % MAX_CPUS
    }
}

/// Dimensions of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Nodes.
    pub nodes: usize,
    /// CPUs of each.
    pub cpus: usize,
}

impl Shape {
    /// All CPUs, in order.
    pub fn all(self) -> impl Iterator<Item = Who> {
        (0..self.nodes)
            .flat_map(move |node| (0..self.cpus).map(move |cpu| Who((node * MAX_CPUS + cpu) as u8)))
    }

    /// All but one.
    pub fn others(self, me: Who) -> impl Iterator<Item = Who> {
        self.all().filter(move |who| *who != me)
    }
}

/// Lengths, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Time that a CPU runs until it checks the progress of others.
    pub quantum: u64,
    /// Time by which a CPU may be ahead of another running CPU when it checks.
    pub lag: u64,
    /// Time from ringing a doorbell to the interrupt.
    pub ipi: u64,
}

impl Default for Times {
    fn default() -> Times {
        Times {
            quantum: 500 * PS,
            lag: 1000 * PS,
            ipi: 2000 * PS,
        }
    }
}

/// The order in which CPUs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All at once, within the lag.
    Parallel,
    /// One at a time.
    Strict {
        /// Decides about slices and their order.
        seed: u64,
    },
}

/// An interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// The deadline has passed.
    Timer,
    /// A doorbell.
    Doorbell,
}

/// State of a thread of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// The thread runs, or would if there were a free processor.
    Runnable,
    /// The thread sleeps, or has been stopped.
    Sleeping,
    /// The thread no longer exists.
    Gone,
}

/// Functions that the model needs from the process around it.
pub trait Host {
    /// Makes an interrupt pending at a CPU that sleeps. It may belong to another process.
    fn ring(&self, who: Who, what: Interrupt);
    /// Pauses briefly, in a loop that ends soon.
    fn pause(&self);
    /// Number of times that a CPU's gate has been opened.
    fn gate(&self, who: Who) -> u32;
    /// Sleeps until a CPU's gate has been opened more often than that, but not for long: a
    /// millisecond, say.
    fn block(&self, who: Who, gate: u32);
    /// Opens a CPU's gate.
    fn open(&self, who: Who);
    /// The host's time, in nanoseconds.
    fn host_ns(&self) -> u64;
    /// State of a thread of a process.
    fn thread(&self, pid: u64, tid: u64) -> Thread;
}

/// A step of a generator of random numbers (SplitMix64): the new state and a number.
pub(crate) const fn random(state: u64) -> (u64, u64) {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    (state, mix(state))
}

/// Scatters the bits of a number.
pub const fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}
