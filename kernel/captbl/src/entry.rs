//! Entries of the root of a capability table: one word each, changed by compare-and-swap only. The
//! module header of the crate has the layout.
//!
//! Decoding is strict: it accepts exactly the words that encoding produces.

use dyad_abi::NodeId;
use dyad_shm::LayoutHash;
use dyad_shm::frame::{Epoch, FrameRef};

use crate::header::{Owner, SAMPLE};

const NODE_SHIFT: u32 = 32;
const STATE_SHIFT: u32 = 56;

const EMPTY: u64 = 0;
const PRESENT: u64 = 1;
const CLOSING: u64 = 2;

/// State of an entry. The module header of the crate has the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RootEntry {
    /// Without a leaf since that epoch.
    Empty(Epoch),
    /// With a leaf, which the entry pins.
    Present(FrameRef),
    /// The leaf is being taken out.
    Closing(Owner),
}

/// The leaf that an entry leads to, if any. This is the only decoding on the path of every system call.
#[inline]
pub(crate) const fn present(w: u64) -> Option<FrameRef> {
    if w >> NODE_SHIFT != PRESENT << (STATE_SHIFT - NODE_SHIFT) {
        return None;
    }
    FrameRef::from_bits(w as u32)
}

impl RootEntry {
    /// The word.
    pub const fn bits(self) -> u64 {
        match self {
            RootEntry::Empty(epoch) => EMPTY << STATE_SHIFT | epoch.get(),
            RootEntry::Present(leaf) => PRESENT << STATE_SHIFT | leaf.bits() as u64,
            RootEntry::Closing(owner) => {
                CLOSING << STATE_SHIFT
                    | (owner.node.index() as u64) << NODE_SHIFT
                    | owner.incarnation as u64
            }
        }
    }

    /// Decodes a word; `None` if it is malformed (damaged memory).
    pub const fn from_bits(w: u64) -> Option<RootEntry> {
        match w >> STATE_SHIFT {
            EMPTY => match Epoch::new(w) {
                Some(epoch) => Some(RootEntry::Empty(epoch)),
                None => None,
            },
            PRESENT => match present(w) {
                Some(leaf) => Some(RootEntry::Present(leaf)),
                None => None,
            },
            CLOSING => match NodeId::new(w >> NODE_SHIFT & 0xff_ffff) {
                Some(node) => Some(RootEntry::Closing(Owner {
                    node,
                    incarnation: w as u32,
                })),
                None => None,
            },
            _ => None,
        }
    }
}

/// Adds one word of each state to the layout hash, with every field other than zero.
pub(crate) const fn samples(h: LayoutHash) -> LayoutHash {
    let leaf = match FrameRef::from_bits(1) {
        Some(leaf) => leaf,
        None => panic!("a frame of the first pool"),
    };
    h.word(RootEntry::Empty(Epoch::MAX).bits())
        .word(RootEntry::Present(leaf).bits())
        .word(RootEntry::Closing(SAMPLE).bits())
}
