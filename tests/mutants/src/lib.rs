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
//! | `check/migrate-rt::PLACE` | `lacks!` in the build side of programs: the verifier and the spine pass | it is `false` without the feature `mutants`, which only the register's own build has |
//!
//! The register is `register.toml`. Places are named by module, function and call ([`dyad_coherence::mutants`]) or by what is checked.
//! `tests/mutants.rs` runs the named tests of each mutant, which must fail with it and pass without.
//!
//! [`dyad_coherence::mutants`]: ../dyad_coherence/mutants/index.html

use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;

/// What kind of thing is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
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
    /// The order in which references are taken, given back and counted.
    References,
    /// The check of a right, range, home or guard.
    Permission,
    /// The check of a state, an owner or an incarnation.
    State,
    /// An entry in a log, or when it is made.
    Log,
    /// The zeros of a frame that is handed out, and of registers that the thread has not filled itself.
    Contents,
    /// A check of the verifier of machine code.
    Proof,
    /// A step or a check of the spine pass.
    Spine,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 12] = [
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
        Class::Proof,
        Class::Spine,
    ];
}

/// One mutant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mutant {
    /// What `DYAD_MUTANT` is set to.
    pub name: String,
    /// What kind of thing it lacks.
    pub class: Class,
    /// What is no longer so.
    pub lacks: String,
    /// Tests that must fail, each by itself; the first one in the tier `full`, the others in the tier `long`.
    pub caught_by: Vec<String>,
}

/// Places whose loss no test can notice, one at a time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spare {
    /// Their names.
    pub names: Vec<String>,
    /// Why nothing goes wrong without one of them.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Register {
    mutant: Vec<Mutant>,
    spare: Vec<Spare>,
}

static REGISTER: LazyLock<Register> = LazyLock::new(|| {
    toml::from_str(include_str!("../register.toml"))
        .unwrap_or_else(|e| panic!("tests/mutants/register.toml: {e}"))
});

/// A test: `crate/file/name`, where the file is one in `tests/` or `tests/all/` of the crate, or `unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Test {
    /// The crate, without `dyad-`.
    pub krate: &'static str,
    /// Which of its files of tests.
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
pub fn all() -> std::slice::Iter<'static, Mutant> {
    REGISTER.mutant.iter()
}

/// All places that are spare.
pub fn spare() -> std::slice::Iter<'static, Spare> {
    REGISTER.spare.iter()
}
