//! Speed of the simulator: how much slower a machine becomes by each level of simulation, and how
//! that compares with QEMU's own cache model.
//!
//! ```text
//!            round 1                      round 2
//! plain count cache timing cache.c  ─▶ plain count cache ...  ─▶ ratios within each round
//! ```
//!
//! Each run boots a pair and repeats all loads of the program [`PROGRAM`] on one node and then on
//! the other, which is idle meanwhile. Time is CPU time of the thread that is the node's virtual
//! CPU (`watch`), so it does not matter what else the computer does, apart from caches and clock
//! rates; those drift, and that is why levels alternate and ratios are made within a round.

mod report;
mod watch;

pub use report::{Goal, SimReport, SimRow};
pub use watch::{Region, Watch};

use std::collections::BTreeMap;
use std::time::Duration;

use dyad_abi::Isa;
use dyad_abi::marker::WindowId;

use crate::qemu_plugins::QemuPlugins;
use dyad_launcher::config::{RunConfig, Sim, Work};
use dyad_launcher::error::Error;
use dyad_launcher::launch::{self, RunReport, Sink};
use dyad_launcher::machine::quoted;

/// The program that is measured.
pub const PROGRAM: &str = "sim-loads";

/// The window around the measured passes of an element of the program's list of loads.
pub const fn region(place: usize) -> u16 {
    WindowId::FREE + place as u16
}

/// What a machine runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    Plain,
    /// Our plugin, counting.
    Count,
    /// With caches and coherence.
    Cache,
    /// With simulated time.
    Timing,
    /// QEMU's cache model, first level.
    ContribL1,
    /// With a second level.
    ContribL2,
}

impl Level {
    /// All levels, in the order in which they are measured.
    pub const ALL: [Level; 6] = [
        Level::Plain,
        Level::Count,
        Level::Cache,
        Level::Timing,
        Level::ContribL1,
        Level::ContribL2,
    ];

    /// Name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Plain => "plain",
            Level::Count => "count",
            Level::Cache => "cache",
            Level::Timing => "timing",
            Level::ContribL1 => "contrib_l1",
            Level::ContribL2 => "contrib_l2",
        }
    }

    /// What it is called in tables.
    pub const fn title(self) -> &'static str {
        match self {
            Level::ContribL1 => "cache.c",
            Level::ContribL2 => "cache.c l2=on",
            _ => self.name(),
        }
    }

    /// By how much the number of passes is divided, so that all levels take about the same time.
    const fn divisor(self) -> u32 {
        match self {
            Level::Plain | Level::Count => 1,
            Level::Cache | Level::Timing => 3,
            Level::ContribL1 | Level::ContribL2 => 24,
        }
    }

    fn configure(self, config: &mut RunConfig, plugins: &QemuPlugins) {
        let (sim, options) = match self {
            Level::Plain => (Sim::Off, None),
            Level::Count => (Sim::Count, None),
            Level::Cache => (Sim::Cache, None),
            Level::Timing => (Sim::Timing, None),
            Level::ContribL1 => (Sim::Off, Some("")),
            Level::ContribL2 => (Sim::Off, Some(",l2=on")),
        };
        config.sim = sim;
        let plugin = |options| format!("{}{options}", quoted(&plugins.cache));
        config.test.plugins = options.map(plugin).into_iter().collect();
    }
}

/// Loads that are measured, and their passes on a plain machine: about a second each.
const MEASURED: [(&str, u32); 6] = [
    ("matmul", 360),
    ("sort", 192),
    ("chase", 144),
    ("random", 96),
    ("is", 264),
    ("cg", 3),
];

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds.
    pub repeat: u32,
    /// Fewer passes: good enough to see that everything works.
    pub quick: bool,
}

impl Options {
    /// Loads with their passes at a level, as the program takes them.
    fn plan(self, level: Level) -> Vec<(&'static str, u32)> {
        let divisor = level.divisor() * if self.quick { 6 } else { 1 };
        let passes = |n: u32| (n / divisor).max(1);
        MEASURED.iter().map(|&(l, n)| (l, passes(n))).collect()
    }
}

/// A measurement: CPU time of a pass.
type Times = BTreeMap<(Isa, &'static str, Level), Vec<f64>>;

/// Measures everything. `say` gets what people who wait should see. If the user interrupts it, the report
/// is of the rounds that are complete.
///
/// # Errors
///
/// If a run fails or says nothing about a load, or the user interrupts the first round.
pub fn sim(
    options: Options,
    levels: &[Level],
    plugins: &QemuPlugins,
    say: &mut dyn FnMut(&str),
    sink: &mut dyn Sink,
) -> Result<SimReport, Error> {
    let mut times = Times::new();
    let mut instructions = BTreeMap::new();
    let mut complete = 0;
    for round in 1..=options.repeat {
        let mut measure = |level: Level| {
            let title = level.title();
            say(&format!("round {round} of {}: {title}", options.repeat));
            let plan = options.plan(level);
            let (report, regions) = run(level, &plan, plugins, sink)?;
            for isa in Isa::ALL {
                for (place, &(load, passes)) in plan.iter().enumerate() {
                    let seconds = watch::seconds(&regions, isa, load).ok_or_else(|| {
                        Error::Run(format!(
                            "the run with {title} does not say when {load} was measured on {isa}; \
                             logs in {}",
                            report.dir.display()
                        ))
                    })?;
                    let list = times.entry((isa, load, level)).or_default();
                    list.push(seconds / f64::from(passes));
                    // Those levels that report regions.
                    if let Some(n) = instructions_of(&report, isa, place) {
                        instructions.insert((isa, load), n as f64 / f64::from(passes));
                    }
                }
            }
            Ok(())
        };
        match levels.iter().try_for_each(|&level| measure(level)) {
            Ok(()) => complete = round,
            Err(Error::Interrupted) if complete > 0 => {
                say(&format!(
                    "interrupted: these are the first {complete} rounds"
                ));
                break;
            }
            Err(e) => return Err(e),
        }
    }
    // Ratios are made within a round.
    times
        .values_mut()
        .for_each(|list| list.truncate(complete as usize));
    let options = Options {
        repeat: complete,
        ..options
    };
    Ok(SimReport::new(
        options,
        plugins,
        levels,
        &times,
        &instructions,
    ))
}

/// One run at a level, and its regions.
fn run(
    level: Level,
    plan: &[(&str, u32)],
    plugins: &QemuPlugins,
    sink: &mut dyn Sink,
) -> Result<(RunReport, Vec<Region>), Error> {
    let loads: Vec<String> = plan.iter().map(|(l, n)| format!("{l}:{n}")).collect();
    let homes = Isa::ALL.map(Isa::name).join(",");
    let mut config = RunConfig {
        work: Work::App {
            app: PROGRAM.into(),
            args: format!("--load {} --home {homes}", loads.join(",")),
        },
        timeout: Some(Duration::from_secs(1800)),
        ..RunConfig::default()
    };
    level.configure(&mut config, plugins);
    let mut watch = Watch::new(sink);
    let report = launch::run(&config, &mut watch);
    let regions = watch.regions();
    match report.failure() {
        None => Ok((report, regions)),
        Some(_) if report.error == Some(Error::Interrupted) => Err(Error::Interrupted),
        Some(why) => {
            let dir = report.dir.display();
            Err(Error::Run(format!(
                "{}: {why}; logs in {dir}",
                level.title()
            )))
        }
    }
}

/// Instructions in the region at a place of the list, if our plugin has counted them.
fn instructions_of(report: &RunReport, isa: Isa, place: usize) -> Option<u64> {
    let node = report.nodes.iter().find(|n| n.isa == isa.name())?;
    let roi = &node.sim.as_ref()?["roi"][region(place).to_string()];
    roi["counters"]["instructions"].as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_levels_have_fewer_passes_but_all_have_some() {
        for quick in [false, true] {
            let options = Options { repeat: 1, quick };
            let plain = options.plan(Level::Plain);
            for level in Level::ALL {
                for ((load, passes), (_, most)) in options.plan(level).iter().zip(&plain) {
                    assert!((1..=*most).contains(passes), "{load}");
                }
            }
        }
    }

    #[test]
    fn foreign_plugins_take_the_place_of_ours() {
        let plugins = QemuPlugins {
            cache: "/a,b.so".into(),
            insn: "/i.so".into(),
            bb: "/b.so".into(),
            origin: String::new(),
        };
        let mut config = RunConfig::default();
        Level::ContribL2.configure(&mut config, &plugins);
        assert_eq!(config.sim, Sim::Off);
        assert_eq!(config.test.plugins, ["/a,,b.so,l2=on"]);
        Level::Timing.configure(&mut config, &plugins);
        assert_eq!(config.sim, Sim::Timing);
        assert!(config.test.plugins.is_empty());
    }
}
