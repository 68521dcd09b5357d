//! Stramash: small programs that show one mechanism each.

use serde_json::Value;

use super::read::{ISAS, family, find, line, list, names, points, ratio, with_values};
use super::{Documents, How, Row};
use crate::figure::Figure;
use crate::measurements::{BLOCKS, FAULTS, PAGES, PROCESS};
use crate::number::Reading;

const PAPER: &str = "Stramash";

pub const ROWS: &[Row] = &[
    Row {
        id: "ST-F11",
        paper: PAPER,
        title: "10 MB in sequence, by pattern",
        says: "Over fused kernels up to 2.5 times as fast as over messages in the model shared, 4.5 times in the model fully-shared, when data \
               comes first. When it has come, messages are as the program that does not move, and fused kernels are slower in the models shared and \
               separated.",
        ours: "2560 pages (quick: 128), patterns of `micro --what pages`; `-nc` is not cold.",
        how: How::Measured {
            by: &[PAGES],
            read: patterns,
            replaced_by: None,
        },
    },
    Row {
        id: "ST-F12",
        paper: PAPER,
        title: "Lines of a page: by messages and through shared memory",
        says: "More than 300 times as long by messages with 1 line, about 2 times with 64. One fixed cost of a fault cannot give both: 300 / 64 is 4.7.",
        ours: "The ratio must be (F + n a) / (b + n r) within 10 % at every n, and fall. Nothing is added to a fault to reach 300. \
               The parts of a fault are measured beside it.",
        how: How::Measured {
            by: &[PAGES, FAULTS],
            read: lines,
            replaced_by: None,
        },
    },
    Row {
        id: "ST-F13",
        paper: PAPER,
        title: "Two threads that wake each other",
        says: "Fused kernels are best: one interrupt takes the place of a protocol.",
        ours: "One thread on each node, by turns.",
        how: How::Measured {
            by: &[PROCESS],
            read: games,
            replaced_by: None,
        },
    },
    Row {
        id: "ST-T4",
        paper: PAPER,
        title: "Blocks of memory, taken out and put to use",
        says: "From 2^15 to 2^20 pages. x86: offline 12.5 to 246.3 ms, online 5.8 to 68.1 ms. Arm: offline 4.8 to 64.4 ms, online 5.8 to 80.9 ms.",
        ours: "Blocks of 32 to 512 MiB (2^13 to 2^17 pages; quick: to 128 MiB), in simulated time.",
        how: How::Measured {
            by: &[BLOCKS],
            read: blocks,
            replaced_by: None,
        },
    },
];

/// Nanoseconds of a page of a pattern, of loads and of the stores that follow.
fn pattern(all: &[Value], [model, system, pattern]: [&str; 3]) -> Option<f64> {
    let is = [("model", model), ("system", system), ("pattern", pattern)];
    find(all, &is)["load_ns"].as_f64()
}

fn patterns(documents: &Documents<'_>) -> Reading {
    let all = list(documents.of(PAGES), "patterns");
    let mut reading = Reading::default();
    let kinds = names(all, "pattern");
    for model in names(all, "model") {
        let labels = kinds.iter().map(|k| (*k).to_string()).collect();
        let title = format!("Loads of a page by pattern, {model}");
        let mut figure = Figure::bars(&title, "ns per page", labels);
        for system in ["ring", "fused"] {
            let values = kinds.iter().map(|k| pattern(all, [model, system, k]));
            figure = figure.with_bars(system, values.collect());
        }
        reading.figures.push(figure);
        for kind in kinds.iter().filter(|k| **k != "vanilla") {
            let of = |system| pattern(all, [model, system, kind]);
            let vanilla = |system| pattern(all, [model, system, "vanilla"]);
            let mut add = |what: &str, value| {
                reading.add(format!("{model}, {kind}: {what}"), value, "");
            };
            add("ring / fused", ratio(of("ring"), of("fused")));
            add("ring / vanilla", ratio(of("ring"), vanilla("ring")));
            add("fused / vanilla", ratio(of("fused"), vanilla("fused")));
        }
    }
    reading
}

fn lines(documents: &Documents<'_>) -> Reading {
    let document = documents.of(PAGES);
    let (all, costs) = (list(document, "lines"), list(document, "costs"));
    let mut reading = Reading::default();
    for model in names(all, "model") {
        let of = |system: &str| -> Vec<(f64, Option<f64>)> {
            let rows = all
                .iter()
                .filter(|r| r["model"] == model && r["system"] == system);
            let point = |row: &Value| Some((row["lines"].as_f64()?, row["load_ns"].as_f64()));
            rows.filter_map(point).collect()
        };
        let (ring, fused) = (of("ring"), of("fused"));
        let cost = |system: &str, part: &str| {
            find(costs, &[("model", model), ("system", system)])[part].as_f64()
        };
        let mut ratios = Vec::new();
        let mut off = 0.0_f64;
        for (n, time) in &ring {
            let shared = fused.iter().find(|p| p.0 == *n).and_then(|p| p.1);
            let measured = ratio(*time, shared);
            reading.add(format!("{model}: ring / fused at {n} lines"), measured, "");
            let by = |system| Some(cost(system, "page_ns")? + n * cost(system, "line_ns")?);
            if let Some(part) = ratio(ratio(by("ring"), by("fused")), measured) {
                off = off.max((part - 1.0).abs() * 100.0);
            }
            ratios.push((*n, measured));
        }
        let there = with_values(&ratios);
        let rises = there
            .windows(2)
            .filter(|pair| pair[1].1 > pair[0].1)
            .count();
        let whole = (there.len() == ratios.len() && there.len() > 1).then_some(());
        reading.add(
            format!("{model}: rises of the ratio"),
            whole.map(|()| rises as f64),
            "",
        );
        reading.add(
            format!("{model}: the formula is off by at most"),
            whole.map(|()| off),
            "%",
        );
        reading.add(
            format!("{model}: F, a page by messages"),
            cost("ring", "page_ns"),
            "ns",
        );
        let title = format!("How many times as long by messages, {model}");
        let axes = ["lines of a page", "ring / fused"];
        let figure = Figure::lines(&title, axes, [true, true]).with("measured", ratios);
        reading.figures.push(figure);
    }
    let rows = list(documents.of(FAULTS), "rows");
    for model in names(rows, "model") {
        for transport in names(rows, "transport") {
            for touch in ["read", "write"] {
                let is = [("model", model), ("transport", transport), ("touch", touch)];
                let row = find(rows, &is);
                let name = format!("fault, {model}, {transport}, {touch}");
                reading.add(&name, row["whole_ns"].as_f64(), "ns");
                if let Some(parts) = row["parts"].as_object() {
                    let parts = parts.iter().map(|(part, ns)| format!("{part} {ns}"));
                    let parts: Vec<String> = parts.collect();
                    reading
                        .counts
                        .push(format!("{name}, ns: {}", parts.join(", ")));
                }
            }
        }
        let whole = |transport: &str| {
            let is = [
                ("model", model),
                ("transport", transport),
                ("touch", "read"),
            ];
            find(rows, &is)["whole_ns"].as_f64()
        };
        let added = whole("tcp")
            .zip(whole("ring"))
            .map(|(a, b)| (a - b) / 1000.0);
        reading.add(format!("fault, {model}: the network adds"), added, "us");
    }
    reading
}

fn games(documents: &Documents<'_>) -> Reading {
    let all = list(documents.of(PROCESS), "games");
    let mut reading = Reading::default();
    for model in names(all, "model") {
        let of = |kernels: &str| -> Vec<&Value> {
            let rows = all
                .iter()
                .filter(|r| r["model"] == model && r["kernels"] == kernels);
            rows.collect()
        };
        let title = format!("Time of a game, {model}");
        let mut figure = Figure::lines(&title, ["turns", "us"], [false, false]);
        let mut slopes = Vec::new();
        for kernels in ["multiple", "fused"] {
            let rows = of(kernels);
            let points: Vec<(f64, Option<f64>)> = rows
                .iter()
                .filter_map(|r| {
                    Some((r["turns"].as_f64()?, r["ns"].as_f64().map(|ns| ns / 1000.0)))
                })
                .collect();
            let fit = line(&with_values(&points));
            let sum = |member: &str| {
                let all: Option<Vec<f64>> = rows.iter().map(|r| r[member].as_f64()).collect();
                all.filter(|all| !all.is_empty())
                    .map(|all| all.iter().sum::<f64>())
            };
            let wakes = sum("wakes");
            let bells = rows.first().and_then(|r| r["doorbells_of_run"].as_f64());
            let mut add = |what: &str, value, unit| {
                reading.add(format!("{model}, {kernels}: {what}"), value, unit);
            };
            add("time of a turn", fit.map(|f| f[1]), "us");
            add("R2", fit.map(|f| f[2]), "");
            add("messages of a wake-up", ratio(sum("messages"), wakes), "");
            add("doorbells of a wake-up", ratio(bells, wakes), "");
            if let (Some(wakes), Some(messages), Some(bells)) = (wakes, sum("messages"), bells) {
                reading.counts.push(format!(
                    "{model}, {kernels}: {wakes} wake-ups, {messages} messages, {bells} doorbells"
                ));
            }
            slopes.push(fit.map(|f| f[1]));
            figure = figure.with(kernels, points);
        }
        let longer = ratio(slopes[0], slopes[1]);
        reading.add(
            format!("{model}: multiple / fused, time of a turn"),
            longer,
            "",
        );
        reading.figures.push(figure);
    }
    reading
}

fn blocks(documents: &Documents<'_>) -> Reading {
    let rows = list(documents.of(BLOCKS), "rows");
    let mut reading = Reading::default();
    let mut figure = Figure::lines("Blocks by size", ["pages", "ms"], [true, true]);
    for isa in ISAS {
        let mut slopes = Vec::new();
        for what in ["offline", "online"] {
            let points = points(&family(rows, &format!("block_{what}_"), isa), "sim_ns");
            let points: Vec<(f64, Option<f64>)> = points
                .into_iter()
                .map(|(x, ns)| (x, ns.map(|ns| ns / 1e6)))
                .collect();
            let fit = line(&with_values(&points));
            reading.add(format!("{isa}, {what}: R2"), fit.map(|f| f[2]), "");
            for (size, ms) in &points {
                reading.add(format!("{isa}, {what}: {size} pages"), *ms, "ms");
            }
            slopes.push(fit.map(|f| f[1]));
            figure = figure.with(format!("{what}, {isa}"), points);
        }
        let part = ratio(slopes[0], slopes[1]);
        reading.add(format!("{isa}: offline / online, slopes"), part, "");
    }
    reading.figures.push(figure);
    reading
}
