//! Counters, and where time went.

use std::ops::{Add, AddAssign, Sub, SubAssign};

use serde::{Deserialize, Serialize};

use crate::config::{Level, NodeConfig};
use crate::report::{self, Breakdown};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a CPU has done since its start. Regions of interest are differences. What hits is
        /// what was accessed and did not miss.
        ///
        /// A message is counted by the CPU whose access sends it.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Names of the counters, in their order.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Counters with these values, in the order of [`Self::NAMES`].
            pub fn of(mut next: impl FnMut() -> u64) -> Counters {
                Counters { $($name: next(),)* }
            }

            /// The counters, in the order of [`Self::NAMES`].
            pub fn values(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// Gives their values alone, in the same order.
            #[inline(always)]
            pub fn each(&self, mut take: impl FnMut(u64)) {
                $(take(self.$name);)*
            }
        }

        impl AddAssign for Counters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        impl SubAssign for Counters {
            fn sub_assign(&mut self, other: Self) {
                $(self.$name -= other.$name;)*
            }
        }
    };
}

counters! {
    /// Instructions. The driver of the model counts them.
    instructions,
    /// Lines of instructions fetched.
    fetches,
    /// Lines loaded from.
    loads,
    /// Lines stored to.
    stores,
    /// Lines read, modified and written in one.
    rmws,
    /// Those of the three that are the second line of an access that spans two.
    split,
    /// Misses of the first level, instructions.
    l1i_misses,
    /// Misses of the first level, data.
    l1d_misses,
    /// Misses of the second level.
    l2_misses,
    /// Misses of the last level: each is served by one of the three kinds of memory or by another cache.
    l3_misses,
    /// Lines from near memory.
    local,
    /// Lines from another node's memory.
    remote,
    /// Lines from the CXL pool, where it is a device.
    pool,
    /// Lines from the cache of another node that had modified them.
    forwarded,
    /// SnpData: reads that met another node's exclusive or modified copy.
    snp_data,
    /// SnpInv: copies of other nodes taken away.
    snp_inv,
    /// Writes and flushes that took at least one copy of another node away.
    invalidations,
    /// Evictions and flushes for which the last level asked the caches above it to drop a line.
    inclusion_snoops,
    /// Copies that evictions from the last level removed from this CPU's own levels.
    inclusion_victims,
    /// Lines that the device took away from all nodes, because its filter had no tag left for them.
    back_invalidations,
    /// Modified fused lines written to memory.
    writebacks,
    /// Writes that made an own copy modified without asking anybody.
    upgrades_silent,
    /// Writes that made an own copy modified and had to take others' away.
    upgrades_snooped,
    /// Writes that had to ask the other CPUs of the same node for copies.
    sibling_writes,
    /// Flushes and cleans of a line.
    flushes,
    /// Entries into the kernel. The driver of the model counts them, and what follows up to the doorbells.
    traps,
    /// Returns from the kernel.
    returns,
    /// Switches to another root of the translations.
    root_switches,
    /// Instructions that invalidate translations.
    tlb_invalidations,
    /// Fences.
    fences,
    /// Doorbells rung.
    doorbells,
    /// Translations found in the second level of TLBs. The driver of the model counts them, and what follows up to the hits of walks.
    tlb_l2_hits,
    /// Walks of the tables.
    walks,
    /// Loads of entries of tables by walks. They are in `loads` too.
    walk_loads,
    /// Stores to entries of tables by walks. They are in `stores` too.
    walk_stores,
    /// Walks of tables that could not be read: nothing was charged.
    walks_unknown,
    /// Loads and stores of walks that the first level had.
    walk_hits,
    /// Cycles waited for the second level.
    l2_cycles,
    /// Cycles waited for the last level.
    l3_cycles,
    /// Cycles waited for near memory.
    local_cycles,
    /// Cycles waited for another node's memory.
    remote_cycles,
    /// Cycles waited for the CXL pool, where it is a device.
    pool_cycles,
    /// Cycles waited for data from other nodes' caches.
    forward_cycles,
    /// Cycles that messages of the coherence protocol were on the link, but for those to memory and back.
    link_cycles,
    /// Cycles waited until memories and links of limited bandwidth carried a line.
    queue_cycles,
    /// Cycles waited for snoops and write-backs.
    snoop_cycles,
    /// Cycles waited until the time at which another CPU had written what an access takes.
    release_cycles,
    /// Cycles that traps, returns, switches of the root, invalidations of translations, fences and doorbells took.
    system_cycles,
    /// Cycles that walks took, and hits in the second level of TLBs. They are in no other counter.
    walk_cycles,
}

macro_rules! stalls {
    ($($name:ident,)*) => {
        /// Cycles that a CPU waits for memory beyond the first level, by part of the account.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stalls {
            $($name: u64,)*
        }

        impl Counters {
            /// What has been waited so far.
            pub const fn stalls(&self) -> Stalls {
                Stalls { $($name: self.$name,)* }
            }

            /// More has been waited.
            pub fn add_stalls(&mut self, more: &Stalls) {
                $(self.$name += more.$name;)*
            }

            /// So much of it has not been waited.
            pub fn remove_stalls(&mut self, less: &Stalls) {
                $(self.$name -= less.$name;)*
            }
        }

        impl Stalls {
            /// All of them.
            pub const fn total(&self) -> u64 {
                0 $(+ self.$name)*
            }

            /// What has been waited since then.
            #[must_use]
            pub const fn since(&self, then: &Stalls) -> Stalls {
                Stalls { $($name: self.$name - then.$name,)* }
            }

            /// So many cycles in the same proportions. What cannot be divided goes to the largest part.
            #[must_use]
            pub fn scaled(&self, cycles: u64) -> Stalls {
                let total = self.total().max(1);
                let part = |n: u64| (u128::from(n) * u128::from(cycles) / u128::from(total)) as u64;
                let mut scaled = Stalls { $($name: part(self.$name),)* };
                let rest = cycles - scaled.total();
                let largest = [$(self.$name),*].into_iter().max().unwrap_or(0);
                $(if self.$name == largest {
                    scaled.$name += rest;
                    return scaled;
                })*
                scaled
            }
        }
    };
}

stalls! {
    l2_cycles,
    l3_cycles,
    local_cycles,
    remote_cycles,
    pool_cycles,
    forward_cycles,
    link_cycles,
    queue_cycles,
    snoop_cycles,
    release_cycles,
}

impl Add for Counters {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sub for Counters {
    type Output = Self;
    fn sub(mut self, other: Self) -> Self {
        self -= other;
        self
    }
}

impl Counters {
    /// Lines of data accessed.
    pub const fn data(&self) -> u64 {
        self.loads + self.stores + self.rmws
    }

    /// Hits of the first level, instructions.
    pub const fn l1i_hits(&self) -> u64 {
        self.fetches - self.l1i_misses
    }

    /// Hits of the first level, data.
    pub const fn l1d_hits(&self) -> u64 {
        self.data() - self.l1d_misses
    }

    /// Hits of the second level.
    pub const fn l2_hits(&self) -> u64 {
        self.l1i_misses + self.l1d_misses - self.l2_misses
    }

    /// Hits of the last level.
    pub const fn l3_hits(&self) -> u64 {
        self.l2_misses - self.l3_misses
    }

    /// As reports have them. Doorbells taken are counted elsewhere.
    pub const fn report(&self) -> report::Counters {
        report::Counters {
            instructions: self.instructions,
            accesses: self.data() - self.split,
            fetches: self.fetches,
            loads: self.loads,
            stores: self.stores,
            rmws: self.rmws,
            l1i_hits: self.l1i_hits(),
            l1i_misses: self.l1i_misses,
            l1d_hits: self.l1d_hits(),
            l1d_misses: self.l1d_misses,
            l2_hits: self.l2_hits(),
            l2_misses: self.l2_misses,
            l3_hits: self.l3_hits(),
            l3_misses: self.l3_misses,
            local: self.local,
            remote: self.remote,
            pool: self.pool,
            forwarded: self.forwarded,
            snp_data: self.snp_data,
            snp_inv: self.snp_inv,
            invalidations: self.invalidations,
            inclusion_snoops: self.inclusion_snoops,
            back_invalidations: self.back_invalidations,
            writebacks: self.writebacks,
            upgrades_silent: self.upgrades_silent,
            upgrades_snooped: self.upgrades_snooped,
            sibling_writes: self.sibling_writes,
            flushes: self.flushes,
            traps: self.traps,
            returns: self.returns,
            root_switches: self.root_switches,
            tlb_invalidations: self.tlb_invalidations,
            fences: self.fences,
            tlb_l2_hits: self.tlb_l2_hits,
            walks: self.walks,
            walk_loads: self.walk_loads,
            walk_stores: self.walk_stores,
            walks_unknown: self.walks_unknown,
            ipis_sent: self.doorbells,
            ipis_received: 0,
        }
    }

    /// Cycles that accesses to data waited for the first level, at `l1` each. Walks have counters of their own.
    pub const fn l1_cycles(&self, l1: u64) -> u64 {
        (self.l1d_hits() - self.walk_hits) * l1
    }

    /// Cycles waited for memory of all levels: the sum of all latencies that accesses returned.
    pub const fn memory_cycles(&self, l1: u64) -> u64 {
        self.l1_cycles(l1) + self.stalls().total() + self.walk_cycles
    }
}

/// Time of a CPU that passed outside its caches. Picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Sending and taking interrupts between nodes.
    pub ipi: u64,
    /// Halted: jumps to the next event, and adjustments.
    pub idle: u64,
}

/// A breakdown that is not the clock's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// The clock's time, in picoseconds.
    pub clock: u64,
    /// The breakdown's, in picoseconds.
    pub explained: u64,
}

impl std::fmt::Display for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the breakdown explains {} ps, the clock says {} ps: they differ by more than 0.1 %",
            self.explained, self.clock
        )
    }
}

impl std::error::Error for Open {}

/// Where the time of a CPU of `node` went, in picoseconds. Only at level timing do caches take any.
pub const fn breakdown(
    level: Level,
    node: &NodeConfig,
    counts: &Counters,
    waits: Waits,
) -> Breakdown {
    let ps = match level {
        Level::Timing => node.cycle_ps,
        Level::Count | Level::Cache => 0,
    };
    Breakdown {
        inst: counts.instructions * node.instruction_ps(),
        l1: counts.l1_cycles(node.l1_cycles()) * ps,
        l2: counts.l2_cycles * ps,
        l3: counts.l3_cycles * ps,
        mem_local: counts.local_cycles * ps,
        mem_remote: counts.remote_cycles * ps,
        mem_pool: counts.pool_cycles * ps,
        forward: counts.forward_cycles * ps,
        link: counts.link_cycles * ps,
        queue: counts.queue_cycles * ps,
        snoop: counts.snoop_cycles * ps,
        release: counts.release_cycles * ps,
        system: counts.system_cycles * ps,
        walk: counts.walk_cycles * ps,
        ipi: waits.ipi,
        msg_wait: 0,
        idle: waits.idle,
    }
}

/// Checks that a breakdown adds up to the clock's time, to 0.1 %.
///
/// # Errors
///
/// Both, if they differ by more.
pub fn closes(breakdown: &Breakdown, clock: u64) -> Result<(), Open> {
    let explained = breakdown.total();
    if u128::from(explained.abs_diff(clock)) * 1000 > u128::from(clock) {
        return Err(Open { clock, explained });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coherent::{FlushKind, Kind, Storage, System};
    use crate::fixture;
    use crate::memory::line_of;

    /// A run, the counters of its node 0 and the cycles that node waited.
    fn run() -> (NodeConfig, Counters, u64) {
        let config = fixture::config(2, 1);
        let storage = Storage::new(&config);
        let mut system = System::new(&config, &storage);
        let line = line_of(config.pools[2].base);
        let mut cycles = 0;
        for i in 0..2000 {
            let kind = [Kind::Load, Kind::Store, Kind::Fetch, Kind::Rmw][i as usize % 4];
            cycles += system.access(0, 0, kind, line + i * i % 500);
            system.access(1, 0, kind, line + i % 7);
            cycles += system.flush(0, 0, FlushKind::Flush, line + i % 11);
        }
        let mut counts = system.counts(0, 0);
        counts.instructions = 12_345;
        (config.nodes[0].clone(), counts, cycles)
    }

    #[test]
    fn a_breakdown_adds_up_to_the_time() {
        let (node, counts, cycles) = run();
        let waits = Waits {
            ipi: 1_000,
            idle: 300_000,
        };
        let outside = 12_345 * node.instruction_ps() + 301_000;
        let timing = breakdown(Level::Timing, &node, &counts, waits);
        assert_eq!(timing.total(), outside + cycles * node.cycle_ps);
        assert!(timing.values().iter().enumerate().all(|(i, &part)| {
            // Only the pool is in the pattern, the link has no price of its own, CPUs have no times of their own, nothing has
            // a limit, only accesses are made, translations are free, and waits for messages are told apart later; all else takes time.
            let none = [
                "mem_local",
                "mem_remote",
                "link",
                "queue",
                "release",
                "system",
                "walk",
                "msg_wait",
            ];
            (part == 0) == none.contains(&Breakdown::NAMES[i])
        }));
        // What is not fed back takes none.
        for level in [Level::Count, Level::Cache] {
            assert_eq!(breakdown(level, &node, &counts, waits).total(), outside);
        }
    }

    #[test]
    fn what_differs_by_more_than_a_thousandth_is_open() {
        let b = Breakdown {
            l1: 999_000,
            idle: 1_000,
            ..Breakdown::default()
        };
        for clock in [999_001, 1_000_000, 1_001_001] {
            assert_eq!(closes(&b, clock), Ok(()));
        }
        for clock in [0, 999_000, 1_001_002, u64::MAX] {
            let open = closes(&b, clock).unwrap_err();
            assert_eq!((open.clock, open.explained), (clock, 1_000_000));
            assert!(open.to_string().contains("1000000 ps"));
        }
        assert_eq!(closes(&Breakdown::default(), 0), Ok(()));
    }

    #[test]
    fn regions_are_differences() {
        let (_, counts, _) = run();
        assert_eq!(counts + counts - counts, counts);
        assert_eq!(counts - counts, Counters::default());
        let (names, values): (Vec<_>, Vec<_>) = counts.values().unzip();
        assert_eq!(names, Counters::NAMES);
        assert_eq!(values[0], 12_345);
        let mut next = values.iter().copied();
        assert_eq!(Counters::of(|| next.next().unwrap()), counts);
        let report = counts.report();
        assert_eq!(report.l1d_hits + report.l1d_misses, counts.data());
        assert_eq!(report.accesses, counts.data() - counts.split);
        assert_eq!(
            report.l3_misses,
            report.local + report.remote + report.pool + report.forwarded
        );
    }
}
