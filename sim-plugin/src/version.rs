// SPDX-License-Identifier: GPL-2.0-or-later
//! Which versions of QEMU's plugin interface the plugin works with.

use std::ops::RangeInclusive;

/// Versions whose callbacks have the parameters that `ffi` declares. Version 7 added one to each.
pub const SUPPORTED: RangeInclusive<i32> = 4..=6;

/// Checks what a QEMU says about itself: the oldest version it takes, and its own.
///
/// # Errors
///
/// A sentence that says what it has and what is needed.
pub fn check(oldest: i32, current: i32) -> Result<(), String> {
    if SUPPORTED.contains(&current) {
        return Ok(());
    }
    Err(format!(
        "this QEMU has plugin API version {current} (and takes plugins from {oldest} on), but the \
         simulator is for versions {} to {}; use QEMU 10.0 or a release soon after it",
        SUPPORTED.start(),
        SUPPORTED.end()
    ))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn only_known_callback_signatures_pass() {
        for version in 4..=6 {
            assert_eq!(check(2, version), Ok(()));
        }
        for version in [3, 7] {
            let message = check(2, version).unwrap_err();
            assert!(message.contains(&format!("has plugin API version {version}")));
            assert!(message.contains("for versions 4 to 6"));
        }
    }
}
