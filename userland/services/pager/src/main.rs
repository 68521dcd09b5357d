//! `pager`: gives programs memory, takes it back, and judges their faults.
//!
//! It has no thread of its own and no frames: it decides about addresses. A client's request makes
//! a region in the client's address space; frames come from the client's supplies when the region
//! is touched, in the kernel, without the pager.
//!
//! | invocation | words | reply |
//! |---|---|---|
//! | `pager::MAP_ANON` | length, home | address |
//! | `pager::UNMAP` | address, length | 0 |
//! | `pager::END` | program (from init only) | ranges taken back |
//! | a fault (badge with `pager::FAULT`) | address, kind, pc, raw | word 0: 0, try again; 1, end the thread |
//!
//! | error | why |
//! |---|---|
//! | `BadArgument`, `NoSuchNode` | no such operation; a length of 0; a home that is no node |
//! | `NotFound` | not a range that `MAP_ANON` gave |
//! | `TooLarge`, `Full`, `NoMemory` | more bytes, ranges or addresses than a client may have |
//! | `Again` | another thread of the client is in the middle of a request |
//! | `Denied` | only init may do that; an unknown client |
//!
//! If the kernel has found no frame for a page, init's block allocator is asked for more for the node whose
//! supply it is, and the thread tries again. Any other fault that the kernel cannot resolve is a program's error: the policy is to end its thread and
//! to tell init, which ends the program.
//!
//! What a client can take from others is bounded: a table of fixed size here
//! ([`Ranges`](dyad_services::ranges::Ranges)), address space of its own, frames of its own supplies.
//!
//! | capability | for |
//! |---|---|
//! | `pager::space(program)`: regions, reclaim, shootdown | the client's address space |
//! | `slot::PROCESS`: invoke | telling init of faults |
//! | `slot::hardware(n)`: write | last words |
//!
//! It runs on every node, where its client runs. A thread can end in it at any moment. The next thread of the client, or
//! init, succeeds it in the client's book and finishes what it has begun ([`mappings`](dyad_services::mappings)); other
//! clients do not notice.
//!
//! | lock | who takes it | held across |
//! |---|---|---|
//! | the book of a client | threads of that client; init when the client has ended | operations of the kernel on the client's address space |
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
mod service;

#[cfg(not(target_os = "none"))]
fn main() {
    println!("a service of Dyad: it runs on nothing else");
}
