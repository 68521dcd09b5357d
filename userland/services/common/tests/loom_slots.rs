//! Model checks of the slots between the threads of a process and its peer's actor: every question is answered by what was
//! asked, no thread sleeps for ever, in any interleaving, and when the group ends each goes on. Each part is needed, shown
//! by taking it away.

mod common;

use std::sync::Arc;

use common::fails;
use dyad_abi::Error;
use dyad_services::slots::{Lines, Slots, Word};
use loom::sync::Notify;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

/// What the model lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    Nothing,
    /// Release and acquire of POSTED.
    PostedOrder,
    /// Release and acquire of the state of a slot.
    AnswerOrder,
    /// Telling the actor.
    Tell,
    /// Waking who waits.
    Wake,
}

struct ModelWord(AtomicU64, Lacks);

impl Word for ModelWord {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        let order = match self.1 {
            Lacks::AnswerOrder => Ordering::Relaxed,
            _ => order,
        };
        self.0.store(value, order);
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        let order = match self.1 {
            Lacks::PostedOrder => Ordering::Relaxed,
            _ => order,
        };
        self.0.swap(value, order)
    }

    fn set(&self, bits: u64, order: Ordering) {
        let order = match self.1 {
            Lacks::PostedOrder => Ordering::Relaxed,
            _ => order,
        };
        self.0.fetch_or(bits, order);
    }
}

/// Lines of endpoints keep what they are told, as `Notify` does.
struct World {
    slots: Slots<2, ModelWord>,
    actor: Notify,
    lines: [Notify; 2],
    lacks: Lacks,
}

impl Lines for World {
    fn tell_actor(&self) -> Result<(), Error> {
        if self.lacks != Lacks::Tell {
            self.actor.notify();
        }
        Ok(())
    }

    fn wait(&self, n: u64) -> Result<(), Error> {
        self.lines[n as usize].wait();
        Ok(())
    }

    fn wake(&self, n: u64) {
        if self.lacks != Lacks::Wake {
            self.lines[n as usize].notify();
        }
    }
}

impl World {
    fn new(lacks: Lacks) -> Arc<World> {
        Arc::new(World {
            slots: Slots::of(|| ModelWord(AtomicU64::new(0), lacks)),
            actor: Notify::new(),
            lines: [Notify::new(), Notify::new()],
            lacks,
        })
    }

    /// Answers `count` questions with their words, then stops when the group has ended.
    fn act(&self, count: usize) {
        let mut done = 0;
        while done < count && !self.slots.has_ended() {
            let posted = self.slots.posted();
            if posted == 0 {
                self.actor.wait();
            }
            for n in (0..2).filter(|n| posted >> n & 1 != 0) {
                let [a, b, ..] = self.slots.words(n);
                self.slots.answer(self, n, [a, b, n, 0]);
                done += 1;
            }
        }
        self.slots.stop();
    }

    fn asks(&self, n: u64, a: u64) -> Result<(), Error> {
        let [b, c, who, _] = self.slots.ask(self, n, [a, a + 1, 0, 0, 0])?;
        assert_eq!((b, c, who), (a, a + 1, n));
        Ok(())
    }
}

/// Checks all interleavings with so many preemptions.
fn bounded(preemptions: usize, scene: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(scene);
}

/// One thread asks twice.
fn twice(lacks: Lacks) {
    bounded(3, move || {
        let world = World::new(lacks);
        let actor = {
            let world = world.clone();
            thread::spawn(move || world.act(2))
        };
        world.asks(1, 3).unwrap();
        world.asks(1, 7).unwrap();
        actor.join().unwrap();
    });
}

/// Two threads ask at once.
fn both(lacks: Lacks) {
    bounded(1, move || {
        let world = World::new(lacks);
        let threads = [0, 1].map(|n| {
            let world = world.clone();
            thread::spawn(move || world.asks(n, 10 + 5 * n).unwrap())
        });
        world.act(2);
        for t in threads {
            t.join().unwrap();
        }
    });
}

/// The group ends while a thread asks: it has its answer, or learns that the group has ended.
fn ending(lacks: Lacks) {
    bounded(3, move || {
        let world = World::new(lacks);
        let asker = {
            let world = world.clone();
            thread::spawn(move || match world.asks(0, 20) {
                Ok(()) | Err(Error::NodeDead) => {}
                Err(e) => panic!("{e}"),
            })
        };
        let actor = {
            let world = world.clone();
            thread::spawn(move || world.act(9))
        };
        world.slots.end(&*world).unwrap();
        asker.join().unwrap();
        actor.join().unwrap();
        assert!(world.slots.has_stopped());
    });
}

#[test]
fn each_question_has_its_answer() {
    twice(Lacks::Nothing);
    both(Lacks::Nothing);
}

#[test]
fn who_waits_goes_on_when_the_group_ends() {
    ending(Lacks::Nothing);
}

#[test]
fn there_is_no_answer_to_who_has_not_asked() {
    let world = Slots::<2>::new();
    struct None;
    impl Lines for None {
        fn tell_actor(&self) -> Result<(), Error> {
            Err(Error::Revoked)
        }
        fn wait(&self, _: u64) -> Result<(), Error> {
            unreachable!()
        }
        fn wake(&self, n: u64) {
            panic!("{n} is woken");
        }
    }
    world.answer(&None, 1, [1; 4]);
    world.answer(&None, 2, [1; 4]);
    world.answer(&None, u64::MAX, [1; 4]);
    assert_eq!(world.ask(&None, 2, [0; 5]), Err(Error::Denied));
    // The actor cannot be told.
    assert_eq!(world.ask(&None, 1, [0; 5]), Err(Error::Revoked));
    assert!(world.has_posted() && world.waits(1) && !world.waits(0));
    assert_eq!((world.posted(), world.posted()), (2, 0));
}

#[test]
fn without_the_order_of_posted_words_are_not_whole() {
    assert!(fails(|| twice(Lacks::PostedOrder)));
}

#[test]
fn without_the_order_of_the_state_answers_are_not_whole() {
    assert!(fails(|| twice(Lacks::AnswerOrder)));
}

#[test]
fn without_telling_the_actor_sleeps() {
    assert!(fails(|| twice(Lacks::Tell)));
}

#[test]
fn without_waking_a_thread_sleeps() {
    assert!(fails(|| twice(Lacks::Wake)));
    assert!(fails(|| ending(Lacks::Wake)));
}
