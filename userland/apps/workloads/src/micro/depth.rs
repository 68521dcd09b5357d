//! Stacks of a known depth, of frames of a known kind, with a hook at the bottom: where the thread
//! migrates, so that all frames have to be moved.
//!
//! | kind | what a frame has | what moving it costs |
//! |---|---|---|
//! | [`Kind::Empty`] | one argument | least |
//! | [`Kind::Lookup`] | many arguments and variables that nobody needs any more | looking them up |
//! | [`Kind::Copy`] | as many that are needed after the return, and an array | copying them too |
//! | [`Kind::Pointers`] | pointers to its caller's and its own variables | finding where they point |
//!
//! Each function combines what it has with what comes back from below, so that a frame that was
//! not moved as it was changes the result: [`expected`] says what it must be.

use core::hint::black_box;

/// What frames are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One argument and nothing else.
    Empty,
    /// Many arguments and variables, none of which is needed after the call.
    Lookup,
    /// Many that are.
    Copy,
    /// Pointers into stacks.
    Pointers,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [Kind::Empty, Kind::Lookup, Kind::Copy, Kind::Pointers];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Empty => "empty",
            Kind::Lookup => "lookup",
            Kind::Copy => "copy",
            Kind::Pointers => "pointers",
        }
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| k.name() == name)
    }
}

/// What is called at the bottom gets this. In programs whose threads migrate, the calling convention of functions
/// that are called through pointers goes by signature; no other function has one with this type, so none takes
/// part in the migrations that are made at the bottom.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Bottom(f64);

/// Calls `bottom` below `depth` (at least 1) frames of a kind. The result is [`expected`].
pub fn descend(kind: Kind, depth: u32, bottom: &mut dyn FnMut(Bottom)) -> u64 {
    let seed = u64::from(depth);
    match kind {
        Kind::Empty => empty(depth, bottom),
        Kind::Lookup => lookup(depth, bottom, seed, seed + 1, seed + 2, seed + 3, seed + 4),
        Kind::Copy => copy(depth, bottom, seed, seed + 1, seed + 2, seed + 3, 0.5),
        Kind::Pointers => {
            let mut mine = seed;
            let below = pointers(depth, bottom, &mut mine);
            below.wrapping_add(mine)
        }
    }
}

/// What [`descend`] gives if all frames are what they were.
pub fn expected(kind: Kind, depth: u32) -> u64 {
    let seed = u64::from(depth);
    let top = match kind {
        // The first frame adds one to the number of its caller.
        Kind::Pointers => seed + 1,
        _ => 0,
    };
    let frames = (0..seed).rev().fold(BOTTOM, |below, i| {
        // The frame at place `i` from the top has counted down to `left`.
        let left = seed - i;
        match kind {
            Kind::Empty => below.wrapping_add(1),
            Kind::Lookup => below.rotate_left(1) ^ left,
            Kind::Copy => {
                let sum = array(left, seed + i).iter().fold(0, mix);
                let arguments = [seed + i, seed + i + 1, seed + i + 2, seed + i + 3];
                let all = arguments.iter().fold(below ^ sum, mix);
                all.wrapping_add(2 * i + 1)
            }
            Kind::Pointers => below.rotate_left(3).wrapping_add(2 * left),
        }
    });
    frames.wrapping_add(top)
}

/// What comes back from the bottom.
const BOTTOM: u64 = 0x5afe_57ac_0000_0001;
/// Words of the array in a frame of [`Kind::Copy`].
const WORDS: usize = 8;

fn mix(sum: u64, word: &u64) -> u64 {
    (sum ^ word).wrapping_mul(0x100_0000_01b3)
}

fn array(left: u64, from: u64) -> [u64; WORDS] {
    core::array::from_fn(|i| (left << 32) + from + i as u64)
}

/// The call below a frame, of which the compiler must not know what it gives.
macro_rules! below {
    ($left:expr, $bottom:expr, $call:expr) => {
        match $left {
            0 | 1 => {
                $bottom(Bottom::default());
                black_box(BOTTOM)
            }
            _ => black_box($call),
        }
    };
}

#[inline(never)]
fn empty(left: u32, bottom: &mut dyn FnMut(Bottom)) -> u64 {
    below!(left, bottom, empty(left - 1, bottom)).wrapping_add(1)
}

#[inline(never)]
fn lookup(
    left: u32,
    bottom: &mut dyn FnMut(Bottom),
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
) -> u64 {
    // Variables with places in the frame, that are dead before the call.
    let used = black_box([a, b, c, d, e]);
    black_box(used.iter().fold(u64::from(left), mix));
    below!(
        left,
        bottom,
        lookup(left - 1, bottom, a + 1, b + 1, c + 1, d + 1, e + 1)
    )
    .rotate_left(1)
        ^ u64::from(left)
}

#[inline(never)]
fn copy(left: u32, bottom: &mut dyn FnMut(Bottom), a: u64, b: u64, c: u64, d: u64, x: f64) -> u64 {
    let words = black_box(array(left.into(), a));
    let below = below!(
        left,
        bottom,
        copy(left - 1, bottom, a + 1, b + 1, c + 1, d + 1, x + 1.0)
    );
    // Everything is needed again.
    let sum = black_box(&words).iter().fold(0, mix);
    let all = [a, b, c, d].iter().fold(below ^ sum, mix);
    all.wrapping_add((x * 2.0) as u64)
}

#[inline(never)]
fn pointers(left: u32, bottom: &mut dyn FnMut(Bottom), callers: &mut u64) -> u64 {
    let mut mine = u64::from(left);
    let before = *callers;
    let below = below!(left, bottom, pointers(left - 1, bottom, &mut mine));
    // The frame below has added one to this one's number, this one adds one to its caller's.
    let counted = if left > 1 { mine - 1 } else { mine };
    let kept = *black_box(&*callers) == before;
    *callers += u64::from(kept);
    below.rotate_left(3).wrapping_add(2 * counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_those_that_are_expected() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.name()), Some(kind));
            for depth in 1..=64 {
                let mut visits = 0;
                let found = descend(kind, depth, &mut |_| visits += 1);
                assert_eq!(found, expected(kind, depth), "{kind:?} {depth}");
                assert_eq!(visits, 1);
            }
        }
    }

    #[test]
    fn results_tell_depths_and_kinds_apart() {
        let mut seen = std::collections::BTreeSet::new();
        for kind in Kind::ALL {
            for depth in 1..=64 {
                seen.insert(expected(kind, depth));
            }
        }
        assert_eq!(seen.len(), 4 * 64);
    }

    /// Addresses at the bottom are further down with every frame.
    #[test]
    fn frames_are_on_the_stack() {
        for kind in Kind::ALL {
            let bottom = |depth| {
                let mut at = 0;
                descend(kind, depth, &mut |_| {
                    let here = 0u8;
                    at = core::ptr::from_ref(black_box(&here)).addr();
                });
                at
            };
            let places = [1, 2, 16, 64].map(bottom);
            assert!(places.is_sorted_by(|a, b| a > b), "{kind:?}: {places:x?}");
            let frame = (places[2] - places[3]) / 48;
            assert!(frame >= 16 * (1 + kind as usize / 2), "{kind:?}: {frame}");
        }
    }
}
