//! CG: estimates the smallest eigenvalue of a large sparse matrix by inverse iteration, each step
//! of which solves a linear system with the method of conjugate gradients.
//!
//! ```text
//!  generate ─▶ iterate ─▶ reset ─▶ iterate × 15 ─▶ verify
//!              (warms up)
//! ```

mod matrix;
mod run;

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use matrix::Matrix;

use crate::math::sqrt;

pub use crate::class::Class;
pub use run::Run;

/// Number of iterations, in every class.
pub const ITERATIONS: u32 = 15;
/// Steps of the method of conjugate gradients in each iteration.
const STEPS: u32 = 25;
/// How far the estimate may be from the official one, relatively.
const EPSILON: f64 = 1e-10;

impl Class {
    /// Rows and columns of the matrix.
    pub const fn rows(self) -> usize {
        match self {
            Class::S => 1_400,
            Class::W => 7_000,
            Class::A => 14_000,
        }
    }

    /// Random numbers in each of the vectors that the matrix is made of.
    const fn nonzeros(self) -> usize {
        match self {
            Class::S => 7,
            Class::W => 8,
            Class::A => 11,
        }
    }

    /// What is subtracted from the diagonal.
    const fn shift(self) -> f64 {
        match self {
            Class::S => 10.0,
            Class::W => 12.0,
            Class::A => 20.0,
        }
    }

    /// `RCOND` to the power of `1 / rows`: by how much each vector weighs less than the last.
    const fn ratio(self) -> f64 {
        match self {
            Class::S => 0.998_356_648_145_979_1,
            Class::W => 0.999_671_113_367_499,
            Class::A => 0.999_835_543_160_723_5,
        }
    }

    /// The official estimate.
    pub const fn zeta(self) -> f64 {
        match self {
            Class::S => 8.597_177_507_864_8,
            Class::W => 10.362_595_087_124,
            Class::A => 17.130_235_054_029,
        }
    }
}

/// What an iteration gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Norm of what is left over of the linear system.
    pub residual: f64,
    /// Estimate of the eigenvalue.
    pub zeta: f64,
}

/// An estimate that is not the official one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WrongZeta {
    /// The official estimate.
    pub expected: f64,
    /// What was found.
    pub found: f64,
}

impl fmt::Display for WrongZeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zeta must be {}, is {}", self.expected, self.found)
    }
}

impl core::error::Error for WrongZeta {}

/// The matrix and vectors of one run.
#[derive(Clone, Debug)]
pub struct Cg {
    class: Class,
    a: Matrix,
    x: Vec<f64>,
    z: Vec<f64>,
    p: Vec<f64>,
    q: Vec<f64>,
    r: Vec<f64>,
    /// Norm of what the last solution has left over.
    residual: f64,
    last: Option<Step>,
    done: u32,
}

impl Cg {
    /// Makes the matrix.
    pub fn generate(class: Class) -> Cg {
        let zeros = || vec![0.0; class.rows()];
        let a = Matrix::generate(class);
        Cg {
            class,
            a,
            x: vec![1.0; class.rows()],
            z: zeros(),
            p: zeros(),
            q: zeros(),
            r: zeros(),
            residual: f64::NAN,
            last: None,
            done: 0,
        }
    }

    /// Numbers of the matrix that are not zero.
    pub fn entries(&self) -> usize {
        self.a.entries()
    }

    /// Back to the start.
    pub fn reset(&mut self) {
        self.x.fill(1.0);
        self.last = None;
        self.done = 0;
    }

    /// One iteration: [`Cg::solve`] and [`Cg::estimate`].
    pub fn iterate(&mut self) -> Step {
        self.solve(&mut || ());
        self.estimate()
    }

    /// The second part of an iteration: an estimate from the solution.
    pub fn estimate(&mut self) -> Step {
        let along = dot(&self.x, &self.z);
        let scale = 1.0 / sqrt(dot(&self.z, &self.z));
        for (x, z) in self.x.iter_mut().zip(&self.z) {
            *x = scale * z;
        }
        let zeta = self.class.shift() + 1.0 / along;
        let step = Step {
            residual: self.residual,
            zeta,
        };
        self.last = Some(step);
        self.done += 1;
        step
    }

    /// The first part of an iteration: solves `A z = x` approximately. Calls `point` before each
    /// step of the method.
    pub fn solve(&mut self, point: &mut impl FnMut()) {
        let Cg {
            a, x, z, p, q, r, ..
        } = self;
        z.fill(0.0);
        r.copy_from_slice(x);
        p.copy_from_slice(x);
        let mut rho = dot(r, r);
        for _ in 0..STEPS {
            point();
            a.multiply(p, q);
            let alpha = rho / dot(p, q);
            for ((z, p), (r, q)) in z.iter_mut().zip(&*p).zip(r.iter_mut().zip(&*q)) {
                *z += alpha * p;
                *r -= alpha * q;
            }
            let before = rho;
            rho = dot(r, r);
            let beta = rho / before;
            for (p, r) in p.iter_mut().zip(&*r) {
                *p = r + beta * *p;
            }
        }
        a.multiply(z, r);
        let left = x.iter().zip(&*r).map(|(x, r)| (x - r) * (x - r));
        self.residual = sqrt(left.fold(0.0, |sum, d| sum + d));
    }

    /// Compares the estimate of the last iteration with the official one, which is that after
    /// [`ITERATIONS`] from [`Cg::reset`] on.
    ///
    /// # Errors
    ///
    /// If it is another one, or there were more or fewer iterations.
    pub fn verify(&self) -> Result<f64, WrongZeta> {
        let expected = self.class.zeta();
        let found = match self.last {
            Some(step) if self.done == ITERATIONS => step.zeta,
            _ => f64::NAN,
        };
        let off = (found - expected) / expected;
        match (-EPSILON..=EPSILON).contains(&off) {
            true => Ok(found),
            false => Err(WrongZeta { expected, found }),
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + a * b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(class: Class, iterations: u32) -> Cg {
        let mut cg = Cg::generate(class);
        // As the official program does it; must leave no trace.
        cg.iterate();
        cg.reset();
        for _ in 0..iterations {
            cg.iterate();
        }
        cg
    }

    #[test]
    fn class_s_verifies() {
        run(Class::S, ITERATIONS).verify().unwrap();
    }

    #[test]
    fn class_w_verifies() {
        run(Class::W, ITERATIONS).verify().unwrap();
    }

    #[test]
    #[cfg_attr(debug_assertions, ignore = "takes long without optimisation")]
    fn class_a_verifies() {
        run(Class::A, ITERATIONS).verify().unwrap();
    }

    #[test]
    fn wrong_runs_do_not_verify() {
        assert!(run(Class::S, ITERATIONS - 1).verify().is_err());
        assert!(run(Class::S, ITERATIONS + 1).verify().is_err());
        let mut cg = run(Class::S, ITERATIONS);
        cg.last.as_mut().unwrap().zeta *= 1.0 + 3.0 * EPSILON;
        let wrong = cg.verify().unwrap_err();
        assert_eq!(wrong.expected, Class::S.zeta());
        cg.last = None;
        assert!(cg.verify().unwrap_err().found.is_nan());
    }

    #[test]
    fn a_changed_matrix_changes_the_estimate() {
        let mut cg = Cg::generate(Class::S);
        cg.a.disturb();
        for _ in 0..ITERATIONS {
            cg.iterate();
        }
        assert!(cg.verify().is_err());
    }

    #[test]
    fn residuals_are_small() {
        let mut cg = Cg::generate(Class::S);
        for _ in 0..ITERATIONS {
            let step = cg.iterate();
            assert!(step.residual < 1e-12, "{step:?}");
        }
    }

    #[test]
    fn weights_are_powers() {
        for class in Class::ALL {
            let ratio = 0.1f64.powf(1.0 / class.rows() as f64);
            assert!((class.ratio() - ratio).abs() < 1e-15);
        }
    }
}
