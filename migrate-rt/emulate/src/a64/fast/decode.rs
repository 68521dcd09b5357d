//! From instructions to operations.

use super::super::bits::{bit, field, masks, ones, signed, width};
use super::super::simd::expand_float;
use super::{Code, EMPTY, Form, NOP, NOWHERE, Op, ZERO};
use crate::Memory;
use crate::blocks::Blocks;
use crate::soft::{F32, F64};

/// The register in a field, 31 is zero.
fn x(word: u32, at: u32) -> u8 {
    match field(word, at, 5) as u8 {
        31 => ZERO,
        n => n,
    }
}

/// The register in a field, 31 is the stack pointer.
fn x_sp(word: u32, at: u32) -> u8 {
    field(word, at, 5) as u8
}

/// The destination, 31 is none.
fn to_x(word: u32, at: u32) -> u8 {
    match field(word, at, 5) as u8 {
        31 => NOWHERE,
        n => n,
    }
}

fn v(word: u32, at: u32) -> u8 {
    field(word, at, 5) as u8
}

impl Op {
    fn new(code: Code, a: u8, b: u8) -> Op {
        Op {
            code,
            a,
            b,
            ..EMPTY
        }
    }

    fn with(self, immediate: u64) -> Op {
        Op { immediate, ..self }
    }

    /// With a second operand that is a register.
    fn and(self, c: u8) -> Op {
        Op {
            c,
            form: Form::Register,
            ..self
        }
    }

    /// Takes the instruction at `pc` apart, and says whether it ends a run.
    fn of(word: u32, pc: u64) -> (Op, bool) {
        use Code::*;
        let op = match field(word, 25, 4) {
            0b1000 | 0b1001 => immediates(word, pc),
            0b1010 | 0b1011 => branches(word, pc),
            0b0100 | 0b0110 | 0b1100 | 0b1110 => memory(word, pc),
            0b0101 | 0b1101 => registers(word),
            0b0111 | 0b1111 => floats(word),
            _ => None,
        };
        let op = Op {
            pc,
            ..op.unwrap_or(EMPTY)
        };
        let ends = matches!(
            op.code,
            Branch
                | Call
                | BranchTo
                | CallTo
                | Return
                | If
                | IfZero4
                | IfZero8
                | IfNot4
                | IfNot8
                | IfClear
                | IfSet
        );
        (op, ends)
    }
}

/// Of two codes that for 4 or 8 bytes.
fn sized(wide: bool, four: Code, eight: Code) -> Code {
    if wide { eight } else { four }
}

fn immediates(word: u32, pc: u64) -> Option<Op> {
    use Code::*;
    let wide = bit(word, 31);
    let narrow = |value: u64| if wide { value } else { value & ones(32) };
    let (immr, imms) = (field(word, 16, 6), field(word, 10, 6));
    Some(match field(word, 23, 3) {
        0 | 1 => {
            let offset = signed(word, 5, 19) << 2 | i64::from(field(word, 29, 2));
            let value = if wide {
                (pc & !0xfff).wrapping_add_signed(offset << 12)
            } else {
                pc.wrapping_add_signed(offset)
            };
            Op::new(Constant, to_x(word, 0), ZERO).with(value)
        }
        2 => {
            let b = u64::from(field(word, 10, 12)) << if bit(word, 22) { 12 } else { 0 };
            let (code, a) = match (bit(word, 30), bit(word, 29)) {
                (false, false) => (sized(wide, Add4, Add8), x_sp(word, 0)),
                (false, true) => (sized(wide, AddS4, AddS8), to_x(word, 0)),
                (true, false) => (sized(wide, Sub4, Sub8), x_sp(word, 0)),
                (true, true) => (sized(wide, SubS4, SubS8), to_x(word, 0)),
            };
            Op::new(code, a, x_sp(word, 5)).with(b)
        }
        4 => {
            let n = field(word, 22, 1);
            if !wide && n != 0 {
                return None;
            }
            let mask = narrow(masks(n, imms, immr, true)?.0);
            let (code, a) = match field(word, 29, 2) {
                0 => (sized(wide, And4, And8), x_sp(word, 0)),
                1 => (sized(wide, Or4, Or8), x_sp(word, 0)),
                2 => (sized(wide, Xor4, Xor8), x_sp(word, 0)),
                _ => (sized(wide, AndS4, AndS8), to_x(word, 0)),
            };
            Op::new(code, a, x(word, 5)).with(mask)
        }
        5 => {
            let half = field(word, 21, 2);
            if !wide && half > 1 {
                return None;
            }
            let value = u64::from(field(word, 5, 16)) << (16 * half);
            let a = to_x(word, 0);
            match field(word, 29, 2) {
                0 => Op::new(Constant, a, ZERO).with(narrow(!value)),
                2 => Op::new(Constant, a, ZERO).with(value),
                3 => Op {
                    by: 16 * half as u8,
                    ..Op::new(sized(wide, MovK4, MovK8), a, x(word, 0)).with(value)
                },
                _ => return None,
            }
        }
        6 => {
            if field(word, 22, 1) != u32::from(wide) || (!wide && (immr | imms) & 0x20 != 0) {
                return None;
            }
            let bits = width(wide);
            let to_bottom = imms >= immr;
            let op = Op::new(Slow, to_x(word, 0), x(word, 5));
            match field(word, 29, 2) {
                0 => Op {
                    code: sized(wide, Signed4, Signed8),
                    by: 63 - imms as u8,
                    d: (if to_bottom {
                        63 - imms + immr
                    } else {
                        63 - imms - (bits - immr)
                    }) as u8,
                    ..op
                },
                1 => Op {
                    code: sized(wide, Insert4, Insert8),
                    by: immr as u8,
                    // The old value.
                    c: x(word, 0),
                    ..op.with(if to_bottom {
                        ones(imms - immr + 1)
                    } else {
                        ones(imms + 1) << (bits - immr)
                    })
                },
                2 if to_bottom => Op {
                    code: ShiftMask,
                    by: immr as u8,
                    ..op.with(ones(imms - immr + 1))
                },
                2 => Op {
                    code: MaskShift,
                    by: (bits - immr) as u8,
                    ..op.with(ones(imms + 1))
                },
                _ => return None,
            }
        }
        7 => {
            let reserved = field(word, 29, 2) != 0
                || bit(word, 21)
                || bit(word, 22) != wide
                || (!wide && imms >= 32);
            if reserved {
                return None;
            }
            Op {
                by: imms as u8,
                ..Op::new(sized(wide, Extract4, Extract8), to_x(word, 0), x(word, 5))
                    .and(x(word, 16))
            }
        }
        _ => return None,
    })
}

fn branches(word: u32, pc: u64) -> Option<Op> {
    use Code::*;
    let target = |words: i64| pc.wrapping_add_signed(words << 2);
    Some(match field(word, 26, 6) {
        0b000101 => Op::new(Branch, ZERO, ZERO).with(target(signed(word, 0, 26))),
        0b100101 => Op::new(Call, ZERO, ZERO).with(target(signed(word, 0, 26))),
        0b001101 | 0b101101 if bit(word, 25) => Op {
            by: (field(word, 19, 5) | field(word, 31, 1) << 5) as u8,
            ..Op::new(
                if bit(word, 24) { IfSet } else { IfClear },
                x(word, 0),
                ZERO,
            )
            .with(target(signed(word, 5, 14)))
        },
        0b001101 | 0b101101 => {
            let code = match (bit(word, 24), bit(word, 31)) {
                (false, wide) => sized(wide, IfZero4, IfZero8),
                (true, wide) => sized(wide, IfNot4, IfNot8),
            };
            Op::new(code, x(word, 0), ZERO).with(target(signed(word, 5, 19)))
        }
        0b010101 if !bit(word, 25) && !bit(word, 24) && !bit(word, 4) => Op {
            d: field(word, 0, 4) as u8,
            ..Op::new(If, ZERO, ZERO).with(target(signed(word, 5, 19)))
        },
        0b110101 if word == NOP => Op::new(Nop, ZERO, ZERO),
        0b110101 if field(word, 24, 2) >= 2 => {
            if field(word, 16, 5) != 0b11111 || field(word, 10, 6) != 0 || field(word, 0, 5) != 0 {
                return None;
            }
            let code = match field(word, 21, 5) {
                0b10000 => BranchTo,
                0b10001 => CallTo,
                0b10010 => Return,
                _ => return None,
            };
            Op::new(code, x(word, 5), ZERO)
        }
        _ => return None,
    })
}

fn memory(word: u32, pc: u64) -> Option<Op> {
    use Code::*;
    match field(word, 28, 2) {
        1 if !bit(word, 24) => {
            let va = pc.wrapping_add_signed(signed(word, 5, 19) << 2);
            let (code, a) = match (bit(word, 26), field(word, 30, 2)) {
                (false, 0) => (Load4, to_x(word, 0)),
                (false, 1) => (Load8, to_x(word, 0)),
                (false, 2) => (Load48, to_x(word, 0)),
                (true, 0) => (LoadV4, v(word, 0)),
                (true, 1) => (LoadV8, v(word, 0)),
                (true, 2) => (LoadV16, v(word, 0)),
                _ => return None,
            };
            Some(Op::new(code, a, ZERO).with(va))
        }
        2 => pair(word),
        3 => {
            let (code, a, log2) = single(word)?;
            let op = Op::new(code, a, x_sp(word, 5));
            if bit(word, 24) {
                return Some(op.with(u64::from(field(word, 10, 12)) << log2));
            }
            if !bit(word, 21) {
                let form = match field(word, 10, 2) {
                    0 => Form::Immediate,
                    1 => Form::After,
                    3 => Form::Before,
                    _ => return None,
                };
                let (rt, rn) = (field(word, 0, 5), field(word, 5, 5));
                if form != Form::Immediate && !bit(word, 26) && rt == rn && rn != 31 {
                    return None;
                }
                let op = op.with(signed(word, 12, 9) as u64);
                return Some(Op { form, ..op });
            }
            if field(word, 10, 2) != 2 || !bit(word, 14) {
                return None;
            }
            let by = if bit(word, 12) { log2 } else { 0 };
            Some(Op {
                c: x(word, 16),
                d: field(word, 13, 3) as u8,
                by: by as u8,
                form: Form::Extended,
                ..op
            })
        }
        _ => None,
    }
}

/// Code, register and size of a load or store of one register.
fn single(word: u32) -> Option<(Code, u8, u32)> {
    use Code::*;
    let (size, opc) = (field(word, 30, 2), field(word, 22, 2));
    if bit(word, 26) {
        let log2 = (opc & 2) << 1 | size;
        let code = match (opc & 1, log2) {
            (0, 2) => StoreV4,
            (0, 3) => StoreV8,
            (0, 4) => StoreV16,
            (1, 2) => LoadV4,
            (1, 3) => LoadV8,
            (1, 4) => LoadV16,
            _ => return None,
        };
        return Some((code, v(word, 0), log2));
    }
    let code = match (opc, size) {
        (0, 0) => Store1,
        (0, 1) => Store2,
        (0, 2) => Store4,
        (0, _) => Store8,
        (1, 0) => Load1,
        (1, 1) => Load2,
        (1, 2) => Load4,
        (1, _) => Load8,
        (2, 0) => Load18,
        (2, 1) => Load28,
        (2, 2) => Load48,
        (3, 0) => Load14,
        (3, 1) => Load24,
        _ => return None,
    };
    let a = if opc == 0 { x(word, 0) } else { to_x(word, 0) };
    Some((code, a, size))
}

fn pair(word: u32) -> Option<Op> {
    use Code::*;
    let (opc, vector, loads) = (field(word, 30, 2), bit(word, 26), bit(word, 22));
    let (rt, rt2, rn) = (field(word, 0, 5), field(word, 10, 5), field(word, 5, 5));
    let mode = field(word, 23, 2);
    let (code, log2) = match (vector, opc, loads) {
        (false, 0, true) => (LoadPair4, 2),
        (false, 2, true) => (LoadPair8, 3),
        (false, 0, false) => (StorePair4, 2),
        (false, 2, false) => (StorePair8, 3),
        (true, 1, true) => (LoadPairV8, 3),
        (true, 2, true) => (LoadPairV16, 4),
        (true, 1, false) => (StorePairV8, 3),
        (true, 2, false) => (StorePairV16, 4),
        _ => return None,
    };
    let overlap = !vector && rn != 31 && (rt == rn || rt2 == rn);
    if (mode & 1 != 0 && overlap) || (loads && rt == rt2) {
        return None;
    }
    let register = |at| match (vector, loads) {
        (true, _) => v(word, at),
        (false, true) => to_x(word, at),
        (false, false) => x(word, at),
    };
    Some(Op {
        c: register(10),
        form: match mode {
            1 => Form::After,
            3 => Form::Before,
            _ => Form::Immediate,
        },
        ..Op::new(code, register(0), x_sp(word, 5)).with((signed(word, 15, 7) << log2) as u64)
    })
}

fn registers(word: u32) -> Option<Op> {
    use Code::*;
    let wide = bit(word, 31);
    let op2 = field(word, 21, 4);
    let (d, n, m) = (to_x(word, 0), x(word, 5), x(word, 16));
    let simple = |four, eight| Op::new(sized(wide, four, eight), d, n).and(m);
    let with_shift = |op: Op| {
        let by = field(word, 10, 6);
        if by >= width(wide) {
            return None;
        }
        let form = if by == 0 {
            Form::Register
        } else {
            Form::Shifted
        };
        Some(Op {
            form,
            by: by as u8,
            d: field(word, 22, 2) as u8,
            ..op
        })
    };
    let sum = |op: Op| match (bit(word, 30), bit(word, 29)) {
        (false, false) => Op {
            code: sized(wide, Add4, Add8),
            ..op
        },
        (false, true) => Op {
            code: sized(wide, AddS4, AddS8),
            ..op
        },
        (true, false) => Op {
            code: sized(wide, Sub4, Sub8),
            ..op
        },
        (true, true) => Op {
            code: sized(wide, SubS4, SubS8),
            ..op
        },
    };
    Some(match (bit(word, 28), op2) {
        (false, 0..=7) => {
            let invert = if bit(word, 21) { u64::MAX } else { 0 };
            let op = match field(word, 29, 2) {
                0 => simple(And4, And8),
                // MOV
                1 if n == ZERO && field(word, 10, 6) == 0 && invert == 0 => {
                    return Some(Op::new(sized(wide, Mov4, Mov8), d, m));
                }
                1 => simple(Or4, Or8),
                2 => simple(Xor4, Xor8),
                _ => simple(AndS4, AndS8),
            };
            with_shift(op.with(invert))?
        }
        (false, _) if op2 & 1 == 0 => {
            if field(word, 22, 2) == 3 {
                return None;
            }
            sum(with_shift(simple(Slow, Slow))?)
        }
        (false, _) => {
            let by = field(word, 10, 3);
            if field(word, 22, 2) != 0 || by > 4 {
                return None;
            }
            let a = if bit(word, 29) { d } else { x_sp(word, 0) };
            sum(Op {
                c: m,
                d: field(word, 13, 3) as u8,
                by: by as u8,
                form: Form::Extended,
                ..Op::new(Slow, a, x_sp(word, 5))
            })
        }
        (true, 0) if wide && field(word, 10, 6) == 0 => {
            let code = match (bit(word, 30), bit(word, 29)) {
                (false, false) => Adc8,
                (false, true) => AdcS8,
                (true, false) => Sbc8,
                (true, true) => SbcS8,
            };
            Op::new(code, d, n).and(m)
        }
        (true, 2) => {
            if !bit(word, 29) || bit(word, 10) || bit(word, 4) {
                return None;
            }
            let code = match bit(word, 30) {
                true => sized(wide, Ccmp4, Ccmp8),
                false => sized(wide, Ccmn4, Ccmn8),
            };
            let op = Op {
                d: field(word, 12, 4) as u8,
                ..Op::new(code, field(word, 0, 4) as u8, n)
            };
            if bit(word, 11) {
                op.with(field(word, 16, 5).into())
            } else {
                op.and(m)
            }
        }
        (true, 4) => {
            if bit(word, 29) || bit(word, 11) {
                return None;
            }
            Op {
                d: field(word, 12, 4) as u8,
                by: (field(word, 30, 1) << 1 | field(word, 10, 1)) as u8,
                ..simple(Select4, Select8)
            }
        }
        (true, 6) if bit(word, 30) => {
            if bit(word, 29) || field(word, 16, 5) != 0 {
                return None;
            }
            match (field(word, 10, 6), wide) {
                (0, _) => simple(Rbit4, Rbit8),
                (2, false) => simple(Rev4, Slow),
                (3, true) => simple(Slow, Rev8),
                (4, _) => simple(Clz4, Clz8),
                _ => return None,
            }
        }
        (true, 6) => {
            if bit(word, 29) {
                return None;
            }
            match field(word, 10, 6) {
                2 => simple(DivU4, DivU8),
                3 => simple(DivS4, DivS8),
                by @ 8..=11 => Op {
                    by: by as u8 & 3,
                    ..simple(Shift4, Shift8)
                },
                _ => return None,
            }
        }
        (true, 8..) => {
            let subtracts = bit(word, 15);
            let code = match (field(word, 29, 2), field(word, 21, 3)) {
                (0, 0) if subtracts => sized(wide, MulSub4, MulSub8),
                (0, 0) => sized(wide, MulAdd4, MulAdd8),
                (0, 1) if wide && !subtracts => MulAddS,
                (0, 5) if wide && !subtracts => MulAddU,
                (0, 2) if wide && field(word, 10, 6) == 31 => MulHighS,
                (0, 6) if wide && field(word, 10, 6) == 31 => MulHighU,
                _ => return None,
            };
            Op {
                d: x(word, 10),
                ..Op::new(code, d, n).and(m)
            }
        }
        _ => return None,
    })
}

fn floats(word: u32) -> Option<Op> {
    use Code::*;
    let (d, n, m) = (v(word, 0), v(word, 5), v(word, 16));
    // ORR of a vector register with itself is MOV; MOVI of zero.
    if word & 0xffe0_fc00 == 0x4ea0_1c00 && n == m {
        return Some(Op::new(MoveV16, d, n));
    }
    if matches!(word & !0x1f, 0x6f00_e400 | 0x2f00_e400) {
        return Some(Op::new(ConstantV, d, 0));
    }
    if !bit(word, 28) || bit(word, 30) || bit(word, 29) || bit(word, 24) || !bit(word, 21) {
        return None;
    }
    let double = match field(word, 22, 2) {
        0 => false,
        1 => true,
        _ => return None,
    };
    let wide = bit(word, 31);
    let sized = |four, eight| if double { eight } else { four };
    let simple = |four, eight| Op::new(sized(four, eight), d, n).and(m);
    if field(word, 10, 6) == 0 {
        let (mode, opcode) = (field(word, 19, 2), field(word, 16, 3));
        let code = match (opcode, mode, wide) {
            (2, 0, false) => sized(Int4ToF4, Int4ToF8),
            (2, 0, true) => sized(Int8ToF4, Int8ToF8),
            (3, 0, false) => sized(UInt4ToF4, UInt4ToF8),
            (0, 3, false) => sized(F4ToInt4, F8ToInt4),
            (0, 3, true) => sized(F4ToInt8, F8ToInt8),
            (1, 3, false) => sized(F4ToUInt4, F8ToUInt4),
            (1, 3, true) => sized(F4ToUInt8, F8ToUInt8),
            (6, 0, false) if !double => FromV4,
            (6, 0, true) if double => FromV8,
            (7, 0, false) if !double => ToV4,
            (7, 0, true) if double => ToV8,
            _ => return None,
        };
        return Some(match opcode {
            2 | 3 | 7 => Op::new(code, d, x(word, 5)),
            _ => Op::new(code, to_x(word, 0), n),
        });
    }
    if wide {
        return None;
    }
    Some(match (field(word, 10, 2), field(word, 10, 5)) {
        (_, 0b10000) => match field(word, 15, 6) {
            0 => Op::new(sized(MoveV4, MoveV8), d, n),
            1 => Op::new(sized(Abs4, Abs8), d, n),
            2 => Op::new(sized(Neg4, Neg8), d, n),
            _ => return None,
        },
        (_, 0b01000) if field(word, 14, 2) == 0 => {
            if field(word, 0, 3) != 0 {
                return None;
            }
            match (bit(word, 3), m) {
                (true, 0) => Op::new(sized(CompareZero4, CompareZero8), n, n),
                (true, _) => return None,
                (false, m) => Op::new(sized(Compare4, Compare8), n, n).and(m),
            }
        }
        (0, _) if field(word, 10, 3) == 0b100 => {
            if field(word, 5, 5) != 0 {
                return None;
            }
            let f = if double { F64 } else { F32 };
            Op::new(ConstantV, d, 0).with(expand_float(f, field(word, 13, 8)))
        }
        (2, _) => match field(word, 12, 4) {
            0 => simple(MulF4, MulF8),
            1 => simple(DivF4, DivF8),
            2 => simple(AddF4, AddF8),
            3 => simple(SubF4, SubF8),
            _ => return None,
        },
        (3, _) => Op {
            d: field(word, 12, 4) as u8,
            ..simple(SelectV4, SelectV8)
        },
        _ => return None,
    })
}

/// Takes apart the code from `pc` on, up to the next branch.
#[inline(never)]
pub(super) fn translate<M: Memory>(cache: &mut Blocks<Op>, memory: &mut M, pc: u64) -> usize {
    let at = core::cell::Cell::new(pc);
    let next = || {
        let pc = at.get();
        let mut bytes = [0; 4];
        let whole = pc.is_multiple_of(4) && memory.fetch(pc, &mut bytes) == Ok(4);
        if !whole {
            // `step` says what is wrong with it.
            return (Op { pc, by: 1, ..EMPTY }, true);
        }
        at.set(pc.wrapping_add(4));
        Op::of(u32::from_le_bytes(bytes), pc)
    };
    let end = || Op {
        pc: at.get(),
        code: Code::End,
        ..EMPTY
    };
    cache.keep(pc, next, end)
}
