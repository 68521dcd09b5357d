//! What a run reports beside its output: checks and counters.
//!
//! A run is good if its exit code is 0 and every check passed.

use alloc::string::ToString;
use core::fmt::Display;

use dyad_sys as sys;

/// Records whether something that must hold does, with a detail for people. Returns `ok`.
///
/// Names are dotted, such as `is.full`; at most 64 bytes, details at most 256.
pub fn check(name: &str, ok: bool, detail: impl Display) -> bool {
    if let Err(e) = sys::report_check(name, ok, &detail.to_string()) {
        lost(name, e);
        return false;
    }
    ok
}

/// Adds to a counter of the run.
pub fn counter(name: &str, n: u64) {
    if let Err(e) = sys::report_counter(name, n) {
        lost(name, e);
    }
}

/// A report that cannot be made must not go unnoticed: the run would look better than it is.
fn lost(name: &str, e: sys::Error) {
    crate::rt::note_failure();
    crate::eprintln!("error: cannot report {name}: {e}");
}
