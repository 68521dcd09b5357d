//! Functions as graphs of instructions.

use super::image::{Function, Image};
use super::insn::{Flow, Insn};
use super::{a64, x86};
use dyad_abi::Isa;
use std::collections::{BTreeMap, BTreeSet};

/// The instructions of a function, in order of address.
pub(super) struct Code {
    pub insns: Vec<Insn>,
    va: u64,
    /// By distance from the first byte: the instruction that starts there, or [`Code::NONE`].
    starts: Vec<u32>,
}

impl Code {
    /// Decodes all of `function`, from its first byte to its last.
    pub fn decode(isa: Isa, function: &Function<'_>) -> Code {
        let mut insns: Vec<Insn> = Vec::new();
        let mut at = 0;
        while let Some(rest) = function.bytes.get(at..).filter(|r| !r.is_empty()) {
            let va = function.va + at as u64;
            let insn = match isa {
                Isa::X86_64 => x86::decode(rest, va),
                Isa::Aarch64 => a64::decode(word(rest), va),
            };
            at += usize::from(insn.len);
            insns.push(insn);
        }
        if isa == Isa::X86_64 {
            x86::refine(function.bytes, function.va, &mut insns);
        }
        let mut starts = vec![Code::NONE; function.bytes.len()];
        for (i, insn) in (0..Code::NONE).zip(&insns) {
            starts[(insn.va - function.va) as usize] = i;
        }
        let va = function.va;
        Code { insns, va, starts }
    }

    const NONE: u32 = u32::MAX;

    /// The index of the instruction at that address.
    pub fn at(&self, va: u64) -> Option<usize> {
        let at = usize::try_from(va.checked_sub(self.va)?).ok()?;
        let start = self.starts.get(at).filter(|i| **i != Code::NONE)?;
        Some(*start as usize)
    }
}

/// The instruction word at the start of `bytes`. A word that is cut off is no instruction.
pub(super) fn word(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(u32::MAX, |word| u32::from_le_bytes(*word))
}

/// Functions of the program that return to their callers, as far as their own code tells.
///
/// Back ends put nothing behind a call that does not return, so what follows such a call belongs to
/// another path, or to nobody.
pub(super) struct Returning {
    known: BTreeMap<u64, bool>,
}

impl Returning {
    /// Finds out about everything that is called, at any depth, from the functions at `roots`.
    pub fn of(isa: Isa, image: &Image<'_>, roots: impl IntoIterator<Item = u64>) -> Returning {
        let mut codes: BTreeMap<u64, Code> = BTreeMap::new();
        let mut open: Vec<u64> = roots.into_iter().collect();
        while let Some(va) = open.pop() {
            let Some(function) = image.starting_at(va) else {
                continue;
            };
            if codes.contains_key(&va) {
                continue;
            }
            let code = Code::decode(isa, function);
            open.extend(code.insns.iter().filter_map(|insn| match insn.flow {
                Flow::Call(to) | Flow::Jump(to) | Flow::Branch(to) => Some(to),
                _ => None,
            }));
            codes.insert(va, code);
        }
        // Nothing returns until it is seen to.
        let mut returning = Returning {
            known: codes.keys().map(|va| (*va, false)).collect(),
        };
        loop {
            let found: Vec<u64> = codes
                .iter()
                .filter(|(va, code)| !returning.known[*va] && returning.returns(code))
                .map(|(va, _)| *va)
                .collect();
            if found.is_empty() {
                return returning;
            }
            returning
                .known
                .extend(found.into_iter().map(|va| (va, true)));
        }
    }

    /// Whether a call of the function at `va` may come back.
    pub fn comes_back(&self, va: u64) -> bool {
        self.known.get(&va).copied().unwrap_or(true)
    }

    /// Whether `code` may return, by what is known so far.
    fn returns(&self, code: &Code) -> bool {
        let mut seen = BTreeSet::from([0]);
        let mut open = vec![0];
        while let Some(i) = open.pop() {
            let Some(insn) = code.insns.get(i) else {
                return true;
            };
            let (targets, next) = self.successors(insn);
            if matches!(insn.flow, Flow::Return(_) | Flow::IndirectJump) {
                return true;
            }
            for to in targets.into_iter().chain(next) {
                match code.at(to) {
                    Some(to) if seen.insert(to) => open.push(to),
                    Some(_) => {}
                    // Off the end, into data, or a tail call.
                    None if self.comes_back(to) => return true,
                    None => {}
                }
            }
        }
        false
    }

    /// The target of `insn`, if it has one, and the next instruction, if control may come there.
    pub fn successors(&self, insn: &Insn) -> (Option<u64>, Option<u64>) {
        let next = Some(insn.end());
        match insn.flow {
            Flow::Next | Flow::IndirectCall => (None, next),
            Flow::Jump(to) => (Some(to), None),
            Flow::Branch(to) => (Some(to), next),
            Flow::Call(to) if self.comes_back(to) => (None, next),
            Flow::Call(_) | Flow::Return(_) | Flow::IndirectJump | Flow::Trap => (None, None),
        }
    }
}
