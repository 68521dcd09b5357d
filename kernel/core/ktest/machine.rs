//! The machine, for tests, which are not generic over it.

use core::marker::PhantomData;

use dyad_abi::{CpuId, Isa, NodeId, Result};
use dyad_pgtbl::{Leaf, Level};
use dyad_retype::{Order, Use};
use dyad_ring::Message;
use dyad_shm::PhysAddr;
use dyad_shm::frame::{FrameRef, WeakRef};
use dyad_shm::superblock::{ROOT_ENTRIES, activity};

use super::{BARRIER_NS, UserProbe, marked, user_calls};
use crate::run_loop::{barrier, messages};
use crate::sched::dispatch::OpOutcome;
use crate::sched::{dispatch, fp, quiet};
use crate::syscall::invoke::{Entering, Handler, Returned};
use crate::syscall::slowpath::FastReturn;
use crate::syscall::{entry, invoke, ops};
use dyad_machine::capcache::Callee;
use dyad_machine::cpu::CpuLocal;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::platform::{FaultKind, RegArea, UserFault};
use dyad_machine::{Platform, clock, inbox};
use dyad_object::component::Entry;
use dyad_object::thread::{Thread, info};
use dyad_space::{copy, resolve, shootdown};

/// What tests use of the machine and of the parts of the kernel that are generic over it.
pub trait Machine {
    /// Its ISA.
    fn isa(&self) -> Isa;
    /// The local clock.
    fn clock_ns(&self) -> u64;
    /// Fused time.
    fn fused_ns(&self) -> u64;
    /// See [`Platform::set_timer`].
    fn set_timer(&self, deadline: Option<u64>);
    /// See [`Platform::wait`].
    fn wait(&self);
    /// See [`Platform::poll_interrupts`].
    fn poll(&self);
    /// See [`Platform::relax`].
    fn relax(&self);
    /// Interrupts so far: doorbells, timer, others.
    fn interrupts(&self) -> (u64, u64, u64);
    /// Does something in the [window](dyad_abi::patterns::window) of this number.
    fn counted(&self, number: usize, act: &mut dyn FnMut());
    /// Has the simulator forget what it has counted in that window.
    fn forget(&self, number: usize);
    /// Sends a message.
    fn send(&self, to: NodeId, cpu: CpuId, m: &Message) -> Result<()>;
    /// Tells a CPU of a thread; see [`inbox::announce`].
    fn announce(&self, to: NodeId, cpu: CpuId, thread_id: u64) -> Result<()>;
    /// Handles what has come in.
    fn drain(&self);
    /// Announces sleep; see [`inbox::prepare`].
    fn prepare_sleep(&self) -> bool;
    /// Ends what `prepare_sleep` announced.
    fn attentive(&self);
    /// Rewrites a frame on this node; see [`shootdown::publish_here`].
    fn publish_here(&self, at: PhysAddr) -> Result<()>;
    /// Makes a frame executable for an ISA; see [`shootdown::make_executable`].
    fn make_executable(&self, frame: FrameRef, isa: Isa) -> Result<()>;
    /// Maps a frame executable in the kernel and calls it.
    fn call_code(&self, pa: PhysAddr) -> Option<u64>;
    /// Instructions of this ISA that return `n`.
    fn code_returning(&self, n: u8) -> [u64; 2];
    /// Calls `f` for every leaf of the kernel half.
    fn kernel_leaves(&self, f: &mut dyn FnMut(u64, Level, Leaf));
    /// See [`copy::copy_in`].
    fn copy_in(&self, space: WeakRef, va: u64, out: &mut [u8]) -> Result<()>;
    /// See [`copy::copy_out`].
    fn copy_out(&self, space: WeakRef, va: u64, bytes: &[u8]) -> Result<()>;
    /// Meets all other nodes.
    fn barrier(&self) -> bool;
    /// Logs a line, which tests on the host can wait for.
    fn say(&self, what: &str);
    /// See [`Platform::user_probe`].
    fn user_probe(&self) -> UserProbe;
    /// See [`Platform::fault_kind`].
    fn fault_kind(&self, raw: u64) -> FaultKind;
    /// Runs the probe once: program counter, stack pointer, thread pointer.
    fn run_user(&self, pc: u64, sp: u64, tp: u64);
    /// Runs user code on an area until it makes the call [`DONE`](user_calls::DONE).
    fn run_area(&self, area: &'static RegArea);
    /// See [`Platform::init_regs`].
    fn init_regs(&self, area: &RegArea, pc: u64, sp: u64, tp: u64);
    /// See [`Platform::switch_root`]; `None`: the idle one.
    fn switch_root(&self, root: Option<PhysAddr>);
    /// See [`Platform::flush_tlb`].
    fn flush_tlb(&self);
    /// See [`Platform::sync_code`].
    fn sync_code(&self, pa: PhysAddr, len: u64);
    /// See [`Platform::zero_frame`].
    fn zero_frame(&self, pa: PhysAddr) -> bool;
    /// See [`Platform::root_entries`].
    fn root_entries(&self) -> [u64; ROOT_ENTRIES];
    /// See [`Platform::read_register`].
    fn read_register(&self, area: &RegArea, n: u64) -> Option<u64>;
    /// See [`Platform::write_register`].
    fn write_register(&self, area: &RegArea, n: u64, value: u64) -> bool;
    /// See [`Platform::user_pc_sp`].
    fn user_pc_sp(&self, area: &RegArea) -> (u64, u64);
    /// See [`Platform::set_user_pc_sp`].
    fn set_user_pc_sp(&self, area: &RegArea, pc: u64, sp: u64);

    /// State of this CPU.
    fn local(&self) -> &'static CpuLocal;
    /// Takes an untyped block and puts it to use.
    fn retype(
        &self,
        cx: &KernelCtx,
        frame: FrameRef,
        order: Order,
        used: Option<Use>,
    ) -> Result<WeakRef>;
    /// Carries a system call out that may switch threads.
    fn call(&self, cx: &KernelCtx, word: u64, a: [u64; 5]) -> Result<OpOutcome>;
    /// A system call as arch code hands it over: one that comes back at once.
    fn syscall(&self, word: u64, a: [u64; 5]) -> FastReturn;
    /// An invocation that may cross.
    fn enter(&self, cx: &KernelCtx, to: Entry, words: [u64; 4]) -> Result<Entering>;
    /// The end of one.
    fn leave(&self, cx: &KernelCtx, words: [u64; 4]) -> Result<Returned>;
    /// A fault of the running thread.
    fn fault(&self, cx: &KernelCtx, t: &'static Thread, f: UserFault) -> bool;
    /// A page fault in the space that this CPU is in: see [`resolve::resolve_here`].
    fn fault_at(&self, va: u64, kind: FaultKind) -> Result<()>;
    /// See [`quiet::flush_step`].
    fn flush_step(&self, cx: &KernelCtx, steps: u64) -> Result<u64>;
    /// See [`quiet::acknowledge`].
    fn acknowledge(&self, cx: &KernelCtx);
    /// See [`quiet::sleep`].
    fn sleep(&self, cx: &KernelCtx) -> bool;
    /// See [`dispatch::slice_over`].
    fn slice_over(&self, cx: &KernelCtx);
    /// See [`dispatch::serve_root`].
    fn serve_root(&self, cx: &KernelCtx);
    /// See [`dispatch::root_timeout`].
    fn root_timeout(&self, cx: &KernelCtx);
    /// See [`dispatch::leave_space`].
    fn leave_space(&self, cx: &KernelCtx);
    /// See [`capcache::enter`](dyad_machine::capcache::enter).
    fn enter_component(&self, cx: &KernelCtx, component: u64) -> Result<()>;
    /// See [`ops::endpoint::post`].
    fn post(&self, cx: &KernelCtx, object: WeakRef, line: u64, bits: u64) -> Result<()>;
}

pub(super) struct Of<P>(pub PhantomData<P>);

impl<P: Platform> Machine for Of<P> {
    fn isa(&self) -> Isa {
        P::ISA
    }
    fn clock_ns(&self) -> u64 {
        P::clock_ns()
    }
    fn fused_ns(&self) -> u64 {
        clock::now::<P>().0
    }
    fn set_timer(&self, deadline: Option<u64>) {
        P::set_timer(deadline);
    }
    fn wait(&self) {
        P::wait();
    }
    fn poll(&self) {
        P::poll_interrupts();
    }
    fn relax(&self) {
        P::relax();
    }
    fn interrupts(&self) -> (u64, u64, u64) {
        P::local().interrupt_counts()
    }
    fn counted(&self, number: usize, act: &mut dyn FnMut()) {
        marked::counted::<P>(number, act);
    }
    fn forget(&self, number: usize) {
        marked::forget::<P>(number);
    }
    fn send(&self, to: NodeId, cpu: CpuId, m: &Message) -> Result<()> {
        inbox::send::<P>(to, cpu, m)
    }
    fn announce(&self, to: NodeId, cpu: CpuId, thread_id: u64) -> Result<()> {
        inbox::announce::<P>(to, cpu, thread_id)
    }
    fn drain(&self) {
        messages::drain::<P>();
    }
    fn prepare_sleep(&self) -> bool {
        inbox::prepare::<P>(activity::ASLEEP)
    }
    fn attentive(&self) {
        inbox::attentive::<P>();
    }
    fn publish_here(&self, at: PhysAddr) -> Result<()> {
        shootdown::publish_here::<P>(dyad_object::node::node(), at)
    }
    fn make_executable(&self, frame: FrameRef, isa: Isa) -> Result<()> {
        shootdown::make_executable::<P>(&KernelCtx::here::<P>(), frame, isa)
    }
    fn call_code(&self, pa: PhysAddr) -> Option<u64> {
        P::call_code(pa)
    }
    fn code_returning(&self, n: u8) -> [u64; 2] {
        P::code_returning(n)
    }
    fn kernel_leaves(&self, f: &mut dyn FnMut(u64, Level, Leaf)) {
        P::kernel_leaves(f);
    }
    fn copy_in(&self, space: WeakRef, va: u64, out: &mut [u8]) -> Result<()> {
        copy::copy_in::<P>(&KernelCtx::here::<P>(), space, va, out)
    }
    fn copy_out(&self, space: WeakRef, va: u64, bytes: &[u8]) -> Result<()> {
        copy::copy_out::<P>(&KernelCtx::here::<P>(), space, va, bytes)
    }
    fn barrier(&self) -> bool {
        barrier::barrier::<P>(dyad_object::node::node(), BARRIER_NS)
    }
    fn user_probe(&self) -> UserProbe {
        P::user_probe()
    }
    fn fault_kind(&self, raw: u64) -> FaultKind {
        P::fault_kind(raw)
    }
    fn say(&self, what: &str) {
        dyad_machine::info!(P, "{what}");
    }
    fn run_user(&self, pc: u64, sp: u64, tp: u64) {
        user_calls::run::<P>(pc, sp, tp);
    }
    fn run_area(&self, area: &'static RegArea) {
        P::set_timer(None);
        P::run_user(area);
    }
    fn init_regs(&self, area: &RegArea, pc: u64, sp: u64, tp: u64) {
        P::init_regs(area, pc, sp, 0, tp);
        P::set_user_pc_sp(area, pc, sp);
    }
    fn switch_root(&self, root: Option<PhysAddr>) {
        P::switch_root(root.unwrap_or_else(P::idle_root));
    }
    fn flush_tlb(&self) {
        P::flush_tlb();
    }
    fn sync_code(&self, pa: PhysAddr, len: u64) {
        P::sync_code(dyad_object::node::node().map, pa, len);
    }
    fn zero_frame(&self, pa: PhysAddr) -> bool {
        P::zero_frame(dyad_object::node::node().map, pa)
    }
    fn root_entries(&self) -> [u64; ROOT_ENTRIES] {
        P::root_entries()
    }
    fn read_register(&self, area: &RegArea, n: u64) -> Option<u64> {
        P::read_register(area, n)
    }
    fn write_register(&self, area: &RegArea, n: u64, value: u64) -> bool {
        P::write_register(area, n, value)
    }
    fn user_pc_sp(&self, area: &RegArea) -> (u64, u64) {
        P::user_pc_sp(area)
    }
    fn set_user_pc_sp(&self, area: &RegArea, pc: u64, sp: u64) {
        P::set_user_pc_sp(area, pc, sp);
    }

    fn local(&self) -> &'static CpuLocal {
        P::local()
    }
    fn retype(
        &self,
        cx: &KernelCtx,
        frame: FrameRef,
        order: Order,
        used: Option<Use>,
    ) -> Result<WeakRef> {
        let claim = ops::memory::claim::<P>(cx, frame, order)?;
        let Some(used) = used else {
            cx.frames().from_untyped_abandon(claim, &cx.intents())?;
            return Ok(cx.frames().current(frame)?);
        };
        Ok(cx
            .frames()
            .from_untyped_finish(claim, used, &cx.intents())?)
    }
    fn call(&self, cx: &KernelCtx, word: u64, a: [u64; 5]) -> Result<OpOutcome> {
        ops::call::<P>(cx, word, a)
    }
    fn syscall(&self, word: u64, a: [u64; 5]) -> FastReturn {
        entry::system_call::<P>(word, a)
    }
    fn enter(&self, cx: &KernelCtx, to: Entry, words: [u64; 4]) -> Result<Entering> {
        let callee = Callee::find(cx, to.component)?;
        invoke::enter::<P>(cx, to, &callee, words, |_| {})
    }
    fn leave(&self, cx: &KernelCtx, words: [u64; 4]) -> Result<Returned> {
        invoke::leave::<P>(cx, words)
    }
    fn fault(&self, cx: &KernelCtx, t: &'static Thread, f: UserFault) -> bool {
        let what = match cx.local.fastpath_thread.get() {
            Some(_) => info::FAULT,
            None => fp::keep::<P>(cx.local, t),
        };
        match invoke::fault::<P>(cx, t, f, None, what) {
            Handler::Entered { pc, args } => {
                P::set_arguments(t.regs(P::ISA), args);
                P::set_user_pc_sp(t.regs(P::ISA), pc, 0);
                true
            }
            Handler::Retry => true,
            Handler::None => false,
        }
    }
    fn fault_at(&self, va: u64, kind: FaultKind) -> Result<()> {
        resolve::resolve_here::<P>(P::local(), va, kind).map(drop)
    }
    fn flush_step(&self, cx: &KernelCtx, steps: u64) -> Result<u64> {
        quiet::flush_step::<P>(cx, steps)
    }
    fn acknowledge(&self, cx: &KernelCtx) {
        quiet::acknowledge::<P>(cx);
    }
    fn sleep(&self, cx: &KernelCtx) -> bool {
        quiet::sleep::<P>(cx, || false)
    }
    fn slice_over(&self, cx: &KernelCtx) {
        dispatch::slice_over::<P>(cx);
    }
    fn serve_root(&self, cx: &KernelCtx) {
        dispatch::serve_root::<P>(cx);
    }
    fn root_timeout(&self, cx: &KernelCtx) {
        dispatch::root_timeout::<P>(cx);
    }
    fn leave_space(&self, cx: &KernelCtx) {
        dispatch::leave_space::<P>(cx);
    }
    fn enter_component(&self, cx: &KernelCtx, component: u64) -> Result<()> {
        dyad_machine::capcache::enter::<P>(cx, component)
    }
    fn post(&self, cx: &KernelCtx, object: WeakRef, line: u64, bits: u64) -> Result<()> {
        dispatch::post::<P>(cx, object, line, bits)
    }
}
