//! What vectorizers like, with points in between: lanes, colours, histograms, conversions, many floats at once,
//! integers of odd widths.
#![allow(clippy::type_complexity, reason = "written as it comes")]

use core::fmt::Write;

use dyad::prelude::thread::*;

use crate::schedule::point;

#[derive(Clone, Copy, Debug, PartialEq, Default)]
struct V4 {
    x: f32,
    y: f32,
    z: f32,
    w: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Default)]
struct V2 {
    x: f64,
    y: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Rgba {
    r: u8,
    g: u8,
    b: u8,
    a: u8,
}

/// Four lanes of `f32`.
#[inline(never)]
fn step(mut p: V4, mut v: V4, n: u32) -> (V4, V4) {
    for _ in 0..n {
        p.x += v.x * 0.1;
        p.y += v.y * 0.1;
        p.z += v.z * 0.1;
        p.w += v.w * 0.1;
        point();
        v.x *= 0.99;
        v.y *= 0.99;
        v.z *= 0.99;
        v.w *= 0.99;
    }
    (p, v)
}

/// Two lanes of `f64`, with branches.
#[inline(never)]
fn spin(mut a: V2, mut b: V2, mut c: V2, n: u32) -> V2 {
    for i in 0..n {
        let t = V2 {
            x: a.x * b.x - a.y * b.y,
            y: a.x * b.y + a.y * b.x,
        };
        point();
        a = V2 {
            x: t.x + c.x,
            y: t.y + c.y,
        };
        if a.x * a.x + a.y * a.y > 4.0 {
            a.x *= 0.5;
            a.y *= 0.5;
            point();
            core::mem::swap(&mut b, &mut c)
        }
        if i % 5 == 0 {
            b.x += 0.01;
            b.y += 0.01;
        }
    }
    V2 {
        x: a.x + b.x + c.x,
        y: a.y + b.y + c.y,
    }
}

/// Bytes, widened and narrowed.
#[inline(never)]
fn blend(d: &mut [Rgba], s: &[Rgba], k: u8) {
    for (i, (d, s)) in d.iter_mut().zip(s).enumerate() {
        let f = |a: u8, b: u8| ((a as u16 * k as u16 + b as u16 * (255 - k) as u16) / 255) as u8;
        *d = Rgba {
            r: f(d.r, s.r),
            g: f(d.g, s.g),
            b: f(d.b, s.b),
            a: d.a.saturating_add(s.a),
        };
        if i % 7 == 0 {
            point();
        }
    }
}

#[inline(never)]
fn sums(v: &[i32], w: &[f32], b: &[u8]) -> (i64, f32, u32, i32, i32) {
    let s = v.iter().map(|x| *x as i64).sum();
    point();
    let f = w
        .chunks_exact(4)
        .fold([0.0f32; 4], |a, c| core::array::from_fn(|i| a[i] + c[i]));
    point();
    let n = b.iter().filter(|x| **x > 40).count() as u32;
    let mx = *v.iter().max().unwrap();
    point();
    (s, f.iter().sum(), n, mx, *v.iter().min().unwrap())
}

#[inline(never)]
fn hist(b: &[u8]) -> [u16; 16] {
    let mut h = [0u16; 16];
    for (i, x) in b.iter().enumerate() {
        h[(x >> 4) as usize] += 1;
        if i % 50 == 0 {
            point();
        }
    }
    let t = h;
    point();
    for i in 0..16 {
        h[i] = h[i].wrapping_mul(3) ^ t[15 - i];
    }
    h
}

/// Eight lanes of `u16`.
#[inline(never)]
fn lanes(mut a: [u16; 8], mut b: [u16; 8], n: u32) -> [u16; 8] {
    for _ in 0..n {
        for i in 0..8 {
            a[i] = a[i].wrapping_mul(b[i]).wrapping_add(7);
        }
        point();
        for i in 0..8 {
            b[i] ^= a[7 - i];
        }
    }
    a
}

/// Twice eight floats in arrays.
#[inline(never)]
fn wide(a: [f64; 8], k: f64, n: u32) -> [f64; 8] {
    let mut x = a;
    let mut y = [k; 8];
    for _ in 0..n {
        for i in 0..8 {
            x[i] = x[i] * 0.5 + y[i];
        }
        point();
        for i in 0..8 {
            y[i] -= x[i] * 0.25;
        }
    }
    x
}

/// Twelve floats that live across a point.
#[inline(never)]
fn many(n: u32) -> f64 {
    let (mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h) =
        (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0f64);
    let (mut i, mut j, mut k, mut l) = (9.0, 10.0, 11.0, 12.0f64);
    for _ in 0..n {
        a += l * 0.1;
        b += a * 0.1;
        c += b * 0.1;
        d -= c * 0.1;
        e += d * 0.1;
        f -= e * 0.1;
        g += f * 0.1;
        h -= g * 0.1;
        i += h * 0.1;
        j -= i * 0.1;
        k += j * 0.1;
        l -= k * 0.1;
        point();
    }
    a + b + c + d + e + f + g + h + i + j + k + l
}

/// Floats to integers, also those that have none.
#[inline(never)]
fn convert(v: &[f64]) -> (Vec<i32>, Vec<u8>, Vec<f32>, Vec<u64>, Vec<i16>) {
    let a = v.iter().map(|x| *x as i32).collect();
    point();
    let b = v
        .iter()
        .map(|x| {
            point();
            *x as u8
        })
        .collect();
    let c = v.iter().map(|x| *x as f32).collect();
    (
        a,
        b,
        c,
        v.iter().map(|x| *x as u64).collect(),
        v.iter()
            .map(|x| {
                point();
                (*x * 3.0) as i16
            })
            .collect(),
    )
}

#[inline(never)]
fn math(v: &[f64]) -> Vec<f64> {
    v.iter()
        .flat_map(|x| {
            point();
            [
                x.abs(),
                x.max(0.5),
                x.min(-0.5),
                x.clamp(-2.0, 2.0),
                x.copysign(-1.0),
                x.rem_euclid_like(0.75),
                x.to_degrees(),
                x.recip(),
                x.mul_like(2.0),
                x.floor_like(),
            ]
        })
        .collect()
}

/// What `core` has no function for.
trait L {
    fn rem_euclid_like(self, o: f64) -> f64;
    fn mul_like(self, o: f64) -> f64;
    fn floor_like(self) -> f64;
}

impl L for f64 {
    fn rem_euclid_like(self, o: f64) -> f64 {
        let r = self % o;
        if r < 0.0 { r + o } else { r }
    }

    fn mul_like(self, o: f64) -> f64 {
        self * o + self
    }

    fn floor_like(self) -> f64 {
        let t = self as i64 as f64;
        if t > self { t - 1.0 } else { t }
    }
}

/// Structures chosen without branches.
#[inline(never)]
fn pick(c: u32, a: V2, b: V2) -> V2 {
    point();
    let s = if c.is_multiple_of(3) { a } else { b };
    point();
    let t = if c.is_multiple_of(2) {
        V2 { x: s.y, y: s.x }
    } else {
        s
    };
    point();
    V2 {
        x: t.x + a.y,
        y: t.y - b.x,
    }
}

/// Three, five and six bytes.
#[inline(never)]
fn i24(mut a: [u8; 3], n: u32) -> (u32, [u8; 3], [u8; 5], [i8; 6]) {
    let mut b = [1u8; 5];
    let mut c = [-1i8; 6];
    for i in 0..n {
        a = [a[1], a[2], a[0].wrapping_add(1)];
        point();
        b[i as usize % 5] ^= a[0];
        c.rotate_left(1);
        point();
        c[0] = c[0].wrapping_add(b[0] as i8);
    }
    (u32::from_le_bytes([a[0], a[1], a[2], 0]), a, b, c)
}

/// Pairs of floats that a compiler would keep in one register across a point.
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
    writeln!(
        out,
        "{:?}",
        step(
            V4 {
                x: 1.0,
                y: 2.0,
                z: 3.0,
                w: 4.0
            },
            V4 {
                x: 0.5,
                y: -0.5,
                z: 0.25,
                w: 1.0
            },
            31
        )
    )
    .unwrap();
    writeln!(
        out,
        "{:?}",
        spin(
            V2 { x: 1.0, y: 0.5 },
            V2 { x: 0.3, y: 0.9 },
            V2 { x: -0.7, y: 0.2 },
            61
        )
    )
    .unwrap();
    let mut d: Vec<Rgba> = (0..37u8)
        .map(|i| Rgba {
            r: i * 3,
            g: i ^ 0x55,
            b: 255 - i,
            a: i,
        })
        .collect();
    let s: Vec<Rgba> = d.iter().rev().copied().collect();
    blend(&mut d, &s, 99);
    writeln!(out, "{:?}", &d[30..]).unwrap();
    let v: Vec<i32> = (0..103).map(|i| i * 7919 % 1000 - 500).collect();
    let w: Vec<f32> = v.iter().map(|x| *x as f32 * 0.125).collect();
    let b: Vec<u8> = v.iter().map(|x| *x as u8).collect();
    writeln!(out, "{:?} {:?}", sums(&v, &w, &b), hist(&b)).unwrap();
    writeln!(
        out,
        "{:?} {:?}",
        lanes([1, 2, 3, 4, 5, 6, 7, 8], [9; 8], 13),
        wide([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 0.3, 11)
    )
    .unwrap();
    writeln!(
        out,
        "{:?} {:?}",
        many(29),
        convert(&[0.5, -1.5, 300.0, 1e10, f64::NAN, -1e30, 255.9])
    )
    .unwrap();
    writeln!(out, "{:?}", math(&[1.25, -3.5, 0.1])).unwrap();
    let (mut a, b) = (V2 { x: 1.0, y: 2.0 }, V2 { x: 3.0, y: 4.0 });
    for c in 0..12 {
        a = pick(c, a, b)
    }
    writeln!(out, "{a:?} {:?}", i24([1, 2, 3], 17)).unwrap();
    writeln!(out, "{:?}", pairs(57)).unwrap();
}
