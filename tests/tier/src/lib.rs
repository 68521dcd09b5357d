//! Tiers of tests: `cargo test` runs the tier `quick`, `cargo xtask test TIER` runs any of them.
//!
//! A test names its tiers where it is defined: a test of machines by a set of [`Tiers`], a host test by the sizes
//! that it gives to [`size`]. Packages that depend on this crate have tests that are larger in later tiers;
//! `cargo xtask test full` runs the host tests of exactly these packages.
#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

/// The environment variable that names the tier of this run. Without it the tier is `quick`.
pub const VARIABLE: &str = "DYAD_TIER";

/// One tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Some ten minutes on two cores, builds included: what `cargo test` runs.
    Quick,
    /// What `quick` leaves out, and larger sizes. Continuous integration runs it after `quick`.
    Full,
    /// Hours: storms of millions of operations, hundreds of killed machines, deep models.
    Long,
}

impl Tier {
    /// All tiers, the shortest first.
    pub const ALL: [Tier; 3] = [Tier::Quick, Tier::Full, Tier::Long];

    /// The name, in commands and in [`VARIABLE`].
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Quick => "quick",
            Tier::Full => "full",
            Tier::Long => "long",
        }
    }

    /// The tier of this run.
    ///
    /// # Panics
    ///
    /// If [`VARIABLE`] is set to something that is no tier: a typing error would run too little.
    pub fn now() -> Tier {
        static NOW: LazyLock<Tier> = LazyLock::new(|| match std::env::var(VARIABLE) {
            Ok(name) => name
                .parse()
                .unwrap_or_else(|e: Unknown| panic!("{VARIABLE}: {e}")),
            Err(_) => Tier::Quick,
        });
        *NOW
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no tier's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Tier::ALL.map(Tier::name).join(", ");
        write!(f, "{:?} is not a tier: the tiers are {names}", self.0)
    }
}

impl std::error::Error for Unknown {}

impl FromStr for Tier {
    type Err = Unknown;

    fn from_str(name: &str) -> Result<Tier, Unknown> {
        let tier = Tier::ALL.into_iter().find(|t| t.name() == name);
        tier.ok_or_else(|| Unknown(name.to_owned()))
    }
}

/// The tiers that run a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiers(u8);

impl Tiers {
    /// A test that has one size and is short.
    pub const QUICK: Tiers = Tiers(1);
    /// A test that has one size and is not needed every day, or not short.
    pub const FULL: Tiers = Tiers(2);
    /// A test of hours.
    pub const LONG: Tiers = Tiers(4);
    /// A test that has a size of its own in each tier.
    pub const ALL: Tiers = Tiers(7);

    /// The tiers of either set.
    #[must_use]
    pub const fn and(self, other: Tiers) -> Tiers {
        Tiers(self.0 | other.0)
    }

    /// Whether a tier runs the test.
    pub const fn has(self, tier: Tier) -> bool {
        self.0 & 1 << tier as u8 != 0
    }

    /// Whether only the tier `long` runs the test.
    pub const fn only_long(self) -> bool {
        self.0 == Tiers::LONG.0
    }
}

impl fmt::Display for Tiers {
    /// The names of the tiers, such as `quick+long`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Tier::ALL
            .into_iter()
            .filter(|&t| self.has(t))
            .map(Tier::name)
            .collect();
        f.pad(&names.join("+"))
    }
}

/// The size that a test has in the tier of this run.
pub fn size<T>(quick: T, full: T, long: T) -> T {
    match Tier::now() {
        Tier::Quick => quick,
        Tier::Full => full,
        Tier::Long => long,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_found_by_their_names() {
        for tier in Tier::ALL {
            assert_eq!(tier.name().parse(), Ok(tier));
        }
        let unknown = "ful".parse::<Tier>().unwrap_err().to_string();
        assert!(unknown.contains("quick, full, long"), "{unknown}");
    }

    #[test]
    fn sets_have_what_they_are_made_of() {
        let set = Tiers::QUICK.and(Tiers::LONG);
        assert_eq!(Tier::ALL.map(|t| set.has(t)), [true, false, true]);
        assert_eq!(set.to_string(), "quick+long");
        assert!(Tiers::LONG.only_long() && !set.only_long());
    }
}
