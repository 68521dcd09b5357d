//! Vectors as arrays of lanes.

/// Lane `at` of `1 << log2` bytes.
pub(crate) fn get(value: u128, at: u32, log2: u32) -> u64 {
    let bits = 8 << log2;
    (value >> (at * bits)) as u64 & (u64::MAX >> (64 - bits))
}

/// Puts the low bits of `lane` there.
pub(crate) fn put(value: &mut u128, at: u32, log2: u32, lane: u64) {
    let bits = 8 << log2;
    let mask = u128::from(u64::MAX >> (64 - bits));
    let at = at * bits;
    *value = *value & !(mask << at) | (u128::from(lane) & mask) << at;
}
