//! Ctrl-C and its kin, as a count that the supervising loop looks at.

use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Counts signals from now on instead of dying from them.
///
/// # Errors
///
/// If the operating system refuses.
pub fn install() -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                COUNT.fetch_add(1, Ordering::Relaxed);
            }
        })?;
    Ok(())
}

/// How often the user has asked for the end.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}
