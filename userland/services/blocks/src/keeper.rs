//! Who has the books.
//!
//! They are had by a thread, for a few instructions or for a piece of an eviction, and are tried for, never
//! waited for. One word says who has them, so that there is no moment at which somebody has them and
//! nobody knows who:
//!
//! ```text
//!            enter (exchange 0 for the name)             leave
//!   nobody ─────────────────────────────────▶ name(t) ──────────▶ nobody
//!                                               │ somebody finds that t has ended
//!                                               ▼
//!                     LOST, for good: NodeDead; or name(who has found it), of books that can be made whole
//! ```
//!
//! A *thread* has them, not a node: a thread that was ready on a node that died goes on elsewhere, with
//! the books in hand. One that was running there is lost, and what it was doing may be half done.
//!
//! | step | order |
//! |---|---|
//! | enter | acquire: what whoever had them has changed is seen |
//! | leave | release |

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::{Error, Result};

/// The word of books that are lost.
const LOST: u64 = u64::MAX;

/// The word. All zeros: nobody.
#[derive(Debug, Default)]
pub struct Keeper {
    holder: AtomicU64,
}

/// Somebody has the books; gives them back when dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    keeper: &'a Keeper,
    me: u64,
}

impl Keeper {
    /// Nobody has them.
    pub const fn new() -> Keeper {
        Keeper {
            holder: AtomicU64::new(0),
        }
    }

    /// Takes the books, for the thread `me`, which is neither 0 nor all ones. `lives`: whether a thread that
    /// has them goes on, or may; that it does not is never asked again.
    ///
    /// # Errors
    ///
    /// `Again` if somebody has them who lives; `NodeDead` if that one is lost; `BadArgument` if `me` is none.
    pub fn enter(&self, me: u64, lives: impl FnOnce(u64) -> bool) -> Result<Turn<'_>> {
        if me == 0 || me == LOST {
            return Err(Error::BadArgument);
        }
        match self
            .holder
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => Ok(Turn { keeper: self, me }),
            Err(LOST) => Err(Error::NodeDead),
            Err(other) if lives(other) => Err(Error::Again),
            // It may have given them back before it ended.
            Err(other) => match self.give(other, LOST) {
                true => Err(Error::NodeDead),
                false => Err(Error::Again),
            },
        }
    }

    /// As [`enter`](Keeper::enter), of books that whoever has them can make whole, whatever of a change is in
    /// them: the turn of one that is lost is taken over. `true`: it has been.
    ///
    /// # Errors
    ///
    /// `Again` if somebody has them who lives; `BadArgument` if `me` is no name.
    pub fn succeed(&self, me: u64, lives: impl FnOnce(u64) -> bool) -> Result<(Turn<'_>, bool)> {
        if me == 0 || me == LOST {
            return Err(Error::BadArgument);
        }
        let turn = |taken_over| (Turn { keeper: self, me }, taken_over);
        match self
            .holder
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
        {
            Ok(_) => Ok(turn(false)),
            Err(other) if lives(other) => Err(Error::Again),
            // It may have given them back before it ended.
            Err(other) => match self.give(other, me) {
                true => Ok(turn(true)),
                false => Err(Error::Again),
            },
        }
    }

    /// Whether somebody has them just now.
    pub fn is_taken(&self) -> bool {
        self.holder.load(Ordering::Relaxed) != 0
    }

    /// What somebody has is somebody else's.
    fn give(&self, from: u64, to: u64) -> bool {
        self.holder
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Unless it has been taken for lost.
        self.keeper.give(self.me, 0);
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

    /// Wherever the holder ends, others are told at once whether they may hope: nobody gets `Again` from
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

    /// Of those who find that the holder has ended one takes over, who is told so, and the others wait for
    /// that one.
    #[test]
    fn one_succeeds_a_holder_that_has_ended() {
        let k = Keeper::new();
        assert_eq!(k.succeed(0, |_| true).err(), Some(Error::BadArgument));
        let (turn, taken_over) = k.succeed(5, |_| unreachable!()).unwrap();
        assert!(!taken_over && k.is_taken());
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
        let (turn, taken_over) = faster.take().unwrap();
        assert!(taken_over);
        assert_eq!(k.succeed(7, |who| who == 6).err(), Some(Error::Again));
        drop(turn);
        assert!(!k.is_taken());
        let (_turn, taken_over) = k.succeed(7, |_| unreachable!()).unwrap();
        assert!(!taken_over);
    }

    /// Who was taken for lost, and was not, does not make them whole.
    #[test]
    fn what_is_lost_stays_lost() {
        let k = Keeper::new();
        let turn = k.enter(5, |_| unreachable!()).unwrap();
        assert_eq!(k.enter(7, |_| false).err(), Some(Error::NodeDead));
        drop(turn);
        assert_eq!(k.enter(5, |_| true).err(), Some(Error::NodeDead));
        assert_eq!(k.enter(u64::MAX, |_| true).err(), Some(Error::BadArgument));
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
}
