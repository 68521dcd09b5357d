//! Several kernels that only exchange messages: the program as a group of processes, one on each node, and their peers. Two of the
//! nodes:
//!
//! ```text
//!   node 0:  process 0 ──faults, requests──▶ peer 0 ◀══ rings ══▶ peer 1 ◀──faults, requests── process 1  :node 1
//!              image, frames, page tables: pool 0                    image, frames, page tables: pool 1
//! ```
//!
//! A process gets nothing by which it could reach another pool: no supply, no memory, no right to change its own space. Its peer
//! gets the address space, all free frames of its node's pool, and memory for page tables. The bytes of the program's data
//! go to the first peer, which has the pages then; text and constants are in each process.

#![allow(unsafe_code)]

mod control;

use dyad_abi::cap::{CaptblOp, HardwareOp, ObjectKind, ReceiveOp, Rights, SpaceOp, TableAt};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::peer::{
    self, BLOCK_FRAMES, IMAGE, ImageRange, MAX_RANGES, POLLS, RING_PAGES, RingPlace, SETUP, Setup,
    Transport, WINDOW, door, peer_on, process_on, ring,
};
use dyad_abi::service::{INFO_BASE, INIT_THREADS, SERVED, sched, slot};
use dyad_abi::user::{MAX_PROGRAM_THREADS, PAGE_SIZE};
use dyad_abi::{Error, NodeId};
use dyad_services::image::{filled_pages, zero_pages};
use dyad_sys::cap::{Access, Cap, Frame, Receive, Send, Sinv, Thread};

use crate::build::Builder;
use crate::build::{GUEST_NEEDS, Given, Item, SERVICE_SUPPLY, SPARE};
use crate::memory::{CXL, Store};
use crate::program::{HOME, Needs, Placement, Program, is_of_group};
use crate::system::{Guest, INVOKE, PROGRAM_ITEM, Schedule, Services, thread};
use crate::trouble::{Done, During};

/// Frames for page tables of a process.
const TABLE_FRAMES: u64 = 1024;

/// What is in the environment of a program for which separation is to be broken, by a page at this address.
const PLANT: &str = "DYAD_TEST_FOREIGN_PAGE=1";
const PLANTED: u64 = 0x16_0000_0000;

/// Actors answer the threads of their process, so they go first.
const PEER_ENTRY: u64 = sched::entry(48, 10_000, sched::SYSTEM_GROUP);
/// Threads that poll run when nothing else does.
const POLLER_ENTRY: u64 = sched::entry(1, 10_000, sched::SYSTEM_GROUP);

/// The actor of a peer, and its thread that polls.
type Threads = [Option<Cap<Thread>>; 2];

/// A peer.
pub struct Peer {
    /// The service.
    pub program: Program,
    /// Invokes it as init.
    pub entry: Cap<Sinv>,
    threads: Threads,
    /// Blocks of memory in its window.
    blocks: u64,
}

/// What a group has beside the process where the program starts.
pub struct Group {
    /// Its peers, by node.
    pub peers: [Option<Peer>; MAX_NODES],
    /// The other processes.
    pub others: [Option<Program>; MAX_NODES],
    /// Of which dead nodes the peers have been told.
    told: [bool; MAX_NODES],
}

/// The parts of a program's image that its processes share.
fn ranges(item: &Item) -> impl Iterator<Item = (ImageRange, &'static [u8])> {
    let shared = item
        .bundle
        .segments()
        .filter(|s| is_of_group(s.write, s.va));
    shared.map(|s| {
        let range = ImageRange {
            start: s.va,
            len: s.mem_len.next_multiple_of(PAGE_SIZE),
            filled: filled_pages(&s) * PAGE_SIZE,
        };
        (range, s.bytes)
    })
}

impl Builder {
    /// Builds a group. Gives the process where the program starts, and the rest.
    pub fn group(
        &mut self,
        services: &mut Services<'_>,
        schedule: &mut Schedule,
    ) -> Done<(Guest, Group)> {
        let item = self.archive.at(PROGRAM_ITEM)?;
        let mut peers = [const { None }; MAX_NODES];
        for node in self.nodes() {
            peers[node.index()] = Some(self.peer(node, &item)?);
        }
        self.rings(&mut peers)?;
        let mut all = [const { None }; MAX_NODES];
        for node in self.nodes() {
            let peer = peers[node.index()].as_mut();
            let peer = peer.ok_or(Error::NoSuchNode).during("a peer")?;
            let process = self.process((node, &item), peer, services, schedule);
            all[node.index()] = Some(process.map_err(|t| t.of(item.name))?);
        }
        let mut group = Group {
            peers: [const { None }; MAX_NODES],
            others: [const { None }; MAX_NODES],
            told: [false; MAX_NODES],
        };
        let mut first = None;
        // What is left is for pages.
        for node in self.nodes() {
            let (Some(mut peer), Some((mut process, thread))) =
                (peers[node.index()].take(), all[node.index()].take())
            else {
                continue;
            };
            let blocks = self.pages(&mut peer, &mut process)?;
            self.setup(&mut peer, &item, blocks)?;
            let (threads, entry) = self.actor(&mut peer, services.sched, schedule)?;
            group.peers[node.index()] = Some(Peer {
                program: peer,
                entry,
                threads,
                blocks,
            });
            group.others[node.index()] = Some(process);
            if node == HOME {
                first = Some(thread);
            }
        }
        let first = group.others[HOME.index()].take().zip(first);
        let (mut program, thread) = first.ok_or(Error::NoSuchNode).during("the first process")?;
        let planted = self.plant(&mut program, group.others.iter_mut().flatten());
        planted.during("a page for a test")?;
        let guest = Guest {
            program,
            name: item.name,
            thread,
        };
        Ok((guest, group))
    }

    /// Gives another process a page of the first one's, if a test asks for that: separation must then be found to be broken.
    fn plant<'a>(
        &mut self,
        first: &mut Program,
        mut others: impl Iterator<Item = &'a mut Program>,
    ) -> dyad_abi::Result<()> {
        let (_, env) = dyad_sys::texts(self.info);
        if !env.split('\t').any(|v| v == PLANT) {
            return Ok(());
        }
        let other = others.next().ok_or(Error::NoSuchNode)?;
        let (frame, _) = self.store.user(first.home.index(), &mut first.user, 1)?;
        let isas = other.isas;
        other.map(&mut self.store, isas, PLANTED, (frame, 0), Access::Read)
    }

    fn placement(&self, node: NodeId) -> Placement {
        Placement {
            home: node,
            isas: self.isas_at(node),
        }
    }

    /// The peer of a node, without its memory for pages.
    fn peer(&mut self, node: NodeId, program: &Item) -> Done<Program> {
        let item = self.archive.find("peer")?;
        let image: u64 = match node {
            HOME => ranges(program).map(|(r, _)| r.filled / PAGE_SIZE).sum(),
            _ => 0,
        };
        let nodes = self.nodes().count() as u64;
        let rings = nodes * RING_PAGES;
        let needs = Needs {
            objects: 512 + rings,
            pages: 64 + 2 * (rings + image),
            leaves: peer::slot::LEAVES,
        };
        let reserved = SERVED.frames(INIT_THREADS) + SERVED.frames(MAX_PROGRAM_THREADS);
        let frames = zero_pages(&item.bundle) + SERVICE_SUPPLY + reserved;
        let supply = |n: NodeId| if n == node { frames } else { 0 };
        let rights = |n: NodeId| match n == node {
            true => HardwareOp::Write.right(),
            false => Rights::NONE,
        };
        let mut p = self
            .any(
                (peer_on(node), &needs),
                &item,
                (Given::default(), self.placement(node)),
                Some(&supply),
                rights,
            )
            .map_err(|t| t.of(item.name))?;
        p.unreserved = reserved;
        p.component.set_home([node]).during("home of a peer")?;
        p.admit(dyad_abi::service::program::INIT)
            .during("stacks of invocations")?;
        p.admit(process_on(node)).during("stacks of invocations")?;
        p.connect(slot::PROCESS, &self.window.own, INVOKE)?;
        self.faults_to_init(&p)?;
        let endpoints = self.endpoints(&mut p)?;
        for n in 0..MAX_PROGRAM_THREADS {
            endpoints
                .make_send(n, p.place(peer::slot::waiter(n)), 1)
                .during("waking threads")?;
        }
        Ok(p)
    }

    /// Rings between all peers: each lies in the pool of the node that reads it, or in the CXL pool. That from a node to
    /// itself has the words by which its actor sleeps.
    fn rings(&mut self, peers: &mut [Option<Program>; MAX_NODES]) -> Done<()> {
        for from in self.nodes() {
            for to in self.nodes() {
                let sleep = from == to;
                let pages = if sleep { 1 } else { RING_PAGES };
                for page in 0..pages {
                    let va = ring(from, to) + page * PAGE_SIZE;
                    self.ring_page(peers, (from, to), va)
                        .during("rings of peers")?;
                }
            }
        }
        Ok(())
    }

    fn ring_page(
        &mut self,
        peers: &mut [Option<Program>; MAX_NODES],
        (from, to): (NodeId, NodeId),
        va: u64,
    ) -> dyad_abi::Result<()> {
        let store = &mut self.store;
        let reader = peers[to.index()].as_mut().ok_or(Error::NoSuchNode)?;
        let in_cxl = self.info.ring_place == RingPlace::Cxl as u64;
        let (pool, frames) = match in_cxl {
            true => (CXL, &mut reader.objects),
            false => (to.index(), &mut reader.user),
        };
        let (frame, _): (Cap<Frame>, u64) = store.user(pool, frames, 1)?;
        for node in NodeId::first(MAX_NODES) {
            // All look whether an actor sleeps.
            let is_end = node == from || node == to || from == to;
            if let Some(peer) = peers[node.index()].as_mut().filter(|_| is_end) {
                let isas = peer.isas;
                peer.map(store, isas, va, (frame, 0), Access::Write)?;
            }
        }
        Ok(())
    }

    /// A process, connected to its peer.
    fn process(
        &mut self,
        (node, item): (NodeId, &Item),
        peer: &mut Program,
        services: &mut Services<'_>,
        schedule: &mut Schedule,
    ) -> Done<(Program, Cap<Thread>)> {
        let number = process_on(node);
        let own = &mut self.window.own;
        own.admit(number).during("stacks of invocations")?;
        let (args, env) = dyad_sys::texts(self.info);
        let given = Given {
            args,
            env,
            input: self.archive.input()?,
            process: true,
        };
        let needs = Needs {
            pages: GUEST_NEEDS.pages + (given.input.len() as u64).div_ceil(PAGE_SIZE),
            ..GUEST_NEEDS
        };
        let place = self.placement(node);
        let mut p = self.any((number, &needs), item, (given, place), None, |_| {
            Rights::NONE
        })?;
        p.layout = process_on(HOME);
        p.component.set_home([node]).during("home of a process")?;
        let endpoints = self.endpoints(&mut p)?;
        for (index, door) in [(slot::PAGER, door::PAGER), (slot::PROCESS, door::PROCESS)] {
            p.connect_by(index, (peer, door | number), INVOKE)?;
        }
        let place = self.store.slot().during("slot")?;
        let handler = peer.entry_capability(place, door::FAULT | number, INVOKE)?;
        p.component
            .set_fault_handler(Some(handler))
            .during("fault handler")?;
        // What the launcher asks about threads is looked at in the first process; all learn which threads are lost.
        crate::ask::enter(
            &mut self.store,
            (number, process_on(HOME)),
            p.space,
            endpoints,
        )
        .during("requests to threads")?;
        self.console_of(&mut p, (node, peer), services)?;
        let rights = [
            SpaceOp::Map,
            SpaceOp::Unmap,
            SpaceOp::Protect,
            SpaceOp::Link,
            SpaceOp::Unlink,
            SpaceOp::Shootdown,
        ];
        let rights = rights
            .into_iter()
            .fold(Rights::NONE, |all, op| all.or(op.right()));
        peer.give(peer::slot::SPACE, p.space, rights)?;
        // Where its own pages are; it can change nothing by that.
        p.give(slot::SPACE, p.space, SpaceOp::Translate.right())?;
        // The actor starts threads of its process.
        let own = &mut self.window.own;
        own.admit(peer.number).during("stacks of invocations")?;
        peer.give(peer::slot::WAITS, endpoints, ReceiveOp::Receive.right())?;
        for n in 0..MAX_PROGRAM_THREADS {
            endpoints
                .make_send(n, peer.place(peer::slot::thread(n)), 1)
                .during("waking threads")?;
        }
        let thread = self.threads(
            &mut p,
            (services.sched, schedule),
            endpoints,
            (false, Some(peer)),
        )?;
        Ok((p, thread))
    }

    /// Text of a process: on the console's node it goes to the console, and elsewhere to the peer, which sends it to the
    /// peer of that node. That one writes it as its process.
    fn console_of(
        &mut self,
        p: &mut Program,
        (node, peer): (NodeId, &mut Program),
        services: &mut Services<'_>,
    ) -> Done<()> {
        if node.index() as u64 == self.info.console_node {
            let console = &mut *services.console;
            console.admit(peer.number).during("stacks of invocations")?;
            peer.connect_by(slot::CONSOLE, (console, p.number), INVOKE)?;
            self.connect_to_console(p, peer, console)
        } else {
            p.connect_by(slot::CONSOLE, (peer, door::CONSOLE | p.number), INVOKE)?;
            self.lone_buffer(p, peer)
        }
    }

    /// Gives a peer all that is left of its node's pool, and the process's page tables. Gives the number of blocks.
    fn pages(&mut self, peer: &mut Program, process: &mut Program) -> Done<u64> {
        let (store, pool) = (&mut self.store, peer.home.index());
        let tables = store
            .carve(pool, TABLE_FRAMES)
            .during("page tables of a process")?;
        let memory = store.supply(pool, &tables).during("page tables")?;
        peer.give(peer::slot::MEMORY, memory, Rights::ALL)?;
        // Its own table, to put tables' capabilities into.
        peer.give(slot::TABLE, peer.table, CaptblOp::Activate.right())?;
        process.supplies[pool] = Some(tables);
        let (start, len) = store.longest(pool).during("memory for pages")?;
        let whole = store.whole_blocks(pool, (start, len.saturating_sub(SPARE)), BLOCK_FRAMES);
        let (first, blocks) = whole.during("memory for pages")?;
        let blocks = blocks.min(peer::slot::BLOCKS.into());
        if blocks == 0 {
            return Err(Error::NoMemory).during("memory for pages");
        }
        if first > start {
            // What lies before the first whole block stays untyped, and without an owner.
            store
                .carve(pool, first - start)
                .during("memory for pages")?;
        }
        let mut arena = store
            .carve(pool, blocks * BLOCK_FRAMES)
            .during("memory for pages")?;
        process.lent[pool] = Some(arena);
        for n in 0..blocks {
            Builder::block(store, peer, (&mut arena, n)).during("memory for pages")?;
        }
        Ok(blocks)
    }

    /// Makes block `n` user memory and maps it in the window of a peer.
    fn block(
        store: &mut Store,
        peer: &mut Program,
        (arena, n): (&mut dyad_services::frames::Arena, u64),
    ) -> dyad_abi::Result<()> {
        let pool = *store.pool(peer.home.index());
        let order = BLOCK_FRAMES.ilog2();
        let at = arena.take(&pool, order)?;
        pool.cap.retype_user(at, order)?;
        let place = store.slot()?;
        let frame: Cap<Frame> = pool.cap.activate(at, place, Rights::ALL)?;
        peer.table.copy_in(
            peer::slot::block(n),
            frame,
            Rights::ALL,
            None,
            dyad_sys::cap::Narrow::ALL,
        )?;
        let va = WINDOW + n * BLOCK_FRAMES * PAGE_SIZE;
        peer.map_large(store, va, frame)
    }

    /// Tells a peer what it has.
    fn setup(&mut self, peer: &mut Program, item: &Item, blocks: u64) -> Done<()> {
        let mut setup = Setup {
            blocks,
            table_frames: TABLE_FRAMES,
            range_count: 0,
            entry: item.bundle.entry(),
            ranges: [ImageRange::default(); MAX_RANGES],
        };
        let mut image = IMAGE;
        for (n, (range, bytes)) in ranges(item).enumerate() {
            let place = setup.ranges.get_mut(n).ok_or(Error::Full);
            *place.during("parts of the image")? = range;
            setup.range_count += 1;
            if peer.home == HOME {
                peer.pages(&mut self.store, &mut self.window, image, bytes)
                    .during("the program's data")?;
            }
            image += range.filled;
        }
        peer.page(&mut self.store, &mut self.window, SETUP, false, |page| {
            // SAFETY: 1. `Setup` is a structure of integers without padding, as its size says. 2. The reference lives
            // longer than the slice.
            let bytes = unsafe {
                core::slice::from_raw_parts((&raw const setup).cast::<u8>(), size_of::<Setup>())
            };
            page[..bytes.len()].copy_from_slice(bytes);
        })
        .during("what a peer has")
    }

    /// The threads of a peer, where they wait, and init's entry.
    fn actor(
        &mut self,
        peer: &mut Program,
        sched: &Program,
        schedule: &mut Schedule,
    ) -> Done<(Threads, Cap<Sinv>)> {
        let node = peer.home.index() as u64;
        let polls = self.info.transport == Transport::Poll as u64;
        let mut threads = [None; 2];
        for (n, number, argument, entry) in [
            (0, thread::PEER, node, PEER_ENTRY),
            (1, thread::POLLER, node | POLLS, POLLER_ENTRY),
        ] {
            if n == 1 && !polls {
                continue;
            }
            let number = number + node as u32;
            let isas = peer.isas;
            let made = peer
                .thread(
                    &mut self.store,
                    n,
                    isas,
                    (INFO_BASE | argument, sched::tag(number)),
                    Some(schedule.endpoints),
                )
                .during("thread of a peer")?;
            schedule.enter(sched, (number, 1 << number), made, entry)?;
            threads[n as usize] = Some(made);
        }
        Ok((threads, self.own_entry(peer)?))
    }

    /// Where actors wait, and who wakes them: all peers.
    pub fn doorbells(&mut self, group: &mut Group) -> Done<()> {
        for node in self.nodes() {
            let Some(objects) = group.peers[node.index()]
                .as_mut()
                .map(|p| &mut p.program.objects)
            else {
                continue;
            };
            let endpoints: Cap<Receive> = self
                .store
                .object(objects, ObjectKind::Endpoints)
                .during("endpoints of a peer")?;
            for peer in group.peers.iter().flatten().map(|p| &p.program) {
                let place = peer.place(peer::slot::doorbell(node));
                let _: Cap<Send> = endpoints
                    .make_send(0, place, 1)
                    .during("doorbell of a peer")?;
                if peer.home == node {
                    peer.give(peer::slot::ACTOR, endpoints, ReceiveOp::Receive.right())?;
                }
            }
        }
        Ok(())
    }
}

impl Program {
    /// Maps a block of 2 MiB in this program.
    fn map_large(&mut self, store: &mut Store, va: u64, frame: Cap<Frame>) -> dyad_abi::Result<()> {
        for isa in crate::program::isas_of(self.isas) {
            self.tables_from(store, (isa, 2), va)?;
            // SAFETY: 1. The space is that of another program.
            unsafe {
                self.space
                    .map(TableAt { isa, level: 2 }, va, frame, 0, Access::Write)?;
            }
        }
        Ok(())
    }
}
