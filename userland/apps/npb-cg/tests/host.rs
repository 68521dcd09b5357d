//! CG in the emulated system of the host.

use std::process::Command;

fn run(args: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_npb-cg"))
        .args(args.split_whitespace())
        .output()
        .expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("its output is text");
    (output.status.code(), text)
}

#[test]
fn it_verifies_hopping_or_not() {
    let mut zetas = Vec::new();
    for args in ["", "--hop off", "--class S --hop off --home aarch64"] {
        let (code, text) = run(args);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("= ") && !text.contains("UNSUCC"), "{text}");
        let last = text.lines().find(|l| l.trim_start().starts_with("15 "));
        zetas.push(last.expect("there are 15 iterations").to_string());
    }
    assert!(zetas.windows(2).all(|w| w[0] == w[1]), "{zetas:?}");
    assert!(zetas[0].ends_with("8.5971775078648"), "{zetas:?}");
}

#[test]
fn wrong_arguments_are_explained() {
    for (args, message) in [
        ("--class B", "--class cannot be \"B\"; possible: S, W, A"),
        (
            "--hops on",
            "unknown option \"--hops\"; possible: --class, --hop, --home",
        ),
    ] {
        let (code, text) = run(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(message), "{text}");
    }
}
