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

use core::fmt;
use core::panic::Location;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::vec::Vec;

/// What is ordered at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// [`GlobalMem::fence`](crate::GlobalMem::fence).
    Fence,
    /// A load that acquires.
    Acquire,
    /// A store that releases.
    Release,
}

/// A place in the source that orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The file.
    pub file: &'static str,
    /// The line in it.
    pub line: u32,
    column: u32,
    /// How it orders.
    pub kind: Kind,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}:{}", self.kind, self.file, self.line)
    }
}

/// Which orders of a program are left out, and which it has asked for. Those in test code (`tests/`)
/// are neither counted nor left out. Clones share what has been seen.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    without: BTreeSet<Site>,
    seen: Arc<Mutex<BTreeSet<Site>>>,
}

impl Orders {
    /// The program as it is.
    pub fn all() -> Orders {
        Orders::default()
    }

    /// The program without the orders at some places.
    pub fn without(sites: impl IntoIterator<Item = Site>) -> Orders {
        Orders {
            without: sites.into_iter().collect(),
            ..Orders::default()
        }
    }

    /// The places that have ordered.
    pub fn seen(&self) -> BTreeSet<Site> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    /// Notes a place; whether it is left out.
    pub(super) fn skips(&self, caller: &'static Location<'static>, kind: Kind) -> bool {
        if caller.file().contains("tests/") {
            return false;
        }
        let site = Site {
            file: caller.file(),
            line: caller.line(),
            column: caller.column(),
            kind,
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(site);
        self.without.contains(&site)
    }
}

/// What has become of the mutants of a program.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Noticed.
    pub caught: Vec<Site>,
    /// Not noticed in any execution.
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
