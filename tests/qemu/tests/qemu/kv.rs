//! Stores of keys and values: what clients on all nodes read and write could have happened one after the other.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::boot::OnDeath;
use dyad_launcher::config::{RunConfig, Sim};
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::kill::{self, Kill};
use crate::{console, times};

/// What each run must show.
const CHECKS: [&str; 3] = ["kv.linearizable", "kv.requests", "kv.lines"];
const STORES: [&str; 3] = ["lib", "partitioned", "2pc"];

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("kv");
    vec![
        test(Tiers::QUICK, "each_store_is_a_store", || {
            stores(&[X86_64, Aarch64], "a", 200)
        }),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "two_clients_and_two_servers",
            || {
                let nodes = [Aarch64, X86_64, Aarch64, X86_64];
                let mixes = ["a", "d", "f"];
                let mixes = &mixes[..size(1, 1, 3) as usize];
                let requests = size(100, 100, 200_000);
                let mut all = mixes.iter();
                all.try_for_each(|mix| stores(&nodes, mix, requests))
            },
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "no_line_is_forgotten",
            forgets,
        ),
        test(
            Tiers::FULL.and(Tiers::LONG),
            "a_client_or_a_server_dies",
            deaths,
        ),
    ]
}

fn stores(nodes: &[Isa], mix: &str, requests: u64) -> Result<(), Failed> {
    for store in STORES {
        // Few items, so that clients meet; values of several lines.
        let args = format!(
            "--store {store} --mix {mix} --requests {requests} --items 50 --value 150 --rounds 3000"
        );
        let config = RunConfig {
            nodes: nodes.to_vec(),
            work: console::app("kv", args),
            timeout: Some(Duration::from_secs(60 + requests / 50)),
            ..RunConfig::default()
        };
        console::passed(&console::good(&config)?, CHECKS)?;
    }
    Ok(())
}

/// A node of a client or of a server dies at a random moment: the others go on, with what had been put, and nothing is lost but what
/// that node had alone.
fn deaths() -> Result<(), Failed> {
    let nodes = [X86_64, Aarch64, X86_64, Aarch64];
    let kills = size(3, 3, 300);
    for n in 0..kills {
        let store = STORES[(n % 3) as usize];
        // A client, or the server that is not on the first thread's node.
        let node = [1, 2, 1, 3][n as usize / 3 % 4];
        let moment = kill::mix(kill::seed() ^ n << 20) % 400_000;
        let args = format!(
            "--store {store} --requests 2000 --items 50 --value 150 --rounds 3000 --seed {n}"
        );
        let config = RunConfig {
            nodes: nodes.to_vec(),
            on_death: OnDeath::Survive,
            work: console::app("kv", args),
            timeout: Some(Duration::from_secs(120)),
            ..RunConfig::default()
        };
        let kill = Kill::after(node, Duration::from_micros(moment));
        let ended = kill::run(&config, kill, kill::says("begins"));
        let went_on = ended.killed()?;
        eprintln!("kv {store}, kill {n}: {kill}; the run went on for {went_on:.1?}");
        ended.lost_no_more_than(0)?;
        if let Some(why) = ended.report.failure() {
            return ended.because(format_args!("{store}: {why}"));
        }
        if let Some(check) = CHECKS.iter().find(|&&c| !ended.passed(c)) {
            return ended.because(format_args!("{store}: {check} is missing"));
        }
        // Each replica has everything, and so has the memory that all read.
        let unanswered = ended.report.counters.get("kv.unanswered");
        let most = if node == 1 && store != "partitioned" {
            2
        } else {
            0
        };
        if store != "partitioned" && unanswered.is_none_or(|&n| n > most) {
            return ended.because(format_args!(
                "{store}: {unanswered:?} requests without an answer"
            ));
        }
    }
    Ok(())
}

/// Where caches are not coherent, the store that is read in place writes back and drops all that it must; what it forgets is found.
fn forgets() -> Result<(), Failed> {
    for (caches, finding) in [
        ("incoherent", None),
        ("no-write-back", Some("unpublished")),
        ("no-drop", Some("stale-read")),
    ] {
        let requests = match finding {
            None => size(2_000, 2_000, 100_000),
            Some(_) => 1_000,
        };
        let args = format!(
            "--store lib --caches {caches} --requests {requests} --items 50 --value 150 --rounds 3000"
        );
        let config = RunConfig {
            nodes: vec![X86_64, Aarch64],
            coherent: false,
            sim: Sim::Cache,
            sanitize_users: true,
            work: console::app("kv", args),
            timeout: Some(Duration::from_secs(120 + requests / 20)),
            ..RunConfig::default()
        };
        let (report, text) = console::run(&config);
        let check = report.checks.iter().find(|c| c.name == "sim.sanitizer");
        let check = check.ok_or("nothing was looked for")?;
        let as_it_should = match finding {
            None => check.ok && report.failure().is_none(),
            Some(kind) => !check.ok && text.contains(&format!("\n  {kind}")),
        };
        if !as_it_should {
            return console::because(&text, format_args!("{caches}: {}", check.detail));
        }
    }
    Ok(())
}
