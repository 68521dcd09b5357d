//! Threads that are moved wherever they are: `process::EMULATE`.
//!
//! ```text
//!   asked ──its time──▶ held: sched does not dispatch it ──▶ stopped ──▶ unloaded, by a warden of its ISA
//!                              │                                │            │
//!                              │ runs for too long              │ waits,     ▼
//!                              ▼                                │ or invokes: configured anew, resumed on
//!                            given up: goes on, outcome in its page ◀┘       its new node: PENDING
//! ```
//!
//! What asks only notes it, and has pages and windows mapped; the rest is the wardens' work, one step
//! whenever one of them looks. None of them waits for another: a list that somebody has is looked at again
//! later.
//!
//! | word | whose |
//! |---|---|
//! | list of requests | whoever has its lock, tried only |
//! | hold word of a thread | init's; sched reads it before it dispatches |
//! | page of a thread | by its status: init's, until that says `PENDING` or `RETURN` |

#![allow(unsafe_code)]

mod texts;

use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::{RegionKind, Stripes};
use dyad_abi::emulation::{
    self, PAGE_WORDS, Page, WINDOWS, other_text, ready, stack_pointer, status,
};
use dyad_abi::service::{INFO_BASE, sched, thread_id, thread_of_id};
use dyad_abi::user::{MAX_PROGRAM_THREADS, PAGE_SIZE};
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
use dyad_services::rt::{self, Call};
use dyad_sys::Lock;
use dyad_sys::cap::{Access, Cap, Frame, Thread, ThreadSetup};

use crate::memory::Store;
use crate::program::{HOME, Program, Window, isas_of};
use crate::service::with_system;
use crate::system::System;
use crate::takedown::unmap;
use crate::threads;
use crate::wardens;

pub use texts::Texts;

/// Where init sees the hold words of `sched`.
const HOLD: u64 = 0x1_D000_0000;
/// Where init sees the page of a thread of a program: this, and a page for each thread id.
const PAGES: u64 = 0x1_D100_0000;
/// Most requests at a time.
const MOST: usize = 8;
/// How long until a thread is looked at again that runs, or waits; longer each time, as it may be this
/// warden that keeps it from its CPU.
const LOOK_NS: u64 = 500_000;
/// How often that is doubled.
const DOUBLED: u32 = 6;
/// How often a thread that runs is looked at before it is left alone: many slices.
const PATIENCE: u32 = 60;
/// The same of one that waits or invokes, which is made to go on each time.
const RETRIES: u32 = 20;
/// The first CPU of a node.
const FIRST: CpuId = CpuId::new(0).unwrap();

/// A thread that is to be moved.
#[derive(Clone, Copy)]
struct Request {
    program: u64,
    thread: Cap<Thread>,
    setup: ThreadSetup,
    windows: [[[u64; 2]; WINDOWS]; dyad_abi::ident::ISA_COUNT],
    to: NodeId,
    /// When it is looked at next, by whichever warden.
    at: u64,
    runs: u32,
    waits: u32,
    /// ISAs whose wardens have found that it is not there.
    not_on: u8,
    stopped: bool,
}

static REQUESTS: Lock<[Option<Request>; MOST]> = Lock::new([None; MOST]);
/// Of each of them, the index of the thread's capability, 0 for none: for those who do not wait.
static MOVING: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// Whether a thread is being moved: it may be stopped without having ended.
pub fn is_moving(thread: Cap<Thread>) -> bool {
    let index = u64::from(thread.index().get());
    MOVING.iter().any(|m| m.load(Ordering::Acquire) == index)
}

/// What a step has led to.
enum Step {
    /// Nothing is left to do.
    Done,
    /// To be looked at again then.
    At(u64),
}

/// Makes the page of hold words, for `sched` and for init.
pub fn hold_words(store: &mut Store, window: &mut Window, sched: &mut Program) -> Result<()> {
    let frame = sched.shared_page(store, window, sched::HOLD, false, |_| {})?;
    own_page(store, window, HOLD, frame)
}

/// Maps a page of a program for init, too.
fn own_page(store: &mut Store, window: &mut Window, va: u64, frame: Cap<Frame>) -> Result<()> {
    let own = &mut window.own;
    own.space
        .add_region(va, PAGE_SIZE, RegionKind::Shared, true)?;
    own.map(store, own.isas, va, (frame, 0), Access::Write)
}

/// Keeps `sched` from dispatching a thread, or not any more.
fn hold(tag: u32, held: bool) {
    let words = with_exposed_provenance::<AtomicU64>(HOLD as usize);
    let n = tag.wrapping_sub(sched::tag(0)) as usize % (PAGE_SIZE / 8) as usize;
    // SAFETY: 1. The page is mapped writable from before the first request on, and has that many words.
    // 2. The words are atomic for all who use them.
    let word = unsafe { &*words.add(n) };
    word.store(held.into(), Ordering::Release);
}

/// The page of a thread, by its id, which is mapped.
struct Mapped(*mut Page);

impl Mapped {
    fn of(id: u32) -> Mapped {
        let va = PAGES + u64::from(id) * PAGE_SIZE;
        Mapped(with_exposed_provenance_mut(va as usize))
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: 1. The page is mapped writable: there is no request without it. 2. All access but that
        // to what is init's by its status is atomic. 3. The offset is that of a word of a `Page`.
        unsafe { &*self.0.byte_add(offset).cast::<AtomicU64>() }
    }

    fn status(&self) -> &AtomicU64 {
        self.word(core::mem::offset_of!(Page, status))
    }
}

/// Whether a page is init's.
const fn is_free(s: u64) -> bool {
    matches!(s, status::IDLE | status::LANDED | status::BACK)
}

/// `process::EMULATE`.
///
/// # Errors
///
/// `NotFound` if there is no such thread; `NotReady` if the program cannot interpret it; `NoSuchNode`,
/// `NodeDead`; `Exists` if the thread is asked for or interpreted already; `Again` if somebody else is
/// here; `Full`; as the kernel says.
pub fn ask(call: Call, [n, node, at]: [u64; 3]) -> Result<u64> {
    if thread_of_id(call.token >> 8).0 != call.badge {
        return Err(Error::Denied);
    }
    if node == u64::MAX {
        return with_system(|system| system.show(call.badge)).ok_or(Error::Again)?;
    }
    move_to(call.badge, n, node, at)
}

/// The same, by whoever asks for it.
///
/// # Errors
///
/// As [`ask`]; `NotFound` if there is no such program or thread.
pub fn move_to(program: u64, n: u64, node: u64, at: u64) -> Result<u64> {
    let guest = threads::of(program).map_err(|_| Error::NotFound)?;
    if !guest.runs(n) {
        return Err(Error::NotFound);
    }
    let to = NodeId::new(node).ok_or(Error::NoSuchNode)?;
    if !rt::hardware(HOME).node_state(to)?.is_live() {
        return Err(Error::NodeDead);
    }
    let request =
        with_system(|system| system.emulated(program, n, guest)).ok_or(Error::Again)??;
    let mut all = REQUESTS.try_lock().ok_or(Error::Again)?;
    let page = Mapped::of(thread_id(program, n));
    if !is_free(page.status().load(Ordering::Acquire)) {
        return Err(Error::Exists);
    }
    let (free, moving) = all
        .iter_mut()
        .zip(&MOVING)
        .find(|(r, _)| r.is_none())
        .ok_or(Error::Full)?;
    moving.store(request.thread.index().get().into(), Ordering::Release);
    page.word(core::mem::offset_of!(Page, outcome))
        .store(0, Ordering::Relaxed);
    page.status().store(status::ASKED, Ordering::Release);
    *free = Some(Request { to, at, ..request });
    drop(all);
    wardens::look_all();
    Ok(0)
}

/// A word of the page of a thread, before the registers.
///
/// # Errors
///
/// `NotFound` if there is no such program; `NotReady` if it cannot interpret its threads; `Again` if somebody
/// else is here; `BadArgument`.
pub fn look(program: u64, n: u64, word: u64) -> Result<u64> {
    threads::of(program).map_err(|_| Error::NotFound)?;
    if n >= MAX_PROGRAM_THREADS || word >= PAGE_WORDS {
        return Err(Error::BadArgument);
    }
    let seen = with_system(|system| {
        let (p, ..) = system.guest(program)?;
        match p.texts.shown {
            true => Ok(Mapped::of(thread_id(program, n))),
            false => Err(Error::NotReady),
        }
    });
    let page = seen.ok_or(Error::Again)??;
    Ok(page.word(word as usize * 8).load(Ordering::Acquire))
}

/// What a warden does of what is to be done, and when it is to look again.
pub fn attend(node: NodeId) -> Option<u64> {
    let now = rt::hardware(node).now().ok()?;
    let Some(mut all) = REQUESTS.try_lock() else {
        return Some(now + LOOK_NS);
    };
    let mut next = None::<u64>;
    for (slot, moving) in all.iter_mut().zip(&MOVING) {
        let Some(request) = slot else {
            continue;
        };
        match request.step(node, now) {
            Step::Done => {
                *slot = None;
                moving.store(0, Ordering::Release);
            }
            Step::At(t) => next = Some(next.map_or(t, |n| n.min(t))),
        }
    }
    next
}

impl Request {
    fn page(&self) -> Mapped {
        Mapped::of(self.setup.id)
    }

    fn step(&mut self, node: NodeId, now: u64) -> Step {
        if now < self.at {
            return Step::At(self.at);
        }
        let guest = threads::of(self.program);
        let over = guest.is_ok_and(threads::Guest::is_over);
        if over || !guest.is_ok_and(|g| g.runs(self.setup.arg % PAGE_SIZE)) {
            hold(self.setup.tag, false);
            if self.stopped {
                let _ = self.thread.resume();
            }
            // Its number may be somebody else's soon.
            self.page().status().store(status::IDLE, Ordering::Release);
            return Step::Done;
        }
        if !self.stopped {
            hold(self.setup.tag, true);
            match self.thread.stop() {
                Ok(()) => self.stopped = true,
                Err(Error::NotReady | Error::Again) if self.runs < PATIENCE => {
                    self.runs += 1;
                    self.at = now + (LOOK_NS << (self.runs / 4).min(DOUBLED));
                    return Step::At(self.at);
                }
                Err(e) => return self.leave(e),
            }
        }
        let Ok(here) = rt::hardware(node).where_am_i() else {
            return Step::At(now + LOOK_NS);
        };
        match self.thread.unload(here.isa) {
            Ok((registers, from)) => self.moves((from, here.isa), now, &registers),
            // A warden of another ISA will find it.
            Err(Error::NoIsa) => {
                self.not_on |= 1 << here.isa.index();
                if Isa::ALL.iter().all(|i| self.not_on & 1 << i.index() != 0) {
                    return self.leave(Error::NoIsa);
                }
                wardens::look_all();
                Step::At(now + LOOK_NS)
            }
            // It waits, or a service works for it: it goes on, and is stopped again.
            Err(Error::NotReady | Error::TooDeep) if self.waits < RETRIES => {
                self.waits += 1;
                self.stopped = false;
                self.not_on = 0;
                hold(self.setup.tag, false);
                let _ = self.thread.resume();
                self.at = now + (LOOK_NS << self.waits.min(DOUBLED));
                Step::At(self.at)
            }
            Err(e) => self.leave(e),
        }
    }

    /// Gives up: the thread goes on where it was.
    fn leave(&mut self, why: Error) -> Step {
        let page = self.page();
        page.word(core::mem::offset_of!(Page, outcome))
            .store(why.code(), Ordering::Relaxed);
        page.status().store(status::IDLE, Ordering::Release);
        hold(self.setup.tag, false);
        // If it was ready while it was held, nobody will dispatch it who is not told; and if it runs, all
        // is well.
        if self.thread.stop().is_ok() {
            let _ = self.thread.resume();
        }
        Step::Done
    }

    /// It was stopped there, with these registers.
    fn moves(
        &mut self,
        (node, isa): (NodeId, Isa),
        now: u64,
        registers: &emulation::Registers,
    ) -> Step {
        let to_isa = rt::info()
            .ok()
            .and_then(|i| Isa::from_index(i.system.nodes[self.to.index()].isa.into()));
        if to_isa == Some(isa) {
            return self.carried();
        }
        let page = self.page();
        let mut new = Page {
            status: status::ASKED,
            origin: node.index() as u64,
            target: self.to.index() as u64,
            steps: 0,
            calls: 0,
            outcome: 0,
            refused_at: 0,
            refused_bytes: [0; 2],
            stopped_at: now,
            began_at: 0,
            landed_at: 0,
            ready: page
                .word(core::mem::offset_of!(Page, ready))
                .load(Ordering::Relaxed),
            landings: page
                .word(core::mem::offset_of!(Page, landings))
                .load(Ordering::Relaxed),
            windows: self.windows[isa.index()],
            registers: *registers,
        };
        // SAFETY: 1. As in `word`. 2. It is init's: the program does nothing with it meanwhile, as its
        // thread is stopped; and if it does, it gets numbers that make no sense.
        unsafe { page.0.write_volatile(new) };
        if self.begin(status::PENDING).is_ok() && self.resume(self.to).is_ok() {
            return Step::Done;
        }
        // It goes back, on another stack than the one that its frames are on.
        new.outcome = Error::NodeDead.code();
        page.word(core::mem::offset_of!(Page, outcome))
            .store(new.outcome, Ordering::Relaxed);
        let (_, top) = emulation::stack(self.setup.arg % PAGE_SIZE);
        let sp = match isa {
            Isa::X86_64 => top - 8,
            Isa::Aarch64 => top,
        };
        let sp_number = stack_pointer(isa) as u32;
        let back = self
            .begin(status::RETURN)
            // SAFETY: 1. It has begun nowhere, and its stack there is for this.
            .and_then(|()| unsafe { self.thread.write_register(isa, sp_number, sp) })
            .and_then(|()| self.resume(node));
        if let Err(e) = back {
            crate::service::say(format_args!("a thread was lost on its way: {e}"));
        }
        Step::Done
    }

    /// It goes to a node of its own ISA, where nothing has to be interpreted.
    fn carried(&mut self) -> Step {
        hold(self.setup.tag, false);
        match self.thread.resume_on(self.to, FIRST) {
            Ok(()) => {
                self.page().status().store(status::IDLE, Ordering::Release);
                Step::Done
            }
            Err(e) => self.leave(e),
        }
    }

    /// Has the stopped thread begin at the program's entry, where the page says what to do.
    fn begin(&self, what: u64) -> Result<()> {
        // SAFETY: 1. The entry is that of the component's bundle, as when the thread was made.
        unsafe { self.thread.configure(&self.setup)? };
        self.page().status().store(what, Ordering::Release);
        Ok(())
    }

    fn resume(&self, node: NodeId) -> Result<()> {
        // First: sched drops what it hears of a thread that is held.
        hold(self.setup.tag, false);
        self.thread.resume_on(node, FIRST)
    }
}

impl System {
    /// The program with a number that is no service, and what it takes to change it.
    fn guest(&mut self, number: u64) -> Result<(&mut Program, &mut Store, &mut Window)> {
        let guest = [Some(&mut self.guest), self.beside.as_mut()]
            .into_iter()
            .flatten()
            .find(|g| g.program.number == number)
            .ok_or(Error::Denied)?;
        let builder = &mut self.builder;
        Ok((&mut guest.program, &mut builder.store, &mut builder.window))
    }

    /// Makes all that it takes to interpret threads of a program, unless it is there.
    fn show(&mut self, number: u64) -> Result<u64> {
        let (p, store, window) = self.guest(number)?;
        if p.texts.shown {
            return Ok(0);
        }
        if !p.texts.whole {
            return Err(Error::Full);
        }
        // What has been done in part cannot be done again.
        p.texts.whole = false;
        show(store, window, p)?;
        p.texts.shown = true;
        p.texts.whole = true;
        Ok(0)
    }

    /// A request for a thread that lacks only where to, and when.
    fn emulated(&mut self, number: u64, n: u64, guest: &threads::Guest) -> Result<Request> {
        let events = self.events;
        let (p, ..) = self.guest(number)?;
        if !p.texts.shown {
            return Err(Error::NotReady);
        }
        let ready = Mapped::of(thread_id(number, 0))
            .word(core::mem::offset_of!(Page, ready))
            .load(Ordering::Acquire);
        match ready {
            ready::ALL => {}
            ready::FIRST if n == 0 => {}
            // Other threads of it have no point where what is interpreted could end.
            ready::FIRST => return Err(Error::Denied),
            _ => return Err(Error::NotReady),
        }
        Ok(Request {
            program: number,
            thread: guest.thread(n)?,
            setup: ThreadSetup {
                component: p.component,
                entry: p.entry,
                arg: INFO_BASE | n,
                id: thread_id(number, n),
                tag: sched::tag(threads::scheduled(number, n)),
                scheduler: Some(events),
            },
            windows: p.texts.windows,
            to: HOME,
            at: 0,
            runs: 0,
            waits: 0,
            not_on: 0,
            stopped: false,
        })
    }
}

/// Where init sees the pages of a program's threads, and how long that is.
const fn pages(program: u64) -> (u64, u64) {
    let start = PAGES + thread_id(program, 0) as u64 * PAGE_SIZE;
    (start, MAX_PROGRAM_THREADS * PAGE_SIZE)
}

/// The pages of a program's threads, the stacks of what interprets them, and what ISAs see of each other.
fn show(store: &mut Store, window: &mut Window, p: &mut Program) -> Result<()> {
    let stacks = Stripes::new(emulation::STACK_STRIDE, emulation::STACK_SIZE);
    let len = MAX_PROGRAM_THREADS * emulation::STACK_STRIDE;
    p.space.add_stacks(
        emulation::STACKS_BASE,
        len,
        stacks.ok_or(Error::BadArgument)?,
    )?;
    let (own_start, len) = pages(p.number);
    (p.space).add_region(emulation::page(0), len, RegionKind::Shared, true)?;
    (window.own.space).add_region(own_start, len, RegionKind::Shared, true)?;
    let mut n = 0;
    while n < MAX_PROGRAM_THREADS {
        let (frame, pages) = store.user(HOME, &mut p.user, MAX_PROGRAM_THREADS - n)?;
        for page in 0..pages {
            window.fill(store, (frame, page), |_| {})?;
            let isas = p.isas;
            p.map(
                store,
                isas,
                emulation::page(n),
                (frame, page),
                Access::Write,
            )?;
            let own = &mut window.own;
            let va = own_start + n * PAGE_SIZE;
            own.map(store, own.isas, va, (frame, page), Access::Write)?;
            n += 1;
        }
    }
    for run in p.texts.runs.into_iter().flatten() {
        let others = p.isas & !(1 << run.isa.index());
        for i in 0..run.pages {
            let va = other_text(run.isa, run.va + i * PAGE_SIZE);
            p.map(store, others, va, (run.frame, i), Access::Read)?;
        }
    }
    Ok(())
}

/// A program is taken down: its threads are not moved any more, and init does not see their pages.
///
/// # Errors
///
/// As the kernel says; `Again` if a warden is at it.
pub fn leave(p: &Program, own: &Program) -> Result<()> {
    let mut all = REQUESTS.try_lock().ok_or(Error::Again)?;
    for (slot, moving) in all.iter_mut().zip(&MOVING) {
        if slot.is_some_and(|r| r.program == p.number) {
            moving.store(0, Ordering::Release);
            *slot = None;
        }
    }
    if !p.texts.shown {
        return Ok(());
    }
    let (start, len) = pages(p.number);
    for isa in isas_of(own.isas) {
        for n in 0..MAX_PROGRAM_THREADS {
            unmap(own.space, isa, start + n * PAGE_SIZE)?;
        }
    }
    // SAFETY: 1. Nobody looks at the pages who has no request, of which there are none.
    unsafe { own.space.remove_region(start)? };
    own.space.shootdown(start, len)
}
