//! Rows of this system, which no paper has.

use serde_json::Value;

use super::read::{ISAS, find, list, names, ratio};
use super::{Documents, How, Row};
use crate::figure::{Figure, Series};
use crate::measurements::{KERNEL, QUIESCENCE, SPEED};
use crate::number::Reading;
use crate::show::shown;

const PAPER: &str = "this system";

pub const ROWS: &[Row] = &[
    Row {
        id: "N-SPEED",
        paper: PAPER,
        title: "Speed of the simulator beside QEMU's cache model",
        says: "Stramash gives no speed; its model calls back for each instruction.",
        ours: "The same programs with each level of simulation and with QEMU's `cache.c`, in rounds. Time of this host: it varies, so the median of ratios \
               within a round counts.",
        how: How::Measured {
            by: &[SPEED],
            read: speed,
            replaced_by: None,
        },
    },
    Row {
        id: "N-KERNEL",
        paper: PAPER,
        title: "Instructions of operations beside seL4",
        says: "seL4 and Linux, counted in the same emulator.",
        ours: "Objects in local memory; medians of at least 32 passes without an interrupt.",
        how: How::Measured {
            by: &[KERNEL],
            read: instructions,
            replaced_by: None,
        },
    },
    Row {
        id: "N-QUIESCENCE",
        paper: PAPER,
        title: "Steps of quiescence by the size of memory",
        says: "Ch'i flushes lines that were accessed; how long a round takes by memory is not told.",
        ours: "Steps until what was given up can be used again, with pools of different sizes.",
        how: How::Measured {
            by: &[QUIESCENCE],
            read: quiescence,
            replaced_by: None,
        },
    },
    Row {
        id: "N-DETERMINISM",
        paper: PAPER,
        title: "The same run twice",
        says: "The artifact of Stramash has no order between its machines.",
        ours: "Runs in strict order repeat to the cycle.",
        how: How::NotMeasured("the report does not repeat points yet"),
    },
    Row {
        id: "N-ADAPTIVE",
        paper: PAPER,
        title: "Sharing and moving pages by what accesses cost",
        says: "No paper has a system that chooses.",
        ours: "At most 1.00 of messages, and 1.02 of the better of both, on each kernel of NPB.",
        how: How::NotMeasured("`bench compare` has no adaptive system"),
    },
    Row {
        id: "N-KILLS",
        paper: PAPER,
        title: "Nodes that die",
        says: "No paper survives a kernel that dies.",
        ours: "Programs of the survivors go on.",
        how: How::NotMeasured("no command writes how many kills were survived"),
    },
];

fn speed(documents: &Documents<'_>) -> Reading {
    let document = documents.of(SPEED);
    let rows = list(document, "rows");
    let goals = list(document, "goals");
    let mut reading = Reading::default();
    let missed = goals.iter().filter(|g| g["met"] != true).count();
    let there = (!goals.is_empty()).then_some(());
    reading.add("goals", there.map(|()| goals.len() as f64), "");
    reading.add("goals that are missed", there.map(|()| missed as f64), "");
    for goal in goals.iter().filter(|g| g["met"] != true) {
        let text = goal["goal"].as_str().unwrap_or_default();
        let measured = goal["measured"].as_f64().map_or("-".into(), shown);
        reading.counts.push(format!("{text}: {measured}"));
    }
    for isa in ISAS {
        let of: Vec<Value> = rows.iter().filter(|r| r["isa"] == isa).cloned().collect();
        let workloads = names(&of, "workload");
        let labels = workloads.iter().map(|w| (*w).to_string()).collect();
        let title = format!("How many times as slow as the plain machine, {isa}");
        let mut figure = Figure::bars(&title, "times", labels);
        for level in names(&of, "level").into_iter().filter(|l| *l != "plain") {
            let value = |w: &&str| {
                find(&of, &[("workload", w), ("level", level)])["slowdown_median"].as_f64()
            };
            figure = figure.with_bars(level, workloads.iter().map(value).collect());
        }
        reading.figures.push(figure);
    }
    reading
}

fn instructions(documents: &Documents<'_>) -> Reading {
    let rows = list(documents.of(KERNEL), "rows");
    let mut reading = Reading::default();
    let mut all_goals = 0;
    let mut missed = 0;
    for isa in ISAS {
        let of = rows
            .iter()
            .filter(|r| r["isa"] == isa && r["memory"] == "local");
        let (mut labels, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for row in of {
            let op = row["op"].as_str().unwrap_or_default();
            let count = row["instructions"].as_f64();
            if let Some(goal) = row["goal"].as_f64() {
                all_goals += 1;
                if count.is_none_or(|n| n > goal) {
                    missed += 1;
                    let count = count.map_or("-".into(), shown);
                    reading
                        .counts
                        .push(format!("{op} on {isa}: {count} instructions, goal {goal}"));
                }
            }
            let Some(sel4) = row["sel4"].as_f64() else {
                continue;
            };
            reading.add(format!("{isa}, {op}"), count, "instructions");
            reading.add(
                format!("{isa}, {op}: of seL4's"),
                ratio(count, Some(sel4)),
                "",
            );
            labels.push(op.to_string());
            ours.push(count);
            theirs.push(Some(sel4));
        }
        let title = format!("Instructions of an operation on {isa}");
        let figure = Figure::bars(&title, "instructions", labels);
        reading
            .figures
            .push(figure.with_bars("here", ours).with_bars("seL4", theirs));
    }
    reading.add(
        "goals that are missed",
        (all_goals > 0).then_some(f64::from(missed)),
        "",
    );
    reading
}

fn quiescence(documents: &Documents<'_>) -> Reading {
    let rows = list(documents.of(QUIESCENCE), "rows");
    let mut reading = Reading::default();
    let mut figure = Figure::lines(
        "Steps by the size of each pool",
        ["MiB", "steps"],
        [true, false],
    );
    // Rows that differ in the pool only.
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let text = |member: &str| row[member].as_str().unwrap_or_default();
        let name = format!(
            "{}, {}, {} lines",
            text("coherence"),
            text("isa"),
            row["lines"]
        );
        let Some(pool) = row["pool"].as_f64() else {
            continue;
        };
        let point = (pool / f64::from(1 << 20), row["steps"].as_f64());
        match series.iter_mut().find(|s| s.name == name) {
            Some(of) => of.points.push(point),
            None => series.push(Series {
                name,
                points: vec![point],
            }),
        }
    }
    let mut spread = (!series.is_empty()).then_some(0.0_f64);
    for Series { name, points } in series {
        let steps: Option<Vec<f64>> = points.iter().map(|p| p.1).collect();
        let differ = steps.filter(|s| s.len() > 1).map(|steps| {
            let (low, high) = steps
                .iter()
                .fold((f64::INFINITY, 0.0_f64), |(a, b), v| (a.min(*v), b.max(*v)));
            high - low
        });
        spread = spread.zip(differ).map(|(a, b)| a.max(b));
        for (pool, steps) in &points {
            reading.add(format!("{name}, {pool} MiB"), *steps, "steps");
        }
        if figure.series.len() < 6 {
            figure = figure.with(name, points);
        }
    }
    reading.add("steps that differ between sizes of pools", spread, "");
    reading.figures.push(figure);
    reading
}
