//! `sched`: one component, one thread on every CPU of every node.
//!
//! Each thread is the root thread of its CPU: it runs whenever nobody else does, and it is the only
//! one that dispatches there. It takes events from its line of the scheduler endpoints and runs the
//! most urgent ready thread; the decisions are those of [`dyad_sched`].
//!
//! ```text
//!          ┌───────────────── events, deadlines ─────────────────┐
//!          ▼                                                     │
//!   wake sleepers ──▶ take events ──▶ next ──Run──▶ Dispatch ──▶ stopped
//!          ▲                            └──Wait──▶ Receive until the next deadline (the CPU idles)
//!          └───────────────────────────────────────────┘
//! ```
//!
//! | `Stopped` | then |
//! |---|---|
//! | Yielded | end of its group's queue |
//! | Preempted, Interrupted | front of its group's queue, after the news; if its slice is used up, end |
//! | Blocked | forgotten until an event, or until its deadline, when it is resumed |
//! | Exited, Faulted | init is told by `Send` |
//! | Left | forgotten: the scheduler of the other node hears of it |
//!
//! A thread that a message has switched to was not dispatched from here, so its stopping is an event:
//! `Sleeps` is as Blocked with a deadline, `Ended` as Exited. Other events make threads ready. Events
//! may be old when they are taken; what cannot be dispatched after all is forgotten again, but for
//! its deadline.
//!
//! A program is a group, and so are the services. The groups of a priority have a slice each in turn, which their
//! threads share.
//!
//! Threads share nothing but the thread table, which init has written before and nobody changes:
//! which tags there are, with which priority, slice and group.
//!
//! | capability | for |
//! |---|---|
//! | `slot::ENDPOINT`: receive | the scheduler endpoints; line `scheduler_line(node, cpu)` |
//! | `slot::hardware(n)`: now, where, write | time; which CPU this is; last words |
//! | `sched::tag(n)`: dispatch, resume, deadline, stop | thread `n` |
//! | `sched::ended(n)`: send | tells init |
//!
//! It is not invoked. If a thread of it dies, its CPU idles for ever and threads that are there are
//! not run any more; other CPUs are not concerned.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
mod service;

#[cfg(not(target_os = "none"))]
fn main() {
    println!("a service of Dyad: it runs on nothing else");
}
