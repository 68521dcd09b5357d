//! What it costs to change the ISA: the figures of earlier systems, and their goals.
//!
//! ```text
//! program, its operations one after the other, from one home
//!    │ count, windows ─▶ instructions of both CPUs ─┐
//!    │ timing         ─▶ simulated nanoseconds     ─┼─▶ rows ─▶ curves, goals ─▶ report
//!    └ no simulation  ─▶ nanoseconds of the host   ─┘
//! ```
//!
//! Programs report counters `migration.ISA.OP.WHAT`; what they are is in the program `bench`. Windows
//! are told apart by the slot that a program says it has used.

mod collect;
mod cost;
mod curves;
mod goals;
mod report;
mod rows;
mod searches;

pub use collect::{Figures, Measure, Ran, Sides};
pub use curves::{Chase, Line};
pub use goals::{Goal, goals};
pub use report::MigrationReport;
pub use rows::{EXPECTED, Key, Phase, Row, rows};
pub use searches::{Searched, Searches};

use std::path::PathBuf;

use dyad_abi::Isa;
use dyad_abi::boot::DEFAULT_BLOCK;

use crate::bench::BENCH_APP;
use dyad_launcher::config::{RunConfig, Sim, Work};
use dyad_launcher::error::Error;
use dyad_launcher::launch::Sink;
use dyad_launcher::sim::{Layer, Setup};
use dyad_launcher::size;

/// The program that is given blocks of memory.
pub const BLOCKS_APP: &str = "blocks";

/// What is measured in runs of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Small operations.
    Micro,
    /// Following a list.
    Chase,
    /// Searching a graph.
    Bfs,
    /// Wake-ups.
    Futex,
    /// A plain thread, below frames.
    Threads,
    /// Programs that could migrate, and do not.
    Cost,
    /// A plain thread, stopped anywhere and interpreted up to its next point.
    Emulation,
    /// One interpreted instruction.
    Interpreting,
    /// Blocks of memory, emptied and put to use.
    Blocks,
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 9] = [
        Group::Micro,
        Group::Threads,
        Group::Emulation,
        Group::Interpreting,
        Group::Futex,
        Group::Blocks,
        Group::Chase,
        Group::Bfs,
        Group::Cost,
    ];

    /// Its name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Micro => "micro",
            Group::Chase => "chase",
            Group::Bfs => "bfs",
            Group::Futex => "futex",
            Group::Threads => "threads",
            Group::Cost => "cost",
            Group::Emulation => "emulation",
            Group::Interpreting => "interpreting",
            Group::Blocks => "blocks",
        }
    }

    /// The program and its arguments, without the home, if there is one program for all of it.
    fn program(self, quick: bool) -> Option<(&'static str, String)> {
        let more = match (self, quick) {
            (Group::Micro | Group::Futex | Group::Threads, false) => "--times 256".into(),
            (Group::Micro | Group::Futex | Group::Threads, true) => "--times 64".into(),
            (Group::Emulation, false) => "--times 64".into(),
            (Group::Emulation, true) => "--times 16".into(),
            (Group::Interpreting, _) => {
                let what = "--what emulation --loop mixed --turns 20000 --times 8";
                return Some((BENCH_APP, what.into()));
            }
            (Group::Blocks, _) => return Some((BLOCKS_APP, String::new())),
            (Group::Chase, false) => String::new(),
            (Group::Chase, true) => "--accesses 4,32,128,512,1024".into(),
            (Group::Cost, _) => return None,
            (Group::Bfs, false) => format!("--scale {}", self.scale(quick)),
            (Group::Bfs, true) => format!("--scale {} --factors 4,19", self.scale(quick)),
        };
        Some((BENCH_APP, format!("--what {} {more}", self.name())))
    }

    /// Sizes of blocks, each of which has runs of its own.
    const fn block_sizes(self, quick: bool) -> &'static [u64] {
        const SIZES: [u64; 5] = [32 << 20, 64 << 20, 128 << 20, 256 << 20, 512 << 20];
        match (self, quick) {
            (Group::Blocks, false) => &SIZES,
            (Group::Blocks, true) => SIZES.split_at(3).0,
            _ => &[DEFAULT_BLOCK],
        }
    }

    /// Logarithm of the number of vertices of the graph.
    const fn scale(self, quick: bool) -> u32 {
        match quick {
            true => 12,
            false => 14,
        }
    }

    /// What differs from the profile. A thread that goes to and fro is where the two machines wait for each
    /// other all the time: they look at each other's clocks more often, since one that waits may be ahead
    /// by the lag and a quantum when the thread arrives, by which twenty frames cannot be told from
    /// ten. A graph is to be larger than the caches, as in the measurement that is repeated (there
    /// the side that is far from it caches nothing of it at all), and small enough to be searched by a
    /// simulated machine: so the second and the last level are smaller, by as much as the graph is smaller than one
    /// of scale 18. There 4 MiB are a quarter of the records of vertices, and so they are here.
    fn set(self, quick: bool) -> Vec<(String, String)> {
        let clocks = [
            ("clock.quantum", "50ns".into()),
            ("clock.lag", "50ns".into()),
        ];
        let mut keys = Vec::new();
        match self {
            Group::Threads => keys.extend(clocks),
            Group::Bfs => {
                // No smaller than the first level.
                let bytes = |n: u64| (n << self.scale(quick)).max(32 << 10).to_string();
                keys.extend([("l2.size", bytes(4)), ("l3.size", bytes(16))]);
            }
            _ => {}
        }
        let keys = keys.into_iter();
        keys.map(|(key, value)| (key.into(), value)).collect()
    }
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Less of everything.
    pub quick: bool,
    /// What.
    pub groups: Vec<Group>,
    /// From where.
    pub homes: Vec<Isa>,
}

/// Measures, from every home and at every level, one run after the other.
///
/// # Errors
///
/// If a run could not be made, or was interrupted before there was anything to report. Runs that fail
/// otherwise are in the report, and so is that it was interrupted later.
pub fn migration(
    options: &Options,
    say: &mut dyn FnMut(&str),
    sink: &mut dyn Sink,
) -> Result<MigrationReport, Error> {
    let mut all = Measured::default();
    let interrupted = match all.measure(options, say, sink) {
        Err(Error::Interrupted) if !all.logs.is_empty() => true,
        done => done.map(|()| false)?,
    };
    if interrupted {
        all.failures.push(Error::Interrupted.to_string());
    }
    let Measured {
        figures,
        failures,
        logs,
    } = all;
    Ok(MigrationReport::new(
        figures,
        failures,
        logs,
        options,
        interrupted,
    ))
}

/// What there is so far.
#[derive(Default)]
struct Measured {
    figures: Figures,
    failures: Vec<String>,
    logs: Vec<PathBuf>,
}

impl Measured {
    fn measure(
        &mut self,
        options: &Options,
        say: &mut dyn FnMut(&str),
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        for &group in &options.groups {
            for &home in &options.homes {
                if group.program(options.quick).is_none() {
                    say(&format!("measuring what migration costs on {home}"));
                    cost::measure(options, home, self, sink)?;
                }
                let sizes = group.block_sizes(options.quick).iter();
                for (measure, &block) in sizes.flat_map(|b| Measure::ALL.map(|m| (m, b))) {
                    let Some(config) = config(group, home, measure, options.quick, block) else {
                        continue;
                    };
                    let mut what = format!("{} from {home}: {}", group.name(), measure.name());
                    if group == Group::Blocks {
                        what += &format!(", blocks of {}", size::show(block));
                    }
                    say(&format!("measuring {what}"));
                    let report = super::made(&config, sink)?;
                    self.logs.push(report.dir.clone());
                    if let Err(why) = self.figures.take(measure, &report) {
                        self.failures.push(format!("{what}: {why}"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The run that measures a group from a home; none for what has runs of its own.
pub(super) fn config(
    group: Group,
    home: Isa,
    measure: Measure,
    quick: bool,
    block_size: u64,
) -> Option<RunConfig> {
    let (app, args) = group.program(quick)?;
    let sim = measure.sim();
    let mut setup = Setup::default();
    let entries = group.set(quick);
    if sim == Sim::Timing && !entries.is_empty() {
        setup.set.push(Layer {
            source: "the benchmark".into(),
            strict: true,
            entries,
        });
    }
    let mut config = RunConfig {
        work: Work::App {
            app: app.into(),
            args: format!("{args} --home {home}"),
        },
        sim,
        windows: measure == Measure::Instructions,
        setup,
        ..RunConfig::default()
    };
    if group == Group::Blocks {
        // One whole block in each pool, and what nodes begin with is nearly as large. It is the first
        // node that empties them.
        config.nodes = vec![home, home.other()];
        (config.mem_local, config.mem_cxl) = (2 * block_size, 2 * block_size);
        config.block_size = block_size;
    }
    Some(config)
}
