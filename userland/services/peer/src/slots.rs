//! Where a thread of the process says what it wants, and waits: one slot for each.
//!
//! ```text
//!   handler: words, state ASKED, bit of POSTED, wakes the actor, waits at its line
//!   actor:   takes the bits; later: answer, state ANSWERED, wakes the line
//!   handler: reads the answer
//! ```
//!
//! | step | order | pairs with |
//! |---|---|---|
//! | handler: words, then bit of POSTED | release | actor's swap of POSTED: the words are whole |
//! | actor: answer, then state | release | handler's load of the state |

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dyad_abi::service::peer::slot;
use dyad_abi::service::slot::ENDPOINT;
use dyad_abi::user::MAX_PROGRAM_THREADS;
use dyad_abi::{Error, NodeId};
use dyad_sys::cap::{Cap, Receive, Send, Until};

const THREADS: usize = MAX_PROGRAM_THREADS as usize;
const ASKED: u64 = 1;
const ANSWERED: u64 = 2;

struct Slot {
    state: AtomicU64,
    words: [AtomicU64; 5],
    answer: [AtomicU64; 4],
}

static SLOTS: [Slot; THREADS] = [const {
    Slot {
        state: AtomicU64::new(0),
        words: [const { AtomicU64::new(0) }; 5],
        answer: [const { AtomicU64::new(0) }; 4],
    }
}; THREADS];
/// Threads that have asked and whose words the actor has not taken, by bit.
static POSTED: AtomicU64 = AtomicU64::new(0);
/// Whether the actor has stopped for that.
static STOPPED: AtomicBool = AtomicBool::new(false);
/// Whether the group has ended.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Asks the actor on behalf of thread `n`, and waits for the answer.
///
/// # Errors
///
/// `NodeDead` if the group ends meanwhile; as the kernel says.
pub fn ask(here: NodeId, n: u64, words: [u64; 5]) -> Result<[u64; 4], Error> {
    let own = SLOTS.get(n as usize).ok_or(Error::Denied)?;
    for (to, word) in own.words.iter().zip(words) {
        to.store(word, Ordering::Relaxed);
    }
    own.state.store(ASKED, Ordering::Relaxed);
    POSTED.fetch_or(1 << n, Ordering::AcqRel);
    Cap::<Send>::at(slot::doorbell(here)).send()?;
    while own.state.load(Ordering::Acquire) != ANSWERED {
        if has_ended() {
            return Err(Error::NodeDead);
        }
        Cap::<Receive>::at(ENDPOINT).receive(n, Until::Never)?;
    }
    Ok(core::array::from_fn(|i| {
        own.answer[i].load(Ordering::Relaxed)
    }))
}

/// Threads that have asked since the last call, by bit. For the actor.
pub fn posted() -> u64 {
    match POSTED.load(Ordering::Relaxed) {
        0 => 0,
        _ => POSTED.swap(0, Ordering::AcqRel),
    }
}

/// Whether there is something that [`posted`] would tell.
pub fn has_posted() -> bool {
    POSTED.load(Ordering::Relaxed) != 0
}

/// Whether thread `n` waits for an answer.
pub fn waits(n: u64) -> bool {
    let asked = SLOTS.get(n as usize);
    asked.is_some_and(|s| s.state.load(Ordering::Relaxed) == ASKED)
}

/// What thread `n` has asked. For the actor.
pub fn words(n: u64) -> [u64; 5] {
    let asked = SLOTS.get(n as usize);
    core::array::from_fn(|i| asked.map_or(0, |s| s.words[i].load(Ordering::Relaxed)))
}

/// Answers thread `n`. For the actor.
pub fn answer(n: u64, words: [u64; 4]) {
    let Some(asked) = SLOTS.get(n as usize) else {
        return;
    };
    if asked.state.load(Ordering::Relaxed) != ASKED {
        return;
    }
    for (to, word) in asked.answer.iter().zip(words) {
        to.store(word, Ordering::Relaxed);
    }
    asked.state.store(ANSWERED, Ordering::Release);
    wake(n);
}

fn wake(n: u64) {
    // It waits there, or will find the bit.
    let _ = Cap::<Send>::at(slot::waiter(n)).send();
}

/// Whether the actor has seen that the group has ended, and touches nothing any more.
pub fn has_stopped() -> bool {
    STOPPED.load(Ordering::Acquire)
}

/// The actor touches nothing any more. For the actor.
pub fn stop() {
    STOPPED.store(true, Ordering::Release);
}

/// Whether the group has ended.
pub fn has_ended() -> bool {
    ENDED.load(Ordering::Acquire)
}

/// The group has ended: all threads that wait go on.
pub fn end(here: NodeId) {
    ENDED.store(true, Ordering::Release);
    let _ = Cap::<Send>::at(slot::doorbell(here)).send();
    for n in 0..MAX_PROGRAM_THREADS {
        wake(n);
    }
}
