//! Loads, stores and atomic operations.

use super::{Class, Word, ZERO, literal, x};
use crate::verify::insn::{Insn, Place, Transfer};
use crate::verify::lanes::{Lanes, general, vector};

/// How a register is loaded or stored.
#[derive(Clone, Copy)]
struct Operand {
    reg: u8,
    vector: bool,
    load: bool,
    /// Whether a load extends with the sign.
    signed: bool,
    bytes: u16,
}

/// An access of one register.
fn register(insn: &mut Insn, place: Place, op: Operand) {
    let Operand { reg, bytes, .. } = op;
    let zero = reg == ZERO && !op.vector;
    let (first, all) = match op.vector {
        true => (vector(reg, 0), 16),
        false => (general(reg, 0), 8),
    };
    match (op.load, zero) {
        (false, true) => insn.access(place, bytes, Transfer::Define),
        (false, false) => insn.access(place, bytes, Transfer::Store(first)),
        (true, true) => insn.access(place, bytes, Transfer::Observe),
        (true, false) if op.signed => {
            insn.access(place, bytes, Transfer::Observe);
            insn.set(Lanes::range(first, all));
        }
        (true, false) => {
            insn.access(place, bytes, Transfer::Load(first));
            insn.set(Lanes::range(first + bytes, all - bytes));
        }
    }
}

/// Translates an access to memory, if it is one of those that back ends emit.
pub(super) fn translate(insn: &mut Insn, w: Word, class: Class, mnemonic: &str) -> Option<()> {
    match class {
        Class::LDST_POS | Class::LDST_UNSCALED | Class::LDST_IMM9 | Class::LDST_REGOFF => {
            single(insn, w, class)
        }
        Class::LDSTPAIR_OFF | Class::LDSTNAPAIR_OFFS | Class::LDSTPAIR_INDEXED => pair(insn, w),
        Class::LOADLIT => {
            let bytes = [4, 8, if w.bit(26) { 16 } else { 4 }, 0][w.bits(30, 2) as usize];
            let op = Operand {
                reg: w.rd(),
                vector: w.bit(26),
                load: true,
                signed: w.bits(30, 2) == 2 && !w.bit(26),
                bytes,
            };
            if bytes > 0 {
                register(insn, literal(), op);
            }
            Some(())
        }
        Class::LDSTEXCL
            if matches!(
                mnemonic,
                "ldar" | "ldarb" | "ldarh" | "stlr" | "stlrb" | "stlrh"
            ) =>
        {
            let op = Operand {
                reg: w.rd(),
                vector: false,
                load: w.bit(22),
                signed: false,
                bytes: 1 << w.bits(30, 2),
            };
            register(insn, Place::at(w.rn(), 0), op);
            Some(())
        }
        Class::LSE_ATOMIC => atomic(insn, w, mnemonic),
        _ => None,
    }
}

fn single(insn: &mut Insn, w: Word, class: Class) -> Option<()> {
    let (size, opc, vector) = (w.bits(30, 2), w.bits(22, 2), w.bit(26));
    // Prefetches access nothing.
    if !vector && size == 3 && opc == 2 {
        return (class != Class::LDST_IMM9).then_some(());
    }
    let bytes: u16 = match (vector, opc >> 1) {
        (true, 1) => 16,
        _ => 1 << size,
    };
    let op = Operand {
        reg: w.rd(),
        vector,
        load: if vector { opc & 1 != 0 } else { opc != 0 },
        signed: !vector && opc >= 2,
        bytes,
    };
    let base = w.rn();
    let unscaled = w.signed(12, 9);
    let place = match class {
        Class::LDST_POS => Place::at(base, i64::from(w.bits(10, 12)) * i64::from(bytes)),
        Class::LDST_UNSCALED => Place::at(base, unscaled),
        Class::LDST_REGOFF => Place {
            // The zero register adds nothing.
            index: (w.rm() != ZERO).then_some(w.rm()),
            ..Place::at(base, 0)
        },
        // Before the access, or behind it.
        _ => {
            insn.offset(base, base, unscaled);
            Place::at(base, if w.bit(11) { unscaled } else { 0 })
        }
    };
    register(insn, place, op);
    Some(())
}

fn pair(insn: &mut Insn, w: Word) -> Option<()> {
    let (opc, vector, load) = (w.bits(30, 2), w.bit(26), w.bit(22));
    let bytes: u16 = match (vector, opc) {
        (true, 0..=2) => 4 << opc,
        (false, 0 | 1) => 4,
        (false, 2) => 8,
        _ => return None,
    };
    // Stores of this kind are about memory tags.
    let signed = !vector && opc == 1;
    (load || !signed).then_some(())?;
    let base = w.rn();
    let by = w.signed(15, 7) * i64::from(bytes);
    let indexed = w.bit(23);
    let offset = match (indexed, w.bit(24)) {
        (true, false) => 0,
        _ => by,
    };
    for (i, reg) in [w.rd(), w.ra()].into_iter().enumerate() {
        let at = offset + i as i64 * i64::from(bytes);
        let op = Operand {
            reg,
            vector,
            load,
            signed,
            bytes,
        };
        register(insn, Place::at(base, at), op);
    }
    if indexed {
        insn.offset(base, base, by);
    }
    Some(())
}

fn atomic(insn: &mut Insn, w: Word, mnemonic: &str) -> Option<()> {
    let (rs, rt, place) = (w.rm(), w.rd(), Place::at(w.rn(), 0));
    let bytes = 1u16 << w.bits(30, 2);
    if mnemonic.starts_with("casp") {
        let bytes = if w.bit(30) { 8 } else { 4 };
        for reg in [rs, rs | 1] {
            insn.read(x(reg, bytes));
            insn.set(x(reg, 8));
        }
        insn.read(x(rt, bytes).or(x(rt | 1, bytes)));
        insn.access(place, 2 * bytes, Transfer::Observe);
        insn.access(place, 2 * bytes, Transfer::Define);
        return Some(());
    }
    if mnemonic.starts_with("cas") {
        insn.read(x(rs, bytes).or(x(rt, bytes)));
        insn.set(x(rs, 8));
    } else if mnemonic.starts_with("swp")
        || mnemonic.starts_with("ld")
        || mnemonic.starts_with("st")
    {
        insn.read(x(rs, bytes));
        insn.set(x(rt, 8));
    } else {
        return None;
    }
    insn.access(place, bytes, Transfer::Observe);
    insn.access(place, bytes, Transfer::Define);
    Some(())
}
