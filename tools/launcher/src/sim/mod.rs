//! Simulations: what is simulated, and what comes out.
//!
//! ```text
//! profile ─▶ file's [set] ─▶ --set ─▶ configuration, checked ─▶ sim.json ─▶ plugin of each machine
//! ```
//!
//! | module | what for |
//! |---|---|
//! | [`keys`] | the settings with a number: names, units, ranges |
//! | [`profile`] | named sets of values for all of them |
//! | [`outcome`] | the reports of all machines together, and whether they are consistent |
//! | [`table`] | the outcome for people; for programs it is in [`crate::csv`] |
//! | [`versions`] | what a run was made with |

pub mod keys;
pub mod outcome;
pub mod profile;
pub mod sanitizer;
pub mod table;
pub mod vectors;
pub mod versions;

use std::collections::BTreeSet;

use dyad_abi::{Isa, NodeId};
use dyad_shm::PoolId;
use dyad_sim_model::config::{
    Bandwidths, CacheShape, ClockConfig, Coherence, Latencies, Level, MemoryModel, NodeConfig,
    Order, OverlapConfig, Pool, SimConfig, SnoopCosts, SystemCosts, TlbConfig,
};

use keys::{Key, Place, Scope};
pub use outcome::Outcome;
pub use profile::{Layer, Profile};
pub use versions::Versions;

/// The machines of a system, as far as simulations depend on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// ISA of each node.
    pub nodes: Vec<Isa>,
    /// CPUs per node.
    pub cpus: usize,
    /// Bytes of each local pool.
    pub mem_local: u64,
    /// Bytes of the CXL pool.
    pub mem_cxl: u64,
    /// Whether the nodes keep their caches coherent.
    pub coherent: bool,
}

impl Default for System {
    fn default() -> System {
        System {
            nodes: vec![Isa::X86_64, Isa::Aarch64],
            cpus: 1,
            mem_local: 256 << 20,
            mem_cxl: 512 << 20,
            coherent: true,
        }
    }
}

/// What is to be simulated, apart from the level and from what the system is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Which memory is near.
    pub model: MemoryModel,
    /// Where numbers come from.
    pub profile: Profile,
    /// Numbers that differ from the profile's; a later layer takes precedence.
    pub set: Vec<Layer>,
    /// In which order nodes run.
    pub order: Order,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            model: MemoryModel::Shared,
            profile: Profile::default(),
            set: Vec::new(),
            order: Order::Parallel,
        }
    }
}

impl Setup {
    /// What differs from the profile, in the order of precedence.
    pub fn changes(&self) -> Vec<(String, String)> {
        let layers = self.set.iter();
        layers.flat_map(|layer| layer.entries.clone()).collect()
    }

    /// The complete configuration of a simulation of these machines, at this level.
    ///
    /// # Errors
    ///
    /// A sentence that names the setting that is wrong and says what is possible.
    pub fn resolve(&self, level: Level, system: &System) -> Result<SimConfig, String> {
        let mut config = blank(self, level, system);
        let mut given: BTreeSet<(&str, usize)> = BTreeSet::new();
        for layer in self.profile.layers.iter().chain(&self.set) {
            apply(layer, &mut config, &mut given)?;
        }
        for key in keys::KEYS {
            let nodes = match key.place {
                Place::Node(..) => config.nodes.len(),
                Place::System(..) => 1,
                Place::Fixed(_) => 0,
            };
            if let Some(node) = (0..nodes).find(|n| !given.contains(&(key.name, *n))) {
                return Err(format!(
                    "profile {} has no value of {} for node {node}",
                    self.profile.name, key.name
                ));
            }
        }
        config.check().map_err(|e| e.to_string())?;
        Ok(config)
    }
}

/// A configuration without numbers.
fn blank(setup: &Setup, level: Level, system: &System) -> SimConfig {
    let shape = CacheShape { size: 0, ways: 0 };
    let node = |isa: &Isa| NodeConfig {
        isa: isa.name().into(),
        cpus: system.cpus,
        cycle_ps: 0,
        cpi_milli: 0,
        l1i: shape,
        l1d: shape,
        l2: shape,
        l3: shape,
        l3_query: false,
        latency: Latencies {
            l1: 0,
            l2: 0,
            l3: 0,
            local: 0,
            remote: 0,
            pool: 0,
        },
        snoop: SnoopCosts::default(),
        cost: SystemCosts::default(),
        overlap: OverlapConfig::default(),
        tlb: TlbConfig::default(),
    };
    let local = NodeId::first(system.nodes.len()).map(|n| (PoolId::Local(n), system.mem_local));
    let pools = local.chain([(PoolId::Cxl, system.mem_cxl)]);
    SimConfig {
        level,
        model: setup.model,
        coherence: match system.coherent {
            true => Coherence::Coherent,
            false => Coherence::Incoherent,
        },
        profile: setup.profile.name.clone(),
        nodes: system.nodes.iter().map(node).collect(),
        pools: pools
            .map(|(pool, size)| Pool {
                base: pool.base().0,
                size,
            })
            .collect(),
        clock: ClockConfig {
            quantum_ns: 0,
            lag_ns: 0,
            ipi_ns: 0,
            order: setup.order,
        },
        message_ns: 0,
        message_kib_ns: 0,
        filter_entries: 0,
        bandwidth: Bandwidths::default(),
    }
}

/// One setting, understood.
struct Setting<'a> {
    /// As it was written.
    text: &'a str,
    key: &'static Key,
    scope: Scope,
    alias: bool,
    value: Option<u64>,
}

/// Writes a layer's values: those for all nodes first, then those for an ISA, then those for a
/// node, so that within a layer what is said more exactly counts.
fn apply<'a>(
    layer: &'a Layer,
    config: &mut SimConfig,
    given: &mut BTreeSet<(&'a str, usize)>,
) -> Result<(), String> {
    let mut settings: Vec<Setting<'a>> = Vec::new();
    for (text, value) in &layer.entries {
        let error = |e: String| format!("{}: {e}", layer.source);
        let (keys, alias, scope) = keys::find(text).map_err(error)?;
        for key in keys {
            let value = key.parse(value).map_err(|e| error(format!("{text} {e}")))?;
            if layer.strict {
                check_effect(text, key, scope, config).map_err(error)?;
            }
            let again = settings
                .iter()
                .find(|s| (s.key.name, s.scope, s.alias) == (key.name, scope, alias));
            if let Some(again) = again {
                return Err(error(format!(
                    "{text} is given twice ({}); give it once",
                    again.text
                )));
            }
            settings.push(Setting {
                text,
                key,
                scope,
                alias,
                value,
            });
        }
    }
    settings.sort_by_key(|s| (s.scope, !s.alias));
    for s in settings {
        match s.key.place {
            Place::Node(_, set) => {
                for (i, node) in config.nodes.iter_mut().enumerate() {
                    let meant = match s.scope {
                        Scope::All => true,
                        Scope::Isa(isa) => node.isa().map(Isa::index) == Some(isa),
                        Scope::Node(n) => n == i,
                    };
                    if meant {
                        set(node, s.value);
                        given.insert((s.key.name, i));
                    }
                }
            }
            Place::System(_, set) => {
                set(config, s.value);
                given.insert((s.key.name, 0));
            }
            Place::Fixed(_) => {}
        }
    }
    Ok(())
}

/// Refuses a setting that would do nothing.
fn check_effect(text: &str, key: &Key, scope: Scope, config: &SimConfig) -> Result<(), String> {
    if key.from > config.level {
        let level = config.level.name();
        return Err(match key.from {
            Level::Timing => format!(
                "{text} has no effect at level {level}, where memory takes no time: add --sim timing"
            ),
            Level::Count | Level::Cache => format!(
                "{text} has no effect at level {level}, which simulates no caches: add --sim cache \
                 or --sim timing"
            ),
        });
    }
    let n = config.nodes.len();
    match scope {
        Scope::Node(i) if i >= n => Err(format!(
            "{text}: there is no node {i}; this system has nodes 0 to {}",
            n - 1
        )),
        Scope::Isa(isa)
            if !config
                .nodes
                .iter()
                .any(|n| n.isa().map(Isa::index) == Some(isa)) =>
        {
            Err(format!("{text}: no node of this system has that ISA"))
        }
        _ => Ok(()),
    }
}

/// All keys with their values in a configuration, for people.
pub fn list_keys(config: &SimConfig) -> String {
    use std::fmt::Write as _;
    let mut head = format!("{:<20}", "key");
    for node in &config.nodes {
        let _ = write!(head, " {:>8}", node.isa);
    }
    let mut out = format!("{head}  meaning; what is possible\n");
    for key in keys::KEYS {
        let _ = write!(out, "{:<20}", key.name);
        for i in 0..config.nodes.len() {
            let _ = write!(out, " {:>8}", key.of(config, i));
        }
        let _ = writeln!(out, "  {}; {}", key.about, key.range());
    }
    for (alias, names) in keys::ALIASES {
        let _ = writeln!(out, "{alias:<20} {}", names.join(" and "));
    }
    out.push_str("\nValues above are those of profile ");
    out.push_str(&config.profile);
    out.push_str(
        ".\nA key alone is for all nodes; x86_64.KEY and aarch64.KEY for those of an ISA; \
         node0.KEY for one.\nThe more exact one counts. Keys of clock, ipi and message are the \
         system's.\n",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_sim_model::coherent::{Kind, Storage};
    use dyad_sim_model::config::LINE_BYTES;

    fn set(words: &[(&str, &str)]) -> Setup {
        let entries = words.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        Setup {
            set: vec![Layer {
                source: "--set".into(),
                strict: true,
                entries: entries.collect(),
            }],
            ..Setup::default()
        }
    }

    fn timing(setup: &Setup) -> Result<SimConfig, String> {
        setup.resolve(Level::Timing, &System::default())
    }

    #[test]
    fn profiles_give_the_constants_of_their_sources() {
        let node = |profile: &str, i: usize| {
            let setup = Setup {
                profile: Profile::load(profile).unwrap(),
                ..Setup::default()
            };
            let c = timing(&setup).unwrap();
            let n = c.nodes[i].clone();
            let l = n.latency;
            (n.cycle_ps, [l.l1, l.l2, l.l3, l.local, l.remote])
        };
        assert_eq!(node("paper-big", 0), (476, [4, 14, 50, 300, 640]));
        assert_eq!(node("paper-big", 1), (500, [4, 9, 30, 300, 620]));
        assert_eq!(node("paper-small", 0), (476, [4, 12, 38, 300, 640]));
        assert_eq!(node("paper-small", 1), (333, [4, 9, 45, 300, 780]));
        assert_eq!(node("artifact", 0), (1000, [4, 14, 70, 360, 660]));
        assert_eq!(node("artifact", 1), (1000, [4, 9, 50, 360, 660]));
        let c = timing(&Setup::default()).unwrap();
        let shape = |size, ways| CacheShape { size, ways };
        for n in &c.nodes {
            assert_eq!((n.l1i, n.l1d), (shape(32 << 10, 8), shape(32 << 10, 8)));
            assert_eq!((n.l2, n.l3), (shape(1 << 20, 16), shape(4 << 20, 16)));
            assert_eq!(n.cpi_milli, 1000);
        }
        assert_eq!((c.clock.ipi_ns, c.message_ns), (2000, 75_000));
    }

    /// Nanoseconds of the last access, as the model plays it. Homes are nodes, or 2: the CXL pool.
    fn transfer(profile: &str, home: usize, accesses: &[(usize, Kind)]) -> f64 {
        let setup = Setup {
            profile: Profile::load(profile).unwrap(),
            ..Setup::default()
        };
        let config = timing(&setup).unwrap();
        let storage = Storage::new(&config);
        let mut system = dyad_sim_model::coherent::System::new(&config, &storage);
        let line = config.pools[home].base / LINE_BYTES;
        let last = accesses
            .iter()
            .map(|&(node, kind)| system.access(node, 0, kind, line) * config.nodes[node].cycle_ps);
        last.last().unwrap() as f64 / 1000.0
    }

    /// The figures of measurements, and for `cxl` those composed of them (see the profiles), to 5 %.
    #[test]
    fn transfers_take_what_has_been_published() {
        use Kind::{Load, Store};
        for (profile, home, accesses, published) in [
            ("cascade-lake", 0, &[(0, Load)][..], 78.6),
            ("cascade-lake", 1, &[(0, Load)], 144.1),
            ("cascade-lake", 1, &[(1, Store), (0, Load)], 111.0),
            ("cascade-lake", 0, &[(1, Store), (0, Load)], 176.0),
            ("cxl", 0, &[(0, Load)], 100.0),
            ("cxl", 2, &[(0, Load)], 218.0),
            ("cxl", 2, &[(1, Store), (0, Load)], 380.0),
            ("cxl", 2, &[(0, Load), (1, Load), (0, Store)], 300.0),
        ] {
            let took = transfer(profile, home, accesses);
            let off = (took / published - 1.0).abs();
            assert!(
                off < 0.05,
                "{profile}, home {home}, {accesses:?}: {took} ns, not {published}"
            );
        }
    }

    #[test]
    fn what_is_said_more_exactly_counts_and_later_layers_do() {
        let mut setup = set(&[
            ("node1.l2.ways", "4"),
            ("arm.l2.ways", "2"),
            ("l2.ways", "8"),
            ("l1d.ways", "4"),
            ("l1.ways", "2"),
            ("snoop.forward", "99"),
        ]);
        let c = timing(&setup).unwrap();
        assert_eq!((c.nodes[0].l2.ways, c.nodes[1].l2.ways), (8, 4));
        assert_eq!((c.nodes[0].l1d.ways, c.nodes[0].l1i.ways), (4, 2));
        assert_eq!(c.nodes[0].snoop.forward, Some(99));
        setup
            .set
            .extend(set(&[("l2.ways", "16"), ("snoop.forward", "memory")]).set);
        let c = timing(&setup).unwrap();
        assert_eq!((c.nodes[0].l2.ways, c.nodes[1].l2.ways), (16, 16));
        assert_eq!(c.nodes[1].snoop.forward, None);
    }

    #[test]
    fn wrong_settings_are_explained() {
        for (key, value, words) in [
            (
                "l3.sise",
                "1MiB",
                "--set: unknown key \"l3.sise\": did you mean \"l3.size\"?",
            ),
            ("l3.size", "3MiB", "must be a power of two"),
            (
                "l3.ways",
                "99",
                "--set: l3.ways cannot be \"99\"; possible is a whole number",
            ),
            (
                "l1.size",
                "2MiB",
                "must be at least as large as the one above it",
            ),
            ("ipi.latency", "1us", "a doorbell must take at least"),
            (
                "line.size",
                "32",
                "line.size cannot be \"32\"; possible is 64 only",
            ),
            ("node2.ghz", "1", "this system has nodes 0 to 1"),
        ] {
            let e = timing(&set(&[(key, value)])).unwrap_err();
            assert!(e.contains(words), "{key}={value}: {e}");
        }
        let e = timing(&set(&[("x86.ghz", "1"), ("x86_64.ghz", "2")])).unwrap_err();
        assert!(e.contains("x86_64.ghz is given twice (x86.ghz)"), "{e}");
        let e = set(&[("l2.ways", "8")]).resolve(Level::Count, &System::default());
        assert!(e.unwrap_err().contains("no effect at level count"));
        let c = set(&[("cpi", "2")]).resolve(Level::Count, &System::default());
        assert_eq!(c.unwrap().nodes[1].cpi_milli, 2000);
        let pair = System {
            nodes: vec![Isa::X86_64; 2],
            ..System::default()
        };
        let e = set(&[("arm.ghz", "1")]).resolve(Level::Count, &pair);
        assert!(e.unwrap_err().contains("has that ISA"));
        assert!(Setup::default().resolve(Level::Count, &pair).is_ok());
    }

    /// The lines of the book's chapter that are rows of tables.
    fn rows_of_the_book() -> Vec<&'static str> {
        let book = include_str!("../../../../book/src/reference/simulator.md");
        book.lines().filter(|line| line.starts_with('|')).collect()
    }

    /// Names of the members of objects in a JSON form, and of those in them.
    fn members(value: &serde_json::Value, found: &mut dyn FnMut(&str)) {
        match value {
            serde_json::Value::Object(object) => {
                for (name, value) in object {
                    // Regions and ISAs are told by their names.
                    if name.parse::<u16>().is_err() && Isa::parse(name).is_none() {
                        found(name);
                    }
                    members(value, found);
                }
            }
            serde_json::Value::Array(list) => list.iter().for_each(|v| members(v, found)),
            _ => {}
        }
    }

    #[test]
    fn the_book_has_every_key_with_its_range_and_default() {
        let rows = rows_of_the_book();
        let config = timing(&Setup::default()).unwrap();
        for key in keys::KEYS {
            let name = format!("`{}`", key.name);
            let row = rows.iter().find(|row| row.contains(&name));
            let row = row.unwrap_or_else(|| panic!("{name} is not in the book"));
            for i in 0..2 {
                assert!(row.contains(&key.of(&config, i)), "{row}");
            }
            let (least, most) = (key.show(Some(key.least)), key.show(Some(key.most)));
            let (least, most) = match key.unit {
                keys::Unit::Ghz => (most, least),
                _ => (least, most),
            };
            let range = [
                format!("{least} to {most}"),
                "as above".into(),
                "the same".into(),
                "64 only".into(),
            ];
            assert!(range.iter().any(|r| row.contains(r.as_str())), "{row}");
        }
    }

    #[test]
    fn the_book_has_every_counter_column_and_constant() {
        use dyad_sim_model::report::{Breakdown, Counters};
        let rows = rows_of_the_book();
        let known = |name: &str| {
            // As a list, and in the place of a key's last part, too.
            let ends = [
                format!("`{name}`"),
                format!("`{name}[]`"),
                format!(".{name}`"),
            ];
            let found = |row: &&str| ends.iter().any(|end| row.contains(end.as_str()));
            assert!(rows.iter().any(found), "{name}");
        };
        Counters::NAMES.iter().for_each(|name| known(name));
        Breakdown::NAMES.iter().for_each(|name| known(name));
        let reports = [
            serde_json::to_value(outcome::tests::machine(0, 1)).unwrap(),
            serde_json::to_value(outcome::tests::outcome()).unwrap(),
        ];
        for report in &reports {
            members(report, &mut |name| known(name));
        }
        let computed = |name: &String| {
            keys::KEYS.iter().any(|k| k.name == name)
                || Counters::NAMES.contains(&name.as_str())
                || name
                    .strip_suffix("_ps")
                    .is_some_and(|n| Breakdown::NAMES.contains(&n))
        };
        let columns = crate::csv::header()
            .into_iter()
            .filter(|name| !computed(name));
        columns.for_each(|name| known(&name));
        for (profile, _) in profile::SHIPPED {
            let setup = Setup {
                profile: Profile::load(profile).unwrap(),
                ..Setup::default()
            };
            for n in timing(&setup).unwrap().nodes {
                let l = n.latency;
                let (head, l3) = (format!("| `{profile}`, {} |", n.isa), l.l3.to_string());
                let row = rows.iter().find(|row| row.starts_with(&head)).unwrap();
                let cells: Vec<&str> = row.split('|').skip(2).map(str::trim).collect();
                let expected = [l.l1, l.l2, l.local, l.remote, l.pool].map(|n| n.to_string());
                let written = [cells[0], cells[1], cells[3], cells[4], cells[5]];
                assert_eq!(written.as_slice(), expected.as_slice());
                assert!(cells[2].starts_with(&l3), "{row}");
            }
        }
    }

    #[test]
    fn every_key_is_listed_with_its_default() {
        let text = list_keys(&timing(&Setup::default()).unwrap());
        for key in keys::KEYS {
            let mut lines = text.lines().filter(|l| l.starts_with(key.name));
            let line = lines.next().unwrap();
            assert!(
                line.contains(&key.range()) && line.contains(key.about),
                "{line}"
            );
        }
        let line = text.lines().find(|l| l.starts_with("latency.l2")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[1..3], ["14", "9"]);
    }
}
