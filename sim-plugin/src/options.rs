// SPDX-License-Identifier: GPL-2.0-or-later
//! The plugin's options, as QEMU hands them over: `key=value`.

use std::path::PathBuf;

use dyad_sim_model::config::{Level, SimConfig};

/// What one inline operation counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A translated block, when it is entered: cheap, but a block that is left early (by a fault
    /// or an interrupt) counts in full.
    Block,
    /// Each instruction, when it starts.
    Instruction,
}

impl Unit {
    /// Name in options and in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Block => "block",
            Unit::Instruction => "instruction",
        }
    }
}

/// All options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where the report goes.
    pub out: PathBuf,
    /// What is simulated.
    pub level: Level,
    /// What is counted at a time.
    pub unit: Unit,
    /// Whether windows of measurement are observed. That needs a call for each access to memory
    /// and an operation per instruction, so it is off unless asked for.
    pub windows: bool,
    /// Whether it is kept which instructions are executed in windows. Costs a call for each.
    pub sites: bool,
    /// The node this machine is, for the report.
    pub node: Option<u8>,
    /// File with the configuration, a [`SimConfig`](dyad_sim_model::config::SimConfig) as JSON.
    pub config: Option<String>,
    /// File that the plugins of all machines share: see [`Areas`](dyad_sim_model::shared::Areas).
    pub caches: Option<String>,
    /// Where everything that is done to memory is written to.
    pub trace: Option<String>,
    /// Whether every translation that the plugin remembers is compared with QEMU's own. Slow.
    pub check: bool,
    /// Files of the pools, with colons between them.
    pub pools: Option<String>,
    /// Address of the kernel's first exception vector: see [`Vectors`](crate::system::Vectors).
    pub vectors: Option<u64>,
    /// File that the sanitizers of all machines share.
    pub sanitizer: Option<String>,
    /// Whether the sanitizer looks at programs, too. Slow.
    pub users: bool,
}

impl Options {
    /// Reads the options.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong and what is possible.
    pub fn parse<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<Options, String> {
        let (mut out, mut level, mut unit) = (None, None, None);
        let (mut windows, mut sites, mut node) = (None, None, None);
        let (mut config, mut caches, mut pools) = (None, None, None);
        let (mut trace, mut check, mut sanitizer, mut vectors) = (None, None, None, None);
        let mut users = None;
        for arg in args {
            let (key, value) = arg
                .split_once('=')
                .ok_or_else(|| format!("option {arg:?} has no value; write {arg}=VALUE"))?;
            let fresh = match key {
                "out" if value.is_empty() => return Err("out needs a file name".into()),
                "out" => out.replace(PathBuf::from(value)).is_none(),
                "level" => level.replace(parse_level(value)?).is_none(),
                "unit" => unit.replace(parse_unit(value)?).is_none(),
                "windows" => windows.replace(parse_switch(key, value)?).is_none(),
                "sites" => sites.replace(parse_switch(key, value)?).is_none(),
                "node" => node.replace(parse_node(value)?).is_none(),
                "config" => config.replace(value.to_string()).is_none(),
                "caches" => caches.replace(value.to_string()).is_none(),
                "pools" => pools.replace(value.to_string()).is_none(),
                "vectors" => vectors.replace(parse_address(key, value)?).is_none(),
                "check" => check.replace(parse_switch(key, value)?).is_none(),
                "sanitizer" => sanitizer.replace(value.to_string()).is_none(),
                "users" => users.replace(parse_switch(key, value)?).is_none(),
                "trace" => trace.replace(value.to_string()).is_none(),
                _ => {
                    return Err(format!(
                        "unknown option {key:?}; possible: out, level, unit, windows, sites, node, \
                         config, caches, pools, vectors, trace, check, sanitizer, users"
                    ));
                }
            };
            if !fresh {
                return Err(format!("option {key} is given twice; give it once"));
            }
        }
        Ok(Options {
            out: out.ok_or("option out is missing; write out=FILE")?,
            level: level.unwrap_or(Level::Count),
            unit: unit.unwrap_or(Unit::Block),
            windows: windows.unwrap_or(false) || sites.unwrap_or(false),
            sites: sites.unwrap_or(false),
            node,
            config,
            caches,
            pools,
            vectors,
            trace,
            check: check.unwrap_or(false),
            sanitizer,
            users: users.unwrap_or(false),
        })
    }
}

/// Reads the configuration that the launcher has written.
///
/// # Errors
///
/// A sentence that says what is wrong with the file.
pub fn configuration(path: &str) -> Result<SimConfig, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {path}: {e}"))?;
    let config: SimConfig =
        serde_json::from_str(&text).map_err(|e| format!("{path} is no configuration: {e}"))?;
    config.check().map_err(|e| format!("{path}: {e}"))?;
    Ok(config)
}

fn parse_level(value: &str) -> Result<Level, String> {
    Level::ALL
        .into_iter()
        .find(|level| level.name() == value)
        .ok_or_else(|| format!("level cannot be {value:?}; possible: count, cache, timing"))
}

fn parse_unit(value: &str) -> Result<Unit, String> {
    [Unit::Block, Unit::Instruction]
        .into_iter()
        .find(|u| u.name() == value)
        .ok_or_else(|| format!("unit cannot be {value:?}; possible: block, instruction"))
}

fn parse_switch(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{key} cannot be {value:?}; possible: on, off")),
    }
}

fn parse_address(key: &str, value: &str) -> Result<u64, String> {
    let digits = value.strip_prefix("0x");
    digits
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or_else(|| format!("{key} cannot be {value:?}; possible: an address, as 0x1000"))
}

fn parse_node(value: &str) -> Result<u8, String> {
    value
        .parse()
        .ok()
        .filter(|n| *n < 8)
        .ok_or_else(|| format!("node cannot be {value:?}; possible: 0 to 7"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_all_options() {
        let least = Options::parse(["out=a=b.json"]).unwrap();
        assert_eq!(least.out, PathBuf::from("a=b.json"));
        assert_eq!((least.level, least.unit), (Level::Count, Unit::Block));
        assert!(!least.windows);
        let all = "node=3,unit=instruction,level=count,out=x,windows=on";
        let all = Options::parse(all.split(',')).unwrap();
        assert_eq!((all.unit, all.node), (Unit::Instruction, Some(3)));
        assert!(all.windows);
        let vectors = Options::parse(["out=x", "vectors=0xffffffff80001000"]).unwrap();
        assert_eq!(vectors.vectors, Some(0xffff_ffff_8000_1000));
    }

    #[test]
    fn wrong_options_are_explained() {
        for (args, message) in [
            (&[][..], "option out is missing; write out=FILE"),
            (&["out="], "out needs a file name"),
            (&["out"], "option \"out\" has no value; write out=VALUE"),
            (
                &["out=x", "out=y"],
                "option out is given twice; give it once",
            ),
            (
                &["ou=x"],
                "unknown option \"ou\"; possible: out, level, unit, windows, sites, node, config, \
                 caches, pools, vectors, trace, check, sanitizer, users",
            ),
            (
                &["out=x", "level=all"],
                "level cannot be \"all\"; possible: count, cache, timing",
            ),
            (
                &["unit=tb"],
                "unit cannot be \"tb\"; possible: block, instruction",
            ),
            (
                &["windows=yes"],
                "windows cannot be \"yes\"; possible: on, off",
            ),
            (
                &["vectors=12"],
                "vectors cannot be \"12\"; possible: an address, as 0x1000",
            ),
            (&["node=8"], "node cannot be \"8\"; possible: 0 to 7"),
        ] {
            assert_eq!(Options::parse(args.iter().copied()), Err(message.into()));
        }
    }

    #[test]
    fn a_configuration_that_cannot_be_used_is_refused_by_name() {
        let path = std::env::temp_dir().join(format!("dyad-options-{}.json", std::process::id()));
        let name = path.to_str().expect("UTF-8");
        assert!(configuration(name).unwrap_err().starts_with("cannot read "));
        std::fs::write(&path, "{}").expect("written");
        let refused = configuration(name).unwrap_err();
        std::fs::remove_file(&path).expect("removed");
        assert!(refused.contains("is no configuration"), "{refused}");
    }
}
