//! The loads in the emulated system of the host.

use std::process::Command;

fn run(args: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_sim-loads"))
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
            "none on node 0 (x86_64): size 0, 1 passes of 0 steps",
        ),
        (
            "--load matmul --size 20 --repeat 3",
            "matmul on node 0 (x86_64): size 20, 3 passes of 8000 steps",
        ),
        (
            "--load sort --size 1K --home aarch64",
            "sort on node 1 (aarch64): size 1024, 1 passes of 1024 steps",
        ),
        (
            "--load chase --size 64K --warm 0",
            "chase on node 0 (x86_64): size 65536, 1 passes of 262144 steps",
        ),
        (
            "--load conflict --size 8 --stride 64K",
            "conflict on node 0 (x86_64): size 8, 1 passes of 262144 steps",
        ),
        (
            "--load random --size 1M",
            "random on node 0 (x86_64): size 1048576, 1 passes of 262144 steps",
        ),
        (
            "--load stream --size 1M --repeat 2",
            "stream on node 0 (x86_64): size 1048576, 2 passes of 131072 steps",
        ),
        (
            "--load is",
            "is on node 0 (x86_64): size 65536, 1 passes of 10 steps",
        ),
        (
            "--load cg --warm 0",
            "cg on node 0 (x86_64): size 1400, 1 passes of 15 steps",
        ),
    ] {
        let (code, text) = run(args);
        assert_eq!(code, Some(0), "{args}: {text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], first, "{text}");
        let (place, _) = first.split_once(": ").unwrap();
        assert_eq!(lines[1], format!("region begins: {place}"));
        assert_eq!(lines[2], format!("region has ended: {place}"));
    }
}

#[test]
fn many_loads_run_one_after_the_other_on_both_isas() {
    let (code, text) = run("--load none,conflict:2:5,is --repeat 3 --home aarch64,x86_64");
    assert_eq!(code, Some(0), "{text}");
    let begun: Vec<&str> = text
        .lines()
        .filter_map(|l| l.strip_prefix("region begins: "))
        .collect();
    let one = |isa: &str| ["none", "conflict", "is"].map(|name| format!("{name} on {isa}"));
    let all = [one("node 1 (aarch64)"), one("node 0 (x86_64)")].concat();
    assert_eq!(begun, all);
    assert!(text.contains("size 5, 2 passes") && text.contains("size 65536, 3 passes"));
}

#[test]
fn wrong_arguments_are_explained() {
    for (args, message) in [
        (
            "--load matmull",
            "--load cannot have \"matmull\"; possible: none, matmul",
        ),
        (
            "--load is:x",
            "--load cannot have \"is:x\"; write is:10 or is:10:64K",
        ),
        (
            "--load none,none,none,none,none,none,none,none,none,none,none,none,none",
            "--load has more than 12 loads",
        ),
        (
            "--load is:1:2:3",
            "--load cannot have \"is:1:2:3\"; write is:10 or is:10:64K",
        ),
        (
            "--home x86",
            "--home cannot have \"x86\"; possible: x86_64, aarch64",
        ),
        ("--size 4G", "--size cannot be \"4G\"; write 4096 or 4K"),
        (
            "--size 0",
            "the size cannot be 0 for this load; possible: 1 to 2048",
        ),
        (
            "--load random --size 3M",
            "the size must be a power of two for random",
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
