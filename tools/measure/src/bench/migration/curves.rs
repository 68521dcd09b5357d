//! Curves: where following a list over there begins to pay, and what is linear in what.

use std::collections::BTreeMap;

use dyad_abi::Isa;
use dyad_sim_model::config::{NodeConfig, SimConfig};

use super::collect::{Figures, Measure};
use super::rows::{Key, Row};

/// The figures that all rows `pointer_chase_N` share.
pub const CHASE: &str = "pointer_chase";

/// A straight line through points, by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Where `x` is 0.
    pub start: f64,
    /// For each step of `x`.
    pub slope: f64,
    /// How much of the differences it explains: 1 if the points lie on it.
    pub r2: f64,
}

impl Line {
    /// Through these points; `None` if they are fewer than three, or all at one place.
    pub fn through(points: &[(f64, f64)]) -> Option<Line> {
        if points.len() < 3 {
            return None;
        }
        let n = points.len() as f64;
        let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
        let (mx, my) = (mean(|p| p.0), mean(|p| p.1));
        let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
            points.iter().map(|&(x, y)| f(x - mx, y - my)).sum()
        };
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        if xx == 0.0 {
            return None;
        }
        let slope = xy / xx;
        // Points of one height lie on their line.
        let r2 = if yy == 0.0 { 1.0 } else { xy * xy / (xx * yy) };
        Some(Line {
            start: my - slope * mx,
            slope,
            r2,
        })
    }
}

/// Following a list on the other side, compared with following it from here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chase {
    /// A migration there and back, in simulated nanoseconds, as are all times.
    pub migration_ns: f64,
    /// A step from here, and from there, measured in one go.
    pub far_ns: f64,
    /// From there.
    pub near_ns: f64,
    /// A step from here by the latencies that were simulated, and the instructions counted.
    pub modelled_far_ns: f64,
    /// From there.
    pub modelled_near_ns: f64,
    /// From how many steps on migrating is faster, by the curves.
    pub break_even: Option<f64>,
    /// The same by the model: the migration, divided by what a step saves.
    pub modelled_break_even: f64,
    /// How much faster a step is there, by the slopes of the curves.
    pub plateau: Option<f64>,
    /// The same by the model.
    pub modelled_plateau: f64,
    /// The most steps between two migrations.
    pub most: f64,
    /// How much faster visits of so many steps are.
    pub speedup: f64,
    /// The same with other work before each visit.
    pub speedup_with_work: f64,
    /// The same by Amdahl's law.
    pub modelled_with_work: f64,
}

/// The rows `pointer_chase_N` of an ISA, by `N`.
fn sweep(rows: &BTreeMap<Key, Row>, isa: Isa) -> Vec<(f64, &Row)> {
    let mut sweep: Vec<(f64, &Row)> = rows
        .iter()
        .filter(|(key, _)| key.isa == isa)
        .filter_map(|(key, row)| {
            let n = key.op.strip_prefix(CHASE)?.strip_prefix('_')?;
            Some((f64::from(n.parse::<u32>().ok()?), row))
        })
        .collect();
    sweep.sort_by(|a, b| a.0.total_cmp(&b.0));
    sweep
}

/// Where the first curve meets the second from above, between the points that were measured.
pub(super) fn crossing(points: &[(f64, f64, f64)]) -> Option<f64> {
    points.windows(2).find_map(|pair| {
        let &[(x0, a0, b0), (x1, a1, b1)] = pair else {
            return None;
        };
        let (before, after) = (a0 - b0, a1 - b1);
        (before > 0.0 && after <= 0.0).then(|| x0 + (x1 - x0) * before / (before - after))
    })
}

impl Chase {
    /// From an ISA, if it was measured.
    pub fn of(figures: &Figures, rows: &BTreeMap<Key, Row>, isa: Isa) -> Option<Chase> {
        let key = Key {
            op: CHASE.into(),
            isa,
        };
        let base = figures.ops.get(&key)?;
        let each = |what, times| base.each(Measure::Simulated, what, times);
        let sweep = sweep(rows, isa);
        let times = |what: &str| -> Option<Vec<(f64, f64, f64)>> {
            let point = |&(n, row): &(f64, &Row)| {
                let own = match what {
                    "stay_ns" => row.sim_ns?,
                    _ => *row.more.get("work_ns")?,
                };
                Some((n, own, *row.more.get(what)?))
            };
            sweep.iter().map(point).collect()
        };
        let (moving, working) = (times("stay_ns")?, times("work_stay_ns")?);
        let (most, busy) = (*moving.last()?, *working.last()?);
        let slope = |f: fn(&(f64, f64, f64)) -> (f64, f64)| {
            Line::through(&moving.iter().map(f).collect::<Vec<_>>()).map(|l| l.slope)
        };
        let plateau = match (slope(|p| (p.0, p.2)), slope(|p| (p.0, p.1))) {
            (Some(far), Some(near)) if near > 0.0 => Some(far / near),
            _ => None,
        };
        let migration_ns = each("ns", "n")?;
        let (far_ns, near_ns) = (each("far_ns", "steps")?, each("near_ns", "steps")?);
        let work = each("works_ns", "works")?;
        let step = instructions_of_step(&sweep);
        let (modelled_far_ns, modelled_near_ns) = modelled(figures.config.as_ref()?, isa, step)?;
        let n = most.0;
        Some(Chase {
            migration_ns,
            far_ns,
            near_ns,
            modelled_far_ns,
            modelled_near_ns,
            break_even: crossing(&moving),
            modelled_break_even: migration_ns / (modelled_far_ns - modelled_near_ns),
            plateau,
            modelled_plateau: modelled_far_ns / modelled_near_ns,
            most: n,
            speedup: most.2 / most.1,
            speedup_with_work: busy.2 / busy.1,
            modelled_with_work: (work + modelled_far_ns * n)
                / (work + migration_ns + modelled_near_ns * n),
        })
    }
}

/// Instructions of a step, by what the rows count.
fn instructions_of_step(sweep: &[(f64, &Row)]) -> f64 {
    let points = sweep
        .iter()
        .filter_map(|&(n, row)| Some((n, row.instructions? as f64)));
    let line = Line::through(&points.collect::<Vec<_>>());
    line.map_or(0.0, |line| line.slope.max(0.0))
}

/// Nanoseconds of a step from here and from there: the latency of memory that is far and near, and
/// the instructions.
fn modelled(config: &SimConfig, isa: Isa, step: f64) -> Option<(f64, f64)> {
    let node = |isa| config.nodes.iter().find(|n| n.isa() == Some(isa));
    let time = |node: &NodeConfig, latency: u64| {
        (latency as f64 * node.cycle_ps as f64 + step * node.instruction_ps() as f64) / 1000.0
    };
    let (home, away) = (node(isa)?, node(isa.other())?);
    let far = time(home, home.latency.remote);
    Some((far, time(away, away.latency.local)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_through_points_that_lie_on_one() {
        let line = Line::through(&[(0.0, 3.0), (1.0, 5.0), (4.0, 11.0)]).unwrap();
        assert!((line.start - 3.0).abs() < 1e-12 && (line.slope - 2.0).abs() < 1e-12);
        assert!((line.r2 - 1.0).abs() < 1e-12);
        let bent = Line::through(&[(0.0, 0.0), (1.0, 5.0), (2.0, 0.0)]).unwrap();
        assert!(bent.r2 < 0.01);
        assert_eq!(Line::through(&[(0.0, 0.0), (1.0, 1.0)]), None);
        assert_eq!(Line::through(&[(1.0, 0.0); 4]), None);
    }

    #[test]
    fn curves_cross_between_points() {
        let points = [(4.0, 110.0, 10.0), (8.0, 60.0, 50.0), (12.0, 70.0, 90.0)];
        let found = crossing(&points).unwrap();
        assert!((found - (8.0 + 4.0 / 3.0)).abs() < 1e-9, "{found}");
        assert_eq!(crossing(&points[..2]), None);
    }

    /// Figures that follow the model give back what it was made of.
    #[test]
    fn the_model_is_recognised() {
        use super::super::collect::Reported;
        let (migration, far, near, work) = (20_000.0, 310.0, 155.0, 100_000.0);
        let isa = Isa::X86_64;
        let mut rows = BTreeMap::new();
        for n in [4, 32, 128, 512, 1024] {
            let steps = f64::from(n);
            let more = [
                ("stay_ns", far * steps),
                ("work_ns", work + migration + near * steps),
                ("work_stay_ns", work + far * steps),
            ];
            let row = Row {
                instructions: Some(10_000 + 3 * n as u64),
                sim_ns: Some(migration + near * steps),
                more: more.map(|(what, v)| (what.to_string(), v)).into(),
                ..Row::default()
            };
            let op = format!("{CHASE}_{n}");
            rows.insert(Key { op, isa }, row);
        }
        let counters = [
            ("n", 1),
            ("ns", 20_000),
            ("steps", 1),
            ("far_ns", 310),
            ("near_ns", 155),
            ("works", 1),
            ("works_ns", 100_000),
        ];
        let counters = counters.map(|(what, v)| (what.to_string(), v));
        let mut figures = Figures::default();
        let reported = Reported {
            figures: [(Measure::Simulated, counters.into())].into(),
            ..Reported::default()
        };
        let op = CHASE.to_string();
        figures.ops.insert(Key { op, isa }, reported);
        assert_eq!(Chase::of(&figures, &rows, isa), None, "nothing simulated");
        let run = dyad_launcher::config::RunConfig {
            sim: dyad_launcher::config::Sim::Timing,
            ..Default::default()
        };
        figures.config = run.simulation().unwrap();
        let chase = Chase::of(&figures, &rows, isa).unwrap();
        // 640 and 300 cycles of 2.1 and 2.0 GHz, and three instructions.
        assert!((chase.modelled_far_ns - 306.0).abs() < 1.0, "{chase:?}");
        assert!((chase.modelled_near_ns - 151.5).abs() < 1.0, "{chase:?}");
        let near = |a: f64, b: f64, by: f64| (a / b - 1.0).abs() < by;
        assert!(near(chase.break_even.unwrap(), 129.0, 0.01), "{chase:?}");
        assert!(near(chase.modelled_break_even, 129.0, 0.02), "{chase:?}");
        assert!(near(chase.plateau.unwrap(), 2.0, 0.001), "{chase:?}");
        assert!(near(chase.modelled_plateau, 2.0, 0.02), "{chase:?}");
        assert!(near(chase.speedup, 1.776, 0.01), "{chase:?}");
        assert!(
            near(chase.speedup_with_work, chase.modelled_with_work, 0.02),
            "{chase:?}"
        );
        assert_eq!(Chase::of(&figures, &rows, Isa::Aarch64), None);
    }
}
