//! Mutants: a program with one fence or order left out, found and tried one place in the source
//! after the other.
//!
//! | place calls | the mutant does |
//! |---|---|
//! | `fence` | nothing |
//! | a load that acquires | a relaxed load |
//! | a store that releases | a relaxed store |
//!
//! Read-modify-writes always acquire and release: there a place has no choice that could be wrong.

use std::thread;
use std::vec::Vec;

use crate::mutants;

/// The kind of ordering at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// [`GlobalMem::fence`](crate::GlobalMem::fence).
    Fence,
    /// A load that acquires.
    Acquire,
    /// A store that releases.
    Release,
}

impl mutants::Kind for Kind {
    const CLASS: &str = "order";
}

/// A place in the source that orders accesses.
pub type Site = mutants::Site<Kind>;

/// The orders of a program that are omitted, and those that it has requested. Orders in test code (`tests/`)
/// are neither counted nor omitted. Clones share their records.
pub type Orders = mutants::Sites<Kind>;

/// The results for the mutants of a program.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Noticed.
    pub caught: Vec<Site>,
    /// The mutants that were not noticed in any execution.
    pub survived: Vec<Site>,
}

/// Explores a scenario, then the same without each order that it has asked for. The scenario
/// panics when something is wrong.
///
/// # Panics
///
/// If it does although nothing is left out.
pub fn try_each(scenario: impl Fn(&Orders) + Clone + Send + 'static) -> Verdict {
    let all = Orders::all();
    scenario(&all);
    let mut verdict = Verdict::default();
    for site in all.seen() {
        let scenario = scenario.clone();
        // A thread of its own: what a failed model leaves behind goes with it.
        let mutant = thread::spawn(move || scenario(&Orders::without([site])));
        match mutant.join() {
            Err(_) => verdict.caught.push(site),
            Ok(()) => verdict.survived.push(site),
        }
    }
    verdict
}
