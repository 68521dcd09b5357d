//! The benchmark in the emulated system of the host: what it reports, and what it refuses.

use std::process::Command;

fn run(args: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(args.split_whitespace())
        .output()
        .expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("its output is text");
    (output.status.code(), text)
}

#[test]
fn searches_and_lists_lead_where_they_should() {
    for home in ["x86_64", "aarch64"] {
        let (code, text) = run(&format!(
            "--what chase,bfs --accesses 4,64 --factors 4 --scale 8 --home {home}"
        ));
        assert_eq!(code, Some(0), "{text}");
    }
}

#[test]
fn sleepers_are_woken() {
    let (code, text) = run("--what futex --times 8");
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn wrong_arguments_are_explained() {
    for (args, message) in [
        (
            "--what all",
            "--what cannot have \"all\"; possible: kernel, threads, emulation, or a list of micro, chase, bfs, futex",
        ),
        ("--what micro,threads", "--what cannot have \"threads\""),
        ("--times 8", "say what to measure: --what"),
        (
            "--what chase --accesses 5",
            "--accesses cannot have \"5\"; possible: 4, 8, 16",
        ),
        (
            "--what bfs --factors x",
            "--factors cannot have \"x\"; possible: 4, 7, 14, 19",
        ),
        (
            "--what micro --bytes 8",
            "--bytes cannot be \"8\"; possible: 16 to 256",
        ),
        (
            "--what micro --times 1",
            "--times cannot be \"1\"; possible: 8 to 100000",
        ),
        ("--what micro --home mips", "--home"),
        ("--what kernel --home x86_64", "unknown option \"--home\""),
        (
            "--what threads --times 1",
            "--times takes a number from 8 to 100000",
        ),
        (
            "--what emulation --turns 0",
            "--turns takes a number from 1 to 100000",
        ),
    ] {
        let (code, text) = run(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(message), "{text}");
    }
}
