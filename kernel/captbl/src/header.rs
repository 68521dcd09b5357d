//! The header of a slot: one word, changed by compare-and-swap only. The module header of the
//! crate has the layout.
//!
//! Decoding is strict: it accepts exactly the words that encoding produces.

use dyad_abi::NodeId;
use dyad_abi::cap::{CapType, Rights};
use dyad_shm::LayoutHash;

const TYPE_SHIFT: u32 = 32;
const NODE_SHIFT: u32 = 40;
const STATE_SHIFT: u32 = 48;

const FREE: u64 = 0;
const RESERVED: u64 = 1;
const ACTIVE: u64 = 2;
const CLOSING: u64 = 3;

/// The owner of a slot or an entry that is being changed: a node in one incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The node.
    pub node: NodeId,
    /// The node's incarnation.
    pub incarnation: u32,
}

/// State of a slot. The module header of the crate has the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotHeader {
    /// Empty. It can be filled after quiescence.
    Free,
    /// Being filled.
    Reserved(Owner),
    /// Holds a capability.
    Active {
        /// The type of the capability.
        ty: CapType,
        /// The operations that the capability permits.
        rights: Rights,
    },
    /// Being emptied.
    Closing(Owner),
}

/// Whether a header is that of a slot which holds a capability, and which. The only decoding on
/// the way of every system call.
#[inline]
pub(crate) const fn active(w: u64) -> Option<(CapType, Rights)> {
    if w >> NODE_SHIFT != ACTIVE << (STATE_SHIFT - NODE_SHIFT) {
        return None;
    }
    match CapType::from_number(w >> TYPE_SHIFT & 0xff) {
        Some(ty) => Some((ty, Rights(w as u32))),
        None => None,
    }
}

impl SlotHeader {
    const fn owned(state: u64, owner: Owner) -> u64 {
        state << STATE_SHIFT | (owner.node.index() as u64) << NODE_SHIFT | owner.incarnation as u64
    }

    /// The word.
    pub const fn bits(self) -> u64 {
        match self {
            SlotHeader::Free => FREE,
            SlotHeader::Reserved(owner) => SlotHeader::owned(RESERVED, owner),
            SlotHeader::Active { ty, rights } => {
                ACTIVE << STATE_SHIFT | (ty as u64) << TYPE_SHIFT | rights.0 as u64
            }
            SlotHeader::Closing(owner) => SlotHeader::owned(CLOSING, owner),
        }
    }

    /// Decodes a word; `None` if it is malformed (damaged memory).
    pub const fn from_bits(w: u64) -> Option<SlotHeader> {
        if w == FREE {
            return Some(SlotHeader::Free);
        }
        if let Some((ty, rights)) = active(w) {
            return Some(SlotHeader::Active { ty, rights });
        }
        if w >> TYPE_SHIFT & 0xff != 0 {
            return None;
        }
        let Some(node) = NodeId::new(w >> NODE_SHIFT & 0xff) else {
            return None;
        };
        let owner = Owner {
            node,
            incarnation: w as u32,
        };
        match w >> STATE_SHIFT {
            RESERVED => Some(SlotHeader::Reserved(owner)),
            CLOSING => Some(SlotHeader::Closing(owner)),
            _ => None,
        }
    }
}

/// Headers as bare words, for rows that handle only the usual states.
pub mod plain {
    use dyad_abi::cap::Rights;

    use super::{Owner, SlotHeader};

    /// The header of an empty slot.
    pub const FREE: u64 = super::FREE;

    /// The header of a slot that is being filled.
    pub const fn reserved(owner: Owner) -> u64 {
        SlotHeader::Reserved(owner).bits()
    }

    /// The header of a slot that is being emptied.
    pub const fn closing(owner: Owner) -> u64 {
        SlotHeader::Closing(owner).bits()
    }

    /// Whether a slot with this header holds a capability.
    #[inline]
    pub const fn is_active(header: u64) -> bool {
        super::active(header).is_some()
    }

    /// The header of a capability that permits no more than `rights`, and no more than one with the header
    /// `of`.
    #[inline]
    pub const fn narrowed(of: u64, rights: Rights) -> u64 {
        of & (rights.0 as u64 | !(u32::MAX as u64))
    }
}

/// Adds one word of each state to the layout hash, with every field other than zero.
pub(crate) const fn samples(h: LayoutHash) -> LayoutHash {
    let rights = Rights(1);
    let ty = CapType::PageTable;
    h.word(SlotHeader::Free.bits())
        .word(SlotHeader::Reserved(SAMPLE).bits())
        .word(SlotHeader::Active { ty, rights }.bits())
        .word(SlotHeader::Closing(SAMPLE).bits())
}

pub(crate) const SAMPLE: Owner = Owner {
    node: match NodeId::new(1) {
        Some(node) => node,
        None => panic!("a second node"),
    },
    incarnation: 1,
};
