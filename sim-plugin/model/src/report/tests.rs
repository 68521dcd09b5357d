//! Tests of the report.

use super::*;

/// A report in which every number differs.
fn full() -> MachineReport {
    let mut next = 0u64;
    let mut number = || {
        next += 1;
        next
    };
    let mut cpu = CpuReport {
        cpu: 1,
        lower_half: number(),
        upper_half: number(),
        time_ps: number(),
        ..CpuReport::default()
    };
    cpu.counters.inclusion_snoops = number();
    cpu.breakdown_ps.msg_wait = number();
    MachineReport {
        schema: SCHEMA.into(),
        target: "x86_64".into(),
        node: Some(3),
        plugin_api: 4,
        level: Level::Timing,
        unit: "block".into(),
        instructions: number(),
        cpus: vec![CpuReport::default(), cpu],
        clock: Some(ClockReport {
            total_ps: number(),
            trace_hash: u64::MAX - 1,
            ..ClockReport::default()
        }),
        roi: BTreeMap::from([(7, RoiReport::default())]),
        windows: Some(vec![WindowReport {
            id: 5,
            lines: Some(Spread {
                min: 1,
                median: 2,
                max: 3,
            }),
            sites: vec![(4096, 2)],
            ..WindowReport::default()
        }]),
        masked: Some(vec![MaskedReport {
            window: Some(5),
            entry: number(),
            n: 1,
            longest: number(),
            sites: Vec::new(),
        }]),
        abandoned: Some(number()),
        unmatched: Some(number()),
        sanitizer: Some(SanitizerReport {
            findings: Vec::new(),
            dropped: number(),
            let_go: number(),
        }),
    }
}

#[test]
fn durations_are_by_rank() {
    let of = |times: Vec<u64>| {
        let d = Durations::of(times);
        (d.min, d.median, d.p99, d.max)
    };
    assert_eq!(of((1..=200).rev().collect()), (1, 100, 198, 200));
    assert_eq!(of((1..=101).collect()), (1, 51, 100, 101));
    assert_eq!(of(vec![7]), (7, 7, 7, 7));
    assert_eq!(of(Vec::new()), (0, 0, 0, 0));
}

#[test]
fn what_is_written_is_read() {
    let report = full();
    let text = serde_json::to_string(&report).unwrap();
    assert!(
        text.contains("\"trace_hash\":\"fffffffffffffffe\""),
        "{text}"
    );
    assert!(text.contains("\"level\":\"timing\""), "{text}");
    assert_eq!(
        serde_json::from_str::<MachineReport>(&text).unwrap(),
        report
    );
    let damaged = text.replace("\"fffffffffffffffe\"", "\"fog\"");
    let e = serde_json::from_str::<MachineReport>(&damaged).unwrap_err();
    assert!(e.to_string().contains("\"fog\""), "{e}");
}

#[test]
fn what_was_not_observed_is_left_out() {
    let mut report = full();
    report.clock = None;
    report.roi.clear();
    report.windows = None;
    report.masked = None;
    (report.abandoned, report.unmatched) = (None, None);
    report.sanitizer = None;
    let text = serde_json::to_string(&report).unwrap();
    for name in [
        "clock",
        "roi",
        "windows",
        "masked",
        "abandoned",
        "unmatched",
        "sanitizer",
        "null",
    ] {
        assert!(!text.contains(name), "{name}: {text}");
    }
    assert_eq!(
        serde_json::from_str::<MachineReport>(&text).unwrap(),
        report
    );
}

#[test]
fn names_and_values_are_in_the_same_order() {
    let b = Breakdown {
        inst: 1,
        idle: 9,
        ..Breakdown::default()
    };
    assert_eq!(Breakdown::NAMES.first(), Some(&"inst"));
    assert_eq!(Breakdown::NAMES.last(), Some(&"idle"));
    assert_eq!(
        (b.values()[0], b.values().last(), b.total()),
        (1, Some(&9), 10)
    );
    let (counters, breakdown, time) = full().sum();
    assert_eq!(
        (counters.inclusion_snoops, breakdown.total(), time),
        (4, 5, 3)
    );
}
