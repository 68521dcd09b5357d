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
mod between_tests;
#[cfg(test)]
mod evacuate_tests;
#[cfg(test)]
mod fp_tests;
#[cfg(test)]
mod frame_tests;
#[cfg(test)]
pub mod ktests;
#[cfg(test)]
mod race_pairs;
#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod reclaim_tests;
#[cfg(test)]
mod resolve_tests;
#[cfg(test)]
mod revoke_tests;
#[cfg(test)]
mod root_tests;
#[cfg(test)]
mod space_tests;
#[cfg(test)]
mod stripe_tests;
pub mod system;
#[cfg(test)]
mod thread_tests;
#[cfg(test)]
mod view_tests;

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

use crate::Platform;
use crate::cpu::CpuLocal;
use crate::cx::Cx;
use crate::memory::Words;
use crate::node::Node;
use crate::object::thread::Thread;
use crate::platform::{FpArea, RegArea};

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
        // SAFETY: 1. of that size, and nobody's: the world that had it is gone.
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
            app: "test",
            args: "--some words",
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
        crate::inbox::attach_outboxes(node);
        crate::inbox::attach_inboxes(node, local);
        m
    }
}

/// One CPU of one node.
#[derive(Clone, Copy)]
pub struct Machine(&'static Private);

impl Machine {
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
    use crate::entry::{ENTER, system_call};
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

impl<const A64: bool> Platform for Mock<A64> {
    const ISA: Isa = if A64 { Isa::Aarch64 } else { Isa::X86_64 };

    fn cpu() -> CpuId {
        current().local.id()
    }
    fn local() -> &'static CpuLocal {
        current().local
    }
    fn image_id() -> u64 {
        77
    }
    fn current_area() -> &'static RegArea {
        let t = current().local.thread.get().expect("no thread runs here");
        t.regs(Self::ISA)
    }
    fn complete_area(area: &RegArea, word: u64, args: [u64; 5]) {
        put(area, 0, [word]);
        put(area, 1, args);
        put(area, PARTIAL, [0]);
    }
    fn init_regs(area: &RegArea, entry: u64, stack_top: u64, arg: u64, tp: u64) {
        for w in &area.0 {
            w.store(0, Ordering::Relaxed);
        }
        for (i, v) in [
            (PC, entry),
            (SP, stack_top),
            (ARGUMENTS, arg),
            (THREAD_POINTER, tp),
        ] {
            area.0[i].store(v, Ordering::Relaxed);
        }
    }
    fn syscall_args(area: &RegArea) -> [u64; 6] {
        core::array::from_fn(|i| area.0[i].load(Ordering::Relaxed))
    }
    fn set_result(area: &RegArea, status: u64, value: u64) {
        area.0[6].store(status, Ordering::Relaxed);
        area.0[7].store(value, Ordering::Relaxed);
    }
    fn user_pc_fp(area: &RegArea) -> (u64, u64) {
        let w = |i: usize| area.0[i].load(Ordering::Relaxed);
        (w(PC), w(FRAME_POINTER))
    }
    fn user_pc_sp(area: &RegArea) -> (u64, u64) {
        let w = |i: usize| area.0[i].load(Ordering::Relaxed);
        (w(PC), w(SP))
    }
    fn set_user_pc_sp(area: &RegArea, pc: u64, sp: u64) {
        let user = |va| if va < USER_END { va } else { 0 };
        put(area, PC, [user(pc)]);
        put(area, SP, [user(sp)]);
    }
    fn call_registers(area: &RegArea) -> ([u64; 6], u64) {
        let w = |i: usize| area.0[i].load(Ordering::Relaxed);
        (core::array::from_fn(|i| w(ARGUMENTS + i)), w(RESULTS))
    }
    fn park(area: &RegArea, parked: &RegArea) {
        for i in [SP, FRAME_POINTER] {
            put(parked, i, [area.0[i].load(Ordering::Relaxed)]);
        }
    }
    fn set_at_gate(area: &RegArea, parked: &RegArea, pc: u64, args: [u64; 6], function: u64) {
        Self::park(parked, area);
        put(area, PC, [pc]);
        put(area, ARGUMENTS, args);
        put(area, FUNCTION, [function]);
        put(area, PARTIAL, [0]);
    }
    const KEEPS_FP: bool = A64;
    fn call_fp(area: &FpArea) -> ([u64; 8], [u64; 8]) {
        let w = |i: usize| area.0[i].load(Ordering::Relaxed);
        (core::array::from_fn(w), core::array::from_fn(|i| w(8 + i)))
    }
    fn take_call_fp(args: &[AtomicU64; 8], _kept: &[AtomicU64; 8]) {
        let (value, on) = current().fp.get();
        assert!(on, "this would trap in the kernel");
        args[0].store(value, Ordering::Relaxed);
    }
    fn give_call_fp(args: Option<&[AtomicU64; 8]>, _kept: Option<&[AtomicU64; 8]>) {
        load_fp(args.map_or(0, |a| a[0].load(Ordering::Relaxed)));
    }
    fn set_call_fp(area: &FpArea, args: [u64; 8], kept: [u64; 8]) {
        for (to, v) in area.0.iter().zip(args.into_iter().chain(kept)) {
            to.store(v, Ordering::Relaxed);
        }
    }
    fn set_frame_pointer(area: &RegArea, fp: u64) {
        put(area, FRAME_POINTER, [fp]);
    }
    fn set_entry(area: &RegArea, pc: u64) {
        Self::set_user_pc_sp(area, pc, 0);
    }
    fn set_return(area: &RegArea, pc: u64, sp: u64) {
        Self::set_user_pc_sp(area, pc, sp);
    }
    fn set_arguments(area: &RegArea, args: [u64; 6]) {
        put(area, ARGUMENTS, args);
        put(area, PARTIAL, [0]);
    }
    fn set_results(area: &RegArea, status: u64, results: [u64; 4]) {
        Self::set_result(area, status, results[0]);
        put(area, RESULTS, results);
        put(area, PARTIAL, [0]);
    }
    fn read_register(area: &RegArea, n: u64) -> Option<u64> {
        let word = area.0.get(usize::try_from(n).ok()?)?;
        Some(word.load(Ordering::Relaxed))
    }
    fn write_register(area: &RegArea, n: u64, value: u64) -> bool {
        let word = usize::try_from(n).ok().and_then(|n| area.0.get(n));
        if let Some(word) = word {
            word.store(value, Ordering::Relaxed);
        }
        word.is_some()
    }
    fn dump_regs(area: &RegArea, line: &mut dyn FnMut(&str, u64)) {
        line("pc", area.0[PC].load(Ordering::Relaxed));
    }
    fn unload_fp(area: &FpArea) -> [u64; FLOAT_WORDS] {
        core::array::from_fn(|i| area.0[i].load(Ordering::Relaxed))
    }
    fn load_fp(area: &FpArea, words: &[u64; FLOAT_WORDS]) {
        for (to, &from) in area.0.iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
    }
    fn reset_fp() {
        did(Did::RestoredFp);
        load_fp(0);
    }
    fn fp_on() {
        let m = current();
        m.fp.set((m.fp.get().0, true));
    }
    fn fp_off() {
        let m = current();
        m.fp.set((m.fp.get().0, false));
    }
    fn save_fp(area: &FpArea) {
        did(Did::SavedFp);
        let (value, on) = current().fp.get();
        assert!(on, "this would trap in the kernel");
        area.0[0].store(value, Ordering::Relaxed);
    }
    fn restore_fp(area: &FpArea) {
        did(Did::RestoredFp);
        load_fp(area.0[0].load(Ordering::Relaxed));
    }
    fn resume_user(area: &'static RegArea) -> ! {
        assert_eq!(area.0[PARTIAL].load(Ordering::Relaxed), 0, "a partial area");
        resume_unwind(Box::new(Left::User(area.0[PC].load(Ordering::Relaxed))))
    }
    fn go_on(area: &'static RegArea) -> ! {
        Self::resume_user(area)
    }
    fn enter_user(area: &'static RegArea, pc: u64, args: [u64; 6]) -> ! {
        Self::set_arguments(area, args);
        Self::set_user_pc_sp(area, pc, 0);
        Self::resume_user(area)
    }
    fn switch_root(root: PhysAddr) {
        did(Did::SwitchedRoot(root));
    }
    fn idle_root() -> PhysAddr {
        IDLE_ROOT
    }
    fn flush_tlb() {
        did(Did::FlushedTlb);
    }
    fn flush_caches(_: u64) -> bool {
        true
    }
    fn sync_code(_: &FusedMap, _: PhysAddr, _: u64) {}
    fn zero_frame(map: &FusedMap, pa: PhysAddr) -> bool {
        map.zero_frame(pa)
    }
    fn root_entries() -> [u64; ROOT_ENTRIES] {
        [0; ROOT_ENTRIES]
    }
    fn clock_ns() -> u64 {
        CLOCK.set(CLOCK.get() + 1_000);
        CLOCK.get()
    }
    fn set_timer(_: Option<u64>) {}
    fn wait() {
        resume_unwind(Box::new(Left::Asleep))
    }
    fn poll_interrupts() {}
    fn relax() {}
    fn mark<const WORD: u32>() {}
    fn ring(_: NodeId, cpu: CpuId, peer: u64) {
        did(Did::Rang { peer, cpu });
    }
    fn doorbell_id() -> u64 {
        0
    }
    fn call_code(_: PhysAddr) -> Option<u64> {
        None
    }
    fn code_returning(_: u8) -> [u64; 2] {
        [0; 2]
    }
    fn user_probe() -> crate::platform::UserProbe {
        // Where arguments and results are in an area; there is no code.
        crate::platform::UserProbe {
            code: &[],
            entered: 0,
            fp: 0,
            fp_entered: 0,
            fp_control: [0; 3],
            flags: [0; 2],
            forbidden_flags: 0,
            no_flags: 0,
            call: [0, 1, 2, 3, 4, 5],
            arguments: [12, 13, 14, 15, 16, 17],
            results: [6, 18, 19, 20, 21],
            preserved: &[],
            sp: SP,
            frame: FRAME_POINTER,
            registers: 22,
            spent: &[],
        }
    }
    fn run_user(_: &'static RegArea) {}
    fn leave_user() -> ! {
        panic!("there is no user mode on the host")
    }
    fn kernel_flags_are_right() -> bool {
        true
    }
    fn kernel_leaves(_: &mut dyn FnMut(u64, dyad_pgtbl::Level, dyad_pgtbl::Leaf)) {}
    /// Tests say themselves when a node looks.
    fn look_after_others(_: &Cx) {}
    fn serial_write(bytes: &[u8]) {
        current().console.borrow_mut().extend_from_slice(bytes);
    }
    fn start_cpu(_: CpuId) -> Result<(), &'static str> {
        Err("there is one CPU only")
    }
    fn backtrace(_: &mut dyn FnMut(u64)) {}
    fn exit(code: u32) -> ! {
        resume_unwind(Box::new(Left::Exited(code)))
    }
}

/// A word of a pool.
pub fn word(node: &Node, pa: PhysAddr) -> &'static AtomicU64 {
    node.map.word(pa)
}
