//! What is counted, and the parts of simulated time: sums of which a report has many.

use std::ops::{AddAssign, SubAssign};

use serde::{Deserialize, Serialize};

/// A structure of `u64` fields that can be added up and listed by name.
macro_rules! sums {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl $name {
            /// Names of the fields, in the order of the report.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field),)*];

            /// The fields, in the order of [`Self::NAMES`].
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$field,)*]
            }

            /// The same, with each field changed.
            #[must_use]
            pub fn map(self, change: impl Fn(u64) -> u64) -> $name {
                $name { $($field: change(self.$field),)* }
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                $(self.$field = self.$field.wrapping_add(other.$field);)*
            }
        }

        impl SubAssign for $name {
            fn sub_assign(&mut self, other: $name) {
                $(self.$field = self.$field.wrapping_sub(other.$field);)*
            }
        }
    };
}

sums! {
    /// What is counted. At level `count` only [`Counters::instructions`] and the doorbells are;
    /// the rest is 0.
    Counters {
        /// Instructions executed.
        instructions,
        /// Accesses of data to memory. A read-modify-write is one, and so is an access that spans
        /// two lines; one that spans two pages is two.
        accesses,
        /// Lines of instructions fetched.
        fetches,
        /// Lines loaded from.
        loads,
        /// Lines stored to.
        stores,
        /// Lines read, modified and written in one.
        rmws,
        /// Lines of instructions found in the first level.
        l1i_hits,
        /// Lines of instructions not found there.
        l1i_misses,
        /// Lines of data found in the first level.
        l1d_hits,
        /// Lines of data not found there.
        l1d_misses,
        /// Lines found in the second level, of those not found in the first.
        l2_hits,
        /// Lines not found there.
        l2_misses,
        /// Lines found in the last level, of those not found in the second.
        l3_hits,
        /// Lines not found there: each comes from one of the three kinds of memory or from another node's cache.
        l3_misses,
        /// Lines from memory near the node.
        local,
        /// Lines from another node's memory.
        remote,
        /// Lines from the CXL pool, where it is a device behind the link.
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
        /// Lines that the device took away from all nodes, because its filter had no tag left for them.
        back_invalidations,
        /// Modified lines of fused memory written back to it, for whatever reason.
        writebacks,
        /// Writes that made an own copy modified without asking anybody.
        upgrades_silent,
        /// Writes that made an own copy modified and had to take others' away.
        upgrades_snooped,
        /// Writes that had to ask the other CPUs of the same node for copies.
        sibling_writes,
        /// Instructions that write back or invalidate a line.
        flushes,
        /// Entries into the kernel: system calls, faults, interrupts.
        traps,
        /// Returns from the kernel.
        returns,
        /// Switches to another root of the translations.
        root_switches,
        /// Instructions that invalidate translations.
        tlb_invalidations,
        /// MFENCE, DSB and ISB.
        fences,
        /// Translations found in the second level of TLBs.
        tlb_l2_hits,
        /// Walks of the tables: translations found in no TLB.
        walks,
        /// Loads of walks, which `loads` and `accesses` have too.
        walk_loads,
        /// Stores of walks, which set accessed or dirty; `stores` and `accesses` have them too.
        walk_stores,
        /// Walks of tables that could not be read: they were charged nothing.
        walks_unknown,
        /// Doorbells rung for other nodes.
        ipis_sent,
        /// Doorbells taken.
        ipis_received,
    }
}

sums! {
    /// Where simulated time went, in picoseconds. The parts add up to the time of the CPU.
    Breakdown {
        /// Executing instructions: their number by the time of one.
        inst,
        /// Data from the first level.
        l1,
        /// From the second.
        l2,
        /// From the last.
        l3,
        /// From memory near the node.
        mem_local,
        /// From another node's memory.
        mem_remote,
        /// From the CXL pool, where it is a device behind the link.
        mem_pool,
        /// From the cache of another node, in the place of memory.
        forward,
        /// Messages of the coherence protocol on their way over the link.
        link,
        /// Until memories and links of limited bandwidth carried a line.
        queue,
        /// Messages of the coherence protocol where they are answered, and write-backs.
        snoop,
        /// Until the time at which another CPU had written what an access takes.
        release,
        /// Traps, returns, switches of the root, invalidations of translations, fences, and doorbells of the CPU that rings.
        system,
        /// Translations: walks, wherever they found the tables, and hits in the second level of TLBs.
        walk,
        /// Doorbells on their way.
        ipi,
        /// Waiting for messages, halted or not, while there is nothing else to do.
        msg_wait,
        /// Halted, and adjustments of the clock that are not work.
        idle,
    }
}

impl Breakdown {
    /// The sum of the parts.
    pub fn total(&self) -> u64 {
        self.values().into_iter().fold(0, u64::wrapping_add)
    }

    /// The same time, of which this part was waiting for messages.
    #[must_use]
    pub fn of_which_waiting(mut self, part: Breakdown) -> Breakdown {
        let total = part.total();
        self -= part;
        self.msg_wait = self.msg_wait.wrapping_add(total);
        self
    }
}
