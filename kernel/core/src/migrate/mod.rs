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

/// The outcome of an attempt to leave for another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the CPU may have nothing to run"]
pub enum Departure {
    /// Nothing has changed: the caller must take the slow path.
    NotTaken,
    /// The thread's area is complete. This thread or another one runs here next, by
    /// [`crate::run_loop::switched`].
    Switched,
    /// The thread has left, and this CPU has spun for it in vain. The CPU continues in
    /// [`crate::run_loop::run`].
    Away,
}
