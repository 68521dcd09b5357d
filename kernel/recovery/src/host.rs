//! Systems some of whose nodes die: recovery by hand, memory put back as it was, what the walker says.
//!
//! Machines die between any two changes of shared memory ([`crash`]). What survivors find then is
//! recovered, by one of them or by one after the other, and the walker compares everything.

use core::ops::Deref;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use dyad_abi::Isa;
use dyad_abi::cap::RegionKind;
use dyad_abi::ident::{MAX_CPUS, MAX_NODES};
use dyad_abi::user::PAGE_SIZE;
use dyad_ring::{RING_BYTES, arrivals};
use dyad_shm::frame::WeakRef;
use dyad_shm::superblock::{
    ARRIVALS_OFFSET, INBOX_OFFSET, NodeState, NodeWord, QUIESCE_OFFSET, THREAD_IDS_OFFSET,
};
use dyad_shm::{PhysAddr, PoolId};

use crate::{Life, Pace};
use dyad_audit::walk;
use dyad_core::host::system::{System, VA, cx, frame, memory_cap, node, this};
use dyad_core::host::{MockA64, MockX86, crash};
use dyad_core::run_loop::messages;
use dyad_core::syscall::ops::space::supply;
use dyad_machine::inbox;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::space::Region;

/// Three nodes: 0 and 2 are of one ISA, node 1 of the other.
pub const TRIO: [Isa; 3] = [Isa::X86_64, Isa::Aarch64, Isa::X86_64];
/// Frames of each local pool.
const FRAMES: u64 = 72;
/// Frames of each local pool that faults may take, and the first of them.
const SUPPLY: u64 = 16;
const SUPPLY_AT: u64 = 8;

/// Calls `$f::<P>($arguments)` for the platform of an ISA.
macro_rules! on {
    ($isa:expr, $($f:ident)::+ ($($a:expr),*)) => {
        match $isa {
            Isa::X86_64 => $($f)::+::<MockX86>($($a),*),
            Isa::Aarch64 => $($f)::+::<MockA64>($($a),*),
        }
    };
}

/// What was in memory. Worlds cannot be given back: each test uses one, again and again.
pub struct Saved {
    pages: Vec<(PhysAddr, Vec<u8>)>,
}

/// Nodes as in [`TRIO`], with what each knows of the others.
pub struct Trio {
    /// The nodes.
    pub system: System,
    lives: Vec<Life>,
}

impl Deref for Trio {
    type Target = System;

    fn deref(&self) -> &System {
        &self.system
    }
}

impl Default for Trio {
    fn default() -> Trio {
        Trio::new()
    }
}

impl Trio {
    /// Nodes that have joined.
    pub fn new() -> Trio {
        let system = System::of(&TRIO, FRAMES);
        Trio {
            lives: system.machines.iter().map(|_| Life::new()).collect(),
            system,
        }
    }

    /// A node's first CPU.
    pub fn cx(&self, which: usize) -> KernelCtx {
        cx(self.machines[which])
    }

    fn isa(&self, which: usize) -> Isa {
        let n = self.machines[which].node();
        n.isa(n.id())
    }

    /// A space with roots, supplies for all nodes and an anonymous region from [`VA`] on.
    pub fn supplied_space(&self) -> WeakRef {
        let object = self.space();
        let c = self.cx(0);
        let s = this(&c, object);
        for n in 0..self.machines.len() {
            let memory = memory_cap(frame(n, SUPPLY_AT), SUPPLY);
            supply(&s, n as u64, Some(&memory)).unwrap();
        }
        let kind = RegionKind::Anonymous as u64 | 1 << 8;
        let region = Region::new(VA, 64 * PAGE_SIZE, kind).unwrap();
        s.space.add_region(c.words(), c.node.id(), region).unwrap();
        object
    }

    /// A node's word in the node table.
    pub fn state(&self, which: usize) -> NodeWord {
        self.x().node().word_of(node(which))
    }

    /// Declares a node dead, as the launcher does once it has reaped the machine.
    pub fn dies(&self, which: usize) {
        let q = &self.x().node().tables.quiescence;
        q.die(node(which)).unwrap();
    }

    /// Whether a node is recovering another one.
    pub fn recovers(&self, which: usize) -> bool {
        self.lives[which].recovers()
    }

    /// Does one step of the recovery that `which` has to do.
    pub fn step(&self, which: usize) -> Pace {
        let c = self.cx(which);
        let life = &self.lives[which];
        let pace = match self.isa(which) {
            Isa::X86_64 => life.step::<MockX86>(&c),
            Isa::Aarch64 => life.step::<MockA64>(&c),
        };
        if pace == Pace::Later {
            // What it waits for.
            crash::never(|| self.rounds());
        }
        pace
    }

    /// Recovers all dead nodes on node `by`, and lets all live nodes take messages.
    pub fn recover(&self, by: usize) {
        // Above what recovery waits for a list that stays in use.
        let mut left = 20_000;
        while self.step(by) != Pace::Idle {
            left -= 1;
            assert_ne!(left, 0, "recovery does not end");
        }
        for n in 0..self.machines.len() {
            assert!(
                !matches!(self.state(n).state, NodeState::Dead | NodeState::Recovering),
                "node {n}"
            );
        }
        self.drain();
    }

    /// All live nodes take their messages.
    pub fn drain(&self) {
        for (which, m) in self.machines.iter().enumerate() {
            if self.state(which).state == NodeState::Live {
                m.enter();
                on!(self.isa(which), messages::drain());
            }
        }
    }

    /// Lets a node check the life of the others, as it does in each turn.
    pub fn look(&self, which: usize) {
        let c = self.cx(which);
        let life = &self.lives[which];
        match self.isa(which) {
            Isa::X86_64 => life.look::<MockX86>(&c),
            Isa::Aarch64 => life.look::<MockA64>(&c),
        }
    }

    /// Interrupt `number` of a node sends `bits` to the first line of an endpoints object.
    pub fn sends(&self, which: usize, number: u64, object: WeakRef, bits: u64) {
        let n = self.machines[which].node();
        *n.interrupts[number as usize].lock() = Some((object, 0, bits));
    }

    /// Pages that tests change.
    fn pages(&self) -> impl Iterator<Item = PhysAddr> {
        let (nodes, frames) = (self.machines.len() as u64, self.frames);
        let cxl = PoolId::Cxl.base();
        let start = |pages: usize| (0..pages as u64).map(move |i| i * PAGE_SIZE);
        let area = start(size_of::<dyad_shm::Superblock>().div_ceil(4096))
            .chain(start(4).map(|at| at + QUIESCE_OFFSET))
            .map(move |at| cxl.add(at));
        let ring = MAX_CPUS as u64 * MAX_NODES as u64 * RING_BYTES;
        let rings = (0..nodes).flat_map(move |n| {
            let first = (INBOX_OFFSET + n * ring) & !(PAGE_SIZE - 1);
            (0..5).map(move |i| cxl.add(first + i * PAGE_SIZE))
        });
        let arrivals = (0..nodes * MAX_CPUS as u64 * arrivals::BYTES).step_by(PAGE_SIZE as usize);
        let arrivals = arrivals.map(move |at| cxl.add(ARRIVALS_OFFSET + at));
        // Ids of tests are low.
        let ids = core::iter::once(cxl.add(THREAD_IDS_OFFSET));
        let local =
            (0..nodes as usize).flat_map(move |n| (0..=frames).map(move |i| frame(n, i).address()));
        area.chain(rings).chain(arrivals).chain(ids).chain(local)
    }

    /// Remembers them.
    pub fn save(&self) -> Saved {
        let map = self.x().node().map;
        let read = |at| {
            let mut bytes = vec![0; PAGE_SIZE as usize];
            assert!(map.read_bytes(at, &mut bytes));
            (at, bytes)
        };
        Saved {
            pages: self.pages().map(read).collect(),
        }
    }

    /// Restores the saved contents of memory.
    pub fn restore(&self, saved: &Saved) {
        let map = self.x().node().map;
        for (at, bytes) in &saved.pages {
            assert!(map.write_bytes(*at, bytes));
        }
        self.lives.iter().for_each(Life::forget);
        for &m in &self.machines {
            m.enter();
            m.local().thread.set(None);
            m.local().holding.set(None);
            inbox::attach_outboxes(m.node());
            inbox::attach_inboxes(m.node(), m.local());
        }
    }

    /// The faults that the walker finds.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        walk(&self.cx(0), &mut |f| faults.push(f.to_string()));
        faults
    }

    /// Frames of supplies that are in use without a reference to them.
    pub fn leaked(&self) -> usize {
        (0..self.machines.len())
            .flat_map(|n| (SUPPLY_AT..SUPPLY_AT + SUPPLY).map(move |i| frame(n, i)))
            .filter(|&f| {
                let word = self.word(f);
                word.ty.in_use().is_some() && word.refs.get() == 0
            })
            .count()
    }
}
