//! Settings: what the user wrote, on the command line and in files.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use dyad_abi::boot::{LOCAL_STRIDE, MAX_CXL, MAX_ROUNDS, OnDeath};
use dyad_abi::ident::MAX_CPUS;
use dyad_abi::service::Grant;
use dyad_abi::service::peer::{Kernels, RingPlace, Transport};
use dyad_sim_model::config::{Coherence, MemoryModel, Order};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde_json::{Map, Value};

use super::value::{self, BlockSize, Named, Nodes, OrderName, PoolSize, Sanitized, Whole};
use super::{DEFAULT_APP, RunConfig, Sim, Work, input};
use crate::error::Error;
use crate::sim::{Layer, Profile, profile};
use crate::{size, suggest};

const SYSTEM: &str = "System";
const PROGRAM: &str = "Program";
const KERNEL: &str = "Kernels";
const SIMULATION: &str = "Simulation";
/// Heading of the options that say where results go.
pub const OUTPUT: &str = "Output";

/// What describes a run: options of the command line, and keys of configuration files by the same names.
/// Options that were not given are `None`, false or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, serde::Serialize, serde::Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Settings {
    /// ISA of each node, 2 to 8 of them: x86_64, aarch64 [default: x86_64,aarch64]
    #[arg(long, value_name = "LIST", help_heading = SYSTEM)]
    pub nodes: Option<Nodes>,
    /// CPUs per node, 1 to 8 [default: 1]
    #[arg(long, value_name = "N", help_heading = SYSTEM)]
    pub cpus: Option<Whole<1, { MAX_CPUS as u64 }>>,
    /// Memory of each node's local pool [default: 256MiB]
    #[arg(long, value_name = "SIZE", help_heading = SYSTEM)]
    pub mem_local: Option<PoolSize<LOCAL_STRIDE>>,
    /// Memory of the CXL pool [default: 512MiB]
    #[arg(long, value_name = "SIZE", help_heading = SYSTEM)]
    pub mem_cxl: Option<PoolSize<MAX_CXL>>,
    /// Blocks in which nodes are given memory: a power of two from 32MiB to 4GiB [default: 32MiB]
    #[arg(long, value_name = "SIZE", help_heading = SYSTEM)]
    pub block_size: Option<BlockSize>,
    /// When a node dies: end the run, let the others survive, or restart the node [default: end]
    #[arg(long, value_name = "POLICY", help_heading = SYSTEM)]
    pub on_death: Option<Named<OnDeath>>,
    /// How the kernels work together: fused (shared state, shared memory), or multiple (the program is a process on
    /// each node, and the kernels' parts of it exchange messages) [default: fused]
    #[arg(long, value_name = "HOW", help_heading = SYSTEM)]
    pub kernels: Option<Named<Kernels>>,
    /// How the messages of --kernels multiple travel: ring (through memory, with doorbells), poll (through memory, looked for
    /// while nothing else runs), or tcp (as over a network) [default: ring]
    #[arg(long, value_name = "HOW", help_heading = SYSTEM)]
    pub transport: Option<Named<Transport>>,
    /// In whose memory the rings of these messages lie: in the pool of the node that reads them, or in the CXL pool
    /// [default: receiver]
    #[arg(long, value_name = "PLACE", help_heading = SYSTEM)]
    pub ring_place: Option<Named<RingPlace>>,
    /// Measure the parts of each page fault that needs another kernel, with --kernels multiple: each such fault is
    /// taken twice, to see what the trap alone takes
    #[arg(long, help_heading = SYSTEM)]
    pub fault_parts: bool,
    /// Whether the nodes' caches are kept coherent; if not, the kernels write back and invalidate what
    /// they share [default: coherent]
    #[arg(long, value_name = "MODE", help_heading = SYSTEM)]
    pub coherence: Option<Named<Coherence>>,
    /// End the run after this many seconds [default: 300]
    #[arg(long, value_name = "SECS", help_heading = SYSTEM)]
    pub timeout: Option<Whole<1, { 7 * 24 * 3600 }>>,
    /// Directory of a memory file system for the pools [default: /dev/shm]
    #[arg(long, value_name = "DIR", help_heading = SYSTEM)]
    #[serde(deserialize_with = "value::text")]
    pub shm_dir: Option<String>,

    /// A program's name, its directory, or a .bundle file; `help` lists the programs [default: hop]
    #[arg(long, value_name = "NAME", help_heading = PROGRAM)]
    #[serde(deserialize_with = "value::text")]
    pub app: Option<String>,
    /// Problem class, handed to the program as `--class C`
    #[arg(long, value_name = "C", help_heading = PROGRAM)]
    #[serde(deserialize_with = "value::text")]
    pub class: Option<String>,
    /// What the program is given beyond what every program gets: nothing, or all that init has, of a
    /// part of the memory [default: nothing]
    #[arg(long, value_name = "WHAT", help_heading = PROGRAM)]
    pub grant: Option<Named<Grant>>,
    /// Put a variable into the environment of the program; can be repeated
    #[arg(long, value_name = "NAME=VALUE", help_heading = PROGRAM)]
    #[serde(deserialize_with = "value::words")]
    pub env: Vec<String>,
    /// Give the program the content of FILE as its standard input, or with `-` that of this command,
    /// which is read to its end first; at most 1 MiB [default: empty]
    #[arg(long, value_name = "FILE", help_heading = PROGRAM)]
    #[serde(deserialize_with = "value::text")]
    pub stdin: Option<String>,
    /// Seed of the program's random numbers, which also sets its wall clock to a fixed time, so that both
    /// repeat [default: of this computer; in strict order those of --seed]
    #[arg(long, value_name = "N", help_heading = PROGRAM)]
    pub random_seed: Option<Whole<0, { u64::MAX }>>,
    /// Arguments of the program
    #[arg(last = true, value_name = "ARGS")]
    #[serde(deserialize_with = "value::words")]
    pub args: Vec<String>,

    /// Rounds of quiescence per second on each node [default: 30]
    #[arg(long, value_name = "N", help_heading = KERNEL)]
    pub rounds: Option<Whole<1, MAX_ROUNDS>>,
    /// At the end, compare the frame table with all page tables and capability tables of both ISAs
    #[arg(long, help_heading = KERNEL)]
    pub audit: bool,
    /// Leave the fast paths out of the kernels: every operation takes the slow path, to see what the
    /// fast ones save, or whether one is wrong
    #[arg(long, help_heading = KERNEL)]
    pub slowpath: bool,

    /// Simulate: off, count (instructions), cache (caches and coherence too), timing (and what
    /// they take time) [default: off]
    #[arg(long, value_name = "LEVEL", help_heading = SIMULATION)]
    pub sim: Option<Named<Sim>>,
    /// Which memory is near [default: shared]
    #[arg(long, value_name = "MODEL", help_heading = SIMULATION)]
    pub model: Option<Named<MemoryModel>>,
    /// Where latencies and sizes come from: paper-big, paper-small, artifact, or a TOML file
    /// [default: paper-big]
    #[arg(long, value_name = "NAME|FILE", help_heading = SIMULATION)]
    #[serde(deserialize_with = "value::text")]
    pub profile: Option<String>,
    /// Change a number of the profile, such as l3.size=32MiB or aarch64.latency.remote=700; `--set
    /// help` lists all
    #[arg(long, value_name = "KEY=VALUE", help_heading = SIMULATION)]
    #[serde(skip_serializing, deserialize_with = "numbers")]
    pub set: Vec<Number>,
    /// In which order nodes run: parallel, or strict, in turns that follow from the seed, so that
    /// the run can be repeated exactly [default: parallel]
    #[arg(long, value_name = "ORDER", help_heading = SIMULATION)]
    pub order: Option<Named<OrderName>>,
    /// Seed of the strict order [default: 0]
    #[arg(long, value_name = "N", help_heading = SIMULATION)]
    pub seed: Option<Whole<0, { u64::MAX }>>,
    /// Count between the markers that programs and kernels execute; needs --sim
    #[arg(long, help_heading = SIMULATION)]
    pub windows: bool,
    /// Keep which instructions windows, and the longest stretches with interrupts masked, consist of;
    /// needs --windows. Slow
    #[arg(long, help_heading = SIMULATION)]
    pub sites: bool,
    /// Whose accesses are looked at in runs without coherent caches, with --sim cache or timing: those of kernels, or
    /// those of programs, too, to memory that they keep coherent by themselves (slow) [default: kernel]
    #[arg(long, value_name = "WHO", help_heading = SIMULATION)]
    pub sanitize: Option<Named<Sanitized>>,
    /// Write everything that is done to memory to node0.trace and so on in the logs; needs --sim cache or
    /// timing. With --order strict the traces of all nodes can be put together
    #[arg(long, help_heading = SIMULATION)]
    pub memory_trace: bool,
}

/// What a run leaves behind and prints: options, and keys of configuration files by the same names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, serde::Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Output {
    /// Write what was simulated to this file, a row per node and region of interest
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub csv: Option<String>,
    /// Start the machines stopped and print how to attach debuggers; no time limit
    #[arg(long, help_heading = OUTPUT)]
    pub gdb: bool,
    /// Print the program's output and failures only
    #[arg(short, long, conflicts_with = "verbose", help_heading = OUTPUT)]
    pub quiet: bool,
    /// Print everything
    #[arg(short, long, help_heading = OUTPUT)]
    pub verbose: bool,
}

/// Where the result goes as JSON: an option of most commands, and a key of configuration files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, serde::Deserialize)]
#[serde(default)]
pub struct Json {
    /// Write the result to FILE as JSON; without FILE, or if it is -, to standard output, and
    /// everything for people to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", help_heading = OUTPUT)]
    pub json: Option<String>,
}

impl Output {
    /// This output, with that of `lower` where nothing was said.
    #[must_use]
    pub fn or(self, lower: Output) -> Output {
        // One of the two says how much is printed.
        let (quiet, verbose) = match self.quiet || self.verbose {
            true => (self.quiet, self.verbose),
            false => (lower.quiet, lower.verbose),
        };
        Output {
            csv: self.csv.or(lower.csv),
            gdb: self.gdb || lower.gdb,
            quiet,
            verbose,
        }
    }
}

/// A number of the simulation that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    /// Where it was set, for messages.
    pub source: String,
    /// Its key.
    pub key: String,
    /// Its value, as it was written.
    pub value: String,
}

impl Number {
    /// What is written in the place of a key to ask for all keys.
    pub const HELP: &str = "help";
}

impl FromStr for Number {
    type Err = String;

    fn from_str(word: &str) -> Result<Number, String> {
        let missing = || {
            "write KEY=VALUE, such as l3.size=32MiB; `cargo xtask sim keys` lists all keys"
                .to_string()
        };
        let (key, value) = match word {
            Number::HELP => (word, ""),
            _ => word.split_once('=').ok_or_else(missing)?,
        };
        Ok(Number {
            source: "--set".into(),
            key: key.trim().into(),
            value: value.trim().into(),
        })
    }
}

/// Reads the table `set` of a file.
fn numbers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Number>, D::Error> {
    let value = toml::Value::deserialize(from)?;
    let kind = value.type_str();
    let not_a_table = || D::Error::custom(format!("set must be a table of keys, not {kind}"));
    let table = value.as_table().ok_or_else(not_a_table)?;
    let entries = profile::flatten(table).map_err(D::Error::custom)?;
    let number = |(key, value)| Number {
        source: "set".into(),
        key,
        value,
    };
    Ok(entries.into_iter().map(number).collect())
}

/// What a configuration file can say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct File {
    /// What describes the run.
    #[command(flatten)]
    pub settings: Settings,
    /// What the run leaves behind.
    #[command(flatten)]
    pub output: Output,
    /// Where the result goes.
    #[command(flatten)]
    pub json: Json,
}

impl File {
    /// Reads a configuration file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is not TOML, or has a key or a value that is not known.
    pub fn read(path: &Path) -> Result<File, Error> {
        let text = std::fs::read_to_string(path).map_err(|e| {
            Error::Usage(format!(
                "cannot read the configuration file {}: {e}",
                path.display()
            ))
        })?;
        let mut file =
            File::from_toml(&text).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))?;
        for number in &mut file.settings.set {
            number.source = format!("{}: set", path.display());
        }
        Ok(file)
    }

    /// Reads the text of a configuration file.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub fn from_toml(text: &str) -> Result<File, String> {
        let table: toml::Table = text.parse().map_err(|e| format!("not valid TOML: {e}"))?;
        let keys = File::keys();
        let possible: Vec<&str> = keys.iter().map(String::as_str).collect();
        if let Some(key) = table.keys().find(|key| !possible.contains(&key.as_str())) {
            return Err(suggest::not_one_of("key", key, &possible));
        }
        // The same text, so that messages show the line: each part takes its own keys.
        let wrong = |e: toml::de::Error| e.to_string();
        let settings: Settings = toml::from_str(text).map_err(wrong)?;
        let output: Output = toml::from_str(text).map_err(wrong)?;
        let json: Json = toml::from_str(text).map_err(wrong)?;
        if output.quiet && output.verbose {
            return Err("quiet and verbose exclude each other: give one of them".into());
        }
        Ok(File {
            settings,
            output,
            json,
        })
    }

    /// Keys of a configuration file: the names of the options.
    pub fn keys() -> Vec<String> {
        let command = File::augment_args(clap::Command::new("file"));
        command.get_arguments().map(key).collect()
    }
}

/// The key of an option in files.
fn key(option: &clap::Arg) -> String {
    option.get_id().as_str().replace('_', "-")
}

/// Checks what several kernels cannot do.
fn check_kernels(c: &RunConfig) -> Result<(), String> {
    if c.kernels == Kernels::Fused {
        return Ok(());
    }
    let refused = if c.cpus != 1 {
        "has one CPU on each node: leave --cpus out"
    } else if c.grant != Grant::Nothing {
        "gives programs nothing beyond what every program gets: leave --grant out, or use --kernels fused"
    } else if c.on_death == OnDeath::Restart {
        "takes no node back that has died: leave --on-death out, give survive, or use --kernels fused"
    } else if !c.coherent {
        "has rings in coherent memory: leave --coherence out, or use --kernels fused"
    } else {
        return Ok(());
    };
    Err(format!("kernels multiple {refused}"))
}

impl Settings {
    /// These settings, with those of `lower` where nothing was said.
    #[must_use]
    pub fn or(self, lower: Settings) -> Settings {
        let set = lower.set.iter().chain(&self.set).cloned().collect();
        let mut all = lower.said();
        all.extend(self.said());
        Settings {
            set,
            ..Settings::of(all).expect("what was read can be read again")
        }
    }

    /// What was said, by key, but for numbers of the simulation.
    fn said(&self) -> Map<String, Value> {
        let Ok(Value::Object(mut all)) = serde_json::to_value(self) else {
            unreachable!("settings are words and switches");
        };
        let is_empty = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(list) => list.is_empty(),
            _ => false,
        };
        all.retain(|_, value| !is_empty(value));
        all
    }

    fn of(said: Map<String, Value>) -> Result<Settings, String> {
        serde_json::from_value(Value::Object(said)).map_err(|e| e.to_string())
    }

    /// Settings that can be given as `KEY=VALUE`: those that are a word.
    pub fn words() -> Vec<String> {
        let command = Settings::augment_args(clap::Command::new("settings"));
        let is_word = |option: &&clap::Arg| {
            option.get_action().takes_values() && option.get_id().as_str() != "set"
        };
        command.get_arguments().filter(is_word).map(key).collect()
    }

    /// These settings with another value of one of [`Settings::words`].
    ///
    /// # Errors
    ///
    /// A sentence that says what is possible.
    pub fn with(self, key: &str, word: &str) -> Result<Settings, String> {
        let one = Settings::of(Map::from_iter([(key.into(), word.into())]));
        Ok(one.map_err(|e| format!("{key}: {e}"))?.or(self))
    }

    /// Whether it was asked which numbers can be set.
    pub fn asks_for_keys(&self) -> bool {
        self.set.iter().any(|number| number.key == Number::HELP)
    }

    /// Checks what depends on several settings, and fills in defaults.
    ///
    /// # Errors
    ///
    /// A sentence that says which setting is wrong, what is possible and what was probably meant.
    pub fn resolve(&self) -> Result<RunConfig, Error> {
        self.checked().map_err(Error::Usage)
    }

    fn checked(&self) -> Result<RunConfig, String> {
        let mut c = RunConfig::default();
        if let Some(Nodes(isas)) = &self.nodes {
            c.nodes.clone_from(isas);
        }
        c.cpus = self.cpus.map_or(c.cpus, |n| n.0 as usize);
        c.mem_local = self.mem_local.map_or(c.mem_local, |size| size.0);
        c.mem_cxl = self.mem_cxl.map_or(c.mem_cxl, |size| size.0);
        c.block_size = self.block_size.map_or(c.block_size, |size| size.0);
        if c.block_size > c.mem_local.max(c.mem_cxl) {
            return Err(format!(
                "block-size is {}; no pool is that large: mem-local is {}, mem-cxl is {}",
                size::show(c.block_size),
                size::show(c.mem_local),
                size::show(c.mem_cxl)
            ));
        }
        c.grant = self.grant.map_or(c.grant, |grant| grant.0);
        c.kernels = self.kernels.map_or(c.kernels, |kernels| kernels.0);
        c.transport = self.transport.map_or(c.transport, |transport| transport.0);
        c.ring_place = self.ring_place.map_or(c.ring_place, |place| place.0);
        c.fault_parts = self.fault_parts;
        if c.kernels == Kernels::Fused {
            let given = [
                ("transport", self.transport.is_some()),
                ("ring-place", self.ring_place.is_some()),
                ("fault-parts", c.fault_parts),
            ];
            if let Some((what, _)) = given.iter().find(|(_, given)| *given) {
                return Err(format!(
                    "{what} is for messages, which fused kernels do not exchange: leave it out, or use --kernels multiple"
                ));
            }
        }
        c.on_death = self.on_death.map_or(c.on_death, |policy| policy.0);
        c.coherent = self.coherence != Some(Named(Coherence::Incoherent));
        c.rounds = self.rounds.map_or(c.rounds, |n| n.0);
        c.audit = self.audit;
        c.fastpaths = !self.slowpath;
        c.sim = self.sim.map_or(c.sim, |sim| sim.0);
        check_kernels(&c)?;
        self.check_simulation(&mut c)?;
        if let Some(Whole(seconds)) = self.timeout {
            c.timeout = Some(Duration::from_secs(seconds));
        }
        if let Some(dir) = &self.shm_dir {
            c.shm_dir = dir.into();
        }
        let class = self.class.iter().flat_map(|class| ["--class", class]);
        let args: Vec<&str> = class.chain(self.args.iter().map(String::as_str)).collect();
        let args = args.join(" ");
        if args.chars().any(char::is_control) {
            return Err(
                "the program's arguments must be one line without control characters".into(),
            );
        }
        for variable in &self.env {
            let name = variable.split_once('=').map(|(name, _)| name);
            if name.is_none_or(str::is_empty) || variable.chars().any(char::is_control) {
                return Err(format!(
                    "--env cannot be {variable:?}: write NAME=VALUE, without control characters"
                ));
            }
        }
        let taken = args.len() + self.env.iter().map(|v| v.len() + 1).sum::<usize>();
        if taken > dyad_abi::service::MAX_ARGS {
            return Err(format!(
                "arguments and environment have {taken} bytes, and there is room for {}",
                dyad_abi::service::MAX_ARGS
            ));
        }
        c.env.clone_from(&self.env);
        if let Some(file) = &self.stdin {
            c.input = input::read(file)?;
        }
        c.random_seed = match c.setup.order {
            Order::Strict { seed } => Some(self.random_seed.map_or(seed, |seed| seed.0)),
            Order::Parallel => self.random_seed.map(|seed| seed.0),
        };
        c.work = Work::App {
            app: self.app.clone().unwrap_or_else(|| DEFAULT_APP.into()),
            args,
        };
        // What is wrong with the simulation should be known before anything is built.
        c.simulation().map_err(|e| e.to_string())?;
        Ok(c)
    }

    fn check_simulation(&self, c: &mut RunConfig) -> Result<(), String> {
        let given = [
            ("model", self.model.is_some(), "cache"),
            ("profile", self.profile.is_some(), "count"),
            ("set", !self.set.is_empty(), "cache"),
            ("order", self.order.is_some(), "count"),
            ("seed", self.seed.is_some(), "count"),
        ];
        for (key, given, least) in given {
            let wanted = match (c.sim, least) {
                (Sim::Off, "count") => "count, cache or timing",
                (Sim::Off, _) => "cache or timing",
                // Numbers say themselves at which level they matter.
                (Sim::Count, "cache") if key == "model" => "cache or timing",
                _ => continue,
            };
            if given {
                return Err(format!(
                    "{key} is about the simulation, and nothing that it says is simulated with \
                     sim {}: add --sim {wanted}",
                    c.sim.name()
                ));
            }
        }
        c.setup.model = self.model.map_or(c.setup.model, |model| model.0);
        if let Some(name) = &self.profile {
            c.setup.profile = Profile::load(name)?;
        }
        c.setup.set = layers(&self.set);
        c.setup.order = match (self.order.map(|order| order.0), self.seed) {
            (Some(OrderName::Strict), seed) => Order::Strict {
                seed: seed.map_or(0, |seed| seed.0),
            },
            (_, None) => Order::Parallel,
            (_, Some(_)) => {
                return Err("a seed has a meaning in strict order only: add --order strict".into());
            }
        };
        c.windows = self.windows;
        if c.windows && c.sim == Sim::Off {
            return Err("windows are observed by the simulator plugin: add --sim count".into());
        }
        c.sites = self.sites;
        if c.sites && !c.windows {
            return Err("sites are those of windows: add --windows".into());
        }
        c.sanitize_users = self.sanitize.map(|s| s.0) == Some(Sanitized::User);
        if c.sanitize_users && !c.is_sanitized() {
            return Err(
                "programs are looked at where caches are not coherent, by the levels that see accesses: add \
                        --coherence incoherent and --sim cache or timing"
                    .into(),
            );
        }
        c.memory_trace = self.memory_trace;
        if c.memory_trace && !matches!(c.sim, Sim::Cache | Sim::Timing) {
            return Err(
                "accesses to memory are traced by the levels that see them: add --sim \
                        cache or timing"
                    .into(),
            );
        }
        if c.sim != Sim::Off && c.cpus > 1 && c.setup.order != Order::Parallel {
            return Err(
                "strict order is for nodes with one CPU, since CPUs of one machine take no turns: leave --cpus \
                        out, or take --order parallel"
                    .into(),
            );
        }
        if c.memory_trace && c.cpus > 1 {
            return Err("memory-trace is for nodes with one CPU: leave --cpus out".into());
        }
        Ok(())
    }
}

/// Numbers by where they were set: within one source, none may be set twice.
fn layers(set: &[Number]) -> Vec<Layer> {
    let of = |numbers: &[Number]| Layer {
        source: numbers[0].source.clone(),
        strict: true,
        entries: (numbers.iter())
            .map(|n| (n.key.clone(), n.value.clone()))
            .collect(),
    };
    let sources = set.chunk_by(|a, b| a.source == b.source);
    sources.map(of).collect()
}

#[cfg(test)]
mod tests;
