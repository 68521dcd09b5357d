//! `peer`: with several kernels that only exchange messages, pages for the process of a group on its node, and speaks
//! for it with the peers of the other nodes.
//!
//! ```text
//!   thread of the process ──fault, request──▶ invocation: handler (on the thread)
//!                                               │ slot, wakes
//!                                               ▼
//!                                             actor (the peer's thread) ◀── rings ──▶ actors of other peers
//!                                               │ Dsm::step decides; pages, page tables, frames, rings
//!                                               ▼ answers the slot, wakes
//!   thread goes on ◀──────────────────────── handler
//! ```
//!
//! Only the actor touches protocol state, the process's page tables and the rings, so the peer has no lock. A handler
//! writes its slot and waits; what it waits for is decided by [`dyad_dsm`], the crate that the model runs.
//!
//! | invocation | words | reply |
//! |---|---|---|
//! | a fault (`door::FAULT`) | address, kind, pc, raw | word 0: 0, try again; 1, end the thread |
//! | `pager::MAP_ANON` (`door::PAGER`) | length, 0 | address |
//! | `pager::UNMAP` (`door::PAGER`) | address, length | 0 |
//! | `process::MOVE` (`door::PROCESS`) | program counter, stack pointer, frame pointer | status, and the same three |
//! | `process::ARRIVED` (`door::PROCESS`) | | status, and the same three |
//! | `process::EXIT` (`door::PROCESS`) | code | none: init ends the group |
//! | `process::COUNTED` (`door::PROCESS`) | number of a counter | what this node has counted |
//! | `op::END`, `op::COUNTER` (init) | | 0, or the number |
//!
//! | error | why |
//! |---|---|
//! | `BadArgument` | no such operation; a length of 0; a home for memory, which a group's pages do not have |
//! | `Denied` | only init may do that; an operation that several kernels do not have; a caller that is no thread of the process |
//! | `NotFound`, `TooLarge`, `Full`, `NoMemory` | of `MAP_ANON` and `UNMAP`, as at the pager |
//! | `NoSuchNode` | `MOVE`: no such node, or this one |
//! | `NodeDead` | the group has ended |
//!
//! | capability | for |
//! |---|---|
//! | [`slot`](dyad_abi::service::peer::slot) | the process's address space; frames and tables of the node's pool; doorbells |
//! | `slot::PROCESS`: invoke | telling init of faults and of the end |
//! | `slot::hardware(n)`: now; of its node: write | the time; last words |
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
mod actor;
#[cfg(target_os = "none")]
mod heap;
#[cfg(target_os = "none")]
mod links;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod parts;
#[cfg(target_os = "none")]
mod port;
#[cfg(target_os = "none")]
mod service;
#[cfg(target_os = "none")]
mod slots;

#[cfg(not(target_os = "none"))]
fn main() {
    println!("a service of Dyad: it runs on nothing else");
}
