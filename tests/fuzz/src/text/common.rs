use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::hint::black_box;
use core::mem::MaybeUninit;

/// A hash of a hash and one more value.
pub fn mix(hash: u64, value: u64) -> u64 {
    (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Hashes of a program at several places of its way.
pub struct Trail {
    notes: [u64; 8],
    count: usize,
}
impl Trail {
    pub fn new() -> Trail {
        Trail { notes: [0; 8], count: 0 }
    }
    pub fn note(&mut self, hash: u64) {
        self.notes[self.count.min(7)] = mix(self.notes[self.count.min(7)], hash);
        self.count += 1;
    }
    pub fn print(&self, way: &str, seed: u64) {
        let notes: String = self.notes[..self.count.min(8)].iter().map(|n| format!(" {n:016x}")).collect();
        println!("fuzz {way} {seed} {}{notes}", points());
    }
}

/// A value that can be made of a number, and hashed.
pub trait Val: Copy {
    fn make(n: u64) -> Self;
    fn h(&self) -> u64;
}
macro_rules! ints { ($($t:ty),*) => { $(impl Val for $t {
    #[inline(never)]
    fn make(n: u64) -> $t {
        match n & 31 { 0 => 0, 1 => <$t>::MAX, 2 => <$t>::MIN, 3 => 1, _ => mix(n, 3) as $t }
    }
    fn h(&self) -> u64 { *self as u64 }
})* } }
ints!(u8, i8, u16, i16, u32, i32, u64, i64, usize, isize);
impl Val for u128 {
    #[inline(never)]
    fn make(n: u64) -> u128 { (mix(n, 1) as u128) << 64 | mix(n, 2) as u128 }
    fn h(&self) -> u64 { mix(*self as u64, (*self >> 64) as u64) }
}
impl Val for i128 {
    fn make(n: u64) -> i128 { u128::make(n) as i128 }
    fn h(&self) -> u64 { (*self as u128).h() }
}
impl Val for bool {
    fn make(n: u64) -> bool { mix(n, 5) >> 40 & 1 == 1 }
    fn h(&self) -> u64 { *self as u64 }
}
impl Val for char {
    #[inline(never)]
    fn make(n: u64) -> char { char::from_u32((mix(n, 6) >> 30) as u32 % 0xd800).unwrap_or('?') }
    fn h(&self) -> u64 { *self as u64 }
}
macro_rules! floats { ($($t:ident $min:ident $max:ident $cs:ident),*) => { $(
    impl Val for $t {
        #[inline(never)]
        fn make(n: u64) -> $t {
            const ODD: [$t; 8] = [0.0, -0.0, 1.0, -1.5, $t::INFINITY, $t::NEG_INFINITY, $t::NAN, $t::MIN_POSITIVE];
            match n & 31 { i @ 0..=7 => ODD[i as usize], _ => (mix(n, 7) >> 40) as $t / 1024.0 - 8192.0 }
        }
        // NaNs have no bits that count.
        fn h(&self) -> u64 { if self.is_nan() { 77 } else { self.to_bits() as u64 } }
    }
    /// A sign that counts: that of a NaN does not.
    pub fn $cs(a: $t, b: $t) -> $t { if a.is_nan() || b.is_nan() { b } else { a.copysign(b) } }
)* } }
floats!(f32 min32 max32 sign32, f64 min64 max64 sign64);
impl<T: Val> Val for Option<T> {
    #[inline(never)]
    fn make(n: u64) -> Self { if n & 3 == 0 { None } else { Some(T::make(n)) } }
    #[inline(never)]
    fn h(&self) -> u64 { match self { None => 11, Some(v) => mix(13, v.h()) } }
}
impl<T: Val, E: Val> Val for Result<T, E> {
    #[inline(never)]
    fn make(n: u64) -> Self { if n & 3 == 0 { Err(E::make(n)) } else { Ok(T::make(n)) } }
    #[inline(never)]
    fn h(&self) -> u64 { match self { Err(e) => mix(17, e.h()), Ok(v) => mix(19, v.h()) } }
}
impl<T: Val, const N: usize> Val for [T; N] {
    #[inline(never)]
    fn make(n: u64) -> Self { core::array::from_fn(|i| T::make(mix(n, i as u64))) }
    #[inline(never)]
    fn h(&self) -> u64 { self.iter().fold(N as u64, |h, v| mix(h, v.h())) }
}
impl<A: Val, B: Val> Val for (A, B) {
    #[inline(never)]
    fn make(n: u64) -> Self { (A::make(n), B::make(mix(n, 9))) }
    #[inline(never)]
    fn h(&self) -> u64 { mix(self.0.h(), self.1.h()) }
}
impl<A: Val, B: Val, C: Val> Val for (A, B, C) {
    #[inline(never)]
    fn make(n: u64) -> Self { (A::make(n), B::make(mix(n, 9)), C::make(mix(n, 10))) }
    #[inline(never)]
    fn h(&self) -> u64 { mix(mix(self.0.h(), self.1.h()), self.2.h()) }
}
/// The hash of a slice.
#[inline(never)]
pub fn all<T: Val>(values: &[T]) -> u64 {
    values.iter().fold(values.len() as u64, |h, v| mix(h, v.h()))
}
/// Calls `f` and passes a point before and behind.
#[inline(never)]
pub fn between<T: Val, R: Val>(value: T, f: &mut dyn FnMut(T) -> R) -> (T, R) {
    point();
    let result = f(value);
    point();
    (value, result)
}
/// Calls `f` with what another call has given.
#[inline(never)]
pub fn twice<T: Val, R: Val>(value: T, f: impl Fn(T, u64) -> R) -> (R, R) {
    let first = f(value, 1);
    point();
    let second = f(value, first.h());
    (second, first)
}
/// Sorts by what `key` says, which passes points.
#[inline(never)]
pub fn sorted<T: Val>(seed: u64, key: impl Fn(&T) -> u64) -> u64 {
    let mut values: Vec<T> = (0..seed % 11).map(|i| T::make(mix(seed, i))).collect();
    values.sort_by(|a, b| { point(); key(a).cmp(&key(b)) });
    all(&values)
}
/// A value that is built step by step.
#[derive(Clone, Copy)]
pub struct Builder<T: Val> { first: T, second: Option<T>, hash: u64 }
impl<T: Val> Builder<T> {
    #[inline(never)]
    pub fn new(first: T) -> Self { point(); Builder { first, second: None, hash: first.h() } }
    #[inline(never)]
    pub fn with<U: Val>(mut self, value: U) -> Self { point(); self.hash = mix(self.hash, value.h()); self }
    #[inline(never)]
    pub fn then(self, f: impl Fn(T) -> T) -> Self {
        let next = f(self.first);
        point();
        Builder { first: next, second: Some(self.first), ..self }
    }
    pub fn build(&self) -> u64 { mix(mix(self.first.h(), self.second.h()), self.hash) }
}
