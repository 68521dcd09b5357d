//! Runtime of Dyad programs: plain Rust, compiled once, running on every ISA.
//!
//! ```no_run
//! #![no_std]
//! #![no_main]
//! use dyad::prelude::task::*;
//!
//! #[dyad::task]
//! async fn main(args: Args) -> Result<()> {
//!     println!("hello from {} with {} words", isa(), args.iter().count());
//!     migrate(isa().other()).await?;
//!     println!("and from {}", isa());
//!     Ok(())
//! }
//! ```
//!
//! Everything a task holds across an `.await` lies in the heap, which has the same addresses on
//! every ISA, so a task can go on anywhere; see [`task::migrate`].
//!
//! | module | what for |
//! |---|---|
//! | [`mod@task`] | async tasks: spawning, joining, waiting, channels, moving to other nodes |
//! | [`mod@thread`] | plain threads, on any node: the same, called and not awaited |
//! | [`prelude`] | what most programs want, by style |
//! | [`sync`] | locks, meeting points and channels of threads |
//! | [`crossing`] | functions that run on one ISA only |
//! | [`emulation`] | moving a thread that computes, wherever it is |
//! | [`msg`] | messages between threads |
//! | [`Instant`] | fused time |
//! | [`system`](mod@system) | nodes, pools, where addresses lie |
//! | [`report`] | checks and counters of the run |
//! | [`service`](mod@service) | being invoked by others |
//! | [`sides`] | two nodes on which a task works in turn |
//! | [`blocks`] | which node owns how much memory |
//! | [`console`] | `print!` and `println!` |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod args;
pub mod blocks;
pub mod console;
pub mod crossing;
pub mod emulation;
pub mod error;
mod executor;
pub mod heap;
mod migration;
pub mod msg;
mod plain;
pub mod prelude;
pub mod report;
pub mod rt;
pub mod service;
pub mod sides;
pub mod sync;
pub mod system;
pub mod task;
pub mod thread;
mod time;

pub use args::Args;
pub use dyad_macros::{isa, main, points, task};
pub use dyad_rt::futex;
pub use dyad_sys as sys;
pub use dyad_sys::{CpuId, Isa, NodeId};
pub use error::{Error, Result};
pub use system::{isa, node, system};
pub use time::Instant;

/// The program's heap: one for all ISAs, growing as needed; and those of [`heap`].
#[cfg(target_os = "none")]
#[global_allocator]
static HEAP: dyad_rt::heap::Heaps = dyad_rt::heap::Heaps::new();

/// How large the program's heap is, without what is [placed](heap); `None` on the host, where the host's heap is used.
pub fn heap_usage() -> Option<dyad_rt::heap::HeapUse> {
    #[cfg(target_os = "none")]
    return Some(HEAP.usage());
    #[cfg(not(target_os = "none"))]
    return None;
}

#[cfg(test)]
mod tests;
