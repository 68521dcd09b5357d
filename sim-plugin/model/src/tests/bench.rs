//! How long accesses take on the host. Not a test of anything: run it to see regressions.
//!
//! `cargo test --release -p dyad-sim-model -- --ignored --nocapture nanoseconds`

use std::hint::black_box;
use std::time::Instant;

use crate::coherent::{Core, Kind, Storage};
use crate::config::*;
use crate::first::Name;
use crate::fixture;
use crate::memory::line_of;

/// Accesses of a round: few, so that some rounds are not interrupted.
const ROUND: u64 = 100_000;

/// Nanoseconds of one of the calls that `round` makes, in its fastest round.
fn time(rounds: u32, mut round: impl FnMut(u64) -> u64) -> f64 {
    let mut once = || {
        let start = Instant::now();
        black_box(round(ROUND));
        start.elapsed().as_secs_f64() * 1e9 / ROUND as f64
    };
    (0..rounds).map(|_| once()).fold(f64::MAX, f64::min)
}

/// Like the caches of the profiles.
fn large() -> SimConfig {
    let mut config = fixture::config(2, 1);
    for node in &mut config.nodes {
        let shape = |size, ways| CacheShape { size, ways };
        node.l1i = shape(32 << 10, 8);
        node.l1d = shape(32 << 10, 8);
        node.l2 = shape(1 << 20, 16);
        node.l3 = shape(4 << 20, 16);
    }
    for (i, pool) in config.pools.iter_mut().enumerate() {
        *pool = Pool {
            base: (i as u64 + 1) << 30,
            size: 64 << 20,
        };
    }
    config
}

/// As plugins do.
#[inline(always)]
fn access(core: &mut Core, kind: Kind, line: u64, index: usize) -> u64 {
    let name = Name(line);
    match kind {
        Kind::Load if core.quick_load(name) => 4,
        Kind::Store if core.quick_store(name) => 4,
        _ => core.access(kind, name, line, index),
    }
}

/// `lines` lines in an order that looks random, over and over.
fn pass(core: &mut Core, kind: Kind, base: u64, lines: u64, x: &mut u64, n: u64) -> u64 {
    let offset = core.memory().index_base(base);
    let mut sum = 0;
    for _ in 0..n {
        *x = x
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let line = base + ((*x >> 33) & (lines - 1));
        sum += access(core, kind, line, line.wrapping_add(offset) as usize);
    }
    sum
}

/// Another node takes a line away: what a CPU that is alone need not look for is looked for from then on.
fn disturb(storage: &Storage, config: &SimConfig, core: &mut Core) {
    let line = line_of(config.pools[1].base);
    let index = core.memory().index_base(line).wrapping_add(line) as usize;
    access(core, Kind::Load, line, index);
    access(&mut storage.core(config, 1, 0), Kind::Store, line, index);
}

#[test]
#[ignore = "prints times"]
fn nanoseconds() {
    println!("ns per access{:>16}{:>10}", "fused", "private");
    for model in [MemoryModel::Shared, MemoryModel::FullyShared] {
        let mut config = large();
        config.model = model;
        println!("{model:?}");
        let storage = Storage::new(&config);
        let fused = line_of(config.pools[0].base);
        let private = 0;
        for (what, kind, lines) in [
            ("load, one line", Kind::Load, 1),
            ("load, 4 KiB", Kind::Load, 64),
            ("store, 4 KiB", Kind::Store, 64),
            ("fetch, 4 KiB", Kind::Fetch, 64),
            ("load, 32 KiB", Kind::Load, 512),
            ("load, 512 KiB", Kind::Load, 8 << 10),
            ("load, 2 MiB", Kind::Load, 32 << 10),
            ("load, 32 MiB", Kind::Load, 512 << 10),
            ("store, 32 MiB", Kind::Store, 512 << 10),
        ] {
            let mut row = [0.0; 2];
            for (base, ns) in [fused, private].into_iter().zip(&mut row) {
                let mut core = storage.core(&config, 0, 0);
                disturb(&storage, &config, &mut core);
                let mut x = 1;
                *ns = time(100, |n| pass(&mut core, kind, base, lines, &mut x, n));
            }
            println!("  {what:<18}{:>9.2}{:>10.2}", row[0], row[1]);
        }
        for ways in [2, 3, 8] {
            let mut core = storage.core(&config, 0, 0);
            let offset = core.memory().index_base(fused);
            let ns = time(100, |n| {
                (0..n)
                    .map(|i| {
                        let line = fused + i % ways * 64;
                        access(
                            &mut core,
                            Kind::Load,
                            line,
                            line.wrapping_add(offset) as usize,
                        )
                    })
                    .sum()
            });
            println!("  load, {ways} of a set   {ns:>9.2}");
        }
        let (mut a, mut b) = (storage.core(&config, 0, 0), storage.core(&config, 1, 0));
        let index = a.memory().index_base(fused).wrapping_add(fused) as usize;
        let ns = time(100, |n| {
            (0..n / 2)
                .map(|_| a.store(Name(fused), fused, index) + b.store(Name(fused), fused, index))
                .sum()
        });
        println!("  {:<18}{ns:>9.2}", "store, ping-pong");
    }
}
