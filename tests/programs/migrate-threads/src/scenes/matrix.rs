//! Matrices with lengths in their types, returned by value; elimination, Fourier transform, bodies in space;
//! and pairs of floats that a compiler keeps in one register across points.

use core::fmt::Write;
use core::ops::{Add, AddAssign, Index, IndexMut, Mul, Neg, Sub};

use dyad::prelude::thread::*;

use crate::schedule::point;

/// Of R rows and C columns.
#[derive(Clone, Copy, PartialEq, Debug)]
struct M<T, const R: usize, const C: usize>([[T; C]; R]);

trait Num:
    Copy
    + Default
    + Add<Output = Self>
    + Mul<Output = Self>
    + Sub<Output = Self>
    + Neg<Output = Self>
    + PartialOrd
    + core::ops::Div<Output = Self>
    + AddAssign
{
    const ONE: Self;
}

impl Num for f64 {
    const ONE: f64 = 1.0;
}

impl Num for f32 {
    const ONE: f32 = 1.0;
}

impl Num for i64 {
    const ONE: i64 = 1;
}

impl<T: Num, const R: usize, const C: usize> Default for M<T, R, C> {
    fn default() -> Self {
        M([[T::default(); C]; R])
    }
}

impl<T, const R: usize, const C: usize> Index<(usize, usize)> for M<T, R, C> {
    type Output = T;
    fn index(&self, (r, c): (usize, usize)) -> &T {
        &self.0[r][c]
    }
}

impl<T, const R: usize, const C: usize> IndexMut<(usize, usize)> for M<T, R, C> {
    fn index_mut(&mut self, (r, c): (usize, usize)) -> &mut T {
        &mut self.0[r][c]
    }
}

impl<T: Num, const R: usize, const K: usize, const C: usize> Mul<M<T, K, C>> for M<T, R, K> {
    type Output = M<T, R, C>;
    fn mul(self, o: M<T, K, C>) -> M<T, R, C> {
        let mut out = M::default();
        for r in 0..R {
            for c in 0..C {
                let mut s = T::default();
                for k in 0..K {
                    s += self[(r, k)] * o[(k, c)];
                }
                point();
                out[(r, c)] = s;
            }
        }
        out
    }
}

impl<T: Num, const R: usize, const C: usize> Add for M<T, R, C> {
    type Output = Self;
    fn add(mut self, o: Self) -> Self {
        for r in 0..R {
            point();
            for c in 0..C {
                self.0[r][c] += o.0[r][c];
            }
        }
        self
    }
}

impl<T: Num, const N: usize> M<T, N, N> {
    fn identity() -> Self {
        let mut m = Self::default();
        for i in 0..N {
            m[(i, i)] = T::ONE;
        }
        m
    }

    fn pow(self, n: u32) -> Self {
        if n == 0 {
            point();
            Self::identity()
        } else {
            let h = self.pow(n / 2);
            let h = h * h;
            if n % 2 == 1 { h * self } else { h }
        }
    }

    fn det(mut self) -> T {
        let mut d = T::ONE;
        for i in 0..N {
            point();
            let mut p = i;
            for r in i + 1..N {
                let (a, b) = (self[(r, i)], self[(p, i)]);
                let abs = |x: T| if x < T::default() { -x } else { x };
                if abs(a) > abs(b) {
                    p = r
                }
            }
            if self[(p, i)] == T::default() {
                return T::default();
            }
            if p != i {
                self.0.swap(p, i);
                d = -d;
            }
            d = d * self[(i, i)];
            for r in i + 1..N {
                let f = self[(r, i)] / self[(i, i)];
                for c in i..N {
                    let x = self[(i, c)];
                    self[(r, c)] = self[(r, c)] - f * x;
                }
                point();
            }
        }
        d
    }
}

/// Elimination with pivots; nothing if there is no solution.
#[inline(never)]
fn gauss(a: &mut [Vec<f64>], b: &mut [f64]) -> Option<Vec<f64>> {
    let n = b.len();
    for i in 0..n {
        let p = (i..n).max_by(|x, y| {
            point();
            a[*x][i].abs().partial_cmp(&a[*y][i].abs()).unwrap()
        })?;
        a.swap(i, p);
        b.swap(i, p);
        if a[i][i].abs() < 1e-12 {
            return None;
        }
        for r in i + 1..n {
            let f = a[r][i] / a[i][i];
            let (top, bottom) = a.split_at_mut(r);
            for (x, y) in bottom[0][i..].iter_mut().zip(&top[i][i..]) {
                *x -= f * y;
            }
            b[r] -= f * b[i];
            point();
        }
    }
    let mut x = vec![0.0; n];
    for i in (0..n).rev() {
        let s: f64 = (i + 1..n)
            .map(|j| {
                point();
                a[i][j] * x[j]
            })
            .sum();
        x[i] = (b[i] - s) / a[i][i];
    }
    Some(x)
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cx {
    re: f64,
    im: f64,
}

impl Cx {
    fn mul(self, o: Cx) -> Cx {
        Cx {
            re: self.re * o.re - self.im * o.im,
            im: self.re * o.im + self.im * o.re,
        }
    }

    fn add(self, o: Cx) -> Cx {
        Cx {
            re: self.re + o.re,
            im: self.im + o.im,
        }
    }

    fn sub(self, o: Cx) -> Cx {
        Cx {
            re: self.re - o.re,
            im: self.im - o.im,
        }
    }
}

/// Fast Fourier transform; `w` is a root of one.
fn fft(a: &mut [Cx], w: Cx) {
    let n = a.len();
    if n == 1 {
        return;
    }
    point();
    let (mut e, mut o): (Vec<Cx>, Vec<Cx>) = (
        a.iter().copied().step_by(2).collect(),
        a.iter().copied().skip(1).step_by(2).collect(),
    );
    let w2 = w.mul(w);
    fft(&mut e, w2);
    fft(&mut o, w2);
    let mut t = Cx { re: 1.0, im: 0.0 };
    for k in 0..n / 2 {
        let x = t.mul(o[k]);
        a[k] = e[k].add(x);
        a[k + n / 2] = e[k].sub(x);
        t = t.mul(w);
        if k % 3 == 0 {
            point();
        }
    }
}

/// Bodies that attract each other, and a hash of where they end.
#[inline(never)]
fn nbody(n: usize, steps: usize) -> f64 {
    let mut p: Vec<[f64; 3]> = (0..n)
        .map(|i| {
            let i = i as f64;
            [i * 0.7 - 1.0, i * i * 0.1, 1.0 / (i + 1.0)]
        })
        .collect();
    let mut v = vec![[0.0f64; 3]; n];
    for _ in 0..steps {
        for i in 0..n {
            let mut acc = [0.0; 3];
            for j in 0..n {
                if i != j {
                    let d: [f64; 3] = core::array::from_fn(|k| p[j][k] - p[i][k]);
                    let r2 = d.iter().map(|x| x * x).sum::<f64>() + 0.01;
                    point();
                    for k in 0..3 {
                        acc[k] += d[k] / (r2 * r2);
                    }
                }
            }
            for k in 0..3 {
                v[i][k] += acc[k] * 0.01;
            }
        }
        for (p, v) in p.iter_mut().zip(&v) {
            p[0] += v[0] * 0.01;
            p[1] += v[1] * 0.01;
            p[2] += v[2] * 0.01;
            point();
        }
    }
    p.iter()
        .flatten()
        .zip(v.iter().flatten())
        .fold(0.0, |s, (a, b)| {
            point();
            s * 0.9 + a * b
        })
}

// values that a vectoriser would like to keep together across calls
#[inline(never)]
fn pairs(n: u32) -> (f64, f64, f32, f32, f32, f32) {
    let (mut a, mut b, mut c, mut d, mut e, mut f) =
        (1.0f64, 2.0f64, 1.0f32, 2.0f32, 3.0f32, 4.0f32);
    for i in 0..n {
        a += 0.5;
        b += 0.5;
        c *= 1.01;
        d *= 1.01;
        e *= 1.01;
        f *= 1.01;
        point();
        if i % 3 == 0 {
            core::mem::swap(&mut a, &mut b);
        }
        a *= 1.5;
        b *= 1.5;
        c += 1.0;
        d += 1.0;
        e += 1.0;
        f += 1.0;
    }
    (a, b, c, d, e, f)
}

/// All of it.
pub fn run(out: &mut String) {
    let m: M<f64, 4, 4> = M(core::array::from_fn(|r| {
        core::array::from_fn(|c| {
            point();
            ((r * 7 + c * 3) % 5) as f64 + 0.25 * r as f64
        })
    }));
    writeln!(
        out,
        "{:?}\n{:?} {}",
        m * m + M::identity(),
        m.pow(5).0[2],
        m.det()
    )
    .unwrap();
    let k: M<f32, 3, 2> = M([[1.5, 2.0], [0.1, -4.0], [3.0, 1e-3]]);
    let l: M<f32, 2, 3> = M([[1.0, 0.3, 2.0], [-1.0, 7.0, 0.2]]);
    writeln!(out, "{:?} {:?} {}", k * l, l * k, (l * k).det()).unwrap();
    writeln!(out, "{:?}", M::<i64, 2, 2>([[1, 1], [1, 0]]).pow(60)).unwrap();
    let n = 9;
    let mut a: Vec<Vec<f64>> = (0..n)
        .map(|i| {
            (0..n)
                .map(|j| 1.0 / (i + j + 1) as f64 + if i == j { 1.0 } else { 0.0 })
                .collect()
        })
        .collect();
    let mut b: Vec<f64> = (0..n).map(|i| i as f64).collect();
    writeln!(out, "{:?}", gauss(&mut a, &mut b)).unwrap();
    let mut s: Vec<Cx> = (0..64)
        .map(|i| Cx {
            re: (i % 7) as f64,
            im: (i % 3) as f64 * 0.5,
        })
        .collect();
    // cos and sin of 2 pi / 64
    fft(
        &mut s,
        Cx {
            re: 0.9951847266721969,
            im: 0.0980171403295606,
        },
    );
    writeln!(
        out,
        "{:?} {:e}",
        s[5],
        s.iter()
            .map(|c| {
                point();
                c.re * c.re + c.im * c.im
            })
            .sum::<f64>()
    )
    .unwrap();
    writeln!(out, "{:?} {:?}", nbody(6, 10), pairs(57)).unwrap();
}
