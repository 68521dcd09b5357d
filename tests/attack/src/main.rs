//! The attack suite: components with the least authority that an attack needs, each against a victim that
//! checks itself.
//!
//! It is run in the place of `init` (`cargo xtask run --bare --app attack`), because only the first program
//! can make components as it likes. Its first thread is the *warden*: for each attack it builds an attacker
//! and a victim, each with its own capability table, address space and threads, gives the attacker exactly
//! what the attack is about, lets it act, looks at the victim from inside and from outside, takes
//! everything down, and counts the frames that come back.
//!
//! ```text
//!   warden ──builds──▶ victim: checks itself all the time ◀──invokes── attacker: tries
//!     ▲                   │ report page                                   │ report page
//!     └── was anything achieved? has the victim changed? does it go on? do all frames come back? ──┘
//! ```
//!
//! All components run the same image, so a gadget is at the same address in each. What an attack holds,
//! must not achieve, and how that is seen, is in [`attack_list`], which the driver and the book's table of
//! authority read, too.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--only` | the name of one attack | all of them |
//! | `--part` | `quick`, `rest`: those that the tier `quick` plays, or the others | all of them |
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
mod build;
#[cfg(target_os = "none")]
mod cases;
#[cfg(target_os = "none")]
mod me;
#[cfg(target_os = "none")]
mod run;
#[cfg(target_os = "none")]
mod sched;
#[cfg(target_os = "none")]
mod shared;
#[cfg(target_os = "none")]
mod store;
#[cfg(target_os = "none")]
mod victim;
#[cfg(target_os = "none")]
mod warden;

#[cfg(not(target_os = "none"))]
fn main() {
    println!("this runs in the place of Dyad's init: cargo xtask run --bare --app attack");
}
