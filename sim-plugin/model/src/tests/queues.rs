//! Queues of memories and links against closed forms, and the ways of lines, computed by hand.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use crate::calendar::{Calendar, slot_ps, words};
use crate::coherent::{Channel, FlushKind, Kind, Queues, Storage, System};
use crate::config::*;
use crate::fixture;
use crate::memory::Home;

/// Words of a calendar, all zero.
fn zeros(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// The slot of a channel of 38.4 GB/s.
fn slot() -> NonZeroU64 {
    slot_ps(38_400).unwrap()
}

/// Numbers in (0, 1].
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

#[test]
fn a_slot_is_64_bytes_by_the_bandwidth() {
    for (bandwidth, ps) in [
        (1, 64_000_000),
        (12_800, 5000),
        (25_600, 2500),
        (38_400, 1667),
    ] {
        assert_eq!(slot_ps(bandwidth).map(NonZeroU64::get), Some(ps));
    }
    assert_eq!(slot_ps(1_000_000).map(NonZeroU64::get), Some(64));
    assert_eq!(slot_ps(0), None);
}

/// Requests at random times wait as long as customers of M/D/1 do: `load / (2 (1 - load))` times of service.
#[test]
fn the_mean_wait_is_that_of_m_d_1() {
    let clock = fixture::config(1, 1).clock;
    let slot = slot();
    let mut random = Random(7);
    for tenths in 1..=9u32 {
        let load = f64::from(tenths) / 10.0;
        let area = zeros(words(slot, &clock));
        let calendar = Calendar::new(&area, slot);
        let requests = 1_000_000 * u64::from(tenths.max(4) - 3);
        let (mut time, mut waited) = (0.0, 0);
        for _ in 0..requests {
            time -= random.next().ln() * slot.get() as f64 / load;
            waited += calendar.reserve(time as u64);
        }
        let mean = waited as f64 / requests as f64 / slot.get() as f64;
        let exact = load / (2.0 * (1.0 - load));
        let error = mean / exact - 1.0;
        println!(
            "load {load}: mean {mean:.4}, M/D/1 {exact:.4}, {:+.2} %",
            error * 100.0
        );
        assert!(error.abs() < 0.03, "load {load}: {mean} instead of {exact}");
    }
}

proptest! {
    /// The order of requests changes who waits, but neither which slots are taken nor how long all wait together.
    #[test]
    fn the_order_of_requests_does_not_matter(
        requests in proptest::collection::vec((0..400_000u64, any::<u32>()), 1..300),
    ) {
        let total = |requests: &[(u64, u32)]| {
            let area = zeros(64);
            let calendar = Calendar::new(&area, slot());
            let slots: Vec<(u64, u64)> = requests
                .iter()
                .map(|&(at, _)| (at / slot(), calendar.reserve(at)))
                .collect();
            let taken: BTreeSet<u64> = slots.iter().map(|&(n, wait)| n + wait / slot()).collect();
            assert_eq!(taken.len(), slots.len(), "each slot is taken once");
            (slots.iter().map(|(_, wait)| wait).sum::<u64>(), taken)
        };
        let mut sorted = requests.clone();
        sorted.sort_unstable();
        let mut shuffled = requests;
        shuffled.sort_by_key(|&(_, order)| order);
        prop_assert_eq!(total(&sorted), total(&shuffled));
    }

    /// A calendar whose ring comes round again and again is as a set of taken slots.
    #[test]
    fn a_calendar_is_a_set_of_slots(
        steps in proptest::collection::vec((0..6_000u64, 0..500_000u64), 1..3000),
    ) {
        // 1024 slots, 1.7 us.
        let area = zeros(32);
        let calendar = Calendar::new(&area, slot());
        let mut taken = BTreeSet::new();
        let mut time = 0;
        for (step, ahead) in steps {
            time += step;
            let at = time + ahead;
            let free = (at / slot()..).find(|n| !taken.contains(n)).unwrap();
            // No queue is as long as the ring.
            prop_assume!(free - time / slot() < 900);
            taken.insert(free);
            prop_assert_eq!(calendar.reserve(at), (free - at / slot()) * slot().get());
        }
    }
}

/// Two nodes that run in turns, a quantum apart, wait together as long as if all had come in the order of time.
#[test]
fn nodes_that_run_in_turns_wait_as_if_they_ran_together() {
    const QUANTUM: u64 = 500_000;
    let mut random = Random(3);
    let mut times = || -> Vec<u64> {
        let times = (0..4000).map(|_| (random.next() * 20.0 * QUANTUM as f64) as u64);
        let mut times: Vec<u64> = times.collect();
        times.sort_unstable();
        times
    };
    let nodes = [times(), times()];
    let total = |order: &[u64]| -> u64 {
        let area = zeros(1024);
        let calendar = Calendar::new(&area, slot());
        order.iter().map(|&at| calendar.reserve(at)).sum()
    };
    let mut turns: Vec<(u64, usize, u64)> = Vec::new();
    for (node, times) in nodes.iter().enumerate() {
        turns.extend(times.iter().map(|&at| (at / QUANTUM, node, at)));
    }
    turns.sort_by_key(|&(turn, node, _)| (turn, node));
    let turns: Vec<u64> = turns.into_iter().map(|(_, _, at)| at).collect();
    let mut together = turns.clone();
    together.sort_unstable();
    assert_ne!(turns, together);
    assert!(total(&turns) > 0);
    assert_eq!(total(&turns), total(&together));
}

#[test]
fn what_is_a_ring_behind_waits_for_nothing_and_leaves_no_trace() {
    let area = zeros(2);
    let calendar = Calendar::new(&area, slot());
    let at = |slots: u64| slots * slot().get();
    assert_eq!(calendar.reserve(at(3)), 0);
    assert_eq!(calendar.reserve(at(3 + 64)), 0);
    assert_eq!((calendar.reserve(at(3)), calendar.reserved()), (0, 1));
    // The other word has not come round yet.
    assert_eq!(calendar.reserve(at(40)), 0);
    assert_eq!((calendar.reserve(at(40)), calendar.reserved()), (at(1), 3));
}

#[test]
fn a_full_ring_is_waited_for() {
    let area = zeros(2);
    let calendar = Calendar::new(&area, slot());
    for n in 0..59 {
        assert_eq!(calendar.reserve(5 * slot().get()), n * slot().get());
    }
    for _ in 0..3 {
        assert_eq!(calendar.reserve(5 * slot().get()), 59 * slot().get());
    }
    assert_eq!(calendar.reserved(), 59);
}

/// Threads that reserve at once never get the same slot.
#[test]
fn slots_are_taken_once_by_threads() {
    let area = zeros(1024);
    let calendar = Calendar::new(&area, slot());
    let reserve = |seed| {
        let mut random = Random(seed);
        let slots = (0..8000).map(|_| {
            let at = (random.next() * 30_000_000.0) as u64;
            at / slot() + calendar.reserve(at) / slot()
        });
        slots.collect::<Vec<u64>>()
    };
    let all: Vec<u64> = std::thread::scope(|scope| {
        let threads = [1, 2].map(|seed| scope.spawn(move || reserve(seed)));
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    });
    let distinct: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len());
    assert_eq!(calendar.reserved(), all.len() as u64);
}

thread_local! {
    static TIME: Cell<u64> = const { Cell::new(0) };
}

fn now(_: u32) -> u64 {
    TIME.get()
}

/// All CPUs of a system, whose lines wait for each other.
fn system<'a>(config: &SimConfig, storage: &'a Storage) -> System<'a> {
    TIME.set(0);
    let mut system = System::new(config, storage);
    for (node, shape) in config.nodes.iter().enumerate() {
        for cpu in 0..shape.cpus {
            let queues = Queues::new(config, node, storage.calendars(), now, 0);
            system.core(node, cpu).heed_queues(queues);
        }
    }
    system
}

/// CPUs load lines that no cache has, each as soon as it has the one before. Returns the time that a line takes, in slots
/// of the memory, and the cycles waited in queues.
fn stream(cpus: usize, bandwidth: u64) -> (f64, u64) {
    let mut config = fixture::config(1, cpus);
    config.bandwidth.memory = bandwidth;
    let storage = Storage::new(&config);
    let mut system = system(&config, &storage);
    let cycle_ps = config.nodes[0].cycle_ps;
    let mut times = vec![0u64; cpus];
    let lines = 20_000u64;
    for i in 0..lines {
        let cpu = (0..cpus).min_by_key(|&cpu| times[cpu]).unwrap();
        TIME.set(times[cpu]);
        // Private memory, far below the pools in the middle of it.
        times[cpu] += system.access(0, cpu, Kind::Load, 1 << 20 | i) * cycle_ps;
    }
    let slot = slot_ps(bandwidth).unwrap().get() as f64;
    let slots = *times.iter().max().unwrap() as f64 / slot;
    let waited = (0..cpus).map(|cpu| system.counts(0, cpu).queue_cycles);
    (slots / lines as f64, waited.sum())
}

/// As many CPUs as keep a memory busy get exactly one line in each slot, however many they are.
#[test]
fn a_memory_that_is_busy_gives_a_line_in_each_slot() {
    // A line takes 142.8 ns without a wait, and a slot 64 ns: three CPUs are enough.
    for cpus in 3..=8 {
        let (slots, waited) = stream(cpus, 1000);
        assert!((slots - 1.0).abs() < 0.001, "{cpus} CPUs: {slots} slots");
        assert!(waited > 0);
    }
    let (slots, _) = stream(2, 1000);
    let alone = 300.0 * 476.0 / 64_000.0 / 2.0;
    assert!(
        (slots / alone - 1.0).abs() < 0.01,
        "two CPUs: {slots} slots"
    );
}

/// A CPU that misses one line at a time never waits for itself, unless a slot is longer than a miss.
#[test]
fn a_cpu_alone_does_not_wait() {
    for bandwidth in [38_400, 1000, 449] {
        assert_eq!(stream(1, bandwidth).1, 0, "{bandwidth} MB/s");
    }
    let (slots, waited) = stream(1, 400);
    assert!((slots - 1.0).abs() < 0.001 && waited > 0, "{slots} slots");
}

#[test]
fn waits_are_whole_cycles_of_who_waits_and_a_part_of_their_own() {
    let mut config = fixture::config(1, 3);
    config.bandwidth.memory = 1000;
    let storage = Storage::new(&config);
    let mut system = system(&config, &storage);
    // 64 ns are 134.5 cycles of 476 ps.
    for (cpu, wait) in [0, 135, 269].into_iter().enumerate() {
        let line = 1 << 20 | cpu as u64;
        assert_eq!(system.access(0, cpu, Kind::Load, line), 300 + wait);
        assert_eq!(system.counts(0, cpu).queue_cycles, wait);
        assert_eq!(system.counts(0, cpu).local_cycles, 300);
    }
}

#[test]
fn without_a_limit_or_time_there_are_no_calendars() {
    let mut config = fixture::config(2, 1);
    assert_eq!(Queues::words(&config), 0);
    assert!(Queues::new(&config, 0, &[], now, 0).is_none());
    config.bandwidth.link = 1000;
    // In and out of each node.
    let each = words(slot_ps(1000).unwrap(), &config.clock);
    assert_eq!(Queues::words(&config), 4 * each);
    config.level = Level::Cache;
    assert_eq!(Queues::words(&config), 0);
}

/// The channels of a system of three nodes, with the names that the tests below use.
fn channels() -> impl Iterator<Item = (String, Channel)> {
    let device = ("D".to_string(), Channel::Memory(Home::Device));
    let of = |node| {
        [
            (format!("m{node}"), Channel::Memory(Home::Node(node))),
            (format!("i{node}"), Channel::In(node)),
            (format!("o{node}"), Channel::Out(node)),
        ]
    };
    (0..3).flat_map(of).chain([device])
}

/// The lines that each channel carries for the last of some accesses, such as `1w 0r@2` (see the scenes of the book): the
/// names of the channels, as often as they carry one.
fn carried(config: &SimConfig, home: usize, accesses: &str) -> String {
    let mut config = config.clone();
    config.bandwidth = Bandwidths {
        memory: 1000,
        device: 1000,
        link: 1000,
    };
    let storage = Storage::new(&config);
    let mut system = system(&config, &storage);
    let mut before = Vec::new();
    for access in accesses.split(' ') {
        let (access, number) = access.split_once('@').unwrap_or((access, "0"));
        let (node, what) = access.split_at(1);
        let node: usize = node.parse().unwrap();
        let line = config.pools[home].base / LINE_BYTES + number.parse::<u64>().unwrap() * 16;
        before = lines_of_channels(&mut system);
        match what {
            "r" => system.access(node, 0, Kind::Load, line),
            "w" => system.access(node, 0, Kind::Store, line),
            "f" => system.flush(node, 0, FlushKind::Flush, line),
            "c" => system.flush(node, 0, FlushKind::Clean, line),
            "a" => system.flush(node, 0, FlushKind::Everything, line),
            _ => panic!("no access: {access}"),
        };
    }
    let after = lines_of_channels(&mut system);
    let names = channels().zip(before).zip(after);
    let names =
        names.flat_map(|(((name, _), before), after)| vec![name; (after - before) as usize]);
    names.collect::<Vec<_>>().join(" ")
}

fn lines_of_channels(system: &mut System<'_>) -> Vec<u64> {
    let queues = system.core(0, 0).queues().unwrap();
    let all = channels().map(|(_, channel)| queues.reserved(channel));
    all.collect()
}

/// The home of the device's lines in [`carried`].
const DEVICE: usize = 3;

#[test]
fn lines_pass_the_channels_of_their_ways() {
    let mut config = fixture::config(3, 1);
    for (home, accesses, channels) in [
        (0, "0r", "m0"),
        (1, "0r", "i0 m1 o1"),
        (1, "0w", "i0 m1 o1"),
        (DEVICE, "0r", "i0 D"),
        (0, "0r 0r", ""),
        // Clean lines come from memory.
        (2, "1r 0r", "i0 m2 o2"),
        (DEVICE, "1r 2r 0w", "i0 D"),
        (0, "0r 1r 0w", ""),
        // Modified ones from their owner; what is read is written back, to its reader at once if that is the home.
        (0, "1w 0r", "m0 i0 o1"),
        (1, "1w 0r", "i0 m1 o1"),
        (2, "1w 0r", "i0 o1 o1 m2 i2"),
        (DEVICE, "1w 0r", "i0 o1 o1 D"),
        (2, "1w 0w", "i0 o1"),
        // Flushed lines go to memory.
        (2, "1w 0f", "o1 m2 i2"),
        (1, "1w 0c", "m1"),
        (DEVICE, "0w 0f", "o0 D"),
        (1, "0w 0a", "o0 m1 i1"),
        (1, "0r 0f", ""),
    ] {
        assert_eq!(
            carried(&config, home, accesses),
            channels,
            "{home}: {accesses}"
        );
    }
    for node in &mut config.nodes {
        node.snoop.through_home = true;
    }
    for (home, accesses, channels) in [
        (0, "1w 0r", "m0 i0 o1"),
        (1, "1w 0r", "i0 m1 o1"),
        (2, "1w 0r", "i0 o1 m2 i2 o2"),
        (DEVICE, "1w 0r", "i0 o1 D"),
        (DEVICE, "1w 0w", "i0 o1 D"),
    ] {
        assert_eq!(
            carried(&config, home, accesses),
            channels,
            "{home}: {accesses}"
        );
    }
}

#[test]
fn lines_that_must_go_pass_the_channels_to_memory() {
    // 16 further lines are in the set of the first one.
    let evicted: Vec<String> = (1..=16).map(|n| format!("0r@{n}")).collect();
    let accesses = format!("0w {}", evicted.join(" "));
    let config = fixture::config(3, 1);
    assert_eq!(carried(&config, 1, &accesses), "i0 o0 m1 m1 i1 o1");
    assert_eq!(carried(&config, DEVICE, &accesses), "i0 o0 D D");
    // Nine lines are one more than the filter of the device has tags for.
    let filtered = SimConfig {
        filter_entries: 8,
        ..config
    };
    let recalled: Vec<String> = (1..=8).map(|n| format!("0r@{n}")).collect();
    let accesses = format!("1w {}", recalled.join(" "));
    assert_eq!(carried(&filtered, DEVICE, &accesses), "i0 o1 D D");
}

#[test]
fn nothing_is_on_a_link_where_all_nodes_share_the_last_level() {
    let mut config = fixture::config(3, 1);
    config.model = MemoryModel::FullyShared;
    assert_eq!(carried(&config, 1, "0r"), "m1");
    assert_eq!(carried(&config, DEVICE, "0r"), "m0");
    assert_eq!(carried(&config, 1, "1w 0r"), "m1");
    config.model = MemoryModel::Pool;
    assert_eq!(carried(&config, 0, "0r"), "i0 D");
    config.model = MemoryModel::Separated;
    assert_eq!(carried(&config, DEVICE, "1r"), "m0 o0 i1");
}
