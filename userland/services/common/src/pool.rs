//! The memory of a pool, for accounts.

use dyad_abi::Result;
use dyad_abi::service::slot;
use dyad_sys::cap::{Cap, Memory};

use crate::frames::{Pool, What};

/// One pool: its memory capability, as the first program has it.
#[derive(Clone, Copy, Debug)]
pub struct PoolMemory {
    /// The capability.
    pub cap: Cap<Memory>,
    frames: u64,
}

impl PoolMemory {
    /// The pool with a number.
    ///
    /// # Errors
    ///
    /// As the kernel says: `NoCap` for nodes that the system does not have.
    pub fn of(pool: usize) -> Result<PoolMemory> {
        let cap: Cap<Memory> = Cap::at(slot::memory(pool));
        let frames = cap.introspect()?.detail;
        Ok(PoolMemory { cap, frames })
    }

    /// The memory of a pool; no frames if there is no such pool.
    pub fn or_none(pool: usize) -> PoolMemory {
        let cap = Cap::at(slot::memory(pool));
        PoolMemory::of(pool).unwrap_or(PoolMemory { cap, frames: 0 })
    }
}

impl Pool for PoolMemory {
    fn frames(&self) -> u64 {
        self.frames
    }

    fn inspect(&self, at: u64) -> Result<What> {
        self.cap.inspect(at).map(What::of_word)
    }

    fn split(&self, at: u64) -> Result<()> {
        self.cap.split(at)
    }

    fn retype_untyped(&self, at: u64) -> Result<()> {
        self.cap.retype_untyped(at).map(drop)
    }
}
