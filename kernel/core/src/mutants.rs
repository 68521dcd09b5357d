//! Checks that tests of this crate can take away: each must be missed by one of them.
//!
//! `lacks!("module::function::what")` is where a check is made. It is true in a test that runs with
//! `DYAD_MUTANT=check/core::module::function::what`, and the constant `false` in every build that is
//! not the test of this crate: nothing of it is in a kernel. `tests/mutants` lists them all.

#[cfg(test)]
macro_rules! lacks {
    ($what:literal) => {
        $crate::mutants::is_selected($what)
    };
}

#[cfg(not(test))]
macro_rules! lacks {
    ($what:literal) => {
        false
    };
}

/// Whether this run of a test is to do without a check.
#[cfg(test)]
pub fn is_selected(what: &str) -> bool {
    use std::string::String;
    use std::sync::OnceLock;
    static SELECTED: OnceLock<Option<String>> = OnceLock::new();
    let selected = SELECTED.get_or_init(|| {
        let name = std::env::var("DYAD_MUTANT").ok()?;
        name.strip_prefix("check/core::").map(String::from)
    });
    selected.as_deref() == Some(what)
}
