//! IS in the emulated system of the host: the same result in every mode.

use std::process::Command;

fn run(args: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_npb-is"))
        .args(args.split_whitespace())
        .output()
        .expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("its output is text");
    (output.status.code(), text)
}

#[test]
fn the_result_is_the_same_in_every_mode() {
    for (class, modes) in [
        (
            "S",
            &[
                "",
                "--hop off",
                "--home aarch64",
                "--hop=off --home=aarch64",
            ][..],
        ),
        ("W", &["--hop on", "--hop off --home aarch64"][..]),
    ] {
        let mut sums = Vec::new();
        for mode in modes {
            let (code, text) = run(&format!("--class {class} {mode}"));
            assert_eq!(code, Some(0), "{text}");
            assert!(
                text.contains("SUCCESSFUL") && !text.contains("UNSUCC"),
                "{text}"
            );
            let sum = text.lines().find(|l| l.contains("Checksum"));
            sums.push(sum.expect("there is a checksum").to_string());
        }
        assert!(sums.windows(2).all(|w| w[0] == w[1]), "{sums:?}");
    }
}

#[test]
fn wrong_arguments_are_explained() {
    for (args, message) in [
        ("--class B", "--class cannot be \"B\"; possible: S, W, A"),
        (
            "--home arm",
            "--home cannot be \"arm\"; possible: x86_64, aarch64",
        ),
        ("--hop", "--hop needs a value; write --hop VALUE"),
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
