extern crate alloc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
static POINTS: AtomicU64 = AtomicU64::new(0);
fn point() { POINTS.fetch_add(1, Relaxed); }
fn point_or_stay() { point() }
fn ask() { point() }
fn points() -> u64 { POINTS.load(Relaxed) }
// Minima and maxima as the book defines them.
macro_rules! extremes { ($($t:ident $min:ident $max:ident),*) => { $(
    fn $min(a: $t, b: $t) -> $t {
        if a.is_nan() { b } else if b.is_nan() { a } else if a < b || a == b && a.is_sign_negative() { a } else { b }
    }
    fn $max(a: $t, b: $t) -> $t {
        if a.is_nan() { b } else if b.is_nan() { a } else if a > b || a == b && a.is_sign_positive() { a } else { b }
    }
)* } }
extremes!(f32 min32 max32, f64 min64 max64);
fn main() {
    for (seed, run) in PROGRAMS {
        POINTS.store(0, Relaxed);
        let mut trail = Trail::new();
        run(&mut trail);
        trail.print("host", seed);
    }
}
