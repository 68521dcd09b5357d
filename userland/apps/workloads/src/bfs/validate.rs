//! The five checks of Graph500: whether parents and levels are those of a breadth-first search.

use alloc::vec;
use core::fmt;

use super::graph::Graph;
use super::search::{NONE, Search};

/// What is wrong with a result, and where; the first of the five checks that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// 1: following parents from this vertex does not lead to the root.
    NoTree(u32),
    /// 2: this vertex is not one level below its parent.
    Level(u32),
    /// 3: the levels of these neighbours differ by more than one.
    Far(u32, u32),
    /// 4: the first of these neighbours is in the tree, the second is not.
    LeftOut(u32, u32),
    /// 5: there is no edge between this vertex and its parent.
    NoEdge(u32),
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Invalid::NoTree(v) => write!(f, "no way from {v} up to the root"),
            Invalid::Level(v) => write!(f, "{v} is not one level below its parent"),
            Invalid::Far(a, b) => write!(f, "more than a level between neighbours {a} and {b}"),
            Invalid::LeftOut(a, b) => write!(f, "{a} is in the tree, its neighbour {b} is not"),
            Invalid::NoEdge(v) => write!(f, "no edge between {v} and its parent"),
        }
    }
}

impl core::error::Error for Invalid {}

/// Checks what a search has found. Calls `point` now and then.
///
/// # Errors
///
/// What is wrong.
pub fn validate(graph: &Graph, search: &Search, point: &mut impl FnMut()) -> Result<(), Invalid> {
    let (parents, levels) = (search.parents(), search.levels());
    tree(search.root(), parents)?;
    point();

    let inside = |v: &u32| parents[*v as usize] != NONE;
    for v in 0..graph.vertices() {
        let expected = match inside(&v) {
            true if v == search.root() => 0,
            true => levels[parents[v as usize] as usize].saturating_add(1),
            false => NONE,
        };
        if levels[v as usize] != expected {
            return Err(Invalid::Level(v));
        }
    }
    let far = |v: u32, w: u32| inside(&w) && levels[v as usize].abs_diff(levels[w as usize]) > 1;
    if let Some((v, w)) = find_edge(graph, inside, far, point) {
        return Err(Invalid::Far(v, w));
    }
    if let Some((v, w)) = find_edge(graph, inside, |_, w| !inside(&w), point) {
        return Err(Invalid::LeftOut(v, w));
    }
    let mut below = (0..graph.vertices()).filter(|v| inside(v) && *v != search.root());
    match below.find(|&v| !graph.has_edge(v, parents[v as usize])) {
        Some(v) => Err(Invalid::NoEdge(v)),
        None => Ok(()),
    }
}

/// How often a point is passed.
const VERTICES_PER_POINT: u32 = 1 << 10;

/// The first edge from one of these vertices for which something is true.
fn find_edge(
    graph: &Graph,
    from: impl Fn(&u32) -> bool,
    what: impl Fn(u32, u32) -> bool,
    point: &mut impl FnMut(),
) -> Option<(u32, u32)> {
    (0..graph.vertices()).filter(from).find_map(|v| {
        if v % VERTICES_PER_POINT == 0 {
            point();
        }
        let mut row = graph.neighbours(v).iter();
        row.find(|w| what(v, **w)).map(|&w| (v, w))
    })
}

/// Whether every vertex with a parent is below the root.
fn tree(root: u32, parents: &[u32]) -> Result<(), Invalid> {
    // What is known of a vertex: nothing, that it is below the root, or which walk came by first.
    const UNKNOWN: u32 = NONE;
    const BELOW: u32 = NONE - 1;
    let mut seen = vec![UNKNOWN; parents.len()];
    let parent = |v: u32| parents.get(v as usize).copied().filter(|p| *p != NONE);
    if parent(root) != Some(root) {
        return Err(Invalid::NoTree(root));
    }
    seen[root as usize] = BELOW;
    for start in (0..parents.len() as u32).filter(|v| parent(*v).is_some()) {
        let mut at = start;
        while seen[at as usize] == UNKNOWN {
            seen[at as usize] = start;
            // A parent must have a parent.
            match parent(at).filter(|p| parent(*p).is_some()) {
                Some(next) => at = next,
                None => return Err(Invalid::NoTree(start)),
            }
        }
        if seen[at as usize] != BELOW {
            // Back on its own way: a cycle.
            return Err(Invalid::NoTree(start));
        }
        at = start;
        while seen[at as usize] == start {
            seen[at as usize] = BELOW;
            at = parents[at as usize];
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
