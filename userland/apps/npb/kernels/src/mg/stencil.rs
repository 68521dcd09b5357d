//! The four operators: each gives every point a weighted sum of its neighbours in a cube of 27.
//!
//! Weights depend only on how many coordinates differ. Sums over the four nearest and the four
//! diagonal rows are made once per row and used for three points each.

use alloc::vec;
use alloc::vec::Vec;

use super::grid::Grid;

/// Room for the sums of a row.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    near: Vec<f64>,
    far: Vec<f64>,
}

/// The rows around a row: four whose distance is one step, and four diagonal ones.
#[inline(always)]
fn around(grid: &Grid, y: usize, z: usize) -> ([&[f64]; 4], [&[f64]; 4]) {
    (
        [
            grid.row(y - 1, z),
            grid.row(y + 1, z),
            grid.row(y, z - 1),
            grid.row(y, z + 1),
        ],
        [
            grid.row(y - 1, z - 1),
            grid.row(y + 1, z - 1),
            grid.row(y - 1, z + 1),
            grid.row(y + 1, z + 1),
        ],
    )
}

/// Sums of four rows, point by point.
#[inline(always)]
fn add(out: &mut [f64], [a, b, c, d]: [&[f64]; 4]) {
    let n = out.len();
    let (a, b, c, d) = (&a[..n], &b[..n], &c[..n], &d[..n]);
    for i in 0..n {
        out[i] = a[i] + b[i] + c[i] + d[i];
    }
}

impl Sums {
    /// For rows of grids up to this level.
    pub(super) fn new(level: u32) -> Sums {
        let zeros = || vec![0.0; (1 << level) + 2];
        Sums {
            near: zeros(),
            far: zeros(),
        }
    }

    /// The sums of the rows around a row: near ones, diagonal ones.
    #[inline(always)]
    fn of(&mut self, grid: &Grid, y: usize, z: usize) -> (&[f64], &[f64]) {
        let n = grid.side();
        let (near, far) = (&mut self.near[..n], &mut self.far[..n]);
        let (rows, diagonal) = around(grid, y, z);
        add(near, rows);
        add(far, diagonal);
        (near, far)
    }
}

/// `r = v - A u`, where A is the Laplacian with weights -8/3, 0, 1/6, 1/12.
///
/// `v` is `None` for `r = r - A u`.
#[inline(never)]
pub(super) fn residual(
    r: &mut Grid,
    v: Option<&Grid>,
    u: &Grid,
    sums: &mut Sums,
    point: &mut impl FnMut(),
) {
    let n = r.side();
    for z in 1..n - 1 {
        point();
        for y in 1..n - 1 {
            let (near, far) = sums.of(u, y, z);
            let own = &u.row(y, z)[..n];
            let out = r.row_mut(y, z);
            match v {
                Some(v) => {
                    let v = &v.row(y, z)[..n];
                    laplace(out, |i, _| v[i], own, near, far);
                }
                None => laplace(out, |_, r| r, own, near, far),
            }
        }
    }
    r.wrap();
}

/// A row of [`residual`].
#[inline(always)]
fn laplace(out: &mut [f64], v: impl Fn(usize, f64) -> f64, own: &[f64], near: &[f64], far: &[f64]) {
    const A: [f64; 4] = [-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0];
    let n = own.len();
    let (out, near, far) = (&mut out[..n], &near[..n], &far[..n]);
    for i in 1..n - 1 {
        out[i] = v(i, out[i])
            - A[0] * own[i]
            - A[2] * (far[i] + near[i - 1] + near[i + 1])
            - A[3] * (far[i - 1] + far[i + 1]);
    }
}

/// `u = u + S r`, the smoother, where S has these weights for points that differ in none, one and
/// two coordinates.
#[inline(never)]
pub(super) fn smooth(
    u: &mut Grid,
    r: &Grid,
    weights: [f64; 3],
    sums: &mut Sums,
    point: &mut impl FnMut(),
) {
    let n = u.side();
    let [own, one, two] = weights;
    for z in 1..n - 1 {
        point();
        for y in 1..n - 1 {
            let (near, far) = sums.of(r, y, z);
            let (r, out) = (&r.row(y, z)[..n], &mut u.row_mut(y, z)[..n]);
            let (near, far) = (&near[..n], &far[..n]);
            for i in 1..n - 1 {
                out[i] = out[i]
                    + own * r[i]
                    + one * (r[i - 1] + r[i + 1] + near[i])
                    + two * (far[i] + near[i - 1] + near[i + 1]);
            }
        }
    }
    u.wrap();
}

/// `coarse = P fine`: half of each second point, and less of its neighbours.
#[inline(never)]
pub(super) fn restrict(coarse: &mut Grid, fine: &Grid, sums: &mut Sums, point: &mut impl FnMut()) {
    let n = coarse.side();
    for z in 1..n - 1 {
        point();
        for y in 1..n - 1 {
            let (near, far) = sums.of(fine, 2 * y, 2 * z);
            let own = fine.row(2 * y, 2 * z);
            let out = &mut coarse.row_mut(y, z)[1..n - 1];
            // The two before the first point and the one behind it, and so on.
            let windows = own[1..].windows(3).zip(near[1..].windows(3));
            let windows = windows.zip(far[1..].windows(3)).step_by(2);
            for (out, ((own, near), far)) in out.iter_mut().zip(windows) {
                *out = 0.5 * own[1]
                    + 0.25 * (own[0] + own[2] + near[1])
                    + 0.125 * (near[0] + near[2] + far[1])
                    + 0.0625 * (far[0] + far[2]);
            }
        }
    }
    coarse.wrap();
}

/// `fine = fine + Q coarse`: each point gets what the coarse points around it have on average.
#[inline(never)]
pub(super) fn prolong(fine: &mut Grid, coarse: &Grid, sums: &mut Sums, point: &mut impl FnMut()) {
    let n = coarse.side();
    for z in 0..n - 1 {
        point();
        for y in 0..n - 1 {
            let own = &coarse.row(y, z)[..n];
            let (beside, above) = (&coarse.row(y + 1, z)[..n], &coarse.row(y, z + 1)[..n]);
            let across = &coarse.row(y + 1, z + 1)[..n];
            interpolate(fine.row_mut(2 * y, 2 * z), own, [1.0, 0.5]);
            let pair = &mut sums.near[..n];
            for i in 0..n {
                pair[i] = beside[i] + own[i];
            }
            interpolate(fine.row_mut(2 * y + 1, 2 * z), pair, [0.5, 0.25]);
            let four = &mut sums.far[..n];
            for i in 0..n {
                four[i] = across[i] + above[i] + pair[i];
            }
            interpolate(fine.row_mut(2 * y + 1, 2 * z + 1), four, [0.25, 0.125]);
            for i in 0..n {
                pair[i] = above[i] + own[i];
            }
            interpolate(fine.row_mut(2 * y, 2 * z + 1), pair, [0.5, 0.25]);
        }
    }
}

/// Adds a coarse row to a fine one, with these weights for points that are there in both and for
/// those between two coarse ones.
#[inline(always)]
fn interpolate(fine: &mut [f64], coarse: &[f64], [at, between]: [f64; 2]) {
    let (pairs, _) = fine.as_chunks_mut::<2>();
    let n = pairs.len();
    let (coarse, next) = (&coarse[..n], &coarse[1..][..n]);
    for i in 0..n {
        pairs[i][0] += at * coarse[i];
        pairs[i][1] += between * (next[i] + coarse[i]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{MULTIPLIER, Randlc, SEED};

    fn random(level: u32, seed: f64) -> Grid {
        let mut rng = Randlc::new(seed, MULTIPLIER);
        let mut grid = Grid::new(level);
        let n = grid.side();
        for z in 1..n - 1 {
            for y in 1..n - 1 {
                for x in 1..n - 1 {
                    grid.set([x, y, z], rng.next_f64() - 0.5);
                }
            }
        }
        grid.wrap();
        grid
    }

    /// The weighted sum of 27 points.
    fn cube(grid: &Grid, centre: [usize; 3], weights: [f64; 4]) -> f64 {
        let mut sum = 0.0;
        for z in 0..3 {
            for y in 0..3 {
                for x in 0..3 {
                    let differ = [x, y, z].iter().filter(|&&d| d != 1).count();
                    let [cx, cy, cz] = centre;
                    sum += weights[differ] * grid.at([cx + x - 1, cy + y - 1, cz + z - 1]);
                }
            }
        }
        sum
    }

    fn each(grid: &Grid, mut f: impl FnMut([usize; 3])) {
        let n = grid.side();
        for z in 1..n - 1 {
            for y in 1..n - 1 {
                for x in 1..n - 1 {
                    f([x, y, z]);
                }
            }
        }
    }

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-14, "{a} is not {b}");
    }

    #[test]
    fn operators_are_those_of_the_definition() {
        let (u, v, mut sums) = (random(3, SEED), random(3, 7.0), Sums::new(3));
        let a = [-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0];
        let mut points = 0;
        let mut count = || points += 1;
        let mut r = random(3, 9.0);
        residual(&mut r, Some(&v), &u, &mut sums, &mut count);
        each(&r, |at| near(r.at(at), v.at(at) - cube(&u, at, a)));
        let before = r.clone();
        residual(&mut r, None, &u, &mut sums, &mut count);
        each(&r, |at| near(r.at(at), before.at(at) - cube(&u, at, a)));
        assert_eq!(r.at([0, 3, 3]), r.at([8, 3, 3]), "borders are up to date");

        let mut s = v.clone();
        smooth(&mut s, &u, [-0.3, 0.2, 0.1], &mut sums, &mut count);
        let weights = [-0.3, 0.2, 0.1, 0.0];
        each(&s, |at| near(s.at(at), v.at(at) + cube(&u, at, weights)));

        let mut coarse = Grid::new(2);
        restrict(&mut coarse, &u, &mut sums, &mut count);
        let weights = [0.5, 0.25, 0.125, 0.0625];
        each(&coarse, |at| {
            near(coarse.at(at), cube(&u, at.map(|c| 2 * c), weights));
        });
        assert_eq!(points, 8 + 8 + 8 + 4, "a point per plane");
    }

    #[test]
    fn prolonged_points_are_averages() {
        let (coarse, before) = (random(2, SEED), random(3, 5.0));
        let mut fine = before.clone();
        prolong(&mut fine, &coarse, &mut Sums::new(3), &mut || ());
        each(&fine, |at| {
            // The coarse points on both sides in each direction, which may be the same.
            let mut sum = 0.0;
            for corner in 0..8 {
                let mut c = at;
                for (d, c) in c.iter_mut().enumerate() {
                    *c = (*c + (corner >> d & 1)) / 2;
                }
                sum += coarse.at(c) / 8.0;
            }
            near(fine.at(at), before.at(at) + sum);
        });
    }
}
