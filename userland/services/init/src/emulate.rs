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
//! whenever one of them looks. All of them look at the same times, which lie closer together in the
//! beginning: on the CPU on which a warden looks the thread does not run in that moment, so the one on the
//! thread's own node finds it ready, if that has one CPU.
//!
//! Each program has a [`list`] of requests, with a lock that names its holder. The next thread that wants it succeeds a
//! holder that has ended, and does each step that the holder may have begun once more; so a step does nothing that cannot
//! be repeated:
//!
//! | the one before was lost | the next one finds | and |
//! |---|---|---|
//! | before the thread was stopped | it ready or running | stops it |
//! | before the page says `PENDING` or `RETURN` | it stopped, or let go on | unloads it, as if nothing had been |
//! | after that | it stopped, or gone | configures and resumes it; of one that is gone that is refused |
//!
//! | word | whose |
//! |---|---|
//! | list of requests | the holder of its lock |
//! | hold word of a thread | init's; sched reads it before it dispatches |
//! | page of a thread | by its status: init's, until that says `PENDING` or `RETURN` |

#![allow(unsafe_code)]

mod list;
mod pages;
mod shown;
mod texts;

use core::sync::atomic::Ordering;

use dyad_abi::cap::StopOutcome;
use dyad_abi::emulation::{self, PAGE_WORDS, Page, WINDOWS, ready, stack_pointer, status};
use dyad_abi::service::{INFO_BASE, sched, slot, thread_id, thread_of_id};
use dyad_abi::user::{MAX_PROGRAM_THREADS, PAGE_SIZE};
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
use dyad_services::quota::{Asker, due};
use dyad_services::rt::{self, Call};
use dyad_sys::cap::{Cap, Thread, ThreadSetup};

use crate::blocks::{Who, here};
use crate::program::{HOME, Program};
use crate::threads;
use crate::wardens;

pub use list::{attend, is_moving, moves};
pub use pages::hold_words;
use pages::{Mapped, hold, is_free};
pub use shown::look as show_wanted;
pub use texts::Texts;

/// Delay before a running thread is examined again. It doubles each time, as it may be this warden that keeps
/// the thread from its CPU.
const LOOK_NS: u64 = 20_000;
/// The longest such delay.
const LOOK_MOST_NS: u64 = 16_000_000;
/// How long a running thread is examined before it is left alone: many slices.
const PATIENCE_NS: u64 = 2_000_000_000;
/// Delay before a thread is examined again that a warden of another ISA has to examine.
const OTHERS_NS: u64 = 500_000;
/// How often a thread that waits or invokes is resumed to be stopped again. The delay doubles the first
/// [`DOUBLED`] times.
const RETRIES: u32 = 40;
const DOUBLED: u32 = 10;
/// The first CPU of a node.
const FIRST: CpuId = CpuId::new(0).unwrap();

/// A request to move a thread.
#[derive(Clone, Copy)]
struct Request {
    program: u64,
    thread: Cap<Thread>,
    setup: ThreadSetup,
    windows: [[[u64; 2]; WINDOWS]; dyad_abi::ident::ISA_COUNT],
    to: NodeId,
    /// The time at which the thread is first examined.
    at: u64,
    waits: u32,
    /// ISAs whose wardens have found that it is not there.
    not_on: u8,
    stopped: bool,
}

/// The result of a step.
enum Step {
    /// The request is complete.
    Done,
    /// The next step is due at this time.
    At(u64),
}

/// `process::EMULATE`.
///
/// # Errors
///
/// `NotFound` if there is no such thread; `NotReady` if the program cannot interpret it; `NoSuchNode`,
/// `NodeDead`; `BadArgument` if the time is too late; `Exists` if the thread is asked for or interpreted already;
/// `Again` if another thread has the program's list; `Full` if the program has too many requests; as the kernel says.
pub fn ask(call: Call, [n, node, at]: [u64; 3]) -> Result<u64> {
    if thread_of_id(call.token >> 8).0 != call.badge {
        return Err(Error::Denied);
    }
    if node == u64::MAX {
        return shown::ask(call.badge);
    }
    let me = Who::invocation(&call)?;
    move_to((me, Asker::Program), call.badge, n, (node, at))
}

/// Records a request to move a thread to a node at a time. A request of the launcher replaces one of the
/// program that is not due yet.
///
/// # Errors
///
/// Those of [`ask`]; `NotFound` if there is no such program or thread.
pub fn move_to(
    (me, asker): (Who, Asker),
    program: u64,
    n: u64,
    (node, at): (u64, u64),
) -> Result<u64> {
    let guest = threads::of(program).map_err(|_| Error::NotFound)?;
    if !guest.runs(n) {
        return Err(Error::NotFound);
    }
    let to = NodeId::new(node).ok_or(Error::NoSuchNode)?;
    if !rt::hardware(HOME).node_state(to)?.is_live() {
        return Err(Error::NodeDead);
    }
    let now = rt::hardware(HOME).now()?;
    let at = due(now, at)?;
    let request = emulated(program, n, guest)?;
    let request = Request { to, at, ..request };
    list::of(program)?.with(me, |mut held| {
        let page = Mapped::of(thread_id(program, n));
        match held.find(request.thread) {
            Some(other) if asker == Asker::Launcher && other.is_early(now) => {
                // Each store leaves a request that is whole.
                other.to = to;
                other.at = at;
            }
            None if is_free(page.status().load(Ordering::Acquire)) => held.enter(asker, request)?,
            _ => return Err(Error::Exists),
        }
        page.set_outcome(0);
        page.status().store(status::ASKED, Ordering::Release);
        Ok(())
    })?;
    wardens::look_all();
    Ok(0)
}

/// A word of the page of a thread, before the registers.
///
/// # Errors
///
/// `NotFound` if there is no such program; `NotReady` if it cannot interpret its threads; `BadArgument`.
pub fn look(program: u64, n: u64, word: u64) -> Result<u64> {
    threads::of(program).map_err(|_| Error::NotFound)?;
    if n >= MAX_PROGRAM_THREADS || word >= PAGE_WORDS {
        return Err(Error::BadArgument);
    }
    shown::parts(program)?;
    let page = Mapped::of(thread_id(program, n));
    Ok(page.word(word as usize * 8).load(Ordering::Acquire))
}

/// The ISA of a node.
fn isa_of(node: NodeId) -> Option<Isa> {
    let info = rt::info().ok()?;
    Isa::from_index(info.system.nodes[node.index()].isa.into())
}

/// Nodes that live.
fn live_nodes() -> impl Iterator<Item = (NodeId, Isa)> {
    let count = rt::info().map_or(0, |i| i.system.node_count as usize);
    let is_live = |n: NodeId| {
        let state = rt::hardware(HOME).node_state(n);
        state.is_ok_and(|s| s.is_live())
    };
    NodeId::first(count)
        .filter(move |&n| is_live(n))
        .filter_map(|n| Some((n, isa_of(n)?)))
}

/// The time of the next examination of a thread that is examined from `from` on: the same for all wardens.
fn next_look(from: u64, now: u64) -> u64 {
    let (mut at, mut step) = (from, LOOK_NS);
    while at <= now {
        at += step;
        step = (2 * step).min(LOOK_MOST_NS);
    }
    at
}

impl Request {
    fn page(&self) -> Mapped {
        Mapped::of(self.setup.id)
    }

    /// Whether nothing has been done for the request yet because it is not due.
    fn is_early(&self, now: u64) -> bool {
        now < self.at && self.waits == 0 && !self.stopped
    }

    fn step(&mut self, node: NodeId, now: u64) -> Step {
        if now < self.at {
            return Step::At(self.at);
        }
        if !self.runs() {
            return self.forget();
        }
        if let Some(done) = self.once_more(now) {
            return done;
        }
        if !self.stopped {
            hold(self.setup.tag, true);
            match self.thread.stops() {
                Ok(StopOutcome::WhenItLeaves) if self.waits < RETRIES => {
                    return self.later(now);
                }
                Ok(StopOutcome::WhenItLeaves) => return self.leave(Error::TooDeep),
                Ok(_) => {}
                Err(Error::NotReady | Error::Again) if now < self.at + PATIENCE_NS => {
                    return Step::At(next_look(self.at, now));
                }
                Err(e) => return self.leave(e),
            }
            // Who ends says so before.
            if !self.runs() {
                return self.forget();
            }
            // It has not, so the thread that was lost has stopped it, or it was lost itself.
            self.stopped = true;
        }
        let Ok(here) = rt::hardware(node).where_am_i() else {
            return Step::At(now + OTHERS_NS);
        };
        match self.thread.unload(here.isa) {
            Ok((registers, from)) => self.moves((from, here.isa), now, &registers),
            // A warden of another ISA will find it.
            Err(Error::NoIsa) => {
                let known = self.not_on;
                self.not_on |= 1 << here.isa.index();
                if Isa::ALL.iter().all(|i| self.not_on & 1 << i.index() != 0) {
                    return self.leave(Error::NoIsa);
                }
                // If its node has died, and no other node has its ISA, it never will.
                if live_nodes().all(|(_, i)| self.not_on & 1 << i.index() != 0) {
                    return self.leave(Error::NodeDead);
                }
                if self.not_on != known {
                    wardens::look_all();
                }
                Step::At(now + OTHERS_NS)
            }
            // It waits, or a service works for it: it goes on, and is stopped again.
            Err(Error::NotReady | Error::TooDeep) if self.waits < RETRIES => self.later(now),
            Err(e) => self.leave(e),
        }
    }

    /// Resumes the thread, to stop it again later. A pending request to stop is withdrawn: it would end the
    /// thread in a service that takes longer than the grace period.
    fn later(&mut self, now: u64) -> Step {
        self.waits += 1;
        self.stopped = false;
        self.not_on = 0;
        hold(self.setup.tag, false);
        let _ = self.thread.resume();
        self.at = now + (LOOK_NS << self.waits.min(DOUBLED));
        Step::At(self.at)
    }

    /// Whether the thread has not ended, and is not about to.
    fn runs(&self) -> bool {
        threads::of(self.program).is_ok_and(|g| g.runs(self.setup.arg % PAGE_SIZE))
    }

    /// Lets the thread continue where it was, unless it has ended.
    fn let_go(&self) {
        hold(self.setup.tag, false);
        // If it was ready while it was held, its scheduler must be told in order to dispatch it; if it runs, all
        // is well.
        let is_ours = |how| matches!(how, Ok(StopOutcome::Stopped | StopOutcome::WhenItLeaves));
        if self.stopped || is_ours(self.thread.stops()) {
            let _ = self.thread.resume();
        }
    }

    /// Drops the request, because the thread or its program is about to end.
    fn forget(&self) -> Step {
        self.let_go();
        // Its number may be another thread's soon.
        self.page().status().store(status::IDLE, Ordering::Release);
        Step::Done
    }

    /// The step that a lost thread had done all but the end of, or the program says so: it can write the page, too. So the
    /// thread may be held, as after a step that found it running.
    fn once_more(&self, now: u64) -> Option<Step> {
        let page = self.page();
        let is_begun = || {
            let s = page.status().load(Ordering::Acquire);
            matches!(s, status::PENDING | status::RETURN)
        };
        if !is_begun() {
            return None;
        }
        // First, as in `let_go`. If it is on its way already, or there, it goes on by itself.
        hold(self.setup.tag, false);
        match self.thread.stops() {
            // If it is ready, its scheduler may have dropped it while it was held.
            Err(Error::Again) => return Some(Step::At(now + OTHERS_NS)),
            // It invokes a service: so it goes on already.
            Ok(StopOutcome::WhenItLeaves) => drop(self.thread.resume()),
            Ok(how) => match page.origin().zip(Isa::from_index(page.isa())) {
                Some((origin, isa)) if is_begun() => return Some(self.sends(isa, origin)),
                // Init does not write such a page: the program has, and the thread is where this request has stopped it.
                None if self.stopped => drop(self.thread.resume()),
                _ if how == StopOutcome::Stopped => drop(self.thread.resume()),
                _ => {}
            },
            Err(_) => {}
        }
        Some(Step::Done)
    }

    /// Abandons the request: the thread continues where it was.
    fn leave(&self, why: Error) -> Step {
        let page = self.page();
        page.set_outcome(why.code());
        page.status().store(status::IDLE, Ordering::Release);
        self.let_go();
        Step::Done
    }

    /// It was stopped there, with these registers.
    fn moves(
        &mut self,
        (node, isa): (NodeId, Isa),
        now: u64,
        registers: &emulation::Registers,
    ) -> Step {
        if isa_of(self.to) == Some(isa) {
            return self.carried();
        }
        let page = self.page();
        let kept = |offset| page.word(offset).load(Ordering::Relaxed);
        page.write(Page {
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
            ready: kept(core::mem::offset_of!(Page, ready)),
            landings: kept(core::mem::offset_of!(Page, landings)),
            windows: self.windows[isa.index()],
            registers: *registers,
        });
        self.sends(isa, node)
    }

    /// Its registers are in its page: it begins on its new node. If that has died meanwhile, it goes back.
    fn sends(&self, isa: Isa, origin: NodeId) -> Step {
        let begun = self.begin(status::PENDING);
        if begun.and_then(|()| self.resume(self.to)).is_ok() {
            return Step::Done;
        }
        // It may be ready without anybody having been told.
        let _ = self.thread.stop();
        // On another stack than the one that its frames are on.
        self.page().set_outcome(Error::NodeDead.code());
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
            // What it goes back to is on any node of that ISA.
            .and_then(|()| self.resume(origin))
            .or_else(|e| {
                let there = live_nodes().find(|&(_, i)| i == isa);
                there.map_or(Err(e), |(n, _)| self.resume(n))
            });
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

    /// Sets the stopped thread to begin at the program's entry, where the page says what to do. The page is
    /// written first: once a thread has been configured, its registers are only there.
    fn begin(&self, what: u64) -> Result<()> {
        self.page().status().store(what, Ordering::Release);
        // SAFETY: 1. The entry is that of the component's bundle, as when the thread was made.
        unsafe { self.thread.configure(&self.setup) }
    }

    fn resume(&self, node: NodeId) -> Result<()> {
        // First: sched drops what it hears of a thread that is held.
        hold(self.setup.tag, false);
        self.thread.resume_on(node, FIRST)
    }
}

/// A request for a thread that lacks only where to, and when.
fn emulated(program: u64, n: u64, guest: &threads::Guest) -> Result<Request> {
    let parts = shown::parts(program)?;
    let ready = Mapped::of(thread_id(program, 0))
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
        program,
        thread: guest.thread(n)?,
        setup: ThreadSetup {
            component: parts.component,
            entry: parts.entry,
            arg: INFO_BASE | n,
            id: thread_id(program, n),
            layout: 0,
            ids: Cap::at(slot::THREAD_IDS),
            tag: sched::tag(threads::scheduled(program, n)),
            scheduler: Some(parts.events),
        },
        windows: parts.windows,
        to: HOME,
        at: 0,
        waits: 0,
        not_on: 0,
        stopped: false,
    })
}

/// Drops the requests for a program that is about to be taken down: its threads are not moved any more, and
/// those that were stopped for a move run again.
///
/// # Errors
///
/// `Again` if a warden, or a thread of the program, is at it.
pub fn forget(program: u64) -> Result<()> {
    let me = Who::warden(here()).ok_or(Error::Again)?;
    // Threads of most processes of a group cannot be moved so: they have no list.
    let Ok(list) = list::of(program) else {
        return Ok(());
    };
    list.with(me, |held| {
        held.clear(Request::let_go);
        Ok(())
    })
}

/// Unmaps the pages of a program whose threads have ended from init.
///
/// # Errors
///
/// As the kernel says; `Again` if a warden is at it.
pub fn leave(p: &Program, own: &Program) -> Result<()> {
    forget(p.number)?;
    pages::unshow(p, own)
}
