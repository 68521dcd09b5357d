//! petgraph: shortest paths, spanning trees, flows, components and orders, moving within edge costs and visitors.
#![no_std]
#![no_main]

use gallery::*;
use petgraph::algo::{
    astar, bellman_ford, dijkstra, floyd_warshall, greedy_feedback_arc_set, is_cyclic_directed,
    kosaraju_scc, min_spanning_tree, tarjan_scc, toposort,
};
use petgraph::data::FromElements;
use petgraph::graph::{DiGraph, NodeIndex, UnGraph};
use petgraph::graphmap::UnGraphMap;
use petgraph::stable_graph::StableGraph;
use petgraph::visit::{Bfs, DfsEvent, DfsPostOrder, EdgeRef, depth_first_search};

fn random(seed: &mut Seeded, nodes: u64, edges: usize) -> DiGraph<String, u32> {
    let mut graph = DiGraph::new();
    for n in 0..nodes {
        graph.add_node(format!("{} {n}", seed.prose(1)));
    }
    for _ in 0..edges {
        let mut node = || NodeIndex::new(seed.below(nodes) as usize);
        let (a, b) = (node(), node());
        graph.update_edge(a, b, 1 + seed.below(40) as u32);
    }
    graph
}

fn program() -> Result<()> {
    let mut seed = Seeded(13);
    let graph = random(&mut seed, 60, 240);
    let (start, goal) = (NodeIndex::new(0), NodeIndex::new(59));
    let costs = dijkstra(&graph, start, None, |e| {
        hop_each(4);
        *e.weight()
    });
    let mut costs: Vec<(usize, u32)> = costs.iter().map(|(n, c)| (n.index(), *c)).collect();
    costs.sort_unstable();
    say!("{costs:?}");
    let path = astar(
        &graph,
        start,
        |n| n == goal,
        |e| {
            hop_each(3);
            *e.weight()
        },
        |n| {
            hop_each(5);
            u32::from(n != goal)
        },
    );
    say!("{path:?}");
    let all = floyd_warshall(&graph, |e| {
        hop_each(6);
        *e.weight()
    })
    .map_err(failed)?;
    let reachable = all.values().filter(|c| **c != u32::MAX);
    say!(
        "{} pairs, {} in all",
        all.len(),
        reachable.map(|c| u64::from(*c)).sum::<u64>()
    );
    let floats = graph.map(
        |_, n| n.len(),
        |_, w| {
            hop_each(2);
            f64::from(*w) - 0.5
        },
    );
    say!(
        "{:?}",
        bellman_ford(&floats, start).map_err(failed)?.distances
    );

    let mut components: Vec<usize> = tarjan_scc(&graph).iter().map(Vec::len).collect();
    components.sort_unstable();
    say!(
        "{components:?} {} {}",
        kosaraju_scc(&graph).len(),
        is_cyclic_directed(&graph)
    );
    let mut acyclic = graph.clone();
    let feedback: Vec<_> = greedy_feedback_arc_set(&graph).map(|e| e.id()).collect();
    acyclic.retain_edges(|_, e| {
        hop_each(2);
        !feedback.contains(&e)
    });
    let order = toposort(&acyclic, None).map_err(failed)?;
    say!(
        "{} edges less, {:?}",
        feedback.len(),
        order.iter().map(|n| n.index()).collect::<Vec<_>>()
    );

    let (mut back, mut trail) = (0, Vec::new());
    depth_first_search(&graph, [start], |event| {
        hop_each(2);
        match event {
            DfsEvent::BackEdge(..) => back += 1,
            DfsEvent::Finish(n, time) => trail.push((n.index(), time.0)),
            _ => {}
        }
    });
    say!("{back} edges lead back, {trail:?}");
    let (mut bfs, mut post) = (Bfs::new(&graph, start), DfsPostOrder::new(&graph, start));
    let (mut a, mut b) = (Vec::new(), Vec::new());
    while let (Some(x), Some(y)) = (bfs.next(&graph), post.next(&graph)) {
        a.push(x.index());
        b.push(y.index());
    }
    say!("{a:?} {b:?}");

    let tree = UnGraph::<String, u32>::from_elements(min_spanning_tree(&graph));
    say!(
        "a tree of {} edges costs {}",
        tree.edge_count(),
        tree.edge_weights().sum::<u32>()
    );
    let mut stable: StableGraph<String, u32> = graph.clone().into();
    stable.retain_nodes(|g, n| {
        hop_each(2);
        !g[n].starts_with('t')
    });
    say!(
        "{} nodes and {} edges are left",
        stable.node_count(),
        stable.edge_count()
    );
    let map: UnGraphMap<u64, (), Build> =
        (0..100).map(|_| (seed.below(40), seed.below(40))).collect();
    say!("{:?}", map.neighbors(7).collect::<Vec<_>>());
    Ok(())
}

#[dyad::main]
fn main() -> Result<()> {
    play(program)
}
