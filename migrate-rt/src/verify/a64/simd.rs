//! Floating point and Advanced SIMD.
//!
//! Nearly every instruction sets all of its destination. Those that keep a part of it, or compute
//! with it, are all those that the lists here do not name.

use super::{Class, Word, all_flags, x};
use crate::verify::insn::{Insn, Place, Transfer};
use crate::verify::lanes::{Lanes, vector};

fn v(reg: u8, bytes: u16) -> Lanes {
    Lanes::vector(reg, bytes)
}

/// Translates a floating-point or vector instruction, if it is one.
pub(super) fn translate(insn: &mut Insn, w: Word, class: Class, mnemonic: &str) -> Option<()> {
    let (rd, rn, rm) = (w.rd(), w.rn(), w.rm());
    let whole: u16 = if w.bit(30) { 16 } else { 8 };
    match class {
        // A conversion to the type that it is of already.
        Class::FLOATDP1 if mnemonic == "fcvt" && w.bits(15, 2) == w.bits(22, 2) => return None,
        Class::FLOATDP1 => {
            insn.read(v(rn, w.float()?));
            insn.set(v(rd, 16));
        }
        Class::FLOATDP2 => {
            insn.read(v(rn, w.float()?).or(v(rm, w.float()?)));
            insn.set(v(rd, 16));
        }
        Class::FLOATDP3 => {
            let bytes = w.float()?;
            insn.read(v(rn, bytes).or(v(rm, bytes)).or(v(w.ra(), bytes)));
            insn.set(v(rd, 16));
        }
        Class::FLOATIMM => insn.set(v(rd, 16)),
        Class::FLOATSEL => {
            let bytes = w.float()?;
            insn.read(v(rn, bytes).or(v(rm, bytes)).or(all_flags()));
            insn.set(v(rd, 16));
        }
        Class::FLOATCMP | Class::FLOATCCMP => {
            let bytes = w.float()?;
            insn.read(v(rn, bytes));
            // A comparison with zero has no second register.
            if class == Class::FLOATCCMP || !w.bit(3) {
                insn.read(v(rm, bytes));
            }
            if class == Class::FLOATCCMP {
                insn.read(all_flags());
            }
            insn.set(all_flags());
        }
        Class::FLOAT2INT | Class::FLOAT2FIX => conversion(insn, w, class)?,
        Class::ASIMDINS | Class::ASISDONE => element(insn, w)?,
        Class::ASIMDIMM => {
            if !matches!(mnemonic, "movi" | "mvni" | "fmov") {
                insn.read(v(rd, whole));
            }
            insn.set(v(rd, 16));
        }
        Class::ASIMDTBL => {
            insn.read(v(rm, whole));
            for i in 0..=w.bits(13, 2) as u8 {
                insn.read(v((rn + i) % 32, 16));
            }
            if mnemonic != "tbl" {
                insn.read(v(rd, 16));
            }
            insn.set(v(rd, 16));
        }
        Class::ASISDLSE | Class::ASISDLSEP => multiple(insn, w, class)?,
        Class::ASISDLSO | Class::ASISDLSOP => structure(insn, w, class)?,
        _ => vectors(insn, w, class, mnemonic, whole)?,
    }
    Some(())
}

/// Arithmetic of one or two vectors.
fn vectors(insn: &mut Insn, w: Word, class: Class, mnemonic: &str, whole: u16) -> Option<()> {
    let (rd, rn, rm) = (w.rd(), w.rn(), w.rm());
    let second = match class {
        Class::ASIMDSAME
        | Class::ASIMDDIFF
        | Class::ASIMDPERM
        | Class::ASIMDEXT
        | Class::ASISDSAME
        | Class::ASISDDIFF => Some(rm),
        // Elements of 16 bits are picked from the first 16 registers.
        Class::ASIMDELEM | Class::ASISDELEM if w.bits(22, 2) < 2 => Some(rm & 15),
        Class::ASIMDELEM | Class::ASISDELEM => Some(rm),
        Class::ASIMDMISC
        | Class::ASIMDSHF
        | Class::ASIMDALL
        | Class::ASISDMISC
        | Class::ASISDSHF
        | Class::ASISDPAIR => None,
        _ => return None,
    };
    if reserved(w, class, mnemonic) {
        return None;
    }
    // Narrowing takes a whole register whatever the result's size; pairs are picked from one.
    let narrows = NARROWING.contains(&mnemonic);
    let scalar = matches!(
        class,
        Class::ASISDSAME | Class::ASISDMISC | Class::ASISDSHF | Class::ASISDDIFF | Class::ASISDELEM
    );
    let wide = matches!(class, Class::ASIMDDIFF) && mnemonic.trim_end_matches('2').ends_with('w');
    let first = match () {
        () if narrows || wide => 16,
        () if scalar => 8,
        () if class == Class::ASISDPAIR => 16,
        () => whole,
    };
    insn.read(v(rn, first));
    if let Some(second) = second {
        let bytes = match class {
            Class::ASIMDELEM | Class::ASISDELEM => 16,
            _ if narrows => 16,
            _ if scalar => 8,
            _ => whole,
        };
        insn.read(v(second, bytes));
    }
    if !OVERWRITING.contains(&mnemonic) {
        insn.read(v(rd, 16));
    }
    insn.set(v(rd, 16));
    Some(())
}

/// Encodings of a class that the architecture reserves and the decoder lets pass.
fn reserved(w: Word, class: Class, mnemonic: &str) -> bool {
    let size = w.bits(22, 2);
    match class {
        // Fixed-point numbers are of 32 or 64 bits.
        Class::ASIMDSHF | Class::ASISDSHF if mnemonic.contains("cvt") => w.bits(21, 2) == 0,
        // A shift has a size.
        Class::ASIMDSHF => w.bits(19, 4) == 0,
        // Scalar shifts that neither narrow nor saturate are of 64 bits.
        Class::ASISDSHF => {
            const ALL: [&str; 11] = [
                "shl", "sli", "sri", "sshr", "ushr", "ssra", "usra", "srshr", "urshr", "srsra",
                "ursra",
            ];
            w.bits(19, 4) == 0 || (ALL.contains(&mnemonic) && !w.bit(22))
        }
        Class::ASIMDELEM | Class::ASISDELEM if mnemonic.starts_with('f') => {
            size < 2 || (size == 3 && w.bit(21))
        }
        Class::ASIMDELEM | Class::ASISDELEM => !matches!(size, 1 | 2),
        // Single precision only: the half-precision forms are another feature's.
        Class::ASIMDALL if mnemonic.starts_with('f') => !w.bit(29) || !w.bit(30) || w.bit(22),
        Class::ASIMDMISC if matches!(mnemonic, "urecpe" | "ursqrte") => w.bit(22),
        Class::ASIMDSAME if mnemonic == "pmul" => size != 0,
        Class::ASIMDMISC if matches!(mnemonic, "rev16" | "cnt") => size != 0,
        // Scalars of whole numbers are of 64 bits, but for saturating arithmetic.
        Class::ASISDMISC | Class::ASISDSAME | Class::ASISDPAIR => {
            const ALL: [&str; 17] = [
                "abs", "add", "addp", "cmeq", "cmge", "cmgt", "cmhi", "cmhs", "cmle", "cmlt",
                "cmtst", "neg", "srshl", "sshl", "sub", "urshl", "ushl",
            ];
            ALL.contains(&mnemonic) && size != 3
        }
        _ => false,
    }
}

/// Conversions between floating-point and general-purpose registers.
fn conversion(insn: &mut Insn, w: Word, class: Class) -> Option<()> {
    let (rd, rn, width) = (w.rd(), w.rn(), w.width());
    let (rounding, op) = (w.bits(19, 2), w.bits(16, 3));
    // The upper half of a vector register.
    if class == Class::FLOAT2INT && w.bits(22, 2) == 2 {
        let upper = Lanes::range(vector(if op == 6 { rn } else { rd }, 8), 8);
        match (rounding, op) {
            (1, 6) => {
                insn.read(upper);
                insn.set(x(rd, 8));
            }
            (1, 7) => {
                insn.read(x(rn, 8));
                insn.set(upper);
            }
            _ => return None,
        }
        return Some(());
    }
    let float = w.float()?;
    // Plain moves are between registers of one size.
    if class == Class::FLOAT2INT && op >= 6 && float != width {
        return None;
    }
    if matches!(op, 2 | 3 | 7) {
        insn.read(x(rn, width));
        insn.set(v(rd, 16));
    } else {
        insn.read(v(rn, float));
        insn.set(x(rd, 8));
    }
    Some(())
}

/// Moves of single elements.
fn element(insn: &mut Insn, w: Word) -> Option<()> {
    let (rd, rn) = (w.rd(), w.rn());
    let (imm5, imm4) = (w.bits(16, 5), w.bits(11, 4));
    let log = imm5.trailing_zeros();
    (log < 4).then_some(())?;
    let bytes = 1u16 << log;
    let at = |reg, index: u32| Lanes::range(vector(reg, index as u16 * bytes), bytes);
    let picked = at(rn, imm5 >> (log + 1));
    let placed = at(rd, imm5 >> (log + 1));
    match (w.bit(29), imm4) {
        // ins (element): bit 28 tells it from the scalar form of dup
        (true, _) => {
            insn.read(at(rn, imm4 >> log));
            insn.set(placed);
        }
        // dup (element)
        (false, 0) => {
            insn.read(picked);
            insn.set(v(rd, 16));
        }
        // dup (general)
        (false, 1) => {
            insn.read(x(rn, bytes));
            insn.set(v(rd, 16));
        }
        // ins (general)
        (false, 3) => {
            insn.read(x(rn, bytes));
            insn.set(placed);
        }
        // smov, umov: into the smallest register that the element fits
        (false, 5) if log < 2 || (log == 2 && w.bit(30)) => {
            insn.read(picked);
            insn.set(x(rd, 8));
        }
        (false, 7) if w.bit(30) == (log == 3) => {
            insn.read(picked);
            insn.set(x(rd, 8));
        }
        _ => return None,
    }
    Some(())
}

/// The base register is moved on by what was accessed, or by a register.
fn advance(insn: &mut Insn, w: Word, bytes: i64) {
    if w.rm() == 31 {
        return insn.offset(w.rn(), w.rn(), bytes);
    }
    // As a value, so that a native stack's address is found.
    insn.read(Lanes::general(w.rn(), 8).or(x(w.rm(), 8)));
    insn.set(Lanes::general(w.rn(), 8));
}

/// ld1 to ld4 and st1 to st4 of whole registers.
fn multiple(insn: &mut Insn, w: Word, class: Class) -> Option<()> {
    let count: u8 = match w.bits(12, 4) {
        0 | 2 => 4,
        4 | 6 => 3,
        8 | 10 => 2,
        7 => 1,
        _ => return None,
    };
    let each: u16 = if w.bit(30) { 16 } else { 8 };
    let bytes = each * u16::from(count);
    let registers = (0..count).map(|i| (w.rd() + i) % 32);
    transfer(
        insn,
        w,
        bytes,
        Lanes::vectors(registers.clone(), each),
        Lanes::vectors(registers, 16),
    );
    if class == Class::ASISDLSEP {
        advance(insn, w, i64::from(bytes));
    }
    Some(())
}

/// ld1 to ld4 and st1 to st4 of one element per register, and the loads that replicate.
fn structure(insn: &mut Insn, w: Word, class: Class) -> Option<()> {
    let op = w.bits(13, 3);
    let count = ((op & 1) << 1 | w.bits(21, 1)) as u8 + 1;
    let registers = (0..count).map(|i| (w.rd() + i) % 32);
    let (size, q, s) = (w.bits(10, 2), w.bits(30, 1), w.bits(12, 1));
    let (log, index) = match op >> 1 {
        0 => (0, q << 3 | s << 2 | size),
        1 if size & 1 == 0 => (1, q << 2 | s << 1 | size >> 1),
        2 if size == 0 => (2, q << 1 | s),
        2 if size == 1 && s == 0 => (3, q),
        3 if s == 0 => (size, 0),
        _ => return None,
    };
    let element = 1u16 << log;
    let bytes = element * u16::from(count);
    let at = index as u16 * element;
    let elements = registers
        .clone()
        .map(|r| Lanes::range(vector(r, at), element))
        .fold(Lanes::NONE, Lanes::or);
    let set = match op >> 1 {
        3 => Lanes::vectors(registers, 16),
        _ => elements,
    };
    transfer(insn, w, bytes, elements, set);
    if class == Class::ASISDLSOP {
        advance(insn, w, i64::from(bytes));
    }
    Some(())
}

fn transfer(insn: &mut Insn, w: Word, bytes: u16, stored: Lanes, loaded: Lanes) {
    let place = Place::at(w.rn(), 0);
    if w.bit(22) {
        insn.access(place, bytes, Transfer::Observe);
        insn.set(loaded);
    } else {
        insn.read(stored);
        insn.access(place, bytes, Transfer::Define);
    }
}

/// Instructions that take whole registers and give halves.
const NARROWING: &[&str] = &[
    "addhn", "addhn2", "raddhn", "raddhn2", "rsubhn", "rsubhn2", "subhn", "subhn2", "fcvtn",
    "fcvtn2", "fcvtxn", "fcvtxn2", "sqxtn", "sqxtn2", "sqxtun", "sqxtun2", "uqxtn", "uqxtn2",
    "xtn", "xtn2", "rshrn", "rshrn2", "shrn", "shrn2", "sqrshrn", "sqrshrun", "sqshrn", "sqshrun",
    "uqrshrn", "uqshrn",
];

/// Instructions whose result does not depend on the destination's old value. What is not here does,
/// as far as the verifier is concerned.
const OVERWRITING: &[&str] = &[
    "abs", "add", "addhn", "addp", "addv", "and", "bic", "cls", "clz", "cmeq", "cmge", "cmgt",
    "cmhi", "cmhs", "cmle", "cmlt", "cmtst", "cnt", "eor", "ext", "fabd", "fabs", "facge", "facgt",
    "fadd", "faddp", "fcmeq", "fcmge", "fcmgt", "fcmle", "fcmlt", "fcvtas", "fcvtau", "fcvtl",
    "fcvtl2", "fcvtms", "fcvtmu", "fcvtn", "fcvtns", "fcvtnu", "fcvtps", "fcvtpu", "fcvtxn",
    "fcvtzs", "fcvtzu", "fdiv", "fmax", "fmaxnm", "fmaxnmp", "fmaxnmv", "fmaxp", "fmaxv", "fmin",
    "fminnm", "fminnmp", "fminnmv", "fminp", "fminv", "fmul", "fmulx", "fneg", "frecpe", "frecps",
    "frecpx", "frinta", "frinti", "frintm", "frintn", "frintp", "frintx", "frintz", "frsqrte",
    "frsqrts", "fsqrt", "fsub", "mul", "neg", "not", "orn", "orr", "pmul", "pmull", "pmull2",
    "raddhn", "rbit", "rev16", "rev32", "rev64", "rshrn", "rsubhn", "sabd", "sabdl", "sabdl2",
    "saddl", "saddl2", "saddlp", "saddlv", "saddw", "saddw2", "scvtf", "shadd", "shl", "shll",
    "shll2", "shrn", "shsub", "smax", "smaxp", "smaxv", "smin", "sminp", "sminv", "smull",
    "smull2", "sqabs", "sqadd", "sqdmulh", "sqdmull", "sqdmull2", "sqneg", "sqrdmulh", "sqrshl",
    "sqrshrn", "sqrshrun", "sqshl", "sqshlu", "sqshrn", "sqshrun", "sqsub", "sqxtn", "sqxtun",
    "srhadd", "srshl", "srshr", "sshl", "sshll", "sshll2", "sshr", "ssubl", "ssubl2", "ssubw",
    "ssubw2", "sub", "subhn", "trn1", "trn2", "uabd", "uabdl", "uabdl2", "uaddl", "uaddl2",
    "uaddlp", "uaddlv", "uaddw", "uaddw2", "ucvtf", "uhadd", "uhsub", "umax", "umaxp", "umaxv",
    "umin", "uminp", "uminv", "umull", "umull2", "uqadd", "uqrshl", "uqrshrn", "uqshl", "uqshrn",
    "uqsub", "uqxtn", "urecpe", "urhadd", "urshl", "urshr", "ursqrte", "ushl", "ushll", "ushll2",
    "ushr", "usubl", "usubl2", "usubw", "usubw2", "uzp1", "uzp2", "xtn", "zip1", "zip2",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::a64::decode;
    use disarm64::{InsnOpcode, decoder};
    use disarm64_defn::InsnFeatureSet as Feature;
    use std::collections::BTreeSet;

    /// Instructions that keep a part of the destination, or compute with it.
    const KEEPING: [&str; 53] = [
        "addhn2",
        "bif",
        "bit",
        "bsl",
        "fcvtn2",
        "fcvtxn2",
        "fmla",
        "fmls",
        "mla",
        "mls",
        "raddhn2",
        "rshrn2",
        "rsubhn2",
        "saba",
        "sabal",
        "sabal2",
        "sadalp",
        "shrn2",
        "sli",
        "smlal",
        "smlal2",
        "smlsl",
        "smlsl2",
        "sqdmlal",
        "sqdmlal2",
        "sqdmlsl",
        "sqdmlsl2",
        "sqrshrn2",
        "sqrshrun2",
        "sqshrn2",
        "sqshrun2",
        "sqxtn2",
        "sqxtun2",
        "sri",
        "srsra",
        "ssra",
        "subhn2",
        "suqadd",
        "uaba",
        "uabal",
        "uabal2",
        "uadalp",
        "umlal",
        "umlal2",
        "umlsl",
        "umlsl2",
        "uqrshrn2",
        "uqshrn2",
        "uqxtn2",
        "ursra",
        "usqadd",
        "usra",
        "xtn2",
    ];

    #[test]
    fn every_instruction_overwrites_or_keeps() {
        let mut seen = BTreeSet::new();
        // All opcodes of the classes are in these bits; with the rest, that is registers 1 and 2.
        for word in (0..1 << 22).map(|i: u32| i << 10 | 0x41) {
            let Some(op) = decoder::decode(word) else {
                continue;
            };
            let op = op.definition();
            let ours = matches!(op.feature_set, Feature::V8 | Feature::FP | Feature::SIMD);
            let mut insn = Insn::new(0, 4);
            if ours && vectors(&mut insn, Word(word), op.class, op.mnemonic, 16).is_some() {
                seen.insert(op.mnemonic);
                let keeps = !OVERWRITING.contains(&op.mnemonic);
                assert_eq!(keeps, KEEPING.contains(&op.mnemonic), "{}", op.mnemonic);
            }
        }
        assert!(KEEPING.iter().all(|m| seen.contains(m)), "{seen:?}");
    }

    #[test]
    fn pairs_of_doubles_have_a_least_one() {
        // fmaxnmp, fminnmp, fmaxp, fminp d0, v0.2d
        for word in [0x7e70_c800, 0x7ef0_c800, 0x7e70_f800, 0x7ef0_f800] {
            assert_eq!(decode(word, 0).refused, None, "{word:#x}");
        }
    }
}
