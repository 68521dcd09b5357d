//! Checks that tests on the host can take away: each must be missed by one of them.
//!
//! `lacks!("module::function::what")` is where a check is made. In a crate `dyad-x` it is true in a test
//! that runs with `DYAD_MUTANT=check/x::module::function::what`, and it is the constant `false` in
//! every build without the feature `host`: nothing of it is in a kernel. `tests/mutants` lists them
//! all.

/// Whether a check is not to be made: see [`mutants`](crate::mutants).
#[cfg(any(test, feature = "host"))]
#[macro_export]
macro_rules! lacks {
    ($what:literal) => {
        $crate::mutants::is_selected(env!("CARGO_PKG_NAME"), $what)
    };
}

/// Whether a check is not to be made: see [`mutants`](crate::mutants).
#[cfg(not(any(test, feature = "host")))]
#[macro_export]
macro_rules! lacks {
    ($what:literal) => {
        false
    };
}

/// Whether this run of a test is to do without a check of a package.
#[cfg(any(test, feature = "host"))]
pub fn is_selected(package: &str, what: &str) -> bool {
    use std::string::String;
    use std::sync::OnceLock;
    static SELECTED: OnceLock<Option<String>> = OnceLock::new();
    let selected = SELECTED.get_or_init(|| {
        let name = std::env::var("DYAD_MUTANT").ok()?;
        name.strip_prefix("check/").map(String::from)
    });
    let Some(selected) = selected else {
        return false;
    };
    let name = package.strip_prefix("dyad-").unwrap_or(package);
    selected
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix("::"))
        == Some(what)
}
