//! SSE and SSE2 in XMM registers (volume 2, tables ). The forms for MMX registers are not
//! known, and neither are the estimates RCP and RSQRT, on which processors do not agree.

mod float;
mod lanes;
mod moves;
mod packed;

use super::context::{Context, unaligned};
use super::decode::Repeat;
use crate::{Access, Memory, Stop};

/// The prefix that chooses among instructions with one opcode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefix {
    /// Mostly packed single precision.
    None,
    /// 66: mostly packed double precision, or integers.
    P66,
    /// F3: mostly one single-precision number.
    F3,
    /// F2: mostly one double-precision number.
    F2,
}

pub(super) fn execute<M: Memory>(c: &mut Context<'_, M>) -> Result<(), Stop> {
    let prefix = match (c.i.repeat, c.i.operand16) {
        (Repeat::F3, _) => Prefix::F3,
        (Repeat::F2, _) => Prefix::F2,
        (Repeat::None, true) => Prefix::P66,
        (Repeat::None, false) => Prefix::None,
    };
    match (c.i.opcode, prefix) {
        (0x10..=0x13 | 0x16 | 0x17 | 0x28 | 0x29 | 0x2b, _) => moves::floats(c, prefix),
        (0x14 | 0x15, Prefix::None | Prefix::P66) => {
            // As unpacking integers of the same size.
            let log2 = if prefix == Prefix::None { 2 } else { 3 };
            let b = c.vector()?;
            let a = c.xmm();
            c.set_xmm(lanes::unpack(a, b, log2, c.i.opcode == 0x15));
            Ok(())
        }
        (0x54..=0x57, Prefix::None | Prefix::P66) => {
            let b = c.vector()?;
            let a = c.xmm();
            c.set_xmm(lanes::logical(c.i.opcode - 0x54, a, b));
            Ok(())
        }
        (0x2a | 0x2c..=0x2f | 0x51 | 0x58..=0x5f | 0xc2 | 0xe6, _) => float::execute(c, prefix),
        (0x50 | 0x6e | 0x6f | 0x7e | 0x7f | 0xc4 | 0xc5 | 0xd6 | 0xd7 | 0xe7, _) => {
            moves::integers(c, prefix)
        }
        (0x70 | 0xc6, _) => packed::shuffle(c, prefix),
        (0x60..=0x6d | 0x71..=0x76 | 0xd1..=0xfe, Prefix::P66) => packed::execute(c),
        _ => Err(Stop::Unknown),
    }
}

impl<M: Memory> Context<'_, M> {
    /// The XMM register in `reg`.
    fn xmm(&self) -> u128 {
        self.state.xmm[usize::from(self.i.reg())]
    }

    fn set_xmm(&mut self, value: u128) {
        self.state.xmm[usize::from(self.i.reg())] = value;
    }

    /// The XMM register or the 16 bytes of memory in `rm`, at a multiple of 16.
    fn vector(&mut self) -> Result<u128, Stop> {
        self.vector_at(true)
    }

    /// Reads a vector operand, for instructions that may not care about alignment.
    fn vector_at(&mut self, aligned: bool) -> Result<u128, Stop> {
        if let Some(n) = self.i.rm() {
            return Ok(self.state.xmm[usize::from(n)]);
        }
        let va = self.va();
        if aligned && !va.is_multiple_of(16) {
            return Err(unaligned(va, Access::Load));
        }
        Ok(u128::from_le_bytes(self.memory.load(va)?))
    }

    /// Writes what [`vector_at`](Self::vector_at) reads.
    fn set_vector_at(&mut self, aligned: bool, value: u128) -> Result<(), Stop> {
        if let Some(n) = self.i.rm() {
            self.state.xmm[usize::from(n)] = value;
            return Ok(());
        }
        let va = self.va();
        if aligned && !va.is_multiple_of(16) {
            return Err(unaligned(va, Access::Store));
        }
        Ok(self.memory.store(va, value.to_le_bytes())?)
    }

    /// The low `size` bytes of the XMM register in `rm`, or memory.
    fn scalar(&mut self, size: u32) -> Result<u64, Stop> {
        match self.i.rm() {
            Some(n) => {
                let value = self.state.xmm[usize::from(n)] as u64;
                Ok(super::context::cut(value, size))
            }
            None => {
                let va = self.va();
                self.load(va, size)
            }
        }
    }
}
