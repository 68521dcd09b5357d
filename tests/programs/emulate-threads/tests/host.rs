//! What the program refuses, in the emulated system of the host.

use std::process::Command;

#[test]
fn wrong_arguments_are_explained() {
    let output = Command::new(env!("CARGO_BIN_EXE_emulate-threads"))
        .args("--threads 64".split_whitespace())
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("possible: a whole number from 0 to 63"),
        "{text}"
    );
}
