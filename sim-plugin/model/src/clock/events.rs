//! Future events of a CPU: its deadline, and doorbells on their way to it.
//!
//! Every sender has a queue at every receiver, of the times when doorbells are due, in order. The
//! sender alone advances `head`, the receiver alone `tail`. Whoever claims a CPU that sleeps only
//! looks: the CPU itself takes the event when it has woken up.
//!
//! A receiver that does not look loses nothing when a queue is full: the last doorbell then comes
//! later, when the new one would have. One that comes after everything that was sent is as good as
//! several.

use super::words::{QUEUE_WORDS, Words, cpu, queue, who};
use super::{Interrupt, Shape, Who};

const HEAD: usize = 0;
const TAIL: usize = 1;
const SLOTS: usize = 2;
const ROOM: u64 = (QUEUE_WORDS - SLOTS) as u64;

/// An event that is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in picoseconds.
    pub at: u64,
    /// The interrupt.
    pub what: Interrupt,
    /// The sender in whose queue the event is, if it is a doorbell.
    from: Option<Who>,
}

const fn slot(queue: usize, n: u64) -> usize {
    queue + SLOTS + (n % ROOM) as usize
}

/// The next event of a CPU. Of several at the same time the timer is first, then the doorbell of
/// the sender with the lowest number.
pub fn next(words: &impl Words, shape: Shape, to: Who) -> Option<Event> {
    let deadline = words.get(who(to, cpu::DEADLINE));
    let mut next = (deadline != 0).then_some(Event {
        at: deadline,
        what: Interrupt::Timer,
        from: None,
    });
    for from in shape.all() {
        let q = queue(to, from);
        let tail = words.get(q + TAIL);
        if words.get(q + HEAD) != tail {
            let at = words.get(slot(q, tail));
            if next.is_none_or(|n| at < n.at) {
                next = Some(Event {
                    at,
                    what: Interrupt::Doorbell,
                    from: Some(from),
                });
            }
        }
    }
    next
}

/// Takes an event that [`next`] has returned; by the CPU itself.
pub fn take(words: &impl Words, to: Who, event: Event) {
    match event.from {
        None => words.set(who(to, cpu::DEADLINE), 0),
        Some(from) => {
            let tail = queue(to, from) + TAIL;
            words.set(tail, words.get(tail) + 1);
        }
    }
}

/// Sends a doorbell that is due at a time, not before those sent already; by the sender. `false`:
/// the queue was full, and its last one comes later.
pub fn send(words: &impl Words, from: Who, to: Who, at: u64) -> bool {
    let q = queue(to, from);
    let head = words.get(q + HEAD);
    if head - words.get(q + TAIL) >= ROOM {
        words.set(slot(q, head - 1), at);
        words.fence();
        // Unless the receiver has taken everything meanwhile, as it was.
        if words.get(q + TAIL) < head {
            return false;
        }
    }
    words.set(slot(q, head), at);
    words.set(q + HEAD, head + 1);
    true
}

/// Forgets all doorbells on their way to a CPU, and its deadline; by the CPU itself, before it
/// begins.
pub fn forget(words: &impl Words, shape: Shape, to: Who) {
    words.set(who(to, cpu::DEADLINE), 0);
    for from in shape.all() {
        let q = queue(to, from);
        words.set(q + TAIL, words.get(q + HEAD));
    }
}
