//! Settings in the words of the user, from the command line and from files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dyad_abi::Isa;
use dyad_abi::boot::{LOCAL_STRIDE, MAX_CXL, MAX_ROUNDS, MIN_POOL, OnDeath, POOL_GRANULE};
use dyad_abi::ident::{MAX_CPUS, MAX_NODES};
use dyad_abi::service::Grant;
use dyad_abi::service::memory::{MAX_BLOCK, MIN_BLOCK, is_block_size};
use dyad_sim_model::config::{MemoryModel, Order};

use super::{DEFAULT_APP, RunConfig, Sim, Work};
use crate::error::Error;
use crate::sim::{Layer, Profile, profile};
use crate::{size, suggest};

/// A structure with a field for each key, and the keys.
macro_rules! settings {
    (words: $($word:ident $word_key:literal)*; flags: $($flag:ident $flag_key:literal)*;) => {
        /// Settings as the user wrote them; `None` where nothing was said.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Settings {
            $(#[doc = concat!("`", $word_key, "`")] pub $word: Option<String>,)*
            $(#[doc = concat!("`", $flag_key, "`")] pub $flag: Option<bool>,)*
            /// `set`: numbers of the simulation; later ones take precedence.
            pub set: Vec<Layer>,
        }

        /// Keys of a configuration file.
        pub const KEYS: &[&str] = &[$($word_key,)* $($flag_key,)* SET];

        impl Settings {
            /// Where the words of a key are kept.
            fn word(&mut self, key: &str) -> Option<&mut Option<String>> {
                match key {
                    $($word_key => Some(&mut self.$word),)*
                    _ => None,
                }
            }

            /// Where a switch is kept.
            fn flag(&mut self, key: &str) -> Option<&mut Option<bool>> {
                match key {
                    $($flag_key => Some(&mut self.$flag),)*
                    _ => None,
                }
            }

            /// These settings, with those of `lower` where nothing was said.
            #[must_use]
            pub fn or(self, lower: Settings) -> Settings {
                Settings {
                    $($word: self.$word.or(lower.$word),)*
                    $($flag: self.$flag.or(lower.$flag),)*
                    set: lower.set.into_iter().chain(self.set).collect(),
                }
            }
        }
    };
}

settings! {
    words:
        nodes "nodes"
        cpus "cpus"
        mem_local "mem-local"
        mem_cxl "mem-cxl"
        block_size "block-size"
        app "app"
        args "args"
        class "class"
        grant "grant"
        timeout "timeout"
        on_death "on-death"
        coherence "coherence"
        rounds "rounds"
        sim "sim"
        model "model"
        profile "profile"
        order "order"
        seed "seed"
        shm_dir "shm-dir"
        json "json"
        csv "csv";
    flags:
        audit "audit"
        slowpath "slowpath"
        windows "windows"
        sites "sites"
        memory_trace "memory-trace"
        gdb "gdb"
        quiet "quiet"
        verbose "verbose";
}

/// Key of the table of numbers.
const SET: &str = "set";

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
        let mut s = Settings::from_toml(&text)
            .map_err(|e| Error::Usage(format!("{}: {e}", path.display())))?;
        for layer in &mut s.set {
            layer.source = format!("{}: {SET}", path.display());
        }
        Ok(s)
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
            if let Some(slot) = s.word(key) {
                *slot = Some(words(key, value)?);
            } else if let Some(slot) = s.flag(key) {
                *slot = Some(value.as_bool().ok_or_else(|| {
                    format!("{key} must be true or false, not {}", value.type_str())
                })?);
            } else if key == SET {
                let table = value.as_table().ok_or_else(|| {
                    format!("{key} must be a table of keys, not {}", value.type_str())
                })?;
                s.set.push(Layer {
                    source: SET.into(),
                    strict: true,
                    entries: profile::flatten(table)?,
                });
            } else {
                return Err(suggest::not_one_of("key", key, KEYS));
            }
        }
        Ok(s)
    }

    /// Sets what has this key to a word; `false`, if nothing has.
    pub fn set_word(&mut self, key: &str, word: &str) -> bool {
        let slot = self.word(key);
        let known = slot.is_some();
        if let Some(slot) = slot {
            *slot = Some(word.into());
        }
        known
    }

    /// Adds numbers of the simulation from words like `l3.size=32MiB`.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub fn add_set(&mut self, words: &[String]) -> Result<(), Error> {
        let pair = |word: &String| {
            let (key, value) = word.split_once('=').ok_or_else(|| {
                Error::Usage(format!(
                    "--set {word}: write KEY=VALUE, such as l3.size=32MiB; `cargo xtask sim keys` \
                     lists all keys"
                ))
            })?;
            Ok((key.trim().to_string(), value.trim().to_string()))
        };
        let entries: Vec<_> = words.iter().map(pair).collect::<Result<_, Error>>()?;
        if !entries.is_empty() {
            self.set.push(Layer {
                source: "--set".into(),
                strict: true,
                entries,
            });
        }
        Ok(())
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
        if let Some(v) = &self.block_size {
            c.block_size = block("block-size", v)?;
            if c.block_size > c.mem_local.max(c.mem_cxl) {
                return Err(format!(
                    "block-size is {}; no pool is that large: mem-local is {}, mem-cxl is {}",
                    size::show(c.block_size),
                    size::show(c.mem_local),
                    size::show(c.mem_cxl)
                ));
            }
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
        c.fastpaths = !self.slowpath.unwrap_or(false);
        if let Some(v) = &self.sim {
            let names = Sim::ALL.map(Sim::name);
            c.sim = Sim::ALL
                .into_iter()
                .find(|s| s.name() == v)
                .ok_or_else(|| suggest::not_one_of("value of sim", v, &names))?;
        }
        self.check_simulation(&mut c)?;
        c.windows = self.windows.unwrap_or(false);
        if c.windows && c.sim == Sim::Off {
            return Err("windows are observed by the simulator plugin: add --sim count".into());
        }
        c.sites = self.sites.unwrap_or(false);
        if c.sites && !c.windows {
            return Err("sites are those of windows: add --windows".into());
        }
        c.memory_trace = self.memory_trace.unwrap_or(false);
        if c.memory_trace && !matches!(c.sim, Sim::Cache | Sim::Timing) {
            return Err(
                "accesses to memory are traced by the levels that see them: add --sim \
                        cache or timing"
                    .into(),
            );
        }
        if c.memory_trace && c.cpus > 1 {
            return Err("memory-trace is for nodes with one CPU: leave --cpus out".into());
        }
        if self.csv.is_some() && c.sim == Sim::Off {
            return Err("csv is about what is simulated: add --sim count, cache or timing".into());
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
        if let Some(v) = &self.model {
            let names = MemoryModel::ALL.map(MemoryModel::name);
            c.setup.model = MemoryModel::ALL
                .into_iter()
                .find(|m| m.name() == v)
                .ok_or_else(|| suggest::not_one_of("value of model", v, &names))?;
        }
        if let Some(v) = &self.profile {
            c.setup.profile = Profile::load(v)?;
        }
        c.setup.set.clone_from(&self.set);
        let seed = self.seed.as_deref();
        let seed = seed.map(|v| whole("seed", v, 0, u64::MAX)).transpose()?;
        c.setup.order = match (self.order.as_deref().unwrap_or("parallel"), seed) {
            ("strict", seed) => Order::Strict {
                seed: seed.unwrap_or(0),
            },
            ("parallel", None) => Order::Parallel,
            ("parallel", Some(_)) => {
                return Err("a seed has a meaning in strict order only: add --order strict".into());
            }
            (v, _) => {
                let names = ["parallel", "strict"];
                return Err(suggest::not_one_of("value of order", v, &names));
            }
        };
        Ok(())
    }
}

/// A value as the command line would have it.
fn words(key: &str, value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(v) => Ok(v.clone()),
        toml::Value::Integer(v) => Ok(v.to_string()),
        toml::Value::Array(list) if matches!(key, "nodes" | "args") => {
            let words: Option<Vec<&str>> = list.iter().map(|v| v.as_str()).collect();
            let sep = if key == "nodes" { "," } else { " " };
            Ok(words
                .ok_or_else(|| format!("{key} must be a list of strings"))?
                .join(sep))
        }
        other => Err(format!(
            "{key} must be a string or a number, not {}",
            other.type_str()
        )),
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

fn block(key: &str, text: &str) -> Result<u64, String> {
    let n = size::parse(text).map_err(|e| format!("{key}: {e}"))?;
    if !is_block_size(n) {
        return Err(format!(
            "{key} is {}; possible are powers of two from {} to {}",
            size::show(n),
            size::show(MIN_BLOCK),
            size::show(MAX_BLOCK)
        ));
    }
    Ok(n)
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
    fn blocks_are_powers_of_two_that_a_pool_has() {
        assert_eq!(file("").unwrap().block_size, 32 << 20);
        let c = file("block-size = \"256MiB\"\nmem-cxl = \"1GiB\"").unwrap();
        assert_eq!(c.block_size, 256 << 20);
        for (text, part) in [
            (
                "block-size = \"48MiB\"",
                "powers of two from 32 MiB to 4 GiB",
            ),
            (
                "block-size = \"16MiB\"",
                "powers of two from 32 MiB to 4 GiB",
            ),
            (
                "block-size = \"8GiB\"",
                "powers of two from 32 MiB to 4 GiB",
            ),
            (
                "block-size = \"1GiB\"",
                "no pool is that large: mem-local is 256 MiB",
            ),
        ] {
            let why = file(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn a_file_says_the_same_as_the_command_line() {
        let c = file(
            "nodes = [\"aarch64\", \"x86_64\", \"aarch64\"]\ncpus = 2\nmem-local = \"64MiB\"\n\
             mem-cxl = 268435456\napp = \"npb\"\nclass = \"W\"\non-death = \"survive\"\ntimeout = 10",
        )
        .unwrap();
        assert_eq!(c.nodes, [Isa::Aarch64, Isa::X86_64, Isa::Aarch64]);
        assert_eq!((c.cpus, c.mem_local, c.mem_cxl), (2, 64 << 20, 256 << 20));
        assert_eq!(c.on_death, OnDeath::Survive);
        assert_eq!(c.timeout, Some(Duration::from_secs(10)));
        let args = "--class W".to_string();
        let app = "npb".to_string();
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
