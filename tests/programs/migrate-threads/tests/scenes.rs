//! The program in the emulated system of the host: what it prints there is what it has to print
//! anywhere.

use std::process::Command;

fn run(args: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_migrate-threads"))
        .args(["--what", "scenes"])
        .args(args.split_whitespace())
        .output()
        .expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("its output is text");
    (output.status.code(), text)
}

/// What is printed, without the report.
fn results(text: &str) -> Vec<&str> {
    text.lines().filter(|l| !l.starts_with("check ")).collect()
}

#[test]
fn every_scene_is_the_same_however_it_moves() {
    let (code, still) = run("--every 0 --start home");
    assert_eq!(code, Some(0), "{still}");
    assert_eq!(results(&still).len(), 17, "{still}");
    for args in ["--every 1,2,3,7,31,101", "--every 5,11 --start turns"] {
        let (code, text) = run(args);
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(results(&text), results(&still), "{args}");
    }
}

#[test]
fn one_scene_prints_its_text() {
    let (code, text) = run("--scene machine --every 1");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("479001600 Ok("), "{text}");
    let last = results(&text).pop().unwrap_or_default();
    assert!(
        last.starts_with("machine ") && last.ends_with(" points"),
        "{text}"
    );
}

#[test]
fn wrong_arguments_are_explained() {
    for (args, message) in [
        (
            "--every 1,x",
            "--every cannot have \"x\"; possible: whole numbers from 0 on",
        ),
        ("--scene nothing", "possible: all, text, bignum"),
        ("--start anywhere", "possible: home, away, both, turns"),
    ] {
        let (code, text) = run(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(message), "{text}");
    }
}
