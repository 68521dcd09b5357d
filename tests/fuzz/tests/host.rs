//! Random programs on the host: they build, print the same with every optimisation, and have all that there is.

use std::path::{Path, PathBuf};
use std::process::Command;

use dyad_fuzz::body::KINDS;
use dyad_fuzz::{Batch, Size, program};
use dyad_tier::size;

/// What the programs of a batch print on the host.
fn printed(dir: &Path, level: &str) -> String {
    let exe = dir.join(format!("host-{level}"));
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition", "2024", "-C"])
        .arg(format!("opt-level={level}"))
        .arg("-o")
        .arg(&exe)
        .arg(dir.join("host.rs"))
        .output()
        .expect("rustc starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let output = Command::new(exe).output().expect("the programs start");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).expect("they print text")
}

#[test]
fn programs_are_well_defined() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fuzz-host");
    std::fs::create_dir_all(&dir).expect("a directory");
    let count = size(4, 20, 200);
    let seeds: Vec<u64> = (1..=count).collect();
    std::fs::write(
        dir.join("host.rs"),
        Batch::new(&seeds, Size::default()).host(),
    )
    .expect("a file");
    // Without optimisation an overflow would end the program.
    let plain = printed(&dir, "0");
    assert_eq!(plain.lines().count() as u64, count);
    assert_eq!(printed(&dir, "2"), plain);
    // All pass points, and no two print the same.
    let words = |l: &str| -> (u64, String) {
        let words: Vec<&str> = l.split(' ').collect();
        (words[3].parse().expect("a number"), words[4..].join(" "))
    };
    let mut results: Vec<(u64, String)> = plain.lines().map(words).collect();
    assert!(results.iter().all(|r| r.0 > 0), "{plain}");
    results.sort();
    results.dedup_by(|a, b| a.1 == b.1);
    assert_eq!(results.len() as u64, count);
}

#[test]
fn a_seed_gives_the_same_program() {
    let text = |seed| program(seed, Size::default()).text;
    assert_eq!(text(7), text(7));
    assert_ne!(text(7), text(8));
}

#[test]
fn programs_have_statements_of_all_kinds() {
    let all = (1..=200).map(|seed| program(seed, Size::default()));
    let kinds = all.fold(0, |kinds, p| kinds | p.kinds);
    let missing: Vec<&str> = (0..KINDS.len())
        .filter(|k| kinds & 1 << k == 0)
        .map(|k| KINDS[k])
        .collect();
    assert_eq!(missing, [""; 0]);
}
