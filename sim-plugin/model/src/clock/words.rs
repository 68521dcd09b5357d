//! The words that the plugins of all machines share.
//!
//! A file of zeros at the start of a run. The launcher writes [`dead`] words and nothing else.
//!
//! | from | content | written by |
//! |---|---|---|
//! | 0 | [`ARRIVED`], [`OPEN`] | CPUs at their start |
//! | [`TURN`] .. [`HASH`] | strict order | who has the turn |
//! | [`dead`] | process of the last machine of a node that has ended | launcher |
//! | [`who`] | per CPU: [`cpu`] | see there |
//! | [`queue`] | per receiver and sender: doorbells on their way | [`super::events`] |
//! | [`GATES`] | per CPU: what it sleeps in front of while it waits | [`super::Host`] |

use core::sync::atomic::{AtomicU64, Ordering, fence};

use dyad_abi::ident::MAX_NODES;

use super::{MAX_WHO, Who};

/// Set of nodes whose first CPU has begun.
pub const ARRIVED: usize = 0;
/// 0; then [`OPENING`], while the first CPU is chosen; then [`OPENED`]: the start is over, and a CPU that
/// begins now is late.
pub const OPEN: usize = 1;
/// See [`OPEN`].
pub const OPENING: u64 = 1;
/// See [`OPEN`].
pub const OPENED: u64 = 2;
/// Strict order: the CPU that has the turn; see [`super::turns`].
pub const TURN: usize = 8;
/// Strict order: when its slice ends, in picoseconds.
pub const TURN_END: usize = 9;
/// Strict order: state of the random numbers.
pub const RANDOM: usize = 10;
/// Strict order: hash over everything that has happened.
pub const HASH: usize = 11;
/// Strict order: how many slices there were.
pub const TURNS: usize = 12;
/// Strict order: how often a turn was taken from a CPU that did not go on. The run cannot be
/// repeated if it is not 0.
pub const TAKEN: usize = 13;

const DEAD: usize = 16;
const WHO: usize = 64;
const WHO_WORDS: usize = 16;
const QUEUE: usize = WHO + MAX_WHO * WHO_WORDS;
/// Words of a queue.
pub const QUEUE_WORDS: usize = 16;
/// Gates: 32 bits for every CPU, which the model leaves to the process around it.
pub const GATES: usize = QUEUE + MAX_WHO * MAX_WHO * QUEUE_WORDS;
/// All words of the clock.
pub const CLOCK_WORDS: usize = GATES + MAX_WHO / 2;

const _: () = assert!(DEAD + MAX_NODES <= WHO);

/// Words of a CPU.
pub mod cpu {
    /// A [state](super::super::state).
    pub const STATE: usize = 0;
    /// Time of the CPU at its last check of the others, in picoseconds; written by the CPU itself.
    pub const TIME: usize = 1;
    /// Changes while it waits; written by the CPU itself.
    pub const BEAT: usize = 2;
    /// Process and thread of the CPU; written by the CPU itself when it begins.
    pub const PID: usize = 3;
    /// See [`PID`].
    pub const TID: usize = 4;
    /// Number of the CPU that it waits for in front of its gate, plus one; 0: none; written by the
    /// CPU itself.
    pub const WANT: usize = 5;
    /// Goes with it: to what time that one has to come.
    pub const WANT_TIME: usize = 6;
    /// Deadline of the CPU in picoseconds, 0 if none; written by the CPU itself.
    pub const DEADLINE: usize = 8;
}

/// Index of the word with the process number of a node's last ended machine.
pub const fn dead(node: usize) -> usize {
    DEAD + node
}

/// Index of a word of [`cpu`].
pub const fn who(who: Who, word: usize) -> usize {
    WHO + who.index() * WHO_WORDS + word
}

/// Index of the first word of the queue from `from` to `to`.
pub const fn queue(to: Who, from: Who) -> usize {
    QUEUE + (to.index() * MAX_WHO + from.index()) * QUEUE_WORDS
}

/// The words, as the model uses them.
pub trait Words {
    /// Loads a word; what its writer did before is seen after.
    fn get(&self, at: usize) -> u64;
    /// Stores a word, after everything before.
    fn set(&self, at: usize, value: u64);
    /// Compare-and-exchange of a word; in a total order with all accesses before and after it.
    ///
    /// # Errors
    ///
    /// The value of the word, if it is not `expected`.
    fn exchange(&self, at: usize, expected: u64, value: u64) -> Result<u64, u64>;
    /// A full fence: stores before it are visible to all before loads after it are made.
    fn fence(&self);
}

impl Words for &[AtomicU64] {
    fn get(&self, at: usize) -> u64 {
        self[at].load(Ordering::Acquire)
    }

    fn set(&self, at: usize, value: u64) {
        self[at].store(value, Ordering::Release);
    }

    fn exchange(&self, at: usize, expected: u64, value: u64) -> Result<u64, u64> {
        self[at].compare_exchange(expected, value, Ordering::SeqCst, Ordering::SeqCst)
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}
