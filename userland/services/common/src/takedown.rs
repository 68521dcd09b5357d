//! Taking address spaces and endpoints down, for programs that make some of their own and have to
//! give every frame back.
//!
//! Nothing is known of what is there: the owner of the space may have mapped and linked what it
//! liked. So tables are gone through from the root. A table without present entries comes out with
//! one operation, so what is not there costs one refused call for each entry of the root.

#![allow(unsafe_code)]

use dyad_abi::cap::TableAt;
use dyad_abi::user::{PAGE_SIZE, USER_END};
use dyad_abi::{Error, Isa, Result};
use dyad_sys::cap::{Cap, Receive, Space, Until};

/// Events and messages that are taken from one line at most.
const MAX_NEWS: u32 = 10_000;

/// The page tables of an address space.
pub trait Tables: Copy {
    /// Takes a table out that has no present entries.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn unlink(self, at: TableAt, va: u64) -> Result<()>;

    /// Takes the page at an address out.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn unmap(self, at: TableAt, va: u64) -> Result<()>;
}

impl Tables for Cap<Space> {
    fn unlink(self, at: TableAt, va: u64) -> Result<()> {
        Cap::<Space>::unlink(self, at, va).map(drop)
    }

    fn unmap(self, at: TableAt, va: u64) -> Result<()> {
        // SAFETY: 1. Callers clear spaces, and windows of their own, in which they have nothing.
        unsafe { Cap::<Space>::unmap(self, at, va) }.map(drop)
    }
}

/// The way in which a caller waits while another thread obstructs an operation.
pub trait Patience {
    /// Lets others go on. An error ends the attempts.
    ///
    /// # Errors
    ///
    /// `TimedOut` if it has taken too long; and as the kernel says.
    fn pause(&mut self) -> Result<()>;
}

/// Repeats an operation until it is not refused with `Again` or `NotReady`.
///
/// # Errors
///
/// As the operation; and as [`Patience::pause`].
pub fn patiently<T>(
    mut patience: impl Patience,
    mut operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    loop {
        match operation() {
            Err(Error::Again | Error::NotReady) => patience.pause()?,
            result => return result,
        }
    }
}

/// Takes a table out with everything below it. `patience` makes a new wait for each operation.
///
/// # Errors
///
/// As the kernel says, and as [`patiently`].
pub fn clear<W: Patience>(
    patience: &impl Fn() -> W,
    space: impl Tables,
    isa: Isa,
    level: u8,
    va: u64,
) -> Result<()> {
    let at = TableAt { isa, level };
    match patiently(patience(), || space.unlink(at, va)) {
        Ok(()) | Err(Error::NotFound | Error::NoIsa) => return Ok(()),
        Err(Error::Exists) => {}
        Err(e) => return Err(e),
    }
    let size = PAGE_SIZE << (9 * (u64::from(level) - 1));
    for i in 0..512 {
        let va = va + i * size;
        if va >= USER_END {
            break;
        }
        match level {
            1 => unmap(patience, space, isa, va)?,
            _ => clear(patience, space, isa, level - 1, va)?,
        }
    }
    match patiently(patience(), || space.unlink(at, va)) {
        Ok(()) | Err(Error::NotFound) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Unmaps the page at an address, if there is one.
///
/// # Errors
///
/// As [`clear`].
pub fn unmap<W: Patience>(
    patience: &impl Fn() -> W,
    space: impl Tables,
    isa: Isa,
    va: u64,
) -> Result<()> {
    let at = TableAt { isa, level: 1 };
    match patiently(patience(), || space.unmap(at, va)) {
        Ok(()) | Err(Error::BadAddress | Error::NoIsa) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Takes everything out of a space, roots included.
///
/// # Errors
///
/// As [`clear`].
pub fn clear_space<W: Patience>(patience: &impl Fn() -> W, space: impl Tables) -> Result<()> {
    for isa in Isa::ALL {
        for i in 0..256 {
            clear(patience, space, isa, 3, i << 39)?;
        }
        let at = TableAt { isa, level: 4 };
        match patiently(patience(), || space.unlink(at, 0)) {
            Ok(()) | Err(Error::NotFound | Error::NoIsa) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Takes all bits and events of the first `lines` endpoints, so that no thread is on a list.
pub fn drain(endpoints: Cap<Receive>, lines: u64) {
    for line in 0..lines {
        for _ in 0..MAX_NEWS {
            match endpoints.receive(line, Until::Now) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
