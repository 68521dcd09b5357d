//! A program made by `new`, from its first line to a verified run on real machines.

mod common;

use std::process::Command;

use common::{Scratch, report, text};

#[test]
fn a_new_program_builds_runs_and_hops() {
    dyad_launcher::setup::ensure(&dyad_launcher::setup::Requirements::ALL, &mut |t| {
        eprintln!("{t}")
    })
    .unwrap();
    let dir = Scratch::new("new");
    // In the usual target directory, where kernels may have been built already.
    let run = |args: &[&str]| {
        let mut c = Command::new(env!("CARGO_BIN_EXE_xtask"));
        c.current_dir(&dir.0).args(args).output().unwrap()
    };
    let out = run(&["new", "newborn", "--path", "."]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    let again = run(&["new", "newborn", "--path", "."]);
    assert_eq!(again.status.code(), Some(2), "{}", text(&again));

    let out = run(&["run", "--app", "./newborn", "--json", "out.json"]);
    let t = text(&out);
    assert_eq!(out.status.code(), Some(0), "{t}");
    assert!(
        t.contains("the sum of 1 to 100 is 5050, says aarch64"),
        "{t}"
    );
    let r = report(&dir);
    assert_eq!(r["app"], "newborn");
    // Two that it asks for, and its line on the other node's ISA reaches the console's node and comes
    // back: hand-overs of both kinds count.
    assert_eq!(r["counters"]["migrations"], 4, "{r}");
}
