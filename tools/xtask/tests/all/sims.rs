//! Simulated runs with machines that are shell scripts and plugins that are files: what is printed,
//! reported, judged and written.

use crate::common;

use common::{Scratch, plugin_report, report, stub_sim, text};
use dyad_launcher::csv;
use dyad_launcher::sim::Outcome;
use dyad_sim_model::config::SimConfig;
use dyad_sim_model::report::MachineReport;

const TIMING: [&str; 4] = ["--sim", "timing", "--csv", "out.csv"];

fn good() -> [MachineReport; 2] {
    [plugin_report(0, 4_760_000), plugin_report(1, 5_000_000)]
}

#[test]
fn a_simulated_run_is_reported_in_every_form() {
    let d = Scratch::new("forms");
    let args = [
        &TIMING[..],
        &["--set", "arm.latency.remote=700", "--model", "separated"],
        &["--order", "strict", "--seed", "12"],
    ]
    .concat();
    let out = stub_sim(&d, &["ok", "ok"], &good(), &args)
        .output()
        .unwrap();
    let t = text(&out);
    assert_eq!(out.status.code(), Some(0), "{t}");
    for words in [
        "simulated: level timing, separated memory, coherent caches, profile paper-big, \
         arm.latency.remote=700, strict order of seed 12, trace ",
        "MEM_REMOTE",
        "0x8000",
        "ok: 6 checks passed",
    ] {
        assert!(t.contains(words), "{words:?} not in:\n{t}");
    }
    let r = report(&d);
    assert_eq!(
        (&r["schema"], &r["ok"]),
        (&"dyad.run/1".into(), &true.into())
    );
    let names: Vec<&str> = r["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    for name in ["sim.closure", "sim.skew"] {
        assert_eq!(names.iter().filter(|n| **n == name).count(), 2, "{names:?}");
    }
    // What was simulated is in it completely, and can be read back.
    let outcome: Outcome = serde_json::from_value(r["sim"].clone()).unwrap();
    assert_eq!(outcome.config.nodes[1].latency.remote, 700);
    assert_eq!((outcome.seed, outcome.nodes.len()), (Some(12), 2));
    assert_eq!(outcome.nodes[1].total.cycles, 10_000);
    assert_eq!(outcome.nodes[1].clock.unwrap().trace_hash, 0x12);
    assert!(!outcome.versions.xtask.is_empty());
    assert_eq!(outcome.versions.kernel["x86_64"].file, "stub-kernel.o");
    // The file that plugins read says the same.
    let dir = std::path::Path::new(r["logs"].as_str().unwrap());
    let file = std::fs::read_to_string(dir.join("sim.json")).unwrap();
    assert_eq!(
        serde_json::from_str::<SimConfig>(&file).unwrap(),
        outcome.config
    );
    let command = std::fs::read_to_string(dir.join("node1.cmd")).unwrap();
    let config = dir.join("sim.json");
    for option in [
        "level=timing",
        "node=1",
        &format!("config={}", config.display()),
    ] {
        assert!(command.contains(option), "{option} not in {command}");
    }
    let rows = csv::parse(&std::fs::read_to_string(d.0.join("out.csv")).unwrap()).unwrap();
    assert_eq!((rows[0].clone(), rows.len()), (csv::header(), 5));
}

#[test]
fn simulations_that_cannot_be_explained_fail_the_run() {
    let d = Scratch::new("judged");
    let fails = |reports: [MachineReport; 2], words: &str| {
        let out = stub_sim(&d, &["ok", "ok"], &reports, &TIMING).output();
        let out = out.unwrap();
        let t = text(&out);
        assert_eq!(out.status.code(), Some(1), "{t}");
        assert!(t.contains(words), "{words:?} not in:\n{t}");
        assert_eq!(report(&d)["ok"], false);
        // What is known is shown all the same.
        assert!(t.contains("closes to"), "{t}");
    };
    let mut open = good();
    open[1].cpus[0].breakdown_ps.snoop += 5_001;
    fails(
        open,
        "check sim.closure failed on node 1: cpu 0: the breakdown explains 5005001 ps of 5000000 ps",
    );
    let mut ahead = good();
    ahead[0].clock.as_mut().unwrap().max_skew_ps = 2_000_001;
    fails(
        ahead,
        "check sim.skew failed on node 0: it was ahead by 2000001 ps",
    );
}

#[test]
fn lost_and_damaged_reports_fail_the_run() {
    let d = Scratch::new("lost");
    let fails = |c: &mut std::process::Command, words: &str| {
        let out = c.output().unwrap();
        let t = text(&out);
        assert_eq!(out.status.code(), Some(1), "{t}");
        assert!(t.contains(words), "{words:?} not in:\n{t}");
    };
    let mut c = stub_sim(&d, &["ok", "ok"], &good()[..1], &TIMING);
    fails(
        &mut c,
        "check sim.report failed on node 1: the plugin has left no report",
    );
    let file = d.0.join("damaged");
    std::fs::write(&file, "{\"schema\": \"dyad.sim/6\", \"cpus\": 3}").unwrap();
    c.env("STUB_SIM_1", &file);
    fails(
        &mut c,
        "check sim.report failed on node 1: the plugin's report cannot be read",
    );
    // A node that dies is not expected to leave one, and that is not a second failure.
    let mut c = stub_sim(&d, &["die", "obey"], &[], &TIMING);
    fails(&mut c, "node 0 (x86_64) died");
    let checks = report(&d)["checks"].to_string();
    assert!(!checks.contains("sim."), "{checks}");
}

#[test]
fn strict_order_is_refused_for_several_cpus() {
    let d = Scratch::new("promise");
    let run = |args: &[&str]| {
        let args = [&TIMING[..], args].concat();
        let out = stub_sim(&d, &["ok", "ok"], &good(), &args)
            .output()
            .unwrap();
        (out.status.code(), text(&out))
    };
    let (code, said) = run(&["--cpus", "2", "--order", "strict"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("strict order is for nodes with one CPU"),
        "{said}"
    );
    for good in [&["--order", "strict"][..], &["--cpus", "2"]] {
        let (code, said) = run(good);
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn without_a_simulation_nothing_is_said_about_one() {
    let d = Scratch::new("nosim");
    let out = stub_sim(&d, &["ok", "ok"], &good(), &[]).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    assert!(!text(&out).contains("simulated"), "{}", text(&out));
    assert_eq!(report(&d)["sim"], serde_json::Value::Null);
}
