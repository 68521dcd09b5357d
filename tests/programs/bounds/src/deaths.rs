//! What a survivor finds when a node dies (`--deaths`): as much as a piece of recovery could look into at once.
//!
//! | what there is | the step that looks into it |
//! |---|---|
//! | page tables of both ISAs all of whose entries are used, for the same frame; a table with many leaves | count |
//! | spaces with all region slots and all runs of supplies | threads |
//! | threads that are ready on the node, and on the list of its scheduler | threads, endpoints |
//! | threads that are ready here, and on the list of the scheduler here | endpoints, lost |
//!
//! Workers on the node that is to die map a page where there is one, again and again: most of the time they are
//! in a row, whose frame and tables are those of which most references are counted.

#![allow(unsafe_code)]

use dyad_abi::cap::{
    CapIndex, MAP_WRITE, MemoryOp, ObjectKind, RegionKind, Rights, SpaceOp, call_word,
};
use dyad_abi::service::slot;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
use dyad_services::rt;
use dyad_sys::cap::{Cap, Captbl, Frame, Memory, Place, Space, TableAt, Thread};
use dyad_sys::raw;

use crate::call::expect;
use crate::service::say;
use crate::stock::{HOME, Stock, TABLE};
use crate::threads;

/// Where the workers find the space and the frame.
const SPACE_SLOT: CapIndex = CapIndex(300 * LEAF);
const FRAME_SLOT: CapIndex = CapIndex(300 * LEAF + 1);
const LEAF: u32 = dyad_abi::cap::LEAF_SLOTS;
/// Where the pages are.
const MAPPED: u64 = 0x2000_0000_0000;
/// Entries of a page table.
const ENTRIES: u64 = 512;
/// Leaves of the table.
const LEAVES: u32 = 320;
/// Spaces, regions and runs of each.
const SPACES: u64 = 4;
const REGIONS: u64 = 94;
const RUNS: u64 = 5;
/// Threads that are ready on each of two nodes.
const THREADS: u64 = 70;
/// How long the node may take to die, and to be recovered, in fused nanoseconds.
const PATIENCE_NS: u64 = 60_000_000_000;

/// The node that is to die.
const VICTIM: NodeId = NodeId::new(1).unwrap();

/// All of it. Returns when the node has been recovered.
pub fn run(stock: &mut Stock, cpus: usize) -> Result<()> {
    let frame = full_space(stock)?;
    full_table(stock)?;
    for _ in 0..SPACES {
        crowded_space(stock)?;
    }
    threads::prepare(stock, 2)?;
    for n in 0..2 * THREADS {
        let home = if n % 2 == 0 { HOME } else { VICTIM };
        threads::make_ready(stock, home)?;
    }
    for cpu in CpuId::first(cpus) {
        let thread: Cap<Thread> = stock.object(ObjectKind::Thread)?;
        threads::begin_worker(thread)?;
        rt::hardware(VICTIM).start_cpu(cpu, thread)?;
    }
    say(format_args!("node {VICTIM} may die now"));
    let hardware = rt::hardware(HOME);
    let end = hardware.now()? + PATIENCE_NS;
    // Vacant: somebody may take its place.
    while hardware.node_state(VICTIM)?.state != 0 {
        // Another CPU of this node may be at it.
        match hardware.flush_step(64) {
            Ok(_) | Err(Error::Again) => {}
            Err(e) => return Err(e),
        }
        if hardware.now()? > end {
            return Err(Error::NotReady);
        }
    }
    say(format_args!("node {VICTIM} is vacant"));
    // Whatever the workers were doing: each entry is a reference, and nothing else is.
    let refs = references(stock, frame)?;
    expect("references of the frame", refs.abs_diff(2 * ENTRIES - 2));
    Ok(())
}

/// What a worker does.
pub fn work() -> ! {
    let at = TableAt {
        isa: Isa::X86_64,
        level: 1,
    };
    let word = call_word(SPACE_SLOT, SpaceOp::Map as u32);
    let args = [at.bits(), MAPPED, FRAME_SLOT.get().into(), 0, MAP_WRITE];
    loop {
        // SAFETY: 1. Nothing runs in that space.
        let _ = unsafe { raw::call_raw(word, args) };
    }
}

/// References that the kernel has counted to a frame.
fn references(stock: &Stock, at: u64) -> Result<u64> {
    const REFS: u64 = (1 << 24) - 1;
    let word = call_word(stock.memory().index(), MemoryOp::Inspect as u32);
    // SAFETY: 1. The operation only looks.
    let r = unsafe { raw::call_raw(word, [at, 0, 0, 0, 0]) };
    Error::from_code(r.status).map_or(Ok(r.value & REFS), Err)
}

/// A space with a full table of the lowest level for each ISA. Returns the frame that is mapped there, but for
/// the first page of each: that is another frame, so that a worker that maps the frame there is refused late, in
/// the row.
fn full_space(stock: &mut Stock) -> Result<u64> {
    let leaf: Cap<Captbl> = stock.object(ObjectKind::CaptblLeaf)?;
    TABLE.cons(SPACE_SLOT.get() / LEAF, leaf)?;
    let memory = stock.memory();
    let at = stock.frame()?;
    memory.retype_kernel(at, ObjectKind::Space)?;
    let space: Cap<Space> = memory.activate(at, Place::of(TABLE, SPACE_SLOT), Rights::ALL)?;
    let at = stock.frame()?;
    memory.retype_user(at, 0)?;
    let frame: Cap<Frame> = memory.activate(at, Place::of(TABLE, FRAME_SLOT), Rights::ALL)?;
    let other = stock.frame()?;
    memory.retype_user(other, 0)?;
    let other: Cap<Frame> = memory.activate(other, stock.slot()?, Rights::ALL)?;
    for isa in Isa::ALL {
        for level in [4, 3, 2, 1] {
            let va = if level == 4 { 0 } else { MAPPED };
            let table = stock.page_table(TableAt { isa, level })?;
            space.link(TableAt { isa, level }, va, table)?;
        }
        let word = call_word(space.index(), SpaceOp::Map as u32);
        let how = TableAt { isa, level: 1 }.bits();
        for n in 0..ENTRIES {
            let va = MAPPED + n * PAGE_SIZE;
            let shown = if n == 0 { other } else { frame };
            let args = [how, va, shown.index().get().into(), 0, MAP_WRITE];
            // SAFETY: 1. Nothing runs in that space.
            let r = unsafe { raw::call_raw(word, args) };
            Error::from_code(r.status).map_or(Ok(()), Err)?;
        }
    }
    Ok(at)
}

fn full_table(stock: &mut Stock) -> Result<()> {
    let root: Cap<Captbl> = stock.object(ObjectKind::CaptblRoot)?;
    for n in 0..LEAVES {
        let leaf: Cap<Captbl> = stock.object(ObjectKind::CaptblLeaf)?;
        root.cons(n, leaf)?;
    }
    Ok(())
}

fn crowded_space(stock: &mut Stock) -> Result<()> {
    let space: Cap<Space> = stock.object(ObjectKind::Space)?;
    for n in 0..REGIONS {
        let start = 0x100_0000 + n * 0x10_0000;
        space.add_region(start, PAGE_SIZE, RegionKind::Anonymous, true)?;
    }
    let memory: Cap<Memory> = Cap::at(slot::memory(8));
    let word = call_word(space.index(), SpaceOp::Supply as u32);
    for node in [HOME, VICTIM] {
        for run in 0..RUNS {
            let (node, memory) = (node.index() as u64, memory.index().get().into());
            let args = [node, memory, run, run, 1];
            // SAFETY: 1. Nothing runs in that space.
            let r = unsafe { raw::call_raw(word, args) };
            Error::from_code(r.status).map_or(Ok(()), Err)?;
        }
    }
    Ok(())
}
