//! SSE and SSE2.
//!
//! Back ends leave old values in the unused part of vector registers, and copy and shuffle whole
//! registers regardless. Moves, shuffles and element-wise arithmetic therefore derive elements from
//! elements; only what turns vectors into something else observes them.

use super::{Translation, lanes_of, number, read, written};
use crate::verify::insn::Transfer;
use crate::verify::lanes::Lanes;
use iced_x86::{Mnemonic as M, Register};

/// Translates an SSE instruction; says whether it was one. Nothing if its operands are not of a
/// known form.
pub(super) fn translate(t: &mut Translation) -> Option<bool> {
    let raw = t.raw;
    if raw.is_string_instruction() {
        return Some(false);
    }
    match raw.mnemonic() {
        M::Movaps | M::Movups | M::Movapd | M::Movupd | M::Movdqa | M::Movdqu => {
            t.transfer(0, 16, false)?
        }
        M::Movntdq | M::Movntps | M::Movntpd => t.transfer(0, 16, false)?,
        M::Movss => t.transfer(0, 4, true)?,
        M::Movsd => t.transfer(0, 8, true)?,
        M::Movlps | M::Movlpd => t.half(0)?,
        M::Movhps | M::Movhpd => t.half(8)?,
        M::Movlhps => t.permute(|i| if i < 8 { (0, i) } else { (1, i - 8) })?,
        M::Movhlps => t.permute(|i| if i < 8 { (1, i + 8) } else { (0, i) })?,
        M::Movd => t.word(4)?,
        M::Movq => t.word(8)?,
        M::Addss | M::Subss | M::Mulss | M::Divss | M::Minss | M::Maxss | M::Cmpss => {
            t.scalar(4)?
        }
        M::Addsd | M::Subsd | M::Mulsd | M::Divsd | M::Minsd | M::Maxsd | M::Cmpsd => {
            t.scalar(8)?
        }
        M::Sqrtss | M::Rcpss | M::Rsqrtss => t.convert(4, 4, false)?,
        M::Sqrtsd => t.convert(8, 8, false)?,
        M::Cvtss2sd => t.convert(4, 8, false)?,
        M::Cvtsd2ss => t.convert(8, 4, false)?,
        M::Cvtsi2ss => t.convert(0, 4, false)?,
        M::Cvtsi2sd => t.convert(0, 8, false)?,
        M::Cvttss2si | M::Cvtss2si => t.convert(4, 0, false)?,
        M::Cvttsd2si | M::Cvtsd2si => t.convert(8, 0, false)?,
        M::Cvtdq2pd | M::Cvtps2pd => t.convert(8, 16, false)?,
        M::Cvtpd2ps | M::Cvtpd2dq | M::Cvttpd2dq => t.convert(16, 16, false)?,
        M::Pmovmskb | M::Movmskps | M::Movmskpd => t.convert(16, 0, false)?,
        M::Packsswb | M::Packssdw | M::Packuswb => t.convert(16, 16, true)?,
        M::Ucomiss | M::Comiss => t.compare(4)?,
        M::Ucomisd | M::Comisd => t.compare(8)?,
        M::Sqrtps | M::Rcpps | M::Rsqrtps | M::Cvtdq2ps | M::Cvtps2dq | M::Cvttps2dq => {
            t.elements(4, false)?
        }
        M::Sqrtpd => t.elements(8, false)?,
        M::Psllw | M::Psrlw | M::Psraw => t.shift(2)?,
        M::Pslld | M::Psrld | M::Psrad => t.shift(4)?,
        M::Psllq | M::Psrlq => t.shift(8)?,
        M::Pslldq => t.slide(true)?,
        M::Psrldq => t.slide(false)?,
        M::Pextrw => {
            let (from, _) = lanes_of(t.op(1))?;
            let at = u16::from(raw.immediate8() & 7) * 2;
            t.insn.read(Lanes::range(from + at, 2));
            t.insn.set(written(t.op(0))?);
        }
        M::Pinsrw => {
            let (to, _) = lanes_of(t.op(0))?;
            let at = u16::from(raw.immediate8() & 7) * 2;
            match t.is_mem(1) {
                true => t.access(Transfer::Observe)?,
                false => t.insn.read(Lanes::general(number(t.op(1))?, 2)),
            }
            t.insn.set(Lanes::range(to + at, 2));
        }
        m => {
            if let Some(element) = element_wise(m) {
                let same = t.op(0) == t.op(1) && t.op(0) != Register::None;
                // The result does not depend on the operand.
                if same && IDEMPOTENT.contains(&m) {
                    t.insn.set(written(t.op(0))?);
                } else {
                    t.elements(element, true)?;
                }
            } else if let Some(element) = interleaves(m) {
                let (size, high) = element;
                t.permute(|i| {
                    let source = i / size;
                    let base = if high { 8 } else { 0 };
                    (source % 2, base + source / 2 * size + i % size)
                })?;
            } else {
                return t.shuffle(m);
            }
        }
    }
    Some(true)
}

/// Element-wise operations of two vectors, with the element's size.
fn element_wise(m: M) -> Option<u16> {
    Some(match m {
        M::Andps | M::Andpd | M::Andnps | M::Andnpd | M::Orps | M::Orpd | M::Xorps | M::Xorpd => 1,
        M::Pand | M::Pandn | M::Por | M::Pxor => 1,
        M::Paddb | M::Psubb | M::Paddsb | M::Psubsb | M::Paddusb | M::Psubusb => 1,
        M::Pcmpeqb | M::Pcmpgtb | M::Pmaxub | M::Pminub | M::Pavgb => 1,
        M::Paddw | M::Psubw | M::Paddsw | M::Psubsw | M::Paddusw | M::Psubusw => 2,
        M::Pcmpeqw | M::Pcmpgtw | M::Pmaxsw | M::Pminsw | M::Pavgw => 2,
        M::Pmullw | M::Pmulhw | M::Pmulhuw => 2,
        M::Paddd | M::Psubd | M::Pcmpeqd | M::Pcmpgtd | M::Pmaddwd => 4,
        M::Addps | M::Subps | M::Mulps | M::Divps | M::Minps | M::Maxps | M::Cmpps => 4,
        M::Paddq | M::Psubq | M::Pmuludq | M::Psadbw => 8,
        M::Addpd | M::Subpd | M::Mulpd | M::Divpd | M::Minpd | M::Maxpd | M::Cmppd => 8,
        _ => return None,
    })
}

/// Operations whose result, of a register with itself, is a constant.
const IDEMPOTENT: [M; 13] = [
    M::Pxor,
    M::Xorps,
    M::Xorpd,
    M::Psubb,
    M::Psubw,
    M::Psubd,
    M::Psubq,
    M::Pcmpeqb,
    M::Pcmpeqw,
    M::Pcmpeqd,
    M::Pcmpgtb,
    M::Pcmpgtw,
    M::Pcmpgtd,
];

/// Interleaving of two vectors: element size, and whether of the high halves.
fn interleaves(m: M) -> Option<(u16, bool)> {
    Some(match m {
        M::Punpcklbw => (1, false),
        M::Punpckhbw => (1, true),
        M::Punpcklwd => (2, false),
        M::Punpckhwd => (2, true),
        M::Punpckldq | M::Unpcklps => (4, false),
        M::Punpckhdq | M::Unpckhps => (4, true),
        M::Punpcklqdq | M::Unpcklpd => (8, false),
        M::Punpckhqdq | M::Unpckhpd => (8, true),
        _ => return None,
    })
}

impl Translation {
    /// A move of `bytes` bytes from or to memory, or between registers. A load extends with zeros if
    /// it is of a part, a move between registers leaves the rest alone.
    fn transfer(&mut self, at: u16, bytes: u16, partial: bool) -> Option<()> {
        if self.is_mem(0) {
            let (from, 16) = lanes_of(self.op(1))? else {
                return None;
            };
            return self.access(Transfer::Store(from + at));
        }
        let (to, 16) = lanes_of(self.op(0))? else {
            return None;
        };
        if self.is_mem(1) {
            self.access(Transfer::Load(to + at))?;
            if partial {
                self.insn.set(Lanes::range(to + bytes, 16 - bytes));
            }
        } else {
            let (from, 16) = lanes_of(self.op(1))? else {
                return None;
            };
            self.insn.copy(to, from, bytes);
        }
        Some(())
    }

    /// A move of 8 bytes between memory and the half of a register that starts at `at`.
    fn half(&mut self, at: u16) -> Option<()> {
        (self.is_mem(0) || self.is_mem(1)).then_some(())?;
        self.transfer(at, 8, false)
    }

    /// `movd` and `movq`: of general-purpose registers as well.
    fn word(&mut self, bytes: u16) -> Option<()> {
        let (a, b) = (self.op(0), self.op(1));
        if self.is_mem(0) {
            let (from, _) = lanes_of(b)?;
            return self.access(Transfer::Store(from));
        }
        let (to, all) = lanes_of(a)?;
        if self.is_mem(1) {
            self.access(Transfer::Load(to))?;
        } else {
            let (from, _) = lanes_of(b)?;
            self.insn.copy(to, from, bytes);
        }
        let all = if a.is_gpr32() { 8 } else { all };
        self.insn.set(Lanes::range(to + bytes, all - bytes));
        Some(())
    }

    /// Arithmetic on the first element, of `bytes` bytes.
    fn scalar(&mut self, bytes: u16) -> Option<()> {
        let (to, _) = lanes_of(self.op(0))?;
        let from = self.source()?;
        self.insn.derive(to, [Some(to), from], bytes, bytes);
        Some(())
    }

    /// First lane of the second operand, if it is not in memory.
    fn source(&mut self) -> Option<Option<u16>> {
        if self.is_mem(1) {
            self.access(Transfer::Observe)?;
            return Some(None);
        }
        Some(Some(lanes_of(self.op(1))?.0))
    }

    /// Reads the first `from` bytes of the source (0: all of a general-purpose register) and, with
    /// `both`, of the destination; sets the first `to` bytes of the destination (0 likewise).
    fn convert(&mut self, from: u16, to: u16, both: bool) -> Option<()> {
        let (a, b) = (self.op(0), self.op(1));
        match (self.is_mem(1), from) {
            (true, _) => self.access(Transfer::Observe)?,
            (false, 0) => self.insn.read(read(b)?),
            (false, _) => self.insn.read(Lanes::range(lanes_of(b)?.0, from)),
        }
        let first = lanes_of(a)?.0;
        if both {
            self.insn.read(Lanes::range(first, from));
        }
        self.insn.set(match to {
            0 => written(a)?,
            _ => Lanes::range(first, to),
        });
        Some(())
    }

    fn compare(&mut self, bytes: u16) -> Option<()> {
        self.insn.read(Lanes::range(lanes_of(self.op(0))?.0, bytes));
        if let Some(from) = self.source()? {
            self.insn.read(Lanes::range(from, bytes));
        }
        Some(())
    }

    /// Element-wise arithmetic, with the destination as an operand or without.
    fn elements(&mut self, element: u16, both: bool) -> Option<()> {
        let (to, _) = lanes_of(self.op(0))?;
        match self.source()? {
            Some(from) => {
                let other = both.then_some(to);
                self.insn.derive(to, [Some(from), other], 16, element);
            }
            None if both => self.insn.derive(to, [Some(to), None], 16, element),
            None => self.insn.set(Lanes::range(to, 16)),
        }
        Some(())
    }

    fn shift(&mut self, element: u16) -> Option<()> {
        let (to, _) = lanes_of(self.op(0))?;
        if !super::is_immediate(&self.raw, 1)
            && let Some(from) = self.source()?
        {
            self.insn.read(Lanes::range(from, 8));
        }
        self.insn.derive(to, [Some(to), None], 16, element);
        Some(())
    }

    /// A shift of the whole register by bytes.
    fn slide(&mut self, left: bool) -> Option<()> {
        let (to, _) = lanes_of(self.op(0))?;
        let by = u16::from(self.raw.immediate8()).min(16);
        if left {
            self.insn.copy(to + by, to, 16 - by);
            self.insn.set(Lanes::range(to, by));
        } else {
            self.insn.copy(to, to + by, 16 - by);
            self.insn.set(Lanes::range(to + 16 - by, by));
        }
        Some(())
    }

    /// Each byte of the result is one byte of an operand: `source` gives operand and byte.
    fn permute(&mut self, source: impl Fn(u16) -> (u16, u16)) -> Option<()> {
        let (to, _) = lanes_of(self.op(0))?;
        let other = self.source()?;
        for i in 0..16 {
            let (operand, byte) = source(i);
            match (operand, other) {
                (0, _) => self.insn.copy(to + i, to + byte, 1),
                (_, Some(from)) => self.insn.copy(to + i, from + byte, 1),
                (_, None) => self.insn.set(Lanes::range(to + i, 1)),
            }
        }
        Some(())
    }

    /// Shuffles by a constant.
    fn shuffle(&mut self, m: M) -> Option<bool> {
        if !matches!(
            m,
            M::Pshufd | M::Pshuflw | M::Pshufhw | M::Shufps | M::Shufpd
        ) {
            return Some(false);
        }
        let order = u16::from(self.raw.immediate8());
        let pick = |i: u16| order >> (2 * (i % 4)) & 3;
        self.permute(|i| match m {
            M::Pshufd => (1, pick(i / 4) * 4 + i % 4),
            M::Pshuflw if i < 8 => (1, pick(i / 2) * 2 + i % 2),
            M::Pshufhw if i >= 8 => (1, 8 + pick(i / 2) * 2 + i % 2),
            M::Shufps => (i / 8, pick(i / 4) * 4 + i % 4),
            M::Shufpd => (i / 8, (order >> (i / 8) & 1) * 8 + i % 8),
            _ => (1, i),
        })?;
        Some(true)
    }
}
