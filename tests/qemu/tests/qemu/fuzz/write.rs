//! Random programs: functions that pass and give back values of random types, call each other by name, through
//! tables, pointers of another type, trait objects, closures and generics, and pass migration points in between.
//!
//! All of a program follows from its seed. What a function computes is a hash of all that it was given, so a
//! value that is lost anywhere changes what the program prints.

use std::fmt::Write;

/// Numbers from a seed (xorshift64*, G. Marsaglia, S. Vigna).
pub struct Random(u64);

impl Random {
    /// Those of a seed.
    pub fn of(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(dyad_random::GOLDEN) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// One below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    fn one<'a>(&mut self, of: &'a [String]) -> &'a str {
        &of[self.below(of.len())]
    }
}

/// What all programs share: values that can be made of a number and hashed.
pub const COMMON: &str = r#"
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hint::black_box;
use core::mem::MaybeUninit;

pub fn mix(hash: u64, value: u64) -> u64 {
    (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

pub trait Val: Copy {
    fn make(n: u64) -> Self;
    fn h(&self) -> u64;
}
macro_rules! ints { ($($t:ty),*) => { $(impl Val for $t {
    fn make(n: u64) -> $t { mix(n, 3) as $t }
    fn h(&self) -> u64 { *self as u64 }
})* } }
ints!(u8, i8, u16, i16, u32, i32, u64, i64, usize);
impl Val for u128 {
    fn make(n: u64) -> u128 { (mix(n, 1) as u128) << 64 | mix(n, 2) as u128 }
    fn h(&self) -> u64 { mix(*self as u64, (*self >> 64) as u64) }
}
impl Val for bool {
    fn make(n: u64) -> bool { mix(n, 5) >> 40 & 1 == 1 }
    fn h(&self) -> u64 { *self as u64 }
}
impl<T: Val> Val for &'static T {
    fn make(n: u64) -> Self { Box::leak(Box::new(T::make(n))) }
    fn h(&self) -> u64 { (**self).h() }
}
macro_rules! floats { ($($t:ident $bits:ident),*) => { $(impl Val for $t {
    fn make(n: u64) -> $t {
        const ODD: [$t; 8] = [0.0, -0.0, 1.0, -1.5, $t::INFINITY, $t::NEG_INFINITY, $t::NAN, $t::MIN_POSITIVE];
        match n & 15 { i @ 0..=7 => ODD[i as usize], _ => (mix(n, 7) >> 40) as $t / 1024.0 - 4096.0 }
    }
    // NaNs have no bits that count.
    fn h(&self) -> u64 { if self.is_nan() { 77 } else { self.to_bits() as u64 } }
})* } }
floats!(f32 u32, f64 u64);
impl<T: Val> Val for Option<T> {
    fn make(n: u64) -> Self { if n & 3 == 0 { None } else { Some(T::make(n)) } }
    fn h(&self) -> u64 { match self { None => 11, Some(v) => mix(13, v.h()) } }
}
impl<T: Val, const N: usize> Val for [T; N] {
    fn make(n: u64) -> Self { core::array::from_fn(|i| T::make(mix(n, i as u64))) }
    fn h(&self) -> u64 { self.iter().fold(N as u64, |h, v| mix(h, v.h())) }
}
impl<A: Val, B: Val> Val for (A, B) {
    fn make(n: u64) -> Self { (A::make(n), B::make(mix(n, 9))) }
    fn h(&self) -> u64 { mix(self.0.h(), self.1.h()) }
}
pub fn sums(a: f64, b: f64) -> u64 {
    let all = [a + b, a - b, a * b, a / b, a.min(b), a.max(b), if a < b { a } else { b }];
    all.iter().fold(1, |h, v| mix(h, v.h()))
}
/// Calls `f` and passes a point before and behind.
#[inline(never)]
pub fn between<T: Val, R: Val>(value: T, f: &mut dyn FnMut(T) -> R) -> (T, R) {
    point();
    let result = f(value);
    point();
    (value, result)
}
/// Sorts by what `key` says, which passes points.
#[inline(never)]
pub fn sorted<T: Val>(seed: u64, key: impl Fn(&T) -> u64) -> u64 {
    let mut all: Vec<T> = (0..seed % 13).map(|i| T::make(mix(seed, i))).collect();
    all.sort_by(|a, b| { point(); key(a).cmp(&key(b)) });
    all.iter().fold(seed, |h, v| mix(h, v.h()))
}
pub trait Op { fn go(&mut self, n: u64, x: f64) -> u64; }
"#;

/// A function of a program: types of its arguments and its result.
struct Function {
    arguments: Vec<String>,
    result: String,
}

/// The module of a program.
pub fn program(seed: u64) -> String {
    let mut random = Random::of(seed);
    let r = &mut random;
    let scalars = [
        "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "usize", "u128", "bool", "f32", "f64",
    ];
    let mut types: Vec<String> = scalars.map(String::from).to_vec();
    let mut out = String::from("use super::*;\n");
    for i in 0..4 {
        let fields: Vec<String> = (0..1 + r.below(5))
            .map(|_| r.one(&types).to_owned())
            .collect();
        structure(&mut out, i, &fields);
        types.push(format!("S{i}"));
        let (a, b) = (r.one(&types).to_owned(), r.one(&types).to_owned());
        types.push(match r.below(3) {
            0 => format!("Option<{a}>"),
            1 => format!("[{a}; {}]", 1 + r.below(4)),
            _ => format!("({a}, {b})"),
        });
    }
    let mut functions: Vec<Function> = Vec::new();
    for i in 0..7 {
        // One of two has the types of one before, so that tables have several.
        let function = match functions.last() {
            Some(last) if r.below(2) == 0 => Function {
                arguments: last.arguments.clone(),
                result: last.result.clone(),
            },
            _ => {
                let count = [0, 1, 2, 3, 4, 6, 9, 14][r.below(8)];
                let mut arguments: Vec<String> =
                    (0..count).map(|_| r.one(&types).to_owned()).collect();
                // Of many arguments none has 128 bits, not behind a reference either, which the optimiser may replace
                // by what is there: half of it could be in a register, which is refused.
                if count > 4 {
                    let narrow = |t: &String| types[..13].contains(t) && *t != "u128";
                    for t in arguments.iter_mut().filter(|t| !narrow(t)) {
                        *t = "&'static u64".to_owned();
                    }
                }
                Function {
                    arguments,
                    result: r.one(&types).to_owned(),
                }
            }
        };
        write_function(&mut out, r, i, &function, &functions);
        functions.push(function);
    }
    let last = functions.len() - 1;
    let call = by_name(last, &functions[last], "hash", 2);
    let _ = write!(
        out,
        "struct Kept(u64);\nimpl Op for Kept {{ fn go(&mut self, n: u64, x: f64) -> u64 {{ self.0 = mix(self.0, n); point(); mix(self.0, x.h()) }} }}\n\
         struct Other(Vec<u64>);\nimpl Op for Other {{ fn go(&mut self, n: u64, x: f64) -> u64 {{ point(); self.0.push(mix(n, x.h())); self.0.iter().fold(n, |h, v| mix(h, *v)) }} }}\n\
         pub fn run() -> u64 {{\n    let mut hash = {seed}u64;\n    for _ in 0..2 {{\n        hash = mix(hash, {call}.h());\n    }}\n\
         \x20   let mut all: Vec<Box<dyn Op>> = Vec::new();\n    all.push(Box::new(Kept(hash)));\n    all.push(Box::new(Other(Vec::new())));\n\
         \x20   for i in 0..6u64 {{ let which = black_box(i as usize * 5 / 3) % 2; hash = mix(hash, all[which].go(hash, f64::make(i))); }}\n\
         \x20   hash = mix(hash, sorted::<S1>(hash, |v| {{ point(); v.h() % 7 }}));\n    hash\n}}\n"
    );
    out
}

fn structure(out: &mut String, number: usize, fields: &[String]) {
    let list = |f: &dyn Fn(usize, &String) -> String| {
        let all = fields.iter().enumerate().map(|(i, t)| f(i, t));
        all.collect::<Vec<_>>().join(", ")
    };
    let (made, hashed) = (
        list(&|i, t| format!("<{t}>::make(mix(n, {i}))")),
        list(&|i, _| format!("self.{i}.h()")),
    );
    let _ = write!(
        out,
        "#[derive(Clone, Copy)]\npub struct S{number}({});\nimpl Val for S{number} {{\n    fn make(n: u64) -> Self {{ S{number}({made}) }}\n\
         \x20   fn h(&self) -> u64 {{ [{hashed}].iter().fold({number}, |h, v| mix(h, *v)) }}\n}}\n",
        list(&|_, t| t.clone())
    );
}

/// The arguments of a call, made of what `of` is.
fn arguments(function: &Function, of: &str) -> String {
    let one = |(i, t): (usize, &String)| format!("<{t}>::make(mix({of}, {i})), ");
    function.arguments.iter().enumerate().map(one).collect()
}

fn by_name(number: usize, function: &Function, of: &str, depth: u32) -> String {
    format!("f{number}({}{depth})", arguments(function, of))
}

fn write_function(
    out: &mut String,
    r: &mut Random,
    number: usize,
    function: &Function,
    before: &[Function],
) {
    let Function {
        arguments: types,
        result,
    } = function;
    let list: String = (0..)
        .zip(types)
        .map(|(i, t): (usize, _)| format!("a{i}: {t}, "))
        .collect();
    let own: String = (0..types.len()).map(|i| format!("a{i}, ")).collect();
    let mut body = format!("    let mut acc = {}u64;\n", r.below(1 << 30));
    let floats: Vec<usize> = (0..types.len()).filter(|i| types[*i] == "f64").collect();
    let steps = 2 + r.below(4);
    // Calls that are made more than once would multiply all the way up.
    let mut calls = 0;
    for step in 0..steps {
        for i in (0..types.len()).filter(|i| i % steps == step) {
            let _ = writeln!(body, "    acc = mix(acc, a{i}.h());");
        }
        match r.below(8) {
            0 => body.push_str("    point();\n"),
            1 => body.push_str(
                "    for i in 0..acc % 5 { acc = mix(acc, i); if acc & 3 == 0 { point(); } }\n",
            ),
            2 if floats.len() > 1 => {
                let (a, b) = (floats[r.below(floats.len())], floats[r.below(floats.len())]);
                let _ = writeln!(body, "    point();\n    acc = mix(acc, sums(a{a}, a{b}));");
            }
            _ if before.is_empty() || calls == 2 => body.push_str("    point();\n"),
            kind => {
                calls += 1;
                let to = r.below(before.len());
                call(&mut body, r, kind, to, before);
            }
        }
    }
    let _ = writeln!(
        body,
        "    if depth > 0 {{ let r = f{number}({own}depth - 1); point(); acc = mix(acc, r.h()); }}"
    );
    for i in 0..types.len() {
        let _ = writeln!(body, "    acc = mix(acc, a{i}.h());");
    }
    let _ = write!(
        out,
        "#[inline(never)]\npub fn f{number}({list}depth: u32) -> {result} {{\n{body}    <{result}>::make(acc)\n}}\n"
    );
}

/// A call of a function that was there before, in one of several ways.
fn call(body: &mut String, r: &mut Random, kind: usize, to: usize, before: &[Function]) {
    let callee = &before[to];
    let (passed, result) = (arguments(callee, "acc"), &callee.result);
    let types: String = callee.arguments.iter().map(|t| format!("{t}, ")).collect();
    let same = |i: &usize| before[*i].arguments == callee.arguments && before[*i].result == *result;
    let table: Vec<String> = (0..before.len())
        .filter(same)
        .map(|i| format!("f{i}"))
        .collect();
    let count = table.len();
    let text = match kind {
        3 => format!("    let r = f{to}({passed}0);\n"),
        4 => format!(
            "    const T: [fn({types}u32) -> {result}; {count}] = [{}];\n    let r = black_box(&T)[acc as usize % {count}]({passed}0);\n",
            table.join(", ")
        ),
        5 => {
            // As Rust promises: a `bool` and one that may have no value, thin pointers and each other, integers of
            // one width and sign.
            let other = |t: &String| match t.as_str() {
                "bool" | "u8" | "u64" | "f64" | "u32" | "f32" => format!("MaybeUninit<{t}>"),
                _ => t.clone(),
            };
            let value = |(i, t): (usize, &String)| {
                let value = format!("<{t}>::make(mix(acc, {i}))");
                match other(t) == *t {
                    true => format!("{value}, "),
                    false => format!("MaybeUninit::new({value}), "),
                }
            };
            let others: String = callee
                .arguments
                .iter()
                .map(|t| format!("{}, ", other(t)))
                .collect();
            let values: String = callee.arguments.iter().enumerate().map(value).collect();
            format!(
                "    let p: fn({types}u32) -> {result} = black_box(f{to});\n\
                 \x20   let p: fn({others}u32) -> {result} = unsafe {{ core::mem::transmute(p) }};\n    let r = black_box(p)({values}0);\n"
            )
        }
        6 => format!(
            "    let kept = acc;\n    let (back, r) = between::<u64, {result}>(acc, &mut |acc| {{ let r = f{to}({passed}0); acc_seen(kept, acc); r }});\n    acc = mix(acc, back);\n"
        ),
        _ => format!(
            "    let f: Box<dyn Fn(u64) -> {result}> = if acc & 1 == {} {{ Box::new(move |acc| f{to}({passed}0)) }} else {{ Box::new(|n| <{result}>::make(n)) }};\n    let r = black_box(f)(acc);\n",
            r.below(2)
        ),
    };
    let _ = write!(
        body,
        "    {{\n{text}    point();\n    acc = mix(acc, r.h());\n    }}\n"
    );
}
