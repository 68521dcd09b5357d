//! The tour in the emulated system of the host, on several lists of nodes.

use std::process::Command;

fn tour(nodes: &str, args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_hop"))
        .args(args)
        .env("DYAD_HOST_NODES", nodes)
        .output()
        .expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("its output is text");
    (output.status.code(), text)
}

fn has(text: &str, what: &str) {
    assert!(text.contains(what), "no {what:?} in:\n{text}");
}

#[test]
fn the_pair_makes_exactly_twenty_migrations() {
    for nodes in ["x86_64,aarch64", "aarch64,x86_64"] {
        let (code, text) = tour(nodes, &[]);
        assert_eq!(code, Some(0), "{text}");
        has(
            &text,
            "VERIFIED with 20 migrations; result checksum c793d0df0ecdfe43",
        );
        has(
            &text,
            "check is.partial.x86_64: ok (50 ranks in 10 iterations)",
        );
        has(
            &text,
            "check is.partial.aarch64: ok (50 ranks in 10 iterations)",
        );
        has(&text, "check hop.pointers: ok");
    }
}

#[test]
fn more_nodes_are_visited_in_a_last_lap() {
    let (code, text) = tour("x86_64,aarch64,x86_64", &[]);
    assert_eq!(code, Some(0), "{text}");
    has(&text, "VERIFIED with 23 migrations");
    has(
        &text,
        "check hop.lap: ok (2 of 2 nodes see the same result)",
    );
}

#[test]
fn one_isa_is_hopped_between_nodes() {
    let (code, text) = tour("aarch64,aarch64", &[]);
    assert_eq!(code, Some(0), "{text}");
    has(&text, "All live nodes are aarch64");
    has(&text, "check is.partial.node1: ok");
    has(&text, "VERIFIED with 20 migrations");
}

#[test]
fn it_takes_no_arguments() {
    let (code, text) = tour("x86_64,aarch64", &["--class", "W"]);
    assert_eq!(code, Some(2), "{text}");
    has(&text, "unknown option \"--class\"; this program takes none");
}
