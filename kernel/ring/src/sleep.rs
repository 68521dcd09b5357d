//! How a thread goes to sleep at an endpoint without missing a message, and how a sender wakes it once.
//!
//! ```text
//!   RUNNING ──begin──▶ the waiter, RUNNING ──block──▶ the waiter, BLOCKED ──still_waits──▶ asleep
//!                        │ news, or taken off           │ taken off before it was BLOCKED
//!                        ▼                              ▼
//!                      RUNNING                        RUNNING
//! ```
//!
//! Two pairs of a store and a look, each with a full fence in between on both sides (store buffering, "Dekker"):
//!
//! | the thread that goes to sleep | a sender |
//! |---|---|
//! | [`begin`]: it is the waiter; fence; look for news | [`post`]: news; fence; [`take_off`] the waiter |
//! | [`block`]: BLOCKED; [`still_waits`]: fence; look at the waiter word | [`take_off`] the waiter; [`find_asleep`]: fence; look at the owner word |
//!
//! Of the first pair one side sees the other, so no news wait beside a thread that sleeps. Of the second pair, either the
//! sender sees the thread BLOCKED, and wakes it, or the thread sees that it is the waiter no more, and runs. If both see
//! each other, one of them wins the exchange of the owner word.
//!
//! | step | order | without it |
//! |---|---|---|
//! | fences of [`begin`] and [`post`] | full | the thread sleeps beside news |
//! | fences of [`still_waits`] and [`find_asleep`] | full | the thread sleeps, and no sender is to wake it |
//! | exchange of the waiter word | one thread waits, and one of several senders takes it off | a second thread replaces the first one; several senders look at the thread, and one of them wakes it, by the owner word |
//! | exchange of the owner word | acquires and releases | two CPUs run the thread, or it is woken twice |

use crate::handoff::Words;

/// The outcome of [`begin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Another thread waits at the endpoint.
    Busy,
    /// The thread is the waiter.
    Waits,
    /// Something is pending, and the thread is not the waiter.
    Pending,
    /// Something is pending, and a sender has already taken the thread off.
    TakenOff,
}

/// Makes a running thread the waiter of an endpoint, unless something is pending. `wait` encodes the thread
/// and the number of this wait.
#[inline(always)]
pub fn begin<W: Words + ?Sized>(
    words: &W,
    waiter: W::Word,
    wait: u64,
    has_pending: impl FnOnce() -> bool,
) -> Begun {
    if !words.exchange(waiter, 0, wait) {
        return Begun::Busy;
    }
    words.fence();
    if !has_pending() {
        return Begun::Waits;
    }
    match words.exchange(waiter, wait, 0) {
        true => Begun::Pending,
        false => Begun::TakenOff,
    }
}

/// The waiter becomes BLOCKED, by its owner word: from here on it may run elsewhere. `false`: the owner word is not
/// `running`.
#[inline(always)]
#[must_use = "a thread that is not blocked must not wait"]
pub fn block<W: Words + ?Sized>(words: &W, owner: W::Word, running: u64, asleep: u64) -> bool {
    words.exchange(owner, running, asleep)
}

/// Whether a thread that has become BLOCKED is the waiter still. If not, a sender may have seen it RUNNING, and does not
/// wake it.
#[inline(always)]
#[must_use = "no other CPU may wake the thread"]
pub fn still_waits<W: Words + ?Sized>(words: &W, waiter: W::Word, wait: u64) -> bool {
    words.fence();
    words.load(waiter) == wait
}

/// Orders a send before the check for a waiter.
#[inline(always)]
pub fn post<W: Words + ?Sized>(words: &W) {
    words.fence();
}

/// Takes the waiter off, if there is one that `is_wanted`. Its wait.
#[inline(always)]
pub fn take_off<W: Words + ?Sized>(
    words: &W,
    waiter: W::Word,
    is_wanted: impl FnOnce(u64) -> bool,
) -> Option<u64> {
    let wait = words.load(waiter);
    (is_wanted(wait) && words.exchange(waiter, wait, 0)).then_some(wait)
}

/// The owner word of a thread that has been taken off, if `is_asleep` finds it BLOCKED in that wait. The
/// caller makes the thread ready by an exchange of this word.
#[inline(always)]
pub fn find_asleep<W: Words + ?Sized>(
    words: &W,
    owner: W::Word,
    is_asleep: impl Fn(u64) -> bool,
) -> Option<u64> {
    let first = words.load(owner);
    if is_asleep(first) {
        return Some(first);
    }
    words.fence();
    Some(words.load(owner)).filter(|&now| is_asleep(now))
}
