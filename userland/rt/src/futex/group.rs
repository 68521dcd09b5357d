//! The table of a program that is a process on each node: at the first node, asked by way of the peers.
//!
//! ```text
//!   waiter: BEGIN ──▶ listed ──▶ looks at the word ──▶ sleeps ──▶ END: taken or not
//!   waker:  changes the word ──▶ WAKE ──▶ takes threads off the list ──▶ each is woken where it is
//! ```
//!
//! A waiter that is listed before a waker takes threads off sees its wake-up; one that is listed afterwards sees the word
//! that the waker has changed, since the page came to it after that.

use core::sync::atomic::{AtomicU32, Ordering};

use dyad_abi::service::{process, slot};
use dyad_abi::{Error, Result};
use dyad_sys::cap::{Cap, Sinv};
use dyad_sys::thread;

const PROCESS: Cap<Sinv> = Cap::at(slot::PROCESS);

fn ask(what: u64, key: u64, count: u64) -> Result<u64> {
    PROCESS.request([what, key, count, 0])
}

/// As [`wait`](super::wait).
pub(super) fn wait(word: &AtomicU32, value: u32, deadline_ns: u64) -> Result<()> {
    let key = super::key(word);
    wait_by(
        |what| ask(what, key, 0),
        || word.load(Ordering::SeqCst) == value,
        || thread::wait(deadline_ns),
    )
}

/// The loop of [`wait`]: `ask` lists the thread or takes it off the list, `is_expected` looks at the word, and `sleep` sleeps
/// until the deadline and returns whether the thread was woken before it.
fn wait_by(
    ask: impl Fn(u64) -> Result<u64>,
    is_expected: impl Fn() -> bool,
    sleep: impl Fn() -> Result<bool>,
) -> Result<()> {
    loop {
        ask(process::FUTEX_BEGIN)?;
        let woken = match is_expected() {
            false => Err(Error::Again),
            true => sleep(),
        };
        match (ask(process::FUTEX_END)?, woken) {
            (1.., _) => return Ok(()),
            // Meant an earlier wait of this thread, that had ended before.
            (0, Ok(true)) => {}
            (0, Ok(false)) => return Err(Error::TimedOut),
            (0, Err(e)) => return Err(e),
        }
    }
}

/// As [`wake`](super::wake). A group that has ended has no threads to wake.
pub(super) fn wake(key: u64, count: u32) -> u32 {
    ask(process::FUTEX_WAKE, key, count.into()).map_or(0, |woken| woken as u32)
}

#[cfg(test)]
mod tests {
    use core::cell::{Cell, RefCell};
    use std::vec::Vec;

    use super::*;

    /// What a wait does.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Step {
        Begin,
        Look,
        Sleep,
        End,
    }
    use Step::{Begin, End, Look, Sleep};

    /// A round of a wait: how its sleep ends, and how many wake-ups the table then says the thread has taken.
    type Round = (Result<bool>, u64);

    /// Waits for a word that changes before look number `changes`: the result, and all steps.
    fn wait(changes: usize, rounds: &[Round]) -> (Result<()>, Vec<Step>) {
        let steps = RefCell::new(Vec::new());
        let did = |step| {
            steps.borrow_mut().push(step);
            steps.borrow().iter().filter(|&&s| s == step).count() - 1
        };
        let result = wait_by(
            |what| match what {
                process::FUTEX_BEGIN => {
                    did(Begin);
                    Ok(0)
                }
                process::FUTEX_END => Ok(rounds[did(End)].1),
                _ => panic!("{what} is no question of a waiter"),
            },
            || did(Look) < changes,
            || rounds[did(Sleep)].0,
        );
        (result, steps.take())
    }

    const NEVER: usize = usize::MAX;
    const ROUND: [Step; 4] = [Begin, Look, Sleep, End];
    const STALE: Round = (Ok(true), 0);

    /// A wake-up that no waker has taken the thread off the list for meant an earlier wait. The thread is listed anew, and
    /// sleeps on until its deadline, or until it is woken.
    #[test]
    fn a_stale_wake_up_does_not_end_a_wait() {
        for stale in 0..3 {
            for (last, result) in [
                ((Ok(false), 0), Err(Error::TimedOut)),
                ((Ok(true), 1), Ok(())),
                ((Err(Error::NodeDead), 0), Err(Error::NodeDead)),
            ] {
                let mut rounds = std::vec![STALE; stale];
                rounds.push(last);
                let steps = ROUND.repeat(stale + 1);
                assert_eq!(wait(NEVER, &rounds), (result, steps), "{stale}, {last:?}");
            }
        }
    }

    /// The word may have changed between the earlier waker's wake-up and the next look.
    #[test]
    fn a_word_that_has_changed_ends_a_wait_after_a_stale_wake_up() {
        let expected = [&ROUND[..], &[Begin, Look, End]].concat();
        let ended = wait(1, &[STALE, (Ok(false), 0)]);
        assert_eq!(ended, (Err(Error::Again), expected));
    }

    /// A waker has counted the thread among those that it has woken: if the wait then failed, no thread would go on for the
    /// wake-up.
    #[test]
    fn a_wake_up_that_was_taken_ends_a_wait_whatever_else_ends_it() {
        for slept in [Ok(true), Ok(false), Err(Error::NodeDead)] {
            let ended = wait(NEVER, &[(slept, 1)]);
            assert_eq!(ended, (Ok(()), ROUND.to_vec()), "{slept:?}");
        }
        assert_eq!(wait(0, &[(Ok(false), 1)]).0, Ok(()));
    }

    /// A peer that refuses a question ends the wait; the thread does not sleep without being listed.
    #[test]
    fn a_question_that_is_refused_ends_a_wait() {
        for refused in [process::FUTEX_BEGIN, process::FUTEX_END] {
            let slept = Cell::new(false);
            let ask = |what| match what == refused {
                true => Err(Error::NodeDead),
                false => Ok(0),
            };
            let sleep = || Ok(slept.replace(true));
            assert_eq!(wait_by(ask, || true, sleep), Err(Error::NodeDead));
            assert_eq!(slept.get(), refused == process::FUTEX_END);
        }
    }
}
