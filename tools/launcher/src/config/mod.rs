//! What a run is: the settings of the command line and of a configuration file, checked.
//!
//! Each option is declared once, as a field of [`Settings`] or [`Output`]: clap reads it from the command
//! line, serde from files, by the same name and with the same type. [`Settings::or`] lets one source take
//! precedence over another, and [`Settings::resolve`] checks what depends on several settings and gives a
//! [`RunConfig`].

mod input;
mod settings;
mod test;
mod value;

use std::path::{Path, PathBuf};
use std::time::Duration;

use dyad_abi::Isa;
use dyad_abi::boot::{DEFAULT_BLOCK, DEFAULT_ROUNDS, OnDeath};
use dyad_abi::service::Grant;
use dyad_abi::service::peer::{Delay, Kernels, RingPlace, Transport};
use dyad_sim_model::config::{Level, SimConfig};

use crate::error::Error;
use crate::sim::{Setup, System};

pub use settings::{File, Json, Number, OUTPUT, Output, Settings};
pub use test::TestOptions;
pub use value::{BlockSize, Bytes, Named, Names, Nodes, OrderName, PoolSize, Sanitized, Whole};

/// The program that `run` runs unless told otherwise.
pub const DEFAULT_APP: &str = "hop";
/// Bound on a run, in seconds, unless told otherwise.
pub const DEFAULT_TIMEOUT: u64 = 300;

/// How much the plugin simulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sim {
    /// Nothing; there is no plugin.
    Off,
    /// Executed instructions.
    Count,
    /// Caches and coherence as well; time is still instructions.
    Cache,
    /// Latencies take time.
    Timing,
}

impl Sim {
    /// All choices.
    pub const ALL: [Sim; 4] = [Sim::Off, Sim::Count, Sim::Cache, Sim::Timing];

    /// Name on command lines.
    pub const fn name(self) -> &'static str {
        match self.level() {
            None => "off",
            Some(level) => level.name(),
        }
    }

    /// The plugin's level, if there is a plugin.
    pub const fn level(self) -> Option<Level> {
        match self {
            Sim::Off => None,
            Sim::Count => Some(Level::Count),
            Sim::Cache => Some(Level::Cache),
            Sim::Timing => Some(Level::Timing),
        }
    }
}

/// What the machines do once they are up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Run a program: the name of one in `userland/apps` or `tests/programs`, its directory, or a `.bundle` file.
    App {
        /// As the user named it.
        app: String,
        /// Its arguments, one line.
        args: String,
    },
    /// Run in-kernel tests, in this order.
    Ktest(Vec<String>),
}

/// A checked description of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunConfig {
    /// ISA of each node.
    pub nodes: Vec<Isa>,
    /// CPUs per node.
    pub cpus: usize,
    /// Bytes of each local pool.
    pub mem_local: u64,
    /// Bytes of the CXL pool.
    pub mem_cxl: u64,
    /// Bytes of the blocks in which memory is handed out to nodes.
    pub block_size: u64,
    /// What to run.
    pub work: Work,
    /// The environment of the program: `NAME=VALUE` texts.
    pub env: Vec<String>,
    /// Standard input of the program, at most `MAX_INPUT` bytes.
    pub input: Vec<u8>,
    /// Seed of the program's random numbers, with a wall clock that begins at a fixed time; `None`: both are
    /// of this computer.
    pub random_seed: Option<u64>,
    /// What the program is given beyond what every program gets.
    pub grant: Grant,
    /// How the kernels work together.
    pub kernels: Kernels,
    /// How messages between kernels travel.
    pub transport: Transport,
    /// Where the rings of these messages lie.
    pub ring_place: RingPlace,
    /// Whether the parts of a fault that needs another kernel are measured.
    pub fault_parts: bool,
    /// Bound on the run; none under a debugger.
    pub timeout: Option<Duration>,
    /// What happens when a node dies.
    pub on_death: OnDeath,
    /// Whether the nodes keep their caches coherent; if not, the kernels write back and invalidate.
    pub coherent: bool,
    /// Rounds of quiescence that each node aims at per second.
    pub rounds: u64,
    /// Whether all tables are compared with each other at the end.
    pub audit: bool,
    /// Whether the kernels have fast paths.
    pub fastpaths: bool,
    /// Start the machines stopped, with debugger stubs.
    pub gdb: bool,
    /// How much is simulated.
    pub sim: Sim,
    /// What is simulated.
    pub setup: Setup,
    /// Whether the plugin observes windows of measurement.
    pub windows: bool,
    /// Whether the sanitizer looks at programs, too.
    pub sanitize_users: bool,
    /// Whether everything that is done to memory is written to `node{n}.trace`.
    pub memory_trace: bool,
    /// Whether it is kept which instructions are executed in windows.
    pub sites: bool,
    /// Directory (of a memory file system) that holds the pools.
    pub shm_dir: PathBuf,
    /// Test options.
    pub test: TestOptions,
}

impl Default for RunConfig {
    fn default() -> RunConfig {
        let system = System::default();
        RunConfig {
            nodes: system.nodes,
            cpus: system.cpus,
            mem_local: system.mem_local,
            mem_cxl: system.mem_cxl,
            block_size: DEFAULT_BLOCK,
            work: Work::App {
                app: DEFAULT_APP.into(),
                args: String::new(),
            },
            env: Vec::new(),
            input: Vec::new(),
            random_seed: None,
            grant: Grant::Nothing,
            kernels: Kernels::Fused,
            transport: Transport::Ring,
            ring_place: RingPlace::Receiver,
            fault_parts: false,
            timeout: Some(Duration::from_secs(DEFAULT_TIMEOUT)),
            on_death: OnDeath::End,
            coherent: system.coherent,
            rounds: DEFAULT_ROUNDS,
            audit: false,
            fastpaths: true,
            gdb: false,
            sim: Sim::Off,
            setup: Setup::default(),
            windows: false,
            sanitize_users: false,
            memory_trace: false,
            sites: false,
            shm_dir: PathBuf::from("/dev/shm"),
            test: TestOptions::default(),
        }
    }
}

impl RunConfig {
    /// What the run is called in reports.
    pub fn work_name(&self) -> &str {
        match &self.work {
            Work::App { app, .. } => Path::new(app)
                .file_stem()
                .and_then(|s| s.to_str())
                .unwrap_or(app),
            Work::Ktest(_) => "ktest",
        }
    }

    /// Whether the simulator looks for what kernels forget to flush.
    pub const fn is_sanitized(&self) -> bool {
        !self.coherent && matches!(self.sim, Sim::Cache | Sim::Timing)
    }

    /// The machines, as far as simulations depend on them.
    pub fn system(&self) -> System {
        System {
            nodes: self.nodes.clone(),
            cpus: self.cpus,
            mem_local: self.mem_local,
            mem_cxl: self.mem_cxl,
            coherent: self.coherent,
        }
    }

    /// The complete configuration of the simulation, if there is one.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what is possible.
    pub fn simulation(&self) -> Result<Option<SimConfig>, Error> {
        let system = self.system();
        let resolve = |level| (self.setup.resolve(level, &system)).map_err(Error::Usage);
        self.sim.level().map(resolve).transpose()
    }

    /// How long a message over a network is in transit: as the simulation says, if there is one.
    ///
    /// # Errors
    ///
    /// Those of [`simulation`](RunConfig::simulation).
    pub fn delay(&self) -> Result<Delay, Error> {
        let ns = |ns: u64| u32::try_from(ns).unwrap_or(u32::MAX);
        Ok(match self.simulation()? {
            None => Delay::TCP,
            Some(sim) => Delay {
                message_ns: ns(sim.message_ns / 2),
                kib_ns: ns(sim.message_kib_ns),
            },
        })
    }

    /// Bytes of all pools together.
    pub fn pool_bytes(&self) -> u64 {
        self.mem_local * self.nodes.len() as u64 + self.mem_cxl
    }
}
