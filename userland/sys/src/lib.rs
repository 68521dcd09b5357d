//! The interface of Dyad for programs: typed capabilities, and operations on the capabilities that every
//! program is started with.
//!
//! | module | what for |
//! |---|---|
//! | [`cap`](mod@cap) | capabilities: one method per operation |
//! | [`cache`] | writing lines of the caches back, and dropping them |
//! | [`raw`] | calls as they leave the program |
//! | [`mod@thread`] | threads of the program: starting them, waiting, waking |
//! | [`tcb`] | the control block of the calling thread |
//! | this one | text, time, memory, migration: operations on [well-known](dyad_abi::service::slot) capabilities, and requests to services |
//!
//! No allocation, no policy. Everything here works the same on every ISA; nothing asks which one
//! it was compiled for. Programs normally use the `dyad` crate, which is built on this one.
//!
//! Unsafe code of user space is here and in the crate `dyad-rt`, which has the parts of the runtime that need it
//! (heap, locks, data stacks), so that the rest can forbid it.
//!
//! On the host the same functions run against an emulated system (crate `dyad-host`), for tests.
#![no_std]

#[cfg(not(target_os = "none"))]
extern crate std;

pub mod cache;
pub mod cap;
pub mod entry;
pub mod group;
pub mod marker;
mod program;
pub mod raw;
mod request;
pub mod tcb;
mod text;
pub mod thread;

pub use cap::Translation;
pub use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
pub use program::{
    abandon, args, counted, environment, exit, in_invocation, info, input, is_live, is_multiple,
    kernel_count, map_anon, map_anon_incoherent, map_anon_on, memory_state, migrate, now,
    sim_count, sleep_until, sys_info, texts, translate, unmap, wall_and_seed, where_am_i,
    yield_now,
};
pub use request::{is_requested, request_move, take_request, withdraw_request};
pub use text::{report_check, report_counter, write};

/// The ISA this code runs on, without entering the kernel.
pub fn isa() -> Isa {
    // The stubs know two values; with anything else this is not one of our images.
    Isa::from_index(raw::isa_index()).unwrap_or(Isa::X86_64)
}

/// The first bytes of a function's machine code, as this ISA sees them.
pub fn code_bytes(function: fn()) -> [u8; 4] {
    let start = function as *const u8;
    // SAFETY: 1. The address of a function is mapped readable on the ISA that runs. 2. The last
    // of four bytes is on the same page as the first: instructions of AArch64 are four bytes,
    // aligned, and functions of x86-64 start at multiples of 16. 3. Text is never written while
    // a program runs.
    let code = core::array::from_fn(|i| unsafe { start.add(i).read_volatile() });
    // The host has one code for all; the emulation makes it differ as it must.
    #[cfg(not(target_os = "none"))]
    let code = code.map(|byte| byte ^ isa() as u8);
    code
}
