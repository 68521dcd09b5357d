//! Attackers with capabilities of their own, and victims that check themselves.
//!
//! It is run in the place of `init` (`cargo xtask run --bare --app adversary`), because the warden has to divide what
//! there is. An attacker knows all operations of all types of capabilities, and has random capabilities *of its own*:
//! its capability table, address space, component, memory, threads, ids, endpoints, budgets, and a way into the
//! victim's services. Nothing else. The storm throws operations with all capabilities there are, and looks at the
//! tables; this looks at what one component can do to another.
//!
//! | who | what |
//! |---|---|
//! | warden | a worker on each CPU: schedules, and judges |
//! | service, homely service | invoked by all; check memory, table, stacks, badges, sequence of calls in each call |
//! | victim | a thread on each node: checks itself all the time, and hashes what it observes |
//! | attackers | one on each of the first two nodes |
//!
//! | option | values | default |
//! |---|---|---|
//! | `--seed` | seed of the attackers; the victim's input does not depend on it | 1 |
//! | `--seconds` | fused time | 10, none with `--ops` or `--rounds` |
//! | `--ops` | operations of all attackers together | none |
//! | `--rounds` | rounds of the victim | none |
//! | `--attackers` | 0, 1, 2 | 2 |
//! | `--without` | plays that are left out, by bit | 0 |
//!
//! With `--deaths`, nodes other than the first may die. With `--note-time`, the victim notes the time among what it
//! observes, so that its hash depends on others.
//!
//! | check | holds if |
//! |---|---|
//! | `adversary.nothing-found` | no component has found anything wrong; if one has: what, seed, number of operations, last calls |
//! | `adversary.victims` | each victim has gone on to the end, in its own time |
//! | `adversary.variety` | every operation of every type was tried |
//! | `adversary.trace` | always; the hash of what each thread of the victim has observed |
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
mod attacker;
#[cfg(target_os = "none")]
mod build;
#[cfg(target_os = "none")]
mod plan;
#[cfg(target_os = "none")]
mod run;
#[cfg(target_os = "none")]
mod service;
#[cfg(target_os = "none")]
mod victim;
#[cfg(target_os = "none")]
mod warden;

#[cfg(not(target_os = "none"))]
fn main() {
    println!("this runs in the place of Dyad's init: cargo xtask run --bare --app adversary");
}
