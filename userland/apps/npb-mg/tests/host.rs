//! MG in the emulated system of the host: the same result in every mode.

use std::process::Command;

fn run(args: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_npb-mg"))
        .args(args.split_whitespace())
        .output()
        .expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("its output is text");
    (output.status.code(), text)
}

#[test]
fn the_result_is_the_same_in_every_mode() {
    let mut sums = Vec::new();
    for (mode, hops) in [
        ("", 20),
        ("--home aarch64", 20),
        ("--hop off", 0),
        ("--hop=off --home=aarch64", 0),
    ] {
        let (code, text) = run(&format!("--class S {mode}"));
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(" SUCCESSFUL"), "{text}");
        let line = |name: &str| text.lines().find(|l| l.contains(name)).unwrap().to_string();
        assert!(line("Migrations").ends_with(&format!(" {hops}")), "{text}");
        assert!(line("L2 norm").contains(" 5.30770700"), "{text}");
        sums.push(line("Checksum"));
    }
    assert!(sums.windows(2).all(|w| w[0] == w[1]), "{sums:?}");
}

#[test]
fn wrong_arguments_are_explained() {
    for (args, message) in [
        ("--class B", "--class cannot be \"B\"; possible: S, W, A"),
        ("--hop no", "--hop cannot be \"no\"; possible: on, off"),
        (
            "-v",
            "unknown option \"-v\"; possible: --class, --hop, --home",
        ),
    ] {
        let (code, text) = run(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(message), "{text}");
    }
}
