//! What the tests of the interpreters share.

pub mod a64;
pub mod machine;
pub mod memory;
pub mod x86;

use std::path::{Path, PathBuf};

use dyad_emulate::{Cpu, End, Event, Memory, Refusal, Run, run_to};
use dyad_random::{GOLDEN, SplitMix64};
use dyad_tier::Tier;
use memory::Windows;

/// Whether tests do what takes long, or needs tools that are not everywhere.
pub fn long() -> bool {
    Tier::now() == Tier::Long
}

pub fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Executes one instruction, once by itself and once as code that is taken apart and kept: the outcomes are the
/// same.
pub fn step<C: Cpu + Clone + PartialEq + std::fmt::Debug>(
    cpu: &mut C,
    memory: &mut Windows,
) -> Result<Event, Refusal> {
    let (before, mut its_memory) = (cpu.clone(), memory.clone());
    let outcome = cpu.step(memory);
    same_when_kept(&before, &mut its_memory, cpu, outcome);
    assert!(its_memory.windows == memory.windows, "memory differs");
    outcome
}

/// Executes one instruction as code that is taken apart and kept: the outcome is this one.
pub fn same_when_kept<C: Cpu + Clone + PartialEq + std::fmt::Debug>(
    before: &C,
    memory: &mut impl Memory,
    after: &C,
    outcome: Result<Event, Refusal>,
) {
    let mut kept = before.clone();
    let run = kept.run(memory, &mut C::Cache::default(), |_| false, 1);
    let (steps, end) = match outcome {
        Ok(Event::Continue | Event::Call { .. } | Event::Return) => (1, End::Limit),
        Ok(Event::SystemCall) => (1, End::SystemCall),
        Ok(Event::Trap(trap)) => (0, End::Trap(trap)),
        Err(refusal) => (0, End::Refused(refusal)),
    };
    assert_eq!(run, Run { steps, end });
    assert_eq!(kept, *after);
}

/// Executes code instruction by instruction, and as code that is taken apart and kept, in pieces of some
/// instructions: the outcomes are the same.
pub fn run<C: Cpu + Clone + PartialEq + std::fmt::Debug>(
    cpu: &mut C,
    memory: &mut Windows,
    stop: impl Fn(u64) -> bool,
    limit: u64,
    piece: u64,
) -> Run {
    let (mut kept, mut its_memory) = (cpu.clone(), memory.clone());
    let run = run_to(cpu, memory, &stop, limit);
    let mut cache = C::Cache::default();
    let mut steps = 0;
    let end = loop {
        let most = piece.min(limit - steps);
        let piece = kept.run(&mut its_memory, &mut cache, &stop, most);
        steps += piece.steps;
        if piece.end != End::Limit || steps == limit {
            break piece.end;
        }
    };
    assert_eq!(Run { steps, end }, run);
    assert_eq!(kept, *cpu);
    assert!(its_memory.windows == memory.windows, "memory differs");
    run
}

/// A directory of this test run, empty.
pub fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Random numbers, the same in every run.
pub struct Random(SplitMix64);

impl Random {
    pub fn new(name: &str, index: u64) -> Random {
        Random(SplitMix64(
            hash(name.as_bytes()) ^ index.wrapping_mul(GOLDEN),
        ))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// An integer, often one where something happens: few bits, or near a boundary.
    pub fn integer(&mut self) -> u64 {
        let random = self.next();
        match self.below(6) {
            0 => random & 0xff,
            1 => {
                let at = 1u64 << (random & 63);
                at.wrapping_add(self.below(3)).wrapping_sub(1)
            }
            2 => random as i16 as u64,
            3 => random & 0xffff_ffff,
            _ => random,
        }
    }

    /// Bits of a 64-bit number, or of two 32-bit ones, often a special one.
    pub fn float(&mut self) -> u64 {
        let double = self.below(2) == 0;
        let mut one = |exponent_bits: u32, mantissa_bits: u32| {
            let all = (1u64 << exponent_bits) - 1;
            let bias = all >> 1;
            let random = self.next();
            let full = random & ((1 << mantissa_bits) - 1);
            let exponent = match self.below(12) {
                0 => 0,
                1 => all,
                2 => 1,
                3 => all - 1,
                // Where conversions and roundings take place, and near each other so that sums
                // round and cancel.
                4..=7 => bias + self.below(u64::from(mantissa_bits) + 14) - 4,
                8..=10 => bias + self.below(4) - 2,
                _ => self.next() & all,
            };
            let mantissa = match self.below(6) {
                0 => 0,
                1 => 1 << self.below(mantissa_bits.into()),
                2 => full | 1 << (mantissa_bits - 1),
                3 => full >> self.below(mantissa_bits.into()) << self.below(8) & full,
                _ => full,
            };
            (random >> 63) << (exponent_bits + mantissa_bits) | exponent << mantissa_bits | mantissa
        };
        if double {
            one(11, 52)
        } else {
            one(8, 23) | one(8, 23) << 32
        }
    }
}

/// FNV-1a.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    })
}
