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
//! A program may ask this of its own threads; whoever runs the system, of those of all programs that
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
use dyad_abi::user::{PAGE_SIZE, request};
use dyad_abi::{Error, Result};
use dyad_services::rt;
use dyad_sys::cap::{Cap, Receive, Send, Space};

use crate::blocks::{Who, here};
use crate::emulate;
use crate::memory::Store;
use crate::program::HOME;
use crate::threads;

/// Line of a program's endpoints where its first thread sleeps.
const SLEEPS_AT: u64 = 0;
/// Bit that it finds there when it has been woken because of a request.
const WOKEN: u64 = 1 << 63;
/// Attempts at a word that others change.
const TRIES: u32 = 100;

/// What requests need of a program.
struct Target {
    /// Its address space; 0: there is no such program.
    space: AtomicU64,
    /// Wakes its first thread; 0: nobody.
    wake: AtomicU64,
}

static TARGETS: [Target; program::MAX as usize] = [const {
    Target {
        space: AtomicU64::new(0),
        wake: AtomicU64::new(0),
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

/// Makes a program known whose first thread sleeps at `endpoints`.
///
/// # Errors
///
/// As the kernel says.
pub fn enter(
    store: &mut Store,
    program: u64,
    space: Cap<Space>,
    endpoints: Cap<Receive>,
) -> Result<()> {
    let target = TARGETS.get(program as usize).ok_or(Error::BadArgument)?;
    let wake: Cap<Send> = endpoints.make_send(SLEEPS_AT, store.slot()?, WOKEN)?;
    target.wake.store(number_of(wake), Ordering::Relaxed);
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
    let target = TARGETS.get(program as usize).ok_or(Error::NotFound)?;
    let guest = threads::of(program).map_err(|_| Error::NotFound)?;
    if !guest.runs(thread) {
        return Err(Error::NotFound);
    }
    let space: Cap<Space> = known(&target.space).ok_or(Error::NotFound)?;
    if new != request::NONE {
        let node = request::node(new).ok_or(Error::NoSuchNode)?;
        if !rt::hardware(HOME).node_state(node)?.is_live() {
            return Err(Error::NodeDead);
        }
    }
    let at = request::address(thread_id(program, thread));
    let mut tries = 0;
    let was = loop {
        // SAFETY: 1. The space is that of another program.
        match unsafe { space.exchange(at, old, new) } {
            Err(Error::Again) if tries < TRIES => {
                tries += 1;
                dyad_sys::raw::relax();
            }
            done => break done?,
        }
    };
    if was == old
        && new != request::NONE
        && thread == 0
        && let Some(wake) = known::<Send>(&target.wake)
    {
        // If it does not sleep, the bit stays and costs it a turn. If it is gone, that shows elsewhere.
        let _ = wake.send();
    }
    Ok(was)
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
                let noted = Who::warden(here())
                    .ok_or(Error::Again)
                    .and_then(|me| emulate::move_to(me, program.into(), thread.into(), to));
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
