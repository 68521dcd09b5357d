//! What ran where, and what it cost.

use core::fmt;

use dyad::prelude::*;

/// A duration with three significant digits and a fitting unit.
pub struct Short(pub Duration);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos() as u64;
        let (unit, name) = match ns {
            0..1_000 => return f.pad(&format!("{ns} ns")),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let whole = ns / unit;
        let text = match whole {
            0..10 => format!("{whole}.{:02} {name}", ns % unit / (unit / 100)),
            10..100 => format!("{whole}.{} {name}", ns % unit / (unit / 10)),
            _ => format!("{whole} {name}"),
        };
        f.pad(&text)
    }
}

struct Row {
    phase: &'static str,
    node: NodeId,
    isa: Isa,
    runs: u32,
    total: Duration,
}

/// The account of a run.
#[derive(Default)]
pub struct Account {
    rows: Vec<Row>,
}

impl Account {
    /// Runs one phase and books it on this node.
    pub fn phase<R>(&mut self, phase: &'static str, work: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        let here = node();
        match self
            .rows
            .iter_mut()
            .find(|r| (r.phase, r.node) == (phase, here))
        {
            Some(row) => {
                row.runs += 1;
                row.total += took;
            }
            None => self.rows.push(Row {
                phase,
                node: here,
                isa: isa(),
                runs: 1,
                total: took,
            }),
        }
        result
    }

    /// Prints the phases and the migrations. Returns the number of migrations.
    pub fn print(&self) -> u64 {
        println!();
        println!("  where            phase                 runs    average      total");
        for row in &self.rows {
            println!(
                "  node {} {:<8}  {:<20}  {:>4} {:>10} {:>10}",
                row.node,
                row.isa,
                row.phase,
                row.runs,
                Short(row.total / row.runs),
                Short(row.total)
            );
        }
        println!();
        println!("  migration        runs    minimum    average    maximum");
        let mut all = 0;
        for c in dyad::migrations() {
            println!(
                "  node {} -> {}      {:>4} {:>10} {:>10} {:>10}",
                c.from,
                c.to,
                c.count,
                Short(c.min),
                Short(c.total / c.count as u32),
                Short(c.max)
            );
            all += c.count;
        }
        all
    }
}
