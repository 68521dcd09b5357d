//! Commands that make many simulated runs, with machines that are shell scripts: sweeps of
//! settings, exploration of seeds.

use crate::common;

use std::process::Command;

use common::{Scratch, add_reports, plugin_report, stub_run, text, tool};
use dyad_launcher::csv;

/// A command with machines that play these parts and leave reports.
fn stubs(d: &Scratch, command: &[&str], parts: &[&str]) -> Command {
    let model = stub_run(d, parts, &[]);
    let mut c = tool(d);
    for (name, value) in model.get_envs() {
        c.env(name, value.unwrap());
    }
    add_reports(
        &mut c,
        d,
        &[plugin_report(0, 4_760_000), plugin_report(1, 5_000_000)],
    );
    c.args(command);
    c.args([
        "--ktest",
        "none",
        "--mem-local",
        "32MiB",
        "--mem-cxl",
        "32MiB",
    ]);
    c
}

/// Runs it; its exit status and what it printed.
fn outcome(c: &mut Command) -> (Option<i32>, String) {
    let out = c.output().unwrap();
    (out.status.code(), text(&out))
}

fn table(d: &Scratch) -> (Vec<String>, Vec<Vec<String>>) {
    let text = std::fs::read_to_string(d.0.join("out.csv")).unwrap();
    let mut rows = csv::parse(&text).unwrap();
    let header = rows.remove(0);
    (header, rows)
}

/// The values of some columns.
fn columns(d: &Scratch, names: &[&str]) -> Vec<Vec<String>> {
    let (header, rows) = table(d);
    let at = |name: &&str| header.iter().position(|h| h == name).unwrap();
    let at: Vec<usize> = names.iter().map(at).collect();
    let pick = |row: Vec<String>| at.iter().map(|&i| row[i].clone()).collect();
    rows.into_iter().map(pick).collect()
}

#[test]
fn a_sweep_runs_every_combination_into_one_table() {
    let d = Scratch::new("sweep");
    let mut c = stubs(&d, &["sweep", "--sim", "timing"], &["ok", "ok"]);
    c.args(["--over", "l3.size=4MiB,32MiB"]);
    c.args(["--over", "model=shared,fully-shared", "--csv", "out.csv"]);
    c.args(["--json", "sweep.json"]);
    let (status, t) = outcome(&mut c);
    assert_eq!(status, Some(0), "{t}");
    for words in [
        "run 1 of 4: l3.size=4MiB model=shared: ",
        "run 4 of 4: l3.size=32MiB model=fully-shared: ",
        "; 3 left, about ",
        "4 runs in out.csv, 0 failed",
    ] {
        assert!(t.contains(words), "{words:?} not in:\n{t}");
    }
    let rows = columns(
        &d,
        &["varied", "l3.size", "model", "node", "region", "l1d_misses"],
    );
    assert_eq!(rows.len(), 8);
    let last = [
        "l3.size=32MiB model=fully-shared",
        "33554432",
        "fully-shared",
        "1",
        "run",
        "10",
    ];
    assert_eq!(rows[7], last);
    // Nothing is overwritten unasked, and nothing is done twice.
    let (status, t) = outcome(&mut c);
    assert_eq!(status, Some(2), "{t}");
    assert!(
        t.contains("exists already") && t.contains("--resume"),
        "{t}"
    );
    c.arg("--resume");
    let (status, t) = outcome(&mut c);
    assert_eq!(status, Some(0), "{t}");
    assert!(t.contains("4 of 4 runs are in out.csv already"), "{t}");
    assert_eq!(table(&d).1.len(), 8);
    let json = std::fs::read_to_string(d.0.join("sweep.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["schema"], &json["ok"], &json["skipped"]),
        (&"dyad.sweep/1".into(), &true.into(), &4.into())
    );
}

/// A stand-in for `sbatch` that makes the jobs of an array one after the other, but for those in the file `dies`.
const SBATCH: &str = r#"#!/bin/sh
for script; do :; done
echo "$@" >> calls
for range in $(sed -n 's/^#SBATCH --array=//p' "$script" | tr , ' '); do
    for n in $(seq "${range%-*}" "${range#*-}"); do
        grep -qx "$n" dies 2> /dev/null || SLURM_ARRAY_TASK_ID=$n sh "$script" > /dev/null 2>&1
    done
done
"#;

#[test]
fn a_sweep_is_made_by_jobs_and_merged() {
    use std::os::unix::fs::PermissionsExt;
    let d = Scratch::new("sweepjobs");
    let sbatch = d.0.join("bin/sbatch");
    std::fs::create_dir_all(d.0.join("bin")).unwrap();
    std::fs::write(&sbatch, SBATCH).unwrap();
    std::fs::set_permissions(&sbatch, PermissionsExt::from_mode(0o755)).unwrap();
    let command = |more: &[&str]| {
        let mut c = stubs(&d, &["sweep", "--sim", "timing"], &["ok", "ok"]);
        let path = std::env::var("PATH").unwrap();
        c.env("PATH", format!("{}:{path}", d.0.join("bin").display()));
        c.args([
            "--over",
            "l3.size=4MiB,32MiB",
            "--over",
            "model=shared,separated",
        ]);
        c.args(["--csv", "out.csv"]).args(more);
        c
    };
    let slurm = ["--on", "slurm", "--job-option=--partition=short"];
    // What would be submitted is printed, and nothing else is done.
    let (status, t) = outcome(&mut command(&[&slurm[..], &["--dry-run"]].concat()));
    assert_eq!(status, Some(0), "{t}");
    for words in [
        "--array=0-3\n",
        "--partition=short\n",
        "# 4 runs, 1 calls of the scheduler",
    ] {
        assert!(t.contains(words), "{words:?} not in:\n{t}");
    }
    assert!(!d.0.join("out.csv").exists() && !d.0.join("calls").exists());
    // Jobs that die leave nothing: they are missing, and are made again.
    std::fs::write(d.0.join("dies"), "1\n").unwrap();
    let (status, t) = outcome(&mut command(&slurm));
    assert_eq!(status, Some(1), "{t}");
    for words in [
        "missing: l3.size=4MiB model=separated; its job's output is in",
        "3 runs in out.csv, 0 failed; --resume makes the 1",
    ] {
        assert!(t.contains(words), "{words:?} not in:\n{t}");
    }
    assert_eq!(table(&d).1.len(), 6);
    std::fs::remove_file(d.0.join("dies")).unwrap();
    let (status, t) = outcome(&mut command(&["--resume", "--merge"]));
    assert_eq!(status, Some(1), "{t}");
    let (status, t) = outcome(&mut command(&[&slurm[..], &["--resume"]].concat()));
    assert_eq!(status, Some(0), "{t}");
    assert_eq!(table(&d).1.len(), 8);
    let calls = std::fs::read_to_string(d.0.join("calls")).unwrap();
    assert_eq!(calls.lines().count(), 2, "{calls}");
    // What is there is not submitted.
    let (status, t) = outcome(&mut command(&[&slurm[..], &["--resume"]].concat()));
    assert_eq!(status, Some(0), "{t}");
    let again = std::fs::read_to_string(d.0.join("calls")).unwrap();
    assert_eq!(again, calls);
    // Without the batch system that is said.
    let mut c = command(&[&slurm[..], &["--resume", "--repeat", "2"]].concat());
    c.env("PATH", "/nowhere");
    let (status, t) = outcome(&mut c);
    assert_eq!(status, Some(2), "{t}");
}

#[test]
fn a_sweep_goes_on_after_a_failure_and_resumes_with_it() {
    let d = Scratch::new("sweepfail");
    let line = ["sweep", "--sim", "timing", "--order", "strict", "--regions"];
    let mut c = stubs(&d, &line, &["race", "race"]);
    c.args(["--over", "seed=6,7,8", "--repeat", "2", "--csv", "out.csv"]);
    let (status, t) = outcome(&mut c);
    assert_eq!(status, Some(1), "{t}");
    assert!(t.contains("run 3 of 6: seed=7 (1 of 2): "), "{t}");
    assert!(t.contains("FAILED: check stub failed on node"), "{t}");
    assert!(t.contains("run 6 of 6: seed=8 (2 of 2): "), "{t}");
    assert!(
        t.contains("6 runs in out.csv, 2 failed; --resume makes the 2"),
        "{t}"
    );
    // Two nodes, and a region on each.
    assert_eq!(table(&d).1.len(), 6 * 4);
    let bad = columns(&d, &["seed", "ok", "logs"]);
    let bad: Vec<_> = bad.iter().filter(|r| r[1] == "false").collect();
    assert_eq!(bad.len(), 8);
    assert!(
        std::path::Path::new(&bad[0][2])
            .join("merged.log")
            .is_file()
    );
    // A row that was cut off does no harm, nor does a run of which a part was written: the last run that is good.
    let path = d.0.join("out.csv");
    let whole = std::fs::read_to_string(&path).unwrap();
    let lines = whole.lines().take(1 + 4 * 5 + 1);
    let mut cut = lines.fold(String::new(), |text, line| text + line + "\n");
    cut.push_str("dyad.sweep.csv/3,seed=9,1,\"ab");
    std::fs::write(&path, cut).unwrap();
    for node in ["0", "1"] {
        c.env(format!("STUB_{node}"), "ok");
    }
    c.arg("--resume");
    let (status, t) = outcome(&mut c);
    assert_eq!(status, Some(0), "{t}");
    assert!(t.contains("3 of 6 runs are in out.csv already"), "{t}");
    assert!(t.contains("run 2 of 3: seed=7 (2 of 2)"), "{t}");
    let rows = columns(&d, &["seed", "ok"]);
    assert_eq!(rows.len(), 24);
    assert!(rows.iter().all(|r| r[1] == "true"));
    // Other settings: other runs. Rows of these stay.
    c.args(["--set", "ghz=1"]);
    let (status, t) = outcome(&mut c);
    assert_eq!(status, Some(0), "{t}");
    assert!(t.contains("24 rows of other settings"), "{t}");
    assert_eq!(table(&d).1.len(), 48);
    std::fs::write(&path, "a,b\n1,2\n").unwrap();
    let (status, t) = outcome(&mut c);
    assert_eq!(status, Some(2), "{t}");
    assert!(t.contains("its columns are not those"), "{t}");
}

/// Rows say what they were made with, and rows of other versions are not added to them.
#[test]
fn a_sweep_adds_no_rows_of_another_version() {
    let d = Scratch::new("sweepversions");
    let mut c = stubs(&d, &["sweep", "--sim", "timing"], &["ok", "ok"]);
    c.args(["--over", "ghz=1,2", "--csv", "out.csv", "--resume"]);
    let (status, t) = outcome(&mut c);
    assert_eq!(status, Some(0), "{t}");
    let names = ["sweep_schema", "commit", "xtask", "kernel_x86_64", "plugin"];
    let rows = columns(&d, &names);
    assert_eq!(rows[0][0], "dyad.sweep.csv/3");
    for row in &rows {
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
    }
    // Another commit is known before the first run; another plugin, or kernels of the same settings, after it.
    let path = d.0.join("out.csv");
    let good = std::fs::read_to_string(&path).unwrap();
    let complete = good.lines().count();
    for (i, column) in names.into_iter().enumerate().skip(1) {
        let value = format!(",{},", rows[0][i]);
        let other = good.replace(&value, ",other,");
        // The rows of ghz=2 are missing.
        let cut: Vec<&str> = other.lines().filter(|l| !l.contains(",ghz=2,")).collect();
        let cut = cut.join("\n") + "\n";
        std::fs::write(&path, &cut).unwrap();
        let (status, t) = outcome(&mut c);
        assert_eq!(status, Some(2), "{column}: {t}");
        let said = format!(
            "{column} is \"other\" in the table and {:?} here",
            rows[0][i]
        );
        for words in ["cannot go on with out.csv", &said, "name another file"] {
            assert!(t.contains(words), "{words:?} not in:\n{t}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), cut, "{column}");
    }
    // Nothing is added to a complete table, whatever it was made with.
    std::fs::write(&path, good.replace(&rows[0][1], "other")).unwrap();
    let (status, t) = outcome(&mut c);
    assert_eq!(status, Some(0), "{t}");
    assert_eq!(table(&d).1.len() + 1, complete);
}

#[test]
fn repetitions_have_a_mean_and_a_confidence() {
    let d = Scratch::new("sweeprepeat");
    let line = ["sweep", "--sim", "timing", "--order", "strict", "--regions"];
    let mut c = stubs(&d, &line, &["race", "race"]);
    c.args(["--over", "seed=6,7", "--repeat", "3", "--csv", "out.csv"]);
    c.args(["--json", "sweep.json"]);
    let (status, t) = outcome(&mut c);
    assert_eq!(status, Some(1), "{t}");
    for words in [
        "seed=6: n = 3\n",
        "seed=7: n = 0, 3 failed and left out\n",
        "run, node 1 (aarch64)",
        "0x8000, node 0 (x86_64)",
        "± 0.0",
    ] {
        assert!(t.contains(words), "{words:?} not in:\n{t}");
    }
    let json = std::fs::read_to_string(d.0.join("sweep.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let six = &json["statistics"][0];
    assert_eq!((&six["n"], &six["failed"]), (&3.into(), &0.into()));
    let cycles = &six["parts"][1]["columns"]["cycles"];
    assert_eq!(
        (&cycles["n"], &cycles["mean"]),
        (&3.into(), &10_000.0.into())
    );
    assert_eq!(cycles["half_width_95"], 0.0);
    assert_eq!(json["statistics"][1]["failed"], 3);
}

#[test]
fn wrong_sweeps_are_refused_before_the_first_run() {
    let d = Scratch::new("sweepbad");
    let refused = |args: &[&str], words: &[&str]| {
        let mut c = stubs(&d, &["sweep", "--csv", "out.csv"], &["ok", "ok"]);
        let (status, t) = outcome(c.args(args));
        assert_eq!(status, Some(2), "{args:?}: {t}");
        for word in words {
            assert!(t.contains(word), "{args:?}: {word:?} not in:\n{t}");
        }
        assert!(!t.contains("run 1 of"), "{t}");
        assert!(!d.0.join("out.csv").exists());
    };
    let timing = |args: &[&str], words: &[&str]| {
        refused(&[&["--sim", "timing"], args].concat(), words);
    };
    refused(&[], &["--over"]);
    refused(&["--over", "class=S,W"], &["add --sim"]);
    timing(&["--over", "l3.size"], &["KEY=V1,V2"]);
    timing(&["--over", "l3.sise=1"], &["did you mean \"l3.size\"?"]);
    timing(&["--over", "jsn=1"], &["possible are nodes, cpus"]);
    timing(
        &["--over", "l3.size=4MiB,5MiB"],
        &["with l3.size=5MiB", "power of two"],
    );
    timing(
        &["--over", "model=shared,sharde"],
        &["with model=sharde", "did you mean \"shared\"?"],
    );
    timing(
        &["--over", "ghz=1", "--over", "ghz=2"],
        &["given twice", "all its values at once"],
    );
    timing(&["--over", "ghz=1", "--repeat", "0"], &["--repeat"]);
}

#[test]
fn exploring_stops_at_the_first_failure_and_says_how_to_repeat_it() {
    let d = Scratch::new("explore");
    let line = ["explore", "--seeds", "3..100", "--sim", "timing"];
    let mut c = stubs(&d, &line, &["race", "race"]);
    c.args(["--json", "explore.json"]);
    let (status, t) = outcome(&mut c);
    assert_eq!(status, Some(1), "{t}");
    for words in [
        "seed 3: ok, trace ",
        "seed 7: FAILED, trace ",
        "check stub failed on node",
    ] {
        assert!(t.contains(words), "{words:?} not in:\n{t}");
    }
    assert!(!t.contains("seed 8"), "{t}");
    assert!(
        t.contains("5 of 97 seeds tried, 1 failed, 5 different histories"),
        "{t}"
    );
    let json = std::fs::read_to_string(d.0.join("explore.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["schema"], &json["ok"]),
        (&"dyad.explore/1".into(), &false.into())
    );
    assert_eq!(json["histories"], 5);
    let failed = &json["failed"][0];
    assert_eq!(failed["seed"], 7);
    let logs = std::path::Path::new(failed["logs"].as_str().unwrap());
    assert!(logs.join("merged.log").is_file());
    // The command that it names fails in the same way, and is what the JSON says.
    let replay = failed["replay"].as_str().unwrap();
    assert!(t.contains(&format!("to see it again: {replay}")), "{t}");
    let words: Vec<&str> = replay.split(' ').collect();
    assert_eq!(words[..3], ["cargo", "xtask", "run"]);
    let mut again = tool(&d);
    for (name, value) in c.get_envs() {
        again.env(name, value.unwrap());
    }
    let (status, t) = outcome(again.args(&words[2..]));
    assert_eq!(status, Some(1), "{t}");
    assert!(t.contains("check stub failed on node 0"), "{t}");
    assert!(t.contains("strict order of seed 7"), "{t}");
}

#[test]
fn exploring_counts_histories_and_can_go_on() {
    let d = Scratch::new("exploreall");
    let line = ["explore", "--seeds", "5..=8", "--keep-going"];
    let mut c = stubs(&d, &line, &["race", "race"]);
    let (status, t) = outcome(&mut c);
    assert_eq!(status, Some(1), "{t}");
    assert!(t.contains("seed 8: ok"), "{t}");
    assert!(
        t.contains("4 of 4 seeds tried, 1 failed, 4 different histories"),
        "{t}"
    );
    // Without a clock there is no history to tell apart.
    c.env("STUB_SIM_0", "/dev/null")
        .env("STUB_0", "ok")
        .env("STUB_1", "ok");
    let mut report = plugin_report(1, 10);
    report.clock = None;
    let file = d.0.join("noclock.json");
    std::fs::write(&file, serde_json::to_string(&report).unwrap()).unwrap();
    c.env("STUB_SIM_0", &file).env("STUB_SIM_1", &file);
    let (_, t) = outcome(&mut c);
    assert!(
        t.contains("no trace") && t.contains("4 of them left no digest"),
        "{t}"
    );
}

#[test]
fn wrong_explorations_are_refused() {
    let d = Scratch::new("explorebad");
    let refused = |args: &[&str], words: &str| {
        let (status, t) = outcome(stubs(&d, &["explore"], &["ok", "ok"]).args(args));
        assert_eq!(status, Some(2), "{args:?}: {t}");
        assert!(t.contains(words), "{args:?}: {words:?} not in:\n{t}");
    };
    refused(&[], "--seeds");
    refused(&["--seeds", "5..5"], "write 0..200");
    refused(&["--seeds", "x"], "write 0..200");
    refused(
        &["--seeds", "1", "--order", "parallel"],
        "leave out --order",
    );
    refused(&["--seeds", "1", "--seed", "2"], "leave out --seed");
    refused(
        &["--seeds", "1", "--sim", "off"],
        "add --sim count, cache or timing",
    );
}
