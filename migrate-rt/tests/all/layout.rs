//! Two front ends lay types out alike, and the comparison would notice if they did not.

use crate::common;

use common::{fixture, scratch, tools};
use migrate_rt::layout::{Comparison, TypeLayouts};
use std::process::Command;

fn compare(name: &str, flags: &[&str]) -> Comparison {
    let (tools, dir) = (tools(), scratch(name));
    let [a, b] = ["aarch64-unknown-none", "x86_64-unknown-none"].map(|target| {
        let program = dir.join(target);
        let status = Command::new(&tools.rustc)
            .args(["--edition=2024", "-Awarnings", "-g", "-Copt-level=3"])
            .args(["-Cpanic=abort", "-Crelocation-model=static"])
            .args(["-Clink-arg=--unresolved-symbols=ignore-all"])
            .args(["-Clink-arg=--entry=_dyad_start", "--target", target])
            .args(flags)
            .arg("-o")
            .arg(&program)
            .arg(fixture("layouts.rs"))
            .status()
            .unwrap();
        assert!(status.success());
        TypeLayouts::read(&std::fs::read(program).unwrap()).unwrap()
    });
    a.compare(&b)
}

#[test]
fn two_front_ends_agree_on_every_layout() {
    let found = compare("layout", &["--check-cfg=cfg(differs)"]);
    assert_eq!(found.different, []);
    println!(
        "{} types, {} coroutines and closures",
        found.same, found.same_coroutines
    );
    assert!(found.same > 100, "{} types", found.same);
    assert!(
        found.same_coroutines > 10,
        "{} coroutines",
        found.same_coroutines
    );
    let own: Vec<_> = found
        .unmatched
        .iter()
        .filter(|n| n.starts_with("layouts::"))
        .collect();
    assert!(own.is_empty(), "{own:?}");
}

#[test]
fn one_more_local_across_an_await_is_noticed() {
    let found = compare("layout-differs", &["--cfg=differs"]);
    for future in ["leaf", "middle", "root"] {
        let name = format!("layouts::{future}::{{async_fn_env#0}}");
        assert!(found.different.iter().any(|d| d.name == name), "{name}");
    }
    assert!(
        found
            .different
            .iter()
            .all(|d| d.name.starts_with("layouts::") || d.name.contains("layouts::"))
    );
}

#[test]
fn a_program_without_types_is_refused() {
    assert!(TypeLayouts::read(b"not an ELF file").is_err());
}
