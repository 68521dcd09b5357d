//! The outcome of a simulation as tables for people.

use std::fmt::Write as _;

use dyad_sim_model::config::{Level, Order};
use dyad_sim_model::report::{Breakdown, ClockReport};

use super::outcome::{NodeOutcome, Outcome, Part};

/// Parts of a breakdown that level `count` knows, too.
const OF_COUNT: [&str; 4] = ["inst", "ipi", "msg_wait", "idle"];

/// Regions that get a table each; of more, a line per node has to do.
const TABLES: usize = 4;

impl Outcome {
    /// All of it: a column per node, for the whole run and for every region of interest; lines, if
    /// there are many of those.
    pub fn table(&self) -> String {
        if self.nodes.is_empty() {
            return String::new();
        }
        let mut out = self.title();
        let totals: Vec<&Part> = self.nodes.iter().map(|n| &n.total).collect();
        let mut rows = vec![Row::of(&totals, "", column)];
        self.add_clock(&mut rows);
        self.add_counts(&mut rows, &totals);
        for (label, count) in [
            (
                "accesses to devices",
                (|n| n.devices) as fn(&NodeOutcome) -> u64,
            ),
            ("accesses not placed", |n| n.unknown),
        ] {
            if self.nodes.iter().any(|n| count(n) > 0) {
                let cells = self.nodes.iter().map(|n| grouped(count(n)));
                rows.push(Row::new(label, cells));
            }
        }
        self.add_times(&mut rows, &totals);
        print(&rows, &mut out);
        self.add_regions(&mut out);
        for what in &self.disturbances {
            let _ = writeln!(out, "  not exact: {what}");
        }
        if let Some(report) = &self.sanitizer {
            out.push_str("\nwithout coherent caches:\n");
            out.push_str(&report.table());
        }
        out
    }

    fn title(&self) -> String {
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
        out
    }

    fn add_clock(&self, rows: &mut Vec<Row>) {
        if self.nodes.iter().all(|n| n.clock.is_none()) {
            return;
        }
        let mut row = |label, cell: fn(&ClockReport) -> String| {
            let cells = self.nodes.iter();
            let cells = cells.map(|n| n.clock.as_ref().map_or("-".into(), cell));
            rows.push(Row::new(label, cells));
        };
        row("simulated time", |c| time(c.total_ps));
        row("halted", |c| time(c.idle_ps));
        row("ahead of others, most", |c| time(c.max_skew_ps));
        row("timer interrupts", |c| grouped(c.timers));
        row("latest of them", |c| time(c.max_late_ps));
    }

    fn add_counts(&self, rows: &mut Vec<Row>, parts: &[&Part]) {
        let mut row = |label, cell: fn(&Part) -> String| rows.push(Row::of(parts, label, cell));
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
        row("from the CXL pool", |p| grouped(p.counters.pool));
        row("forwarded by owner", |p| grouped(p.counters.forwarded));
        row("SnpData", |p| grouped(p.counters.snp_data));
        row("SnpInv", |p| grouped(p.counters.snp_inv));
        row("inclusion snoops", |p| grouped(p.counters.inclusion_snoops));
        row("back-invalidations", |p| {
            grouped(p.counters.back_invalidations)
        });
        row("write-backs", |p| grouped(p.counters.writebacks));
        row("flushes", |p| grouped(p.counters.flushes));
        row("traps", |p| grouped(p.counters.traps));
        row("returns", |p| grouped(p.counters.returns));
        row("root switches", |p| grouped(p.counters.root_switches));
        row("TLB invalidations", |p| {
            grouped(p.counters.tlb_invalidations)
        });
        row("fences", |p| grouped(p.counters.fences));
        if self.config.nodes.iter().any(|node| node.tlb.is_on()) {
            row("L2 TLB hits", |p| grouped(p.counters.tlb_l2_hits));
            row("walks", |p| grouped(p.counters.walks));
            row("loads of walks", |p| grouped(p.counters.walk_loads));
            row("stores of walks", |p| grouped(p.counters.walk_stores));
            row("walks unknown", |p| grouped(p.counters.walks_unknown));
        }
    }

    /// Cycles, and where they went.
    fn add_times(&self, rows: &mut Vec<Row>, parts: &[&Part]) {
        // Above the cycles of the parts, which have percents behind them.
        let cycles = |p: &Part| format!("{}         ", grouped(p.cycles));
        rows.push(Row::of(parts, "cycles", cycles));
        for (i, name) in Breakdown::NAMES.iter().enumerate() {
            if self.config.level != Level::Count || OF_COUNT.contains(name) {
                rows.push(Row::of(parts, &name.to_uppercase(), |p| share(p, i)));
            }
        }
        rows.push(Row::of(parts, "closes to", closure));
    }

    fn add_regions(&self, out: &mut String) {
        let regions = || self.regions.chunk_by(|a, b| a.region == b.region);
        if regions().count() > TABLES {
            self.list_regions(out);
            return;
        }
        for region in regions() {
            let parts: Vec<&Part> = region.iter().collect();
            let title = format!("region {}", parts[0].name);
            let mut rows = vec![Row::of(&parts, &title, column)];
            rows.push(Row::of(&parts, "passes", |p| grouped(p.passes)));
            if parts.iter().any(|p| p.moved > 0) {
                let label = "begun on another CPU";
                rows.push(Row::of(&parts, label, |p| grouped(p.moved)));
            }
            self.add_rest(rows, &parts, out);
        }
        // What a thread did that moved is on no CPU alone.
        for all in self.everywhere.chunk_by(|a, b| a.region == b.region) {
            let moved = |p: &&Part| p.region == all[0].region && p.moved > 0;
            if self.regions.iter().any(|p| moved(&p)) {
                let parts: Vec<&Part> = all.iter().collect();
                let title = format!("region {}, all CPUs", parts[0].name);
                let mut rows = vec![Row::of(&parts, &title, column)];
                rows.push(Row::of(&parts, "passes everywhere", |p| grouped(p.passes)));
                self.add_rest(rows, &parts, out);
            }
        }
    }

    fn add_rest(&self, mut rows: Vec<Row>, parts: &[&Part], out: &mut String) {
        rows.push(Row::of(parts, "simulated time", |p| time(p.time_ps)));
        self.add_counts(&mut rows, parts);
        self.add_times(&mut rows, parts);
        print(&rows, out);
    }

    fn list_regions(&self, out: &mut String) {
        let names = self.regions.iter().map(|r| r.name.len());
        let width = names.max().unwrap_or(0).max("region".len());
        let mut line = |cells: [&str; 10], most: &str| {
            let [name, node, passes, numbers @ ..] = cells;
            let _ = write!(out, "  {name:<width$} {node:>4} {passes:>8}");
            for number in numbers {
                let _ = write!(out, " {number:>13}");
            }
            let _ = writeln!(out, "  {most}");
        };
        line(
            [
                "region",
                "node",
                "passes",
                "cycles",
                "instructions",
                "L1D misses",
                "L2 misses",
                "L3 misses",
                "snoops",
                "closes to",
            ],
            "most of it",
        );
        for part in &self.regions {
            let c = &part.counters;
            let snoops = c.snp_data + c.snp_inv + c.inclusion_snoops;
            let numbers = [
                part.cycles,
                c.instructions,
                c.l1d_misses,
                c.l2_misses,
                c.l3_misses,
                snoops,
            ];
            let [cycles, instructions, l1d, l2, l3, snoops] = numbers.map(grouped);
            line(
                [
                    &part.name,
                    &part.node.to_string(),
                    &part.passes.to_string(),
                    &cycles,
                    &instructions,
                    &l1d,
                    &l2,
                    &l3,
                    &snoops,
                    &closure(part),
                ],
                &most(part),
            );
        }
    }
}

struct Row {
    label: String,
    cells: Vec<String>,
}

impl Row {
    fn new(label: &str, cells: impl Iterator<Item = String>) -> Row {
        Row {
            label: label.into(),
            cells: cells.collect(),
        }
    }

    fn of(parts: &[&Part], label: &str, cell: impl Fn(&Part) -> String) -> Row {
        Row::new(label, parts.iter().map(|p| cell(p)))
    }
}

/// Writes rows with their columns below each other.
fn print(rows: &[Row], out: &mut String) {
    let length = |text: &String| text.chars().count();
    let label = rows.iter().map(|r| length(&r.label)).max().unwrap_or(0);
    let cells = rows.iter().flat_map(|r| &r.cells);
    let cell = cells.map(length).max().unwrap_or(0);
    for row in rows {
        let mut line = format!("  {:<label$}", row.label);
        for text in &row.cells {
            let _ = write!(line, "  {text:>cell$}");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// The head of a node's column.
fn column(part: &Part) -> String {
    format!("node {} {}", part.node, part.isa)
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
            Breakdown::NAMES[i].to_uppercase(),
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
        let (_, region) = text.split_once("  region 0x8000").unwrap();
        let line = |start: &str| {
            let line = region.lines().find(|l| l.trim_start().starts_with(start));
            line.unwrap()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(line("passes"), "passes 2 2");
        assert_eq!(line("simulated time"), "simulated time 2.380 us 2.500 ms");
        assert_eq!(line("INST"), "INST 5,000 100.0 % 5,000,000 100.0 %");
        assert!(!text.contains("not exact"));
    }

    #[test]
    fn many_regions_are_listed() {
        let mut o = outcome();
        let mut m = machine(0, 4_760_000);
        let one = m.roi[&0x8000].clone();
        m.roi.extend((0x8001..=0x8004).map(|id| (id, one.clone())));
        o.take(&[Some(m)]);
        let text = o.table();
        let line = text.lines().find(|l| l.starts_with("  0x8004 ")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let expected = "0x8004 0 2 5,000 7 10 0 0 0 0.000 % INST 100 %";
        assert_eq!(words.join(" "), expected);
        assert!(!text.contains("region 0x8000"));
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
