//! Rows: what an operation costs, begun on an ISA.

use std::collections::BTreeMap;
use std::fmt;

use dyad_abi::Isa;
use dyad_sim_model::report::{Spread, WindowReport};

use super::Group;
use super::collect::{Figures, Measure, Ran, Reported, Sides};
use super::curves::{CHASE, Line};

/// Prefix of the names of migrations below frames.
pub(super) const DEPTH: &str = "thread_ping_pong_depth_";
/// The row that is made of those.
pub(super) const PER_FRAME: &str = "transform_per_frame";
/// Prefix of the names of searches, by edges for each vertex.
pub(super) const SEARCH: &str = "bfs_ef_";
/// Prefix of the names of rows for the cost of being able to migrate: only instructions are compared.
pub(super) const COST: &str = "transform_cost_";

/// One interpreted instruction, of which a window has many.
const INSTRUCTION: &str = "interpret_instruction";

/// Operations that there should be figures of, by name, or by how their names begin; and what measures
/// them.
pub const EXPECTED: [(&str, Group); 15] = [
    ("crossing_call_round_trip", Group::Micro),
    ("crossing_call_round_trip_reverse", Group::Micro),
    ("async_ping_pong", Group::Micro),
    ("thread_ping_pong_depth4", Group::Threads),
    (DEPTH, Group::Threads),
    (PER_FRAME, Group::Threads),
    (COST, Group::Cost),
    ("emulate_to_point", Group::Emulation),
    (INSTRUCTION, Group::Interpreting),
    ("remote_fault", Group::Micro),
    ("futex_contended_wake", Group::Futex),
    ("block_online_", Group::Blocks),
    ("block_offline_", Group::Blocks),
    ("pointer_chase_", Group::Chase),
    (SEARCH, Group::Bfs),
];

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The operation.
    pub op: String,
    /// The ISA where the operation begins; for a fault, where it is taken.
    pub isa: Isa,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.op, self.isa)
    }
}

/// A part of an operation, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase<T> {
    /// Name of the part.
    pub name: &'static str,
    /// Cost of the part.
    pub value: T,
}

/// The cost of an operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Instructions of both CPUs together, without waiting.
    pub instructions: Option<u64>,
    /// Passes of its window that are counted, on the side that has fewer.
    pub n: u64,
    /// Passes with an interrupt, on both sides.
    pub interrupted: u64,
    /// Simulated time.
    pub sim_ns: Option<f64>,
    /// Time of the host, without simulation.
    pub host_ns: Option<f64>,
    /// Parts of the instructions; they add up.
    pub phases: Vec<Phase<u64>>,
    /// Simulated time with looks at the clock in between, of repetitions of their own.
    pub phased_ns: Option<f64>,
    /// Parts of that time; they add up to it.
    pub sim_phases: Vec<Phase<f64>>,
    /// More that was reported, for one time of the operation where it is time.
    pub more: BTreeMap<String, f64>,
}

/// Passes of a window.
fn passes(window: &WindowReport) -> u64 {
    window.n + window.interrupted
}

/// Instructions of a pass: the median of those without interrupts if they are the most, otherwise
/// the mean of all.
fn typical(window: &WindowReport) -> Option<u64> {
    match window.instructions {
        Some(Spread { median, .. }) if window.n >= window.interrupted => Some(median),
        _ => window.total.checked_div(passes(window)),
    }
}

impl Sides {
    fn both(&self) -> impl Iterator<Item = &WindowReport> {
        self.home.iter().chain(&self.away)
    }

    /// Instructions of one pass on both sides.
    fn each(&self) -> Option<u64> {
        let sum: Option<u64> = self.both().map(typical).sum();
        sum.filter(|_| self.both().count() > 0)
    }

    /// Before and after the first wait, on both sides, if both have waited.
    fn phases(&self) -> Option<Vec<Phase<u64>>> {
        let parts = |window: &WindowReport| {
            let waited = window.waits?.median > 0;
            let (all, lead) = (window.instructions?.median, window.lead?.median);
            let most = window.n >= window.interrupted;
            (waited && most && all >= lead).then_some((lead, all - lead))
        };
        let (leave, back) = parts(self.home.as_ref()?)?;
        let (leave_away, arrive) = parts(self.away.as_ref()?)?;
        let phase = |(name, value)| Phase { name, value };
        let phases = [
            ("leave", leave),
            ("arrive there", arrive),
            ("leave there", leave_away),
            ("arrive back", back),
        ];
        Some(phases.map(phase).to_vec())
    }
}

/// Instructions of an operation whose parts kernels mark.
fn in_parts(parts: &[WindowReport]) -> Option<u64> {
    let sum: Option<u64> = parts.iter().map(typical).sum();
    sum.filter(|_| !parts.is_empty())
}

fn phases_of(parts: &[WindowReport]) -> Vec<Phase<u64>> {
    let named = ["leave", "there", "arrive back"].into_iter().zip(parts);
    let phase = |(name, window)| {
        Some(Phase {
            name,
            value: typical(window)?,
        })
    };
    named.filter_map(phase).collect()
}

/// Figures that are in a row by themselves.
const KNOWN: [&str; 13] = [
    "slot",
    "kernel_op",
    "kernel_op_away",
    "n",
    "instructions",
    "ns",
    "phased",
    "phased_ns",
    "out_ns",
    "there_ns",
    "back_ns",
    "messages_milli",
    "doorbells_milli",
];

fn row(key: &Key, reported: &Reported) -> Row {
    let windows = &reported.windows;
    // A search is all its passes, and its calls.
    let whole = key.op.starts_with(SEARCH);
    let instructions = match whole {
        true => None,
        false if windows.both().count() == 0 => in_parts(&reported.parts),
        false => windows.each(),
    };
    let phases = match (whole, reported.parts.is_empty()) {
        (true, _) => search(reported).unwrap_or_default(),
        (false, true) => windows.phases().unwrap_or_default(),
        (false, false) => phases_of(&reported.parts),
    };
    let sum = || phases.iter().map(|p| p.value).sum();
    let instructions = match whole && !phases.is_empty() {
        true => Some(sum()),
        false => instructions,
    };
    // Or the program knows them.
    let instructions =
        instructions.or_else(|| reported.figure(Measure::Instructions, "instructions"));
    let passed = || windows.both().chain(&reported.parts);
    let simulated = |what: &str, times| reported.each(Measure::Simulated, what, times);
    let parts = [
        ("out", "out_ns"),
        ("there", "there_ns"),
        ("back", "back_ns"),
    ];
    let sim_phases = parts.iter().filter_map(|&(name, what)| {
        let value = simulated(what, "phased")?;
        Some(Phase { name, value })
    });
    let figures = reported.figures.get(&Measure::Simulated);
    let more = figures.into_iter().flatten();
    let more = more.filter(|(what, _)| !KNOWN.contains(&what.as_str()));
    let more = more.filter_map(|(what, &value)| {
        let value = match what.ends_with("_ns") {
            true => simulated(what, "n")?,
            false => value as f64,
        };
        Some((what.clone(), value))
    });
    let mut row = Row {
        instructions,
        n: passed().map(|w| w.n).min().unwrap_or(0),
        interrupted: passed().map(|w| w.interrupted).sum(),
        sim_ns: simulated("ns", "n"),
        host_ns: reported.each(Measure::Host, "ns", "n"),
        phases,
        phased_ns: simulated("phased_ns", "phased"),
        sim_phases: sim_phases.collect(),
        more: more.collect(),
    };
    for what in ["messages", "doorbells"] {
        if let Some(milli) = reported.figure(Measure::Host, &format!("{what}_milli")) {
            row.more
                .insert(format!("{what}_each"), milli as f64 / 1000.0);
        }
    }
    // Of the run that has counted; it is another number in each.
    if let Some(n) = reported.figure(Measure::Instructions, "interpreted") {
        row.more.insert("interpreted".into(), n as f64);
        if let Some(window) = windows.away.as_ref().filter(|w| n > 0 && passes(w) > 0) {
            let each = window.total as f64 / passes(window) as f64 / n as f64;
            row.more.insert("native_each".into(), each);
            if key.op == INSTRUCTION {
                row.instructions = Some(each.round() as u64);
            }
        }
    }
    if let (Some(&stay), Some(ns)) = (row.more.get("stay_ns"), row.sim_ns.filter(|ns| *ns > 0.0)) {
        row.more.insert("speedup".into(), stay / ns);
    }
    row
}

/// Instructions of a search: of its steps, and of its calls, of which each takes what is typical.
fn search(reported: &Reported) -> Option<Vec<Phase<u64>>> {
    let figure = |what| reported.figure(Measure::Instructions, what);
    let steps: u64 = reported.windows.both().map(|w| w.total).sum();
    let steps = steps.checked_div(figure("n")?).filter(|n| *n > 0)?;
    let calls = figure("calls")? * in_parts(&reported.parts)?;
    let phase = |(name, value)| Phase { name, value };
    Some([("steps", steps), ("calls", calls)].map(phase).to_vec())
}

/// A row of every operation but those that only serve others.
pub fn rows(figures: &Figures) -> BTreeMap<Key, Row> {
    let ops = figures.ops.iter();
    let mut rows: BTreeMap<Key, Row> = ops
        .filter(|(key, _)| key.op != CHASE)
        .map(|(key, reported)| (key.clone(), row(key, reported)))
        .collect();
    rows.extend(
        figures
            .costs
            .iter()
            .map(|(key, ran)| (key.clone(), cost(ran))),
    );
    for isa in Isa::ALL {
        if let Some(row) = per_frame(&rows, isa) {
            let op = PER_FRAME.to_string();
            rows.insert(Key { op, isa }, row);
        }
    }
    rows
}

/// What the pass has made dearer: of the same kernel as a task and as a thread.
fn cost([task, thread]: &[Ran; 2]) -> Row {
    let (before, after) = (task.instructions as f64, thread.instructions as f64);
    let more = [("untransformed", before), ("ratio", after / before)];
    Row {
        instructions: Some(thread.instructions),
        n: thread.passes[0],
        interrupted: thread.passes[1],
        more: more.map(|(what, v)| (what.to_string(), v)).into(),
        ..Row::default()
    }
}

/// What a frame costs: by how much leaving an ISA takes longer with each frame that there is, since
/// the side that is left does it. Of the time, half of what there and back take longer.
fn per_frame(rows: &BTreeMap<Key, Row>, isa: Isa) -> Option<Row> {
    let slope = |f: &dyn Fn(&Row) -> Option<f64>| {
        let points = rows.iter().filter(|(key, _)| key.isa == isa);
        let points = points.filter_map(|(key, row)| {
            let depth: u32 = key.op.strip_prefix(DEPTH)?.parse().ok()?;
            Some((f64::from(depth), f(row)?))
        });
        Line::through(&points.collect::<Vec<_>>()).map(|line| line.slope)
    };
    let leave = slope(&|row| row.phases.first().map(|p| p.value as f64))?;
    Some(Row {
        instructions: Some(leave.max(0.0).round() as u64),
        sim_ns: slope(&|row| row.sim_ns.map(|ns| ns / 2.0)),
        host_ns: slope(&|row| row.host_ns.map(|ns| ns / 2.0)),
        ..Row::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(n: u64, interrupted: u64, median: u64, lead: u64) -> WindowReport {
        let spread = |median| {
            Some(Spread {
                min: median - 1,
                median,
                max: median + 100,
            })
        };
        WindowReport {
            id: 0x8000,
            n,
            interrupted,
            total: (n + interrupted) * (median + 7),
            instructions: spread(median).filter(|_| n > 0),
            lead: spread(lead).filter(|_| n > 0),
            waits: spread(1).filter(|_| n > 0),
            ..WindowReport::default()
        }
    }

    fn reported(home: WindowReport, away: WindowReport) -> Reported {
        let figures = |list: &[(&str, u64)]| {
            let pairs = list.iter().map(|(what, v)| (what.to_string(), *v));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let common = [
            ("n", 4),
            ("ns", 400),
            ("phased", 2),
            ("phased_ns", 212),
            ("out_ns", 100),
            ("there_ns", 20),
            ("back_ns", 90),
            ("stay_ns", 200),
            ("edges", 9),
        ];
        Reported {
            windows: Sides {
                home: Some(home),
                away: Some(away),
            },
            figures: [
                (Measure::Instructions, figures(&[("n", 4)])),
                (Measure::Simulated, figures(&common)),
                (Measure::Host, figures(&[("n", 4), ("ns", 10)])),
            ]
            .into(),
            ..Reported::default()
        }
    }

    fn key(op: &str) -> Key {
        Key {
            op: op.into(),
            isa: Isa::X86_64,
        }
    }

    #[test]
    fn a_row_is_both_sides_and_its_phases_add_up() {
        let both = reported(window(60, 4, 1000, 400), window(63, 1, 900, 500));
        let row = row(&key("async_ping_pong"), &both);
        assert_eq!(row.instructions, Some(1900));
        assert_eq!((row.n, row.interrupted), (60, 5));
        assert_eq!((row.sim_ns, row.host_ns), (Some(100.0), Some(2.5)));
        let phases: Vec<u64> = row.phases.iter().map(|p| p.value).collect();
        assert_eq!(phases, [400, 400, 500, 600]);
        let times: Vec<f64> = row.sim_phases.iter().map(|p| p.value).collect();
        assert_eq!(times, [50.0, 10.0, 45.0]);
        assert_eq!(row.phased_ns, Some(106.0));
        assert!(
            !row.more.contains_key("phased_ns"),
            "of as many as were phased"
        );
        assert_eq!(row.more["stay_ns"], 50.0);
        assert_eq!(row.more["edges"], 9.0);
        assert_eq!(row.more["speedup"], 0.5);
    }

    #[test]
    fn what_interpreting_takes_is_by_the_run_that_has_counted() {
        let mut both = reported(window(60, 4, 1000, 400), window(3, 1, 893, 1));
        both.windows.home = None;
        for (measure, n) in [(Measure::Instructions, 9), (Measure::Simulated, 77)] {
            let figures = both.figures.get_mut(&measure).unwrap();
            figures.insert("interpreted".into(), n);
        }
        let row = row(&key("emulate_to_point"), &both);
        assert_eq!(row.instructions, Some(893));
        assert_eq!(row.more["interpreted"], 9.0);
        assert_eq!(row.more["native_each"], 100.0);
    }

    #[test]
    fn of_an_interpreted_instruction_the_row_has_its_part() {
        let mut reported = reported(window(60, 4, 1000, 400), window(3, 1, 893, 1));
        reported.windows.home = None;
        let counts = [("n", 18), ("ns", 90), ("interpreted", 9)];
        let counts = counts.map(|(what, v)| (what.to_string(), v));
        for measure in [Measure::Instructions, Measure::Simulated] {
            reported.figures.insert(measure, counts.clone().into());
        }
        let row = row(&key(INSTRUCTION), &reported);
        assert_eq!((row.instructions, row.sim_ns), (Some(100), Some(5.0)));
    }

    #[test]
    fn instructions_without_a_window_are_the_programs() {
        let mut reported = Reported::default();
        let counts = [("n", 1), ("ns", 9), ("instructions", 700)];
        let counts = counts.map(|(what, v)| (what.to_string(), v));
        reported
            .figures
            .insert(Measure::Simulated, counts.clone().into());
        let op = "block_offline_8192".to_string();
        let key = Key {
            op,
            isa: Isa::X86_64,
        };
        assert_eq!(row(&key, &reported).instructions, None, "not counted");
        reported
            .figures
            .insert(Measure::Instructions, counts.into());
        let row = row(&key, &reported);
        assert_eq!(row.instructions, Some(700));
        assert_eq!(row.sim_ns, Some(9.0));
        assert!(row.more.is_empty(), "{:?}", row.more);
    }

    #[test]
    fn parts_that_kernels_mark_add_up() {
        let reported = Reported {
            parts: vec![
                window(60, 4, 300, 1),
                window(60, 0, 500, 1),
                window(61, 0, 200, 1),
            ],
            ..Reported::default()
        };
        let row = row(&key("crossing_call_round_trip"), &reported);
        assert_eq!(
            (row.instructions, row.n, row.interrupted),
            (Some(1000), 60, 4)
        );
        let phases: Vec<u64> = row.phases.iter().map(|p| p.value).collect();
        assert_eq!(phases, [300, 500, 200]);
    }

    #[test]
    fn what_is_mostly_interrupted_is_a_mean() {
        let both = reported(window(1, 63, 1000, 400), window(0, 64, 900, 500));
        let row = row(&key("async_ping_pong"), &both);
        assert_eq!(row.instructions, Some(1007 + 907));
        assert!(row.phases.is_empty());
    }

    #[test]
    fn a_search_is_its_steps_and_its_calls() {
        let mut both = reported(WindowReport::default(), window(11, 1, 100, 40));
        both.windows.home = None;
        let figures = both.figures.get_mut(&Measure::Instructions).unwrap();
        figures.extend([("n".into(), 2), ("calls".into(), 10)]);
        both.parts = [300, 500, 200].map(|n| window(10, 0, n, 1)).to_vec();
        let found = row(&key("bfs_ef_4"), &both);
        let phases: Vec<u64> = found.phases.iter().map(|p| p.value).collect();
        assert_eq!(phases, [12 * 107 / 2, 10 * 1000]);
        assert_eq!(found.instructions, Some(12 * 107 / 2 + 10 * 1000));
        both.parts.clear();
        assert_eq!(row(&key("bfs_ef_4"), &both).instructions, None);
    }

    #[test]
    fn a_frame_costs_what_leaving_takes_longer() {
        let mut figures = Figures::default();
        for depth in [1, 4, 16] {
            let home = window(60, 4, 1000 + 52 * depth, 400 + 40 * depth);
            let mut both = reported(home, window(63, 1, 900, 500));
            let ns = |ns| BTreeMap::from([("n".to_string(), 1), ("ns".to_string(), ns)]);
            both.figures
                .insert(Measure::Simulated, ns(5000 + 60 * depth));
            figures.ops.insert(key(&format!("{DEPTH}{depth}")), both);
        }
        let rows = rows(&figures);
        let frame = &rows[&key(PER_FRAME)];
        assert_eq!(frame.instructions, Some(40));
        assert!((frame.sim_ns.unwrap() - 30.0).abs() < 1e-6);
    }

    #[test]
    fn what_migration_costs_is_a_ratio() {
        let ran = |instructions| Ran {
            instructions,
            passes: [5, 1],
        };
        let mut figures = Figures::default();
        let op = format!("{COST}mg");
        figures.costs.insert(key(&op), [ran(2000), ran(2050)]);
        let row = &rows(&figures)[&key(&op)];
        assert_eq!(
            (row.instructions, row.n, row.interrupted),
            (Some(2050), 5, 1)
        );
        assert_eq!(row.more["untransformed"], 2000.0);
        assert!((row.more["ratio"] - 1.025).abs() < 1e-9);
        assert_eq!((row.sim_ns, row.host_ns), (None, None));
    }

    #[test]
    fn what_was_not_reported_is_not_made_up() {
        let row = row(&key("remote_fault"), &Reported::default());
        assert_eq!(row, Row::default());
    }
}
