//! Runs with machines that are shell scripts: what is printed and reported, deaths, Ctrl-C,
//! leftovers, parallel runs.

use crate::common;

use std::time::{Duration, Instant};

use common::{
    Background, Scratch, assert_nothing_left, last_number, report, send_signal, stub_run, text,
    wait_until_gone,
};
use rustix::process::Signal;

#[test]
fn a_good_run_merges_consoles_and_reports() {
    let dir = Scratch::new("good");
    let out = stub_run(&dir, &["ok", "ok"], &[]).output().unwrap();
    let t = text(&out);
    assert_eq!(out.status.code(), Some(0), "{t}");
    assert!(t.contains("[0 x86_64/0     0.000001] part ok"), "{t}");
    assert!(t.contains("[1 aarch64/0    0.000001] part ok"), "{t}");
    assert!(t.contains("] firmware of node 1 is process"), "{t}");
    assert!(t.contains("ok: 2 checks passed on 2 nodes"), "{t}");
    let r = report(&dir);
    assert_eq!(r["schema"], "dyad.run/1");
    assert_eq!(r["ok"], true);
    assert_eq!(r["counters"]["migrations"], 20);
    assert_eq!(r["nodes"][1]["isa"], "aarch64");
    assert_eq!(r["nodes"][1]["exit"], 0);
    let log = std::fs::read(r["nodes"][0]["log"].as_str().unwrap()).unwrap();
    assert!(log.contains(&0x1e), "logs are raw");
}

#[test]
fn any_number_and_order_of_nodes() {
    let dir = Scratch::new("eight");
    let nodes = "aarch64,x86_64,x86_64,aarch64,aarch64,x86_64,aarch64,aarch64";
    let out = stub_run(&dir, &["ok"; 8], &["--nodes", nodes, "--cpus", "2"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    let r = report(&dir);
    assert_eq!(r["nodes"].as_array().unwrap().len(), 8);
    assert_eq!(r["nodes"][0]["isa"], "aarch64");
    assert_eq!(r["nodes"][7]["cpus"], 2);
}

#[test]
fn a_failed_check_fails_the_run() {
    let dir = Scratch::new("bad");
    let out = stub_run(&dir, &["ok", "bad"], &["--quiet"])
        .output()
        .unwrap();
    let t = text(&out);
    assert_eq!(out.status.code(), Some(1), "{t}");
    assert!(
        t.contains("check stub failed on node 1: from node 1"),
        "{t}"
    );
    assert!(!t.contains("firmware"), "{t}");
    assert_eq!(report(&dir)["ok"], false);
}

/// A machine dies and the run ends: in time, saying who died how and what the others did.
fn death(name: &str, parts: [&str; 2], expected: &[&str]) {
    let dir = Scratch::new(name);
    let start = Instant::now();
    let out = stub_run(&dir, &parts, &[]).output().unwrap();
    let t = text(&out);
    assert_eq!(out.status.code(), Some(1), "{t}");
    assert!(start.elapsed() < Duration::from_secs(7), "{t}");
    for words in expected {
        assert!(t.contains(words), "{words:?} not in:\n{t}");
    }
    let r = report(&dir);
    assert_eq!(r["ok"], false);
    assert!(r["failure"].as_str().unwrap().contains("died"), "{r}");
}

#[test]
fn a_killed_machine_ends_the_run() {
    death(
        "killed",
        ["obey", "die"],
        &[
            "node 1 (aarch64) died: it was killed by signal 9, SIGKILL",
            "node 0 (x86_64): cpu 0: counting sheep",
        ],
    );
}

#[test]
fn a_panic_ends_the_run() {
    death(
        "panic",
        ["panic", "obey"],
        &[
            "kernel panic: it hurts (stub.sh:1)",
            "kernel backtrace of cpu 0",
            "0xffffffff80000010",
            "node 0 (x86_64) died",
            "node 1 (aarch64): cpu 0: counting sheep",
        ],
    );
}

#[test]
fn an_emulator_that_quits_is_quoted_and_a_deaf_survivor_is_killed() {
    death(
        "quit",
        ["quit", "deaf"],
        &[
            "status 1 of the emulator",
            "stub: out of order",
            "node 1 (aarch64): last phase",
        ],
    );
}

#[test]
fn a_machine_that_hangs_in_its_panic_is_killed() {
    death("hang", ["hang", "obey"], &["and hang", "counting sheep"]);
}

#[test]
fn with_survive_the_others_go_on_and_decide() {
    let dir = Scratch::new("survive");
    let out = stub_run(&dir, &["mourn", "die"], &["--on-death", "survive"])
        .output()
        .unwrap();
    let t = text(&out);
    assert_eq!(out.status.code(), Some(0), "{t}");
    assert!(t.contains("node 1 (aarch64) died"), "{t}");
    assert!(t.contains("the others go on"), "{t}");
    let r = report(&dir);
    assert_eq!(r["nodes"][1]["excused"], true);
    assert_eq!(r["nodes"][1]["exit"], serde_json::Value::Null);
}

#[test]
fn with_restart_the_dead_come_back() {
    let dir = Scratch::new("restart");
    let out = stub_run(&dir, &["heal", "die,ok"], &["--on-death", "restart"])
        .output()
        .unwrap();
    let t = text(&out);
    assert_eq!(out.status.code(), Some(0), "{t}");
    assert!(t.contains("starting node 1 (aarch64) again"), "{t}");
    let r = report(&dir);
    assert_eq!(r["nodes"][1]["restarts"], 1);
    assert_eq!(r["nodes"][1]["exit"], 0);
}

#[test]
fn the_time_limit_ends_a_run_with_reports() {
    let dir = Scratch::new("limit");
    let out = stub_run(&dir, &["obey", "obey"], &["--timeout", "1"])
        .output()
        .unwrap();
    let t = text(&out);
    assert_eq!(out.status.code(), Some(1), "{t}");
    assert!(t.contains("the time limit of 1 s has passed"), "{t}");
    assert!(t.contains("node 1 (aarch64): cpu 0: counting sheep"), "{t}");
}

/// Starts a run of machines that do not end, and returns it with their process numbers.
fn endless(dir: &Scratch, part: &str) -> (Background, Vec<u32>) {
    let mut run = Background::start(stub_run(dir, &[part, part], &[]));
    let lines = run.wait_for("is process", 2);
    run.wait_for(&format!("part {part}"), 2);
    (run, lines.iter().map(|l| last_number(l)).collect())
}

#[test]
fn ctrl_c_ends_a_run_with_reports() {
    let dir = Scratch::new("ctrlc");
    let (run, machines) = endless(&dir, "obey");
    let launcher = run.child.id();
    run.signal(Signal::INT);
    let (status, t) = run.finish();
    assert_eq!(status, Some(130), "{t}");
    assert!(t.contains("counting sheep"), "{t}");
    assert_eq!(report(&dir)["failure"], "interrupted");
    machines.into_iter().for_each(wait_until_gone);
    assert_nothing_left(launcher);
}

#[test]
fn a_second_ctrl_c_does_not_wait() {
    let dir = Scratch::new("ctrlcc");
    let (run, machines) = endless(&dir, "deaf");
    let start = Instant::now();
    run.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    run.signal(Signal::INT);
    let (status, t) = run.finish();
    assert_eq!(status, Some(130), "{t}");
    assert!(
        start.elapsed() < Duration::from_millis(1900),
        "the time to report was waited for"
    );
    machines.into_iter().for_each(wait_until_gone);
}

#[test]
fn nothing_is_left_of_a_killed_launcher() {
    let dir = Scratch::new("kill9");
    let (run, machines) = endless(&dir, "deaf");
    let launcher = run.child.id();
    run.signal(Signal::KILL);
    run.finish();
    machines.into_iter().for_each(wait_until_gone);
    assert_nothing_left(launcher);
}

#[test]
fn two_runs_at_the_same_time_do_not_meet() {
    let dir = Scratch::new("parallel");
    let (long, machines) = endless(&dir, "obey");
    let second = Scratch::new("parallel2");
    let out = stub_run(&second, &["ok", "ok"], &[]).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    send_signal(machines[0], Signal::KILL);
    let (status, t) = long.finish();
    assert_eq!(status, Some(1), "{t}");
    assert!(
        t.contains("node 0 (x86_64) died") || t.contains("node 1 (aarch64) died"),
        "{t}"
    );
}
