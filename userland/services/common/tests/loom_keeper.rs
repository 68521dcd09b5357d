//! Model checks of locks whose holder can end while it holds them: one holder at a time, in any interleaving, and the
//! next one finds what the last one has stored, also of one that has ended. Each part is needed, shown by taking it
//! away.
//!
//! A holder that ends says so with release, as a kernel gives a thread's owner word up, and those who ask learn it with
//! acquire.

mod common;

use common::fails;
use dyad_services::keeper::{Keeper, Word};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// What a word of the model lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    Nothing,
    /// The count of takings.
    Count,
    /// Acquire when it is taken, release when it is given back.
    Order,
    /// Acquire when the word is read, before it is asked whether the holder lives.
    Load,
    /// The comparison with the word that was looked at.
    Compare,
}

struct ModelWord {
    word: AtomicU64,
    lacks: Lacks,
}

impl Word for ModelWord {
    fn load(&self) -> u64 {
        self.word.load(match self.lacks {
            Lacks::Load => Ordering::Relaxed,
            _ => Ordering::Acquire,
        })
    }

    fn exchange(&self, old: u64, new: u64) -> bool {
        let (new, order) = match self.lacks {
            Lacks::Count => (new & 0xffff_ffff, Ordering::AcqRel),
            Lacks::Order => (new, Ordering::Relaxed),
            Lacks::Compare => {
                self.word.swap(new, Ordering::AcqRel);
                return true;
            }
            Lacks::Nothing | Lacks::Load => (new, Ordering::AcqRel),
        };
        self.word
            .compare_exchange(old, new, order, Ordering::Relaxed)
            .is_ok()
    }
}

/// A lock, what it protects, and which holders have ended.
struct World {
    keeper: Keeper<ModelWord>,
    /// Two holders at once are a data race, which loom reports.
    value: UnsafeCell<u64>,
    over: [AtomicU64; 3],
}

impl World {
    fn new(lacks: Lacks) -> Arc<World> {
        Arc::new(World {
            keeper: Keeper::of(ModelWord {
                word: AtomicU64::new(0),
                lacks,
            }),
            value: UnsafeCell::new(0),
            over: [const { 0 }; 3].map(AtomicU64::new),
        })
    }

    /// Takes the lock as `me` if it can, and changes the value. `ends`: before it gives the lock back.
    fn visit(&self, me: u32, ends: bool) {
        // An invocation of that name is under way, as kernels note before it begins.
        self.over[me as usize - 1].store(0, Ordering::Relaxed);
        let lives = |other: u32| self.over[other as usize - 1].load(Ordering::Acquire) == 0;
        if let Ok((turn, _)) = self.keeper.succeed(me, lives) {
            // SAFETY: 1. It is this thread's turn. Loom checks that.
            self.value.with_mut(|v| unsafe { *v += 1 });
            if ends {
                std::mem::forget(turn);
            }
        }
        if ends {
            self.over[me as usize - 1].store(1, Ordering::Release);
        }
    }
}

/// A holder that ends, its next invocation of the same name, and another thread that wants the lock.
fn model(lacks: Lacks) {
    loom::model(move || {
        let world = World::new(lacks);
        let first = {
            let world = world.clone();
            thread::spawn(move || world.visit(1, true))
        };
        let second = {
            let world = world.clone();
            thread::spawn(move || world.visit(2, false))
        };
        first.join().unwrap();
        // The thread that has ended begins anew, and invokes the service again.
        world.visit(1, false);
        second.join().unwrap();
        world.visit(3, false);
        // The last thread gets in, as no holder is left that lives.
        assert!(world.keeper.holder().is_none());
    });
}

/// Two threads without any end.
fn contended(lacks: Lacks) {
    loom::model(move || {
        let world = World::new(lacks);
        let other = {
            let world = world.clone();
            thread::spawn(move || world.visit(1, false))
        };
        world.visit(2, false);
        other.join().unwrap();
        assert!(world.keeper.holder().is_none());
    });
}

#[test]
fn a_lock_has_one_holder_whenever_holders_end() {
    model(Lacks::Nothing);
    contended(Lacks::Nothing);
}

#[test]
fn without_the_count_two_succeed_the_same_holder() {
    assert!(fails(|| model(Lacks::Count)));
}

#[test]
fn without_orders_a_holder_does_not_see_the_last_one() {
    assert!(fails(|| contended(Lacks::Order)));
}

#[test]
fn without_order_of_the_look_an_invocation_is_taken_for_an_earlier_one() {
    assert!(fails(|| model(Lacks::Load)));
}

#[test]
fn without_the_comparison_two_hold_it() {
    assert!(fails(|| contended(Lacks::Compare)));
}
