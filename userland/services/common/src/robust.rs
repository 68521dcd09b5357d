//! Locks of services that survive their holders, and state that is whole whenever a holder ends.
//!
//! A [`RobustLock`] is held by an invocation, which its token names. It is tried, never waited for: a lock that is held
//! answers `Again`. If the holder is no longer inside the service, the kernel says so
//! ([`Cap::is_inside`](dyad_sys::cap::Cap::is_inside)), and the caller succeeds it. The state behind the lock must be
//! such that the successor can use it, whatever of a change is in it: either because every store alone leaves it usable,
//! or because it is [`Shadowed`] and a record says what is to be finished.
//!
//! A client's scheduler can leave a lock held for as long as it likes. So a lock is for the threads of one client and
//! for init, not for several clients.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicUsize, Ordering};

use dyad_abi::{Error, NodeId, Result};

use crate::keeper::{Keeper, Turn};
use crate::rt::{self, Call};

/// A lock that names its holder.
pub struct RobustLock<T> {
    keeper: Keeper,
    value: UnsafeCell<T>,
}

// SAFETY: 1. One guard exists at a time: a guard of an invocation that is over is never used again. So sharing the
// lock moves the value between threads but never shares it; that is what `Send` allows.
unsafe impl<T: Send> Sync for RobustLock<T> {}

impl<T> RobustLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> RobustLock<T> {
        RobustLock {
            keeper: Keeper::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock for an invocation, if it is free or its holder has ended.
    ///
    /// # Errors
    ///
    /// `Again` if it is held by an invocation that may go on.
    pub fn try_lock(&self, call: &Call) -> Result<RobustGuard<'_, T>> {
        self.try_lock_as(call.token, is_inside)
    }

    /// As [`try_lock`](RobustLock::try_lock), by the token of the invocation; `lives` says whether another one may go
    /// on.
    ///
    /// # Errors
    ///
    /// `Again` if it is held by an invocation that may go on; `BadArgument` if no invocation has that token.
    pub fn try_lock_as(
        &self,
        token: u64,
        lives: impl FnOnce(u64) -> bool,
    ) -> Result<RobustGuard<'_, T>> {
        let me = u32::try_from(token).map_err(|_| Error::BadArgument)?;
        let (turn, before) = self.keeper.succeed(me, |other| lives(other.into()))?;
        Ok(RobustGuard {
            _turn: turn,
            // SAFETY: 1. It is this invocation's turn, and an earlier holder that has not given the lock back never
            // runs again.
            value: unsafe { &mut *self.value.get() },
            inherited: before.is_some(),
        })
    }
}

/// Whether an invocation of this program may still go on. If the kernel does not say that it is over, it may.
pub fn is_inside(token: u64) -> bool {
    const ANY: NodeId = NodeId::new(0).unwrap();
    rt::hardware(ANY).is_inside(token) != Ok(false)
}

/// Access to what a [`RobustLock`] protects. Dropping it unlocks.
pub struct RobustGuard<'a, T> {
    _turn: Turn<'a>,
    value: &'a mut T,
    inherited: bool,
}

impl<T> RobustGuard<'_, T> {
    /// Whether an earlier holder has ended without giving the lock back.
    pub fn is_inherited(&self) -> bool {
        self.inherited
    }
}

impl<T> Deref for RobustGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> DerefMut for RobustGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}

/// A value of which one copy is whole at every moment: a change is made to the other copy, and takes effect with one
/// store.
pub struct Shadowed<T> {
    copies: [T; 2],
    current: AtomicUsize,
}

impl<T: Copy> Shadowed<T> {
    /// Both copies hold `value`.
    pub const fn new(value: T) -> Shadowed<T> {
        Shadowed {
            copies: [value; 2],
            current: AtomicUsize::new(0),
        }
    }

    fn at(&self) -> usize {
        self.current.load(Ordering::Relaxed) & 1
    }

    /// The value.
    pub fn get(&self) -> &T {
        &self.copies[self.at()]
    }

    /// Prepares a change: makes it on a copy. It takes effect with [`commit`](Shadowed::commit), and is forgotten with
    /// the next `prepare`.
    ///
    /// # Errors
    ///
    /// As `change`.
    pub fn prepare<R>(&mut self, change: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let at = self.at();
        let value = self.copies[at];
        let spare = &mut self.copies[at ^ 1];
        *spare = value;
        change(spare)
    }

    /// Makes the prepared copy the current value.
    pub fn commit(&mut self) {
        // Behind the stores to the copy, also for a reader on another node after this one has died.
        self.current.store(self.at() ^ 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn a_lock_is_one_invocations_until_it_is_over() {
        let lock = RobustLock::new(1);
        assert_eq!(
            lock.try_lock_as(0, |_| true).err(),
            Some(Error::BadArgument)
        );
        let too_large = 1 << 32 | 5;
        assert_eq!(
            lock.try_lock_as(too_large, |_| true).err(),
            Some(Error::BadArgument)
        );
        let mut guard = lock.try_lock_as(0x301, |_| unreachable!()).unwrap();
        assert!(!guard.is_inherited());
        *guard = 2;
        let asked = Cell::new(0);
        let again = lock.try_lock_as(0x401, |token| {
            asked.set(token);
            true
        });
        assert_eq!((again.err(), asked.get()), (Some(Error::Again), 0x301));
        // It ends in the middle.
        core::mem::forget(guard);
        let guard = lock.try_lock_as(0x401, |_| false).unwrap();
        assert!(guard.is_inherited());
        assert_eq!(*guard, 2);
        drop(guard);
        assert!(
            !lock
                .try_lock_as(0x501, |_| unreachable!())
                .unwrap()
                .is_inherited()
        );
        // An invocation of a thread finds the lock that an earlier invocation of it has not given back.
        core::mem::forget(lock.try_lock_as(0x601, |_| unreachable!()).unwrap());
        let guard = lock.try_lock_as(0x601, |_| unreachable!()).unwrap();
        assert!(guard.is_inherited());
    }

    #[test]
    fn a_change_takes_effect_as_a_whole_or_not_at_all() {
        let mut pair = Shadowed::new((1, 1));
        assert_eq!(pair.prepare(|p| Ok(core::mem::replace(p, (2, 2)).0)), Ok(1));
        assert_eq!(*pair.get(), (1, 1), "not yet");
        pair.commit();
        assert_eq!(*pair.get(), (2, 2));
        let refused = pair.prepare(|p| {
            p.0 = 9;
            Err::<(), _>(Error::Full)
        });
        assert_eq!(refused, Err(Error::Full));
        assert_eq!(*pair.get(), (2, 2));
        // What was prepared and not committed is no part of the next change.
        pair.prepare(|p| {
            p.1 = 3;
            Ok(())
        })
        .unwrap();
        pair.commit();
        assert_eq!(*pair.get(), (2, 3));
    }
}
