//! The one-byte opcode map (volume 2, table A-2).

use super::alu::{
    AF, CF, DF, OF, Op, PF, SF, STATUS, ZF, add, holds, result_flags, shift, subtract,
};
use super::context::{Context, Flow, RAX, RBP, RCX, RDX, RSP, cut, extend};
use super::decode::Repeat;
use super::string;
use crate::{Event, Memory, Stop, Trap};

pub(super) fn execute<M: Memory>(c: &mut Context<'_, M>) -> Result<Flow, Stop> {
    let opcode = c.i.opcode;
    // Operands are bytes if the lowest bit is clear, where it says so.
    let size = if opcode & 1 == 0 { 1 } else { c.i.size() };
    let immediate = c.i.immediate as u64;
    if c.i.lock && !lockable(opcode, c.i.group()) {
        return Err(Stop::Unknown);
    }
    match opcode {
        0x00..=0x3f => return arithmetic(c, size),
        0x50..=0x57 => {
            plain_stack(c)?;
            let value = c.reg(c.i.opcode_reg(), 8);
            c.push(value)?;
        }
        0x58..=0x5f => {
            plain_stack(c)?;
            let value = c.pop()?;
            c.set_reg(c.i.opcode_reg(), 8, value);
        }
        // MOVSXD
        // With operands of 16 bits it is none that anybody emits.
        0x63 if !c.i.operand16 || c.i.size() == 8 => {
            let value = c.rm(4)?;
            c.set_reg(c.i.reg(), c.i.size(), extend(value, 4) as u64);
        }
        0x68 | 0x6a => {
            plain_stack(c)?;
            c.push(immediate)?;
        }
        0x69 | 0x6b => {
            let size = c.i.size();
            let value = c.rm(size)?;
            multiply_to(c, size, value, immediate);
        }
        0x70..=0x7f => return Ok(branch_if(c, holds(opcode, c.state.rflags))),
        0x80 | 0x81 | 0x83 => {
            let size = if opcode == 0x80 { 1 } else { c.i.size() };
            let op = Op::of(c.i.group());
            return rm_op(c, op, size, cut(immediate, size));
        }
        // TEST
        0x84 | 0x85 => {
            let result = c.rm(size)? & c.reg(c.i.reg(), size);
            c.set_flags(STATUS, result_flags(result, size));
        }
        0xa8 | 0xa9 => {
            let result = c.reg(RAX, size) & cut(immediate, size);
            c.set_flags(STATUS, result_flags(result, size));
        }
        // XCHG, locked with memory whether it says so or not.
        0x86 | 0x87 => {
            let new = c.reg(c.i.reg(), size);
            // With a register there is nothing to be locked; `modify` refuses the prefix.
            c.i.lock |= c.i.rm().is_none();
            let old = c.modify(size, &mut |_| new)?;
            c.set_reg(c.i.reg(), size, old);
        }
        // MOV
        0x88 | 0x89 => {
            let value = c.reg(c.i.reg(), size);
            c.set_rm(size, value)?;
        }
        0x8a | 0x8b => {
            let value = c.rm(size)?;
            c.set_reg(c.i.reg(), size, value);
        }
        0xb0..=0xb7 => c.set_reg(c.i.opcode_reg(), 1, immediate),
        0xb8..=0xbf => c.set_reg(c.i.opcode_reg(), c.i.size(), immediate),
        0xc6 | 0xc7 if c.i.group() == 0 => c.set_rm(size, immediate)?,
        // LEA
        0x8d if c.i.rm().is_none() => {
            let offset = c.i.offset(&c.state.gpr, c.next);
            c.set_reg(c.i.reg(), c.i.size(), offset);
        }
        // NOP, PAUSE
        0x90 if c.i.rex & 1 == 0 => {
            if c.i.repeat == Repeat::F3 {
                core::hint::spin_loop();
            }
        }
        // F3 90 is PAUSE, and what it is with another register depends on whom one asks.
        0x90..=0x97 if opcode != 0x90 || c.i.repeat != Repeat::F3 => {
            let (size, other) = (c.i.size(), c.i.opcode_reg());
            let (a, b) = (c.reg(RAX, size), c.reg(other, size));
            c.set_reg(RAX, size, b);
            c.set_reg(other, size, a);
        }
        // CBW, CWDE, CDQE
        0x98 => {
            let size = c.i.size();
            let value = extend(c.reg(RAX, size / 2), size / 2);
            c.set_reg(RAX, size, value as u64);
        }
        // CWD, CDQ, CQO
        0x99 => {
            let size = c.i.size();
            let value = extend(c.reg(RAX, size), size) >> 63;
            c.set_reg(RDX, size, value as u64);
        }
        // SAHF, LAHF
        0x9e => {
            let flags = c.state.gpr[usize::from(RAX)] >> 8;
            c.set_flags(CF | PF | AF | ZF | SF, flags);
        }
        0x9f => {
            let flags = c.state.rflags & (CF | PF | AF | ZF | SF) | 2;
            let rax = &mut c.state.gpr[usize::from(RAX)];
            *rax = *rax & !0xff00 | flags << 8;
        }
        0xa4 | 0xa5 | 0xaa | 0xab => return string::execute(c, size),
        0xc0 | 0xc1 => return shift_rm(c, size, immediate as u32),
        0xd0 | 0xd1 => return shift_rm(c, size, 1),
        0xd2 | 0xd3 => {
            let count = c.reg(RCX, 1) as u32;
            return shift_rm(c, size, count);
        }
        // RET
        0xc2 | 0xc3 => {
            plain_stack(c)?;
            let target = c.pop()?;
            let sp = c.reg(RSP, 8).wrapping_add(immediate & 0xffff);
            c.set_reg(RSP, 8, sp);
            c.state.rip = target;
            return Ok(Flow::Event(Event::Return));
        }
        // LEAVE
        0xc9 => {
            plain_stack(c)?;
            let frame = c.reg(RBP, 8);
            let outer = c.load(frame, 8)?;
            c.set_reg(RSP, 8, frame.wrapping_add(8));
            c.set_reg(RBP, 8, outer);
        }
        0xcc => return Ok(Flow::Event(Event::Trap(Trap::Breakpoint))),
        // JRCXZ, JECXZ
        0xe3 => {
            let size = if c.i.address32 { 4 } else { 8 };
            return Ok(branch_if(c, c.reg(RCX, size) == 0));
        }
        0xe8 => {
            let target = relative(c);
            return call(c, target);
        }
        0xe9 | 0xeb => return Ok(branch_if(c, true)),
        0xf5 => c.state.rflags ^= CF,
        0xf8 => c.set_flags(CF, 0),
        0xf9 => c.set_flags(CF, CF),
        0xfc => c.set_flags(DF, 0),
        0xfd => c.set_flags(DF, DF),
        0xf6 | 0xf7 => return group3(c, size),
        0xfe | 0xff => return group5(c, size),
        _ => return Err(Stop::Unknown),
    }
    Ok(Flow::Next)
}

/// Whether an instruction may have the prefix LOCK; that its operand is memory is checked where it is
/// changed.
fn lockable(opcode: u8, group: u8) -> bool {
    match opcode {
        0x00..=0x37 => opcode & 6 == 0,
        0x80 | 0x81 | 0x83 => group != 7,
        0x86 | 0x87 => true,
        0xf6 | 0xf7 => matches!(group, 2 | 3),
        0xfe | 0xff => group < 2,
        _ => false,
    }
}

/// Stack operations of 2 bytes are no compiler's.
fn plain_stack<M: Memory>(c: &Context<'_, M>) -> Result<(), Stop> {
    if c.i.operand16 {
        return Err(Stop::Unknown);
    }
    Ok(())
}

/// The target of a relative branch.
pub(super) fn relative<M: Memory>(c: &Context<'_, M>) -> u64 {
    c.next.wrapping_add_signed(c.i.immediate)
}

/// A relative branch, or none.
pub(super) fn branch_if<M: Memory>(c: &mut Context<'_, M>, taken: bool) -> Flow {
    if !taken {
        return Flow::Next;
    }
    c.state.rip = relative(c);
    Flow::Event(Event::Continue)
}

fn call<M: Memory>(c: &mut Context<'_, M>, target: u64) -> Result<Flow, Stop> {
    let back = c.next;
    c.push(back)?;
    c.state.rip = target;
    Ok(Flow::Event(Event::Call { target, back }))
}

/// The eight operations of the map's first quarter.
fn arithmetic<M: Memory>(c: &mut Context<'_, M>, size: u32) -> Result<Flow, Stop> {
    let op = Op::of(c.i.opcode >> 3);
    let (destination, b) = match c.i.opcode & 7 {
        0 | 1 => {
            let b = c.reg(c.i.reg(), size);
            return rm_op(c, op, size, b);
        }
        2 | 3 => (c.i.reg(), c.rm(size)?),
        _ => (RAX, cut(c.i.immediate as u64, size)),
    };
    let (result, flags) = op.apply(c.reg(destination, size), b, size, c.state.rflags);
    if op != Op::Cmp {
        c.set_reg(destination, size, result);
    }
    c.set_flags(STATUS, flags);
    Ok(Flow::Next)
}

/// One of them, with a destination in memory or a register.
fn rm_op<M: Memory>(c: &mut Context<'_, M>, op: Op, size: u32, b: u64) -> Result<Flow, Stop> {
    let before = c.state.rflags;
    let mut flags = 0;
    if op == Op::Cmp {
        flags = op.apply(c.rm(size)?, b, size, before).1;
    } else {
        c.modify(size, &mut |a| {
            let (result, f) = op.apply(a, b, size, before);
            flags = f;
            result
        })?;
    }
    c.set_flags(STATUS, flags);
    Ok(Flow::Next)
}

fn shift_rm<M: Memory>(c: &mut Context<'_, M>, size: u32, count: u32) -> Result<Flow, Stop> {
    let (op, before) = (c.i.group(), c.state.rflags);
    let (mut mask, mut flags) = (0, 0);
    c.modify(size, &mut |a| {
        let (result, m, f) = shift(op, a, count, size, before);
        (mask, flags) = (m, f);
        result
    })?;
    c.set_flags(mask, flags);
    Ok(Flow::Next)
}

/// IMUL with a destination register: the product, cut.
pub(super) fn multiply_to<M: Memory>(c: &mut Context<'_, M>, size: u32, a: u64, b: u64) {
    let product = i128::from(extend(a, size)) * i128::from(extend(b, size));
    let result = cut(product as u64, size);
    let lost = i128::from(extend(result, size)) != product;
    c.set_reg(c.i.reg(), size, result);
    let flags = result_flags(result, size);
    c.set_flags(STATUS, if lost { CF | OF | flags } else { flags });
}

/// TEST, NOT, NEG, MUL, IMUL, DIV, IDIV.
fn group3<M: Memory>(c: &mut Context<'_, M>, size: u32) -> Result<Flow, Stop> {
    match c.i.group() {
        0 | 1 => {
            let result = c.rm(size)? & cut(c.i.immediate as u64, size);
            c.set_flags(STATUS, result_flags(result, size));
        }
        2 => {
            c.modify(size, &mut |a| !a)?;
        }
        3 => {
            let mut flags = 0;
            c.modify(size, &mut |a| {
                let (result, f) = subtract(0, a, 0, size);
                flags = f;
                result
            })?;
            c.set_flags(STATUS, flags);
        }
        4 | 5 => multiply(c, size)?,
        _ => return divide(c, size),
    }
    Ok(Flow::Next)
}

/// MUL, IMUL of RAX: the whole product.
fn multiply<M: Memory>(c: &mut Context<'_, M>, size: u32) -> Result<(), Stop> {
    let (a, b) = (c.reg(RAX, size), c.rm(size)?);
    let bits = 8 * size;
    let (product, lost) = if c.i.group() == 4 {
        let product = u128::from(a) * u128::from(b);
        (product, product >> bits != 0)
    } else {
        let product = i128::from(extend(a, size)) * i128::from(extend(b, size));
        let kept = i128::from(extend(product as u64, size));
        (product as u128, kept != product)
    };
    if size == 1 {
        c.set_reg(RAX, 2, product as u64);
    } else {
        c.set_reg(RAX, size, product as u64);
        c.set_reg(RDX, size, (product >> bits) as u64);
    }
    let flags = result_flags(cut(product as u64, size), size);
    c.set_flags(STATUS, if lost { CF | OF | flags } else { flags });
    Ok(())
}

/// DIV, IDIV.
fn divide<M: Memory>(c: &mut Context<'_, M>, size: u32) -> Result<Flow, Stop> {
    let divisor = c.rm(size)?;
    let bits = 8 * size;
    let dividend = if size == 1 {
        u128::from(c.reg(RAX, 2))
    } else {
        u128::from(c.reg(RDX, size)) << bits | u128::from(c.reg(RAX, size))
    };
    let fits = if c.i.group() == 6 {
        quotient(dividend, divisor.into()).filter(|(q, _)| q >> bits == 0)
    } else {
        let unused = 128 - 2 * bits;
        let dividend = (dividend << unused) as i128 >> unused;
        let divisor = i128::from(extend(divisor, size));
        let whole = dividend
            .checked_div(divisor)
            .filter(|&q| i128::from(extend(q as u64, size)) == q);
        whole.map(|q| (q as u128, dividend.wrapping_rem(divisor) as u128))
    };
    let Some((quotient, remainder)) = fits else {
        return Ok(Flow::Event(Event::Trap(Trap::Divide)));
    };
    if size == 1 {
        let both = cut(quotient as u64, 1) | cut(remainder as u64, 1) << 8;
        c.set_reg(RAX, 2, both);
    } else {
        c.set_reg(RAX, size, quotient as u64);
        c.set_reg(RDX, size, remainder as u64);
    }
    Ok(Flow::Next)
}

fn quotient(a: u128, b: u128) -> Option<(u128, u128)> {
    Some((a.checked_div(b)?, a.checked_rem(b)?))
}

/// INC, DEC, CALL, JMP, PUSH.
fn group5<M: Memory>(c: &mut Context<'_, M>, size: u32) -> Result<Flow, Stop> {
    match c.i.group() {
        decrease @ (0 | 1) => {
            let mut flags = 0;
            c.modify(size, &mut |a| {
                let (result, f) = if decrease == 1 {
                    subtract(a, 1, 0, size)
                } else {
                    add(a, 1, 0, size)
                };
                flags = f;
                result
            })?;
            c.set_flags(STATUS & !CF, flags);
        }
        branch @ (2 | 4) if size != 1 => {
            plain_stack(c)?;
            let target = c.rm(8)?;
            if branch == 2 {
                return call(c, target);
            }
            c.state.rip = target;
            return Ok(Flow::Event(Event::Continue));
        }
        6 if size != 1 => {
            plain_stack(c)?;
            let value = c.rm(8)?;
            c.push(value)?;
        }
        _ => return Err(Stop::Unknown),
    }
    Ok(Flow::Next)
}
