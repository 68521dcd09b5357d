//! `cargo xtask bench`.

use clap::{Args, Subcommand};
use dyad_abi::Isa;

use super::run::write_json;
use crate::bench;
use crate::config::Settings;
use crate::display::{Display, Verbosity};
use crate::error::Error;
use crate::setup;

#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// Count what each operation of the kernel costs, on both ISAs
    Kernel(KernelArgs),
}

#[derive(Debug, Args)]
struct KernelArgs {
    /// ISA of each node, 2 to 8 of them [default: a pair, once with either ISA first]
    #[arg(long, value_name = "LIST")]
    nodes: Option<String>,
    /// How often each operation is performed on each node, 32 to 4096
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(32..=4096))]
    repetitions: u64,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Write the table to this file as a page of the book
    #[arg(long, value_name = "FILE")]
    page: Option<String>,
    /// Print too in which functions the instructions are
    #[arg(long)]
    sites: bool,
    /// Print what the machines print
    #[arg(short, long)]
    verbose: bool,
}

pub(super) fn bench(args: &BenchArgs) -> Result<u8, Error> {
    match &args.suite {
        Suite::Kernel(args) => kernel(args),
    }
}

fn kernel(args: &KernelArgs) -> Result<u8, Error> {
    let systems = match &args.nodes {
        None => vec![
            vec![Isa::X86_64, Isa::Aarch64],
            vec![Isa::Aarch64, Isa::X86_64],
        ],
        Some(_) => {
            let settings = Settings {
                nodes: args.nodes.clone(),
                ..Settings::default()
            };
            vec![settings.resolve()?.nodes]
        }
    };
    setup::ensure(&setup::Requirements::ALL, &mut super::say)?;
    let verbosity = match args.verbose {
        true => Verbosity::Verbose,
        false => Verbosity::Quiet,
    };
    let mut display = Display::new(verbosity);
    let report = bench::kernel(&systems, args.repetitions, args.sites, &mut display)?;
    print!("{}", report.table());
    print!("{}", report.sites.tables());
    if let Some(file) = &args.json {
        write_json(file, &report.json())?;
    }
    if let Some(file) = &args.page {
        std::fs::write(file, report.page())
            .map_err(|e| Error::Usage(format!("cannot write {file}: {e}")))?;
    }
    match report.problem() {
        None => Ok(0),
        Some(why) => Err(Error::Run(why)),
    }
}
