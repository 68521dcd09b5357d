//! The register of mutants: everything that the protocol and the kernel rely on, taken away one at
//! a time, and the tests that must notice.
//!
//! A mutant is selected at run time by the variable `DYAD_MUTANT`, in tests only:
//!
//! | name | what takes it away | so that nothing of it is in a kernel |
//! |---|---|---|
//! | `flush/PLACE` | memory with caches (`stale::mutant`) | it is a back end of its own |
//! | `order/PLACE` | memory of models with loom (`model::mutant`) | it is a back end of its own |
//! | `check/CRATE::PLACE` | `lacks!` in the kernel's crates, rows of the protocol included | it is `false` without the feature `host`, which kernels have not |
//!
//! Places are named by module, function and call ([`dyad_coherence::mutants`]) or by what is checked.
//! `tests/mutants.rs` runs the named tests of each mutant, which must fail with it and pass without.
//!
//! [`dyad_coherence::mutants`]: ../dyad_coherence/mutants/index.html

mod checks;
mod claims;
mod flushes;
mod orders;
mod rules;
mod spare;

use std::fmt;

pub use spare::{SPARE, Spare};

/// What kind of thing is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A write-back, an invalidation, or an access at memory.
    Flush,
    /// A full fence.
    Fence,
    /// An order of one access: acquire, release, contents before what announces them.
    Release,
    /// A stamp, when it is taken, or the wait for it.
    Stamp,
    /// The check of a version or count, or the change of one.
    Version,
    /// When references are taken, given back and counted.
    References,
    /// The check of a right, range, home or guard.
    Permission,
    /// The check of a state, an owner or an incarnation.
    State,
    /// An entry in a log, or when it is made.
    Log,
    /// The zeros that a frame is handed out with, and that are in registers of who has not filled
    /// them.
    Contents,
}

impl Class {
    /// All of them.
    pub const ALL: [Class; 10] = [
        Class::Flush,
        Class::Fence,
        Class::Release,
        Class::Stamp,
        Class::Version,
        Class::References,
        Class::Permission,
        Class::State,
        Class::Log,
        Class::Contents,
    ];
}

/// One mutant.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// What `DYAD_MUTANT` is set to.
    pub name: &'static str,
    /// What kind of thing it lacks.
    pub class: Class,
    /// What is no longer so.
    pub lacks: &'static str,
    /// Tests that must fail, each by itself; the first one in the tier `full`, the others in the tier `long`.
    pub caught_by: &'static [&'static str],
}

/// A test: `crate/file/name`, where the file is one in `tests/` of the crate, or `unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Test {
    /// The crate, without `dyad-`.
    pub krate: &'static str,
    /// Which of its test programs.
    pub file: &'static str,
    /// The test.
    pub name: &'static str,
}

impl Test {
    /// Reads `crate/file/name`.
    pub fn parse(text: &'static str) -> Option<Test> {
        let (krate, rest) = text.split_once('/')?;
        let (file, name) = rest.split_once('/')?;
        Some(Test { krate, file, name })
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.krate, self.file, self.name)
    }
}

/// All mutants.
pub fn all() -> impl Iterator<Item = &'static Mutant> + Clone {
    let parts = [
        rules::RULES,
        flushes::FLUSHES,
        orders::ORDERS,
        checks::CHECKS,
        claims::CLAIMS,
    ];
    parts.into_iter().flatten()
}

const fn m(
    name: &'static str,
    class: Class,
    lacks: &'static str,
    caught_by: &'static [&'static str],
) -> Mutant {
    Mutant {
        name,
        class,
        lacks,
        caught_by,
    }
}
