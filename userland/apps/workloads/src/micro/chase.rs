//! Pointer chase with migrations: the thread goes to where a list lies, follows it for some steps,
//! and comes back, again and again; it may do other work in between.
//!
//! Against that stands following the list from where the thread is. If a migration there and back
//! takes `M`, and a step takes `far` from here and `near` over there, migrating pays from
//! `M / (far - near)` steps on, see [`break_even`].

use crate::ring::Ring;
use crate::rng::Xorshift;

/// Who carries the thread to the data and back.
pub trait Carrier {
    /// To where the list lies.
    fn go(&mut self);

    /// To where the thread comes from.
    fn come_back(&mut self);
}

/// Stays where it is: what migrating is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Stay;

impl Carrier for Stay {
    fn go(&mut self) {}

    fn come_back(&mut self) {}
}

/// A list, and how it is followed.
#[derive(Clone, Debug)]
pub struct Chase {
    ring: Ring,
    /// Where the last steps have ended.
    at: u32,
    steps: u64,
    per_visit: u32,
    work: u32,
    rng: Xorshift,
    result: u64,
}

impl Chase {
    /// A list of all lines of `bytes` of memory in random order, followed for `per_visit` steps
    /// between two migrations. Between two visits there are `work` rounds of other work, each a few
    /// instructions that use no memory.
    pub fn new(bytes: usize, per_visit: u32, work: u32) -> Chase {
        Chase {
            ring: Ring::random(bytes),
            at: 0,
            steps: 0,
            per_visit,
            work,
            rng: Xorshift::new(),
            result: 0,
        }
    }

    /// What the list begins with, for questions of where it lies.
    pub fn first(&self) -> &impl Sized {
        self.ring.first()
    }

    /// Changes how the list is followed from here on.
    pub fn set(&mut self, per_visit: u32, work: u32) {
        (self.per_visit, self.work) = (per_visit, work);
    }

    /// Other work, then a visit.
    pub fn visit(&mut self, carrier: &mut impl Carrier) {
        self.work();
        carrier.go();
        self.follow();
        carrier.come_back();
    }

    /// The steps of a visit, here.
    #[inline(never)]
    pub fn follow(&mut self) {
        self.at = self.ring.follow(self.at, self.per_visit.into());
        self.steps += u64::from(self.per_visit);
    }

    /// The other work of a visit.
    #[inline(never)]
    pub fn work(&mut self) {
        let mut rng = self.rng;
        let mut sum = self.result;
        for _ in 0..self.work {
            sum = sum.wrapping_add(rng.draw());
        }
        (self.rng, self.result) = (rng, sum);
    }

    /// Steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// What the other work has given so far; depends on how much there was.
    pub fn result(&self) -> u64 {
        self.result
    }

    /// Whether the list has been followed to where so many steps lead. Follows it once more, at
    /// most once round.
    pub fn check(&self) -> bool {
        let rest = self.steps % self.ring.length();
        self.ring.follow(0, rest) == self.at
    }
}

/// From how many steps on a migration pays: `migration` is the time of one there and back, `far`
/// and `near` that of a step, all in the same unit. `None` if it never does.
pub fn break_even(migration: f64, far: f64, near: f64) -> Option<f64> {
    (far > near).then(|| migration / (far - near))
}

/// How much sooner `steps` are done with migrations than without: approaches `far / near`.
pub fn speedup(migration: f64, far: f64, near: f64, steps: f64) -> f64 {
    far * steps / (near * steps + migration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Count {
        there: bool,
        visits: u32,
    }

    impl Carrier for Count {
        fn go(&mut self) {
            assert!(!core::mem::replace(&mut self.there, true));
        }

        fn come_back(&mut self) {
            assert!(core::mem::replace(&mut self.there, false));
            self.visits += 1;
        }
    }

    #[test]
    fn lists_are_followed_wherever_the_thread_is() {
        let mut chase = Chase::new(1 << 14, 100, 0);
        assert!(chase.check());
        let mut carrier = Count::default();
        for _ in 0..7 {
            chase.visit(&mut carrier);
            assert!(chase.check());
        }
        assert_eq!((carrier.visits, chase.steps()), (7, 700));
        chase.set(3, 0);
        chase.visit(&mut Stay);
        assert_eq!(chase.steps(), 703);
        assert!(chase.check());
        chase.at = (chase.at + 1) % 256;
        assert!(!chase.check());
    }

    #[test]
    fn other_work_is_done_as_often_as_asked_for() {
        let result = |parts: &[u32]| {
            let mut chase = Chase::new(128, 1, 0);
            for &work in parts {
                chase.set(1, work);
                chase.visit(&mut Stay);
            }
            chase.result()
        };
        assert_eq!(result(&[0]), 0);
        assert_eq!(result(&[10]), result(&[3, 7]));
        assert_ne!(result(&[10]), result(&[11]));
    }

    /// The figures of Flick: 18.3 us, 825 and 267 ns.
    #[test]
    fn the_model_gives_the_published_break_even() {
        let n = break_even(18_300.0, 825.0, 267.0).unwrap();
        assert!((n - 32.8).abs() < 0.1, "{n}");
        assert!((speedup(18_300.0, 825.0, 267.0, n) - 1.0).abs() < 1e-12);
        let plateau = speedup(18_300.0, 825.0, 267.0, 1024.0);
        assert!((2.5..3.1).contains(&plateau), "{plateau}");
        assert_eq!(break_even(1.0, 2.0, 2.0), None);
    }
}
