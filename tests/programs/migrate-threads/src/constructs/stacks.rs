//! Canaries in locals and on the heap, and deep stacks.

use core::hint::black_box;

use dyad::prelude::thread::*;

use super::{Line, mix};
use crate::schedule::point;

/// What a frame of `depth` holds, as long as it is there.
fn pattern(depth: u64) -> [u64; 12] {
    core::array::from_fn(|i| mix(depth, i as u64))
}

/// Frames full of canaries, each with a reference to the one above and a box of its own.
#[inline(never)]
fn guarded(depth: u64, above: &[u64; 12]) -> Result<u64, &'static str> {
    let mine = black_box(pattern(depth));
    let (a, b, c, d) = (mine[0], mine[1], mine[2], mine[3]);
    let (x, y) = (a as f64, b as f32);
    let boxed = Box::new(pattern(depth ^ 1));
    let outer = above[11];
    point();
    let below = match depth {
        0 => 0,
        _ => guarded(depth - 1, &mine)?,
    };
    point();
    if mine != pattern(depth) || [a, b, c, d] != mine[..4] {
        return Err("a canary on the stack has changed");
    }
    if *boxed != pattern(depth ^ 1) {
        return Err("a canary on the heap has changed");
    }
    if x != mine[0] as f64 || y != mine[1] as f32 || above[11] != outer {
        return Err("a value that was kept has changed");
    }
    Ok(mix(below, mine[7] ^ boxed[3]))
}

/// Canaries in frames, in registers as far as the compiler keeps them there, and on the heap.
pub fn canaries() -> Line {
    let top = pattern(1000);
    ("canaries", guarded(30, &top))
}

#[inline(never)]
fn descend(depth: u64, value: u64) -> u64 {
    if depth == 0 {
        point();
        return value;
    }
    let kept = black_box(mix(value, depth));
    let below = descend(depth - 1, kept);
    mix(below, kept)
}

/// A deep stack with a point at its bottom: all frames move at once.
pub fn deep() -> Line {
    let shallow = descend(1, 1);
    let hash = descend(1500, shallow);
    let again = descend(1500, shallow);
    (
        "deep",
        if hash == again {
            Ok(hash)
        } else {
            Err("a frame")
        },
    )
}

/// Calls itself for ever, passing points: the stack runs over, on this ISA or on the other one.
#[allow(unconditional_recursion)]
#[inline(never)]
pub fn bottomless(depth: u64) -> u64 {
    let kept = black_box(pattern(depth));
    if depth.is_multiple_of(64) {
        point();
    }
    let below = bottomless(black_box(depth + 1));
    mix(below, kept[3])
}
