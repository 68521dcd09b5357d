//! Threads of programs that are no services: starting them, how they end, what becomes of them.
//!
//! All that a thread of a program can ever need is made with the program, of the program's own memory:
//! the kernel's thread, its control block, regions for its stacks, capabilities, an entry in the
//! scheduler's table. So a thread is started, and ends, with a few calls on the caller's own thread, and
//! nothing that init does otherwise is held up by it, or can hold it up.
//!
//! The state of a thread is a word ([`ThreadWord`]), which decides what may be done with the thread.
//!
//! The kernel says whether a thread has stopped. One that has, and has neither said that it ends nor
//! committed a fault, was lost with its node. The program's first thread is Running from the start; if it
//! is lost, the program has ended.
//!
//! Which threads are lost, the program reads in a word of its own ([`losses`](dyad_abi::user::losses)). Init writes the
//! word, then wakes all threads of the program, then notes here what it has told: the next leader tells it again if
//! init's node dies in between.
//!
//! How a program has ended is what is said first: by one of its threads that exits, or for one that has
//! faulted.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::CapIndex;
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::{INFO_BASE, peer, process, program, sched, slot, thread_id, thread_of_id};
use dyad_abi::user::MAX_PROGRAM_THREADS;
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
use dyad_services::asked::{Speaks, caller};
use dyad_services::ending::{Ending, exit_code};
use dyad_services::robust::is_inside;
use dyad_services::rt::{self, Call};
use dyad_services::thread_word::{EndWord, State, ThreadWord};
use dyad_sys::cap::{Cap, Receive, Thread, ThreadSetup};

use crate::program::{HOME, Program};
use crate::service::say;
use crate::{ask, emulate};

/// Programs whose threads can be interpreted: the program, and the one beside it.
pub const GUESTS: usize = 2;
/// Programs that are no services: these, or the processes of a group.
pub const PROGRAMS: usize = MAX_NODES;
const THREADS: usize = MAX_PROGRAM_THREADS as usize;

struct Entry {
    /// The capability of the thread; 0: there is none.
    cap: AtomicU64,
    /// State of the thread.
    word: ThreadWord,
}

/// State of a program.
pub struct Guest {
    component: AtomicU64,
    /// The program by whose number stacks and control blocks are found.
    layout: AtomicU64,
    entry: AtomicU64,
    endpoints: AtomicU64,
    threads: [Entry; THREADS],
    /// Lost threads that peers have named, by bit: the kernel does not say where a thread of a group is.
    named: AtomicU64,
    /// How often peers have named any, or none.
    times_named: AtomicU64,
    /// The lost threads of which the program has been told, by bit.
    told: AtomicU64,
    /// What [`times_named`](Guest::times_named) was then.
    times_told: AtomicU64,
    /// Which invocation reports how the program has ended.
    over: EndWord,
    /// Exit code of the program plus one; 0: it has given none.
    code: AtomicU64,
    /// The fault it was ended for: kind (0: none), address, program counter, ISA, thread.
    fault: [AtomicU64; 5],
    /// Number plus one of a thread that has stopped without a reported reason; 0: none.
    stopped: AtomicU64,
}

static ALL: [Guest; PROGRAMS] = [const {
    Guest {
        component: AtomicU64::new(0),
        layout: AtomicU64::new(0),
        entry: AtomicU64::new(0),
        endpoints: AtomicU64::new(0),
        threads: [const {
            Entry {
                cap: AtomicU64::new(0),
                word: ThreadWord::new(),
            }
        }; THREADS],
        named: AtomicU64::new(0),
        times_named: AtomicU64::new(0),
        told: AtomicU64::new(0),
        times_told: AtomicU64::new(0),
        over: EndWord::new(),
        code: AtomicU64::new(0),
        fault: [const { AtomicU64::new(0) }; 5],
        stopped: AtomicU64::new(0),
    }
}; PROGRAMS];

/// The way in which a program has ended, with details.
pub struct End {
    /// How.
    pub ending: Ending,
    /// Kind (0: none), address, program counter, ISA, thread of a fault.
    pub fault: [u64; 5],
}

/// The program with a number.
///
/// # Errors
///
/// `Denied` if there is none, or it is a service.
pub fn of(number: u64) -> Result<&'static Guest> {
    number
        .checked_sub(program::FIRST)
        .and_then(|n| ALL.get(usize::try_from(n).ok()?))
        .ok_or(Error::Denied)
}

/// Number in the scheduler's table of a program's thread: behind the system's own.
pub const fn scheduled(number: u64, n: u64) -> u32 {
    ((number - program::FIRST + 1) * MAX_PROGRAM_THREADS + n) as u32
}

/// Whether a thread that has been configured has stopped.
fn is_stopped(thread: Cap<Thread>) -> bool {
    // Of a thread that has not, registers are refused before it is looked which; of one that has, those
    // of the other ISA, without touching it.
    let here = rt::hardware(HOME).where_am_i();
    let other = here.map_or(Isa::X86_64, |w| w.isa.other());
    thread.read_register(other, 0) != Err(Error::NotReady)
}

/// Whether a thread has stopped, and not in order to be moved.
pub fn has_gone(thread: Cap<Thread>) -> bool {
    // A whole move may lie between two looks.
    let before = emulate::moves();
    !emulate::is_moving(thread)
        && is_stopped(thread)
        && !emulate::is_moving(thread)
        && emulate::moves() == before
}

fn cap<T>(word: &AtomicU64) -> Result<Cap<T>> {
    let index = word.load(Ordering::Acquire);
    CapIndex::new(index)
        .filter(|&i| i != CapIndex::NONE)
        .map(Cap::at)
        .ok_or(Error::Denied)
}

fn index<T>(cap: Cap<T>) -> u64 {
    cap.index().get().into()
}

/// The thread that an invocation is on: one of a program that is no service.
///
/// # Errors
///
/// `Denied` if it is none.
pub fn thread_of(call: &Call) -> Result<Cap<Thread>> {
    let (number, n) = thread_of_id(call.token >> 8);
    let entry = of(number)?.threads.get(n as usize);
    cap(&entry.ok_or(Error::Denied)?.cap)
}

impl Guest {
    /// Notes a program whose first thread is about to run, or is started by its peer.
    pub fn enter(&self, program: &Program, endpoints: Cap<Receive>, by_peer: bool) {
        let (component, entry) = (program.component, program.entry);
        self.layout.store(program.layout, Ordering::Relaxed);
        self.entry.store(entry, Ordering::Relaxed);
        self.endpoints.store(index(endpoints), Ordering::Relaxed);
        if !by_peer {
            self.threads[0].word.run_first();
        }
        self.component.store(index(component), Ordering::Release);
    }

    /// Notes a thread of it.
    pub fn enter_thread(&self, n: u64, thread: Cap<Thread>) {
        self.threads[n as usize]
            .cap
            .store(index(thread), Ordering::Release);
    }

    /// Thread `n`.
    ///
    /// # Errors
    ///
    /// `NotFound` if the program never had it.
    pub fn thread(&self, n: u64) -> Result<Cap<Thread>> {
        let entry = usize::try_from(n).ok().and_then(|n| self.threads.get(n));
        cap(&entry.ok_or(Error::NotFound)?.cap).map_err(|_| Error::NotFound)
    }

    /// Whether the program has reported its end, or has been told to end.
    pub fn is_over(&self) -> bool {
        self.over.is_over()
    }

    /// The way in which the program has ended.
    pub fn end(&self) -> End {
        let fault = core::array::from_fn(|i| self.fault[i].load(Ordering::Acquire));
        let code = self.code.load(Ordering::Acquire);
        let stopped = self.stopped.load(Ordering::Acquire);
        let ending = match (code.checked_sub(1), fault[0], stopped.checked_sub(1)) {
            (Some(code), _, _) => Ending::Exited(code as u32),
            (None, 1.., _) => Ending::Faulted,
            (None, 0, Some(n)) => Ending::Stopped(n),
            (None, 0, None) => Ending::Lost,
        };
        End { ending, fault }
    }

    /// Whether thread `n` exists and the program has not ended.
    pub fn runs(&self, n: u64) -> bool {
        let entry = usize::try_from(n).ok().and_then(|n| self.threads.get(n));
        let there = |e: &Entry| matches!(e.word.state(), State::Starting | State::Running);
        entry.is_some_and(there) && !self.is_over()
    }

    /// `START`, by the invocation `token`. Only a peer starts first threads.
    fn start(
        &self,
        (number, token): (u64, u64),
        (n, place): (u64, u64),
        by_peer: bool,
    ) -> Result<u64> {
        let entry = usize::try_from(n)
            .ok()
            .filter(|&n| n != 0 || by_peer)
            .and_then(|n| self.threads.get(n))
            .ok_or(Error::BadArgument)?;
        let node = NodeId::new(place & 0xff).ok_or(Error::NoSuchNode)?;
        let cpu = CpuId::new(place >> 8).ok_or(Error::BadArgument)?;
        let thread = cap::<Thread>(&entry.cap)?;
        let may = || match self.is_over() {
            true => Err(Error::Denied),
            false => Ok(()),
        };
        let claim = entry.word.claim(token, is_inside, may)?;
        let configured = self.configure(number, n, thread);
        let begun = configured.and_then(|()| {
            thread.resume_on(node, cpu).inspect_err(|_| {
                // It may be ready without anybody having been told.
                let _ = thread.stop();
            })
        });
        let configured = configured.map(drop);
        claim.settle(configured, begun.map(drop))?;
        Ok(thread_id(number, n).into())
    }

    /// Sets thread `n` to begin at the program's entry when it is resumed.
    ///
    /// # Errors
    ///
    /// `NotReady` if the thread has begun and has not stopped; errors of the kernel.
    fn configure(&self, number: u64, n: u64, thread: Cap<Thread>) -> Result<()> {
        let setup = ThreadSetup {
            component: cap(&self.component)?,
            entry: self.entry.load(Ordering::Relaxed),
            arg: INFO_BASE | n,
            id: thread_id(number, n),
            layout: thread_id(self.layout.load(Ordering::Relaxed), n),
            ids: Cap::at(slot::THREAD_IDS),
            tag: sched::tag(scheduled(number, n)),
            scheduler: Some(cap(&self.endpoints)?),
        };
        // SAFETY: 1. The entry is that of the component's bundle.
        unsafe { thread.configure(&setup) }
    }

    /// `END_THREAD`: returns only if the kernel refuses.
    fn end_thread(&self, n: u64) -> Result<u64> {
        if n == 0 {
            return Err(Error::Denied);
        }
        let entry = &self.threads[n as usize];
        entry.word.end();
        Err(cap::<Thread>(&entry.cap)?.exit(0))
    }

    /// `EXIT`, by the invocation `token` of a thread: returns only if the kernel refuses.
    fn exit(&self, thread: &Entry, token: u64, code: u64) -> Result<u64> {
        let code = exit_code(code)?;
        let thread = cap::<Thread>(&thread.cap)?;
        self.over.say(token, is_inside, || {
            self.code.store(u64::from(code) + 1, Ordering::Release);
        });
        Err(thread.exit(code))
    }

    /// It is about to be taken down, though none of its threads may have said how it ends, as its first one
    /// was lost.
    pub fn close(&self) {
        self.over.say(EndWord::INIT, is_inside, || ());
    }

    /// A thread of it has faulted, as the invocation `token` says.
    pub fn fault(&self, token: u64, fault: [u64; 5]) {
        self.over.say(token, is_inside, || {
            for (word, value) in self.fault.iter().zip(fault) {
                word.store(value, Ordering::Release);
            }
        });
    }

    /// Thread `n` has stopped. It has not said that it ends, it has made no error that was told, and no node has died.
    fn stopped(&self, n: u64) {
        self.over.say(EndWord::INIT, is_inside, || {
            self.stopped.store(n + 1, Ordering::Release);
        });
    }

    /// Threads that are lost: bit by number.
    fn lost(&self) -> u64 {
        let is = |e: &&Entry| e.word.state() == State::Lost;
        let all = (0..).zip(&self.threads).filter(|(_, e)| is(e));
        let named = self.named.load(Ordering::Acquire);
        all.fold(named, |bits, (n, _)| bits | 1 << n)
    }

    /// A peer of the program says that these threads are lost, by bit.
    pub fn lose(&self, threads: u64) {
        self.named.fetch_or(threads, Ordering::AcqRel);
        self.times_named.fetch_add(1, Ordering::Release);
    }

    /// Looks whether threads have been lost with nodes that have died, of which there are so many: if
    /// there are none, it is the program's own doing that the thread has stopped, which ends the program.
    /// `true`: the program has ended, in whatever way.
    pub fn look_for_lost(&self, (number, name): (u64, &str), deaths: u32) -> bool {
        for (n, entry) in self.threads.iter().enumerate() {
            let has_gone = || cap(&entry.cap).is_ok_and(has_gone) && !self.is_over();
            if entry.word.lose_if(has_gone) {
                match deaths {
                    0 => self.stopped(n as u64),
                    // A peer has named it, which is said below.
                    _ if self.named.load(Ordering::Acquire) >> n & 1 != 0 => {}
                    _ => say(format_args!(
                        "program {name:?}, thread {n}: lost with its node"
                    )),
                }
            }
        }
        let times = self.times_named.load(Ordering::Acquire);
        let lost = self.lost();
        let named = self.named.load(Ordering::Relaxed) & lost & !self.told.load(Ordering::Relaxed);
        for n in (0..THREADS).filter(|n| named >> n & 1 != 0) {
            say(format_args!(
                "program {name:?}, thread {n}: lost with another node, or with a page there"
            ));
        }
        // If a peer names no thread, all wake nevertheless: what was to wake one may have been lost on a dead node.
        if lost != self.told.load(Ordering::Relaxed)
            || times != self.times_told.load(Ordering::Relaxed)
        {
            ask::tell_lost(number, lost);
            self.told.store(lost, Ordering::Relaxed);
            self.times_told.store(times, Ordering::Relaxed);
        }
        self.is_over() || lost & 1 != 0
    }

    /// Whether none of its threads runs any more. Those that wait go on.
    pub fn have_stopped(&self, number: u64) -> bool {
        let mut all = true;
        for (n, entry) in (0..).zip(&self.threads) {
            // One that has never been started has never been configured.
            if entry.word.is_new() {
                continue;
            }
            let Ok(thread) = cap::<Thread>(&entry.cap) else {
                continue;
            };
            // One whose starter has ended may never have been configured: it is now.
            if entry.word.is_abandoned(EndWord::INIT, is_inside) {
                let _ = self.configure(number, n, thread);
            }
            if !is_stopped(thread) {
                all = false;
                // If it waits.
                let _ = thread.resume();
            }
        }
        all
    }
}

/// What a program asks about its threads.
///
/// # Errors
///
/// As the module says; `BadArgument` if this is no such request.
pub fn request(call: &Call) -> Result<u64> {
    let [what, a, b, _] = call.words;
    match what {
        process::EXIT => {
            let Speaks { process, ends } = Speaks::of(call.badge);
            let n = caller(process, call.token)?;
            of(ends)?.exit(&of(process)?.threads[n as usize], call.token, a)
        }
        process::START => {
            caller(call.badge, call.token)?;
            // The actor of a peer starts threads of its process on its node.
            let Speaks { process, .. } = Speaks::of(call.badge);
            let by_peer = process != call.badge;
            let elsewhere = |node| b & 0xff != node;
            if by_peer && peer::node_of(call.badge).is_some_and(|n| elsewhere(n.index() as u64)) {
                return Err(Error::Denied);
            }
            of(process)?.start((process, call.token), (a, b), by_peer)
        }
        process::END_THREAD => of(call.badge)?.end_thread(caller(call.badge, call.token)?),
        _ => Err(Error::BadArgument),
    }
}
