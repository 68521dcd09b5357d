//! Sequences of random instructions, executed one by one and as code that is taken apart and kept: what one
//! instruction leaves to the next, such as flags that have not been worked out, is the same.

use crate::a64_forms;
use crate::support;
use crate::x86_forms;

use dyad_emulate::{Cpu, End, a64, x86};
use support::machine::HERE;
use support::memory::{Use, Windows};
use support::{Random, a64::Case as A64Case, x86::Case as X86Case};

/// Instructions of a sequence.
const LENGTH: usize = 24;

/// Code at [`HERE`], which goes on for as long as sequences are, and whatever data a case has.
fn with_code(memory: &Windows, code: Vec<u8>) -> Windows {
    let mut out = Windows::default();
    for window in &memory.windows {
        if window.r#use != Use::Code {
            out.add(window.va, window.bytes.clone(), window.r#use);
        }
    }
    out.add(HERE, code, Use::Code);
    out
}

/// Runs a sequence in pieces. What is refused is left out, and the rest goes on behind it, which `next` says.
fn goes_through<C: Cpu + Clone + PartialEq + std::fmt::Debug>(
    cpu: &mut C,
    memory: &mut Windows,
    piece: u64,
    next: impl Fn(&mut C) -> bool,
) -> u64 {
    let mut steps = 0;
    for _ in 0..2 * LENGTH {
        let run = support::run(cpu, memory, |_| false, 4 * LENGTH as u64, piece);
        steps += run.steps;
        match run.end {
            End::Trap(_) | End::Refused(_) => {
                if !next(cpu) {
                    break;
                }
            }
            End::SystemCall => {}
            End::Limit | End::Stop => break,
        }
    }
    steps
}

#[test]
fn sequences_of_x86_64_instructions() {
    let forms: Vec<_> = x86_forms::forms().collect();
    let mut steps = 0;
    for index in 0..dyad_tier::size(4_000, 20_000, 400_000) {
        let mut random = Random::new("x86 sequence", index);
        let pick = |r: &mut Random| forms[r.below(forms.len() as u64) as usize];
        let mut case = X86Case::new(pick(&mut random), index);
        let mut code = case.bytes.clone();
        let mut starts = vec![HERE];
        for n in 1..LENGTH as u64 {
            starts.push(HERE + code.len() as u64);
            code.extend(X86Case::new(pick(&mut random), index * 64 + n).bytes);
        }
        if random.below(2) == 0 {
            case.state.mxcsr = 0x1fa0;
        }
        let mut memory = with_code(&case.memory, code);
        let piece = 1 + random.below(9);
        steps += goes_through(
            &mut case.state,
            &mut memory,
            piece,
            |cpu: &mut x86::State| {
                let behind = starts.iter().find(|&&start| start > cpu.rip);
                behind.is_some_and(|&start| {
                    cpu.rip = start;
                    true
                })
            },
        );
    }
    eprintln!("{steps} instructions");
    assert!(steps > 20_000, "{steps}");
}

#[test]
fn sequences_of_aarch64_instructions() {
    let forms: Vec<_> = a64_forms::forms().collect();
    let mut steps = 0;
    for index in 0..dyad_tier::size(4_000, 20_000, 400_000) {
        let mut random = Random::new("a64 sequence", index);
        let pick = |r: &mut Random| forms[r.below(forms.len() as u64) as usize];
        let mut case = A64Case::new(pick(&mut random), index);
        let mut code = case.word.to_le_bytes().to_vec();
        for n in 1..LENGTH as u64 {
            let word = A64Case::new(pick(&mut random), index * 64 + n).word;
            code.extend(word.to_le_bytes());
        }
        if random.below(2) == 0 {
            (case.state.fpcr, case.state.fpsr) = (0, 1 << 4);
        }
        let mut memory = with_code(&case.memory, code);
        let piece = 1 + random.below(9);
        steps += goes_through(
            &mut case.state,
            &mut memory,
            piece,
            |cpu: &mut a64::State| {
                cpu.pc = cpu.pc.wrapping_add(4);
                (HERE..HERE + 4 * LENGTH as u64).contains(&cpu.pc)
            },
        );
    }
    eprintln!("{steps} instructions");
    assert!(steps > 20_000, "{steps}");
}
