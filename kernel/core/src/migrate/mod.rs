//! Threads that change nodes. A module uses those above it in this table.
//!
//! | module | concern |
//! |---|---|
//! | [`carried`] | the words that a thread carries, and the reason for its handoff |
//! | [`crossing_state`] | the word that counts a thread's crossing calls |
//! | [`arrive`] | registers and state of a thread that has arrived |
//! | [`spin_handoff`] | a CPU that spins until the thread it has handed over comes back |
//! | [`handoff`] | the transfer from node to node; `Migrate`, `Load` |
//! | [`jump`] | migration that carries only an address to continue at |
//! | [`crossing`] | calls of functions that exist on the other ISA only |
//!
//! Nothing here enters the run loop: functions that may leave this CPU without a thread return a
//! [`Departure`].

pub mod arrive;
pub mod carried;
pub mod crossing;
pub mod crossing_state;
pub mod handoff;
pub mod jump;
pub mod spin_handoff;

/// How a CPU goes on whose thread has left for another node, or was to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the CPU may have nothing to run"]
pub enum Departure {
    /// By [`switched`](crate::run_loop::switched): registers of all threads are in their frames, and the CPU may have to
    /// spin for the thread that has left.
    Switched,
    /// By [`run`](crate::run_loop::run): the CPU has spun. Whatever `thread` of the CPU says goes on in the run loop;
    /// that may be the thread that had left, if something else came in with it.
    Away,
}

/// A CPU has spun for a thread, and nothing goes on by itself: [`run`](crate::run_loop::run) comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the run loop goes on"]
pub struct IntoRunLoop;
