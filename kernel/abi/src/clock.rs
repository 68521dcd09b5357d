//! The fused clock: how a guest asks the simulator for the time, for interrupts, for output.
//!
//! With the simulator on, time is not the host's. The plugin of every machine counts what its CPUs
//! execute and knows at every instruction how far simulated time is. Guests speak to it with
//! [markers](crate::marker) of the operation [`MarkerOp::Clock`], whose number is a [`ClockCall`],
//! and with words in the CXL pool: every node has a [`NodeClock`](self#pages) there, of which the
//! guest writes one part and the plugin the other.
//!
//! # Pages
//!
//! Offsets in words of 8 bytes from the start of a node's pages, [`NODE_WORDS`] each.
//!
//! | from | content | written by |
//! |---|---|---|
//! | [`guest_word`] | per CPU: deadline, target of a ring, length of console text | the node's kernel |
//! | [`plugin_word`] | per CPU: time | the node's plugin |
//! | [`text_word`] | per CPU: console text, [`TEXT_BYTES`] | the node's kernel |
//!
//! The plugin's words are on a page of their own, which can be mapped for programs to read. What the
//! guest writes is input, and the plugin checks it; what the plugin keeps for itself is not in guest
//! memory at all.
//!
//! # Order
//!
//! A CPU uses its own words only, and the plugin acts for it in the middle of its instructions, at
//! the marker: what was stored before the marker is seen by the plugin, what the plugin stores is
//! seen by loads after it.

use crate::CpuId;
use crate::ident::MAX_CPUS;
use crate::marker::{Marker, MarkerOp, WindowId};

/// The calls of a guest's kernel to the plugin. Their markers are without effect in programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum ClockCall {
    /// The time now, exact to the instruction, into [`plugin::NOW`].
    Read = 0,
    /// [`guest::DEADLINE`] has changed: interrupt this CPU then, once, by its timer vector.
    Sync = 1,
    /// Ring the doorbell of the CPU in [`guest::TARGET`]: a constant time from now.
    Ring = 2,
    /// Write [`guest::TEXT_LEN`] bytes of console text.
    Console = 3,
    /// This machine is about to end: its clock stops here.
    Exit = 4,
    /// The counter whose number is in [`guest::COUNTER`], of this CPU, into [`plugin::COUNTER`]. See
    /// [`SimCounter`].
    Count = 5,
    /// Execute nothing for [`guest::PAUSE`] nanoseconds, at most until the next interrupt that is known, as TPAUSE and WFIT
    /// do. A doorbell that is rung meanwhile can be late, so kernels pause before they can be rung.
    Pause = 6,
}

impl ClockCall {
    /// All calls.
    pub const ALL: [ClockCall; 7] = [
        ClockCall::Read,
        ClockCall::Sync,
        ClockCall::Ring,
        ClockCall::Console,
        ClockCall::Exit,
        ClockCall::Count,
        ClockCall::Pause,
    ];

    /// The marker that makes the call.
    pub const fn marker(self) -> Marker {
        Marker {
            op: MarkerOp::Clock,
            id: WindowId(self as u16),
        }
    }

    /// The call that a marker makes.
    pub fn of(marker: Marker) -> Option<ClockCall> {
        (marker.op == MarkerOp::Clock)
            .then(|| Self::ALL.into_iter().find(|c| *c as u16 == marker.id.0))
            .flatten()
    }
}

/// Words per CPU in the guest's and in the plugin's part: a line.
pub const LINE_WORDS: usize = 8;
/// Words of a node's pages: guest's page, plugin's page, two pages of text.
pub const NODE_WORDS: usize = 4 * 512;
/// Console text that fits one call.
pub const TEXT_BYTES: usize = 1024;

/// Words of a CPU that its guest writes.
pub mod guest {
    /// The time of the next interrupt, in nanoseconds of simulated time; 0 means none.
    pub const DEADLINE: usize = 0;
    /// The CPU to ring: node in bits 8 to 15, CPU in bits 0 to 7.
    pub const TARGET: usize = 1;
    /// The number of bytes of text.
    pub const TEXT_LEN: usize = 2;
    /// The requested counter: a [`SimCounter`](super::SimCounter).
    pub const COUNTER: usize = 3;
    /// How long the CPU pauses next.
    pub const PAUSE: usize = 4;
}

/// Words of a CPU that the plugin writes.
pub mod plugin {
    /// Simulated time of the last [`Read`](super::ClockCall::Read), in nanoseconds.
    pub const NOW: usize = 0;
    /// Value of the counter last asked for, or [`NO_COUNTER`](super::NO_COUNTER).
    pub const COUNTER: usize = 1;
}

/// The plugin's value for a counter that it does not have.
pub const NO_COUNTER: u64 = u64::MAX;

macro_rules! sim_counters {
    ($($(#[$m:meta])* $name:ident = $n:literal, $text:literal;)*) => {
        /// The counters of the simulator that guests can read, for each CPU, from the start of the machine up
        /// to the instruction that reads. The count of a region of interest is the difference of two
        /// readings. The names are those of reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum SimCounter {
            $($(#[$m])* $name = $n,)*
        }

        impl SimCounter {
            /// All, by number.
            pub const ALL: &[SimCounter] = &[$(SimCounter::$name),*];

            /// Name in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(SimCounter::$name => $text,)*
                }
            }

            /// The counter with this number.
            pub fn from_number(n: u64) -> Option<SimCounter> {
                Self::ALL.iter().copied().find(|c| *c as u64 == n)
            }
        }
    };
}

sim_counters! {
    /// Instructions executed.
    Instructions = 0, "instructions";
    /// Accesses of data to memory. Needs caches to be simulated, as all that follows.
    Accesses = 1, "accesses";
    /// Lines of data not found in the first level.
    L1dMisses = 2, "l1d_misses";
    /// Lines of instructions not found in the first level.
    L1iMisses = 3, "l1i_misses";
    /// Lines not found in the second level.
    L2Misses = 4, "l2_misses";
    /// Lines not found in the last level.
    L3Misses = 5, "l3_misses";
    /// Lines from memory near the node.
    Local = 6, "local";
    /// Lines from memory behind the link.
    Remote = 7, "remote";
    /// Lines from the cache of another node that had modified them.
    Forwarded = 8, "forwarded";
    /// SnpData: reads that met another node's exclusive or modified copy.
    SnpData = 9, "snp_data";
    /// SnpInv: copies of other nodes taken away.
    SnpInv = 10, "snp_inv";
    /// Evictions and flushes for which the last level asked the caches above it to drop a line.
    InclusionSnoops = 11, "inclusion_snoops";
    /// Modified lines of fused memory written back.
    Writebacks = 12, "writebacks";
    /// Instructions that write back or invalidate a line.
    Flushes = 13, "flushes";
}

/// The counters of kernels, with a simulator or without. Their numbers are beyond those of [`SimCounter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum KernelCounter {
    /// Doorbells that have been rung at CPUs of other nodes than this one; with two nodes, those that this
    /// one has rung.
    Doorbells = 64,
    /// Messages that CPUs of this node have sent to other nodes.
    Messages = 65,
}

impl KernelCounter {
    /// All, by number.
    pub const ALL: [KernelCounter; 2] = [KernelCounter::Doorbells, KernelCounter::Messages];

    /// The counter with this number.
    pub fn from_number(n: u64) -> Option<KernelCounter> {
        Self::ALL.into_iter().find(|c| *c as u64 == n)
    }
}

const _: () = assert!(SimCounter::ALL.len() <= KernelCounter::Doorbells as usize);

/// The index of a word of [`guest`].
pub const fn guest_word(cpu: CpuId, word: usize) -> usize {
    cpu.index() * LINE_WORDS + word
}

/// The index of a word of [`plugin`].
pub const fn plugin_word(cpu: CpuId, word: usize) -> usize {
    512 + cpu.index() * LINE_WORDS + word
}

/// The index of the first word of a CPU's text.
pub const fn text_word(cpu: CpuId) -> usize {
    2 * 512 + cpu.index() * (TEXT_BYTES / 8)
}

/// A target of [`ClockCall::Ring`].
pub const fn target(node: crate::NodeId, cpu: CpuId) -> u64 {
    (node.index() as u64) << 8 | cpu.index() as u64
}

const _: () = assert!(MAX_CPUS * TEXT_BYTES <= 2 * 4096 && MAX_CPUS * LINE_WORDS <= 512);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_markers_of_their_own() {
        for call in ClockCall::ALL {
            let word = call.marker().word();
            assert_eq!(Marker::from_word(word).and_then(ClockCall::of), Some(call));
        }
        let other = Marker {
            op: MarkerOp::Begin,
            id: WindowId(0),
        };
        assert_eq!(ClockCall::of(other), None);
        let unknown = Marker {
            op: MarkerOp::Clock,
            id: WindowId(99),
        };
        assert_eq!(ClockCall::of(unknown), None);
    }

    #[test]
    fn no_two_words_are_the_same() {
        let mut seen = [false; NODE_WORDS];
        for cpu in CpuId::first(MAX_CPUS) {
            let lines = (0..LINE_WORDS).flat_map(|w| [guest_word(cpu, w), plugin_word(cpu, w)]);
            let text = (0..TEXT_BYTES / 8).map(|w| text_word(cpu) + w);
            for word in lines.chain(text) {
                assert!(!core::mem::replace(&mut seen[word], true));
            }
        }
    }
}
