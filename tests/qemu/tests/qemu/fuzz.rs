//! Random programs, on the host, on each ISA without moving, and moving at every Nth point: all print the same.
//!
//! The tier `long` plays 10,000 programs, `full` 40; `DYAD_SEED` is the seed of the first.

mod write;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_launcher::config::{RunConfig, Work};
use dyad_launcher::paths;
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::{console, times};

/// Programs that are built as one.
const BATCH: u64 = 20;
/// Ways that each goes, beside that on the other ISA without a move: how many points lie between two moves; 0: it does not move.
const WAYS: [u64; 4] = [0, 1, 3, 17];

const HOST: &str = "extern crate alloc;\nfn point() {}\nfn main() {\n";
const OTHER: &str = r#"#![no_std]
#![no_main]
extern crate alloc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use dyad::prelude::thread::*;
static EVERY: AtomicU64 = AtomicU64::new(0);
static POINTS: AtomicU64 = AtomicU64::new(0);
static MOVES: AtomicU64 = AtomicU64::new(0);
#[inline(always)]
fn point() {
    let points = POINTS.fetch_add(1, Relaxed) + 1;
    let every = EVERY.load(Relaxed);
    if every != 0 && points.is_multiple_of(every) {
        go();
    }
}
#[inline(never)]
fn go() {
    match dyad::thread::migrate(isa().other()) {
        Ok(()) => drop(MOVES.fetch_add(1, Relaxed)),
        Err(e) => panic!("no move: {e:?}"),
    }
}
#[dyad::main]
fn main() -> Result<()> {
"#;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    vec![times::test(
        Tiers::FULL.and(Tiers::LONG),
        "fuzz::random_programs_print_the_same_wherever_they_run",
        play,
    )]
}

fn play() -> Result<(), Failed> {
    let first = match std::env::var("DYAD_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => 1,
    };
    let batches = size(2, 2, 10_000 / BATCH);
    let mut moves = 0;
    for batch in 0..batches {
        let seeds: Vec<u64> = (0..BATCH).map(|i| first + batch * BATCH + i).collect();
        moves +=
            one(&seeds, batch % 2 == 1).map_err(|e| format!("seeds from {}: {e}", seeds[0]))?;
    }
    println!("{} programs, {moves} moves", batches * BATCH);
    // Programs that do not move show nothing.
    match moves > 100 * batches {
        true => Ok(()),
        false => Err(format!("{moves} moves only").into()),
    }
}

/// Plays programs; says how often they have moved.
fn one(seeds: &[u64], turned: bool) -> Result<u64, String> {
    // A program is built once per directory.
    let all = paths::target_dir().join("tmp/fuzz");
    let _ = std::fs::remove_dir_all(&all);
    let dir = all.join(format!("from-{}", seeds[0]));
    let modules: String = seeds
        .iter()
        .map(|seed| format!("mod p{seed} {{\n{}}}\n", write::program(*seed)))
        .collect();
    let common = format!(
        "{}pub fn acc_seen(a: u64, b: u64) {{ if a != b {{ panic!(\"a capture has changed\"); }} }}\n{modules}",
        write::COMMON
    );
    let io = |e: std::io::Error| e.to_string();
    std::fs::create_dir_all(dir.join("src")).map_err(io)?;
    let calls = |way: &str| -> String {
        let one = |seed: &u64| {
            format!("    println!(\"fuzz {way} {seed} {{:016x}}\", p{seed}::run());\n")
        };
        seeds.iter().map(one).collect()
    };
    let unused = "#![allow(unused, clippy::all)]\n";
    let host = format!("{unused}{HOST}{}}}\n{common}", calls("host"));
    std::fs::write(dir.join("host.rs"), host).map_err(io)?;
    let ways: String = WAYS
        .iter()
        .map(|way| {
            format!(
                "    EVERY.store({way}, Relaxed);\n    POINTS.store(0, Relaxed);\n{}",
                calls(&way.to_string())
            )
        })
        .collect();
    let away = format!("    EVERY.store(0, Relaxed);\n    go();\n{}", calls("away"));
    let end = "    println!(\"fuzz moves {}\", MOVES.load(Relaxed));\n    Ok(())\n}\n";
    let main = format!("{unused}{OTHER}{ways}{away}{end}{common}");
    std::fs::write(dir.join("src/main.rs"), main).map_err(io)?;
    let dyad = paths::workspace_root().join("userland/dyad");
    let manifest = format!(
        "[package]\nname = \"fuzz\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[[bin]]\nname = \"fuzz\"\npath = \"src/main.rs\"\n\
         test = false\nbench = false\n\n[dependencies]\ndyad = {{ path = {:?} }}\n\n[workspace]\n",
        dyad.display().to_string()
    );
    std::fs::write(dir.join("Cargo.toml"), manifest).map_err(io)?;
    let expected = on_host(&dir)?;
    if expected.len() != seeds.len() {
        return Err(format!("the host printed {expected:?}"));
    }
    let nodes: [Isa; 2] = if turned {
        [Aarch64, X86_64]
    } else {
        [X86_64, Aarch64]
    };
    let config = RunConfig {
        nodes: nodes.to_vec(),
        work: Work::App {
            app: dir.display().to_string(),
            args: String::new(),
        },
        timeout: Some(Duration::from_secs(240)),
        ..RunConfig::default()
    };
    let (report, text) = console::run(&config);
    if let Some(why) = report.failure() {
        return Err(format!("{why}\n{text}"));
    }
    let mut seen = 0;
    let mut moves = None;
    for line in text.lines().filter_map(|l| Some(l.split_once("] ")?.1)) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["fuzz", "moves", count] => moves = count.parse().ok(),
            ["fuzz", way, seed, hash] => {
                seen += 1;
                if expected.get(seed).map(String::as_str) != Some(hash) {
                    return Err(format!(
                        "seed {seed}, moving at every {way}. point: {hash} instead of {:?}",
                        expected.get(seed)
                    ));
                }
            }
            _ => {}
        }
    }
    match moves {
        Some(moves) if seen == seeds.len() * (WAYS.len() + 1) => Ok(moves),
        _ => Err(format!("{seen} results\n{text}")),
    }
}

/// What programs print on the host, by seed.
fn on_host(dir: &Path) -> Result<BTreeMap<String, String>, String> {
    let run = |command: &mut Command| {
        let output = command
            .current_dir(dir)
            .output()
            .map_err(|e| e.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    };
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    run(Command::new(rustc).args([
        "--edition",
        "2024",
        "-Copt-level=1",
        "-o",
        "host",
        "host.rs",
    ]))?;
    let printed = run(&mut Command::new(dir.join("host")))?;
    let line = |l: &str| match l.split(' ').collect::<Vec<_>>()[..] {
        ["fuzz", "host", seed, hash] => Some((seed.to_owned(), hash.to_owned())),
        _ => None,
    };
    Ok(printed.lines().filter_map(line).collect())
}
