//! Operands: registers and memory of one instruction.

use super::State;
use super::decode::Instruction;
use crate::{Access, Event, Fault, FaultKind, Memory, Stop, Width};

/// One instruction and what it works on.
///
/// What can fail comes before the first change of a register: either an instruction does all its
/// work, or none.
pub(super) struct Context<'a, M> {
    pub state: &'a mut State,
    pub memory: &'a mut M,
    pub i: Instruction,
    /// Address of the instruction behind this one.
    pub next: u64,
}

/// Where to go on.
pub(super) enum Flow {
    /// With the next instruction.
    Next,
    /// Where the program counter says.
    Event(Event),
}

pub(super) const RAX: u8 = 0;
pub(super) const RCX: u8 = 1;
pub(super) const RDX: u8 = 2;
pub(super) const RSP: u8 = 4;
pub(super) const RBP: u8 = 5;
pub(super) const RSI: u8 = 6;
pub(super) const RDI: u8 = 7;

/// `value`, cut to `size` bytes.
pub(super) fn cut(value: u64, size: u32) -> u64 {
    value & u64::MAX >> (64 - 8 * size)
}

/// `value` of `size` bytes, sign-extended.
pub(super) fn extend(value: u64, size: u32) -> i64 {
    let unused = 64 - 8 * size;
    (value << unused) as i64 >> unused
}

impl<M: Memory> Context<'_, M> {
    /// The register `n` of `size` bytes.
    pub(super) fn reg(&self, n: u8, size: u32) -> u64 {
        if self.high(n, size) {
            return self.state.gpr[usize::from(n - 4)] >> 8 & 0xff;
        }
        cut(self.state.gpr[usize::from(n)], size)
    }

    /// Writes the register `n`: 1 and 2 bytes leave the others alone, 4 clear them.
    pub(super) fn set_reg(&mut self, n: u8, size: u32, value: u64) {
        if self.high(n, size) {
            let register = &mut self.state.gpr[usize::from(n - 4)];
            *register = *register & !0xff00 | (value & 0xff) << 8;
            return;
        }
        let register = &mut self.state.gpr[usize::from(n)];
        let value = cut(value, size);
        *register = match size {
            1 | 2 => *register - cut(*register, size) + value,
            _ => value,
        };
    }

    /// Whether the register is AH, CH, DH or BH.
    fn high(&self, n: u8, size: u32) -> bool {
        size == 1 && self.i.rex == 0 && (4..8).contains(&n)
    }

    /// Address of the memory operand.
    pub(super) fn va(&self) -> u64 {
        let offset = self.i.offset(&self.state.gpr, self.next);
        if self.i.fs {
            offset.wrapping_add(self.state.fs_base)
        } else {
            offset
        }
    }

    pub(super) fn load(&mut self, va: u64, size: u32) -> Result<u64, Stop> {
        Ok(match size {
            1 => u8::from_le_bytes(self.memory.load(va)?).into(),
            2 => u16::from_le_bytes(self.memory.load(va)?).into(),
            4 => u32::from_le_bytes(self.memory.load(va)?).into(),
            _ => u64::from_le_bytes(self.memory.load(va)?),
        })
    }

    pub(super) fn store(&mut self, va: u64, size: u32, value: u64) -> Result<(), Stop> {
        match size {
            1 => self.memory.store(va, (value as u8).to_le_bytes())?,
            2 => self.memory.store(va, (value as u16).to_le_bytes())?,
            4 => self.memory.store(va, (value as u32).to_le_bytes())?,
            _ => self.memory.store(va, value.to_le_bytes())?,
        }
        Ok(())
    }

    /// The operand that is a register or memory.
    pub(super) fn rm(&mut self, size: u32) -> Result<u64, Stop> {
        match self.i.rm() {
            Some(n) => Ok(self.reg(n, size)),
            None => {
                let va = self.va();
                self.load(va, size)
            }
        }
    }

    /// Writes the operand of ModRM: a register or memory.
    pub(super) fn set_rm(&mut self, size: u32, value: u64) -> Result<(), Stop> {
        match self.i.rm() {
            Some(n) => self.set_reg(n, size, value),
            None => {
                let va = self.va();
                self.store(va, size, value)?;
            }
        }
        Ok(())
    }

    /// Replaces it by what `f` makes of it, in one step if the instruction is locked. Gives the old
    /// value; the last call of `f` is the one that counts.
    pub(super) fn modify(&mut self, size: u32, f: &mut dyn FnMut(u64) -> u64) -> Result<u64, Stop> {
        let Some(n) = self.i.rm() else {
            let va = self.va();
            return self.modify_at(va, size, self.i.lock, f);
        };
        if self.i.lock {
            return Err(Stop::Unknown);
        }
        let old = self.reg(n, size);
        self.set_reg(n, size, f(old));
        Ok(old)
    }

    /// Replaces the memory at an address by what `f` makes of it, in one step if `lock` is set. Gives the old value.
    pub(super) fn modify_at(
        &mut self,
        va: u64,
        size: u32,
        lock: bool,
        f: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Stop> {
        let mut old = self.load(va, size)?;
        if !lock {
            self.store(va, size, f(old))?;
            return Ok(old);
        }
        let width = Width::log2(size.trailing_zeros());
        loop {
            let new = cut(f(old), size);
            let found =
                self.memory
                    .compare_exchange(va, width, old.into(), new.into())? as u64;
            if found == old {
                return Ok(old);
            }
            old = found;
        }
    }

    /// Puts 8 bytes on the stack.
    pub(super) fn push(&mut self, value: u64) -> Result<(), Stop> {
        let sp = self.reg(RSP, 8).wrapping_sub(8);
        self.store(sp, 8, value)?;
        self.set_reg(RSP, 8, sp);
        Ok(())
    }

    /// Takes 8 bytes from the stack.
    pub(super) fn pop(&mut self) -> Result<u64, Stop> {
        let sp = self.reg(RSP, 8);
        let value = self.load(sp, 8)?;
        self.set_reg(RSP, 8, sp.wrapping_add(8));
        Ok(value)
    }

    /// Replaces status flags: those in `mask`, by those in `flags`.
    pub(super) fn set_flags(&mut self, mask: u64, flags: u64) {
        self.state.rflags = self.state.rflags & !mask | flags & mask;
    }
}

/// The operand's address is not a multiple of its size, and has to be.
pub(super) fn unaligned(va: u64, access: Access) -> Stop {
    Stop::Fault(Fault {
        va,
        access,
        kind: FaultKind::Unaligned,
    })
}
