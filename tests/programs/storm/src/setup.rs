//! The first thread: what the storm needs, made of what the kernel gives to the first program.

#![allow(unsafe_code)]

use core::sync::atomic::Ordering::{Relaxed, Release};

use dyad_abi::cap::{
    CapIndex, CapType, FrameOp, HardwareOp, ObjectKind, ReceiveOp, RegionKind, Rights, SinvOp,
    SpaceOp, TableAt, ThreadIdsOp, ThreadOp, TimeOp,
};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::{Info, slot};
use dyad_abi::user::{PAGE_SIZE, stack_slot};
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
pub use dyad_services::first::{COMPONENT, HOME, SPACE, TABLE};
use dyad_services::first::{Store, StoreSize, bundle};
use dyad_services::frames::Arena;
use dyad_services::rt;
use dyad_sys::cap::{Cap, Captbl, Component, Memory, Narrow, Place, Receive, Thread, Time};

use crate::actor::{GUESTS, WORKERS};
use crate::deaths;
use crate::world::{
    FRAMES, GUEST_MEMORY, HANDLER, HERE, LAST_ENTRIES, LEAVES, WORLD, guest, leaf, memory, slot_of,
    there,
};

/// Endpoints: those of the workers as schedulers, and others.
pub const ENDPOINTS: Cap<Receive> = Cap::at(slot::ENDPOINT);
/// Frames for faults on other nodes than the first.
const SUPPLY: u64 = 2048;
/// Frames for tables, leaves, threads of workers.
const OBJECTS: u64 = 448;
/// Frames for leaves at places of their own.
const LEAVES_FRAMES: u64 = 64;
/// In an argument: the thread is a guest.
pub const GUEST: u64 = 1 << 7;
/// The largest scheduler line that is no CPU's, for guests to wait at.
pub const WAITING: core::ops::Range<u64> = 48..64;

/// What setting up needs on the way.
struct Setup {
    store: Store,
    leaves: Arena,
}

impl Setup {
    /// A leaf at a place, which hangs at once.
    fn leaf(&mut self, at: CapIndex, entry: u32) -> Result<()> {
        let (place, kind) = (Place::of(TABLE, at), ObjectKind::CaptblLeaf);
        let (leaf, _): (Cap<Captbl>, u64) = self.store.make(&mut self.leaves, kind, place)?;
        TABLE.cons(entry, leaf)
    }
}

fn narrow(to: CapIndex, pool: usize, arena: &Arena) -> Result<Cap<Memory>> {
    let from: Cap<Memory> = Cap::at(slot::memory(pool));
    let part = Narrow::range(arena.first(), arena.frames());
    TABLE.copy_in(to, from, Rights::ALL, None, part)
}

/// Makes everything, and starts the workers of all other CPUs.
///
/// # Errors
///
/// As the kernels say.
pub fn build(info: &Info) -> Result<()> {
    // With a leaf for slots from 64 on, whose capability is in the first one.
    let mut store = Store::new(StoreSize {
        frames: OBJECTS,
        slots: slot::FIRST_FREE.0,
        leaves: 2,
        window: 0,
        pause: || {
            let _ = rt::hardware(HOME).flush_step(64);
        },
    })?;
    let leaves = store.carve(MAX_NODES, LEAVES_FRAMES)?;
    let mut s = Setup { store, leaves };
    for n in 0..LEAVES {
        s.leaf(leaf(n), 2 + n)?;
    }
    // Slots for later; their leaves are named by nobody.
    for (i, entry) in LAST_ENTRIES.enumerate() {
        // One after the other goes through the same few slots of the storm's last leaf, which are
        // taken again only after quiescence: so each has its own, behind the types.
        s.leaf(CapIndex(128 + LEAVES * 64 - 32 + i as u32), entry)?;
    }
    let nodes = info.system.node_count as usize;
    WORLD.nodes.store(nodes as u64, Relaxed);
    WORLD.cpus.store(info.cpus, Relaxed);
    s.memory(nodes)?;
    s.stacks(nodes, info.cpus as usize)?;
    s.entries(nodes)?;
    seeds(nodes)?;
    s.workers(nodes, info.cpus as usize)
}

impl Setup {
    /// Storm memory of every pool, memory of guests, supplies.
    fn memory(&mut self, nodes: usize) -> Result<()> {
        let arena = self.store.carve(MAX_NODES, FRAMES)?;
        narrow(memory(MAX_NODES as u64), MAX_NODES, &arena)?;
        let guests = self.store.carve(MAX_NODES, GUESTS as u64)?;
        narrow(GUEST_MEMORY, MAX_NODES, &guests)?;
        WORLD.pools[0].store(MAX_NODES as u64, Relaxed);
        for (i, node) in NodeId::first(nodes).enumerate() {
            let arena = self.store.carve(i, FRAMES)?;
            narrow(memory(i as u64), i, &arena)?;
            WORLD.pools[i + 1].store(i as u64, Relaxed);
            if node != HOME {
                SPACE.supply(node, self.store.keep_memory(i, SUPPLY)?)?;
            }
        }
        WORLD.pool_count.store(nodes + 1, Release);
        Ok(())
    }

    /// Stacks of workers and guests, as one region with everything between.
    fn stacks(&mut self, nodes: usize, _cpus: usize) -> Result<()> {
        for isa in Isa::ALL {
            let (bottom, _) = stack_slot(isa, 1);
            let (_, top) = stack_slot(isa, (WORKERS + GUESTS) as u32);
            let kind = RegionKind::Anonymous;
            match SPACE.add_region(bottom, top - bottom, kind, true) {
                Ok(()) => {}
                Err(e) if nodes > 1 => return Err(e),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Entries for invocations: here, on each node, for faults.
    fn entries(&mut self, nodes: usize) -> Result<()> {
        let entry = bundle()?.invoked().ok_or(Error::BadBundle)?;
        let all = Rights::ALL;
        let own = |at| Place::of(TABLE, at);
        // SAFETY: 1. The entry is that of the bundle, here and below.
        unsafe { COMPONENT.make_sinv(own(HERE), entry, 0, all)? };
        // SAFETY: 1. As above.
        let handler = unsafe { COMPONENT.make_sinv(own(HANDLER), entry, 1, all)? };
        COMPONENT.set_fault_handler(Some(handler))?;
        for (n, node) in NodeId::first(nodes).enumerate() {
            let far: Cap<Component> = self.store.keep(ObjectKind::Component)?;
            far.configure(TABLE, SPACE)?;
            far.set_home([node])?;
            far.set_fault_handler(Some(handler))?;
            // SAFETY: 1. As above: it consists of the same table and space.
            unsafe { far.make_sinv(own(there(n as u64)), entry, 2, all)? };
        }
        Ok(())
    }

    /// A worker for every CPU but this one.
    fn workers(&mut self, nodes: usize, cpus: usize) -> Result<()> {
        for node in NodeId::first(nodes) {
            for cpu in CpuId::first(cpus) {
                let n = (node.index() * 8 + cpu.index()) as u64;
                if n == 0 {
                    continue;
                }
                let thread: Cap<Thread> = self.store.keep(ObjectKind::Thread)?;
                deaths::begin(node, cpu, thread)?;
            }
        }
        Ok(())
    }
}

/// Where threads of this program start.
///
/// # Errors
///
/// If the archive is not what it was.
pub fn entry() -> Result<u64> {
    Ok(bundle()?.entry())
}

/// What of the program's own the storm may use: rights by which it cannot harm the program.
pub fn seed(ty: CapType, n: u64) -> Option<(CapIndex, Rights)> {
    let keep = Rights::COPY.or(Rights::INTROSPECT);
    Some(match ty {
        CapType::Space => (
            slot::SPACE,
            // Without the right to copy, components cannot be made of it.
            SpaceOp::Translate
                .right()
                .or(SpaceOp::Harvest.right())
                .or(Rights::INTROSPECT),
        ),
        CapType::Receive => (
            slot::ENDPOINT,
            ReceiveOp::MakeSend
                .right()
                .or(ReceiveOp::Receive.right())
                .or(keep),
        ),
        CapType::Time => (
            slot::TIME,
            TimeOp::Use
                .right()
                .or(TimeOp::Read.right())
                .or(TimeOp::Transfer.right())
                .or(keep),
        ),
        CapType::ThreadIds => (slot::THREAD_IDS, ThreadIdsOp::Use.right().or(keep)),
        CapType::Hardware => {
            let node = NodeId::new(n % WORLD.nodes.load(Relaxed))?;
            let rights = [
                HardwareOp::FlushStep,
                HardwareOp::FlushTlb,
                HardwareOp::AttachIrq,
                HardwareOp::Now,
                HardwareOp::Quiesced,
                HardwareOp::Where,
                HardwareOp::NodeState,
            ];
            let rights = rights.iter().fold(keep, |all, op| all.or(op.right()));
            (slot::hardware(node), rights)
        }
        CapType::Memory => {
            let count = WORLD.pool_count.load(Relaxed) as u64;
            let pool = WORLD.pools[(n % count) as usize].load(Relaxed);
            (memory(pool), Rights::ALL)
        }
        CapType::Sinv => {
            let nodes = WORLD.nodes.load(Relaxed);
            let at = match n % (nodes + 1) {
                0 => HERE,
                i => there(i - 1),
            };
            (at, SinvOp::Invoke.right().or(keep))
        }
        CapType::Thread => {
            let rights = [
                ThreadOp::Dispatch,
                ThreadOp::ReadRegister,
                ThreadOp::Stop,
                ThreadOp::Resume,
            ];
            let rights = rights.iter().fold(keep, |all, op| all.or(op.right()));
            (guest(n as usize % GUESTS), rights)
        }
        // Copies of the storm's own leaves would let one type get into the slots of another.
        CapType::Captbl
        | CapType::PageTable
        | CapType::Component
        | CapType::Send
        | CapType::Frame
        | CapType::Liveness => return None,
    })
}

/// A copy of each to begin with.
fn seeds(nodes: usize) -> Result<()> {
    for &ty in CapType::ALL {
        for n in 0..(nodes as u64 + 1) {
            let Some((from, rights)) = seed(ty, n) else {
                continue;
            };
            if ty == CapType::Thread {
                continue;
            }
            TABLE.copy_in::<Time>(slot_of(ty, n), Cap::at(from), rights, None, Narrow::ALL)?;
        }
    }
    Ok(())
}

/// Where a table of a level begins that covers an address.
pub const fn table_start(va: u64, level: u8) -> u64 {
    va & !((PAGE_SIZE << (9 * level as u32)) - 1)
}

/// A table of an ISA.
pub const fn at(isa: Isa, level: u8) -> TableAt {
    TableAt { isa, level }
}

/// Everything that a frame may be mapped for.
pub const FRAME: Rights = FrameOp::Map
    .right()
    .or(FrameOp::Write.right())
    .or(Rights::COPY);
