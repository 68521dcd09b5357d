//! `quiesced`: drives the rounds of quiescence, with a thread on every node.
//!
//! Memory that has been given up can be used again once every node has gone through a round after
//! that. Rounds cost something (each drops what the node's caches and TLBs may hold), so how often
//! they are is policy, and policy is here: `rounds_per_second` of the info page.
//!
//! ```text
//!   FlushStep* ──published──▶ sleep until the next round
//!       ▲──────────────────────────────┘
//! ```
//!
//! A round is driven in pieces of bounded length; between pieces the CPU is given back, so that a
//! round is never longer than a piece for those that wait for the CPU. When a round takes longer
//! than its period the next one begins at once.
//!
//! Thread `n` is that of node `n`; it is started there, with `n` in the low bits of its argument.
//!
//! | capability | for |
//! |---|---|
//! | `slot::hardware(n)`: flush step, now, where, write | the rounds of node `n`; last words |
//! | `quiesced` thread `n` at [`OWN_THREADS`]` + n`: migrate, yield | going to its node |
//! | `slot::ENDPOINT`: receive | sleeping, at line `n` |
//!
//! When a node dies, its thread is lost, and init starts it again when the node has come back; if it
//! was asleep, it may find itself on another node of the ISA, and goes home by itself. If it had not begun yet, it may
//! begin on any node, where it has a stack for that, and goes home from there.
//!
//! It is not invoked. If a thread of it dies otherwise, rounds of its node end: memory that is given up from
//! then on stays unused, nothing else happens, and a thread that waits for it times out.
//!
//! [`OWN_THREADS`]: dyad_abi::service::slot::FIRST_FREE
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
mod service;

#[cfg(not(target_os = "none"))]
fn main() {
    println!("a service of Dyad: it runs on nothing else");
}
