//! Seeded bugs: a kernel that leaves one flush out, for tests of the simulator's sanitizer.
//!
//! Kernels that are built with their tests can be told, by the boot parameter `test_seeded`, of one call
//! in the source, as `file:line`. There [`Words`](crate::memory::Words) goes straight to the word, as
//! it does where caches are coherent: nothing is written back or dropped. Other kernels have nothing
//! of this.

use core::panic::Location;

use spin::Once;

static PLACE: Once<(&str, u32)> = Once::new();

/// Has the call at a place, `file:line`, do without its flush. Once, before there are any.
pub fn select(place: &'static str) {
    if let Some((file, line)) = place.rsplit_once(':')
        && let Ok(line) = line.parse()
    {
        PLACE.call_once(|| (file, line));
    }
}

/// Whether the caller is to do without.
#[track_caller]
pub(crate) fn left_out() -> bool {
    let Some((file, line)) = PLACE.get() else {
        return false;
    };
    let here = Location::caller();
    here.line() == *line && here.file() == *file
}
