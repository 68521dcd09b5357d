//! The system: which programs there are, who may do what, and how it is set going.

mod going;

use dyad_abi::cap::{
    CapIndex, HardwareOp, ObjectKind, RegionKind, Rights, SinvOp, SpaceOp, Stripes, ThreadOp,
};
use dyad_abi::ident::{MAX_CPUS, MAX_NODES};
use dyad_abi::service::{
    CONSOLE_BUFFER, CONSOLE_THREADS, GRANTED_FRAMES, Grant, INFO_BASE, console_client, pager,
    program, sched, scheduler_line, slot, thread_id,
};
use dyad_abi::user::{
    DATA_STACK_SIZE, DATA_STACK_STRIDE, DATA_STACKS_BASE, MAX_PROGRAM_THREADS, PAGE_SIZE,
    STACK_SIZE, STACK_STRIDE, stack_slot,
};
use dyad_abi::{CpuId, Error, NodeId};
use dyad_sys::cap::{Access, Cap, Frame, Memory, Receive, Send, Sinv, Thread, ThreadIds, Time};

use crate::build::Builder;
use crate::group::Group;
use crate::memory::CXL;
use crate::program::{HOME, Program};
use crate::service::IN_SERVICE;
use crate::threads;
use crate::trouble::{Done, During};
use crate::wardens::{self, ASKED_BIT, NEWS, WARDEN_LINE};

/// Numbers of threads in the table of the scheduler.
pub mod thread {
    /// The first of `quiesced`, one per node.
    pub const QUIESCED: u32 = 1;
    /// Bit of the program, whose threads have larger numbers; those of the one beside it, or of the other processes of
    /// a group, follow.
    pub const PROGRAM: u32 = 16;
    /// The first of init's wardens, one per node. The last numbers of the table are no thread's: their
    /// bits at init's endpoint mean other things.
    pub const WARDEN: u32 = 32;
    /// The first of the peers' threads that poll, one per node.
    pub const POLLER: u32 = 40;
    /// The first of the peers, one per node.
    pub const PEER: u32 = 48;
}

/// Bit of the program's threads at init's endpoint; those of other programs follow.
const PROGRAM_ENDED: u64 = 1 << thread::PROGRAM;
/// Init's endpoints.
pub const ENDPOINT: Cap<Receive> = Cap::at(slot::ENDPOINT);
/// Endpoint line at which ended threads are reported.
pub const ENDED_LINE: u64 = 0;
/// Endpoint line at which init sleeps.
pub const SLEEP_LINE: u64 = 1;
/// In the argument of the warden of node 0, beside the address of the info page; that of others
/// follow.
pub const SERVE: u64 = 1;

/// The table of the scheduler. Threads with short work that others wait for go first.
/// Threads that begin and end, and what programs ask, wake the leader as often as programs please.
const WARDEN_ENTRY: u64 = sched::entry(62, 3_000, sched::SYSTEM_GROUP) | sched::ON_ALLOWANCE;
const QUIESCED_ENTRY: u64 = sched::entry(56, 2_000, sched::SYSTEM_GROUP);
/// Threads of a program share the time of one. On no node are those of two processes of a group.
const fn program_entry(number: u64) -> u64 {
    sched::entry(sched::PROGRAM_PRIORITY, 10_000, sched::group(number))
}

/// The first CPU of a node.
pub const FIRST: CpuId = CpuId::new(0).unwrap();
pub const INVOKE: Rights = SinvOp::Invoke.right();
/// Place of the program in the archive, behind init and the services; the one beside it follows.
pub const PROGRAM_ITEM: usize = 6;
/// Number of the program beside it.
pub const BESIDE: u64 = program::FIRST + 1;
/// Frames of a node's pool that a program beside the program has. The program has all that is left.
const BESIDE_SUPPLY: u64 = 4096;

/// A program that is no service.
pub struct Guest {
    /// The program.
    pub program: Program,
    /// Its name.
    pub name: &'static str,
    /// Its first thread.
    pub thread: Cap<Thread>,
}

/// The system that has been built.
pub struct System {
    /// Memory, and init itself.
    pub builder: Builder,
    /// The scheduler.
    sched: Program,
    /// Threads of the scheduler.
    roots: [[Option<Cap<Thread>>; MAX_CPUS]; MAX_NODES],
    /// The service that drives quiescence rounds.
    quiesced: Program,
    /// Threads of that service.
    rounds: [Option<Cap<Thread>>; MAX_NODES],
    /// Init's own, by node.
    wardens: [Option<Cap<Thread>>; MAX_NODES],
    /// The scheduler's endpoints.
    pub events: Cap<Receive>,
    /// The life of each node that all this was started for, and whether that has ended.
    pub lives: [(u32, bool); MAX_NODES],
    /// Nodes that have died.
    pub deaths: u32,
    /// The console service.
    pub console: Program,
    /// The pager.
    pub pager: Program,
    /// The program.
    pub guest: Guest,
    /// Another one beside it, until it has ended.
    pub beside: Option<Guest>,
    /// What belongs to the program on the other nodes, if the kernels only exchange messages.
    pub group: Option<Group>,
    /// Invokes the console as init.
    pub to_console: Cap<Sinv>,
    /// Invokes the pager as init.
    pub to_pager: Cap<Sinv>,
}

/// What every program is connected to.
pub struct Services<'a> {
    /// The console.
    pub console: &'a mut Program,
    pager: &'a mut Program,
    /// The scheduler.
    pub sched: &'a Program,
}

/// Where scheduled threads are entered.
pub struct Schedule {
    table: [u64; sched::THREADS as usize],
    /// The scheduler's endpoints.
    pub endpoints: Cap<Receive>,
}

impl Schedule {
    /// Tells the scheduler of a thread: capability, priority, and the bit by which its end is reported.
    pub fn enter(
        &mut self,
        to: &Program,
        (n, bit): (u32, u64),
        thread: Cap<Thread>,
        entry: u64,
    ) -> Done<()> {
        let rights = ThreadOp::Dispatch
            .right()
            .or(ThreadOp::Resume.right())
            .or(ThreadOp::Deadline.right())
            .or(ThreadOp::Stop.right());
        to.give(CapIndex(sched::tag(n)), thread, rights)?;
        ENDPOINT
            .make_send(ENDED_LINE, to.place(sched::ended(n)), bit)
            .during("reporting ends of threads")?;
        self.table[n as usize] = entry;
        Ok(())
    }
}

impl Builder {
    /// Builds everything. Nothing runs yet.
    pub fn system(mut self) -> Done<System> {
        let device = NodeId::new(self.info.console_node)
            .ok_or(Error::BadArgument)
            .during("node of the console")?;
        // For what a service has to say when it cannot go on.
        let last_words = HardwareOp::Write.right();
        let writes = last_words.or(HardwareOp::Report.right());
        // For services with locks: whether a holder is still inside.
        let inside = HardwareOp::Inside.right();
        let mut sched = self.service(program::SCHED, "sched", |_| last_words)?;
        let mut console =
            self.service(program::CONSOLE, "console", |node| match node == device {
                true => writes.or(inside),
                false => inside,
            })?;
        let mut pager = self.service(program::PAGER, "pager", |_| last_words.or(inside))?;
        let mut quiesced = self.service(program::QUIESCED, "quiesced", |_| {
            last_words.or(HardwareOp::FlushStep.right())
        })?;
        console
            .component
            .set_home([device])
            .during("home of the console")?;
        pager.connect(slot::PROCESS, &self.window.own, INVOKE)?;
        self.own_invocations([&mut console, &mut pager])?;

        let mut schedule = Schedule {
            table: [0; sched::THREADS as usize],
            endpoints: self.endpoints(&mut sched)?,
        };
        let wardens = self.wardens(&sched, &mut schedule)?;
        let rounds = self.quiesced_threads(&mut quiesced, &sched, &mut schedule)?;

        let mut services = Services {
            console: &mut console,
            pager: &mut pager,
            sched: &sched,
        };
        // First whose memory is fixed.
        let multiple = self.is_multiple();
        let beside = match self.archive.has(PROGRAM_ITEM + 1) {
            true if multiple => {
                return Err(Error::BadArgument).during("a program beside a group");
            }
            true => Some(self.guest(BESIDE, &mut services, &mut schedule)?),
            false => None,
        };
        let (guest, group) = match multiple {
            true => {
                let (guest, mut group) = self.group(&mut services, &mut schedule)?;
                self.doorbells(&mut group)?;
                (guest, Some(group))
            }
            false => (
                self.guest(program::FIRST, &mut services, &mut schedule)?,
                None,
            ),
        };
        let to_console = self.own_entry(&console)?;
        let to_pager = self.own_entry(&pager)?;
        let table = schedule.table;
        let (store, window) = (&mut self.store, &mut self.window);
        sched
            .table_of(store, window, &table)
            .during("table of the scheduler")?;
        crate::emulate::hold_words(store, window, &mut sched).during("threads that are held")?;
        if let Some(group) = &group {
            group.set_going()?;
        }
        // Peers start the threads of their processes.
        let alone = group.is_none().then_some(&guest);
        for guest in [alone, beside.as_ref()].into_iter().flatten() {
            let resumed = guest.thread.resume();
            resumed.during("making a thread ready")?;
        }
        for threads in [wardens, rounds] {
            for (node, thread) in self.nodes().zip(threads.into_iter().flatten()) {
                thread
                    .resume_on(node, FIRST)
                    .during("making a thread ready")?;
            }
        }
        let at_start = &self.info.system.nodes;
        Ok(System {
            lives: core::array::from_fn(|n| (at_start[n].incarnation, false)),
            builder: self,
            sched,
            roots: [[None; MAX_CPUS]; MAX_NODES],
            quiesced,
            rounds,
            wardens,
            events: schedule.endpoints,
            deaths: 0,
            console,
            pager,
            guest,
            beside,
            group,
            to_console,
            to_pager,
        })
    }

    /// Init's own threads, and how they hear of nodes. Each has a stack for every ISA: one whose node dies before it
    /// has begun there begins wherever recovery has sent it.
    fn wardens(
        &mut self,
        sched: &Program,
        schedule: &mut Schedule,
    ) -> Done<[Option<Cap<Thread>>; MAX_NODES]> {
        let mut threads = [None; MAX_NODES];
        for node in self.nodes() {
            let n = node.index() as u64;
            let number = thread::WARDEN + node.index() as u32;
            let isas = self.isas;
            let thread = self
                .window
                .own
                .thread(
                    &mut self.store,
                    SERVE + n,
                    isas,
                    (INFO_BASE | (SERVE + n), sched::tag(number)),
                    Some(schedule.endpoints),
                )
                .during("thread of init")?;
            schedule.enter(sched, (number, 1 << number), thread, WARDEN_ENTRY)?;
            let news = self.news(WARDEN_LINE + n)?;
            wardens::enter(node, thread, news);
            threads[node.index()] = Some(thread);
        }
        let news = self.news(ENDED_LINE)?;
        let asks = self.tells(ENDED_LINE, ASKED_BIT)?;
        wardens::appoint(HOME, news, asks).during("news of nodes")?;
        Ok(threads)
    }

    /// Sends news of nodes to a line of init's endpoints.
    fn news(&mut self, line: u64) -> Done<Cap<Send>> {
        self.tells(line, NEWS)
    }

    /// Sends a bit to a line of init's endpoints.
    fn tells(&mut self, line: u64, bit: u64) -> Done<Cap<Send>> {
        let place = self.store.slot().during("slot")?;
        ENDPOINT
            .make_send(line, place, bit)
            .during("news for the wardens")
    }

    /// A thread for every node, and its right to drive the rounds there. Stacks are as those of wardens.
    fn quiesced_threads(
        &mut self,
        quiesced: &mut Program,
        sched: &Program,
        schedule: &mut Schedule,
    ) -> Done<[Option<Cap<Thread>>; MAX_NODES]> {
        self.endpoints(quiesced)?;
        let mut threads = [None; MAX_NODES];
        for node in self.nodes() {
            let n = node.index() as u64;
            let number = thread::QUIESCED + node.index() as u32;
            let isas = self.isas;
            let thread = quiesced
                .thread(
                    &mut self.store,
                    n,
                    isas,
                    (INFO_BASE | n, sched::tag(number)),
                    Some(schedule.endpoints),
                )
                .during("thread of quiesced")?;
            let rights = ThreadOp::Migrate.right().or(ThreadOp::Yield.right());
            let index = CapIndex(slot::FIRST_FREE.get() + n as u32);
            quiesced.give(index, thread, rights)?;
            schedule.enter(sched, (number, 1 << number), thread, QUIESCED_ENTRY)?;
            threads[node.index()] = Some(thread);
        }
        Ok(threads)
    }

    /// A program that is no service, connected to them.
    fn guest(
        &mut self,
        number: u64,
        services: &mut Services<'_>,
        schedule: &mut Schedule,
    ) -> Done<Guest> {
        let item = self
            .archive
            .at(PROGRAM_ITEM + (number - program::FIRST) as usize)?;
        let (program, thread) = self
            .connected(number, &item, services, schedule)
            .map_err(|t| t.of(item.name))?;
        Ok(Guest {
            program,
            name: item.name,
            thread,
        })
    }

    fn connected(
        &mut self,
        number: u64,
        item: &crate::build::Item,
        services: &mut Services<'_>,
        schedule: &mut Schedule,
    ) -> Done<(Program, Cap<Thread>)> {
        let Services {
            console,
            pager,
            sched,
        } = services;
        // What services need for it is theirs: it is not given back when the program ends.
        for service in [&mut **console, &mut **pager, &mut self.window.own] {
            service.admit(number).during("stacks of invocations")?;
        }
        self.console_tables(number, console)?;
        // Before the program's supplies, which are all that is left.
        let (granted, supply) = match number {
            program::FIRST => (self.granted()?, None),
            _ => (None, Some(BESIDE_SUPPLY)),
        };
        let mut p = self.program(number, item, supply)?;
        let endpoints = self.endpoints(&mut p)?;
        crate::ask::enter(&mut self.store, (number, number), p.space, endpoints)
            .during("requests to threads")?;
        p.connect(slot::CONSOLE, console, INVOKE)?;
        p.connect(slot::PAGER, pager, INVOKE)?;
        p.connect(slot::PROCESS, &self.window.own, INVOKE)?;
        if granted.is_none() {
            p.give(slot::SPACE, p.space, SpaceOp::Translate.right())?;
        }
        let rights = SpaceOp::AddRegion
            .right()
            .or(SpaceOp::RemoveRegion.right())
            .or(SpaceOp::Reclaim.right())
            .or(SpaceOp::Shootdown.right());
        pager.give(pager::space(number), p.space, rights)?;
        self.fault_handler(&p, pager)?;
        self.console_buffer(&mut p, console, None)?;
        let thread = self.threads(
            &mut p,
            (sched, schedule),
            endpoints,
            (granted.is_some(), None),
        )?;
        if let Some(memory) = granted {
            grant_all(&p, thread, memory)?;
        }
        Ok((p, thread))
    }

    /// Regions for the stacks of all threads that a program can have.
    fn stacks(&mut self, p: &Program) -> Done<()> {
        let (first, all) = (thread_id(p.number, 0), MAX_PROGRAM_THREADS);
        let native = Stripes::new(STACK_STRIDE, STACK_SIZE);
        let data = Stripes::new(DATA_STACK_STRIDE, DATA_STACK_SIZE);
        let (native, data) = native
            .zip(data)
            .ok_or(Error::BadArgument)
            .during("form of stacks")?;
        for isa in crate::program::isas_of(self.isas) {
            let start = stack_slot(isa, first).1 - STACK_STRIDE;
            p.space
                .add_stacks(start, all * STACK_STRIDE, native)
                .during("stacks")?;
        }
        let start = DATA_STACKS_BASE + u64::from(first) * DATA_STACK_STRIDE;
        p.space
            .add_stacks(start, all * DATA_STACK_STRIDE, data)
            .during("data stacks")
    }

    /// All the threads that a program can have, with their stacks and control blocks. Gives the first. For stacks of a
    /// process, its peer has the memory, and starts the threads.
    pub fn threads(
        &mut self,
        p: &mut Program,
        (sched, schedule): (&Program, &mut Schedule),
        endpoints: Cap<Receive>,
        (granted, peer): (bool, Option<&mut Program>),
    ) -> Done<Cap<Thread>> {
        let (number, all) = (p.number, MAX_PROGRAM_THREADS);
        let by_peer = peer.is_some();
        if !by_peer {
            self.stacks(p)?;
        }
        let (store, window) = (&mut self.store, &mut self.window);
        p.control_blocks(store, window, peer)
            .during("thread control blocks")?;
        let guest = threads::of(number).during("threads")?;
        let rights = ThreadOp::Migrate
            .right()
            .or(ThreadOp::Jump.right())
            .or(ThreadOp::Load.right())
            .or(ThreadOp::Yield.right())
            .or(ThreadOp::Exit.right());
        let mut main = None;
        for n in 0..all {
            let thread: Cap<Thread> = store
                .object(&mut p.objects, ObjectKind::Thread)
                .during("thread")?;
            let scheduled = threads::scheduled(number, n);
            if n == 0 && !by_peer {
                let tag = sched::tag(scheduled);
                p.restart(thread, 0, (INFO_BASE, tag), Some(schedule.endpoints))
                    .during("thread")?;
            }
            if n != 0 || !granted {
                p.give(slot::thread(n), thread, rights)?;
            }
            endpoints
                .make_send(n, p.place(slot::wake(n)), 1)
                .during("waking threads")?;
            let bit = PROGRAM_ENDED << (number - program::FIRST);
            schedule.enter(sched, (scheduled, bit), thread, program_entry(p.layout))?;
            guest.enter_thread(n, thread);
            main = main.or(Some(thread));
        }
        guest.enter(p, schedule.endpoints, by_peer);
        main.ok_or(Error::Full).during("threads")
    }

    /// Memory of each pool for the program, if it is to be given [`Grant::All`].
    fn granted(&mut self) -> Done<Option<[Option<Cap<Memory>>; CXL + 1]>> {
        match Grant::from_number(self.info.grant) {
            Some(Grant::Nothing) => return Ok(None),
            Some(Grant::All) => {}
            None => {
                return Err(Error::BadArgument).during("a grant that this init does not know");
            }
        }
        let mut memory = [None; CXL + 1];
        for pool in self.nodes().map(NodeId::index).chain([CXL]) {
            let carved = self.store.carve(pool, GRANTED_FRAMES);
            let cap = carved.and_then(|frames| self.store.supply(pool, &frames));
            memory[pool] = Some(cap.during("memory to be granted")?);
        }
        Ok(Some(memory))
    }

    /// The stacks of init's own threads in the services, and where faults in services go: to init, which says what
    /// they were. Those of the wardens are there from now on, whatever clients do.
    fn own_invocations(&mut self, services: [&mut Program; 2]) -> Done<()> {
        self.supply_own()?;
        let (isas, nodes) = (self.isas, self.info.system.node_count as usize);
        let [console, pager] = services;
        for number in [program::CONSOLE, program::PAGER, program::INIT] {
            let place = self.store.slot().during("slot")?;
            let badge = IN_SERVICE + number;
            let own = &self.window.own;
            let handler = own.entry_capability(place, badge, INVOKE)?;
            let service = match number {
                program::CONSOLE => &mut *console,
                program::PAGER => &mut *pager,
                _ => &mut self.window.own,
            };
            service
                .admit(program::INIT)
                .during("stacks of invocations")?;
            for node in NodeId::first(nodes) {
                let id = thread_id(program::INIT, SERVE + node.index() as u64);
                service
                    .ready_stack(&mut self.store, isas, id)
                    .during("stacks of wardens")?;
            }
            service
                .component
                .set_fault_handler(Some(handler))
                .during("fault handler")?;
        }
        Ok(())
    }

    /// Faults of `p` go to the pager.
    fn fault_handler(&mut self, p: &Program, pager: &Program) -> Done<()> {
        let place = self.store.slot().during("slot")?;
        let badge = pager::FAULT | p.number;
        let handler = pager.entry_capability(place, badge, INVOKE)?;
        p.component
            .set_fault_handler(Some(handler))
            .during("fault handler")
    }

    /// A capability of init to invoke a service.
    pub fn own_entry(&mut self, service: &Program) -> Done<Cap<Sinv>> {
        let place = self.store.slot().during("slot")?;
        service.entry_capability(place, program::INIT, INVOKE)
    }

    fn console_tables(&mut self, number: u64, console: &mut Program) -> Done<()> {
        for isa in crate::program::isas_of(self.isas) {
            console
                .tables(&mut self.store, isa, console_client(number))
                .during("buffer of the console")?;
        }
        Ok(())
    }

    /// Connects a process to the console. Its peer sees the buffer, too.
    pub fn connect_to_console(
        &mut self,
        p: &mut Program,
        peer: &mut Program,
        console: &mut Program,
    ) -> Done<()> {
        console.admit(p.number).during("stacks of invocations")?;
        self.console_tables(p.number, console)?;
        p.connect(slot::CONSOLE, console, INVOKE)?;
        self.console_buffer(p, console, Some(peer))
    }

    /// Pages in the place of the buffer that others share with the console.
    pub fn lone_buffer(&mut self, p: &mut Program, peer: &mut Program) -> Done<()> {
        let len = CONSOLE_THREADS * PAGE_SIZE;
        p.space
            .add_region(CONSOLE_BUFFER, len, RegionKind::Shared, true)
            .during("buffer of the console")?;
        for page in 0..CONSOLE_THREADS {
            let frame = self.store.user(p.home.index(), &mut p.user, 1);
            let (frame, _) = frame.during("buffer of the console")?;
            let (isas, va) = (p.isas, CONSOLE_BUFFER + page * PAGE_SIZE);
            for program in [&mut *p, &mut *peer] {
                program
                    .map(&mut self.store, isas, va, (frame, 0), Access::Write)
                    .during("buffer of the console")?;
            }
        }
        Ok(())
    }

    /// Faults in a service go to init, which says what they were.
    pub fn faults_to_init(&mut self, service: &Program) -> Done<()> {
        let place = self.store.slot().during("slot")?;
        let badge = IN_SERVICE + service.number;
        let handler = self.window.own.entry_capability(place, badge, INVOKE)?;
        service
            .component
            .set_fault_handler(Some(handler))
            .during("fault handler")
    }

    /// Pages that `p` and the console share: written there, read here.
    fn console_buffer(
        &mut self,
        p: &mut Program,
        console: &mut Program,
        mut peer: Option<&mut Program>,
    ) -> Done<()> {
        let len = CONSOLE_THREADS * PAGE_SIZE;
        let there = console_client(p.number);
        let store = &mut self.store;
        let regions = [
            p.space
                .add_region(CONSOLE_BUFFER, len, RegionKind::Shared, true),
            console
                .space
                .add_region(there, len, RegionKind::Shared, false),
        ];
        for region in regions {
            region.during("buffer of the console")?;
        }
        let mut at = 0;
        while at < CONSOLE_THREADS {
            let (frame, pages): (Cap<Frame>, u64) = store
                .user(p.home.index(), &mut p.user, CONSOLE_THREADS - at)
                .during("buffer of the console")?;
            for page in 0..pages {
                let offset = at * PAGE_SIZE;
                let (isas, from) = (self.isas, (frame, page));
                p.map(store, isas, CONSOLE_BUFFER + offset, from, Access::Write)
                    .during("buffer of the console")?;
                if let Some(peer) = &mut peer {
                    peer.map(store, isas, CONSOLE_BUFFER + offset, from, Access::Write)
                        .during("buffer of the console")?;
                }
                console
                    .map(store, isas, there + offset, from, Access::Read)
                    .during("buffer of the console")?;
                at += 1;
            }
        }
        Ok(())
    }

    /// The ISA of a node, as a bit.
    pub fn isas_at(&self, node: NodeId) -> u8 {
        1 << self.info.system.nodes[node.index()].isa
    }
}

/// [`Grant::All`].
fn grant_all(p: &Program, thread: Cap<Thread>, memory: [Option<Cap<Memory>>; CXL + 1]) -> Done<()> {
    let all = Rights::ALL;
    p.give(slot::TABLE, p.table, all)?;
    p.give(slot::SPACE, p.space, all)?;
    p.give(slot::COMPONENT, p.component, all)?;
    p.give(slot::THREAD, thread, all)?;
    p.give(slot::TIME, Cap::<Time>::at(slot::TIME), all)?;
    p.give(
        slot::THREAD_IDS,
        Cap::<ThreadIds>::at(slot::THREAD_IDS),
        all,
    )?;
    for (pool, memory) in memory.into_iter().enumerate() {
        if let Some(memory) = memory {
            p.give(slot::memory(pool), memory, all)?;
        }
    }
    Ok(())
}

const _: () = assert!(
    (thread::PEER as usize) + MAX_NODES <= 62
        && (thread::WARDEN as usize) + MAX_NODES <= thread::PEER as usize
        && threads::scheduled(program::FIRST, 0) == 64
        && threads::scheduled(program::FIRST + threads::PROGRAMS as u64, 0) == sched::THREADS
        && threads::scheduled(BESIDE + 1, 0) == sched::HELD
        && sched::group(BESIDE) < sched::GROUPS
        && (thread::PROGRAM as usize) + threads::PROGRAMS <= thread::WARDEN as usize
        && (((1 << threads::PROGRAMS) - 1) * PROGRAM_ENDED) & (NEWS | ASKED_BIT) == 0
);
