//! Bit scans. `bsf` and `bsr` leave their destination alone if the source is zero, so the destination is
//! an operand. Back ends use them with whatever is in the destination where the source cannot be
//! zero; where that shows in the instructions just before, the destination is no operand after all. Nor is it where an
//! instruction soon after replaces it if the source is zero, or takes it if the source is not zero, as those do which count
//! the bits of an integer. In the second case it has no value from then on.

use super::{all_flags, number, raw, read};
use crate::verify::insn::{Flow, Insn};
use crate::verify::lanes::Lanes;
use iced_x86::{Mnemonic, OpKind, Register};
use std::collections::BTreeSet;

/// Instructions that may stand between a scan and the one that uses its result by its flag.
const BETWEEN: usize = 4;

/// Takes the destination out of what bit scans read, where the source cannot be zero, or what is left then is replaced.
pub(in crate::verify) fn refine(bytes: &[u8], va: u64, insns: &mut [Insn]) {
    let raw = |insn: &Insn| {
        let at = usize::try_from(insn.va - va).unwrap_or(usize::MAX);
        raw(bytes.get(at..).unwrap_or_default(), insn.va)
    };
    let targets: BTreeSet<u64> = insns
        .iter()
        .filter_map(|insn| match insn.flow {
            Flow::Jump(to) | Flow::Branch(to) => Some(to),
            _ => None,
        })
        .collect();
    for i in 0..insns.len() {
        let scan = raw(&insns[i]);
        let (to, from) = (scan.op0_register(), scan.op1_register());
        if !matches!(scan.mnemonic(), Mnemonic::Bsf | Mnemonic::Bsr) || !from.is_gpr() {
            continue;
        }
        let (Some(to), Some(from)) = (written(to), read(from)) else {
            continue;
        };
        let choice = choice(&insns[i + 1..], &targets, raw, to);
        if let Some((n, Choice::Taken)) = choice {
            insns[i + 1 + n].spoil(to);
        }
        if choice.is_some() || nonzero(&insns[..=i], &targets, raw, scan.op1_register()) {
            insns[i].reads = insns[i].reads.minus(to).or(from);
        }
    }
}

/// What an instruction does with the result of a scan, by the flag that the scan has set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// It replaces the result if the source was zero.
    Replaced,
    /// It copies the result if the source was not zero.
    Taken,
}

/// The place of the instruction that uses a scan's result, `to`, by the scan's flag. Those before it use neither.
fn choice(
    insns: &[Insn],
    targets: &BTreeSet<u64>,
    raw: impl Fn(&Insn) -> iced_x86::Instruction,
    to: Lanes,
) -> Option<(usize, Choice)> {
    for (n, insn) in insns.iter().enumerate().take(BETWEEN + 1) {
        if targets.contains(&insn.va) || insn.flow != Flow::Next {
            return None;
        }
        let next = raw(insn);
        let is = |reg| written(reg) == Some(to);
        match next.mnemonic() {
            Mnemonic::Cmove if is(next.op0_register()) => return Some((n, Choice::Replaced)),
            Mnemonic::Cmovne
                if next.op1_kind() == OpKind::Register
                    && is(next.op1_register())
                    && !is(next.op0_register()) =>
            {
                return Some((n, Choice::Taken));
            }
            _ => {}
        }
        let used = insn.all_reads().or(insn.all_changes());
        if !used.and(to.or(all_flags())).is_empty() {
            return None;
        }
    }
    None
}

fn written(reg: Register) -> Option<Lanes> {
    (reg.is_gpr32() || reg.is_gpr64()).then_some(Lanes::general(number(reg)?, 8))
}

/// Whether `reg` cannot be zero at the last of `insns`: a bit of it has been set, or it has been
/// compared with zero, and neither a write nor another way in comes between.
fn nonzero(
    insns: &[Insn],
    targets: &BTreeSet<u64>,
    raw: impl Fn(&Insn) -> iced_x86::Instruction,
    reg: Register,
) -> bool {
    let Some(lanes) = number(reg).map(|n| Lanes::general(n, 8)) else {
        return false;
    };
    for (i, insn) in insns.iter().enumerate().rev().skip(1) {
        if targets.contains(&insns[i + 1].va) {
            return false;
        }
        let before = raw(insn);
        match insn.flow {
            Flow::Next => {}
            Flow::Branch(_) => {
                let tests = before.mnemonic() == Mnemonic::Je
                    && !targets.contains(&insn.va)
                    && i > 0
                    && is_test(&raw(&insns[i - 1]), reg);
                if tests {
                    return true;
                }
            }
            _ => return false,
        }
        if !insn.all_changes().and(lanes).is_empty() {
            // The sign is extended, so a bit in the lower half stays one.
            return before.mnemonic() == Mnemonic::Or
                && before.op0_kind() == OpKind::Register
                && before.op0_register().full_register() == reg.full_register()
                && matches!(
                    before.op1_kind(),
                    OpKind::Immediate8to32
                        | OpKind::Immediate8to64
                        | OpKind::Immediate32
                        | OpKind::Immediate32to64
                )
                && before.immediate(1) as u32 != 0;
        }
    }
    false
}

fn is_test(insn: &iced_x86::Instruction, reg: Register) -> bool {
    insn.mnemonic() == Mnemonic::Test && insn.op0_register() == reg && insn.op1_register() == reg
}
