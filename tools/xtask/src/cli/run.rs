//! `cargo xtask run`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use dyad_abi::{Isa, NodeId};

use crate::config::{RunConfig, Settings, Work};
use crate::display::{Display, Verbosity};
use crate::error::Error;
use crate::sim::csv;
use crate::{apps, launch, setup, size};

/// Options that describe a run.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct ShapeArgs {
    /// ISA of each node, 2 to 8 of them [default: x86_64,aarch64]
    #[arg(long, value_name = "LIST")]
    nodes: Option<String>,
    /// CPUs per node, 1 to 8 [default: 1]
    #[arg(long, value_name = "N")]
    cpus: Option<String>,
    /// Memory of each node's local pool [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    mem_local: Option<String>,
    /// Memory of the CXL pool [default: 512MiB]
    #[arg(long, value_name = "SIZE")]
    mem_cxl: Option<String>,
    /// Blocks in which nodes are given memory: a power of two from 32MiB to 4GiB [default: 32MiB]
    #[arg(long, value_name = "SIZE")]
    block_size: Option<String>,
    /// A program's name, its directory, or a .bundle file; `help` lists the programs [default: hop]
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    /// Run these in-kernel tests instead of a program
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["app", "class"])]
    ktest: Vec<String>,
    /// Problem class, handed to the program as `--class C`
    #[arg(long, value_name = "C")]
    class: Option<String>,
    /// Give the program more than every program gets: nothing, or all that init has, of a part of
    /// the memory [default: nothing]
    #[arg(long, value_name = "WHAT")]
    grant: Option<String>,
    /// End the run after this many seconds [default: 300]
    #[arg(long, value_name = "SECS")]
    timeout: Option<String>,
    /// When a node dies: end the run, let the others survive, or restart the node [default: end]
    #[arg(long, value_name = "POLICY")]
    on_death: Option<String>,
    /// Whether the nodes' caches are kept coherent: coherent, or incoherent, and the kernels write
    /// back and invalidate what they share [default: coherent]
    #[arg(long, value_name = "MODE")]
    coherence: Option<String>,
    /// Rounds of quiescence per second on each node [default: 30]
    #[arg(long, value_name = "N")]
    rounds: Option<String>,
    /// At the end, compare the frame table with all page tables and capability tables of both ISAs
    #[arg(long)]
    audit: bool,
    /// Leave the fast paths out of the kernels: every operation takes the slow path, to see what the
    /// fast ones save, or whether one is wrong
    #[arg(long)]
    slowpath: bool,
    /// Simulate: off, count (instructions), cache (caches and coherence too), timing (and what
    /// they take time) [default: off]
    #[arg(long, value_name = "LEVEL")]
    sim: Option<String>,
    /// Which memory is near: separated, shared, fully-shared [default: shared]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Where latencies and sizes come from: paper-big, paper-small, artifact, or a TOML file
    /// [default: paper-big]
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Change a number of the profile, such as l3.size=32MiB or arm.latency.remote=700; `--set
    /// help` lists all
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// In which order nodes run: parallel, or strict, in turns that follow from the seed, so that
    /// the run can be repeated exactly [default: parallel]
    #[arg(long, value_name = "ORDER")]
    order: Option<String>,
    /// Seed of the strict order [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<String>,
    /// Count between the markers that programs and kernels execute; needs --sim
    #[arg(long)]
    windows: bool,
    /// Keep which instructions windows, and the longest stretches with interrupts masked, consist of;
    /// needs --windows. Slow
    #[arg(long)]
    sites: bool,
    /// Write everything that is done to memory to node{n}.trace in the logs; needs --sim cache or
    /// timing. With --order strict the traces of all nodes can be put together
    #[arg(long)]
    memory_trace: bool,
    /// Directory of a memory file system for the pools [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    shm_dir: Option<String>,
    /// Take settings from a TOML file (keys are the names of these options); the command line wins
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Arguments of the program
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
    #[command(flatten)]
    test: TestArgs,
}

/// Options for tests of the launcher and of the kernels' own checks.
#[derive(Clone, Debug, Default, Args)]
struct TestArgs {
    #[arg(long, hide = true)]
    test_no_maxcpus: bool,
    #[arg(long, hide = true, value_name = "NODE=HEX")]
    test_layout_xor: Vec<String>,
    /// For tests: the call (FILE:LINE) that does without its flush
    #[arg(long, value_name = "FILE:LINE", hide = true)]
    test_seeded: Option<String>,
    #[arg(long, hide = true, value_name = "SIZE")]
    test_shm_limit: Option<String>,
    /// Run the program in the place of init, with all capabilities and without services
    #[arg(long)]
    bare: bool,
    /// Run this program beside the program, with the same arguments; how it ends does not matter
    #[arg(long, value_name = "NAME", conflicts_with = "bare")]
    beside: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    shape: ShapeArgs,
    /// Write what came out to this file
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Write what was simulated to this file, a row per node and region of interest
    #[arg(long, value_name = "FILE")]
    csv: Option<String>,
    /// Start the machines stopped and print how to attach debuggers; no time limit
    #[arg(long)]
    gdb: bool,
    /// Print the program's output and failures only
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Print everything
    #[arg(short, long)]
    verbose: bool,
}

impl ShapeArgs {
    /// What the command line says.
    fn settings(&self) -> Result<Settings, Error> {
        let args = (!self.args.is_empty()).then(|| self.args.join(" "));
        let mut settings = Settings {
            nodes: self.nodes.clone(),
            cpus: self.cpus.clone(),
            mem_local: self.mem_local.clone(),
            mem_cxl: self.mem_cxl.clone(),
            block_size: self.block_size.clone(),
            app: self.app.clone(),
            args,
            class: self.class.clone(),
            grant: self.grant.clone(),
            timeout: self.timeout.clone(),
            on_death: self.on_death.clone(),
            coherence: self.coherence.clone(),
            rounds: self.rounds.clone(),
            audit: self.audit.then_some(true),
            slowpath: self.slowpath.then_some(true),
            sim: self.sim.clone(),
            model: self.model.clone(),
            profile: self.profile.clone(),
            order: self.order.clone(),
            seed: self.seed.clone(),
            windows: self.windows.then_some(true),
            sites: self.sites.then_some(true),
            memory_trace: self.memory_trace.then_some(true),
            shm_dir: self.shm_dir.clone(),
            ..Settings::default()
        };
        settings.add_set(&self.set)?;
        Ok(settings)
    }

    /// Whether it was asked what can be set.
    pub(super) fn wants_keys(&self) -> bool {
        self.set.iter().any(|word| word == "help")
    }

    /// The settings of the command line, then `more`, then those of the configuration file.
    pub(super) fn gather(&self, more: Settings) -> Result<Settings, Error> {
        let settings = self.settings()?.or(more);
        match &self.config {
            Some(file) => Ok(settings.or(Settings::from_file(file)?)),
            None => Ok(settings),
        }
    }

    /// The run that settings describe.
    pub(super) fn finish(&self, settings: &Settings) -> Result<RunConfig, Error> {
        let mut config = settings.resolve()?;
        self.test.apply(&mut config)?;
        if !self.ktest.is_empty() {
            config.work = Work::Ktest(self.ktest.clone());
        }
        Ok(config)
    }

    /// Both.
    pub(super) fn resolve(&self, more: Settings) -> Result<(Settings, RunConfig), Error> {
        let settings = self.gather(more)?;
        let config = self.finish(&settings)?;
        Ok((settings, config))
    }
}

impl TestArgs {
    fn apply(&self, config: &mut RunConfig) -> Result<(), Error> {
        let t = &mut config.test;
        t.no_maxcpus = self.test_no_maxcpus;
        t.bare = self.bare;
        t.beside = self.beside.clone();
        if let Some(limit) = &self.test_shm_limit {
            t.shm_limit = Some(size::parse(limit).map_err(Error::Usage)?);
        }
        t.seeded = self.test_seeded.clone().unwrap_or_default();
        for word in &self.test_layout_xor {
            let pair = word.split_once('=').and_then(|(node, hex)| {
                let node = NodeId::new(node.parse().ok()?)?;
                let xor = u64::from_str_radix(hex.trim_start_matches("0x"), 16).ok()?;
                Some((node, xor))
            });
            t.layout_xor.push(pair.ok_or_else(|| {
                Error::Usage(format!("--test-layout-xor {word:?} is not NODE=HEX"))
            })?);
        }
        for isa in Isa::ALL {
            let upper = isa.name().to_uppercase();
            let path = |what| std::env::var_os(format!("DYAD_TEST_{what}_{upper}"));
            t.qemu[isa.index()] = path("QEMU").map(PathBuf::from);
            t.kernel[isa.index()] = path("KERNEL").map(PathBuf::from);
        }
        t.plugin = std::env::var_os("DYAD_TEST_PLUGIN").map(PathBuf::from);
        Ok(())
    }
}

pub(super) fn run(args: &RunArgs) -> Result<u8, Error> {
    if args.shape.wants_keys() {
        return super::sim::print_keys(args.shape.profile.as_deref());
    }
    if args.shape.app.as_deref() == Some(apps::HELP) {
        print!("{}", apps::help());
        return Ok(0);
    }
    let flag = |on: bool| on.then_some(true);
    let line = Settings {
        json: args.json.clone(),
        csv: args.csv.clone(),
        gdb: flag(args.gdb),
        quiet: flag(args.quiet).or(flag(args.verbose).map(|_| false)),
        verbose: flag(args.verbose).or(flag(args.quiet).map(|_| false)),
        ..Settings::default()
    };
    let (settings, config) = match args.shape.resolve(line) {
        Ok(resolved) => resolved,
        Err(e) => return unusable(args.json.as_deref(), e),
    };
    let json = settings.json.as_deref();
    check_files([json, settings.csv.as_deref()])?;
    let verbosity = match (settings.quiet, settings.verbose) {
        (Some(true), _) => Verbosity::Quiet,
        (_, Some(true)) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    };
    let needs = setup::Requirements::to_run(&config);
    if let Err(e) = setup::ensure(&needs, &mut super::say) {
        return unusable(json, e);
    }
    let mut display = Display::new(verbosity);
    let report = launch::run(&config, &mut display);
    display.summary(&report);
    if let Some(file) = json {
        write_json(file, &report.json())?;
    }
    if let Some(file) = &settings.csv {
        write_csv(file, &report)?;
    }
    Ok(report.exit_status())
}

/// Reports an error that came before there was a run, in JSON too.
fn unusable(json: Option<&str>, e: Error) -> Result<u8, Error> {
    if let Some(file) = json {
        write_json(file, &launch::unusable(&e))?;
    }
    Err(e)
}

fn write_csv(file: &str, report: &launch::RunReport) -> Result<(), Error> {
    let rows = std::iter::once(csv::header()).chain(csv::rows(report));
    let text: String = rows.map(|row| csv::line(&row)).collect();
    write_file(file, &text)
}

/// The name of a file that stands for standard output.
pub(super) const STDOUT: &str = "-";

/// Writes results as JSON to a file, or to standard output if it is [`STDOUT`].
pub(super) fn write_json(file: &str, value: &serde_json::Value) -> Result<(), Error> {
    let text = format!("{value:#}\n");
    match file {
        STDOUT => (std::io::stdout().lock().write_all(text.as_bytes()))
            .map_err(|e| Error::io("cannot write the results to standard output", e)),
        _ => write_file(file, &text),
    }
}

/// Makes the directory of a file if need be.
fn make_room(file: &str) -> Result<(), String> {
    let dir = Path::new(file).parent().unwrap_or(Path::new(""));
    std::fs::create_dir_all(dir).map_err(|e| format!("cannot create {}: {e}", dir.display()))
}

/// Writes a file, in a directory that is made if need be.
pub(super) fn write_file(file: &str, text: &str) -> Result<(), Error> {
    make_room(file).map_err(Error::Run)?;
    std::fs::write(file, text).map_err(|e| Error::io(format_args!("cannot write {file}"), e))
}

/// Checks that files can be written: for commands that will have worked for long when they come to
/// that.
///
/// # Errors
///
/// If one cannot be.
pub(super) fn check_files<const N: usize>(files: [Option<&str>; N]) -> Result<(), Error> {
    let named = |file: &&str| *file != STDOUT;
    files
        .into_iter()
        .flatten()
        .filter(named)
        .try_for_each(writable)
}

/// Whether a file could be written. What is in it stays.
fn writable(file: &str) -> Result<(), Error> {
    make_room(file).map_err(Error::Usage)?;
    let path = Path::new(file);
    let there = path.exists();
    // A pipe or a device would be told that something comes.
    if there && !path.is_file() && !path.is_dir() {
        return Ok(());
    }
    let opened = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path);
    opened.map_err(|e| Error::Usage(format!("cannot write {file}: {e}")))?;
    if !there {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}
