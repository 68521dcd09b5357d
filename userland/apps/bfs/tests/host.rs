//! BFS in the emulated system of the host: the same trees in every mode.

use std::process::Command;

fn run(args: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_bfs"))
        .args(args.split_whitespace())
        .output()
        .expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("its output is text");
    (output.status.code(), text)
}

fn checksum(text: &str) -> String {
    let line = text.lines().find(|l| l.contains("Checksum"));
    line.expect("there is a checksum").to_string()
}

#[test]
fn the_trees_are_the_same_in_every_mode() {
    let mut sums = Vec::new();
    for mode in [
        "",
        "--home aarch64",
        "--hop off",
        "--hop=off --home=aarch64",
    ] {
        let (code, text) = run(&format!("--scale 10 {mode}"));
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("1024 vertices, 16384 edges drawn"), "{text}");
        let hops = !text.contains(" 0 migrations");
        assert_eq!(hops, !mode.contains("off"), "{text}");
        sums.push(checksum(&text));
    }
    assert!(sums.windows(2).all(|w| w[0] == w[1]), "{sums:?}");
    for other in ["--seed 2", "--factor 4", "--searches 5"] {
        let (code, text) = run(&format!("--scale 10 {other}"));
        assert_eq!(code, Some(0), "{text}");
        assert_ne!(checksum(&text), sums[0], "{other}");
    }
}

#[test]
fn wrong_arguments_are_explained() {
    for (args, message) in [
        ("--scale 25", "--scale cannot be \"25\"; possible: 1 to 24"),
        ("--factor x", "--factor cannot be \"x\"; possible: 1 to 64"),
        (
            "--searches 0",
            "--searches cannot be \"0\"; possible: 1 to 64",
        ),
        ("--hop no", "--hop cannot be \"no\"; possible: on, off"),
    ] {
        let (code, text) = run(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(message), "{text}");
    }
}
