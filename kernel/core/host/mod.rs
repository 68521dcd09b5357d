//! The kernel on the host: machines made of nothing, for tests.
//!
//! A [`World`] is the shared memory of a system; a [`Machine`] is one CPU's view of one of its
//! nodes. [`Machine::enter`] makes the calling thread that CPU until another machine is entered,
//! so that a test plays the parts of all nodes in turn. What never returns on hardware unwinds
//! here with a [`Left`] that says how the kernel was left.
//!
//! Register areas of these machines: words 0 to 5 are the system call, 6 and 7 its result, 8 the
//! program counter, 9 the frame pointer, 10 the stack pointer. Words 12 to 17 are the arguments of
//! an invocation, the first also that of the start, 18 to 21 its results, 22 is 1 while the area is
//! partial, 24 the thread pointer, 25 the function that a gate is to call. Registers are numbered as words.

#![allow(dead_code, reason = "calls of whole threads have no tests yet")]

#[cfg(test)]
mod argument_tests;
#[cfg(test)]
mod between_tests;
#[cfg(test)]
mod component_races;
#[cfg(test)]
mod differential;
#[cfg(test)]
mod evacuate_tests;
#[cfg(test)]
mod fill_races;
#[cfg(test)]
mod flush_tests;
#[cfg(test)]
mod forget_tests;
#[cfg(test)]
mod fp_tests;
#[cfg(test)]
mod fp_waiting_tests;
#[cfg(test)]
mod frame_tests;
#[cfg(test)]
mod giving_up_tests;
#[cfg(test)]
mod home_tests;
#[cfg(test)]
mod in_use;
#[cfg(test)]
pub mod ktests;
#[cfg(test)]
mod page_table_race;
mod platform;
#[cfg(test)]
mod protect_tests;
#[cfg(test)]
mod race_pairs;
#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod reclaim_tests;
#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod resolve_races;
#[cfg(test)]
mod resolve_tests;
#[cfg(test)]
mod revoke_tests;
#[cfg(test)]
mod root_tests;
#[cfg(test)]
mod space_tests;
#[cfg(test)]
mod spin_tests;
#[cfg(test)]
mod stop_tests;
#[cfg(test)]
mod stripe_tests;
pub mod system;
#[cfg(test)]
mod thread_tests;
#[cfg(test)]
mod travel_tests;
#[cfg(test)]
mod view_tests;
#[cfg(test)]
mod wait_races;

pub use dyad_object::host::crash;

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU64, Ordering};
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::string::String;
use std::sync::{Mutex, PoisonError};
use std::vec::Vec;

use dyad_abi::boot::{BootMode, BootParams, OnDeath};
use dyad_abi::emulation::FLOAT_WORDS;
use dyad_abi::ident::MAX_NODES;
use dyad_abi::user::{PAGE_SIZE, USER_END};
use dyad_abi::{CpuId, Isa, NodeId};
use dyad_shm::pool::MAX_POOLS;
use dyad_shm::superblock::{NodeState, NodeWord, ROOT_ENTRIES};
use dyad_shm::{FusedMap, PhysAddr, PoolId};

use dyad_machine::Platform;
use dyad_machine::cpu::CpuLocal;
use dyad_machine::platform::{FpArea, Interrupt, RegArea};
use dyad_object::memory::Words;
use dyad_object::node::Node;
use dyad_object::thread::Thread;

/// A machine of either ISA.
pub enum Mock<const A64: bool> {}
/// Of the one ISA.
pub type MockX86 = Mock<false>;
/// Of the other.
pub type MockA64 = Mock<true>;

const CXL_SIZE: u64 = 10 << 20;
const PC: usize = 8;
const FRAME_POINTER: usize = 9;
const SP: usize = 10;
const ARGUMENTS: usize = 12;
const RESULTS: usize = 18;
const PARTIAL: usize = 22;
const THREAD_POINTER: usize = 24;
const FUNCTION: usize = 25;
const IDLE_ROOT: PhysAddr = PhysAddr(0x1000);

/// How the kernel was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// To user mode; program counter of the thread.
    User(u64),
    /// To sleep.
    Asleep,
    /// For good.
    Exited(u32),
}

/// What a machine did that a test may want to know, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// Made this the user half of its address space.
    SwitchedRoot(PhysAddr),
    /// Dropped all user translations.
    FlushedTlb,
    /// Saved floating-point registers.
    SavedFp,
    /// Loaded them.
    RestoredFp,
    /// Rang a doorbell.
    Rang {
        /// Of which machine.
        peer: u64,
        /// Of which of its CPUs.
        cpu: CpuId,
    },
}

struct Private {
    node: &'static Node,
    local: &'static CpuLocal,
    did: RefCell<Vec<Did>>,
    /// Floating-point registers: a word, and whether user mode may use it.
    fp: Cell<(u64, bool)>,
    console: RefCell<Vec<u8>>,
}

std::thread_local! {
    static CURRENT: Cell<Option<&'static Private>> = const { Cell::new(None) };
    static CLOCK: Cell<u64> = const { Cell::new(0) };
    /// How far a look at the clock takes it on.
    static LOOK_NS: Cell<u64> = const { Cell::new(1_000) };
    /// An interrupt that has come, and has not been taken.
    static PENDING: Cell<Option<Interrupt>> = const { Cell::new(None) };
    /// Called when a machine makes the code in a frame fit to be executed.
    pub static SYNCS: Cell<Option<OnSync>> = const { Cell::new(None) };
}

/// What a test does with code that is made fit to be executed.
pub type OnSync = fn(&FusedMap, PhysAddr);

/// An interrupt comes, and is taken the next time that the kernel lets it.
pub fn interrupted_by(i: Option<Interrupt>) {
    PENDING.set(i);
}

/// Whether an interrupt that has come has not been taken.
pub fn interrupts_are_pending() -> bool {
    PENDING.get().is_some()
}

/// The clocks of this thread's machines stand still from here on, but for [`pass_time`].
#[cfg(test)]
fn stop_time() {
    LOOK_NS.set(0);
}

/// The clocks of this thread's machines go on by so much.
#[cfg(test)]
fn pass_time(ns: u64) {
    CLOCK.set(CLOCK.get() + ns);
}

fn current() -> &'static Private {
    CURRENT.get().expect("no machine entered")
}

/// The memory of a system.
pub struct World {
    pools: [(u64, u64); MAX_POOLS],
    /// Whether the memory is this one's to give back.
    owned: bool,
    isas: Vec<Isa>,
    local_size: u64,
    /// Length of the archive of programs, for machines made from now on.
    pub bundle_len: Cell<u64>,
    /// What they do about deaths.
    pub on_death: Cell<OnDeath>,
}

/// The bundle lies at the end of the CXL pool.
pub const BUNDLE_ROOM: u64 = 256 << 10;

/// Memory of worlds that are no more, by size. It is used again, never freed: what a test has left
/// may still refer to it, and finds zeros, or another world.
static FREE: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

fn zeroed(len: u64) -> u64 {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(i) = free.iter().position(|&(l, _)| l == len) {
        let (_, at) = free.swap_remove(i);
        // SAFETY: 1. of that size, and unused: the world that had it is gone.
        #[allow(unsafe_code)]
        unsafe {
            core::ptr::with_exposed_provenance_mut::<u8>(at as usize).write_bytes(0, len as usize);
        }
        return at;
    }
    drop(free);
    let layout = std::alloc::Layout::from_size_align(len as usize, PAGE_SIZE as usize).unwrap();
    // SAFETY: 1. the layout is not empty; 2. never freed.
    #[allow(unsafe_code)]
    let at = unsafe { std::alloc::alloc_zeroed(layout) };
    assert!(!at.is_null());
    at.expose_provenance() as u64
}

impl Drop for World {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(self.pools.iter().filter(|p| p.0 != 0));
    }
}

impl World {
    /// A system of nodes of these ISAs whose local pools have `frames` frames each, all LIVE.
    pub fn new(isas: &[Isa], frames: u64) -> World {
        let w = World::empty(isas, frames);
        for i in 0..isas.len() {
            let m = w.machine(i);
            let node = m.node();
            if i == 0 {
                node.tables.format(&node.params, PoolId::Cxl).unwrap();
            }
            let pool = PoolId::Local(node.id());
            node.tables.format(&node.params, pool).unwrap();
            w.set_state(m.node(), i, NodeState::Live);
        }
        w
    }

    /// The same before anybody has joined.
    pub fn empty(isas: &[Isa], frames: u64) -> World {
        // The frame table takes a frame or two of its own.
        let local_size = (frames + 1) * PAGE_SIZE;
        let mut pools = [(0, 0); MAX_POOLS];
        for p in pools.iter_mut().take(isas.len()) {
            *p = (local_size, zeroed(local_size));
        }
        pools[PoolId::Cxl.index()] = (CXL_SIZE, zeroed(CXL_SIZE));
        World {
            pools,
            owned: true,
            isas: isas.to_vec(),
            local_size,
            bundle_len: Cell::new(0),
            on_death: Cell::new(OnDeath::End),
        }
    }

    /// The same system once more, for another thread, which must not outlive it.
    pub fn twin(&self) -> World {
        World {
            pools: self.pools,
            owned: false,
            isas: self.isas.clone(),
            local_size: self.local_size,
            bundle_len: Cell::new(self.bundle_len.get()),
            on_death: Cell::new(self.on_death.get()),
        }
    }

    /// Sets the state of a node in its first incarnation.
    pub fn set_state(&self, node: &Node, which: usize, state: NodeState) {
        let id = NodeId::new(which as u64).unwrap();
        let word = NodeWord {
            state,
            incarnation: 1,
        };
        node.sb.node(id).state.store(word.bits(), Ordering::Release);
    }

    fn map(&self) -> FusedMap {
        // SAFETY: 1. leaked memory of that size; 2. accessed through such maps only; 3. page
        // aligned; 4. `put_bundle` writes before anything looks.
        #[allow(unsafe_code)]
        unsafe {
            FusedMap::new(self.pools)
        }
    }

    /// Puts a bundle where the launcher would.
    pub fn put_bundle(&self, bytes: &[u8]) {
        assert!(bytes.len() as u64 <= BUNDLE_ROOM);
        let at = PoolId::Cxl.base().add(CXL_SIZE - BUNDLE_ROOM);
        assert!(self.map().write_bytes(at, bytes));
        self.bundle_len.set(bytes.len() as u64);
    }

    /// The first CPU of a node, with its rings attached.
    pub fn machine(&self, which: usize) -> Machine {
        self.machine_as(which, 1)
    }

    /// The first CPU of a node that has several.
    pub fn machine_as(&self, which: usize, cpus: usize) -> Machine {
        let id = NodeId::new(which as u64).unwrap();
        let mut isas = [Isa::X86_64; MAX_NODES];
        isas[..self.isas.len()].copy_from_slice(&self.isas);
        let params = BootParams {
            node: id,
            isas,
            node_count: self.isas.len(),
            cpus,
            local_size: self.local_size,
            cxl_size: CXL_SIZE,
            bundle_offset: CXL_SIZE - BUNDLE_ROOM,
            bundle_len: self.bundle_len.get(),
            mode: BootMode::App,
            on_death: self.on_death.get(),
            boot_timeout_ms: 1,
            coherent: true,
            clock: dyad_abi::boot::ClockKind::Hardware,
            audit: false,
            rounds_per_second: 30,
            block_size: dyad_abi::boot::DEFAULT_BLOCK,
            grant: dyad_abi::service::Grant::Nothing,
            kernels: dyad_abi::service::peer::Kernels::Fused,
            transport: dyad_abi::service::peer::Transport::Ring,
            ring_place: dyad_abi::service::peer::RingPlace::Receiver,
            delay: dyad_abi::service::peer::Delay::TCP,
            fault_parts: false,
            app: "test",
            args: "--some words",
            env: "",
            wall_ns: 0,
            random: 0,
            ktests: "",
            test_layout_xor: 0,
            test_seeded: "",
        };
        let node: &'static Node = {
            let map = Box::leak(Box::new(self.map()));
            let words = Box::leak(Box::new(Words::coherent(map)));
            Box::leak(Box::new(Node::new(params, words).unwrap()))
        };
        node.set_incarnation(1);
        let local = Box::leak(Box::new(CpuLocal::new(CpuId::new(0).unwrap())));
        let m = Machine(Box::leak(Box::new(Private {
            node,
            local,
            did: RefCell::default(),
            fp: Cell::default(),
            console: RefCell::default(),
        })));
        m.enter();
        dyad_machine::inbox::attach_outboxes(node);
        dyad_machine::inbox::attach_inboxes(node, local);
        m
    }
}

/// One CPU of one node.
#[derive(Clone, Copy)]
pub struct Machine(&'static Private);

impl Machine {
    /// The second CPU of its node.
    pub fn beside(self) -> Machine {
        let local = Box::leak(Box::new(CpuLocal::new(CpuId::new(1).unwrap())));
        dyad_machine::inbox::attach_inboxes(self.node(), local);
        Machine(Box::leak(Box::new(Private {
            node: self.node(),
            local,
            did: RefCell::default(),
            fp: Cell::default(),
            console: RefCell::default(),
        })))
    }

    /// From here on the calling thread is this CPU.
    pub fn enter(self) {
        CURRENT.set(Some(self.0));
        dyad_object::host::play(self.0.node);
    }

    /// Its node.
    pub fn node(self) -> &'static Node {
        self.0.node
    }

    /// The state of its CPU.
    pub fn local(self) -> &'static CpuLocal {
        self.0.local
    }

    /// What it did since the last call.
    pub fn did(self) -> Vec<Did> {
        self.0.did.take()
    }

    /// What user mode finds in floating-point registers; `None`: it traps.
    pub fn fp(self) -> Option<u64> {
        let (value, on) = self.0.fp.get();
        on.then_some(value)
    }

    /// User mode changes them; they are on.
    pub fn set_fp(self, value: u64) {
        assert!(self.0.fp.replace((value, true)).1, "they are off");
    }

    /// What it printed since the last call.
    pub fn printed(self) -> String {
        String::from_utf8_lossy(&self.0.console.take()).into_owned()
    }

    /// Runs kernel code that does not return.
    pub fn kernel(self, f: impl FnOnce()) -> Left {
        self.enter();
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(()) => panic!("the kernel returned"),
            Err(e) => match e.downcast::<Left>() {
                Ok(left) => *left,
                Err(other) => resume_unwind(other),
            },
        }
    }

    /// Makes a system call on behalf of the thread this CPU runs.
    pub fn call<P: Platform>(self, t: &'static Thread, op: u64, a: &[u64]) -> Left {
        let area = t.regs(P::ISA);
        area.0[PC].fetch_add(4, Ordering::Relaxed);
        put(area, PARTIAL, [1]);
        let a: [u64; 5] = core::array::from_fn(|i| a.get(i).copied().unwrap_or(0));
        self.kernel(|| trap::<P>(area, op, a))
    }
}

/// What arch code does with a system call.
fn trap<P: Platform>(area: &'static RegArea, word: u64, a: [u64; 5]) -> ! {
    use crate::syscall::entry::system_call;
    use crate::syscall::slowpath::ENTER;
    let [a0, a1, a2, a3, _] = a;
    let r = system_call::<P>(word, a);
    match (r.status, word) {
        (ENTER, 0) => P::set_results(area, 0, [a0, a1, a2, a3]),
        (ENTER, _) => {
            let token = P::local().fast_token.get();
            P::set_arguments(area, [a0, a1, a2, a3, r.value, token]);
        }
        (status, _) => {
            P::complete_area(area, word, a);
            P::set_result(area, status, r.value);
        }
    }
    P::resume_user(area)
}

/// Status and value of a thread's last system call.
pub fn result<P: Platform>(t: &Thread) -> (u64, u64) {
    let w = |i: usize| t.regs(P::ISA).0[i].load(Ordering::Relaxed);
    (w(6), w(7))
}

fn put(area: &RegArea, from: usize, values: impl IntoIterator<Item = u64>) {
    for (w, v) in area.0[from..].iter().zip(values) {
        w.store(v, Ordering::Relaxed);
    }
}

fn did(d: Did) {
    current().did.borrow_mut().push(d);
}

fn load_fp(value: u64) {
    let (_, on) = current().fp.replace((value, true));
    assert!(on, "this would trap in the kernel");
}

/// A word of a pool.
pub fn word(node: &Node, pa: PhysAddr) -> &'static AtomicU64 {
    node.map.word(pa)
}
