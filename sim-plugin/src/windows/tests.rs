use super::*;

fn at(instructions: u64) -> Running {
    Running {
        instructions,
        ..Running::default()
    }
}

/// One CPU of an x86-64 machine.
#[derive(Default)]
struct Cpu {
    window: CpuWindow,
    samples: Samples,
}

impl Cpu {
    fn mark(&mut self, op: MarkerOp, id: u16, now: Running) -> Outcome {
        let id = WindowId(id);
        let outcome = self.window.marker(Marker { op, id }, now);
        self.samples.note(outcome);
        outcome
    }

    fn load(&mut self, place: Place) {
        self.window.access(Isa::X86_64, place, false);
    }

    fn spread(&self, id: u16, metric: Metric) -> (u64, u64, u64) {
        let s = self.samples.records[&WindowId(id)].spread(metric).unwrap();
        (s.min, s.median, s.max)
    }
}

#[test]
fn a_window_counts_what_is_between_its_ends() {
    let mut cpu = Cpu::default();
    for (length, atomics) in [(10, 1), (30, 0), (20, 3), (12, 1)] {
        cpu.mark(MarkerOp::Begin, 7, at(1000));
        assert!(cpu.window.is_open());
        assert_eq!(cpu.window.open_id(), Some(WindowId(7)));
        for line in 0..length {
            cpu.load(Place::Memory(line * 64));
            cpu.load(Place::Memory(line * 64 + 63));
        }
        let now = Running {
            instructions: 1000 + length,
            atomics,
            flushes: 2,
            fences: 1,
        };
        cpu.mark(MarkerOp::End, 7, now);
        assert!(!cpu.window.is_open());
    }
    assert_eq!(cpu.samples.records[&WindowId(7)].n(), 4);
    assert_eq!(cpu.spread(7, Metric::Instructions), (10, 12, 30));
    assert_eq!(cpu.spread(7, Metric::Lines), (10, 12, 30));
    assert_eq!(cpu.spread(7, Metric::Accesses), (20, 24, 60));
    assert_eq!(cpu.spread(7, Metric::Atomics), (0, 1, 3));
    assert_eq!(cpu.spread(7, Metric::Flushes), (2, 2, 2));
    assert_eq!(cpu.spread(7, Metric::Fences), (1, 1, 1));
    assert_eq!(cpu.spread(7, Metric::FusedLines), (0, 0, 0));
}

#[test]
fn ends_must_match_and_beginnings_replace() {
    let mut cpu = Cpu::default();
    assert_eq!(cpu.mark(MarkerOp::End, 1, at(0)), Outcome::Unmatched);
    assert_eq!(cpu.mark(MarkerOp::Abandon, 0, at(0)), Outcome::Unmatched);
    cpu.mark(MarkerOp::Begin, 1, at(0));
    assert_eq!(cpu.mark(MarkerOp::End, 2, at(5)), Outcome::Unmatched);
    let replaced = Outcome::Opened { abandoned: true };
    assert_eq!(cpu.mark(MarkerOp::Begin, 2, at(6)), replaced);
    cpu.mark(MarkerOp::End, 2, at(9));
    assert_eq!(cpu.spread(2, Metric::Instructions), (3, 3, 3));
    cpu.mark(MarkerOp::Begin, 1, at(10));
    assert_eq!(cpu.mark(MarkerOp::Abandon, 0, at(11)), Outcome::Abandoned);
    assert_eq!((cpu.samples.unmatched, cpu.samples.abandoned), (3, 2));
    assert!(!cpu.samples.records.contains_key(&WindowId(1)));
}

#[test]
fn what_is_executed_while_waiting_does_not_count() {
    let mut cpu = Cpu::default();
    let (waits, works) = (Marker::WAITS.id.0, Marker::WORKS.id.0);
    // Waits that no window is open for, and ends of none, change nothing.
    cpu.mark(MarkerOp::Idle, waits, at(1));
    cpu.mark(MarkerOp::Idle, works, at(90));
    cpu.mark(MarkerOp::Begin, 7, at(100));
    cpu.mark(MarkerOp::Idle, works, at(103));
    cpu.load(Place::Memory(64));
    cpu.mark(MarkerOp::Idle, waits, at(110));
    assert!(!cpu.window.is_open());
    cpu.mark(MarkerOp::Idle, waits, at(150));
    cpu.mark(MarkerOp::Idle, works, at(1010));
    assert!(cpu.window.is_open());
    cpu.mark(MarkerOp::Idle, waits, at(1015));
    cpu.mark(MarkerOp::Idle, works, at(2015));
    cpu.mark(MarkerOp::End, 7, at(2020));
    assert_eq!(cpu.spread(7, Metric::Instructions), (20, 20, 20));
    assert_eq!(cpu.spread(7, Metric::Lead), (10, 10, 10));
    assert_eq!(cpu.spread(7, Metric::Waits), (2, 2, 2));
    // A window that is not waited in is all lead. A wait ends with its window.
    cpu.mark(MarkerOp::Begin, 8, at(3000));
    cpu.mark(MarkerOp::End, 8, at(3005));
    assert_eq!(cpu.spread(8, Metric::Lead), (5, 5, 5));
    assert_eq!(cpu.spread(8, Metric::Waits), (0, 0, 0));
    cpu.mark(MarkerOp::Begin, 9, at(4000));
    cpu.mark(MarkerOp::Idle, waits, at(4001));
    cpu.mark(MarkerOp::Begin, 9, at(5000));
    cpu.mark(MarkerOp::End, 9, at(5002));
    assert_eq!(cpu.spread(9, Metric::Instructions), (2, 2, 2));
}

#[test]
fn interrupted_windows_give_no_sample() {
    for (isa, address, store) in [
        (Isa::X86_64, 0xfee0_00b0, true),
        (Isa::Aarch64, 0x0801_000c, false),
    ] {
        let mut cpu = Cpu::default();
        for (address, store) in [(address, store), (address, !store), (address + 4, store)] {
            cpu.mark(MarkerOp::Begin, 3, at(0));
            cpu.window.access(isa, Place::Device(address), store);
            cpu.mark(MarkerOp::End, 3, at(2));
        }
        let record = &cpu.samples.records[&WindowId(3)];
        assert_eq!((record.n(), record.interrupted()), (2, 1));
        assert_eq!(record.total(), 6);
        assert_eq!(cpu.spread(3, Metric::Devices), (1, 1, 1));
        assert_eq!(cpu.spread(3, Metric::Lines), (0, 0, 0));
    }
}

#[test]
fn forgetting_drops_warm_up() {
    let mut cpu = Cpu::default();
    for length in [100, 5, 6] {
        cpu.mark(MarkerOp::Begin, 3, at(0));
        cpu.mark(MarkerOp::End, 3, at(length));
        if length == 100 {
            cpu.mark(MarkerOp::Forget, 3, at(0));
        }
    }
    assert_eq!(cpu.spread(3, Metric::Instructions), (5, 5, 6));
}

#[test]
fn lines_are_distinct_however_many() {
    let mut cpu = Cpu::default();
    for count in [3, 5000, 1] {
        cpu.mark(MarkerOp::Begin, 1, at(0));
        for line in (0..count).chain(0..count) {
            cpu.load(Place::Memory(line * 64 + LOCAL_STRIDE - 64));
        }
        let Outcome::Closed { sample, .. } = cpu.mark(MarkerOp::End, 1, at(0)) else {
            panic!("the window has ended");
        };
        assert_eq!(sample[Metric::Lines as usize], count);
        assert_eq!(sample[Metric::FusedLines as usize], count - 1);
    }
}

#[test]
fn the_median_is_of_what_is_kept_and_the_rest_of_all() {
    let mut record = Record::default();
    assert_eq!(record.spread(Metric::Lines), None);
    let last = KEPT as u64 + 10;
    for value in 1..=last {
        record.add([value; Metric::ALL.len()]);
    }
    let spread = Spread {
        min: 1,
        median: KEPT as u64 / 2,
        max: last,
    };
    assert_eq!(record.spread(Metric::Lines), Some(spread));
    assert_eq!(record.n(), last);
}

#[test]
fn instructions_of_a_window_are_kept_by_address() {
    let id = WindowId(1);
    let mut cpu = CpuWindow::default();
    let mut samples = Samples::default();
    for _ in 0..2 {
        let op = MarkerOp::Begin;
        cpu.marker(Marker { op, id }, Running::default());
        for at in [16, 20, 16] {
            cpu.executes(at);
        }
        let op = MarkerOp::End;
        samples.note(cpu.marker(Marker { op, id }, Running::default()));
        samples.visit(id, &cpu.sites());
    }
    let sites: Vec<(u64, u64)> = samples.records[&id]
        .sites()
        .iter()
        .map(|(at, n)| (*at, *n))
        .collect();
    assert_eq!(sites, [(16, 4), (20, 2)]);
}
