//! The first program: `init`, with everything there is.
//!
//! The kernel makes one component by its own hand: table, address space, thread, and the image of
//! the first bundle of the archive. All memory that this does not take, and the hardware of every
//! node, are put into its capability table at the slots of [`dyad_abi::service::slot`]; everything
//! else is init's business.
//!
//! This is the only place where capabilities come from nothing, and objects are made without one. It
//! is done by the same rows as operations use, on node 0, while every other node is already LIVE and
//! may take part in rounds: the kernel has no second, simpler way to change its tables.
//!
//! | step | before |
//! |---|---|
//! | space with roots and supplies | anything is mapped |
//! | segments, stacks, info page, archive | the thread can run |
//! | table, component, thread, endpoints, budget | capabilities for them |
//! | capabilities, last for what has not been taken | the thread can run: it finds all there is |
//! | root thread of this CPU; the program word | - : from here on it runs |
//!
//! A failure ends the boot; nothing is given back.

use core::fmt;
use core::sync::atomic::Ordering;

use dyad_abi::bundle::{Bundle, BundleError, Scope, Segment};
use dyad_abi::cap::{CapIndex, CapType, ObjectKind, RegionKind, Rights};
use dyad_abi::service::{
    ARCHIVE_BASE, ASK_BASE, INFO_BASE, INFO_MAGIC, Info, MAX_THREAD_IDS, archive, slot,
};
use dyad_abi::user::{NodeInfo, PAGE_SIZE, SysInfo, stack_slot, tcb_address};
use dyad_abi::{ABI_VERSION, Error, Isa, Result, ask};
use dyad_captbl::{Contents, FrameRange, SlotPlace};
use dyad_coherence::GlobalMem;
use dyad_pgtbl::{Level, Perms};
use dyad_retype::{Order, Use};
use dyad_shm::frame::{FrameRef, WeakRef};
use dyad_shm::superblock::ASK_OFFSET;
use dyad_shm::{PhysAddr, PoolId};

use dyad_core::syscall::ops;
use dyad_core::syscall::ops::memory::{claim, retype_kernel};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, info};
use dyad_object::component::Component;
use dyad_object::kinds;
use dyad_object::node::Node;
use dyad_object::space::{Region, Space, Supply};
use dyad_object::tables::{self, Layout};
use dyad_object::thread::{Owner, State, Thread};
use dyad_object::time::{Budgets, UNLIMITED};
use dyad_object::{find, ids};
use dyad_space::mapping::{SpaceCtx, page};

/// Frames that faults of init may take on the node it starts on, and on the others. Those for the stacks of its clients'
/// invocations init takes itself.
const SUPPLY: u64 = 1024;
const SUPPLY_ELSEWHERE: u64 = 512;

/// The reasons why init was not started.
#[derive(Debug)]
pub enum StartError {
    /// The archive is not where the launcher said, or is none.
    Missing,
    /// The archive has no program of this name.
    NoProgram(&'static str),
    /// The bundle was refused.
    Bundle(BundleError),
    /// A step failed.
    Kernel {
        /// The step that failed.
        what: &'static str,
        /// The error.
        error: Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Missing => f.write_str("there is no archive inside the CXL pool"),
            StartError::NoProgram(name) => write!(f, "the archive has no program {name:?}"),
            StartError::Bundle(e) => write!(f, "{e}"),
            StartError::Kernel { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

fn during(what: &'static str) -> impl Fn(Error) -> StartError {
    move |error| StartError::Kernel { what, error }
}

/// Frames of the CXL pool, from its start, each taken once. The rest goes to init as one capability.
struct Frames {
    next: u64,
    end: u64,
}

impl Frames {
    fn take(&mut self, n: u64) -> Result<FrameRef> {
        let at = self.next;
        if n > self.end - at {
            return Err(Error::NoMemory);
        }
        self.next += n;
        FrameRef::of(PoolId::Cxl.base().add(at * PAGE_SIZE)).ok_or(Error::Corrupt)
    }

    /// A kernel object.
    fn object<P: Platform>(&mut self, cx: &KernelCtx, kind: ObjectKind) -> Result<WeakRef> {
        let frame = self.take(1)?;
        patiently(|| retype_kernel::<P>(cx, frame, kind))
    }

    /// A frame of user memory, zero.
    fn user<P: Platform>(&mut self, cx: &KernelCtx) -> Result<WeakRef> {
        let frame = self.take(1)?;
        let claim = patiently(|| claim::<P>(cx, frame, Order::FRAME))?;
        Ok(cx
            .frames()
            .from_untyped_finish(claim, Use::User, &cx.intents())?)
    }
}

/// Calls `f` again if it returns `Again`: a call splits a large block only a bounded number of times.
fn patiently<T>(f: impl Fn() -> Result<T>) -> Result<T> {
    match f() {
        Err(Error::Again) => f(),
        done => done,
    }
}

/// Makes init and its thread the root thread of this CPU.
///
/// # Errors
///
/// [`StartError`]: the system cannot start.
pub fn init<P: Platform>(cx: &KernelCtx) -> core::result::Result<(), StartError> {
    let node = cx.node;
    let bytes = node
        .map
        .launcher_bytes(node.params.bundle_offset, node.params.bundle_len)
        .ok_or(StartError::Missing)?;
    if archive::entries(bytes).is_none() {
        return Err(StartError::Missing);
    }
    let image = archive::find(bytes, "init").ok_or(StartError::NoProgram("init"))?;
    let bundle = Bundle::parse(image).map_err(StartError::Bundle)?;
    let usable = Layout::of(&node.params, PoolId::Cxl).usable;
    let mut frames = Frames {
        next: usable.start,
        end: usable.end,
    };
    let space = make_space::<P>(cx, &mut frames).map_err(during("address space of init"))?;
    for s in bundle.segments() {
        load::<P>(cx, &mut frames, &space, &s).map_err(during("segment of init"))?;
    }
    furnish::<P>(cx, &mut frames, &space, bytes.len() as u64)
        .map_err(during("address space of init"))?;
    let objects = make_objects::<P>(cx, &mut frames, &space, bundle.entry())
        .map_err(during("objects of init"))?;
    endow(cx, &frames, &objects).map_err(during("capabilities of init"))?;
    node.set_root(cx.cpu(), objects.thread);
    let component = objects.component.frame.bits() as u64 + 1;
    node.words.replace(&node.sb.program, component);
    info!(
        P,
        "started {:?}: {} frames of the CXL pool taken, entry {:#x}",
        bundle.name(),
        frames.next - usable.start,
        bundle.entry()
    );
    Ok(())
}

/// A space with a root for each ISA of the system, and frames that faults on each node may take.
fn make_space<'c, P: Platform>(cx: &'c KernelCtx, frames: &mut Frames) -> Result<SpaceCtx<'c>> {
    let object = frames.object::<P>(cx, ObjectKind::Space)?;
    let space: &'static Space = find(cx.node, object, Space::KIND)?;
    // This is no fault: it takes as many as there are.
    cx.local.fault_budget.set(u32::MAX);
    let this = SpaceCtx { cx, space, object };
    for isa in cx.node.isas() {
        let kind = match isa {
            Isa::X86_64 => ObjectKind::PageTableX86L4,
            Isa::Aarch64 => ObjectKind::PageTableA64L4,
        };
        let root = frames.object::<P>(cx, kind)?;
        this.link_root(isa, root)?;
    }
    for n in cx.node.all() {
        let count = if n == cx.node.id() {
            SUPPLY
        } else {
            SUPPLY_ELSEWHERE
        };
        let supply = Supply {
            first: frames.take(count)?,
            frames: count,
        };
        space.set_supply(cx.words(), n, Some(supply));
    }
    Ok(this)
}

fn region(
    cx: &KernelCtx,
    space: &SpaceCtx<'_>,
    start: u64,
    len: u64,
    kind: RegionKind,
    write: bool,
) -> Result<()> {
    let kind = kind as u64 | (write as u64) << 8;
    space
        .space
        .add_region(cx.words(), cx.node.id(), Region::new(start, len, kind)?)
}

/// Maps a new page with these contents on the ISAs given.
fn map_page<P: Platform>(
    cx: &KernelCtx,
    frames: &mut Frames,
    space: &SpaceCtx<'_>,
    va: u64,
    contents: &[u8],
    (isas, perms): (&[Isa], Perms),
) -> Result<PhysAddr> {
    let frame = frames.user::<P>(cx)?;
    let pa = frame.frame.address();
    if !cx.node.map.write_bytes(pa, contents) {
        return Err(Error::Corrupt);
    }
    cx.words().writeback(pa, PAGE_SIZE);
    for &isa in isas {
        if perms.contains(Perms::EXECUTE) {
            // No CPU has executed a frame that has never been used.
            let record = tables::record(cx.node.map, &cx.node.tables, pa).ok_or(Error::Corrupt)?;
            let nodes = cx.node.nodes_with(isa);
            cx.words().set_bits(&record.w1, nodes as u64);
        }
        let driver = space.driver(isa)?;
        let place = space.place::<P>(&driver, va, Level::L1)?;
        space.map(&driver, &place, frame, page(pa, perms))?;
    }
    Ok(pa)
}

/// ISAs of the system, as a slice of an array.
fn isas(node: &Node) -> ([Isa; 2], usize) {
    let mut all = Isa::ALL;
    let mut n = 0;
    for isa in node.isas() {
        all[n] = isa;
        n += 1;
    }
    (all, n)
}

fn load<P: Platform>(
    cx: &KernelCtx,
    frames: &mut Frames,
    space: &SpaceCtx<'_>,
    s: &Segment<'_>,
) -> Result<()> {
    let (all, n) = isas(cx.node);
    let (on, kind): (&[Isa], _) = match s.scope {
        Scope::Shared => (&all[..n], RegionKind::Shared),
        Scope::Isa(isa) if all[..n].contains(&isa) => (&[isa], RegionKind::PerIsa),
        Scope::Isa(_) => return Ok(()),
    };
    let filled = (s.bytes.len() as u64).next_multiple_of(PAGE_SIZE);
    let len = s.mem_len.next_multiple_of(PAGE_SIZE);
    // Text and constants of both ISAs have regions at the same addresses: one serves both.
    let add = |start, len, kind| match region(cx, space, start, len, kind, s.write) {
        Err(Error::Exists) if matches!(s.scope, Scope::Isa(_)) => Ok(()),
        other => other,
    };
    if filled > 0 {
        add(s.va, filled, kind)?;
    }
    if filled < len {
        add(s.va + filled, len - filled, RegionKind::Anonymous)?;
    }
    let mut perms = Perms::empty();
    perms.set(Perms::WRITE, s.write);
    perms.set(Perms::EXECUTE, s.exec);
    for (i, chunk) in s.bytes.chunks(PAGE_SIZE as usize).enumerate() {
        let va = s.va + i as u64 * PAGE_SIZE;
        map_page::<P>(cx, frames, space, va, chunk, (on, perms))?;
    }
    Ok(())
}

/// Stacks, thread control block, info page, archive, requests from outside.
fn furnish<P: Platform>(
    cx: &KernelCtx,
    frames: &mut Frames,
    space: &SpaceCtx<'_>,
    archive_len: u64,
) -> Result<()> {
    let (all, n) = isas(cx.node);
    let on = &all[..n];
    for &isa in on {
        let (bottom, top) = stack_slot(isa, 0);
        region(cx, space, bottom, top - bottom, RegionKind::Anonymous, true)?;
    }
    let tcb = tcb_address(0);
    region(cx, space, tcb, PAGE_SIZE, RegionKind::Shared, true)?;
    map_page::<P>(
        cx,
        frames,
        space,
        tcb,
        &tcb.to_le_bytes(),
        (on, Perms::WRITE),
    )?;
    region(cx, space, INFO_BASE, PAGE_SIZE, RegionKind::Shared, false)?;
    let bytes = info_page(cx.node, archive_len);
    map_page::<P>(cx, frames, space, INFO_BASE, &bytes, (on, Perms::empty()))?;
    let archive = (
        cx.node.params.bundle_offset,
        archive_len.div_ceil(PAGE_SIZE),
    );
    show::<P>(cx, space, on, ARCHIVE_BASE, archive, Perms::empty())?;
    // What others ask, and what init answers: no other program writes there.
    let requests = (ASK_OFFSET, ask::REQUEST_PAGES);
    show::<P>(cx, space, on, ASK_BASE, requests, Perms::empty())?;
    let answers = ASK_BASE + ask::REQUEST_PAGES * PAGE_SIZE;
    let pages = (
        ASK_OFFSET + ask::REQUEST_PAGES * PAGE_SIZE,
        ask::PAGES - ask::REQUEST_PAGES,
    );
    show::<P>(cx, space, on, answers, pages, Perms::WRITE)
}

/// Maps frames of the system, from an offset in the CXL pool on.
fn show<P: Platform>(
    cx: &KernelCtx,
    space: &SpaceCtx<'_>,
    on: &[Isa],
    start: u64,
    (offset, pages): (u64, u64),
    perms: Perms,
) -> Result<()> {
    let write = perms.contains(Perms::WRITE);
    region(
        cx,
        space,
        start,
        pages * PAGE_SIZE,
        RegionKind::Shared,
        write,
    )?;
    let base = PoolId::Cxl.base().add(offset);
    for &isa in on {
        let driver = space.driver(isa)?;
        for i in 0..pages {
            let place = space.place::<P>(&driver, start + i * PAGE_SIZE, Level::L1)?;
            let leaf = page(base.add(i * PAGE_SIZE), perms);
            space.map_reserved(&driver, &place, leaf)?;
        }
    }
    Ok(())
}

/// The description of the system for programs.
pub fn describe(node: &Node) -> SysInfo {
    let mut info = SysInfo {
        abi_version: ABI_VERSION,
        node_count: node.params.node_count as u32,
        cxl_base: PoolId::Cxl.base().0,
        cxl_size: node.map.size(PoolId::Cxl),
        ..SysInfo::default()
    };
    for n in node.all() {
        let word = node.word_of(n);
        info.nodes[n.index()] = NodeInfo {
            isa: node.isa(n) as u32,
            cpus: node.params.cpus as u32,
            live: node.is_live(n) as u32,
            incarnation: word.incarnation,
            pool_base: PoolId::Local(n).base().0,
            pool_size: node.map.size(PoolId::Local(n)),
        };
    }
    info
}

/// The info page, as bytes.
fn info_page(node: &Node, archive_len: u64) -> [u8; size_of::<Info>()] {
    let mut bytes = [0; size_of::<Info>()];
    let mut at = 0;
    let mut put = |b: &[u8]| {
        bytes[at..at + b.len()].copy_from_slice(b);
        at += b.len();
    };
    let args = node.params.args.as_bytes();
    let args = &args[..args.len().min(dyad_abi::service::MAX_ARGS)];
    let env = node.params.env.as_bytes();
    let env = &env[..env.len().min(dyad_abi::service::MAX_ARGS - args.len())];
    for w in [
        INFO_MAGIC,
        archive_len,
        args.len() as u64,
        node.params.cpus as u64,
        0,
        node.params.rounds_per_second,
        node.params.grant as u64,
        node.params.block_size,
        env.len() as u64,
        node.params.wall_ns,
        node.params.random,
        0,
        node.params.kernels as u64,
        node.params.transport as u64,
        node.params.ring_place as u64,
        node.params.delay.bits(),
        node.params.fault_parts.into(),
    ] {
        put(&w.to_le_bytes());
    }
    let s = describe(node);
    put(&s.abi_version.to_le_bytes());
    put(&s.node_count.to_le_bytes());
    put(&s.cxl_base.to_le_bytes());
    put(&s.cxl_size.to_le_bytes());
    for n in &s.nodes {
        for w in [n.isa, n.cpus, n.live, n.incarnation] {
            put(&w.to_le_bytes());
        }
        put(&n.pool_base.to_le_bytes());
        put(&n.pool_size.to_le_bytes());
    }
    put(args);
    put(env);
    bytes
}

const _: () = assert!(core::mem::offset_of!(Info, system) == 136);

/// The objects of init.
struct Objects {
    root: WeakRef,
    leaf: WeakRef,
    space: WeakRef,
    component: WeakRef,
    thread: WeakRef,
    endpoints: WeakRef,
    time: WeakRef,
}

/// Makes the other objects of init. Its thread is ready when this returns, but no CPU has it yet.
fn make_objects<P: Platform>(
    cx: &KernelCtx,
    frames: &mut Frames,
    space: &SpaceCtx<'_>,
    entry: u64,
) -> Result<Objects> {
    let o = Objects {
        root: frames.object::<P>(cx, ObjectKind::CaptblRoot)?,
        leaf: frames.object::<P>(cx, ObjectKind::CaptblLeaf)?,
        space: space.object,
        component: frames.object::<P>(cx, ObjectKind::Component)?,
        thread: frames.object::<P>(cx, ObjectKind::Thread)?,
        endpoints: frames.object::<P>(cx, ObjectKind::Endpoints)?,
        time: frames.object::<P>(cx, ObjectKind::Time)?,
    };
    cx.captbls().cons(o.root, 0, o.leaf, cx, cx)?;
    let component: &'static Component = find(cx.node, o.component, Component::KIND)?;
    ops::component::set_parts(cx, component, o.root, o.space)?;
    let budgets: &'static Budgets = find(cx.node, o.time, Budgets::KIND)?;
    cx.words().replace(&budgets.left[0], UNLIMITED);
    let t: &'static Thread = find(cx.node, o.thread, Thread::KIND)?;
    t.component.store(o.component.bits(), Ordering::Relaxed);
    t.entry.store(entry, Ordering::Relaxed);
    t.arg.store(INFO_BASE, Ordering::Relaxed);
    t.cpu.store(cx.cpu().index() as u64, Ordering::Relaxed);
    ids::claim(cx.node, t.id.load(Ordering::Relaxed), o.thread)?;
    let owner = Owner {
        state: State::Ready,
        node: cx.node.id(),
        incarnation: cx.node.incarnation(),
        seq: 0,
    };
    cx.words().replace(&t.owner, owner.bits());
    Ok(o)
}

/// Fills init's capability table.
fn endow(cx: &KernelCtx, frames: &Frames, o: &Objects) -> Result<()> {
    let put = |at: CapIndex, ty, object, payload| {
        let place = SlotPlace::new(o.leaf, at.get()).ok_or(Error::Corrupt)?;
        let contents = Contents {
            ty,
            rights: Rights::ALL,
            object,
            guard: None,
            payload,
        };
        ops::captbl::activate(cx, place, &contents)
    };
    for (at, kind, object) in [
        (slot::TABLE, ObjectKind::CaptblRoot, o.root),
        (slot::SPACE, ObjectKind::Space, o.space),
        (slot::COMPONENT, ObjectKind::Component, o.component),
        (slot::THREAD, ObjectKind::Thread, o.thread),
        (slot::ENDPOINT, ObjectKind::Endpoints, o.endpoints),
        (slot::TIME, ObjectKind::Time, o.time),
    ] {
        let (ty, payload) = kinds::of(kind).capability();
        put(at, ty, Some(object), payload)?;
    }
    let all_ids = [0, MAX_THREAD_IDS, 0];
    put(slot::THREAD_IDS, CapType::ThreadIds, None, all_ids)?;
    for n in cx.node.all() {
        let payload = [n.index() as u64, 0, 0];
        put(slot::hardware(n), CapType::Hardware, None, payload)?;
    }
    for pool in tables::all_pools(&cx.node.params) {
        let usable = Layout::of(&cx.node.params, pool).usable;
        let start = match pool {
            PoolId::Cxl => frames.next,
            PoolId::Local(_) => usable.start,
        };
        let first = FrameRef::of(pool.base().add(start * PAGE_SIZE)).ok_or(Error::Corrupt)?;
        let Some(range) = FrameRange::new(first, usable.end.saturating_sub(start)) else {
            continue;
        };
        let at = slot::memory(pool.index());
        put(at, CapType::Memory, None, range.payload())?;
    }
    Ok(())
}
