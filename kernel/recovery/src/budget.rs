//! What a piece of recovery may cost, in instructions.
//!
//! A piece runs with interrupts masked, so it may not be longer than a stretch of an operation. Instructions
//! are not counted: each action has a cost, which is roughly what it takes at worst on a system whose caches
//! are not coherent. A piece starts another action as long as something of its budget is left, so it exceeds
//! its budget by at most one action.

/// The budget of a piece.
pub const BUDGET: u64 = 9_000;
/// A record of a frame.
pub const RECORD: u64 = 160;
/// Visiting an object of any kind.
pub const OBJECT: u64 = 200;
/// An entry whose reference is counted.
pub const ENTRY: u64 = 240;
/// Examining a thread and taking it from the dead node.
pub const THREAD: u64 = 3_000;
/// The region slots of a space.
pub const REGIONS: u64 = 3_000;
/// A look whether a frame lies in a supply of a space.
pub const SUPPLIED: u64 = 1_000;
/// Examining one line of an endpoint object.
pub const LINE: u64 = 100;
/// Telling a scheduler about a thread, or waking a thread.
pub const TOLD: u64 = 1_500;
/// A thread on a list.
pub const LISTED: u64 = 120;
/// A frame that is given back.
pub const GIVEN_BACK: u64 = 1_000;

/// The part of the budget that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(u64);

impl Budget {
    /// The budget of a piece that begins.
    pub const WHOLE: Budget = Budget(BUDGET);

    /// Whether another action may be started.
    pub const fn is_left(self) -> bool {
        self.0 != 0
    }

    /// Subtracts the cost of an action.
    pub const fn spend(&mut self, cost: u64) {
        self.0 = self.0.saturating_sub(cost);
    }

    /// How many actions of this cost may be started: at least one.
    pub const fn affords(self, cost: u64) -> u64 {
        match self.0 / cost {
            0 => 1,
            n => n,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_exceeded_by_one_thing_at_most() {
        let mut budget = Budget::WHOLE;
        let mut spent = 0;
        while budget.is_left() {
            budget.spend(THREAD + 1);
            spent += THREAD + 1;
        }
        assert!((BUDGET..=BUDGET + THREAD).contains(&spent), "{spent}");
        assert_eq!(budget.affords(ENTRY), 1);
        assert_eq!(Budget::WHOLE.affords(ENTRY), BUDGET / ENTRY);
    }
}
