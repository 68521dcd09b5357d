//! Moves from any depth of calls.

use core::hint::black_box;

use dyad::prelude::*;
use dyad::report;
use dyad::sys;

use crate::{go, mix};

/// Calls that the thread makes behind a move, or behind one that was refused.
const FURTHER: u64 = 200;

/// What the bottom of a dive has found: how the move ended.
type Found = Result<(), sys::Error>;

#[inline(never)]
fn further(depth: u64, value: u64) -> u64 {
    dyad::migrate_point();
    match depth {
        0 => value,
        _ => {
            let kept = black_box(mix(value, depth));
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
    let kept = black_box(mix(value, depth));
    let below = dive(depth - 1, kept, found);
    mix(below, kept)
}

/// What a dive gives, without a call.
fn expected(depth: u64, value: u64) -> u64 {
    let values = |from: u64, mut value: u64| {
        let mut all = Vec::new();
        for n in (1..=from).rev() {
            value = mix(value, n);
            all.push(value);
        }
        (all, value)
    };
    let (mut all, bottom) = values(depth, value);
    let (more, mut hash) = values(FURTHER, bottom);
    all.extend(more);
    for kept in all.into_iter().rev() {
        hash = mix(hash, kept);
    }
    hash
}

/// Dives to all depths that the first ISA's stack has room for, from both ISAs.
pub fn play() -> Result<bool> {
    // Levels that both ISAs' stacks have room for with what is called further, and one ISA's only.
    const DEPTHS: [u64; 8] = [10, 500, 1500, 2500, 3500, 5000, 7000, 9000];
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
        "sound.depth",
        good,
        format_args!("{x86_64} and {aarch64} moves refused"),
    ))
}
