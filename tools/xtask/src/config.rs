//! What a run is: the settings of the command line and of a configuration file, checked.
//!
//! Both sources fill a [`Settings`] with the words the user wrote; [`Settings::or`] lets one
//! source take precedence over another, and [`Settings::resolve`] checks the words and turns them
//! into a [`RunConfig`]. So an error about a value is the same wherever the value came from.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dyad_abi::boot::{
    DEFAULT_ROUNDS, LOCAL_STRIDE, MAX_CXL, MAX_ROUNDS, MIN_POOL, OnDeath, POOL_GRANULE,
};
use dyad_abi::ident::{MAX_CPUS, MAX_NODES};
use dyad_abi::service::Grant;
use dyad_abi::{Isa, NodeId};

use crate::error::Error;
use crate::{size, suggest};

/// The program that `run` runs unless told otherwise.
pub const DEFAULT_APP: &str = "hop";
/// Bound on a run, in seconds, unless told otherwise.
pub const DEFAULT_TIMEOUT: u64 = 300;

/// Which plugin observes the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sim {
    /// None.
    Off,
    /// Counts executed instructions.
    Count,
}

impl Sim {
    /// All choices.
    pub const ALL: [Sim; 2] = [Sim::Off, Sim::Count];

    /// Name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Sim::Off => "off",
            Sim::Count => "count",
        }
    }
}

/// What the machines do once they are up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Run a program: the name of one in `userland/apps`, its directory, or a `.bundle` file.
    App {
        /// As the user named it.
        app: String,
        /// Its arguments, one line.
        args: String,
    },
    /// Run in-kernel tests, in this order.
    Ktest(Vec<String>),
}

/// Things only tests ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestOptions {
    /// Start the machines with `-smp 1` alone, which breaks atomics between machines.
    pub no_maxcpus: bool,
    /// XORed into the layout hash of a node.
    pub layout_xor: Vec<(NodeId, u64)>,
    /// Pretend that this much shared memory is available.
    pub shm_limit: Option<u64>,
    /// Programs that stand in for the emulators, by ISA.
    pub qemu: [Option<PathBuf>; 2],
    /// Images that stand in for the kernels, by ISA.
    pub kernel: [Option<PathBuf>; 2],
    /// Run the program in the place of `init`, with all its capabilities and without services.
    pub bare: bool,
    /// A program that runs beside the program, with the same arguments; nothing is expected of it.
    pub beside: Option<String>,
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
    /// What to run.
    pub work: Work,
    /// What the program is given beyond what every program gets.
    pub grant: Grant,
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
    /// Start the machines stopped, with debugger stubs.
    pub gdb: bool,
    /// Plugin.
    pub sim: Sim,
    /// Whether the plugin observes windows of measurement.
    pub windows: bool,
    /// Whether it is kept which instructions are executed in windows.
    pub sites: bool,
    /// Directory (of a memory file system) that holds the pools.
    pub shm_dir: PathBuf,
    /// Test options.
    pub test: TestOptions,
}

impl Default for RunConfig {
    fn default() -> RunConfig {
        RunConfig {
            nodes: vec![Isa::X86_64, Isa::Aarch64],
            cpus: 1,
            mem_local: 256 << 20,
            mem_cxl: 512 << 20,
            work: Work::App {
                app: DEFAULT_APP.into(),
                args: String::new(),
            },
            grant: Grant::Nothing,
            timeout: Some(Duration::from_secs(DEFAULT_TIMEOUT)),
            on_death: OnDeath::End,
            coherent: true,
            rounds: DEFAULT_ROUNDS,
            audit: false,
            gdb: false,
            sim: Sim::Off,
            windows: false,
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

    /// Bytes of all pools together.
    pub fn pool_bytes(&self) -> u64 {
        self.mem_local * self.nodes.len() as u64 + self.mem_cxl
    }
}

/// Settings as the user wrote them; `None` where nothing was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `nodes`
    pub nodes: Option<String>,
    /// `cpus`
    pub cpus: Option<String>,
    /// `mem-local`
    pub mem_local: Option<String>,
    /// `mem-cxl`
    pub mem_cxl: Option<String>,
    /// `app`
    pub app: Option<String>,
    /// `args`
    pub args: Option<String>,
    /// `class`
    pub class: Option<String>,
    /// `grant`
    pub grant: Option<String>,
    /// `timeout`
    pub timeout: Option<String>,
    /// `on-death`
    pub on_death: Option<String>,
    /// `coherence`
    pub coherence: Option<String>,
    /// `rounds`
    pub rounds: Option<String>,
    /// `audit`
    pub audit: Option<bool>,
    /// `sim`
    pub sim: Option<String>,
    /// `windows`
    pub windows: Option<bool>,
    /// `shm-dir`
    pub shm_dir: Option<String>,
    /// `json`
    pub json: Option<String>,
    /// `gdb`
    pub gdb: Option<bool>,
    /// `quiet`
    pub quiet: Option<bool>,
    /// `verbose`
    pub verbose: Option<bool>,
}

/// Keys of a configuration file.
pub const KEYS: [&str; 20] = [
    "nodes",
    "cpus",
    "mem-local",
    "mem-cxl",
    "app",
    "args",
    "class",
    "grant",
    "timeout",
    "on-death",
    "coherence",
    "rounds",
    "audit",
    "sim",
    "windows",
    "shm-dir",
    "json",
    "gdb",
    "quiet",
    "verbose",
];

impl Settings {
    /// Reads a configuration file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is not TOML, or has a key or a type of value that is not known.
    pub fn from_file(path: &Path) -> Result<Settings, Error> {
        let text = std::fs::read_to_string(path).map_err(|e| {
            Error::Usage(format!(
                "cannot read the configuration file {}: {e}",
                path.display()
            ))
        })?;
        Settings::from_toml(&text).map_err(|e| Error::Usage(format!("{}: {e}", path.display())))
    }

    /// Reads the text of a configuration file.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub fn from_toml(text: &str) -> Result<Settings, String> {
        let table: toml::Table = text.parse().map_err(|e| format!("not valid TOML: {e}"))?;
        let mut s = Settings::default();
        for (key, value) in &table {
            let word = |slot: &mut Option<String>| -> Result<(), String> {
                *slot = Some(match value {
                    toml::Value::String(v) => v.clone(),
                    toml::Value::Integer(v) => v.to_string(),
                    toml::Value::Array(list) if matches!(key.as_str(), "nodes" | "args") => {
                        let words: Option<Vec<&str>> = list.iter().map(|v| v.as_str()).collect();
                        let sep = if key == "nodes" { "," } else { " " };
                        words
                            .ok_or_else(|| format!("{key} must be a list of strings"))?
                            .join(sep)
                    }
                    other => {
                        return Err(format!(
                            "{key} must be a string or a number, not {}",
                            other.type_str()
                        ));
                    }
                });
                Ok(())
            };
            let flag = |slot: &mut Option<bool>| -> Result<(), String> {
                *slot = Some(value.as_bool().ok_or_else(|| {
                    format!("{key} must be true or false, not {}", value.type_str())
                })?);
                Ok(())
            };
            match key.as_str() {
                "nodes" => word(&mut s.nodes)?,
                "cpus" => word(&mut s.cpus)?,
                "mem-local" => word(&mut s.mem_local)?,
                "mem-cxl" => word(&mut s.mem_cxl)?,
                "app" => word(&mut s.app)?,
                "args" => word(&mut s.args)?,
                "class" => word(&mut s.class)?,
                "grant" => word(&mut s.grant)?,
                "timeout" => word(&mut s.timeout)?,
                "on-death" => word(&mut s.on_death)?,
                "coherence" => word(&mut s.coherence)?,
                "rounds" => word(&mut s.rounds)?,
                "audit" => flag(&mut s.audit)?,
                "sim" => word(&mut s.sim)?,
                "windows" => flag(&mut s.windows)?,
                "shm-dir" => word(&mut s.shm_dir)?,
                "json" => word(&mut s.json)?,
                "gdb" => flag(&mut s.gdb)?,
                "quiet" => flag(&mut s.quiet)?,
                "verbose" => flag(&mut s.verbose)?,
                _ => return Err(suggest::not_one_of("key", key, &KEYS)),
            }
        }
        Ok(s)
    }

    /// These settings, with those of `lower` where nothing was said.
    #[must_use]
    pub fn or(self, lower: Settings) -> Settings {
        Settings {
            nodes: self.nodes.or(lower.nodes),
            cpus: self.cpus.or(lower.cpus),
            mem_local: self.mem_local.or(lower.mem_local),
            mem_cxl: self.mem_cxl.or(lower.mem_cxl),
            app: self.app.or(lower.app),
            args: self.args.or(lower.args),
            class: self.class.or(lower.class),
            grant: self.grant.or(lower.grant),
            timeout: self.timeout.or(lower.timeout),
            on_death: self.on_death.or(lower.on_death),
            coherence: self.coherence.or(lower.coherence),
            rounds: self.rounds.or(lower.rounds),
            audit: self.audit.or(lower.audit),
            sim: self.sim.or(lower.sim),
            windows: self.windows.or(lower.windows),
            shm_dir: self.shm_dir.or(lower.shm_dir),
            json: self.json.or(lower.json),
            gdb: self.gdb.or(lower.gdb),
            quiet: self.quiet.or(lower.quiet),
            verbose: self.verbose.or(lower.verbose),
        }
    }

    /// Checks the words and fills in defaults.
    ///
    /// # Errors
    ///
    /// A sentence that says which setting is wrong, what is possible and what was probably meant.
    pub fn resolve(&self) -> Result<RunConfig, Error> {
        self.checked().map_err(Error::Usage)
    }

    fn checked(&self) -> Result<RunConfig, String> {
        let mut c = RunConfig::default();
        if let Some(v) = &self.nodes {
            c.nodes = nodes(v)?;
        }
        if let Some(v) = &self.cpus {
            c.cpus = whole("cpus", v, 1, MAX_CPUS as u64)? as usize;
        }
        if let Some(v) = &self.mem_local {
            c.mem_local = pool("mem-local", v, LOCAL_STRIDE)?;
        }
        if let Some(v) = &self.mem_cxl {
            c.mem_cxl = pool("mem-cxl", v, MAX_CXL)?;
        }
        if let Some(v) = &self.grant {
            let names = Grant::ALL.map(Grant::name);
            c.grant = Grant::ALL
                .into_iter()
                .find(|g| g.name() == v)
                .ok_or_else(|| suggest::not_one_of("value of grant", v, &names))?;
        }
        if let Some(v) = &self.on_death {
            let names = OnDeath::ALL.map(OnDeath::name);
            c.on_death = OnDeath::ALL
                .into_iter()
                .find(|d| d.name() == v)
                .ok_or_else(|| suggest::not_one_of("value of on-death", v, &names))?;
        }
        if let Some(v) = &self.coherence {
            c.coherent = match v.as_str() {
                "coherent" => true,
                "incoherent" => false,
                _ => {
                    let names = ["coherent", "incoherent"];
                    return Err(suggest::not_one_of("value of coherence", v, &names));
                }
            };
        }
        if let Some(v) = &self.rounds {
            c.rounds = whole("rounds", v, 1, MAX_ROUNDS)?;
        }
        c.audit = self.audit.unwrap_or(c.audit);
        if let Some(v) = &self.sim {
            let names = Sim::ALL.map(Sim::name);
            c.sim = Sim::ALL
                .into_iter()
                .find(|s| s.name() == v)
                .ok_or_else(|| suggest::not_one_of("value of sim", v, &names))?;
        }
        c.windows = self.windows.unwrap_or(false);
        if c.windows && c.sim == Sim::Off {
            return Err("windows are observed by the simulator plugin: add --sim count".into());
        }
        if let Some(v) = &self.timeout {
            c.timeout = Some(Duration::from_secs(whole("timeout", v, 1, 7 * 24 * 3600)?));
        }
        if let Some(v) = &self.shm_dir {
            c.shm_dir = PathBuf::from(v);
        }
        c.gdb = self.gdb.unwrap_or(false);
        if c.gdb {
            c.timeout = None;
        }
        if self.quiet == Some(true) && self.verbose == Some(true) {
            return Err("quiet and verbose exclude each other: give one of them".into());
        }
        let mut args: Vec<&str> = Vec::new();
        if let Some(class) = &self.class {
            args.extend(["--class", class]);
        }
        args.extend(self.args.as_deref());
        let args = args.join(" ");
        if args.chars().any(char::is_control) {
            return Err(
                "the program's arguments must be one line without control characters".into(),
            );
        }
        c.work = Work::App {
            app: self.app.clone().unwrap_or_else(|| DEFAULT_APP.into()),
            args,
        };
        Ok(c)
    }
}

fn nodes(text: &str) -> Result<Vec<Isa>, String> {
    let names = Isa::ALL.map(Isa::name);
    let list: Vec<Isa> = text
        .split(',')
        .map(str::trim)
        .map(|w| Isa::parse(w).ok_or_else(|| suggest::not_one_of("ISA in nodes", w, &names)))
        .collect::<Result<_, _>>()?;
    if !(2..=MAX_NODES).contains(&list.len()) {
        return Err(format!(
            "nodes names {} node{}; a system has 2 to {MAX_NODES}, such as x86_64,aarch64",
            list.len(),
            if list.len() == 1 { "" } else { "s" }
        ));
    }
    Ok(list)
}

fn whole(key: &str, text: &str, lo: u64, hi: u64) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|n| (lo..=hi).contains(n))
        .ok_or_else(|| format!("{key} is {text:?}; possible is a whole number from {lo} to {hi}"))
}

fn pool(key: &str, text: &str, max: u64) -> Result<u64, String> {
    let n = size::parse(text).map_err(|e| format!("{key}: {e}"))?;
    if !(MIN_POOL..=max).contains(&n) || n % POOL_GRANULE != 0 {
        return Err(format!(
            "{key} is {}; possible are multiples of {} from {} to {}",
            size::show(n),
            size::show(POOL_GRANULE),
            size::show(MIN_POOL),
            size::show(max)
        ));
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<RunConfig, String> {
        Settings::from_toml(text)?.checked()
    }

    #[test]
    fn a_file_says_the_same_as_the_command_line() {
        let c = file(
            "nodes = [\"aarch64\", \"x86_64\", \"aarch64\"]\ncpus = 2\nmem-local = \"64MiB\"\n\
             mem-cxl = 268435456\napp = \"npb-is\"\nclass = \"W\"\non-death = \"survive\"\ntimeout = 10",
        )
        .unwrap();
        assert_eq!(c.nodes, [Isa::Aarch64, Isa::X86_64, Isa::Aarch64]);
        assert_eq!((c.cpus, c.mem_local, c.mem_cxl), (2, 64 << 20, 256 << 20));
        assert_eq!(c.on_death, OnDeath::Survive);
        assert_eq!(c.timeout, Some(Duration::from_secs(10)));
        let args = "--class W".to_string();
        let app = "npb-is".to_string();
        assert_eq!(c.work, Work::App { app, args });
    }

    #[test]
    fn the_command_line_wins() {
        let file = Settings::from_toml("cpus = 2\ngdb = true\napp = \"a\"").unwrap();
        let line = Settings {
            cpus: Some("4".into()),
            gdb: Some(false),
            ..Settings::default()
        };
        let c = line.or(file).checked().unwrap();
        assert_eq!((c.cpus, c.gdb, c.work_name()), (4, false, "a"));
    }

    #[test]
    fn wrong_settings_are_named_with_what_is_possible() {
        for (text, message) in [
            (
                "node = \"x86_64,aarch64\"",
                "unknown key \"node\": did you mean \"nodes\"?",
            ),
            ("on_death = \"end\"", "did you mean \"on-death\"?"),
            ("on-death = \"survives\"", "did you mean \"survive\"?"),
            ("nodes = \"x86-64,aarch64\"", "did you mean \"x86_64\"?"),
            (
                "nodes = \"x86_64\"",
                "nodes names 1 node; a system has 2 to 8",
            ),
            (
                "cpus = 9",
                "cpus is \"9\"; possible is a whole number from 1 to 8",
            ),
            (
                "cpus = true",
                "cpus must be a string or a number, not boolean",
            ),
            ("gdb = 1", "gdb must be true or false, not integer"),
            (
                "mem-local = \"33MiB\"",
                "mem-local is 33 MiB; possible are multiples of 2 MiB",
            ),
            ("mem-cxl = \"lots\"", "mem-cxl: \"lots\" is not a size"),
            ("timeout = 0", "timeout is \"0\""),
            ("args = \"a\\nb\"", "one line"),
            ("quiet = true\nverbose = true", "exclude each other"),
            ("cpus = ", "not valid TOML"),
        ] {
            let e = file(text).unwrap_err();
            assert!(e.contains(message), "{text}: {e}");
        }
    }

    #[test]
    fn a_debugger_has_no_time_limit() {
        assert_eq!(file("gdb = true\ntimeout = 5").unwrap().timeout, None);
    }
}
