//! The extensions of the simulator: what it can price beyond the model of the paper. A new extension is a new entry of
//! [`EXTENSIONS`].
//!
//! Figures are those of the profiles `cxl` and `cascade-lake`, if these have any. What was measured in nanoseconds is in cycles of
//! the base profile's clocks, 2.1 GHz (x86_64) and 2.0 GHz (aarch64). What was measured in cycles stays.

use dyad_sim_model::config::MemoryModel::{self, Pool, Shared};

/// The profile that the base is made of.
pub const PROFILE: &str = "paper-big";

/// An extension.
#[derive(Clone, Copy, Debug)]
pub struct Extension {
    /// Its name.
    pub name: &'static str,
    /// The keys that it consists of, with the values of a simulator without it.
    pub off: &'static [(&'static str, &'static str)],
    /// The keys with the values of a simulator that has it.
    pub on: &'static [(&'static str, &'static str)],
    /// The memory models in which it has a meaning.
    pub models: &'static [MemoryModel],
    /// Where the values come from, and why there is something to be priced.
    pub source: &'static str,
}

/// In all memory models.
const ALL: &[MemoryModel] = &MemoryModel::ALL;

/// All extensions.
pub const EXTENSIONS: &[Extension] = &[
    Extension {
        name: "traps",
        off: &[("cost.trap", "0"), ("cost.return", "0")],
        on: &[("cost.trap", "82"), ("cost.return", "75")],
        models: ALL,
        source: "cxl: SYSCALL and SYSRET on Skylake, SkyBridge (EuroSys '19)",
    },
    Extension {
        name: "root-switch",
        off: &[("cost.root-switch", "0")],
        on: &[("cost.root-switch", "186")],
        models: ALL,
        source: "cxl: write to CR3 on Skylake, SkyBridge (EuroSys '19)",
    },
    Extension {
        name: "tlb-invalidate",
        off: &[("cost.tlb-invalidate", "0")],
        on: &[("cost.tlb-invalidate", "237")],
        models: ALL,
        source: "cxl: one page with hot caches, I. Molnar, linux-mm, 8 June 2015",
    },
    Extension {
        name: "fence",
        off: &[("cost.fence", "0")],
        on: &[("cost.fence", "33")],
        models: ALL,
        source: "cxl: MFENCE on Skylake, A. Fog",
    },
    Extension {
        name: "doorbell",
        off: &[("cost.doorbell", "0")],
        on: &[
            ("x86_64.cost.doorbell", "145"),
            ("aarch64.cost.doorbell", "138"),
        ],
        models: ALL,
        source: "cxl: one way over the link, 69 ns; composed",
    },
    Extension {
        name: "hop",
        off: &[("snoop.hop", "0")],
        on: &[("x86_64.snoop.hop", "145"), ("aarch64.snoop.hop", "138")],
        models: ALL,
        source: "cxl: one way over the link, 69 ns; composed. The base's own price of a snoop stays",
    },
    Extension {
        name: "home",
        off: &[("snoop.home", "0")],
        on: &[("x86_64.snoop.home", "137"), ("aarch64.snoop.home", "130")],
        models: ALL,
        source: "cascade-lake: 176 - 111 ns, Intel Memory Latency Checker",
    },
    Extension {
        name: "through-home",
        off: &[("snoop.through-home", "0")],
        on: &[("snoop.through-home", "1")],
        models: ALL,
        source: "cxl: hosts exchange nothing directly",
    },
    Extension {
        name: "sibling",
        off: &[("snoop.sibling", "0")],
        on: &[
            ("x86_64.snoop.sibling", "66"),
            ("aarch64.snoop.sibling", "63"),
        ],
        models: ALL,
        source: "cxl: 51.7 ns less the last level, Intel Memory Latency Checker. Nodes with one CPU have no siblings",
    },
    Extension {
        name: "per-sharer",
        off: &[("snoop.per-sharer", "0")],
        on: &[
            ("x86_64.snoop.per-sharer", "46"),
            ("aarch64.snoop.per-sharer", "44"),
        ],
        models: ALL,
        source: "composed: as snoop.inv of cxl, 22 ns. A pair has no further sharer",
    },
    Extension {
        name: "writeback",
        off: &[("snoop.writeback", "0")],
        on: &[
            ("x86_64.snoop.writeback", "145"),
            ("aarch64.snoop.writeback", "138"),
        ],
        models: ALL,
        source: "composed: one way over the link, 69 ns, as if the CPU waited for it; no profile prices it",
    },
    Extension {
        name: "filter",
        off: &[("filter.entries", "0")],
        on: &[("filter.entries", "65536")],
        models: &[Shared, Pool],
        source: "dyad: tags for the lines of one node's last level (4 MiB), half of what both hold; published devices do not say",
    },
    Extension {
        name: "hidden-hits",
        off: &[("overlap.l1", "0")],
        on: &[("overlap.l1", "4")],
        models: ALL,
        source: "dyad: all of a hit in the first level, which out-of-order CPUs hide unless its value is needed at once",
    },
    Extension {
        name: "window",
        off: &[("overlap.window", "0"), ("overlap.misses", "0")],
        on: &[("overlap.window", "224"), ("overlap.misses", "12")],
        models: ALL,
        source: "Skylake: reorder buffer and fill buffers, Intel optimization manual",
    },
    Extension {
        name: "store-buffer",
        off: &[("overlap.stores", "0")],
        on: &[("overlap.stores", "56")],
        models: ALL,
        source: "Skylake: store buffer, Intel optimization manual",
    },
    Extension {
        name: "prefetch",
        off: &[("prefetch.streams", "0"), ("prefetch.ahead", "0")],
        on: &[("prefetch.streams", "32"), ("prefetch.ahead", "32")],
        models: ALL,
        source: "32 streams, Intel optimization manual; 32 lines, which is what 23 ns a line behind 750 ns take, Beluga (arXiv 2511.20172)",
    },
    Extension {
        name: "tlb",
        off: &[
            ("tlb.entries", "0"),
            ("tlb.ways", "0"),
            ("tlb.l2-entries", "0"),
            ("tlb.l2-ways", "0"),
            ("tlb.l2-latency", "0"),
            ("tlb.walk-entries", "0"),
        ],
        on: &[
            ("tlb.entries", "64"),
            ("tlb.ways", "4"),
            ("tlb.l2-entries", "1536"),
            ("tlb.l2-ways", "12"),
            ("tlb.l2-latency", "9"),
            ("tlb.walk-entries", "32"),
        ],
        models: ALL,
        source: "Skylake: Intel optimization manual; latency from secondary sources; entries of upper levels: dyad, vendors do not say",
    },
    Extension {
        name: "query",
        off: &[("l3.query", "0")],
        on: &[("l3.query", "1")],
        models: ALL,
        source: "query-based selection of what an inclusive last level evicts, Jaleel et al. (MICRO '10)",
    },
    Extension {
        name: "bandwidth",
        off: &[
            ("bandwidth.memory", "0"),
            ("bandwidth.device", "0"),
            ("bandwidth.link", "0"),
        ],
        on: &[
            ("bandwidth.memory", "38400"),
            ("bandwidth.device", "17664"),
            ("bandwidth.link", "46200"),
        ],
        models: ALL,
        source: "a channel of DDR5, and 46 % of it, Sun et al. (MICRO '23); an adapter's read, Beluga (arXiv 2511.20172)",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_launcher::sim::keys::{self, Place};
    use dyad_launcher::sim::{Layer, Profile, Setup, System};
    use dyad_sim_model::config::{Level, SimConfig};

    fn config(profile: &str, sets: &[&[(&str, &str)]]) -> SimConfig {
        let layer = |set: &&[(&str, &str)]| Layer {
            source: "test".into(),
            strict: true,
            entries: set
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
        };
        let setup = Setup {
            profile: Profile::load(profile).unwrap(),
            set: sets.iter().map(layer).collect(),
            ..Setup::default()
        };
        setup.resolve(Level::Timing, &System::default()).unwrap()
    }

    #[test]
    fn an_extension_changes_what_it_says_and_nothing_else() {
        let base = config(PROFILE, &[]);
        for e in EXTENSIONS {
            // The base profile has none of them.
            assert_eq!(config(PROFILE, &[e.off]), base, "{}", e.name);
            assert_ne!(config(PROFILE, &[e.on]), base, "{}", e.name);
            assert_eq!(config(PROFILE, &[e.on, e.off]), base, "{}", e.name);
            assert!(!e.source.is_empty() && !e.models.is_empty(), "{}", e.name);
            let others = EXTENSIONS.iter().filter(|o| o.name == e.name);
            assert_eq!(others.count(), 1, "{}", e.name);
        }
    }

    /// Figures that are said to be of a profile are that profile's: the same cycles, or the same time.
    #[test]
    fn figures_are_those_of_their_sources() {
        let base = config(PROFILE, &[]);
        for e in EXTENSIONS {
            let profiles = ["cxl", "cascade-lake"];
            let of = profiles.iter().find(|p| e.source.starts_with(**p));
            let Some(profile) = of else { continue };
            let theirs = config(profile, &[]);
            let ours = config(PROFILE, &[e.on]);
            for (name, _) in e.off {
                let (keys, ..) = keys::find(name).unwrap();
                let Place::Node(get, _) = keys[0].place else {
                    panic!("{name} is the system's")
                };
                for node in 0..2 {
                    let value = |c: &SimConfig| get(&c.nodes[node]).unwrap();
                    let (here, there) = (value(&ours), value(&theirs));
                    let ps = there * theirs.nodes[node].cycle_ps;
                    let same_time = here.abs_diff(ps / base.nodes[node].cycle_ps) <= 1;
                    assert!(here == there || same_time, "{name}: {here}, {there}");
                }
            }
        }
    }
}
