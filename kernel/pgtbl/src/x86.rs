//! Page-table entries of x86-64.

use dyad_abi::Isa;
use dyad_shm::PhysAddr;

use crate::pte::check_table;
use crate::{EncodeError, Format, Leaf, Level, Memory, Perms, Pte, absent};

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const CACHE_DISABLE: u64 = 1 << 4;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const PAGE_SIZE_BIT: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
/// Three bits left to software by the architecture: [`Perms::OWNED`] and its neighbours.
pub(crate) const SW_OWNED: u64 = 1 << 9;
const SW_MAY_WRITE: u64 = 1 << 10;
const SW_MAY_EXECUTE: u64 = 1 << 11;
const NO_EXECUTE: u64 = 1 << 63;

const ADDRESS_BITS: u32 = 52;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - (1 << 12);

/// The format of x86-64 (4-level paging, no protection keys, no shadow stacks).
///
/// Tables carry a preset accessed bit, so that hardware has no reason to write to their entries.
/// Absent states are stored inverted: the address field of such an entry then lies beyond any
/// memory, which processors that speculate through absent entries (L1TF) need.
#[derive(Clone, Copy, Debug)]
pub struct X86;

impl X86 {
    /// The table that a word leads to, above level 1.
    #[inline]
    pub(crate) const fn table_in(raw: u64) -> Option<PhysAddr> {
        if raw & !(ADDRESS | ACCESSED) == PRESENT | WRITABLE | USER {
            Some(PhysAddr(raw & ADDRESS))
        } else {
            None
        }
    }
}

impl Format for X86 {
    const ISA: Isa = Isa::X86_64;

    fn encode(pte: Pte, level: Level) -> Result<u64, EncodeError> {
        match pte {
            Pte::Leaf(leaf) => encode_leaf(&leaf, level),
            Pte::Table(table) => {
                Ok(check_table(table, level, ADDRESS_BITS)? | PRESENT | WRITABLE | USER | ACCESSED)
            }
            Pte::Other(raw) if X86::decode(raw, level) == pte => Ok(raw),
            _ => absent::encode(pte, true),
        }
    }

    fn decode(raw: u64, level: Level) -> Pte {
        let large = level != Level::L1 && raw & PAGE_SIZE_BIT != 0;
        let (word, meaning) = if raw & PRESENT == 0 {
            (raw, absent::parse(raw, true))
        } else if level == Level::L1 || large {
            (raw, Some(Pte::Leaf(parse_leaf(raw, level))))
        } else {
            // Hardware may set the accessed bit of a table that somebody else has made.
            let table = Pte::Table(PhysAddr(raw & ADDRESS));
            (raw | ACCESSED, Some(table))
        };
        // A word with bits that the meaning does not account for means something else.
        match meaning {
            Some(pte) if X86::encode(pte, level) == Ok(word) => pte,
            _ => Pte::Other(raw),
        }
    }
}

fn encode_leaf(leaf: &Leaf, level: Level) -> Result<u64, EncodeError> {
    leaf.check(level, ADDRESS_BITS)?;
    let bit = |on: bool, bit: u64| if on { bit } else { 0 };
    Ok(leaf.pa.0
        | PRESENT
        | bit(leaf.perms.contains(Perms::WRITE), WRITABLE)
        | bit(leaf.perms.contains(Perms::USER), USER)
        | bit(leaf.memory == Memory::Device, CACHE_DISABLE)
        | bit(leaf.accessed, ACCESSED)
        | bit(leaf.dirty, DIRTY)
        | bit(level != Level::L1, PAGE_SIZE_BIT)
        | bit(leaf.global, GLOBAL)
        | bit(leaf.perms.contains(Perms::OWNED), SW_OWNED)
        | bit(leaf.perms.contains(Perms::MAY_WRITE), SW_MAY_WRITE)
        | bit(leaf.perms.contains(Perms::MAY_EXECUTE), SW_MAY_EXECUTE)
        | bit(!leaf.perms.contains(Perms::EXECUTE), NO_EXECUTE))
}

fn parse_leaf(raw: u64, level: Level) -> Leaf {
    let mut perms = Perms::READ;
    perms.set(Perms::WRITE, raw & WRITABLE != 0);
    perms.set(Perms::USER, raw & USER != 0);
    perms.set(Perms::EXECUTE, raw & NO_EXECUTE == 0);
    perms.set(Perms::OWNED, raw & SW_OWNED != 0);
    perms.set(Perms::MAY_WRITE, raw & SW_MAY_WRITE != 0);
    perms.set(Perms::MAY_EXECUTE, raw & SW_MAY_EXECUTE != 0);
    Leaf {
        pa: PhysAddr(raw & ADDRESS & !(level.size() - 1)),
        perms,
        memory: if raw & CACHE_DISABLE != 0 {
            Memory::Device
        } else {
            Memory::Normal
        },
        global: raw & GLOBAL != 0,
        accessed: raw & ACCESSED != 0,
        dirty: raw & DIRTY != 0,
    }
}
