//! Tests of recovery on mock machines: three nodes of two ISAs, one of which dies.
//!
//! Machines die between any two changes of shared memory ([`crash`]). What survivors find then is
//! recovered, by one of them or by one after the other, and the walker compares everything. With
//! `DYAD_LONG=1`, second deaths are tried at every step.

pub mod crash;
mod intents;
mod nodes;
mod rows;
mod threads;

use core::cell::Cell;
use std::string::{String, ToString};
use std::vec::Vec;

use std::vec;

use dyad_abi::cap::{MemoryOp, PageTableOp, RegionKind, Rights, TableAt};
use dyad_abi::ident::{MAX_CPUS, MAX_NODES};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{CpuId, Isa, NodeId};
use dyad_pgtbl::Level;
use dyad_quiesce::{NodeHardware, Progress, Round};
use dyad_retype::{FrameType, FrameWord, KernelKind, Order, Use};
use dyad_ring::RING_BYTES;
use dyad_shm::frame::{FrameRef, WeakRef};
use dyad_shm::superblock::{INBOX_OFFSET, NodeState, NodeWord, QUIESCE_OFFSET};
use dyad_shm::{PhysAddr, PoolId};

use super::walker::walk;
use super::{Pace, step};
use crate::cx::{Cx, Operand};
use crate::host::{Machine, MockA64, MockX86, World};
use crate::mapping::{In, table_kind};
use crate::object::find;
use crate::object::space::{Region, Space};
use crate::ops::space::{link, supply};

/// Nodes 0 and 2 are of one ISA, node 1 of the other.
pub const TRIO: [Isa; 3] = [Isa::X86_64, Isa::Aarch64, Isa::X86_64];
pub const VA: u64 = 0x4000_0000;
/// Of each local pool.
const FRAMES: u64 = 72;
/// Frames of each local pool that faults may take, from number 8 on.
const SUPPLY: u64 = 16;

/// Whether tests go through everything, not through samples.
pub fn long() -> bool {
    std::env::var_os("DYAD_LONG").is_some_and(|v| v == "1")
}

pub struct Trio {
    pub world: World,
    pub machines: Vec<Machine>,
    next: Cell<u64>,
}

/// What was in memory. Worlds cannot be given back: each test uses one, again and again.
pub struct Saved {
    pages: Vec<(PhysAddr, Vec<u8>)>,
}

struct Nothing;

impl NodeHardware for Nothing {
    fn writeback_invalidate(&self, _: PhysAddr, _: u64) {}
    fn flush_everything(&self, _: u64) -> bool {
        true
    }
    fn flush_tlb(&self) {}
    fn revalidate(&self) {}
    fn detach(&self) {}
    fn call(&self, _: CpuId) {}
}

pub fn cpu(n: u64) -> CpuId {
    CpuId::new(n).unwrap()
}

pub fn node(n: usize) -> NodeId {
    NodeId::new(n as u64).unwrap()
}

pub fn cx(m: Machine) -> Cx {
    m.enter();
    Cx {
        node: m.node(),
        local: m.local(),
    }
}

pub fn this(cx: &Cx, object: WeakRef) -> In<'_> {
    In {
        cx,
        space: find(cx.node, object, Space::KIND).unwrap(),
        object,
    }
}

pub fn frame(node: usize, index: u64) -> FrameRef {
    let pool = PoolId::Local(NodeId::new(node as u64).unwrap());
    FrameRef::of(pool.base().add(index * PAGE_SIZE)).unwrap()
}

impl Trio {
    pub fn new() -> Trio {
        let world = World::new(&TRIO, FRAMES);
        let machines: Vec<_> = (0..3).map(|i| world.machine(i)).collect();
        for &m in &machines {
            m.node().tables.quiescence.wake(m.node().id(), cpu(0));
        }
        let t = Trio {
            world,
            machines,
            next: Cell::new(FRAMES),
        };
        t.rounds();
        t
    }

    pub fn cx(&self, which: usize) -> Cx {
        cx(self.machines[which])
    }

    /// Everybody who lives has been quiet since all stamps so far.
    pub fn rounds(&self) {
        for _ in 0..2 {
            for &m in &self.machines {
                let q = &m.node().tables.quiescence;
                let id = m.node().id();
                if q.node(id).unwrap().state != NodeState::Live {
                    continue;
                }
                let mut round = Round::new(q, id);
                loop {
                    match round.flush_step(q, &Nothing, 100).unwrap() {
                        Progress::Published(_) => break,
                        Progress::Waiting(c) => {
                            assert!(q.acknowledge(id, c, &Nothing));
                        }
                        Progress::Working => {}
                    }
                }
            }
        }
    }

    /// A block of the first node's pool, put to use.
    pub fn take(&self, used: Use, order: u64) -> WeakRef {
        let head = self.untyped(order);
        let c = self.cx(0);
        let mut claim = c
            .frames()
            .from_untyped_begin(head, None, c.epochs(), &c.intents())
            .unwrap();
        while claim.next_frame().is_some() {
            claim.frame_done(c.words());
        }
        c.frames()
            .from_untyped_finish(claim, used, &c.intents())
            .unwrap()
    }

    /// An untyped block of just that size.
    pub fn untyped(&self, order: u64) -> FrameRef {
        let size = 1 << order;
        let index = (self.next.get() - size) & !(size - 1);
        self.next.set(index);
        let wanted = frame(0, index);
        let c = self.cx(0);
        loop {
            let (head, word) = c.frames().head(wanted).unwrap();
            let FrameType::Untyped(has) = word.ty else {
                panic!("{word}");
            };
            if head == wanted && has == Order::new(order).unwrap() {
                return wanted;
            }
            c.frames().split(head, &c.intents()).unwrap();
        }
    }

    pub fn object(&self, kind: KernelKind) -> WeakRef {
        self.take(Use::Kernel(kind), 0)
    }

    pub fn word(&self, frame: FrameRef) -> FrameWord {
        self.machines[0].node().tables.frames.read(frame).unwrap().0
    }

    pub fn table(&self, isa: Isa, level: u8) -> Operand {
        let at = TableAt { isa, level };
        let kind = table_kind(isa, Level::new(level).unwrap());
        Operand {
            guard: None,
            ty: dyad_abi::cap::CapType::PageTable,
            rights: PageTableOp::Link.right(),
            object: Some(self.object(kind)),
            payload: [at.bits(), 0, 0],
        }
    }

    /// A space with roots, supplies for all nodes and an anonymous region from [`VA`] on.
    pub fn space(&self) -> WeakRef {
        let object = self.object(Space::KIND);
        let c = self.cx(0);
        let s = this(&c, object);
        for isa in Isa::ALL {
            let root = self.table(isa, 4);
            link(&s, TableAt { isa, level: 4 }, 0, &root).unwrap();
        }
        for n in 0..3 {
            let memory = Operand {
                guard: None,
                ty: dyad_abi::cap::CapType::Memory,
                rights: MemoryOp::RetypeUser.right(),
                object: None,
                payload: [frame(n, 8).bits() as u64, SUPPLY, 0],
            };
            supply(&s, n as u64, Some(&memory)).unwrap();
        }
        let kind = RegionKind::Anonymous as u64 | 1 << 8;
        let region = Region::new(VA, 64 * PAGE_SIZE, kind).unwrap();
        s.space.add_region(c.words(), region).unwrap();
        object
    }

    /// Links the tables for [`VA`] in, down to a level.
    pub fn tables(&self, space: WeakRef, isa: Isa, lowest: u8) -> Vec<WeakRef> {
        let c = self.cx(0);
        (lowest..=3)
            .rev()
            .map(|level| {
                let table = self.table(isa, level);
                let above = Level::new(level + 1).unwrap().size();
                let at = TableAt { isa, level };
                link(&this(&c, space), at, VA & !(above - 1), &table).unwrap();
                table.object.unwrap()
            })
            .collect()
    }

    /// A block of user memory with a capability for it.
    pub fn user(&self, order: u64) -> Operand {
        Operand {
            guard: None,
            ty: dyad_abi::cap::CapType::Frame,
            rights: Rights::ALL,
            object: Some(self.take(Use::User, order)),
            payload: [0, 1 << order, 0],
        }
    }

    pub fn state(&self, which: usize) -> NodeWord {
        self.machines[0].node().sb.node_word(node(which))
    }

    /// As the launcher does once it has reaped the machine.
    pub fn dies(&self, which: usize) {
        let q = &self.machines[0].node().tables.quiescence;
        q.die(node(which)).unwrap();
    }

    /// One step of whatever recovery `which` has to do.
    pub fn step(&self, which: usize) -> Pace {
        let c = self.cx(which);
        let mut state = c.node.recovery.lock();
        let pace = match TRIO[which] {
            Isa::X86_64 => step::<MockX86>(&c, &mut state),
            Isa::Aarch64 => step::<MockA64>(&c, &mut state),
        };
        if pace == Pace::Later {
            // What it waits for.
            crash::never(|| self.rounds());
        }
        pace
    }

    /// Recovers all dead nodes, and has everybody take messages.
    pub fn recover(&self, by: usize) {
        let mut left = 10_000;
        while self.step(by) != Pace::Idle {
            left -= 1;
            assert_ne!(left, 0, "recovery does not end");
        }
        for n in 0..3 {
            assert!(
                !matches!(self.state(n).state, NodeState::Dead | NodeState::Recovering),
                "node {n}"
            );
        }
        self.drain();
    }

    pub fn drain(&self) {
        for (&m, isa) in self.machines.iter().zip(TRIO) {
            if self.state(m.node().id().index()).state == NodeState::Live {
                m.enter();
                match isa {
                    Isa::X86_64 => crate::inbox::drain::<MockX86>(),
                    Isa::Aarch64 => crate::inbox::drain::<MockA64>(),
                }
            }
        }
    }

    /// Pages that tests change.
    fn pages(&self) -> impl Iterator<Item = PhysAddr> {
        let cxl = PoolId::Cxl.base();
        let start = |pages: usize| (0..pages as u64).map(move |i| i * PAGE_SIZE);
        let area = start(size_of::<dyad_shm::Superblock>().div_ceil(4096))
            .chain(start(4).map(|at| at + QUIESCE_OFFSET))
            .map(move |at| cxl.add(at));
        let ring = MAX_CPUS as u64 * MAX_NODES as u64 * RING_BYTES;
        let rings = (0..3).flat_map(move |n| {
            let first = (INBOX_OFFSET + n * ring) & !(PAGE_SIZE - 1);
            (0..5).map(move |i| cxl.add(first + i * PAGE_SIZE))
        });
        let local = (0..3).flat_map(|n| (0..=FRAMES).map(move |i| frame(n, i).address()));
        area.chain(rings).chain(local)
    }

    pub fn save(&self) -> Saved {
        let map = self.machines[0].node().map;
        let read = |at| {
            let mut bytes = vec![0; PAGE_SIZE as usize];
            assert!(map.read_bytes(at, &mut bytes));
            (at, bytes)
        };
        Saved {
            pages: self.pages().map(read).collect(),
        }
    }

    /// Everything is as it was.
    pub fn restore(&self, saved: &Saved) {
        let map = self.machines[0].node().map;
        for (at, bytes) in &saved.pages {
            assert!(map.write_bytes(*at, bytes));
        }
        for &m in &self.machines {
            m.enter();
            *m.node().recovery.lock() = None;
            *m.node().watch.lock() = crate::death::Watch::new();
            m.local().thread.set(None);
            m.local().holding.set(None);
            crate::inbox::attach_outboxes(m.node());
            crate::inbox::attach_inboxes(m.node(), m.local());
        }
    }

    /// What the walker finds wrong.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let c = self.cx(0);
        walk(&c, &mut |f| faults.push(f.to_string()));
        faults
    }

    /// Frames of supplies that are in use without a reference to them.
    pub fn leaked(&self) -> usize {
        (0..3)
            .flat_map(|n| (8..8 + SUPPLY).map(move |i| frame(n, i)))
            .filter(|&f| {
                let word = self.word(f);
                word.ty.in_use().is_some() && word.refs.get() == 0
            })
            .count()
    }
}
