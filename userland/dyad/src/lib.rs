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
//! Everything a task holds across an `.await` lies in the heap, which has the same addresses on every ISA, so
//! a task can continue on any node; see [`task::migrate`].
//!
//! | module | use |
//! |---|---|
//! | [`mod@task`] | async tasks: spawning, joining, waiting, channels, moving to other nodes |
//! | [`mod@thread`] | plain threads, on any node: the same operations, called and not awaited |
//! | [`prelude`] | common imports, by style |
//! | [`sync`] | locks, barriers and channels between threads |
//! | [`crossing`] | functions that run on one ISA only |
//! | [`emulation`] | moving a thread while it computes |
//! | [`math`] | floating-point functions: methods of `f64` and `f32` |
//! | [`msg`] | messages between threads |
//! | [`Instant`], [`SystemTime`] | fused time, the time of day |
//! | [`mod@env`], [`random`] | environment of the program, random numbers |
//! | [`system`](mod@system) | nodes, pools, and the pools of addresses |
//! | [`report`] | checks and counters of the run |
//! | [`service`](mod@service) | programs that others invoke |
//! | [`sides`] | two nodes on which a task works in turn |
//! | [`blocks`] | memory ownership of nodes |
//! | [`cache`] | writing lines of the caches back, and dropping them |
//! | [`console`] | `print!` and `println!` |
//! | [`io`] | standard input |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod args;
pub mod blocks;
pub mod cache;
pub mod console;
pub mod crossing;
pub mod emulation;
pub mod env;
pub mod error;
mod executor;
pub mod heap;
pub mod io;
pub mod math;
mod migration;
pub mod msg;
mod plain;
pub mod prelude;
pub mod random;
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
pub use time::{Instant, SystemTime};

/// The program's heap: one for all ISAs, growing as needed; and the per-node heaps of [`heap`].
#[cfg(target_os = "none")]
#[global_allocator]
static HEAP: dyad_rt::heap::Heaps = dyad_rt::heap::Heaps::new();

/// The size of the program's heap, without [placed](heap) memory; `None` on the host, which uses the host's
/// heap.
pub fn heap_usage() -> Option<dyad_rt::heap::HeapUse> {
    #[cfg(target_os = "none")]
    return Some(HEAP.usage());
    #[cfg(not(target_os = "none"))]
    return None;
}

#[cfg(test)]
mod tests;
