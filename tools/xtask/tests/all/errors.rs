//! Bad input: clear errors, the right exit status, and no run.

use crate::common;

use common::{Scratch, report, stub_run, text, tool};

/// Runs the tool and expects it to refuse with these words.
fn refused(dir: &Scratch, args: &[&str], words: &[&str]) {
    let out = tool(dir).args(args).output().unwrap();
    let t = text(&out);
    assert_eq!(out.status.code(), Some(2), "{args:?}: {t}");
    for word in words {
        assert!(t.contains(word), "{args:?}: {word:?} not in:\n{t}");
    }
}

#[test]
fn wrong_command_lines_say_what_is_possible() {
    let d = Scratch::new("lines");
    refused(&d, &["run", "--nodes", "x86_64"], &["2 to 8"]);
    refused(
        &d,
        &["run", "--nodes", "x86_64,arm64"],
        &["\"arm64\"", "aarch64"],
    );
    refused(
        &d,
        &["run", "--on-death", "restrat"],
        &["did you mean \"restart\"?"],
    );
    refused(&d, &["run", "--cpus", "0"], &["whole number from 1 to 8"]);
    refused(&d, &["run", "--mem-local", "1GB"], &["GiB"]);
    refused(
        &d,
        &["run", "--app", "hpo"],
        &["did you mean \"hop\"?", "cargo xtask new hpo"],
    );
    refused(&d, &["run", "--nodse", "x"], &["--nodes"]);
    refused(&d, &["rnu"], &["run"]);
    refused(
        &d,
        &["run", "--windows"],
        &["simulator plugin", "add --sim count"],
    );
    refused(
        &d,
        &["run", "--sim", "count", "--memory-trace"],
        &["add --sim cache or timing"],
    );
    refused(&d, &["bench", "kernle"], &["did you mean \"kernel\"?"]);
    refused(&d, &["bench", "kernel", "--jsn", "x"], &["--json"]);
    refused(
        &d,
        &["bench", "kernel", "--repetitions", "8"],
        &["32..=1024"],
    );
    refused(
        &d,
        &["bench", "kernel", "--nodes", "x86_64,arm"],
        &["\"arm\"", "aarch64"],
    );
    refused(&d, &["new", "Bad Name"], &["lower-case"]);
    refused(&d, &["new", "hop"], &["exists already"]);
    refused(&d, &["new", "storm"], &["exists already"]);
}

#[test]
fn files_that_cannot_be_written_are_refused_before_anything_starts() {
    let d = Scratch::new("unwritable");
    std::fs::write(d.0.join("file"), "what is in it").unwrap();
    for (command, option) in [
        (vec!["bench", "migration"], "--json"),
        (vec!["bench", "migration"], "--page"),
        (vec!["bench", "kernel"], "--page"),
        (vec!["bench", "quiescence"], "--json"),
        (vec!["bench", "sim"], "--json"),
        (vec!["run"], "--json"),
        (vec!["run", "--sim", "count"], "--csv"),
        (vec!["soak"], "--json"),
        (vec!["explore", "--seeds", "0..1"], "--json"),
        (vec!["validate-sim"], "--json"),
        (vec!["migrate", "--to", "1"], "--json"),
        (vec!["ps"], "--json"),
    ] {
        // A directory, and something below what is none.
        for (file, words) in [(".", "cannot write ."), ("file/x", "cannot create file")] {
            let line = [command.as_slice(), &[option, file]].concat();
            refused(&d, &line, &[words]);
        }
    }
    // What was there is still what it was, and nothing has come into being.
    let there = |name: &str| d.0.join(name).exists();
    let text = std::fs::read_to_string(d.0.join("file")).unwrap();
    assert_eq!(text, "what is in it");
    let json = ["--json", "new/file.json", "--only", "nothing"];
    refused(
        &d,
        &[["bench", "migration"].as_slice(), &json].concat(),
        &["\"nothing\"", "micro"],
    );
    let migrate = ["migrate", "--to", "1", "--json", "new.json"];
    refused(&d, &migrate, &["no system runs"]);
    assert!(
        there("new.json"),
        "a command that fails leaves its document, too"
    );
}

#[test]
fn wrong_measurements_say_what_is_possible() {
    let d = Scratch::new("measurements");
    let bad = |args: &[&str], words: &[&str]| {
        let line = [["bench", "migration"].as_slice(), args].concat();
        refused(&d, &line, words);
    };
    bad(&["--only", "mirco"], &["did you mean \"micro\"?"]);
    bad(&["--only", ""], &["\"\"", "micro, threads, emulation"]);
    bad(&["--only", "micro,,bfs"], &["\"\""]);
    bad(&["--home", "arm"], &["\"arm\"", "aarch64"]);
    // No file after `--json` is the standard output, so what is wrong behind it is still found.
    bad(&["--json", "--only", "mirco"], &["did you mean \"micro\"?"]);
    bad(&["--json", "--jsn"], &["--json"]);
}

#[test]
fn nobody_has_to_listen() {
    let d = Scratch::new("listeners");
    for line in [
        ["sim", "keys"],
        ["sim", "profiles"],
        ["ps", "--nonsense"],
        ["ps", "-a"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let err = writer.try_clone().unwrap();
        let mut c = tool(&d);
        let status = c.args(line).stdout(writer).stderr(err).status().unwrap();
        let expected = if line[0] == "sim" { 0 } else { 2 };
        assert_eq!(status.code(), Some(expected), "{line:?}");
    }
}

#[test]
fn wrong_simulations_say_what_is_possible() {
    let d = Scratch::new("simulations");
    let bad = |args: &[&str], words: &[&str]| {
        let run: Vec<&str> = ["run"].iter().chain(args).copied().collect();
        refused(&d, &run, words);
    };
    bad(&["--sim", "timings"], &["did you mean \"timing\"?"]);
    for (args, level) in [
        (["--model", "shared"], "add --sim cache or timing"),
        (["--set", "l3.size=32MiB"], "add --sim cache or timing"),
        (
            ["--profile", "artifact"],
            "add --sim count, cache or timing",
        ),
        (["--order", "strict"], "add --sim count, cache or timing"),
        (["--seed", "3"], "add --sim count, cache or timing"),
        (["--csv", "x.csv"], "add --sim count, cache or timing"),
    ] {
        bad(&args, &["simulated", level]);
    }
    let count = |args: &[&str], words: &[&str]| {
        let all: Vec<&str> = ["--sim", "count"].iter().chain(args).copied().collect();
        bad(&all, words);
    };
    count(&["--model", "shared"], &["add --sim cache or timing"]);
    count(
        &["--set", "l3.size=32MiB"],
        &["no effect at level count", "--sim cache or --sim timing"],
    );
    let timing = |args: &[&str], words: &[&str]| {
        let all: Vec<&str> = ["--sim", "timing"].iter().chain(args).copied().collect();
        bad(&all, words);
    };
    timing(
        &["--model", "fully_shared"],
        &["did you mean \"fully-shared\"?"],
    );
    timing(
        &["--profile", "paper-bigg"],
        &["did you mean \"paper-big\"?", "./paper-bigg.toml"],
    );
    timing(&["--profile", "./none.toml"], &["cannot read", "none.toml"]);
    timing(
        &["--set", "l3.sise=1MiB"],
        &["did you mean \"l3.size\"?", "cargo xtask sim keys"],
    );
    timing(&["--set", "l3.size"], &["KEY=VALUE", "l3.size=32MiB"]);
    timing(
        &["--set", "l3.size=48MiB"],
        &["power of two", "33554432 and 67108864"],
    );
    timing(&["--set", "l2.ways=65"], &["from 1 to 64"]);
    timing(&["--set", "line.size=128"], &["64 only"]);
    timing(
        &["--set", "l2.size=8MiB"],
        &["at least as large", "l3.size"],
    );
    timing(
        &["--set", "clock.lag=2us"],
        &["ipi.latency", "at least", "3500 ns"],
    );
    timing(&["--set", "node3.ghz=1"], &["no node 3", "nodes 0 to 1"]);
    timing(
        &["--model", "fully-shared", "--set", "arm.l3.size=8MiB"],
        &["share one", "for all nodes"],
    );
    timing(&["--set", "ghz=1", "--set", "ghz=2"], &["given twice"]);
    timing(&["--order", "random"], &["parallel, strict"]);
    timing(&["--seed", "1"], &["add --order strict"]);
    timing(
        &["--order", "strict", "--seed", "x"],
        &["--seed", "\"x\"", "whole number"],
    );
}

#[test]
fn simulations_in_files_are_as_on_the_command_line() {
    let d = Scratch::new("simfiles");
    let file = |name: &str, text: &str, words: &[&str]| {
        std::fs::write(d.0.join(name), text).unwrap();
        refused(&d, &["run", "--config", name], words);
    };
    file(
        "off.toml",
        "model = \"shared\"\n",
        &["model is about", "add --sim"],
    );
    file(
        "key.toml",
        "sim = \"timing\"\n[set]\narm.latency.remot = 700\n",
        &["key.toml", "did you mean \"aarch64.latency.remote\"?"],
    );
    file(
        "type.toml",
        "sim = \"timing\"\nset = 3\n",
        &["set must be a table"],
    );
    std::fs::write(d.0.join("mine.toml"), "l2.ways = 128\n").unwrap();
    file(
        "profile.toml",
        "sim = \"timing\"\nprofile = \"mine.toml\"\n",
        &["profile mine.toml: l2.ways cannot be \"128\"", "1 to 64"],
    );
}

#[test]
fn keys_and_profiles_are_listed() {
    let d = Scratch::new("keys");
    let out = |args: &[&str]| {
        let out = tool(&d).args(args).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", text(&out));
        String::from_utf8(out.stdout).unwrap()
    };
    let keys = out(&["sim", "keys"]);
    assert_eq!(keys, out(&["run", "--set", "help"]));
    for key in dyad_launcher::sim::keys::KEYS {
        assert!(keys.contains(key.name) && keys.contains(&key.range()));
    }
    let artifact = out(&["sim", "keys", "--profile", "artifact"]);
    let line = artifact.lines().find(|l| l.starts_with("latency.l3"));
    assert!(line.unwrap().contains("      70       50"), "{artifact}");
    assert!(out(&["sim", "profiles"]).contains("# --- paper-small ---"));
    refused(
        &d,
        &["sim", "profiles", "artefact"],
        &["did you mean \"artifact\"?"],
    );
    refused(&d, &["sim", "kyes"], &["did you mean \"keys\"?"]);
}

#[test]
fn wrong_files_say_what_is_wrong() {
    let d = Scratch::new("files");
    let write = |name: &str, text: &str| std::fs::write(d.0.join(name), text).unwrap();
    write("key.toml", "nodse = \"x86_64,aarch64\"\n");
    refused(
        &d,
        &["run", "--config", "key.toml"],
        &["key.toml", "did you mean \"nodes\"?"],
    );
    write("value.toml", "on-death = \"survivee\"\n");
    refused(
        &d,
        &["run", "--config", "value.toml"],
        &["did you mean \"survive\"?"],
    );
    write("broken.toml", "nodes = [\n");
    refused(
        &d,
        &["run", "--config", "broken.toml"],
        &["broken.toml", "not valid TOML"],
    );
    refused(&d, &["run", "--config", "none.toml"], &["cannot read"]);
    write("broken.bundle", "\x7fELF");
    refused(
        &d,
        &["run", "--app", "broken.bundle"],
        &["broken.bundle cannot be run"],
    );
    refused(
        &d,
        &["run", "--app", "none.bundle"],
        &["there is no bundle"],
    );
    refused(&d, &["run", "--app", "./nowhere"], &["is not a program"]);
}

#[test]
fn too_little_shared_memory_is_refused_before_anything_starts() {
    let d = Scratch::new("shm");
    let mut run = stub_run(&d, &["ok", "ok"], &[]);
    let out = run.env("DYAD_TEST_SHM_LIMIT", "64MiB").output().unwrap();
    let t = text(&out);
    assert_eq!(out.status.code(), Some(2), "{t}");
    assert!(
        t.contains("96 MiB") && t.contains("64 MiB") && t.contains("--shm-dir"),
        "{t}"
    );
    assert!(!t.contains("firmware"), "{t}");
    let r = report(&d);
    assert_eq!(
        (&r["ok"], r["nodes"].as_array().unwrap().len()),
        (&false.into(), 0)
    );
}

#[test]
fn errors_before_the_run_are_in_the_json_too() {
    let d = Scratch::new("json");
    refused(
        &d,
        &["run", "--cpus", "99", "--json", "out.json"],
        &["cpus"],
    );
    let r = report(&d);
    assert_eq!(r["ok"], false);
    assert!(r["failure"].as_str().unwrap().contains("cpus"), "{r}");
}

/// Whoever reads the documents needs to know one form of failure, whatever the command.
#[test]
fn every_command_with_json_says_why_it_failed() {
    let d = Scratch::new("failures");
    for (line, schema, words) in [
        (
            vec!["run", "--app", "hpo"],
            "dyad.run/1",
            "did you mean \"hop\"?",
        ),
        (vec!["run", "--cpsu", "1"], "dyad.run/1", "--cpus"),
        (
            vec!["soak", "--sim", "cuont"],
            "dyad.soak/1",
            "did you mean \"count\"?",
        ),
        (
            vec!["sweep", "--over", "a=1", "--csv", "x.csv"],
            "dyad.sweep/1",
            "--over",
        ),
        (
            vec!["explore", "--seeds", "1", "--seed", "2"],
            "dyad.explore/1",
            "leave out --seed",
        ),
        (
            vec!["sim", "sensitivity", "--only", "gc"],
            "dyad.sensitivity/1",
            "did you mean \"cg\"?",
        ),
        (vec!["ps"], "dyad.threads/1", "no system runs"),
        (vec!["migrate", "--to", "mars"], "dyad.migrate/1", "mars"),
        (
            vec!["bench", "kernel", "--repetitions", "1"],
            "dyad.bench/1",
            "32..=1024",
        ),
        (
            vec!["report", "--only", "ST-F99"],
            "dyad.report/1",
            "no row is called",
        ),
        (
            vec!["validate-sim", "--groups", "all"],
            "dyad.validate/1",
            "--groups",
        ),
        (
            vec!["test", "quick", "--runs", "2"],
            "dyad.test/1",
            "--runs",
        ),
    ] {
        // To a file, and to standard output, where nothing else may be.
        let command = |json: &str| {
            let mut c = tool(&d);
            c.args(&line).arg(json);
            c
        };
        let to_file = command("--json=out.json").output().unwrap();
        let to_stdout = command("--json").output().unwrap();
        for out in [&to_file, &to_stdout] {
            assert_eq!(out.status.code(), Some(2), "{line:?}: {}", text(out));
        }
        let printed: serde_json::Value = serde_json::from_slice(&to_stdout.stdout).unwrap();
        for document in [report(&d), printed] {
            assert_eq!(
                (&document["schema"], &document["ok"]),
                (&schema.into(), &false.into())
            );
            let failure = document["failure"].as_str().unwrap();
            assert!(failure.contains(words), "{line:?}: {failure}");
        }
        std::fs::remove_file(d.0.join("out.json")).unwrap();
    }
    // What only tests need is not offered to users.
    let help = text(&tool(&d).args(["run", "--help"]).output().unwrap());
    for hidden in ["--test-", "--bare", "--beside"] {
        assert!(!help.contains(hidden), "{help}");
    }
    for heading in ["System:", "Program:", "Kernels:", "Simulation:", "Output:"] {
        assert!(help.contains(heading), "{help}");
    }
}

#[test]
fn soak_counts_failures_and_keeps_their_logs() {
    let d = Scratch::new("soak");
    let mut c = stub_run(&d, &["ok", "ok"], &[]);
    let env: Vec<_> = c
        .get_envs()
        .map(|(k, v)| (k.to_owned(), v.unwrap().to_owned()))
        .collect();
    // The same machines, another command: the stubs need no test names.
    c = tool(&d);
    c.envs(env);
    c.args([
        "soak",
        "--runs",
        "3",
        "--ktest",
        "none",
        "--json",
        "soak.json",
    ]);
    c.args(["--mem-local", "32MiB", "--mem-cxl", "32MiB"]);
    let out = c.output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    c.env("STUB_1", "bad");
    let out = c.output().unwrap();
    let t = text(&out);
    assert_eq!(out.status.code(), Some(1), "{t}");
    assert!(t.contains("3 of 3 runs failed"), "{t}");
    let r = std::fs::read_to_string(d.0.join("soak.json")).unwrap();
    let r: serde_json::Value = serde_json::from_str(&r).unwrap();
    let logs = std::path::Path::new(r["failed"][2]["logs"].as_str().unwrap());
    for file in ["node0.log", "node1.log", "merged.log", "report.json"] {
        assert!(logs.join(file).is_file(), "{file}");
    }
}
