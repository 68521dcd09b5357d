//! Floating-point functions over many inputs, as one number for each function; the program and the test of it compute
//! the same.

use dyad::math::Float;

/// Inputs of each function.
const INPUTS: u64 = 1500;

/// A generator of inputs: SplitMix64.
struct Inputs(u64);

impl Inputs {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Any bits, a number of moderate size, one below 1, or a half.
    fn double(&mut self) -> f64 {
        let word = self.word();
        match self.word() % 4 {
            0 => f64::from_bits(word),
            1 => (word as i64) as f64 / (1u64 << 57) as f64,
            2 => (word as i64) as f64 / (1u64 << 63) as f64,
            _ => f64::from(word as i16) / 2.0,
        }
    }

    fn single(&mut self) -> f32 {
        match self.word() % 4 {
            0 => f32::from_bits(self.word() as u32),
            _ => self.double() as f32,
        }
    }
}

/// The bits of a result, with one NaN.
trait Bits {
    fn bits(self) -> u64;
}

impl Bits for f64 {
    fn bits(self) -> u64 {
        if self.is_nan() { f64::NAN } else { self }.to_bits()
    }
}

impl Bits for f32 {
    fn bits(self) -> u64 {
        u64::from(if self.is_nan() { f32::NAN } else { self }.to_bits())
    }
}

/// All functions of a type, named, with three inputs each.
macro_rules! functions {
    ($type:ident, $input:ident, $done:ident, $between:ident;
     $($one:ident)*; $($two:ident)*) => {
        functions!(@ $type, $input, $done, $between; $($one: |x, _y, _z| Float::$one(x).bits(),)*
            $($two: |x, y, _z| Float::$two(x, y).bits(),)*
            abs: |x, _y, _z| x.abs().bits(),
            copysign: |x, y, _z| x.copysign(y).bits(),
            mul_add: |x, y, z| Float::mul_add(x, y, z).bits(),
            powi: |x, y, _z| Float::powi(x, (y as i32) % 64).bits(),
            sin_cos: |x, _y, _z| {
                let (sin, cos) = Float::sin_cos(x);
                sin.bits() ^ cos.bits().rotate_left(17)
            },)
    };
    (@ $type:ident, $input:ident, $done:ident, $between:ident;
     $($name:ident: |$x:ident, $y:ident, $z:ident| $result:expr,)*) => {
        $({
            let mut inputs = Inputs(42);
            let mut hash = 0u64;
            for n in 0..INPUTS {
                let ($x, $y, $z): ($type, $type, $type) = (inputs.$input(), inputs.$input(), inputs.$input());
                let _ = ($y, $z);
                hash = (hash ^ $result).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
                if n % (INPUTS / 3) == INPUTS / 6 {
                    $between();
                }
            }
            $done(concat!(stringify!($type), "::", stringify!($name)), hash);
        })*
    };
}

/// Gives `done` the name of each function and a number that depends on all bits of its results. Calls `between` three
/// times within each.
pub fn digests(mut between: impl FnMut(), mut done: impl FnMut(&'static str, u64)) {
    functions!(f64, double, done, between;
        sqrt cbrt floor ceil trunc round round_ties_even fract exp exp2 exp_m1 ln log2 log10 ln_1p
        sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh;
        powf hypot atan2 div_euclid rem_euclid log);
    functions!(f32, single, done, between;
        sqrt cbrt floor ceil trunc round round_ties_even fract exp exp2 exp_m1 ln log2 log10 ln_1p
        sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh;
        powf hypot atan2 div_euclid rem_euclid log);
}
