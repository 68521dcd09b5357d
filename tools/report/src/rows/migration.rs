//! Migration of threads between ISAs (Lyerly and others), and of processes between kernels (Barbalace and others).

use serde_json::Value;

use super::read::{ISAS, family, find, line, list, names, points, ratio, with_values};
use super::{Documents, How, Row};
use crate::figure::Figure;
use crate::measurements::{EMULATION, PROCESS, THREADS};
use crate::number::Reading;

const LYERLY: &str = "Popcorn, migration of threads";
const BARBALACE: &str = "Popcorn, replicated kernels";

pub const ROWS: &[Row] = &[
    Row {
        id: "LY-F2",
        paper: LYERLY,
        title: "Rewriting the stack, by depth",
        says: "On x86 mostly less than 1 ms, on Arm several ms; for frames that are empty, that are looked up, that are copied. Depth in NPB: 3.71 in \
               the mean, 6 at most.",
        ours: "A thread goes there and back below 1 to 64 frames. All three kinds go both ways in every pass; a wrong frame ends the run.",
        how: How::Measured {
            by: &[THREADS],
            read: depth,
            replaced_by: None,
        },
    },
    Row {
        id: "LY-F3",
        paper: LYERLY,
        title: "Cost of the common layout",
        says: "IS and CG, classes A to C, -O0 and -O3: -1.5 to +2.1 % with the aligned layout; +0.156, 0.024 and 0.005 % for TLS.",
        ours: "All programs of this system have the common layout.",
        how: How::NotMeasured("there is no build without the common layout to compare with"),
    },
    Row {
        id: "LY-6.3",
        paper: LYERLY,
        title: "Interpreting up to the next migration point",
        says: "1690 us with IS.A: 1200 to load pages, 400 to start, 60 to translate; about 490 us if it were in the kernel.",
        ours: "A thread is stopped anywhere and its next instructions are interpreted on the other node. Pages are not loaded: memory is shared.",
        how: How::Measured {
            by: &[EMULATION],
            read: emulation,
            replaced_by: None,
        },
    },
    Row {
        id: "LY-6.4",
        paper: LYERLY,
        title: "A thread there and back",
        says: "From x86 to Arm and back 9.2 ms: 1.2 to prepare, 7.7 over there and back, 0.3 to resume; the other way round 8.7 ms. \
               A DSM fault takes 140.9 us on x86 and 80.2 us on Arm.",
        ours: "Moves of a thread over fused kernels and over messages, by their steps.",
        how: How::Measured {
            by: &[PROCESS, THREADS],
            read: there_and_back,
            replaced_by: None,
        },
    },
    Row {
        id: "BA-F2",
        paper: BARBALACE,
        title: "Moving a process, by the size of its heap",
        says: "0.6 ms with sched_setaffinity; 6 ms on demand, messages included.",
        ours: "Pages go before the thread (`ahead`) or when they are touched (`demand`). Frames that the process keeps where no thread of it runs are \
               counted.",
        how: How::Measured {
            by: &[PROCESS],
            read: heap,
            replaced_by: None,
        },
    },
    Row {
        id: "BA-F3",
        paper: BARBALACE,
        title: "Scaling of NPB with MPI",
        says: "1 to 36 cores: replicated kernels are a little slower with many cores and faster with few; clustered kernels are as one SMP kernel.",
        ours: "It needs 1 to 8 nodes of one CPU in simulated time, and EP among the programs.",
        how: How::NotMeasured("no command measures NPB over 1 to 8 nodes yet"),
    },
    Row {
        id: "BA-F4",
        paper: BARBALACE,
        title: "MPI beside OpenMP",
        says: "The same machines with threads that share memory.",
        ours: "As BA-F3.",
        how: How::NotMeasured("no command measures NPB over 1 to 8 nodes yet"),
    },
];

/// Kinds of frames, as rows name them.
const FRAMES: [(&str, &str); 3] = [
    ("empty", "thread_ping_pong_depth_"),
    ("lookup", "thread_ping_pong_lookup_depth_"),
    ("copy", "thread_ping_pong_copy_depth_"),
];

fn depth(documents: &Documents<'_>) -> Reading {
    let rows = list(documents.of(THREADS), "rows");
    let mut reading = Reading::default();
    let axes = ["frames", "us, there and back"];
    let mut figure = Figure::lines("There and back by depth", axes, [true, false]);
    for isa in ISAS {
        let mut deepest = Vec::new();
        for (kind, name) in FRAMES {
            let times = points(&family(rows, name, isa), "sim_ns");
            let fit = line(&with_values(&times));
            reading.add(format!("{isa}, {kind}: R2"), fit.map(|f| f[2]), "");
            reading.add(
                format!("{isa}, {kind}: time of a frame"),
                fit.map(|f| f[1]),
                "ns",
            );
            let four = times.iter().find(|p| p.0 == 4.0).and_then(|p| p.1);
            let four = four.map(|ns| ns / 1000.0);
            reading.add(
                format!("{isa}, {kind}: there and back at depth 4"),
                four,
                "us",
            );
            let instructions = points(&family(rows, name, isa), "instructions");
            deepest.push(instructions.last().and_then(|p| p.1));
            let times = times
                .into_iter()
                .map(|(x, ns)| (x, ns.map(|ns| ns / 1000.0)));
            figure = figure.with(format!("{kind}, {isa}"), times.collect());
        }
        let mut more = |what: &str, a: Option<f64>, b| {
            reading.add(
                format!("{isa}: {what}, instructions at most depth"),
                ratio(a, b),
                "",
            )
        };
        more("copy / lookup", deepest[2], deepest[1]);
        more("lookup / empty", deepest[1], deepest[0]);
        let counts = FRAMES
            .iter()
            .zip(&deepest)
            .filter_map(|((kind, _), n)| Some(format!("{kind} {}", (*n)?)));
        let counts: Vec<String> = counts.collect();
        if !counts.is_empty() {
            reading.counts.push(format!(
                "instructions at most depth from {isa}: {}",
                counts.join(", ")
            ));
        }
    }
    reading.figures.push(figure);
    reading
}

fn emulation(documents: &Documents<'_>) -> Reading {
    let rows = list(documents.of(EMULATION), "rows");
    let mut reading = Reading::default();
    let mut bars = Vec::new();
    for isa in ISAS {
        let row = find(rows, &[("op", "emulate_to_point"), ("isa", isa)]);
        let us = |ns: &Value| ns.as_f64().map(|ns| ns / 1000.0);
        let whole = us(&row["sim_ns"]);
        reading.add(
            format!("{isa}: until the thread runs natively"),
            whole,
            "us",
        );
        reading.add(
            format!("{isa}: instructions interpreted"),
            row["interpreted"].as_f64(),
            "",
        );
        let mut sum = Some(0.0);
        let phases = list(row, "sim_phases");
        for phase in phases {
            let name = phase["name"].as_str().unwrap_or("phase");
            let part = us(&phase["value"]);
            reading.add(format!("{isa}: {name}"), part, "us");
            sum = sum.zip(part).map(|(a, b)| a + b);
        }
        let sum = sum.filter(|_| !phases.is_empty());
        reading.add(
            format!("{isa}: phases / whole"),
            ratio(sum, us(&row["phased_ns"])),
            "",
        );
        // The paper's 1200 us of 1690 are pages that are loaded. With them, ours would take this much.
        let part = whole.map(|us| us / (us + 1200.0));
        reading.add(
            format!("{isa}: whole / (whole + 1200 us of loading pages)"),
            part,
            "",
        );
        bars.push(whole);
    }
    let labels = ISAS.iter().map(|i| format!("from {i}")).collect();
    let figure = Figure::bars("Until the thread runs natively", "us", labels);
    reading.figures.push(figure.with_bars("here", bars));
    reading
}

fn there_and_back(documents: &Documents<'_>) -> Reading {
    let all = list(documents.of(PROCESS), "pingpong");
    let mut reading = Reading::default();
    let mut bars = [Vec::new(), Vec::new()];
    let models = names(all, "model");
    for model in &models {
        let of = |kernels: &str| find(all, &[("model", model), ("kernels", kernels)]);
        let time = |kernels: &str| of(kernels)["move_ns"].as_f64();
        let (multiple, fused) = (time("multiple"), time("fused"));
        reading.add(
            format!("{model}: a move over messages"),
            multiple.map(|ns| ns / 1000.0),
            "us",
        );
        reading.add(
            format!("{model}: a move over fused kernels"),
            fused.map(|ns| ns / 1000.0),
            "us",
        );
        reading.add(
            format!("{model}: fused / messages"),
            ratio(fused, multiple),
            "",
        );
        let steps = of("multiple")["steps_ns"].as_object();
        let sum = steps.map(|s| s.values().filter_map(Value::as_f64).sum::<f64>());
        reading.add(
            format!("{model}: steps / move over messages"),
            ratio(sum, multiple),
            "",
        );
        if let Some(steps) = steps {
            let steps: Vec<String> = steps
                .iter()
                .map(|(name, ns)| format!("{name} {:.0}", ns.as_f64().unwrap_or_default()))
                .collect();
            reading
                .counts
                .push(format!("{model}, over messages, ns: {}", steps.join(", ")));
        }
        for (list, value) in bars.iter_mut().zip([multiple, fused]) {
            list.push(value.map(|ns| ns / 1000.0));
        }
    }
    let labels = models.iter().map(|m| (*m).to_string()).collect();
    let [multiple, fused] = bars;
    let figure = Figure::bars("A move of a thread", "us", labels);
    let figure = figure
        .with_bars("messages", multiple)
        .with_bars("fused", fused);
    reading.figures.push(figure);
    let rows = list(documents.of(THREADS), "rows");
    for isa in ISAS {
        let of = |op: &str| find(rows, &[("op", op), ("isa", isa)]);
        let whole = of("thread_ping_pong_depth4")["sim_ns"].as_f64();
        let frame = of("transform_per_frame")["sim_ns"].as_f64();
        reading.add(
            format!("{isa}: there and back at depth 4"),
            whole.map(|ns| ns / 1000.0),
            "us",
        );
        reading.add(
            format!("{isa}: a frame / there and back"),
            ratio(frame, whole).map(|part| part * 100.0),
            "%",
        );
    }
    reading
}

fn heap(documents: &Documents<'_>) -> Reading {
    let document = documents.of(PROCESS);
    let (moves, lines) = (list(document, "moves"), list(document, "lines"));
    let mut reading = Reading::default();
    for model in names(moves, "model") {
        let fit = |pages: &str, member: &str| {
            find(lines, &[("model", model), ("pages", pages)])[member].as_f64()
        };
        reading.add(format!("{model}: R2 of `ahead`"), fit("ahead", "r2"), "");
        let slopes = ratio(fit("demand", "mib_ns"), fit("ahead", "mib_ns"));
        reading.add(
            format!("{model}: slope of `demand` / `ahead`"),
            slopes.map(|s| s * 100.0),
            "%",
        );
        let title = format!("Time of a move by the heap, {model}");
        let mut figure = Figure::lines(&title, ["MiB", "ms"], [true, true]);
        for pages in ["ahead", "demand"] {
            let of = moves
                .iter()
                .filter(|m| m["model"] == model && m["pages"] == pages);
            let point =
                |m: &Value| Some((m["mib"].as_f64()?, m["move_ns"].as_f64().map(|ns| ns / 1e6)));
            let points: Vec<(f64, Option<f64>)> = of.filter_map(point).collect();
            for (mib, ms) in &points {
                reading.add(format!("{model}, {pages}: {mib} MiB"), *ms, "ms");
            }
            figure = figure.with(pages, points);
        }
        reading.figures.push(figure);
        for one in moves.iter().filter(|m| m["model"] == model) {
            let (mib, pages) = (&one["mib"], one["pages"].as_str().unwrap_or_default());
            let of = |member: &str| one[member].as_f64();
            let shadow = of("frames_left")
                .zip(of("heap_pages"))
                .map(|(left, pages)| left - pages);
            reading.add(
                format!("{model}, {pages}, {mib} MiB: frames left beside the heap"),
                shadow,
                "",
            );
        }
    }
    for one in list(document, "crossovers") {
        let (model, mib) = (one["model"].as_str().unwrap_or_default(), &one["mib"]);
        reading.add(
            format!("{model}, {mib} MiB: `ahead` is faster from this part of the pages on"),
            one["part"].as_f64(),
            "",
        );
    }
    reading
}
