//! Moves from any depth of calls.

use core::hint::black_box;

use dyad::prelude::thread::*;
use dyad::report;
use dyad::sys;

use crate::{go, mix};

/// Calls that the thread makes behind a move, or behind one that was refused.
const FURTHER: u64 = 200;

/// What the bottom of a dive has found: how the move ended.
type Found = Result<(), sys::Error>;

/// A hash that takes more registers than x86-64 has, so that frames are larger there.
#[inline(always)]
fn pressed(value: u64, depth: u64) -> u64 {
    let word = |i: u64| mix(value, depth ^ i);
    let (mut a, mut b, mut c, mut d, mut e, mut f) =
        (word(0), word(1), word(2), word(3), word(4), word(5));
    let (mut g, mut h, mut i, mut j, mut k, mut l) =
        (word(6), word(7), word(8), word(9), word(10), word(11));
    let (mut m, mut n, mut o, mut p, mut q, mut r) =
        (word(12), word(13), word(14), word(15), word(16), word(17));
    for _ in 0..black_box(2) {
        (a, b, c, d, e, f) = (a ^ g, b ^ h, c ^ i, d ^ j, e ^ k, f ^ l);
        (g, h, i, j, k, l) = (g.wrapping_add(m), h ^ n, i ^ o, j ^ p, k ^ q, l ^ r);
        (m, n, o, p, q, r) = (n ^ a, o ^ b, p ^ c, q ^ d, r ^ e, m ^ f);
        (g, h) = (g >> 1, h.rotate_left(7));
    }
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r]
        .into_iter()
        .fold(depth, mix)
}

#[inline(never)]
fn further(depth: u64, value: u64) -> u64 {
    dyad::thread::migrate_point();
    match depth {
        0 => value,
        _ => {
            let kept = black_box(pressed(value, depth));
            mix(further(depth - 1, kept), kept)
        }
    }
}

#[inline(never)]
fn dive(depth: u64, value: u64, found: &mut Found) -> u64 {
    if depth == 0 {
        *found = go();
        return further(FURTHER, value);
    }
    let kept = black_box(pressed(value, depth));
    let below = dive(depth - 1, kept, found);
    mix(below, kept)
}

/// What a dive gives, without a call.
fn expected(depth: u64, value: u64) -> u64 {
    let values = |from: u64, mut value: u64, step: fn(u64, u64) -> u64| {
        let mut all = Vec::new();
        for n in (1..=from).rev() {
            value = step(value, n);
            all.push(value);
        }
        (all, value)
    };
    let (mut all, bottom) = values(depth, value, pressed);
    let (more, mut hash) = values(FURTHER, bottom, pressed);
    all.extend(more);
    for kept in all.into_iter().rev() {
        hash = mix(hash, kept);
    }
    hash
}

/// Dives to all depths that the first ISA's stack has room for, from both ISAs.
pub fn play() -> Result<bool> {
    // Of 16 bytes on AArch64, of ten times that on x86-64: the last have no room there, and the one before them
    // leaves none for what is called further.
    const DEPTHS: [u64; 9] = [10, 500, 1500, 2500, 3500, 5000, 6400, 7000, 9000];
    let mut good = true;
    let mut refused = [0, 0];
    for _ in 0..2 {
        let start = isa();
        for depth in DEPTHS {
            // The frames of x86-64 are the larger ones.
            if start == Isa::X86_64 && depth > 3500 {
                continue;
            }
            let mut found = Ok(());
            let hash = dive(depth, 7, &mut found);
            let same = hash == expected(depth, 7);
            let there = match found {
                Ok(()) => isa() == start.other(),
                Err(sys::Error::TooDeep) => {
                    refused[start as usize] += 1;
                    isa() == start && depth > 1500
                }
                Err(_) => false,
            };
            if !same || !there {
                println!(
                    "{start}, {depth} levels: {found:?}, {same}, now on {}",
                    isa()
                );
                good = false;
            }
            if isa() != start {
                go()?;
            }
        }
        go()?;
    }
    // From the ISA with small frames some depths are refused; the other way none is.
    let [x86_64, aarch64] = refused;
    good &= x86_64 == 0 && aarch64 > 0;
    Ok(report::check(
        "back-ends.depth",
        good,
        format_args!("{x86_64} and {aarch64} moves refused"),
    ))
}
