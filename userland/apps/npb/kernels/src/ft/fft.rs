//! Fast Fourier transforms of the lines of a cuboid.
//!
//! A line is copied to where its elements are next to each other, transformed there by Stockham's
//! method, which sorts as it goes, and copied back. One line at a time, as the serial versions of
//! the benchmark do it that misses of caches are compared with: blocks of lines would miss half as
//! often along the last axis.

use alloc::vec;
use alloc::vec::Vec;

use super::complex::Complex;
use crate::math::sin_cos;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// With positive exponents.
    Forward,
    /// With negative exponents, and without a factor.
    Inverse,
}

/// Which coordinate varies along the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// Neighbours are next to each other.
    X,
    Y,
    Z,
}

/// Tables and room for transforms of lines up to some length.
#[derive(Clone, Debug)]
pub(super) struct Fft {
    /// From `n` on: the first `n` of the `2n`-th roots of one, for all powers of two.
    roots: Vec<Complex>,
    line: Vec<Complex>,
    room: Vec<Complex>,
}

impl Fft {
    /// For lines of up to `longest` elements, which is a power of two.
    pub(super) fn new(longest: usize) -> Fft {
        let blank = || vec![Complex::ZERO; longest];
        let mut fft = Fft {
            roots: blank(),
            line: blank(),
            room: blank(),
        };
        fft.make_roots();
        fft
    }

    /// Computes the table of roots, again.
    pub(super) fn make_roots(&mut self) {
        let mut n = 1;
        while n < self.roots.len() {
            for i in 0..n {
                let angle = i as f64 * core::f64::consts::PI / n as f64;
                let (sin, cos) = sin_cos(angle);
                self.roots[n + i] = Complex::new(cos, sin);
            }
            n *= 2;
        }
    }

    /// Transforms all lines along an axis of a cuboid of this size. Calls `point` once for every
    /// plane.
    #[inline(never)]
    pub(super) fn transform(
        &mut self,
        data: &mut [Complex],
        [nx, ny, nz]: [usize; 3],
        axis: Axis,
        direction: Direction,
        point: &mut impl FnMut(),
    ) {
        match axis {
            Axis::X => {
                for plane in data.chunks_exact_mut(nx * ny) {
                    point();
                    for row in plane.chunks_exact_mut(nx) {
                        self.line[..nx].copy_from_slice(row);
                        row.copy_from_slice(self.transformed(nx, direction));
                    }
                }
            }
            Axis::Y => {
                for plane in data.chunks_exact_mut(nx * ny) {
                    point();
                    self.columns(plane, nx, nx, ny, direction);
                }
            }
            Axis::Z => {
                for y in 0..ny {
                    point();
                    self.columns(&mut data[y * nx..], nx, nx * ny, nz, direction);
                }
            }
        }
    }

    /// Transforms `count` neighbouring lines of `n` elements that are `stride` apart.
    #[inline(always)]
    fn columns(
        &mut self,
        data: &mut [Complex],
        count: usize,
        stride: usize,
        n: usize,
        direction: Direction,
    ) {
        for first in 0..count {
            let column = data[first..].iter().step_by(stride);
            for (slot, value) in self.line[..n].iter_mut().zip(column) {
                *slot = *value;
            }
            let line = self.transformed(n, direction);
            let column = data[first..].iter_mut().step_by(stride);
            for (slot, value) in column.zip(line) {
                *slot = *value;
            }
        }
    }

    /// Transforms the line that has been copied, of `n` elements.
    fn transformed(&mut self, n: usize, direction: Direction) -> &[Complex] {
        match direction {
            Direction::Forward => self.stages(n, |root| root),
            Direction::Inverse => self.stages(n, Complex::conjugate),
        }
    }

    #[inline(always)]
    fn stages(&mut self, n: usize, turn: impl Fn(Complex) -> Complex) -> &[Complex] {
        let (mut from, mut to) = (&mut self.line[..n], &mut self.room[..n]);
        let mut run = 1;
        while run < n {
            let count = n / (2 * run);
            let roots = &self.roots[count..2 * count];
            // Short runs have loops of their own, without inner ones.
            match run {
                1 => short::<1>(from, to, roots, &turn),
                2 => short::<2>(from, to, roots, &turn),
                4 => short::<4>(from, to, roots, &turn),
                _ => long(from, to, run, roots, &turn),
            }
            (from, to) = (to, from);
            run *= 2;
        }
        from
    }
}

/// One stage: runs of `RUN` elements from both halves are combined to runs of twice that length.
#[inline(always)]
fn short<const RUN: usize>(
    from: &[Complex],
    to: &mut [Complex],
    roots: &[Complex],
    turn: impl Fn(Complex) -> Complex,
) {
    let (low, high) = from.split_at(from.len() / 2);
    let (low, high) = (low.as_chunks::<RUN>().0, high.as_chunks::<RUN>().0);
    let out = to.as_chunks_mut::<RUN>().0.as_chunks_mut::<2>().0;
    for (((low, high), [sums, differences]), &root) in low.iter().zip(high).zip(out).zip(roots) {
        let root = turn(root);
        for i in 0..RUN {
            sums[i] = low[i] + high[i];
            differences[i] = root * (low[i] - high[i]);
        }
    }
}

/// One stage whose runs are long.
#[inline(always)]
fn long(
    from: &[Complex],
    to: &mut [Complex],
    run: usize,
    roots: &[Complex],
    turn: impl Fn(Complex) -> Complex,
) {
    let (low, high) = from.split_at(from.len() / 2);
    for (i, &root) in roots.iter().enumerate() {
        let root = turn(root);
        let (low, high) = (&low[i * run..][..run], &high[i * run..][..run]);
        let (sums, differences) = to[2 * i * run..][..2 * run].split_at_mut(run);
        for i in 0..run {
            sums[i] = low[i] + high[i];
            differences[i] = root * (low[i] - high[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{MULTIPLIER, Randlc, SEED};

    fn random(count: usize) -> Vec<Complex> {
        let mut rng = Randlc::new(SEED, MULTIPLIER);
        (0..count)
            .map(|_| Complex::new(rng.next_f64() - 0.5, rng.next_f64() - 0.5))
            .collect()
    }

    /// The sum of the definition, for one output.
    fn slow(data: &[Complex], start: usize, stride: usize, n: usize, k: usize) -> Complex {
        (0..n).fold(Complex::ZERO, |sum, i| {
            let angle = 2.0 * core::f64::consts::PI * ((i * k) % n) as f64 / n as f64;
            sum + data[start + i * stride] * Complex::new(angle.cos(), angle.sin())
        })
    }

    fn near(a: Complex, b: Complex) {
        let d = a - b;
        assert!(d.re.abs().max(d.im.abs()) < 1e-13, "{a:?} is not {b:?}");
    }

    #[test]
    fn transforms_are_those_of_the_definition() {
        let size @ [nx, ny, nz] = [32, 16, 64];
        let before = random(nx * ny * nz);
        for (axis, stride, n) in [(Axis::X, 1, nx), (Axis::Y, nx, ny), (Axis::Z, nx * ny, nz)] {
            let mut fft = Fft::new(64);
            let (mut after, mut points) = (before.clone(), 0);
            let mut count = || points += 1;
            fft.transform(&mut after, size, axis, Direction::Forward, &mut count);
            for at in (0..after.len()).step_by(37) {
                let k = at / stride % n;
                near(after[at], slow(&before, at - k * stride, stride, n, k));
            }
            fft.transform(&mut after, size, axis, Direction::Inverse, &mut count);
            for (a, b) in after.iter().zip(&before) {
                near(a.scale(1.0 / n as f64), *b);
            }
            assert_eq!(points, 2 * [64, 64, 16][axis as usize]);
        }
    }
}
