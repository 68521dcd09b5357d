//! Building what an operation is performed on, and running the worker.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ptr::with_exposed_provenance_mut;

use dyad::sys::cap::{
    Access, Cap, CapIndex, Captbl, Component, Liveness, Narrow, ObjectKind, Place, Receive,
    RegionKind, Rights, Sinv, Stopped, Thread, ThreadSetup,
};
use dyad::sys::{Error, Isa, NodeId};
use dyad_abi::marker::BenchMemory;
use dyad_abi::service::{program, slot, thread_id};
use dyad_abi::user::PAGE_SIZE;

use super::memory::{SPACE, Stock, pool_of};
use super::partners;
use super::server::{self, Server};
use super::worker::{self, Plan, WARM_UP};

/// Addresses of the program for faults, one slot of the page table's root for each rig.
const FAULTS: u64 = 0x2000_0000_0000;
/// How far the two kinds of faults are apart.
const APART: u64 = 1 << 30;
/// Where the block of user memory can be seen.
const SEEN: u64 = 0x2900_0000_0000;
/// Addresses in the scratch space.
const SCRATCH: u64 = 0x20_0000_0000;
/// How much one page table of the lowest level covers.
const TABLE_SPAN: u64 = 2 << 20;

/// What could not be done.
#[derive(Debug)]
pub struct Trouble(&'static str, Error);

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0, self.1)
    }
}

trait During<T> {
    fn during(self, what: &'static str) -> Result<T, Trouble>;
}

impl<T> During<T> for Result<T, Error> {
    fn during(self, what: &'static str) -> Result<T, Trouble> {
        self.map_err(|e| Trouble(what, e))
    }
}

/// The benchmark.
pub struct Bench {
    stock: Stock,
    times: u64,
    rigs: u64,
    window: u64,
    servers: Vec<(NodeId, Isa, Server)>,
    /// Results that were not as expected.
    pub wrong: u64,
}

/// The threads of a rig, the worker first; its component, and where that lies in its pool.
type Built = (Vec<Cap<Thread>>, Cap<Component>, u64);

impl Bench {
    /// With so many repetitions of each operation.
    pub fn new(repetitions: u64) -> Bench {
        Bench {
            stock: Stock::new(),
            // Some are no samples, because an interrupt is taken in them.
            times: WARM_UP + repetitions + repetitions / 4,
            rigs: 0,
            window: 0,
            servers: Vec::new(),
            wrong: 0,
        }
    }

    /// Performs every operation on the node that this runs on, with objects in some memory.
    pub fn run(&mut self, node: NodeId, memory: BenchMemory) -> Result<Box<Plan>, Trouble> {
        let isa = dyad::isa();
        let pool = pool_of(memory, node);
        let mut plan = Box::new(Plan::new(node, isa, memory, self.times));
        let (threads, component, component_at) = self.build(&mut plan, pool)?;
        let ran = self.drive(&threads);
        // The component holds the program's address space; init is to get that back.
        component.set_fault_handler(None).during("fault handler")?;
        let memory = self.stock.pool(pool).memory;
        memory.retype_untyped(component_at).during("component")?;
        ran.map(|()| plan)
    }

    /// A capability to invoke a server whose home is a node of another ISA than this one's, and
    /// that node.
    pub fn elsewhere(&mut self, isa: Isa) -> Result<Option<(NodeId, Cap<Sinv>)>, Trouble> {
        let Some(&(node, _, server)) = self.servers.iter().find(|s| s.1 != isa) else {
            return Ok(None);
        };
        server
            .component
            .set_home([node])
            .during("home of the server")?;
        match server.admit(thread_id(program::FIRST, 0)) {
            // It has been here before.
            Ok(()) | Err(Error::Exists) => {}
            Err(e) => return Err(e).during("stacks of the server"),
        }
        let entry = server.entry(&mut self.stock, server::ECHO);
        Ok(Some((node, entry.during("entry of the server")?)))
    }

    /// Repetitions, with those for warming up.
    pub fn times(&self) -> u64 {
        self.times
    }

    fn build(&mut self, plan: &mut Plan, pool: usize) -> Result<Built, Trouble> {
        let (node, isa) = (plan.node, plan.isa);
        let rig = self.rigs;
        self.rigs += 1;
        let stock = &mut self.stock;
        let table = stock
            .table(pool, Plan::slots(plan.times) as u32)
            .during("capability table")?;
        let server = Server::new(stock, pool, (node, isa), &mut self.window).during("server")?;
        // Threads of earlier rigs keep their ids.
        let first_thread = 1 + rig * (1 + worker::PARTNERS.len() as u64);
        server
            .admit(thread_id(program::FIRST, first_thread))
            .during("stacks of the server")?;
        if plan.memory == BenchMemory::Fused {
            self.servers.push((node, isa, server));
        }
        // The frame of the component is the next one.
        let at = stock.pool(pool).take(0).during("component")?;
        let pool_memory = stock.pool(pool).memory;
        let place = stock.slot().during("slot")?;
        pool_memory
            .retype_kernel(at, ObjectKind::Component)
            .during("component")?;
        let component: Cap<Component> = pool_memory
            .activate(at, place, Rights::ALL)
            .during("component")?;
        component.configure(table, SPACE).during("component")?;
        let endpoints: Cap<Receive> = stock
            .object(pool, ObjectKind::Endpoints)
            .during("endpoints")?;
        let liveness: Cap<Liveness> = stock
            .object(pool, ObjectKind::Liveness)
            .during("liveness")?;
        let scratch = stock.space(pool, &Isa::ALL).during("scratch space")?;
        let (pages, pages_at) = stock.user(pool, server::PAGES_ORDER).during("pages")?;
        let (echo, handler) = (
            server
                .entry(stock, server::ECHO)
                .during("entry of the server")?,
            server
                .entry(stock, server::fault_badge(isa))
                .during("entry of the server")?,
        );
        component
            .set_fault_handler(Some(handler))
            .during("fault handler")?;

        // Pages that are told apart.
        for n in 0..1 << server::PAGES_ORDER {
            let va = SEEN + (rig << server::PAGES_ORDER | n) * PAGE_SIZE;
            stock
                .map(pool, (SPACE, isa), va, (pages, n), Access::Write)
                .during("pages")?;
            // SAFETY: 1. The page has just been mapped there, writable, and nobody else uses it.
            unsafe { with_exposed_provenance_mut::<u64>(va as usize).write(worker::stamp_of(n)) };
        }

        // Page tables for what is going to be mapped.
        let len = (plan.times + 1) * PAGE_SIZE;
        plan.pages_at = pages_at;
        plan.scratch_va = SCRATCH;
        plan.fault_va = [0, 1, 2].map(|n| FAULTS + (rig << 39) + n * APART);
        for start in (0..len).step_by(TABLE_SPAN as usize) {
            for isa in Isa::ALL {
                stock
                    .tables(pool, scratch, isa, SCRATCH + start)
                    .during("page tables")?;
                for base in plan.fault_va {
                    stock
                        .tables(pool, SPACE, isa, base + start)
                        .during("page tables")?;
                }
            }
        }
        for base in plan.fault_va {
            SPACE
                .add_region(base, len, RegionKind::Shared, true)
                .during("region")?;
        }

        // What the server needs to handle faults.
        let give = |to: Cap<Captbl>, index: CapIndex, from: CapIndex| {
            let from: Cap<Captbl> = Cap::at(from);
            to.copy_in(index, from, Rights::ALL, None, Narrow::ALL)
                .during("giving a capability")
                .map(drop)
        };
        give(server.table, server::CLIENT.index(), slot::SPACE)?;
        give(server.table, server::PAGES.index(), pages.index())?;

        // What the worker needs.
        for (index, from) in [
            (slot::TABLE, table.index()),
            (slot::SPACE, slot::SPACE),
            (slot::ENDPOINT, endpoints.index()),
            (slot::hardware(node), slot::hardware(node)),
            (worker::MEMORY.index(), pool_memory.index()),
            (worker::SCRATCH.index(), scratch.index()),
            (worker::PAGES.index(), pages.index()),
            (worker::LIVENESS.index(), liveness.index()),
            (worker::SERVER.index(), echo.index()),
        ] {
            give(table, index, from)?;
        }
        for (n, to) in worker::TO.iter().enumerate() {
            endpoints
                .make_send(partners::line_number(n), Place::of(table, to.index()), 1)
                .during("sending end")?;
        }
        for _ in 0..plan.times {
            plan.frames.push(stock.pool(pool).take(0).during("frames")?);
        }
        for _ in 0..worker::MANY.div_ceil(64) {
            plan.leaves.push(stock.pool(pool).take(0).during("frames")?);
        }

        // Threads.
        let entry = worker::worker as extern "C" fn(u64) -> ! as *const () as u64;
        let starts = [entry].into_iter().chain(partners::entries(plan.memory));
        let arg = (&raw mut *plan).expose_provenance() as u64;
        let mut threads = Vec::new();
        let slots = [slot::THREAD]
            .into_iter()
            .chain(worker::PARTNERS.map(Cap::index));
        for ((n, entry), index) in (0..).zip(starts).zip(slots) {
            let id = thread_id(program::FIRST, first_thread + n);
            // Its stack is one of those that every program has for its threads.
            let thread: Cap<Thread> = self
                .stock
                .object(pool, ObjectKind::Thread)
                .during("thread")?;
            let setup = ThreadSetup {
                component,
                entry,
                arg,
                id,
                layout: 0,
                ids: Cap::at(slot::THREAD_IDS),
                tag: n as u32 + 1,
                scheduler: Some(endpoints),
            };
            // SAFETY: 1. The entries are functions that take an address, never return, and use none
            // of the runtime. 2. The plan lives until the worker has ended; the others take nothing.
            unsafe { thread.configure(&setup) }.during("thread")?;
            thread.resume().during("thread")?;
            give(table, index, thread.index())?;
            threads.push(thread);
        }
        Ok((threads, component, at))
    }

    /// Runs the worker, the first of the threads, until it has ended. The others are its partners.
    fn drive(&self, threads: &[Cap<Thread>]) -> Result<(), Trouble> {
        let (&worker, others) = threads
            .split_first()
            .ok_or(Error::Corrupt)
            .during("thread")?;
        loop {
            let stop = worker
                .dispatch(0, worker::PRIORITY, None)
                .during("dispatch of the worker")?;
            match (stop.why, stop.detail) {
                (Stopped::Exited, 0) => return Ok(()),
                (Stopped::Exited, code) => {
                    return Err(Error::from_code(code).unwrap_or(Error::Corrupt)).during("worker");
                }
                (Stopped::Yielded, _) if let Some(n) = partners::wanted() => {
                    let partner = others.get(n).ok_or(Error::Corrupt);
                    partner
                        .and_then(|&p| partners::settle_wanted(p))
                        .during("a partner")?;
                }
                // It waits for rounds, or a more urgent thread ran.
                (Stopped::Yielded, _) => {
                    let now = dyad::sys::now().during("clock")?;
                    dyad::sys::sleep_until(now + 500_000).during("sleep")?;
                }
                (Stopped::Preempted | Stopped::Interrupted, _) => {}
                _ => return Err(Error::Corrupt).during("the worker has stopped"),
            }
        }
    }
}
