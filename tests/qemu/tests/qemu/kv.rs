//! Stores of keys and values: what clients on all nodes read and write could have happened one after the other.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_launcher::config::RunConfig;
use dyad_tier::{Tiers, size};
use libtest_mimic::{Failed, Trial};

use crate::{console, times};

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
        console::passed(&console::good(&config)?, ["kv.linearizable", "kv.requests"])?;
    }
    Ok(())
}
