//! Results of searches, and how each of the five checks finds what is wrong with one.

use super::*;
use crate::bfs::kronecker::Kronecker;

/// ```text
///   0 ─ 1 ─ 3 ─ 5      7 ─ 8      9
///   │   │   │
///   └─  2 ─ 4 ─ 6
/// ```
const EDGES: [[u32; 2]; 9] = [
    [0, 1],
    [0, 2],
    [1, 2],
    [1, 3],
    [3, 4],
    [2, 4],
    [3, 5],
    [4, 6],
    [7, 8],
];

fn small() -> (Graph, Search) {
    let graph = Graph::from_edges(10, || EDGES.into_iter(), &mut || ());
    let mut search = Search::new(&graph, 0);
    search.finish(&graph, &mut |_| (), &mut || ());
    assert_eq!(check(&graph, &search), Ok(()));
    (graph, search)
}

fn check(graph: &Graph, search: &Search) -> Result<(), Invalid> {
    validate(graph, search, &mut || ())
}

/// What is found after some parents and levels were changed.
fn after(changes: &[(u32, u32, u32)]) -> Result<(), Invalid> {
    let (graph, mut search) = small();
    for &(vertex, parent, level) in changes {
        let (parents, levels) = search.tree_mut();
        (parents[vertex as usize], levels[vertex as usize]) = (parent, level);
    }
    check(&graph, &search)
}

#[test]
fn a_search_finds_what_it_should() {
    let (_, search) = small();
    assert_eq!(search.levels(), [0, 1, 1, 2, 2, 3, 3, NONE, NONE, NONE]);
    assert_eq!(search.parents(), [0, 0, 0, 1, 2, 3, 4, NONE, NONE, NONE]);
    assert_eq!((search.reached(), search.depth()), (7, 3));
    // Which of two vertices of the same level is the parent does not matter.
    let graph = Graph::from_edges(
        4,
        || [[0, 1], [0, 2], [1, 3], [2, 3]].into_iter(),
        &mut || (),
    );
    let mut search = Search::new(&graph, 0);
    search.finish(&graph, &mut |_| (), &mut || ());
    for parent in [1, 2] {
        search.tree_mut().0[3] = parent;
        assert_eq!(check(&graph, &search), Ok(()));
    }
}

#[test]
fn check_1_cycles_and_loose_ends() {
    // Above each other, with levels that cannot tell.
    assert_eq!(after(&[(5, 3, 3), (3, 5, 2)]), Err(Invalid::NoTree(3)));
    assert_eq!(after(&[(4, 6, 2), (6, 4, 3)]), Err(Invalid::NoTree(4)));
    // A second root.
    assert_eq!(after(&[(6, 6, 3)]), Err(Invalid::NoTree(6)));
    // A parent that is not in the tree, and one that does not exist.
    assert_eq!(after(&[(8, 7, 1)]), Err(Invalid::NoTree(8)));
    assert_eq!(after(&[(5, 1000, 3)]), Err(Invalid::NoTree(5)));
    // The root is not its own parent.
    assert_eq!(after(&[(0, 1, 0)]), Err(Invalid::NoTree(0)));
    assert_eq!(after(&[(0, NONE, NONE)]), Err(Invalid::NoTree(0)));
}

#[test]
fn check_2_levels_of_parents() {
    assert_eq!(after(&[(5, 3, 2)]), Err(Invalid::Level(5)));
    assert_eq!(after(&[(5, 3, 4)]), Err(Invalid::Level(5)));
    assert_eq!(after(&[(0, 0, 1)]), Err(Invalid::Level(0)));
    assert_eq!(after(&[(6, 4, NONE)]), Err(Invalid::Level(6)));
    assert_eq!(after(&[(9, NONE, 4)]), Err(Invalid::Level(9)));
}

#[test]
fn check_3_neighbours_are_near() {
    // A tree of the graph's edges with right levels, but by detours: 2 - 4 - 3 - 5.
    let detour = [(1, 2, 2), (3, 4, 3), (5, 3, 4)];
    assert_eq!(after(&detour[1..]), Err(Invalid::Far(1, 3)));
    // 0 and 1 are neighbours; 1 is found last.
    let detour = [(1, 3, 4), (3, 4, 3), (5, 3, 4)];
    assert_eq!(after(&detour), Err(Invalid::Far(0, 1)));
}

#[test]
fn check_4_nobody_is_left_out() {
    assert_eq!(after(&[(6, NONE, NONE)]), Err(Invalid::LeftOut(4, 6)));
    let rest = [(3, NONE, NONE), (5, NONE, NONE)];
    assert_eq!(after(&rest), Err(Invalid::LeftOut(1, 3)));
}

#[test]
fn check_5_edges_of_the_tree_are_edges() {
    // 5 is below 4 without an edge; all levels are right.
    assert_eq!(after(&[(5, 4, 3)]), Err(Invalid::NoEdge(5)));
    // And 9, which has no edges at all, below 0.
    assert_eq!(after(&[(9, 0, 1)]), Err(Invalid::NoEdge(9)));
}

#[test]
fn searches_of_random_graphs_are_valid() {
    let source = Kronecker::new(12, 8, 7).unwrap();
    let graph = Graph::new(&source, &mut || ());
    for k in 0..8 {
        let root = graph.root(k).unwrap();
        let mut search = Search::new(&graph, root);
        let (mut found, mut levels) = (0, 0);
        while !search.is_over() {
            let new = search.advance(&graph, &mut |_| found += 1, &mut || ());
            levels += u32::from(new > 0);
        }
        assert_eq!(check(&graph, &search), Ok(()));
        assert_eq!(found + 1, search.reached());
        assert_eq!(levels, search.depth());
        // Graphs of this kind have one large part.
        assert!(search.reached() > 2000, "{}", search.reached());
        assert!(search.traversed(&graph) > source.edges() * 9 / 10);
        // A search can be used again.
        let before = search.clone();
        search.restart(graph.root(99).unwrap());
        search.restart(root);
        search.finish(&graph, &mut |_| (), &mut || ());
        assert_eq!(search.parents(), before.parents());
    }
}
