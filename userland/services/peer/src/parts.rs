//! The parts of a fault that needs another node, if a run asks for them (`--fault-parts`).
//!
//! ```text
//!   trap │ handler │ actor: request │ ring │ other actor │ ring │ actor: fill, map │ handler │ trap
//!        Enter     Request          Out    Service       Back   Map                Leave
//! ```
//!
//! Faults in the heap count. Each is taken twice. The first time its handler does nothing, so the time from one handler to the next is that
//! of a trap, there and back. The times at the other node come with its answer.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dyad_abi::service::peer::Counted;
use dyad_abi::user::{HEAP_BASE, HEAP_END, MAX_PROGRAM_THREADS};
use dyad_services::rt;

use crate::actor::COUNTERS;
use crate::service::ORIGIN;

const THREADS: usize = MAX_PROGRAM_THREADS as usize;

/// Times of the fault that a thread is in. 0: not known.
struct Times {
    /// Where it has trapped first, and when.
    address: AtomicU64,
    trapped: AtomicU64,
    /// When the actor began; when it had sent the request; when the other one had it, and had answered; when the answer was
    /// here; when the page was mapped.
    steps: [AtomicU64; 6],
}

static TIMES: [Times; THREADS] = [const {
    Times {
        address: AtomicU64::new(0),
        trapped: AtomicU64::new(0),
        steps: [const { AtomicU64::new(0) }; 6],
    }
}; THREADS];

/// Whether parts are measured: the time then.
pub fn now() -> Option<u64> {
    rt::info().ok().filter(|info| info.fault_parts != 0)?;
    rt::hardware(ORIGIN).now().ok()
}

/// A handler of thread `n` begins, for reading or writing at an address. `None`: it is to do nothing, as the thread has
/// trapped there for the first time.
pub fn enters(n: u64, address: u64, writes: bool) -> Option<Handler> {
    let mut handler = Handler {
        n,
        writes,
        traps: 0,
        at: 0,
    };
    let (true, Some(at)) = ((HEAP_BASE..HEAP_END).contains(&address), now()) else {
        return Some(handler);
    };
    let times = TIMES.get(n as usize)?;
    if times.address.swap(address, Relaxed) != address {
        times.trapped.store(at, Relaxed);
        return None;
    }
    handler.traps = at.saturating_sub(times.trapped.load(Relaxed));
    handler.at = at;
    Some(handler)
}

/// A handler that goes on.
pub struct Handler {
    n: u64,
    writes: bool,
    traps: u64,
    /// When it began; 0: not known.
    at: u64,
}

impl Handler {
    /// The handler ends: the parts of the fault are added up, if all are known.
    pub fn ends(self) {
        if self.at == 0 {
            return;
        }
        let Some(times) = TIMES.get(self.n as usize) else {
            return;
        };
        times.address.store(0, Relaxed);
        let steps: [u64; 6] = core::array::from_fn(|i| times.steps[i].swap(0, Relaxed));
        if steps.contains(&0) {
            return;
        }
        let [actor, sent, there, answered, back, mapped] = steps;
        let parts = [
            1,
            self.traps,
            actor.saturating_sub(self.at),
            sent.saturating_sub(actor),
            there.saturating_sub(sent),
            answered.saturating_sub(there),
            back.saturating_sub(answered),
            mapped.saturating_sub(back),
        ];
        let first = match self.writes {
            false => Counted::Reads,
            true => Counted::Writes,
        };
        let counters = &COUNTERS[first as usize..];
        for (counter, part) in counters.iter().zip(parts) {
            counter.fetch_add(part, Relaxed);
        }
        const { assert!(Counted::PARTS == 9) };
        // The end of the last part is the last thing that takes time here.
        let last = &counters[Counted::PARTS - 1];
        let sum = last.load(Relaxed).wrapping_sub(mapped);
        if let Some(end) = now() {
            last.store(sum.wrapping_add(end), Relaxed);
        }
    }
}

/// The actor takes the question of thread `n`.
pub fn asked(n: u64, at: u64) {
    if let Some(times) = TIMES.get(n as usize) {
        for step in &times.steps {
            step.store(0, Relaxed);
        }
        times.steps[0].store(at, Relaxed);
    }
}

/// The actor has sent what thread `n` needs.
pub fn sent(n: u64, at: u64) {
    if let Some(times) = TIMES.get(n as usize) {
        times.steps[1].store(at, Relaxed);
    }
}

/// The answer is here, and what the thread needs is done: with the times at the other node, when the answer was here, and
/// now.
pub fn done(n: u64, [there, answered]: [u64; 2], (back, now): (u64, u64)) {
    if let Some(times) = TIMES.get(n as usize) {
        for (step, at) in times.steps[2..].iter().zip([there, answered, back, now]) {
            step.store(at, Relaxed);
        }
    }
}
