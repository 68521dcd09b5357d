//! What most programs want: `use dyad::prelude::*;`.

pub use alloc::borrow::ToOwned;
pub use alloc::boxed::Box;
pub use alloc::string::{String, ToString};
pub use alloc::vec::Vec;
pub use alloc::{format, vec};
pub use core::time::Duration;

pub use crate::{
    Args, Error, Instant, Isa, JoinHandle, NodeId, Result, isa, join, migrate, migrate_to, node,
    sleep, sleep_until, spawn, system, yield_now,
};
pub use crate::{eprint, eprintln, print, println};
