//! Reports of a run beside its output: checks and counters.
//!
//! A run is good if its exit code is 0 and every check passed.

use alloc::string::ToString;
use core::fmt::Display;

use dyad_sys as sys;

use crate::console::patiently;

/// Records a check: whether a required condition holds, with a detail for people. Returns `ok`.
///
/// Names are dotted, such as `is.full`, and have at most 64 visible ASCII characters; details have at most
/// 256 bytes. Names of the kernel, init and the launcher ([`dyad_abi::record::name`]) are refused. A report
/// that the console does not take fails the run, which would otherwise look better than it is.
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

/// Fails the run because a report cannot be made: the run would otherwise look better than it is.
fn lost(name: &str, e: sys::Error) {
    crate::rt::note_failure();
    crate::eprintln!("error: cannot report {name}: {e}");
}
