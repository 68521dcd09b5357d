//! Init's record of a thread of a program, and of the program's end: a word each, changed by exchange.
//!
//! ```text
//!            start: claimed        settled           ended
//!   Idle ───────────────▶ Starting ──▶ Running ─────────────▶ Idle (once it has stopped: again)
//!                          │     ▲        └──stopped, without having said so──▶ Lost
//!                          └─────┘ the starter has ended: the next one claims it
//! ```
//!
//! Nothing here makes a system call. Invocations are named by tokens; whether one is still under way the caller says.
//!
//! | step | order |
//! |---|---|
//! | claim, settle, end, lose: exchange | acquire and release |
//! | looks | acquire |

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::{Error, Result};

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The thread was never started, or has announced its end.
    Idle,
    /// An invocation is just starting it.
    Starting,
    /// The thread has begun.
    Running,
    /// The thread has stopped without announcing its end.
    Lost,
}

const IDLE: u64 = 0;
const STARTING: u64 = 1;
const RUNNING: u64 = 2;
const LOST: u64 = 3;
/// The state; bits 8 to 31: of Starting the token of the invocation that starts it. Above them it is counted how often
/// the thread has been started, so that an exchange never takes one life for another.
const MASK: u64 = 0xff;
const STARTER_SHIFT: u32 = 8;
const STARTED_ONCE: u64 = 1 << 32;

/// The word without its state: the number of starts, in state Idle.
const fn idle(word: u64) -> u64 {
    word & !(STARTED_ONCE - 1)
}

/// The [`idle`] word after one more start. The count wraps from its maximum to 1: 0 stands for a thread that
/// was never started.
fn started_again(word: u64) -> u64 {
    idle(word).checked_add(STARTED_ONCE).unwrap_or(STARTED_ONCE)
}

/// The word of a thread.
pub struct ThreadWord(AtomicU64);

impl ThreadWord {
    /// The word of a thread that was never started.
    pub const fn new() -> ThreadWord {
        ThreadWord(AtomicU64::new(IDLE))
    }

    /// The first thread of a program, which is not started by another one, is about to run.
    pub fn run_first(&self) {
        self.0.store(STARTED_ONCE | RUNNING, Ordering::Relaxed);
    }

    /// The state of the thread.
    pub fn state(&self) -> State {
        match self.0.load(Ordering::Acquire) & MASK {
            IDLE => State::Idle,
            STARTING => State::Starting,
            RUNNING => State::Running,
            _ => State::Lost,
        }
    }

    /// Whether the thread was never started.
    pub fn is_new(&self) -> bool {
        self.0.load(Ordering::Acquire) == IDLE
    }

    /// Whether an invocation that is over has not come to an end with starting it. `me` is the token of the invocation
    /// that asks, which can only have taken the place of another one with that token.
    pub fn is_abandoned(&self, me: u64, is_inside: impl Fn(u64) -> bool) -> bool {
        abandoned(self.0.load(Ordering::Acquire), me, is_inside)
    }

    /// Claims the start of the thread for invocation `me`, if `may` permits it after the word has been read.
    ///
    /// # Errors
    ///
    /// `Again` if the thread runs, or is being started; `NodeDead` if it was lost; errors of `may`.
    pub fn claim(
        &self,
        me: u64,
        is_inside: impl Fn(u64) -> bool,
        may: impl FnOnce() -> Result<()>,
    ) -> Result<Claim<'_>> {
        let was = self.0.load(Ordering::Acquire);
        let is_inherited = abandoned(was, me, is_inside);
        match was & MASK {
            IDLE => {}
            LOST => return Err(Error::NodeDead),
            _ if is_inherited => {}
            _ => return Err(Error::Again),
        }
        may()?;
        let idle = started_again(was);
        let starting = idle | me << STARTER_SHIFT | STARTING;
        self.exchange(was, starting)
            .then_some(Claim {
                word: self,
                idle,
                starting,
                is_inherited,
            })
            .ok_or(Error::Again)
    }

    /// The thread says that it ends. Only the invocation that starts it changes the word meanwhile, once.
    pub fn end(&self) {
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |w| Some(idle(w)));
    }

    /// Changes the state from Running to Lost if `has_gone` returns `true` after the word has been read.
    /// Returns whether this call has changed it.
    pub fn lose_if(&self, has_gone: impl FnOnce() -> bool) -> bool {
        let word = self.0.load(Ordering::Acquire);
        word & MASK == RUNNING && has_gone() && self.exchange(word, idle(word) | LOST)
    }

    fn exchange(&self, old: u64, new: u64) -> bool {
        self.0
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

impl Default for ThreadWord {
    fn default() -> ThreadWord {
        ThreadWord::new()
    }
}

fn abandoned(word: u64, me: u64, is_inside: impl Fn(u64) -> bool) -> bool {
    let starter = (word & (STARTED_ONCE - 1)) >> STARTER_SHIFT;
    word & MASK == STARTING && (starter == me || !is_inside(starter))
}

/// The right to start a thread.
#[must_use = "the thread is being started until this is settled"]
pub struct Claim<'a> {
    word: &'a ThreadWord,
    idle: u64,
    starting: u64,
    is_inherited: bool,
}

impl Claim<'_> {
    /// Records the result of a start: whether the thread could be configured, and then whether it has begun.
    /// Returns the result for the requester of the start.
    ///
    /// # Errors
    ///
    /// `Again` if the thread had not entirely ended before; otherwise the error of `begun`.
    pub fn settle(self, configured: Result<()>, begun: Result<()>) -> Result<()> {
        let now = match configured {
            // The invocation that had claimed it before has had it begin.
            Err(Error::NotReady) if self.is_inherited => self.idle | RUNNING,
            Ok(()) if begun.is_ok() => self.idle | RUNNING,
            _ => self.idle,
        };
        // It may have ended already.
        self.word.exchange(self.starting, now);
        match begun {
            // It runs, or its last moments are not over.
            Err(Error::NotReady) if configured.is_err() => Err(Error::Again),
            done => done,
        }
    }
}

/// State of a program's end: an invocation is reporting how.
const SAYS: u64 = 1;
/// State of a program's end: how it has ended has been reported.
const SAID: u64 = 2;

/// Decides which invocation says how a program has ended: the first one that is not lost while it does.
pub struct EndWord(AtomicU64);

impl EndWord {
    /// The token of a thread of init, which is lost only with the whole system.
    pub const INIT: u64 = 0;

    /// The word of a program that has not ended.
    pub const fn new() -> EndWord {
        EndWord(AtomicU64::new(0))
    }

    /// Whether it has been reported how the program ends.
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == SAID
    }

    /// Lets invocation `me` report by `say` how the program ends, unless another invocation has done so or is
    /// about to. Returns whether `me` has reported it.
    pub fn say(&self, me: u64, is_inside: impl Fn(u64) -> bool, say: impl FnOnce()) -> bool {
        let over = self.0.load(Ordering::Acquire);
        let is_abandoned = over & 0xff == SAYS && over >> 8 != Self::INIT && !is_inside(over >> 8);
        let new = SAYS | me << 8;
        let claimed = (over == 0 || is_abandoned)
            && self
                .0
                .compare_exchange(over, new, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        if claimed {
            say();
            self.0.store(SAID, Ordering::Release);
        }
        claimed
    }
}

impl Default for EndWord {
    fn default() -> EndWord {
        EndWord::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: u64 = 7;
    const OTHER: u64 = 9;

    fn all_inside(_: u64) -> bool {
        true
    }

    fn claim(word: &ThreadWord, me: u64) -> Result<Claim<'_>> {
        word.claim(me, all_inside, || Ok(()))
    }

    #[test]
    fn a_thread_is_started_once_and_again_after_it_has_ended() {
        let word = ThreadWord::new();
        assert!(word.is_new());
        for _ in 0..3 {
            let first = claim(&word, ME).ok().unwrap();
            assert_eq!(word.state(), State::Starting);
            assert_eq!(claim(&word, OTHER).err(), Some(Error::Again));
            assert_eq!(first.settle(Ok(()), Ok(())), Ok(()));
            assert_eq!(word.state(), State::Running);
            assert_eq!(claim(&word, OTHER).err(), Some(Error::Again));
            word.end();
            assert_eq!(word.state(), State::Idle);
            assert!(!word.is_new(), "it was configured once");
        }
    }

    /// It may be started only if nothing has changed since it was found idle: what permits a start is asked after that.
    #[test]
    fn what_permits_a_start_is_asked_after_the_thread_was_found_idle() {
        let word = ThreadWord::new();
        assert_eq!(
            claim(&word, OTHER).ok().unwrap().settle(Ok(()), Ok(())),
            Ok(())
        );
        let asked_too_early = || {
            word.end();
            Ok(())
        };
        let claimed = word.claim(ME, all_inside, asked_too_early);
        assert_eq!(claimed.err(), Some(Error::Again));
        assert_eq!(word.state(), State::Running);
    }

    #[test]
    fn a_count_of_starts_that_is_full_begins_again_at_one() {
        let word = ThreadWord(AtomicU64::new(idle(u64::MAX)));
        for _ in 0..2 {
            let start = claim(&word, ME).ok().unwrap();
            assert_eq!((word.state(), word.is_new()), (State::Starting, false));
            assert_eq!(start.settle(Ok(()), Ok(())), Ok(()));
            assert_eq!((word.state(), word.is_new()), (State::Running, false));
            word.end();
            assert_eq!((word.state(), word.is_new()), (State::Idle, false));
        }
    }

    #[test]
    fn one_that_ends_before_its_starter_has_settled_stays_ended() {
        let word = ThreadWord::new();
        let first = claim(&word, ME).ok().unwrap();
        word.end();
        assert_eq!(first.settle(Ok(()), Ok(())), Ok(()));
        assert_eq!(word.state(), State::Idle);
        // Nor does a late starter settle a later life.
        let late = claim(&word, ME).ok().unwrap();
        word.end();
        let next = claim(&word, OTHER).ok().unwrap();
        assert_eq!(late.settle(Ok(()), Ok(())), Ok(()));
        assert_eq!(word.state(), State::Starting);
        assert_eq!(next.settle(Ok(()), Ok(())), Ok(()));
        assert_eq!(word.state(), State::Running);
    }

    #[test]
    fn the_start_of_a_starter_that_is_gone_is_claimed() {
        let gone = |token| token != ME;
        // It had not come to the thread, or had had it begin.
        for (configured, begun, told, state) in [
            (Ok(()), Ok(()), Ok(()), State::Running),
            (
                Err(Error::NotReady),
                Err(Error::NotReady),
                Err(Error::Again),
                State::Running,
            ),
            (
                Ok(()),
                Err(Error::NodeDead),
                Err(Error::NodeDead),
                State::Idle,
            ),
        ] {
            let word = ThreadWord::new();
            let lost = claim(&word, ME).ok().unwrap();
            assert!(!word.is_abandoned(OTHER, all_inside) && word.is_abandoned(OTHER, gone));
            // An invocation with the same token can only have come after that one.
            assert!(word.is_abandoned(ME, all_inside));
            let next = word.claim(OTHER, gone, || Ok(())).ok().unwrap();
            assert_eq!(next.settle(configured, begun), told);
            assert_eq!(word.state(), state);
            let _ = lost;
        }
        // Without an inherited claim, a thread that is not ready has not quite ended.
        let word = ThreadWord::new();
        let first = claim(&word, ME).ok().unwrap();
        let not_ready = Err(Error::NotReady);
        assert_eq!(first.settle(not_ready, not_ready), Err(Error::Again));
        assert_eq!(word.state(), State::Idle);
    }

    #[test]
    fn a_program_that_is_over_starts_nothing() {
        let word = ThreadWord::new();
        let refused = word.claim(ME, all_inside, || Err(Error::Denied));
        assert_eq!(refused.err(), Some(Error::Denied));
        assert!(word.is_new());
    }

    #[test]
    fn only_what_runs_is_lost_and_then_for_ever() {
        let word = ThreadWord::new();
        assert!(!word.lose_if(|| true));
        word.run_first();
        assert!(!word.lose_if(|| false));
        // It ends while it is looked at.
        assert!(!word.lose_if(|| {
            word.end();
            true
        }));
        assert_eq!(word.state(), State::Idle);
        let start = claim(&word, ME).ok().unwrap();
        assert!(!word.lose_if(|| true));
        assert_eq!(start.settle(Ok(()), Ok(())), Ok(()));
        assert!(word.lose_if(|| true) && !word.lose_if(|| true));
        assert_eq!(word.state(), State::Lost);
        assert_eq!(claim(&word, ME).err(), Some(Error::NodeDead));
    }

    #[test]
    fn the_end_of_a_program_is_said_once() {
        let end = EndWord::new();
        let mut said = 0;
        assert!(!end.is_over());
        assert!(end.say(ME, all_inside, || {
            // No other invocation says it meanwhile.
            assert!(!end.is_over() && !end.say(OTHER, all_inside, || ()));
            said += 1;
        }));
        assert!(end.is_over());
        assert!(!end.say(OTHER, |_| false, || said += 1));
        assert_eq!(said, 1);
    }

    #[test]
    fn who_is_lost_while_saying_it_is_succeeded() {
        let end = EndWord::new();
        let mut said = None;
        end.say(ME, all_inside, || {
            // This invocation goes no further, as another one sees.
            let gone = |token| token != ME;
            assert!(end.say(OTHER, gone, || said = Some(OTHER)));
        });
        assert_eq!(said, Some(OTHER));
        // Init is not.
        let end = EndWord::new();
        end.say(EndWord::INIT, all_inside, || {
            assert!(!end.say(OTHER, |_| false, || ()));
        });
        assert!(end.is_over());
    }
}
