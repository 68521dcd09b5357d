//! What the measurement needs, made of what the kernel gives to the first program: slots, and a
//! thread on every other node.

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance;

use dyad_abi::bundle::Bundle;
use dyad_abi::cap::{CapIndex, ObjectKind, RegionKind, Rights};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::{ARCHIVE_BASE, INFO_BASE, Info, archive, slot};
use dyad_abi::user::stack_slot;
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
use dyad_services::frames::{Account, Arena};
use dyad_services::pool::PoolMemory;
use dyad_services::rt;
use dyad_sys::cap::{Cap, Captbl, Component, Kind, Narrow, Place, Space, Thread, ThreadSetup};

/// The program's own table.
pub const TABLE: Cap<Captbl> = Cap::at(slot::TABLE);
const SPACE: Cap<Space> = Cap::at(slot::SPACE);
const COMPONENT: Cap<Component> = Cap::at(slot::COMPONENT);
/// Where the program begins, and where the console is.
pub const HOME: NodeId = NodeId::new(0).unwrap();
/// Frames for leaves and threads.
const OBJECTS: u64 = 64;
/// Frames for faults on other nodes than the first.
const SUPPLY: u64 = 256;
/// Slots of a leaf.
const LEAF: u32 = 64;
/// Slots that are filled and emptied.
pub const SLOTS: u32 = 16 * LEAF;
/// The first of them: behind the program's own, and a leaf for capabilities made here.
const FIRST: u32 = 2 * LEAF;

/// A slot that is filled and emptied.
pub const fn touched(n: u32) -> CapIndex {
    CapIndex(FIRST + n)
}

struct Setup {
    cxl: PoolMemory,
    objects: Arena,
    next_slot: u32,
}

impl Setup {
    fn slot(&mut self) -> Place {
        self.next_slot += 1;
        Place::of(TABLE, CapIndex(self.next_slot - 1))
    }

    fn object<T: Kind>(&mut self, kind: ObjectKind) -> Result<Cap<T>> {
        let at = self.objects.take(&self.cxl, 0)?;
        self.cxl.cap.retype_kernel(at, kind)?;
        let place = self.slot();
        self.cxl.cap.activate(at, place, Rights::ALL)
    }

    fn leaf(&mut self, entry: u32) -> Result<()> {
        let leaf: Cap<Captbl> = self.object(ObjectKind::CaptblLeaf)?;
        TABLE.cons(entry, leaf)
    }
}

/// Makes the slots, and starts a thread on the first CPU of every other node, with the node's
/// number in the low bits of its argument.
///
/// # Errors
///
/// As the kernels say.
pub fn build(info: &Info) -> Result<()> {
    let cxl = PoolMemory::of(MAX_NODES)?;
    let objects = Account::new().carve(&cxl, OBJECTS)?;
    let mut s = Setup {
        cxl,
        objects,
        // The kernel has filled the first leaf up to here.
        next_slot: 40,
    };
    s.leaf(FIRST / LEAF - 1)?;
    s.next_slot = LEAF;
    for n in 0..SLOTS / LEAF {
        s.leaf(FIRST / LEAF + n)?;
    }
    let nodes = info.system.node_count as usize;
    for isa in Isa::ALL {
        let (bottom, _) = stack_slot(isa, 1);
        let (_, top) = stack_slot(isa, MAX_NODES as u32);
        SPACE.add_region(bottom, top - bottom, RegionKind::Anonymous, true)?;
    }
    for node in NodeId::first(nodes).filter(|&n| n != HOME) {
        s.supply(node)?;
        let thread: Cap<Thread> = s.object(ObjectKind::Thread)?;
        let setup = ThreadSetup {
            component: COMPONENT,
            entry: entry(info)?,
            arg: INFO_BASE | node.index() as u64,
            id: node.index() as u32,
            ids: Cap::at(slot::THREAD_IDS),
            tag: 0,
            scheduler: None,
        };
        // SAFETY: 1. The entry is that of this program.
        unsafe { thread.configure(&setup)? };
        let first = CpuId::first(1).next().ok_or(Error::Corrupt)?;
        rt::hardware(node).start_cpu(first, thread)?;
    }
    Ok(())
}

impl Setup {
    /// Frames for what the program touches on a node.
    fn supply(&mut self, node: NodeId) -> Result<()> {
        let pool = PoolMemory::of(node.index())?;
        let arena = Account::new().carve(&pool, SUPPLY)?;
        let part = Narrow::range(arena.first(), arena.frames());
        let to = self.slot().index();
        let memory = TABLE.copy_in(to, pool.cap, Rights::ALL, None, part)?;
        SPACE.supply(node, memory)
    }
}

/// Where threads of this program start.
fn entry(info: &Info) -> Result<u64> {
    let len = usize::try_from(info.archive_len).map_err(|_| Error::BadBundle)?;
    let start = with_exposed_provenance(ARCHIVE_BASE as usize);
    // SAFETY: 1. The kernel has mapped the archive there, read-only, all of it.
    let file: &[u8] = unsafe { core::slice::from_raw_parts(start, len) };
    let image = archive::find(file, "init").ok_or(Error::BadBundle)?;
    Ok(Bundle::parse(image).map_err(|_| Error::BadBundle)?.entry())
}
