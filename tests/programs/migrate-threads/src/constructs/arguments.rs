//! More arguments than there are registers, an integer of 128 bits among them; integers whose upper bits may be anything;
//! packed fields.

use core::fmt::Write;

use dyad::prelude::thread::*;

use crate::schedule::point;

/// Arguments of all types, most of them on the stack.
#[inline(never)]
#[allow(clippy::too_many_arguments, reason = "it is about them")]
fn many(
    a: u8,
    b: i8,
    c: u16,
    d: i16,
    e: u32,
    f: i32,
    g: u64,
    h: i64,
    i: bool,
    j: char,
    k: f32,
    l: f64,
    m: u128,
    n: usize,
    o: &u64,
    p: &str,
    q: (u8, u32),
    r: [u8; 3],
    s: Option<u8>,
    t: f32,
) -> u128 {
    point();
    let x = (a as u128)
        .wrapping_add(b as u128)
        .wrapping_add(c as u128)
        .wrapping_add(d as u128)
        .wrapping_add(e as u128);
    point();
    let y = (f as u128)
        .wrapping_add(g as u128)
        .wrapping_mul(h as u128 | 1);
    point();
    x.wrapping_mul(y)
        ^ m.rotate_left(j as u32 % 100)
        ^ ((k as f64 * l + t as f64) as u128)
        ^ (n as u128 + *o as u128 + p.len() as u128)
        ^ ((q.0 as u128) << 50)
        ^ q.1 as u128
        ^ u32::from_le_bytes([r[0], r[1], r[2], s.unwrap_or(9)]) as u128
        ^ (i as u128)
}

/// More floats than there are registers for arguments.
#[inline(never)]
#[allow(clippy::too_many_arguments, reason = "it is about them")]
fn floats(
    a: f64,
    b: f64,
    c: f64,
    d: f64,
    e: f64,
    f: f64,
    g: f64,
    h: f64,
    i: f64,
    j: f64,
    k: f32,
    n: u32,
) -> f64 {
    if n == 0 {
        return a - k as f64;
    }
    point();
    let r = floats(b, c, d, e, f, g, h, i, j, a, k * 1.5, n - 1);
    point();
    r * 0.75 + a + 2.0 * b - c + d * e - f / (g + 10.0) + h - i * j + k as f64
}

/// More integers than there are registers for arguments.
#[inline(never)]
#[allow(clippy::too_many_arguments, reason = "it is about them")]
fn ints(
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
    g: u64,
    h: u64,
    i: u64,
    j: u64,
    k: u64,
    l: u64,
    m: u64,
    n: u64,
    o: u64,
    p: u64,
    left: u32,
) -> u64 {
    if left == 0 {
        return a;
    }
    point();
    let x = ints(b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, a ^ 1, left - 1);
    point();
    x.wrapping_mul(3)
        ^ a
        ^ (b << 1)
        ^ (c << 2)
        ^ (d << 3)
        ^ (e << 4)
        ^ (f << 5)
        ^ (g << 6)
        ^ (h << 7)
        ^ (i << 8)
        ^ (j << 9)
        ^ (k << 10)
        ^ (l << 11)
        ^ (m << 12)
        ^ (n << 13)
        ^ (o << 14)
        ^ (p << 15)
}

/// Integers whose upper bits in a register may be anything.
#[inline(never)]
fn small(a: u8, b: i8, c: u16, d: i16, e: bool, n: u8) -> (i16, u8, bool) {
    point();
    if n == 0 {
        return (d.wrapping_add(b as i16), a ^ c as u8, e);
    }
    let (x, y, z) = small(
        a.wrapping_mul(3).wrapping_add(1),
        b.wrapping_sub(17),
        c.rotate_left(3) ^ a as u16,
        d.wrapping_mul(5) ^ b as i16,
        !e ^ (a > 100),
        n - 1,
    );
    point();
    (
        x.wrapping_sub(a as i16),
        y.wrapping_add(c as u8),
        z ^ e ^ (d < 0),
    )
}

/// With fields that are not aligned.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Packed {
    a: u8,
    b: u64,
    c: u16,
    d: u128,
}

/// All of it.
pub fn run(out: &mut String) {
    let o = 77;
    writeln!(
        out,
        "{}",
        many(
            200,
            -7,
            60000,
            -30000,
            4_000_000_000,
            -5,
            u64::MAX,
            i64::MIN,
            true,
            'ß',
            1.5,
            -2.75e3,
            u128::MAX / 3,
            99,
            &o,
            "hello",
            (9, 10),
            [1, 2, 3],
            Some(4),
            0.1
        )
    )
    .unwrap();
    writeln!(
        out,
        "{:?} {}",
        floats(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12),
        ints(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20)
    )
    .unwrap();
    writeln!(out, "{:?}", small(1, -2, 3, -4, true, 30)).unwrap();
    let mut p = Packed {
        a: 1,
        b: 2,
        c: 3,
        d: 4,
    };
    for i in 0..5 {
        p.b = p.b.wrapping_mul(0x1234567).wrapping_add(i);
        point();
        p.d = p.d.rotate_left(9) ^ p.b as u128;
        p.c ^= p.a as u16;
        p.a += 1;
    }
    writeln!(out, "{} {} {} {}", { p.a }, { p.b }, { p.c }, { p.d }).unwrap();
    let mut b = (-1.5f64).to_le_bytes();
    point();
    b[0] ^= 0x5a;
    point();
    writeln!(
        out,
        "{:x} {:?}",
        u64::from_le_bytes(b),
        f64::from_le_bytes(b)
    )
    .unwrap();
}
