//! Product of two square matrices of 64-bit words, row by column.

use alloc::vec;
use alloc::vec::Vec;

use crate::Load;
use crate::rng::Xorshift;

/// Order of the matrices that the speed is measured with.
pub const DEFAULT: usize = 96;

/// Two matrices and their product.
#[derive(Clone, Debug)]
pub struct Matmul {
    n: usize,
    a: Vec<u64>,
    b: Vec<u64>,
    c: Vec<u64>,
}

impl Matmul {
    /// Random matrices of order `n`, at least 1.
    pub fn new(n: usize) -> Matmul {
        let mut rng = Xorshift::new();
        let mut random = || (0..n * n).map(|_| rng.draw()).collect();
        Matmul {
            n,
            a: random(),
            b: random(),
            c: vec![0; n * n],
        }
    }
}

impl Load for Matmul {
    #[inline(never)]
    fn pass(&mut self) {
        let n = self.n;
        for (row, out) in self.a.chunks_exact(n).zip(self.c.chunks_exact_mut(n)) {
            for (j, out) in out.iter_mut().enumerate() {
                let mut sum = 0u64;
                for (&x, line) in row.iter().zip(self.b.chunks_exact(n)) {
                    sum = sum.wrapping_add(x.wrapping_mul(line[j]));
                }
                *out = sum;
            }
        }
    }

    fn steps(&self) -> u64 {
        (self.n as u64).pow(3)
    }

    /// Freivalds' check: `C v = A (B v)` for random `v`.
    fn check(&self) -> bool {
        let times = |m: &[u64], v: &[u64]| -> Vec<u64> {
            let row = |row: &[u64]| {
                let terms = row.iter().zip(v).map(|(x, y)| x.wrapping_mul(*y));
                terms.fold(0, u64::wrapping_add)
            };
            m.chunks_exact(self.n).map(row).collect()
        };
        let mut rng = Xorshift::new();
        let v: Vec<u64> = (0..self.n).map(|_| rng.draw()).collect();
        times(&self.c, &v) == times(&self.a, &times(&self.b, &v))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_checked() {
        let mut m = Matmul::new(17);
        assert!(!m.check());
        m.pass();
        assert!(m.check());
        assert_eq!(m.steps(), 17 * 17 * 17);
        m.c[100] ^= 1;
        assert!(!m.check());
        m.pass();
        assert!(m.check(), "a pass does not build on the last one");
    }
}
