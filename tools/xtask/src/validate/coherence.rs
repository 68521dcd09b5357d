//! Patterns of sharing, whose messages are known exactly, with either ISA first.

use dyad_abi::Isa;
use dyad_abi::marker::WindowId;
use dyad_sim_model::report::Counters;

use super::{Context, Findings, region};
use crate::config::Sim;
use crate::error::Error;

/// The program's first window. The program has the same number.
const WINDOWS: u16 = WindowId::FREE + 0x20;
/// Its patterns, in its order.
const PATTERNS: [&str; 7] = [
    "ping-pong",
    "false-sharing",
    "apart",
    "atomics",
    "producer",
    "readers",
    "upgrade",
];

/// The window of a step of a pattern.
pub(super) fn window(pattern: &str, step: usize) -> u16 {
    let number = PATTERNS.iter().position(|p| *p == pattern).unwrap_or(0);
    WINDOWS + (2 * number + step) as u16
}

/// What each access of a step causes.
#[derive(Clone, Copy, Default)]
struct Each {
    accesses: u64,
    snp_data: u64,
    snp_inv: u64,
    forwarded: u64,
    writebacks: u64,
    silent: u64,
}

/// What the accesses of the steps of a pattern cause, after the first round.
fn expected(pattern: &str) -> [Option<Each>; 2] {
    let quiet = Each {
        accesses: 1,
        ..Each::default()
    };
    // The other node has modified it.
    let taken = Each {
        snp_inv: 1,
        forwarded: 1,
        ..quiet
    };
    match pattern {
        "ping-pong" | "false-sharing" | "atomics" => [Some(taken), Some(taken)],
        "apart" | "readers" => [Some(quiet), Some(quiet)],
        "producer" => [
            // Both have a copy.
            Some(Each {
                snp_inv: 1,
                ..quiet
            }),
            Some(Each {
                snp_data: 1,
                forwarded: 1,
                writebacks: 1,
                ..quiet
            }),
        ],
        // Loaded and stored.
        "upgrade" => [
            Some(Each {
                accesses: 2,
                silent: 1,
                ..quiet
            }),
            None,
        ],
        _ => [None, None],
    }
}

/// How often a pattern is tried until no interrupt comes in any of its windows.
const TRIES: u32 = 5;

/// What was counted in the steps of a pattern.
type Steps = [Option<Counters>; 2];

pub(super) fn compare(cx: &mut Context<'_>, findings: &mut Findings) -> Result<(), Error> {
    let (lines, rounds) = if cx.quick { (64, 8) } else { (256, 32) };
    for first in Isa::ALL {
        for (pattern, counted) in PATTERNS.into_iter().zip(measure(cx, first, lines, rounds)?) {
            for (step, (each, c)) in expected(pattern).into_iter().zip(counted).enumerate() {
                let Some((each, c)) = each.zip(c) else {
                    continue;
                };
                let isa = if step == 0 { first } else { first.other() };
                let mut exactly = |what: &str, measured: u64, each: u64| {
                    let name = format!("{pattern}, {what}, {isa} {}", ["first", "second"][step]);
                    findings.exact(name, measured, each * lines * rounds);
                };
                exactly("accesses", c.accesses, each.accesses);
                exactly("SnpData", c.snp_data, each.snp_data);
                exactly("SnpInv", c.snp_inv, each.snp_inv);
                exactly("forwards", c.forwarded, each.forwarded);
                exactly("write-backs", c.writebacks, each.writebacks);
                exactly("silent upgrades", c.upgrades_silent, each.silent);
            }
        }
    }
    Ok(())
}

/// Runs all patterns; what was counted, by pattern. Programs cannot keep interrupts away, but they
/// show: with one there are more accesses than the program makes, and the pattern is run again. The
/// last run counts in any case.
fn measure(
    cx: &mut Context<'_>,
    first: Isa,
    lines: u64,
    rounds: u64,
) -> Result<[Steps; PATTERNS.len()], Error> {
    let mut counted = [[None; 2]; PATTERNS.len()];
    let mut again: Vec<usize> = (0..PATTERNS.len()).collect();
    for _ in 0..TRIES {
        let names: Vec<&str> = again.iter().map(|&i| PATTERNS[i]).collect();
        let list = names.join(",");
        let args = format!("--pattern {list} --lines {lines} --rounds {rounds} --first {first}");
        let report = cx.run(Sim::Cache, "simpattern", &args, |_| {})?;
        let mut disturbed = Vec::new();
        for i in again {
            for (step, each) in expected(PATTERNS[i]).into_iter().enumerate() {
                let Some(each) = each else {
                    continue;
                };
                let isa = if step == 0 { first } else { first.other() };
                let c = region::window(&report, isa, window(PATTERNS[i], step))?.counters;
                if c.accesses > each.accesses * lines * rounds {
                    disturbed.push(i);
                }
                counted[i][step] = Some(c);
            }
        }
        disturbed.dedup();
        again = disturbed;
        if again.is_empty() {
            break;
        }
    }
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_has_an_expectation() {
        for pattern in PATTERNS {
            assert!(expected(pattern)[0].is_some(), "{pattern}");
        }
        assert_eq!(window("ping-pong", 0), WINDOWS);
        assert_eq!(window("upgrade", 1), WINDOWS + 13);
    }
}
