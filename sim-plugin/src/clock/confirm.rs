// SPDX-License-Identifier: GPL-2.0-or-later
//! Interrupts that QEMU's main loop has not taken while their CPU waited for that.
//!
//! An interrupt has to be pending before its CPU goes on: else the host decides after which instruction
//! the guest takes it. A main loop that is about to stop all CPUs, for a debugger say, takes nothing
//! before they have stopped. The CPU gives up then, stops after the block it is in, and the main loop
//! takes the interrupt before it lets the CPU go on. So the guest takes it where it would have anyway.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

const NONE: usize = usize::MAX;

/// What is to be confirmed of a CPU's interrupts. Used by the CPU's thread, but for the count.
pub struct Confirmation {
    /// The vector that was rung and not taken, or [`NONE`].
    open: AtomicUsize,
    /// Whether the CPU has been stopped since.
    stopped: AtomicBool,
    timeouts: AtomicU64,
}

impl Default for Confirmation {
    fn default() -> Confirmation {
        Confirmation {
            open: AtomicUsize::new(NONE),
            stopped: AtomicBool::new(false),
            timeouts: AtomicU64::new(0),
        }
    }
}

impl Confirmation {
    /// A vector was not taken in time.
    pub fn is_late(&self, vector: usize) {
        self.goes_on(|_| false);
        self.open.store(vector, Relaxed);
    }

    /// Somebody stops the CPU.
    pub fn stops(&self) {
        self.stopped.store(self.open.load(Relaxed) != NONE, Relaxed);
    }

    /// The CPU goes on. `taken` says whether a vector has been taken.
    pub fn goes_on(&self, taken: impl FnOnce(usize) -> bool) {
        let open = self.open.swap(NONE, Relaxed);
        let stopped = self.stopped.swap(false, Relaxed);
        if open != NONE && !(stopped && taken(open)) {
            self.timeouts.fetch_add(1, Relaxed);
        }
    }

    /// How many interrupts were not pending when their CPU went on.
    pub fn timeouts(&self) -> u64 {
        self.timeouts.load(Relaxed) + u64::from(self.open.load(Relaxed) != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_in_between_confirms_what_was_taken_during_it() {
        let confirmation = Confirmation::default();
        for (stops, taken, timeouts) in [
            (true, true, 0),
            (true, false, 1),
            (false, true, 2),
            (false, false, 3),
        ] {
            confirmation.is_late(7);
            if stops {
                confirmation.stops();
            }
            confirmation.goes_on(|vector| {
                assert_eq!(vector, 7);
                taken
            });
            assert_eq!(confirmation.timeouts(), timeouts, "{stops} {taken}");
            // It is judged once.
            confirmation.goes_on(|_| false);
            assert_eq!(confirmation.timeouts(), timeouts);
        }
    }

    #[test]
    fn a_stop_before_confirms_nothing() {
        let confirmation = Confirmation::default();
        confirmation.stops();
        confirmation.is_late(1);
        confirmation.goes_on(|_| true);
        assert_eq!(confirmation.timeouts(), 1);
        confirmation.is_late(1);
        assert_eq!(confirmation.timeouts(), 2, "one that is open counts");
        confirmation.is_late(2);
        assert_eq!(confirmation.timeouts(), 3);
    }
}
