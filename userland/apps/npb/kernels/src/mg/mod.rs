//! MG: solves a Poisson equation on a periodic cube approximately, with V-cycles of the multigrid
//! method.
//!
//! ```text
//!  generate ─▶ warm up ─▶ reset ─▶ residual ─▶ ┌─ restrict ─▶ correct ─▶ refine ─▶ residual ─┐ ─▶ norm
//!                                              └──────────────── × 4 ◀──────────────────────┘
//! ```
//!
//! *Restrict* takes the residual down to the coarsest grid, *correct* solves there and comes back
//! up to the grid before the finest, *refine* corrects the solution itself.

mod grid;
mod source;
mod stencil;

use alloc::format;
use alloc::vec::Vec;

use grid::Grid;
use stencil::{Sums, prolong, residual, restrict, smooth};

use crate::checksum::Fnv;
use crate::kernel::{Cursor, Kernel, Phase, Plan, Verdict, off};
use crate::math::sqrt;

pub use crate::class::Class;

/// Number of V-cycles, in every class here.
pub const ITERATIONS: u32 = 4;
/// How far the norm may be from the official one, relatively.
const EPSILON: f64 = 1e-8;
/// Weights of the smoother, for classes up to A.
const SMOOTHER: [f64; 3] = [-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0];

impl Class {
    /// Level of the finest grid: the logarithm of its points in each direction.
    const fn level(self) -> u32 {
        match self {
            Class::S => 5,
            Class::W => 7,
            Class::A => 8,
        }
    }

    /// Points of the finest grid in each direction.
    pub const fn points(self) -> usize {
        1 << self.level()
    }

    /// The official norm.
    pub const fn residual_norm(self) -> f64 {
        match self {
            Class::S => 0.530_770_700_573_4e-4,
            Class::W => 0.646_732_937_533_9e-5,
            Class::A => 0.243_336_530_906_9e-5,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Generate,
    WarmUp,
    Reset,
    Residual,
    Restrict,
    Correct,
    Refine,
    Norm,
}

impl Step {
    const fn name(self) -> &'static str {
        match self {
            Step::Generate => "generate",
            Step::WarmUp => "warm up",
            Step::Reset => "reset",
            Step::Residual => "residual",
            Step::Restrict => "restrict",
            Step::Correct => "correct",
            Step::Refine => "refine",
            Step::Norm => "norm",
        }
    }
}

static PLAN: Plan<Step> = Plan {
    start: &[Step::Generate, Step::WarmUp, Step::Reset, Step::Residual],
    untimed: 3,
    each: &[Step::Restrict, Step::Correct, Step::Refine, Step::Residual],
    iterations: ITERATIONS,
    end: &[Step::Norm],
};

/// The grids of one run.
#[derive(Clone, Debug)]
pub struct Mg {
    class: Class,
    /// Right-hand side.
    v: Grid,
    /// The solution, and below it corrections; the coarsest first.
    u: Vec<Grid>,
    /// What is left over on each level.
    r: Vec<Grid>,
    sums: Sums,
    cursor: Cursor<Step>,
    norm: Option<f64>,
}

impl Mg {
    /// Grids of zeros.
    pub fn new(class: Class) -> Mg {
        let levels = || (1..=class.level()).map(Grid::new).collect();
        Mg {
            class,
            v: Grid::new(class.level()),
            u: levels(),
            r: levels(),
            sums: Sums::new(class.level()),
            cursor: Cursor::new(&PLAN),
            norm: None,
        }
    }

    /// Root of the mean square of the residual; `None` before the end.
    pub fn norm(&self) -> Option<f64> {
        self.norm
    }

    /// Place of the finest level.
    fn top(&self) -> usize {
        self.u.len() - 1
    }

    fn step(&mut self, step: Step, point: &mut impl FnMut()) {
        match step {
            Step::Generate => source::charge(&mut self.v, point),
            Step::WarmUp => {
                self.residual(point);
                self.restrict(point);
                self.correct(point);
                self.refine(point);
                self.residual(point);
            }
            Step::Reset => self.u.iter_mut().for_each(Grid::clear),
            Step::Residual => self.residual(point),
            Step::Restrict => self.restrict(point),
            Step::Correct => self.correct(point),
            Step::Refine => self.refine(point),
            Step::Norm => self.norm = Some(root_mean_square(&self.r[self.top()])),
        }
    }

    fn residual(&mut self, point: &mut impl FnMut()) {
        let top = self.top();
        let Mg { v, u, r, sums, .. } = self;
        residual(&mut r[top], Some(v), &u[top], sums, point);
    }

    fn restrict(&mut self, point: &mut impl FnMut()) {
        for level in (0..self.top()).rev() {
            let [coarse, fine] = &mut self.r[level..level + 2] else {
                return;
            };
            restrict(coarse, fine, &mut self.sums, point);
        }
    }

    fn correct(&mut self, point: &mut impl FnMut()) {
        let top = self.top();
        let Mg { u, r, sums, .. } = self;
        u[0].clear();
        smooth(&mut u[0], &r[0], SMOOTHER, sums, point);
        for level in 1..top {
            let [coarse, fine] = &mut u[level - 1..=level] else {
                return;
            };
            fine.clear();
            prolong(fine, coarse, sums, point);
            residual(&mut r[level], None, fine, sums, point);
            smooth(fine, &r[level], SMOOTHER, sums, point);
        }
    }

    fn refine(&mut self, point: &mut impl FnMut()) {
        let top = self.top();
        let Mg { v, u, r, sums, .. } = self;
        let [coarse, fine] = &mut u[top - 1..] else {
            return;
        };
        prolong(fine, coarse, sums, point);
        residual(&mut r[top], Some(v), fine, sums, point);
        smooth(fine, &r[top], SMOOTHER, sums, point);
    }
}

fn root_mean_square(grid: &Grid) -> f64 {
    let points = (grid.side() - 2) as f64;
    let inner = grid.inner_rows().flatten();
    let sum = inner.fold(0.0, |sum, x| sum + x * x);
    sqrt(sum / (points * points * points))
}

impl Kernel for Mg {
    fn next(&self) -> Option<Phase> {
        self.cursor.phase(Step::name)
    }

    fn advance(&mut self, point: &mut impl FnMut()) {
        if let Some((step, ..)) = self.cursor.step() {
            self.step(step, point);
            self.cursor.pass();
        }
    }

    fn verify(&self) -> Verdict {
        let expected = self.class.residual_norm();
        let found = self.norm.unwrap_or(f64::NAN);
        Verdict {
            ok: off(found, expected) <= EPSILON,
            detail: format!("norm {found:e}, official {expected:e}"),
        }
    }

    fn checksum(&self) -> u64 {
        let mut sum = Fnv::new();
        let top = self.top();
        for x in self.u[top].points().iter().chain(self.r[top].points()) {
            sum.word(x.to_bits());
        }
        sum.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::run;

    fn finished(class: Class, mut disturb: impl FnMut(&mut Mg, Phase)) -> Mg {
        let mut mg = Mg::new(class);
        while let Some(phase) = mg.next() {
            disturb(&mut mg, phase);
            mg.advance(&mut || ());
        }
        mg
    }

    #[test]
    fn class_s_verifies() {
        let mg = finished(Class::S, |_, _| ());
        assert!(mg.verify().ok, "{:?}", mg.verify());
    }

    #[test]
    fn class_w_verifies() {
        let mg = finished(Class::W, |_, _| ());
        assert!(mg.verify().ok, "{:?}", mg.verify());
    }

    #[test]
    #[cfg_attr(debug_assertions, ignore = "takes long without optimisation")]
    fn class_a_verifies() {
        let mg = finished(Class::A, |_, _| ());
        assert!(mg.verify().ok, "{:?}", mg.verify());
    }

    #[test]
    fn wrong_runs_do_not_verify() {
        // A change of the solution at one point, before the last residual.
        let wrong = finished(Class::S, |mg, phase| {
            if phase.name == "residual" && phase.iteration == ITERATIONS {
                let top = mg.top();
                let at = [7, 8, 9];
                let value = mg.u[top].at(at);
                mg.u[top].set(at, value + 1e-4);
            }
        });
        assert!(!wrong.verify().ok, "{:?}", wrong.verify());
        // A phase is left out.
        for name in ["restrict", "correct", "refine"] {
            let wrong = finished(Class::S, |mg, phase| {
                if phase.name == name && phase.iteration == 3 {
                    mg.cursor.pass();
                }
            });
            assert!(!wrong.verify().ok, "without {name}");
        }
        // Not at the end.
        let mut early = Mg::new(Class::S);
        for _ in 0..19 {
            early.advance(&mut || ());
            assert!(!early.verify().ok);
        }
    }

    #[test]
    fn both_drivers_do_the_same() {
        let (mut phases, mut points) = (0, 0);
        let mut mg = Mg::new(Class::S);
        run(&mut mg, |_| phases += 1, || points += 1);
        assert_eq!(phases, 4 + 4 * 4 + 1);
        assert!(points > 1000, "{points} points inside of phases");
        let same = finished(Class::S, |_, _| ());
        assert_eq!(mg.checksum(), same.checksum());
        assert_ne!(mg.checksum(), Mg::new(Class::S).checksum());
    }
}
