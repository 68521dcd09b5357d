//! The report on a fault that has ended a thread, until it has been written to the console.
//!
//! A report has tens of lines, and a line takes thousands of instructions. The kernel therefore keeps the
//! facts in private memory, and the run loop writes one piece in each turn ([`FaultNote::next_piece`]). The
//! thread's frame may have been reused by then.

use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering;

use crate::object::thread::REG_WORDS;
use crate::platform::{RegArea, UserFault};

/// Most return addresses in a report.
pub const MAX_PCS: usize = 16;

/// The facts of a fault.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Number of the thread.
    pub thread: u64,
    /// Whether it was within an invocation: then the code is another program's than the thread.
    pub invoked: bool,
    /// What has not been reported yet. `None` if the thread's fault handler has reported the fault.
    pub untold: Option<Untold>,
    /// Return addresses, the program counter first.
    pub pcs: [u64; MAX_PCS],
    /// The number of return addresses.
    pub depth: usize,
}

/// The facts of a fault that no handler has seen.
#[derive(Clone, Copy, Debug)]
pub struct Untold {
    /// The fault.
    pub fault: UserFault,
    /// The reason why the kernel has not resolved the fault, as a text.
    pub why: Option<&'static str>,
    /// General registers, as they were saved.
    pub registers: [u64; REG_WORDS],
}

impl Untold {
    /// The registers as an area.
    pub fn area(&self) -> RegArea {
        RegArea(self.registers.map(Into::into))
    }
}

/// The words of an area.
pub fn words_of(area: &RegArea) -> [u64; REG_WORDS] {
    core::array::from_fn(|i| area.0[i].load(Ordering::Relaxed))
}

/// The report that a CPU is writing, if any.
#[derive(Debug)]
pub struct FaultNote {
    facts: RefCell<Option<Facts>>,
    piece: Cell<usize>,
}

impl Default for FaultNote {
    fn default() -> FaultNote {
        FaultNote::new()
    }
}

impl FaultNote {
    /// A note without a report.
    pub const fn new() -> FaultNote {
        FaultNote {
            facts: RefCell::new(None),
            piece: Cell::new(0),
        }
    }

    /// Whether a report is being written.
    pub fn is_pending(&self) -> bool {
        self.facts.borrow().is_some()
    }

    /// Begins a report. Returns `false`, and changes nothing, if another one is being written.
    pub fn begin(&self, facts: &Facts) -> bool {
        let mut slot = self.facts.borrow_mut();
        if slot.is_some() {
            return false;
        }
        *slot = Some(*facts);
        self.piece.set(0);
        true
    }

    /// Calls `write` with the number of the next piece. It returns whether there are more.
    pub fn next_piece(&self, write: impl FnOnce(&Facts, usize) -> bool) {
        let Some(facts) = *self.facts.borrow() else {
            return;
        };
        let piece = self.piece.get();
        self.piece.set(piece + 1);
        if !write(&facts, piece) {
            self.facts.replace(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::FaultKind;

    fn facts(thread: u64) -> Facts {
        Facts {
            thread,
            invoked: false,
            untold: None,
            pcs: [0; MAX_PCS],
            depth: 0,
        }
    }

    #[test]
    fn a_report_is_written_piece_by_piece_and_no_other_meanwhile() {
        let note = FaultNote::new();
        assert!(!note.is_pending());
        note.next_piece(|_, _| unreachable!());
        assert!(note.begin(&facts(1)));
        for wanted in 0..3 {
            assert!(note.is_pending());
            assert!(!note.begin(&facts(2)), "the first is not over");
            note.next_piece(|f, n| {
                assert_eq!((f.thread, n), (1, wanted));
                n < 2
            });
        }
        assert!(!note.is_pending());
        assert!(note.begin(&facts(2)));
        note.next_piece(|f, n| {
            assert_eq!((f.thread, n), (2, 0));
            false
        });
    }

    #[test]
    fn registers_are_kept_as_they_were() {
        let untold = Untold {
            fault: UserFault {
                kind: FaultKind::Read,
                address: 8,
                raw: 0,
            },
            why: None,
            registers: core::array::from_fn(|i| i as u64),
        };
        assert_eq!(words_of(&untold.area()), untold.registers);
    }
}
