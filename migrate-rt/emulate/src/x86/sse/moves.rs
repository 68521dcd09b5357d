//! Moves between XMM registers, general registers and memory.

use super::super::context::Context;
use super::Prefix;
use super::lanes::{get, put};
use crate::{Memory, Stop};

/// MOVUPS, MOVSS, MOVLPS, MOVHPS, MOVAPS, MOVNTPS and their double-precision forms.
pub(super) fn floats<M: Memory>(c: &mut Context<'_, M>, prefix: Prefix) -> Result<(), Stop> {
    let memory = c.i.rm().is_none();
    let packed = matches!(prefix, Prefix::None | Prefix::P66);
    match c.i.opcode {
        0x10 if packed => {
            let value = c.vector_at(false)?;
            c.set_xmm(value);
        }
        0x11 if packed => c.set_vector_at(false, c.xmm())?,
        0x28 if packed => {
            let value = c.vector()?;
            c.set_xmm(value);
        }
        0x29 if packed => c.set_vector_at(true, c.xmm())?,
        0x2b if packed && memory => c.set_vector_at(true, c.xmm())?,
        // MOVSS, MOVSD: from memory the rest becomes zero, from a register it stays.
        0x10 => {
            let log2 = scalar_log2(prefix);
            let lane = c.scalar(1 << log2)?;
            let mut value = if memory { 0 } else { c.xmm() };
            put(&mut value, 0, log2, lane);
            c.set_xmm(value);
        }
        0x11 => {
            let log2 = scalar_log2(prefix);
            let lane = get(c.xmm(), 0, log2);
            match c.i.rm() {
                Some(n) => put(&mut c.state.xmm[usize::from(n)], 0, log2, lane),
                None => {
                    let va = c.va();
                    c.store(va, 1 << log2, lane)?;
                }
            }
        }
        // MOVLPS, MOVHPS and, between registers, MOVHLPS, MOVLHPS.
        0x12 | 0x16 if packed && (memory || prefix == Prefix::None) => {
            let high = u32::from(c.i.opcode == 0x16);
            let half = match c.i.rm() {
                Some(n) => get(c.state.xmm[usize::from(n)], 1 - high, 3),
                None => c.scalar(8)?,
            };
            let mut value = c.xmm();
            put(&mut value, high, 3, half);
            c.set_xmm(value);
        }
        0x13 | 0x17 if packed && memory => {
            let half = get(c.xmm(), u32::from(c.i.opcode == 0x17), 3);
            let va = c.va();
            c.store(va, 8, half)?;
        }
        _ => return Err(Stop::Unknown),
    }
    Ok(())
}

fn scalar_log2(prefix: Prefix) -> u32 {
    if prefix == Prefix::F3 { 2 } else { 3 }
}

/// MOVD, MOVQ, MOVDQA, MOVDQU, MOVNTDQ, PINSRW, PEXTRW, PMOVMSKB, MOVMSKPS, MOVMSKPD.
pub(super) fn integers<M: Memory>(c: &mut Context<'_, M>, prefix: Prefix) -> Result<(), Stop> {
    let size = if c.i.wide() { 8 } else { 4 };
    match (c.i.opcode, prefix) {
        (0x50, Prefix::None) => signs(c, 2)?,
        (0x50, Prefix::P66) => signs(c, 3)?,
        (0xd7, Prefix::P66) => signs(c, 0)?,
        (0x6e, Prefix::P66) => {
            let value = c.rm(size)?;
            c.set_xmm(value.into());
        }
        (0x7e, Prefix::P66) => c.set_rm(size, get(c.xmm(), 0, size.trailing_zeros()))?,
        // MOVQ
        (0x7e, Prefix::F3) => {
            let value = c.scalar(8)?;
            c.set_xmm(value.into());
        }
        (0xd6, Prefix::P66) => {
            let low = c.xmm() as u64;
            match c.i.rm() {
                Some(n) => c.state.xmm[usize::from(n)] = low.into(),
                None => {
                    let va = c.va();
                    c.store(va, 8, low)?;
                }
            }
        }
        (0x6f, Prefix::P66 | Prefix::F3) => {
            let value = c.vector_at(prefix == Prefix::P66)?;
            c.set_xmm(value);
        }
        (0x7f, Prefix::P66 | Prefix::F3) => c.set_vector_at(prefix == Prefix::P66, c.xmm())?,
        (0xe7, Prefix::P66) if c.i.rm().is_none() => c.set_vector_at(true, c.xmm())?,
        // PINSRW, PEXTRW
        (0xc4, Prefix::P66) => {
            let lane = c.rm(2)?;
            let mut value = c.xmm();
            put(&mut value, c.i.immediate as u32 & 7, 1, lane);
            c.set_xmm(value);
        }
        (0xc5, Prefix::P66) => {
            let n = c.i.rm().ok_or(Stop::Unknown)?;
            let lane = get(c.state.xmm[usize::from(n)], c.i.immediate as u32 & 7, 1);
            c.set_reg(c.i.reg(), 4, lane);
        }
        _ => return Err(Stop::Unknown),
    }
    Ok(())
}

/// Collects the lanes' sign bits.
fn signs<M: Memory>(c: &mut Context<'_, M>, log2: u32) -> Result<(), Stop> {
    let n = c.i.rm().ok_or(Stop::Unknown)?;
    let value = c.state.xmm[usize::from(n)];
    let bits = 8 << log2;
    let collected = (0..16 >> log2)
        .map(|at| (get(value, at, log2) >> (bits - 1)) << at)
        .fold(0, |all, bit| all | bit);
    c.set_reg(c.i.reg(), 4, collected);
    Ok(())
}
