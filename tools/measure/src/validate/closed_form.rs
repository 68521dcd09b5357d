//! Loads whose hits and misses follow from sizes alone.

use dyad_abi::Isa;
use dyad_sim_model::report::RoiReport;

use super::{Context, Findings, region};
use dyad_launcher::config::Sim;
use dyad_launcher::error::Error;

/// How far from the closed form: interrupts and the program's own stack are in the regions too.
const PART: f64 = 0.005;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
/// Sizes of the caches simulated. The settings are given, so that they are these.
const GEOMETRY: &str = "l1.size=32K l1.ways=8 l2.size=1M l2.ways=16 l3.size=4M l3.ways=16";
const L1: u64 = 32 * K;
const L2: u64 = M;
const L3: u64 = 4 * M;

/// What is counted, how it is read, and how much of it a step makes.
type Expected = (&'static str, fn(&RoiReport) -> u64, f64);

/// A load and what must come of it.
struct Case {
    load: &'static str,
    size: &'static str,
    /// Passes in the region, and with `quick`.
    passes: [u32; 2],
    /// What must come of it.
    expected: &'static [Expected],
}

fn l1d(r: &RoiReport) -> u64 {
    r.counters.l1d_misses
}
fn l2(r: &RoiReport) -> u64 {
    r.counters.l2_misses
}
fn l3(r: &RoiReport) -> u64 {
    r.counters.l3_misses
}
fn l1d_hits(r: &RoiReport) -> u64 {
    r.counters.l1d_hits
}
fn l2_hits(r: &RoiReport) -> u64 {
    r.counters.l2_hits
}
fn l3_hits(r: &RoiReport) -> u64 {
    r.counters.l3_hits
}
fn accesses(r: &RoiReport) -> u64 {
    r.counters.accesses
}

/// Misses of random accesses to `size` bytes in a cache of `cache` bytes.
const fn random(cache: u64, size: u64) -> f64 {
    1.0 - cache as f64 / size as f64
}

const CASES: &[Case] = &[
    // Eight words of a line are loaded and stored; the first of them misses.
    Case {
        load: "stream",
        size: "16M",
        passes: [4, 1],
        expected: &[
            ("accesses", accesses, 2.0),
            ("L1D misses", l1d, 1.0 / 8.0),
            ("L2 misses", l2, 1.0 / 8.0),
            ("L3 misses", l3, 1.0 / 8.0),
        ],
    },
    Case {
        load: "random",
        size: "16M",
        passes: [32, 8],
        expected: &[
            ("accesses", accesses, 1.0),
            ("L1D misses", l1d, random(L1, 16 * M)),
            ("L2 misses", l2, random(L2, 16 * M)),
            ("L3 misses", l3, random(L3, 16 * M)),
        ],
    },
    // Lines a page apart are in the same set, which has room for eight of them.
    Case {
        load: "conflict",
        size: "8",
        passes: [4, 1],
        expected: &[("accesses", accesses, 1.0), ("L1D hits", l1d_hits, 1.0)],
    },
    Case {
        load: "conflict",
        size: "9",
        passes: [4, 1],
        expected: &[("accesses", accesses, 1.0), ("L1D misses", l1d, 1.0)],
    },
    // A cycle that is longer than a cache with true LRU misses always, a shorter one never.
    Case {
        load: "chase",
        size: "16K",
        passes: [4, 1],
        expected: &[("L1D hits", l1d_hits, 1.0)],
    },
    Case {
        load: "chase",
        size: "512K",
        passes: [4, 1],
        expected: &[("L1D misses", l1d, 1.0), ("L2 hits", l2_hits, 1.0)],
    },
    Case {
        load: "chase",
        size: "2M",
        passes: [4, 1],
        expected: &[("L2 misses", l2, 1.0), ("L3 hits", l3_hits, 1.0)],
    },
    Case {
        load: "chase",
        size: "64M",
        passes: [1, 1],
        expected: &[("L1D misses", l1d, 1.0), ("L3 misses", l3, 1.0)],
    },
];

pub(super) fn compare(cx: &mut Context<'_>, findings: &mut Findings) -> Result<(), Error> {
    let item = |case: &Case| {
        let passes = case.passes[usize::from(cx.quick)];
        format!("{}:{passes}:{}", case.load, case.size)
    };
    let list: Vec<String> = CASES.iter().map(item).collect();
    let args = format!("--load {} --home x86_64,aarch64", list.join(","));
    let report = cx.run(Sim::Cache, "sim-loads", &args, |c| {
        c.setup.set.push(super::settings(GEOMETRY));
        // The fewer interrupts, the nearer.
        c.rounds = 1;
    })?;
    for isa in Isa::ALL {
        for (place, case) in CASES.iter().enumerate() {
            let roi = region::of(&report, isa, place)?;
            let steps = region::steps(&report, isa, place, case.load)? as f64;
            for (what, count, part) in case.expected {
                let name = format!("{} {}, {what}, {isa}", case.load, case.size);
                findings.near(name, count(&roi) as f64, steps * part, PART);
            }
        }
    }
    Ok(())
}
