//! Copies between kernel and user memory.
//!
//! The kernel never touches a user address: it walks the page table of its own ISA in software
//! and accesses the frame through the fused map, page by page. A user pointer is an *allegation*;
//! each page of it is checked for existence, user access and, when writing, write permission.
//! Supervisor access to user pages therefore stays forbidden all the time (SMAP, PAN).

use dyad_abi::user::{PAGE_SIZE, USER_END, USER_MIN};
use dyad_abi::{Error, Result};
use dyad_pgtbl::Perms;
use dyad_shm::PhysAddr;

use crate::Platform;
use crate::fault;
use crate::node::Node;
use crate::platform::FaultKind;
use crate::space::Space;

/// Frame address of a user byte, mapped in if need be.
fn locate<P: Platform>(
    node: &Node,
    space: &Space<'_>,
    va: u64,
    kind: FaultKind,
) -> Result<PhysAddr> {
    // A page can be unmapped between being mapped in and looked at: try a few times only.
    for _ in 0..4 {
        let found = space
            .with_table(P::ISA, |t| t.translate(va))
            .ok_or(Error::NoIsa)?;
        if let Some((pa, leaf, _)) = found {
            let fits = leaf.perms.contains(Perms::USER)
                && (kind != FaultKind::Write || leaf.perms.contains(Perms::WRITE));
            return if fits { Ok(pa) } else { Err(Error::BadAddress) };
        }
        match fault::resolve::<P>(node, space, va, kind) {
            Ok(()) | Err(Error::Again) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Error::Again)
}

/// Nothing can be copied from or to anywhere, so an empty range is not looked at.
fn check(va: u64, len: usize) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    let end = va.checked_add(len as u64).ok_or(Error::BadAddress)?;
    if va < USER_MIN || end > USER_END {
        return Err(Error::BadAddress);
    }
    Ok(())
}

/// Copies from user memory.
///
/// # Errors
///
/// [`Error::BadAddress`]; `out` may have been partly filled then.
pub fn copy_in<P: Platform>(node: &Node, space: &Space<'_>, va: u64, out: &mut [u8]) -> Result<()> {
    check(va, out.len())?;
    let mut at = va;
    let mut rest = out;
    while !rest.is_empty() {
        let n = ((PAGE_SIZE - at % PAGE_SIZE) as usize).min(rest.len());
        let (now, later) = rest.split_at_mut(n);
        let pa = locate::<P>(node, space, at, FaultKind::Read)?;
        if !node.map.read_bytes(pa, now) {
            return Err(Error::BadAddress);
        }
        at += n as u64;
        rest = later;
    }
    Ok(())
}

/// Copies to user memory.
///
/// # Errors
///
/// [`Error::BadAddress`]; part of the range may have been written then.
pub fn copy_out<P: Platform>(node: &Node, space: &Space<'_>, va: u64, bytes: &[u8]) -> Result<()> {
    check(va, bytes.len())?;
    let mut at = va;
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = ((PAGE_SIZE - at % PAGE_SIZE) as usize).min(rest.len());
        let (now, later) = rest.split_at(n);
        let pa = locate::<P>(node, space, at, FaultKind::Write)?;
        if !node.map.write_bytes(pa, now) {
            return Err(Error::BadAddress);
        }
        at += n as u64;
        rest = later;
    }
    Ok(())
}
