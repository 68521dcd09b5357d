//! Where a thread of a process says what it wants of its peer's actor, and waits: one slot for each thread.
//!
//! ```text
//!   handler: words, state ASKED, bit of POSTED, tells the actor, waits at its line
//!   actor:   takes the bits; later: answer, state ANSWERED, wakes the line
//!   handler: reads the answer, state TAKEN
//! ```
//!
//! | step | order | pairs with |
//! |---|---|---|
//! | handler: words and state, then bit of POSTED | release | actor's exchange of POSTED: the words are whole |
//! | actor: answer, then state | release | handler's load of the state |
//! | ENDED, then who waits is woken | release | handler's load of ENDED, behind each wait |
//!
//! Each thread is in one handler at a time, so a slot has one asker.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::Error;

/// A word that the handlers and the actor share. The model checker has words of its own.
pub trait Word {
    /// Reads it.
    fn load(&self, order: Ordering) -> u64;
    /// Writes it.
    fn store(&self, value: u64, order: Ordering);
    /// Writes it; gives what it was.
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// Sets bits.
    fn set(&self, bits: u64, order: Ordering);
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        AtomicU64::swap(self, value, order)
    }

    fn set(&self, bits: u64, order: Ordering) {
        self.fetch_or(bits, order);
    }
}

/// How the two wake each other. What is told to one that does not wait yet, ends its next wait.
pub trait Lines {
    /// Tells the actor that there is something.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn tell_actor(&self) -> Result<(), Error>;
    /// Waits at the line of thread `n`.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    fn wait(&self, n: u64) -> Result<(), Error>;
    /// Wakes thread `n`, which waits at its line or will wait there.
    fn wake(&self, n: u64);
}

/// Number of words of a question.
pub const QUESTION: usize = 5;
/// Number of words of an answer.
pub const ANSWER: usize = 4;

const ASKED: u64 = 1;
const ANSWERED: u64 = 2;
const TAKEN: u64 = 3;

struct Slot<W> {
    state: W,
    words: [W; QUESTION],
    answer: [W; ANSWER],
}

/// The slots of up to 64 threads.
pub struct Slots<const N: usize, W: Word = AtomicU64> {
    slots: [Slot<W>; N],
    /// Threads that have asked and whose words the actor has not taken, by bit.
    posted: W,
    /// 1: the actor touches nothing any more.
    stopped: W,
    /// 1: the group has ended.
    ended: W,
}

impl<const N: usize> Slots<N> {
    /// Unused slots.
    pub const fn new() -> Slots<N> {
        Slots {
            slots: [const {
                Slot {
                    state: AtomicU64::new(0),
                    words: [const { AtomicU64::new(0) }; QUESTION],
                    answer: [const { AtomicU64::new(0) }; ANSWER],
                }
            }; N],
            posted: AtomicU64::new(0),
            stopped: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }
}

impl<const N: usize> Default for Slots<N> {
    fn default() -> Slots<N> {
        Slots::new()
    }
}

impl<const N: usize, W: Word> Slots<N, W> {
    /// Slots of other words, which are all 0.
    pub fn of(word: impl Fn() -> W) -> Slots<N, W> {
        Slots {
            slots: core::array::from_fn(|_| Slot {
                state: word(),
                words: core::array::from_fn(|_| word()),
                answer: core::array::from_fn(|_| word()),
            }),
            posted: word(),
            stopped: word(),
            ended: word(),
        }
    }

    fn slot(&self, n: u64) -> Option<&Slot<W>> {
        self.slots.get(usize::try_from(n).ok()?)
    }

    /// Asks the actor on behalf of thread `n`, and waits for the answer.
    ///
    /// # Errors
    ///
    /// `Denied` if there is no such thread; `NodeDead` if the group ends meanwhile; those of the lines.
    pub fn ask(
        &self,
        lines: &impl Lines,
        n: u64,
        words: [u64; QUESTION],
    ) -> Result<[u64; ANSWER], Error> {
        let own = self.slot(n).ok_or(Error::Denied)?;
        for (to, word) in own.words.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        own.state.store(ASKED, Ordering::Relaxed);
        self.posted.set(1 << n, Ordering::AcqRel);
        lines.tell_actor()?;
        while own.state.load(Ordering::Acquire) != ANSWERED {
            if self.has_ended() {
                return Err(Error::NodeDead);
            }
            lines.wait(n)?;
        }
        let answer = core::array::from_fn(|i| own.answer[i].load(Ordering::Relaxed));
        own.state.store(TAKEN, Ordering::Relaxed);
        Ok(answer)
    }

    /// Threads that have asked since the last call, by bit. For the actor.
    pub fn posted(&self) -> u64 {
        match self.posted.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.posted.swap(0, Ordering::AcqRel),
        }
    }

    /// Whether there is something that [`posted`](Slots::posted) would tell.
    pub fn has_posted(&self) -> bool {
        self.posted.load(Ordering::Relaxed) != 0
    }

    /// Whether thread `n` waits for an answer.
    pub fn waits(&self, n: u64) -> bool {
        let asked = self.slot(n);
        asked.is_some_and(|s| s.state.load(Ordering::Relaxed) == ASKED)
    }

    /// Those of these threads, by bit, that have been answered and have not run since.
    pub fn not_resumed(&self, threads: u64) -> u64 {
        let answered = |n: &u64| {
            let slot = self.slot(*n);
            slot.is_some_and(|s| s.state.load(Ordering::Relaxed) == ANSWERED)
        };
        let all = (0..64).filter(|n| threads >> n & 1 != 0).filter(answered);
        all.fold(0, |bits, n| bits | 1 << n)
    }

    /// What thread `n` has asked. For the actor, once [`posted`](Slots::posted) has told of it.
    pub fn words(&self, n: u64) -> [u64; QUESTION] {
        let asked = self.slot(n);
        core::array::from_fn(|i| asked.map_or(0, |s| s.words[i].load(Ordering::Relaxed)))
    }

    /// Answers thread `n`, if it waits. For the actor.
    pub fn answer(&self, lines: &impl Lines, n: u64, words: [u64; ANSWER]) {
        let Some(asked) = self.slot(n) else {
            return;
        };
        if asked.state.load(Ordering::Relaxed) != ASKED {
            return;
        }
        for (to, word) in asked.answer.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        asked.state.store(ANSWERED, Ordering::Release);
        lines.wake(n);
    }

    /// Whether the actor has seen that the group has ended, and touches nothing any more.
    pub fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) != 0
    }

    /// The actor touches nothing any more. For the actor.
    pub fn stop(&self) {
        self.stopped.store(1, Ordering::Release);
    }

    /// Whether the group has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) != 0
    }

    /// The group has ended: all threads that wait go on.
    ///
    /// # Errors
    ///
    /// As [`Lines::tell_actor`]: the threads go on all the same.
    pub fn end(&self, lines: &impl Lines) -> Result<(), Error> {
        self.ended.store(1, Ordering::Release);
        let told = lines.tell_actor();
        for n in 0..N as u64 {
            lines.wake(n);
        }
        told
    }
}
