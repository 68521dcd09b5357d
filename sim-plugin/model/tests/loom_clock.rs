//! CPUs that fall asleep, wake each other and end, in every interleaving of their accesses that the
//! memory model allows (up to the preemptions that loom is given).
//!
//! What must never happen: that all sleep although there is an event; that one is woken twice; that
//! it is woken for an event that has been taken.

use dyad_abi::{CpuId, NodeId};
use dyad_sim_model::clock::state::StateWord;
use dyad_sim_model::clock::words::{cpu, who};
use dyad_sim_model::clock::{
    Coupling, Host, Interrupt, Order, Shape, State, Thread, Times, Who, Words,
};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};

const NODES: usize = 3;
/// Words of each CPU that these scenarios use: state, time and deadline. Queues are empty, and
/// nobody's process is gone.
const USED: [usize; 3] = [cpu::STATE, cpu::TIME, cpu::DEADLINE];

fn node(n: usize) -> Who {
    Who::new(
        NodeId::new(n as u64).expect("a node"),
        CpuId::new(0).expect("a CPU"),
    )
}

struct World {
    words: Vec<AtomicU64>,
    rung: Vec<AtomicU64>,
}

fn place(at: usize) -> Option<usize> {
    (0..NODES).find_map(|n| {
        let i = USED.iter().position(|w| who(node(n), *w) == at)?;
        Some(n * USED.len() + i)
    })
}

#[derive(Clone)]
struct Shared(Arc<World>);

impl Words for Shared {
    fn get(&self, at: usize) -> u64 {
        place(at).map_or(0, |i| self.0.words[i].load(Ordering::Acquire))
    }
    fn set(&self, at: usize, value: u64) {
        if let Some(i) = place(at) {
            self.0.words[i].store(value, Ordering::Release);
        }
    }
    fn exchange(&self, at: usize, expected: u64, value: u64) -> Result<u64, u64> {
        let i = place(at).expect("only states are exchanged");
        let order = Ordering::AcqRel;
        self.0.words[i].compare_exchange(expected, value, order, Ordering::Acquire)
    }
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

impl Host for Shared {
    fn ring(&self, who: Who, _: Interrupt) {
        self.0.rung[who.node()].fetch_add(1, Ordering::AcqRel);
    }
    fn pause(&self) {
        loom::thread::yield_now();
    }
    fn gate(&self, _: Who) -> u32 {
        0
    }
    fn block(&self, _: Who, _: u32) {
        loom::thread::yield_now();
    }
    fn open(&self, _: Who) {
        panic!("nobody waits");
    }
    fn host_ns(&self) -> u64 {
        0
    }
    fn thread(&self, _: u64, _: u64) -> Thread {
        Thread::Runnable
    }
}

type Cpu = Coupling<Shared, Shared>;
type Act = Box<dyn FnOnce() + Send>;

impl World {
    /// CPUs that run, at time 0, with these deadlines; 0: none.
    fn new(deadlines: &[u64]) -> Arc<World> {
        let running = StateWord(0).next(State::Running).0;
        let word = |i: usize| match (deadlines.get(i / USED.len()), USED[i % USED.len()]) {
            (Some(_), cpu::STATE) => running,
            (Some(deadline), cpu::DEADLINE) => *deadline,
            _ => 0,
        };
        let words = (0..NODES * USED.len()).map(|i| AtomicU64::new(word(i)));
        Arc::new(World {
            words: words.collect(),
            rung: (0..NODES).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    fn state(&self, n: usize) -> State {
        StateWord(self.words[n * USED.len()].load(Ordering::Acquire)).state()
    }

    fn rung(&self, n: usize) -> u64 {
        self.rung[n].load(Ordering::Acquire)
    }
}

fn coupled(world: &Arc<World>, nodes: usize, n: usize) -> Cpu {
    let shared = Shared(Arc::clone(world));
    let shape = Shape { nodes, cpus: 1 };
    let what = (shape, Times::default(), Order::Parallel);
    Coupling::new(shared.clone(), shared, what, None, node(n))
}

fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(scenario);
}

/// Runs acts at the same time.
fn together(acts: Vec<Act>) {
    let threads: Vec<_> = acts.into_iter().map(loom::thread::spawn).collect();
    for thread in threads {
        thread.join().expect("it does not panic");
    }
}

fn quiet(cpu: &Cpu, time: u64) {
    cpu.quantum(time, 0, 0, &mut |what| panic!("{what:?}"));
}

fn sleeps(cpu: &Cpu, time: u64) {
    assert_eq!(cpu.sleep(time, 0), time);
}

#[test]
fn of_those_that_fall_asleep_together_one_wakes_the_first() {
    explore(|| {
        let world = World::new(&[700, 500]);
        let act = |n| {
            let cpu = coupled(&world, 2, n);
            Box::new(move || sleeps(&cpu, 10)) as Act
        };
        together(vec![act(0), act(1)]);
        let states = (world.state(0), world.state(1));
        assert_eq!(states, (State::Idle, State::Waking));
        assert_eq!((world.rung(0), world.rung(1)), (0, 1));
    });
}

#[test]
fn three_that_fall_asleep_together_wake_one() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let world = World::new(&[0, 900, 300]);
        let act = |n| {
            let cpu = coupled(&world, 3, n);
            Box::new(move || sleeps(&cpu, n as u64)) as Act
        };
        together(vec![act(0), act(1), act(2)]);
        assert_eq!(world.state(2), State::Waking);
        let rung = (world.rung(0), world.rung(1), world.rung(2));
        assert_eq!(rung, (0, 0, 1));
    });
}

/// One falls asleep while another, which has come past its event, looks around and then falls
/// asleep too: woken once, by whichever look.
#[test]
fn who_falls_asleep_while_another_looks_is_woken_once() {
    explore(|| {
        let world = World::new(&[0, 500]);
        let (a, b) = (coupled(&world, 2, 0), coupled(&world, 2, 1));
        together(vec![
            Box::new(move || {
                quiet(&a, 600);
                sleeps(&a, 610);
            }),
            Box::new(move || sleeps(&b, 20)),
        ]);
        let states = (world.state(0), world.state(1));
        assert_eq!(states, (State::Idle, State::Waking));
        assert_eq!((world.rung(0), world.rung(1)), (0, 1));
    });
}

/// A CPU wakes up, gets rid of its event and sleeps again while another looks at it: who has looked
/// before must not wake it for that event after.
#[test]
fn nobody_is_woken_for_an_event_that_was_taken() {
    explore(|| {
        let world = World::new(&[0, 500]);
        let (a, b) = (coupled(&world, 2, 0), coupled(&world, 2, 1));
        sleeps(&b, 1);
        together(vec![
            Box::new(move || {
                quiet(&a, 600);
                sleeps(&a, 600);
            }),
            Box::new(move || {
                // From outside, or because it was rung.
                let resumed = b.resume(1).expect("it was asleep");
                b.set_deadline(None);
                sleeps(&b, resumed.now);
            }),
        ]);
        let states = (world.state(0), world.state(1));
        assert_eq!(states, (State::Idle, State::Idle));
        assert!(world.rung(1) <= 1);
    });
}

#[test]
fn who_ends_leaves_nobody_asleep() {
    explore(|| {
        let world = World::new(&[0, 500]);
        let (a, b) = (coupled(&world, 2, 0), coupled(&world, 2, 1));
        together(vec![
            Box::new(move || a.end(5, 0)),
            Box::new(move || sleeps(&b, 7)),
        ]);
        let states = (world.state(0), world.state(1));
        assert_eq!(states, (State::Gone, State::Waking));
        assert_eq!(world.rung(1), 1);
    });
}
