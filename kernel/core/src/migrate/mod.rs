//! Threads that change nodes.
//!
//! | module | concern |
//! |---|---|
//! | [`handoff`] | a thread leaves one node and arrives on another |
//! | [`jump`] | migration that takes nothing along but a place to go on |
//! | [`crossing`] | calls of functions that exist on the other ISA only |
//! | [`spin_handoff`] | a CPU that spins until the thread it has handed over comes back |

pub mod crossing;
pub mod handoff;
pub mod jump;
pub mod spin_handoff;
