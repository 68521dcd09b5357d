//! Operations that cost more than an instruction because of what they do to the CPU, and their prices.

use serde::{Deserialize, Serialize};

use crate::account::Counters;

/// Cycles that operations add to their instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemCosts {
    /// An entry into the kernel: by a system call, a fault or an interrupt.
    pub trap: u64,
    /// A return from the kernel to what it has interrupted.
    pub ret: u64,
    /// A write of the register that holds the root of the translations.
    pub root_switch: u64,
    /// An instruction that invalidates translations.
    pub tlb_invalidate: u64,
    /// An instruction that waits for accesses, or for what changes instructions: MFENCE, DSB, ISB.
    pub fence: u64,
    /// A doorbell, of the CPU that rings it.
    pub doorbell: u64,
}

/// Counters of operations that are no accesses to memory, and of what accesses to memory were made for. A trace of accesses does not
/// have them.
pub const NO_ACCESSES: [&str; 12] = [
    "traps",
    "returns",
    "root_switches",
    "tlb_invalidations",
    "fences",
    "tlb_l2_hits",
    "walks",
    "walk_loads",
    "walk_stores",
    "walks_unknown",
    "walk_hits",
    "walk_cycles",
];

/// An operation with a price of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// An entry into the kernel.
    Trap,
    /// A return from the kernel.
    Return,
    /// A switch to another root of the translations.
    RootSwitch,
    /// An invalidation of translations.
    TlbInvalidation,
    /// A fence.
    Fence,
    /// A doorbell that is rung.
    Doorbell,
}

impl Operation {
    /// All operations.
    pub const ALL: [Operation; 6] = [
        Operation::Trap,
        Operation::Return,
        Operation::RootSwitch,
        Operation::TlbInvalidation,
        Operation::Fence,
        Operation::Doorbell,
    ];

    /// Counts the operation. Returns how many cycles the CPU waits for it.
    #[must_use]
    pub const fn charge(self, costs: &SystemCosts, counts: &mut Counters) -> u64 {
        let (count, cycles) = match self {
            Operation::Trap => (&mut counts.traps, costs.trap),
            Operation::Return => (&mut counts.returns, costs.ret),
            Operation::RootSwitch => (&mut counts.root_switches, costs.root_switch),
            Operation::TlbInvalidation => (&mut counts.tlb_invalidations, costs.tlb_invalidate),
            Operation::Fence => (&mut counts.fences, costs.fence),
            Operation::Doorbell => (&mut counts.doorbells, costs.doorbell),
        };
        *count += 1;
        counts.system_cycles += cycles;
        cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Waits, breakdown};
    use crate::config::Level;
    use crate::fixture;

    const COSTS: SystemCosts = SystemCosts {
        trap: 1,
        ret: 20,
        root_switch: 300,
        tlb_invalidate: 4_000,
        fence: 50_000,
        doorbell: 600_000,
    };

    #[test]
    fn each_operation_has_its_own_price_and_counter() {
        let mut counts = Counters::default();
        let mut cycles = 0;
        for (i, operation) in Operation::ALL.into_iter().enumerate() {
            for _ in 0..=i {
                cycles += operation.charge(&COSTS, &mut counts);
            }
        }
        assert_eq!(
            cycles,
            1 + 2 * 20 + 3 * 300 + 4 * 4_000 + 5 * 50_000 + 6 * 600_000
        );
        let expected = Counters {
            traps: 1,
            returns: 2,
            root_switches: 3,
            tlb_invalidations: 4,
            fences: 5,
            doorbells: 6,
            system_cycles: cycles,
            ..Counters::default()
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn operations_take_time_of_their_own_part() {
        let mut node = fixture::node(1);
        node.cost = COSTS;
        let mut counts = Counters::default();
        let cycles = Operation::Fence.charge(&node.cost, &mut counts);
        let of = |level, counts| breakdown(level, &node, counts, Waits::default());
        let timing = of(Level::Timing, &counts);
        assert_eq!(timing.system, 50_000 * node.cycle_ps);
        assert_eq!(timing.total(), cycles * node.cycle_ps);
        assert_eq!(of(Level::Cache, &counts).total(), 0);
        // Without a price the operation is counted and takes no time.
        let mut free = Counters::default();
        assert_eq!(
            Operation::Fence.charge(&SystemCosts::default(), &mut free),
            0
        );
        assert_eq!((free.fences, of(Level::Timing, &free).total()), (1, 0));
    }
}
