//! Which addresses depend on values that are being loaded.

/// How far behind a pointer an address is at most.
const FIELD: u64 = 4096;
/// Values below are no pointers, and those that are as small as an index may be one.
const SMALLEST_POINTER: u64 = 4096;
/// Sizes of the elements of arrays, as powers of two.
const SCALES: u32 = 7;
/// Bases that have been seen once, and those that are known to be of arrays.
const SLOTS: usize = 1 << 12;
const KNOWN: usize = 1 << 8;

/// Bases of arrays that addresses may have come from: `address - (value << scale)`, by scale, with the value.
#[derive(Debug)]
pub(super) struct Bases {
    seen: Box<[(u64, u64)]>,
    known: Box<[u64]>,
}

impl Default for Bases {
    fn default() -> Self {
        Self {
            seen: vec![(0, 0); SLOTS].into(),
            known: vec![0; KNOWN].into(),
        }
    }
}

impl Bases {
    /// Whether an address depends on a value. An array is known by its base: the second time that another value leads from the
    /// same base to an address.
    pub(super) fn leads(&mut self, value: u64, address: u64) -> bool {
        if value >= SMALLEST_POINTER && address.wrapping_sub(value).wrapping_add(FIELD / 2) < FIELD
        {
            return true;
        }
        let mut leads = false;
        for scale in 0..SCALES {
            let base = address.wrapping_sub(value << scale);
            let key = (base << 3 | u64::from(scale)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let known = &mut self.known[(key >> 32) as usize % KNOWN];
            let slot = &mut self.seen[(key >> 32) as usize % SLOTS];
            if slot.0 == key && slot.1 != value {
                *known = key;
            }
            leads |= *known == key;
            *slot = (key, value);
        }
        leads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_known_at_once_and_arrays_by_their_base() {
        let mut bases = Bases::default();
        assert!(bases.leads(0x10_0000, 0x10_0018));
        assert!(!bases.leads(0x10_0000, 0x20_0000));
        assert!(!bases.leads(5, 0x8000_0000 + 5 * 16));
        assert!(bases.leads(900, 0x8000_0000 + 900 * 16));
        assert!(bases.leads(17, 0x8000_0000 + 17 * 16));
    }

    #[test]
    fn addresses_at_random_depend_on_nothing() {
        let mut bases = Bases::default();
        let random = |n: u64| {
            let n = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 20
        };
        let all = (0..20_000u64).step_by(2);
        let all = all.filter(|&n| bases.leads(random(n) >> 4, random(n + 1)));
        assert!(all.count() < 10);
    }
}
