//! Breadth-first search from the top down, level by level.

use alloc::vec;
use alloc::vec::Vec;

use super::graph::Graph;

/// Stands for no vertex and no level.
pub const NONE: u32 = u32::MAX;

/// A search while it is made, and the tree it has found.
#[derive(Clone, Debug)]
pub struct Search {
    root: u32,
    /// The parent of each vertex that was reached; the root is its own.
    parents: Vec<u32>,
    /// The level of each vertex that was reached; 0 is that of the root.
    levels: Vec<u32>,
    /// Vertices in the order in which they were reached.
    queue: Vec<u32>,
    /// Where the last level begins in the queue; in a search by [`Search::step`], the vertex whose
    /// neighbours are looked at.
    frontier: usize,
    /// How many of its neighbours [`Search::step`] has looked at.
    looked: usize,
    level: u32,
}

impl Search {
    /// Before the first level.
    pub fn new(graph: &Graph, root: u32) -> Search {
        let n = graph.vertices() as usize;
        let mut search = Search {
            root,
            parents: vec![NONE; n],
            levels: vec![NONE; n],
            queue: Vec::with_capacity(n),
            frontier: 0,
            looked: 0,
            level: 0,
        };
        search.restart(root);
        search
    }

    /// Forgets everything and begins again from another root.
    pub fn restart(&mut self, root: u32) {
        self.parents.fill(NONE);
        self.levels.fill(NONE);
        self.queue.clear();
        self.queue.push(root);
        self.parents[root as usize] = root;
        self.levels[root as usize] = 0;
        (self.root, self.frontier, self.looked, self.level) = (root, 0, 0, 0);
    }

    /// Whether there is nothing left to look at.
    pub fn is_over(&self) -> bool {
        self.frontier == self.queue.len()
    }

    /// Looks at all neighbours of the last level. Calls `found` for each new vertex, and `point`
    /// before each vertex whose neighbours are looked at. Returns how many vertices are new.
    #[inline(never)]
    pub fn advance(
        &mut self,
        graph: &Graph,
        found: &mut impl FnMut(u32),
        point: &mut impl FnMut(),
    ) -> u32 {
        let end = self.queue.len();
        self.level += 1;
        for at in self.frontier..end {
            point();
            let vertex = self.queue[at];
            for &neighbour in graph.neighbours(vertex) {
                let parent = &mut self.parents[neighbour as usize];
                if *parent == NONE {
                    *parent = vertex;
                    self.levels[neighbour as usize] = self.level;
                    self.queue.push(neighbour);
                    found(neighbour);
                }
            }
        }
        self.frontier = end;
        (self.queue.len() - end) as u32
    }

    /// Goes on to the next new vertex; `None` if there is none, and the search is over. For who
    /// has to leave for each of them. A search is made by steps or by levels, not by both.
    #[inline(never)]
    pub fn step(&mut self, graph: &Graph) -> Option<u32> {
        while let Some(&vertex) = self.queue.get(self.frontier) {
            let level = self.levels[vertex as usize] + 1;
            let neighbours = &graph.neighbours(vertex)[self.looked..];
            for (n, &neighbour) in neighbours.iter().enumerate() {
                let parent = &mut self.parents[neighbour as usize];
                if *parent == NONE {
                    *parent = vertex;
                    self.levels[neighbour as usize] = level;
                    self.queue.push(neighbour);
                    self.looked += n + 1;
                    return Some(neighbour);
                }
            }
            (self.frontier, self.looked) = (self.frontier + 1, 0);
        }
        None
    }

    /// Goes on to the end.
    pub fn finish(&mut self, graph: &Graph, found: &mut impl FnMut(u32), point: &mut impl FnMut()) {
        while !self.is_over() {
            self.advance(graph, found, point);
        }
    }

    /// Where it has begun.
    pub fn root(&self) -> u32 {
        self.root
    }

    /// The parent of each vertex, [`NONE`] for those that were not reached.
    pub fn parents(&self) -> &[u32] {
        &self.parents
    }

    /// The level of each vertex, [`NONE`] for those that were not reached.
    pub fn levels(&self) -> &[u32] {
        &self.levels
    }

    /// How many vertices were reached.
    pub fn reached(&self) -> u32 {
        self.queue.len() as u32
    }

    /// Levels below the root.
    pub fn depth(&self) -> u32 {
        self.queue.last().map_or(0, |&v| self.levels[v as usize])
    }

    /// What is divided by time for *TEPS*, traversed edges per second: edges as they were drawn in
    /// the part of the graph that was reached, as Graph500 has it.
    pub fn traversed(&self, graph: &Graph) -> u64 {
        let drawn = self.queue.iter().map(|&v| u64::from(graph.drawn(v)));
        drawn.sum()
    }

    #[cfg(test)]
    pub(super) fn tree_mut(&mut self) -> (&mut [u32], &mut [u32]) {
        (&mut self.parents, &mut self.levels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bfs::{Kronecker, validate};

    /// Step by step the same tree is found as level by level.
    #[test]
    fn steps_find_what_levels_find() {
        let source = Kronecker::new(10, 8, 1).unwrap();
        let graph = Graph::new(&source, &mut || ());
        let mut whole = Search::new(&graph, graph.root(0).unwrap());
        let mut stepped = whole.clone();
        for root in [graph.root(1).unwrap(), graph.root(2).unwrap()] {
            whole.restart(root);
            let mut found = Vec::new();
            whole.finish(&graph, &mut |v| found.push(v), &mut || ());
            stepped.restart(root);
            assert!(!stepped.is_over());
            let steps: Vec<u32> = core::iter::from_fn(|| stepped.step(&graph)).collect();
            assert!(stepped.is_over());
            assert_eq!(steps, found);
            assert!(!steps.is_empty());
            assert_eq!(stepped.parents(), whole.parents());
            assert_eq!(stepped.levels(), whole.levels());
            assert_eq!(validate(&graph, &stepped, &mut || ()), Ok(()));
        }
    }
}
