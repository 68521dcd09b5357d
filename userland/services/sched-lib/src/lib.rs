//! Fixed-priority scheduling as a library: what a scheduler decides, without how it is carried out.
//!
//! [`Scheduler`] belongs to one CPU. It is told what has happened (threads that became ready,
//! threads that stopped) and asked what to do next; the caller makes the calls. Everything is in
//! arrays of a size fixed at compile time, nothing is shared, and every operation takes constant
//! or logarithmic time, so one bad thread cannot make the scheduling of others slow.
//!
//! ```text
//!            ready                     next                      stopped
//!   absent ────────▶ queued (FIFO of ──────▶ running ──preempted, yielded──▶ queued (end)
//!      ▲             its group and priority)    ├──interrupted──▶ queued (front)
//!      │                  ▲                     ├──blocked──▶ absent, or sleeping if it has
//!      │                  └──expired── sleeping ◀┘             a deadline
//!      └──────────── ended, left, not ready ◀───┘
//! ```
//!
//! Threads of one program are a *group*. Of the groups of a priority each has one slice in turn, however many threads
//! it has and whatever they do; within that slice its threads take turns.
//!
//! A thread that others can keep busy, as one of a service that tells what has happened to programs, is *on an allowance*: it has
//! its priority for a part of the time only, and otherwise a share as a program. So it leaves programs theirs, whatever they have
//! it do, and goes on whatever they do.
//!
//! Threads are small numbers below `N`. News may come twice, late, or about a thread that is not
//! here any more: being told is idempotent, and that a thread cannot be dispatched after all
//! ([`Stop::Refused`]) changes nothing else that is known of it. Late news can even take the place of newer
//! ones, as a thread is on a list once: so whatever is told, the thread itself says whether it is ready or
//! sleeps. So the two sources of news, events and results of calls, need no agreement about which of them
//! reports what, and when.
#![no_std]
#![forbid(unsafe_code)]

mod policy;
mod ready;
#[cfg(test)]
mod tests;
mod timers;

pub use policy::{ALLOWANCE, Entry, News, Next, PERIOD, SHARED, Scheduler, Stop};
pub use ready::{GROUPS, Group, PRIORITIES, Popped, Priority, ReadyQueues};
pub use timers::Timers;
