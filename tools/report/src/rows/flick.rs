//! Flick: calls between ISAs.

use serde_json::Value;

use super::read::{ISAS, family, find, list, points, ratio};
use super::{Documents, How, Row};
use crate::figure::Figure;
use crate::measurements::{BFS, CALLS, CHASE, PROCESS};
use crate::number::Reading;

const PAPER: &str = "Flick";

pub const ROWS: &[Row] = &[
    Row {
        id: "FL-T2",
        paper: PAPER,
        title: "An empty call of a function of another ISA",
        says: "10000 calls: from the host and back 18.3 us, from the near-data processor and back 16.9 us; the NX fault is 0.7 us of it, 4 %.",
        ours: "A crossing call and its return, from either ISA and in reverse.",
        how: How::Measured {
            by: &[CALLS],
            read: calls,
            replaced_by: None,
        },
    },
    Row {
        id: "FL-T3",
        paper: PAPER,
        title: "Calls beside other migrations",
        says: "Earlier systems take 430 to 700 us, 23 to 38 times as long; big.LITTLE takes 22 us.",
        ours: "A crossing call beside moves of a thread over messages and of a task over fused kernels, in one system.",
        how: How::Measured {
            by: &[CALLS, PROCESS],
            read: beside_moves,
            replaced_by: None,
        },
    },
    Row {
        id: "FL-F5a",
        paper: PAPER,
        title: "Following a list, by steps for each migration",
        says: "Break-even at 32 steps, in the end 2.6 times as fast, with latencies of 825 and 267 ns. With 500 us or 1 ms more for a migration it never \
               pays early.",
        ours: "Break-even must be where a migration is paid by what a step saves, M / (Lfar - Lnear); the paper's own numbers fit that: \
               18.3 / (.825 - .267) = 32.8.",
        how: How::Measured {
            by: &[CHASE],
            read: chase,
            replaced_by: None,
        },
    },
    Row {
        id: "FL-F5b",
        paper: PAPER,
        title: "The same with 100 us of other work",
        says: "In the end about 2 times as fast.",
        ours: "The curve must be Amdahl's with 100 us, and nearer to 1 than without work.",
        how: How::Measured {
            by: &[CHASE],
            read: with_work,
            replaced_by: None,
        },
    },
    Row {
        id: "FL-T4",
        paper: PAPER,
        title: "Breadth-first search with a call for each vertex",
        says: "Epinions 1.8 s to 2.4 s (0.75 times as fast), Pokec 107.4 to 90.3 (1.19), LiveJournal 240.5 to 220.9 (1.09).",
        ours: "Graphs of Kronecker with 4, 7, 14 and 19 edges for each vertex (quick: 4 and 19), larger than the caches.",
        how: How::Measured {
            by: &[BFS],
            read: searches,
            replaced_by: None,
        },
    },
];

fn row<'a>(documents: &Documents<'a>, measurement: &str, op: &str, isa: &str) -> &'a Value {
    find(
        list(documents.of(measurement), "rows"),
        &[("op", op), ("isa", isa)],
    )
}

fn us(value: &Value) -> Option<f64> {
    value.as_f64().map(|ns| ns / 1000.0)
}

const CALL: &str = "crossing_call_round_trip";
const REVERSE: &str = "crossing_call_round_trip_reverse";

fn calls(documents: &Documents<'_>) -> Reading {
    let mut reading = Reading::default();
    let mut bars = [Vec::new(), Vec::new()];
    for isa in ISAS {
        for ((op, what), bars) in [(CALL, "call"), (REVERSE, "call in reverse")]
            .into_iter()
            .zip(&mut bars)
        {
            let row = row(documents, CALLS, op, isa);
            let time = us(&row["sim_ns"]);
            reading.add(format!("{isa}: {what}"), time, "us");
            reading.add(
                format!("{isa}: {what}, instructions"),
                row["instructions"].as_f64(),
                "",
            );
            bars.push(time);
            let phases = list(row, "phases").iter();
            let phases: Vec<String> = phases
                .map(|p| format!("{} {}", p["name"].as_str().unwrap_or_default(), p["value"]))
                .collect();
            if !phases.is_empty() {
                reading.counts.push(format!(
                    "{what} from {isa}, instructions: {}",
                    phases.join(", ")
                ));
            }
        }
        // The same two nodes: a call in reverse from one is a call that the other side makes.
        let time = |op| row(documents, CALLS, op, isa)["sim_ns"].as_f64();
        reading.add(
            format!("{isa}: in reverse / call"),
            ratio(time(REVERSE), time(CALL)),
            "",
        );
    }
    reading.add("share of the fault", None, "%");
    let labels = ISAS.iter().map(|i| format!("from {i}")).collect();
    let [call, reverse] = bars;
    let figure = Figure::bars("A call and its return", "us", labels);
    reading.figures.push(
        figure
            .with_bars("call", call)
            .with_bars("in reverse", reverse),
    );
    reading
}

fn beside_moves(documents: &Documents<'_>) -> Reading {
    let mut reading = Reading::default();
    let ops = [
        (CALL, "call"),
        ("async_ping_pong", "move of a task"),
        ("remote_fault", "fault on the other node"),
    ];
    let labels = ops.iter().map(|(_, what)| (*what).to_string()).collect();
    let mut figure = Figure::bars("There and back", "us", labels);
    for isa in ISAS {
        let times: Vec<Option<f64>> = ops
            .iter()
            .map(|(op, _)| us(&row(documents, CALLS, op, isa)["sim_ns"]))
            .collect();
        for ((_, what), time) in ops.iter().zip(&times) {
            reading.add(format!("{isa}: {what}"), *time, "us");
        }
        reading.add(
            format!("{isa}: move of a task / call"),
            ratio(times[1], times[0]),
            "",
        );
        figure = figure.with_bars(format!("from {isa}"), times);
    }
    // Moves of both directions have one mean.
    let moves = list(documents.of(PROCESS), "pingpong");
    let one = find(moves, &[("model", "shared"), ("kernels", "multiple")]);
    let there_and_back = us(&one["move_ns"]).map(|us| 2.0 * us);
    reading.add("thread there and back over messages", there_and_back, "us");
    let call = us(&row(documents, CALLS, CALL, "x86_64")["sim_ns"]);
    let times = ratio(there_and_back, call);
    let name = "x86_64: thread there and back over messages / call";
    reading.add(name, times, "");
    reading.figures.push(figure);
    reading
}

fn chase(documents: &Documents<'_>) -> Reading {
    curve(documents, false)
}

fn with_work(documents: &Documents<'_>) -> Reading {
    curve(documents, true)
}

fn curve(documents: &Documents<'_>, work: bool) -> Reading {
    let document = documents.of(CHASE);
    let rows = list(document, "rows");
    let mut reading = Reading::default();
    let title = if work {
        "Speedup with 100 us of other work"
    } else {
        "Speedup of following the list over there"
    };
    let mut figure = Figure::lines(
        title,
        ["steps for each migration", "times as fast"],
        [true, false],
    );
    for isa in ISAS {
        let of = family(rows, "pointer_chase_", isa);
        let (stay, go) = if work {
            ("work_stay_ns", "work_ns")
        } else {
            ("stay_ns", "sim_ns")
        };
        let (stay, go) = (points(&of, stay), points(&of, go));
        let speedup = stay.iter().zip(&go).map(|(a, b)| (a.0, ratio(a.1, b.1)));
        figure = figure.with(format!("from {isa}"), speedup.collect());
        let chase = &document["pointer_chase"][isa];
        let number = |member: &str| chase[member].as_f64();
        let mut add = |what: &str, value, unit| reading.add(format!("{isa}: {what}"), value, unit);
        if work {
            let (with, without) = (number("speedup_with_work"), number("speedup"));
            add("speedup with work", with, "");
            add("speedup without work", without, "");
            add(
                "measured / Amdahl's law",
                ratio(with, number("modelled_with_work")),
                "",
            );
            let distance = |v: Option<f64>| v.map(|v| (v - 1.0).abs());
            add(
                "distance from 1, with work / without",
                ratio(distance(with), distance(without)),
                "",
            );
        } else {
            add(
                "a migration there and back",
                number("migration_ns").map(|ns| ns / 1000.0),
                "us",
            );
            add("a step from here", number("far_ns"), "ns");
            add("a step from there", number("near_ns"), "ns");
            add("break-even", number("break_even"), "steps");
            add(
                "break-even / model",
                ratio(number("break_even"), number("modelled_break_even")),
                "",
            );
            add("plateau", number("plateau"), "");
            add(
                "plateau / model",
                ratio(number("plateau"), number("modelled_plateau")),
                "",
            );
        }
    }
    reading.figures.push(figure);
    reading
}

fn searches(documents: &Documents<'_>) -> Reading {
    let all = &documents.of(BFS)["bfs"];
    let mut reading = Reading::default();
    let axes = ["edges for each vertex", "times as fast"];
    let mut figure = Figure::lines("Search where the graph lies", axes, [false, false]);
    for isa in ISAS {
        let graphs = list(&all[isa], "graphs");
        let points = graphs
            .iter()
            .filter_map(|g| Some((g["factor"].as_f64()?, g["speedup"].as_f64())));
        let points: Vec<(f64, Option<f64>)> = points.collect();
        for factor in [4.0, 7.0, 14.0, 19.0] {
            let speedup = points.iter().find(|p| p.0 == factor).and_then(|p| p.1);
            reading.add(format!("{isa}: speedup at {factor} edges"), speedup, "");
        }
        let of = |member: &str| all[isa][member].as_f64();
        reading.add(format!("{isa}: a call"), of("call_ns"), "ns");
        reading.add(format!("{isa}: an edge from here"), of("far_ns"), "ns");
        reading.add(format!("{isa}: an edge from there"), of("near_ns"), "ns");
        reading.add(
            format!("{isa}: break-even / model"),
            ratio(of("break_even"), of("modelled_break_even")),
            "",
        );
        figure = figure.with(format!("from {isa}"), points);
    }
    reading.figures.push(figure);
    reading
}
