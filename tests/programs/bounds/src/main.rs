//! Every operation of the kernel, each with the arguments that cost most.
//!
//! The simulator's plugin counts how many instructions a CPU executes from its entry into the kernel
//! until it takes interrupts again, and keeps the longest stretch of each window. This program opens
//! the window [`WindowId::of_operation`](dyad_abi::marker::WindowId::of_operation) around each call. It
//! runs in the place of `init`, because only the first program has every capability there is:
//!
//! ```text
//! cargo xtask run --bare --app bounds --sim count --windows --nodes x86_64,aarch64
//! ```
//!
//! | part | worst arguments |
//! |---|---|
//! | `memory` | the largest block there is, taken as a whole and for its last frame; a used block of the largest size that is zeroed at once; runs of single frames |
//! | `tables` | slots that no CPU caches, guarded copies, a full leaf |
//! | `spaces` | every region in use; pages whose tables are all missing, on both ISAs; pages that have their tables to themselves |
//! | `threads` | threads within an invocation, on another node, with all registers |
//! | `hardware` | the longest texts, of the bytes that cost most; rounds after long logs |
//! | `faults` | a first touch with all tables missing; threads that fault and nobody handles it |
//!
//! An operation that is refused has not done its work: a call whose status is not the expected one fails
//! the check `bounds.outcomes`.
//!
//! With `--deaths` it makes much of what recovery looks into, and waits for node 1 to die and to be recovered.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(target_os = "none")]
mod call;
#[cfg(target_os = "none")]
mod deaths;
#[cfg(target_os = "none")]
mod hardware;
#[cfg(target_os = "none")]
mod memory;
#[cfg(target_os = "none")]
mod service;
#[cfg(target_os = "none")]
mod spaces;
#[cfg(target_os = "none")]
mod stock;
#[cfg(target_os = "none")]
mod tables;
#[cfg(target_os = "none")]
mod threads;

#[cfg(not(target_os = "none"))]
fn main() {
    println!("this runs in the place of Dyad's init: cargo xtask run --bare --app bounds");
}
