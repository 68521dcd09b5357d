//! NPB IS, CG, MG and FT, as tasks or as plain threads that change their ISA while they run.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--bench` | `is`, `cg`, `mg`, `ft`, `all`: these, one after the other; `ep` | `is` |
//! | `--style` | `task`: an async task, which migrates between phases; `thread`: a plain thread, which migrates inside of them too | `task` |
//! | `--class` | `S`, `W`, `A` | `S` |
//! | `--hop` | `on`, `off`: the thread stays where it starts | `on` |
//! | `--place` | with hops, where phases run. `phases`: each on the other node than the one before; `alternate`: each iteration on the other node than the one before, the first at home; `offload`: all iterations away, and the thread comes home between two of them | `phases` |
//! | `--buckets` | `on`: IS with buckets, as the official program is built; an iteration is one phase; `off` | `off` |
//! | `--threads` | of EP and IS, 1 to 64: so many plain threads share the work, each on a node and CPU of its own as far as there are any, and no thread moves | 1 |
//! | `--home` | `x86_64`, `aarch64`: where it starts, and runs without hops | where it starts |
//! | `--every` | a thread moves to the other node at every Nth point that it passes inside of phases; 0: at none | 0 |
//! | `--at` | a thread moves once, at the Nth point; 0: never | 0 |
//!
//! Each timed phase is a sample of window [`REGION`] of the simulator. Of benchmark `b` it reports `b.timed-ns`, fused time from the first
//! timed phase to the end of the last, and over several kernels `b.page-messages` and `b.replicas`: messages about pages from the start of the
//! program to the end of the last timed phase, and pages of which another node than the first has got a copy. Of two nodes, `b.timed-messages` are
//! the messages of the timed phases, and `b.timed-contents` those of them with the contents of a page. Each benchmark ends with a checksum of all
//! results, which is the same however the program is run.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

mod parallel;
mod placement;
mod tasks;
mod threads;

use dyad::prelude::thread::*;
use dyad::sys::marker;
use dyad_abi::marker::WindowId;
use npb_kernels::class::Class;
use npb_kernels::is;
use npb_kernels::kernel::{Kernel, Phase};
use placement::Placement;

/// The window around what is timed.
pub const REGION: u16 = WindowId::FREE;

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bench {
    Is,
    Cg,
    Mg,
    Ft,
    Ep,
}

impl Bench {
    /// Those of `all`.
    const ALL: [Bench; 4] = [Bench::Is, Bench::Cg, Bench::Mg, Bench::Ft];

    /// What options and checks call it.
    const fn name(self) -> &'static str {
        match self {
            Bench::Is => "is",
            Bench::Cg => "cg",
            Bench::Mg => "mg",
            Bench::Ft => "ft",
            Bench::Ep => "ep",
        }
    }
}

/// What the command line says.
#[derive(Clone, Debug)]
struct Options {
    benches: Vec<Bench>,
    class: Class,
    is_task: bool,
    place: Placement,
    buckets: bool,
    home: Option<Isa>,
    every: u64,
    at: u64,
    threads: u32,
}

impl Options {
    #[inline(never)]
    fn read(args: &Args) -> Result<Options> {
        const KNOWN: [&str; 10] = [
            "--bench",
            "--style",
            "--class",
            "--hop",
            "--place",
            "--buckets",
            "--threads",
            "--home",
            "--every",
            "--at",
        ];
        args.expect_options(&KNOWN)?;
        let bench = args.one_of("--bench", &["is", "cg", "mg", "ft", "all", "ep"], "is")?;
        let class = args.one_of("--class", &Class::ALL.map(Class::name), "S")?;
        let home = args.one_of("--home", &Isa::ALL.map(Isa::name), isa().name())?;
        let is_task = args.one_of("--style", &["task", "thread"], "task")? == "task";
        for option in ["--every", "--at"] {
            if is_task && args.value(option).is_some() {
                let what = "is for threads only: a task migrates between phases";
                return Err(Error::usage(format_args!("{option} {what}")));
            }
        }
        let hops = args.one_of("--hop", &["on", "off"], "on")? == "on";
        if !hops && args.value("--place").is_some() {
            let why = "--place says where phases run, and with --hop off they run where it starts";
            return Err(Error::usage(why));
        }
        let names = Placement::ALL.map(Placement::name);
        let place = args.one_of("--place", &names, if hops { "phases" } else { "home" })?;
        let place = Placement::ALL.into_iter().find(|p| p.name() == place);
        let buckets = args.one_of("--buckets", &["on", "off"], "off")? == "on";
        if buckets && bench != "is" && bench != "all" {
            return Err(Error::usage("--buckets is for IS only: --bench is"));
        }
        let number = |name| args.number(name, 0, 0..=u64::MAX);
        let mut benches = Bench::ALL.to_vec();
        benches.push(Bench::Ep);
        benches.retain(|b| bench == b.name() || bench == "all" && *b != Bench::Ep);
        let threads = args.number("--threads", 1, 1..=64)? as u32;
        if args.value("--threads").is_some() && (!["ep", "is"].contains(&bench) || is_task) {
            let why = "--threads is for plain threads of EP and IS: --bench is --style thread";
            return Err(Error::usage(why));
        }
        Ok(Options {
            benches,
            class: Class::parse(class).unwrap_or(Class::S),
            is_task,
            place: place.unwrap_or(Placement::Phases),
            buckets,
            home: args.value("--home").and(Isa::parse(home)),
            every: number("--every")?,
            at: number("--at")?,
            threads,
        })
    }
}

impl Options {
    /// A run of IS.
    fn keys(&self) -> is::Run {
        match self.buckets {
            true => is::Run::with_buckets(self.class),
            false => is::Run::new(self.class),
        }
    }
}

/// Does a phase, in a window if it is timed. Nothing else is in the window.
#[inline(never)]
fn advance(kernel: &mut impl Kernel, phase: Phase, point: &mut impl FnMut()) {
    match phase.timed {
        true => marker::window::<REGION, _>(|| kernel.advance(point)),
        false => kernel.advance(point),
    }
}

#[dyad::main]
fn main(args: Args) -> Result<()> {
    let options = Options::read(&args)?;
    match options.is_task {
        true => dyad::task::run(tasks::main(options)),
        false => threads::main(&options),
    }
}
