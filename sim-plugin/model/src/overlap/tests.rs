use super::*;
use crate::account::Counters;
use proptest::prelude::*;

const PS: u64 = 500;
/// Cycles that a miss takes.
const MISS: u64 = 400;

const KEYS: OverlapConfig = OverlapConfig {
    l1: 0,
    window: 200,
    misses: 10,
    stores: 40,
    streams: 0,
    ahead: 0,
};

/// A CPU whose instructions take a cycle each, and its account.
struct Cpu {
    window: Option<Window>,
    cycles: u64,
    instructions: u64,
    counts: Counters,
}

impl Cpu {
    fn new(keys: OverlapConfig) -> Cpu {
        Cpu {
            window: Window::new(keys, PS, PS),
            cycles: 0,
            instructions: 0,
            counts: Counters::default(),
        }
    }

    fn wait(&mut self, wait: &Wait) {
        assert_eq!(
            wait.stalls.total(),
            wait.cycles,
            "all of a wait is explained"
        );
        self.cycles += wait.cycles;
        self.counts.add_stalls(&wait.stalls);
    }

    fn execute(&mut self, instructions: u64) {
        self.instructions += instructions;
        self.cycles += instructions;
    }

    /// An instruction that accesses memory. Of the cycles that it takes, a quarter is the link's.
    fn access(&mut self, kind: Kind, address: u64, value: u64, cycles: u64) {
        self.execute(1);
        let access = Access {
            kind,
            address,
            value,
            instruction: self.instructions,
        };
        let counts = Counters {
            remote_cycles: cycles - cycles / 4,
            link_cycles: cycles / 4,
            ..Counters::default()
        };
        let stalls = counts.stalls();
        let Some(mut window) = self.window.take() else {
            return self.wait(&Wait { cycles, stalls });
        };
        let wait = window.before(&access, self.cycles * PS);
        self.wait(&wait);
        match window.after(&access, self.cycles * PS, stalls) {
            Some(wait) => self.wait(&wait),
            None => self.wait(&Wait { cycles, stalls }),
        }
        self.window = Some(window);
    }

    fn drain(&mut self) {
        if let Some(mut window) = self.window.take() {
            let wait = window.drain(self.cycles * PS);
            self.wait(&wait);
            self.window = Some(window);
        }
    }
}

/// Cycles of a program, all that it has begun included; each of them explained.
fn time(keys: OverlapConfig, program: impl Fn(&mut Cpu)) -> u64 {
    let mut cpu = Cpu::new(keys);
    program(&mut cpu);
    cpu.drain();
    assert_eq!(cpu.cycles, cpu.instructions + cpu.counts.stalls().total());
    cpu.cycles
}

const OFF: OverlapConfig = OverlapConfig {
    l1: 0,
    window: 0,
    misses: 0,
    stores: 0,
    streams: 0,
    ahead: 0,
};

/// A place for element `n`, in no order.
fn scattered(n: u64) -> u64 {
    0x1000_0000 + (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) * 64
}

#[test]
fn a_chase_of_pointers_takes_the_same_time_to_the_cycle() {
    let all = OverlapConfig {
        streams: 16,
        ahead: 32,
        ..KEYS
    };
    let chase = |cpu: &mut Cpu| {
        for n in 0..1000 {
            // The pointer is the third field.
            cpu.access(Kind::Load, scattered(n) + 16, scattered(n + 1), MISS);
            cpu.execute(3);
        }
        cpu.access(Kind::Load, scattered(1000), 0, 0);
    };
    assert_eq!(time(all, chase), time(OFF, chase));
    // Each step is a hit and a miss.
    let by_way_of_hits = |cpu: &mut Cpu| {
        for n in 0..1000 {
            cpu.access(Kind::Load, scattered(2 * n), scattered(2 * n + 1), MISS);
            cpu.access(Kind::Load, scattered(2 * n + 1), scattered(2 * n + 2), 0);
        }
    };
    assert_eq!(time(all, by_way_of_hits), time(OFF, by_way_of_hits));
}

#[test]
fn a_chase_of_indices_takes_the_same_time_once_the_array_is_known() {
    let index = |n: u64| n.wrapping_mul(7919) % 100_003;
    let chase = |cpu: &mut Cpu| {
        for n in 0..1000 {
            let address = 0x4000_0000 + index(n) * 64;
            cpu.access(Kind::Load, address, index(n + 1), MISS);
            cpu.execute(4);
        }
    };
    let (with, without) = (time(KEYS, chase), time(OFF, chase));
    assert!(
        with <= without && with + 2 * MISS >= without,
        "{with} of {without}"
    );
}

#[test]
fn independent_loads_are_under_way_as_window_and_misses_allow() {
    let gather = |between: u64| {
        move |cpu: &mut Cpu| {
            for n in 0..10_000 {
                cpu.access(Kind::Load, scattered(n), 0, MISS);
                cpu.execute(between - 1);
            }
        }
    };
    // Instructions between two of them, and how many are under way then: ten at most, and those of 200 instructions.
    for (between, together) in [(1, 10), (5, 10), (20, 10), (40, 5), (100, 2), (200, 1)] {
        let per_load = time(KEYS, gather(between)) as f64 / 10_000.0;
        // Execution goes on meanwhile, until the window is full.
        let expected = (MISS as f64 / together as f64).max(between as f64);
        let off = (per_load - expected).abs() / expected;
        let slack = between as f64 / expected + 0.03;
        assert!(off <= slack, "{between}: {per_load} instead of {expected}");
        assert!(per_load >= 0.97 * expected, "{between}: {per_load}");
    }
}

#[test]
fn stores_wait_for_room_and_fences_for_all() {
    let stores = |n: u64| {
        move |cpu: &mut Cpu| (0..n).for_each(|n| cpu.access(Kind::Store, scattered(n), 0, MISS))
    };
    // As many as there is room for are under way together.
    assert_eq!(time(KEYS, stores(40)), 40 + MISS);
    assert_eq!(time(KEYS, stores(1)), 1 + MISS);
    // The next one waits for the first.
    let mut cpu = Cpu::new(KEYS);
    stores(41)(&mut cpu);
    assert_eq!(cpu.cycles, 1 + MISS);
    // An atomic operation waits for all, and is waited for.
    let mut cpu = Cpu::new(KEYS);
    stores(2)(&mut cpu);
    cpu.access(Kind::Rmw, 0, 0, MISS);
    assert_eq!(cpu.cycles, 2 + MISS + MISS);
}

#[test]
fn what_is_needed_is_waited_for_in_full_at_its_use() {
    let mut cpu = Cpu::new(KEYS);
    cpu.access(Kind::Load, 0x10_0000, 0x20_0000, MISS);
    cpu.execute(100);
    assert_eq!(cpu.cycles, 101);
    // A field of what is being loaded, which would hit.
    cpu.access(Kind::Store, 0x20_0008, 0, 0);
    assert_eq!(
        (cpu.cycles, cpu.counts.stalls().total()),
        (102 + MISS, MISS)
    );
    // A second load of a line on its way gives its value when the line comes.
    cpu.access(Kind::Load, 0x30_0000, 1, MISS);
    cpu.access(Kind::Load, 0x30_0008, 0x50_0000, 0);
    let begun = cpu.cycles - 1;
    cpu.access(Kind::Load, 0x50_0000, 0, 0);
    assert_eq!(cpu.cycles, begun + MISS + 1);
}

#[test]
fn lines_of_a_stream_come_as_fast_as_they_are_asked_for() {
    let keys = OverlapConfig {
        streams: 4,
        ahead: 16,
        ..OFF
    };
    let scan = |stride: u64, each: u64| {
        move |cpu: &mut Cpu| {
            for n in 0..64 / stride {
                cpu.access(Kind::Load, 0x10_0000 + n * stride * 64, 0, MISS);
                cpu.execute(each - 1);
            }
        }
    };
    for each in [2, 10, 30, 100] {
        let all = time(keys, scan(1, each));
        // Three lines until it is known; then sixteen at once, or as fast as they are used.
        let rounds = (61u64).div_ceil(16) * MISS;
        let least = 3 * MISS + (61 * each).max(rounds - MISS);
        assert!(
            (least..=least + 2 * MISS + 64 * each).contains(&all),
            "{each}: {all}, {least}"
        );
        assert!(all <= time(OFF, scan(1, each)));
    }
    // Lines that are three apart are a stream, too; no order is none.
    assert!(time(keys, scan(3, 2)) < time(OFF, scan(3, 2)) / 2);
    let scatter = |cpu: &mut Cpu| {
        (0..64).for_each(|n| cpu.access(Kind::Load, scattered(n), 0, MISS));
    };
    assert_eq!(time(keys, scatter), time(OFF, scatter));
}

/// Beluga (arXiv 2511.20172, table 4) reads 16 KiB that another host has written, behind a switch of some 750 ns, in 5.98 us: 23.4 ns
/// for each of 256 lines, 1495 ns for a page. A prefetcher that is 32 lines ahead, beside a window, takes as long.
#[test]
fn a_page_behind_a_switch_is_copied_as_fast_as_published() {
    let keys = OverlapConfig {
        l1: 4,
        window: 224,
        misses: 12,
        stores: 56,
        streams: 16,
        ahead: 32,
    };
    // 2.5 GHz. A vector of 64 bytes each time: load, store, three more instructions.
    let miss = 750 * 10 / 4;
    let copy = |cpu: &mut Cpu| {
        for n in 0..64 {
            cpu.access(Kind::Load, 0x10_0000 + n * 64, 0, miss);
            cpu.access(Kind::Store, 0x90_0000 + n * 64, 0, 0);
            cpu.execute(3);
        }
    };
    let ns = time(keys, copy) as f64 * 0.4;
    assert!((ns - 1495.0).abs() <= 149.5, "{ns} ns");
}

proptest! {
    /// Whatever is accessed: every cycle is explained, and nothing takes longer than one after the other.
    #[test]
    fn overlap_costs_nothing_and_is_accounted_for(
        ops in proptest::collection::vec((0u8..4, 0u64..300, any::<u64>(), 0u64..3, 1u64..30), 1..300),
        window in 0u64..60, misses in 0u64..6, stores in 0u64..6, streams in 0u64..4, ahead in 0u64..20,
    ) {
        let keys = OverlapConfig { l1: 0, window, misses, stores, streams, ahead };
        let program = |cpu: &mut Cpu| {
            for &(kind, line, value, cost, between) in &ops {
                let kind = [Kind::Load, Kind::Load, Kind::Store, Kind::Rmw][usize::from(kind)];
                cpu.access(kind, line * 64, value % 0x8000, cost * MISS / 2);
                cpu.execute(between);
            }
        };
        prop_assert!(time(keys, program) <= time(OFF, program));
    }
}
