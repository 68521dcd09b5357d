//! A breadth-first search of a graph that lies on the other side, which calls something here for
//! each new vertex: searching there, with a migration back and forth for each call, or from here.
//!
//! | figure of `bfs_ef_N` | what |
//! |---|---|
//! | `n`, `ns` | searches there, with migrations |
//! | `stay_ns` | as many from here |
//! | `vertices`, `edges` | vertices found by a search; edges as drawn in the part of the graph that it has reached |

use dyad::prelude::*;
use dyad::report;
use dyad::sys::marker;
use workloads::bfs::{Graph, Kronecker, Search, validate};

use journey::figures::{Sides, at_home, away, nanos};

/// Edges for each vertex.
pub const FACTORS: [u32; 4] = [4, 7, 14, 19];
const FIRST_SLOT: u16 = 24;
const SEED: u64 = 1;

/// Searches of graphs with these numbers of edges for each vertex.
pub async fn measure(sides: &Sides, factors: &[u32], scale: u32) -> Result<()> {
    for &factor in factors {
        let op = format!("bfs_ef_{factor}");
        sides.go().await?;
        let source = Kronecker::new(scale, factor, SEED)
            .ok_or_else(|| Error::msg("there is no such graph"))?;
        let graph = Graph::new(&source, &mut || ());
        drop(source);
        let root = graph.root(0).ok_or_else(|| Error::msg("no edge at all"))?;
        let mut search = Search::new(&graph, root);
        search.finish(&graph, &mut |_| (), &mut || ());
        sides.come_back().await?;

        // Once without being timed: no page is new afterwards.
        let mut here = Host::default();
        for _ in 0..2 {
            search.restart(root);
            here = Host::default();
            let start = Instant::now();
            while let Some(vertex) = search.step(&graph) {
                here.found(vertex);
            }
            here.time = start.elapsed();
        }
        let expected = (search.parents().to_vec(), search.reached());

        let mut there = Host::default();
        search.restart(root);
        sides.go().await?;
        let start = Instant::now();
        let slot = away_search(&mut search, &graph, &mut there, sides, factor).await?;
        there.time = start.elapsed();
        sides.come_back().await?;

        let tree = validate(&graph, &search, &mut || ());
        let same = (search.parents(), search.reached()) == (&expected.0[..], expected.1)
            && (here.calls, here.sum) == (there.calls, there.sum);
        let detail = match tree {
            Ok(()) => format!("{} vertices", search.reached()),
            Err(e) => e.to_string(),
        };
        if !report::check(&format!("{op}.tree"), tree.is_ok() && same, detail) {
            return Err(Error::msg("a tree is wrong"));
        }
        sides.figure(&op, "slot", slot.into());
        sides.took(&op, 1, there.time);
        sides.figure(&op, "stay_ns", nanos(here.time));
        sides.figure(&op, "vertices", search.reached().into());
        sides.figure(&op, "edges", search.traversed(&graph));
    }
    Ok(())
}

/// What is called for each new vertex.
#[derive(Clone, Copy, Debug, Default)]
struct Host {
    calls: u64,
    sum: u64,
    time: Duration,
}

impl Host {
    #[inline(never)]
    fn found(&mut self, vertex: u32) {
        self.calls += 1;
        self.sum = self.sum.rotate_left(1) ^ u64::from(vertex);
    }
}

/// The search, begun and ended on the other side; windows are from one call to the next, and from
/// one arrival to the next. The slot.
async fn away_search(
    search: &mut Search,
    graph: &Graph,
    host: &mut Host,
    sides: &Sides,
    factor: u32,
) -> Result<u16> {
    macro_rules! by_factor {
        ($($i:literal),*) => {
            match factor {
                $(factor if factor == FACTORS[$i] => {
                    marker::begin::<{ away(FIRST_SLOT + $i) }>();
                    while let Some(vertex) = search.step(graph) {
                        sides.come_back().await?;
                        marker::end::<{ at_home(FIRST_SLOT + $i) }>();
                        marker::begin::<{ at_home(FIRST_SLOT + $i) }>();
                        host.found(vertex);
                        sides.go().await?;
                        marker::end::<{ away(FIRST_SLOT + $i) }>();
                        marker::begin::<{ away(FIRST_SLOT + $i) }>();
                    }
                    Ok(FIRST_SLOT + $i)
                })*
                _ => Err(Error::msg("there is no window for so many edges")),
            }
        };
    }
    by_factor!(0, 1, 2, 3)
}
