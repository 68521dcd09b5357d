//! What a run reports beside its output: checks and counters.
//!
//! A run is good if its exit code is 0 and every check passed.

use alloc::string::ToString;
use core::fmt::Display;

use dyad_sys as sys;

use crate::console::patiently;

/// Records whether something that must hold does, with a detail for people. Returns `ok`.
///
/// Names are dotted, such as `is.full`; at most 64 bytes, of visible ASCII characters, details at most 256.
/// Those of the kernel, init and the launcher ([`dyad_abi::record::name`]) are refused. A report that the
/// console does not take fails the run: it would look better than it is.
pub fn check(name: &str, ok: bool, detail: impl Display) -> bool {
    let detail = detail.to_string();
    if let Err(e) = patiently(|| sys::report_check(name, ok, &detail)) {
        lost(name, e);
        return false;
    }
    ok
}

/// Adds to a counter of the run.
pub fn counter(name: &str, n: u64) {
    if let Err(e) = patiently(|| sys::report_counter(name, n)) {
        lost(name, e);
    }
}

/// A report that cannot be made must not go unnoticed: the run would look better than it is.
fn lost(name: &str, e: sys::Error) {
    crate::rt::note_failure();
    crate::eprintln!("error: cannot report {name}: {e}");
}
