//! The program in the emulated system of the host: what it prints there is what it has to print
//! anywhere.

use std::process::Command;

fn run(args: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_migrate-threads"))
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
fn the_output_is_the_same_however_it_moves() {
    let (code, still) = run("");
    assert_eq!(code, Some(0), "{still}");
    assert!(
        !still.contains("WRONG") && results(&still).len() == 21,
        "{still}"
    );
    for args in [
        "--every 1",
        "--every 7",
        "--at 100",
        "--start away",
        "--every 2 --start away",
    ] {
        let (code, text) = run(args);
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(results(&text), results(&still), "{args}");
    }
    let (code, text) = run("--schedules 0,1,@100 --start away");
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(results(&text), results(&still).repeat(3));
    let moves = |text: &str| -> Vec<String> {
        let checks = text.lines().filter(|l| l.contains("constructs.intact"));
        let moves = checks.filter_map(|l| l.split_once(" moves in "));
        let moves = moves.filter_map(|(l, _)| l.split(['(', ' ']).next_back());
        moves.map(str::to_owned).collect()
    };
    assert_eq!(moves(&text), ["0", "4238", "1"]);
}

#[test]
fn wrong_arguments_are_explained() {
    for (args, message) in [
        (
            "--every x",
            "--every cannot be \"x\"; possible: a whole number from 0 on",
        ),
        ("--rounds 0", "possible: a whole number from 1 on"),
        (
            "--scene asked --threads 64",
            "possible: a whole number from 1 to 63",
        ),
        ("--scene nothing", "possible: all, panic"),
        (
            "--schedules 1,x",
            "--schedules cannot have \"x\"; possible: N",
        ),
        (
            "--schedules @",
            "--schedules cannot have \"@\"; possible: N",
        ),
        ("--start anywhere", "possible: home, away"),
        (
            "--what implicit --every 3",
            "unknown option \"--every\"; possible: --what",
        ),
        (
            "--what else",
            "--what cannot be \"else\"; possible: constructs, implicit",
        ),
    ] {
        let (code, text) = run(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(message), "{text}");
    }
}
