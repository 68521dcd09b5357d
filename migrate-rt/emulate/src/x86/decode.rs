//! Prefixes, opcode, addressing form, immediate.

/// Bytes of the longest instruction.
pub(super) const LONGEST: usize = 15;

/// Why there is no instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Error {
    /// More bytes are needed.
    Short,
    /// The opcode or the combination of prefixes is not known.
    Unknown,
}

/// The last of the prefixes F2 and F3.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    None,
    F2,
    F3,
}

/// An instruction, taken apart.
#[derive(Clone, Copy)]
pub(super) struct Instruction {
    /// Bytes.
    pub len: u8,
    /// Whether the opcode is of the two-byte map, 0F xx.
    pub two: bool,
    /// The last byte of the opcode.
    pub opcode: u8,
    /// The REX prefix, 0 if there is none.
    pub rex: u8,
    /// The prefix 66.
    pub operand16: bool,
    /// The prefix 67.
    pub address32: bool,
    /// F2 or F3.
    pub repeat: Repeat,
    /// The prefix F0.
    pub lock: bool,
    /// The segment FS.
    pub fs: bool,
    /// ModRM, 0 if the opcode has none.
    pub modrm: u8,
    /// The memory operand's base register.
    pub base: Option<u8>,
    /// Its index register.
    pub index: Option<u8>,
    /// Its scale as a shift.
    pub scale: u8,
    /// Whether the address is relative to the next instruction.
    pub relative: bool,
    /// Its displacement.
    pub displacement: i32,
    /// The immediate, sign-extended.
    pub immediate: i64,
}

/// What follows opcode and addressing form.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Immediate {
    None,
    /// 1 byte.
    B1,
    /// 2 bytes.
    B2,
    /// 4 bytes.
    B4,
    /// 2 bytes with the prefix 66, otherwise 4.
    Operand,
    /// 8 bytes with REX.W, otherwise as `Operand`.
    Full,
}

/// Whether an opcode of the one-byte map has ModRM, and its immediate. `None` is not known.
fn one_byte(opcode: u8) -> Option<(bool, Immediate)> {
    Some(match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => (true, Immediate::None),
            4 => (false, Immediate::B1),
            5 => (false, Immediate::Operand),
            _ => return None,
        },
        0x50..=0x5f => (false, Immediate::None),
        0x63 => (true, Immediate::None),
        0x68 => (false, Immediate::Operand),
        0x69 => (true, Immediate::Operand),
        0x6a => (false, Immediate::B1),
        0x6b => (true, Immediate::B1),
        0x70..=0x7f => (false, Immediate::B1),
        0x80 | 0x83 => (true, Immediate::B1),
        0x81 => (true, Immediate::Operand),
        0x84..=0x8b | 0x8d => (true, Immediate::None),
        0x90..=0x99 | 0x9e | 0x9f | 0xa4 | 0xa5 | 0xaa | 0xab => (false, Immediate::None),
        0xa8 => (false, Immediate::B1),
        0xa9 => (false, Immediate::Operand),
        0xb0..=0xb7 => (false, Immediate::B1),
        0xb8..=0xbf => (false, Immediate::Full),
        0xc0 | 0xc1 => (true, Immediate::B1),
        0xc2 => (false, Immediate::B2),
        0xc3 | 0xc9 | 0xcc => (false, Immediate::None),
        0xc6 => (true, Immediate::B1),
        0xc7 => (true, Immediate::Operand),
        0xd0..=0xd3 => (true, Immediate::None),
        0xe3 | 0xeb => (false, Immediate::B1),
        // Branches take 4 bytes whatever the operand size.
        0xe8 | 0xe9 => (false, Immediate::B4),
        // The immediate of TEST is added when ModRM is known.
        0xf6 | 0xf7 => (true, Immediate::None),
        0xf5 | 0xf8 | 0xf9 | 0xfc | 0xfd => (false, Immediate::None),
        0xfe | 0xff => (true, Immediate::None),
        _ => return None,
    })
}

/// Whether an opcode of the two-byte map has a ModRM byte, and its immediate.
fn two_bytes(opcode: u8) -> Option<(bool, Immediate)> {
    Some(match opcode {
        0x05 | 0x0b | 0xa2 | 0xc8..=0xcf => (false, Immediate::None),
        0x0d | 0x10..=0x18 | 0x1e | 0x1f | 0x28..=0x2f => (true, Immediate::None),
        0x40..=0x6f | 0x74..=0x76 | 0x7e | 0x7f => (true, Immediate::None),
        0x70..=0x73 => (true, Immediate::B1),
        0x80..=0x8f => (false, Immediate::B4),
        0x90..=0x9f => (true, Immediate::None),
        0xa3 | 0xa5 | 0xab | 0xad | 0xae | 0xaf => (true, Immediate::None),
        0xa4 | 0xac | 0xba => (true, Immediate::B1),
        0xb0 | 0xb1 | 0xb3 | 0xb6 | 0xb7 | 0xbb..=0xbf => (true, Immediate::None),
        0xc0 | 0xc1 | 0xc3 | 0xc7 => (true, Immediate::None),
        0xc2 | 0xc4..=0xc6 => (true, Immediate::B1),
        0xd1..=0xfe => (true, Immediate::None),
        _ => return None,
    })
}

/// What has not been read yet.
struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    fn next(&mut self) -> Result<u8, Error> {
        let byte = *self.bytes.get(self.at).ok_or(Error::Short)?;
        self.at += 1;
        Ok(byte)
    }

    /// A signed number of `len` bytes.
    fn number(&mut self, len: u32) -> Result<i64, Error> {
        let mut value = 0;
        for i in 0..len {
            value |= u64::from(self.next()?) << (8 * i);
        }
        Ok(match len {
            0 => 0,
            _ => super::context::extend(value, len),
        })
    }
}

impl Instruction {
    /// Takes the instruction apart that `bytes` begin with.
    pub(super) fn decode(bytes: &[u8]) -> Result<Instruction, Error> {
        let mut from = Bytes { bytes, at: 0 };
        let mut i = Instruction {
            len: 0,
            two: false,
            opcode: 0,
            rex: 0,
            operand16: false,
            address32: false,
            repeat: Repeat::None,
            lock: false,
            fs: false,
            modrm: 0,
            base: None,
            index: None,
            scale: 0,
            relative: false,
            displacement: 0,
            immediate: 0,
        };
        let opcode = loop {
            match from.next()? {
                0x66 => i.operand16 = true,
                0x67 => i.address32 = true,
                0xf0 => i.lock = true,
                0xf2 => i.repeat = Repeat::F2,
                0xf3 => i.repeat = Repeat::F3,
                0x64 => i.fs = true,
                // Without effect in 64-bit mode; compilers pad with CS.
                0x26 | 0x2e | 0x36 | 0x3e => {}
                rex @ 0x40..=0x4f => {
                    i.rex = rex;
                    // What follows REX is the opcode.
                    break from.next()?;
                }
                byte => break byte,
            }
        };
        let form = if opcode == 0x0f {
            i.two = true;
            i.opcode = from.next()?;
            two_bytes(i.opcode)
        } else {
            i.opcode = opcode;
            one_byte(opcode)
        };
        let (modrm, mut immediate) = form.ok_or(Error::Unknown)?;
        if modrm {
            i.modrm = from.next()?;
            i.address(&mut from)?;
            if !i.two && i.group() < 2 {
                match i.opcode {
                    0xf6 => immediate = Immediate::B1,
                    0xf7 => immediate = Immediate::Operand,
                    _ => {}
                }
            }
        }
        let len = match immediate {
            Immediate::None => 0,
            Immediate::B1 => 1,
            Immediate::B2 => 2,
            Immediate::B4 => 4,
            Immediate::Full if i.wide() => 8,
            Immediate::Operand | Immediate::Full if i.operand16 && !i.wide() => 2,
            Immediate::Operand | Immediate::Full => 4,
        };
        i.immediate = from.number(len)?;
        i.len = from.at as u8;
        Ok(i)
    }

    /// The memory operand, if ModRM asks for one (volume 2, tables 2-2 and 2-3).
    fn address(&mut self, from: &mut Bytes<'_>) -> Result<(), Error> {
        let mode = self.modrm >> 6;
        let rm = self.modrm & 7;
        if mode == 3 {
            return Ok(());
        }
        let extend = |bit: u8| (self.rex >> bit & 1) << 3;
        if rm == 4 {
            let sib = from.next()?;
            let index = sib >> 3 & 7 | extend(1);
            if index != 4 {
                self.index = Some(index);
                self.scale = sib >> 6;
            }
            if sib & 7 != 5 || mode != 0 {
                self.base = Some(sib & 7 | extend(0));
            }
        } else if rm == 5 && mode == 0 {
            self.relative = true;
        } else {
            self.base = Some(rm | extend(0));
        }
        let len = match mode {
            1 => 1,
            2 => 4,
            _ if self.base.is_none() => 4,
            _ => 0,
        };
        self.displacement = from.number(len)? as i32;
        Ok(())
    }

    /// REX.W.
    pub(super) fn wide(&self) -> bool {
        self.rex & 8 != 0
    }

    /// Bytes of operands that are not bytes.
    pub(super) fn size(&self) -> u32 {
        match (self.wide(), self.operand16) {
            (true, _) => 8,
            (false, true) => 2,
            (false, false) => 4,
        }
    }

    /// The register in ModRM.
    pub(super) fn reg(&self) -> u8 {
        self.group() | (self.rex >> 2 & 1) << 3
    }

    /// The extension of the opcode in ModRM.
    pub(super) fn group(&self) -> u8 {
        self.modrm >> 3 & 7
    }

    /// The other register in ModRM; `None` is memory.
    pub(super) fn rm(&self) -> Option<u8> {
        (self.modrm >> 6 == 3).then_some(self.modrm & 7 | (self.rex & 1) << 3)
    }

    /// The register in the opcode.
    pub(super) fn opcode_reg(&self) -> u8 {
        self.opcode & 7 | (self.rex & 1) << 3
    }

    /// Address of the memory operand, without the segment's base.
    pub(super) fn offset(&self, gpr: &[u64; 16], next: u64) -> u64 {
        let value = |register: Option<u8>| register.map_or(0, |r| gpr[usize::from(r)]);
        let base = if self.relative {
            next
        } else {
            value(self.base)
        };
        let va = base
            .wrapping_add(value(self.index) << self.scale)
            .wrapping_add_signed(self.displacement.into());
        if self.address32 { va & 0xffff_ffff } else { va }
    }
}
