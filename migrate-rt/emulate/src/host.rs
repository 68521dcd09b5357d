//! Floating-point arithmetic of the host, where it cannot differ from that on bits.
//!
//! Operands are zeros or normal numbers, results are normal and far from where anything overflows or is tiny, rounding
//! is to nearest, and that a result is inexact has been noted before: such a result is the same on every machine, and
//! there is nothing to note. The interpreter's own thread rounds to nearest, as all threads of programs begin.

/// An arithmetic operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
}

macro_rules! format {
    ($number:ident, $bits:ident, $fraction:literal, $top:literal, $arithmetic:ident, $is_tame:ident, $of_integer:ident, $to_integer:ident) => {
        /// Whether these are the bits of zero or of a normal number.
        #[inline(always)]
        pub(crate) fn $is_tame(bits: $bits) -> bool {
            let exponent = bits >> $fraction & $top;
            exponent.wrapping_sub(1) < $top - 1 || bits << 1 == 0
        }

        /// The bits of the result, if it is one of those.
        #[inline(always)]
        pub(crate) fn $arithmetic(op: Arithmetic, a: $bits, b: $bits) -> Option<$bits> {
            if !$is_tame(a) || !$is_tame(b) {
                return None;
            }
            let (x, y) = ($number::from_bits(a), $number::from_bits(b));
            let result = match op {
                Arithmetic::Add => x + y,
                Arithmetic::Sub => x - y,
                Arithmetic::Mul => x * y,
                Arithmetic::Div => x / y,
            };
            let bits = result.to_bits();
            let exponent = bits >> $fraction & $top;
            // A sum that is zero is exact. A product may be zero because it is tiny.
            let is_zero = matches!(op, Arithmetic::Add | Arithmetic::Sub) && bits << 1 == 0;
            (exponent.wrapping_sub(2) < $top - 3 || is_zero).then_some(bits)
        }

        /// The number that an integer is, rounded to nearest; `None` if that is not exact and `exact` is demanded.
        #[inline(always)]
        pub(crate) fn $of_integer(value: i64, exact: bool) -> Option<$bits> {
            let most = 1u64 << ($fraction + 1);
            if exact && value.unsigned_abs() > most {
                return None;
            }
            Some((value as $number).to_bits())
        }

        /// The number as an integer, cut; `None` if it does not fit into 63 bits, or is not exact and `exact` is
        /// demanded.
        #[inline(always)]
        pub(crate) fn $to_integer(bits: $bits, exact: bool) -> Option<i64> {
            let number = $number::from_bits(bits);
            let exponent = bits >> $fraction & $top;
            if !$is_tame(bits) || exponent >= $top / 2 + 62 {
                return None;
            }
            let value = number as i64;
            (!exact || (value as $number).to_bits() << 1 == bits << 1).then_some(value)
        }
    };
}

format!(
    f64,
    u64, 52, 0x7ff, f64_arithmetic, is_tame64, f64_of, f64_to
);
format!(
    f32,
    u32, 23, 0xff, f32_arithmetic, is_tame32, f32_of, f32_to
);

/// How two numbers compare; `None` if one is neither zero nor normal.
#[inline(always)]
pub(crate) fn compare64(a: u64, b: u64) -> Option<core::cmp::Ordering> {
    if !is_tame64(a) || !is_tame64(b) {
        return None;
    }
    f64::from_bits(a).partial_cmp(&f64::from_bits(b))
}

/// How two numbers compare; `None` if one is neither zero nor normal.
#[inline(always)]
pub(crate) fn compare32(a: u32, b: u32) -> Option<core::cmp::Ordering> {
    if !is_tame32(a) || !is_tame32(b) {
        return None;
    }
    f32::from_bits(a).partial_cmp(&f32::from_bits(b))
}
