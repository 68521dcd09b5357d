//! Patterns of access, whose messages are known exactly, with either node first: of sharing, and of
//! flushes with every instruction that an ISA has for them.
//!
//! Nodes make them in the kernel, with interrupts masked, so nothing else is counted.

use dyad_abi::Isa;
use dyad_abi::patterns::{FLUSHES, LINES, Pattern, ROUNDS, SHARING, Side, flushes_from, window};
use dyad_sim_model::config::MemoryModel;
use dyad_sim_model::report::Counters;

use super::{Context, Findings, region};
use dyad_launcher::config::{Sim, Work};
use dyad_launcher::error::Error;
use dyad_launcher::launch::RunReport;

/// In-kernel tests that make the patterns.
const SHARING_TEST: &str = "marked_sharing";
const FLUSHES_TEST: &str = "marked_flushes";

/// The instructions of an ISA, and whether they keep the line.
const fn instructions(isa: Isa) -> &'static [(&'static str, bool)] {
    match isa {
        Isa::X86_64 => &[("CLFLUSH", false), ("CLFLUSHOPT", false), ("CLWB", true)],
        Isa::Aarch64 => &[("DC CIVAC", false), ("DC CVAC", true)],
    }
}

/// What a step does with each line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Each {
    l2_misses: u64,
    l3_misses: u64,
    snp_data: u64,
    snp_inv: u64,
    inclusion_snoops: u64,
    forwarded: u64,
    writebacks: u64,
    silent: u64,
    snooped: u64,
    flushes: u64,
    rmws: u64,
}

impl Each {
    /// The names and what was counted.
    fn counters(self, c: &Counters) -> [(&'static str, u64, u64); 11] {
        [
            ("L2 misses", c.l2_misses, self.l2_misses),
            ("L3 misses", c.l3_misses, self.l3_misses),
            ("SnpData", c.snp_data, self.snp_data),
            ("SnpInv", c.snp_inv, self.snp_inv),
            (
                "inclusion snoops",
                c.inclusion_snoops,
                self.inclusion_snoops,
            ),
            ("forwards", c.forwarded, self.forwarded),
            ("write-backs", c.writebacks, self.writebacks),
            ("silent upgrades", c.upgrades_silent, self.silent),
            ("snooped upgrades", c.upgrades_snooped, self.snooped),
            ("flushes", c.flushes, self.flushes),
            ("read-modify-writes", c.rmws, self.rmws),
        ]
    }
}

/// The node has what it needs.
const HIT: Each = Each {
    l2_misses: 0,
    l3_misses: 0,
    snp_data: 0,
    snp_inv: 0,
    inclusion_snoops: 0,
    forwarded: 0,
    writebacks: 0,
    silent: 0,
    snooped: 0,
    flushes: 0,
    rmws: 0,
};
/// The line comes from the last level.
const LAST_LEVEL: Each = Each {
    l2_misses: 1,
    ..HIT
};
/// It comes from memory, or instead of it from another node.
const MEMORY: Each = Each {
    l3_misses: 1,
    ..LAST_LEVEL
};
/// A write of a line that no other node has.
const SILENT: Each = Each { silent: 1, ..HIT };
/// A write of a line that others have too.
const SNOOPED: Each = Each {
    snp_inv: 1,
    snooped: 1,
    ..HIT
};
/// A flush that does nothing to other nodes, nor to memory.
const FLUSH: Each = Each { flushes: 1, ..HIT };
/// A flush of what is modified.
const WRITE_BACK: Each = Each {
    writebacks: 1,
    ..FLUSH
};

/// What the counted steps of a pattern of sharing do. `one`: the nodes have one last level.
fn sharing(pattern: &str, one: bool) -> Vec<Each> {
    // What another node has: that comes from its cache if it has modified it.
    let near = if one { LAST_LEVEL } else { MEMORY };
    let modified = Each {
        forwarded: u64::from(!one),
        ..near
    };
    let taken = Each {
        snp_inv: 1,
        ..modified
    };
    let shared = Each {
        snp_data: 1,
        writebacks: 1,
        ..modified
    };
    match pattern {
        "ping-pong" | "false sharing" => vec![taken, taken],
        "atomics" => vec![Each { rmws: 1, ..taken }; 2],
        "apart" => vec![HIT, HIT],
        "producer" => vec![shared, SNOOPED, shared],
        "readers" => vec![
            Each {
                snp_data: 1,
                ..near
            },
            HIT,
            HIT,
        ],
        "upgrade" => vec![MEMORY, SILENT],
        "taken" => vec![Each { snp_inv: 1, ..near }, shared],
        _ => Vec::new(),
    }
}

/// What those of a pattern of flushes do, with an instruction that keeps lines or drops them.
///
/// A flush acts on the caches of all nodes. Those of the other node are asked over the link, or, where there is one last
/// level, by an inclusion snoop.
fn flushes(pattern: &str, keeps: bool, one: bool) -> Vec<Each> {
    let again = if keeps { HIT } else { MEMORY };
    // The first flush asks the other node.
    let drops = match one {
        true => Each {
            inclusion_snoops: 1,
            ..FLUSH
        },
        false => Each {
            snp_inv: 1,
            ..FLUSH
        },
    };
    let asked = Each {
        snp_data: 1,
        ..if one { LAST_LEVEL } else { MEMORY }
    };
    match (pattern, keeps) {
        ("nobody has it", _) => vec![FLUSH],
        ("clean", _) => vec![FLUSH, again],
        ("dirty", _) => vec![WRITE_BACK, FLUSH, again, SILENT, WRITE_BACK],
        ("dirty elsewhere", true) => {
            let cleans = Each {
                snp_data: u64::from(!one),
                ..WRITE_BACK
            };
            vec![cleans, HIT, FLUSH, asked]
        }
        ("dirty elsewhere", false) => {
            let first = Each {
                writebacks: 1,
                ..drops
            };
            vec![first, MEMORY, FLUSH, MEMORY]
        }
        ("clean elsewhere", true) => vec![FLUSH, HIT, SILENT],
        ("clean elsewhere", false) => vec![drops, MEMORY, SILENT],
        ("clean on both", true) => vec![FLUSH, HIT, SNOOPED, WRITE_BACK],
        ("clean on both", false) => vec![drops, MEMORY, SILENT, WRITE_BACK],
        _ => Vec::new(),
    }
}

/// The memory models in which patterns are made.
fn models(cx: &Context<'_>) -> &'static [MemoryModel] {
    match cx.quick {
        true => &[MemoryModel::Shared],
        false => &MemoryModel::ALL,
    }
}

fn run(cx: &mut Context<'_>, test: &str, model: MemoryModel) -> Result<RunReport, Error> {
    let work = Work::Ktest(vec![test.into()]);
    cx.run_work(Sim::Cache, work, |c| c.setup.model = model)
}

/// Compares a list of patterns that were made with node `first` first, from window `number` on.
/// `expected` gives what the counted steps of one do.
fn patterns(
    report: &RunReport,
    findings: &mut Findings,
    title: &str,
    list: &[Pattern],
    first: Isa,
    mut number: usize,
    expected: impl Fn(&str) -> Vec<Each>,
) -> Result<(), Error> {
    for pattern in list {
        let steps = pattern.steps.iter().filter(|s| s.counted);
        for (place, (step, each)) in steps.zip(expected(pattern.name)).enumerate() {
            let isa = match step.side {
                Side::First => first,
                Side::Second => first.other(),
            };
            let roi = region::window(report, isa, window(number).0)?;
            let name = |what| format!("{title}, {} {}, {what}, {isa}", pattern.name, place + 1);
            findings.exact(name("passes"), roi.n, ROUNDS as u64);
            for (what, measured, each) in each.counters(&roi.counters) {
                findings.exact(name(what), measured, each * (LINES * ROUNDS) as u64);
            }
            number += 1;
        }
    }
    Ok(())
}

pub(super) fn compare_sharing(cx: &mut Context<'_>, findings: &mut Findings) -> Result<(), Error> {
    for &model in models(cx) {
        let report = run(cx, SHARING_TEST, model)?;
        let one = model == MemoryModel::FullyShared;
        for first in Isa::ALL {
            patterns(&report, findings, model.name(), SHARING, first, 0, |p| {
                sharing(p, one)
            })?;
        }
    }
    Ok(())
}

pub(super) fn compare_flushes(cx: &mut Context<'_>, findings: &mut Findings) -> Result<(), Error> {
    for &model in models(cx) {
        let report = run(cx, FLUSHES_TEST, model)?;
        let one = model == MemoryModel::FullyShared;
        for first in Isa::ALL {
            let known = instructions(first);
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            made_with(&report, first, &names.join(", "))?;
            for (i, &(name, keeps)) in known.iter().enumerate() {
                let title = format!("{}, {name}", model.name());
                let from = flushes_from(i);
                patterns(&report, findings, &title, FLUSHES, first, from, |p| {
                    flushes(p, keeps, one)
                })?;
            }
        }
    }
    Ok(())
}

/// Whether the node of an ISA says that it has used these instructions.
fn made_with(report: &RunReport, isa: Isa, names: &str) -> Result<(), Error> {
    let node = report.nodes.iter().find(|n| n.isa == isa.name());
    let of_node = |k: &&dyad_launcher::launch::KtestResult| node.is_some_and(|n| n.id == k.node);
    let said = report.ktests.iter().find(of_node);
    match said.map(|k| k.detail.as_str()) {
        Some(detail) if detail == names => Ok(()),
        other => Err(Error::Run(format!(
            "the machine of {isa} has flushed by {other:?}, not by {names:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use dyad_abi::patterns::{Act, counted};

    use super::*;

    /// Steps of a pattern that are counted, and how many of them flush and add.
    fn shape(pattern: &Pattern) -> [usize; 3] {
        let of = |act| {
            let steps = pattern.steps.iter().filter(|s| s.counted);
            steps.filter(|s| s.act == act).count()
        };
        [
            counted(std::slice::from_ref(pattern)),
            of(Act::Flush),
            of(Act::Add),
        ]
    }

    #[test]
    fn every_counted_step_has_an_expectation() {
        let of = |each: Vec<Each>| {
            let sum = |f: fn(&Each) -> u64| each.iter().map(f).sum::<u64>() as usize;
            [each.len(), sum(|e| e.flushes), sum(|e| e.rmws)]
        };
        for one in [false, true] {
            for p in SHARING {
                assert_eq!(of(sharing(p.name, one)), shape(p), "{}", p.name);
            }
            for (p, keeps) in FLUSHES.iter().flat_map(|p| [(p, false), (p, true)]) {
                assert_eq!(of(flushes(p.name, keeps, one)), shape(p), "{}", p.name);
            }
        }
    }
}
