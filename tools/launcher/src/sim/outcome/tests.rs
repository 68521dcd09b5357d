use super::super::{Setup, System};
use super::*;
use dyad_sim_model::config::Level;
use dyad_sim_model::report::RoiReport;

pub(crate) fn cpu(time: u64) -> CpuReport {
    CpuReport {
        cpu: 0,
        lower_half: 3,
        upper_half: 4,
        time_ps: time,
        counters: Counters {
            instructions: 7,
            l1d_hits: 90,
            l1d_misses: 10,
            ..Counters::default()
        },
        breakdown_ps: Breakdown {
            inst: time / 2,
            mem_remote: time / 4,
            idle: time - time / 2 - time / 4,
            ..Breakdown::default()
        },
        ..CpuReport::default()
    }
}

pub(crate) fn machine(node: u8, time: u64) -> MachineReport {
    let c = cpu(time);
    MachineReport {
        schema: MACHINE_SCHEMA.into(),
        target: "x86_64".into(),
        node: Some(node),
        plugin_api: 4,
        level: Level::Timing,
        unit: "block".into(),
        instructions: 7,
        cpus: vec![c],
        clock: Some(ClockReport {
            total_ps: time,
            idle_ps: 0,
            max_skew_ps: 2_000_000,
            trace_hash: u64::from(node) + 5,
            ..ClockReport::default()
        }),
        roi: [(
            0x8000,
            RoiReport {
                n: 2,
                pass_ps: Durations::of(vec![time / 4, time / 4]),
                time_ps: time / 2,
                counters: c.counters,
                breakdown_ps: Breakdown {
                    inst: time / 2,
                    ..Breakdown::default()
                },
                ..RoiReport::default()
            },
        )]
        .into(),
        windows: None,
        masked: None,
        abandoned: None,
        unmatched: None,
        sanitizer: None,
    }
}

pub(crate) fn outcome() -> Outcome {
    let config = Setup::default()
        .resolve(Level::Timing, &System::default())
        .unwrap();
    let set = vec![("l3.size".to_string(), "4MiB".to_string())];
    Outcome::new(config, set, Versions::default())
}

#[test]
fn what_all_cpus_did_is_summed_over_the_nodes_where_passes_ended() {
    let mut o = outcome();
    let mut machines = [machine(0, 4_760_000), machine(1, 5_000_000)];
    for (machine, moved) in machines.iter_mut().zip([0, 3]) {
        let region = machine.roi.get_mut(&0x8000).unwrap();
        region.moved = moved;
        let share = |node, inst| ShareReport {
            node,
            time_ps: inst,
            breakdown_ps: Breakdown {
                inst,
                ..Breakdown::default()
            },
            ..ShareReport::default()
        };
        region.all = vec![share(0, 4_760), share(1, 10_000)];
    }
    let verdicts = o.take(&machines.clone().map(Some));
    assert!(verdicts.iter().all(|v| v.ok), "{verdicts:?}");
    let all = o.everywhere.iter();
    let all: Vec<_> = all
        .map(|p| (p.node, p.passes, p.time_ps, p.cycles))
        .collect();
    assert_eq!(all, [(0, 7, 9_520, 20), (1, 7, 20_000, 40)]);
    let text = o.table();
    let line = |label: &str| {
        let mut lines = text.lines().filter(|l| l.trim_start().starts_with(label));
        let words = lines.next_back().unwrap().split_whitespace();
        words.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("begun on another CPU"), "begun on another CPU 0 3");
    assert_eq!(line("passes everywhere"), "passes everywhere 7 7");
    assert!(text.contains("region 0x8000, all CPUs"));

    // A share that does not add up is as bad as any other part.
    machines[1].roi.get_mut(&0x8000).unwrap().all[0].time_ps = 1_000_000_000;
    let verdicts = outcome().take(&machines.map(Some));
    let open = verdicts.iter().find(|v| !v.ok).unwrap();
    assert_eq!((open.name, open.node), ("sim.closure", 1));
    assert!(open.detail.contains("on node 0"), "{}", open.detail);
}

#[test]
fn a_page_in_the_pool_of_another_node_is_seen() {
    let mut machines = [Some(machine(0, 1000)), Some(machine(1, 1000)), None];
    for (node, m) in machines.iter_mut().flatten().enumerate() {
        m.cpus[0].program_pages[node] = 7;
    }
    let ok = |machines: &[_]| -> Vec<bool> {
        let verdicts = outcome().separation(machines);
        verdicts.into_iter().map(|v| v.ok).collect()
    };
    assert_eq!(ok(&machines), [true, true]);
    // Another node's, or the CXL pool's, which comes last.
    for (node, pool) in [(0, 1), (1, 0), (1, 2)] {
        let mut wrong = machines.clone();
        let m = wrong[node].as_mut().expect("a machine");
        m.cpus[0].program_pages[pool] = 1;
        assert_eq!(ok(&wrong), [node != 0, node != 1]);
    }
}

#[test]
fn reports_are_put_together() {
    let mut o = outcome();
    let verdicts = o.take(&[Some(machine(0, 4_760_000)), Some(machine(1, 5_000_000))]);
    assert_eq!(verdicts.len(), 4);
    assert!(verdicts.iter().all(|v| v.ok), "{verdicts:?}");
    let total = &o.nodes[0].total;
    assert_eq!((total.cycles, total.closure_ppm), (10_000, 0));
    assert_eq!(total.breakdown_cycles.inst, 5_000);
    assert_eq!(total.breakdown_cycles.mem_remote, 2_500);
    let order: Vec<_> = o.regions.iter().map(|r| (r.region, r.node)).collect();
    assert_eq!(order, [(Some(0x8000), 0), (Some(0x8000), 1)]);
    assert_eq!(o.disturbances, Vec::<String>::new());
    let json = serde_json::to_string(&o).unwrap();
    assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), o);
    let before = o.trace_hash.clone().unwrap();
    let mut other = outcome();
    other.take(&[Some(machine(1, 1)), Some(machine(0, 1))]);
    assert_ne!(other.trace_hash.unwrap(), before);
    let mut other = outcome();
    other.take(&[Some(machine(0, 1)), None]);
    assert_eq!((other.trace_hash, other.nodes.len()), (None, 1));
}

#[test]
fn what_did_not_follow_from_simulated_time_is_listed() {
    let mut m = machine(1, 1000);
    let clock = m.clock.as_mut().unwrap();
    (clock.turns_taken, clock.outside) = (2, 1);
    let mut o = outcome();
    o.take(&[Some(machine(0, 1000)), Some(m)]);
    assert_eq!(
        o.disturbances,
        [
            "node 1: 2 turns were taken from a CPU that did not go on",
            "node 1: 1 wake-ups came from outside of simulated time",
        ]
    );
}

#[test]
fn what_does_not_close_is_found() {
    let judge = |change: fn(&mut MachineReport)| {
        let mut m = machine(0, 1_000_000_000);
        change(&mut m);
        let verdicts = outcome().take(&[Some(m)]);
        let bad: Vec<Verdict> = verdicts.into_iter().filter(|v| !v.ok).collect();
        bad.iter()
            .map(|v| format!("{} {}", v.name, v.detail))
            .collect::<Vec<_>>()
            .join("|")
    };
    assert_eq!(judge(|m| m.cpus[0].breakdown_ps.l2 += 1_000_000), "");
    assert_eq!(
        judge(|m| m.cpus[0].breakdown_ps.l2 += 1_000_001),
        "sim.closure cpu 0: the breakdown explains 1001000001 ps of 1000000000 ps"
    );
    let text = judge(|m| m.cpus[0].breakdown_ps.inst -= 1_000_001);
    assert!(text.starts_with("sim.closure cpu 0"), "{text}");
    let text = judge(|m| m.roi.get_mut(&0x8000).unwrap().time_ps *= 2);
    assert!(text.starts_with("sim.closure region 0x8000"), "{text}");
    let text = judge(|m| m.clock.as_mut().unwrap().total_ps *= 2);
    assert!(text.starts_with("sim.closure the furthest CPU"), "{text}");
    assert_eq!(judge(|m| m.clock = None), "sim.closure there is no clock");
    assert_eq!(judge(|m| m.cpus.clear()), "sim.closure there is no CPU");
    let text = judge(|m| m.clock.as_mut().unwrap().max_skew_ps += 1);
    assert_eq!(
        text,
        "sim.skew it was ahead by 2000001 ps, allowed are 2000000 ps (lag, quantum and 1000 ns)"
    );
    // A node with one CPU has no excuse.
    let text = judge(|m| {
        let clock = m.clock.as_mut().unwrap();
        (clock.max_skew_ps, clock.given_up) = (clock.max_skew_ps + 1, 5);
    });
    assert!(text.starts_with("sim.skew"), "{text}");
}

#[test]
fn only_reports_of_this_kind_are_read() {
    let good = serde_json::to_value(machine(1, 9)).unwrap();
    assert_eq!(machine_report(&good).unwrap().unwrap(), machine(1, 9));
    let other = serde_json::json!({ "schema": "dyad.count/2", "cpus": [] });
    assert_eq!(machine_report(&other), Ok(None));
    let mut bad = good;
    bad["cpus"] = serde_json::json!(3);
    let e = machine_report(&bad).unwrap_err();
    assert!(e.contains("cannot be read"), "{e}");
}

#[test]
fn regions_have_names() {
    use dyad_abi::marker::{BenchMemory, BenchOp};
    let map = BenchOp::Map.window(BenchMemory::Fused);
    assert_eq!(region_name(map.0), "map.fused");
    let part = BenchOp::IpcCrossIsaRoundTrip.part(BenchMemory::Local, 2);
    assert_eq!(region_name(part.0), "ipc_cross_isa_round_trip.local.2");
    assert_eq!(region_name(0x8001), "0x8001");
}

#[test]
fn parts_per_million() {
    assert_eq!((ppm(1001, 1000), ppm(999, 1000)), (1000, -1000));
    assert_eq!(
        (ppm(0, 0), ppm(1, 0), ppm(u64::MAX, 1)),
        (0, i64::MAX, i64::MAX)
    );
}
