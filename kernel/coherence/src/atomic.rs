//! Read-modify-writes of a word where caches are coherent, with their orders: each is one instruction, and acquires and
//! releases. The back ends for coherent machines and the models with loom run these functions, so a model notices an order
//! that is missing here.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::lacks;

/// A word of memory that several threads change.
pub trait Atomic {
    /// Replaces `old` by `new`; gives the value that was there: `Err` if it is not `old`.
    fn compare_exchange(
        &self,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64>;
    /// Writes a value, and returns the old one.
    fn swap(&self, value: u64, order: Ordering) -> u64;
    /// Adds (wrapping), and returns the old value.
    fn fetch_add(&self, n: u64, order: Ordering) -> u64;
    /// Sets bits, and returns the old value.
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64;
    /// Clears the bits that `bits` lacks, and returns the old value.
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64;
}

macro_rules! atomic {
    ($ty:ty) => {
        impl Atomic for $ty {
            #[inline(always)]
            fn compare_exchange(
                &self,
                old: u64,
                new: u64,
                success: Ordering,
                failure: Ordering,
            ) -> Result<u64, u64> {
                <$ty>::compare_exchange(self, old, new, success, failure)
            }
            #[inline(always)]
            fn swap(&self, value: u64, order: Ordering) -> u64 {
                <$ty>::swap(self, value, order)
            }
            #[inline(always)]
            fn fetch_add(&self, n: u64, order: Ordering) -> u64 {
                <$ty>::fetch_add(self, n, order)
            }
            #[inline(always)]
            fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
                <$ty>::fetch_or(self, bits, order)
            }
            #[inline(always)]
            fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
                <$ty>::fetch_and(self, bits, order)
            }
        }
    };
}

atomic!(AtomicU64);
#[cfg(any(test, feature = "model"))]
atomic!(loom::sync::atomic::AtomicU64);

/// Replaces `old` by `new`. Acquires and releases on success, acquires on failure. Never fails spuriously.
///
/// # Errors
///
/// The value of the word if it is not `old`.
#[inline(always)]
pub fn exchange(word: &impl Atomic, old: u64, new: u64) -> Result<u64, u64> {
    let success = match (
        lacks!("atomic::exchange::acquire"),
        lacks!("atomic::exchange::release"),
    ) {
        (false, false) => Ordering::AcqRel,
        (true, _) => Ordering::Release,
        (_, true) => Ordering::Acquire,
    };
    let failure = match lacks!("atomic::exchange::failure") {
        false => Ordering::Acquire,
        true => Ordering::Relaxed,
    };
    word.compare_exchange(old, new, success, failure)
}

/// Writes `value`, and returns the old value.
#[inline(always)]
pub fn swap(word: &impl Atomic, value: u64) -> u64 {
    word.swap(value, both(lacks!("atomic::swap::order")))
}

/// Adds `n` (wrapping), and returns the old value.
#[inline(always)]
pub fn add(word: &impl Atomic, n: u64) -> u64 {
    word.fetch_add(n, both(lacks!("atomic::add::order")))
}

/// Sets bits, and returns the old value.
#[inline(always)]
pub fn or(word: &impl Atomic, bits: u64) -> u64 {
    word.fetch_or(bits, both(lacks!("atomic::or::order")))
}

/// Clears the bits that `bits` lacks, and returns the old value.
#[inline(always)]
pub fn and(word: &impl Atomic, bits: u64) -> u64 {
    word.fetch_and(bits, both(lacks!("atomic::and::order")))
}

/// The order of a read-modify-write, unless it is to be left out.
#[inline(always)]
const fn both(lacking: bool) -> Ordering {
    match lacking {
        false => Ordering::AcqRel,
        true => Ordering::Relaxed,
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use loom::sync::atomic::AtomicU64;
    use loom::thread;

    use super::*;
    use crate::without;

    /// A change of the word: 0 if it is the first one.
    type Change = fn(&AtomicU64) -> u64;

    /// One thread writes something and then changes the word; another one changes it, too. Who comes second sees what the
    /// other one has written before.
    fn second_sees_the_first(from: u64, change: Change) {
        loom::model(move || {
            let values = [from, 0, 0].map(AtomicU64::new);
            let words: Arc<[AtomicU64; 3]> = Arc::new(values);
            let other = words.clone();
            let a = thread::spawn(move || {
                other[1].store(1, Ordering::Relaxed);
                match change(&other[0]) {
                    0 => 1,
                    _ => other[2].load(Ordering::Relaxed),
                }
            });
            words[2].store(1, Ordering::Relaxed);
            let mine = match change(&words[0]) {
                0 => 1,
                _ => words[1].load(Ordering::Relaxed),
            };
            assert_eq!((mine, a.join().unwrap()), (1, 1));
        });
    }

    fn fails(from: u64, change: Change) -> bool {
        let hook = std::panic::take_hook();
        std::panic::set_hook(std::boxed::Box::new(|_| {}));
        let failed =
            catch_unwind(AssertUnwindSafe(|| second_sees_the_first(from, change))).is_err();
        std::panic::set_hook(hook);
        failed
    }

    /// Both exchanges succeed: the second one from what the first one has left.
    fn in_turn(word: &AtomicU64) -> u64 {
        match exchange(word, 0, 1) {
            Ok(old) => old,
            Err(_) => exchange_again(word),
        }
    }

    /// The look before it has no order of its own.
    fn exchange_again(word: &AtomicU64) -> u64 {
        without!("atomic::exchange::failure", exchange(word, 1, 2)).unwrap()
    }

    /// The second exchange fails.
    fn once(word: &AtomicU64) -> u64 {
        exchange(word, 0, 1).unwrap_or_else(|now| now)
    }

    #[test]
    fn an_exchange_that_succeeds_sees_what_was_written_before_the_one_before_it() {
        second_sees_the_first(0, in_turn);
        assert!(without!("atomic::exchange::release", fails(0, in_turn)));
    }

    #[test]
    fn an_exchange_that_fails_sees_what_was_written_before_the_one_that_was_first() {
        second_sees_the_first(0, once);
        assert!(without!("atomic::exchange::failure", fails(0, once)));
        assert!(without!("atomic::exchange::release", fails(0, once)));
    }

    /// What a lock needs: only the exchange that takes it succeeds, and it has found no other value before.
    #[test]
    fn an_exchange_that_takes_what_was_given_back_sees_all_that_its_owner_has_written() {
        fn lock() {
            loom::model(|| {
                let words: Arc<[AtomicU64; 2]> =
                    Arc::new(std::array::from_fn(|n| AtomicU64::new(1 - n as u64)));
                let other = words.clone();
                let a = thread::spawn(move || {
                    if exchange(&other[0], 0, 1).is_ok() {
                        assert_eq!(other[1].load(Ordering::Relaxed), 1);
                    }
                });
                words[1].store(1, Ordering::Relaxed);
                assert_eq!(swap(&words[0], 0), 1);
                a.join().unwrap();
            });
        }
        lock();
        let hook = std::panic::take_hook();
        std::panic::set_hook(std::boxed::Box::new(|_| {}));
        let failed = |what| without!(what, catch_unwind(AssertUnwindSafe(lock)).is_err());
        let all = ["atomic::exchange::acquire", "atomic::swap::order"].map(failed);
        std::panic::set_hook(hook);
        assert_eq!(all, [true; 2]);
    }

    #[test]
    fn every_other_change_sees_what_was_written_before_the_one_before_it() {
        let all: [(&str, u64, Change); 4] = [
            ("atomic::swap::order", 0, |w| swap(w, 1)),
            ("atomic::add::order", 0, |w| add(w, 1)),
            ("atomic::or::order", 0, |w| or(w, 1)),
            ("atomic::and::order", 1, |w| 1 - and(w, !1)),
        ];
        for (name, from, change) in all {
            second_sees_the_first(from, change);
            assert!(without!(name, fails(from, change)), "{name}");
        }
    }
}
