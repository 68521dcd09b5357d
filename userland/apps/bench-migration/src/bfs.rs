//! A breadth-first search of a graph that lies on the other side, which calls something here for
//! each new vertex: searching there, with a migration back and forth for each call or with calls that
//! cross, or from here.
//!
//! | figure of `bfs_ef_N` | what |
//! |---|---|
//! | `n`, `ns` | searches there, with migrations |
//! | `crossing_ns` | as many there, with a crossing call for each new vertex |
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
        let found = |search: &Search| (search.parents().to_vec(), search.reached());
        let moved = found(&search);

        let mut called = Host::default();
        search.restart(root);
        let start = Instant::now();
        let mut job = Job {
            search: &mut search,
            graph: &graph,
            host: &mut called,
        };
        match sides.isa {
            Isa::X86_64 => aarch64::search(&mut job),
            Isa::Aarch64 => x86_64::search(&mut job),
        }
        called.time = start.elapsed();

        let tree = validate(&graph, &search, &mut || ());
        let same = [&moved, &found(&search)]
            .into_iter()
            .all(|of| *of == expected)
            && [&there, &called]
                .into_iter()
                .all(|h| (h.calls, h.sum) == (here.calls, here.sum));
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
        sides.figure(&op, "crossing_ns", nanos(called.time));
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

/// What a search by crossing calls is given.
struct Job<'a> {
    search: &'a mut Search,
    graph: &'a Graph,
    host: &'a mut Host,
}

macro_rules! side {
    ($isa:ident, $other:ident) => {
        mod $isa {
            /// Is told of a vertex that was found on the other side.
            #[dyad::isa($isa, always)]
            pub extern "C" fn found(host: &mut super::Host, vertex: u32) {
                host.found(vertex);
            }

            /// Searches, and tells the other side.
            #[dyad::isa($isa, always)]
            pub extern "C" fn search(job: &mut super::Job<'_>) {
                while let Some(vertex) = job.search.step(job.graph) {
                    super::$other::found(job.host, vertex);
                }
            }
        }
    };
}

side!(x86_64, aarch64);
side!(aarch64, x86_64);

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
