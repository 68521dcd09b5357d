//! The cost that a client may cause in the long run: a budget that fills up with time.
//!
//! A client with something left may spend, even more than is left; the debt is paid by waiting. So a request
//! need not state its cost in advance, and the most that can be spent in a time `t` is `most + t / each_ns`
//! and one request.

/// A client's budget.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    limits: Limits,
    left: i64,
    /// The time at which `left` was computed.
    at: u64,
}

/// Limits of what a client may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Units that can be spent at once.
    pub most: u32,
    /// Nanoseconds in which one unit is added.
    pub each_ns: u64,
}

impl Budget {
    /// A full one.
    pub const fn new(limits: Limits) -> Budget {
        Budget {
            limits,
            left: limits.most as i64,
            at: 0,
        }
    }

    /// Whether something may be spent at the time `now`, in nanoseconds. A clock that goes back adds nothing.
    pub fn has_some(&mut self, now: u64) -> bool {
        let each = self.limits.each_ns.max(1);
        let gained = now.saturating_sub(self.at) / each;
        // What is less than one unit is not lost.
        self.at += gained * each;
        let gained = i64::try_from(gained).unwrap_or(i64::MAX);
        self.left = self
            .left
            .saturating_add(gained)
            .min(self.limits.most.into());
        self.left > 0
    }

    /// Spends it.
    pub fn spend(&mut self, cost: u32) {
        self.left = self.left.saturating_sub(cost.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        most: 1000,
        each_ns: 10 * MS,
    };
    const MS: u64 = 1_000_000;

    #[test]
    fn a_debt_is_paid_back_by_waiting() {
        let mut budget = Budget::new(LIMITS);
        assert!(budget.has_some(0));
        budget.spend(1500);
        assert!(!budget.has_some(0));
        assert!(!budget.has_some(5000 * MS));
        assert!(budget.has_some(5010 * MS));
        budget.spend(1);
        assert!(!budget.has_some(5010 * MS));
        // A clock that goes back.
        assert!(!budget.has_some(1));
        // Nothing is saved beyond the most.
        assert!(budget.has_some(u64::MAX));
        budget.spend(1000);
        assert!(!budget.has_some(u64::MAX));
    }

    #[test]
    fn small_steps_of_time_add_up() {
        let mut budget = Budget::new(LIMITS);
        budget.has_some(MS);
        budget.spend(1001);
        // Each of them is less than one unit.
        let first = (1..100).find(|step| budget.has_some((1 + step * 3) * MS));
        assert_eq!(first, Some(7));
    }

    proptest! {
        #[test]
        fn no_more_is_spent_than_the_limits_say(
            steps in prop::collection::vec((0u64..400, 0u32..300), 1..100),
        ) {
            let mut budget = Budget::new(LIMITS);
            let (mut now, mut spent) = (0, 0);
            for (wait, cost) in steps {
                now += wait * MS;
                if budget.has_some(now) {
                    budget.spend(cost);
                    spent += u64::from(cost);
                }
                let may = u64::from(LIMITS.most) + now / LIMITS.each_ns;
                prop_assert!(spent <= may + 300, "{spent} of {may}");
            }
        }

        #[test]
        fn whoever_stays_below_is_never_refused(
            waits in prop::collection::vec(10u64..400, 1..100),
        ) {
            let mut budget = Budget::new(LIMITS);
            let mut now = 0;
            for wait in waits {
                now += wait * MS;
                prop_assert!(budget.has_some(now));
                // What the time since the last one was worth.
                budget.spend((wait * MS / LIMITS.each_ns) as u32);
            }
        }
    }
}
