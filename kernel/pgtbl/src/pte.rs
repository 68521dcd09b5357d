//! The meaning of a page-table entry, independent of the ISA.

use bitflags::bitflags;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Isa, NodeId};
use dyad_shm::{Epoch, LayoutHash, PhysAddr};

use crate::absent;
use crate::{A64, EncodeError, X86};

bitflags! {
    /// The permissions of a leaf. An address without [`READ`](Perms::READ) cannot be mapped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Perms: u8 {
        /// Data reads.
        const READ = 1;
        /// Data writes.
        const WRITE = 2;
        /// Instruction fetches: by user code if [`USER`](Perms::USER) is set, else by the kernel.
        const EXECUTE = 4;
        /// Access by user code (and, where the kernel explicitly allows it, by the kernel).
        const USER = 8;
        /// A software bit, which hardware ignores: a page fault has taken the frame, and it is returned when
        /// the address space no longer needs it.
        const OWNED = 16;
        /// Kept by software: may be made writable.
        const MAY_WRITE = 32;
        /// Kept by software: may be made executable.
        const MAY_EXECUTE = 64;
    }
}

impl Perms {
    /// The bits that a change of permissions keeps.
    pub const KEPT: Perms = Perms::USER
        .union(Perms::OWNED)
        .union(Perms::MAY_WRITE)
        .union(Perms::MAY_EXECUTE);
}

/// Kind of memory behind a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Write-back cached, inner shareable.
    Normal,
    /// Device registers: not cached, not reordered, never executable.
    Device,
}

/// A translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leaf {
    /// Start of the memory that the leaf maps, aligned to the size of its level.
    pub pa: PhysAddr,
    /// The permissions.
    pub perms: Perms,
    /// Kind of memory.
    pub memory: Memory,
    /// Whether the translation is the same in all address spaces of the node and survives a change of root in
    /// the TLB. Kernel only.
    pub global: bool,
    /// Whether the page has been used since this was last cleared.
    pub accessed: bool,
    /// Whether the page has been written since this was last cleared.
    pub dirty: bool,
}

impl Leaf {
    /// A user page, not yet accessed. [`Perms::READ`] and [`Perms::USER`] are added.
    pub const fn user(pa: PhysAddr, perms: Perms) -> Leaf {
        Leaf {
            pa,
            perms: perms.union(Perms::READ).union(Perms::USER),
            memory: Memory::Normal,
            global: false,
            accessed: false,
            dirty: false,
        }
    }

    /// A kernel mapping, global, with accessed and dirty preset so that no hardware writes to its
    /// entry. [`Perms::READ`] is added.
    pub const fn kernel(pa: PhysAddr, perms: Perms, memory: Memory) -> Leaf {
        Leaf {
            pa,
            perms: perms.union(Perms::READ),
            memory,
            global: true,
            accessed: true,
            dirty: perms.contains(Perms::WRITE),
        }
    }

    /// A copy of the leaf with accessed and dirty preset: its entry will not be written by hardware.
    #[must_use]
    pub const fn preset(self) -> Leaf {
        Leaf {
            accessed: true,
            dirty: self.perms.contains(Perms::WRITE),
            ..self
        }
    }

    /// The leaf of a parked page when it is unparked: marked as used.
    #[must_use]
    pub const fn unparked(pa: PhysAddr, perms: Perms) -> Leaf {
        Leaf::user(pa, perms).preset()
    }

    /// Whether two leaves differ in nothing but accessed and dirty.
    #[inline]
    pub fn same_mapping(&self, other: &Leaf) -> bool {
        let bare = |l: &Leaf| Leaf {
            accessed: false,
            dirty: false,
            ..*l
        };
        bare(self) == bare(other)
    }

    /// Checks for leaves that no format can encode at a level; formats have `address_bits` of physical
    /// address.
    #[inline]
    pub(crate) fn check(&self, level: Level, address_bits: u32) -> Result<(), EncodeError> {
        if level == Level::L4 {
            return Err(EncodeError::NoLeafInRoot);
        }
        if self.pa.0 & (level.size() - 1) != 0 {
            return Err(EncodeError::Misaligned);
        }
        if self.pa.0 >> address_bits != 0 {
            return Err(EncodeError::AddressTooLarge);
        }
        if !self.perms.contains(Perms::READ) || !Perms::all().contains(self.perms) {
            return Err(EncodeError::NotReadable);
        }
        if self.perms.contains(Perms::WRITE.union(Perms::EXECUTE)) {
            return Err(EncodeError::WriteAndExecute);
        }
        if self.perms.contains(Perms::EXECUTE) && self.memory == Memory::Device {
            return Err(EncodeError::ExecutableDevice);
        }
        if self.perms.contains(Perms::USER) && self.global {
            return Err(EncodeError::GlobalUser);
        }
        Ok(())
    }
}

/// An entry of a page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pte {
    /// Maps nothing since `epoch`; [`Epoch::ZERO`]: never has.
    Empty {
        /// Stamp of the unmapping.
        epoch: Epoch,
    },
    /// `node` is unmapping it.
    Closing {
        /// The node that is unmapping.
        node: NodeId,
    },
    /// A user page of 4 KiB that is absent for hardware while its contents are moved to another frame. It
    /// counts as a reference to its frame, as a leaf does.
    Parked {
        /// The frame.
        pa: PhysAddr,
        /// The permissions that the page had, and will have again.
        perms: Perms,
    },
    /// Leads to a table of the next lower level.
    Table(PhysAddr),
    /// Maps memory.
    Leaf(Leaf),
    /// Any other word, present or not. Rows leave it unchanged.
    Other(u64),
}

/// Level of a table, counted from the one whose entries map 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Entries map 4 KiB.
    L1 = 1,
    /// Entries map 2 MiB or lead to L1.
    L2 = 2,
    /// Entries map 1 GiB or lead to L2.
    L3 = 3,
    /// The root: entries lead to L3.
    L4 = 4,
}

impl Level {
    /// All levels, root first.
    pub const ALL: [Level; 4] = [Level::L4, Level::L3, Level::L2, Level::L1];

    /// The level with this number, 1 to 4.
    pub const fn new(n: u8) -> Option<Level> {
        match n {
            1 => Some(Level::L1),
            2 => Some(Level::L2),
            3 => Some(Level::L3),
            4 => Some(Level::L4),
            _ => None,
        }
    }

    #[inline]
    const fn shift(self) -> u32 {
        12 + 9 * (self as u32 - 1)
    }

    /// Bytes that one entry covers.
    #[inline]
    pub const fn size(self) -> u64 {
        1 << self.shift()
    }

    /// Index of the entry that covers `va`.
    #[inline]
    pub const fn index(self, va: u64) -> usize {
        (va >> self.shift()) as usize % 512
    }

    /// The level below.
    #[inline]
    pub const fn below(self) -> Option<Level> {
        match self {
            Level::L1 => None,
            Level::L2 => Some(Level::L1),
            Level::L3 => Some(Level::L2),
            Level::L4 => Some(Level::L3),
        }
    }
}

/// An ISA's format of entries. Decoding undoes encoding, and every word that is not an encoding
/// of something else decodes as [`Pte::Other`]; only the accessed bit of x86-64 tables, which
/// hardware may set, is not told apart.
pub trait Format {
    /// The ISA.
    const ISA: Isa;

    /// The word for an entry of a table of that level.
    fn encode(pte: Pte, level: Level) -> Result<u64, EncodeError>;

    /// The meaning of a word in a table of that level.
    fn decode(raw: u64, level: Level) -> Pte;
}

/// [`Format::encode`] of an ISA chosen at run time.
#[inline]
pub fn encode(isa: Isa, pte: Pte, level: Level) -> Result<u64, EncodeError> {
    match isa {
        Isa::X86_64 => X86::encode(pte, level),
        Isa::Aarch64 => A64::encode(pte, level),
    }
}

/// [`Format::decode`] of an ISA chosen at run time.
#[inline]
pub fn decode(isa: Isa, raw: u64, level: Level) -> Pte {
    match isa {
        Isa::X86_64 => X86::decode(raw, level),
        Isa::Aarch64 => A64::decode(raw, level),
    }
}

/// The table of an entry that leads to one; `None` for any other entry. A fast [`decode`].
#[inline]
pub(crate) fn table_in(isa: Isa, raw: u64) -> Option<PhysAddr> {
    match isa {
        Isa::X86_64 => X86::table_in(raw),
        Isa::Aarch64 => A64::table_in(raw),
    }
}

/// The address of a table, if an entry with `address_bits` of address can hold it.
pub(crate) fn check_table(
    table: PhysAddr,
    level: Level,
    address_bits: u32,
) -> Result<u64, EncodeError> {
    if level == Level::L1 {
        return Err(EncodeError::NoTableBelow);
    }
    if !table.0.is_multiple_of(PAGE_SIZE) {
        return Err(EncodeError::Misaligned);
    }
    if table.0 >> address_bits != 0 {
        return Err(EncodeError::AddressTooLarge);
    }
    Ok(table.0)
}

/// Adds what nodes must agree about beyond the ISAs' own formats to the layout hash.
#[must_use]
pub const fn layout(h: LayoutHash) -> LayoutHash {
    h.text("pgtbl")
        .word(absent::TAG_EMPTY)
        .word(absent::TAG_CLOSING)
        .word(absent::TAG_PARKED)
        .word(absent::PAYLOAD_SHIFT as u64)
        .word(crate::a64::SW_DIRTY)
        .word(crate::a64::SW_OWNED)
        .word(crate::x86::SW_OWNED)
        .word(1) // x86-64 stores the payload inverted
}
