//! Ranks of Zipf's distribution, by the method of J. Gray et al., "Quickly generating billion-record synthetic databases",
//! SIGMOD '94, which is that of the benchmark.

use libm::pow;

/// The exponent of the benchmark.
pub const THETA: f64 = 0.99;

/// The sum of 1 / i^theta for i from 1 to n.
pub fn zeta(n: u64, theta: f64) -> f64 {
    more(0.0, 0..n, theta)
}

/// The sum with further terms.
fn more(sum: f64, terms: core::ops::Range<u64>, theta: f64) -> f64 {
    terms.fold(sum, |sum, i| sum + 1.0 / pow((i + 1) as f64, theta))
}

/// A distribution over ranks from 0 on: rank r has the part 1 / (r + 1)^theta of all.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    items: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Over `items` ranks, at least 2. Takes time in proportion to them.
    pub fn new(items: u64, theta: f64) -> Zipf {
        let items = items.max(2);
        Zipf {
            items,
            theta,
            zeta: zeta(items, theta),
            eta: 0.0,
        }
        .with_eta()
    }

    fn with_eta(self) -> Zipf {
        let part = pow(2.0 / self.items as f64, 1.0 - self.theta);
        let eta = (1.0 - part) / (1.0 - zeta(2, self.theta) / self.zeta);
        Zipf { eta, ..self }
    }

    /// There are more items.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            self.zeta = more(self.zeta, self.items..items, self.theta);
            self.items = items;
            *self = self.with_eta();
        }
    }

    /// The rank of a number from 0 on that is below 1 and drawn uniformly.
    pub fn rank(&self, u: f64) -> u64 {
        let at = u * self.zeta;
        if at < 1.0 {
            return 0;
        }
        if at < 1.0 + pow(0.5, self.theta) {
            return 1;
        }
        let rank = self.items as f64 * pow(self.eta * u - self.eta + 1.0, 1.0 / (1.0 - self.theta));
        (rank as u64).min(self.items - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The benchmark has this constant, for 10^10 items. Beyond 10^6 the sum is an integral and its correction
    /// (Euler and Maclaurin).
    #[test]
    fn the_sum_is_that_of_the_benchmark() {
        const PUBLISHED: f64 = 26.469_028_201_783_02;
        let (first, last) = (1_000_000u64, 10_000_000_000f64);
        let m = first as f64;
        let rest = (last.powf(1.0 - THETA) - m.powf(1.0 - THETA)) / (1.0 - THETA);
        let ends = (last.powf(-THETA) - m.powf(-THETA)) / 2.0;
        let slope = THETA / 12.0 * (m.powf(-THETA - 1.0) - last.powf(-THETA - 1.0));
        let all = zeta(first, THETA) + rest + ends + slope;
        assert!((all - PUBLISHED).abs() < 1e-6, "{all}");
    }

    #[test]
    fn ranks_are_in_range_and_grow() {
        let mut zipf = Zipf::new(1000, THETA);
        for items in [1000, 1001, 5000] {
            zipf.grow(items);
            let fresh = Zipf::new(items, THETA);
            assert!((zipf.zeta - fresh.zeta).abs() < 1e-9 && (zipf.eta - fresh.eta).abs() < 1e-9);
            assert_eq!(zipf.rank(0.0), 0);
            assert_eq!(zipf.rank(1.0 - f64::EPSILON), items - 1);
            let mut last = 0;
            for n in 0..1000 {
                let rank = zipf.rank(f64::from(n) / 1000.0);
                assert!(rank >= last);
                last = rank;
            }
        }
    }
}
