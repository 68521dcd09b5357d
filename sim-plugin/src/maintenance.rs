// SPDX-License-Identifier: GPL-2.0-or-later
//! Instructions that act on caches or on translations, and what they act on. QEMU executes the
//! former without an access to memory that a plugin could see, so the address comes from the
//! machine code and the registers.
//!
//! | | x86-64 | AArch64 |
//! |---|---|---|
//! | write back | CLWB | DC CVAC, CVAP, CVADP |
//! | write back and drop | CLFLUSH, CLFLUSHOPT | DC CIVAC |
//! | drop | - | DC IVAC |
//! | zero | - | DC ZVA |
//! | write back and drop everything | WBINVD | DC CISW, a set and way at a time |
//! | change translations of this CPU | MOV to CR0, CR3, CR4; INVLPG, INVPCID; WRMSR | MSR to TTBR0, TTBR1, TCR, SCTLR; TLBI |
//! | of all CPUs | - | TLBI of the inner or outer shareable domain |
//!
//! DC CVAU is for instruction fetches and stays inside of a node.

use dyad_abi::Isa;
use dyad_sim_model::system::Operation;

use crate::prefixes::split;
use crate::system::operation;

/// What is done to the line of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LineOp {
    /// Modified data goes to memory; the copy stays.
    WriteBack,
    /// Modified data goes to memory; no copy stays.
    Flush,
    /// No copy stays. (What was modified may be lost, or written back: QEMU and the model do.)
    Drop,
    /// The line becomes zero: a store.
    Zero,
}

/// How the address of an operand comes about: the sum of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Operand {
    /// A register, by the ISA's own number.
    pub base: Option<u8>,
    /// A register and what it is multiplied by.
    pub index: Option<(u8, u8)>,
    /// A constant; for addresses relative to the instruction, to its start.
    pub displacement: i64,
    /// Whether the address of the instruction is a part.
    pub relative: bool,
}

impl Operand {
    /// The address. `register` reads one, `at` is the address of the instruction.
    pub fn address(&self, at: u64, mut register: impl FnMut(u8) -> Option<u64>) -> Option<u64> {
        let mut sum = self.displacement as u64;
        if self.relative {
            sum = sum.wrapping_add(at);
        }
        if let Some(base) = self.base {
            sum = sum.wrapping_add(register(base)?);
        }
        if let Some((index, scale)) = self.index {
            sum = sum.wrapping_add(register(index)?.wrapping_mul(u64::from(scale)));
        }
        Some(sum)
    }
}

/// Whose translations an instruction changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of the CPU that executes it.
    Cpu,
    /// Those of all CPUs of the machine.
    Machine,
}

/// An instruction that is of interest here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// It acts on a line.
    Line(LineOp, Operand),
    /// It acts on translations.
    Translations(Scope),
    /// It writes back and drops all that caches hold, or is one of the instructions that do so
    /// together.
    Everything,
}

/// What the instruction `code` does to caches or translations; `None` for almost all.
pub fn maintenance(isa: Isa, code: &[u8]) -> Option<Maintenance> {
    let word = || Some(u32::from_le_bytes(code.try_into().ok()?));
    let scope = match (isa, operation(isa, code)) {
        (Isa::Aarch64, Some(Operation::TlbInvalidation)) => tlbi_scope(word()?),
        (_, Some(Operation::RootSwitch | Operation::TlbInvalidation)) => Scope::Cpu,
        (Isa::X86_64, _) => return x86(code),
        (Isa::Aarch64, _) => return aarch64(word()?),
    };
    Some(Maintenance::Translations(scope))
}

fn x86(code: &[u8]) -> Option<Maintenance> {
    let (prefixes, rest) = split(code);
    let (operand_size, repeat, rex) = (prefixes.operand_size, prefixes.repeat, prefixes.rex);
    let changes = Some(Maintenance::Translations(Scope::Cpu));
    match *rest {
        // MOV to CR0 and CR4.
        [0x0f, 0x22, modrm, ..] if matches!(modrm >> 3 & 7, 0 | 4) && rex & 4 == 0 => changes,
        [0x0f, 0x30, ..] => changes,
        [0x0f, 0x09, ..] if !repeat => Some(Maintenance::Everything),
        [0x0f, 0xae, modrm, ref tail @ ..] if modrm < 0xc0 && !repeat => {
            let op = match (modrm >> 3 & 7, operand_size) {
                (7, _) => LineOp::Flush,
                (6, true) => LineOp::WriteBack,
                _ => return None,
            };
            // Segments with a base, and 32-bit addresses: nobody uses them for this.
            let operand = (!prefixes.address).then(|| x86_operand(modrm, rex, tail, code.len()));
            Some(Maintenance::Line(op, operand??))
        }
        _ => None,
    }
}

/// The operand in memory that a ModR/M byte and what follows it describe.
pub fn x86_operand(modrm: u8, rex: u8, tail: &[u8], length: usize) -> Option<Operand> {
    let mode = modrm >> 6;
    let mut operand = Operand::default();
    let mut rest = tail;
    let low = modrm & 7;
    let mut absolute = false;
    if low == 4 {
        let (&sib, after) = rest.split_first()?;
        rest = after;
        let index = sib >> 3 & 7 | (rex & 2) << 2;
        // Register 4 cannot be an index; 12 can.
        if index != 4 {
            operand.index = Some((index, 1 << (sib >> 6)));
        }
        if sib & 7 == 5 && mode == 0 {
            absolute = true;
        } else {
            operand.base = Some(sib & 7 | (rex & 1) << 3);
        }
    } else if low == 5 && mode == 0 {
        operand.relative = true;
        absolute = true;
        operand.displacement = length as i64;
    } else {
        operand.base = Some(low | (rex & 1) << 3);
    }
    let displacement = match (mode, absolute) {
        (1, _) => i64::from(*rest.first()? as i8),
        (2, _) | (0, true) => i64::from(i32::from_le_bytes(rest.get(..4)?.try_into().ok()?)),
        _ => 0,
    };
    operand.displacement += displacement;
    Some(operand)
}

fn aarch64(word: u32) -> Option<Maintenance> {
    let is = |mask: u32, value: u32| word & mask == value;
    // SYS instructions and system register writes have op0, op1, CRn, CRm, op2 in fixed places.
    let line = |op| {
        let register = (word & 31) as u8;
        let operand = Operand {
            // Register 31 reads as zero here.
            base: (register != 31).then_some(register),
            ..Operand::default()
        };
        Some(Maintenance::Line(op, operand))
    };
    if is(0xffff_ffe0, 0xd508_7620) {
        return line(LineOp::Drop);
    }
    if is(0xffff_ffe0, 0xd508_7e40) {
        return Some(Maintenance::Everything);
    }
    if is(0xffff_f0e0, 0xd50b_7020) {
        return match word >> 8 & 15 {
            4 => line(LineOp::Zero),
            10 | 12 | 13 => line(LineOp::WriteBack),
            14 => line(LineOp::Flush),
            _ => None,
        };
    }
    // MSR to SCTLR_EL1, TCR_EL1.
    matches!(word & 0xffff_ffe0, 0xd518_1000 | 0xd518_2040)
        .then_some(Maintenance::Translations(Scope::Cpu))
}

/// Whose translations a TLBI invalidates. CRm tells the domain: 1 and 3 (5: by range, outer; 2: by range, inner) are
/// shareable.
pub const fn tlbi_scope(word: u32) -> Scope {
    match word >> 8 & 15 {
        6 | 7 => Scope::Cpu,
        _ => Scope::Machine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LineOp::{Drop, Flush, WriteBack, Zero};

    fn x86_line(code: &[u8]) -> (LineOp, u64) {
        let Some(Maintenance::Line(op, operand)) = maintenance(Isa::X86_64, code) else {
            panic!("{code:02x?}");
        };
        // Register n holds n million.
        let register = |n| Some(u64::from(n) * 1_000_000);
        (op, operand.address(0x40_0000, register).unwrap())
    }

    #[test]
    fn x86_lines() {
        let golden: [(&[u8], LineOp, u64); 9] = [
            (&[0x0f, 0xae, 0x3f], Flush, 7_000_000), // clflush [rdi]
            (&[0x66, 0x0f, 0xae, 0x3f], Flush, 7_000_000), // clflushopt [rdi]
            (&[0x66, 0x41, 0x0f, 0xae, 0x30], WriteBack, 8_000_000), // clwb [r8]
            (&[0x0f, 0xae, 0x7f, 0xf8], Flush, 6_999_992), // clflush [rdi-8]
            (&[0x0f, 0xae, 0x3c, 0x24], Flush, 4_000_000), // clflush [rsp]
            (&[0x0f, 0xae, 0x3c, 0xb8], Flush, 28_000_000), // clflush [rax+rdi*4]
            (
                &[0x43, 0x0f, 0xae, 0xbc, 0xe5, 0x00, 0x01, 0x00, 0x00], // clflush [r13+r12*8+256]
                Flush,
                109_000_256,
            ),
            (
                &[0x0f, 0xae, 0x3d, 0xf0, 0xff, 0xff, 0xff],
                Flush,
                0x3f_fff7,
            ), // clflush [rip-16]
            (
                &[0x0f, 0xae, 0x3c, 0x25, 0x00, 0x10, 0x00, 0x00], // clflush [0x1000]
                Flush,
                0x1000,
            ),
        ];
        for (code, op, address) in golden {
            assert_eq!(x86_line(code), (op, address), "{code:02x?}");
        }
    }

    #[test]
    fn everything_at_once() {
        let golden: [(Isa, &[u8], bool); 5] = [
            (Isa::X86_64, &[0x0f, 0x09], true),                   // wbinvd
            (Isa::X86_64, &[0xf3, 0x0f, 0x09], false),            // wbnoinvd
            (Isa::X86_64, &[0x0f, 0x08], false),                  // invd
            (Isa::Aarch64, &0xd508_7e40u32.to_le_bytes(), true),  // dc cisw, x0
            (Isa::Aarch64, &0xd508_7a40u32.to_le_bytes(), false), // dc csw, x0
        ];
        for (isa, code, all) in golden {
            let expected = all.then_some(Maintenance::Everything);
            assert_eq!(maintenance(isa, code), expected, "{code:02x?}");
        }
    }

    #[test]
    fn x86_translations() {
        let cpu = Some(Maintenance::Translations(Scope::Cpu));
        let golden: [(&[u8], Option<Maintenance>); 12] = [
            (&[0x0f, 0x22, 0xd8], cpu),             // mov cr3, rax
            (&[0x41, 0x0f, 0x22, 0xd8], cpu),       // mov cr3, r8
            (&[0x0f, 0x22, 0xe0], cpu),             // mov cr4, rax
            (&[0x0f, 0x22, 0xc0], cpu),             // mov cr0, rax
            (&[0x0f, 0x22, 0xd0], None),            // mov cr2, rax
            (&[0x44, 0x0f, 0x22, 0xc0], None),      // mov cr8, rax
            (&[0x0f, 0x20, 0xd8], None),            // mov rax, cr3
            (&[0x0f, 0x01, 0x38], cpu),             // invlpg [rax]
            (&[0x0f, 0x01, 0xf8], None),            // swapgs
            (&[0x66, 0x0f, 0x38, 0x82, 0x08], cpu), // invpcid rcx, [rax]
            (&[0x0f, 0x30], cpu),                   // wrmsr
            (&[0x0f, 0xae, 0x37], None),            // xsaveopt [rdi]
        ];
        for (code, expected) in golden {
            assert_eq!(maintenance(Isa::X86_64, code), expected, "{code:02x?}");
        }
    }

    #[test]
    fn aarch64_instructions() {
        let line = |op, n| {
            let base = Some(n);
            let operand = Operand {
                base,
                ..Operand::default()
            };
            Some(Maintenance::Line(op, operand))
        };
        let scope = |s| Some(Maintenance::Translations(s));
        let golden: [(u32, Option<Maintenance>); 18] = [
            (0xd508_7623, line(Drop, 3)),         // dc ivac, x3
            (0xd50b_7a21, line(WriteBack, 1)),    // dc cvac, x1
            (0xd50b_7c21, line(WriteBack, 1)),    // dc cvap, x1
            (0xd50b_7e3e, line(Flush, 30)),       // dc civac, x30
            (0xd50b_7420, line(Zero, 0)),         // dc zva, x0
            (0xd50b_7b21, None),                  // dc cvau, x1
            (0xd50b_7520, None),                  // ic ivau, x0
            (0xd508_871f, scope(Scope::Cpu)),     // tlbi vmalle1
            (0xd508_831f, scope(Scope::Machine)), // tlbi vmalle1is
            (0xd508_8328, scope(Scope::Machine)), // tlbi vae1is, x8
            (0xd508_8728, scope(Scope::Cpu)),     // tlbi vae1, x8
            (0xd508_811f, scope(Scope::Machine)), // tlbi vmalle1os
            (0xd518_2000, scope(Scope::Cpu)),     // msr ttbr0_el1, x0
            (0xd518_2029, scope(Scope::Cpu)),     // msr ttbr1_el1, x9
            (0xd518_2040, scope(Scope::Cpu)),     // msr tcr_el1, x0
            (0xd518_1000, scope(Scope::Cpu)),     // msr sctlr_el1, x0
            (0xd538_2000, None),                  // mrs x0, ttbr0_el1
            (0xd503_3f9f, None),                  // dsb sy
        ];
        for (word, expected) in golden {
            let found = maintenance(Isa::Aarch64, &word.to_le_bytes());
            assert_eq!(found, expected, "{word:08x}");
        }
    }
}
