//! What revocation costs: the words it touches, whatever there is to revoke.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use dyad_abi::cap::{CapType, Rights};
use dyad_abi::{CpuId, Isa, NodeId};
use dyad_captbl::{Contents, GuardRef, Log, Narrowed, Owner, Parts, SlotPlace, Table};
use dyad_coherence::{Coherent, GlobalMem};
use dyad_quiesce::Quiescence;
use dyad_shm::frame::{FrameRef, WeakRef};
use dyad_shm::superblock::QUIESCE_OFFSET;
use dyad_shm::{PhysAddr, PoolId};

use super::World;
use dyad_object::first;

/// Memory that counts what is done to it.
struct Counting<'m> {
    mem: Coherent<'m>,
    n: Cell<u64>,
}

impl Counting<'_> {
    fn count(&self) -> &Self {
        self.n.set(self.n.get() + 1);
        self
    }
}

impl GlobalMem for Counting<'_> {
    fn contains(&self, at: PhysAddr, len: u64) -> bool {
        self.mem.contains(at, len)
    }
    fn load(&self, at: PhysAddr, order: Ordering) -> u64 {
        self.count().mem.load(at, order)
    }
    fn store(&self, at: PhysAddr, value: u64, order: Ordering) {
        self.count().mem.store(at, value, order);
    }
    fn cas(&self, at: PhysAddr, old: u64, new: u64) -> Result<u64, u64> {
        self.count().mem.cas(at, old, new)
    }
    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        self.count().mem.swap(at, value)
    }
    fn add(&self, at: PhysAddr, n: u64) -> u64 {
        self.count().mem.add(at, n)
    }
    fn or(&self, at: PhysAddr, bits: u64) -> u64 {
        self.count().mem.or(at, bits)
    }
    fn and(&self, at: PhysAddr, bits: u64) -> u64 {
        self.count().mem.and(at, bits)
    }
    fn fence(&self) {
        self.count().mem.fence();
    }
    fn writeback(&self, at: PhysAddr, len: u64) {
        self.count().mem.writeback(at, len);
    }
    fn invalidate(&self, at: PhysAddr, len: u64) {
        self.count().mem.invalidate(at, len);
    }
}

/// A log that is not kept, as where caches are coherent.
struct Unlogged;

impl Log for Unlogged {
    fn line(&self, _: PhysAddr) {}
    fn object(&self, _: FrameRef) {}
}

/// Memory operations of revoking a capability with this many copies.
fn cost(copies: u64) -> u64 {
    let w = World::new(&[Isa::X86_64], 512);
    let m = w.machine(0);
    let mem = Counting {
        mem: Coherent(m.node().map),
        n: Cell::new(0),
    };
    let me = NodeId::new(0).unwrap();
    let table = Table::<_>::new(
        &mem,
        Owner {
            node: me,
            incarnation: 1,
        },
    );
    let cxl = PoolId::Cxl.base();
    let epochs = Quiescence::new(&mem, cxl, cxl.add(QUIESCE_OFFSET)).unwrap();
    let intents = epochs.intents(me, CpuId::new(0).unwrap());
    let parts = Parts {
        epochs: &epochs,
        intents: &intents,
        log: &Unlogged,
    };
    let frame = |n: u64| -> WeakRef {
        let at = PoolId::Local(me).base().add((100 + n) * 4096);
        first(FrameRef::of(at).unwrap())
    };
    let live = frame(0);
    let guard: GuardRef = table.expected(live, 9).unwrap();
    let source = Contents {
        ty: CapType::Thread,
        rights: Rights::ALL,
        object: Some(frame(1)),
        guard: Some(guard),
        payload: [0; 3],
    };
    for i in 0..copies {
        let place = SlotPlace::new(frame(2 + i / 64), (i % 64) as u32).unwrap();
        let how = Narrowed {
            rights: Rights::ALL,
            guard: None,
        };
        table
            .copy(&source, place, how, |_, p| Ok(p), &parts)
            .unwrap();
    }
    let before = mem.n.get();
    table.revoke(live.frame, 9, &parts).unwrap();
    let cost = mem.n.get() - before;
    for i in [0, copies / 2, copies.saturating_sub(1)] {
        if i < copies {
            let place = SlotPlace::new(frame(2 + i / 64), (i % 64) as u32).unwrap();
            let found = table.found(place.address()).unwrap();
            let guard = table.contents(&found).unwrap().guard.unwrap();
            assert!(table.guard_alive(guard, |_| true).is_err());
        }
    }
    cost
}

#[test]
fn revocation_costs_the_same_whatever_there_is_to_revoke() {
    let one = cost(1);
    assert!(one > 0 && one < 10, "{one} memory operations");
    for copies in [0, 64, 10_000] {
        assert_eq!(cost(copies), one, "with {copies} copies");
    }
}
