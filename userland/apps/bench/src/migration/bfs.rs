//! A breadth-first search of a graph that lies on the other side, which calls something here for
//! each new vertex: by a function of the other side, whose calls cross, or from here.
//!
//! | figure of `bfs_ef_N` | what |
//! |---|---|
//! | `n`, `ns` | searches there, with a crossing call for each new vertex |
//! | `near_ns` | as many there that call nothing |
//! | `stay_ns` | as many from here |
//! | `kernel_op_away` | the operation whose windows the calls are; they begin on the other side |
//! | `calls` | calls: vertices found, the root not among them |
//! | `edges` | edges that were looked at, each from both of its ends |

use dyad::prelude::task::*;
use dyad::sys::marker;
use dyad::{heap, report};
use dyad_abi::marker::{BenchMemory, BenchOp};
use workloads::bfs::{Graph, Kronecker, Lists, Search, validate};

use crate::figures::{Direction, away, nanos};

/// Edges for each vertex.
pub const FACTORS: [u32; 4] = [4, 7, 14, 19];
const FIRST_SLOT: u16 = 24;
const SEED: u64 = 1;
const OP: BenchOp = BenchOp::CrossingCallRoundTrip;
const BEGIN: u16 = OP.part(BenchMemory::Fused, 0).0;
const END: u16 = OP.part(BenchMemory::Fused, 2).0;

/// A step of a search, in a window by the number of edges.
type Step = fn(&mut Lists) -> Option<u32>;
const STEPS: [Step; 4] = [
    step::<{ away(FIRST_SLOT) }>,
    step::<{ away(FIRST_SLOT + 1) }>,
    step::<{ away(FIRST_SLOT + 2) }>,
    step::<{ away(FIRST_SLOT + 3) }>,
];

fn step<const WINDOW: u16>(lists: &mut Lists) -> Option<u32> {
    marker::window::<WINDOW, _>(|| lists.step())
}

/// Searches of graphs with these numbers of edges for each vertex.
pub async fn measure(direction: &Direction, factors: &[u32], scale: u32) -> Result<()> {
    let there = heap::on(direction.away)?;
    for (i, step) in STEPS.into_iter().enumerate() {
        let factor = FACTORS[i];
        if !factors.contains(&factor) {
            continue;
        }
        let op = format!("bfs_ef_{factor}");
        // Made where it is to lie.
        direction.go().await?;
        let (graph, mut lists) = there.run(|| {
            let source = Kronecker::new(scale, factor, SEED)
                .ok_or_else(|| Error::msg("there is no such graph"))?;
            let graph = Graph::new(&source, &mut || ());
            let lists = Lists::new(&graph, SEED);
            Ok::<_, Error>((graph, lists))
        })?;
        let root = graph.root(0).ok_or_else(|| Error::msg("no edge at all"))?;
        let mut search = Search::new(&graph, root);
        search.finish(&graph, &mut |_| (), &mut || ());
        let sound = validate(&graph, &search, &mut || ());
        direction.come_back().await?;
        let (vertex, edge) = lists.records();
        let lie = [heap::node_of(vertex), edge.and_then(heap::node_of)];
        // The host's memory is nobody's.
        let placed = cfg!(not(target_os = "none")) || lie == [Some(direction.away); 2];
        let detail = format!("in memory of node {}", direction.away);
        if !report::check(&format!("{op}.placed"), placed, detail) {
            return Err(Error::msg("the graph lies elsewhere"));
        }

        // Once without being timed: no page is new afterwards.
        let mut here = Host::default();
        for _ in 0..2 {
            lists.restart(root);
            here = Host::default();
            let start = Instant::now();
            while let Some(vertex) = lists.step() {
                here.found(vertex);
            }
            here.time = start.elapsed();
        }
        let whole = |lists: &Lists| {
            let tree = search.parents().iter().zip(search.levels());
            lists.tree().eq(tree.map(|(&p, &l)| (p, l)))
        };
        let mut same = whole(&lists);

        // There, with calls and without.
        let functions = match direction.isa {
            Isa::X86_64 => &aarch64::FUNCTIONS,
            Isa::Aarch64 => &x86_64::FUNCTIONS,
        };
        let [mut called, mut quiet] = [Host::default(); 2];
        for (host, search) in [
            (&mut called, functions.search),
            (&mut quiet, functions.quiet),
        ] {
            let mut job = Job {
                lists: &mut lists,
                root,
                step,
                host,
            };
            // What was here goes there.
            (functions.restart)(&mut job);
            let start = Instant::now();
            search(&mut job);
            host.time = start.elapsed();
            same &= whole(&lists);
        }
        same &= (called.calls, called.sum) == (here.calls, here.sum) && quiet.calls == 0;
        let detail = match sound {
            Ok(()) => format!("{} vertices", lists.reached()),
            Err(e) => e.to_string(),
        };
        if !report::check(&format!("{op}.tree"), sound.is_ok() && same, detail) {
            return Err(Error::msg("a tree is wrong"));
        }
        direction.figure(&op, "slot", (FIRST_SLOT + i as u16).into());
        direction.figure(&op, "kernel_op_away", OP as u64);
        direction.took(&op, 1, called.time);
        direction.figure(&op, "near_ns", nanos(quiet.time));
        direction.figure(&op, "stay_ns", nanos(here.time));
        direction.figure(&op, "calls", called.calls);
        direction.figure(&op, "edges", lists.looked(&graph));
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

/// What a search on the other side is given.
struct Job<'a> {
    lists: &'a mut Lists,
    root: u32,
    step: Step,
    host: &'a mut Host,
}

/// The functions of a side.
struct Functions {
    restart: extern "C" fn(&mut Job<'_>),
    search: extern "C" fn(&mut Job<'_>),
    quiet: extern "C" fn(&mut Job<'_>),
}

/// A call across. Nothing else is in the windows.
#[inline(never)]
fn tell(function: extern "C" fn(&mut Host, u32), host: &mut Host, vertex: u32) {
    marker::begin::<BEGIN>();
    function(host, vertex);
    marker::end::<END>();
}

macro_rules! side {
    ($isa:ident, $other:ident) => {
        mod $isa {
            use super::{Functions, Host, Job, tell};

            pub static FUNCTIONS: Functions = Functions {
                restart,
                search,
                quiet,
            };

            /// Reports a vertex that was found on the other side.
            #[dyad::isa($isa, always)]
            pub extern "C" fn found(host: &mut Host, vertex: u32) {
                host.found(vertex);
            }

            /// Forgets what was found.
            #[dyad::isa($isa, always)]
            pub extern "C" fn restart(job: &mut Job<'_>) {
                job.lists.restart(job.root);
            }

            /// Searches, and tells the other side.
            #[dyad::isa($isa, always)]
            pub extern "C" fn search(job: &mut Job<'_>) {
                while let Some(vertex) = (job.step)(job.lists) {
                    tell(super::$other::found, job.host, vertex);
                }
            }

            /// Searches, and tells nobody.
            #[dyad::isa($isa, always)]
            pub extern "C" fn quiet(job: &mut Job<'_>) {
                while job.lists.step().is_some() {}
            }
        }
    };
}

side!(x86_64, aarch64);
side!(aarch64, x86_64);
