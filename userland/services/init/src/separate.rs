//! Whether the processes of a group are separate: each has frames of its own node's pool only.
//!
//! Init built all tables and handed out all frames, but peers have mapped pages since. So it is looked at what is there when
//! the group has ended and before anything is taken away: every page of every process, on its ISA. A page that the process
//! could not use is made readable first, as its frame cannot be seen otherwise; no thread runs any more.

#![allow(unsafe_code)]

use core::ops::Range;

use dyad_abi::cap::TableAt;
use dyad_abi::user::{PAGE_SIZE, USER_END};
use dyad_abi::{Error, Isa, Result};
use dyad_services::rt;
use dyad_sys::cap::{Access, Cap, Space};

use crate::program::{Program, isas_of};

/// What has been found.
#[derive(Clone, Copy, Default)]
pub struct Found {
    /// Pages.
    pub pages: u64,
    /// Pages that are not in the pool of their process's node.
    pub foreign: u64,
    /// One of those.
    pub address: u64,
}

/// Looks through the address space of a process.
///
/// # Errors
///
/// As the kernel says.
pub fn look(process: &Program, found: &mut Found) -> Result<()> {
    let node = &rt::info()?.system.nodes[process.home.index()];
    let own = node.pool_base..node.pool_base + node.pool_size;
    for isa in isas_of(process.isas) {
        for root in 0..USER_END >> 39 {
            tables(process.space, (isa, 3), root << 39, &own, found)?;
        }
    }
    Ok(())
}

/// The table at a level and address, with all that it leads to. An empty one is taken out by the question.
fn tables(
    space: Cap<Space>,
    (isa, level): (Isa, u8),
    va: u64,
    own: &Range<u64>,
    found: &mut Found,
) -> Result<()> {
    match space.unlink(TableAt { isa, level }, va) {
        Ok(_) | Err(Error::NotFound) => return Ok(()),
        // Something is in there.
        Err(Error::Exists) => {}
        Err(e) => return Err(e),
    }
    let size = PAGE_SIZE << (9 * u32::from(level - 1));
    for va in (va..).step_by(size as usize).take(512) {
        match level {
            1 => page(space, isa, va, own, found)?,
            _ => tables(space, (isa, level - 1), va, own, found)?,
        }
    }
    Ok(())
}

fn page(space: Cap<Space>, isa: Isa, va: u64, own: &Range<u64>, found: &mut Found) -> Result<()> {
    let at = TableAt { isa, level: 1 };
    let seen = match space.translate(isa, va) {
        Err(Error::BadAddress) => {
            // SAFETY: 1. The space is that of another program.
            match unsafe { space.protect(at, va, Access::Read) } {
                Err(Error::BadAddress) => return Ok(()),
                done => done?,
            };
            space.translate(isa, va)?
        }
        seen => seen?,
    };
    found.pages += 1;
    if !own.contains(&seen.physical) {
        found.foreign += 1;
        found.address = va;
    }
    Ok(())
}
