//! `cargo xtask bench`.

use std::path::Path;

use clap::{Args, Subcommand};
use dyad_abi::Isa;
use dyad_abi::service::peer::{RingPlace, Transport};

use super::compare::{CompareArgs, compare};
use super::result::{self, check_file, write_file};
use dyad_launcher::config::{Bytes, Json, Named, Names, Nodes, OUTPUT};
use dyad_launcher::display::{Display, Verbosity};
use dyad_launcher::error::Error;
use dyad_launcher::launch::{Quiet, Sink};
use dyad_launcher::setup;
use dyad_measure::bench::migration::{self, Group};
use dyad_measure::bench::stages::Op;
use dyad_measure::bench::{self, faults, sim::Level};
use dyad_measure::qemu_plugins;
use dyad_sim_model::config::MemoryModel;

#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// Count what each operation of the kernel costs, on both ISAs
    Kernel(KernelArgs),
    /// Count the steps until what was given up can be used again, by the size of the pools
    Quiescence(QuiescenceArgs),
    /// Measure what it costs to change the ISA: instructions, simulated time, time of the host
    Migration(MigrationArgs),
    /// Measure what a page fault costs that needs another kernel's message, by its parts
    Faults(FaultsArgs),
    /// Measure what it costs to reach pages of another node, by messages and through shared memory
    Pages(PagesArgs),
    /// Measure what it costs to move a process with its memory to another kernel, by the size of its heap
    Process(ProcessArgs),
    /// Measure stores of keys and values: read in place, partitioned, replicas
    Kv(KvArgs),
    /// Compare fused kernels with kernels that only exchange messages, on NPB
    Compare(CompareArgs),
    /// Count in which functions the instructions of operations are, on both ISAs
    Stages(StagesArgs),
    /// Measure how much each level of simulation slows machines down, beside QEMU's own cache model
    Sim(SimArgs),
}

/// Where results go, and what is printed meanwhile.
#[derive(Debug, Args)]
pub(super) struct Results {
    #[command(flatten)]
    pub(super) json: Json,
    /// Print what the machines print
    #[arg(short, long, help_heading = OUTPUT)]
    verbose: bool,
}

/// The results as a page of the book.
#[derive(Debug, Default, Args)]
struct Page {
    /// Write the table to this file as a page of the book
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    page: Option<String>,
}

#[derive(Debug, Args)]
struct KernelArgs {
    /// ISA of each node, 2 to 8 of them [default: a pair, once with either ISA first]
    #[arg(long, value_name = "LIST")]
    nodes: Option<Nodes>,
    /// How often each operation is performed on each node, 32 to 1024
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(32..=1024))]
    repetitions: u64,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    page: Page,
    /// Simulate caches and time too: how many cycles operations take
    #[arg(long)]
    cycles: bool,
    /// Measure kernels without fast paths: what every operation takes on the slow path
    #[arg(long, conflicts_with = "page")]
    slowpath: bool,
}

#[derive(Debug, Args)]
struct QuiescenceArgs {
    /// ISA of each node, 2 to 8 of them [default: x86_64,aarch64]
    #[arg(long, value_name = "LIST")]
    nodes: Option<Nodes>,
    /// Sizes of each pool, one run after the other [default: 64MiB,256MiB,1GiB,4GiB]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pools: Vec<Bytes>,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    page: Page,
}

#[derive(Debug, Args)]
struct MigrationArgs {
    /// Less of everything, to see that it works
    #[arg(long)]
    quick: bool,
    /// What to measure [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<Named<Group>>,
    /// From where [default: both]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    home: Vec<Named<Isa>>,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    page: Page,
}

#[derive(Debug, Args)]
struct FaultsArgs {
    /// Memory models [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    models: Vec<Named<MemoryModel>>,
    /// Transports of messages [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    transports: Vec<Named<Transport>>,
    /// In whose memory the rings lie [default: receiver]
    #[arg(long, value_name = "PLACE")]
    ring_place: Option<Named<RingPlace>>,
    /// Pages that are touched in each run, 64 to 4096
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(64..=4096))]
    pages: u64,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    page: Page,
}

#[derive(Debug, Args)]
struct PagesArgs {
    /// Memory models [default: separated,shared,fully-shared]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    models: Vec<Named<MemoryModel>>,
    /// Fewer pages, to see that it works
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    page: Page,
}

#[derive(Debug, Args)]
struct ProcessArgs {
    /// Memory models [default: separated,shared,fully-shared; with --quick shared]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    models: Vec<Named<MemoryModel>>,
    /// Sizes of the heap in MiB, 1 to 64 each [default: 1,2,4,8,16; with --quick 1,2,4]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=64))]
    heaps: Vec<u64>,
    /// Less of everything, to see that it works
    #[arg(long)]
    quick: bool,
    /// Write a picture to this file (SVG)
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    svg: Option<String>,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    page: Page,
}

#[derive(Debug, Args)]
struct KvArgs {
    /// Items that there are at the start
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    items: u64,
    /// Requests of each client
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    requests: u64,
    /// What to measure [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<Named<bench::kv::Group>>,
    /// Who keeps caches coherent [default: both]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    caches: Vec<Named<bench::kv::Caches>>,
    /// Few points and few requests, to see that it works
    #[arg(long, conflicts_with_all = ["items", "requests", "only", "caches"])]
    quick: bool,
    /// Write a picture to this file (SVG)
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    svg: Option<String>,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    page: Page,
}

#[derive(Debug, Args)]
struct StagesArgs {
    /// Operations of `bench kernel` and `bench migration` [default: those of the book's page]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = operation)]
    only: Vec<Op>,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    page: Page,
}

/// An operation by its name.
fn operation(name: &str) -> Result<Op, String> {
    let all = Op::all();
    let found = all.iter().find(|op| op.name() == name);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|op| op.name()).collect();
        format!("no such operation; possible: {}", names.join(", "))
    })
}

#[derive(Debug, Args)]
struct SimArgs {
    /// Measure for a shorter time, to see that everything works
    #[arg(long)]
    quick: bool,
    /// Rounds of all levels, one after the other [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: Option<u32>,
    /// Levels beside the plain machine [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    levels: Vec<Named<Level>>,
    #[command(flatten)]
    results: Results,
}

pub(super) fn bench(args: &BenchArgs) -> Result<u8, Error> {
    match &args.suite {
        Suite::Kernel(args) => kernel(args),
        Suite::Quiescence(args) => quiescence(args),
        Suite::Migration(args) => migration(args),
        Suite::Faults(args) => faults(args),
        Suite::Pages(args) => pages(args),
        Suite::Process(args) => process(args),
        Suite::Kv(args) => kv(args),
        Suite::Compare(args) => compare(args),
        Suite::Stages(args) => stages(args),
        Suite::Sim(args) => sim(args),
    }
}

impl Results {
    /// Takes note of where results go: who waits for minutes does not want to hear afterwards that they cannot
    /// be written.
    fn open(&self, page: &Page) -> Result<(), Error> {
        result::open("bench", &self.json)?;
        page.page.as_deref().map_or(Ok(()), check_file)
    }

    /// What shows what machines print.
    pub(super) fn display(&self) -> Display {
        Display::new(match self.verbose {
            true => Verbosity::Verbose,
            false => Verbosity::Quiet,
        })
    }
}

impl Page {
    /// Prints the table and writes the files; the one if the other cannot be written, too.
    fn publish(
        &self,
        table: &str,
        json: &serde_json::Value,
        page: Option<&str>,
    ) -> Result<(), Error> {
        print!("{table}");
        let json = result::write(json);
        let page =
            (self.page.as_deref().zip(page)).map_or(Ok(()), |(file, page)| write_file(file, page));
        json.and(page)
    }
}

/// How a command ends that has measured.
fn verdict(problem: Option<String>) -> Result<u8, Error> {
    problem.map_or(Ok(0), |why| Err(Error::Run(why)))
}

fn quiescence(args: &QuiescenceArgs) -> Result<u8, Error> {
    args.results.open(&args.page)?;
    let isas = match &args.nodes {
        None => vec![Isa::X86_64, Isa::Aarch64],
        Some(Nodes(isas)) => isas.clone(),
    };
    let pools = match args.pools.is_empty() {
        true => bench::DEFAULT_POOLS.to_vec(),
        false => args.pools.iter().map(|size| size.0).collect(),
    };
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let figures = bench::quiescence(&isas, &pools, &mut args.results.display())?;
    let table = figures.table() + &figures.logs();
    args.page
        .publish(&table, &figures.json(), Some(&figures.page()))?;
    verdict(figures.problem())
}

fn faults(args: &FaultsArgs) -> Result<u8, Error> {
    args.results.open(&args.page)?;
    let mut plan = faults::Plan {
        pages: args.pages,
        ..faults::Plan::default()
    };
    if !args.models.is_empty() {
        plan.models = args.models.iter().map(|m| m.0).collect();
    }
    if !args.transports.is_empty() {
        plan.transports = args.transports.iter().map(|t| t.0).collect();
    }
    if let Some(place) = args.ring_place {
        plan.ring_place = place.0;
    }
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let figures = faults::faults(&plan, &mut args.results.display())?;
    args.page
        .publish(&figures.table(), &figures.json(), Some(&figures.page()))?;
    verdict(figures.problem())
}

fn pages(args: &PagesArgs) -> Result<u8, Error> {
    args.results.open(&args.page)?;
    let mut plan = bench::pages::Plan::default();
    if !args.models.is_empty() {
        plan.models = args.models.iter().map(|m| m.0).collect();
    }
    if args.quick {
        (plan.pages, plan.few) = (128, 64);
    }
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let figures = bench::pages::pages(&plan, &mut args.results.display())?;
    args.page
        .publish(&figures.table(), &figures.json(), Some(&figures.page()))?;
    verdict(figures.problem())
}

fn process(args: &ProcessArgs) -> Result<u8, Error> {
    args.results.open(&args.page)?;
    args.svg.as_deref().map_or(Ok(()), check_file)?;
    let mut plan = bench::process::Plan::default();
    if args.quick {
        plan.models = vec![MemoryModel::Shared];
        plan.heaps = vec![1, 2, 4];
        plan.times = 16;
        plan.turns = vec![32, 64, 128];
    }
    if !args.models.is_empty() {
        plan.models = args.models.iter().map(|m| m.0).collect();
    }
    if !args.heaps.is_empty() {
        plan.heaps.clone_from(&args.heaps);
    }
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let figures = bench::process::process(&plan, &mut args.results.display())?;
    if let Some(file) = &args.svg {
        write_file(file, &figures.picture())?;
    }
    args.page
        .publish(&figures.table(), &figures.json(), Some(&figures.page()))?;
    verdict(figures.problem())
}

fn kv(args: &KvArgs) -> Result<u8, Error> {
    args.results.open(&args.page)?;
    args.svg.as_deref().map_or(Ok(()), check_file)?;
    let plan = match args.quick {
        true => bench::kv::Plan::quick(),
        false => {
            let (groups, caches) = (chosen(&args.only), chosen(&args.caches));
            bench::kv::Plan::new(&groups, &caches, args.items, args.requests)
        }
    };
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let figures = bench::kv::kv(&plan, &mut args.results.display())?;
    if let Some(file) = &args.svg {
        write_file(file, &figures.picture())?;
    }
    let picture = args.svg.as_deref().map(Path::new).and_then(Path::file_name);
    let picture = picture.and_then(|name| name.to_str());
    let page = figures.page(picture);
    args.page
        .publish(&figures.table(), &figures.json(), Some(&page))?;
    verdict(figures.problem())
}

fn kernel(args: &KernelArgs) -> Result<u8, Error> {
    args.results.open(&args.page)?;
    let systems = match &args.nodes {
        None => vec![
            vec![Isa::X86_64, Isa::Aarch64],
            vec![Isa::Aarch64, Isa::X86_64],
        ],
        Some(Nodes(isas)) => vec![isas.clone()],
    };
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let mut display = args.results.display();
    let what = bench::OfKernel {
        repetitions: args.repetitions,
        fastpaths: !args.slowpath,
    };
    let mut report = bench::kernel(&systems, what, &mut display)?;
    if args.cycles {
        report.cycles = bench::kernel_cycles(&systems, what, &mut display)?;
    }
    let table = report.table() + &report.longest.table();
    args.page
        .publish(&table, &report.json(), Some(&report.page()))?;
    verdict(report.problem())
}

/// What a list names, in the order of all there are; all if it is empty.
fn chosen<T: Names + PartialEq>(list: &[Named<T>]) -> Vec<T> {
    let is_chosen = |v: &&Named<T>| list.is_empty() || list.contains(v);
    T::VARIANTS.iter().filter(is_chosen).map(|v| v.0).collect()
}

fn migration(args: &MigrationArgs) -> Result<u8, Error> {
    args.results.open(&args.page)?;
    let options = migration::Options {
        quick: args.quick,
        groups: chosen(&args.only),
        homes: chosen(&args.home),
    };
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let mut display = args.results.display();
    let report = migration::migration(&options, &mut super::say, &mut display)?;
    // Half a page is none.
    let page = (!report.interrupted).then(|| report.page());
    args.page
        .publish(&report.table(), &report.json(), page.as_deref())?;
    match report.interrupted {
        true => Err(Error::Interrupted),
        false => verdict(report.problem()),
    }
}

fn stages(args: &StagesArgs) -> Result<u8, Error> {
    args.results.open(&args.page)?;
    let ops = match args.only.is_empty() {
        true => Op::usual(),
        false => args.only.clone(),
    };
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let mut display = args.results.display();
    let report = bench::stages::stages(&ops, &mut super::say, &mut display)?;
    let page = report.problem().is_none().then(|| report.page());
    args.page
        .publish(&report.tables(), &report.json(), page.as_deref())?;
    verdict(report.problem())
}

fn sim(args: &SimArgs) -> Result<u8, Error> {
    args.results.open(&Page::default())?;
    let options = bench::sim::Options {
        repeat: args.repeat.unwrap_or(if args.quick { 1 } else { 5 }),
        quick: args.quick,
    };
    let mut levels: Vec<Level> = chosen(&args.levels);
    // Everything is compared with the plain machine.
    if !levels.contains(&Level::Plain) {
        levels.insert(0, Level::Plain);
    }
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let plugins = qemu_plugins::ensure(&mut super::say)?;
    let mut display: Box<dyn Sink> = match args.results.verbose {
        true => Box::new(args.results.display()),
        false => Box::new(Quiet),
    };
    let say = &mut super::say;
    let report = bench::sim::sim(options, &levels, &plugins, say, &mut *display)?;
    Page::default().publish(&report.table(), &report.json(), None)?;
    verdict(report.problem())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn json_of(line: &str) -> Option<String> {
        let words = std::iter::once("bench").chain(line.split(' '));
        match Line::try_parse_from(words).unwrap().bench.suite {
            Suite::Kernel(args) => args.results.json.json,
            Suite::Quiescence(args) => args.results.json.json,
            Suite::Migration(args) => args.results.json.json,
            Suite::Faults(args) => args.results.json.json,
            Suite::Pages(args) => args.results.json.json,
            Suite::Process(args) => args.results.json.json,
            Suite::Kv(args) => args.results.json.json,
            Suite::Compare(args) => args.results.json.json,
            Suite::Stages(args) => args.results.json.json,
            Suite::Sim(args) => args.results.json.json,
        }
    }

    /// Programs read results from a pipe, or from a file.
    #[test]
    fn results_go_to_standard_output_or_to_a_file() {
        for suite in [
            "kernel",
            "quiescence",
            "migration",
            "faults",
            "pages",
            "process",
            "kv",
            "compare",
            "stages",
            "sim",
        ] {
            let of = |more: &str| json_of(&format!("{suite}{more}"));
            assert_eq!(of(""), None);
            assert_eq!(of(" --json").as_deref(), Some("-"));
            assert_eq!(of(" --json -").as_deref(), Some("-"));
            assert_eq!(of(" --json --verbose").as_deref(), Some("-"));
            assert_eq!(of(" --json a.json").as_deref(), Some("a.json"));
            assert_eq!(of(" --json=a.json --verbose").as_deref(), Some("a.json"));
        }
    }
}
