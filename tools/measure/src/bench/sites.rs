//! Where the instructions of an operation are: by function.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dyad_abi::Isa;
use dyad_abi::marker::{BenchMemory, BenchOp, BenchWindow, WindowId};
use serde::Deserialize;

use super::BENCH_APP;
use dyad_launcher::symbol::Symboliser;
use dyad_launcher::{build, paths};

#[derive(Deserialize)]
struct Window {
    id: u16,
    n: u64,
    #[serde(default)]
    sites: Vec<(u64, u64)>,
}

#[derive(Deserialize)]
struct PluginReport {
    target: String,
    #[serde(default)]
    windows: Vec<Window>,
}

/// How often the instructions of a window were started.
#[derive(Clone, Debug, Default)]
struct Counts {
    samples: u64,
    sites: BTreeMap<u64, u64>,
}

/// Instructions in windows, by operation, ISA and memory.
#[derive(Clone, Debug, Default)]
pub struct Sites(BTreeMap<(BenchOp, Isa, BenchMemory), Counts>);

impl Sites {
    /// Adds what a machine's plugin reports, if it has kept any.
    pub fn add(&mut self, report: &serde_json::Value) {
        let Ok(report) = PluginReport::deserialize(report) else {
            return;
        };
        let Some(isa) = Isa::parse(&report.target) else {
            return;
        };
        for window in report.windows.iter().filter(|w| !w.sites.is_empty()) {
            let Some(whose) = BenchWindow::from_id(WindowId(window.id)) else {
                continue;
            };
            let counts = self.0.entry((whose.op, isa, whose.memory)).or_default();
            counts.samples += window.n;
            for (at, n) in &window.sites {
                *counts.sites.entry(*at).or_default() += n;
            }
        }
    }

    /// A table for each operation on objects in the CXL pool: instructions per repetition by
    /// function, functions inlined into others counted by themselves.
    pub fn tables(&self) -> String {
        let mut out = String::new();
        let mut symbols = Isa::ALL.map(symboliser);
        let fused = |key: &&(BenchOp, Isa, BenchMemory)| key.2 == BenchMemory::Fused;
        for key in self.0.keys().filter(fused) {
            let (op, isa, _) = *key;
            let counts = &self.0[key];
            let mut functions: BTreeMap<String, u64> = BTreeMap::new();
            for (&at, n) in &counts.sites {
                let frames = symbols[isa.index()].frames(at);
                let name = frames.first().map_or("?", |f| function(f));
                *functions.entry(name.to_string()).or_default() += n;
            }
            let mut functions: Vec<(String, u64)> = functions.into_iter().collect();
            functions.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
            let _ = writeln!(out, "\n{op} on {isa}:");
            for (name, n) in functions.iter().take(MOST) {
                let each = *n as f64 / counts.samples as f64;
                let _ = writeln!(out, "{each:8.1}  {name}");
            }
        }
        out
    }
}

/// Functions that are shown of an operation.
const MOST: usize = 45;

/// A frame without its source line.
fn function(frame: &str) -> &str {
    frame.rfind(" (").map_or(frame, |at| &frame[..at])
}

/// Names of the kernel and the benchmark program as they were built last.
fn symboliser(isa: Isa) -> Symboliser {
    let (package, triple) = build::kernel_package(isa);
    let kernel = paths::target_dir().join("kernel").join(triple);
    let user = paths::target_dir().join("user").join(BENCH_APP);
    Symboliser::new([
        kernel.join("kernel").join(package),
        user.join(format!("{BENCH_APP}.{}.elf", isa.name())),
    ])
}
