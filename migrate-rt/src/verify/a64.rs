//! AArch64 instructions: what they read, write and do to the flow of control.
//!
//! disarm64 decodes: its tables are made from the architecture's machine-readable description, name
//! the class and the feature of every encoding, and cover all that there is. (yaxpeax-arm, the
//! alternative, refuses a tenth of what is valid, and has no classes.) It does not say what is read
//! and written; that is said here, by class, from the fields of the instruction word. Everything
//! outside of base Armv8-A with FP, Advanced SIMD and LSE atomics is refused by its feature.

mod memory;
mod simd;

use super::insn::{Flow, Insn, Place, Refused, Transfer};
use super::lanes::{Lanes, flag, general};
use disarm64::decoder;
use disarm64::{InsnDisplay, InsnOpcode};
use disarm64_defn::{InsnClass as Class, InsnFeatureSet as Feature};

/// The frame pointer.
pub(super) const FP: u8 = 29;
/// The link register.
pub(super) const LR: u8 = 30;
/// The stack pointer. As an operand, 31 is the stack pointer in some places and zero in others.
pub(super) const SP: u8 = 31;
const ZERO: u8 = 31;

/// All flags.
pub(super) fn all_flags() -> Lanes {
    Lanes::range(flag(0), 4)
}

/// The low bytes of a general-purpose register; none of the zero register.
fn x(reg: u8, bytes: u16) -> Lanes {
    match reg {
        ZERO => Lanes::NONE,
        reg => Lanes::general(reg, bytes),
    }
}

/// The fields of an instruction word.
#[derive(Clone, Copy)]
struct Word(u32);

impl Word {
    /// `count` bits from bit `from`.
    fn bits(self, from: u32, count: u32) -> u32 {
        self.0 >> from & ((1 << count) - 1)
    }

    fn bit(self, at: u32) -> bool {
        self.bits(at, 1) != 0
    }

    /// The bits of a field as a signed number.
    fn signed(self, from: u32, count: u32) -> i64 {
        let shift = 64 - count;
        (i64::from(self.bits(from, count)) << shift) >> shift
    }

    fn register(self, from: u32) -> u8 {
        self.bits(from, 5) as u8
    }

    fn rd(self) -> u8 {
        self.register(0)
    }

    fn rn(self) -> u8 {
        self.register(5)
    }

    fn ra(self) -> u8 {
        self.register(10)
    }

    fn rm(self) -> u8 {
        self.register(16)
    }

    /// Bytes of the operands of integer instructions.
    fn width(self) -> u16 {
        if self.bit(31) { 8 } else { 4 }
    }

    /// Bytes of a scalar floating-point operand; none if there is no such type.
    fn float(self) -> Option<u16> {
        [Some(4), Some(8), None, Some(2)][self.bits(22, 2) as usize]
    }
}

/// Decodes the instruction at `va`.
pub(super) fn decode(word: u32, va: u64) -> Insn {
    let mut insn = Insn::new(va, 4);
    let Some(op) = decoder::decode(word) else {
        insn.refuse(Refused::Unknown);
        insn.flow = Flow::Trap;
        return insn;
    };
    let definition = op.definition();
    let w = Word(word);
    insn.flow = flow(w, va, definition.class);
    let known = matches!(
        definition.feature_set,
        Feature::V8 | Feature::FP | Feature::SIMD | Feature::LSE
    );
    let known = known && translate(&mut insn, w, definition.class, definition.mnemonic).is_some();
    // The decoder marks the reserved encodings of a class in the text only. It is wrong about scalar
    // duplicates of elements of less than 64 bits, and about the lesser of two doubles.
    let reserved = || op.display_at(va).to_string().contains("<undefined>");
    let wrong = match definition.class {
        Class::ASISDONE => true,
        Class::ASISDPAIR => definition.mnemonic.starts_with('f'),
        _ => false,
    };
    if !known || (!wrong && reserved()) {
        insn.refuse(Refused::Unknown);
    }
    insn
}

/// The text of the instruction at `va`. The decoder's formatter is not asked about words that are
/// refused: it does not stand all of those that the architecture reserves.
pub(super) fn text(word: u32, va: u64) -> String {
    match decoder::decode(word) {
        Some(op) if decode(word, va).refused != Some(Refused::Unknown) => {
            op.display_at(va).to_string().replace('\t', " ")
        }
        Some(op) => format!("{} (word {word:#010x})", op.definition().mnemonic),
        None => format!("word {word:#010x}"),
    }
}

/// Control flow holds for instructions that are refused as well.
fn flow(w: Word, va: u64, class: Class) -> Flow {
    let target = |from, count| va.wrapping_add_signed(w.signed(from, count) * 4);
    match class {
        Class::BRANCH_IMM if w.bit(31) => Flow::Call(target(0, 26)),
        Class::BRANCH_IMM => Flow::Jump(target(0, 26)),
        Class::CONDBRANCH | Class::COMPBRANCH => Flow::Branch(target(5, 19)),
        Class::TESTBRANCH => Flow::Branch(target(5, 14)),
        // Everything else that branches through a register goes nobody knows where.
        Class::BRANCH_REG => match w.0 >> 10 {
            0x35_97c0 => Flow::Return(w.rn()),
            0x35_8fc0 => Flow::IndirectCall,
            _ => Flow::IndirectJump,
        },
        // System calls come back.
        Class::EXCEPTION if w.0 & 0xffe0_001f == 0xd400_0001 => Flow::Next,
        Class::EXCEPTION => Flow::Trap,
        _ => Flow::Next,
    }
}

fn translate(insn: &mut Insn, w: Word, class: Class, mnemonic: &str) -> Option<()> {
    let (rd, rn, rm, width) = (w.rd(), w.rn(), w.rm(), w.width());
    match class {
        Class::ADDSUB_IMM => {
            let amount = i64::from(w.bits(10, 12)) << if w.bit(22) { 12 } else { 0 };
            let by = if w.bit(30) { -amount } else { amount };
            if w.bit(29) {
                insn.read(Lanes::general(rn, width));
                insn.set(x(rd, 8).or(all_flags()));
            } else if w.bit(31) {
                insn.offset(rd, rn, by);
            } else {
                insn.read(Lanes::general(rn, width));
                insn.set(Lanes::general(rd, 8));
            }
        }
        Class::ADDSUB_EXT => {
            let narrow = 1u16 << w.bits(13, 2);
            insn.read(Lanes::general(rn, width).or(x(rm, narrow.min(width))));
            if w.bit(29) {
                insn.set(x(rd, 8).or(all_flags()));
            } else {
                insn.set(Lanes::general(rd, 8));
            }
        }
        Class::ADDSUB_SHIFT | Class::ADDSUB_CARRY => {
            insn.read(x(rn, width).or(x(rm, width)));
            if class == Class::ADDSUB_CARRY {
                insn.read(all_flags());
            }
            insn.set(x(rd, 8));
            if w.bit(29) {
                insn.set(all_flags());
            }
        }
        Class::LOG_IMM => {
            insn.read(x(rn, width));
            if w.bits(29, 2) == 3 {
                insn.set(x(rd, 8).or(all_flags()));
            } else {
                insn.set(Lanes::general(rd, 8));
            }
        }
        Class::LOG_SHIFT => logical(insn, w),
        Class::BITFIELD => {
            insn.read(x(rn, width));
            if w.bits(29, 2) == 1 {
                insn.read(x(rd, width));
            }
            insn.set(x(rd, 8));
        }
        Class::EXTRACT => {
            insn.read(x(rn, width).or(x(rm, width)));
            insn.set(x(rd, 8));
        }
        Class::MOVEWIDE => {
            if w.bits(29, 2) == 3 {
                insn.read(x(rd, width));
            }
            insn.set(x(rd, 8));
        }
        Class::PCRELADDR => insn.set(x(rd, 8)),
        Class::CONDSEL => {
            insn.read(x(rn, width).or(x(rm, width)).or(all_flags()));
            insn.set(x(rd, 8));
        }
        Class::CONDCMP_REG | Class::CONDCMP_IMM => {
            insn.read(x(rn, width).or(all_flags()));
            if class == Class::CONDCMP_REG {
                insn.read(x(rm, width));
            }
            insn.set(all_flags());
        }
        Class::DP_1SRC => {
            insn.read(x(rn, width));
            insn.set(x(rd, 8));
        }
        Class::DP_2SRC => {
            insn.read(x(rn, width).or(x(rm, width)));
            insn.set(x(rd, 8));
        }
        Class::DP_3SRC => {
            // Widening forms multiply 32-bit registers.
            let factors = match w.bits(21, 3) {
                1 | 5 => 4,
                _ => width,
            };
            insn.read(x(rn, factors).or(x(rm, factors)));
            if !matches!(w.bits(21, 3), 2 | 6) {
                insn.read(x(w.ra(), width));
            }
            insn.set(x(rd, 8));
        }
        Class::CONDBRANCH => insn.read(all_flags()),
        Class::COMPBRANCH => insn.read(x(rd, width)),
        Class::TESTBRANCH => insn.read(x(rd, width)),
        Class::BRANCH_IMM => {}
        Class::BRANCH_REG => match insn.flow {
            // What may return, and where to, is for the analysis to say.
            Flow::Return(_) => {}
            Flow::IndirectCall => insn.read(x(rn, 8)),
            _ if w.0 >> 10 == 0x35_87c0 => insn.read(x(rn, 8)),
            _ => return None,
        },
        Class::EXCEPTION => match mnemonic {
            "udf" => insn.padding = true,
            "brk" | "hlt" => {}
            _ => insn.refuse(Refused::Forbidden("kernel entry")),
        },
        Class::IC_SYSTEM => system(insn, w, mnemonic)?,
        _ => {
            return simd::translate(insn, w, class, mnemonic)
                .or_else(|| memory::translate(insn, w, class, mnemonic));
        }
    }
    Some(())
}

fn logical(insn: &mut Insn, w: Word) {
    let (rd, rn, rm, width) = (w.rd(), w.rn(), w.rm(), w.width());
    let plain = w.bits(22, 2) == 0 && w.bits(10, 6) == 0 && !w.bit(21);
    let moves = w.bits(29, 2) == 1 && plain && rn == ZERO && rm != ZERO && rd != ZERO;
    if moves && w.bit(31) {
        return insn.offset(rd, rm, 0);
    }
    if moves {
        insn.copy(general(rd, 0), general(rm, 0), 4);
        return insn.set(Lanes::range(general(rd, 4), 4));
    }
    insn.read(x(rn, width).or(x(rm, width)));
    insn.set(x(rd, 8));
    if w.bits(29, 2) == 3 {
        insn.set(all_flags());
    }
}

fn system(insn: &mut Insn, w: Word, mnemonic: &str) -> Option<()> {
    // mrs x, tpidr_el0
    if w.0 & 0xffff_ffe0 == 0xd53b_d040 {
        insn.set(x(w.rd(), 8));
        return Some(());
    }
    match w.0 & 0xffff_ffe0 {
        // mrs x, nzcv and msr nzcv, x: how flags wait in a register until another comparison is done.
        0xd53b_4200 => {
            insn.read(all_flags());
            insn.set(x(w.rd(), 8));
            return Some(());
        }
        0xd51b_4200 => {
            insn.read(x(w.rd(), 8));
            insn.set(all_flags());
            return Some(());
        }
        // dc cvac, x and dc civac, x: they fault as loads do; what memory holds is the same before and
        // after.
        0xd50b_7a20 | 0xd50b_7e20 if w.rd() != ZERO => {
            insn.access(Place::at(w.rd(), 0), 1, Transfer::Observe);
            return Some(());
        }
        _ => {}
    }
    match w.0 {
        0xd503_201f => insn.padding = true,
        // yield
        0xd503_203f => {}
        // isb, dmb, dsb
        word if matches!(word & 0xffff_f0ff, 0xd503_30df | 0xd503_30bf | 0xd503_309f) => {}
        word if word & 0xffc0_0000 == 0xd500_0000
            && matches!(mnemonic, "mrs" | "msr" | "sys" | "sysl") =>
        {
            insn.refuse(Refused::Forbidden("system registers"));
        }
        _ => return None,
    }
    Some(())
}

/// A place that no stack is at.
fn literal() -> Place {
    Place {
        base: None,
        index: None,
        offset: 0,
        elsewhere: true,
    }
}
