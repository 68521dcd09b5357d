//! Encodings of the states in which an entry is not present. Bit 0 is 0 on both ISAs, everything
//! else is ours:
//!
//! ```text
//! payload:56 | tag:7 | 0          tag 0: Empty, payload = epoch;  tag 1: Closing, payload = node
//!                                 tag 2: Parked, payload = permissions << 48 | frame number
//! ```
//!
//! An epoch has 48 bits: a larger payload is damage, and the entry is left alone.

use dyad_abi::NodeId;
use dyad_abi::user::PAGE_SIZE;
use dyad_shm::{Epoch, PhysAddr};

use crate::{EncodeError, Level, Perms, Pte};

pub(crate) const TAG_EMPTY: u64 = 0;
pub(crate) const TAG_CLOSING: u64 = 1;
pub(crate) const TAG_PARKED: u64 = 2;
pub(crate) const PAYLOAD_SHIFT: u32 = 8;
const PAYLOAD: u64 = u64::MAX >> PAYLOAD_SHIFT;
const PARKED_PERMS: u32 = 48;
/// Frame numbers of addresses that every ISA's format can hold.
const PARKED_FRAME: u64 = (1 << 36) - 1;

/// The word of an absent state. `inverted`: the payload is stored inverted, but for that of
/// `Empty(0)`, which is zero everywhere.
#[inline]
pub(crate) fn encode(pte: Pte, level: Level, inverted: bool) -> Result<u64, EncodeError> {
    match pte {
        Pte::Parked { pa, perms } if level == Level::L1 => parked(pa, perms, inverted),
        Pte::Empty { epoch } => Ok(empty(epoch, inverted)),
        Pte::Closing { node } => Ok(closing(node, inverted)),
        Pte::Table(_) | Pte::Leaf(_) | Pte::Parked { .. } | Pte::Other(_) => {
            Err(EncodeError::NotAsIs)
        }
    }
}

/// [`encode`] of `Parked`.
fn parked(pa: PhysAddr, perms: Perms, inverted: bool) -> Result<u64, EncodeError> {
    let frame = pa.0 / PAGE_SIZE;
    if !pa.0.is_multiple_of(PAGE_SIZE) {
        return Err(EncodeError::Misaligned);
    }
    if frame > PARKED_FRAME {
        return Err(EncodeError::AddressTooLarge);
    }
    if !perms.contains(Perms::READ | Perms::USER) || !Perms::all().contains(perms) {
        return Err(EncodeError::NotReadable);
    }
    if perms.contains(Perms::WRITE | Perms::EXECUTE) {
        return Err(EncodeError::WriteAndExecute);
    }
    let payload = frame | u64::from(perms.bits()) << PARKED_PERMS;
    Ok((flip(payload, inverted) << PAYLOAD_SHIFT) | (TAG_PARKED << 1))
}

/// [`encode`] of `Closing`.
#[inline]
pub(crate) fn closing(node: NodeId, inverted: bool) -> u64 {
    (flip(node.index() as u64, inverted) << PAYLOAD_SHIFT) | (TAG_CLOSING << 1)
}

/// [`encode`] of `Empty`.
#[inline]
pub(crate) fn empty(epoch: Epoch, inverted: bool) -> u64 {
    if epoch == Epoch::ZERO {
        return 0;
    }
    (flip(epoch.get(), inverted) << PAYLOAD_SHIFT) | (TAG_EMPTY << 1)
}

/// The stamp of an empty entry: what [`empty`] has made a word of.
#[inline]
pub(crate) fn empty_in(raw: u64, inverted: bool) -> Option<Epoch> {
    if raw == 0 {
        return Some(Epoch::ZERO);
    }
    let epoch = Epoch::new(flip(raw >> PAYLOAD_SHIFT, inverted))?;
    (raw & 0xff == TAG_EMPTY << 1 && epoch != Epoch::ZERO).then_some(epoch)
}

/// Whether [`empty_in`] returns a stamp of at most `limit`, compared in its stored form.
#[inline(always)]
pub(crate) fn is_empty_since(raw: u64, limit: Epoch, inverted: bool) -> bool {
    let old = if inverted {
        // Zero is stored as it is, and in no other way.
        raw == 0 || (!raw >> PAYLOAD_SHIFT).wrapping_sub(1) < limit.get()
    } else {
        raw >> PAYLOAD_SHIFT <= limit.get()
    };
    old && raw & 0xff == TAG_EMPTY << 1
}

/// The absent state that a word may mean; the caller checks that it encodes as this word.
#[inline]
pub(crate) fn parse(raw: u64, inverted: bool) -> Option<Pte> {
    let payload = flip(raw >> PAYLOAD_SHIFT, inverted);
    if raw == 0 {
        Some(Pte::Empty { epoch: Epoch::ZERO })
    } else if raw & 0xff == TAG_EMPTY << 1 {
        Epoch::new(payload).map(|epoch| Pte::Empty { epoch })
    } else if raw & 0xff == TAG_CLOSING << 1 {
        NodeId::new(payload).map(|node| Pte::Closing { node })
    } else if raw & 0xff == TAG_PARKED << 1 {
        // What does not encode as this word is sorted out by the caller.
        Some(Pte::Parked {
            pa: PhysAddr((payload & PARKED_FRAME) * PAGE_SIZE),
            perms: Perms::from_bits_truncate((payload >> PARKED_PERMS) as u8),
        })
    } else {
        None
    }
}

#[inline]
const fn flip(payload: u64, inverted: bool) -> u64 {
    if inverted {
        !payload & PAYLOAD
    } else {
        payload
    }
}
