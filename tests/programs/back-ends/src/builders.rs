//! Builders: methods that return what they are called on, around calls that move.

use core::fmt::{self, Debug, Formatter, Write};
use core::hint::black_box;

use crate::{go, mix};

/// A sum of functions.
#[derive(Default)]
struct Sum {
    terms: u64,
    total: f64,
}

impl Sum {
    #[inline(never)]
    fn with(&mut self, f: &dyn Fn(f64) -> f64, x: f64) -> &mut Sum {
        self.terms += 1;
        self.total += f(x);
        self
    }

    #[inline(never)]
    fn add(&mut self, f: fn(u64) -> u64, x: u64) -> &mut Sum {
        self.terms = mix(self.terms, f(x));
        self
    }
}

/// Moves when it is written.
struct Moving(u64);

impl Debug for Moving {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 & 1 == 1 {
            let _ = go();
        }
        f.debug_struct("Moving")
            .field("value", &self.0)
            .field("square", &(self.0 * self.0))
            .finish()
    }
}

/// Keeps the hash of what is written.
struct Hash(u64);

impl Write for Hash {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0 = s.bytes().fold(self.0, |h, b| mix(h, u64::from(b)));
        Ok(())
    }
}

struct Pair(Moving, Moving);

impl Debug for Pair {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("first", &self.0)
            .field("second", &self.1)
            .field("third", &1000)
            .finish()
    }
}

fn moves(x: u64) -> u64 {
    if x & 1 == 1 {
        let _ = go();
    }
    x * 3
}

/// Builds while the thread moves, and compares with what does not move.
///
/// # Errors
///
/// What was built and what it ought to be.
pub fn play() -> Result<u64, (&'static str, u64, u64)> {
    let mut hash = 0;
    for round in 0..4u64 {
        let square = |x: f64| {
            if round & 1 == 1 {
                let _ = go();
            }
            x * x
        };
        let mut sum = Sum::default();
        let built = black_box(&mut sum)
            .with(&square, 1.0)
            .with(&square, 2.0)
            .with(&square, 3.0)
            .add(moves, 1000)
            .add(moves, 1001)
            .add(moves, 1000);
        let terms = [3000, 3003, 3000].into_iter().fold(3, mix);
        if (built.terms, built.total) != (terms, 14.0) {
            return Err(("a sum", built.terms, terms));
        }
        hash = mix(hash, built.terms);
        let (mut written, mut expected) = (Hash(0), Hash(0));
        let pair = Pair(Moving(round), Moving(round + 1));
        let _ = write!(written, "{pair:?}");
        let (a, b) = (round, round + 1);
        let _ = write!(
            expected,
            "Pair {{ first: Moving {{ value: {a}, square: {} }}, second: Moving {{ value: {b}, square: {} }}, \
             third: 1000 }}",
            a * a,
            b * b
        );
        if written.0 != expected.0 {
            return Err(("a structure that is written", written.0, expected.0));
        }
        hash = mix(hash, written.0);
    }
    Ok(hash)
}
