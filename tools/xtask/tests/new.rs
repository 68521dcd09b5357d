//! A program made by `new`, from its first line to a verified run on real machines.

mod common;

use std::process::Command;

use common::{Scratch, report, text};

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
    let (t, r) = made(&["--thread"]);
    assert!(
        t.contains("at the bottom of the recursion on aarch64"),
        "{t}"
    );
    // It writes two lines on the other node.
    assert_eq!(r["counters"]["migrations"], 6, "{r}");
}
