//! The settings of a simulation that have a number: their names, units, ranges, and where in the
//! configuration they are.
//!
//! Profiles, configuration files and `--set` all use these keys; there is no other way to set a
//! number, so [`KEYS`] is the list of all.

use dyad_sim_model::config::{Level, MAX_WAYS, NodeConfig, SimConfig};

use dyad_abi::Isa;

use crate::{size, suggest};

/// What a key's value is, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes: `32KiB`.
    Size,
    /// A whole number.
    Number,
    /// Cycles of the node.
    Cycles,
    /// Cycles of the node, or `memory`: the latency of the memory that the line is in.
    CyclesOrMemory,
    /// A clock rate in GHz with up to three decimals; kept as picoseconds per cycle.
    Ghz,
    /// A number with up to three decimals; kept in thousandths.
    Thousandths,
    /// Simulated time: `500ns`, `2us`, `1ms`; kept in nanoseconds.
    Time,
    /// A bandwidth in MB/s (10^6 bytes a second); 0 is none.
    Bandwidth,
}

/// Whose setting a key is, and where it is kept. `None` is a number that was left to the model.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Each node's.
    Node(
        fn(&NodeConfig) -> Option<u64>,
        fn(&mut NodeConfig, Option<u64>),
    ),
    /// The system's.
    System(
        fn(&SimConfig) -> Option<u64>,
        fn(&mut SimConfig, Option<u64>),
    ),
    /// It cannot be changed.
    Fixed(u64),
}

/// A key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name, without node.
    pub name: &'static str,
    /// What its value is.
    pub unit: Unit,
    /// Least value, as it is kept (see [`Unit`]).
    pub least: u64,
    /// Largest value, as it is kept.
    pub most: u64,
    /// From which level on it matters.
    pub from: Level,
    /// What it is.
    pub about: &'static str,
    /// Where it is kept.
    pub place: Place,
}

macro_rules! node_key {
    ($name:literal, $unit:expr, $range:expr, $from:expr, $about:literal, |$n:ident| $field:expr) => {
        Key {
            name: $name,
            unit: $unit,
            least: *$range.start(),
            most: *$range.end(),
            from: $from,
            about: $about,
            place: Place::Node(
                |$n| Some($field.into()),
                |$n, value| {
                    // The range of the key is within that of the field.
                    $field = value.unwrap_or_default().try_into().unwrap_or_default();
                },
            ),
        }
    };
}

macro_rules! system_key {
    ($name:literal, $range:expr, $from:expr, $about:literal, |$s:ident| $field:expr) => {
        Key {
            name: $name,
            unit: Unit::Time,
            least: *$range.start(),
            most: *$range.end(),
            from: $from,
            about: $about,
            place: Place::System(
                |$s| Some($field),
                |$s, value| $field = value.unwrap_or_default(),
            ),
        }
    };
}

macro_rules! bandwidth_key {
    ($name:literal, $about:literal, |$s:ident| $field:expr) => {
        Key {
            name: $name,
            unit: Unit::Bandwidth,
            least: 0,
            most: 1_000_000,
            from: Level::Timing,
            about: $about,
            place: Place::System(
                |$s| Some($field),
                |$s, value| $field = value.unwrap_or_default(),
            ),
        }
    };
}

const SIZES: std::ops::RangeInclusive<u64> = 64..=1 << 30;
const WAYS: std::ops::RangeInclusive<u64> = 1..=MAX_WAYS as u64;
const CYCLES: std::ops::RangeInclusive<u64> = 0..=1_000_000;
const ENTRIES: std::ops::RangeInclusive<u64> = 0..=1 << 16;
const ONE_SECOND: u64 = 1_000_000_000;

/// All keys.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    // Picoseconds per cycle: 10 GHz to 0.1 GHz.
    node_key!("ghz", Unit::Ghz, 100..=10_000, Level::Count,
        "clock rate; turns cycles into time", |n| n.cycle_ps),
    node_key!("cpi", Unit::Thousandths, 1..=1_000_000, Level::Count,
        "cycles per instruction, without memory", |n| n.cpi_milli),
    node_key!("l1i.size", Unit::Size, SIZES, Level::Cache,
        "first level for instructions, of each CPU", |n| n.l1i.size),
    node_key!("l1i.ways", Unit::Number, WAYS, Level::Cache, "its lines per set", |n| n.l1i.ways),
    node_key!("l1d.size", Unit::Size, SIZES, Level::Cache,
        "first level for data, of each CPU", |n| n.l1d.size),
    node_key!("l1d.ways", Unit::Number, WAYS, Level::Cache, "its lines per set", |n| n.l1d.ways),
    node_key!("l2.size", Unit::Size, SIZES, Level::Cache,
        "second level, of each CPU", |n| n.l2.size),
    node_key!("l2.ways", Unit::Number, WAYS, Level::Cache, "its lines per set", |n| n.l2.ways),
    node_key!("l3.size", Unit::Size, SIZES, Level::Cache,
        "last level, of the node (fully-shared: of all nodes)", |n| n.l3.size),
    node_key!("l3.ways", Unit::Number, WAYS, Level::Cache, "its lines per set", |n| n.l3.ways),
    Key {
        name: "l3.query", unit: Unit::Number, least: 0, most: 1, from: Level::Cache,
        about: "1: it does not evict a line that the CPU which needs the way has in its own levels",
        place: Place::Node(
            |n| Some(n.l3_query.into()),
            |n, value| n.l3_query = value == Some(1),
        ),
    },
    Key {
        name: "line.size", unit: Unit::Size, least: LINE, most: LINE, from: Level::Cache,
        about: "bytes of a line", place: Place::Fixed(LINE),
    },
    node_key!("latency.l1", Unit::Cycles, CYCLES, Level::Cache,
        "until data is there, found in the first level", |n| n.latency.l1),
    node_key!("latency.l2", Unit::Cycles, CYCLES, Level::Cache,
        "found in the second level", |n| n.latency.l2),
    node_key!("latency.l3", Unit::Cycles, CYCLES, Level::Cache,
        "found in the last level", |n| n.latency.l3),
    node_key!("latency.local", Unit::Cycles, CYCLES, Level::Cache,
        "from memory near the node", |n| n.latency.local),
    node_key!("latency.remote", Unit::Cycles, CYCLES, Level::Cache,
        "from another node's memory, behind the link", |n| n.latency.remote),
    node_key!("latency.pool", Unit::Cycles, CYCLES, Level::Cache,
        "from the CXL pool, where it is a device behind the link", |n| n.latency.pool),
    node_key!("snoop.data", Unit::Cycles, CYCLES, Level::Cache,
        "SnpData: a read meets another node's exclusive copy", |n| n.snoop.data),
    node_key!("snoop.inv", Unit::Cycles, CYCLES, Level::Cache,
        "SnpInv: a write or flush takes the copy of another node away", |n| n.snoop.inv),
    node_key!("snoop.per-sharer", Unit::Cycles, CYCLES, Level::Cache,
        "each further node whose copy is taken away", |n| n.snoop.per_sharer),
    node_key!("snoop.hop", Unit::Cycles, CYCLES, Level::Cache,
        "a message of the protocol, one way over the link", |n| n.snoop.hop),
    node_key!("snoop.home", Unit::Cycles, CYCLES, Level::Cache,
        "the own node is the line's home, and looks up who has it", |n| n.snoop.home),
    Key {
        name: "snoop.through-home", unit: Unit::Number, least: 0, most: 1, from: Level::Cache,
        about: "1: who is asked answers over the line's home, where modified lines are written",
        place: Place::Node(
            |n| Some(n.snoop.through_home.into()),
            |n, value| n.snoop.through_home = value == Some(1),
        ),
    },
    node_key!("snoop.sibling", Unit::Cycles, CYCLES, Level::Cache,
        "other CPUs of the node are asked, beyond the last level", |n| n.snoop.sibling),
    node_key!("snoop.back", Unit::Cycles, CYCLES, Level::Cache,
        "the last level asks the caches above it to drop a line that it evicts", |n| n.snoop.back),
    Key {
        name: "snoop.forward", unit: Unit::CyclesOrMemory, least: 0, most: *CYCLES.end(),
        from: Level::Cache,
        about: "a modified line comes from its owner instead of memory",
        place: Place::Node(|n| n.snoop.forward, |n, value| n.snoop.forward = value),
    },
    node_key!("snoop.writeback", Unit::Cycles, CYCLES, Level::Cache,
        "a modified line is written back: evicted, flushed, or read by another node", |n| n.snoop.writeback),
    node_key!("cost.trap", Unit::Cycles, CYCLES, Level::Cache,
        "an entry into the kernel, beyond its instruction: system call, fault, interrupt", |n| n.cost.trap),
    node_key!("cost.return", Unit::Cycles, CYCLES, Level::Cache,
        "a return from the kernel, beyond its instruction", |n| n.cost.ret),
    node_key!("cost.root-switch", Unit::Cycles, CYCLES, Level::Cache,
        "a write of CR3 or TTBR, beyond its instruction", |n| n.cost.root_switch),
    node_key!("cost.tlb-invalidate", Unit::Cycles, CYCLES, Level::Cache,
        "INVLPG, INVPCID, TLBI, beyond the instruction", |n| n.cost.tlb_invalidate),
    node_key!("cost.fence", Unit::Cycles, CYCLES, Level::Cache,
        "MFENCE, DSB, ISB, beyond the instruction", |n| n.cost.fence),
    node_key!("cost.doorbell", Unit::Cycles, CYCLES, Level::Cache,
        "a doorbell, of the CPU that rings it", |n| n.cost.doorbell),
    node_key!("overlap.l1", Unit::Cycles, CYCLES, Level::Timing,
        "what other work hides of a hit in the first level", |n| n.overlap.l1),
    node_key!("overlap.window", Unit::Number, 0..=4096, Level::Timing,
        "instructions executed past the oldest load under way; 0: none", |n| n.overlap.window),
    node_key!("overlap.misses", Unit::Number, 0..=256, Level::Timing,
        "loads under way that have missed", |n| n.overlap.misses),
    node_key!("overlap.stores", Unit::Number, 0..=256, Level::Timing,
        "stores under way that have missed; 0: each is waited for", |n| n.overlap.stores),
    node_key!("prefetch.streams", Unit::Number, 0..=64, Level::Timing,
        "streams of lines that are noticed; 0: no line is asked for in advance", |n| n.overlap.streams),
    node_key!("prefetch.ahead", Unit::Number, 0..=256, Level::Timing,
        "lines of a stream under way", |n| n.overlap.ahead),
    node_key!("tlb.entries", Unit::Number, ENTRIES, Level::Cache,
        "entries of the first TLB, for data and for instructions each; 0: translations are free", |n| n.tlb.entries),
    node_key!("tlb.ways", Unit::Number, ENTRIES, Level::Cache, "its entries per set", |n| n.tlb.ways),
    node_key!("tlb.l2-entries", Unit::Number, ENTRIES, Level::Cache,
        "entries of the second TLB, for both; 0: there is none", |n| n.tlb.l2_entries),
    node_key!("tlb.l2-ways", Unit::Number, ENTRIES, Level::Cache, "its entries per set", |n| n.tlb.l2_ways),
    node_key!("tlb.l2-latency", Unit::Cycles, CYCLES, Level::Cache,
        "a translation that the second TLB has", |n| n.tlb.l2_latency),
    node_key!("tlb.walk-entries", Unit::Number, 0..=1024, Level::Cache,
        "entries of upper levels of page tables that walks need not load; 0: none", |n| n.tlb.walk_entries),
    Key {
        name: "filter.entries", unit: Unit::Number, least: 0, most: 1 << 24, from: Level::Cache,
        about: "lines that the filter of the CXL device has tags for; 0: for all",
        place: Place::System(
            |s| Some(s.filter_entries),
            |s, value| s.filter_entries = value.unwrap_or_default(),
        ),
    },
    bandwidth_key!("bandwidth.memory", "of the memory of each node; 0: no limit", |s| s.bandwidth.memory),
    bandwidth_key!("bandwidth.device", "of the memory of the CXL device; 0: no limit", |s| s.bandwidth.device),
    bandwidth_key!("bandwidth.link", "of the link of each node, in each direction; 0: no limit", |s| s.bandwidth.link),
    system_key!("clock.quantum", 10..=1_000_000, Level::Count,
        "how often a node looks at the others", |s| s.clock.quantum_ns),
    system_key!("clock.lag", 0..=1_000_000, Level::Count,
        "how far a node may be ahead of the slowest busy one", |s| s.clock.lag_ns),
    system_key!("ipi.latency", 0..=ONE_SECOND, Level::Count,
        "from ringing a doorbell to the interrupt", |s| s.clock.ipi_ns),
    system_key!("message.round-trip", 0..=ONE_SECOND, Level::Count,
        "of a message over a network, with --transport tcp", |s| s.message_ns),
    system_key!("message.kib", 0..=ONE_SECOND, Level::Count,
        "what a KiB of contents adds to a message over a network", |s| s.message_kib_ns),
];

const LINE: u64 = dyad_sim_model::config::LINE_BYTES;

/// Names that stand for several keys.
pub const ALIASES: &[(&str, &[&str])] = &[
    ("l1.size", &["l1i.size", "l1d.size"]),
    ("l1.ways", &["l1i.ways", "l1d.ways"]),
];

/// Which nodes a setting is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All.
    All,
    /// Those of an ISA, by index.
    Isa(usize),
    /// One.
    Node(usize),
}

/// Finds what a key with or without a node names: keys, whether by an alias, and for which nodes.
///
/// # Errors
///
/// A sentence that names the nearest key.
pub fn find(text: &str) -> Result<(Vec<&'static Key>, bool, Scope), String> {
    let (scope, name) = scope(text)?;
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let names = alias.map_or(vec![name], |(_, names)| names.to_vec());
    let keys: Vec<&Key> = names
        .iter()
        .filter_map(|name| KEYS.iter().find(|k| k.name == *name))
        .collect();
    if keys.is_empty() {
        let all = KEYS.iter().map(|k| k.name);
        let near = suggest::nearest(name, all.chain(ALIASES.iter().map(|(alias, _)| *alias)));
        // ISAs have short names in keys, which are never printed.
        let prefix = match scope {
            Scope::Isa(n) => Isa::ALL.get(n).map_or("", |isa| isa.name()).to_owned() + ".",
            _ => text[..text.len() - name.len()].to_owned(),
        };
        return Err(format!(
            "unknown key {text:?}{}; `cargo xtask sim keys` lists all keys",
            near.map_or(String::new(), |n| format!(
                ": did you mean \"{prefix}{n}\"?"
            ))
        ));
    }
    if scope != Scope::All && !matches!(keys[0].place, Place::Node(..)) {
        return Err(format!(
            "{text}: {name} is the same for all nodes; write {name}"
        ));
    }
    Ok((keys, alias.is_some(), scope))
}

/// Splits off the node.
fn scope(text: &str) -> Result<(Scope, &str), String> {
    let Some((first, rest)) = text.split_once('.') else {
        return Ok((Scope::All, text));
    };
    Ok(match first {
        "x86_64" | "x86" => (Scope::Isa(Isa::X86_64.index()), rest),
        "aarch64" | "arm" => (Scope::Isa(Isa::Aarch64.index()), rest),
        _ => match first.strip_prefix("node").map(str::parse) {
            Some(Ok(n)) => (Scope::Node(n), rest),
            Some(Err(_)) => {
                return Err(format!(
                    "{text}: {first:?} is no node; write node0, node1 and so on"
                ));
            }
            None => (Scope::All, text),
        },
    })
}

impl Key {
    /// Reads a value: as it is kept.
    ///
    /// # Errors
    ///
    /// A sentence that says what is possible.
    pub fn parse(&self, text: &str) -> Result<Option<u64>, String> {
        let text = text.trim();
        let value = match self.unit {
            Unit::Size => size::parse(text).ok(),
            Unit::Number | Unit::Cycles | Unit::Bandwidth => number(text),
            Unit::CyclesOrMemory if text == "memory" => return Ok(None),
            Unit::CyclesOrMemory => number(text),
            Unit::Ghz => {
                // Megahertz to the nearest picosecond.
                let period = |mhz: u64| (1_000_000 + mhz / 2) / mhz;
                thousandths(text).filter(|mhz| *mhz > 0).map(period)
            }
            Unit::Thousandths => thousandths(text),
            Unit::Time => time(text),
        };
        let value = value.filter(|v| (self.least..=self.most).contains(v));
        value
            .map(Some)
            .ok_or_else(|| format!("cannot be {text:?}; possible is {}", self.range()))
    }

    /// What is possible.
    pub fn range(&self) -> String {
        if let Place::Fixed(only) = self.place {
            return format!("{} only", self.show(Some(only)));
        }
        // Short periods are high rates.
        let (lo, hi) = match self.unit {
            Unit::Ghz => (self.most, self.least),
            _ => (self.least, self.most),
        };
        let (lo, hi) = (self.show(Some(lo)), self.show(Some(hi)));
        match self.unit {
            Unit::Size => format!("{lo} to {hi}"),
            Unit::Number => format!("a whole number from {lo} to {hi}"),
            Unit::Cycles => format!("{lo} to {hi} cycles"),
            Unit::CyclesOrMemory => format!("{lo} to {hi} cycles, or memory"),
            Unit::Ghz | Unit::Thousandths => format!("{lo} to {hi}, with up to three decimals"),
            Unit::Bandwidth => format!("{lo} to {hi} MB/s"),
            Unit::Time => format!("a whole number with ns, us or ms, {lo} to {hi}"),
        }
    }

    /// Shows a value as people write it.
    pub fn show(&self, value: Option<u64>) -> String {
        let Some(value) = value else {
            return "memory".into();
        };
        match self.unit {
            Unit::Size => {
                let unit = [("GiB", 30), ("MiB", 20), ("KiB", 10)]
                    .into_iter()
                    .find(|(_, shift)| value > 0 && value.is_multiple_of(1 << shift));
                unit.map_or(value.to_string(), |(unit, shift)| {
                    format!("{}{unit}", value >> shift)
                })
            }
            Unit::Number | Unit::Cycles | Unit::CyclesOrMemory | Unit::Bandwidth => {
                value.to_string()
            }
            // Two decimals are as exact as a whole number of picoseconds is.
            Unit::Ghz => decimal((100_000 + value / 2) / value.max(1) * 10),
            Unit::Thousandths => decimal(value),
            Unit::Time => match value {
                0 => "0ns".into(),
                v if v.is_multiple_of(1_000_000) => format!("{}ms", v / 1_000_000),
                v if v.is_multiple_of(1000) => format!("{}us", v / 1000),
                v => format!("{v}ns"),
            },
        }
    }

    /// A value for programs: bytes, cycles, nanoseconds, decimals.
    pub fn plain(&self, value: Option<u64>) -> String {
        match (self.unit, value) {
            (Unit::Ghz | Unit::Thousandths, _) | (_, None) => self.show(value),
            (_, Some(value)) => value.to_string(),
        }
    }

    /// The value for a node, as people write it.
    pub fn of(&self, config: &SimConfig, node: usize) -> String {
        self.show(match self.place {
            Place::Node(get, _) => config.nodes.get(node).and_then(get),
            Place::System(get, _) => get(config),
            Place::Fixed(only) => Some(only),
        })
    }
}

fn number(text: &str) -> Option<u64> {
    text.replace('_', "").parse().ok()
}

/// A number with up to three decimals, in thousandths.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 3 {
        return None;
    }
    let part: u64 = format!("{part:0<3}").parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1000)?
        .checked_add(part)
}

/// Thousandths without needless zeros.
fn decimal(thousandths: u64) -> String {
    let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    let short = text.trim_end_matches('0');
    match short.strip_suffix('.') {
        Some(whole) => format!("{whole}.0"),
        None => short.to_string(),
    }
}

fn time(text: &str) -> Option<u64> {
    let (digits, unit) = [("ns", 1), ("us", 1000), ("ms", 1_000_000)]
        .into_iter()
        .find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)))?;
    number(digits.trim())?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> &'static Key {
        KEYS.iter().find(|k| k.name == name).unwrap()
    }

    #[test]
    fn values_are_read_and_shown() {
        for (name, text, kept, shown) in [
            ("l3.size", "32MiB", Some(32 << 20), "32MiB"),
            ("l3.size", "96", Some(96), "96"),
            ("l2.ways", "16", Some(16), "16"),
            ("ghz", "2.1", Some(476), "2.1"),
            ("ghz", "2", Some(500), "2.0"),
            ("ghz", "0.1", Some(10_000), "0.1"),
            ("cpi", "1.25", Some(1250), "1.25"),
            ("snoop.forward", "memory", None, "memory"),
            ("snoop.forward", "12", Some(12), "12"),
            ("latency.remote", "1_000", Some(1000), "1000"),
            ("clock.quantum", "500ns", Some(500), "500ns"),
            ("ipi.latency", "2 us", Some(2000), "2us"),
            ("message.round-trip", "1ms", Some(1_000_000), "1ms"),
            ("line.size", "64", Some(64), "64"),
            ("filter.entries", "8", Some(8), "8"),
            ("bandwidth.link", "38_400", Some(38_400), "38400"),
        ] {
            assert_eq!(key(name).parse(text), Ok(kept), "{name}={text}");
            assert_eq!(key(name).show(kept), shown, "{name}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        for (name, text, range) in [
            ("l3.size", "2GiB", "64 to 1GiB"),
            ("l3.size", "4MB", "64 to 1GiB"),
            ("l2.ways", "0", "a whole number from 1 to 64"),
            ("l2.ways", "65", "a whole number from 1 to 64"),
            ("l2.ways", "1.5", "a whole number from 1 to 64"),
            ("ghz", "0", "0.1 to 10.0, with up to three decimals"),
            ("ghz", "11", "0.1 to 10.0"),
            ("ghz", "2.1GHz", "0.1 to 10.0"),
            ("cpi", "1.0001", "0.001 to 1000.0"),
            ("cpi", ".5", "0.001 to 1000.0"),
            ("latency.l1", "-1", "0 to 1000000 cycles"),
            ("latency.l1", "memory", "0 to 1000000 cycles"),
            ("snoop.forward", "mem", "or memory"),
            ("clock.quantum", "500", "ns, us or ms, 10ns to 1ms"),
            ("clock.quantum", "2ms", "10ns to 1ms"),
            ("line.size", "128", "64 only"),
            ("filter.entries", "-8", "a whole number from 0 to 16777216"),
            ("bandwidth.link", "38.4GB/s", "0 to 1000000 MB/s"),
        ] {
            let e = key(name).parse(text).unwrap_err();
            assert!(e.contains(range) && e.contains(text), "{name}={text}: {e}");
        }
    }

    #[test]
    fn keys_are_found_with_and_without_a_node() {
        let names = |text: &str| {
            let (keys, alias, scope) = find(text).unwrap();
            let names: Vec<&str> = keys.iter().map(|k| k.name).collect();
            (names, alias, scope)
        };
        assert_eq!(names("l2.ways"), (vec!["l2.ways"], false, Scope::All));
        assert_eq!(names("x86.ghz"), (vec!["ghz"], false, Scope::Isa(0)));
        assert_eq!(names("aarch64.cpi"), (vec!["cpi"], false, Scope::Isa(1)));
        assert_eq!(
            names("arm.l1.size"),
            (vec!["l1i.size", "l1d.size"], true, Scope::Isa(1))
        );
        assert_eq!(
            names("node7.latency.l1"),
            (vec!["latency.l1"], false, Scope::Node(7))
        );
        for (text, words) in [
            ("l3.sise", "did you mean \"l3.size\"?"),
            (
                "arm.latency.remot",
                "did you mean \"aarch64.latency.remote\"?",
            ),
            ("l3", "unknown key \"l3\""),
            ("frequency-of-the-moon", "`cargo xtask sim keys` lists all"),
            ("node0.clock.lag", "the same for all nodes; write clock.lag"),
            ("x86.line.size", "write line.size"),
            ("nodeX.ghz", "write node0, node1"),
            ("", "unknown key \"\""),
        ] {
            let e = find(text).map(|_| ()).unwrap_err();
            assert!(e.contains(words), "{text}: {e}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = KEYS.iter().map(|k| k.name).collect();
        names.extend(ALIASES.iter().map(|(alias, _)| *alias));
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
