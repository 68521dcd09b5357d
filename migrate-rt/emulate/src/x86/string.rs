//! MOVS and STOS, with and without REP.

use super::alu::DF;
use super::context::{Context, Flow, RAX, RCX, RDI, RSI};
use super::decode::Repeat;
use crate::{Event, Memory, Stop};

/// Elements that one step moves at most, so that a step stays short. The rest is another step, as
/// after an interrupt.
const MOST: u64 = 64;

pub(super) fn execute<M: Memory>(c: &mut Context<'_, M>, size: u32) -> Result<Flow, Stop> {
    if c.i.address32 || c.i.fs {
        return Err(Stop::Unknown);
    }
    let moves = c.i.opcode & !1 == 0xa4;
    if c.i.repeat == Repeat::None {
        element(c, size, moves)?;
        return Ok(Flow::Next);
    }
    for done in 0..MOST {
        let left = c.reg(RCX, 8);
        if left == 0 {
            return Ok(Flow::Next);
        }
        match element(c, size, moves) {
            Ok(()) => c.set_reg(RCX, 8, left - 1),
            Err(stop) if done == 0 => return Err(stop),
            // What is done is done; the next step starts with this element.
            Err(_) => break,
        }
    }
    // The program counter still is at this instruction.
    if c.reg(RCX, 8) == 0 {
        return Ok(Flow::Next);
    }
    Ok(Flow::Event(Event::Continue))
}

fn element<M: Memory>(c: &mut Context<'_, M>, size: u32, moves: bool) -> Result<(), Stop> {
    let step = if c.state.rflags & DF == 0 {
        u64::from(size)
    } else {
        u64::from(size).wrapping_neg()
    };
    let (from, to) = (c.reg(RSI, 8), c.reg(RDI, 8));
    let value = if moves {
        c.load(from, size)?
    } else {
        c.reg(RAX, size)
    };
    c.store(to, size, value)?;
    if moves {
        c.set_reg(RSI, 8, from.wrapping_add(step));
    }
    c.set_reg(RDI, 8, to.wrapping_add(step));
    Ok(())
}
