//! A lock word that names its holder, so that a holder that has ended can be succeeded.
//!
//! Invocations run on threads of clients, and a thread can end within a service: its node dies, or its owner stops
//! it and the grace period passes. A keeper is tried, never waited for, and its word says at every moment which
//! holder has it:
//!
//! ```text
//!            enter, succeed (CAS)                        drop
//!   free ─────────────────────────────────▶ held by t ──────────▶ free
//!                                              │ another one finds that t has ended
//!                                              ▼
//!                    enter: LOST, for good: NodeDead; succeed: held by the one that found it
//! ```
//!
//! | bits | content |
//! |---|---|
//! | 0 to 31 | name of the holder; 0: none; all ones: LOST |
//! | 32 to 63 | how often the keeper has been taken |
//!
//! The count makes every word a new one. Without it two successors could both succeed: one by a CAS from the name of
//! the holder that has ended, the other one because its own name is that name, as a name is used again by the next
//! invocation of the same thread.
//!
//! | step | order |
//! |---|---|
//! | the word is read; then it is asked whether the holder lives | acquire: the answer is about the invocation that has stored the word, not about an earlier one of that name |
//! | take | acquire: the stores of all earlier holders are visible |
//! | give back | release |

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::{Error, Result};

/// The name of a keeper that is lost.
const LOST: u32 = u32::MAX;

/// The word of a keeper. The model checker has words of its own.
pub trait Word {
    /// Reads it: acquires.
    fn load(&self) -> u64;
    /// Changes it from `old` to `new`: acquires and releases. Whether it was `old`.
    fn exchange(&self, old: u64, new: u64) -> bool;
}

impl Word for AtomicU64 {
    fn load(&self) -> u64 {
        AtomicU64::load(self, Ordering::Acquire)
    }

    fn exchange(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// The keeper. All zeros: free.
#[derive(Debug, Default)]
pub struct Keeper<W: Word = AtomicU64> {
    word: W,
}

/// The right to what a keeper protects; gives it back when dropped.
#[derive(Debug)]
pub struct Turn<'a, W: Word = AtomicU64> {
    keeper: &'a Keeper<W>,
    word: u64,
}

const fn name(word: u64) -> u32 {
    word as u32
}

/// The word that follows `word`, with a holder.
const fn next(word: u64, holder: u32) -> u64 {
    ((word >> 32).wrapping_add(1) << 32) | holder as u64
}

impl Keeper {
    /// A free one.
    pub const fn new() -> Keeper {
        Keeper {
            word: AtomicU64::new(0),
        }
    }
}

impl<W: Word> Keeper<W> {
    /// One with this word, which is 0.
    pub const fn of(word: W) -> Keeper<W> {
        Keeper { word }
    }

    /// Takes the keeper of a state that cannot be repaired after a holder has ended in the middle of a
    /// change. `lives`: whether a holder continues, or may; `false` is final.
    ///
    /// # Errors
    ///
    /// `Again` if there is a holder that lives; `NodeDead` if a holder has ended; `BadArgument` if `me` is no name.
    pub fn enter(&self, me: u32, lives: impl FnOnce(u32) -> bool) -> Result<Turn<'_, W>> {
        let (turn, before) = self.succeed(me, lives)?;
        match before {
            Some(_) => {
                turn.lose();
                Err(Error::NodeDead)
            }
            None => Ok(turn),
        }
    }

    /// Takes the keeper of a state that the next holder can repair, at whatever point a change was
    /// interrupted. Returns the name of the holder that has ended, if there was one.
    ///
    /// # Errors
    ///
    /// `Again` if there is a holder that lives; `NodeDead` if the keeper is lost; `BadArgument` if `me` is no name.
    pub fn succeed(
        &self,
        me: u32,
        lives: impl FnOnce(u32) -> bool,
    ) -> Result<(Turn<'_, W>, Option<u32>)> {
        if me == 0 || me == LOST {
            return Err(Error::BadArgument);
        }
        let was = self.word.load();
        let before = match name(was) {
            0 => None,
            LOST => return Err(Error::NodeDead),
            // A thread is in one place at a time: a holder with the caller's name was an earlier invocation.
            same if same == me => Some(same),
            other if lives(other) => return Err(Error::Again),
            other => Some(other),
        };
        let mine = next(was, me);
        match self.word.exchange(was, mine) {
            true => Ok((
                Turn {
                    keeper: self,
                    word: mine,
                },
                before,
            )),
            // Another one was faster, or the holder has given it back before it ended.
            false => Err(Error::Again),
        }
    }

    /// Whether the protected state is lost: nothing can take the keeper any more.
    pub fn is_lost(&self) -> bool {
        name(self.word.load()) == LOST
    }

    /// The name of the present holder, if there is one.
    pub fn holder(&self) -> Option<u32> {
        match name(self.word.load()) {
            0 | LOST => None,
            name => Some(name),
        }
    }
}

impl<W: Word> Turn<'_, W> {
    /// Declares that the protected state cannot be repaired: nothing takes the keeper any more.
    pub fn lose(self) {
        let lost = next(self.word, LOST);
        self.keeper.word.exchange(self.word, lost);
        // Nothing is left to give back: the word is another one.
    }
}

impl<W: Word> Drop for Turn<'_, W> {
    fn drop(&mut self) {
        self.keeper.word.exchange(self.word, next(self.word, 0));
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::cell::Cell;

    #[test]
    fn one_at_a_time_and_again_is_for_those_who_live() {
        let k = Keeper::new();
        assert_eq!(k.enter(0, |_| true).err(), Some(Error::BadArgument));
        let turn = k.enter(5, |_| unreachable!()).unwrap();
        let asked = Cell::new(0);
        let lives = |who| {
            asked.set(who);
            true
        };
        assert_eq!(k.enter(6, lives).err(), Some(Error::Again));
        assert_eq!(asked.get(), 5);
        drop(turn);
        drop(k.enter(6, |_| unreachable!()).unwrap());
        drop(k.enter(5, |_| unreachable!()).unwrap());
    }

    /// Wherever the holder ends, others are told at once whether they may hope: no caller gets `Again` from
    /// one that has ended.
    #[test]
    fn a_holder_that_ends_is_not_waited_for() {
        // Before it has begun, in the middle, and after it.
        for at in 0..3 {
            let k = Keeper::new();
            if at > 0 {
                let turn = k.enter(5, |_| unreachable!()).unwrap();
                match at {
                    // Nothing of it is run any more.
                    1 => core::mem::forget(turn),
                    _ => drop(turn),
                }
            }
            for round in 0..3 {
                let got = k.enter(7, |who| {
                    // Only once: another life of it may go on later.
                    assert_eq!((who, round), (5, 0));
                    false
                });
                match at {
                    1 => assert_eq!(got.err(), Some(Error::NodeDead)),
                    _ => assert!(got.is_ok()),
                }
            }
        }
    }

    /// Of the threads that find that the holder has ended, one takes over and is told so; the others wait for
    /// that one.
    #[test]
    fn one_succeeds_a_holder_that_has_ended() {
        let k = Keeper::new();
        assert_eq!(k.succeed(0, |_| true).err(), Some(Error::BadArgument));
        let (turn, before) = k.succeed(5, |_| unreachable!()).unwrap();
        assert_eq!((before, k.holder()), (None, Some(5)));
        assert_eq!(k.succeed(6, |_| true).err(), Some(Error::Again));
        core::mem::forget(turn);
        // Another one is faster between the look and the exchange.
        let faster = Cell::new(None);
        let got = k.succeed(7, |who| {
            assert_eq!(who, 5);
            faster.set(k.succeed(6, |_| false).ok());
            false
        });
        assert_eq!(got.err(), Some(Error::Again));
        let (turn, before) = faster.take().unwrap();
        assert_eq!(before, Some(5));
        assert_eq!(k.succeed(7, |who| who == 6).err(), Some(Error::Again));
        drop(turn);
        assert_eq!(k.holder(), None);
        let (_turn, before) = k.succeed(7, |_| unreachable!()).unwrap();
        assert_eq!(before, None);
    }

    /// Who was taken for lost, and was not, does not make them whole.
    #[test]
    fn what_is_lost_stays_lost() {
        let k = Keeper::new();
        let turn = k.enter(5, |_| unreachable!()).unwrap();
        assert!(!k.is_lost());
        assert_eq!(k.enter(7, |_| false).err(), Some(Error::NodeDead));
        assert!(k.is_lost());
        drop(turn);
        assert!(k.is_lost() && k.holder().is_none());
        assert_eq!(k.enter(5, |_| true).err(), Some(Error::NodeDead));
        assert_eq!(k.enter(u32::MAX, |_| true).err(), Some(Error::BadArgument));
    }

    /// It gives them back, and ends, between two looks of another one.
    #[test]
    fn who_gives_them_back_before_it_ends_has_not_lost_them() {
        let k = Keeper::new();
        let turn = Cell::new(Some(k.enter(5, |_| unreachable!()).unwrap()));
        let got = k.enter(7, |_| {
            drop(turn.take());
            false
        });
        assert_eq!(got.err(), Some(Error::Again));
        assert!(k.enter(7, |_| unreachable!()).is_ok());
    }

    /// The next invocation of a thread that has ended with the lock held is no other thread, and is not asked about.
    #[test]
    fn an_invocation_succeeds_an_earlier_one_of_the_same_name() {
        let k = Keeper::new();
        let (turn, _) = k.succeed(5, |_| unreachable!()).unwrap();
        core::mem::forget(turn);
        let (turn, before) = k.succeed(5, |_| unreachable!()).unwrap();
        assert_eq!(before, Some(5));
        drop(turn);
        assert_eq!(k.holder(), None);
        // One that has looked before that does not succeed the old one as well.
        core::mem::forget(k.succeed(5, |_| unreachable!()).unwrap());
        let again = Cell::new(None);
        let late = k.succeed(7, |_| {
            again.set(k.succeed(5, |_| unreachable!()).ok());
            false
        });
        assert_eq!(late.err(), Some(Error::Again));
        assert!(again.take().is_some());
    }
}
