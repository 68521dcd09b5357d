//! Whether a history of reads and writes of registers is linearizable: whether each operation could have happened at one moment
//! between its begin and its end, so that each read gives the last write.
//!
//! Each value of a register is written at most once, so it is known which write a read has read. Then the question is one of
//! intervals (P. Gibbons, E. Korach, "Testing shared memories", SIAM J. Comput. 26(4), 1997). The *zone* of a value is between
//! the first end and the last begin of the operations that have written or read it:
//!
//! ```text
//!   w(1)  ├────┤                         forward zone: the register has this value from the first end
//!   r(1)             ├───┤               to the last begin, whatever the order is
//!   zone       ├─────┤
//!
//!   w(2)  ├──────────┤
//!   r(2)     ├───┤                       backward zone: all operations overlap, one moment is enough
//!   zone     ├───┤
//! ```
//!
//! A history is linearizable if no read ends before its write begins, no two forward zones overlap, and no backward zone lies
//! within a forward one.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// What a register has before the first write.
pub const INITIAL: u64 = 0;
/// The end of an operation whose client has not learned it.
pub const NEVER: u64 = u64::MAX;

/// An operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Which register.
    pub register: u64,
    /// What was written, or read. Each value but [`INITIAL`] is written to a register at most once.
    pub value: u64,
    /// Whether it was written.
    pub writes: bool,
    /// When it began. Operations are concurrent if one ends when the other begins.
    pub begin: u64,
    /// When it had ended; [`NEVER`]: the client died, or got no answer. A write without an end may have happened or not.
    pub end: u64,
}

/// Why a history is not linearizable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A value was written twice, so nothing can be said.
    WrittenTwice(Operation),
    /// A value was read that was never written.
    NeverWritten(Operation),
    /// A value was read before it was written.
    TooEarly(Operation),
    /// The register must have had two values at once.
    TwoAtOnce {
        /// The register.
        register: u64,
        /// The values.
        values: [u64; 2],
        /// A time at which it must have had both.
        at: u64,
    },
    /// The operations of a value all lie within a time in which the register had another one.
    Hidden {
        /// The register.
        register: u64,
        /// The value, which was read when it was no longer there, or not yet.
        value: u64,
        /// The other one.
        by: u64,
        /// When it should have been there.
        at: u64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::WrittenTwice(o) => {
                write!(f, "register {}: {} is written twice", o.register, o.value)
            }
            Violation::NeverWritten(o) => {
                write!(
                    f,
                    "register {}: {} is read and was never written",
                    o.register, o.value
                )
            }
            Violation::TooEarly(o) => write!(
                f,
                "register {}: {} is read from {} to {}, before it is written",
                o.register, o.value, o.begin, o.end
            ),
            Violation::TwoAtOnce {
                register,
                values: [a, b],
                at,
            } => write!(f, "register {register}: must be {a} and {b} at time {at}"),
            Violation::Hidden {
                register,
                value,
                by,
                at,
            } => write!(
                f,
                "register {register}: {value} is found about time {at}, when it must be {by}"
            ),
        }
    }
}

/// The operations of a value.
#[derive(Clone, Copy)]
struct Zone {
    value: u64,
    first_end: u64,
    last_begin: u64,
}

impl Zone {
    fn with(self, operation: &Operation) -> Zone {
        Zone {
            first_end: self.first_end.min(operation.end),
            last_begin: self.last_begin.max(operation.begin),
            ..self
        }
    }

    const fn is_forward(&self) -> bool {
        self.first_end < self.last_begin
    }
}

/// Checks a history, the operations of which may come in any order.
///
/// # Errors
///
/// The first thing that is wrong, register by register.
pub fn check(history: &[Operation]) -> Result<(), Violation> {
    let mut registers = BTreeMap::<u64, Vec<&Operation>>::new();
    for operation in history {
        registers
            .entry(operation.register)
            .or_default()
            .push(operation);
    }
    registers
        .into_iter()
        .try_for_each(|(register, all)| one(register, &all))
}

fn one(register: u64, all: &[&Operation]) -> Result<(), Violation> {
    let initial = Operation {
        register,
        value: INITIAL,
        writes: true,
        begin: 0,
        end: 0,
    };
    let mut writes = BTreeMap::from([(INITIAL, &initial)]);
    for &write in all.iter().filter(|o| o.writes) {
        if writes.insert(write.value, write).is_some() {
            return Err(Violation::WrittenTwice(*write));
        }
    }
    let zone = |write: &Operation| Zone {
        value: write.value,
        first_end: write.end,
        last_begin: write.begin,
    };
    let mut zones: BTreeMap<u64, Zone> =
        writes.iter().map(|(&value, w)| (value, zone(w))).collect();
    // Who has not learned what it reads has read nothing.
    for &read in all.iter().filter(|o| !o.writes && o.end != NEVER) {
        let write = writes
            .get(&read.value)
            .ok_or(Violation::NeverWritten(*read))?;
        if read.end < write.begin {
            return Err(Violation::TooEarly(*read));
        }
        zones.entry(read.value).and_modify(|z| *z = z.with(read));
    }
    let (mut forward, backward): (Vec<Zone>, Vec<Zone>) =
        zones.into_values().partition(Zone::is_forward);
    forward.sort_unstable_by_key(|z| z.first_end);
    for pair in forward.windows(2) {
        if pair[1].first_end < pair[0].last_begin {
            return Err(Violation::TwoAtOnce {
                register,
                values: [pair[0].value, pair[1].value],
                at: pair[1].first_end,
            });
        }
    }
    for zone in backward {
        // Forward zones do not overlap, so only the last one that begins before this one can have it within.
        let before = forward.partition_point(|z| z.first_end < zone.last_begin);
        let around = before.checked_sub(1).and_then(|n| forward.get(n));
        if let Some(around) = around.filter(|z| zone.first_end < z.last_begin) {
            return Err(Violation::Hidden {
                register,
                value: zone.value,
                by: around.value,
                at: zone.last_begin,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use alloc::vec;
    use dyad_random::SplitMix64;
    use std::format;

    fn operation(writes: bool, value: u64, (begin, end): (u64, u64)) -> Operation {
        Operation {
            register: 1,
            value,
            writes,
            begin,
            end,
        }
    }

    fn w(value: u64, begin: u64, end: u64) -> Operation {
        operation(true, value, (begin, end))
    }

    fn r(value: u64, begin: u64, end: u64) -> Operation {
        operation(false, value, (begin, end))
    }

    #[test]
    fn what_is_wrong_is_found() {
        let good: [&[Operation]; 7] = [
            &[],
            &[r(0, 1, 2)],
            &[w(1, 1, 5), r(0, 2, 3), r(1, 4, 6), r(1, 7, 8)],
            // Both writes overlap: either may be the last one.
            &[w(1, 1, 9), w(2, 2, 8), r(2, 10, 11), r(2, 12, 13)],
            &[w(1, 1, 9), w(2, 2, 8), r(1, 10, 11)],
            // A write without an end may happen late, or never.
            &[w(1, 1, NEVER), r(0, 5, 6), r(1, 7, 8)],
            &[w(1, 1, NEVER), r(0, 5, 6), r(7, 1, NEVER)],
        ];
        for history in good {
            assert_eq!(check(history), Ok(()), "{history:?}");
        }
        let bad: [&[Operation]; 8] = [
            &[r(3, 1, 2)],
            &[w(1, 1, 2), w(1, 3, 4)],
            &[r(1, 1, 2), w(1, 3, 4)],
            // A stale read.
            &[w(1, 1, 2), r(0, 3, 4)],
            &[w(1, 1, 2), w(2, 3, 4), r(1, 5, 6)],
            // Back to the old value.
            &[w(1, 1, 9), r(1, 2, 3), r(0, 4, 5)],
            // Two readers see two writes in opposite orders.
            &[
                w(1, 1, 9),
                w(2, 1, 9),
                r(1, 10, 11),
                r(2, 12, 13),
                r(1, 14, 15),
            ],
            // A lost put: what was read once is no more.
            &[w(1, 1, NEVER), r(1, 2, 3), r(0, 4, 5)],
        ];
        for history in bad {
            let why = check(history).unwrap_err();
            assert!(format!("{why}").contains("register 1"), "{why}");
        }
    }

    /// Whether operations can be put into an order, by trying all.
    fn by_hand(left: &mut Vec<Operation>, now: u64) -> bool {
        // A read without an end says nothing, and a write without an end need not happen.
        if left.iter().all(|o| o.end == NEVER) {
            return true;
        }
        (0..left.len()).any(|n| {
            let next = left[n];
            // All that has ended before this one begins comes before it.
            let is_first = left.iter().all(|o| o.end >= next.begin);
            let fits = next.writes || next.value == now || next.end == NEVER;
            if !is_first || !fits {
                return false;
            }
            left.swap_remove(n);
            let value = if next.writes { next.value } else { now };
            let found = by_hand(left, value);
            left.push(next);
            let last = left.len() - 1;
            left.swap(n, last);
            found
        })
    }

    /// Against all orders of small histories.
    #[test]
    fn it_agrees_with_all_orders() {
        let mut random = SplitMix64(1);
        let mut verdicts = [0u32; 2];
        for _ in 0..if cfg!(miri) { 20 } else { 30_000 } {
            let n = 1 + random.below(6);
            let mut history = vec![];
            let mut writes = 0;
            for _ in 0..n {
                let begin = 1 + random.below(12);
                let end = match random.below(10) {
                    0 => NEVER,
                    _ => begin + random.below(6),
                };
                if random.below(2) == 0 {
                    writes += 1;
                    history.push(w(writes, begin, end));
                } else {
                    history.push(r(random.below(4), begin, end));
                }
            }
            let found = check(&history);
            if matches!(found, Err(Violation::WrittenTwice(_))) {
                continue;
            }
            let expected = by_hand(&mut history.clone(), INITIAL);
            assert_eq!(found.is_ok(), expected, "{found:?}: {history:?}");
            verdicts[usize::from(expected)] += 1;
        }
        assert!(
            verdicts.iter().all(|&n| n > 1000 || cfg!(miri)),
            "{verdicts:?}"
        );
    }

    /// A register that is one, with four clients; then one read of it is old.
    #[test]
    fn one_old_read_in_a_long_history_is_found() {
        const LENGTH: u64 = if cfg!(miri) { 100 } else { 100_000 };
        let mut random = SplitMix64(2);
        let (mut now, mut value, mut history) = (0u64, 0, vec![]);
        for n in 1..=LENGTH {
            // The moment is within the interval, which others overlap.
            now += 4;
            let interval = (now - random.below(8).min(now - 1), now + random.below(8));
            if random.below(2) == 0 {
                value = n;
                history.push(operation(true, n, interval));
            } else {
                history.push(operation(false, value, interval));
            }
        }
        assert_eq!(check(&history), Ok(()));
        let reads = history.iter().filter(|o| !o.writes && o.value != INITIAL);
        let old = reads.clone().nth(reads.count() / 2).unwrap().value;
        let last = history.last().unwrap().begin + 100;
        history.push(r(old, last, last + 1));
        assert!(check(&history).is_err());
    }
}
