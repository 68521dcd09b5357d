//! Stramash: fused kernels, and the machine pair that they run on.

use serde_json::Value;

use super::read::{find, list, names, ratio};
use super::{Documents, How, Row};
use crate::figure::Figure;
use crate::measurements::{CALIBRATION, COMPARE, HOST, MODELS};
use crate::number::Reading;

const PAPER: &str = "Stramash";

pub const ROWS: &[Row] = &[
    Row {
        id: "ST-T1",
        paper: PAPER,
        title: "Machines",
        says: "Four machines by clock rate: Cortex-A72 at 3.0 GHz, ThunderX2 at 2.0, Xeon E5-2620 at 2.1, Xeon Gold 6230R at 2.1.",
        ours: "Profiles `paper-small` and `paper-big` of the simulator have these rates.",
        how: How::NotMeasured("no command writes the machines of a profile as data"),
    },
    Row {
        id: "ST-T2",
        paper: PAPER,
        title: "Latencies of caches and memory",
        says: "Cycles for L1, L2, L3, local and remote memory: A72 4/9/-/300/780, ThunderX2 4/9/30/300/620, E5-2620 4/12/38/300/640, \
               Gold 6230R 4/14/50/300/640.",
        ours: "A pointer chase through memory of each size pays the constant of the profile for each access, to the last digit.",
        how: How::Measured {
            by: &[CALIBRATION],
            read: latencies,
            replaced_by: None,
        },
    },
    Row {
        id: "ST-F5",
        paper: PAPER,
        title: "Latency of interrupts between processors, small pair",
        says: "A matrix of all pairs of cores.",
        ours: "The simulator charges one configured latency for a doorbell between nodes; ST-T2 checks that a move pays it.",
        how: How::NotMeasured(
            "no command measures a matrix of doorbell latencies between all CPUs",
        ),
    },
    Row {
        id: "ST-F6",
        paper: PAPER,
        title: "Latency of interrupts between processors, large pair",
        says: "A matrix of all pairs of cores, with a mean of about 2 us.",
        ours: "The profile `paper-big` charges 2 us.",
        how: How::NotMeasured(
            "no command measures a matrix of doorbell latencies between all CPUs",
        ),
    },
    Row {
        id: "ST-F7",
        paper: PAPER,
        title: "Simulated cycles against cycles of hardware",
        says: "Against counters of hardware, cycles by instruction counting and by the simulator are always less than 13 % off, about 4 % in the \
               mean, on NPB.",
        ours: "No counters of hardware here. The plugin's count of instructions is compared with QEMU's own, and the user part of NPB with \
               cachegrind on the same program.",
        how: How::Measured {
            by: &[HOST],
            read: host,
            replaced_by: Some(
                "QEMU's own instruction counter and cachegrind, since this machine has no counters of hardware",
            ),
        },
    },
    Row {
        id: "ST-F8",
        paper: PAPER,
        title: "Hit rates against gem5",
        says: "Hit rates of L1I, L1D, L2 and L3 are less than 5 % from those of gem5's MESI_Three_Level on CG, IS, MG and FT.",
        ours: "A naive model on recorded runs must agree to the last access, closed forms to 0.5 %, QEMU's `cache.c` to 0.1 % of the misses.",
        how: How::Measured {
            by: &[MODELS],
            read: models,
            replaced_by: Some(
                "a naive model, closed forms and QEMU's cache.c, since gem5 cannot be built here",
            ),
        },
    },
    Row {
        id: "ST-F9",
        paper: PAPER,
        title: "NPB over fused kernels and over messages, L3 of 4 MiB",
        says: "IS over fused kernels is up to 2.1 times as fast as over messages in shared memory, 2.6 times as over TCP; the fully-shared model is \
               near the program that does not move. CG loses over fused kernels in the models shared and separated.",
        ours: "`alternate`: the thread goes to the other node and back in every iteration. Times of the timed phases in strict order. \
               The quick report has IS of class S in the model shared.",
        how: How::Measured {
            by: &[COMPARE],
            read: times,
            replaced_by: None,
        },
    },
    Row {
        id: "ST-F10",
        paper: PAPER,
        title: "IS and CG with an L3 of 4 and of 32 MiB",
        says: "With 32 MiB the slowdown of CG falls from 34 % to less than 1 %, the gain of IS from 2.1 to 1.6 times.",
        ours: "It needs class A: data of class W fits into 32 MiB.",
        how: How::NotMeasured("the report has no measurement with an L3 of 32 MiB"),
    },
    Row {
        id: "ST-T3",
        paper: PAPER,
        title: "Messages and replicated pages",
        says: "Messages over messages and over fused kernels: IS 207124 and 22, CG 16074 and 34, MG 287672 and 6, FT 164702 and 326. \
               Replicated pages: IS 16918 and 7, CG 5603 and 7, MG 110275 and 9, FT 98787 and 16459.",
        ours: "The runs of ST-F9. Messages about pages over several kernels, messages between the kernels over fused ones.",
        how: How::Measured {
            by: &[COMPARE],
            read: messages,
            replaced_by: None,
        },
    },
    Row {
        id: "ST-F14",
        paper: PAPER,
        title: "Redis",
        says: "10000 requests of 1 KB, relative to TCP: 4 to 10 times over messages in shared memory, up to 12 over fused kernels, \
               without the cache model.",
        ours: "It needs a network.",
        how: How::NotBuilt(
            "there is no network service; absolute factors of 4 to 12 are unreachable with the cache model on, which theirs were not",
        ),
    },
];

/// How far comparisons are apart at most, and how many do not agree.
fn agreement(reading: &mut Reading, checks: &[Value], what: &str, is: impl Fn(&Value) -> bool) {
    let of: Vec<&Value> = checks.iter().filter(|c| is(c)).collect();
    let there = !of.is_empty();
    let wrong = of.iter().filter(|c| c["ok"] != true).count();
    let off = of.iter().filter_map(|c| {
        let (a, b) = (c["measured"].as_f64()?, c["expected"].as_f64()?);
        (c["tolerance"].is_number() && b != 0.0).then(|| ((a - b) / b).abs() * 100.0)
    });
    let off = off.fold(0.0, f64::max);
    reading.add(
        format!("{what}: comparisons"),
        there.then_some(of.len() as f64),
        "",
    );
    reading.add(
        format!("{what}: comparisons that do not agree"),
        there.then_some(wrong as f64),
        "",
    );
    reading.add(
        format!("{what}: largest difference"),
        there.then_some(off),
        "%",
    );
    for check in of.iter().filter(|c| c["ok"] != true).take(5) {
        let name = check["check"].as_str().unwrap_or_default();
        reading.counts.push(match check["failure"].as_str() {
            Some(why) => format!("{name}: {why}"),
            None => format!(
                "{name}: {} instead of {}",
                check["measured"], check["expected"]
            ),
        });
    }
}

fn latencies(documents: &Documents<'_>) -> Reading {
    let mut reading = Reading::default();
    let checks = list(documents.of(CALIBRATION), "checks");
    let has = |check: &Value, part: &str| check["check"].as_str().is_some_and(|c| c.contains(part));
    agreement(&mut reading, checks, "latencies of levels", |c| {
        has(c, ": latency.")
    });
    agreement(&mut reading, checks, "prices of snoops", |c| {
        has(c, "snoop.")
    });
    agreement(&mut reading, checks, "doorbell", |c| has(c, "ipi.latency"));
    for check in checks.iter().filter(|c| has(c, ": latency.")) {
        let name = check["check"].as_str().unwrap_or_default();
        reading.add(name, check["measured"].as_f64(), "cycles");
    }
    reading
}

fn by_group(reading: &mut Reading, document: &Value, groups: &[&str]) {
    let checks = list(document, "checks");
    for group in groups {
        agreement(reading, checks, group, |c| c["group"] == *group);
    }
}

fn host(documents: &Documents<'_>) -> Reading {
    let mut reading = Reading::default();
    by_group(
        &mut reading,
        documents.of(HOST),
        &["instructions", "cachegrind"],
    );
    reading
}

fn models(documents: &Documents<'_>) -> Reading {
    let mut reading = Reading::default();
    let groups = ["naive", "closed-form", "coherence", "contrib"];
    by_group(&mut reading, documents.of(MODELS), &groups);
    reading
}

/// A member of a point.
fn point(points: &[Value], [bench, model, system]: [&str; 3], member: &str) -> Option<f64> {
    let is = [("bench", bench), ("model", model), ("system", system)];
    find(points, &is)[member].as_f64()
}

fn times(documents: &Documents<'_>) -> Reading {
    let document = documents.of(COMPARE);
    let points = list(document, "points");
    let (benches, models) = (names(points, "bench"), names(points, "model"));
    let systems = names(points, "system");
    let mut reading = Reading::default();
    for model in &models {
        let labels = benches.iter().map(|b| (*b).to_string()).collect();
        let title = format!("Time in relation to the program that does not move, {model}");
        let mut figure = Figure::bars(&title, "times vanilla", labels);
        for system in &systems {
            let relative = |bench: &&str| {
                let time = |system| point(points, [bench, model, system], "time_ps");
                ratio(time(system), time("vanilla"))
            };
            figure = figure.with_bars(*system, benches.iter().map(relative).collect());
        }
        reading.figures.push(figure);
    }
    for bench in &benches {
        for model in &models {
            let time = |system| point(points, [bench, model, system], "time_ps");
            let mut add = |what: &str, a, b| {
                reading.add(
                    format!("{bench}, {model}: {what}"),
                    ratio(time(a), time(b)),
                    "",
                );
            };
            add("ring / fused", "ring", "fused");
            add("tcp / fused", "tcp", "fused");
            add("fused / ring", "fused", "ring");
            add("fused / vanilla", "fused", "vanilla");
        }
        // How much a system depends on the memory model, with all models only.
        let ring: Vec<Option<f64>> = models
            .iter()
            .map(|model| point(points, [bench, model, "ring"], "time_ps"))
            .collect();
        if models.len() > 1 {
            let all: Option<Vec<f64>> = ring.into_iter().collect();
            let spread = all.map(|times| {
                let most = times.iter().copied().fold(0.0, f64::max);
                most / times.iter().copied().fold(f64::INFINITY, f64::min)
            });
            reading.add(
                format!("{bench}: ring, slowest / fastest model"),
                spread,
                "",
            );
        }
    }
    let conclusions = list(document, "conclusions").iter();
    let conclusions = conclusions.filter_map(|c| c.as_str().map(Into::into));
    reading.counts.extend(conclusions);
    reading
}

fn messages(documents: &Documents<'_>) -> Reading {
    let points = list(documents.of(COMPARE), "points");
    let mut reading = Reading::default();
    let benches = names(points, "bench");
    // Counts of protocols do not depend on what memory is near.
    let models = names(points, "model");
    let model = models.iter().find(|m| **m == "shared").or(models.first());
    let model = model.copied().unwrap_or_default();
    let mut add = |bench: &str, what: &str, member: &str| {
        let of = |system| point(points, [bench, model, system], member);
        let (ring, fused) = (of("ring"), of("fused"));
        reading.add(format!("{bench}: {what} over ring"), ring, "");
        reading.add(format!("{bench}: {what} over fused kernels"), fused, "");
        let less = ratio(fused, ring).map(|part| (1.0 - part) * 100.0);
        reading.add(format!("{bench}: {what}, less by"), less, "%");
    };
    for bench in &benches {
        add(bench, "messages", "messages");
        add(bench, "pages", "pages_replicated");
    }
    for (what, member) in [
        ("messages", "messages"),
        ("replicated pages", "pages_replicated"),
    ] {
        let labels = benches.iter().map(|b| (*b).to_string()).collect();
        let mut figure = Figure::bars(&format!("Number of {what}, {model}"), what, labels);
        for system in ["ring", "fused"] {
            let of = |bench: &&str| point(points, [bench, model, system], member);
            figure = figure.with_bars(system, benches.iter().map(of).collect());
        }
        reading.figures.push(figure);
    }
    reading
}
