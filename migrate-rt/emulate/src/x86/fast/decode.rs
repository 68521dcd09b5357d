//! From instructions to operations.

use super::super::decode::{Instruction, LONGEST, Repeat};
use super::{Code, EMPTY, From, Op, RCX, ZERO};
use crate::Memory;
use crate::blocks::Blocks;

/// Of two codes the one for 4 or 8 bytes.
fn sized(size: u32, four: Code, eight: Code) -> Option<Code> {
    match size {
        4 => Some(four),
        8 => Some(eight),
        _ => None,
    }
}

/// Of four codes the one for a size.
fn any_size(size: u32, codes: [Code; 4]) -> Code {
    codes[size.trailing_zeros() as usize & 3]
}

impl Op {
    fn new(code: Code, from: From, a: u8, b: u8) -> Op {
        Op {
            code,
            from,
            a,
            b,
            ..EMPTY
        }
    }

    /// Takes the instruction at `pc` apart, and says whether it ends a run.
    fn of(i: &Instruction, pc: u64) -> (Op, bool) {
        let next = pc.wrapping_add(i.len.into());
        let mut op = match i.lock || i.fs || i.address32 {
            true => EMPTY,
            false if i.two => two(i).unwrap_or(EMPTY),
            false => one(i).unwrap_or(EMPTY),
        };
        (op.pc, op.len) = (pc, i.len);
        let ends = match op.code {
            Code::Call | Code::Jump | Code::If => {
                op.at = next.wrapping_add_signed(i.immediate);
                true
            }
            code => {
                let register = |r: Option<u8>| r.unwrap_or(ZERO);
                (op.base, op.index) = (register(i.base), register(i.index));
                op.scale = i.scale;
                op.at = i64::from(i.displacement) as u64;
                if i.relative {
                    op.at = op.at.wrapping_add(next);
                }
                matches!(code, Code::CallTo | Code::JumpTo | Code::Return)
            }
        };
        (op, ends)
    }
}

/// The code of one of the eight operations.
fn arithmetic(op: u8, size: u32) -> Option<Code> {
    use Code::*;
    match op & 7 {
        0 => Some(any_size(size, [Add1, Add2, Add4, Add8])),
        1 => Some(any_size(size, [Or1, Or2, Or4, Or8])),
        2 => sized(size, Adc4, Adc8),
        3 => sized(size, Sbb4, Sbb8),
        4 => Some(any_size(size, [And1, And2, And4, And8])),
        5 => Some(any_size(size, [Sub1, Sub2, Sub4, Sub8])),
        6 => Some(any_size(size, [Xor1, Xor2, Xor4, Xor8])),
        _ => Some(any_size(size, [Cmp1, Cmp2, Cmp4, Cmp8])),
    }
}

/// Whether a byte register is the low byte of a general one.
fn is_low(i: &Instruction, n: u8) -> bool {
    i.rex != 0 || !(4..8).contains(&n)
}

/// An operation with a destination or first operand in ModRM, and a register or an immediate.
fn rm_first(i: &Instruction, op: u8, size: u32, from: From, b: u8) -> Option<Op> {
    use Code::*;
    match i.rm() {
        Some(a) if size > 1 || is_low(i, a) => Some(Op::new(arithmetic(op, size)?, from, a, b)),
        Some(_) => None,
        None if op & 7 == 7 => {
            let code = any_size(size, [CmpM1, CmpM2, CmpM4, CmpM8]);
            Some(Op::new(code, from, 0, b))
        }
        None if size == 1 && !matches!(op & 7, 2 | 3) => Some(Op::new(AluM1, from, op & 7, b)),
        None if !matches!(op & 7, 2 | 3) => {
            Some(Op::new(sized(size, AluM4, AluM8)?, from, op & 7, b))
        }
        None => None,
    }
}

/// The second operand in ModRM: where it is, and the register.
fn rm_second(i: &Instruction) -> (From, u8) {
    match i.rm() {
        Some(n) => (From::Register, n),
        None => (From::Memory, 0),
    }
}

/// Of the one-byte map.
fn one(i: &Instruction) -> Option<Op> {
    use Code::*;
    let opcode = i.opcode;
    if i.repeat != Repeat::None {
        return None;
    }
    let byte = opcode & 1 == 0;
    let size = if byte { 1 } else { i.size() };
    let immediate = |code, a| {
        let mut op = Op::new(code, From::Immediate, a, 0);
        op.immediate = i.immediate as u64;
        op
    };
    let with = |op: Op| Op {
        immediate: i.immediate as u64,
        ..op
    };
    let (from, n) = rm_second(i);
    Some(match opcode {
        0x00..=0x3f => match opcode & 7 {
            0 | 1 if byte && !is_low(i, i.reg()) => return None,
            0 | 1 => rm_first(i, opcode >> 3, size, From::Register, i.reg())?,
            2 if !is_low(i, i.reg()) || (from == From::Register && !is_low(i, n)) => return None,
            2 | 3 => Op::new(arithmetic(opcode >> 3, size)?, from, i.reg(), n),
            _ => immediate(arithmetic(opcode >> 3, size)?, 0),
        },
        0x50..=0x57 if !i.operand16 => Op::new(Push, From::Register, 0, i.opcode_reg()),
        0x58..=0x5f if !i.operand16 => Op::new(Pop, From::Register, i.opcode_reg(), 0),
        0x63 if i.size() == 8 => Op::new(Sign48, from, i.reg(), n),
        0x68 | 0x6a if !i.operand16 => immediate(Push, 0),
        0x69 | 0x6b => with(Op::new(sized(i.size(), Imul4I, Imul8I)?, from, i.reg(), n)),
        0x70..=0x7f => Op::new(If, From::Register, 0, opcode & 15),
        0x80 | 0x81 | 0x83 => {
            let size = if opcode == 0x80 { 1 } else { i.size() };
            with(rm_first(i, i.group(), size, From::Immediate, 0)?)
        }
        0x84 | 0x85 => {
            if byte && !is_low(i, i.reg()) {
                return None;
            }
            match i.rm() {
                Some(a) if byte && !is_low(i, a) => return None,
                Some(a) if byte => Op::new(Test1, From::Register, a, i.reg()),
                Some(a) => Op::new(sized(size, Test4, Test8)?, From::Register, a, i.reg()),
                None if byte => Op::new(TestM1, From::Register, 0, i.reg()),
                None => Op::new(sized(size, TestM4, TestM8)?, From::Register, 0, i.reg()),
            }
        }
        0xa8 => immediate(Test1, 0),
        0xa9 => immediate(sized(size, Test4, Test8)?, 0),
        0x88 | 0x8a if !is_low(i, i.reg()) || (from == From::Register && !is_low(i, n)) => {
            return None;
        }
        0x88 if from == From::Memory => Op::new(MovM1, From::Register, 0, i.reg()),
        0x88 => Op::new(Mov1, From::Register, n, i.reg()),
        0x8a => Op::new(Mov1, from, i.reg(), n),
        0xb0..=0xb7 if is_low(i, i.opcode_reg()) => immediate(Mov1, i.opcode_reg()),
        0x89 => match i.rm() {
            Some(a) => Op::new(
                any_size(size, [Mov1, Mov2, Mov4, Mov8]),
                From::Register,
                a,
                i.reg(),
            ),
            None => {
                let code = any_size(size, [MovM1, MovM2, MovM4, MovM8]);
                Op::new(code, From::Register, 0, i.reg())
            }
        },
        0x8b => Op::new(any_size(size, [Mov1, Mov2, Mov4, Mov8]), from, i.reg(), n),
        0xb8..=0xbf => immediate(sized(i.size(), Mov4, Mov8)?, i.opcode_reg()),
        0xc6 | 0xc7 if i.group() == 0 => match i.rm() {
            Some(a) => immediate(sized(size, Mov4, Mov8)?, a),
            None => immediate(any_size(size, [MovM1, MovM2, MovM4, MovM8]), 0),
        },
        0x8d if from == From::Memory => {
            Op::new(sized(i.size(), Lea4, Lea8)?, From::Memory, i.reg(), 0)
        }
        0x90 if i.rex & 1 == 0 => Op::new(Nop, From::Register, 0, 0),
        0x98 if i.size() == 8 => Op::new(Sign48, From::Register, 0, 0),
        0x99 => Op::new(sized(i.size(), Cdq, Cqo)?, From::Register, 0, 0),
        0xc1 | 0xd1 | 0xd3 => {
            let code = match i.group() {
                0 => sized(size, Rol4, Rol8)?,
                1 => sized(size, Ror4, Ror8)?,
                4 | 6 => sized(size, Shl4, Shl8)?,
                5 => sized(size, Shr4, Shr8)?,
                7 => sized(size, Sar4, Sar8)?,
                _ => return None,
            };
            let a = i.rm()?;
            match opcode {
                0xc1 => immediate(code, a),
                0xd1 => Op {
                    immediate: 1,
                    ..immediate(code, a)
                },
                _ => Op::new(code, From::Register, a, RCX as u8),
            }
        }
        0xc3 if !i.operand16 => Op::new(Return, From::Register, 0, 0),
        0xc9 if !i.operand16 => Op::new(Leave, From::Register, 0, 0),
        0xe8 => Op::new(Call, From::Register, 0, 0),
        0xe9 | 0xeb => Op::new(Jump, From::Register, 0, 0),
        0xf6 if i.group() < 2 => match i.rm() {
            Some(a) if is_low(i, a) => immediate(Test1, a),
            Some(_) => return None,
            None => immediate(TestM1, 0),
        },
        0xf7 => match (i.group(), i.rm()) {
            (0 | 1, Some(a)) => immediate(sized(size, Test4, Test8)?, a),
            (0 | 1, None) => immediate(sized(size, TestM4, TestM8)?, 0),
            (2, Some(a)) => Op::new(sized(size, Not4, Not8)?, From::Register, a, 0),
            (3, Some(a)) => Op::new(sized(size, Neg4, Neg8)?, From::Register, a, 0),
            (4, _) if size == 8 => Op::new(Mul8, from, 0, n),
            (6, _) => Op::new(sized(size, Div4, Div8)?, from, 0, n),
            _ => return None,
        },
        0xff => match (i.group(), i.rm()) {
            (0, Some(a)) => Op::new(sized(size, Inc4, Inc8)?, From::Register, a, 0),
            (1, Some(a)) => Op::new(sized(size, Dec4, Dec8)?, From::Register, a, 0),
            (2, _) if !i.operand16 => Op::new(CallTo, from, 0, n),
            (4, _) if !i.operand16 => Op::new(JumpTo, from, 0, n),
            (6, _) if !i.operand16 => Op::new(Push, from, 0, n),
            _ => return None,
        },
        _ => return None,
    })
}

/// Of the two-byte map.
fn two(i: &Instruction) -> Option<Op> {
    use Code::*;
    let (from, n) = rm_second(i);
    let (size, register) = (i.size(), from == From::Register);
    // The choice of [`super::sse`]: the number by which prefixes choose.
    let prefix = match (i.repeat, i.operand16) {
        (Repeat::F3, _) => 3,
        (Repeat::F2, _) => 2,
        (Repeat::None, true) => 1,
        (Repeat::None, false) => 0,
    };
    let single = prefix == 3;
    let of_format = |four, eight| if single { four } else { eight };
    let scalar = prefix >= 2;
    let x = |code| Op::new(code, from, i.reg(), n);
    if prefix == 0 || (prefix == 1 && matches!(i.opcode, 0x40..=0x4f | 0x80..=0x9f)) {
        let op = match i.opcode {
            0x1f => Some(Op::new(Nop, From::Register, 0, 0)),
            0x40..=0x4f => Some(Op {
                immediate: u64::from(i.opcode & 15),
                ..x(sized(size, Cmov4, Cmov8)?)
            }),
            0x80..=0x8f => Some(Op::new(If, From::Register, 0, i.opcode & 15)),
            0x90..=0x9f => {
                let a = i.rm().filter(|&a| is_low(i, a))?;
                Some(Op::new(Set, From::Register, a, i.opcode & 15))
            }
            0xaf => Some(x(sized(size, Imul4, Imul8)?)),
            0xb6 if !register || is_low(i, n) => Some(x(Zero1)),
            0xb7 => Some(x(Zero2)),
            0xbe if !register || is_low(i, n) => Some(x(sized(size, Sign14, Sign18)?)),
            0xbf => Some(x(sized(size, Sign24, Sign28)?)),
            _ => None,
        };
        if op.is_some() || matches!(i.opcode, 0x1f | 0x80..=0xbf) {
            return op;
        }
    }
    let packed = !scalar;
    Some(match i.opcode {
        0x10 if scalar && register => x(of_format(MoveX4, MoveX8)),
        0x10 if scalar => x(of_format(LoadX4, LoadX8)),
        0x11 if scalar && register => Op::new(of_format(MoveX4, MoveX8), from, n, i.reg()),
        0x11 if scalar => Op::new(of_format(StoreX4, StoreX8), from, 0, i.reg()),
        0x10 | 0x28 if packed && register => x(MoveX16),
        0x11 | 0x29 if packed && register => Op::new(MoveX16, from, n, i.reg()),
        0x10 if packed => x(LoadX16),
        0x28 if packed => x(LoadXA),
        0x11 if packed => Op::new(StoreX16, from, 0, i.reg()),
        0x29 if packed => Op::new(StoreXA, from, 0, i.reg()),
        0x6f if register && matches!(prefix, 1 | 3) => x(MoveX16),
        0x6f if prefix == 3 => x(LoadX16),
        0x6f if prefix == 1 => x(LoadXA),
        0x7f if register && matches!(prefix, 1 | 3) => Op::new(MoveX16, from, n, i.reg()),
        0x7f if prefix == 3 => Op::new(StoreX16, from, 0, i.reg()),
        0x7f if prefix == 1 => Op::new(StoreXA, from, 0, i.reg()),
        0x6e if prefix == 1 => x(if i.wide() { ToX8 } else { ToX4 }),
        0x7e if prefix == 1 && register => {
            Op::new(if i.wide() { FromX8 } else { FromX4 }, from, n, i.reg())
        }
        0x7e if prefix == 3 && register => x(MoveXQ),
        0x7e if prefix == 3 => x(LoadX8),
        0xd6 if prefix == 1 && register => Op::new(MoveXQ, from, n, i.reg()),
        0xd6 if prefix == 1 => Op::new(StoreX8, from, 0, i.reg()),
        // A vector in memory lies at a multiple of 16, of which `step` knows.
        0x54 if packed && register => x(AndX),
        0x55 if packed && register => x(AndNotX),
        0x56 if packed && register => x(OrX),
        0x57 if packed && register => x(XorX),
        0xdb if prefix == 1 && register => x(AndX),
        0xdf if prefix == 1 && register => x(AndNotX),
        0xeb if prefix == 1 && register => x(OrX),
        0xef if prefix == 1 && register => x(XorX),
        0x58 if scalar => x(of_format(AddF4, AddF8)),
        0x59 if scalar => x(of_format(MulF4, MulF8)),
        0x5c if scalar => x(of_format(SubF4, SubF8)),
        0x5e if scalar => x(of_format(DivF4, DivF8)),
        0x2e | 0x2f if prefix == 0 => x(Compare4),
        0x2e | 0x2f if prefix == 1 => x(Compare8),
        0x2a if scalar && i.wide() => x(of_format(Int8ToF4, Int8ToF8)),
        0x2a if scalar => x(of_format(Int4ToF4, Int4ToF8)),
        0x2c if scalar && i.wide() => x(of_format(F4ToInt8, F8ToInt8)),
        0x2c if scalar => x(of_format(F4ToInt4, F8ToInt4)),
        _ => return None,
    })
}

/// Takes apart the code from `pc` on, up to the next branch.
#[inline(never)]
pub(super) fn translate<M: Memory>(cache: &mut Blocks<Op>, memory: &mut M, pc: u64) -> usize {
    let at = core::cell::Cell::new(pc);
    let next = || {
        let pc = at.get();
        let mut bytes = [0; LONGEST];
        let len = memory.fetch(pc, &mut bytes).unwrap_or(0);
        let decoded = Instruction::decode(&bytes[..len.min(LONGEST)]);
        let Ok(i) = decoded else {
            // `step` says what is wrong with it.
            return (Op { pc, ..EMPTY }, true);
        };
        at.set(pc.wrapping_add(i.len.into()));
        Op::of(&i, pc)
    };
    let end = || Op {
        pc: at.get(),
        code: Code::End,
        ..EMPTY
    };
    cache.keep(pc, next, end)
}
