//! A run of IS, phase by phase.

use alloc::format;

use super::{Class, ITERATIONS, Is, NotSorted, VERIFICATIONS, WrongRank};
use crate::checksum::Fnv;
use crate::kernel::{Cursor, Kernel, Phase, Plan, Verdict};

#[derive(Clone, Copy, Debug)]
enum Step {
    Count,
    Rank,
    Sort,
    VerifyOrder,
}

impl Step {
    const fn name(self) -> &'static str {
        match self {
            Step::Count => "count",
            Step::Rank => "rank",
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
        let is = Is::generate(class);
        let mut sum = Fnv::new();
        sum.word(is.keys_checksum());
        Run {
            is,
            cursor: Cursor::new(&PLAN),
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
                self.is.accumulate();
                match self.is.verify_partial(t) {
                    Ok(n) => self.passed += n,
                    Err(e) => self.wrong = self.wrong.or(Some(e)),
                }
                self.sum.word(self.is.ranks_checksum());
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
