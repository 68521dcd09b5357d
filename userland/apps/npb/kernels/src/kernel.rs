//! What all kernels have in common: they are sequences of named phases, and the caller decides
//! where each phase runs.
//!
//! One driver awaits a migration between phases:
//!
//! ```ignore
//! while let Some(phase) = kernel.next() {
//!     migrate_to(place_for(phase)).await?;
//!     kernel.advance(&mut || {});
//! }
//! ```
//!
//! Another is plain code, [`run`], whose thread may migrate between phases and at points inside
//! of them.

use alloc::string::String;

/// A part of a kernel that is done in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What is done, in a few words.
    pub name: &'static str,
    /// The iteration it belongs to, from 1 on; 0 before the first and after the last.
    pub iteration: u32,
    /// Whether it belongs to what the benchmark measures.
    pub timed: bool,
}

/// Whether a run has the official result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// It has.
    pub ok: bool,
    /// What was found, and what should have been.
    pub detail: String,
}

/// A benchmark while it runs.
pub trait Kernel {
    /// What [`Kernel::advance`] does next; `None` at the end.
    fn next(&self) -> Option<Phase>;

    /// Does the next phase, if there is one.
    ///
    /// `point` is called from the inside of long phases: often enough for a thread to leave soon,
    /// too seldom to be felt (at most once per plane of a grid, or so).
    fn advance(&mut self, point: &mut impl FnMut());

    /// Compares results with the official ones. Fails before the end.
    fn verify(&self) -> Verdict;

    /// Checksum of results, to the bit: the same wherever the phases have run.
    fn checksum(&self) -> u64;
}

/// Runs a kernel to its end: `between` is called before each phase, `point` inside of them.
pub fn run(kernel: &mut impl Kernel, mut between: impl FnMut(Phase), mut point: impl FnMut()) {
    while let Some(phase) = kernel.next() {
        between(phase);
        kernel.advance(&mut point);
    }
}

/// The steps of a kernel: some at the start, some in each iteration, some at the end.
#[derive(Debug)]
pub(crate) struct Plan<S: 'static> {
    pub(crate) start: &'static [S],
    /// How many steps of the start are not timed.
    pub(crate) untimed: usize,
    pub(crate) each: &'static [S],
    pub(crate) iterations: u32,
    /// Never timed.
    pub(crate) end: &'static [S],
}

/// How far a run has come.
#[derive(Debug)]
pub(crate) struct Cursor<S: 'static> {
    plan: &'static Plan<S>,
    done: usize,
}

impl<S> Clone for Cursor<S> {
    fn clone(&self) -> Self {
        Cursor {
            plan: self.plan,
            done: self.done,
        }
    }
}

impl<S: Copy> Cursor<S> {
    pub(crate) const fn new(plan: &'static Plan<S>) -> Self {
        Cursor { plan, done: 0 }
    }

    /// The next step, with the iteration and whether it is timed.
    pub(crate) fn step(&self) -> Option<(S, u32, bool)> {
        let Plan {
            start,
            untimed,
            each,
            iterations,
            end,
        } = *self.plan;
        if let Some(&step) = start.get(self.done) {
            return Some((step, 0, self.done >= untimed));
        }
        let later = self.done - start.len();
        let looped = each.len() * iterations as usize;
        if later < looped {
            let iteration = (later / each.len()) as u32 + 1;
            return Some((each[later % each.len()], iteration, true));
        }
        end.get(later - looped).map(|&step| (step, 0, false))
    }

    /// The next step is done.
    pub(crate) fn pass(&mut self) {
        self.done += 1;
    }

    /// The phase of the next step.
    pub(crate) fn phase(&self, name: impl Fn(S) -> &'static str) -> Option<Phase> {
        self.step().map(|(step, iteration, timed)| Phase {
            name: name(step),
            iteration,
            timed,
        })
    }
}

/// How far `found` is from `expected`, as a part of it.
pub(crate) fn off(found: f64, expected: f64) -> f64 {
    ((found - expected) / expected).abs()
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    static PLAN: Plan<char> = Plan {
        start: &['a', 'b'],
        untimed: 1,
        each: &['x', 'y'],
        iterations: 2,
        end: &['z'],
    };

    #[test]
    fn plans_are_followed_to_their_end() {
        let mut cursor = Cursor::new(&PLAN);
        let mut steps = Vec::new();
        while let Some(step) = cursor.step() {
            steps.push(step);
            cursor.pass();
        }
        let expected = [
            ('a', 0, false),
            ('b', 0, true),
            ('x', 1, true),
            ('y', 1, true),
            ('x', 2, true),
            ('y', 2, true),
            ('z', 0, false),
        ];
        assert_eq!(steps, expected);
        assert_eq!(cursor.phase(|_| "none"), None);
    }
}
