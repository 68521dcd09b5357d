//! Goals for the figures, and whether they are met.

use std::collections::BTreeMap;

use dyad_abi::Isa;

use super::curves::{Chase, Line};
use super::rows::{COST, Key, Phase, Row};
use super::searches::Searches;

/// A goal, and the figure that should meet it.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Name of the figure.
    pub what: String,
    /// The ISA that the figure is measured from, if that matters.
    pub isa: Isa,
    /// The goal as text.
    pub goal: String,
    /// The measured figure.
    pub figure: f64,
    /// Whether the figure meets the goal.
    pub met: bool,
}

fn at_most(what: &str, isa: Isa, figure: f64, most: f64, unit: &str) -> Goal {
    Goal {
        what: what.into(),
        isa,
        goal: format!("at most {most} {unit}"),
        figure,
        met: figure <= most,
    }
}

/// A goal that a figure is near the value of a model.
fn near(what: &str, isa: Isa, figure: f64, model: f64, by: f64) -> Goal {
    Goal {
        what: what.into(),
        isa,
        goal: format!("{model:.1} within {} %", by * 100.0),
        figure,
        met: (figure / model - 1.0).abs() <= by,
    }
}

/// What single rows should be: operation, and the most of instructions and simulated nanoseconds.
const ROWS: [(&str, Option<u64>, Option<f64>); 4] = [
    ("crossing_call_round_trip", Some(1500), Some(6000.0)),
    ("crossing_call_round_trip_reverse", Some(1500), Some(6000.0)),
    ("thread_ping_pong_depth4", None, Some(10_000.0)),
    ("transform_per_frame", Some(60), None),
];

/// By how much, in hundredths, programs may take more instructions because they can migrate.
const MORE: f64 = 3.0;

/// Families of rows that should be linear in the number in their names.
const LINEAR: [(&str, f64); 5] = [
    ("thread_ping_pong_depth_", 0.99),
    ("thread_ping_pong_lookup_depth_", 0.99),
    ("thread_ping_pong_copy_depth_", 0.99),
    ("block_online_", 0.99),
    ("block_offline_", 0.99),
];

/// Searches of graphs with so many edges for each vertex: how many times as fast they should be where
/// the graph lies.
const SEARCHES: [(u32, f64, f64); 4] = [
    (4, 0.0, 1.0),
    (7, 0.0, 1.0),
    (14, 1.05, 1.5),
    (19, 1.05, 1.5),
];

/// All goals of which there are figures.
pub fn goals(
    rows: &BTreeMap<Key, Row>,
    chases: &BTreeMap<Isa, Chase>,
    searches: &BTreeMap<Isa, Searches>,
) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (Key { op, isa }, row) in rows {
        for &(_, instructions, ns) in ROWS.iter().filter(|(name, ..)| name == op) {
            if let (Some(most), Some(found)) = (instructions, row.instructions) {
                goals.push(at_most(op, *isa, found as f64, most as f64, "instructions"));
            }
            if let (Some(most), Some(found)) = (ns, row.sim_ns) {
                goals.push(at_most(op, *isa, found, most, "simulated ns"));
            }
        }
        if ["futex_contended_wake", "remote_fault"].contains(&op.as_str()) {
            for (what, most) in [("messages", 0.0), ("doorbells", 1.0)] {
                if let Some(found) = row.more.get(&format!("{what}_each")) {
                    goals.push(at_most(op, *isa, *found, most, what));
                }
            }
        }
        if let Some(ratio) = row.more.get("ratio").filter(|_| op.starts_with(COST)) {
            let more = (ratio - 1.0) * 100.0;
            goals.push(at_most(op, *isa, more, MORE, "% more instructions"));
        }
        goals.extend(phases(op, *isa, row));
    }
    for isa in Isa::ALL {
        for (family, least) in LINEAR {
            let fit = |f: fn(&Row) -> Option<f64>| {
                let points = rows.iter().filter(|(key, _)| key.isa == isa);
                let points = points.filter_map(|(key, row)| {
                    let n: u32 = key.op.strip_prefix(family)?.parse().ok()?;
                    Some((f64::from(n), f(row)?))
                });
                Line::through(&points.collect::<Vec<_>>())
            };
            for (what, line) in [
                (
                    "instructions",
                    fit(|row| row.instructions.map(|n| n as f64)),
                ),
                ("ns", fit(|row| row.sim_ns)),
            ] {
                goals.extend(line.map(|line| Goal {
                    what: format!("{family}N: {what} are linear"),
                    isa,
                    goal: format!("R2 at least {least}"),
                    figure: line.r2,
                    met: line.r2 >= least,
                }));
            }
        }
    }
    for (&isa, chase) in chases {
        goals.extend(chase_goals(isa, chase));
    }
    for (&isa, searches) in searches {
        goals.extend(search_goals(isa, searches));
    }
    goals
}

fn search_goals(isa: Isa, searches: &Searches) -> Vec<Goal> {
    let graphs = searches.graphs.iter().filter_map(|graph| {
        let (_, least, most) = SEARCHES.into_iter().find(|goal| goal.0 == graph.factor)?;
        let figure = graph.speedup();
        Some(Goal {
            what: format!("bfs_ef_{}: times as fast", graph.factor),
            isa,
            goal: match least > 0.0 {
                true => format!("{least} to {most}"),
                false => format!("below {most}"),
            },
            figure,
            met: figure >= least && figure < most,
        })
    });
    let mut goals: Vec<Goal> = graphs.collect();
    // Between two graphs at least.
    if searches.graphs.len() > 1 {
        let even = searches.break_even.unwrap_or(f64::INFINITY);
        let what = "bfs_ef_N: break-even, edges for each call";
        let model = searches.modelled_break_even;
        goals.push(near(what, isa, even, model, 0.15));
    }
    goals
}

/// Phases by the clock are to be what the repetitions took in which the clock was looked at.
fn phases(op: &str, isa: Isa, row: &Row) -> Option<Goal> {
    // One of a family is enough.
    let whole = row.phased_ns.filter(|_| !op.contains("_depth_"))?;
    let sum: f64 = row.sim_phases.iter().map(|Phase { value, .. }| value).sum();
    let what = format!("{op}: phases together, ns");
    Some(near(&what, isa, sum, whole, 0.01))
}

fn chase_goals(isa: Isa, chase: &Chase) -> Vec<Goal> {
    let model = chase.modelled_break_even;
    let even = chase.break_even.unwrap_or(f64::INFINITY);
    let mut goals = vec![near("pointer_chase: break-even", isa, even, model, 0.15)];
    if let Some(plateau) = chase.plateau {
        let what = "pointer_chase: plateau";
        goals.push(near(what, isa, plateau, chase.modelled_plateau, 0.1));
    }
    let (with, model) = (chase.speedup_with_work, chase.modelled_with_work);
    goals.push(near("pointer_chase: with work", isa, with, model, 0.1));
    // Other work takes the same on both sides, so whichever is faster is so by less.
    let nearer = (with - 1.0).abs() < (chase.speedup - 1.0).abs();
    goals.push(Goal {
        what: "pointer_chase: with work".into(),
        isa,
        goal: format!("nearer to 1 than {:.2}", chase.speedup),
        figure: with,
        met: nearer,
    });
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(instructions: u64, sim_ns: f64) -> Row {
        Row {
            instructions: Some(instructions),
            sim_ns: Some(sim_ns),
            ..Row::default()
        }
    }

    fn key(op: &str) -> Key {
        Key {
            op: op.into(),
            isa: Isa::Aarch64,
        }
    }

    #[test]
    fn goals_are_met_or_missed() {
        let mut rows = BTreeMap::new();
        rows.insert(key("crossing_call_round_trip"), row(1500, 6000.5));
        rows.insert(key("async_ping_pong"), row(9000, 1.0));
        let met = |rows: &_| -> Vec<bool> {
            let goals = goals(rows, &BTreeMap::new(), &BTreeMap::new());
            goals.iter().map(|goal| goal.met).collect()
        };
        assert_eq!(met(&rows), [true, false]);
        let cost = |ratio| Row {
            more: [("ratio".to_string(), ratio)].into(),
            ..row(1, 1.0)
        };
        rows.insert(key("transform_cost_mg"), cost(1.031));
        assert_eq!(met(&rows), [true, false, false]);
        rows.insert(key("transform_cost_mg"), cost(1.029));
        assert_eq!(met(&rows), [true, false, true]);
        rows.remove(&key("transform_cost_mg"));
        let phase = |value| Phase { name: "out", value };
        let mut wrong = row(1, 100.0);
        wrong.phased_ns = Some(100.0);
        wrong.sim_phases = vec![phase(60.0), phase(20.0)];
        rows.insert(key("async_ping_pong"), wrong.clone());
        assert_eq!(met(&rows), [false, true, false]);
        wrong.sim_phases.push(phase(20.5));
        rows.insert(key("async_ping_pong"), wrong);
        assert_eq!(met(&rows), [true, true, false]);
    }

    #[test]
    fn families_are_judged_by_their_fit() {
        let family = |f: fn(f64) -> f64| -> Vec<Goal> {
            let rows = [1, 4, 16, 64].map(|n| {
                let op = format!("thread_ping_pong_depth_{n}");
                (key(&op), row(1, f(f64::from(n))))
            });
            goals(&rows.into(), &BTreeMap::new(), &BTreeMap::new())
        };
        let line = family(|n| 7.0 + 3.0 * n);
        let linear = |goals: &[Goal]| goals.iter().map(|g| g.met).collect::<Vec<_>>();
        // Instructions are all the same here.
        assert_eq!(linear(&line), [true, true]);
        let curve = family(f64::sqrt);
        assert_eq!(linear(&curve), [true, false]);
    }

    #[test]
    fn a_curve_that_is_not_crossed_misses() {
        let chase = Chase {
            modelled_break_even: 100.0,
            ..Chase::default()
        };
        let goals = chase_goals(Isa::X86_64, &chase);
        assert!(!goals[0].met);
        let chase = Chase {
            break_even: Some(114.0),
            ..chase
        };
        assert!(chase_goals(Isa::X86_64, &chase)[0].met);
    }
    #[test]
    fn searches_pay_with_many_edges_only() {
        let isa = Isa::X86_64;
        let mut rows = crate::bench::migration::searches::tests::rows(isa);
        let met = |rows: &_| -> Vec<bool> {
            let searches = Searches::of(rows, isa).unwrap();
            search_goals(isa, &searches).iter().map(|g| g.met).collect()
        };
        assert_eq!(met(&rows), [true; 5]);
        // As slow everywhere as with the fewest edges, and nothing is crossed.
        for row in rows.values_mut() {
            row.sim_ns = row.more.get("stay_ns").map(|ns| ns * 1.2);
        }
        assert_eq!(met(&rows), [true, true, false, false, false]);
        rows.retain(|key, _| key.op == "bfs_ef_4");
        assert_eq!(met(&rows), [true]);
    }
}
