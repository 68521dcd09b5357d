//! Traps and system calls.
//!
//! | module | concern |
//! |---|---|
//! | [`entry`] | what `arch` calls: system calls, invocations, faults, interrupts |
//! | `fault_report` | what is kept of a fault that ends a thread |
//! | [`fastpath`] | operations on cached capabilities, without the slow path's checks of unchanged words |
//! | [`slowpath`] | where the fast path ends: results of system calls |
//! | [`ops`] | operations on capabilities |
//! | [`invoke`] | invocations, returns, and fault handlers |
//! | [`report`] | checks and counters that programs report |

pub mod entry;
pub mod fastpath;
mod fault_report;
pub mod invoke;
pub mod ops;
pub mod report;
pub mod slowpath;
