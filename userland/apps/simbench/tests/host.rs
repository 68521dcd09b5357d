//! The loads in the emulated system of the host.

use std::process::Command;

fn run(args: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_simbench"))
        .args(args.split_whitespace())
        .output()
        .expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("its output is text");
    (output.status.code(), text)
}

#[test]
fn every_load_checks_its_result() {
    for (args, first) in [
        (
            "--load none",
            "none of 0 on node 0 (x86_64): 1 passes of 0 steps",
        ),
        (
            "--load matmul --size 20 --repeat 3",
            "matmul of 20 on node 0 (x86_64): 3 passes of 8000 steps",
        ),
        (
            "--load sort --size 1K --home aarch64",
            "sort of 1024 on node 1 (aarch64): 1 passes of 1024 steps",
        ),
        (
            "--load chase --size 64K --warm 0",
            "chase of 65536 on node 0 (x86_64): 1 passes of 262144 steps",
        ),
        (
            "--load conflict --size 8 --stride 64K",
            "conflict of 8 on node 0 (x86_64): 1 passes of 262144 steps",
        ),
        (
            "--load random --size 1M",
            "random of 1048576 on node 0 (x86_64): 1 passes of 262144 steps",
        ),
        (
            "--load stream --size 1M --repeat 2",
            "stream of 1048576 on node 0 (x86_64): 2 passes of 131072 steps",
        ),
        (
            "--load is",
            "is of 65536 on node 0 (x86_64): 1 passes of 10 steps",
        ),
        (
            "--load cg --warm 0",
            "cg of 1400 on node 0 (x86_64): 1 passes of 15 steps",
        ),
    ] {
        let (code, text) = run(args);
        assert_eq!(code, Some(0), "{args}: {text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], first, "{text}");
        assert_eq!(lines[1..3], ["region begins", "region has ended"], "{text}");
    }
}

#[test]
fn wrong_arguments_are_explained() {
    for (args, message) in [
        (
            "--load matmull",
            "--load cannot be \"matmull\"; possible: none, matmul",
        ),
        ("--size 4G", "--size cannot be \"4G\"; write 4096 or 4K"),
        (
            "--size 0",
            "--size cannot be 0 for this load; possible: 1 to 2048",
        ),
        (
            "--load random --size 3M",
            "--size must be a power of two for random",
        ),
        (
            "--load conflict --stride 100",
            "--stride cannot be 100 for 9 lines",
        ),
        (
            "--class W --load is --class S",
            "--class is given twice; give it once",
        ),
    ] {
        let (code, text) = run(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(message), "{text}");
    }
}
