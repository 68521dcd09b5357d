//! Requests to move threads: from outside, by way of the launcher ([`dyad_abi::ask`]), and from
//! programs (`process::REQUEST`).
//!
//! ```text
//!  launcher ── request line ──▶ leader (woken by ASKED) ──┐
//!                                                         ├──▶ change: the word in the thread's
//!  program ── process::REQUEST ── on its own thread ──────┘    control block; wakes who sleeps
//! ```
//!
//! The launcher may also ask that a thread be moved wherever it is, which [`emulate`] does, and look what
//! becomes of that.
//!
//! Otherwise nothing is moved here. The thread finds the word at its next migration point and goes by itself; who
//! asked looks where it is, and takes the word back if that lasts too long.
//!
//! A program may ask this of its own threads; the user of the system, of those of all programs that
//! are no services. What init and the services run on stays where it is.
//!
//! | step | order |
//! |---|---|
//! | request line read; whole? | a line that is being written has no right check |
//! | change | one compare-and-swap by the kernel: of two who ask, each learns what the other has asked |
//! | answer words, then the number | release: who sees the number sees the words |

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::ask::{Answer, Ask, BadLine, Line, REQUEST_PAGES, Request, WORDS};
use dyad_abi::cap::CapIndex;
use dyad_abi::service::{ASK_BASE, program, thread_id};
use dyad_abi::user::{MAX_PROGRAM_THREADS, PAGE_SIZE, losses, request, waiting};
use dyad_abi::{Error, Result};
use dyad_services::quota::Asker;
use dyad_services::rt;
use dyad_sys::cap::{Cap, Receive, Send, Space};

use crate::blocks::{Who, here};
use crate::emulate;
use crate::memory::Store;
use crate::program::HOME;
use crate::threads;

/// Bit that a thread finds at its line of the program's endpoints when init has woken it.
const WOKEN: u64 = 1 << 63;
/// Attempts at a word that others change.
const TRIES: u32 = 100;

/// What requests need of a program.
struct Target {
    /// Its address space; 0: there is no such program.
    space: AtomicU64,
    /// The program whose threads it has: itself, or of a process of a group, the first one.
    program: AtomicU64,
    /// Wake its threads, each where it sleeps; 0: there is no such thread.
    wake: [AtomicU64; MAX_PROGRAM_THREADS as usize],
}

static TARGETS: [Target; program::MAX as usize] = [const {
    Target {
        space: AtomicU64::new(0),
        program: AtomicU64::new(0),
        wake: [const { AtomicU64::new(0) }; MAX_PROGRAM_THREADS as usize],
    }
}; program::MAX as usize];

fn known<T>(word: &AtomicU64) -> Option<Cap<T>> {
    CapIndex::new(word.load(Ordering::Acquire))
        .filter(|&index| index != CapIndex::NONE)
        .map(Cap::at)
}

fn number_of<T>(cap: Cap<T>) -> u64 {
    cap.index().get().into()
}

/// Makes a program known, or a process of one, whose threads sleep at `endpoints`, each at the line of its number.
///
/// # Errors
///
/// As the kernel says.
pub fn enter(
    store: &mut Store,
    (number, program): (u64, u64),
    space: Cap<Space>,
    endpoints: Cap<Receive>,
) -> Result<()> {
    let target = TARGETS.get(number as usize).ok_or(Error::BadArgument)?;
    target.program.store(program, Ordering::Relaxed);
    for (line, wake) in (0..).zip(&target.wake) {
        let made: Cap<Send> = endpoints.make_send(line, store.slot()?, WOKEN)?;
        wake.store(number_of(made), Ordering::Relaxed);
    }
    target.space.store(number_of(space), Ordering::Release);
    Ok(())
}

/// A program is being taken down: nothing can be asked of it any more.
pub fn leave(program: u64) {
    if let Some(target) = TARGETS.get(program as usize) {
        target.space.store(0, Ordering::Release);
    }
}

/// Changes what a thread is asked to do at its next migration point from `old` to `new`, and wakes it.
/// Gives what it was.
///
/// # Errors
///
/// `NotFound` if there is no such thread, or it belongs to init or a service; `NoSuchNode`, `NodeDead`;
/// `Again` if others change the word; and as the kernel says if the program has put something else in
/// the place of its control block.
pub fn change(program: u64, thread: u64, old: u64, new: u64) -> Result<u64> {
    let space = asked_of(program, thread)?;
    let target = TARGETS.get(program as usize).ok_or(Error::NotFound)?;
    if new != request::NONE {
        let node = request::node(new).ok_or(Error::NoSuchNode)?;
        if !rt::hardware(HOME).node_state(node)?.is_live() {
            return Err(Error::NodeDead);
        }
    }
    let was = exchange(
        space,
        request::address(thread_id(program, thread)),
        old,
        new,
    )?;
    if was == old
        && new != request::NONE
        && thread == 0
        && let Some(wake) = known::<Send>(&target.wake[0])
    {
        // If it does not sleep, the bit stays and costs it a turn. If it is gone, that shows elsewhere.
        let _ = wake.send();
    }
    Ok(was)
}

/// The address space of a thread of which something may be asked: in the first process of a group, not in another one.
fn asked_of(program: u64, thread: u64) -> Result<Cap<Space>> {
    let target = TARGETS.get(program as usize).ok_or(Error::NotFound)?;
    let guest = threads::of(program).map_err(|_| Error::NotFound)?;
    if !guest.runs(thread) || target.program.load(Ordering::Relaxed) != program {
        return Err(Error::NotFound);
    }
    known(&target.space).ok_or(Error::NotFound)
}

/// What a thread waits for, as it says itself.
fn waiting(program: u64, thread: u64) -> Result<u64> {
    let space = asked_of(program, thread)?;
    // A word that no runtime writes stays what it is.
    let nothing = u64::MAX;
    exchange(
        space,
        waiting::address(thread_id(program, thread)),
        nothing,
        nothing,
    )
}

/// Replaces a word of a program by `new` if it is `old`. Gives what it was.
fn exchange(space: Cap<Space>, at: u64, old: u64, new: u64) -> Result<u64> {
    let mut tries = 0;
    loop {
        // SAFETY: 1. The space is that of another program.
        match unsafe { space.exchange(at, old, new) } {
            Err(Error::Again) if tries < TRIES => {
                tries += 1;
                dyad_sys::raw::relax();
            }
            done => return done,
        }
    }
}

/// Tells a program which of its threads have been lost, by bit, and wakes all of them: those that wait for a lost
/// thread learn it. A program that has put something else in the place of the word keeps its threads waiting. Each process of a
/// group has the word.
pub fn tell_lost(program: u64, lost: u64) {
    for target in &TARGETS {
        if target.program.load(Ordering::Relaxed) == program
            && let Some(space) = known::<Space>(&target.space)
        {
            target.tell_lost(space, program, lost);
        }
    }
}

impl Target {
    fn tell_lost(&self, space: Cap<Space>, program: u64, lost: u64) {
        let at = losses::address(thread_id(program, 0));
        let mut old = 0;
        for _ in 0..TRIES {
            match exchange(space, at, old, lost) {
                // The program may write there, too.
                Ok(was) if was != old => old = was,
                _ => break,
            }
        }
        for wake in &self.wake {
            if let Some(wake) = known::<Send>(wake) {
                // A thread that does not wait finds the bit when it waits next, which costs it a turn.
                let _ = wake.send();
            }
        }
    }
}

/// A line of words at an address in the pages of requests.
fn words(at: u64) -> &'static [AtomicU64; WORDS] {
    // SAFETY: 1. The kernel has mapped the pages there for as long as init lives. 2. All who look at
    // them, and the launcher, use whole words. 3. Every pattern of bits is a value.
    unsafe { &*with_exposed_provenance::<[AtomicU64; WORDS]>(at as usize) }
}

fn seen(words: &[AtomicU64; WORDS]) -> Line {
    core::array::from_fn(|i| words[i].load(Ordering::Acquire))
}

/// Carries out what the launcher asks, if there is something that has no answer yet. By the leader.
pub fn attend() {
    let answers = words(ASK_BASE + REQUEST_PAGES * PAGE_SIZE);
    let last = Answer::read(&seen(answers)).map_or(0, |a| a.number);
    let (number, result) = match Request::read(&seen(words(ASK_BASE))) {
        Err(BadLine::Nothing) => return,
        Err(BadLine::Senseless(number)) => (number, Err(Error::BadArgument)),
        Ok(Request { number, ask }) => match ask {
            _ if number == last => return,
            Ask::Change {
                program,
                thread,
                old,
                new,
            } => (number, change(program.into(), thread.into(), old, new)),
            Ask::Emulate {
                program,
                thread,
                node,
            } => {
                let to = (node.index() as u64, 0);
                let noted = Who::warden(here()).ok_or(Error::Again).and_then(|me| {
                    emulate::move_to((me, Asker::Launcher), program.into(), thread.into(), to)
                });
                (number, noted)
            }
            Ask::Page {
                program,
                thread,
                word,
            } => {
                let seen = emulate::look(program.into(), thread.into(), word.into());
                (number, seen)
            }
            Ask::Waiting { program, thread } => (number, waiting(program.into(), thread.into())),
        },
    };
    if number == last {
        return;
    }
    let at = rt::hardware(HOME).now().unwrap_or(0);
    let line = Answer { number, result, at }.line();
    for (word, value) in answers.iter().zip(line).skip(1) {
        word.store(value, Ordering::Relaxed);
    }
    answers[0].store(line[0], Ordering::Release);
}
