//! A run of CG, phase by phase.

use alloc::format;
use alloc::vec::Vec;

use super::{Cg, Class, ITERATIONS, Step};
use crate::checksum::Fnv;
use crate::kernel::{Cursor, Kernel, Phase, Plan, Verdict};

#[derive(Clone, Copy, Debug)]
enum Part {
    WarmUp,
    Reset,
    Solve,
    Estimate,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Part::WarmUp => "warm up",
            Part::Reset => "reset",
            Part::Solve => "solve",
            Part::Estimate => "estimate",
        }
    }
}

static PLAN: Plan<Part> = Plan {
    start: &[Part::WarmUp, Part::Reset],
    untimed: 2,
    each: &[Part::Solve, Part::Estimate],
    iterations: ITERATIONS,
    end: &[],
};

/// A run: each iteration solves a linear system in one phase and makes an estimate in another.
#[derive(Clone, Debug)]
pub struct Run {
    cg: Cg,
    cursor: Cursor<Part>,
    steps: Vec<Step>,
}

impl Run {
    /// Makes the matrix.
    pub fn new(class: Class) -> Run {
        Run {
            cg: Cg::generate(class),
            cursor: Cursor::new(&PLAN),
            steps: Vec::with_capacity(ITERATIONS as usize),
        }
    }

    /// The matrix and vectors.
    pub fn cg(&self) -> &Cg {
        &self.cg
    }

    /// What the iterations so far have given.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

impl Kernel for Run {
    fn next(&self) -> Option<Phase> {
        self.cursor.phase(Part::name)
    }

    fn advance(&mut self, point: &mut impl FnMut()) {
        let Some((part, ..)) = self.cursor.step() else {
            return;
        };
        match part {
            Part::WarmUp => {
                self.cg.solve(point);
                self.cg.estimate();
            }
            Part::Reset => self.cg.reset(),
            Part::Solve => self.cg.solve(point),
            Part::Estimate => {
                let step = self.cg.estimate();
                self.steps.push(step);
            }
        }
        self.cursor.pass();
    }

    fn verify(&self) -> Verdict {
        match self.cg.verify() {
            Ok(zeta) => Verdict {
                ok: true,
                detail: format!("zeta {zeta}"),
            },
            Err(e) => Verdict {
                ok: false,
                detail: format!("{e}"),
            },
        }
    }

    fn checksum(&self) -> u64 {
        let mut sum = Fnv::new();
        for step in &self.steps {
            sum.word(step.residual.to_bits());
            sum.word(step.zeta.to_bits());
        }
        for x in &self.cg.x {
            sum.word(x.to_bits());
        }
        sum.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::run;

    #[test]
    fn runs_verify_and_do_what_iterations_do() {
        let mut whole = Run::new(Class::S);
        assert!(!whole.verify().ok);
        let (mut phases, mut points) = (0, 0);
        run(&mut whole, |_| phases += 1, || points += 1);
        assert!(whole.verify().ok, "{:?}", whole.verify());
        assert_eq!(phases, 32);
        assert!(points >= 16 * 25, "{points}");
        let mut cg = Cg::generate(Class::S);
        let steps: Vec<Step> = (0..ITERATIONS).map(|_| cg.iterate()).collect();
        assert_eq!(steps, whole.steps());
    }

    #[test]
    fn phases_that_are_left_out_are_seen() {
        let mut wrong = Run::new(Class::S);
        while let Some(phase) = wrong.next() {
            // Not less: the method has long converged at the end.
            if phase.name == "solve" && phase.iteration > 4 {
                wrong.cursor.pass();
            }
            wrong.advance(&mut || ());
        }
        assert!(!wrong.verify().ok, "{:?}", wrong.verify());
    }
}
