//! Where the program moves, and what it makes of what it computes.

pub use journey::way::*;

/// What a part of the program has to say: a hash of what it has computed, or what is wrong.
pub type Line = (&'static str, Result<u64, &'static str>);

/// One more value in a hash.
pub fn mix(hash: u64, value: u64) -> u64 {
    (hash ^ value)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
}
