//! Patterns of access to lines of memory, whose messages between caches are known exactly.
//!
//! An in-kernel test runs the patterns, with interrupts masked, step by step on two nodes in turn. The work
//! of a step is counted in a [window](crate::marker) if it is [counted](Step::counted), and the host knows
//! the expected counts. This is the script for both.
//!
//! At the beginning of each pattern no cache has any of the lines.

use crate::marker::WindowId;

/// The node that makes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first one.
    First,
    /// The second one.
    Second,
}

/// The access to each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Loads the first word of the line.
    Load,
    /// Stores to the first word of the line.
    Store,
    /// Stores to the last word of the line.
    StoreLast,
    /// Stores to the first word of another line, which only this node uses.
    StoreOwn,
    /// Adds one to the first word of the line, atomically.
    Add,
    /// Executes the instruction that the pattern is about.
    Flush,
}

/// A step of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The node that makes the step.
    pub side: Side,
    /// The access.
    pub act: Act,
    /// Whether the step has a window.
    pub counted: bool,
}

/// A pattern: steps that are made one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The name of the pattern.
    pub name: &'static str,
    /// The steps.
    pub steps: &'static [Step],
}

/// Lines of a pattern.
pub const LINES: usize = 20;
/// How often each pattern is run and counted. Before that it is run once for warming up.
pub const ROUNDS: usize = 32;
/// Most instructions that an ISA has for [`Act::Flush`].
pub const MAX_FLUSHES: usize = 3;

const fn step(side: Side, act: Act, counted: bool) -> Step {
    Step { side, act, counted }
}

const fn first(act: Act) -> Step {
    step(Side::First, act, true)
}

const fn second(act: Act) -> Step {
    step(Side::Second, act, true)
}

/// A step without a window, which prepares the next ones.
const fn before(side: Side, act: Act) -> Step {
    step(side, act, false)
}

const fn pattern(name: &'static str, steps: &'static [Step]) -> Pattern {
    Pattern { name, steps }
}

/// Patterns of sharing.
pub const SHARING: &[Pattern] = {
    use Act::{Add, Load, Store, StoreLast, StoreOwn};
    use Side::{First, Second};
    &[
        pattern(
            "ping-pong",
            &[before(First, Store), second(Store), first(Store)],
        ),
        pattern(
            "false sharing",
            &[before(First, Store), second(StoreLast), first(Store)],
        ),
        pattern(
            "apart",
            &[
                before(First, StoreOwn),
                before(Second, StoreOwn),
                first(StoreOwn),
                second(StoreOwn),
            ],
        ),
        pattern("atomics", &[before(First, Add), second(Add), first(Add)]),
        pattern(
            "producer",
            &[
                before(First, Store),
                second(Load),
                first(Store),
                second(Load),
            ],
        ),
        pattern(
            "readers",
            &[before(First, Load), second(Load), first(Load), second(Load)],
        ),
        pattern("upgrade", &[first(Load), first(Store)]),
        pattern("taken", &[before(First, Load), second(Store), first(Load)]),
    ]
};

/// Patterns with flushes, which are made with each instruction that the first node's ISA has.
pub const FLUSHES: &[Pattern] = {
    use Act::{Flush, Load, Store};
    use Side::{First, Second};
    &[
        pattern("nobody has it", &[first(Flush)]),
        pattern("clean", &[before(First, Load), first(Flush), first(Load)]),
        pattern(
            "dirty",
            &[
                before(First, Store),
                first(Flush),
                first(Flush),
                first(Load),
                first(Store),
                first(Flush),
            ],
        ),
        pattern(
            "dirty elsewhere",
            &[
                before(Second, Store),
                first(Flush),
                second(Load),
                second(Flush),
                first(Load),
            ],
        ),
        pattern(
            "clean elsewhere",
            &[
                before(Second, Load),
                first(Flush),
                second(Load),
                second(Store),
            ],
        ),
        pattern(
            "clean on both",
            &[
                before(First, Load),
                before(Second, Load),
                first(Flush),
                second(Load),
                second(Store),
                second(Flush),
            ],
        ),
    ]
};

/// Counted steps of all patterns of a list.
pub const fn counted(patterns: &[Pattern]) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < patterns.len() {
        let mut k = 0;
        while k < patterns[i].steps.len() {
            n += patterns[i].steps[k].counted as usize;
            k += 1;
        }
        i += 1;
    }
    n
}

/// Windows of all patterns: those of [`SHARING`], then those of [`FLUSHES`] for each instruction.
pub const WINDOWS: usize = counted(SHARING) + MAX_FLUSHES * counted(FLUSHES);

/// The window with this number, below [`WINDOWS`].
pub const fn window(number: usize) -> WindowId {
    WindowId(WindowId::FREE + 0x100 + number as u16)
}

/// Number of the first window of [`FLUSHES`] with the instruction of this number.
pub const fn flushes_from(instruction: usize) -> usize {
    counted(SHARING) + instruction * counted(FLUSHES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_distinct_and_all_used() {
        assert_eq!(flushes_from(0), counted(SHARING));
        assert_eq!(flushes_from(MAX_FLUSHES), WINDOWS);
        assert_eq!(window(1).0, window(0).0 + 1);
        assert!(SHARING.iter().all(|p| p.steps.iter().any(|s| s.counted)));
        assert!(FLUSHES.iter().all(|p| p.steps.iter().any(|s| s.counted)));
    }
}
