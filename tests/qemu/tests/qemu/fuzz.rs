//! Random programs (`dyad-fuzz`), on the host, on each ISA without a move, and moving at every Nth point from each: all print the
//! same.
//!
//! The tier `long` plays 10,000 programs, `full` 200. `DYAD_SEED` is the seed of the first one, `DYAD_FUZZ` is how many there
//! are. A difference names the program and the command that plays it alone; if it is then still there, smaller
//! programs of the same seed are tried, and the smallest one that differs is kept.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dyad_abi::Isa::{Aarch64, X86_64};
use dyad_fuzz::{Batch, Size};
use dyad_launcher::config::RunConfig;
use dyad_launcher::paths;
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::{console, times};

/// Programs that are built as one.
const BATCH: u64 = 50;
/// Ways that each goes: unmoved on both ISAs, moving from both.
const WAYS: [&str; 4] = ["unmoved", "away", "home", "other"];
const NAME: &str = "fuzz::random_programs_print_the_same_wherever_they_run";

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let tiers = Tiers::FULL.and(Tiers::LONG);
    vec![times::test(tiers, NAME, play)]
}

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> Result<u64, Failed> {
    match std::env::var(name) {
        Ok(text) => Ok(text
            .parse()
            .map_err(|e| format!("{name} cannot be {text:?}: {e}"))?),
        Err(_) => Ok(otherwise),
    }
}

fn play() -> Result<(), Failed> {
    let first = number("DYAD_SEED", 1)?;
    let count = number("DYAD_FUZZ", size(30, 30, 10_000))?;
    let seeds: Vec<u64> = (first..first.saturating_add(count)).collect();
    let mut moves = 0;
    for (n, seeds) in seeds.chunks(BATCH as usize).enumerate() {
        match one(seeds, Size::default(), n % 2 == 1) {
            Ok(made) => moves += made,
            Err(difference) => return Err(shrunk(seeds, difference, n % 2 == 1).into()),
        }
        println!(
            "{} of {count} programs",
            BATCH * n as u64 + seeds.len() as u64
        );
    }
    println!("{count} programs, {moves} moves");
    // Programs that do not move show nothing.
    match moves >= 4 * count {
        true => Ok(()),
        false => Err(format!("{moves} moves only, of {count} programs").into()),
    }
}

/// What went wrong with a batch.
struct Difference {
    /// The program, if it is one.
    seed: Option<u64>,
    what: String,
    dir: PathBuf,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nthe program is in {}", self.what, self.dir.display())
    }
}

/// Says what went wrong, with the smallest program that shows it.
fn shrunk(seeds: &[u64], all: Difference, turned: bool) -> String {
    let full = Size::default();
    let fewest = match &all.seed {
        Some(seed) => &[*seed][..],
        None => fewest(seeds, turned),
    };
    let [seed] = *fewest else {
        // Played once more, so that the program is there.
        let difference = one(fewest, full, turned).err().unwrap_or(all);
        let (first, count) = (fewest[0], fewest.len());
        return format!(
            "{difference}\nfewer programs do not show it; repeat with DYAD_SEED={first} DYAD_FUZZ={count} DYAD_TIER=full cargo test -p dyad-qemu-tests --test qemu -- {NAME}"
        );
    };
    for functions in 1..=full.functions {
        for statements in 1..=full.statements {
            let size = Size {
                functions,
                statements,
            };
            if let Err(difference) = one(&[seed], size, turned) {
                return told(seed, &(size, difference));
            }
        }
    }
    told(seed, &(full, all))
}

fn told(seed: u64, (size, difference): &(Size, Difference)) -> String {
    format!(
        "{difference}\nseed {seed}, {size:?}; repeat with DYAD_SEED={seed} DYAD_FUZZ=1 DYAD_TIER=full cargo test -p dyad-qemu-tests --test qemu -- {NAME}"
    )
}

/// The fewest programs of a batch that go wrong together, found by halves.
fn fewest(seeds: &[u64], turned: bool) -> &[u64] {
    if seeds.len() < 2 {
        return seeds;
    }
    let (left, right) = seeds.split_at(seeds.len() / 2);
    let wrong = |half: &&[u64]| !half.is_empty() && one(half, Size::default(), turned).is_err();
    match [left, right].into_iter().find(wrong) {
        Some(half) => fewest(half, turned),
        None => seeds,
    }
}

/// Plays programs; says how often they have moved.
fn one(seeds: &[u64], size: Size, turned: bool) -> Result<u64, Difference> {
    // A program is built once per directory.
    let all = paths::target_dir().join("tmp/fuzz");
    let n = seeds.len();
    let dir = all.join(format!(
        "{}-{n}-{}-{}",
        seeds[0], size.functions, size.statements
    ));
    let played = match std::fs::remove_dir_all(&all) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err((None, e.to_string())),
        _ => write_and_play(&dir, seeds, size, turned),
    };
    played.map_err(|(seed, what)| Difference { seed, what, dir })
}

type Wrong = (Option<u64>, String);

fn write_and_play(dir: &Path, seeds: &[u64], size: Size, turned: bool) -> Result<u64, Wrong> {
    let batch = Batch::new(seeds, size);
    let files = || -> std::io::Result<()> {
        std::fs::create_dir_all(dir.join("src"))?;
        std::fs::write(dir.join("host.rs"), batch.host())?;
        std::fs::write(dir.join("src/main.rs"), batch.pair())?;
        let dyad = paths::workspace_root().join("userland/dyad");
        std::fs::write(dir.join("Cargo.toml"), Batch::manifest(&dyad))
    };
    files().map_err(|e| (None, e.to_string()))?;
    let expected = on_host(dir).map_err(|e| (None, e))?;
    if expected.len() != seeds.len() {
        return Err((None, format!("the host printed {expected:?}")));
    }
    let nodes = match turned {
        true => vec![Aarch64, X86_64],
        false => vec![X86_64, Aarch64],
    };
    let config = RunConfig {
        nodes,
        work: console::app(dir.display().to_string(), ""),
        timeout: Some(Duration::from_secs(240)),
        ..RunConfig::default()
    };
    let (report, text) = console::run(&config);
    let (mut seen, mut moves) = (0, 0);
    for line in text.lines().filter_map(|l| Some(l.split_once("] ")?.1)) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["moved", _, _, _, count] => moves += count.parse::<u64>().unwrap_or(0),
            ["fuzz", way, seed, ref hashes @ ..] => {
                seen += 1;
                let seed = seed.parse().unwrap_or(0);
                let expected = expected.get(&seed).map(String::as_str).unwrap_or_default();
                let found = hashes.join(" ");
                if found != expected {
                    let what = format!("seed {seed}, {way}:\n  {found} instead of\n  {expected}");
                    return Err((Some(seed), what));
                }
            }
            _ => {}
        }
    }
    if let Some(why) = report.failure() {
        // The first program that has not printed all is the one that ran.
        let seed = seeds.get(seen / WAYS.len()).copied().filter(|_| seen > 0);
        return Err((seed, format!("{why}\n{text}")));
    }
    match seen == seeds.len() * WAYS.len() {
        true => Ok(moves),
        false => Err((None, format!("{seen} results\n{text}"))),
    }
}

/// What programs print on the host, by seed.
fn on_host(dir: &Path) -> Result<BTreeMap<u64, String>, String> {
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
    run(Command::new(rustc).args(["--edition", "2024", "-o", "host", "host.rs"]))?;
    let printed = run(&mut Command::new(dir.join("host")))?;
    let line = |l: &str| {
        let (seed, hashes) = l.strip_prefix("fuzz host ")?.split_once(' ')?;
        Some((seed.parse().ok()?, hashes.to_owned()))
    };
    Ok(printed.lines().filter_map(line).collect())
}
