//! Ch'i: a kernel in shared memory that caches may not keep coherent.

use serde_json::Value;

use super::read::{ISAS, find, list, names, ratio};
use super::{Documents, How, Row};
use crate::figure::Figure;
use crate::measurements::{KERNEL, KV};
use crate::number::Reading;

const PAPER: &str = "Ch'i";

pub const ROWS: &[Row] = &[
    Row {
        id: "CH-F2",
        paper: PAPER,
        title: "Loads with a flush now and then",
        says: "+3 % with 2 cores, -10 % with 4 and a large working set. That is their testbed: context, no bound.",
        ours: "Requests in a second to the store that is read in place, by items and by rounds of quiescence in a second, with caches that are \
               coherent and that are not. The quick report has coherent caches, few items, and more rounds.",
        how: How::Measured {
            by: &[KV],
            read: rounds,
            replaced_by: None,
        },
    },
    Row {
        id: "CH-T2",
        paper: PAPER,
        title: "Operations of the kernel, local and global",
        says: "Mean cycles, local and global: invocation 1392 and 1393 (725 on hardware; Linux 8955), dispatch 260 and 265, asynchronous send 586 and \
               599, map 341 and 820, unmap 450 and 1454, activation of a capability 400 and 916, deactivation 373 and 1054.",
        ours: "Cycles of each operation on objects in local and in fused memory, median and 99th percentile, with coherent caches. Factors of 1.5 to 4 \
               exist only where lines are written back by instructions.",
        how: How::Measured {
            by: &[KERNEL],
            read: operations,
            replaced_by: None,
        },
    },
    Row {
        id: "CH-F3",
        paper: PAPER,
        title: "Latency of a store",
        says: "Gets: in place by a library, then Ch'i, and far above partitions and two-phase commit. Puts: partitions, then Ch'i, then two-phase commit.",
        ours: "Stores `lib` (read in place), `partitioned` and `2pc` on four nodes under YCSB. There is no server in front of `lib`, as Ch'i has one.",
        how: How::Measured {
            by: &[KV],
            read: latency,
            replaced_by: None,
        },
    },
    Row {
        id: "CH-F4",
        paper: PAPER,
        title: "Throughput of a store by the part of puts",
        says: "Partitions stay flat; Ch'i and two-phase commit fall; the library is highest with few puts.",
        ours: "Requests in a second of simulated time; the quick report has 0 and 100 % of puts with few requests.",
        how: How::Measured {
            by: &[KV],
            read: throughput,
            replaced_by: None,
        },
    },
];

/// Operations that only read shared state of the kernel, and those that change it.
const READ_ONLY: [&str; 3] = ["ipc_round_trip", "dispatch", "async_send"];
const CHANGING: [&str; 4] = ["map", "unmap", "cap_activate", "cap_deactivate"];

fn operations(documents: &Documents<'_>) -> Reading {
    let rows = list(documents.of(KERNEL), "rows");
    let mut reading = Reading::default();
    let all = || READ_ONLY.into_iter().chain(CHANGING);
    for isa in ISAS {
        let of =
            |op: &str, memory: &str| find(rows, &[("op", op), ("isa", isa), ("memory", memory)]);
        for op in all() {
            let cycles = |memory: &str, member: &str| of(op, memory)[member].as_f64();
            let kind = if READ_ONLY.contains(&op) {
                "read-only"
            } else {
                "changing"
            };
            let fused = ratio(cycles("fused", "cycles"), cycles("local", "cycles"));
            reading.add(
                format!("{kind}, coherent, {isa}, {op}: global / local"),
                fused,
                "",
            );
            for memory in ["local", "fused"] {
                reading.add(
                    format!("{isa}, {op}, {memory}: median"),
                    cycles(memory, "cycles"),
                    "cycles",
                );
                reading.add(
                    format!("{isa}, {op}, {memory}: 99th percentile"),
                    cycles(memory, "cycles_p99"),
                    "cycles",
                );
                reading.add(
                    format!("samples: {isa}, {op}, {memory}"),
                    cycles(memory, "n"),
                    "",
                );
            }
            let flushes = of(op, "fused")["flushes"].as_f64();
            if let (Some(lines), Some(flushes)) = (of(op, "fused")["fused_lines"].as_f64(), flushes)
            {
                reading.counts.push(format!(
                    "{op} on {isa}: {lines} lines of fused memory, {flushes} flushes"
                ));
            }
        }
        let labels = all().map(Into::into).collect();
        let title = format!("Cycles of operations on {isa}, median");
        let mut figure = Figure::bars(&title, "cycles", labels);
        for memory in ["local", "fused"] {
            let values = all().map(|op| of(op, memory)["cycles"].as_f64());
            figure = figure.with_bars(memory, values.collect());
        }
        reading.figures.push(figure);
    }
    for op in CHANGING {
        reading.add(
            format!("changing, incoherent, {op}: global / local"),
            None,
            "",
        );
    }
    reading
}

const STORES: [&str; 3] = ["lib", "partitioned", "2pc"];

fn mean(rows: &[&Value], load: &str, store: &str, kind: &str) -> Option<f64> {
    let mut of = rows.iter();
    let row = of.find(|row| row["load"] == *load && row["store"] == *store)?;
    row[kind]["mean"].as_f64()
}

/// The rows of each kind of memory.
fn by_caches(rows: &[Value]) -> impl Iterator<Item = (&str, Vec<&Value>)> {
    let kinds = names(rows, "caches").into_iter();
    kinds.map(move |caches| {
        (
            caches,
            rows.iter().filter(|row| row["caches"] == *caches).collect(),
        )
    })
}

fn latency(documents: &Documents<'_>) -> Reading {
    let rows = list(documents.of(KV), "rows");
    let mut reading = Reading::default();
    for (caches, of_caches) in by_caches(rows) {
        for (kind, what) in [("get_ns", "get"), ("put_ns", "put")] {
            let mean = |load: &str, store: &str| mean(&of_caches, load, store, kind);
            // Where the store that is read in place is measured alone, there is nothing to compare.
            let compared =
                |load: &&str| STORES[1..].iter().any(|store| mean(load, store).is_some());
            let loads: Vec<&str> = names(rows, "load").into_iter().filter(compared).collect();
            let title = format!("Mean time of a {what}, {caches} memory");
            let labels = loads.iter().map(|l| (*l).into()).collect();
            let mut figure = Figure::bars(&title, "ns", labels);
            for store in STORES {
                let means = loads.iter().map(|load| mean(load, store));
                figure = figure.with_bars(store, means.collect());
            }
            reading.figures.push(figure);
            for load in &loads {
                for store in STORES {
                    let name = format!("{caches}, {load}, {store}: mean of a {what}");
                    reading.add(name, mean(load, store), "ns");
                }
                for (a, b) in [
                    ("partitioned", "lib"),
                    ("2pc", "lib"),
                    ("2pc", "partitioned"),
                ] {
                    let name = format!("{caches}, {load}, {what}: {a} / {b}");
                    reading.add(name, ratio(mean(load, a), mean(load, b)), "");
                }
            }
        }
    }
    reading
}

/// Throughput by rounds of quiescence.
fn rounds(documents: &Documents<'_>) -> Reading {
    let all = list(documents.of(KV), "rates");
    let mut reading = Reading::default();
    for (caches, rows) in by_caches(all) {
        let mut sets: Vec<u64> = rows
            .iter()
            .filter_map(|row| row["items"].as_u64())
            .collect();
        sets.dedup();
        let axes = ["rounds in a second", "requests in a second"];
        let title = format!("Requests by rounds of quiescence, {caches} memory");
        let mut figure = Figure::lines(&title, axes, [false, true]);
        for items in sets {
            let mut points = Vec::new();
            for row in rows.iter().filter(|row| row["items"] == items) {
                let Some(rate) = row["rounds_per_second"].as_f64() else {
                    continue;
                };
                let at = format!("{caches}, {items} items, {rate} rounds/s");
                let speed = row["per_second"].as_f64();
                reading.add(format!("{at}: requests"), speed, "1/s");
                if rate > 0.0 {
                    let loss = row["loss"].as_f64().map(|part| part * 100.0);
                    reading.add(format!("{at}: loss"), loss, "%");
                    let waits = row["reclaim_ns"]["p99"].as_f64();
                    let reused = row["reclaimed"].as_u64().unwrap_or(0);
                    reading.counts.push(match waits {
                        Some(ns) => format!(
                            "{at}: {reused} blocks were used again, 99 of 100 within {} us",
                            (ns / 1000.0).round()
                        ),
                        None => format!("{at}: no block was used again"),
                    });
                }
                points.push((rate, speed));
            }
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            figure = figure.with(format!("{items} items"), points);
        }
        reading.figures.push(figure);
    }
    reading
}

fn throughput(documents: &Documents<'_>) -> Reading {
    let document = documents.of(KV);
    let mut reading = Reading::default();
    for (caches, rows) in by_caches(list(document, "rows")) {
        of_puts(&mut reading, caches, &rows);
        if let Some(puts) = document["crossover"][caches].as_f64() {
            reading.counts.push(format!(
                "{caches}: partitions answer more requests from {puts} % of puts on"
            ));
        }
    }
    reading
}

/// Requests in a second by the part of puts, in memory of one kind.
fn of_puts(reading: &mut Reading, caches: &str, rows: &[&Value]) {
    let is_swept = |row: &&&Value| row["load"].as_str().is_some_and(|load| load.ends_with('%'));
    if !rows.iter().any(|row| is_swept(&row)) {
        return;
    }
    let axes = ["puts, %", "requests in a second"];
    let mut figure = Figure::lines(
        &format!("Requests in a second by the part of puts, {caches} memory"),
        axes,
        [false, true],
    );
    let points = |store: &str| -> Vec<(f64, Option<f64>)> {
        let of = rows.iter().filter(|r| r["store"] == store);
        let point = |row: &&Value| {
            let load = row["load"].as_str()?.strip_suffix('%')?;
            Some((load.trim().parse().ok()?, row["per_second"].as_f64()))
        };
        let mut all: Vec<(f64, Option<f64>)> = of.filter_map(point).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all
    };
    for store in STORES {
        let all = points(store);
        for (puts, speed) in &all {
            reading.add(
                format!("{caches}, {store}, {puts} % of puts"),
                *speed,
                "1/s",
            );
        }
        figure = figure.with(store, all);
    }
    let first = |store: &str| {
        points(store)
            .into_iter()
            .find(|p| p.0 == 0.0)
            .and_then(|p| p.1)
    };
    reading.add(
        format!("{caches}, 0 % of puts: lib / partitioned"),
        ratio(first("lib"), first("partitioned")),
        "",
    );
    let flat: Option<Vec<f64>> = points("partitioned").into_iter().map(|p| p.1).collect();
    let spread = flat.filter(|all| all.len() > 1).map(|all| {
        let (low, high) = all
            .iter()
            .fold((f64::INFINITY, 0.0_f64), |(a, b), v| (a.min(*v), b.max(*v)));
        (high / low - 1.0) * 100.0
    });
    let name = format!("{caches}, partitioned: spread over the parts of puts");
    reading.add(name, spread, "%");
    for store in ["lib", "2pc"] {
        let all = points(store);
        let last = all.iter().find(|p| p.0 == 100.0).and_then(|p| p.1);
        reading.add(
            format!("{caches}, {store}: 100 % / 0 % of puts"),
            ratio(last, first(store)),
            "",
        );
    }
    reading.figures.push(figure);
}
