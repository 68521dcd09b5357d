// SPDX-License-Identifier: GPL-2.0-or-later
//! The words of each CPU that translated code changes by itself: one scoreboard, so that a CPU's
//! words share host cache lines with each other and with no other CPU's.

// The clock and the caches, which are to come, use what counting does not.
#![allow(dead_code)]

use std::ffi::c_uint;
use std::sync::OnceLock;

use super::{
    Counter, RawScoreboard, RawU64, qemu_plugin_scoreboard_find, qemu_plugin_scoreboard_new,
};

/// A CPU's words.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Score {
    /// Simulated time in picoseconds, as far as the clock has it in here: blocks add to it when they are
    /// entered, the model when an access takes time.
    pub time: u64,
    /// Instructions at addresses of the lower half.
    pub lower: u64,
    /// Instructions at addresses of the upper half.
    pub upper: u64,
    /// The line that instructions have been fetched from last.
    pub fetched: u64,
    /// Sum over the blocks that were entered; see the clock's trace hash.
    pub trace: u64,
    /// 1 while stretches with interrupts masked are observed and the CPU is in the kernel, else 0.
    pub inside: u64,
    /// Keeps the words of CPUs apart, also from their host's prefetching.
    _apart: [u64; 10],
}

static BOARD: OnceLock<Board> = OnceLock::new();

struct Board(*mut RawScoreboard);

// SAFETY: 1. The name of a scoreboard, which is never freed; QEMU's functions take it from any
// thread.
unsafe impl Send for Board {}
// SAFETY: 1. QEMU's functions take the name of a scoreboard from any thread.
unsafe impl Sync for Board {}

fn board() -> *mut RawScoreboard {
    // SAFETY: 1. Called while the plugin is installed or later, when scoreboards exist.
    let new = || Board(unsafe { qemu_plugin_scoreboard_new(size_of::<Score>()) });
    BOARD.get_or_init(new).0
}

fn counter(offset: usize) -> Counter {
    let score = board();
    Counter(RawU64 { score, offset })
}

impl Score {
    /// The word [`Score::time`] of each CPU.
    pub fn time() -> Counter {
        counter(std::mem::offset_of!(Score, time))
    }

    /// The word [`Score::lower`] of each CPU.
    pub fn lower() -> Counter {
        counter(std::mem::offset_of!(Score, lower))
    }

    /// The word [`Score::upper`] of each CPU.
    pub fn upper() -> Counter {
        counter(std::mem::offset_of!(Score, upper))
    }

    /// The word [`Score::fetched`] of each CPU.
    pub fn fetched() -> Counter {
        counter(std::mem::offset_of!(Score, fetched))
    }

    /// The word [`Score::inside`] of each CPU.
    pub fn inside() -> Counter {
        counter(std::mem::offset_of!(Score, inside))
    }

    /// The word [`Score::trace`] of each CPU.
    pub fn trace() -> Counter {
        counter(std::mem::offset_of!(Score, trace))
    }
}

/// A CPU's words, for that CPU's own thread. Words are plain: translated code of this CPU changes
/// them between the callbacks in which they are used, and nothing else does.
#[derive(Clone, Copy, Debug)]
pub struct Words(*mut Score);

// SAFETY: 1. Only the thread of the CPU uses them (see `Words::of`).
unsafe impl Send for Words {}

impl Words {
    /// The words of a CPU. QEMU makes room for sixteen CPUs at first and moves the words only when
    /// there are more, which a node never has.
    ///
    /// Only the thread of that CPU may use them, once it has been initialised.
    pub fn of(cpu: u32) -> Words {
        // SAFETY: 1. The scoreboard exists and has an entry for every CPU that was initialised.
        Words(unsafe { qemu_plugin_scoreboard_find(board(), cpu as c_uint).cast() })
    }

    /// Lets simulated time pass.
    #[inline(always)]
    pub fn add_time(&mut self, ps: u64) {
        // SAFETY: 1. The entry is as long as a `Score`, aligned for its words, and never moves.
        // 2. This is the CPU's thread, inside of a callback: nothing else uses the word now.
        unsafe { (*self.0).time = (*self.0).time.wrapping_add(ps) }
    }

    /// The time word.
    #[inline(always)]
    pub fn time(&self) -> u64 {
        // SAFETY: 1. The entry never moves. 2. This is the CPU's thread: nothing else uses the word now.
        unsafe { (*self.0).time }
    }

    /// Sets the time word.
    #[inline(always)]
    pub fn set_time(&mut self, ps: u64) {
        // SAFETY: 1. The entry never moves. 2. This is the CPU's thread: nothing else uses the word now.
        unsafe { (*self.0).time = ps }
    }

    /// The sum over the blocks that were entered.
    pub fn trace(&self) -> u64 {
        // SAFETY: 1. The entry never moves. 2. This is the CPU's thread: nothing else uses the word now.
        unsafe { (*self.0).trace }
    }

    /// Sets the line that instructions have been fetched from last.
    #[inline(always)]
    pub fn set_fetched(&mut self, line: u64) {
        // SAFETY: 1. The entry never moves. 2. This is the CPU's thread: nothing else uses the word now.
        unsafe { (*self.0).fetched = line }
    }

    /// Sets whether the CPU is in the kernel.
    pub fn set_inside(&mut self, inside: bool) {
        // SAFETY: 1. The entry never moves. 2. This is the CPU's thread: nothing else uses the word now.
        unsafe { (*self.0).inside = u64::from(inside) }
    }

    /// Instructions entered so far, at lower and at upper addresses.
    pub fn instructions(&self) -> (u64, u64) {
        // SAFETY: 1. The entry never moves. 2. This is the CPU's thread: nothing else uses the word now.
        unsafe { ((*self.0).lower, (*self.0).upper) }
    }
}
