//! Floating-point functions: what `std` adds to `f64` and `f32`, as methods of the trait [`Float`].
//!
//! ```no_run
//! use dyad::math::Float;
//!
//! let (x, y) = (3.0f64, 4.0f64);
//! dyad::println!("{} {} {}", x.hypot(y), y.atan2(x), x.powf(0.5));
//! ```
//!
//! The crate `libm` computes them, with operations that have the same bits on every ISA. So results have the same
//! bits on every ISA and on the host, except that NaNs may have another sign or payload. `sqrt` is an instruction; `floor`,
//! `mul_add` and the others are computed by integer arithmetic, because only AArch64 has instructions for them.
//!
//! In a crate that is not `#![no_std]`, methods of `std` have precedence: there, `x.sin()` is that of the host's C
//! library, which may differ in the last bit. `Float::sin(x)` is the same function everywhere.

/// Functions of floating-point numbers. What they compute is what the methods of the same names in `std` compute.
///
/// `abs`, `signum`, `copysign`, `min`, `max`, `clamp`, `to_degrees` and `to_radians` are in `core`.
pub trait Float: Copy {
    /// The square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// The cube root.
    fn cbrt(self) -> Self;
    /// The largest whole number that is not above `self`.
    fn floor(self) -> Self;
    /// The smallest whole number that is not below `self`.
    fn ceil(self) -> Self;
    /// The whole part.
    fn trunc(self) -> Self;
    /// The nearest whole number; halves are rounded away from zero.
    fn round(self) -> Self;
    /// The nearest whole number; halves are rounded to the even one.
    fn round_ties_even(self) -> Self;
    /// The part behind the point.
    fn fract(self) -> Self;
    /// `self * a + b`, rounded once.
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// The quotient of the division whose remainder is [`rem_euclid`](Self::rem_euclid).
    fn div_euclid(self, by: Self) -> Self;
    /// The remainder of a division, which is not negative.
    fn rem_euclid(self, by: Self) -> Self;
    /// `self` to the power of a whole number, by squaring. `std` does not say how it rounds.
    fn powi(self, n: i32) -> Self;
    /// `self` to the power of `n`.
    fn powf(self, n: Self) -> Self;
    /// e to the power of `self`.
    fn exp(self) -> Self;
    /// 2 to the power of `self`.
    fn exp2(self) -> Self;
    /// e to the power of `self`, minus 1; exact near 0.
    fn exp_m1(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// The logarithm to a base.
    fn log(self, base: Self) -> Self;
    /// The logarithm to the base 2.
    fn log2(self) -> Self;
    /// The logarithm to the base 10.
    fn log10(self) -> Self;
    /// The natural logarithm of `self` plus 1; exact near 0.
    fn ln_1p(self) -> Self;
    /// The length of the hypotenuse of a right triangle with these legs.
    fn hypot(self, other: Self) -> Self;
    /// The sine of an angle in radians.
    fn sin(self) -> Self;
    /// The cosine of an angle in radians.
    fn cos(self) -> Self;
    /// Sine and cosine of an angle in radians.
    fn sin_cos(self) -> (Self, Self);
    /// The tangent of an angle in radians.
    fn tan(self) -> Self;
    /// The arcsine, in radians.
    fn asin(self) -> Self;
    /// The arccosine, in radians.
    fn acos(self) -> Self;
    /// The arctangent, in radians.
    fn atan(self) -> Self;
    /// The angle of the point whose y is `self`, in radians.
    fn atan2(self, x: Self) -> Self;
    /// The hyperbolic sine.
    fn sinh(self) -> Self;
    /// The hyperbolic cosine.
    fn cosh(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// The inverse of the hyperbolic sine.
    fn asinh(self) -> Self;
    /// The inverse of the hyperbolic cosine.
    fn acosh(self) -> Self;
    /// The inverse of the hyperbolic tangent.
    fn atanh(self) -> Self;
}

/// Implements [`Float`]: methods of one number and of two with their functions in `libm`, and the others.
macro_rules! float {
    ($type:ident, $fma:ident, $sincos:ident;
     $($one:ident $of_one:ident),*; $($two:ident $of_two:ident),*) => {
        impl Float for $type {
            $(fn $one(self) -> Self {
                libm::$of_one(self)
            })*
            $(fn $two(self, other: Self) -> Self {
                libm::$of_two(self, other)
            })*
            fn fract(self) -> Self {
                self - Float::trunc(self)
            }
            fn mul_add(self, a: Self, b: Self) -> Self {
                libm::$fma(self, a, b)
            }
            fn div_euclid(self, by: Self) -> Self {
                let quotient = Float::trunc(self / by);
                match self % by < 0.0 {
                    true if by > 0.0 => quotient - 1.0,
                    true => quotient + 1.0,
                    false => quotient,
                }
            }
            fn rem_euclid(self, by: Self) -> Self {
                let rest = self % by;
                if rest < 0.0 { rest + by.abs() } else { rest }
            }
            fn powi(self, n: i32) -> Self {
                let (mut product, mut power, mut left) = (1.0, self, n.unsigned_abs());
                while left != 0 {
                    if left & 1 == 1 {
                        product *= power;
                    }
                    power *= power;
                    left >>= 1;
                }
                if n < 0 { 1.0 / product } else { product }
            }
            fn log(self, base: Self) -> Self {
                Float::ln(self) / Float::ln(base)
            }
            fn sin_cos(self) -> (Self, Self) {
                libm::$sincos(self)
            }
        }
    };
}

float!(f64, fma, sincos;
    sqrt sqrt, cbrt cbrt, floor floor, ceil ceil, trunc trunc, round round, round_ties_even rint,
    exp exp, exp2 exp2, exp_m1 expm1, ln log, log2 log2, log10 log10, ln_1p log1p,
    sin sin, cos cos, tan tan, asin asin, acos acos, atan atan,
    sinh sinh, cosh cosh, tanh tanh, asinh asinh, acosh acosh, atanh atanh;
    powf pow, hypot hypot, atan2 atan2);
float!(f32, fmaf, sincosf;
    sqrt sqrtf, cbrt cbrtf, floor floorf, ceil ceilf, trunc truncf, round roundf, round_ties_even rintf,
    exp expf, exp2 exp2f, exp_m1 expm1f, ln logf, log2 log2f, log10 log10f, ln_1p log1pf,
    sin sinf, cos cosf, tan tanf, asin asinf, acos acosf, atan atanf,
    sinh sinhf, cosh coshf, tanh tanhf, asinh asinhf, acosh acoshf, atanh atanhf;
    powf powf, hypot hypotf, atan2 atan2f);
