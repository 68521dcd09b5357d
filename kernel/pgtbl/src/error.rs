//! The errors of page-table operations.

use core::fmt;

use dyad_shm::Epoch;

use crate::{Leaf, Level};

/// The reasons why an entry has no encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The physical address is not aligned to what the entry covers.
    Misaligned,
    /// The physical address has more bits than the format.
    AddressTooLarge,
    /// Leaves must be readable.
    NotReadable,
    /// Leaves must not be writable and executable at once.
    WriteAndExecute,
    /// Device memory must not be executable.
    ExecutableDevice,
    /// User pages must not be global: they would outlive their address space in the TLB.
    GlobalUser,
    /// The root has no leaves.
    NoLeafInRoot,
    /// Entries of the lowest level lead to no table.
    NoTableBelow,
    /// A [`Pte::Other`](crate::Pte::Other) whose word means something else.
    NotAsIs,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EncodeError::Misaligned => "physical address not aligned to the size of the entry",
            EncodeError::AddressTooLarge => "physical address too large for the format",
            EncodeError::NotReadable => "a page must be readable",
            EncodeError::WriteAndExecute => "a page must not be writable and executable",
            EncodeError::ExecutableDevice => "device memory must not be executable",
            EncodeError::GlobalUser => "a user page must not be global",
            EncodeError::NoLeafInRoot => "the root table maps no pages",
            EncodeError::NoTableBelow => "the lowest level leads to no tables",
            EncodeError::NotAsIs => "the word means something else",
        })
    }
}

impl core::error::Error for EncodeError {}

/// The reasons why a page table was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// map: there is a translation of this size already.
    Exists(Leaf),
    /// unmap, protect, harvest: nothing is mapped there.
    NotMapped,
    /// A node is unmapping the page; try again.
    Closing,
    /// map: unmapped at this epoch, but old translations may still be in TLBs; try again after a
    /// round.
    NotQuiesced(Epoch),
    /// The entry was changed at the same time; look again.
    Contended,
    /// map: no frame for a table.
    NoMemory,
    /// The address is not canonical, or a user page in the kernel half.
    BadAddress,
    /// The virtual address is not aligned to the size of the page.
    Misaligned,
    /// The entry at this level does not fit: a larger page or a table where a page should go, or an undefined
    /// entry.
    Conflict(Level),
    /// The translation has no encoding.
    Encode(EncodeError),
}

impl From<EncodeError> for MapError {
    fn from(e: EncodeError) -> MapError {
        MapError::Encode(e)
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Exists(leaf) => write!(f, "already mapped, to {}", leaf.pa),
            MapError::NotMapped => f.write_str("not mapped"),
            MapError::Closing => f.write_str("being unmapped by another node"),
            MapError::NotQuiesced(epoch) => {
                write!(f, "unmapped at epoch {}, not quiesced", epoch.get())
            }
            MapError::Contended => f.write_str("changed by another CPU at the same time"),
            MapError::NoMemory => f.write_str("no frame for a page table"),
            MapError::BadAddress => f.write_str("no such virtual address"),
            MapError::Misaligned => f.write_str("virtual address not aligned to the page size"),
            MapError::Conflict(level) => {
                write!(f, "something else is mapped at level {}", *level as u8)
            }
            MapError::Encode(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for MapError {}
