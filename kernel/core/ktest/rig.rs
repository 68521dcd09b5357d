//! What tests of operations stand on: frames of this node's pool, and a component with a
//! capability table and a thread that this CPU believes to run.
//!
//! Tests run in the kernel, before any program, and no other code uses the pools. A quarter of this
//! node's pool each is for single frames, for blocks, and for address spaces to take from:
//!
//! ```text
//! system | ... | supply | blocks | frames |
//! ```
//!
//! [`with`] gives everything back after the test, whatever it was made to, and fails the test if
//! something cannot be given back: a reference that was forgotten shows. Frames are used again
//! after the rounds that all nodes make between two tests.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::{CapIndex, CapType, ObjectKind, Rights, call_word};
use dyad_abi::service::MAX_THREAD_IDS;
use dyad_abi::{Error, NodeId, Result};
use dyad_captbl::{Contents, FrameRange, GuardRef, SlotPlace};
use dyad_retype::{FrameType, KernelKind, Order, Use};
use dyad_shm::PoolId;
use dyad_shm::frame::{FrameRef, WeakRef};

use super::{Outcome, Stop, TestCtx, ensure};
use crate::sched::dispatch::OpOutcome;
use crate::syscall::ops;
use crate::syscall::slowpath::ENTER;
use dyad_object::component::Component;
use dyad_object::endpoint::Endpoints;
use dyad_object::tables::Layout;
use dyad_object::thread::{Owner, State, Thread};
use dyad_object::{find, ids, kinds};

/// Frames a test may take.
const MAX_TAKEN: usize = 160;
/// Rounds over everything taken when it is given back: references go in chains this long at most.
const PASSES: usize = 6;

/// Quarters of this node's pool.
pub fn quarter(cx: &TestCtx<'_>, node: NodeId, which: u64) -> (FrameRef, u64) {
    let pool = PoolId::Local(node);
    let usable = Layout::of(&cx.node.params, pool).usable;
    // The last few are for the tests of system calls.
    let n = (usable.end - usable.start - 16) / 4;
    let first = usable.start + which * n;
    let at = pool.base().add(first * 4096);
    (FrameRef::of(at).unwrap_or_else(|| unreachable!()), n)
}

/// The component of a test, and what it has taken.
pub struct Rig<'a> {
    pub cx: &'a TestCtx<'a>,
    /// The kernel's view.
    pub k: dyad_machine::kernel_ctx::KernelCtx,
    /// Root of the capability table.
    pub root: WeakRef,
    /// Its first leaf, slots 0 to 63.
    pub leaf: WeakRef,
    pub space: WeakRef,
    pub component: WeakRef,
    /// The thread that seems to run.
    pub thread: WeakRef,
    taken: RefCell<([Option<FrameRef>; MAX_TAKEN], usize)>,
    slots: Cell<u32>,
    /// Where the next block and the next frame are looked for.
    next: [AtomicU64; 2],
}

/// Runs a test with a component of its own and gives everything back.
pub fn with(cx: &TestCtx<'_>, test: impl FnOnce(&Rig<'_>) -> Outcome) -> Outcome {
    let rig = Rig::new(cx)?;
    let outcome = test(&rig);
    rig.stand_down();
    let kept = rig.give_back();
    let remark = outcome?;
    if let Some((frame, ty, refs)) = kept {
        return Err(Stop::Failed(super::Text::new(format_args!(
            "{frame:?} cannot be given back: {ty:?}, {refs} references"
        ))));
    }
    Ok(remark)
}

impl<'a> Rig<'a> {
    /// Fails unless this CPU remembers a capability; in a kernel without fast paths, if it does.
    pub fn remembers(&self, cap: CapIndex) -> core::result::Result<(), Stop> {
        let local = self.k.local;
        let is = dyad_machine::capcache::capability(local, cap).is_some();
        ensure!(
            is == local.cache.fast(),
            "it is {}remembered",
            if is { "" } else { "not " }
        );
        Ok(())
    }

    /// A rig that is not given back: for systems that are thrown away after the test.
    ///
    /// # Errors
    ///
    /// If the node's pool has too little.
    pub fn new(cx: &'a TestCtx<'a>) -> core::result::Result<Rig<'a>, Stop> {
        let nowhere = quarter(cx, cx.node.id(), 3).0;
        let mut rig = Rig {
            cx,
            k: cx.kernel(),
            root: dyad_object::first(nowhere),
            leaf: dyad_object::first(nowhere),
            space: dyad_object::first(nowhere),
            component: dyad_object::first(nowhere),
            thread: dyad_object::first(nowhere),
            taken: RefCell::new(([None; MAX_TAKEN], 0)),
            slots: Cell::new(1),
            next: [const { AtomicU64::new(0) }; 2],
        };
        rig.root = rig.object(ObjectKind::CaptblRoot)?;
        rig.leaf = rig.object(ObjectKind::CaptblLeaf)?;
        rig.space = rig.object(ObjectKind::Space)?;
        rig.component = rig.object(ObjectKind::Component)?;
        rig.hang(0, rig.leaf)?;
        let component: &Component = find(cx.node, rig.component, Component::KIND)?;
        ops::component::set_parts(&rig.k, component, rig.root, rig.space)?;
        rig.thread = rig.thread_of(rig.component, State::Running)?;
        // It dispatches as the scheduler of a CPU does.
        let t = rig.as_thread(rig.thread)?;
        t.priority.store(u64::MAX, Ordering::Relaxed);
        rig.run(rig.thread)?;
        Ok(rig)
    }

    /// A leaf into an entry of the rig's table.
    pub fn hang(&self, index: u32, leaf: WeakRef) -> Result<()> {
        let k = &self.k;
        Ok(k.captbls().cons(self.root, index, leaf, k, k)?)
    }

    /// A thread object of a component, owned by this node in this state.
    pub fn thread_of(&self, component: WeakRef, state: State) -> Result<WeakRef> {
        let thread = self.object(ObjectKind::Thread)?;
        let t = self.as_thread(thread)?;
        let owner = Owner {
            state,
            node: self.cx.node.id(),
            incarnation: self.cx.node.incarnation(),
            seq: 0,
        };
        t.component.store(component.bits(), Ordering::Relaxed);
        t.entry.store(0x4100_0000, Ordering::Relaxed);
        t.slice_end.store(u64::MAX, Ordering::Relaxed);
        t.cpu.store(self.k.cpu().index() as u64, Ordering::Relaxed);
        self.k.words().replace(&t.owner, owner.bits());
        Ok(thread)
    }

    /// Gives a thread an id, as `Configure` does.
    pub fn identify(&self, thread: WeakRef, id: u64) -> Result<()> {
        ids::claim(self.cx.node, id, thread)?;
        self.as_thread(thread)?.id.store(id, Ordering::Relaxed);
        Ok(())
    }

    /// The structure of a thread.
    pub fn as_thread(&self, thread: WeakRef) -> Result<&'static Thread> {
        find(self.cx.node, thread, Thread::KIND)
    }

    /// State of a thread.
    pub fn state(&self, thread: WeakRef) -> Option<State> {
        let t = self.as_thread(thread).ok()?;
        t.owner(self.k.words()).map(|o| o.state)
    }

    /// Makes this CPU believe that it runs a thread in the rig's component.
    pub fn run(&self, thread: WeakRef) -> Result<()> {
        let local = self.k.local;
        let thread = self.as_thread(thread)?;
        local.thread.set(Some(thread));
        local.fastpath_thread.set(Some(thread));
        local.component.set(self.component.bits());
        local.captbl.set(self.root.frame.address());
        local.space.set(self.space.bits());
        local.set_slice_end(u64::MAX);
        Ok(())
    }

    /// Whether this CPU runs a thread.
    pub fn runs(&self, thread: WeakRef) -> bool {
        self.as_thread(thread).is_ok_and(|t| {
            let now = self.k.local.thread.get();
            now.is_some_and(|now| core::ptr::eq(now, t))
        })
    }

    fn note(&self, frame: FrameRef) -> Result<()> {
        let mut taken = self.taken.borrow_mut();
        let n = taken.1;
        *taken.0.get_mut(n).ok_or(Error::NoMemory)? = Some(frame);
        taken.1 += 1;
        Ok(())
    }

    /// An unused block, retyped; untyped if `used` is `None`.
    pub fn take(&self, order: Order, used: Option<Use>) -> Result<WeakRef> {
        // On machines, frames that the test before has given back wait for a round.
        static LAST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
        let next = if cfg!(any(test, feature = "host")) {
            &self.next
        } else {
            &LAST
        };
        let single = order == Order::FRAME;
        let (first, frames) = quarter(self.cx, self.cx.node.id(), 2 + single as u64);
        let size = order.frames();
        for _ in 0..frames {
            let n = next[single as usize].fetch_add(1, Ordering::Relaxed) % (frames / size);
            let at = first.bits() as u64 + n * size;
            let at = u32::try_from(at.next_multiple_of(size)).map_err(|_| Error::Corrupt)?;
            let frame = FrameRef::from_bits(at).ok_or(Error::Corrupt)?;
            if at as u64 + size > first.bits() as u64 + frames {
                continue;
            }
            if let Ok(object) = self.cx.machine.retype(&self.k, frame, order, used) {
                self.note(frame)?;
                return Ok(object);
            }
        }
        Err(Error::NoMemory)
    }

    /// A frame made a kernel object.
    pub fn object(&self, kind: ObjectKind) -> Result<WeakRef> {
        self.take(Order::FRAME, Some(Use::Kernel(kinds::of(kind).kernel)))
    }

    /// A frame of user memory.
    pub fn user(&self) -> Result<WeakRef> {
        self.take(Order::FRAME, Some(Use::User))
    }

    /// Puts a capability into a free slot of the rig's table.
    pub fn put(
        &self,
        ty: CapType,
        rights: Rights,
        object: Option<WeakRef>,
        payload: [u64; 3],
    ) -> Result<CapIndex> {
        self.put_guarded(ty, rights, object, payload, None)
    }

    /// The same with a guard.
    pub fn put_guarded(
        &self,
        ty: CapType,
        rights: Rights,
        object: Option<WeakRef>,
        payload: [u64; 3],
        guard: Option<GuardRef>,
    ) -> Result<CapIndex> {
        let at = self.free_slot();
        let place = SlotPlace::new(self.leaf, at.get()).ok_or(Error::Full)?;
        let contents = Contents {
            ty,
            rights,
            object,
            guard,
            payload,
        };
        ops::captbl::activate(&self.k, place, &contents)?;
        Ok(at)
    }

    /// A capability for all thread ids.
    pub fn thread_ids(&self) -> Result<CapIndex> {
        let all = [0, MAX_THREAD_IDS, 0];
        self.put(CapType::ThreadIds, Rights::ALL, None, all)
    }

    /// A thread id that no program has, and no test on another node: `n` is below 64.
    pub fn id(&self, n: u64) -> u64 {
        MAX_THREAD_IDS - 64 * (self.cx.node.id().index() as u64 + 1) + n
    }

    /// A slot that has never been used.
    pub fn free_slot(&self) -> CapIndex {
        let n = self.slots.get();
        self.slots.set(n + 1);
        CapIndex(n)
    }

    /// A capability with these rights for an object.
    pub fn cap(&self, kind: ObjectKind, object: WeakRef, rights: Rights) -> Result<CapIndex> {
        let (ty, payload) = kinds::of(kind).capability();
        self.put(ty, rights, Some(object), payload)
    }

    /// A new object and a capability with all rights for it.
    pub fn new_cap(&self, kind: ObjectKind) -> Result<(CapIndex, WeakRef)> {
        let object = self.object(kind)?;
        Ok((self.cap(kind, object, Rights::ALL)?, object))
    }

    /// A capability for `frames` frames from `first` on.
    pub fn memory(&self, first: FrameRef, frames: u64, rights: Rights) -> Result<CapIndex> {
        let range = FrameRange::new(first, frames).ok_or(Error::BadArgument)?;
        self.put(CapType::Memory, rights, None, range.payload())
    }

    /// An untyped frame with a Memory capability for it alone.
    pub fn raw(&self) -> Result<(CapIndex, FrameRef)> {
        let frame = self.take(Order::FRAME, None)?.frame;
        Ok((self.memory(frame, 1, Rights::ALL)?, frame))
    }

    /// The rig's own capability table, with all rights.
    pub fn table(&self) -> Result<CapIndex> {
        self.cap(ObjectKind::CaptblRoot, self.root, Rights::ALL)
    }

    /// An invocation endpoint of a component.
    pub fn sinv(&self, component: WeakRef, address: u64, badge: u64) -> Result<CapIndex> {
        let payload = [address, badge, 0];
        self.put(CapType::Sinv, Rights::ALL, Some(component), payload)
    }

    /// Another component, with a table, a leaf in it and the rig's space.
    pub fn other_component(&self) -> Result<(WeakRef, WeakRef, WeakRef)> {
        let component = self.object(ObjectKind::Component)?;
        let root = self.object(ObjectKind::CaptblRoot)?;
        let leaf = self.object(ObjectKind::CaptblLeaf)?;
        let k = &self.k;
        k.captbls().cons(root, 0, leaf, k, k)?;
        let c: &Component = find(self.cx.node, component, Component::KIND)?;
        ops::component::set_parts(k, c, root, self.space)?;
        Ok((component, root, leaf))
    }

    /// Gives the rig's space tables for this ISA, so that components can be entered.
    pub fn rooted(&self) -> Result<WeakRef> {
        let kind = super::spaces::root_kind(self.cx.machine.isa());
        let root = self.object(kind)?;
        super::spaces::within(&self.k, self.space)?.link_root(self.cx.machine.isa(), root)?;
        Ok(root)
    }

    /// A system call of the running thread that comes back at once.
    pub fn sys(&self, cap: CapIndex, op: u32, a: &[u64]) -> Result<u64> {
        let a = core::array::from_fn(|i| a.get(i).copied().unwrap_or(0));
        let r = self.cx.machine.syscall(call_word(cap, op), a);
        match r.status {
            0 => Ok(r.value),
            ENTER => Err(Error::Corrupt),
            code => Err(Error::from_code(code).unwrap_or(Error::Corrupt)),
        }
    }

    /// One that may switch threads.
    pub fn call(&self, cap: CapIndex, op: u32, a: &[u64]) -> Result<OpOutcome> {
        let a = core::array::from_fn(|i| a.get(i).copied().unwrap_or(0));
        self.cx.machine.call(&self.k, call_word(cap, op), a)
    }

    /// One that does switch.
    pub fn switches(&self, cap: CapIndex, op: u32, a: &[u64]) -> core::result::Result<(), Stop> {
        super::gives!(self.call(cap, op, a), Ok(OpOutcome::Switched));
        Ok(())
    }

    /// Drives this node's round to its end.
    pub fn round(&self) -> core::result::Result<u64, Stop> {
        self.cx.round()
    }

    /// This CPU runs nothing any more.
    pub fn stand_down(&self) {
        let local = self.k.local;
        local.thread.set(None);
        self.cx.machine.leave_space(&self.k);
        local.holding.set(None);
        local.fastpath_thread.set(None);
        local.root_line.set(None);
        while local.chain.pop().is_some() {}
        local.partial_frame.set(false);
        local.set_slice_end(u64::MAX);
        // Of a thread that a test has handed over without going on as kernels do.
        local.spins.set(None);
        local.direct.set(false);
        local.captbl.set(dyad_shm::PhysAddr(0));
        for root in &self.cx.node.roots {
            root.store(0, Ordering::Relaxed);
        }
    }

    /// Makes everything taken untyped again; says what cannot be.
    fn give_back(&self) -> Option<(FrameRef, FrameType, u32)> {
        let mut taken = self.taken.borrow_mut();
        let (frames, n) = &mut *taken;
        for frame in frames[..*n].iter().rev().flatten() {
            self.dissolve(*frame);
        }
        for _ in 0..PASSES {
            for slot in frames[..*n].iter_mut().rev() {
                let Some(frame) = *slot else { continue };
                let Ok((word, _)) = self.k.frames().read(frame) else {
                    continue;
                };
                let gone = match word.ty {
                    FrameType::User(_) | FrameType::Kernel(_) => {
                        ops::memory::to_untyped(&self.k, frame).is_ok()
                    }
                    FrameType::Untyped(_) | FrameType::Tail(_) => true,
                    _ => false,
                };
                if gone {
                    *slot = None;
                }
            }
        }
        let left = frames[..*n].iter().flatten().next()?;
        let (word, _) = self.k.frames().read(*left).ok()?;
        Some((*left, word.ty, word.refs.get()))
    }

    /// Takes away what keeps an object, or is kept by it.
    fn dissolve(&self, frame: FrameRef) {
        let k = &self.k;
        let Ok((word, _)) = k.frames().read(frame) else {
            return;
        };
        let object = WeakRef {
            frame,
            version: word.version,
        };
        match word.ty {
            FrameType::Kernel(KernelKind::THREAD) => {
                if let Ok(t) = self.as_thread(object) {
                    t.event.store(0, Ordering::Relaxed);
                    k.words().replace(&t.owner, 0);
                }
            }
            FrameType::Kernel(KernelKind::ENDPOINTS) => {
                if let Ok(e) = find::<Endpoints>(self.cx.node, object, Endpoints::KIND) {
                    for line in &e.lines {
                        while line.take_thread(self.cx.node).is_some() {}
                    }
                }
            }
            FrameType::Kernel(KernelKind::ADDRESS_SPACE) => super::spaces::dissolve(k, object),
            FrameType::Kernel(kind) if kind == kinds::of(ObjectKind::CaptblRoot).kernel => {
                for i in 0..dyad_abi::cap::ROOT_ENTRIES {
                    let _ = k.captbls().decons(object, i, k, k);
                }
            }
            _ => {}
        }
    }
}

/// An operation's rights, without those of others.
pub const fn only(op: u32) -> Rights {
    Rights(1 << op)
}

/// All rights but one.
pub const fn all_but(op: u32) -> Rights {
    Rights(!(1 << op))
}

/// Checks that an operation needs its right, and that it is refused on an empty slot and on a
/// capability of every other type: with operands that would be good otherwise.
pub fn needs_its_right(
    rig: &Rig<'_>,
    (ty, object, payload): (CapType, Option<WeakRef>, [u64; 3]),
    op: u32,
    a: &[u64],
) -> Outcome {
    let without = rig.put(ty, all_but(op), object, payload)?;
    let refused = rig.sys(without, op, a);
    ensure!(
        refused == Err(Error::Denied),
        "without its right: {refused:?}"
    );
    let nothing = rig.sys(rig.free_slot(), op, a);
    ensure!(
        nothing == Err(Error::NoCap),
        "on an empty slot: {nothing:?}"
    );
    let beyond = rig.sys(CapIndex(dyad_abi::cap::TABLE_SLOTS), op, a);
    ensure!(
        beyond == Err(Error::NoCap),
        "on an index beyond the table: {beyond:?}"
    );
    Ok(None)
}

/// Checks that a capability with all rights has these operations and no others. Those that there
/// are, are not carried out.
pub fn has_no_other_operations(rig: &Rig<'_>, cap: CapIndex, its: &[u32]) -> Outcome {
    for op in (0..30).filter(|op| !its.contains(op)) {
        let is = rig.sys(cap, op, &[]);
        ensure!(is == Err(Error::BadSyscall), "operation {op}: {is:?}");
    }
    for op in [31, 32, 40, 1 << 20] {
        let is = rig.sys(cap, op, &[]);
        ensure!(is == Err(Error::BadSyscall), "operation {op}: {is:?}");
    }
    Ok(None)
}

/// The frame `n` behind another.
pub fn behind(frame: FrameRef, n: u64) -> Result<FrameRef> {
    FrameRef::from_bits(frame.bits() + n as u32).ok_or(Error::BadArgument)
}
