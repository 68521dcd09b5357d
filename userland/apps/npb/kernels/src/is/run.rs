//! A run of IS, phase by phase.

use alloc::format;

use super::{Class, ITERATIONS, Is, NotSorted, VERIFICATIONS, WrongRank};
use crate::checksum::Fnv;
use crate::kernel::{Cursor, Kernel, Phase, Plan, Verdict};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Counts and ranks, and forgets the result: for runs with buckets.
    WarmUp,
    /// Counts and ranks: for runs with buckets.
    Whole,
    Count,
    Rank,
    Sort,
    VerifyOrder,
}

impl Step {
    const fn name(self) -> &'static str {
        match self {
            Step::WarmUp => "warm up",
            Step::Count => "count",
            Step::Whole | Step::Rank => "rank",
            Step::Sort => "sort",
            Step::VerifyOrder => "verify order",
        }
    }
}

static PLAN: Plan<Step> = Plan {
    start: &[],
    untimed: 0,
    each: &[Step::Count, Step::Rank],
    iterations: ITERATIONS,
    end: &[Step::Sort, Step::VerifyOrder],
};

/// With buckets an iteration is one phase, and one is made before the first, as in the official program.
static WITH_BUCKETS: Plan<Step> = Plan {
    start: &[Step::WarmUp],
    untimed: 1,
    each: &[Step::Whole],
    iterations: ITERATIONS,
    end: &[Step::Sort, Step::VerifyOrder],
};

/// A run: the keys are counted in one phase of each iteration, and ranked in another.
#[derive(Clone, Debug)]
pub struct Run {
    is: Is,
    cursor: Cursor<Step>,
    passed: u32,
    wrong: Option<WrongRank>,
    order: Option<Result<(), NotSorted>>,
    sum: Fnv,
}

impl Run {
    /// Generates the keys.
    pub fn new(class: Class) -> Run {
        Run::of(Is::generate(class), &PLAN)
    }

    /// Generates the keys for a run with buckets. Each iteration is one phase.
    pub fn with_buckets(class: Class) -> Run {
        Run::of(Is::with_buckets(class), &WITH_BUCKETS)
    }

    fn of(is: Is, plan: &'static Plan<Step>) -> Run {
        let mut sum = Fnv::new();
        sum.word(is.keys_checksum());
        Run {
            is,
            cursor: Cursor::new(plan),
            passed: 0,
            wrong: None,
            order: None,
            sum,
        }
    }

    /// The arrays.
    pub fn is(&self) -> &Is {
        &self.is
    }

    /// Verifications that have passed.
    pub fn passed(&self) -> u32 {
        self.passed
    }

    /// Where the order is wrong; `None` before it was looked at.
    pub fn order(&self) -> Option<&Result<(), NotSorted>> {
        self.order.as_ref()
    }
}

impl Run {
    fn rank(&mut self, t: u32) {
        self.is.accumulate();
        match self.is.verify_partial(t) {
            Ok(n) => self.passed += n,
            Err(e) => self.wrong = self.wrong.or(Some(e)),
        }
    }
}

impl Kernel for Run {
    fn next(&self) -> Option<Phase> {
        self.cursor.phase(Step::name)
    }

    fn advance(&mut self, point: &mut impl FnMut()) {
        let Some((step, t, _)) = self.cursor.step() else {
            return;
        };
        match step {
            Step::Count => {
                self.is.stamp(t);
                self.is.count_with(point);
            }
            Step::Rank => {
                self.rank(t);
                self.sum.word(self.is.ranks_checksum());
            }
            Step::WarmUp => {
                self.is.stamp(1);
                self.is.count_with(point);
                self.is.accumulate();
            }
            // Nothing is done in it that the official program does not do.
            Step::Whole => {
                self.is.stamp(t);
                self.is.count_with(point);
                self.rank(t);
            }
            Step::Sort => {
                self.is.sort();
                self.sum.word(self.is.sorted_checksum());
            }
            Step::VerifyOrder => {
                let order = self.is.verify_full();
                self.passed += u32::from(order.is_ok());
                self.order = Some(order);
            }
        }
        self.cursor.pass();
    }

    fn verify(&self) -> Verdict {
        let ok = self.cursor.step().is_none() && self.passed == VERIFICATIONS;
        let detail = match (&self.wrong, &self.order) {
            (Some(e), _) => format!("{e}"),
            (None, Some(Err(e))) => format!("{e}"),
            _ => format!("{} of {VERIFICATIONS}", self.passed),
        };
        Verdict { ok, detail }
    }

    fn checksum(&self) -> u64 {
        self.sum.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::run;

    #[test]
    fn runs_verify() {
        let mut whole = Run::new(Class::S);
        assert!(!whole.verify().ok);
        let (mut phases, mut points) = (0, 0);
        run(&mut whole, |_| phases += 1, || points += 1);
        assert!(whole.verify().ok, "{:?}", whole.verify());
        assert_eq!(phases, 22);
        assert!(points >= 10, "{points}");
    }

    #[test]
    fn runs_with_buckets_verify() {
        let mut whole = Run::with_buckets(Class::S);
        let (mut phases, mut points) = (0, 0);
        run(&mut whole, |_| phases += 1, || points += 1);
        assert!(whole.verify().ok, "{:?}", whole.verify());
        assert_eq!(phases, 13);
        assert!(points >= 100, "{points}");
        assert_eq!(whole.order(), Some(&Ok(())));
    }

    #[test]
    fn a_wrong_rank_is_remembered() {
        let mut wrong = Run::new(Class::S);
        while let Some(phase) = wrong.next() {
            if (phase.name, phase.iteration) == ("rank", 4) {
                wrong.is.ranks[100] += 1;
            }
            wrong.advance(&mut || ());
        }
        let verdict = wrong.verify();
        assert!(
            !verdict.ok && verdict.detail.contains("iteration 4"),
            "{verdict:?}"
        );
        let mut right = Run::new(Class::S);
        run(&mut right, |_| (), || ());
        assert_ne!(wrong.checksum(), right.checksum());
    }
}
