//! FT: solves a diffusion equation in three dimensions in the frequency domain.
//!
//! ```text
//!  warm up ─▶ set up ─▶ fft x ─▶ fft y ─▶ fft z ─▶ ┌─ evolve ─▶ fft z ─▶ fft y ─▶ fft x ─▶ checksum ─┐
//!                                                  └───────────────────── × 6 ◀────────────────────┘
//! ```
//!
//! The state stays transformed; each iteration lets it evolve by a step of time and transforms a
//! copy of it back.

mod complex;
mod fft;

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::f64::consts::PI;

pub use complex::Complex;
use fft::{Axis, Direction, Fft};

use crate::checksum::Fnv;
use crate::kernel::{Cursor, Kernel, Phase, Plan, Verdict};
use crate::math::exp;
use crate::rng::{MULTIPLIER, Randlc, SEED};

pub use crate::class::Class;

/// Number of steps of time, in every class here.
pub const ITERATIONS: u32 = 6;
/// How far a checksum may be from the official one, relatively.
const EPSILON: f64 = 1e-12;
/// How fast things diffuse.
const ALPHA: f64 = 1e-6;
/// Points that are summed up for a checksum.
const SAMPLES: usize = 1024;

impl Class {
    /// Points in each direction.
    pub const fn cuboid(self) -> [usize; 3] {
        match self {
            Class::S => [64, 64, 64],
            Class::W => [128, 128, 32],
            Class::A => [256, 256, 128],
        }
    }

    /// The official checksums.
    pub const fn sums(self) -> [Complex; ITERATIONS as usize] {
        const fn c(re: f64, im: f64) -> Complex {
            Complex::new(re, im)
        }
        match self {
            Class::S => [
                c(554.608_700_496_4, 484.536_333_197_8),
                c(554.638_540_918_9, 486.530_426_951_1),
                c(554.614_840_617_1, 488.391_072_233_6),
                c(554.542_360_741_5, 490.127_316_904_6),
                c(554.425_503_962_4, 491.747_585_799_3),
                c(554.268_341_190_2, 493.259_724_494_1),
            ],
            Class::W => [
                c(567.361_217_894_4, 529.324_684_917_5),
                c(563.143_688_527_1, 528.214_998_662_9),
                c(559.402_408_997_0, 527.099_655_803_7),
                c(556.069_804_702_0, 526.002_790_492_5),
                c(553.089_899_125_0, 524.940_084_563_3),
                c(550.415_973_453_8, 523.921_224_708_6),
            ],
            Class::A => [
                c(504.673_500_819_3, 511.404_790_551_0),
                c(505.941_231_973_4, 509.880_966_643_3),
                c(506.937_689_628_7, 509.814_404_221_3),
                c(507.789_286_847_4, 510.133_613_075_9),
                c(508.523_309_539_1, 510.491_465_519_4),
                c(509.148_709_995_9, 510.791_784_280_3),
            ],
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    WarmUp,
    SetUp,
    Forward(Axis),
    Evolve,
    Back(Axis),
    Checksum,
}

impl Step {
    const fn name(self) -> &'static str {
        match self {
            Step::WarmUp => "warm up",
            Step::SetUp => "set up",
            Step::Evolve => "evolve",
            Step::Forward(Axis::X) | Step::Back(Axis::X) => "fft x",
            Step::Forward(Axis::Y) | Step::Back(Axis::Y) => "fft y",
            Step::Forward(Axis::Z) | Step::Back(Axis::Z) => "fft z",
            Step::Checksum => "checksum",
        }
    }
}

static PLAN: Plan<Step> = Plan {
    start: &[
        Step::WarmUp,
        Step::SetUp,
        Step::Forward(Axis::X),
        Step::Forward(Axis::Y),
        Step::Forward(Axis::Z),
    ],
    untimed: 1,
    each: &[
        Step::Evolve,
        Step::Back(Axis::Z),
        Step::Back(Axis::Y),
        Step::Back(Axis::X),
        Step::Checksum,
    ],
    iterations: ITERATIONS,
    end: &[],
};

/// The arrays of one run.
#[derive(Clone, Debug)]
pub struct Ft {
    class: Class,
    /// The state, transformed, once there is one.
    state: Vec<Complex>,
    /// What is transformed.
    data: Vec<Complex>,
    /// What a step of time multiplies each point of the state with.
    decay: Vec<f64>,
    fft: Fft,
    sums: Vec<Complex>,
    cursor: Cursor<Step>,
}

impl Ft {
    /// Arrays of zeros.
    pub fn new(class: Class) -> Ft {
        let [nx, ny, nz] = class.cuboid();
        let points = nx * ny * nz;
        Ft {
            class,
            state: vec![Complex::ZERO; points],
            data: vec![Complex::ZERO; points],
            decay: vec![0.0; points],
            fft: Fft::new(nx.max(ny).max(nz)),
            sums: Vec::with_capacity(ITERATIONS as usize),
            cursor: Cursor::new(&PLAN),
        }
    }

    /// The checksums so far, one for each iteration.
    pub fn sums(&self) -> &[Complex] {
        &self.sums
    }

    fn step(&mut self, step: Step, point: &mut impl FnMut()) {
        match step {
            Step::WarmUp => {
                self.set_up(point);
                for axis in [Axis::X, Axis::Y, Axis::Z] {
                    self.transform(axis, Direction::Forward, point);
                }
            }
            Step::SetUp => self.set_up(point),
            Step::Forward(axis) => {
                self.transform(axis, Direction::Forward, point);
                if axis == Axis::Z {
                    core::mem::swap(&mut self.state, &mut self.data);
                }
            }
            Step::Evolve => self.evolve(point),
            Step::Back(axis) => self.transform(axis, Direction::Inverse, point),
            Step::Checksum => self.sums.push(self.sample()),
        }
    }

    /// Random numbers to start from, and the tables.
    fn set_up(&mut self, point: &mut impl FnMut()) {
        let [nx, ny, nz] = self.class.cuboid();
        // Frequencies above half of the size stand for negative ones.
        let square = |i: usize, n: usize| {
            let frequency = ((i + n / 2) % n) as i64 - (n / 2) as i64;
            (frequency * frequency) as f64
        };
        let mut rows = self.decay.chunks_exact_mut(nx);
        for z in 0..nz {
            point();
            for y in 0..ny {
                let others = square(z, nz) + square(y, ny);
                for (x, decay) in rows.next().into_iter().flatten().enumerate() {
                    *decay = exp(-4.0 * ALPHA * PI * PI * (others + square(x, nx)));
                }
            }
        }
        let mut rng = Randlc::new(SEED, MULTIPLIER);
        for plane in self.data.chunks_exact_mut(nx * ny) {
            point();
            for value in plane {
                value.re = rng.next_f64();
                value.im = rng.next_f64();
            }
        }
        self.fft.make_roots();
    }

    fn transform(&mut self, axis: Axis, direction: Direction, point: &mut impl FnMut()) {
        let size = self.class.cuboid();
        self.fft
            .transform(&mut self.data, size, axis, direction, point);
    }

    #[inline(never)]
    fn evolve(&mut self, point: &mut impl FnMut()) {
        let [nx, ny, _] = self.class.cuboid();
        let plane = nx * ny;
        let planes = self.state.chunks_exact_mut(plane);
        let planes = planes.zip(self.data.chunks_exact_mut(plane));
        for ((state, data), decay) in planes.zip(self.decay.chunks_exact(plane)) {
            point();
            for ((state, data), &decay) in state.iter_mut().zip(data).zip(decay) {
                *state = state.scale(decay);
                *data = *state;
            }
        }
    }

    /// The mean of some points.
    fn sample(&self) -> Complex {
        let [nx, ny, nz] = self.class.cuboid();
        let sum = (1..=SAMPLES).fold(Complex::ZERO, |sum, j| {
            let (x, y, z) = (j % nx, 3 * j % ny, 5 * j % nz);
            sum + self.data[(z * ny + y) * nx + x]
        });
        sum.scale(1.0 / (nx * ny * nz) as f64)
    }
}

impl Kernel for Ft {
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
        let official = self.class.sums();
        let wrong = self.sums.iter().zip(official).position(|(found, right)| {
            // The official test: of the complex numbers, not of their parts.
            let (error, size) = ((*found - right).square(), right.square());
            let right = error <= EPSILON * EPSILON * size;
            !right
        });
        let (ok, detail) = match (wrong, self.sums.get(official.len() - 1)) {
            (Some(i), _) => {
                let (found, right) = (self.sums[i], official[i]);
                let text = format!(
                    "checksum {} is {} {:+}i, official {} {:+}i",
                    i + 1,
                    found.re,
                    found.im,
                    right.re,
                    right.im
                );
                (false, text)
            }
            (None, Some(last)) => (true, format!("last checksum {} {:+}i", last.re, last.im)),
            (None, None) => (false, format!("only {} checksums", self.sums.len())),
        };
        Verdict { ok, detail }
    }

    fn checksum(&self) -> u64 {
        let mut sum = Fnv::new();
        for c in self.sums.iter().chain(&self.data) {
            sum.word(c.re.to_bits());
            sum.word(c.im.to_bits());
        }
        sum.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::run;

    fn finished(class: Class, mut disturb: impl FnMut(&mut Ft, Phase)) -> Ft {
        let mut ft = Ft::new(class);
        while let Some(phase) = ft.next() {
            disturb(&mut ft, phase);
            ft.advance(&mut || ());
        }
        ft
    }

    #[test]
    fn class_s_verifies() {
        let ft = finished(Class::S, |_, _| ());
        assert!(ft.verify().ok, "{:?}", ft.verify());
        assert_eq!(ft.sums().len(), ITERATIONS as usize);
    }

    #[test]
    fn class_w_verifies() {
        let ft = finished(Class::W, |_, _| ());
        assert!(ft.verify().ok, "{:?}", ft.verify());
    }

    #[test]
    #[cfg_attr(debug_assertions, ignore = "takes long without optimisation")]
    fn class_a_verifies() {
        let ft = finished(Class::A, |_, _| ());
        assert!(ft.verify().ok, "{:?}", ft.verify());
    }

    #[test]
    fn wrong_runs_do_not_verify() {
        // One number of the state is changed by little, of a frequency that the samples do not
        // cancel out.
        let at = 56 + 64 + 64 * 64;
        let wrong = finished(Class::S, |ft, phase| {
            if phase.name == "evolve" && phase.iteration == 4 {
                ft.state[at].re += 1e-3;
            }
        });
        let verdict = wrong.verify();
        assert!(
            !verdict.ok && verdict.detail.starts_with("checksum 4 "),
            "{verdict:?}"
        );
        // Phases are left out.
        for (name, iteration) in [("fft x", 0), ("fft y", 3), ("evolve", 1)] {
            let wrong = finished(Class::S, |ft, phase| {
                if (phase.name, phase.iteration) == (name, iteration) {
                    ft.cursor.pass();
                }
            });
            assert!(!wrong.verify().ok, "without {name}");
        }
    }

    #[test]
    fn every_checksum_counts() {
        let mut ft = Ft::new(Class::S);
        assert!(!ft.verify().ok);
        ft.sums = Class::S.sums().to_vec();
        assert!(ft.verify().ok);
        for i in 0..ft.sums.len() {
            let right = ft.sums[i];
            for wrong in [
                Complex::new(right.re * (1.0 + 4e-12), right.im),
                Complex::new(right.re, right.im * (1.0 - 4e-12)),
                Complex::new(f64::NAN, right.im),
            ] {
                ft.sums[i] = wrong;
                assert!(!ft.verify().ok, "{i}");
            }
            ft.sums[i] = right;
        }
        ft.sums.pop();
        assert!(!ft.verify().ok);
    }

    #[test]
    fn both_drivers_do_the_same() {
        let (mut phases, mut points) = (0, 0);
        let mut ft = Ft::new(Class::S);
        run(&mut ft, |_| phases += 1, || points += 1);
        assert_eq!(phases, 5 + 5 * 6);
        assert!(points > 1000, "{points} points inside of phases");
        let same = finished(Class::S, |_, _| ());
        assert_eq!(ft.checksum(), same.checksum());
    }
}
