//! Integers of 128 bits and of any length: carries in locals, pairs of registers, divisions of the runtime
//! library.

use core::fmt::Write;
use core::ops::{Add, Mul};

use dyad::prelude::thread::*;

use crate::schedule::point;

/// Digits of 32 bits, the lowest first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Big(Vec<u32>);

impl Big {
    fn new(n: u128) -> Big {
        let mut v = Vec::new();
        let mut n = n;
        while n != 0 {
            v.push(n as u32);
            n >>= 32;
        }
        Big(v)
    }

    fn divmod_small(&self, d: u32) -> (Big, u32) {
        let mut out = vec![0; self.0.len()];
        let mut rem = 0u64;
        for i in (0..self.0.len()).rev() {
            let cur = rem << 32 | self.0[i] as u64;
            out[i] = (cur / d as u64) as u32;
            rem = cur % d as u64;
            if i % 5 == 0 {
                point();
            }
        }
        while out.last() == Some(&0) {
            out.pop();
        }
        (Big(out), rem as u32)
    }

    fn show(&self) -> String {
        let mut parts = Vec::new();
        let mut n = self.clone();
        while !n.0.is_empty() {
            let (q, r) = n.divmod_small(1_000_000_000);
            parts.push(r);
            n = q;
            point();
        }
        let mut s = String::new();
        match parts.pop() {
            None => s.push('0'),
            Some(p) => write!(s, "{p}").unwrap(),
        }
        for p in parts.iter().rev() {
            write!(s, "{p:09}").unwrap();
        }
        s
    }
}

impl<'a> Mul<&'a Big> for &'a Big {
    type Output = Big;
    fn mul(self, o: &Big) -> Big {
        let mut out = vec![0u32; self.0.len() + o.0.len()];
        for (i, a) in self.0.iter().enumerate() {
            let mut carry = 0u64;
            for (j, b) in o.0.iter().enumerate() {
                let t = *a as u64 * *b as u64 + out[i + j] as u64 + carry;
                out[i + j] = t as u32;
                carry = t >> 32;
            }
            point();
            out[i + o.0.len()] = carry as u32;
        }
        while out.last() == Some(&0) {
            out.pop();
        }
        Big(out)
    }
}

#[allow(clippy::suspicious_arithmetic_impl, reason = "digits have carries")]
impl Add for Big {
    type Output = Big;
    fn add(self, o: Big) -> Big {
        let n = self.0.len().max(o.0.len());
        let mut c = 0u64;
        let mut v: Vec<u32> = (0..n)
            .map(|i| {
                point();
                let t = *self.0.get(i).unwrap_or(&0) as u64 + *o.0.get(i).unwrap_or(&0) as u64 + c;
                c = t >> 32;
                t as u32
            })
            .collect();
        if c != 0 {
            v.push(c as u32)
        }
        Big(v)
    }
}

/// By doubling, so that nothing overflows.
#[inline(never)]
fn mulmod(mut a: u128, mut b: u128, m: u128) -> u128 {
    let mut r = 0u128;
    a %= m;
    while b > 0 {
        if b & 1 == 1 {
            r = if r >= m - a { r - (m - a) } else { r + a }
        }
        a = if a >= m - a { a - (m - a) } else { a + a };
        b >>= 1;
        if b % 7 == 3 {
            point();
        }
    }
    r
}

#[inline(never)]
fn powmod(b: u128, mut e: u128, m: u128) -> u128 {
    let (mut r, mut b) = (1u128, b % m);
    while e > 0 {
        point();
        if e & 1 == 1 {
            r = mulmod(r, b, m)
        }
        b = mulmod(b, b, m);
        e >>= 1;
    }
    r
}

#[inline(never)]
fn gcd(a: i128, b: i128) -> i128 {
    point();
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

/// Greatest divisor, and the factors that make it.
#[inline(never)]
fn egcd(a: i128, b: i128) -> (i128, i128, i128) {
    point();
    if b == 0 {
        (a, 1, 0)
    } else {
        let (g, x, y) = egcd(b, a % b);
        (g, y, x - a / b * y)
    }
}

fn isqrt(n: u128) -> u128 {
    if n < 2 {
        return n;
    }
    let mut x = 1u128 << ((128 - n.leading_zeros()).div_ceil(2));
    loop {
        point();
        let y = (x + n / x) / 2;
        if y >= x {
            return x;
        }
        x = y
    }
}

/// A fraction; the tag makes it a structure with padding.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Frac {
    n: i128,
    d: i128,
    tag: u8,
}

impl Frac {
    fn add(self, o: Frac) -> Frac {
        let n = self.n * o.d + o.n * self.d;
        let d = self.d * o.d;
        let g = gcd(n, d);
        point();
        Frac {
            n: n / g,
            d: d / g,
            tag: self.tag.wrapping_add(o.tag).rotate_left(1),
        }
    }
}

/// All of it.
pub fn run(out: &mut String) {
    let mut f = Big::new(1);
    for i in 1..=40u128 {
        f = &f * &Big::new(i * i + (i << 70));
        point();
    }
    writeln!(out, "{}", f.show()).unwrap();
    let (mut a, mut b) = (Big::new(0), Big::new(1));
    for _ in 0..200 {
        let c = a.clone() + b.clone();
        a = core::mem::replace(&mut b, c);
    }
    writeln!(out, "fib {}", b.show()).unwrap();
    let m = (1u128 << 127) - 1;
    writeln!(out, "powmod {}", powmod(3, m - 1, m)).unwrap();
    writeln!(
        out,
        "gcd {} egcd {:?}",
        gcd(1 << 100, 6i128.pow(40)),
        egcd(240_000_000_000_000_000_000_001, -46_000_000_000_000_000)
    )
    .unwrap();
    writeln!(out, "isqrt {}", isqrt(u128::MAX)).unwrap();
    let mut h = Frac { n: 0, d: 1, tag: 1 };
    for i in 1..=40 {
        h = h.add(Frac {
            n: 1,
            d: i,
            tag: i as u8,
        });
    }
    writeln!(out, "{h:?}").unwrap();
    let mut all = [0u128; 9];
    for (i, x) in all.iter_mut().enumerate() {
        *x = (i as u128 + 1).pow(30) / (i as u128 + 7) % ((1 << 64) + i as u128);
        point();
    }
    let s: u128 = all.iter().fold(0, |a, b| {
        point();
        a.rotate_left(17) ^ b
    });
    writeln!(out, "{all:?} {s:x}").unwrap();
    writeln!(
        out,
        "{:?} {:?} {:?} {:?}",
        i128::MAX.checked_mul(2),
        5i128.checked_div(0),
        u128::MAX.overflowing_add(1),
        (-7i128).div_euclid(2)
    )
    .unwrap();
    writeln!(
        out,
        "{:?} {:?}",
        "340282366920938463463374607431768211455".parse::<u128>(),
        "-170141183460469231731687303715884105729"
            .parse::<i128>()
            .is_err()
    )
    .unwrap();
    let mut sh = 1i128;
    let mut acc = 0i128;
    for k in 0..127u32 {
        point();
        sh = sh.wrapping_mul(-3).rotate_right(k % 5);
        acc ^= sh >> (k % 128);
        acc = acc.wrapping_add((sh as f64) as i128);
    }
    writeln!(out, "{acc} {sh:#x} {}", acc as f64).unwrap();
}
