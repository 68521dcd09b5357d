//! Common imports, by style: `use dyad::prelude::task::*;` in programs and modules of async tasks, `use
//! dyad::prelude::thread::*;` in those of plain threads.
//!
//! Both have the same names for operations of both styles: [`migrate`](task::migrate), `migrate_to`,
//! `request_migration`, `spawn`, `sleep`, `yield_now`. Those of tasks are awaited, those of threads are
//! called.

/// Imports of both styles.
mod common {
    pub use alloc::borrow::ToOwned;
    pub use alloc::boxed::Box;
    pub use alloc::string::{String, ToString};
    pub use alloc::vec::Vec;
    pub use alloc::{format, vec};
    pub use core::time::Duration;

    pub use crate::{
        Args, Error, Instant, Isa, NodeId, Result, eprint, eprintln, isa, node, print, println,
        system,
    };
}

/// Imports for async tasks.
pub mod task {
    pub use super::common::*;
    pub use crate::task::{
        JoinHandle, join, migrate, migrate_to, request_migration, sleep, sleep_until, spawn,
        yield_now,
    };
}

/// Imports for plain threads.
pub mod thread {
    pub use super::common::*;
    pub use crate::thread::{
        JoinHandle, migrate, migrate_point, migrate_to, request_migration, sleep, sleep_until,
        spawn, spawn_on, yield_now,
    };
}
