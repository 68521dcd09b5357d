//! Systems of machines for tests: all nodes take part in quiescence, and frames are retyped by hand.

use core::cell::Cell;
use std::vec::Vec;

use dyad_abi::cap::{CapType, MemoryOp, PageTableOp, Rights, TableAt};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{CpuId, Isa, NodeId};
use dyad_pgtbl::Level;
use dyad_quiesce::{NodeHardware, Progress, Round};
use dyad_retype::{FrameType, FrameWord, KernelKind, Order, Use};
use dyad_shm::frame::{FrameRef, WeakRef};
use dyad_shm::superblock::NodeState;
use dyad_shm::{PhysAddr, PoolId};

use super::{Machine, World};
use crate::syscall::ops::space::link;
use dyad_machine::kernel_ctx::{KernelCtx, Operand};
use dyad_object::find;
use dyad_object::space::Space;
use dyad_space::mapping::{SpaceCtx, table_kind};

/// Two nodes, one of each ISA.
pub const PAIR: [Isa; 2] = [Isa::X86_64, Isa::Aarch64];
/// Where tests map things.
pub const VA: u64 = 0x4000_0000;
const LEVELS: [Level; 3] = [Level::L3, Level::L2, Level::L1];

/// Nodes that have joined, the first CPU of each, and what is left of their pools.
pub struct System {
    /// The memory.
    pub world: World,
    /// The machines, by node.
    pub machines: Vec<Machine>,
    /// Frames of each local pool.
    pub frames: u64,
    /// First frame of each local pool that has been taken. From the end, so that supplies can be
    /// at its start.
    next: Vec<Cell<u64>>,
}

/// The hardware of a CPU that does nothing.
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

/// CPU number `n`.
pub fn cpu(n: u64) -> CpuId {
    CpuId::new(n).unwrap()
}

/// Node number `n`.
pub fn node(n: usize) -> NodeId {
    NodeId::new(n as u64).unwrap()
}

/// A frame of a local pool.
pub fn frame(of: usize, index: u64) -> FrameRef {
    let pool = PoolId::Local(node(of));
    FrameRef::of(pool.base().add(index * PAGE_SIZE)).unwrap()
}

/// From here on the calling thread is this machine.
pub fn cx(m: Machine) -> KernelCtx {
    m.enter();
    KernelCtx {
        node: m.node(),
        local: m.local(),
    }
}

/// A space, as operations take it.
pub fn this(cx: &KernelCtx, object: WeakRef) -> SpaceCtx<'_> {
    SpaceCtx {
        cx,
        space: find(cx.node, object, Space::KIND).unwrap(),
        object,
    }
}

/// A round of a node.
pub fn round(m: Machine) {
    let q = &m.node().tables.quiescence;
    m.local().cache.forget();
    let mut round = Round::new(q, m.node().id());
    loop {
        match round.flush_step(q, &Nothing, 100).unwrap() {
            Progress::Published(_) => return,
            Progress::Waiting(c) => {
                assert!(q.acknowledge(m.node().id(), c, &Nothing));
            }
            Progress::Working => {}
        }
    }
}

/// A capability for a block of user memory.
pub fn frame_cap(object: WeakRef, pages: u64) -> Operand {
    Operand {
        guard: None,
        ty: CapType::Frame,
        rights: Rights::ALL,
        object: Some(object),
        payload: [0, pages, 0],
    }
}

/// A capability for untyped memory.
pub fn memory_cap(first: FrameRef, frames: u64) -> Operand {
    Operand {
        guard: None,
        ty: CapType::Memory,
        rights: MemoryOp::RetypeUser.right(),
        object: None,
        payload: [first.bits() as u64, frames, 0],
    }
}

impl System {
    /// A pair whose local pools have this many frames each.
    pub fn new(frames: u64) -> System {
        System::of(&PAIR, frames)
    }

    /// Nodes of these ISAs.
    pub fn of(isas: &[Isa], frames: u64) -> System {
        let world = World::new(isas, frames);
        let machines: Vec<_> = (0..isas.len()).map(|i| world.machine(i)).collect();
        for m in &machines {
            m.node().tables.quiescence.wake(m.node().id(), cpu(0));
        }
        let system = System {
            world,
            frames,
            next: machines.iter().map(|_| Cell::new(frames)).collect(),
            machines,
        };
        system.rounds();
        system
    }

    /// The first node.
    pub fn x(&self) -> Machine {
        self.machines[0]
    }

    /// The second node.
    pub fn a(&self) -> Machine {
        self.machines[1]
    }

    /// Everybody who lives has been quiet since all stamps so far.
    pub fn rounds(&self) {
        for _ in 0..2 {
            for &m in &self.machines {
                let n = m.node();
                if n.tables.quiescence.node(n.id()).unwrap().state == NodeState::Live {
                    round(m);
                }
            }
        }
    }

    /// An untyped block of just that size.
    pub fn untyped(&self, node: usize, order: u64) -> FrameRef {
        let size = 1 << order;
        let index = (self.next[node].get() - size) & !(size - 1);
        self.next[node].set(index);
        let wanted = frame(node, index);
        let c = cx(self.machines[node]);
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

    /// A block of a node's pool, put to use.
    pub fn take(&self, node: usize, used: Use, order: u64) -> WeakRef {
        let head = self.untyped(node, order);
        let c = cx(self.machines[node]);
        let mut claim = c
            .frames()
            .from_untyped_begin(head, None, c.epochs(), &c.intents())
            .unwrap();
        while claim.next_frame().is_some() {
            claim.frame_done(c.frames()).unwrap();
        }
        c.frames()
            .from_untyped_finish(claim, used, &c.intents())
            .unwrap()
    }

    /// A kernel object of the first node's pool.
    pub fn object(&self, kind: KernelKind) -> WeakRef {
        self.take(0, Use::Kernel(kind), 0)
    }

    /// What a frame is.
    pub fn word(&self, frame: FrameRef) -> FrameWord {
        self.x().node().tables.frames.read(frame).unwrap().0
    }

    /// References to what is still what it was.
    pub fn refs(&self, what: WeakRef) -> u32 {
        let word = self.word(what.frame);
        assert_eq!(word.version, what.version);
        word.refs.get()
    }

    /// A space with a root for each ISA.
    pub fn space(&self) -> WeakRef {
        let object = self.object(Space::KIND);
        let c = cx(self.x());
        for isa in Isa::ALL {
            let at = TableAt { isa, level: 4 };
            let root = self.table(at);
            link(&this(&c, object), at, 0, &root).unwrap();
        }
        object
    }

    /// A page table with a capability for it.
    pub fn table(&self, at: TableAt) -> Operand {
        let kind = table_kind(at.isa, Level::new(at.level).unwrap());
        Operand {
            guard: None,
            ty: CapType::PageTable,
            rights: PageTableOp::Link.right(),
            object: Some(self.object(kind)),
            payload: [at.bits(), 0, 0],
        }
    }

    /// Links the tables for `va` in.
    pub fn tables(&self, space: WeakRef, isa: Isa, va: u64, lowest: Level) -> Vec<WeakRef> {
        let c = cx(self.x());
        LEVELS
            .into_iter()
            .filter(|&l| l >= lowest)
            .map(|l| {
                let at = TableAt {
                    isa,
                    level: l as u8,
                };
                let table = self.table(at);
                let above = Level::new(l as u8 + 1).unwrap().size();
                link(&this(&c, space), at, va & !(above - 1), &table).unwrap();
                table.object.unwrap()
            })
            .collect()
    }

    /// A block of user memory with a capability for all of it.
    pub fn user(&self, order: u64) -> Operand {
        frame_cap(self.take(0, Use::User, order), 1 << order)
    }
}
