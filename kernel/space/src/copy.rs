//! Copies between kernel and user memory.
//!
//! The kernel never touches a user address: it walks the page table of its own ISA in software
//! and accesses the frame through the fused map, page by page. A user pointer is an *allegation*;
//! each page of it is checked for existence, user access and, when writing, write permission.
//! Supervisor access to user pages therefore stays forbidden all the time (SMAP, PAN).
//!
//! Bounds: the caller bounds the length ([`MAX_COPY`] at most); each page takes at most `LOOKS`
//! walks and faults. Interrupts are taken between two of them, so that no stretch is longer than one fault.

use core::sync::atomic::AtomicU64;

use dyad_abi::user::{PAGE_SIZE, USER_END, USER_MIN};
use dyad_abi::{Error, Result};
use dyad_pgtbl::{Level, Pte};
use dyad_shm::PhysAddr;
use dyad_shm::frame::WeakRef;

use crate::Platform;
use crate::kernel_ctx::KernelCtx;
use crate::mapping::SpaceCtx;
use crate::object::find;
use crate::object::space::Space;
use crate::platform::FaultKind;
use crate::resolve::{allows, resolve_further};
use crate::supply::budget;

/// Most bytes that are copied at once.
pub const MAX_COPY: usize = 64 << 10;
/// Attempts to access a page. A page can be unmapped after it has been mapped in and before it is accessed.
const LOOKS: u32 = 8;

/// Address of a user byte in its frame, mapped in if need be.
fn locate<P: Platform>(
    cx: &KernelCtx,
    space: WeakRef,
    va: u64,
    kind: FaultKind,
) -> Result<PhysAddr> {
    let this = SpaceCtx {
        cx,
        space: find(cx.node, space, Space::KIND)?,
        object: space,
    };
    cx.local.fault_budget.set(budget(cx.words()));
    for _ in 0..LOOKS {
        let own = this.driver(P::ISA)?;
        let place = own.find(va, Level::L1).map_err(crate::mapping::refusal)?;
        if let Pte::Leaf(leaf) = own.meaning(&place) {
            return if allows(&leaf, kind) || lacks!("copy::locate::permission") {
                Ok(leaf.pa.add(va & (place.level.size() - 1)))
            } else {
                Err(Error::BadAddress)
            };
        }
        match resolve_further::<P>(cx, space, va, kind) {
            // What has been split and linked so far is not lost.
            Err(Error::Again) if cx.local.fault_budget.get() == 0 => {
                P::breathe_within(cx.local);
                cx.local.fault_budget.set(budget(cx.words()));
            }
            Ok(_) | Err(Error::Again) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Error::Again)
}

/// Checks a range of user addresses. An empty range is always valid.
fn check(va: u64, len: usize) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    if len > MAX_COPY {
        return Err(Error::TooLarge);
    }
    let end = va.checked_add(len as u64).ok_or(Error::BadAddress)?;
    if va < USER_MIN || end > USER_END {
        return Err(Error::BadAddress);
    }
    Ok(())
}

/// Copies from user memory of a space.
///
/// # Errors
///
/// [`Error::BadAddress`]; `out` may have been partly filled then. [`Error::TooLarge`];
/// [`Error::Again`], [`Error::NoMemory`] if a page could not be mapped in now.
pub fn copy_in<P: Platform>(cx: &KernelCtx, space: WeakRef, va: u64, out: &mut [u8]) -> Result<()> {
    check(va, out.len())?;
    let mut at = va;
    let mut rest = out;
    while !rest.is_empty() {
        let n = ((PAGE_SIZE - at % PAGE_SIZE) as usize).min(rest.len());
        let (now, later) = rest.split_at_mut(n);
        let pa = locate::<P>(cx, space, at, FaultKind::Read)?;
        if !cx.node.map.read_bytes(pa, now) {
            return Err(Error::BadAddress);
        }
        at += n as u64;
        rest = later;
    }
    Ok(())
}

/// Replaces a word of user memory of a space by `new` if it is `old`. Returns the previous value. Where
/// caches are not coherent, the change is made at memory, and programs must read the word there.
///
/// # Errors
///
/// [`Error::BadArgument`] if the address is not that of a word, [`Error::BadAddress`] if it cannot be
/// written; [`Error::Again`] if the word is being changed by others, and as [`copy_in`].
pub fn exchange<P: Platform>(
    cx: &KernelCtx,
    space: WeakRef,
    va: u64,
    old: u64,
    new: u64,
) -> Result<u64> {
    check(va, 8)?;
    if !va.is_multiple_of(8) {
        return Err(Error::BadArgument);
    }
    let pa = locate::<P>(cx, space, va, FaultKind::Write)?;
    let word: &AtomicU64 = cx.node.map.get(pa).ok_or(Error::BadAddress)?;
    let words = cx.words();
    let was = words.read(word);
    if was != old {
        return Ok(was);
    }
    match words.exchange(word, old, new) {
        true => Ok(old),
        false => Err(Error::Again),
    }
}

/// Copies to user memory of a space.
///
/// # Errors
///
/// As [`copy_in`]; part of the range may have been written then.
pub fn copy_out<P: Platform>(cx: &KernelCtx, space: WeakRef, va: u64, bytes: &[u8]) -> Result<()> {
    check(va, bytes.len())?;
    let mut at = va;
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = ((PAGE_SIZE - at % PAGE_SIZE) as usize).min(rest.len());
        let (now, later) = rest.split_at(n);
        let pa = locate::<P>(cx, space, at, FaultKind::Write)?;
        if !cx.node.map.write_bytes(pa, now) {
            return Err(Error::BadAddress);
        }
        at += n as u64;
        rest = later;
    }
    Ok(())
}
