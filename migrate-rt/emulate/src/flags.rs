//! Status flags of an operation, as what they follow from: they are worked out when something looks at them.

/// The result of the last operation that has set all flags, and the carries out of each of its bits. Both lie at the top
/// of a word, `shift` above where they are in an operand that is smaller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lazy {
    /// Whether the flags follow from this; otherwise they are in the register.
    pub is_set: bool,
    pub shift: u32,
    pub result: u64,
    /// Bit 63: carry, or borrow; bits 63 and 62 differ: overflow.
    pub carries: u64,
}

impl Lazy {
    pub(crate) const NONE: Lazy = Lazy {
        is_set: false,
        shift: 0,
        result: 0,
        carries: 0,
    };

    #[inline(always)]
    pub(crate) fn set(&mut self, result: u64, carries: u64, shift: u32) {
        *self = Lazy {
            is_set: true,
            shift,
            result,
            carries,
        };
    }

    /// Of a result whose carry and overflow are known otherwise.
    #[inline(always)]
    pub(crate) fn set_flags(&mut self, result: u64, carry: u64, overflow: u64, shift: u32) {
        self.set(result, carry << 63 | (carry ^ overflow) << 62, shift);
    }

    #[inline(always)]
    pub(crate) fn carry_bit(&self) -> u64 {
        self.carries >> 63
    }

    #[inline(always)]
    pub(crate) fn overflow(&self) -> u64 {
        (self.carries ^ self.carries << 1) >> 63
    }

    #[inline(always)]
    pub(crate) fn sign(&self) -> u64 {
        self.result >> 63
    }

    #[inline(always)]
    pub(crate) fn is_zero(&self) -> bool {
        self.result == 0
    }
}

/// The carries of `a + b`, which is `sum`.
#[inline(always)]
pub(crate) fn carries(a: u64, b: u64, sum: u64) -> u64 {
    (a & b) | ((a | b) & !sum)
}

/// The borrows of `a - b`, which is `difference`.
#[inline(always)]
pub(crate) fn borrows(a: u64, b: u64, difference: u64) -> u64 {
    (!a & b) | ((!a | b) & difference)
}
