//! What the program refuses when it moves at implicit points, in the emulated system of the host.

use std::process::Command;

#[test]
fn wrong_arguments_are_explained() {
    for (args, message) in [
        (
            "--what implicit --every 3",
            "unknown option \"--every\"; possible: --what",
        ),
        (
            "--what else",
            "--what cannot be \"else\"; possible: constructs, scenes, implicit",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_migrate-threads"))
            .args(args.split_whitespace())
            .output()
            .expect("the program starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(message), "{text}");
    }
}
