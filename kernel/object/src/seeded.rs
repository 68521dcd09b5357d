//! Seeded bugs: a kernel that omits one flush, for tests of the simulator's sanitizer.
//!
//! The boot parameter `test_seeded` names one call in the source, as `file:line`, to a kernel that is built
//! with its tests. At that call [`Words`](crate::memory::Words) accesses the word directly, as it does where
//! caches are coherent: nothing is written back or dropped. Other kernels contain none of this.

use core::panic::Location;

use spin::Once;

static PLACE: Once<(&str, u32)> = Once::new();

/// Makes the call at a place, `file:line`, omit its flush. Called once, before any such call.
pub fn select(place: &'static str) {
    if let Some((file, line)) = place.rsplit_once(':')
        && let Ok(line) = line.parse()
    {
        PLACE.call_once(|| (file, line));
    }
}

/// Whether the calling place must omit its flush.
#[track_caller]
pub(crate) fn left_out() -> bool {
    let Some((file, line)) = PLACE.get() else {
        return false;
    };
    let here = Location::caller();
    here.line() == *line && here.file() == *file
}
