//! Large structures by value, more arguments than there are registers, small integers, packed fields, tables of
//! functions.

use core::fmt::Write;

use dyad::prelude::thread::*;

use crate::schedule::point;

/// Too large for registers, with padding.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Big {
    a: [u64; 24],
    f: [f32; 9],
    t: (u8, u16, i8),
    s: Option<u128>,
}

/// Variants of very different sizes.
#[allow(clippy::large_enum_variant, reason = "it is to be copied")]
#[derive(Clone, Debug, PartialEq)]
enum Mixed {
    Small(u8),
    Mid { x: u32, y: f64 },
    Large(Big),
    Text(String),
    Nested(Box<Mixed>, [u16; 7]),
}

#[inline(never)]
fn make(n: u64) -> Big {
    point();
    let mut b = Big {
        a: [n; 24],
        f: [n as f32 * 0.5; 9],
        t: (n as u8, n as u16 * 3, -(n as i8)),
        s: n.is_multiple_of(2).then_some((n as u128) << 77),
    };
    for (i, x) in b.a.iter_mut().enumerate() {
        *x = x.wrapping_mul(i as u64 + 1);
    }
    point();
    b
}

#[inline(never)]
fn change(mut b: Big, k: u64) -> Big {
    b.a[(k % 24) as usize] ^= k;
    point();
    b.f.swap(0, 8);
    b.t.2 = b.t.2.wrapping_sub(k as i8);
    b.s = b.s.map(|s| {
        point();
        s + k as u128
    });
    b
}

#[inline(never)]
fn both(a: Big, b: Big) -> (Big, u64, Result<Big, (u8, String)>) {
    point();
    let s =
        a.a.iter()
            .zip(&b.a)
            .fold(0u64, |s, (x, y)| s.rotate_left(5) ^ x ^ y);
    point();
    if s % 3 == 0 {
        (b, s, Err((s as u8, format!("{s:x}"))))
    } else {
        (a, s, Ok(b))
    }
}

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

/// Integers whose upper bits are nobody's.
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

type Table = [fn(Big, u64) -> Big; 3];

#[inline(never)]
fn ident(b: Big, _: u64) -> Big {
    b
}

#[inline(never)]
fn rot(b: Big, k: u64) -> Big {
    let mut b = b;
    b.a.rotate_left(k as usize % 24);
    point();
    b
}

static TABLE: Table = [change, ident, rot];

fn mixed(n: u64) -> Mixed {
    point();
    match n % 5 {
        0 => Mixed::Small(n as u8),
        1 => Mixed::Mid {
            x: n as u32,
            y: n as f64 / 7.0,
        },
        2 => Mixed::Large(make(n)),
        3 => Mixed::Text(format!("m{n}")),
        _ => Mixed::Nested(
            Box::new(mixed(n / 2)),
            core::array::from_fn(|i| {
                point();
                (n as usize * i) as u16
            }),
        ),
    }
}

fn fold(m: Mixed) -> u64 {
    point();
    match m {
        Mixed::Small(b) => b as u64,
        Mixed::Mid { x, y } if y > 2.0 => x as u64 + y as u64,
        Mixed::Mid { .. } => 1,
        Mixed::Large(b) => change(b, 3).a.iter().sum(),
        Mixed::Text(t) => t
            .bytes()
            .map(|b| {
                point();
                b as u64
            })
            .sum(),
        Mixed::Nested(b, k) => fold(*b) * 2 + k.iter().map(|x| *x as u64).sum::<u64>(),
    }
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
    let mut b = make(5);
    for k in 0..20 {
        b = change(b, k * 7);
        if k % 6 == 5 {
            b = make(b.a[3] % 100)
        }
    }
    writeln!(out, "{b:?}").unwrap();
    for n in 0..5 {
        let (x, s, r) = both(make(n), make(n + 3));
        writeln!(
            out,
            "{} {s} {:?}",
            x.a[5],
            r.map(|b| {
                point();
                b.t
            })
        )
        .unwrap();
    }
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
    let mut x = make(9);
    for i in 0..9 {
        x = TABLE[i % 3](x, i as u64);
    }
    writeln!(
        out,
        "{:?} {}",
        x.t,
        x.a.iter().fold(0u64, |a, b| a.rotate_left(7) ^ b)
    )
    .unwrap();
    for n in 0..10 {
        let m = mixed(n);
        let c = m.clone();
        point();
        writeln!(out, "{} {}", m == c, fold(m)).unwrap();
        if n == 4 {
            writeln!(out, "{c:?}").unwrap()
        }
    }
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
    let arr = [[make(1), make(2)], [make(3), make(4)]];
    let moved = arr.map(|r| {
        point();
        r.map(|b| {
            point();
            change(b, b.a[1])
        })
    });
    writeln!(
        out,
        "{}",
        moved
            .iter()
            .flatten()
            .map(|b| b.a[1] ^ b.a[2])
            .fold(0u64, |a, b| a.wrapping_mul(3).wrapping_add(b))
    )
    .unwrap();
}
