//! Measures quiescence: how many flush steps each node takes from the moment at which something
//! was given up until it can be used again. `cargo xtask bench quiescence` runs it on systems with
//! pools of different sizes.
//!
//! It is run in the place of `init` (`cargo xtask run --bare --app quiescence`), because
//! nobody else may drive rounds meanwhile. The first CPU of every node has a thread, so no node
//! counts as asleep:
//!
//! ```text
//!  leader, node 0:  fills N slots ── settles ── empties them ──▶ one step of every node ──┐ until
//!                                                  ▲  is the last slot free? ─────────────┘ it is
//!  partner, node n: takes one step when it is told to
//! ```
//!
//! A capability slot is a line, so emptying `N` slots touches `N` lines. *Settled* means that every
//! node has just published a round and begun no other; no log has anything that it has not read. A
//! step is one `FlushStep(1)`. Before the first step, and as long as one node has not published,
//! every attempt to use the slot must be refused; after the last one, all `N` must be free.
//!
//! | reported | |
//! |---|---|
//! | counter `quiescence.N.nodeM.steps`, `.rounds` | steps and rounds of node `M` for `N` lines |
//! | check `quiescence.N` | refused while it had to be, and all free afterwards |
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
mod service;
#[cfg(target_os = "none")]
mod setup;

#[cfg(not(target_os = "none"))]
fn main() {
    println!("this runs in the place of Dyad's init: cargo xtask run --bare --app quiescence");
}
