//! A graph by rows: for each vertex, its neighbours in ascending order.

use alloc::vec;
use alloc::vec::Vec;

use super::kronecker::{Kronecker, Random};

/// An undirected graph. No vertex is its own neighbour, and none is one twice.
#[derive(Clone, Debug)]
pub struct Graph {
    /// Where the neighbours of each vertex begin, and the end of the last.
    starts: Vec<u32>,
    neighbours: Vec<u32>,
    /// How many of the edges that were drawn begin at each vertex, the useless ones included.
    drawn: Vec<u32>,
}

impl Graph {
    /// The graph of these edges. Calls `point` now and then.
    pub fn new(edges: &Kronecker, point: &mut impl FnMut()) -> Graph {
        Graph::from_edges(edges.vertices(), || edges.iter(), point)
    }

    /// The graph of edges that are listed twice: to count them, and to put them where they belong.
    pub fn from_edges<I: Iterator<Item = [u32; 2]>>(
        vertices: u32,
        edges: impl Fn() -> I,
        point: &mut impl FnMut(),
    ) -> Graph {
        let n = vertices as usize;
        let mut drawn = vec![0; n];
        // First the numbers of neighbours, one place on; then where the next one goes.
        let mut next = vec![0u32; n + 1];
        for (i, [a, b]) in edges().enumerate() {
            if i % EDGES_PER_POINT == 0 {
                point();
            }
            drawn[a as usize] += 1;
            if a != b {
                next[a as usize + 1] += 1;
                next[b as usize + 1] += 1;
            }
        }
        let mut sum = 0;
        for next in &mut next {
            sum += *next;
            *next = sum;
        }
        let mut neighbours = vec![0; sum as usize];
        for (i, [a, b]) in edges().enumerate() {
            if i % EDGES_PER_POINT == 0 {
                point();
            }
            if a != b {
                for (from, to) in [(a, b), (b, a)] {
                    let place = &mut next[from as usize];
                    neighbours[*place as usize] = to;
                    *place += 1;
                }
            }
        }
        Graph::pack(next, neighbours, drawn, point)
    }

    /// Sorts each row and takes out what is there twice. `ends` are the ends of the rows.
    fn pack(
        ends: Vec<u32>,
        mut neighbours: Vec<u32>,
        drawn: Vec<u32>,
        point: &mut impl FnMut(),
    ) -> Graph {
        let mut starts = Vec::with_capacity(ends.len());
        let (mut begin, mut kept) = (0, 0);
        for &end in &ends[..ends.len() - 1] {
            if begin / EDGES_PER_POINT != end as usize / EDGES_PER_POINT {
                point();
            }
            starts.push(kept as u32);
            neighbours[begin..end as usize].sort_unstable();
            let mut last = None;
            for i in begin..end as usize {
                let neighbour = neighbours[i];
                if last != Some(neighbour) {
                    neighbours[kept] = neighbour;
                    kept += 1;
                    last = Some(neighbour);
                }
            }
            begin = end as usize;
        }
        starts.push(kept as u32);
        neighbours.truncate(kept);
        Graph {
            starts,
            neighbours,
            drawn,
        }
    }

    /// Number of vertices.
    pub fn vertices(&self) -> u32 {
        self.drawn.len() as u32
    }

    /// Number of edges, each counted once.
    pub fn edges(&self) -> u64 {
        self.neighbours.len() as u64 / 2
    }

    /// The neighbours of a vertex.
    #[inline(always)]
    pub fn neighbours(&self, vertex: u32) -> &[u32] {
        let v = vertex as usize;
        &self.neighbours[self.starts[v] as usize..self.starts[v + 1] as usize]
    }

    /// How many of the edges that were drawn begin at a vertex.
    pub fn drawn(&self, vertex: u32) -> u32 {
        self.drawn[vertex as usize]
    }

    /// Whether there is an edge between two vertices.
    pub fn has_edge(&self, a: u32, b: u32) -> bool {
        self.neighbours(a).binary_search(&b).is_ok()
    }

    /// The `k`-th of those vertices that a search may start from, in an order that looks random:
    /// those with neighbours. `None` if there is no edge.
    pub fn root(&self, k: u32) -> Option<u32> {
        let n = self.vertices();
        let mut random = Random::new(k.into());
        let mut candidates = (0..64).map(|_| random.below(n)).chain(0..n);
        candidates.find(|&v| !self.neighbours(v).is_empty())
    }
}

/// How often a point is passed while a graph is made.
const EDGES_PER_POINT: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rows_are_what_the_edges_say() {
        let source = Kronecker::new(9, 8, 3).unwrap();
        let mut points = 0;
        let graph = Graph::new(&source, &mut || points += 1);
        assert!(points > 0);
        let mut set = BTreeSet::new();
        for [a, b] in source.iter().filter(|[a, b]| a != b) {
            set.extend([(a, b), (b, a)]);
        }
        assert_eq!(graph.edges() * 2, set.len() as u64);
        let rows = (0..graph.vertices()).flat_map(|v| {
            let row = graph.neighbours(v).iter();
            row.map(move |&w| (v, w))
        });
        assert!(rows.eq(set.iter().copied()), "and they are in order");
        assert!(set.iter().all(|&(a, b)| graph.has_edge(a, b)));
        assert!(!graph.has_edge(7, 7));
        let drawn: u64 = (0..512).map(|v| u64::from(graph.drawn(v))).sum();
        assert_eq!(drawn, source.edges());
    }

    #[test]
    fn roots_have_neighbours() {
        let graph = Graph::new(&Kronecker::new(8, 2, 3).unwrap(), &mut || ());
        let roots: BTreeSet<u32> = (0..64).filter_map(|k| graph.root(k)).collect();
        assert!(roots.len() > 30, "they differ");
        assert!(roots.iter().all(|&r| !graph.neighbours(r).is_empty()));
        let loops = || [[1, 1], [2, 2]].into_iter();
        assert_eq!(Graph::from_edges(4, loops, &mut || ()).root(0), None);
    }

    /// Public figures for a generator with the same probabilities and other random numbers.
    #[test]
    fn sizes_are_near_those_of_other_generators() {
        for (factor, published) in [(16, 909_646.0), (7, 421_360.0)] {
            let graph = Graph::new(&Kronecker::new(16, factor, 1).unwrap(), &mut || ());
            let off = graph.edges() as f64 / published - 1.0;
            assert!(off.abs() < 0.01, "{} edges, {off}", graph.edges());
        }
    }
}
