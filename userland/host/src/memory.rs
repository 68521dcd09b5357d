//! Memory of programs in the emulated system.

use std::string::{String, ToString};

use dyad_abi::boot::{CXL_BASE, LOCAL_STRIDE, local_pool_base};
use dyad_abi::user::{PAGE_SIZE, TRANSLATE_EXEC, TRANSLATE_WRITE};
use dyad_abi::{Error, Isa, NodeId, Result};

use super::Program;

/// Most ranges and bytes of a program, as the pager has it.
const RANGES: usize = 64;
const BYTES: u64 = 256 << 30;

fn pages(len: u64) -> Result<std::alloc::Layout> {
    if len == 0 {
        return Err(Error::BadArgument);
    }
    let len = len.checked_next_multiple_of(PAGE_SIZE);
    let len = len.filter(|&l| l <= BYTES).ok_or(Error::TooLarge)?;
    std::alloc::Layout::from_size_align(len as usize, PAGE_SIZE as usize)
        .map_err(|_| Error::TooLarge)
}

pub(super) fn map(program: &Program, len: u64) -> Result<u64> {
    let layout = pages(len)?;
    let mut state = program.state();
    if state.maps.len() == RANGES {
        return Err(Error::Full);
    }
    // SAFETY: 1. The layout is not empty.
    let start = unsafe { std::alloc::alloc_zeroed(layout) };
    if start.is_null() {
        return Err(Error::NoMemory);
    }
    let start = start.expose_provenance() as u64;
    state.maps.insert(start, layout.size() as u64);
    Ok(start)
}

pub(super) fn unmap(program: &Program, start: u64, len: u64) -> Result<u64> {
    let layout = pages(len).map_err(|_| Error::NotFound)?;
    let mut state = program.state();
    if state.maps.get(&start) != Some(&(layout.size() as u64)) {
        return Err(Error::NotFound);
    }
    state.maps.remove(&start);
    let start = core::ptr::with_exposed_provenance_mut(start as usize);
    // SAFETY: 1. The range was mapped by `map`, and who asks for this has given it up (contract of
    // the public `unmap`).
    unsafe { std::alloc::dealloc(start, layout) };
    Ok(0)
}

/// Invented, but of the right form: code lies in a pool of its ISA, everything else in the CXL
/// pool, the same for all.
pub(super) fn translate(program: &Program, address: u64, isa: Isa) -> Result<u64> {
    let permissions = region(address).ok_or(Error::BadAddress)?;
    let offset = address & (LOCAL_STRIDE - 1);
    if !permissions.contains('x') {
        return Ok((CXL_BASE + offset) | TRANSLATE_WRITE);
    }
    let nodes = &program.config.nodes;
    let node = NodeId::first(nodes.len()).find(|n| nodes[n.index()] == isa);
    Ok((local_pool_base(node.ok_or(Error::NoIsa)?) + offset) | TRANSLATE_EXEC)
}

/// Permissions of the mapping of this process that an address lies in.
fn region(address: u64) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let from = u64::from_str_radix(from, 16).ok()?;
        let to = u64::from_str_radix(to, 16).ok()?;
        let permissions = rest.get(..4)?;
        (from..to)
            .contains(&address)
            .then(|| permissions.to_string())
    })
}
