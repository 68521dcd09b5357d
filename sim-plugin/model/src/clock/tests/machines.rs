//! Threads as machines: histories.

use super::*;

/// What a machine does, and everything that happens to it: when, and what. It decides by what it
/// can know as a guest: a doorbell that is on its way is not part of that.
fn program(world: &World, cpu: &Cpu, n: usize, nodes: usize) -> Vec<(u64, Interrupt)> {
    let mut history: Vec<(u64, Interrupt)> = Vec::new();
    let mut state = n as u64 * 77 + 5;
    let mut draw = |below: u64| {
        let (next, number) = random(state);
        state = next;
        number % below
    };
    let mut timers_set = 0;
    let mut time = draw(300_000);
    let mut path = 0u64;
    let mut until = cpu.begin(time, path).until;
    for _ in 0..300 {
        // Executes in blocks, and looks around when it is told to.
        let work = time + draw(2_000_000);
        while time < work {
            time += 1 + draw(9_000);
            path = path.wrapping_add(mix(time));
            if time >= until {
                let slice = cpu.quantum(time, 0, path, &mut |what| history.push((time, what)));
                assert_eq!(slice.now, time, "nobody has stopped it");
                until = slice.until;
            }
        }
        if draw(3) == 0 {
            cpu.ring(
                time,
                node((n + 1 + draw(nodes as u64 - 1) as usize) % nodes),
            );
        }
        let fired = |h: &[(u64, Interrupt)]| h.iter().filter(|e| e.1 == Interrupt::Timer).count();
        if draw(2) == 0 {
            let deadline = time + 1 + draw(5_000_000);
            cpu.set_deadline(Some(deadline));
            until = until.min(deadline);
            timers_set = fired(&history) + 1;
        }
        // A machine without a deadline could sleep for ever.
        if draw(2) == 0 && timers_set > fired(&history) {
            cpu.sleep(time, path);
            let rung = world.wait(n);
            let resumed = cpu.resume(time).unwrap();
            assert_eq!(rung, [resumed.event.expect("it was woken by its event")]);
            time = resumed.now;
            history.push((time, rung[0]));
            let slice = cpu.quantum(time, 0, path, &mut |what| history.push((time, what)));
            until = slice.until;
        }
    }
    cpu.end(time, path);
    history
}

/// The histories of all machines, and the last digest.
fn run(nodes: usize, order: Order) -> (Vec<Vec<(u64, Interrupt)>>, Vec<Stats>) {
    let world = World::new();
    let cpus: Vec<Cpu> = (0..nodes)
        .map(|n| made(&world, nodes, order, None, n))
        .collect();
    let histories = std::thread::scope(|scope| {
        let world = &world;
        let threads: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(n, cpu)| scope.spawn(move || program(world, cpu, n, nodes)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    (histories, cpus.iter().map(Coupling::stats).collect())
}

#[test]
fn machines_in_parallel_have_the_same_history_in_every_run() {
    for nodes in [2, 3] {
        let (first, stats) = run(nodes, Order::Parallel);
        let happened: usize = first.iter().map(Vec::len).sum();
        assert!(happened > 300, "{happened} interrupts");
        let times = Times::default();
        for s in &stats {
            assert!(s.skew <= times.lag, "{s:?}");
            assert!(s.late <= 9_000, "late by more than a block: {s:?}");
            assert_eq!((s.outside, s.given_up, s.merged, s.followed), (0, 0, 0, 0));
        }
        for _ in 0..4 {
            let (again, _) = run(nodes, Order::Parallel);
            assert!(again == first, "{nodes} machines");
        }
    }
}

#[test]
fn strict_order_repeats_everything_and_seeds_differ() {
    let digest = |seed| {
        let (histories, stats) = run(2, Order::Strict { seed });
        // Of who was last.
        let digests: Vec<u64> = stats.iter().map(|s| s.digest).collect();
        for s in stats {
            assert!(
                s.skew <= Times::default().lag + Times::default().quantum,
                "{s:?}"
            );
            assert_eq!((s.outside, s.given_up), (0, 0));
        }
        (digests, histories)
    };
    let mut seen = Vec::new();
    for seed in 0..4 {
        let first = digest(seed);
        assert_eq!(first, digest(seed), "seed {seed}");
        // What happens does not depend on the seed: nothing that a machine does depends on memory.
        if let Some((_, histories)) = seen.first() {
            assert_eq!(histories, &first.1);
        }
        assert!(seen.iter().all(|(digests, _)| digests != &first.0));
        seen.push(first);
    }
}

#[test]
fn in_strict_order_a_turn_is_not_lost_with_its_machine() {
    let order = Order::Strict { seed: 1 };
    let world = World::new();
    let [a, b] = std::array::from_fn(|n| made(&world, 2, order, SECOND, n));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut slice = a.begin(0, 0);
            while slice.now < 5_000_000 {
                slice = quiet(&a, slice.until);
            }
        });
        scope.spawn(|| {
            let mut slice = b.begin(0, 0);
            while slice.now < 1_000_000 {
                slice = quiet(&b, slice.until);
            }
            // It has the turn, and is killed.
            *world.threads[1].lock().unwrap() = Thread::Gone;
        });
    });
    assert!(world.is(1, State::Gone));
    assert!(a.turns_taken() >= 1);
}
