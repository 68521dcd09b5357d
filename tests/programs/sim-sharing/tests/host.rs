//! The patterns in the emulated system of the host.

use std::process::Command;

fn run(args: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_sim-sharing"))
        .args(args.split_whitespace())
        .output()
        .expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("its output is text");
    (output.status.code(), text)
}

#[test]
fn all_patterns_store_what_they_should() {
    for first in ["x86_64", "aarch64"] {
        let (code, text) = run(&format!("--evict 1 --rounds 3 --first {first}"));
        assert_eq!(code, Some(0), "{text}");
        let said = format!("64 lines, 3 rounds, first {first}");
        assert_eq!(text.matches(&said).count(), 7, "{text}");
    }
}

#[test]
fn wrong_arguments_are_explained() {
    for (args, message) in [
        (
            "--pattern pingpong",
            "--pattern cannot have \"pingpong\"; possible: ping-pong, false-sharing",
        ),
        ("--lines 0", "--lines cannot be \"0\"; possible: 1 to 4096"),
        (
            "--first arm",
            "--first cannot be \"arm\"; possible: x86_64, aarch64",
        ),
    ] {
        let (code, text) = run(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(message), "{text}");
    }
}
