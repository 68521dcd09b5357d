//! Arithmetic of which the low bytes are what matters. Back ends make a byte alone, leave in the register
//! above it what was there, and compute with 32 bits: sums, products by constants, bits, choices. An operand may be in
//! a slot, and so may the result.

use super::lists::CONDITIONAL_MOVES;
use super::{Translation, all_flags, is_immediate, lanes_of, number};
use crate::verify::insn::{Sum, Transfer};
use crate::verify::lanes::{Lanes, general};
use iced_x86::{Mnemonic, OpAccess, OpKind, Register};

impl Translation {
    /// Translates the instruction, if it is one of these and its result has more than a byte.
    pub(super) fn sum(&mut self) -> Option<bool> {
        let raw = self.raw;
        let to = self.op(0);
        let chooses = CONDITIONAL_MOVES.contains(&raw.mnemonic());
        let carries = match raw.mnemonic() {
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec | Mnemonic::Neg => true,
            Mnemonic::Imul if raw.op_count() > 1 => true,
            Mnemonic::Shl | Mnemonic::Sal => true,
            Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Not => false,
            _ if chooses => false,
            _ => return Some(false),
        };
        let in_memory = self.is_mem(0);
        let wide = match in_memory {
            true => self.bytes().is_some_and(|bytes| bytes > 1),
            false => to.is_gpr() && !to.is_gpr8(),
        };
        if !wide {
            return Some(false);
        }
        let mut from = Vec::new();
        for i in 0..raw.op_count() {
            let reads = match self.accesses[i as usize] {
                OpAccess::None | OpAccess::NoMemAccess => false,
                // A choice may leave the destination as it is.
                OpAccess::Write => chooses,
                _ => true,
            };
            match raw.op_kind(i) {
                // By how far it is shifted is looked at, whole.
                OpKind::Register if reads && raw.op_register(i) == Register::CL => {
                    self.insn.read(Lanes::general(number(Register::RCX)?, 1));
                }
                OpKind::Register if reads => from.push(lanes_of(raw.op_register(i))?.0),
                OpKind::Register => {}
                OpKind::Memory if reads => self.access(Transfer::Operand)?,
                _ if is_immediate(&raw, i) => {}
                _ => return None,
            }
        }
        if from.len() > 2 {
            return None;
        }
        let from = [from.first().copied(), from.get(1).copied()];
        if in_memory {
            self.access(Transfer::Result(from[0]))?;
            let bytes = self.bytes()?;
            self.sum_of(None, from, bytes, carries);
        } else {
            self.add_up(to, from, carries)?;
        }
        Some(true)
    }

    /// The result in `to` comes from registers, which begin with these lanes.
    pub(super) fn add_up(
        &mut self,
        to: Register,
        from: [Option<u16>; 2],
        carries: bool,
    ) -> Option<()> {
        let (first, count) = lanes_of(to)?;
        let lanes = self.sum_of(Some(first), from, count, carries);
        let whole = if to.is_gpr32() { 8 } else { count };
        self.insn.set(Lanes::range(first + lanes, whole - lanes));
        Some(())
    }

    /// The result of `count` bytes comes from registers, and from the operand in memory if there is one. Says how many
    /// of its bytes do.
    fn sum_of(
        &mut self,
        to: Option<u16>,
        from: [Option<u16>; 2],
        count: u16,
        carries: bool,
    ) -> u16 {
        let mut lanes = count;
        // Bytes that a constant masks away are zeros whatever they were.
        if self.raw.mnemonic() == Mnemonic::And && is_immediate(&self.raw, 1) {
            let mask = self.raw.immediate(1);
            lanes = lanes.min(8 - mask.leading_zeros() as u16 / 8);
        }
        let sum = Sum {
            to,
            from,
            lanes,
            width: lanes,
            carries,
            flags: self.flags_set(),
        };
        self.insn.sums.push(sum);
        lanes
    }

    /// A constant is added to a register, which may hold an address.
    pub(super) fn moved(&mut self, reg: Register, by: i64) -> Option<()> {
        let flags = self.flags_set();
        self.insn.sums.push(Sum {
            to: Some(general(number(reg)?, 0)),
            from: [Some(general(number(reg)?, 0)), None],
            lanes: 0,
            width: 8,
            carries: true,
            flags,
        });
        self.insn.offset(number(reg)?, number(reg)?, by);
        Some(())
    }

    /// Takes the flags out of what the instruction sets, as they depend on its operands.
    fn flags_set(&mut self) -> Lanes {
        let flags = self.insn.sets.and(all_flags());
        self.insn.sets = self.insn.sets.minus(flags);
        flags
    }
}
