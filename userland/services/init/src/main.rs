//! `init`: the first program. The kernel starts it with capabilities to everything; it makes the
//! rest of the system of them and gives each program what it needs and no more.
//!
//! ```text
//!  kernel ──▶ init, root thread of CPU 0 of node 0
//!               │ frames carved up, services and program built from the archive, threads made ready
//!               │ schedulers started on every CPU, this one last
//!               ▼
//!             ends ──▶ CPU 0 belongs to sched like all others
//!
//!  init, a thread on every node (scheduled like any other), one of which leads:
//!             waits ──the program has ended──▶ takes it down ──▶ counts frames ──▶ Shutdown
//!               ├──a program beside it has ended──▶ takes that down
//!               ├──a node has died──▶ says so, or takes over
//!               ├──a node has come back──▶ starts schedulers and service threads there again
//!               └──the launcher asks something──▶ does it and answers
//!  init, invoked (on the caller's thread): the process service
//! ```
//!
//! # Process service
//!
//! | invocation | words | reply |
//! |---|---|---|
//! | `process::EXIT` | code | none: the program ends, the calling thread first |
//! | `process::FAULTED` | program and kind, address, pc (from the pager only) | 0; what it was is said when the program ends |
//! | `process::LOST` | threads of a group, by bit (from its peers only) | 0: they are lost; all others wake |
//! | `process::MEMORY` | program (from the pager only) | 0: there is memory again on this node |
//! | `process::MEMORY_STATE` | question, node | the answer |
//! | `process::START` | number of a thread, node and CPU | the thread's id: it begins there |
//! | `process::END_THREAD` | | none: the calling thread ends |
//! | `process::EMULATE` | thread, node, time | 0: it will be moved, wherever it is then |
//! | `process::REQUEST` | thread of the program, old and new request | what it was |
//!
//! | error | why |
//! |---|---|
//! | `BadArgument` | no such operation; `EXIT`: the code has more than 32 bits; `EMULATE`: the time is more than 10 s away |
//! | `NoMemory`, `Again` | of `MEMORY`: there is none, or another thread is asking |
//! | `Denied` | only the pager may do that; an unknown program; one that is ending |
//! | `Again` | `START`: the thread runs, or has not quite ended |
//! | `NoSuchNode`, `NodeDead` | `START`: the node |
//! | `NoSuchNode`, `NodeDead`, `Exists`, `Again`, `Full` | `EMULATE`: the node; it is being moved; another thread has the program's list of requests; the program has 8 requests |
//! | `NotFound`, `NoSuchNode`, `NodeDead` | no such thread; the node that it is asked to go to |
//!
//! # Memory
//!
//! Each program gets runs of frames of its own ([`Arena`](dyad_services::frames::Arena)): kernel
//! objects, page tables and stacks of services' invocations in the CXL pool, its image in the pool
//! of node 0, where it starts, and a *supply* for every node, from which faults on that node are
//! served. That of a service lies in the node's pool and has a fixed size; that of the run's program
//! grows by blocks of any pool (`blocks`). What a program makes of its supplies is its affair; when it has ended, all of
//! its runs must come back untyped, which is the check `frames.returned`.
//!
//! # Capabilities
//!
//! Init starts with those of [`slot`](dyad_abi::service::slot), all rights. It gives away:
//!
//! | to | what |
//! |---|---|
//! | every program | `hardware(n)`: now, where, node state, count; its endpoint: receive |
//! | every service | `hardware(n)`: write, for what it has to say when it cannot go on |
//! | sched | its threads: dispatch, resume, deadline, stop; `Send`s to init |
//! | console | `hardware(console node)`: write, report; `hardware(n)`: inside |
//! | pager | spaces of programs: regions, reclaim, shootdown; the process service; `hardware(n)`: inside |
//! | quiesced | `hardware(n)`: flush step; its threads: migrate, yield |
//! | the program, and one beside it if the archive has one | its space: translate; its threads: migrate, yield, exit; `Send`s to each of them; console, pager, process |
//! | the program, with [`Grant::All`](dyad_abi::service::Grant::All) | what init has, of the program itself and of a part of the memory |
//!
//! What a program is granted is in init's info page, where the launcher has put it; of a grant that
//! it does not know init says so, and starts nothing.
//!
//! # When it dies
//!
//! Before the schedulers are started: nothing runs, and the run ends with the message that it could
//! not start. Later its threads are on all nodes, and one of those that are left takes over.
//!
//! # When nodes die
//!
//! A program whose first thread was lost with a node has ended, without success; one that has lost
//! others finds them in a word of its own, and its threads are woken (`threads`). Others go on, and may go to the node again once it has come
//! back (`wardens`). While the system is being started a death
//! ends the run, with a message.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
mod ask;
#[cfg(target_os = "none")]
mod blocks;
#[cfg(target_os = "none")]
mod build;
#[cfg(target_os = "none")]
mod emulate;
#[cfg(target_os = "none")]
mod evict;
#[cfg(target_os = "none")]
mod group;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod program;
#[cfg(target_os = "none")]
mod separate;
#[cfg(target_os = "none")]
mod service;
#[cfg(target_os = "none")]
mod system;
#[cfg(target_os = "none")]
mod takedown;
#[cfg(target_os = "none")]
mod threads;
#[cfg(target_os = "none")]
mod trouble;
#[cfg(target_os = "none")]
mod wardens;

#[cfg(not(target_os = "none"))]
fn main() {
    println!("a service of Dyad: it runs on nothing else");
}
