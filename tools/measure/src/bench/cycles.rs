//! What operations take in simulated time: the same windows in a run at level `timing`.
//!
//! A pass of a window is what a program waits for, interrupts and all, so the longest of them are
//! not the operation's own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dyad_abi::Isa;
use dyad_abi::marker::{BenchMemory, BenchOp, BenchWindow, WindowId};

use super::results::{Key, MIN_SAMPLES, whole_operations};
use dyad_launcher::sim::Outcome;

/// Cycles that an operation takes on its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Passes.
    pub n: u64,
    /// Median.
    pub median: u64,
    /// The 99th percentile.
    pub p99: u64,
}

impl Taken {
    /// Another run of the same: the slower one counts.
    fn and(self, other: Taken) -> Taken {
        Taken {
            n: self.n + other.n,
            median: self.median.max(other.median),
            p99: self.p99.max(other.p99),
        }
    }

    /// Another part of the same operation.
    fn plus(self, part: Taken) -> Taken {
        Taken {
            n: self.n.min(part.n),
            median: self.median + part.median,
            p99: self.p99 + part.p99,
        }
    }
}

/// Cycles of all operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    /// Whole operations.
    pub rows: BTreeMap<Key, Taken>,
    windows: BTreeMap<(Isa, BenchWindow), Taken>,
}

impl Cycles {
    /// Adds what a run has simulated.
    pub(super) fn add(&mut self, outcome: &Outcome) {
        for part in &outcome.regions {
            let id = part.region.filter(|id| *id < WindowId::FREE);
            let window = id.and_then(|id| BenchWindow::from_id(WindowId(id)));
            let (Some(window), Some(isa), Some(pass)) =
                (window, Isa::parse(&part.isa), part.pass_ps)
            else {
                continue;
            };
            let cycle_ps = outcome.config.nodes[part.node].cycle_ps;
            let taken = Taken {
                n: part.passes,
                median: pass.median / cycle_ps,
                p99: pass.p99 / cycle_ps,
            };
            let known = self.windows.entry((isa, window)).or_default();
            *known = known.and(taken);
        }
        self.join_parts();
    }

    /// Makes rows of windows.
    fn join_parts(&mut self) {
        self.rows = whole_operations(&self.windows, Taken::plus)
            .filter(|(_, whole)| whole.n >= MIN_SAMPLES)
            .collect();
    }

    /// Median and p99 of an operation, for tables; `-` where there are none.
    fn cell(&self, op: BenchOp, isa: Isa, memory: BenchMemory) -> String {
        match self.rows.get(&Key { op, isa, memory }) {
            Some(t) => format!("{} ({})", t.median, t.p99),
            None => "-".into(),
        }
    }

    /// The rows as a table of the book.
    pub(super) fn page(&self, ops: impl Iterator<Item = BenchOp>) -> String {
        let mut out = String::from(
            "| operation | x86-64, local | x86-64, fused | AArch64, local | AArch64, fused |\n\
             |---|---:|---:|---:|---:|\n",
        );
        for op in ops {
            let cells = Isa::ALL.map(|isa| {
                BenchMemory::ALL
                    .map(|memory| self.cell(op, isa, memory))
                    .join(" | ")
            });
            // Writing to a string cannot fail.
            let _ = writeln!(out, "| `{op}` | {} |", cells.join(" | "));
        }
        out
    }

    /// The rows as a table.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{:<24} {:<7} {:<6} {:>8} {:>8} {:>4}\n",
            "operation", "isa", "memory", "cycles", "p99", "n"
        );
        for (key, taken) in &self.rows {
            let (memory, Taken { n, median, p99 }) = (key.memory.name(), *taken);
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "{:<24} {:<7} {memory:<6} {median:>8} {p99:>8} {n:>4}",
                key.op, key.isa
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_abi::Isa::{Aarch64, X86_64};

    fn taken(n: u64, median: u64, p99: u64) -> Taken {
        Taken { n, median, p99 }
    }

    fn cycles(windows: &[(Isa, BenchOp, u16, Taken)]) -> Cycles {
        let mut cycles = Cycles::default();
        for &(isa, op, part, taken) in windows {
            let memory = BenchMemory::Fused;
            let window = BenchWindow { op, memory, part };
            let known = cycles.windows.entry((isa, window)).or_default();
            *known = known.and(taken);
        }
        cycles.join_parts();
        cycles
    }

    #[test]
    fn parts_of_both_nodes_make_one_row() {
        let op = BenchOp::IpcCrossIsaRoundTrip;
        let all = cycles(&[
            (X86_64, op, 0, taken(64, 100, 110)),
            (Aarch64, op, 1, taken(60, 1000, 1100)),
            (X86_64, op, 2, taken(64, 10, 11)),
        ]);
        let memory = BenchMemory::Fused;
        let key = |isa| Key { op, isa, memory };
        assert_eq!(all.rows.get(&key(X86_64)), Some(&taken(60, 1110, 1221)));
        assert_eq!(all.rows.get(&key(Aarch64)), None);
    }

    #[test]
    fn the_slower_run_counts_and_few_passes_are_no_row() {
        let all = cycles(&[
            (X86_64, BenchOp::Map, 0, taken(40, 100, 300)),
            (X86_64, BenchOp::Map, 0, taken(40, 200, 250)),
            (X86_64, BenchOp::Unmap, 0, taken(31, 100, 100)),
        ]);
        let page = all.page([BenchOp::Map, BenchOp::Unmap].into_iter());
        let rows: Vec<&str> = page.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| `map` | - | 200 (300) | - | - |",
                "| `unmap` | - | - | - | - |"
            ]
        );
        assert_eq!(all.table().lines().count(), 2);
    }
}
