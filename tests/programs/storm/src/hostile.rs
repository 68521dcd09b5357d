//! Scenes of an attacker and a victim: what one thread can take from another by doing what it may.
//!
//! On every node a CPU's worker gives slices in turn to two threads: a *victim*, which counts what
//! it gets done, and a *rival*. First all rivals are fair: they compute. Then the rival of the
//! first node attacks, and the others go on computing. A victim must get done a stated share of
//! what it got done beside fair rivals, on the attacker's CPU as on others.
//!
//! ```text
//!  worker 0:  ── rival 0 ── victim 0 ── rival 0 ── ...        fair, then the attack
//!  worker 8:  ── rival 1 ── victim 1 ── rival 1 ── ...        fair, twice
//! ```

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::{
    CapIndex, CapType, HardwareOp, MemoryOp, ObjectKind, ReceiveOp, RegionKind, SendOp, SpaceOp,
    ThreadOp,
};
use dyad_abi::service::slot;
use dyad_abi::user::{PAGE_SIZE, USER_END};
use dyad_abi::{Isa, NodeId, Result};
use dyad_services::rt;
use dyad_sys::cap::{Cap, Thread, Until};

use crate::actor::{Actor, GUESTS, WORKERS, actor};
use crate::calls::{invoke, make};
use crate::guests;
use crate::setup::{ENDPOINTS, HOME, SPACE, WAITING, at};
use crate::world::{HERE, WINDOW, WORLD, guest, leaf, memory, slot_of};

/// Slice of each turn.
const SLICE_NS: u64 = 1_000_000;
/// Length of a phase; fair ones and attacks take turns, because the machines share their CPUs with
/// whatever else the host does.
const PHASE_NS: u64 = 100_000_000;
/// Phases of each kind.
const PHASES: u32 = 8;
/// Share of what it gets done beside a fair rival that a victim must get done, in percent. 100 is
/// right; the rest is what the host makes of it.
const SHARE: u64 = 25;

dyad_hostile::named! {
    /// What a rival does.
    pub enum Attack {
        /// Never gives the CPU back.
        Spin = "spin",
        /// Gives it back at once.
        Yield = "yield",
        /// Sends to endpoints that are received on other nodes: a doorbell for each.
        Doorbells = "doorbells",
        /// Goes to another node and back, without end.
        Migrate = "migrate",
        /// Faults, is let go on, and faults again.
        Fault = "fault",
        /// Invokes itself until the kernel says no.
        Recurse = "recurse",
        /// Bad addresses wherever an operation takes one.
        Pointers = "pointers",
        /// Numbers that are out of every range.
        Forge = "forge",
        /// Maps and unmaps.
        Map = "map",
        /// Asks all CPUs to drop their translations.
        Shootdown = "shootdown",
        /// Makes objects and gives them up, without waiting for anything.
        Retype = "retype",
        /// Fills its capability table, and goes on trying.
        Capabilities = "capabilities",
        /// Drives rounds.
        Rounds = "rounds",
        /// Touches page after page of a huge region until there is no memory, and goes on. It leaves nothing for
        /// others, so it comes last.
        Memory = "memory",
    }
}

/// What rivals do: 0 computing, else the number of an attack plus one.
static SCENE: AtomicU64 = AtomicU64::new(0);
/// Whether this is about scenes at all.
static ON: AtomicU64 = AtomicU64::new(0);
/// What victims have got done, by node.
static DONE: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
/// Pages of the huge region that have been touched.
static TOUCHED: AtomicU64 = AtomicU64::new(0);
/// What attackers have.
static BLOWS: AtomicU64 = AtomicU64::new(0);

/// Whether the program is run for scenes.
pub fn is_on() -> bool {
    ON.load(Ordering::Acquire) != 0
}

/// It is.
pub fn turn_on() {
    ON.store(1, Ordering::Release);
}

/// Whether rivals are fair just now.
pub fn is_over() -> bool {
    SCENE.load(Ordering::Relaxed) == 0
}

/// Most nodes: two guests for each.
const NODES: u64 = GUESTS as u64 / 2;

fn nodes() -> u64 {
    WORLD.nodes.load(Ordering::Relaxed).min(NODES)
}

/// A guest's life here: rivals have even numbers.
pub fn live(k: usize) -> ! {
    let a = actor(WORKERS + k);
    let node = k / 2;
    loop {
        if k % 2 == 1 {
            work();
            DONE[node].fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let scene = SCENE.load(Ordering::Relaxed);
        match Attack::ALL.get((scene as usize).wrapping_sub(1)) {
            Some(&attack) if node == 0 => {
                blow(a, attack, k);
                BLOWS.fetch_add(1, Ordering::Relaxed);
            }
            _ => work(),
        }
    }
}

/// Something that takes time, and a call.
fn work() {
    for _ in 0..200 {
        dyad_sys::raw::relax();
    }
    core::hint::black_box(rt::hardware(HOME).now().is_ok());
}

/// Does it once.
fn blow(a: &Actor, attack: Attack, k: usize) {
    let call = |ty, cap: CapIndex, op: u64, args| make(a, ty, cap, op, args);
    match attack {
        Attack::Spin => loop {
            dyad_sys::raw::relax();
            if SCENE.load(Ordering::Relaxed) == 0 {
                return;
            }
        },
        Attack::Yield => {
            let _ = call(CapType::Thread, guest(k), ThreadOp::Yield as u64, [0; 5]);
        }
        Attack::Doorbells => {
            let cap = slot_of(CapType::Send, 1 + a.below(nodes()));
            let _ = call(CapType::Send, cap, SendOp::Send as u64, [0; 5]);
        }
        Attack::Migrate => {
            let to = [a.below(nodes()), 0, 0, 0, 0];
            let _ = call(CapType::Thread, guest(k), ThreadOp::Migrate as u64, to);
        }
        Attack::Fault => {
            let p = with_exposed_provenance_mut::<u64>(8);
            // SAFETY: 1. Nothing is there; the handler lets it go on or ends the thread.
            core::hint::black_box(unsafe { p.read_volatile() });
        }
        Attack::Recurse => {
            let _ = invoke(a, HERE, [63, a.next(), 0, 1]);
        }
        Attack::Pointers => pointers(a),
        Attack::Forge => crate::wild::nonsense(a),
        Attack::Map => {
            let cap = slot_of(CapType::Frame, 1);
            let isa = a.below(2) | 1 << 8;
            let va = WINDOW + a.below(256) * PAGE_SIZE;
            let _ = call(
                CapType::Space,
                slot::SPACE,
                SpaceOp::Map as u64,
                [isa, va, cap.get().into(), 0, 1],
            );
            let _ = call(
                CapType::Space,
                slot::SPACE,
                SpaceOp::Unmap as u64,
                [isa, va, 0, 0, 0],
            );
        }
        Attack::Shootdown => {
            let args = [WINDOW, PAGE_SIZE, 0, 0, 0];
            let _ = call(CapType::Space, slot::SPACE, SpaceOp::Shootdown as u64, args);
        }
        Attack::Retype => {
            let at = 16 + a.below(200);
            let kind = a.below(ObjectKind::ALL.len() as u64);
            let cap = memory(0);
            let make = |op: MemoryOp, x| call(CapType::Memory, cap, op as u64, [at, x, 0, 0, 0]);
            let _ = make(MemoryOp::RetypeKernel, kind);
            let _ = make(MemoryOp::RetypeUntyped, 0);
        }
        Attack::Capabilities => {
            let table = u64::from(leaf(a.below(6) as u32).get());
            let args = [1, table << 32 | a.below(64), 1, 0, 0];
            let op = ReceiveOp::MakeSend as u64;
            let _ = call(CapType::Receive, slot::ENDPOINT, op, args);
        }
        Attack::Memory => {
            let page = TOUCHED.fetch_add(1, Ordering::Relaxed) % (1 << 20);
            let at = WINDOW + (2 << 30) + page * PAGE_SIZE;
            let p = with_exposed_provenance_mut::<u64>(at as usize);
            // SAFETY: 1. An anonymous region of the scene; without memory it is a fault.
            unsafe { p.write_volatile(at) };
        }
        Attack::Rounds => {
            let op = HardwareOp::FlushStep as u64;
            let _ = call(
                CapType::Hardware,
                slot::hardware(HOME),
                op,
                [1024, 0, 0, 0, 0],
            );
        }
    }
}

fn pointers(a: &Actor) {
    let bad = a.pick(&[
        0,
        8,
        PAGE_SIZE - 1,
        USER_END - 1,
        USER_END,
        1 << 63,
        u64::MAX,
    ]);
    let hardware = slot::hardware(HOME);
    let (ty, cap, op, args) = match a.below(4) {
        0 => (
            CapType::Hardware,
            hardware,
            HardwareOp::Write as u64,
            [bad, 4096, 0, 0, 0],
        ),
        1 => (
            CapType::Hardware,
            hardware,
            HardwareOp::Report as u64,
            [bad, 0, 0, 0, 0],
        ),
        2 => (
            CapType::Space,
            slot::SPACE,
            SpaceOp::Translate as u64,
            [1 << 8, bad, 0, 0, 0],
        ),
        _ => (
            CapType::Space,
            slot::SPACE,
            SpaceOp::Unmap as u64,
            [1 << 8, bad & !0xfff | 1 << 63, 0, 0, 0],
        ),
    };
    let _ = make(a, ty, cap, op, args);
}

/// Dispatches the two threads of this worker's node, and all other threads that have arrived, once each.
pub fn turns(n: usize) {
    for _ in 0..8 {
        match ENDPOINTS.receive(n as u64, Until::Now) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    for k in 0..2 * nodes() as usize {
        let thread: Cap<Thread> = Cap::at(guest(k));
        let ran = thread.dispatch(SLICE_NS, 1, None).is_ok();
        // A rival that has been ended attacks anew.
        if !ran && n == 0 && k == 0 {
            guests::again(0);
        }
    }
}

/// Makes rivals and victims, with what they need.
pub fn prepare() -> Result<()> {
    for k in 0..2 * nodes() as usize {
        guests::make_on(k, k as u64 / 2)?;
    }
    // Endpoints received on each node, and one to fill tables with.
    for node in NodeId::first(nodes() as usize) {
        let line = WAITING.start + node.index() as u64;
        let cpu = const { dyad_abi::CpuId::new(0).unwrap() };
        ENDPOINTS.bind(line, node, cpu, 1)?;
        let to = slot_of(CapType::Send, 1 + node.index() as u64);
        let table = dyad_sys::cap::Place::of(crate::setup::TABLE, to);
        ENDPOINTS.make_send(line, table, 1)?;
    }
    // A page to map, tables for it, and a huge region.
    let own: Cap<dyad_sys::cap::Memory> = Cap::at(memory(0));
    own.retype_user(0, 0)?;
    let frame = dyad_sys::cap::Place::of(crate::setup::TABLE, slot_of(CapType::Frame, 1));
    own.activate::<dyad_sys::cap::Frame>(0, frame, crate::setup::FRAME)?;
    for (i, isa) in Isa::ALL.into_iter().enumerate() {
        let first = match isa {
            Isa::X86_64 => ObjectKind::PageTableX86L1,
            Isa::Aarch64 => ObjectKind::PageTableA64L1,
        };
        for level in [3, 2, 1] {
            let kind = ObjectKind::from_number(first as u64 + level - 1);
            let kind = kind.ok_or(dyad_abi::Error::Corrupt)?;
            let n = 1 + i as u64 * 3 + level;
            own.retype_kernel(n, kind)?;
            let place = slot_of(CapType::PageTable, n);
            let place = dyad_sys::cap::Place::of(crate::setup::TABLE, place);
            let table = own.activate(n, place, dyad_abi::cap::Rights::ALL)?;
            match SPACE.link(at(isa, level as u8), WINDOW, table) {
                Ok(()) | Err(dyad_abi::Error::NoIsa) => {}
                Err(e) => return Err(e),
            }
        }
    }
    SPACE.add_region(WINDOW + (2 << 30), 4 << 30, RegionKind::Anonymous, true)
}

/// What came out for a victim.
pub struct Outcome {
    /// The attack.
    pub attack: Attack,
    /// Node of the victim.
    pub node: u64,
    /// What it got done beside fair rivals.
    pub fair: u64,
    /// Beside the attack.
    pub attacked: u64,
    /// What the attacker did.
    pub blows: u64,
}

impl Outcome {
    /// Percent of the fair share.
    pub fn share(&self) -> u64 {
        self.attacked * 100 / self.fair.max(1)
    }

    /// Whether that is enough.
    pub fn is_good(&self) -> bool {
        self.share() >= SHARE && self.blows > 0
    }
}

fn phase(scene: u64) -> [u64; 8] {
    let count = || core::array::from_fn(|i: usize| DONE[i].load(Ordering::Relaxed));
    SCENE.store(scene, Ordering::Relaxed);
    let hardware = rt::hardware(HOME);
    let end = hardware.now().unwrap_or(0) + PHASE_NS;
    let before: [u64; 8] = count();
    while hardware.now().is_ok_and(|now| now < end) {
        turns(0);
        let _ = hardware.flush_step(16);
    }
    let after: [u64; 8] = count();
    core::array::from_fn(|i| after[i] - before[i])
}

/// All scenes, one after the other, by the first worker; `each` hears of every victim.
pub fn play(mut each: impl FnMut(&Outcome)) {
    for (i, &attack) in Attack::ALL.iter().enumerate() {
        let (mut fair, mut attacked, mut blows) = ([0; 8], [0; 8], 0);
        for _ in 0..PHASES {
            let before = phase(0);
            BLOWS.store(0, Ordering::Relaxed);
            let during = phase(i as u64 + 1);
            blows += BLOWS.load(Ordering::Relaxed);
            for n in 0..8 {
                fair[n] += before[n];
                attacked[n] += during[n];
            }
        }
        SCENE.store(0, Ordering::Relaxed);
        for (node, n) in (0..nodes()).zip(0..) {
            each(&Outcome {
                attack,
                node,
                fair: fair[n],
                attacked: attacked[n],
                // What goes on to the end of the scene is not counted.
                blows: match attack {
                    Attack::Spin | Attack::Fault => 1,
                    _ => blows,
                },
            });
        }
    }
}
