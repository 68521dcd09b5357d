//! Edges of a random graph in which few vertices have many neighbours and many have few: the
//! Kronecker generator of the Graph500 benchmark.
//!
//! Each bit of an edge's two ends is drawn together: with these probabilities it is 0 and 0, 0 and
//! 1, 1 and 0, 1 and 1. Vertices are renamed at random afterwards, so that a name says nothing
//! about the number of neighbours.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// Possible logarithms of the number of vertices.
pub const SCALES: RangeInclusive<u32> = 1..=24;
/// Possible numbers of edges for each vertex.
pub const FACTORS: RangeInclusive<u32> = 1..=64;

/// Bounds between the four cases, of 65536: .57, .19, .19, .05.
const BOUNDS: [u32; 3] = [37_356, 49_807, 62_259];

/// Sebastiano Vigna's splitmix64.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u32
    }
}

/// The edges of a graph, again and again in the same order: nothing but names is stored.
#[derive(Clone, Debug)]
pub struct Kronecker {
    scale: u32,
    edges: u64,
    seed: u64,
    names: Vec<u32>,
}

impl Kronecker {
    /// A graph of `2^scale` vertices with `factor` edges for each, of which some are drawn more
    /// than once and some connect a vertex with itself. `None` if the scale is not one of
    /// [`SCALES`] or the factor not one of [`FACTORS`].
    pub fn new(scale: u32, factor: u32, seed: u64) -> Option<Kronecker> {
        if !SCALES.contains(&scale) || !FACTORS.contains(&factor) {
            return None;
        }
        let mut names: Vec<u32> = (0..1 << scale).collect();
        let mut random = Random::new(!seed);
        for i in (1..names.len() as u32).rev() {
            names.swap(i as usize, random.below(i + 1) as usize);
        }
        Some(Kronecker {
            scale,
            edges: u64::from(factor) << scale,
            seed,
            names,
        })
    }

    /// Number of vertices.
    pub fn vertices(&self) -> u32 {
        1 << self.scale
    }

    /// Number of edges as they are drawn.
    pub fn edges(&self) -> u64 {
        self.edges
    }

    /// All edges.
    pub fn iter(&self) -> impl Iterator<Item = [u32; 2]> {
        let mut random = Random::new(self.seed);
        (0..self.edges).map(move |_| self.edge(&mut random))
    }

    fn edge(&self, random: &mut Random) -> [u32; 2] {
        let (mut from, mut to) = (0, 0);
        let mut bits = 0;
        for level in 0..self.scale {
            // A word is enough for four levels.
            if level % 4 == 0 {
                bits = random.draw();
            }
            let part = (bits & 0xffff) as u32;
            bits >>= 16;
            let case = BOUNDS.iter().filter(|b| part >= **b).count() as u32;
            from = (from << 1) | (case >> 1);
            to = (to << 1) | (case & 1);
        }
        [from, to].map(|v| self.names[v as usize])
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        for (scale, factor) in [(0, 1), (25, 1), (10, 0), (10, 65)] {
            assert!(Kronecker::new(scale, factor, 1).is_none());
        }
    }

    #[test]
    fn the_sequence_is_the_published_one() {
        // Of splitmix64 with seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.draw(), 6_457_827_717_110_365_317);
        assert_eq!(random.draw(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn names_are_a_permutation() {
        let graph = Kronecker::new(10, 1, 5).unwrap();
        let mut seen = vec![false; 1024];
        for &name in &graph.names {
            assert!(!core::mem::replace(&mut seen[name as usize], true));
        }
        let stayed = graph
            .names
            .iter()
            .enumerate()
            .filter(|(i, n)| *i as u32 == **n);
        assert!(stayed.count() < 8);
    }

    #[test]
    fn bits_have_the_probabilities() {
        let mut graph = Kronecker::new(12, 16, 1).unwrap();
        graph.names.sort_unstable();
        let mut cases = [[0u32; 4]; 12];
        for [from, to] in graph.iter() {
            for (bit, cases) in cases.iter_mut().enumerate() {
                cases[(((from >> bit) & 1) << 1 | ((to >> bit) & 1)) as usize] += 1;
            }
        }
        let n = graph.edges() as f64;
        for level in cases {
            for (count, p) in level.into_iter().zip([0.57, 0.19, 0.19, 0.05]) {
                let (count, expected) = (f64::from(count), n * p);
                let deviation = (n * p * (1.0 - p)).sqrt();
                assert!((count - expected).abs() < 5.0 * deviation, "{cases:?}");
            }
        }
    }

    #[test]
    fn seeds_and_only_seeds_make_graphs_different() {
        let list = |seed| {
            Kronecker::new(8, 4, seed)
                .unwrap()
                .iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(list(1), list(1));
        assert_ne!(list(1), list(2));
        assert_eq!(list(1).len(), 1024);
        assert!(list(3).iter().flatten().all(|&v| v < 256));
    }
}
