//! The NAS Parallel Benchmarks as loads: all iterations in one pass, verified.

use npb_kernels::{cg, is};

use crate::Load;

/// IS. Each pass starts with the keys as generated and ends with the ranks of the last iteration.
#[derive(Clone, Debug)]
pub struct Is {
    pristine: is::Is,
    is: is::Is,
    passed: u32,
}

impl Is {
    /// Makes the keys.
    pub fn new(class: is::Class) -> Is {
        let pristine = is::Is::generate(class);
        Is {
            is: pristine.clone(),
            pristine,
            passed: 0,
        }
    }
}

impl Load for Is {
    #[inline(never)]
    fn pass(&mut self) {
        // No copy of everything: how many instructions that takes is a matter of the library.
        self.is.restore(&self.pristine);
        self.passed = 0;
        for t in 1..=is::ITERATIONS {
            self.is.stamp(t);
            self.is.count();
            self.is.accumulate();
            self.passed += self.is.verify_partial(t).unwrap_or(0);
        }
    }

    fn steps(&self) -> u64 {
        is::ITERATIONS.into()
    }

    fn check(&self) -> bool {
        let mut sorted = self.is.clone();
        sorted.sort();
        self.passed + u32::from(sorted.verify_full().is_ok()) == is::VERIFICATIONS
    }
}

/// CG.
#[derive(Clone, Debug)]
pub struct Cg(cg::Cg);

impl Cg {
    /// Makes the matrix.
    pub fn new(class: cg::Class) -> Cg {
        Cg(cg::Cg::generate(class))
    }
}

impl Load for Cg {
    #[inline(never)]
    fn pass(&mut self) {
        self.0.reset();
        for _ in 0..cg::ITERATIONS {
            self.0.iterate();
        }
    }

    fn steps(&self) -> u64 {
        cg::ITERATIONS.into()
    }

    fn check(&self) -> bool {
        self.0.verify().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_verify_as_often_as_they_are_made() {
        let mut is = Is::new(is::Class::S);
        let mut cg = Cg::new(cg::Class::S);
        assert!(!is.check() && !cg.check());
        for _ in 0..2 {
            is.pass();
            assert!(is.check());
            cg.pass();
            assert!(cg.check());
        }
    }
}
