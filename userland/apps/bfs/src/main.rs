//! Breadth-first searches of a random graph, as in Graph500, hopping between ISAs with each level
//! or staying on one.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--scale` | 1 to 24: logarithm of the number of vertices | 16 |
//! | `--factor` | 1 to 64: edges for each vertex | 16 |
//! | `--seed` | the graph is another one with another seed | 1 |
//! | `--searches` | from as many roots | 4 |
//! | `--hop` | `on`: each level runs on the other node than the one before, `off` | `on` |
//! | `--home` | `x86_64`, `aarch64`: where it starts, and runs without hops | where it starts |
//!
//! Each level is a sample of window [`REGION`] of the simulator. The tree of each search is
//! validated with the five checks of Graph500. The last line has a checksum of all trees; it is the
//! same however the program is run.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use dyad::prelude::task::*;
use dyad::report;
use dyad::sides::Sides;
use dyad::sys::marker;
use dyad_abi::marker::WindowId;
use npb_kernels::checksum::Fnv;
use workloads::bfs::kronecker::{FACTORS, SCALES};
use workloads::bfs::{Graph, Kronecker, Search, validate};

/// The window around each level.
const REGION: u16 = WindowId::FREE;
const OPTIONS: [&str; 6] = [
    "--scale",
    "--factor",
    "--seed",
    "--searches",
    "--hop",
    "--home",
];

struct Options {
    scale: u32,
    factor: u32,
    seed: u32,
    searches: u32,
    hop: bool,
    home: Option<Isa>,
}

impl Options {
    fn read(args: &Args) -> Result<Options> {
        args.expect_options(&OPTIONS)?;
        let number = |name: &str, default: u32, range: core::ops::RangeInclusive<u32>| {
            let Some(text) = args.value(name) else {
                return Ok(default);
            };
            let n = text.parse().ok().filter(|n| range.contains(n));
            n.ok_or_else(|| {
                Error::usage(format_args!(
                    "{name} cannot be {text:?}; possible: {} to {}",
                    range.start(),
                    range.end()
                ))
            })
        };
        let home = args.one_of("--home", &Isa::ALL.map(Isa::name), isa().name())?;
        Ok(Options {
            scale: number("--scale", 16, SCALES)?,
            factor: number("--factor", 16, FACTORS)?,
            seed: number("--seed", 1, 0..=u32::MAX)?,
            searches: number("--searches", 4, 1..=64)?,
            hop: args.one_of("--hop", &["on", "off"], "on")? == "on",
            home: args.value("--home").and(Isa::parse(home)),
        })
    }
}

/// What the searches have taken together.
#[derive(Default)]
struct Total {
    levels: u32,
    hops: u32,
    vertices: u64,
    edges: u64,
    time: Duration,
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    let options = Options::read(&args)?;
    let sides = Sides::settle(options.home, options.hop).await?;
    println!("{}", sides.describe());
    let start = Instant::now();
    let source = Kronecker::new(options.scale, options.factor, options.seed.into())
        .ok_or_else(|| Error::msg("there is no such graph"))?;
    let graph = Graph::new(&source, &mut || ());
    println!(
        "{} vertices, {} edges drawn, {} different ones; made in {} ms",
        graph.vertices(),
        source.edges(),
        graph.edges(),
        start.elapsed().as_millis()
    );
    drop(source);

    let mut total = Total::default();
    let (mut sum, mut wrong) = (Fnv::new(), None);
    let root = |k| graph.root(k).ok_or_else(|| Error::msg("no edge at all"));
    let mut search = Search::new(&graph, root(0)?);
    for k in 0..options.searches {
        search.restart(root(k)?);
        let ran = run(&graph, &mut search, &sides, &mut total).await?;
        let edges = search.traversed(&graph);
        total.edges += edges;
        println!(
            "root {:>8}: {:>2} levels, {:>8} vertices, {:>9} edges, {:>7} us, {} TEPS",
            search.root(),
            search.depth(),
            search.reached(),
            edges,
            ran.as_micros(),
            per_second(edges, ran)
        );
        if let Err(e) = validate(&graph, &search, &mut || ()) {
            wrong = wrong.or(Some((search.root(), e)));
        }
        sum.words(search.parents());
    }

    let rate = per_second(total.edges, total.time);
    println!(
        "{} levels, {} migrations, {} vertices found, {rate} TEPS",
        total.levels, total.hops, total.vertices
    );
    report::counter("bfs.levels", total.levels.into());
    report::counter("bfs.hops", total.hops.into());
    report::counter("bfs.vertices", total.vertices);
    report::counter("bfs.teps", rate);
    let ok = match wrong {
        Some((root, e)) => {
            report::check("bfs.verification", false, format_args!("from {root}: {e}"))
        }
        None => report::check(
            "bfs.verification",
            true,
            format_args!("{} trees", options.searches),
        ),
    };
    println!("Checksum of all results = {:016x}", sum.value());
    match ok {
        true => Ok(()),
        false => Err(Error::msg("a tree is wrong")),
    }
}

/// One search; how long it has taken, migrations included. Ends at home.
async fn run(
    graph: &Graph,
    search: &mut Search,
    sides: &Sides,
    total: &mut Total,
) -> Result<Duration> {
    let start = Instant::now();
    while !search.is_over() {
        total.hops += u32::from(sides.go_to_turn(total.levels).await?);
        total.vertices += u64::from(level(graph, search));
        total.levels += 1;
    }
    total.hops += u32::from(sides.go_home().await?);
    let took = start.elapsed();
    total.time += took;
    Ok(took)
}

/// A level; the number of vertices found. Nothing else is in the window.
#[inline(never)]
fn level(graph: &Graph, search: &mut Search) -> u32 {
    marker::window::<REGION, _>(|| search.advance(graph, &mut |_| (), &mut || ()))
}

fn per_second(count: u64, time: Duration) -> u64 {
    let per = u128::from(count) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(per).unwrap_or(u64::MAX)
}
