//! Checks of the verifier and steps of the spine pass that tests can take away: each must be missed by one of them.
//!
//! `lacks!("module::function::what")` is the constant `false` without the feature `mutants`, which nothing enables but the
//! tests of `tests/mutants`. With it, `DYAD_MUTANT=check/migrate-rt::module::function::what` takes away one check.

/// Whether a check is not to be made: see the module.
#[cfg(not(feature = "mutants"))]
macro_rules! lacks {
    ($what:literal) => {
        false
    };
}

/// Whether a check is not to be made: see the module.
#[cfg(feature = "mutants")]
macro_rules! lacks {
    ($what:literal) => {
        crate::lacks::is_lacking($what)
    };
}

/// Whether the variable selects this check.
#[cfg(feature = "mutants")]
pub(crate) fn is_lacking(what: &str) -> bool {
    use std::sync::LazyLock;
    static SELECTED: LazyLock<Option<String>> = LazyLock::new(|| {
        let name = std::env::var("DYAD_MUTANT").ok()?;
        Some(name.strip_prefix("check/migrate-rt::")?.to_owned())
    });
    SELECTED.as_deref() == Some(what)
}
