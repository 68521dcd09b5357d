//! A program under construction: capability table, address space, component, threads.

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance_mut;

use dyad_abi::bundle::{Bundle, Scope, Segment};
use dyad_abi::cap::{CapIndex, ObjectKind, ROOT_ENTRIES, RegionKind, Rights, Stripes, TableAt};
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::{
    INIT_THREADS, INVOKE_STACK_STRIDE, INVOKE_STACKS, SERVED, SERVED_BY_INIT, Served, invoke_stack,
    program, sched, slot, thread_id,
};
use dyad_abi::user::{
    HEAP_END, MAX_PROGRAM_THREADS, PAGE_SIZE, SHARED_BASE, stack_slot, tcb_address,
};
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_services::frames::Arena;
pub use dyad_services::image::isas_of;
use dyad_services::image::{Regions, filled_pages, is_seen, table_kind};
use dyad_sys::cap::{
    Access, Cap, Captbl, Component, Frame, Kind, Narrow, PageTable, Place, Receive, Sinv, Space,
    Thread, ThreadSetup,
};

use crate::emulate::Texts;
use crate::memory::{CXL, Store};
use crate::trouble::{Done, During};

/// The node where programs start, whose pool has their images, but for those of a group.
pub const HOME: NodeId = NodeId::new(0).unwrap();
/// Most page tables that init links into one address space.
const MAX_LINKED: usize = 160;
/// Most attempts at a mapping that another node is in the way of.
const TRIES: u32 = 1_000_000;
const PAGE: usize = PAGE_SIZE as usize;

/// The page tables that init has linked into an address space.
struct Linked {
    keys: [u64; MAX_LINKED],
    used: usize,
}

impl Linked {
    const fn key(at: TableAt, va: u64) -> u64 {
        va >> (12 + 9 * at.level as u32) << 8 | at.bits() >> 8 << 1 | at.isa as u64
    }

    fn has(&self, at: TableAt, va: u64) -> bool {
        self.keys[..self.used].contains(&Linked::key(at, va))
    }

    fn note(&mut self, at: TableAt, va: u64) -> Result<()> {
        *self.keys.get_mut(self.used).ok_or(Error::Full)? = Linked::key(at, va);
        self.used += 1;
        Ok(())
    }
}

/// A program.
pub struct Program {
    /// Its number, which is its badge at services.
    pub number: u64,
    /// The number by which stacks and control blocks of its threads are found: of all processes of a group that of the
    /// first.
    pub layout: u64,
    /// The node whose pool has its image.
    pub home: NodeId,
    /// ISAs of the system, by bit.
    pub isas: u8,
    /// Frames for kernel objects, in the CXL pool.
    pub objects: Arena,
    /// Frames for its image, in the pool of its home.
    pub user: Arena,
    /// Frames of the supply of each node on which it serves that are not reserved for a client.
    pub unreserved: u64,
    /// Frames for what its faults need, by node.
    pub supplies: [Option<Arena>; MAX_NODES],
    /// Blocks that it can be given, by pool.
    pub lent: [Option<Arena>; MAX_NODES + 1],
    /// Root of its capability table.
    pub table: Cap<Captbl>,
    /// Its address space.
    pub space: Cap<Space>,
    /// The component.
    pub component: Cap<Component>,
    /// Where its threads start.
    pub entry: u64,
    /// Where invocations enter.
    pub invoked: Option<u64>,
    linked: Linked,
    /// What its ISAs do not share.
    pub texts: Texts,
}

/// Where a program is.
#[derive(Clone, Copy)]
pub struct Placement {
    /// The node whose pool has its image.
    pub home: NodeId,
    /// ISAs for which it has page tables, by bit.
    pub isas: u8,
}

/// What a program is made of that is not there before.
pub struct Needs {
    /// Frames for kernel objects.
    pub objects: u64,
    /// Pages beside the image.
    pub pages: u64,
    /// Leaves of the capability table.
    pub leaves: u32,
}

impl Program {
    /// A program that the kernel has made: init itself. It has supplies and stacks of invocations.
    pub fn existing(
        store: &mut Store,
        parts: (Cap<Captbl>, Cap<Space>, Cap<Component>),
        bundle: &Bundle<'_>,
        needs: &Needs,
        isas: u8,
    ) -> Done<Program> {
        Ok(Program {
            number: program::INIT,
            layout: program::INIT,
            home: HOME,
            isas,
            objects: store.carve(CXL, needs.objects).during("frames")?,
            user: store.carve(HOME.index(), needs.pages).during("frames")?,
            unreserved: 0,
            supplies: [None; MAX_NODES],
            lent: [None; MAX_NODES + 1],
            table: parts.0,
            space: parts.1,
            component: parts.2,
            entry: bundle.entry(),
            invoked: bundle.invoked(),
            linked: Linked {
                keys: [0; MAX_LINKED],
                used: 0,
            },
            texts: Texts::new(),
        })
    }

    /// An empty program.
    pub fn new(
        store: &mut Store,
        number: u64,
        bundle: &Bundle<'_>,
        needs: &Needs,
        place: Placement,
    ) -> Done<Program> {
        let Placement { home, isas } = place;
        let image: u64 = bundle
            .segments()
            .filter(|s| is_seen(s, isas))
            // Blocks are aligned, which can cost as much again.
            .map(|s| 2 * filled_pages(&s))
            .sum();
        let mut objects = store.carve(CXL, needs.objects).during("frames")?;
        let user = store
            .carve(home.index(), image + needs.pages)
            .during("frames of the image")?;
        let table: Cap<Captbl> = store
            .object(&mut objects, ObjectKind::CaptblRoot)
            .during("capability table")?;
        // Those of a program that is no service have capabilities to its threads in the last two.
        let last = match number {
            program::FIRST.. => ROOT_ENTRIES - 2..ROOT_ENTRIES,
            _ => 0..0,
        };
        for entry in (0..needs.leaves).chain(last) {
            let leaf = store
                .object(&mut objects, ObjectKind::CaptblLeaf)
                .during("capability table")?;
            table.cons(entry, leaf).during("capability table")?;
        }
        let space: Cap<Space> = store
            .object(&mut objects, ObjectKind::Space)
            .during("address space")?;
        for isa in isas_of(isas) {
            let at = TableAt { isa, level: 4 };
            let root: Cap<PageTable> = table_kind(at)
                .and_then(|kind| store.object(&mut objects, kind))
                .during("page table")?;
            space.link(at, 0, root).during("root of the page table")?;
        }
        let component: Cap<Component> = store
            .object(&mut objects, ObjectKind::Component)
            .during("component")?;
        component.configure(table, space).during("component")?;
        Ok(Program {
            number,
            layout: number,
            home,
            isas,
            objects,
            user,
            unreserved: 0,
            supplies: [None; MAX_NODES],
            lent: [None; MAX_NODES + 1],
            table,
            space,
            component,
            entry: bundle.entry(),
            invoked: bundle.invoked(),
            linked: Linked {
                keys: [0; MAX_LINKED],
                used: 0,
            },
            texts: Texts::new(),
        })
    }

    /// Copies a capability of init into this program's table.
    pub fn give<T: Kind>(&self, index: CapIndex, cap: Cap<T>, rights: Rights) -> Done<Cap<T>> {
        self.table
            .copy_in(index, cap, rights, None, Narrow::ALL)
            .during("giving a capability")
    }

    /// A place in this program's table.
    pub fn place(&self, index: CapIndex) -> Place {
        Place::of(self.table, index)
    }

    /// Makes a capability to invoke this program.
    pub fn entry_capability(&self, place: Place, badge: u64, rights: Rights) -> Done<Cap<Sinv>> {
        let entry = self
            .invoked
            .ok_or(Error::BadBundle)
            .during("a service that cannot be invoked")?;
        // SAFETY: 1. The address is where invocations of that program enter, by its bundle.
        unsafe { self.component.make_sinv(place, entry, badge, rights) }
            .during("entry of a service")
    }

    /// Gives this program a capability to invoke `service`, with its number as the badge.
    pub fn connect(&self, index: CapIndex, service: &Program, rights: Rights) -> Done<()> {
        self.connect_by(index, (service, self.number), rights)
    }

    /// As [`connect`](Program::connect), with a badge.
    pub fn connect_by(
        &self,
        index: CapIndex,
        (service, badge): (&Program, u64),
        rights: Rights,
    ) -> Done<()> {
        let place = self.place(index);
        service.entry_capability(place, badge, rights).map(drop)
    }

    /// Gives faults on a node memory to be served from.
    pub fn supply(&mut self, store: &mut Store, node: NodeId, arena: Arena) -> Result<()> {
        let memory = store.supply(node.index(), &arena)?;
        self.space.supply(node, memory)?;
        self.supplies[node.index()] = Some(arena);
        Ok(())
    }

    /// Sees to it that the page tables for an address are there.
    pub fn tables(&mut self, store: &mut Store, isa: Isa, va: u64) -> Result<()> {
        self.tables_from(store, (isa, 1), va)
    }

    /// Sees to it that the page tables for an address are there, down to one whose entries are at a level.
    pub fn tables_from(
        &mut self,
        store: &mut Store,
        (isa, lowest): (Isa, u8),
        va: u64,
    ) -> Result<()> {
        for level in (lowest..=3).rev() {
            let at = TableAt { isa, level };
            if self.linked.has(at, va) {
                continue;
            }
            let table = store.object(&mut self.objects, table_kind(at)?)?;
            let start = va & !((PAGE_SIZE << (9 * u32::from(level))) - 1);
            match self.space.link(at, start, table) {
                // The kernel has linked one before: the frame stays unused.
                Ok(()) | Err(Error::Exists) => self.linked.note(at, va)?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Maps a page for some ISAs.
    pub fn map(
        &mut self,
        store: &mut Store,
        isas: u8,
        va: u64,
        (frame, page): (Cap<Frame>, u64),
        access: Access,
    ) -> Result<()> {
        for isa in isas_of(isas & self.isas) {
            self.tables(store, isa, va)?;
            let at = TableAt { isa, level: 1 };
            let mut tries = 0;
            // SAFETY: 1. The only own pages mapped here are those of `Window`, at addresses that
            // nothing else uses.
            while let Err(e) = unsafe { self.space.map(at, va, frame, page, access) } {
                tries += 1;
                if e != Error::Again || tries == TRIES {
                    return Err(e);
                }
                dyad_sys::raw::relax();
            }
        }
        Ok(())
    }

    /// Declares the regions of the image and fills it.
    pub fn load(
        &mut self,
        store: &mut Store,
        window: &mut Window,
        bundle: &Bundle<'_>,
        shared_by_group: bool,
    ) -> Done<()> {
        for r in Regions::of(bundle, self.isas).iter() {
            if shared_by_group && is_of_group(r.write, r.start) {
                continue;
            }
            self.space
                .add_region(r.start, r.len, r.kind, r.write)
                .during("region of the image")?;
        }
        let isas = self.isas;
        for s in bundle.segments().filter(|s| is_seen(s, isas)) {
            if shared_by_group && is_of_group(s.write, s.va) {
                continue;
            }
            self.load_segment(store, window, &s).during("segment")?;
        }
        Ok(())
    }

    fn load_segment(
        &mut self,
        store: &mut Store,
        window: &mut Window,
        s: &Segment<'_>,
    ) -> Result<()> {
        let isas = match s.scope {
            Scope::Shared => self.isas,
            Scope::Isa(isa) => 1 << isa.index(),
        };
        let access = match (s.write, s.exec) {
            (true, _) => Access::Write,
            (_, true) => Access::Execute,
            _ => Access::Read,
        };
        let mut chunks = s.bytes.chunks(PAGE);
        let mut va = s.va;
        let mut left = filled_pages(s);
        while left > 0 {
            let (frame, pages) = store.user(self.home.index(), &mut self.user, left)?;
            if let Scope::Isa(isa) = s.scope {
                self.texts.note(isa, va, frame, pages);
            }
            for (page, bytes) in (0..pages).zip(&mut chunks) {
                window.fill(store, (frame, page), |to| {
                    to[..bytes.len()].copy_from_slice(bytes);
                })?;
                self.map(store, isas, va, (frame, page), access)?;
                va += PAGE_SIZE;
            }
            left -= pages;
        }
        Ok(())
    }

    /// A page of its own with contents.
    pub fn page(
        &mut self,
        store: &mut Store,
        window: &mut Window,
        va: u64,
        write: bool,
        fill: impl FnOnce(&mut [u8; PAGE]),
    ) -> Result<()> {
        self.shared_page(store, window, va, write, fill).map(drop)
    }

    /// Maps pages in the program, read-only, with these bytes and zeros behind them. No bytes need no page.
    pub fn pages(
        &mut self,
        store: &mut Store,
        window: &mut Window,
        va: u64,
        bytes: &[u8],
    ) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let len = (bytes.len() as u64).next_multiple_of(PAGE_SIZE);
        self.space.add_region(va, len, RegionKind::Shared, false)?;
        for (va, bytes) in (va..).step_by(PAGE).zip(bytes.chunks(PAGE)) {
            let (frame, _) = store.user(self.home.index(), &mut self.user, 1)?;
            window.fill(store, (frame, 0), |page| {
                page[..bytes.len()].copy_from_slice(bytes);
            })?;
            self.map(store, self.isas, va, (frame, 0), Access::Read)?;
        }
        Ok(())
    }

    /// Maps the table of the scheduler in this program, which is that.
    pub fn table_of(
        &mut self,
        store: &mut Store,
        window: &mut Window,
        table: &[u64; sched::THREADS as usize],
    ) -> Result<()> {
        const WORDS: usize = PAGE / 8;
        for (va, words) in (sched::TABLE..).step_by(PAGE).zip(table.chunks(WORDS)) {
            self.page(store, window, va, false, |page| {
                for (at, word) in page.as_chunks_mut().0.iter_mut().zip(words) {
                    *at = word.to_le_bytes();
                }
            })?;
        }
        Ok(())
    }

    /// Maps a page in the program, and gives its frame for other programs to map.
    pub fn shared_page(
        &mut self,
        store: &mut Store,
        window: &mut Window,
        va: u64,
        write: bool,
        fill: impl FnOnce(&mut [u8; PAGE]),
    ) -> Result<Cap<Frame>> {
        self.space
            .add_region(va, PAGE_SIZE, RegionKind::Shared, write)?;
        let (frame, _) = store.user(self.home.index(), &mut self.user, 1)?;
        window.fill(store, (frame, 0), fill)?;
        let access = if write { Access::Write } else { Access::Read };
        self.map(store, self.isas, va, (frame, 0), access)?;
        Ok(frame)
    }

    /// Makes a thread of a service, with a stack for each ISA in `isas`. It is stopped.
    pub fn thread(
        &mut self,
        store: &mut Store,
        n: u64,
        isas: u8,
        (arg, tag): (u64, u32),
        scheduler: Option<Cap<Receive>>,
    ) -> Result<Cap<Thread>> {
        let id = thread_id(self.number, n);
        for isa in isas_of(isas) {
            let (bottom, top) = stack_slot(isa, id);
            self.space
                .add_region(bottom, top - bottom, RegionKind::Anonymous, true)?;
        }
        let thread: Cap<Thread> = store.object(&mut self.objects, ObjectKind::Thread)?;
        self.restart(thread, n, (arg, tag), scheduler)?;
        Ok(thread)
    }

    /// Has a thread that does not run begin at the entry, on the stack that it has.
    pub fn restart(
        &self,
        thread: Cap<Thread>,
        n: u64,
        (arg, tag): (u64, u32),
        scheduler: Option<Cap<Receive>>,
    ) -> Result<()> {
        let setup = ThreadSetup {
            component: self.component,
            entry: self.entry,
            arg,
            id: thread_id(self.number, n),
            layout: thread_id(self.layout, n),
            ids: Cap::at(slot::THREAD_IDS),
            tag,
            scheduler,
        };
        // SAFETY: 1. The entry is that of the component's bundle.
        unsafe { thread.configure(&setup) }
    }

    /// The control blocks of all threads it can have.
    ///
    /// A peer sees those of its process, at the same addresses.
    pub fn control_blocks(
        &mut self,
        store: &mut Store,
        window: &mut Window,
        mut peer: Option<&mut Program>,
    ) -> Result<()> {
        let first = tcb_address(thread_id(self.layout, 0));
        let len = MAX_PROGRAM_THREADS * PAGE_SIZE;
        self.space
            .add_region(first, len, RegionKind::Shared, true)?;
        let mut n = 0;
        while n < MAX_PROGRAM_THREADS {
            let left = MAX_PROGRAM_THREADS - n;
            let (frame, pages) = store.user(self.home.index(), &mut self.user, left)?;
            for page in 0..pages {
                let id = thread_id(self.layout, n);
                let va = tcb_address(id);
                // Address of itself, id; everything else is zero.
                window.fill(store, (frame, page), |block| {
                    block[..8].copy_from_slice(&va.to_le_bytes());
                    block[8..16].copy_from_slice(&u64::from(id).to_le_bytes());
                })?;
                self.map(store, self.isas, va, (frame, page), Access::Write)?;
                if let Some(peer) = &mut peer {
                    peer.map(store, self.isas, va, (frame, page), Access::Write)?;
                }
                n += 1;
            }
        }
        Ok(())
    }

    /// Makes room for invocations by the threads of another program: stacks, filled when they are
    /// used, from this program's supply. What they can take of it is reserved, so that a client takes nothing
    /// from others; how deep they are is the business of the entry
    /// ([`entry!`](dyad_services::entry)).
    ///
    /// # Errors
    ///
    /// `NoMemory` if that is more than is left of the supply; as the kernel says.
    pub fn admit(&mut self, number: u64) -> Result<()> {
        let frames = self.served().frames(callers(number));
        let left = self.unreserved.checked_sub(frames);
        let left = left.ok_or(Error::NoMemory)?;
        let (start, len) = invocations(number);
        let stripes = Stripes::new(INVOKE_STACK_STRIDE, self.served().stack);
        self.space
            .add_stacks(start, len, stripes.ok_or(Error::BadArgument)?)?;
        self.unreserved = left;
        Ok(())
    }

    /// What an invocation of it may cost.
    pub const fn served(&self) -> Served {
        match self.number {
            program::INIT => SERVED_BY_INIT,
            _ => SERVED,
        }
    }

    /// Maps the stack of the invocations of this service that a thread makes outside of others, so that it needs no
    /// memory when the thread comes.
    pub fn ready_stack(&mut self, store: &mut Store, isas: u8, id: u32) -> Result<()> {
        let (_, top) = invoke_stack(u64::from(id) << 8 | 1);
        for va in (top - self.served().stack..top).step_by(PAGE) {
            let (frame, _) = store.user(self.home.index(), &mut self.user, 1)?;
            self.map(store, isas, va, (frame, 0), Access::Write)?;
        }
        Ok(())
    }
}

/// Whether a part of an image is shared by the processes of a group, page by page: what the program may write.
pub const fn is_of_group(write: bool, start: u64) -> bool {
    write && start >= SHARED_BASE
}

/// Threads of a program that can invoke services.
const fn callers(number: u64) -> u64 {
    match number {
        program::INIT => INIT_THREADS,
        // The actor.
        program::PEER.. => INIT_THREADS,
        _ => MAX_PROGRAM_THREADS,
    }
}

/// Where the stacks of invocations by a program are, in every service: start and length.
pub const fn invocations(number: u64) -> (u64, u64) {
    let token = (thread_id(number, 0) as u64) << 8;
    let start = INVOKE_STACKS + token * INVOKE_STACK_STRIDE;
    (start, (callers(number) << 8) * INVOKE_STACK_STRIDE)
}

/// Where init looks at frames: each at an address that has not been used before, so that no old
/// translation is in the way.
pub struct Window {
    /// Init itself.
    pub own: Program,
    next: u64,
    isa: Isa,
}

impl Window {
    /// Not among the addresses of programs' heaps: the simulator knows pages of programs by these.
    const BASE: u64 = 2 * HEAP_END;
    const LEN: u64 = 1 << 30;

    /// The window, on the ISA that init runs on.
    pub fn new(own: Program, isa: Isa) -> Done<Window> {
        own.space
            .add_region(Window::BASE, Window::LEN, RegionKind::Shared, true)
            .during("window")?;
        Ok(Window {
            own,
            next: Window::BASE,
            isa,
        })
    }

    /// Gives a frame contents.
    pub fn fill(
        &mut self,
        store: &mut Store,
        frame: (Cap<Frame>, u64),
        fill: impl FnOnce(&mut [u8; PAGE]),
    ) -> Result<()> {
        let va = self.next;
        if va >= Window::BASE + Window::LEN {
            return Err(Error::Full);
        }
        self.next += PAGE_SIZE;
        let isa = 1 << self.isa.index();
        self.own.map(store, isa, va, frame, Access::Write)?;
        // SAFETY: 1. The page is mapped writable there, for this purpose alone. 2. No program has
        // the frame yet.
        fill(unsafe { &mut *with_exposed_provenance_mut::<[u8; PAGE]>(va as usize) });
        let at = TableAt {
            isa: self.isa,
            level: 1,
        };
        // SAFETY: 1. The only reference was passed to `fill`.
        unsafe { self.own.space.unmap(at, va) }.map(drop)
    }
}
