//! Tables of functions, called through pointers of another type.

use core::hint::black_box;
use core::mem::{MaybeUninit, transmute};

use crate::{go, mix};

/// Moves if it is to, and says what it was called with.
fn first(value: &u64, flag: bool) -> u64 {
    let kept = *value;
    if flag {
        let _ = go();
    }
    mix(kept, u64::from(flag))
}

fn second(value: &u64, flag: bool) -> u64 {
    let hash = first(value, flag);
    mix(hash, *value + u64::from(flag))
}

fn third(a: usize, b: usize) -> usize {
    if b & 1 == 1 {
        let _ = go();
    }
    a.wrapping_mul(3).wrapping_add(b)
}

fn fourth(a: usize, b: usize) -> usize {
    third(a, b) ^ third(b, a)
}

fn flags(value: u64) -> MaybeUninit<bool> {
    if value & 1 == 1 {
        let _ = go();
    }
    MaybeUninit::new(value & 2 == 2)
}

static BY_REFERENCE: [fn(&u64, bool) -> u64; 2] = [first, second];
static BY_WORDS: [fn(usize, usize) -> usize; 2] = [third, fourth];

/// Calls all of them, moving or not.
///
/// # Errors
///
/// Which of them gave what.
pub fn play() -> Result<u64, (&'static str, u64, u64)> {
    let mut hash = 0;
    for round in 0..8u64 {
        let flag = round & 1 == 1;
        for (function, expected) in BY_REFERENCE
            .iter()
            .zip([first, second] as [fn(&u64, bool) -> u64; 2])
        {
            // SAFETY: 1. `bool` and `MaybeUninit<bool>` have one ABI, as `core` says of `MaybeUninit`; the value
            // is one of a `bool`.
            let other: fn(&u64, MaybeUninit<bool>) -> u64 =
                unsafe { transmute(black_box(*function)) };
            let given = black_box(other)(&round, MaybeUninit::new(flag));
            let wanted = expected(&round, flag);
            if given != wanted {
                return Err(("a reference and a flag", given, wanted));
            }
            hash = mix(hash, given);
        }
        for function in &BY_WORDS {
            // SAFETY: 1. Words and thin pointers are passed alike on both ISAs; the pointer is not used as one.
            let other: fn(*const u64, usize) -> usize = unsafe { transmute(black_box(*function)) };
            let (a, b) = (1_054_511 + round as usize, round as usize);
            let given = black_box(other)(core::ptr::without_provenance(a), b) as u64;
            let one = |a: usize, b: usize| a.wrapping_mul(3).wrapping_add(b);
            let wanted = match core::ptr::fn_addr_eq(*function, third as fn(usize, usize) -> usize)
            {
                true => one(a, b),
                false => one(a, b) ^ one(b, a),
            };
            if given != wanted as u64 {
                return Err(("two words", given, wanted as u64));
            }
            hash = mix(hash, given);
        }
        // SAFETY: 1. As above, of a result that has a value.
        let plain: fn(u64) -> bool =
            unsafe { transmute(black_box(flags as fn(u64) -> MaybeUninit<bool>)) };
        let given = black_box(plain)(round);
        if given != (round & 2 == 2) {
            return Err(("a flag", u64::from(given), round));
        }
    }
    Ok(hash)
}
