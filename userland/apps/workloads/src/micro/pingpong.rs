//! Two threads in turn: one locks, the other unlocks, each adds to a number in between. Every turn
//! may be a wait and a wake-up.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Waiting for a word of memory to change, as `futex` calls have it.
pub trait Futex {
    /// Sleeps if `word` still is `value`, until another thread wakes its sleepers, or for no reason.
    fn wait(&self, word: &AtomicU32, value: u32);

    /// Wakes a sleeper of `word`, if there is one.
    fn wake(&self, word: &AtomicU32);
}

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Player {
    /// Locks what is unlocked; begins.
    Locker,
    /// Unlocks what is locked.
    Unlocker,
}

/// The lock is free.
const UNLOCKED: u32 = 0;
/// The lock is taken.
const LOCKED: u32 = 1;

/// What both share. The words are in lines of their own.
#[derive(Debug, Default)]
pub struct Table {
    lock: Line<AtomicU32>,
    sum: Line<AtomicU64>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line<T>(T);

/// What one of them has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Turns.
    pub turns: u64,
    /// Calls of [`Futex::wait`].
    pub waits: u64,
    /// Calls of [`Futex::wake`].
    pub wakes: u64,
}

impl Table {
    /// Unlocked, and nothing added.
    pub const fn new() -> Table {
        Table {
            lock: Line(AtomicU32::new(UNLOCKED)),
            sum: Line(AtomicU64::new(0)),
        }
    }

    /// Plays `turns` turns. The other player must play the same number at the same time.
    #[inline(never)]
    pub fn play(&self, player: Player, turns: u64, futex: &impl Futex) -> Played {
        let (mine, then) = match player {
            Player::Locker => (UNLOCKED, LOCKED),
            Player::Unlocker => (LOCKED, UNLOCKED),
        };
        let lock = &self.lock.0;
        let mut played = Played::default();
        for _ in 0..turns {
            while lock.load(Ordering::Acquire) != mine {
                futex.wait(lock, then);
                played.waits += 1;
            }
            // Nobody else writes while it is this one's turn.
            let sum = self.sum.0.load(Ordering::Relaxed);
            self.sum.0.store(sum + 1, Ordering::Relaxed);
            lock.store(then, Ordering::Release);
            futex.wake(lock);
            played.turns += 1;
            played.wakes += 1;
        }
        played
    }

    /// Turns of both so far, if none was lost.
    pub fn sum(&self) -> u64 {
        self.sum.0.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// Sleepers of all words together.
    #[derive(Default)]
    struct Host {
        lock: Mutex<()>,
        sleepers: Condvar,
    }

    impl Futex for Host {
        fn wait(&self, word: &AtomicU32, value: u32) {
            let guard = self.lock.lock().unwrap();
            if word.load(Ordering::SeqCst) == value {
                drop(self.sleepers.wait(guard).unwrap());
            }
        }

        fn wake(&self, _: &AtomicU32) {
            drop(self.lock.lock().unwrap());
            self.sleepers.notify_one();
        }
    }

    #[test]
    fn no_turn_is_lost() {
        const TURNS: u64 = 2000;
        let (table, futex) = (&Table::new(), &Host::default());
        let [locker, unlocker] = std::thread::scope(|scope| {
            [Player::Locker, Player::Unlocker]
                .map(|player| scope.spawn(move || table.play(player, TURNS, futex)))
                .map(|thread| thread.join().unwrap())
        });
        assert_eq!(table.sum(), 2 * TURNS);
        for played in [locker, unlocker] {
            assert_eq!((played.turns, played.wakes), (TURNS, TURNS));
        }
        assert_eq!(table.lock.0.load(Ordering::Relaxed), UNLOCKED);
    }

    #[test]
    fn turns_alternate() {
        /// Plays the other one's turn when it is waited for.
        struct Other<'a>(&'a Table);

        impl Futex for Other<'_> {
            fn wait(&self, word: &AtomicU32, value: u32) {
                assert_eq!(word.load(Ordering::Relaxed), value);
                struct Nothing;
                impl Futex for Nothing {
                    fn wait(&self, _: &AtomicU32, _: u32) {
                        panic!("it was its turn");
                    }

                    fn wake(&self, _: &AtomicU32) {}
                }
                self.0.play(Player::Unlocker, 1, &Nothing);
            }

            fn wake(&self, _: &AtomicU32) {}
        }

        let table = Table::new();
        let played = table.play(Player::Locker, 100, &Other(&table));
        assert_eq!(played.waits, 99, "every turn but the first");
        assert_eq!(table.sum(), 199);
    }
}
