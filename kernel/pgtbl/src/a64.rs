//! Translation-table descriptors of AArch64 (stage 1, EL1&0, 4 KiB granule, 48-bit addresses).

use dyad_abi::Isa;
use dyad_shm::PhysAddr;

use crate::pte::check_table;
use crate::{EncodeError, Format, Leaf, Level, Memory, Perms, Pte, absent};

const VALID: u64 = 1 << 0;
/// A table (above L1) or a page (at L1); without it, a block.
const TABLE_OR_PAGE: u64 = 1 << 1;
const ATTR_DEVICE: u64 = 1 << 2;
const AP_EL0: u64 = 1 << 6;
const AP_READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 3 << 8;
const ACCESS_FLAG: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
/// Writable, although AP may say read-only: hardware then clears AP[2] at the first write.
const DBM: u64 = 1 << 51;
const PXN: u64 = 1 << 53;
const UXN: u64 = 1 << 54;
/// Left to software by the architecture. A page that is read-only cannot say in AP and DBM that
/// it has been written while it was writable; this bit does.
pub(crate) const SW_DIRTY: u64 = 1 << 55;
/// The others that are left to software: [`Perms::OWNED`] and its neighbours.
pub(crate) const SW_OWNED: u64 = 1 << 56;
const SW_MAY_WRITE: u64 = 1 << 57;
const SW_MAY_EXECUTE: u64 = 1 << 58;

const ADDRESS_BITS: u32 = 48;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - (1 << 12);

/// The format of AArch64. `MAIR_EL1` holds Normal write-back memory at index 0 and Device-nGnRE
/// at index 1.
#[derive(Clone, Copy, Debug)]
pub struct A64;

impl A64 {
    /// The table that a word leads to, above level 1.
    #[inline]
    pub(crate) const fn table_in(raw: u64) -> Option<PhysAddr> {
        if raw & !ADDRESS == VALID | TABLE_OR_PAGE {
            Some(PhysAddr(raw & ADDRESS))
        } else {
            None
        }
    }
}

impl Format for A64 {
    const ISA: Isa = Isa::Aarch64;

    fn encode(pte: Pte, level: Level) -> Result<u64, EncodeError> {
        match pte {
            Pte::Leaf(leaf) => encode_leaf(&leaf, level),
            Pte::Table(table) => {
                Ok(check_table(table, level, ADDRESS_BITS)? | VALID | TABLE_OR_PAGE)
            }
            Pte::Other(raw) if A64::decode(raw, level) == pte => Ok(raw),
            _ => absent::encode(pte, false),
        }
    }

    fn decode(raw: u64, level: Level) -> Pte {
        let meaning = if raw & VALID == 0 {
            absent::parse(raw, false)
        } else if level == Level::L1 || raw & TABLE_OR_PAGE == 0 {
            Some(Pte::Leaf(parse_leaf(raw, level)))
        } else {
            Some(Pte::Table(PhysAddr(raw & ADDRESS)))
        };
        // A word with bits that the meaning does not account for means something else.
        match meaning {
            Some(pte) if A64::encode(pte, level) == Ok(raw) => pte,
            _ => Pte::Other(raw),
        }
    }
}

fn encode_leaf(leaf: &Leaf, level: Level) -> Result<u64, EncodeError> {
    leaf.check(level, ADDRESS_BITS)?;
    let bit = |on: bool, bit: u64| if on { bit } else { 0 };
    let user = leaf.perms.contains(Perms::USER);
    let execute = leaf.perms.contains(Perms::EXECUTE);
    let written = match (leaf.perms.contains(Perms::WRITE), leaf.dirty) {
        (true, true) => DBM,
        (true, false) => DBM | AP_READ_ONLY,
        (false, true) => AP_READ_ONLY | SW_DIRTY,
        (false, false) => AP_READ_ONLY,
    };
    Ok(leaf.pa.0
        | VALID
        | bit(level == Level::L1, TABLE_OR_PAGE)
        | bit(leaf.memory == Memory::Device, ATTR_DEVICE)
        | bit(user, AP_EL0)
        | written
        | INNER_SHAREABLE
        | bit(leaf.accessed, ACCESS_FLAG)
        | bit(!leaf.global, NOT_GLOBAL)
        | bit(user || !execute, PXN)
        | bit(!user || !execute, UXN)
        | bit(leaf.perms.contains(Perms::OWNED), SW_OWNED)
        | bit(leaf.perms.contains(Perms::MAY_WRITE), SW_MAY_WRITE)
        | bit(leaf.perms.contains(Perms::MAY_EXECUTE), SW_MAY_EXECUTE))
}

fn parse_leaf(raw: u64, level: Level) -> Leaf {
    let user = raw & AP_EL0 != 0;
    let write = raw & DBM != 0;
    let mut perms = Perms::READ;
    perms.set(Perms::WRITE, write);
    perms.set(Perms::USER, user);
    perms.set(Perms::EXECUTE, raw & if user { UXN } else { PXN } == 0);
    perms.set(Perms::OWNED, raw & SW_OWNED != 0);
    perms.set(Perms::MAY_WRITE, raw & SW_MAY_WRITE != 0);
    perms.set(Perms::MAY_EXECUTE, raw & SW_MAY_EXECUTE != 0);
    Leaf {
        pa: PhysAddr(raw & ADDRESS & !(level.size() - 1)),
        perms,
        memory: if raw & ATTR_DEVICE != 0 {
            Memory::Device
        } else {
            Memory::Normal
        },
        global: raw & NOT_GLOBAL == 0,
        accessed: raw & ACCESS_FLAG != 0,
        dirty: if write {
            raw & AP_READ_ONLY == 0
        } else {
            raw & SW_DIRTY != 0
        },
    }
}
