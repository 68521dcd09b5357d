//! Small workloads, each of which shows one cost: touching pages that lie on one side, and migrating
//! below frames of a known kind.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--what` | a list of `pages`, `depth`, `faults`, `process`, `pingpong`, `futex` | `pages,depth` |
//! | `--touches` | a list of `read`, `upgrade`, `write`, `return`, `zero` ([`faults`]) | all |
//! | `--turns` | a list: turns of each thread in games of [`futex`], 1 to 100000 | `64,128,256,512` |
//! | `--heap` | MiB that a process goes to the other side with ([`process`]), 1 to 64 | 4 |
//! | `--way` | what becomes of their pages: `ahead`, `demand` ([`process`]) | `ahead` |
//! | `--patterns` | a list: who has the pages and who touches them, of the names in [`Pattern`] | all |
//! | `--pages` | how many, 1 to 4096 | 256 |
//! | `--lines` | lines touched in each page, 1 to 64 | 64 |
//! | `--kinds` | a list of `empty`, `lookup`, `copy`, `pointers` ([`Kind`]) | all |
//! | `--depths` | a list: frames above the place where the thread migrates, 1 to 64 | `1,2,4,8,16,32,64` |
//! | `--times` | how often it goes there and back, 1 to 100000 | 64 |
//!
//! The times of pattern `p` are reported as `pages.p.load-ns` and `pages.p.store-ns`, of all pages together.
//!
//! Times are those of the clock: simulated with `--sim timing`, the host's without. What was
//! touched and what frames return is checked.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

mod faults;
mod futex;
mod process;

use core::hint::black_box;

use dyad::prelude::thread::*;
use dyad::{report, thread};
use faults::Touch;
use process::Paging;
use workloads::micro::depth::{Kind, descend, expected};
use workloads::micro::pages::{Act, LINES, Pages, Pattern, Side};

/// What a migration gives: an error that owns nothing, so that nothing has to be dropped on the way.
type Moved<T = ()> = core::result::Result<T, dyad::sys::Error>;

/// The two sides.
#[derive(Clone, Copy, Debug)]
struct Nodes {
    origin: NodeId,
    remote: NodeId,
}

impl Nodes {
    #[inline(never)]
    fn find() -> Result<Nodes> {
        let origin = node();
        let remote = system()?
            .nearest(isa().other(), origin)
            .ok_or_else(|| Error::msg("there is no node of the other ISA"))?;
        Ok(Nodes { origin, remote })
    }

    fn go(self, side: Side) -> Moved {
        let there = match side {
            Side::Origin => self.origin,
            Side::Remote => self.remote,
        };
        match node() == there {
            true => Ok(()),
            false => thread::migrate_to(there),
        }
    }
}

/// How long loads and stores took, and whether loads have given what was stored.
struct Touched {
    loads: Duration,
    stores: Duration,
    good: bool,
}

fn touch(pattern: Pattern, count: usize, lines: usize, nodes: Nodes) -> Moved<Touched> {
    let mut touched = Touched {
        loads: Duration::ZERO,
        stores: Duration::ZERO,
        good: true,
    };
    let mut pages = None;
    for act in pattern.acts() {
        match *act {
            Act::Own(side) => {
                nodes.go(side)?;
                let mut own = Pages::new(count);
                own.store(lines, &mut || ());
                pages = Some(own);
            }
            Act::Warm(side) => {
                nodes.go(side)?;
                if let Some(pages) = &pages {
                    // Loads whose sum is not used would be left out.
                    let sum = black_box(pages.load(lines, &mut || ()));
                    touched.good &= pages.check(lines, sum);
                }
            }
            Act::Measure(side) => {
                nodes.go(side)?;
                if let Some(pages) = &mut pages {
                    measure(pages, lines, &mut touched);
                }
            }
        }
    }
    nodes.go(Side::Origin)?;
    Ok(touched)
}

#[inline(never)]
fn measure(pages: &mut Pages, lines: usize, touched: &mut Touched) {
    let start = Instant::now();
    let sum = pages.load(lines, &mut || ());
    touched.loads += start.elapsed();
    touched.good &= pages.check(lines, sum);
    let start = Instant::now();
    pages.store(lines, &mut || ());
    touched.stores += start.elapsed();
    let sum = pages.load(lines, &mut || ());
    touched.good &= pages.check(lines, sum);
}

#[inline(never)]
fn there_and_back(nodes: Nodes, times: usize) -> Moved<Duration> {
    let start = Instant::now();
    for _ in 0..times {
        nodes.go(Side::Remote)?;
        nodes.go(Side::Origin)?;
    }
    Ok(start.elapsed())
}

/// Nanoseconds for each of so many.
fn each(time: Duration, count: usize) -> u128 {
    time.as_nanos() / count.max(1) as u128
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Pages,
    Depth,
    Faults,
    Process,
    PingPong,
    Futex,
}

/// What the command line says.
struct Plan {
    what: Vec<What>,
    touches: Vec<Touch>,
    turns: Vec<u32>,
    heap: usize,
    way: Paging,
    patterns: Vec<Pattern>,
    count: usize,
    lines: usize,
    kinds: Vec<Kind>,
    depths: Vec<u32>,
    times: usize,
}

/// The words of a list.
fn list<T>(
    args: &Args,
    name: &str,
    default: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>> {
    let text = args.value(name).unwrap_or(default);
    let word = |word: &str| {
        let wrong = || {
            Error::usage(format_args!(
                "{name} cannot have {word:?}; possible: {default}"
            ))
        };
        parse(word).ok_or_else(wrong)
    };
    text.split(',').map(word).collect()
}

fn number(args: &Args, name: &str, default: usize, most: usize) -> Result<usize> {
    match args.value(name).map(str::parse) {
        None => Ok(default),
        Some(Ok(n)) if (1..=most).contains(&n) => Ok(n),
        Some(_) => Err(Error::usage(format_args!(
            "{name} takes a number from 1 to {most}"
        ))),
    }
}

impl Plan {
    #[inline(never)]
    fn read(args: &Args) -> Result<Plan> {
        const OPTIONS: [&str; 11] = [
            "--what",
            "--touches",
            "--turns",
            "--heap",
            "--way",
            "--patterns",
            "--pages",
            "--lines",
            "--kinds",
            "--depths",
            "--times",
        ];
        args.expect_options(&OPTIONS)?;
        let what = list(args, "--what", "pages,depth", |w| match w {
            "pages" => Some(What::Pages),
            "depth" => Some(What::Depth),
            "faults" => Some(What::Faults),
            "process" => Some(What::Process),
            "pingpong" => Some(What::PingPong),
            "futex" => Some(What::Futex),
            _ => None,
        })?;
        let way = args.value("--way").unwrap_or("ahead");
        let way = Paging::parse(way).ok_or_else(|| {
            Error::usage(format_args!(
                "--way cannot be {way:?}; possible: ahead,demand"
            ))
        })?;
        let depth = |w: &str| w.parse().ok().filter(|n| (1..=64).contains(n));
        Ok(Plan {
            what,
            touches: list(args, "--touches", Touch::NAMES, Touch::parse)?,
            turns: list(args, "--turns", "64,128,256,512", |w| {
                w.parse().ok().filter(|n| (1..=100_000).contains(n))
            })?,
            heap: number(args, "--heap", 4, 64)?,
            way,
            patterns: list(
                args,
                "--patterns",
                "vanilla,rao,rao-nc,oar,oar-nc",
                Pattern::parse,
            )?,
            count: number(args, "--pages", 256, 4096)?,
            lines: number(args, "--lines", LINES, LINES)?,
            kinds: list(args, "--kinds", "empty,lookup,copy,pointers", Kind::parse)?,
            depths: list(args, "--depths", "1,2,4,8,16,32,64", depth)?,
            times: number(args, "--times", 64, 100_000)?,
        })
    }
}

#[inline(never)]
fn tell_pages(plan: &Plan, pattern: Pattern, touched: &Touched) -> bool {
    let count = plan.count * plan.lines;
    let (loads, stores) = (each(touched.loads, count), each(touched.stores, count));
    println!("{:<10} {loads:>12} {stores:>12}", pattern.name());
    for (what, time) in [("load", touched.loads), ("store", touched.stores)] {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        report::counter(&format!("pages.{}.{what}-ns", pattern.name()), ns);
    }
    report::check(&format!("pages.{}", pattern.name()), touched.good, "")
}

#[inline(never)]
fn tell_depth(plan: &Plan, kind: Kind, depth: u32, took: Duration, found: u64) -> bool {
    println!(
        "{:<10} {depth:>12} {:>12}",
        kind.name(),
        each(took, plan.times)
    );
    let name = format!("depth.{}.{depth}", kind.name());
    report::check(&name, found == expected(kind, depth), "")
}

#[dyad::main]
fn main(args: Args) -> Result<()> {
    let plan = Plan::read(&args)?;
    let nodes = Nodes::find()?;
    let mut good = true;
    if plan.what.contains(&What::Pages) {
        println!("{:<10} {:>12} {:>12}", "pages", "load ns", "store ns");
        for &pattern in &plan.patterns {
            let touched = touch(pattern, plan.count, plan.lines, nodes)?;
            good &= tell_pages(&plan, pattern, &touched);
        }
    }
    if plan.what.contains(&What::Depth) {
        println!("{:<10} {:>12} {:>12}", "frames", "depth", "ns");
        for &kind in &plan.kinds {
            for &depth in &plan.depths {
                let mut took = Ok(Duration::ZERO);
                let found = descend(kind, depth, &mut |_| {
                    took = there_and_back(nodes, plan.times);
                });
                good &= tell_depth(&plan, kind, depth, took?, found);
            }
        }
    }
    if plan.what.contains(&What::Faults) {
        println!("{:<10} {:>12}", "touch", "page ns");
        let mut kept = Vec::new();
        for &touch in &plan.touches {
            good &= faults::tell(touch, plan.count, nodes, &mut kept)?;
        }
    }
    if plan.what.contains(&What::Process) {
        good &= process::tell(plan.way, plan.heap, nodes)?;
    }
    if plan.what.contains(&What::PingPong) {
        process::tell_ping_pong(plan.times, nodes)?;
    }
    if plan.what.contains(&What::Futex) {
        println!(
            "{:<10} {:>12} {:>12} {:>12}",
            "turns", "ns", "wakes", "messages"
        );
        for &turns in &plan.turns {
            good &= futex::tell(turns, nodes)?;
        }
    }
    match good {
        true => Ok(()),
        false => Err(Error::msg("something is not what it was")),
    }
}
