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

    #[inline]
    fn encode(pte: Pte, level: Level) -> Result<u64, EncodeError> {
        match pte {
            Pte::Leaf(leaf) => encode_leaf(&leaf, level),
            Pte::Table(table) => {
                Ok(check_table(table, level, ADDRESS_BITS)? | PRESENT | WRITABLE | USER | ACCESSED)
            }
            Pte::Other(raw) if X86::decode(raw, level) == pte => Ok(raw),
            _ => absent::encode(pte, level, true),
        }
    }

    #[inline]
    fn decode(raw: u64, level: Level) -> Pte {
        let large = level != Level::L1 && raw & PAGE_SIZE_BIT != 0;
        let meaning = if raw & PRESENT == 0 {
            // A word with bits that the meaning does not account for means something else.
            absent::parse(raw, true).filter(|&pte| absent::encode(pte, level, true) == Ok(raw))
        } else if level == Level::L1 || large {
            is_leaf(raw, level).then(|| Pte::Leaf(parse_leaf(raw, level)))
        } else {
            // Hardware may set the accessed bit of a table that another node has made.
            X86::table_in(raw).map(Pte::Table)
        };
        meaning.unwrap_or(Pte::Other(raw))
    }
}

#[inline]
fn encode_leaf(leaf: &Leaf, level: Level) -> Result<u64, EncodeError> {
    leaf.check(level, ADDRESS_BITS)?;
    // Bits of `Perms`, moved to where the hardware has them.
    let p = leaf.perms.bits() as u64;
    Ok(leaf.pa.0
        | PRESENT
        | (p & Perms::WRITE.bits() as u64)
        | ((p & Perms::USER.bits() as u64) >> 1)
        | ((p & NOTES) << 5)
        | ((!p & Perms::EXECUTE.bits() as u64) << 61)
        | ((leaf.memory == Memory::Device) as u64 * CACHE_DISABLE)
        | (leaf.accessed as u64 * ACCESSED)
        | (leaf.dirty as u64 * DIRTY)
        | ((level != Level::L1) as u64 * PAGE_SIZE_BIT)
        | (leaf.global as u64 * GLOBAL))
}

/// The word of a clean 4 KiB user page at address 0.
pub(crate) const fn user_page(perms: Perms) -> u64 {
    let p = perms.bits() as u64;
    PRESENT
        | USER
        | (p & Perms::WRITE.bits() as u64)
        | ((p & NOTES) << 5)
        | ((!p & Perms::EXECUTE.bits() as u64) << 61)
}

/// The three bits kept by software, in `Perms`.
const NOTES: u64 =
    Perms::OWNED.bits() as u64 | Perms::MAY_WRITE.bits() as u64 | Perms::MAY_EXECUTE.bits() as u64;

const _: () = {
    assert!(Perms::WRITE.bits() as u64 == WRITABLE);
    assert!(Perms::USER.bits() as u64 >> 1 == USER);
    assert!((Perms::EXECUTE.bits() as u64) << 61 == NO_EXECUTE);
    assert!(NOTES << 5 == SW_OWNED | SW_MAY_WRITE | SW_MAY_EXECUTE);
};

/// Splits a word made by [`user_page`] into its permissions and the bits that hardware may have set since.
#[inline]
pub(crate) const fn split(raw: u64) -> (Perms, u64) {
    let bits = (raw & WRITABLE) | (raw >> 5 & NOTES) | (!raw >> 61 & Perms::EXECUTE.bits() as u64);
    let always = Perms::READ.bits() | Perms::USER.bits();
    (
        Perms::from_bits_retain(bits as u8 | always),
        ACCESSED | DIRTY,
    )
}

/// Whether a word is what [`user_page`] makes of permissions without `OWNED`, used or not.
#[inline(always)]
pub(crate) const fn is_given_page(raw: u64) -> bool {
    const FREE: u64 = crate::pte_slot::USER_ADDRESS
        | ACCESSED
        | DIRTY
        | WRITABLE
        | NO_EXECUTE
        | SW_MAY_WRITE
        | SW_MAY_EXECUTE;
    raw & !FREE == PRESENT | USER && raw & (WRITABLE | NO_EXECUTE) != WRITABLE
}

/// The word of a clean page after a use has set all its bits.
#[inline]
pub(crate) const fn used(word: u64) -> u64 {
    // Writable is one bit, dirty another.
    let dirty = (word & WRITABLE) << (DIRTY.trailing_zeros() - WRITABLE.trailing_zeros());
    word | ACCESSED | dirty
}

/// A clean page, accessed and dirty as the page `raw`.
#[inline]
pub(crate) const fn keep_used(word: u64, raw: u64) -> u64 {
    word | raw & (ACCESSED | DIRTY)
}

/// Whether [`encode_leaf`] can have made a present word that leads to no table.
#[inline]
fn is_leaf(raw: u64, level: Level) -> bool {
    let defined = ADDRESS
        | PRESENT
        | WRITABLE
        | USER
        | CACHE_DISABLE
        | ACCESSED
        | DIRTY
        | GLOBAL
        | (NOTES << 5)
        | NO_EXECUTE
        | ((level != Level::L1) as u64 * PAGE_SIZE_BIT);
    let misaligned = raw & ADDRESS & (level.size() - 1);
    (raw & !defined) | misaligned == 0
        && level != Level::L4
        && (raw & NO_EXECUTE != 0 || raw & (WRITABLE | CACHE_DISABLE) == 0)
        && raw & (USER | GLOBAL) != USER | GLOBAL
}

#[inline]
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
