//! QEMU's own cache model, loaded into the same machine with the same geometry.
//!
//! It counts whole runs and knows no other node, whose writes take lines away from our caches when
//! the system boots. So the difference of a long and a short run is compared with the difference
//! of our regions in the same two runs. Our last level is so large that nothing is ever evicted
//! from it, as there is none in the other model.

use dyad_abi::Isa;

use super::{Context, Findings, region};
use crate::qemu_plugins::CacheCounts;
use dyad_launcher::config::Sim;
use dyad_launcher::error::Error;
use dyad_launcher::machine::quoted;

const PART: f64 = 0.001;
const OURS: &str = "l1.size=32K l1.ways=8 l2.size=1M l2.ways=16 l3.size=256M l3.ways=16";
const THEIRS: &str = "dcachesize=32768,dassoc=8,dblksize=64,icachesize=32768,iassoc=8,iblksize=64,\
                      l2=on,l2cachesize=1048576,l2assoc=16,l2blksize=64";

/// Loads with many misses, and their passes beside one in the long run, and with `quick`. They are
/// added up: whole runs cannot be taken apart.
const LOADS: &[(&str, [u32; 2])] = &[
    ("matmul", [120, 12]),
    ("random", [40, 4]),
    ("chase", [40, 4]),
    ("stream", [16, 2]),
];

pub(super) fn compare(cx: &mut Context<'_>, findings: &mut Findings) -> Result<(), Error> {
    let more = LOADS
        .iter()
        .map(|(_, passes)| passes[usize::from(cx.quick)]);
    let more: Vec<u32> = more.collect();
    let short = measure(cx, &vec![0; LOADS.len()])?;
    let long = measure(cx, &more)?;
    for (i, isa) in Isa::ALL.into_iter().enumerate() {
        let of = |count: fn(&Both) -> u64| count(&long[i]).saturating_sub(count(&short[i]));
        let mut compare = |what: &str, ours: u64, theirs: u64| {
            findings.near(format!("{what}, {isa}"), ours as f64, theirs as f64, PART);
        };
        compare(
            "L1D misses",
            of(|b| b.ours[0]),
            of(|b| b.theirs.data_misses),
        );
        compare("L2 misses", of(|b| b.ours[1]), of(|b| b.theirs.l2_misses));
    }
    Ok(())
}

/// What both models have counted on a machine.
struct Both {
    /// Misses of the first level, data, and of the second, in all regions.
    ours: [u64; 2],
    /// In the whole run.
    theirs: CacheCounts,
}

/// One run with so many passes more than one; by ISA.
fn measure(cx: &mut Context<'_>, more: &[u32]) -> Result<Vec<Both>, Error> {
    let items = LOADS
        .iter()
        .zip(more)
        .map(|((load, _), n)| format!("{load}:{}", n + 1));
    let items: Vec<String> = items.collect();
    let args = format!("--load {} --home x86_64,aarch64", items.join(","));
    let theirs = format!("{},{THEIRS}", quoted(&cx.plugins()?.cache));
    let report = cx.run(Sim::Cache, "sim-loads", &args, |c| {
        c.setup.set.push(super::settings(OURS));
        c.test.plugins = vec![theirs];
        c.rounds = 1;
    })?;
    let one = |isa: Isa| {
        let node = report.nodes.iter().find(|n| n.isa == isa.name());
        let text = node.and_then(|n| n.plugins.as_deref()).unwrap_or_default();
        let mut ours = [0; 2];
        for place in 0..LOADS.len() {
            let counters = region::of(&report, isa, place)?.counters;
            ours[0] += counters.l1d_misses;
            ours[1] += counters.l2_misses;
        }
        Ok(Both {
            ours,
            theirs: CacheCounts::parse(text).map_err(Error::Run)?,
        })
    };
    Isa::ALL.into_iter().map(one).collect()
}
