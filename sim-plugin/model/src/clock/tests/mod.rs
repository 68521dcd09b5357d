//! CPUs of several machines in one process. What a CPU executes is a number of picoseconds.

mod machines;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use dyad_abi::{CpuId, NodeId};

use super::supervise::Overseer;
use super::words::{CLOCK_WORDS, cpu, dead, who};
use super::*;

/// One of the machines' CPUs; every machine has one.
fn node(n: usize) -> Who {
    let cpu = CpuId::new(0).unwrap();
    Who::new(NodeId::new(n as u64).unwrap(), cpu)
}

/// What the host knows, shared by all CPUs of a test.
struct World {
    words: Vec<AtomicU64>,
    /// By node: interrupts that are pending, and a condition to wait for one.
    bells: [(Mutex<Vec<Interrupt>>, Condvar); 4],
    /// What the thread of each node does, and whether the thread does nothing else later.
    threads: [Mutex<Thread>; 4],
    gates: [AtomicU32; 4],
    /// The host's time; moves when it is read.
    now: AtomicU64,
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            words: (0..CLOCK_WORDS).map(|_| AtomicU64::new(0)).collect(),
            bells: Default::default(),
            threads: [const { Mutex::new(Thread::Runnable) }; 4],
            gates: Default::default(),
            now: AtomicU64::new(1),
        })
    }

    fn pending(&self, n: usize) -> Vec<Interrupt> {
        std::mem::take(&mut *self.bells[n].0.lock().unwrap())
    }

    /// Waits until node `n` has been rung.
    fn wait(&self, n: usize) -> Vec<Interrupt> {
        let (pending, rung) = &self.bells[n];
        let mut pending = pending.lock().unwrap();
        while pending.is_empty() {
            pending = rung.wait(pending).unwrap();
        }
        std::mem::take(&mut *pending)
    }

    fn is(&self, n: usize, state: State) -> bool {
        let word = self.words[who(node(n), cpu::STATE)].load(Ordering::Acquire);
        state::StateWord(word).state() == state
    }
}

#[derive(Clone)]
struct Shared(Arc<World>);

impl Words for Shared {
    fn get(&self, at: usize) -> u64 {
        Words::get(&&self.0.words[..], at)
    }
    fn set(&self, at: usize, value: u64) {
        Words::set(&&self.0.words[..], at, value);
    }
    fn exchange(&self, at: usize, expected: u64, value: u64) -> Result<u64, u64> {
        Words::exchange(&&self.0.words[..], at, expected, value)
    }
    fn fence(&self) {
        Words::fence(&&self.0.words[..]);
    }
}

impl Host for Shared {
    fn ring(&self, who: Who, what: Interrupt) {
        let (pending, rung) = &self.0.bells[who.node()];
        pending.lock().unwrap().push(what);
        rung.notify_all();
    }
    fn pause(&self) {
        std::hint::spin_loop();
    }
    fn gate(&self, who: Who) -> u32 {
        self.0.gates[who.node()].load(Ordering::SeqCst)
    }
    fn block(&self, who: Who, gate: u32) {
        // Gates are opened in time, or the tests take for ever.
        for _ in 0..50 {
            if self.gate(who) != gate {
                break;
            }
            std::thread::yield_now();
        }
    }
    fn open(&self, who: Who) {
        self.0.gates[who.node()].fetch_add(1, Ordering::SeqCst);
    }
    /// A millisecond for every look, so that waits without end show at once.
    fn host_ns(&self) -> u64 {
        self.0.now.fetch_add(1_000_000, Ordering::Relaxed)
    }
    fn thread(&self, _: u64, tid: u64) -> Thread {
        // Processes are numbered from 10 on, threads from 100 on.
        *self.0.threads[tid as usize % 10].lock().unwrap()
    }
}

type Cpu = Coupling<Shared, Shared>;

fn made(world: &Arc<World>, nodes: usize, order: Order, patience: Option<u64>, n: usize) -> Cpu {
    let shared = Shared(Arc::clone(world));
    let shape = Shape { nodes, cpus: 1 };
    let what = (shape, Times::default(), order);
    let cpu = Coupling::new(shared.clone(), shared, what, patience, node(n));
    cpu.enrol(10 + n as u64, 100 + n as u64);
    cpu
}

const SECOND: Option<u64> = Some(1_000_000_000);

/// CPUs that have all begun, in one thread.
fn begun<const N: usize>(world: &Arc<World>) -> [Cpu; N] {
    let cpus = std::array::from_fn(|n| made(world, N, Order::Parallel, SECOND, n));
    std::thread::scope(|scope| {
        for cpu in &cpus {
            scope.spawn(|| assert_eq!(cpu.begin(0, 0).now, 0));
        }
    });
    cpus
}

/// A quantum in which nothing may come.
fn quiet(cpu: &Cpu, time: u64) -> Slice {
    cpu.quantum(time, 0, 0, &mut |what| panic!("{what:?} at {time}"))
}

fn loud(cpu: &Cpu, time: u64) -> Vec<Interrupt> {
    let mut all = Vec::new();
    cpu.quantum(time, 0, 0, &mut |what| all.push(what));
    all
}

#[test]
fn a_doorbell_comes_exactly_after_its_way() {
    let world = World::new();
    let [a, b] = begun(&world);
    a.ring(700, node(1));
    a.sleep(900, 0);
    let due = 700 + Times::default().ipi;
    let slice = quiet(&b, due - 1);
    assert_eq!(slice.until, due);
    assert_eq!(loud(&b, due + 3), [Interrupt::Doorbell]);
    assert_eq!((b.stats().late, b.stats().doorbells), (3, 1));
    assert_eq!((a.stats().rung, a.stats().merged), (1, 0));
    assert_eq!(b.next_event(), None);
}

#[test]
fn deadlines_fire_once_and_can_be_moved() {
    let world = World::new();
    let [a, _b] = begun(&world);
    a.set_deadline(Some(500));
    assert_eq!(quiet(&a, 100).until, 500);
    a.set_deadline(Some(900));
    assert_eq!(quiet(&a, 600).until, 900);
    assert_eq!(loud(&a, 900), [Interrupt::Timer]);
    assert_eq!(loud(&a, 905), []);
    a.set_deadline(Some(1000));
    a.set_deadline(None);
    assert_eq!(loud(&a, 1001), []);
    assert_eq!((a.stats().timers, a.stats().late), (1, 0));
}

#[test]
fn too_many_doorbells_merge_into_the_last() {
    let world = World::new();
    let [a, b] = begun(&world);
    let ipi = Times::default().ipi;
    for t in 0..20 {
        a.ring(t, node(1));
    }
    assert_eq!(a.stats().merged, 6);
    a.sleep(30, 0);
    let mut at = Vec::new();
    while let Some(due) = b.next_event() {
        at.push(due - ipi);
        assert_eq!(loud(&b, due).len(), 1);
    }
    // The rest came with the last.
    assert_eq!(at, (0..13).chain([19]).collect::<Vec<_>>());
    a.ring(50, node(1));
    assert_eq!(b.next_event(), Some(50 + ipi));
}

#[test]
fn when_all_sleep_time_jumps_to_the_first_event() {
    let world = World::new();
    let [a, b] = begun(&world);
    a.set_deadline(Some(3_000_000));
    b.set_deadline(Some(2_000_000));
    a.sleep(400, 0);
    assert!(world.is(0, State::Idle), "somebody still runs");
    b.sleep(100, 0);
    assert_eq!(
        (world.pending(0), world.pending(1)),
        (vec![], vec![Interrupt::Timer])
    );
    let resumed = b.resume(100).unwrap();
    assert_eq!(
        (resumed.now, resumed.event),
        (2_000_000, Some(Interrupt::Timer))
    );
    b.sleep(2_000_010, 0);
    assert_eq!(world.pending(0), [Interrupt::Timer]);
    assert_eq!(a.resume(400).unwrap().now, 3_000_000);
    // Nothing is left to happen: nobody is woken.
    a.sleep(3_000_001, 0);
    assert_eq!((world.pending(0), world.pending(1)), (vec![], vec![]));
    assert!(world.is(0, State::Idle) && world.is(1, State::Idle));
}

#[test]
fn who_runs_wakes_those_whose_event_has_come() {
    let world = World::new();
    let [a, b] = begun(&world);
    b.set_deadline(Some(5_000_000));
    b.sleep(10, 0);
    quiet(&a, 4_999_999);
    assert_eq!(world.pending(1), []);
    quiet(&a, 5_000_200);
    assert_eq!(world.pending(1), [Interrupt::Timer]);
    // Once; and it is at its event, wherever others are by now.
    quiet(&a, 5_900_000);
    assert_eq!(world.pending(1), []);
    assert_eq!(b.resume(10).unwrap().now, 5_000_000);
    assert_eq!((a.stats().waits, a.stats().given_up), (0, 0));
}

#[test]
fn who_is_ahead_waits_until_the_other_has_come() {
    let world = World::new();
    let [a, b] = begun(&world);
    let lag = Times::default().lag;
    let goes_on = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            quiet(&a, lag + 500);
            goes_on.store(1, Ordering::SeqCst);
        });
        // It waits in front of its gate.
        while world.words[who(node(0), cpu::WANT)].load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        for time in (0..500).step_by(20) {
            assert_eq!(goes_on.load(Ordering::SeqCst), 0, "{time}");
            quiet(&b, time);
            std::thread::yield_now();
        }
        quiet(&b, 500);
    });
    assert_eq!((a.stats().skew, a.stats().waits), (lag, 1));
    assert_eq!(b.stats().waits, 0);
}

#[test]
fn who_has_ended_is_not_waited_for_and_leaves_nobody_asleep() {
    let world = World::new();
    let [a, b] = begun(&world);
    a.set_deadline(Some(77_000));
    a.sleep(5, 0);
    b.end(20, 0);
    assert_eq!(world.pending(0), [Interrupt::Timer]);
    assert_eq!(a.resume(5).unwrap().now, 77_000);
    quiet(&a, 1 << 40);
    assert_eq!(b.resume(20), None);
}

#[test]
fn a_killed_machine_is_not_waited_for() {
    // By the launcher's word, or by a look at its process.
    for told in [true, false] {
        let world = World::new();
        let [a, b] = begun(&world);
        assert_eq!(a.ended(), 0);
        if told {
            world.words[dead(1)].store(11, Ordering::SeqCst);
        } else {
            *world.threads[1].lock().unwrap() = Thread::Gone;
        }
        assert_eq!(a.ended(), if told { 0b10 } else { 0 });
        quiet(&a, 1 << 40);
        assert_eq!(world.is(1, State::Gone), !told);
        // Nor is it ahead of it.
        assert_eq!(a.stats().skew, 0);
        // A new life of it begins where the others are.
        b.enrol(12, 101);
        assert_eq!(a.ended(), 0);
        *world.threads[1].lock().unwrap() = Thread::Runnable;
        assert_eq!(b.begin(0, 0).now, 1 << 40);
        a.set_deadline(Some((1 << 40) + 10));
        a.sleep(1 << 40, 0);
        assert_eq!(world.pending(0), []);
    }
}

#[test]
fn a_killed_machine_that_slept_wakes_nobody_and_is_not_woken() {
    let world = World::new();
    let [a, b] = begun(&world);
    b.set_deadline(Some(1000));
    b.sleep(1, 0);
    world.words[dead(1)].store(11, Ordering::SeqCst);
    a.set_deadline(Some(9000));
    a.sleep(2, 0);
    assert_eq!(
        (world.pending(0), world.pending(1)),
        (vec![Interrupt::Timer], vec![])
    );
}

#[test]
fn a_stopped_machine_is_given_up_and_follows_when_it_is_back() {
    let world = World::new();
    let [a, b] = begun(&world);
    quiet(&b, 50);
    *world.threads[1].lock().unwrap() = Thread::Sleeping;
    let before = world.now.load(Ordering::Relaxed);
    quiet(&a, 9_000_000);
    let waited = world.now.load(Ordering::Relaxed) - before;
    assert!(waited >= 1_000_000_000, "given up after {waited} ns");
    assert!(world.is(1, State::Stalled));
    assert_eq!(a.stats().given_up, 1);
    // Nobody waits for it any more.
    quiet(&a, 20_000_000);
    b.set_deadline(Some(60));
    assert_eq!(loud(&b, 70), [Interrupt::Timer]);
    assert_eq!(b.stats().followed, 20_000_000 - 70);
    assert!(world.is(1, State::Running));
}

#[test]
fn a_stopped_machine_follows_too_if_it_falls_asleep_when_it_is_back() {
    let world = World::new();
    let [a, b] = begun(&world);
    quiet(&b, 50);
    *world.threads[1].lock().unwrap() = Thread::Sleeping;
    quiet(&a, 9_000_000);
    assert!(world.is(1, State::Stalled));
    b.set_deadline(Some(60));
    // Its deadline has passed long ago; it is not taken back to it.
    assert_eq!(a.sleep(9_000_000, 0), 9_000_000);
    assert_eq!(b.sleep(55, 0), 9_000_000);
    assert_eq!(world.pending(1), [Interrupt::Timer]);
    assert_eq!(b.resume(9_000_000).unwrap().now, 9_000_000);
    assert_eq!((b.stats().followed, b.stats().outside), (9_000_000 - 55, 0));
}

#[test]
fn timers_are_late_by_less_than_their_block() {
    let world = World::new();
    let [a, b] = begun(&world);
    b.sleep(1, 0);
    let mut due = Vec::new();
    let mut at = |cpu: &Cpu, deadline: u64, time: u64, block: u64| {
        cpu.set_deadline(Some(deadline));
        cpu.quantum(time, block, 0, &mut |what| due.push(what));
        (cpu.stats().late, cpu.stats().overdue)
    };
    // At the beginning and at the end of a block, and before it.
    assert_eq!(at(&a, 500, 510, 10), (10, 0));
    assert_eq!(at(&a, 600, 600, 50), (10, 0));
    assert_eq!(at(&a, 695, 720, 22), (25, 3));
    // A latency passes it in the middle of a block.
    a.set_deadline(Some(900));
    a.overtake(899, &mut |what| panic!("{what:?}"));
    a.overtake(930, &mut |what| due.push(what));
    assert_eq!((a.stats().late, a.stats().overdue), (30, 3));
    assert_eq!(due, [Interrupt::Timer; 4]);
    // Doorbells can come after their time: who rings may be late.
    a.ring(1000, node(0));
    assert_eq!(a.quantum(9_000_000, 1, 0, &mut |_| ()).event, u64::MAX);
    assert_eq!((a.stats().doorbells, a.stats().overdue), (1, 3));
}

#[test]
fn a_machine_that_is_slow_is_not_given_up() {
    let world = World::new();
    let [a, b] = begun(&world);
    std::thread::scope(|scope| {
        scope.spawn(|| quiet(&a, 9_000_000));
        // Its thread could run all the time; 10 s of the host pass.
        while world.now.load(Ordering::Relaxed) < 10_000_000_000 {
            std::thread::yield_now();
        }
        assert!(world.is(1, State::Running));
        quiet(&b, 9_000_000);
    });
    assert_eq!(a.stats().given_up, 0);
}

#[test]
fn if_the_others_sleep_somebody_notices_that_a_machine_was_stopped() {
    let world = World::new();
    let [a, b] = begun(&world);
    b.set_deadline(Some(1000));
    b.sleep(1, 0);
    a.set_deadline(Some(5000));
    a.sleep(2, 0);
    // It is rung, but does not wake up.
    assert_eq!(
        (world.pending(0), world.pending(1)),
        (vec![], vec![Interrupt::Timer])
    );
    *world.threads[1].lock().unwrap() = Thread::Sleeping;
    let overseer = made(&World::new(), 2, Order::Parallel, SECOND, 0);
    let overseer = Coupling {
        words: Shared(Arc::clone(&world)),
        host: Shared(Arc::clone(&world)),
        ..overseer
    };
    let mut memory = Overseer::default();
    for _ in 0..3 {
        overseer.oversee(&mut memory);
        assert!(world.is(1, State::Waking));
    }
    // QEMU's main loop has not got round to it yet.
    world.now.fetch_add(2_000_000_000, Ordering::Relaxed);
    overseer.oversee(&mut memory);
    assert!(world.is(1, State::Stalled));
    assert_eq!(world.pending(0), [Interrupt::Timer]);
    assert_eq!(a.resume(2).unwrap().now, 5000);
    // It comes back, and its deadline with it.
    assert_eq!(b.resume(1).unwrap().event, None);
    assert_eq!(loud(&b, 5001), [Interrupt::Timer]);
}

#[test]
fn who_is_woken_from_outside_is_not_before_the_others() {
    let world = World::new();
    let [a, b] = begun(&world);
    b.sleep(3, 0);
    quiet(&a, 700);
    assert_eq!(b.resume(3).unwrap().now, 700);
    a.sleep(900, 0);
    b.sleep(800, 0);
    assert_eq!(b.resume(800).unwrap().now, 900);
    assert_eq!(b.stats().outside, 2);
}

#[test]
fn numbers_of_cpus_and_words_do_not_overlap() {
    let shape = Shape { nodes: 8, cpus: 8 };
    let mut used = vec![false; CLOCK_WORDS];
    let mut take = |at: usize| assert!(!std::mem::replace(&mut used[at], true), "{at}");
    for at in [words::ARRIVED, words::OPEN, words::TURN, words::TURN_END] {
        take(at);
    }
    for at in [words::RANDOM, words::HASH, words::TURNS, words::TAKEN] {
        take(at);
    }
    (0..8).for_each(|n| take(dead(n)));
    for w in shape.all() {
        (0..16).for_each(|i| take(who(w, i)));
        for from in shape.all() {
            (0..words::QUEUE_WORDS).for_each(|i| take(words::queue(w, from) + i));
        }
    }
    (words::GATES..CLOCK_WORDS).for_each(&mut take);
    assert_eq!(shape.all().count(), MAX_WHO);
}
