//! Recursion, references, closures, trait objects, generics.

use core::hint::black_box;

use dyad::prelude::thread::*;

use super::{Line, mix};
use crate::schedule::point;

fn fib(n: u64) -> u64 {
    point();
    if n < 2 { n } else { fib(n - 1) + fib(n - 2) }
}

fn ackermann(m: u64, n: u64) -> u64 {
    point();
    match (m, n) {
        (0, n) => n + 1,
        (m, 0) => ackermann(m - 1, 1),
        (m, n) => ackermann(m - 1, ackermann(m, n - 1)),
    }
}

/// Recursion, simple and nested.
pub fn recursion() -> Line {
    let hash = mix(fib(10), ackermann(2, 3));
    let good = fib(12) == 144 && ackermann(1, 5) == 7;
    ("recursion", if good { Ok(hash) } else { Err("a value") })
}

/// Fills what its caller has, through two references into frames above.
fn fill(values: &mut [u64], count: &mut u64, depth: u32) {
    point();
    if depth == 0 {
        for v in values.iter_mut() {
            *v = mix(*v, *count);
            *count += 1;
            point();
        }
        return;
    }
    let (left, right) = values.split_at_mut(values.len() / 2);
    fill(left, count, depth - 1);
    point();
    fill(right, count, depth - 1);
}

/// References into the frames of callers.
pub fn references() -> Line {
    let mut values = [7u64; 32];
    let mut count = 0;
    fill(&mut values, &mut count, 3);
    let mut inner = &mut values;
    let again = &mut inner;
    again[5] = 99;
    point();
    let hash = again.iter().fold(0, |h, v| mix(h, *v));
    let good = count == 32 && values[5] == 99;
    ("references", if good { Ok(hash) } else { Err("a frame") })
}

fn apply(times: u32, f: &mut dyn FnMut(u32)) {
    for i in 0..times {
        point();
        f(i);
    }
}

/// Closures that capture by reference and by value, called directly, through `dyn` and from a `Box`.
pub fn closures() -> Line {
    let mut sum = 0u64;
    let factor = black_box(3u64);
    apply(10, &mut |i| {
        point();
        sum += u64::from(i) * factor;
    });
    let captured = format!("{sum}-{factor}");
    let boxed: Box<dyn Fn(u64) -> u64> = Box::new(move |n| {
        point();
        n + captured.len() as u64
    });
    let mut total = 0;
    for n in 0..5 {
        total = mix(total, boxed(n));
    }
    let good = sum == 135 && boxed(1) == 6;
    ("closures", if good { Ok(total) } else { Err("a capture") })
}

trait Shape {
    fn area(&self) -> f64;
    fn scale(&mut self, by: f64);
    fn name(&self) -> String;
}

struct Circle(f64);
struct Rectangle {
    sides: [f64; 2],
    label: String,
}

impl Shape for Circle {
    fn area(&self) -> f64 {
        point();
        3.0 * self.0 * self.0
    }
    fn scale(&mut self, by: f64) {
        self.0 *= by;
        point();
    }
    fn name(&self) -> String {
        "circle".to_string()
    }
}

impl Shape for Rectangle {
    fn area(&self) -> f64 {
        let [a, b] = self.sides;
        point();
        a * b
    }
    fn scale(&mut self, by: f64) {
        for side in &mut self.sides {
            point();
            *side *= by;
        }
    }
    fn name(&self) -> String {
        point();
        self.label.clone()
    }
}

impl Drop for Rectangle {
    fn drop(&mut self) {
        point();
    }
}

/// Trait objects, dropped on whatever ISA they end up on.
pub fn trait_objects() -> Line {
    let mut shapes: Vec<Box<dyn Shape>> = Vec::new();
    for i in 1..6u32 {
        let side = f64::from(i);
        shapes.push(match i % 2 {
            0 => Box::new(Circle(side)),
            _ => Box::new(Rectangle {
                sides: [side, side + 1.0],
                label: format!("rectangle {i}"),
            }),
        });
    }
    let mut hash = 0;
    for shape in &mut shapes {
        shape.scale(2.0);
        hash = mix(hash, shape.area().to_bits());
        hash = mix(hash, shape.name().len() as u64);
    }
    let sum: f64 = shapes.iter().map(|s| s.area()).sum();
    let good = sum == 8.0 + 48.0 + 48.0 + 192.0 + 120.0;
    (
        "trait objects",
        if good { Ok(hash) } else { Err("an area") },
    )
}

trait Monoid: Copy {
    const UNIT: Self;
    fn with(self, other: Self) -> Self;
    fn value(self) -> u64;
}

#[derive(Clone, Copy)]
struct Sum(u64);
#[derive(Clone, Copy)]
struct Longest {
    run: u32,
    best: u32,
    weight: u128,
}

impl Monoid for Sum {
    const UNIT: Sum = Sum(0);
    fn with(self, other: Sum) -> Sum {
        point();
        Sum(self.0 + other.0)
    }
    fn value(self) -> u64 {
        self.0
    }
}

impl Monoid for Longest {
    const UNIT: Longest = Longest {
        run: 0,
        best: 0,
        weight: 1,
    };
    fn with(self, other: Longest) -> Longest {
        point();
        let run = if other.run == 0 {
            0
        } else {
            self.run + other.run
        };
        Longest {
            run,
            best: self.best.max(run),
            weight: self.weight.wrapping_mul(3) ^ other.weight,
        }
    }
    fn value(self) -> u64 {
        u64::from(self.best) ^ self.weight as u64 ^ (self.weight >> 64) as u64
    }
}

#[inline(never)]
fn fold<M: Monoid>(items: impl Iterator<Item = M>) -> M {
    items.fold(M::UNIT, M::with)
}

/// Generic functions over types of different sizes, one of them returned in memory.
pub fn generics() -> Line {
    let sums = fold((1..=20).map(Sum));
    let runs = fold([1u32, 1, 0, 1, 1, 1, 0, 1].into_iter().map(|run| Longest {
        run,
        best: 0,
        weight: u128::from(run) << 70,
    }));
    let good = sums.0 == 210 && runs.best == 3;
    let hash = mix(sums.value(), runs.value());
    ("generics", if good { Ok(hash) } else { Err("a fold") })
}
