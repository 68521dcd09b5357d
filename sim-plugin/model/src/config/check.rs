//! Checks whether a configuration can be simulated. The launcher calls them before a run, the plugin before
//! it begins.

use std::fmt;

use dyad_abi::ident::{MAX_CPUS, MAX_NODES};

use super::{
    CacheShape, FILTER_WAYS, LINE_BYTES, MemoryModel, NodeConfig, SLACK_NS, SimConfig, TlbConfig,
};

/// Most lines per set.
pub const MAX_WAYS: u32 = 64;

/// The reason why a configuration cannot be simulated: a sentence that names the settings and says which
/// values are possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

fn require(holds: bool, why: impl FnOnce() -> String) -> Result<(), ConfigError> {
    if holds {
        Ok(())
    } else {
        Err(ConfigError(why()))
    }
}

impl SimConfig {
    /// Checks everything that the simulator relies on.
    ///
    /// # Errors
    ///
    /// The first error in the configuration.
    pub fn check(&self) -> Result<(), ConfigError> {
        require((1..=MAX_NODES).contains(&self.nodes.len()), || {
            format!("{} nodes: possible are 1 to {MAX_NODES}", self.nodes.len())
        })?;
        for (i, node) in self.nodes.iter().enumerate() {
            node.check(i)?;
        }
        self.check_shared_level()?;
        self.check_pools()?;
        self.check_filter()?;
        let c = self.clock;
        require(c.quantum_ns > 0, || {
            "clock.quantum is 0; possible is 1ns and more".into()
        })?;
        let least = c
            .quantum_ns
            .saturating_add(c.lag_ns)
            .saturating_add(SLACK_NS);
        require(c.ipi_ns >= least, || {
            format!(
                "ipi.latency is {} ns, but a doorbell must take at least clock.quantum + clock.lag \
                 + {SLACK_NS} ns = {least} ns, so that its receiver is not past its time already: \
                 use a longer ipi.latency, or a shorter clock.quantum or clock.lag",
                c.ipi_ns
            )
        })
    }

    /// In the fully-shared model there is one last level for all.
    fn check_shared_level(&self) -> Result<(), ConfigError> {
        let first = self.nodes[0].l3;
        let other = self.nodes.iter().position(|n| n.l3 != first);
        match (self.model, other) {
            (MemoryModel::FullyShared, Some(i)) => Err(ConfigError(format!(
                "l3 of node 0 ({} bytes, {} ways) and of node {i} ({} bytes, {} ways) differ, but \
                 in the fully-shared model all nodes share one: set l3.size and l3.ways for all \
                 nodes at once",
                first.size, first.ways, self.nodes[i].l3.size, self.nodes[i].l3.ways
            ))),
            _ => Ok(()),
        }
    }

    /// A filter has whole sets, and a device to be in.
    fn check_filter(&self) -> Result<(), ConfigError> {
        let (entries, ways) = (self.filter_entries, u64::from(FILTER_WAYS));
        if entries == 0 {
            return Ok(());
        }
        let device = matches!(self.model, MemoryModel::Shared | MemoryModel::Pool);
        require(device, || {
            format!(
                "filter.entries is {entries}, but in the {} model no memory is a device's: use \
                 --model shared or pool, or set filter.entries to 0",
                self.model.name()
            )
        })?;
        let sets = entries / ways;
        require(
            entries.is_multiple_of(ways) && sets.is_power_of_two(),
            || {
                format!(
                    "filter.entries is {entries}; possible are 0 and {ways} times a power of two"
                )
            },
        )
    }

    fn check_pools(&self) -> Result<(), ConfigError> {
        require(self.pools.len() == self.nodes.len() + 1, || {
            format!(
                "{} pools for {} nodes: there is one for each node, and the CXL pool",
                self.pools.len(),
                self.nodes.len()
            )
        })?;
        let mut above = 0u64;
        for (i, pool) in self.pools.iter().enumerate() {
            let end = pool.base.checked_add(pool.size);
            let aligned = pool.base.is_multiple_of(LINE_BYTES)
                && pool.size.is_multiple_of(LINE_BYTES)
                && pool.size > 0;
            let (true, Some(end)) = (aligned && pool.base >= above, end) else {
                return Err(ConfigError(format!(
                    "pool {i} at {:#x} with {:#x} bytes: pools consist of whole lines of \
                     {LINE_BYTES} bytes, and come in the order of their addresses without overlap",
                    pool.base, pool.size
                )));
            };
            above = end;
        }
        Ok(())
    }
}

impl NodeConfig {
    fn check(&self, i: usize) -> Result<(), ConfigError> {
        require(self.isa().is_some(), || {
            format!("node {i}: there is no ISA {:?}", self.isa)
        })?;
        require((1..=MAX_CPUS).contains(&self.cpus), || {
            format!("node {i}: {} CPUs; possible are 1 to {MAX_CPUS}", self.cpus)
        })?;
        require(self.instruction_ps() > 0, || {
            format!(
                "node {i}: an instruction takes {} cycles / 1000 of {} ps, which is less than a \
                 picosecond: use a larger cpi or a smaller ghz",
                self.cpi_milli, self.cycle_ps
            )
        })?;
        let levels = [
            ("l1i", self.l1i),
            ("l1d", self.l1d),
            ("l2", self.l2),
            ("l3", self.l3),
        ];
        for (name, shape) in levels {
            shape.check(i, name)?;
        }
        self.tlb.check(i)?;
        // Lines go through all levels, so one that is smaller than the one above it could only
        // hold what is there too.
        for (upper, lower) in [(0, 2), (1, 2), (2, 3)] {
            let ((upper, up), (lower, low)) = (levels[upper], levels[lower]);
            require(low.size >= up.size, || {
                format!(
                    "node {i}: {lower}.size of {} bytes is less than {upper}.size of {}; a level \
                     must be at least as large as the one above it: enlarge {lower}.size or \
                     reduce {upper}.size",
                    low.size, up.size
                )
            })?;
        }
        Ok(())
    }
}

impl TlbConfig {
    fn check(self, node: usize) -> Result<(), ConfigError> {
        let levels = [
            ("tlb.entries", self.entries, "tlb.ways", self.ways),
            (
                "tlb.l2-entries",
                self.l2_entries,
                "tlb.l2-ways",
                self.l2_ways,
            ),
        ];
        for (name, entries, of_ways, ways) in levels {
            let whole = ways != 0 && entries.is_multiple_of(ways);
            require(
                entries == 0 || (whole && (entries / ways).is_power_of_two()),
                || {
                    format!(
                        "node {node}: {name} is {entries} and {of_ways} is {ways}; possible are 0 entries, and \
                         {of_ways} times a power of two"
                    )
                },
            )?;
        }
        let below = [
            ("tlb.l2-entries", self.l2_entries),
            ("tlb.walk-entries", self.walk_entries),
        ];
        for (name, n) in below {
            require(n == 0 || self.is_on(), || {
                format!(
                    "node {node}: {name} is {n}, but tlb.entries is 0, with which translations are free: set \
                     tlb.entries, or {name} to 0"
                )
            })?;
        }
        Ok(())
    }
}

impl CacheShape {
    fn check(self, node: usize, name: &str) -> Result<(), ConfigError> {
        let CacheShape { size, ways } = self;
        require((1..=MAX_WAYS).contains(&ways), || {
            format!("node {node}: {name}.ways is {ways}; possible are 1 to {MAX_WAYS}")
        })?;
        let set = u64::from(ways) * LINE_BYTES;
        let fits = size.is_multiple_of(set) && (size / set).is_power_of_two();
        require(fits, || {
            let below = match size / set {
                0 => set,
                sets => (1 << sets.ilog2()) * set,
            };
            let above = if below > size { below } else { below * 2 };
            format!(
                "node {node}: {name}.size of {size} bytes with {name}.ways {ways} is not possible: \
                 the number of sets, size / (ways * {LINE_BYTES}), must be a power of two. Nearest \
                 sizes for {ways} ways: {}{above} bytes",
                if below < size {
                    format!("{below} and ")
                } else {
                    String::new()
                }
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        Bandwidths, ClockConfig, Coherence, Latencies, Level, Order, Pool, SnoopCosts, SystemCosts,
    };

    fn good() -> SimConfig {
        let shape = |size, ways| CacheShape { size, ways };
        let node = |isa: &str| NodeConfig {
            isa: isa.into(),
            cpus: 1,
            cycle_ps: 500,
            cpi_milli: 1000,
            l1i: shape(32 << 10, 8),
            l1d: shape(32 << 10, 8),
            l2: shape(1 << 20, 16),
            l3: shape(4 << 20, 16),
            l3_query: false,
            latency: Latencies {
                l1: 4,
                l2: 9,
                l3: 30,
                local: 300,
                remote: 620,
                pool: 545,
            },
            snoop: SnoopCosts {
                data: 70,
                inv: 70,
                back: 70,
                forward: None,
                writeback: 0,
                ..SnoopCosts::default()
            },
            cost: SystemCosts::default(),
            overlap: crate::overlap::OverlapConfig::default(),
            tlb: TlbConfig::default(),
        };
        let pool = |base, size| Pool { base, size };
        SimConfig {
            level: Level::Timing,
            model: MemoryModel::Shared,
            coherence: Coherence::Coherent,
            profile: "test".into(),
            nodes: vec![node("x86_64"), node("aarch64")],
            pools: vec![
                pool(4 << 30, 1 << 30),
                pool(5 << 30, 1 << 30),
                pool(8 << 30, 1 << 30),
            ],
            clock: ClockConfig {
                quantum_ns: 500,
                lag_ns: 500,
                ipi_ns: 2000,
                order: Order::Parallel,
            },
            message_ns: 75_000,
            message_kib_ns: 0,
            filter_entries: 0,
            bandwidth: Bandwidths::default(),
        }
    }

    #[test]
    fn what_is_impossible_is_said_with_what_is_possible() {
        type Change = fn(&mut SimConfig);
        assert_eq!(good().check(), Ok(()));
        let bad: [(Change, &str); 22] = [
            (|c| c.nodes.clear(), "0 nodes: possible are 1 to 8"),
            (|c| c.nodes[1].cpus = 9, "node 1: 9 CPUs"),
            (|c| c.nodes[0].isa = "riscv".into(), "\"riscv\""),
            (|c| c.nodes[0].cpi_milli = 1, "larger cpi"),
            (
                |c| c.nodes[0].l2.ways = 0,
                "l2.ways is 0; possible are 1 to 64",
            ),
            (|c| c.nodes[0].l3.ways = 65, "l3.ways is 65"),
            (
                |c| c.nodes[1].l1d.size = 48 << 10,
                "node 1: l1d.size of 49152 bytes with l1d.ways 8 is not possible: the number of \
                 sets, size / (ways * 64), must be a power of two. Nearest sizes for 8 ways: \
                 32768 and 65536 bytes",
            ),
            (
                |c| c.nodes[0].l1i.size = 64,
                "Nearest sizes for 8 ways: 512 bytes",
            ),
            (
                |c| c.nodes[0].l2.size = 8 << 20,
                "l3.size of 4194304 bytes is less than l2.size of 8388608",
            ),
            (|c| c.nodes[0].l1i.size = 2 << 20, "reduce l1i.size"),
            (|c| c.clock.quantum_ns = 0, "clock.quantum is 0"),
            (
                |c| c.clock.ipi_ns = 1999,
                "clock.quantum + clock.lag + 1000 ns = 2000 ns",
            ),
            (|c| c.clock.lag_ns = u64::MAX, "shorter clock.quantum"),
            (
                |c| {
                    c.model = MemoryModel::FullyShared;
                    c.nodes[1].l3.size = 8 << 20;
                },
                "set l3.size and l3.ways for all nodes",
            ),
            (
                |c| (c.nodes[1].tlb.entries, c.nodes[1].tlb.ways) = (48, 4),
                "node 1: tlb.entries is 48 and tlb.ways is 4; possible are 0 entries, and tlb.ways times",
            ),
            (
                |c| c.nodes[0].tlb.entries = 64,
                "tlb.ways is 0; possible are 0 entries",
            ),
            (
                |c| c.nodes[0].tlb.walk_entries = 4,
                "tlb.walk-entries is 4, but tlb.entries is 0",
            ),
            (|c| c.pools.truncate(2), "2 pools for 2 nodes"),
            (|c| c.pools[1].base -= 64, "pool 1"),
            (
                |c| c.filter_entries = 12,
                "filter.entries is 12; possible are 0 and 8 times",
            ),
            (|c| c.filter_entries = 24, "filter.entries is 24"),
            (
                |c| (c.model, c.filter_entries) = (MemoryModel::Separated, 8),
                "in the separated model",
            ),
        ];
        for (change, why) in bad {
            let mut c = good();
            change(&mut c);
            let e = c.check().unwrap_err().to_string();
            assert!(e.contains(why), "{why:?} not in {e:?}");
        }
        let mut c = good();
        c.model = MemoryModel::FullyShared;
        (c.nodes[0].l1d.size, c.nodes[0].l1d.ways) = (64, 1);
        (c.nodes[1].l2, c.nodes[1].l1i) = (c.nodes[1].l3, c.nodes[1].l3);
        assert_eq!(c.check(), Ok(()));
        (c.nodes[0].l1d.size, c.nodes[0].l1d.ways) = (48 << 10, 12);
        assert_eq!(c.check(), Ok(()));
    }

    #[test]
    fn names_are_those_of_the_json_form() {
        fn check<T: serde::Serialize>(all: &[T], name: impl Fn(&T) -> &'static str) {
            for x in all {
                assert_eq!(serde_json::to_value(x).unwrap(), name(x));
            }
        }
        check(&Level::ALL, |x| x.name());
        check(&MemoryModel::ALL, |x| x.name());
        check(&Coherence::ALL, |x| x.name());
        let c = good();
        let text = serde_json::to_string(&c).unwrap();
        assert_eq!(serde_json::from_str::<SimConfig>(&text).unwrap(), c);
    }
}
