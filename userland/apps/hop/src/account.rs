//! What ran where, and what it cost.

use core::fmt;

use dyad::prelude::task::*;

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
    /// Halves of round trips.
    hops: Vec<Duration>,
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

    /// Books a round trip of two migrations.
    ///
    /// One migration cannot be timed better than the clocks of two nodes agree, which is not good
    /// enough. A round trip can: `away` and `there` are both differences on one clock.
    pub fn round_trip(&mut self, away: Duration, there: Duration) {
        self.hops.push(away.saturating_sub(there) / 2);
    }

    /// Prints the phases and what migrations cost.
    pub fn print(&self) {
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
        let total: Duration = self.hops.iter().sum();
        if let (Some(min), Some(max)) = (self.hops.iter().min(), self.hops.iter().max()) {
            println!(
                "  One migration took {} on average, {} to {} (half a round trip).",
                Short(total / self.hops.len() as u32),
                Short(*min),
                Short(*max)
            );
        }
    }
}
