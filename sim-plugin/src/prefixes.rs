// SPDX-License-Identifier: GPL-2.0-or-later
//! Prefixes of an x86-64 instruction.

/// The prefixes before an opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// LOCK.
    pub lock: bool,
    /// 16-bit operands, or another opcode.
    pub operand_size: bool,
    /// REP or REPNE, or another opcode.
    pub repeat: bool,
    /// The address has a segment with a base (FS, GS), or 32 bits.
    pub address: bool,
    /// The REX prefix; 0 if there is none.
    pub rex: u8,
}

/// Splits an instruction into its prefixes and what begins with the opcode.
pub fn split(code: &[u8]) -> (Prefixes, &[u8]) {
    let mut found = Prefixes::default();
    let mut rest = code;
    // Legacy prefixes come in any order.
    while let [first, tail @ ..] = rest {
        match first {
            0xf0 => found.lock = true,
            0x66 => found.operand_size = true,
            0xf2 | 0xf3 => found.repeat = true,
            0x64 | 0x65 | 0x67 => found.address = true,
            0x2e | 0x36 | 0x3e | 0x26 => {}
            _ => break,
        }
        rest = tail;
    }
    // REX comes last.
    if let [rex @ 0x40..=0x4f, tail @ ..] = rest {
        found.rex = *rex;
        rest = tail;
    }
    (found, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_told_from_the_opcode() {
        let (found, rest) = split(&[0xf0, 0x66, 0xf3, 0x65, 0x3e, 0x4c, 0x0f, 0xb1]);
        let all = Prefixes {
            lock: true,
            operand_size: true,
            repeat: true,
            address: true,
            rex: 0x4c,
        };
        assert_eq!((found, rest), (all, &[0x0f, 0xb1][..]));
        assert_eq!(split(&[0x90]), (Prefixes::default(), &[0x90][..]));
        // A second REX is an opcode of nothing.
        assert_eq!(split(&[0x48, 0x49]).1, [0x49]);
        assert_eq!(split(&[]), (Prefixes::default(), &[][..]));
    }
}
