//! The outcome of a run as comma-separated values: a row per node and region of interest.
//!
//! Columns are, in this order: what identifies the row, the settings, what the run was made with
//! ([`Versions::COLUMNS`]), every key of [`crate::sim::keys`] with its value for the node, what was counted, where the time
//! went, and what the program, the services and the kernels have counted. Fields with commas, quotes or line ends are quoted as RFC 4180 has it.

use dyad_abi::service::peer::Kernels;
use dyad_sim_model::config::{Order, SimConfig};
use dyad_sim_model::report::{Breakdown, Counters};

use crate::config::Work;
use crate::launch::RunReport;
use crate::sim::Versions;
use crate::sim::keys::{KEYS, Place};
use crate::sim::outcome::Part;

/// Name and version of the form, in the first column of every row.
pub const SCHEMA: &str = "dyad.run.csv/3";

/// Columns before the versions, which come before the keys.
const HEAD: [&str; 22] = [
    "schema",
    "app",
    "args",
    "ok",
    "failure",
    "nodes",
    "kernels",
    "transport",
    "cpus",
    "mem_local",
    "mem_cxl",
    "sim",
    "model",
    "coherence",
    "profile",
    "order",
    "seed",
    "rounds",
    "node",
    "isa",
    "region",
    "passes",
];
/// Columns between the keys and the counters.
const TIMES: [&str; 5] = [
    "trace_hash",
    "elapsed_ps",
    "time_ps",
    "cycles",
    "closure_ppm",
];

/// The column with the run's counters, as `NAME=VALUE NAME=VALUE`, in the first row of the whole run.
pub const COUNTED: &str = "counters";

/// The value of a counter in a cell of that column.
pub fn counter(cell: &str, name: &str) -> Option<u64> {
    let mut pairs = cell.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.find(|(n, _)| *n == name)?.1.parse().ok()
}

/// The names of all columns.
pub fn header() -> Vec<String> {
    let keys = KEYS
        .iter()
        .filter(|k| !matches!(k.place, Place::Fixed(_)))
        .map(|k| k.name.to_string());
    let breakdown = Breakdown::NAMES.iter().map(|n| format!("{n}_ps"));
    HEAD.iter()
        .chain(&Versions::COLUMNS)
        .map(ToString::to_string)
        .chain(keys)
        .chain(TIMES.iter().map(ToString::to_string))
        .chain(Counters::NAMES.iter().map(ToString::to_string))
        .chain(breakdown)
        .chain([COUNTED.to_string()])
        .collect()
}

/// A row for each node and region; what is not known is empty. A run without results has a row
/// per node too.
pub fn rows(report: &RunReport) -> Vec<Vec<String>> {
    let parts: Vec<&Part> = match &report.simulation {
        Some(outcome) => outcome.parts().collect(),
        None => Vec::new(),
    };
    let silent = (0..report.config.nodes.len())
        .filter(|node| !parts.iter().any(|p| p.node == *node))
        .map(|node| row(report, node, None));
    let mut all: Vec<Vec<String>> = parts
        .iter()
        .map(|part| row(report, part.node, Some(part)))
        .chain(silent)
        .collect();
    // Nodes first, then regions.
    let column = |name: &str| HEAD.iter().position(|h| *h == name).unwrap_or_default();
    let (region, node) = (column("region"), column("node"));
    all.sort_by_key(|r| (r[region] != WHOLE, r[region].clone(), r[node].clone()));
    all
}

/// What column `region` says in rows that are of no region.
pub const WHOLE: &str = "run";

fn row(report: &RunReport, node: usize, part: Option<&Part>) -> Vec<String> {
    let c = &report.config;
    let outcome = report.simulation.as_ref();
    let config = outcome.map(|o| &o.config);
    let (order, seed) = match c.setup.order {
        Order::Parallel => ("parallel", String::new()),
        Order::Strict { seed } => ("strict", seed.to_string()),
    };
    let args = match &c.work {
        Work::App { args, .. } => args.clone(),
        Work::Ktest(names) => names.join(","),
    };
    let names: Vec<&str> = c.nodes.iter().map(|isa| isa.name()).collect();
    // Kernels that share everything send each other no messages.
    let transport = match c.kernels {
        Kernels::Fused => "",
        Kernels::Multiple => c.transport.name(),
    };
    let head = [
        SCHEMA.to_string(),
        c.work_name().to_string(),
        args,
        report.ok().to_string(),
        report.failure().unwrap_or_default(),
        names.join(","),
        c.kernels.name().to_string(),
        transport.to_string(),
        c.cpus.to_string(),
        c.mem_local.to_string(),
        c.mem_cxl.to_string(),
        c.sim.name().to_string(),
        config.map_or("", |c| c.model.name()).to_string(),
        if c.coherent { "coherent" } else { "incoherent" }.to_string(),
        config.map_or("", |c| &c.profile).to_string(),
        order.to_string(),
        seed,
        c.rounds.to_string(),
        node.to_string(),
        c.nodes[node].name().to_string(),
        part.map_or(WHOLE, |p| &p.name).to_string(),
        part.map_or(String::new(), |p| p.passes.to_string()),
    ];
    let mut row: Vec<String> = head.into();
    // A run that was not prepared is of some commit, too.
    let versions = outcome.map_or_else(Versions::of_sources, |o| o.versions.clone());
    row.extend(versions.columns());
    for key in KEYS {
        let value = |config: &SimConfig| match key.place {
            Place::Node(get, _) => key.plain(get(&config.nodes[node])),
            Place::System(get, _) => key.plain(get(config)),
            Place::Fixed(_) => String::new(),
        };
        if !matches!(key.place, Place::Fixed(_)) {
            row.push(config.map_or(String::new(), value));
        }
    }
    let node_outcome = outcome.and_then(|o| o.nodes.iter().find(|n| n.total.node == node));
    let whole = part.is_some_and(|p| p.region.is_none());
    let elapsed = node_outcome.and_then(|n| n.clock).filter(|_| whole);
    row.push(
        outcome
            .and_then(|o| o.trace_hash.clone())
            .unwrap_or_default(),
    );
    row.push(elapsed.map_or(String::new(), |c| c.total_ps.to_string()));
    let number = |get: fn(&Part) -> String| part.map_or(String::new(), get);
    row.push(number(|p| p.time_ps.to_string()));
    row.push(number(|p| p.cycles.to_string()));
    row.push(number(|p| p.closure_ppm.to_string()));
    let numbers = |n: usize, get: fn(&Part) -> Vec<u64>| match part {
        Some(part) => get(part).iter().map(u64::to_string).collect(),
        None => vec![String::new(); n],
    };
    row.extend(numbers(Counters::NAMES.len(), |p| p.counters.values()));
    row.extend(numbers(Breakdown::NAMES.len(), |p| p.breakdown_ps.values()));
    let is_first = node == 0 && part.is_none_or(|p| p.region.is_none());
    let counters = report.counters.iter().filter(|_| is_first);
    let counters: Vec<String> = counters.map(|(name, n)| format!("{name}={n}")).collect();
    row.push(counters.join(" "));
    row
}

/// A row as text, with its line end.
pub fn line(fields: &[String]) -> String {
    let mut writer = csv::WriterBuilder::new()
        .flexible(true)
        .from_writer(Vec::new());
    let written = writer.write_record(fields).map_err(|e| e.to_string());
    let bytes = written.and_then(|()| writer.into_inner().map_err(|e| e.to_string()));
    String::from_utf8(bytes.expect("memory takes all writes")).expect("rows are text")
}

/// The rows of a text in this form.
///
/// # Errors
///
/// If a quoted field does not end.
pub fn parse(text: &str) -> Result<Vec<Vec<String>>, String> {
    // The library takes the end of the text for that of the field.
    if !text.matches('"').count().is_multiple_of(2) {
        return Err("a quoted field does not end".into());
    }
    let rows = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(text.as_bytes())
        .into_deserialize();
    rows.map(|row| row.map_err(|e| e.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{RunConfig, Sim};
    use crate::sim::outcome::tests::{machine, outcome};
    use std::path::PathBuf;

    fn report() -> RunReport {
        let config = RunConfig {
            sim: Sim::Timing,
            ..RunConfig::default()
        };
        RunReport::new(&config, PathBuf::new())
    }

    fn cell<'a>(row: &'a [String], column: &str) -> &'a str {
        let at = header().iter().position(|h| h == column);
        &row[at.unwrap_or_else(|| panic!("no column {column}"))]
    }

    #[test]
    fn there_is_a_row_per_node_and_region() {
        let mut r = report();
        let mut o = outcome();
        o.take(&[Some(machine(0, 4_760_000)), Some(machine(1, 5_000_000))]);
        o.versions = Versions {
            xtask: "1.2.3".into(),
            commit: Some("c0ffee".into()),
            ..Versions::default()
        };
        r.simulation = Some(o);
        let rows = rows(&r);
        let which: Vec<_> = rows
            .iter()
            .map(|r| (cell(r, "region"), cell(r, "node"), cell(r, "passes")))
            .collect();
        let expected = [
            ("run", "0", "1"),
            ("run", "1", "1"),
            ("0x8000", "0", "2"),
            ("0x8000", "1", "2"),
        ];
        assert_eq!(which, expected);
        for row in &rows {
            assert_eq!(row.len(), header().len());
        }
        for (column, value) in [
            ("schema", SCHEMA),
            ("nodes", "x86_64,aarch64"),
            ("kernels", "fused"),
            ("transport", ""),
            ("model", "shared"),
            ("profile", "paper-big"),
            ("order", "parallel"),
            ("seed", ""),
            ("commit", "c0ffee"),
            ("xtask", "1.2.3"),
            ("ghz", "2.0"),
            ("cpi", "1.0"),
            ("l3.size", "4194304"),
            ("latency.remote", "620"),
            ("snoop.forward", "memory"),
            ("ipi.latency", "2000"),
            ("elapsed_ps", "5000000"),
            ("time_ps", "5000000"),
            ("cycles", "10000"),
            ("closure_ppm", "0"),
            ("l1d_misses", "10"),
            ("inst_ps", "2500000"),
        ] {
            assert_eq!(cell(&rows[1], column), value, "{column}");
        }
        assert_eq!(cell(&rows[3], "elapsed_ps"), "");
        let text: String = rows.iter().map(|r| line(r)).collect();
        assert_eq!(parse(&text).unwrap(), rows);
    }

    #[test]
    fn runs_without_results_have_rows_too() {
        let mut r = report();
        r.error = Some(crate::error::Error::Run(
            "it said \"no\", twice\nover".into(),
        ));
        let rows = rows(&r);
        assert_eq!(rows.len(), 2);
        assert_eq!(
            (cell(&rows[1], "ok"), cell(&rows[1], "cycles")),
            ("false", "")
        );
        assert!(!cell(&rows[1], "xtask").is_empty());
        let text = line(&rows[0]);
        assert!(
            text.contains("\"it said \"\"no\"\", twice\nover\""),
            "{text}"
        );
        assert_eq!(parse(&text).unwrap(), [rows[0].clone()]);
    }

    #[test]
    fn columns_have_different_names() {
        let mut names = header();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn damaged_texts_are_noticed() {
        assert!(parse("a,\"b").is_err());
        assert_eq!(parse("a,b\nc").unwrap(), [vec!["a", "b"], vec!["c"]]);
        assert_eq!(parse("").unwrap(), Vec::<Vec<String>>::new());
    }
}
