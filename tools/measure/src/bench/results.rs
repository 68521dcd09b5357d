//! What the plugin has counted, by operation, ISA and memory.

use std::collections::BTreeMap;

use dyad_abi::Isa;
use dyad_abi::marker::{BENCH_OPS, BENCH_PARTS, BenchMemory, BenchOp, BenchWindow, WindowId};
use serde::Deserialize;

use super::peers::{Goal, peers};

/// Form of the plugin's report that is understood.
pub const PLUGIN_SCHEMA: &str = dyad_sim_model::report::SCHEMA;
/// Fewest samples with which a row counts.
pub const MIN_SAMPLES: u64 = 32;

/// Least, median and largest of a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Spread {
    /// Least.
    pub min: u64,
    /// Median.
    pub median: u64,
    /// Largest.
    pub max: u64,
}

impl Spread {
    /// Of two runs together. The plugin keeps no single values, so the median is the larger one.
    fn and(self, other: Spread) -> Spread {
        Spread {
            min: self.min.min(other.min),
            median: self.median.max(other.median),
            max: self.max.max(other.max),
        }
    }

    /// Of two parts of an operation.
    fn plus(self, other: Spread) -> Spread {
        Spread {
            min: self.min + other.min,
            median: self.median + other.median,
            max: self.max + other.max,
        }
    }
}

/// Operations of which there is a first part, with all their parts joined. Parts with odd numbers are
/// what the other ISA's node does for it.
pub(super) fn whole_operations<'a, T: Copy>(
    windows: &'a BTreeMap<(Isa, BenchWindow), T>,
    join: impl Fn(T, T) -> T + 'a,
) -> impl Iterator<Item = (Key, T)> + 'a {
    let first_parts = windows.iter().filter(|((_, w), _)| w.part == 0);
    first_parts.map(move |(&(isa, first), &row)| {
        let parts = (1..BENCH_PARTS).filter_map(|part| {
            let side = if part % 2 == 0 { isa } else { isa.other() };
            windows.get(&(side, BenchWindow { part, ..first })).copied()
        });
        let (op, memory) = (first.op, first.memory);
        (Key { op, isa, memory }, parts.fold(row, &join))
    })
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Counts {
    /// Instructions.
    pub instructions: Spread,
    /// Distinct lines of data.
    pub lines: Spread,
    /// Those of them in the pools.
    pub fused_lines: Spread,
    /// Accesses to memory.
    pub accesses: Spread,
    /// Accesses to devices.
    pub devices: Spread,
    /// Atomic read-modify-writes.
    pub atomics: Spread,
    /// Write-backs and invalidations of lines.
    pub flushes: Spread,
    /// Memory barriers.
    pub fences: Spread,
}

impl Counts {
    fn with(self, o: Counts, how: fn(Spread, Spread) -> Spread) -> Counts {
        Counts {
            instructions: how(self.instructions, o.instructions),
            lines: how(self.lines, o.lines),
            fused_lines: how(self.fused_lines, o.fused_lines),
            accesses: how(self.accesses, o.accesses),
            devices: how(self.devices, o.devices),
            atomics: how(self.atomics, o.atomics),
            flushes: how(self.flushes, o.flushes),
            fences: how(self.fences, o.fences),
        }
    }
}

/// A window in the plugin's report.
#[derive(Deserialize)]
struct Window {
    id: u16,
    n: u64,
    interrupted: u64,
    #[serde(flatten)]
    counts: Option<Counts>,
}

/// What the plugin of a machine reports, as far as it is of interest.
#[derive(Deserialize)]
struct PluginReport {
    schema: String,
    target: String,
    windows: Option<Vec<Window>>,
}

/// What a row is about. Rows are reported in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The operation.
    pub op: BenchOp,
    /// The ISA it was performed on.
    pub isa: Isa,
    /// Where its objects lie.
    pub memory: BenchMemory,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}, {}", self.op, self.isa, self.memory.name())
    }
}

/// A row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Samples.
    pub n: u64,
    /// Repetitions that are no samples, because an interrupt was taken in them.
    pub interrupted: u64,
    /// What was counted, if there is a sample.
    pub counts: Option<Counts>,
}

impl Row {
    /// Samples of the same from another run.
    fn add(&mut self, other: Row) {
        self.n += other.n;
        self.interrupted += other.interrupted;
        self.counts = match (self.counts, other.counts) {
            (Some(a), Some(b)) => Some(a.with(b, Spread::and)),
            (a, b) => a.or(b),
        };
    }

    /// Another part of the same operation. Lines that both touch count twice.
    fn join(self, part: Row) -> Row {
        Row {
            n: self.n.min(part.n),
            interrupted: self.interrupted + part.interrupted,
            counts: match (self.counts, part.counts) {
                (Some(a), Some(b)) => Some(a.with(b, Spread::plus)),
                _ => None,
            },
        }
    }
}

/// All rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// Whole operations, by what they are about.
    pub rows: BTreeMap<Key, Row>,
    /// Windows, by the ISA whose CPU they were open on.
    windows: BTreeMap<(Isa, BenchWindow), Row>,
}

impl Results {
    /// Adds what a machine's plugin reports.
    ///
    /// # Errors
    ///
    /// A sentence, if the report is not one of the benchmark.
    pub fn add(&mut self, report: &serde_json::Value) -> Result<(), String> {
        let report = PluginReport::deserialize(report)
            .map_err(|e| format!("the plugin's report cannot be read: {e}"))?;
        if report.schema != PLUGIN_SCHEMA {
            let found = report.schema;
            return Err(format!(
                "the plugin's report has the form {found:?}, not {PLUGIN_SCHEMA:?}"
            ));
        }
        let isa = Isa::parse(&report.target)
            .ok_or_else(|| format!("the plugin reports about {:?}", report.target))?;
        let windows = report
            .windows
            .ok_or("the plugin has observed no windows: it was started without windows=on")?;
        for window in windows.into_iter().filter(|w| w.id < WindowId::FREE) {
            let whose = BenchWindow::from_id(WindowId(window.id)).ok_or_else(|| {
                format!(
                    "window {} is of no operation of the benchmark: use the numbers of \
                     dyad_abi::marker::BenchOp, or numbers from {} on",
                    window.id,
                    WindowId::FREE
                )
            })?;
            let row = Row {
                n: window.n,
                interrupted: window.interrupted,
                counts: window.counts.filter(|_| window.n > 0),
            };
            self.windows.entry((isa, whose)).or_default().add(row);
        }
        self.join_parts();
        Ok(())
    }

    /// Makes rows of windows.
    fn join_parts(&mut self) {
        self.rows = whole_operations(&self.windows, |row, part| row.join(part)).collect();
    }

    /// What must be there on these ISAs and is not, or has too few samples.
    pub fn missing(&self, isas: &[Isa]) -> Vec<Key> {
        let mut missing = Vec::new();
        for &op in BENCH_OPS.iter().filter(|op| op.is_required()) {
            for isa in Isa::ALL.into_iter().filter(|isa| isas.contains(isa)) {
                let keys = BenchMemory::ALL.map(|memory| Key { op, isa, memory });
                // What two nodes do together they do in what both have.
                let together = matches!(
                    op,
                    BenchOp::IpcCrossIsaRoundTrip | BenchOp::CrossingCallRoundTrip
                );
                let skipped = usize::from(together);
                let few = |key: &Key| self.rows.get(key).is_none_or(|r| r.n < MIN_SAMPLES);
                missing.extend(keys.into_iter().skip(skipped).filter(few));
            }
        }
        missing
    }

    /// What is wrong with the control: empty windows must be there on every ISA and count
    /// nothing, or no other figure can be trusted.
    pub fn control(&self, isas: &[Isa]) -> Result<(), String> {
        for &isa in isas {
            let memory = BenchMemory::Local;
            let op = BenchOp::Empty;
            let row = self.rows.get(&Key { op, isa, memory });
            match row.and_then(|row| row.counts) {
                Some(counts) if counts == Counts::default() => {}
                Some(counts) => {
                    return Err(format!(
                        "the control on {isa} is not empty: up to {} instructions and {} accesses \
                         in a window without contents",
                        counts.instructions.max, counts.accesses.max
                    ));
                }
                None => return Err(format!("there is no control on {isa}: no empty window")),
            }
        }
        Ok(())
    }

    /// How many instructions an operation may take at most, if that is known.
    pub fn goal(&self, key: Key) -> Option<u64> {
        match peers(key.op).goal? {
            Goal::AtMost(n) => Some(n),
            Goal::NearlyAs(op) => {
                let own = self.rows.get(&Key { op, ..key })?.counts?;
                Some(own.instructions.median * 13 / 10)
            }
        }
    }
}
