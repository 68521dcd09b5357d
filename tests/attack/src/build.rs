//! Components: each with a capability table, an address space and threads of its own, of the same image.

#![allow(unsafe_code)]

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use dyad_abi::cap::{
    CapIndex, HardwareOp, ObjectKind, ReceiveOp, RegionKind, Rights, SinvOp, StopOutcome, Stripes,
    TableAt, ThreadOp,
};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::{
    INVOKE_STACK_SIZE, INVOKE_STACK_STRIDE, INVOKE_STACKS, MAX_THREAD_IDS, slot,
};
use dyad_abi::user::{PAGE_SIZE, stack_slot};
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
use dyad_hostile::image::Image;
use dyad_hostile::parts::{self, Pages, Source};
use dyad_services::first::{self, CXL, TABLE};
use dyad_services::frames::Arena;
use dyad_services::image::{Regions, filled_pages, isas_of};
use dyad_services::rt;
use dyad_services::takedown::{self, Patience};
use dyad_sys::cap::{
    Access, Cap, Captbl, Component, Frame, Guard, Kind, Narrow, PageTable, Place, Receive, Sinv,
    Space, Thread, ThreadIds, ThreadSetup,
};

use crate::sched;
use crate::shared::{HEAP, HEAP_PAGES, MAILBOX, NOWHERE, REPORT, SECRET, SHOWN, at, word, word_of};
use crate::store::{Store, patiently, waits};

/// Tables of spaces in which something was left that the warden did not know of.
pub static CLEARED: AtomicU64 = AtomicU64::new(0);

/// Frames of a component for kernel objects, for its pages, and of each node for its faults.
const OBJECTS: u64 = 192;
const PAGES: u64 = 160;
const SUPPLY: u64 = 160;
/// Frames for what a case makes.
const SCRATCH: u64 = 64;
/// Passes in which all threads of a component are stopped.
const STOP_PASSES: usize = 8;
/// The frames of a component, for one attack after the other.
#[derive(Clone, Copy)]
pub struct Frames {
    objects: Arena,
    pages: Arena,
    supplies: [Option<Arena>; MAX_NODES],
    scratch: Arena,
}

impl Frames {
    /// Carves them.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn new(store: &mut Store) -> Result<Frames> {
        let mut supplies = [None; MAX_NODES];
        for (n, supply) in supplies.iter_mut().take(store.nodes as usize).enumerate() {
            *supply = Some(store.carve(n, SUPPLY)?);
        }
        Ok(Frames {
            objects: store.carve(CXL, OBJECTS)?,
            pages: store.carve(CXL, PAGES)?,
            supplies,
            scratch: store.carve(CXL, SCRATCH)?,
        })
    }
}

/// What is left of the frames of a component, and slots for one attack.
struct Lot<'a> {
    store: &'a mut Store,
    left: &'a mut Frames,
}

impl Source for Lot<'_> {
    fn store(&mut self) -> &mut first::Store {
        self.store
    }

    fn object<T: Kind>(&mut self, kind: ObjectKind) -> Result<Cap<T>> {
        self.store.object(&mut self.left.objects, kind)
    }

    fn page(&mut self) -> Result<Cap<Frame>> {
        self.store
            .user(&mut self.left.pages)
            .map(|(frame, _)| frame)
    }
}

/// A component.
pub struct Comp {
    whole: Frames,
    left: Frames,
    /// Root of its capability table.
    pub table: Cap<Captbl>,
    /// Its first leaf.
    pub leaf: Cap<Captbl>,
    /// Its address space.
    pub space: Cap<Space>,
    /// The component.
    pub component: Cap<Component>,
    /// Its endpoints.
    pub endpoints: Cap<Receive>,
    /// Where the warden sees its pages: report and secret.
    pub report: u64,
    /// See `report`.
    pub secret: u64,
    /// The page it shows.
    pub shown: Cap<Frame>,
    mapped: Pages,
    entry: u64,
    ids: core::ops::Range<u32>,
    threads: [Option<(usize, Cap<Thread>)>; 4],
}

impl Comp {
    /// A component without threads. Its threads have ids of `ids`, and code on the ISAs in `code` (by bit):
    /// other nodes rewrite what is theirs to execute, which takes long. The pages at `MAILBOX` and `SHOWN` are the other's, if there is one.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn new(
        store: &mut Store,
        image: &Image,
        frames: Frames,
        (ids, code): (core::ops::Range<u32>, u8),
        other: Option<(Cap<Frame>, Cap<Frame>)>,
    ) -> Result<(Comp, Cap<Frame>)> {
        let mut left = frames;
        let from = &mut Lot {
            store,
            left: &mut left,
        };
        let (table, leaf) = parts::table(from, at::LEAVES)?;
        let mapped = Pages::new(from)?;
        let space = mapped.space;
        let component: Cap<Component> = from.object(ObjectKind::Component)?;
        component.configure(table, space)?;
        let endpoints = from.object(ObjectKind::Endpoints)?;
        let (report, secret) = (from.page()?, from.page()?);
        let (mailbox, shown) = match other {
            Some(pages) => pages,
            None => (from.page()?, from.page()?),
        };
        let mut c = Comp {
            whole: frames,
            left,
            table,
            leaf,
            space,
            component,
            endpoints,
            report: store.show(report, 0)?,
            secret: store.show(secret, 0)?,
            shown,
            mapped,
            entry: image.entry(),
            ids: ids.clone(),
            threads: [None; 4],
        };
        let access = match other {
            Some(_) => Access::Read,
            None => Access::Write,
        };
        for (va, frame, access) in [
            (REPORT, report, Access::Write),
            (SECRET, secret, Access::Write),
            (MAILBOX, mailbox, Access::Write),
            (SHOWN, shown, access),
        ] {
            let write = access == Access::Write;
            c.space
                .add_region(va, PAGE_SIZE, RegionKind::Shared, write)?;
            let isas = store.isas;
            let (mut from, mapped) = c.lot(store);
            mapped.map(&mut from, isas, va, (frame, 0), access)?;
        }
        let (mut from, mapped) = c.lot(store);
        mapped.load(&mut from, image, code)?;
        c.memory(store, ids)?;
        word_of(c.report, word::NODES).store(store.nodes, Relaxed);
        word_of(c.report, word::CPUS).store(store.cpus, Relaxed);
        c.give(
            at::ENDPOINTS,
            endpoints,
            ReceiveOp::Receive.right().or(INTROSPECT),
        )?;
        let hardware = HardwareOp::Now
            .right()
            .or(HardwareOp::Where.right())
            .or(HardwareOp::NodeState.right());
        for node in NodeId::first(store.nodes as usize) {
            let slot = at::hardware(node.index() as u64);
            c.give(slot, rt::hardware(node), hardware.or(INTROSPECT))?;
        }
        Ok((c, mailbox))
    }

    /// Stacks, memory, supplies.
    fn memory(&mut self, store: &mut Store, ids: core::ops::Range<u32>) -> Result<()> {
        for isa in isas_of(store.isas) {
            for id in ids.clone() {
                let (bottom, top) = stack_slot(isa, id);
                self.space
                    .add_region(bottom, top - bottom, RegionKind::Anonymous, true)?;
            }
        }
        let heap = HEAP_PAGES * PAGE_SIZE;
        self.space
            .add_region(HEAP, heap, RegionKind::Anonymous, true)?;
        // Stacks of invocations by any thread of the system, as in services.
        let stripes = Stripes::new(INVOKE_STACK_STRIDE, INVOKE_STACK_SIZE);
        let len = (MAX_THREAD_IDS << 8) * INVOKE_STACK_STRIDE;
        self.space
            .add_stacks(INVOKE_STACKS, len, stripes.ok_or(Error::BadArgument)?)?;
        for (n, arena) in self.whole.supplies.into_iter().enumerate() {
            if let (Some(arena), Some(node)) = (arena, NodeId::new(n as u64)) {
                let memory = store.memory(n, arena.first(), arena.frames())?;
                self.space.supply(node, memory)?;
            }
        }
        Ok(())
    }

    fn lot<'a>(&'a mut self, store: &'a mut Store) -> (Lot<'a>, &'a mut Pages) {
        let left = &mut self.left;
        (Lot { store, left }, &mut self.mapped)
    }

    /// Sees to it that the page tables for an address are there.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn tables(&mut self, store: &mut Store, isa: Isa, va: u64) -> Result<()> {
        let (mut from, mapped) = self.lot(store);
        mapped.tables(&mut from, isa, va)
    }

    /// An object made of the component's frames, with all rights for the warden.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn object<T: Kind>(&mut self, store: &mut Store, kind: ObjectKind) -> Result<Cap<T>> {
        self.lot(store).0.object(kind)
    }

    /// A page of the component's frames, with all rights for the warden.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn page(&mut self, store: &mut Store) -> Result<Cap<Frame>> {
        self.lot(store).0.page()
    }

    /// Frames for a case: their first one in the CXL pool, and how many there are.
    pub fn scratch(&self) -> (u64, u64) {
        (self.whole.scratch.first(), self.whole.scratch.frames())
    }

    /// Frames of the component's pages, in the CXL pool: where they begin, and how many there are.
    pub fn pages(&self) -> (u64, u64) {
        (self.whole.pages.first(), self.whole.pages.frames())
    }

    /// The page table that was linked last.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none.
    pub fn last_table(&self) -> Result<Cap<PageTable>> {
        self.mapped.last_table()
    }

    /// Puts a copy of a capability of the warden into the component's table.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn give<T: Kind>(&self, slot: u32, cap: Cap<T>, rights: Rights) -> Result<()> {
        self.give_part(slot, cap, rights, Narrow::ALL)
    }

    /// As [`give`](Comp::give), of a part.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn give_part<T: Kind>(
        &self,
        slot: u32,
        cap: Cap<T>,
        rights: Rights,
        part: Narrow,
    ) -> Result<()> {
        let to = CapIndex(slot);
        patiently(|| self.table.copy_in(to, cap, rights, None, part)).map(drop)
    }

    /// As [`give`](Comp::give), with a guard.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn give_guarded<T: Kind>(
        &self,
        slot: u32,
        cap: Cap<T>,
        rights: Rights,
        guard: Guard,
    ) -> Result<()> {
        let to = CapIndex(slot);
        patiently(|| {
            self.table
                .copy_in(to, cap, rights, Some(guard), Narrow::ALL)
        })
        .map(drop)
    }

    /// A capability to invoke the component.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn entry(&self, store: &mut Store, image: &Image, badge: u64) -> Result<Cap<Sinv>> {
        self.entry_of(store, image, self.component, badge)
    }

    /// A capability to invoke another component of the same table and space.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn entry_of(
        &self,
        store: &mut Store,
        image: &Image,
        component: Cap<Component>,
        badge: u64,
    ) -> Result<Cap<Sinv>> {
        let place = store.slot()?;
        let entry = image.invoked()?;
        // SAFETY: 1. The address is where invocations enter, by the bundle.
        patiently(|| unsafe { component.make_sinv(place, entry, badge, Rights::ALL) })
    }

    /// Makes a thread of the component with an id. It is stopped.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn thread(
        &mut self,
        store: &mut Store,
        (tag, priority): (usize, u8),
        id: u32,
        arg: u64,
    ) -> Result<Cap<Thread>> {
        let thread: Cap<Thread> = self.object(store, ObjectKind::Thread)?;
        let setup = ThreadSetup {
            component: self.component,
            entry: self.entry,
            arg,
            id,
            layout: 0,
            ids: Cap::at(slot::THREAD_IDS),
            tag: sched::TAG + tag as u32,
            scheduler: Some(sched::ENDPOINTS),
        };
        configure(thread, &setup)?;
        let free = self.threads.iter_mut().find(|t| t.is_none());
        *free.ok_or(Error::Full)? = Some((tag, thread));
        sched::add(tag, thread, priority);
        Ok(thread)
    }

    /// Stops its threads, and takes all that it has out of its table and its space.
    ///
    /// Threads may stop and resume each other, so the table comes first: no thread begins an operation then.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn take_down(&mut self, store: &Store, image: &Image) -> Result<()> {
        self.empty_table()?;
        self.stop_threads()?;
        // A thread may have been in an operation that put a leaf into the table.
        self.empty_table()?;
        takedown::drain(self.endpoints, 64);
        takedown::drain(sched::ENDPOINTS, 64);
        for isa in isas_of(store.isas) {
            self.clear(store, image, isa)?;
        }
        Ok(())
    }

    /// Takes all leaves out of its table.
    fn empty_table(&self) -> Result<()> {
        for entry in 0..dyad_abi::cap::ROOT_ENTRIES {
            match patiently(|| self.table.decons(entry)) {
                Ok(()) | Err(Error::NotFound) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Stops all threads. A thread may have been in an operation that resumed one which was stopped before it, so
    /// passes are repeated until one finds all of them stopped.
    fn stop_threads(&self) -> Result<()> {
        for _ in 0..STOP_PASSES {
            let mut all = true;
            for (tag, thread) in self.threads.iter().flatten() {
                all &= stop(*tag, *thread)?;
            }
            if all {
                return Ok(());
            }
        }
        Err(Error::TimedOut)
    }

    /// Takes everything out of the space's table of an ISA: what the warden has put there, then what faults
    /// have. Whatever an attacker has put there is looked for if that was not all.
    fn clear(&mut self, store: &Store, image: &Image, isa: Isa) -> Result<()> {
        let (patience, space) = (&waits, self.space);
        let own = [REPORT, SECRET, MAILBOX, SHOWN];
        let image_pages = image.pages().map(|p| p.va);
        let written = image.bundle.segments().filter(|s| s.write);
        let written =
            written.flat_map(|s| (0..filled_pages(&s)).map(move |n| s.va + n * PAGE_SIZE));
        let attacks = (0..8).map(|n| NOWHERE + n * PAGE_SIZE);
        for va in own
            .into_iter()
            .chain(image_pages)
            .chain(written)
            .chain(attacks)
        {
            takedown::unmap(patience, space, isa, va)?;
        }
        let stacks = isas_of(store.isas).flat_map(|isa| {
            let ids = self.ids.clone();
            ids.map(move |id| stack_slot(isa, id))
        });
        let regions = Regions::of(&image.bundle, store.isas);
        let image = regions.iter().map(|r| (r.start, r.start + r.len));
        let invocations = INVOKE_STACKS + (MAX_THREAD_IDS << 8) * INVOKE_STACK_STRIDE;
        let others = [
            (REPORT, SHOWN + PAGE_SIZE),
            (HEAP, HEAP + HEAP_PAGES * PAGE_SIZE),
            (INVOKE_STACKS, invocations),
        ];
        for (mut at, end) in stacks.chain(image).chain(others) {
            while at < end {
                let left = (end - at) / PAGE_SIZE;
                // SAFETY: 1. The space is another component's, whose threads are stopped.
                at += patiently(|| unsafe { space.reclaim(at, left) })? * PAGE_SIZE;
            }
        }
        for (at, start) in self.mapped.linked(isa) {
            match patiently(|| space.unlink(at, start)) {
                Ok(_) | Err(Error::NotFound | Error::Exists | Error::NoIsa) => {}
                Err(e) => return Err(e),
            }
        }
        let root = TableAt { isa, level: 4 };
        match patiently(|| space.unlink(root, 0)) {
            Ok(_) | Err(Error::NotFound | Error::NoIsa) => return Ok(()),
            Err(Error::Exists) => {}
            Err(e) => return Err(e),
        }
        CLEARED.fetch_add(1, Relaxed);
        takedown::clear_space(patience, space)
    }

    /// Gives all frames back. Gives how many have not come after a wait: a CPU whose worker is in the middle of
    /// taking an event off a list may stand still for a while, and a thread whose event it is stays until then.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn give_back(&self, store: &mut Store) -> Result<u64> {
        let before = store.stuck;
        let mut patience = waits();
        loop {
            store.stuck = before;
            let mut missing = store.sweep(CXL, &self.whole.objects)?;
            missing += store.sweep(CXL, &self.whole.pages)?;
            missing += store.sweep(CXL, &self.whole.scratch)?;
            for (n, arena) in self.whole.supplies.iter().enumerate() {
                if let Some(arena) = arena {
                    missing += store.sweep(n, arena)?;
                }
            }
            if missing == 0 {
                return Ok(0);
            }
            match patience.pause() {
                Ok(()) => {}
                Err(Error::TimedOut) => return Ok(missing),
                Err(e) => return Err(e),
            }
        }
    }
}

/// The right to ask what a capability is.
pub const INTROSPECT: Rights = Rights::INTROSPECT;

/// Makes a thread begin. The one place that knows how threads get their ids.
///
/// # Errors
///
/// As the kernel says.
pub fn configure(thread: Cap<Thread>, setup: &ThreadSetup) -> Result<()> {
    // SAFETY: 1. The entry is that of the image, which every component has. 2. The warden gives each
    // id to one thread.
    patiently(|| unsafe { thread.configure(setup) })
}

/// Stops a thread wherever it is: if it cannot be stopped as it is scheduled, nobody schedules it. Whether it was
/// stopped already.
fn stop(tag: usize, thread: Cap<Thread>) -> Result<bool> {
    let mut patience = waits();
    let mut was = false;
    for attempt in 0.. {
        match thread.stops() {
            Ok(StopOutcome::Already) => {
                was = attempt == 0;
                break;
            }
            Err(Error::Revoked | Error::NoCap) => {
                was = true;
                break;
            }
            Ok(StopOutcome::Stopped | StopOutcome::Ended) => break,
            // Within an invocation it ends after a grace period, which is shorter than the wait.
            Ok(StopOutcome::WhenItLeaves) | Err(Error::NotReady | Error::Again) => {
                patience.pause()?;
            }
            Err(e) => return Err(e),
        }
        if attempt == 200 {
            sched::remove(tag);
        }
    }
    sched::remove(tag);
    Ok(was)
}

/// Makes a thread ready on a CPU.
///
/// # Errors
///
/// As the kernel says.
pub fn start(thread: Cap<Thread>, node: u64, cpu: u64) -> Result<()> {
    let node = NodeId::new(node).ok_or(Error::NoSuchNode)?;
    let cpu = CpuId::new(cpu).ok_or(Error::BadArgument)?;
    patiently(|| thread.resume_on(node, cpu))
}

/// What the victim's client may do with the service.
pub const INVOKE: Rights = SinvOp::Invoke.right().or(INTROSPECT);
/// What a thread may do with itself.
pub const ITSELF: Rights = ThreadOp::Yield.right().or(ThreadOp::Exit.right());
/// A capability for a range of ids, in a slot of the warden.
///
/// # Errors
///
/// As the kernel says.
pub fn ids(place: Place, range: core::ops::Range<u32>) -> Result<Cap<ThreadIds>> {
    let all: Cap<ThreadIds> = Cap::at(slot::THREAD_IDS);
    let part = Narrow::range(range.start.into(), range.len() as u64);
    patiently(|| TABLE.copy_in(place.index(), all, Rights::ALL, None, part))
}
