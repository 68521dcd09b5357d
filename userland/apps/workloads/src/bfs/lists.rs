//! The same graph in lists, and a search of it: for measurements of where it pays to search.
//!
//! A row of neighbours is found where the last one was, and what is known of all vertices of a small
//! graph fits a cache. Here it costs what it costs in a large one: an edge is a record of its own,
//! somewhere, and so is a vertex.
//!
//! | record | bytes | why |
//! |---|---|---|
//! | edge | 32 | the graphs of Flick's measurement take 32 bytes for each of their edges |
//! | vertex | a line | nothing is known of one vertex because another one was looked at |
//!
//! The lists have the order of the rows, so a search finds the tree that [`Search`](super::Search)
//! finds.

use alloc::vec;
use alloc::vec::Vec;

use super::graph::Graph;
use super::kronecker::Random;
use super::search::NONE;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Vertex {
    parent: u32,
    level: u32,
    /// Its first edge.
    first: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
struct Edge {
    to: u32,
    /// The next edge of the same vertex.
    next: u32,
}

/// A graph in lists, and a search of it.
#[derive(Clone, Debug)]
pub struct Lists {
    vertices: Vec<Vertex>,
    edges: Vec<Edge>,
    /// Vertices in the order in which they were reached.
    queue: Vec<u32>,
    /// Index in the queue of the next vertex whose edges will be examined.
    next: usize,
    /// The vertex whose edges are being examined, and the level of the vertices that they lead to.
    vertex: u32,
    level: u32,
    /// Its next edge.
    edge: u32,
}

impl Lists {
    /// The graph, with its edges strewn over memory in an order that follows from the seed.
    pub fn new(graph: &Graph, seed: u64) -> Lists {
        let n = graph.vertices();
        let count: usize = (0..n).map(|v| graph.neighbours(v).len()).sum();
        let mut places: Vec<u32> = (0..count as u32).collect();
        let mut random = Random::new(seed);
        for i in (1..places.len() as u32).rev() {
            places.swap(i as usize, random.below(i + 1) as usize);
        }
        let mut edges = vec![Edge { to: 0, next: NONE }; count];
        let mut vertices = Vec::with_capacity(n as usize);
        let mut places = places.as_slice();
        for v in 0..n {
            let row = graph.neighbours(v);
            let (own, rest) = places.split_at(row.len());
            for (i, &to) in row.iter().enumerate() {
                let next = own.get(i + 1).copied().unwrap_or(NONE);
                edges[own[i] as usize] = Edge { to, next };
            }
            vertices.push(Vertex {
                parent: NONE,
                level: NONE,
                first: own.first().copied().unwrap_or(NONE),
            });
            places = rest;
        }
        Lists {
            vertices,
            edges,
            queue: Vec::with_capacity(n as usize),
            next: 0,
            vertex: NONE,
            level: 0,
            edge: NONE,
        }
    }

    /// Its records, for questions of where they lie: of a vertex, and of an edge if there is one.
    pub fn records(&self) -> (&impl Sized, Option<&impl Sized>) {
        (&self.vertices[0], self.edges.first())
    }

    /// Forgets everything that was found and begins from a root.
    pub fn restart(&mut self, root: u32) {
        for vertex in &mut self.vertices {
            (vertex.parent, vertex.level) = (NONE, NONE);
        }
        self.queue.clear();
        self.queue.push(root);
        let at = &mut self.vertices[root as usize];
        (at.parent, at.level) = (root, 0);
        (self.next, self.vertex, self.level, self.edge) = (0, NONE, 0, NONE);
    }

    /// Goes on to the next new vertex; `None` if there is none, and the search is over.
    #[inline(never)]
    pub fn step(&mut self) -> Option<u32> {
        loop {
            while let Some(&Edge { to, next }) = self.edges.get(self.edge as usize) {
                self.edge = next;
                let found = &mut self.vertices[to as usize];
                if found.parent == NONE {
                    (found.parent, found.level) = (self.vertex, self.level);
                    self.queue.push(to);
                    return Some(to);
                }
            }
            self.vertex = *self.queue.get(self.next)?;
            self.next += 1;
            let Vertex { level, first, .. } = self.vertices[self.vertex as usize];
            (self.level, self.edge) = (level + 1, first);
        }
    }

    /// The parent and the level of each vertex, [`NONE`] for those that were not reached.
    pub fn tree(&self) -> impl Iterator<Item = (u32, u32)> {
        self.vertices.iter().map(|v| (v.parent, v.level))
    }

    /// How many vertices were reached.
    pub fn reached(&self) -> u32 {
        self.queue.len() as u32
    }

    /// How many edges a search looks at that has reached what this one has: those of all vertices that
    /// were reached, so each of them from both of its ends.
    pub fn looked(&self, graph: &Graph) -> u64 {
        let rows = self.queue.iter().map(|&v| graph.neighbours(v).len() as u64);
        rows.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LINE;
    use crate::bfs::{Kronecker, Search};

    #[test]
    fn lists_lead_to_the_tree_of_the_rows() {
        let graph = Graph::new(&Kronecker::new(9, 6, 1).unwrap(), &mut || ());
        let mut lists = Lists::new(&graph, 1);
        for k in 0..3 {
            let root = graph.root(k).unwrap();
            let mut search = Search::new(&graph, root);
            let expected: Vec<u32> = core::iter::from_fn(|| search.step(&graph)).collect();
            lists.restart(root);
            let found: Vec<u32> = core::iter::from_fn(|| lists.step()).collect();
            assert_eq!(found, expected, "in the same order");
            assert_eq!(lists.step(), None, "and it stays over");
            let tree = search.parents().iter().zip(search.levels());
            assert!(lists.tree().eq(tree.map(|(&p, &l)| (p, l))));
            assert_eq!(lists.reached(), search.reached());
            let looked = (0..graph.vertices()).filter(|&v| search.parents()[v as usize] != NONE);
            let looked: usize = looked.map(|v| graph.neighbours(v).len()).sum();
            assert_eq!(lists.looked(&graph), looked as u64);
        }
    }

    #[test]
    fn records_have_their_sizes_and_are_strewn() {
        assert_eq!((size_of::<Edge>(), size_of::<Vertex>()), (32, LINE));
        let graph = Graph::new(&Kronecker::new(10, 8, 1).unwrap(), &mut || ());
        let lists = Lists::new(&graph, 1);
        let (mut near, mut all) = (0, 0);
        for (i, edge) in lists.edges.iter().enumerate() {
            all += 1;
            near += u32::from((edge.next as usize).abs_diff(i) <= 1);
        }
        assert!(all > 10_000 && near < 10, "{near} of {all} lead next door");
    }

    #[test]
    fn a_graph_without_edges_is_searched_at_once() {
        let graph = Graph::from_edges(4, || [[1, 1]].into_iter(), &mut || ());
        let mut lists = Lists::new(&graph, 1);
        lists.restart(1);
        assert_eq!((lists.step(), lists.reached()), (None, 1));
    }
}
