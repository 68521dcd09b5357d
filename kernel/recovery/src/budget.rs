//! What a piece of recovery may cost, in instructions.
//!
//! A piece runs with interrupts masked, so it may not be longer than a stretch of an operation. It does not
//! count instructions: each thing it does has a cost, which is what the thing takes at worst where caches are
//! not coherent, roughly. A piece begins another thing as long as something of its budget is left: it is
//! longer than its budget by one thing at most.

/// The budget of a piece.
pub const BUDGET: u64 = 9_000;
/// A record of a frame.
pub const RECORD: u64 = 160;
/// An object that is looked into, whatever it is.
pub const OBJECT: u64 = 200;
/// An entry whose reference is counted.
pub const ENTRY: u64 = 240;
/// A thread that is looked at, and taken from the dead node.
pub const THREAD: u64 = 3_000;
/// The region slots of a space.
pub const REGIONS: u64 = 3_000;
/// A look whether a frame lies in a supply of a space.
pub const SUPPLIED: u64 = 1_000;
/// An endpoint that is looked at.
pub const LINE: u64 = 100;
/// A thread of which a scheduler is told, or which is woken.
pub const TOLD: u64 = 1_500;
/// A thread on a list.
pub const LISTED: u64 = 120;
/// A frame that is given back.
pub const GIVEN_BACK: u64 = 1_000;

/// What is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(u64);

impl Budget {
    /// The budget of a piece that begins.
    pub const WHOLE: Budget = Budget(BUDGET);

    /// Whether another thing may be begun.
    pub const fn is_left(self) -> bool {
        self.0 != 0
    }

    /// Takes the cost of a thing off.
    pub const fn spend(&mut self, cost: u64) {
        self.0 = self.0.saturating_sub(cost);
    }

    /// How many things of this cost may be begun, one at least.
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
