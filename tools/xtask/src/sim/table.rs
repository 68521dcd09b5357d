//! The outcome of a simulation as tables for people.

use std::fmt::Write as _;

use dyad_sim_model::config::{Level, Order};
use dyad_sim_model::report::Breakdown;

use super::outcome::{NodeOutcome, Outcome, Part};

/// Names of the parts of a breakdown, in its order.
const CATEGORIES: [&str; 10] = [
    "INST",
    "L1",
    "L2",
    "L3",
    "MEM_LOCAL",
    "MEM_REMOTE",
    "SNOOP",
    "IPI",
    "MSG_WAIT",
    "IDLE",
];

/// Those of them that are of caches.
const OF_CACHES: std::ops::RangeInclusive<usize> = 1..=6;

impl Outcome {
    /// All of it: a column per node, then a line per region and node.
    pub fn table(&self) -> String {
        if self.nodes.is_empty() {
            return String::new();
        }
        let c = &self.config;
        let mut out = format!(
            "simulated: level {}, {} memory, {} caches, profile {}",
            c.level.name(),
            c.model.name(),
            c.coherence.name(),
            c.profile
        );
        for (key, value) in &self.set {
            let _ = write!(out, ", {key}={value}");
        }
        if let Order::Strict { seed } = c.clock.order {
            let _ = write!(out, ", strict order of seed {seed}");
        }
        if let Some(hash) = &self.trace_hash {
            let _ = write!(out, ", trace {hash}");
        }
        out.push('\n');
        let mut rows = vec![Row::new("", &self.nodes, |n| {
            format!("node {} {}", n.total.node, n.total.isa)
        })];
        self.add_clock(&mut rows);
        self.add_counts(&mut rows);
        for (label, count) in [
            (
                "accesses to devices",
                (|n| n.devices) as fn(&NodeOutcome) -> u64,
            ),
            ("accesses not placed", |n| n.unknown),
        ] {
            if self.nodes.iter().any(|n| count(n) > 0) {
                rows.push(Row::new(label, &self.nodes, |n| grouped(count(n))));
            }
        }
        rows.push(Row::new("cycles", &self.nodes, |n| {
            format!("{}         ", grouped(n.total.cycles))
        }));
        for (i, category) in CATEGORIES.iter().enumerate() {
            if self.config.level == Level::Count && OF_CACHES.contains(&i) {
                continue;
            }
            rows.push(Row::new(category, &self.nodes, |n| share(&n.total, i)));
        }
        rows.push(Row::new("closes to", &self.nodes, |n| closure(&n.total)));
        let width = |f: fn(&Row) -> usize| rows.iter().map(f).max().unwrap_or_default();
        let label = width(|r| r.label.chars().count());
        let cell = width(|r| r.cells.iter().map(|c| c.chars().count()).max().unwrap_or(0));
        for row in &rows {
            let _ = write!(out, "  {:<label$}", row.label);
            for text in &row.cells {
                let _ = write!(out, "  {text:>cell$}");
            }
            out.push('\n');
        }
        self.add_regions(&mut out);
        for what in &self.disturbances {
            let _ = writeln!(out, "  not exact: {what}");
        }
        out
    }

    fn add_clock(&self, rows: &mut Vec<Row>) {
        if self.nodes.iter().all(|n| n.clock.is_none()) {
            return;
        }
        let mut row = |label, cell: fn(&dyad_sim_model::report::ClockReport) -> String| {
            rows.push(Row::new(label, &self.nodes, |n| {
                n.clock.as_ref().map_or("-".into(), cell)
            }));
        };
        row("simulated time", |c| time(c.total_ps));
        row("all CPUs halted", |c| time(c.idle_ps));
        row("ahead of others, most", |c| time(c.max_skew_ps));
        row("timer interrupts", |c| grouped(c.timers));
        row("latest of them", |c| time(c.max_late_ps));
    }

    fn add_counts(&self, rows: &mut Vec<Row>) {
        let mut row = |label, cell: fn(&Part) -> String| {
            rows.push(Row::new(label, &self.nodes, |n| cell(&n.total)));
        };
        row("instructions", |p| grouped(p.counters.instructions));
        row("doorbells rung", |p| grouped(p.counters.ipis_sent));
        row("doorbells taken", |p| grouped(p.counters.ipis_received));
        if self.config.level == Level::Count {
            return;
        }
        row("accesses of data", |p| grouped(p.counters.accesses));
        row("L1I hits", |p| grouped(p.counters.l1i_hits));
        row("L1I misses", |p| {
            misses(p.counters.l1i_hits, p.counters.l1i_misses)
        });
        row("L1D hits", |p| grouped(p.counters.l1d_hits));
        row("L1D misses", |p| {
            misses(p.counters.l1d_hits, p.counters.l1d_misses)
        });
        row("L2 hits", |p| grouped(p.counters.l2_hits));
        row("L2 misses", |p| {
            misses(p.counters.l2_hits, p.counters.l2_misses)
        });
        row("L3 hits", |p| grouped(p.counters.l3_hits));
        row("L3 misses", |p| {
            misses(p.counters.l3_hits, p.counters.l3_misses)
        });
        row("from local memory", |p| grouped(p.counters.local));
        row("from remote memory", |p| grouped(p.counters.remote));
        row("forwarded by owner", |p| grouped(p.counters.forwarded));
        row("SnpData", |p| grouped(p.counters.snp_data));
        row("SnpInv", |p| grouped(p.counters.snp_inv));
        row("BISnp", |p| grouped(p.counters.bi_snp));
        row("write-backs", |p| grouped(p.counters.writebacks));
        row("flushes", |p| grouped(p.counters.flushes));
    }

    fn add_regions(&self, out: &mut String) {
        if self.regions.is_empty() {
            return;
        }
        let width = self
            .regions
            .iter()
            .map(|r| r.name.len())
            .max()
            .unwrap_or(0)
            .max(6);
        let _ = writeln!(
            out,
            "  {:<width$} {:>4} {:>8} {:>14} {:>14} {:>10} {:>10} {:>10} {:>10} {:>8} {:>7}  most of it",
            "region",
            "node",
            "passes",
            "cycles",
            "instructions",
            "L1D miss",
            "L2 miss",
            "L3 miss",
            "remote",
            "snoops",
            "closes"
        );
        for part in &self.regions {
            let c = &part.counters;
            let _ = writeln!(
                out,
                "  {:<width$} {:>4} {:>8} {:>14} {:>14} {:>10} {:>10} {:>10} {:>10} {:>8} {:>7}  {}",
                part.name,
                part.node,
                part.passes,
                part.cycles,
                c.instructions,
                c.l1d_misses,
                c.l2_misses,
                c.l3_misses,
                c.remote,
                c.snp_data + c.snp_inv + c.bi_snp,
                closure(part).trim(),
                most(part)
            );
        }
    }
}

struct Row {
    label: String,
    cells: Vec<String>,
}

impl Row {
    fn new(label: &str, nodes: &[NodeOutcome], cell: impl Fn(&NodeOutcome) -> String) -> Row {
        Row {
            label: label.into(),
            cells: nodes.iter().map(cell).collect(),
        }
    }
}

/// A part of the breakdown: cycles, and percent of the time.
fn share(part: &Part, i: usize) -> String {
    let cycles = part.breakdown_cycles.values()[i];
    let percent = percent(part.breakdown_ps.values()[i], part.time_ps);
    format!("{}  {percent:>5.1} %", grouped(cycles))
}

/// The two largest parts of the breakdown.
fn most(part: &Part) -> String {
    let values = part.breakdown_ps.values();
    let mut order: Vec<usize> = (0..Breakdown::NAMES.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(values[i]));
    let shares = order.iter().take(2).filter(|&&i| values[i] > 0);
    let text = |&i: &usize| {
        format!(
            "{} {:.0} %",
            CATEGORIES[i],
            percent(values[i], part.time_ps)
        )
    };
    shares.map(text).collect::<Vec<_>>().join(", ")
}

fn closure(part: &Part) -> String {
    match part.closure_ppm {
        i64::MAX => "never".into(),
        ppm => format!("{:.3} %", ppm as f64 / 10_000.0),
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => part as f64 * 100.0 / whole as f64,
    }
}

/// Misses, and percent of all.
fn misses(hits: u64, misses: u64) -> String {
    let percent = percent(misses, hits + misses);
    format!("{}  {percent:>5.2} %", grouped(misses))
}

/// A number in groups of three digits.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Picoseconds as people read them.
pub fn time(ps: u64) -> String {
    let (unit, one) = [("s", 1e12), ("ms", 1e9), ("us", 1e6), ("ns", 1e3)]
        .into_iter()
        .find(|(_, one)| ps as f64 >= *one)
        .unwrap_or(("ns", 1e3));
    format!("{:.3} {unit}", ps as f64 / one)
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::{machine, outcome};
    use super::*;

    #[test]
    fn the_table_says_what_is_known() {
        let mut o = outcome();
        assert_eq!(o.table(), "");
        o.take(&[Some(machine(0, 4_760_000)), Some(machine(1, 5_000_000_000))]);
        let text = o.table();
        let line = |start: &str| {
            let line = text.lines().find(|l| l.trim_start().starts_with(start));
            let line = line.unwrap_or_else(|| panic!("no {start:?} in:\n{text}"));
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert!(line("simulated:").starts_with(
            "simulated: level timing, shared memory, coherent caches, profile paper-big, \
             l3.size=4MiB, trace "
        ));
        assert_eq!(line("node"), "node 0 x86_64 node 1 aarch64");
        assert_eq!(line("simulated time"), "simulated time 4.760 us 5.000 ms");
        assert_eq!(line("L1D misses"), "L1D misses 10 10.00 % 10 10.00 %");
        assert_eq!(line("cycles"), "cycles 10,000 10,000,000");
        assert_eq!(line("INST"), "INST 5,000 50.0 % 5,000,000 50.0 %");
        assert_eq!(
            line("MEM_REMOTE"),
            "MEM_REMOTE 2,500 25.0 % 2,500,000 25.0 %"
        );
        assert_eq!(line("closes to"), "closes to 0.000 % 0.000 %");
        let region = line("0x8000");
        assert!(
            region.starts_with("0x8000 0 2 5000 7 10 0 0 0 0 0.000 %"),
            "{region}"
        );
        assert!(region.ends_with("INST 100 %"), "{region}");
        assert!(!text.contains("not exact"));
    }

    #[test]
    fn levels_without_caches_have_no_rows_of_caches() {
        let mut o = outcome();
        o.config.level = Level::Count;
        let mut m = machine(0, 10_000);
        m.clock.as_mut().unwrap().handshake_timeouts = 3;
        o.take(&[Some(m)]);
        let text = o.table();
        assert!(!text.contains("L1D hits") && text.contains("instructions"));
        assert!(!text.contains("SNOOP") && !text.contains("  L1 ") && text.contains("IPI"));
        assert!(text.contains("  not exact: node 0: 3 interrupts were not confirmed in time\n"));
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(time(0), "0.000 ns");
        assert_eq!(time(1_500_000), "1.500 us");
        assert_eq!(time(75_000_000_000_000), "75.000 s");
    }
}
