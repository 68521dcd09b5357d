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

    #[inline]
    fn encode(pte: Pte, level: Level) -> Result<u64, EncodeError> {
        match pte {
            Pte::Leaf(leaf) => encode_leaf(&leaf, level),
            Pte::Table(table) => {
                Ok(check_table(table, level, ADDRESS_BITS)? | VALID | TABLE_OR_PAGE)
            }
            Pte::Other(raw) if A64::decode(raw, level) == pte => Ok(raw),
            _ => absent::encode(pte, level, false),
        }
    }

    #[inline]
    fn decode(raw: u64, level: Level) -> Pte {
        let meaning = if raw & VALID == 0 {
            // A word with bits that the meaning does not account for means something else.
            absent::parse(raw, false).filter(|&pte| absent::encode(pte, level, false) == Ok(raw))
        } else if level == Level::L1 || raw & TABLE_OR_PAGE == 0 {
            is_leaf(raw, level).then(|| Pte::Leaf(parse_leaf(raw, level)))
        } else {
            A64::table_in(raw).map(Pte::Table)
        };
        meaning.unwrap_or(Pte::Other(raw))
    }
}

#[inline]
fn encode_leaf(leaf: &Leaf, level: Level) -> Result<u64, EncodeError> {
    leaf.check(level, ADDRESS_BITS)?;
    let p = leaf.perms.bits() as u64;
    let has = |flag: Perms| p >> flag.bits().trailing_zeros() & 1;
    let (user, execute, write) = (has(Perms::USER), has(Perms::EXECUTE), has(Perms::WRITE));
    let dirty = leaf.dirty as u64;
    Ok(leaf.pa.0
        | VALID
        | INNER_SHAREABLE
        | ((level == Level::L1) as u64 * TABLE_OR_PAGE)
        | ((leaf.memory == Memory::Device) as u64 * ATTR_DEVICE)
        | (user * AP_EL0)
        | (write * DBM)
        | ((1 - (write & dirty)) * AP_READ_ONLY)
        | ((dirty & (1 - write)) * SW_DIRTY)
        | (leaf.accessed as u64 * ACCESS_FLAG)
        | ((!leaf.global) as u64 * NOT_GLOBAL)
        | ((user | (1 - execute)) * PXN)
        | (((1 - user) | (1 - execute)) * UXN)
        | ((p & NOTES) << 52))
}

/// The word of a clean 4 KiB user page at address 0.
pub(crate) const fn user_page(perms: Perms) -> u64 {
    let p = perms.bits() as u64;
    let written = if perms.contains(Perms::WRITE) { DBM } else { 0 };
    let executable = if perms.contains(Perms::EXECUTE) {
        0
    } else {
        UXN
    };
    VALID
        | TABLE_OR_PAGE
        | INNER_SHAREABLE
        | NOT_GLOBAL
        | AP_EL0
        | AP_READ_ONLY
        | PXN
        | written
        | executable
        | ((p & NOTES) << 52)
}

/// The three bits kept by software, in `Perms`.
const NOTES: u64 =
    Perms::OWNED.bits() as u64 | Perms::MAY_WRITE.bits() as u64 | Perms::MAY_EXECUTE.bits() as u64;

const _: () = assert!(NOTES << 52 == SW_OWNED | SW_MAY_WRITE | SW_MAY_EXECUTE);

/// Splits a word made by [`user_page`] into its permissions and the bits that change when the page is used.
#[inline]
pub(crate) const fn split(raw: u64) -> (Perms, u64) {
    let bits = (raw >> (DBM.trailing_zeros() - 1) & Perms::WRITE.bits() as u64)
        | (raw >> 52 & NOTES)
        | (!raw >> (UXN.trailing_zeros() - 2) & Perms::EXECUTE.bits() as u64);
    let always = Perms::READ.bits() | Perms::USER.bits();
    let dirty = if raw & DBM != 0 {
        AP_READ_ONLY
    } else {
        SW_DIRTY
    };
    (
        Perms::from_bits_retain(bits as u8 | always),
        ACCESS_FLAG | dirty,
    )
}

/// Whether a word is what [`user_page`] makes of permissions without `OWNED`, used or not.
#[inline(always)]
pub(crate) const fn is_given_page(raw: u64) -> bool {
    const SET: u64 = VALID | TABLE_OR_PAGE | INNER_SHAREABLE | NOT_GLOBAL | AP_EL0 | PXN;
    const FREE: u64 = crate::pte_slot::USER_ADDRESS | ACCESS_FLAG | SW_MAY_WRITE | SW_MAY_EXECUTE;
    // Pages that may be written say by AP whether they have been, others by the bit of software.
    if raw & DBM != 0 {
        raw & !(FREE | AP_READ_ONLY) == SET | DBM | UXN
    } else {
        raw & !(FREE | SW_DIRTY | UXN) == SET | AP_READ_ONLY
    }
}

/// The word of a clean page after a use has set all its bits.
#[inline]
pub(crate) const fn used(word: u64) -> u64 {
    let read_only = if word & DBM != 0 { AP_READ_ONLY } else { 0 };
    word & !read_only | ACCESS_FLAG
}

/// A clean page, accessed and dirty as the page `raw`.
#[inline]
pub(crate) const fn keep_used(word: u64, raw: u64) -> u64 {
    let dirty = if raw & DBM != 0 {
        raw & AP_READ_ONLY == 0
    } else {
        raw & SW_DIRTY != 0
    };
    let word = word | raw & ACCESS_FLAG;
    match (dirty, word & DBM != 0) {
        (false, _) => word,
        (true, true) => word & !AP_READ_ONLY,
        (true, false) => word | SW_DIRTY,
    }
}

const _: () = {
    assert!(Perms::WRITE.bits() == 1 << 1 && Perms::EXECUTE.bits() == 1 << 2);
};

/// Whether [`encode_leaf`] can have made a valid word that leads to no table.
#[inline]
fn is_leaf(raw: u64, level: Level) -> bool {
    let defined = ADDRESS
        | VALID
        | ATTR_DEVICE
        | AP_EL0
        | AP_READ_ONLY
        | INNER_SHAREABLE
        | ACCESS_FLAG
        | NOT_GLOBAL
        | DBM
        | PXN
        | UXN
        | SW_DIRTY
        | (NOTES << 52);
    let page = (level == Level::L1) as u64 * TABLE_OR_PAGE;
    let misaligned = raw & ADDRESS & (level.size() - 1);
    let other_half = if raw & AP_EL0 != 0 {
        PXN | NOT_GLOBAL
    } else {
        UXN
    };
    let executable = raw & (PXN | UXN) != PXN | UXN;
    (raw & !(defined | page)) | misaligned == 0
        && raw & (INNER_SHAREABLE | page | other_half) == INNER_SHAREABLE | page | other_half
        && level != Level::L4
        && !(executable && raw & (DBM | ATTR_DEVICE) != 0)
        && match raw & DBM != 0 {
            true => raw & SW_DIRTY == 0,
            false => raw & AP_READ_ONLY != 0,
        }
}

#[inline]
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
