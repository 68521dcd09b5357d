//! The environment of the program: variables that `cargo xtask run --env NAME=VALUE` sets. On the host there are
//! none.
//!
//! ```no_run
//! let level = dyad::env::var("LEVEL").unwrap_or("info");
//! ```

/// The value of a variable, if it is set.
pub fn var(name: &str) -> Option<&'static str> {
    vars()
        .filter(|(n, _)| *n == name)
        .last()
        .map(|(_, value)| value)
}

/// All variables with their values, in the order in which they were set. A variable that was set twice is there
/// twice; the last one counts.
pub fn vars() -> impl Iterator<Item = (&'static str, &'static str)> {
    let text = dyad_sys::environment().unwrap_or_default();
    text.split('\t')
        .filter_map(|variable| variable.split_once('='))
}
