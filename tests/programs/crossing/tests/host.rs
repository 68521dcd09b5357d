//! What the program refuses, in the emulated system of the host.

use std::process::Command;

#[test]
fn one_isa_alone_is_too_few() {
    let output = Command::new(env!("CARGO_BIN_EXE_crossing"))
        .env("DYAD_HOST_NODES", "aarch64,aarch64")
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("there is no node of x86_64"), "{text}");
}

#[test]
fn wrong_arguments_are_explained() {
    let output = Command::new(env!("CARGO_BIN_EXE_crossing"))
        .args("--calls 0".split_whitespace())
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("possible: a whole number from 1 on"),
        "{text}"
    );
}
