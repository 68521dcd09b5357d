//! Waiting until all have come.
//!
//! The words count who has come to this round, and rounds. The last one to come begins the next round
//! and wakes the others.

use core::sync::atomic::{AtomicU32, Ordering};

use dyad_abi::{Error, Result};

use super::{LostBefore, me, wait_for};
use dyad_sys::thread;

use crate::futex::{self, What};

/// Whether this was the last one to come to a barrier: one of each round is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last(pub bool);

/// A word that the threads share. The model checker has words of its own.
trait Word {
    fn load(&self, order: Ordering) -> u32;
    fn store(&self, value: u32, order: Ordering);
    /// Adds 1; gives what it was.
    fn increase(&self, order: Ordering) -> u32;
}

impl Word for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        AtomicU32::load(self, order)
    }

    fn store(&self, value: u32, order: Ordering) {
        AtomicU32::store(self, value, order);
    }

    fn increase(&self, order: Ordering) -> u32 {
        self.fetch_add(1, order)
    }
}

/// How many threads have come to the round, and the number of the round.
struct Rounds<W> {
    come: W,
    round: W,
}

impl<W: Word> Rounds<W> {
    /// The number of the round.
    fn now(&self) -> u32 {
        self.round.load(Ordering::Acquire)
    }

    /// A thread comes to the round. Begins the next round, and gives `true`, if it is the last one of `threads`.
    fn come(&self, threads: u32) -> bool {
        // Releases what this one has done, and the last one acquires it from all.
        if self.come.increase(Ordering::AcqRel) + 1 < threads {
            return false;
        }
        // Before the round: no thread of the next one has come yet.
        self.come.store(0, Ordering::Relaxed);
        self.round.increase(Ordering::Release);
        true
    }
}

/// A meeting point of a fixed number of threads. It can be used again and again.
pub struct Barrier {
    threads: u32,
    rounds: Rounds<AtomicU32>,
    lost: LostBefore,
}

impl Barrier {
    /// For so many threads; 0 is as 1.
    pub const fn new(threads: u32) -> Barrier {
        Barrier {
            threads,
            rounds: Rounds {
                come: AtomicU32::new(0),
                round: AtomicU32::new(0),
            },
            lost: LostBefore::new(),
        }
    }

    /// Waits for the others.
    ///
    /// # Errors
    ///
    /// `NodeDead` if a thread of the program was lost with its node since the barrier was first used, or before that
    /// and the others do not come: the barrier is of no use any more then. `Denied` in an invocation.
    pub fn wait(&self) -> Result<Last> {
        me()?;
        self.lost.used();
        let round = self.rounds.now();
        let word = &self.rounds.round;
        if self.rounds.come(self.threads) {
            futex::wake_all(word);
            return Ok(Last(true));
        }
        while self.rounds.now() == round {
            let in_vain = self.lost.has_changed()
                || wait_for((What::Barrier, None), word, round) == Err(Error::TimedOut)
                    && thread::lost() != 0;
            if in_vain && self.rounds.now() == round {
                return Err(Error::NodeDead);
            }
        }
        Ok(Last(false))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::sync::Arc;

    use dyad_host::{Config, run};
    use dyad_sys::exit;
    use loom::thread::{spawn, yield_now};

    use super::*;
    use crate::sync::tests::{in_time, lose_a_thread};
    use crate::sync::{WHEN_WAITED, wait};

    type Modelled = loom::sync::atomic::AtomicU32;

    impl Word for Modelled {
        fn load(&self, order: Ordering) -> u32 {
            self.load(order)
        }

        fn store(&self, value: u32, order: Ordering) {
            self.store(value, order);
        }

        fn increase(&self, order: Ordering) -> u32 {
            self.fetch_add(1, order)
        }
    }

    /// A thread leaves a round after all threads have come to it. It then sees what the other threads have written before.
    /// A thread that comes to the next round while others leave this one counts in the next round.
    #[test]
    fn rounds_begin_when_all_have_come() {
        loom::model(|| {
            let word = || Modelled::new(0);
            let rounds = Rounds {
                come: word(),
                round: word(),
            };
            let all = Arc::new((rounds, [word(), word()]));
            let meet = |(rounds, done): &(Rounds<Modelled>, [Modelled; 2]), me: usize| {
                for turn in 1..=2 {
                    done[me].store(turn, Ordering::Relaxed);
                    let round = rounds.now();
                    if !rounds.come(2) {
                        while rounds.now() == round {
                            yield_now();
                        }
                    }
                    let other = done[1 - me].load(Ordering::Relaxed);
                    assert!(other >= turn, "left round {turn} before the other came");
                }
            };
            let others = all.clone();
            let other = spawn(move || meet(&others, 1));
            meet(&all, 0);
            other.join().unwrap();
        });
    }

    /// The thread that ends a round may be lost before it wakes the others. They find that the round has ended.
    #[test]
    fn a_round_that_has_ended_is_found_after_a_loss() {
        static GATE: Barrier = Barrier::new(2);

        fn entry(argument: u64) -> ! {
            lose_a_thread(argument);
            // A thread is told of a loss once.
            assert_eq!(wait(&AtomicU32::new(0), 0), Err(Error::NodeDead));
            WHEN_WAITED.set(Some(|| _ = GATE.rounds.round.increase(Ordering::Release)));
            assert_eq!(GATE.wait(), Ok(Last(false)));
            exit(9)
        }
        in_time(|| assert_eq!(run(Config::default(), entry).code, 9));
    }
}
