//! System tests: whole runs of the launcher.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::boot::OnDeath;
use dyad_abi::{NodeId, bundle};
use dyad_launcher::config::{RunConfig, TestOptions, Work};
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};

use crate::console::{self, because, run};
use crate::kill::{self, Ended, Kill};
use crate::times;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("run");
    vec![
        test(Tiers::QUICK, "hop_on_the_pair", || {
            hop(&[X86_64, Aarch64], 1, 20)
        }),
        test(Tiers::FULL, "hop_in_reversed_order", || {
            hop(&[Aarch64, X86_64], 1, 20)
        }),
        test(Tiers::FULL, "hop_with_two_cpus", || {
            hop(&[X86_64, Aarch64], 2, 20)
        }),
        test(Tiers::FULL, "hop_on_three_nodes", || {
            hop(&[X86_64, Aarch64, X86_64], 1, 20)
        }),
        test(Tiers::FULL, "eight_nodes_boot_and_join", eight_nodes),
        test(Tiers::FULL, "same_result_hopping_or_not", same_result),
        test(Tiers::QUICK, "layout_mismatch_is_refused", layout_mismatch),
        test(
            Tiers::QUICK,
            "self_test_refuses_machines_without_maxcpus",
            no_maxcpus,
        ),
        test(Tiers::QUICK, "damaged_bundles_are_refused", damaged_bundles),
        test(
            Tiers::QUICK,
            "unknown_programs_are_refused",
            unknown_program,
        ),
        test(
            Tiers::QUICK,
            "too_little_shared_memory_is_said_at_once",
            small_shm,
        ),
        test(
            Tiers::QUICK,
            "a_killed_machine_ends_the_run",
            killed_machine,
        ),
        test(Tiers::QUICK, "survivors_go_on_when_asked_to", survivors),
        test(Tiers::FULL, "a_restarted_machine_joins_again", restarted),
        test(Tiers::FULL, "two_runs_at_once", two_runs),
    ]
}

fn config(nodes: &[Isa], cpus: usize, app: &str, args: &str) -> RunConfig {
    RunConfig {
        nodes: nodes.to_vec(),
        cpus,
        work: console::app(app, args),
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    }
}

/// A config that runs an in-kernel test, which needs no program.
fn booting(nodes: &[Isa]) -> RunConfig {
    RunConfig {
        nodes: nodes.to_vec(),
        mem_local: 64 << 20,
        mem_cxl: 64 << 20,
        work: Work::Ktest(vec!["clocks_agree".into()]),
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    }
}

fn hop(nodes: &[Isa], cpus: usize, migrations: u64) -> Result<(), Failed> {
    let (report, text) = console::good(&config(nodes, cpus, "hop", ""))?;
    let json = report.json();
    let found = json["counters"]["migrations"].as_u64().unwrap_or(0);
    let enough = if nodes.len() == 2 {
        found == migrations
    } else {
        found >= migrations
    };
    if !enough {
        return because(&text, format!("{found} migrations instead of {migrations}"));
    }
    if json["ok"] != true || json["schema"] != "dyad.run/1" || json["app"] != "hop" {
        return because(&text, format!("unexpected JSON: {json}"));
    }
    for isa in Isa::ALL {
        let name = format!("is.partial.{isa}");
        if !report
            .checks
            .iter()
            .any(|c| c.ok && c.name.starts_with(&name))
        {
            return because(&text, format!("no check {name}"));
        }
    }
    Ok(())
}

fn eight_nodes() -> Result<(), Failed> {
    let nodes = [
        X86_64, Aarch64, X86_64, Aarch64, Aarch64, X86_64, Aarch64, X86_64,
    ];
    let mut c = booting(&nodes);
    c.mem_local = 32 << 20;
    c.work = Work::Ktest(vec!["pointers_are_seen_from_every_side".into()]);
    let (report, text) = run(&c);
    match report.failure() {
        Some(why) => because(&text, why),
        None if report.nodes.len() == 8 => Ok(()),
        None => because(&text, "not all nodes are in the report"),
    }
}

/// The checksum line of `npb` is the same wherever it runs.
fn same_result() -> Result<(), Failed> {
    let mut sums = Vec::new();
    for args in [
        "--class S",
        "--class S --hop off --home x86_64",
        "--class S --hop off --home aarch64",
    ] {
        let (report, text) = run(&config(&[X86_64, Aarch64], 1, "npb", args));
        if let Some(why) = report.failure() {
            return because(&text, format!("{args}: {why}"));
        }
        let sum = text
            .lines()
            .rfind(|l| l.contains("Checksum of all results"))
            .and_then(|l| l.split_whitespace().last())
            .map(str::to_owned);
        match sum {
            Some(sum) => sums.push(sum),
            None => return because(&text, format!("{args}: no checksum line")),
        }
    }
    if sums.windows(2).all(|w| w[0] == w[1]) {
        Ok(())
    } else {
        Err(format!("different results: {sums:?}").into())
    }
}

fn layout_mismatch() -> Result<(), Failed> {
    let mut c = booting(&[X86_64, Aarch64]);
    let second = NodeId::new(1).ok_or("node 1")?;
    c.test.layout_xor = vec![(second, 0x1)];
    let (report, text) = run(&c);
    if report.ok() {
        return because(&text, "a node with another layout hash was let in");
    }
    let line = text.lines().find(|l| l.contains("layout hash mismatch"));
    match line {
        Some(l) if l.matches("0x").count() >= 2 => Ok(()),
        _ => because(&text, "both hashes must be printed"),
    }
}

fn no_maxcpus() -> Result<(), Failed> {
    let mut c = booting(&[X86_64, Aarch64]);
    c.test.no_maxcpus = true;
    let (report, text) = run(&c);
    let failed = report
        .checks
        .iter()
        .any(|k| k.name == "boot.self-test" && !k.ok);
    if report.ok() || !failed {
        return because(&text, "the self-test let non-atomic machines pass");
    }
    Ok(())
}

fn scratch_dir(name: &str) -> Result<PathBuf, Failed> {
    let dir = dyad_launcher::paths::target_dir()
        .join("qemu-tests")
        .join(name);
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

fn damaged_bundles() -> Result<(), Failed> {
    let source = dyad_launcher::apps::find("hop").map_err(|e| e.to_string())?;
    let program = dyad_launcher::build::app(&source, &mut |_| {}).map_err(|e| e.to_string())?;
    let good = program.bundle;
    let dir = scratch_dir("bundles")?;
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x10;
    let info = good
        .windows(8)
        .position(|w| w == bundle::INFO_MAGIC)
        .ok_or("the bundle has no description")?;
    let mut other_abi = good.clone();
    other_abi[info + bundle::INFO_ABI] += 1;
    let sum = bundle::checksum(&other_abi, info + bundle::INFO_CHECKSUM);
    other_abi[info + bundle::INFO_CHECKSUM..][..8].copy_from_slice(&sum.to_le_bytes());
    let cases: [(&str, Vec<u8>); 5] = [
        ("other_abi", other_abi),
        ("truncated", good[..good.len() / 3].to_vec()),
        ("corrupt", flipped),
        ("empty", Vec::new()),
        ("text", b"this is no bundle at all, just a text".repeat(100)),
    ];
    for (name, bytes) in cases {
        let path = dir.join(format!("{name}.bundle"));
        std::fs::write(&path, &bytes)?;
        let app = path.to_string_lossy().into_owned();
        let (report, text) = run(&config(&[X86_64, Aarch64], 1, &app, ""));
        let why = report.failure().unwrap_or_default();
        if report.ok() || !report.nodes.is_empty() {
            return because(&text, format!("{name}: machines were started with it"));
        }
        if name == "other_abi" && !why.contains("ABI version") {
            return because(
                &text,
                format!("must say that the ABI version is another: {why}"),
            );
        }
    }
    Ok(())
}

fn unknown_program() -> Result<(), Failed> {
    let (report, text) = run(&config(&[X86_64, Aarch64], 1, "hopp", ""));
    let why = report.failure().unwrap_or_default();
    if report.ok() || !why.contains("hop") {
        return because(&text, "the message must name the nearest program");
    }
    Ok(())
}

fn small_shm() -> Result<(), Failed> {
    let mut c = booting(&[X86_64, Aarch64]);
    c.test = TestOptions {
        shm_limit: Some(64 << 20),
        ..TestOptions::default()
    };
    let (report, text) = run(&c);
    let why = report.failure().unwrap_or_default();
    if report.ok() || !report.nodes.is_empty() || !why.contains("--mem-") {
        return because(
            &text,
            format!("expected a refusal with a remedy, got: {why}"),
        );
    }
    Ok(())
}

/// A run in which node 2 dies at the first words.
fn killing(on_death: OnDeath, class: &str) -> Result<Ended, Failed> {
    let config = RunConfig {
        on_death,
        ..config(&[X86_64, Aarch64, Aarch64], 1, "npb", class)
    };
    let ended = kill::run(&config, Kill::of(2), kill::speaks);
    ended.killed()?;
    Ok(ended)
}

fn killed_machine() -> Result<(), Failed> {
    for victim in [0, 1] {
        let c = config(&[X86_64, Aarch64], 1, "npb", "--class W");
        let ended = kill::run(&c, Kill::of(victim), kill::speaks);
        ended.within(Duration::from_secs(5))?;
        let Ended { report, text, .. } = ended;
        let why = report.failure().unwrap_or_default();
        if report.ok() || !why.contains(&format!("node {victim}")) {
            return because(&text, format!("must say that node {victim} died: {why}"));
        }
        if !text.contains("was doing: ") {
            return because(&text, "must say what the other node was doing");
        }
    }
    Ok(())
}

fn survivors() -> Result<(), Failed> {
    // Node 2 takes no part in the program: it must be able to die without harm.
    let Ended { report, text, .. } = killing(OnDeath::Survive, "--class W")?;
    match report.failure() {
        Some(why) => because(&text, why),
        None => Ok(()),
    }
}

fn restarted() -> Result<(), Failed> {
    // Class A runs for some seconds: a machine that comes back tries for up to a second to read the clock of
    // another well, if the host is busy.
    let Ended { report, text, .. } = killing(OnDeath::Restart, "--class A")?;
    if let Some(why) = report.failure() {
        return because(&text, why);
    }
    if !text.contains("joined as incarnation 2") {
        return because(&text, "node 2 did not join again");
    }
    Ok(())
}

fn two_runs() -> Result<(), Failed> {
    let both: Vec<_> = (0..2)
        .map(|_| std::thread::spawn(|| run(&config(&[X86_64, Aarch64], 1, "hop", ""))))
        .collect();
    let mut wrong = String::new();
    for t in both {
        let (report, text) = t.join().map_err(|_| "a run panicked")?;
        if let Some(why) = report.failure() {
            let _ = writeln!(wrong, "{why}\n{text}");
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.into())
    }
}
