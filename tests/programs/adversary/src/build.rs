//! Components: a table, a space with the program in it, pages of their own. And who has which capabilities.
//!
//! ```text
//!            ┌──────────────── warden: all capabilities, a worker on each CPU ───────────────┐
//!            │ reserved time                         │ a budget that is filled up             │
//!        victim ── invokes ──▶ service, homely ◀── invokes ── attackers 0, 1                   │
//!        own table to read, ids,                    own table, space, component, memory, ids, │
//!        endpoints, time, memory                    endpoints, budgets; one line of the        │
//!                                                   workers' endpoints                         │
//! ```

#![allow(unsafe_code)]

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use dyad_abi::cap::{
    CapIndex, CaptblOp, ComponentOp, HardwareOp, ObjectKind, ReceiveOp, RegionKind, Rights, SinvOp,
    Stripes, ThreadIdsOp, ThreadOp, TimeOp,
};
use dyad_abi::service::{INVOKE_STACK_SIZE, INVOKE_STACK_STRIDE, INVOKE_STACKS, slot};
use dyad_abi::user::{PAGE_SIZE, stack_slot};
use dyad_abi::{Error, NodeId, Result};
use dyad_hostile::image::Image;
use dyad_hostile::parts::{self, Pages, Source};
use dyad_services::first::{CXL, HOME, Store, StoreSize, bundle};
use dyad_services::image::isas_of;
use dyad_services::rt;
use dyad_sys::cap::{
    Access, Cap, Captbl, Component, Frame, Kind, Liveness, Memory, Narrow, Place, Receive, Send,
    Space, Thread, ThreadIds, Time,
};

use crate::attacker::Play;
use crate::plan::{
    ATTACKER_IDS, CHILDREN, PRIVATE, PRIVATE_PAGES, PROOF, REPORT, SERVED_IDS, SIDES, TALLY,
    WINDOW, at, attacker_id, badge, mix, pattern, victim_id, word, word_of,
};

/// Frames for the pages of a component that faults fill, on each node.
const SUPPLY: u64 = 512;
/// Time that the victim has on each node: more than any run takes.
pub const VICTIM_NS: u64 = 1 << 50;
/// The line of the workers' endpoints that attackers have.
const SPARE_LINE: u64 = 63;

/// What the run is to be.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Seed of the attackers.
    pub seed: u64,
    /// Attackers: on the first nodes.
    pub attackers: u64,
    /// Rounds of the victim; 0: any number.
    pub rounds: u64,
    /// Plays that are left out, by bit.
    pub without: u64,
    /// Whether the victim notes the time among what it observes.
    pub note_time: bool,
    /// Nodes.
    pub nodes: u64,
    /// CPUs of each.
    pub cpus: u64,
}

/// A component.
#[derive(Clone, Copy)]
pub struct Part {
    /// Its table.
    pub table: Cap<Captbl>,
    /// Its space.
    pub space: Cap<Space>,
    /// The component.
    pub component: Cap<Component>,
    /// Where the warden sees its report page, and its tally.
    pub report: u64,
    /// See `report`.
    pub tally: u64,
}

impl Part {
    /// A word of its report page.
    pub fn word(&self, n: usize) -> &'static AtomicU64 {
        word_of(self.report, n)
    }

    fn give<T: Kind>(&self, index: CapIndex, cap: Cap<T>, rights: Rights) -> Result<()> {
        self.table
            .copy_in(index, cap, rights, None, Narrow::ALL)
            .map(drop)
    }

    fn place(&self, index: CapIndex) -> Place {
        Place::of(self.table, index)
    }
}

/// An attacker.
#[derive(Clone, Copy)]
pub struct Attacker {
    /// Its component.
    pub part: Part,
    /// Its first threads.
    pub threads: [Cap<Thread>; 2],
    /// Its budgets, one by one.
    pub budgets: [Cap<Time>; BUDGETS],
}

/// A capability for each node with a thread of the victim.
type BySide<T> = [Cap<T>; SIDES as usize];

/// Budgets of an attacker that the warden knows.
pub const BUDGETS: usize = 4;

/// Everything.
pub struct World {
    /// What the run is to be.
    pub settings: Settings,
    /// The program's entry.
    pub entry: u64,
    /// The services: the one that runs everywhere, the one at home on the first node.
    pub services: [Part; 2],
    /// The victim.
    pub victim: Part,
    /// Its threads, by node.
    pub victims: BySide<Thread>,
    /// Its budgets that they run on, by node.
    pub victim_time: BySide<Time>,
    /// Attackers.
    pub attackers: [Option<Attacker>; SIDES as usize],
}

/// Frames of the CXL pool for all components.
const FRAMES: u64 = 3072;
/// Leaves of the warden's table.
const LEAVES: u32 = 24;
/// Pages that the warden can look at.
const WINDOW_PAGES: u64 = 2048;

/// What the warden makes components of.
///
/// # Errors
///
/// As the kernel says.
pub fn store() -> Result<Store> {
    Store::new(StoreSize {
        frames: FRAMES,
        slots: 64 * LEAVES,
        leaves: LEAVES,
        window: WINDOW_PAGES,
        pause: || {
            let _ = rt::hardware(HOME).flush_step(16);
        },
    })
}

/// Rights that are named.
fn rights(list: &[Rights]) -> Rights {
    list.iter().fold(Rights::NONE, |all, &r| all.or(r))
}

/// Of the hardware, what every program has.
fn common() -> Rights {
    rights(&[
        HardwareOp::Now.right(),
        HardwareOp::Where.right(),
        HardwareOp::NodeState.right(),
        HardwareOp::Count.right(),
    ])
}

struct Builder<'a> {
    store: &'a mut Store,
    image: Image,
    settings: Settings,
    secret: u64,
}

/// Makes all components.
///
/// # Errors
///
/// As the kernel says.
pub fn build(settings: Settings, store: &mut Store) -> Result<World> {
    let image = Image::new(store, bundle()?)?;
    let mut b = Builder {
        store,
        image,
        settings,
        secret: mix(settings.seed ^ 0x5ec2_e7aa) | 1,
    };
    let service = b.service(0, None)?;
    let services = [service, b.service(1, Some(&service))?];
    let (victim, victims, victim_time) = b.victim(&services)?;
    let mut attackers = [None; SIDES as usize];
    for n in 0..settings.attackers.min(settings.nodes).min(SIDES) {
        attackers[n as usize] = Some(b.attacker(n, &services)?);
    }
    Ok(World {
        settings,
        entry: b.image.entry(),
        services,
        victim,
        victims,
        victim_time,
        attackers,
    })
}

impl Builder<'_> {
    /// A page for a component, at an address, with contents. Gives its frame.
    fn page(
        &mut self,
        mapped: &mut Pages,
        va: u64,
        fill: impl FnOnce(&mut [u8; 4096]),
    ) -> Result<Cap<Frame>> {
        let frame = self.store.page()?;
        self.store.fill(frame, 0, fill)?;
        let isas = self.store.isas;
        mapped.map(self.store, isas, va, (frame, 0), Access::Write)?;
        Ok(frame)
    }

    /// A component with the program in it, and its report and private pages.
    fn part(&mut self, number: u64, secret: u64, ids: core::ops::Range<u64>) -> Result<Part> {
        let (table, _) = parts::table(self.store, at::LEAVES)?;
        let mut mapped = Pages::new(self.store)?;
        let space = mapped.space;
        let component: Cap<Component> = self.store.keep(ObjectKind::Component)?;
        component.configure(table, space)?;
        let isas = self.store.isas;
        mapped.load(self.store, &self.image, isas)?;
        for node in NodeId::first(self.settings.nodes as usize) {
            let memory = self.store.keep_memory(node.index(), SUPPLY)?;
            space.supply(node, memory)?;
        }
        let shared = RegionKind::Shared;
        space.add_region(REPORT, TALLY + PAGE_SIZE - REPORT, shared, true)?;
        let report = self.page(&mut mapped, REPORT, |_| {})?;
        let tally = self.page(&mut mapped, TALLY, |_| {})?;
        space.add_region(PRIVATE, PROOF + PAGE_SIZE - PRIVATE, shared, true)?;
        for page in 0..PRIVATE_PAGES {
            self.page(&mut mapped, PRIVATE + page * PAGE_SIZE, |to| {
                for (word, i) in to.chunks_exact_mut(8).zip(page * 512..) {
                    word.copy_from_slice(&pattern(i).to_le_bytes());
                }
            })?;
        }
        self.page(&mut mapped, PROOF, |to| {
            to[..8].copy_from_slice(&secret.to_le_bytes());
        })?;
        for isa in isas_of(isas) {
            if !ids.is_empty() {
                let (bottom, _) = stack_slot(isa, ids.start as u32);
                let (_, top) = stack_slot(isa, ids.end as u32 - 1);
                space.add_region(bottom, top - bottom, RegionKind::Anonymous, true)?;
            }
        }
        let part = Part {
            table,
            space,
            component,
            report: self.store.show(report, 0)?,
            tally: self.store.show(tally, 0)?,
        };
        for (n, value) in [
            (word::SEED, mix(self.settings.seed ^ mix(number + 77)) | 1),
            (word::NUMBER, number),
            (word::NODES, self.settings.nodes),
            (word::CPUS, self.settings.cpus),
            (word::ROUNDS, self.settings.rounds),
            (word::WITHOUT, self.settings.without),
            (word::NOTE_TIME, self.settings.note_time.into()),
            (word::ENTRY, self.image.entry()),
            (word::INVOKED, self.image.invoked()?),
        ] {
            part.word(n).store(value, Relaxed);
        }
        for node in NodeId::first(self.settings.nodes as usize) {
            let n = node.index() as u64;
            part.give(at::hardware(n), rt::hardware(node), common())?;
        }
        Ok(part)
    }

    /// Stacks of invocations by all whom the component serves.
    fn admit(space: Cap<Space>) -> Result<()> {
        let start = INVOKE_STACKS + (SERVED_IDS.start << 8) * INVOKE_STACK_STRIDE;
        let len = ((SERVED_IDS.end - SERVED_IDS.start) << 8) * INVOKE_STACK_STRIDE;
        let stripes = Stripes::new(INVOKE_STACK_STRIDE, INVOKE_STACK_SIZE);
        space.add_stacks(start, len, stripes.ok_or(Error::BadArgument)?)
    }

    fn sinv(&self, to: &Part, of: &Part, index: CapIndex, badge: u64) -> Result<()> {
        let entry = self.image.invoked()?;
        let rights = SinvOp::Invoke
            .right()
            .or(Rights::COPY)
            .or(Rights::INTROSPECT);
        // SAFETY: 1. The address is where invocations enter, by the bundle.
        unsafe {
            of.component
                .make_sinv(to.place(index), entry, badge, rights)
        }
        .map(drop)
    }

    fn service(&mut self, n: u64, next: Option<&Part>) -> Result<Part> {
        let part = self.part(n, self.secret, 0..0)?;
        Self::admit(part.space)?;
        if n == 1 {
            part.component.set_home([HOME])?;
            part.word(word::HOME).store(1, Relaxed);
        }
        // A service invokes the next one, or itself, for an attacker who wants it to.
        self.sinv(
            &part,
            next.unwrap_or(&part),
            at::SERVICE,
            badge::attacker(0),
        )?;
        Ok(part)
    }

    fn thread(&mut self, part: &Part, index: CapIndex, rights: Rights) -> Result<Cap<Thread>> {
        let thread: Cap<Thread> = self.store.keep(ObjectKind::Thread)?;
        part.give(index, thread, rights)?;
        Ok(thread)
    }

    fn victim(&mut self, services: &[Part; 2]) -> Result<(Part, BySide<Thread>, BySide<Time>)> {
        let ids = victim_id(0)..victim_id(SIDES);
        let part = self.part(8, 0, ids.clone())?;
        let all = Rights::ALL;
        let read = rights(&[
            CaptblOp::Read.right(),
            CaptblOp::Activate.right(),
            CaptblOp::Deactivate.right(),
            Rights::INTROSPECT,
        ]);
        part.give(at::TABLE, part.table, read)?;
        part.give(
            at::COMPONENT,
            part.component,
            ComponentOp::Configure.right(),
        )?;
        let endpoints: Cap<Receive> = self.store.keep(ObjectKind::Endpoints)?;
        let receive = rights(&[ReceiveOp::Receive.right(), ReceiveOp::Bind.right()]);
        part.give(at::ENDPOINTS, endpoints, receive)?;
        let memory = self.store.keep_memory(CXL, 8)?;
        part.give(at::MEMORY, memory, all)?;
        self.ids(&part, ids)?;
        let time: Cap<Time> = self.store.keep(ObjectKind::Time)?;
        let use_it = rights(&[
            TimeOp::Use.right(),
            TimeOp::Read.right(),
            TimeOp::Transfer.right(),
        ]);
        for (line, slot) in [(2, at::TIME), (3, at::TIME_2), (4, at::SPARE)] {
            let budget = self.store.keep_part(time, Narrow::range(line, 1))?;
            part.give(slot, budget, use_it)?;
            Cap::<Time>::at(slot::TIME).transfer(budget, VICTIM_NS)?;
        }
        let mut threads = [Cap::at(CapIndex::NONE); SIDES as usize];
        let mut budgets = [Cap::at(CapIndex::NONE); SIDES as usize];
        for node in 0..self.settings.nodes.min(SIDES) {
            let itself = ThreadOp::Yield.right().or(ThreadOp::Exit.right());
            threads[node as usize] = self.thread(&part, at::thread(node), itself)?;
            let helper = rights(&[
                ThreadOp::Configure.right(),
                ThreadOp::Resume.right(),
                ThreadOp::Dispatch.right(),
                ThreadOp::Exit.right(),
            ]);
            self.thread(&part, at::child(node), helper)?;
            endpoints.make_send(32 + node, part.place(at::scratch(node)), 1 << node)?;
            budgets[node as usize] = self.store.keep_part(time, Narrow::range(node, 1))?;
            Cap::<Time>::at(slot::TIME).transfer(budgets[node as usize], VICTIM_NS)?;
            self.sinv(&part, &services[0], at::service(node), badge::victim(node))?;
            self.sinv(&part, &services[1], at::homely(node), badge::victim(node))?;
        }
        Ok((part, threads, budgets))
    }

    fn ids(&mut self, part: &Part, ids: core::ops::Range<u64>) -> Result<()> {
        let narrow = Narrow::range(ids.start, ids.end - ids.start);
        let all: Cap<ThreadIds> = Cap::at(slot::THREAD_IDS);
        let own = self.store.keep_part(all, narrow)?;
        let rights = rights(&[ThreadIdsOp::Use.right(), Rights::COPY, Rights::INTROSPECT]);
        part.give(at::IDS, own, rights)
    }

    fn attacker(&mut self, n: u64, services: &[Part; 2]) -> Result<Attacker> {
        let ids = attacker_id(n)..attacker_id(n) + ATTACKER_IDS;
        let part = self.part(n, 0, ids.clone())?;
        part.word(word::SECRET_MIXED)
            .store(mix(self.secret), Relaxed);
        part.space
            .add_region(WINDOW, 4 * PAGE_SIZE, RegionKind::Anonymous, true)?;
        Self::admit(part.space)?;
        let all = Rights::ALL;
        part.give(at::TABLE, part.table, all)?;
        part.give(at::SPACE, part.space, all)?;
        part.give(at::COMPONENT, part.component, all)?;
        let spare: Cap<Component> = self.store.keep(ObjectKind::Component)?;
        spare.configure(part.table, part.space)?;
        part.give(at::SPARE, spare, all)?;
        let endpoints: Cap<Receive> = self.store.keep(ObjectKind::Endpoints)?;
        part.give(at::ENDPOINTS, endpoints, all)?;
        let workers: Cap<Receive> = Cap::at(slot::ENDPOINT);
        let line = self
            .store
            .keep_part(workers, Narrow::range(SPARE_LINE, 1))?;
        part.give(at::LINE, line, all)?;
        let memory: Cap<Memory> = self
            .store
            .keep_memory(CXL, crate::attacker::MEMORY_FRAMES)?;
        part.give(at::MEMORY, memory, all)?;
        self.ids(&part, ids)?;
        let time: Cap<Time> = self.store.keep(ObjectKind::Time)?;
        let mut budgets = [Cap::at(CapIndex::NONE); BUDGETS];
        for (line, budget) in (0..).zip(&mut budgets) {
            *budget = self.store.keep_part(time, Narrow::range(line, 1))?;
        }
        let theirs = self
            .store
            .keep_part(time, Narrow::range(0, BUDGETS as u64))?;
        part.give(at::TIME, budgets[0], all)?;
        part.give(at::TIME_2, budgets[1], all)?;
        let liveness: Cap<Liveness> = self.store.keep(ObjectKind::Liveness)?;
        self.sinv(&part, &services[0], at::SERVICE, badge::attacker(n))?;
        self.sinv(&part, &services[1], at::HOMELY, badge::attacker(n))?;
        self.sinv(&part, &part, at::OWN, badge::OWN)?;
        // Faults end the thread without words on the console.
        let entry = self.image.invoked()?;
        let place = self.store.kept_slot()?;
        // SAFETY: 1. The address is where invocations enter, by the bundle.
        let handler = unsafe { part.component.make_sinv(place, entry, badge::FAULT, all)? };
        part.component.set_fault_handler(Some(handler))?;
        spare.set_fault_handler(Some(handler))?;
        // What single operations begin with: a copy of each.
        for k in 0..4 {
            use dyad_abi::cap::CapType::{
                Captbl as Table, Hardware, Liveness as Entries, Memory as Frames,
                Receive as Receiving, Send as Sending, Sinv, Space as Addresses, ThreadIds as Ids,
                Time as Budget,
            };
            let leaf: Cap<Captbl> = self.store.keep(ObjectKind::CaptblLeaf)?;
            part.give(at::pool(Table, k), leaf, all)?;
            part.give(at::pool(Addresses, k), part.space, all)?;
            part.give(at::pool(Receiving, k), endpoints, all)?;
            part.give(at::pool(Frames, k), memory, all)?;
            part.give(at::pool(Budget, k), theirs, all)?;
            part.give(at::pool(Entries, k), liveness, all)?;
            let node = NodeId::new(k % self.settings.nodes).ok_or(Error::NoSuchNode)?;
            part.give(
                at::pool(Hardware, k),
                rt::hardware(node),
                common().or(Rights::COPY),
            )?;
            self.sinv(
                &part,
                &services[k as usize % 2],
                at::pool(Sinv, k),
                badge::attacker(n),
            )?;
            let own = self.store.keep_part(
                Cap::<ThreadIds>::at(slot::THREAD_IDS),
                Narrow::range(attacker_id(n), k + 1),
            )?;
            part.give(at::pool(Ids, k), own, all)?;
            let to = part.place(at::pool(Sending, k));
            let _: Cap<Send> = endpoints.make_send(20 + k, to, 1 << k)?;
        }
        let mut threads = [Cap::at(CapIndex::NONE); 2];
        for (k, thread) in (0..self.settings.cpus.min(2)).zip(&mut threads) {
            let itself = rights(&[
                ThreadOp::Yield.right(),
                ThreadOp::Exit.right(),
                ThreadOp::Migrate.right(),
                ThreadOp::Jump.right(),
            ]);
            *thread = self.thread(&part, at::thread(k), itself)?;
        }
        Ok(Attacker {
            part,
            threads,
            budgets,
        })
    }
}

const _: () = assert!(CHILDREN + 2 <= ATTACKER_IDS && Play::ALL.len() <= 16);
