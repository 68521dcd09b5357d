//! A program made by `new`, from its first line to a verified run on real machines. The tier `quick` makes one of tasks.

use crate::common;

use std::process::Command;

use common::{Scratch, report, text};
use dyad_tier::Tier;

/// Makes a program of a style, runs it, and returns what its run printed and reported.
fn made(style: &[&str]) -> (String, serde_json::Value) {
    dyad_launcher::setup::ensure(&dyad_launcher::setup::Requirements::ALL, &mut |t| {
        eprintln!("{t}")
    })
    .unwrap();
    let name = format!("newborn{}", style.concat());
    let dir = Scratch::new(&name);
    // In the usual target directory, where kernels may have been built already.
    let run = |args: &[&str]| {
        let mut c = Command::new(env!("CARGO_BIN_EXE_xtask"));
        c.current_dir(&dir.0).args(args).output().unwrap()
    };
    let new = [&["new", &name, "--path", "."], style].concat();
    let out = run(&new);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    let again = run(&new);
    assert_eq!(again.status.code(), Some(2), "{}", text(&again));

    let app = format!("./{name}");
    let out = run(&["run", "--app", &app, "--json", "out.json"]);
    let t = text(&out);
    assert_eq!(out.status.code(), Some(0), "{t}");
    assert!(
        t.contains("the sum of 1 to 100 is 5050, says aarch64"),
        "{t}"
    );
    assert!(!t.contains("warning"), "{t}");
    let r = report(&dir);
    assert_eq!(r["app"], name);
    // What is moved by a call whose result nobody looks at is warned about, each time it is built.
    let main = dir.0.join(&name).join("src/main.rs");
    let source = std::fs::read_to_string(&main).unwrap();
    let ignored = source.replace("migrate(home).await?;", "migrate(home);");
    let ignored = ignored.replace("migrate(home)?;", "migrate(home);");
    assert_ne!(ignored, source);
    std::fs::write(&main, ignored).unwrap();
    for _ in 0..2 {
        let out = run(&["build", "--app", &app]);
        let t = text(&out);
        assert_eq!(out.status.code(), Some(0), "{t}");
        assert!(
            t.contains("warning: unused ") && t.contains("src/main.rs:"),
            "{t}"
        );
    }
    (t, r)
}

#[test]
fn a_new_program_builds_runs_and_hops() {
    for style in [&[][..], &["--task"]] {
        let (_, r) = made(style);
        // Two that it asks for, and its line on the other node's ISA reaches the console's node and comes
        // back: hand-overs of both kinds count.
        assert_eq!(r["counters"]["migrations"], 4, "{r}");
    }
}

#[test]
fn a_new_program_of_threads_moves_below_its_calls() {
    if Tier::now() != Tier::Long {
        return;
    }
    let (t, r) = made(&["--thread"]);
    assert!(
        t.contains("at the bottom of the recursion on aarch64"),
        "{t}"
    );
    // It writes two lines on the other node.
    assert_eq!(r["counters"]["migrations"], 6, "{r}");
}

#[test]
fn crates_that_want_std_are_told_with_the_line_to_write() {
    if Tier::now() == Tier::Quick {
        return;
    }
    let dir = Scratch::new("wants-std");
    let run = |args: &[&str]| {
        let mut c = Command::new(env!("CARGO_BIN_EXE_xtask"));
        c.current_dir(&dir.0).args(args).output().unwrap()
    };
    let out = run(&["new", "wants-std", "--path", ".", "--thread"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    let manifest = dir.0.join("wants-std/Cargo.toml");
    let lines = std::fs::read_to_string(&manifest).unwrap();
    let lines = lines.replace("[dependencies]\n", "[dependencies]\nserde_json = \"1.0\"\n");
    std::fs::write(&manifest, lines).unwrap();
    let out = run(&["build", "--app", "./wants-std"]);
    let t = text(&out);
    assert_ne!(out.status.code(), Some(0), "{t}");
    let line =
        r#"serde_json = { version = "1.0", default-features = false, features = ["alloc"] }"#;
    assert!(t.contains(line), "{t}");
    // And not with the thousands of errors that follow from it.
    assert!(!t.contains("error[") && t.lines().count() < 20, "{t}");
}

/// Crates that the workspace names with `std`, and which no program can use in another way.
const OF_THE_HOST: [&str; 16] = [
    "addr2line",
    "clap",
    "csv",
    "disarm64",
    "disarm64_defn",
    "libtest-mimic",
    "loom",
    "proc-macro2",
    "proptest",
    "rustc-demangle",
    "rustix",
    "signal-hook",
    "stateright",
    "strsim",
    "syn",
    "aarch64-cpu",
];

/// `cargo add` takes the workspace's entry for a crate if there is one, and then refuses `--no-default-features`.
#[test]
fn crates_that_programs_add_are_not_named_by_the_workspace_with_std() {
    let root = dyad_launcher::paths::workspace_root().join("Cargo.toml");
    let manifest: toml::Table = std::fs::read_to_string(root).unwrap().parse().unwrap();
    let named = manifest["workspace"]["dependencies"].as_table().unwrap();
    for (name, entry) in named {
        let is_plain = entry.get("path").is_some()
            || entry.get("default-features") == Some(&toml::Value::Boolean(false))
                && !entry.to_string().contains("\"std\"");
        assert!(
            is_plain || name == "bitflags" || OF_THE_HOST.contains(&&**name),
            "{name}: name it in the manifests of the packages that need it"
        );
    }
}
