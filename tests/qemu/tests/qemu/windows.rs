//! Windows of measurement on real machines: the program `sim-windows` opens them around code whose
//! counts are known, in user mode; the benchmark of the kernel counts the same in every repetition.

use std::time::Duration;

use dyad_abi::Isa::{self, Aarch64, X86_64};
use dyad_abi::marker::{BenchMemory, BenchOp, WindowId};
use dyad_launcher::config::{RunConfig, Sim};
use dyad_measure::bench::{self, Key};
use dyad_tier::Tiers;
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::console::{self, Kept};
use crate::times;

/// How often the program opens each window per ISA.
const REPETITIONS: u64 = 40;

/// The trials of this module.
pub fn trials() -> Vec<Trial> {
    let test = times::of("windows");
    vec![
        test(Tiers::FULL, "count_exactly_in_user_mode", || {
            known(&[X86_64, Aarch64])
        }),
        test(Tiers::FULL, "count_exactly_in_reversed_order", || {
            known(&[Aarch64, X86_64])
        }),
        test(Tiers::LONG, "of_the_benchmark_repeat_themselves", benchmark),
    ]
}

fn known(nodes: &[Isa]) -> Result<(), Failed> {
    let config = RunConfig {
        nodes: nodes.to_vec(),
        work: console::app("sim-windows", ""),
        sim: Sim::Count,
        windows: true,
        timeout: Some(Duration::from_secs(120)),
        ..RunConfig::default()
    };
    let ran = console::good(&config)?;
    console::passed(&ran, ["sim-windows.counters", "sim-windows.clock"])?;
    let (report, _) = &ran;
    for (node, &isa) in report.nodes.iter().zip(nodes) {
        let sim = node.sim.as_ref().ok_or("a node without a report")?;
        check(sim, isa).map_err(|why| format!("{isa}: {why}\n\n{sim:#}"))?;
    }
    Ok(())
}

/// Checks what one machine's plugin has counted.
fn check(sim: &Value, isa: Isa) -> Result<(), String> {
    let windows = sim["windows"].as_array().ok_or("no windows")?;
    let find = |n: u16| {
        let id = WindowId::FREE + n;
        windows.iter().find(move |w| w["id"] == id)
    };
    // All samples are the same, so the three figures are.
    let always = |n: u16, metric: &str, expected: u64| {
        let window = find(n).ok_or_else(|| format!("no window {n}"))?;
        let spread = &window[metric];
        let same = ["min", "median", "max"].map(|m| spread[m].as_u64());
        if window["n"] != REPETITIONS || same != [Some(expected); 3] {
            return Err(format!("window {n}: {metric} is not always {expected}"));
        }
        Ok(())
    };
    let metrics = "instructions lines fused_lines accesses devices atomics flushes fences";
    for metric in metrics.split(' ') {
        always(0, metric, 0)?;
        always(1, metric, if metric == "instructions" { 7 } else { 0 })?;
    }
    for (metric, expected) in [("atomics", 1), ("accesses", 1), ("lines", 1), ("fences", 0)] {
        always(2, metric, expected)?;
    }
    // Program memory is in the pools.
    for metric in ["accesses", "lines", "fused_lines"] {
        always(3, metric, 16)?;
    }
    always(4, "devices", 0)?;
    let call = find(4).ok_or("no window 4")?;
    let instructions = call["instructions"]["min"].as_u64().unwrap_or(0);
    if instructions < 20 || call["instructions"]["max"] != instructions {
        return Err("the kernel is not counted, or not always the same".into());
    }
    always(6, "instructions", 1)?;
    // LLVM takes an atomic for a fence on x86-64, where that is the faster one.
    let fence = find(6).ok_or("no window 6")?;
    let of = |metric: &str| fence[metric]["min"].as_u64().unwrap_or(0);
    if of("fences") + of("atomics") != 1 {
        return Err("a fence is not counted".into());
    }
    let slept = find(7).ok_or("no window 7")?;
    if slept["n"] != 0 || slept["interrupted"] != 1 {
        return Err("a window with an interrupt in it was taken for a sample".into());
    }
    for n in [5, 8] {
        if find(n).is_some() {
            return Err(format!("window {n} was abandoned and gives samples"));
        }
    }
    if sim["abandoned"] != 2 * REPETITIONS || sim["unmatched"] != REPETITIONS {
        return Err("windows without end, or ends without window, are not counted".into());
    }
    if sim["target"] != isa.name() {
        return Err("a report about another ISA".into());
    }
    Ok(())
}

fn benchmark() -> Result<(), Failed> {
    // One run: which node has come up first, and so keeps the clock that others ask for, is not
    // always the same, and the node that is asked has one more word to look at in its loop.
    let pair = vec![Aarch64, X86_64];
    let mut kept = Kept::new(|_| {});
    let what = bench::OfKernel {
        repetitions: 64,
        fastpaths: true,
    };
    let report = bench::kernel(&[pair], what, &mut kept).map_err(|e| e.to_string())?;
    if let Some(why) = &report.failure {
        return Err(format!("{why}\n{}", report.table()).into());
    }
    for isa in Isa::ALL {
        let op = BenchOp::NullSyscall;
        let memory = BenchMemory::Fused;
        let row = report.results.rows.get(&Key { op, isa, memory });
        let counts = row
            .and_then(|row| row.counts)
            .ok_or("no null system call")?;
        let spread = counts.instructions;
        // An interrupt would be noticed, and nothing else differs.
        if spread.min == 0 || spread.min != spread.max {
            let table = report.table();
            return Err(format!("the same call does not always cost the same:\n{table}").into());
        }
    }
    Ok(())
}
