//! The right-hand side: ten charges of each sign, where a sequence of random numbers has its
//! largest and smallest values.

use super::grid::Grid;
use crate::rng::{MULTIPLIER, Randlc, SEED};

/// Charges of each sign.
const CHARGES: usize = 10;

/// The greatest values seen so far, in descending order, and where they were.
struct Greatest {
    values: [f64; CHARGES],
    places: [[usize; 3]; CHARGES],
}

impl Greatest {
    fn new(least: f64) -> Greatest {
        Greatest {
            values: [least; CHARGES],
            places: [[0; 3]; CHARGES],
        }
    }

    #[inline(always)]
    fn offer(&mut self, value: f64, place: impl Fn() -> [usize; 3]) {
        if value > self.values[CHARGES - 1] {
            self.insert(value, place());
        }
    }

    #[cold]
    #[inline(never)]
    fn insert(&mut self, value: f64, place: [usize; 3]) {
        let mut at = CHARGES - 1;
        while at > 0 && self.values[at - 1] < value {
            self.values[at] = self.values[at - 1];
            self.places[at] = self.places[at - 1];
            at -= 1;
        }
        (self.values[at], self.places[at]) = (value, place);
    }
}

/// Puts the charges into a grid: +1 at the largest numbers, -1 at the smallest, else 0.
pub(super) fn charge(v: &mut Grid, point: &mut impl FnMut()) {
    v.clear();
    let mut rng = Randlc::new(SEED, MULTIPLIER);
    let (mut high, mut low) = (Greatest::new(0.0), Greatest::new(-1.0));
    let inner = 1..v.side() - 1;
    for z in inner.clone() {
        point();
        for y in inner.clone() {
            for x in inner.clone() {
                let value = rng.next_f64();
                high.offer(value, || [x, y, z]);
                low.offer(-value, || [x, y, z]);
            }
        }
    }
    for (list, value) in [(low, -1.0), (high, 1.0)] {
        for place in list.places {
            v.set(place, value);
        }
    }
    v.wrap();
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn charges_are_where_numbers_are_extreme() {
        let mut v = Grid::new(4);
        charge(&mut v, &mut || ());
        let charges: Vec<f64> = v.inner_rows().flatten().copied().collect();
        let mut rng = Randlc::new(SEED, MULTIPLIER);
        let mut numbers: Vec<(f64, usize)> =
            (0..charges.len()).map(|i| (rng.next_f64(), i)).collect();
        numbers.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (rank, (_, at)) in numbers.iter().enumerate() {
            let expected = match rank {
                0..CHARGES => -1.0,
                _ if rank >= charges.len() - CHARGES => 1.0,
                _ => 0.0,
            };
            assert_eq!(charges[*at], expected);
        }
    }
}
