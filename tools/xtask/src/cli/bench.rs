//! `cargo xtask bench`.

use clap::{Args, Subcommand};
use dyad_abi::Isa;

use super::run::{STDOUT, check_files, write_file, write_json};
use crate::bench::migration::{self, Group};
use crate::bench::{self, sim::Level};
use crate::config::Settings;
use crate::display::{Display, Verbosity};
use crate::error::Error;
use crate::launch::{Quiet, Sink};
use crate::{qemu_plugins, setup, size, suggest};

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
    /// Measure how much each level of simulation slows machines down, beside QEMU's own cache model
    Sim(SimArgs),
}

#[derive(Debug, Args)]
struct KernelArgs {
    /// ISA of each node, 2 to 8 of them [default: a pair, once with either ISA first]
    #[arg(long, value_name = "LIST")]
    nodes: Option<String>,
    /// How often each operation is performed on each node, 32 to 1024
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(32..=1024))]
    repetitions: u64,
    /// Write the results to this file; without one they go to standard output, and tables do not
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = STDOUT)]
    json: Option<String>,
    /// Write the table to this file as a page of the book
    #[arg(long, value_name = "FILE")]
    page: Option<String>,
    /// Print too in which functions the instructions are
    #[arg(long)]
    sites: bool,
    /// Simulate caches and time too: how many cycles operations take
    #[arg(long)]
    cycles: bool,
    /// Measure kernels without fast paths: what every operation takes on the slow path
    #[arg(long, conflicts_with = "page")]
    slowpath: bool,
    /// Print what the machines print
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Debug, Args)]
struct QuiescenceArgs {
    /// ISA of each node, 2 to 8 of them [default: x86_64,aarch64]
    #[arg(long, value_name = "LIST")]
    nodes: Option<String>,
    /// Sizes of each pool, one run after the other [default: 64MiB,256MiB,1GiB,4GiB]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    pools: Vec<String>,
    /// Write the results to this file; without one they go to standard output, and tables do not
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = STDOUT)]
    json: Option<String>,
    /// Write the table to this file as a page of the book
    #[arg(long, value_name = "FILE")]
    page: Option<String>,
    /// Print what the machines print
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Debug, Args)]
struct MigrationArgs {
    /// Less of everything, to see that it works
    #[arg(long)]
    quick: bool,
    /// What to measure: micro, threads, emulation, futex, chase, bfs, cost, blocks [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// From where: x86_64, aarch64 [default: both]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    home: Vec<String>,
    /// Write the results to this file; without one they go to standard output, and tables do not
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = STDOUT)]
    json: Option<String>,
    /// Write the table to this file as a page of the book
    #[arg(long, value_name = "FILE")]
    page: Option<String>,
    /// Print what the machines print
    #[arg(short, long)]
    verbose: bool,
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
    levels: Vec<String>,
    /// Write the results to this file; without one they go to standard output, and tables do not
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = STDOUT)]
    json: Option<String>,
    /// Print what the machines print
    #[arg(short, long)]
    verbose: bool,
}

pub(super) fn bench(args: &BenchArgs) -> Result<u8, Error> {
    match &args.suite {
        Suite::Kernel(args) => kernel(args),
        Suite::Quiescence(args) => quiescence(args),
        Suite::Migration(args) => migration(args),
        Suite::Sim(args) => sim(args),
    }
}

/// Nodes as they are named on the command line.
fn nodes(list: &str) -> Result<Vec<Isa>, Error> {
    let settings = Settings {
        nodes: Some(list.into()),
        ..Settings::default()
    };
    Ok(settings.resolve()?.nodes)
}

/// Files that results are written to.
struct Files<'a> {
    json: Option<&'a str>,
    page: Option<&'a str>,
}

impl<'a> Files<'a> {
    /// These, which can be written: who waits for minutes does not want to hear of that afterwards.
    fn new(json: Option<&'a String>, page: Option<&'a String>) -> Result<Files<'a>, Error> {
        let [json, page] = [json, page].map(|file| file.map(String::as_str));
        check_files([json, page])?;
        Ok(Files { json, page })
    }

    /// What shows what machines print: where the table goes, not among the results.
    fn display(&self, verbose: bool) -> Box<dyn Sink> {
        let verbosity = match verbose {
            true => Verbosity::Verbose,
            false => Verbosity::Quiet,
        };
        match self.json {
            Some(STDOUT) => Box::new(Display::on_stderr(verbosity)),
            _ => Box::new(Display::new(verbosity)),
        }
    }

    /// Prints the table and writes the files; the one if the other cannot be written, too.
    fn publish(
        &self,
        table: &str,
        json: &serde_json::Value,
        page: Option<&str>,
    ) -> Result<(), Error> {
        match self.json {
            Some(STDOUT) => eprint!("{table}"),
            _ => print!("{table}"),
        }
        let json = self.json.map_or(Ok(()), |file| write_json(file, json));
        let page = self
            .page
            .zip(page)
            .map_or(Ok(()), |(file, page)| write_file(file, page));
        json.and(page)
    }
}

/// How a command ends that has measured.
fn verdict(problem: Option<String>) -> Result<u8, Error> {
    problem.map_or(Ok(0), |why| Err(Error::Run(why)))
}

fn quiescence(args: &QuiescenceArgs) -> Result<u8, Error> {
    let isas = match &args.nodes {
        None => vec![Isa::X86_64, Isa::Aarch64],
        Some(list) => nodes(list)?,
    };
    let pools = match args.pools.is_empty() {
        true => bench::DEFAULT_POOLS.to_vec(),
        false => {
            let sizes = args.pools.iter().map(|text| size::parse(text));
            sizes.collect::<Result<_, _>>().map_err(Error::Usage)?
        }
    };
    let files = Files::new(args.json.as_ref(), args.page.as_ref())?;
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let figures = bench::quiescence(&isas, &pools, &mut *files.display(args.verbose))?;
    let table = figures.table() + &figures.logs();
    files.publish(&table, &figures.json(), Some(&figures.page()))?;
    verdict(figures.problem())
}

fn kernel(args: &KernelArgs) -> Result<u8, Error> {
    let systems = match &args.nodes {
        None => vec![
            vec![Isa::X86_64, Isa::Aarch64],
            vec![Isa::Aarch64, Isa::X86_64],
        ],
        Some(list) => vec![nodes(list)?],
    };
    let files = Files::new(args.json.as_ref(), args.page.as_ref())?;
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let mut display = files.display(args.verbose);
    let what = bench::OfKernel {
        repetitions: args.repetitions,
        fastpaths: !args.slowpath,
    };
    let mut report = bench::kernel(&systems, what, args.sites, &mut *display)?;
    if args.cycles {
        report.cycles = bench::kernel_cycles(&systems, what, &mut *display)?;
    }
    let table = report.table() + &report.longest.table() + &report.sites.tables();
    files.publish(&table, &report.json(), Some(&report.page()))?;
    verdict(report.problem())
}

/// What a list names, in the order of all there are; all if it is empty.
fn chosen<T: Copy>(
    what: &str,
    list: &[String],
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<Vec<T>, Error> {
    let names: Vec<&str> = all.iter().map(|&t| name(t)).collect();
    for word in list {
        if !names.contains(&word.as_str()) {
            return Err(Error::Usage(suggest::not_one_of(what, word, &names)));
        }
    }
    let wanted = |&t: &T| list.is_empty() || list.iter().any(|word| word == name(t));
    Ok(all.iter().copied().filter(wanted).collect())
}

fn migration(args: &MigrationArgs) -> Result<u8, Error> {
    let options = migration::Options {
        quick: args.quick,
        groups: chosen("measurement", &args.only, &Group::ALL, Group::name)?,
        homes: chosen("ISA", &args.home, &Isa::ALL, Isa::name)?,
    };
    let files = Files::new(args.json.as_ref(), args.page.as_ref())?;
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let mut display = files.display(args.verbose);
    let report = migration::migration(&options, &mut super::say, &mut *display)?;
    // Half a page is none.
    let page = (!report.interrupted).then(|| report.page());
    files.publish(&report.table(), &report.json(), page.as_deref())?;
    match report.interrupted {
        true => Err(Error::Interrupted),
        false => verdict(report.problem()),
    }
}

/// The plain machine, and what the list names.
fn levels(list: &[String]) -> Result<Vec<Level>, Error> {
    if list.is_empty() {
        return Ok(Level::ALL.to_vec());
    }
    let names = Level::ALL.map(Level::name);
    for word in list {
        if !names.contains(&word.as_str()) {
            return Err(Error::Usage(suggest::not_one_of("level", word, &names)));
        }
    }
    let wanted = |l: &Level| *l == Level::Plain || list.iter().any(|word| word == l.name());
    Ok(Level::ALL.into_iter().filter(wanted).collect())
}

fn sim(args: &SimArgs) -> Result<u8, Error> {
    let options = bench::sim::Options {
        repeat: args.repeat.unwrap_or(if args.quick { 1 } else { 5 }),
        quick: args.quick,
    };
    let levels = levels(&args.levels)?;
    let files = Files::new(args.json.as_ref(), None)?;
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let plugins = qemu_plugins::ensure(&mut super::say)?;
    let mut display: Box<dyn Sink> = match args.verbose {
        true => files.display(true),
        false => Box::new(Quiet),
    };
    let say = &mut super::say;
    let report = bench::sim::sim(options, &levels, &plugins, say, &mut *display)?;
    files.publish(&report.table(), &report.json(), None)?;
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
            Suite::Kernel(args) => args.json,
            Suite::Quiescence(args) => args.json,
            Suite::Migration(args) => args.json,
            Suite::Sim(args) => args.json,
        }
    }

    /// Programs read results from a pipe, or from a file.
    #[test]
    fn results_go_to_standard_output_or_to_a_file() {
        for suite in ["kernel", "quiescence", "migration", "sim"] {
            let of = |more: &str| json_of(&format!("{suite}{more}"));
            assert_eq!(of(""), None);
            assert_eq!(of(" --json").as_deref(), Some(STDOUT));
            assert_eq!(of(" --json -").as_deref(), Some(STDOUT));
            assert_eq!(of(" --json --verbose").as_deref(), Some(STDOUT));
            assert_eq!(of(" --json a.json").as_deref(), Some("a.json"));
            assert_eq!(of(" --json=a.json --verbose").as_deref(), Some("a.json"));
        }
    }
}
