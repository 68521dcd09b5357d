//! Capabilities for ranges, and what copies of them may refer to: a part, never more.
//!
//! | type | payload |
//! |---|---|
//! | Memory | first frame, number of frames, 0: [`FrameRange`] |
//! | Frame | first page of the block, number of pages, 0: [`Span`] |
//! | Liveness | first entry of the frame, number of entries, 0: [`Span`] |
//! | ThreadIds | first id, number of ids, 0: [`Span`] |
//!
//! Ranges are not empty and do not run over: those that do, decode to nothing.

use dyad_abi::cap::CapType;
use dyad_abi::service::MAX_THREAD_IDS;
use dyad_shm::frame::FrameRef;

use crate::LIVENESS_ENTRIES;
use crate::error::Refused;

/// Frames that a pool can have.
const POOL_FRAMES: u64 = 1 << 28;
/// Pages that a block of user memory can have: 4 GiB.
const BLOCK_PAGES: u64 = 1 << 20;

/// Numbers below a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    first: u64,
    count: u64,
}

impl Span {
    /// `count` numbers from `first` on, all of them below `limit`; at least one.
    pub const fn new(first: u64, count: u64, limit: u64) -> Option<Span> {
        if count != 0 && first < limit && count <= limit - first {
            Some(Span { first, count })
        } else {
            None
        }
    }

    /// Pages of a block of user memory, from the payload of a Frame capability.
    pub const fn pages(payload: [u64; 3]) -> Option<Span> {
        Span::from_payload(payload, BLOCK_PAGES)
    }

    /// Entries of a liveness frame, from the payload of a Liveness capability.
    pub const fn entries(payload: [u64; 3]) -> Option<Span> {
        Span::from_payload(payload, LIVENESS_ENTRIES)
    }

    /// Ids of threads, from the payload of a ThreadIds capability.
    pub const fn thread_ids(payload: [u64; 3]) -> Option<Span> {
        Span::from_payload(payload, MAX_THREAD_IDS)
    }

    const fn from_payload([first, count, zero]: [u64; 3], limit: u64) -> Option<Span> {
        if zero != 0 {
            return None;
        }
        Span::new(first, count, limit)
    }

    /// Whether the range contains a number.
    pub const fn contains(self, number: u64) -> bool {
        number >= self.first && number - self.first < self.count
    }

    /// The payload.
    pub const fn payload(self) -> [u64; 3] {
        [self.first, self.count, 0]
    }

    /// The first number.
    pub const fn first(self) -> u64 {
        self.first
    }

    /// The number of entries.
    pub const fn count(self) -> u64 {
        self.count
    }

    /// The number at `at`, counted from the first.
    pub const fn get(self, at: u64) -> Option<u64> {
        if at < self.count {
            Some(self.first + at)
        } else {
            None
        }
    }

    /// The part of `count` numbers that begins at `at`, counted from the first. `(0, 0)` is all.
    pub const fn narrow(self, at: u64, count: u64) -> Option<Span> {
        if at == 0 && count == 0 {
            return Some(self);
        }
        match Span::new(at, count, self.count) {
            Some(part) => Some(Span {
                first: self.first + part.first,
                count,
            }),
            None => None,
        }
    }
}

/// Frames of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRange {
    first: FrameRef,
    count: u64,
}

impl FrameRange {
    /// `count` frames from `first` on, if a pool can have them; at least one.
    pub const fn new(first: FrameRef, count: u64) -> Option<FrameRange> {
        match Span::new(first.index(), count, POOL_FRAMES) {
            Some(_) => Some(FrameRange { first, count }),
            None => None,
        }
    }

    /// Decodes the payload of a Memory capability.
    pub const fn from_payload([first, count, zero]: [u64; 3]) -> Option<FrameRange> {
        if zero != 0 || first >> 32 != 0 {
            return None;
        }
        match FrameRef::from_bits(first as u32) {
            Some(first) => FrameRange::new(first, count),
            None => None,
        }
    }

    /// The payload.
    pub const fn payload(self) -> [u64; 3] {
        [self.first.bits() as u64, self.count, 0]
    }

    /// The first frame.
    pub const fn first(self) -> FrameRef {
        self.first
    }

    /// The number of frames.
    pub const fn count(self) -> u64 {
        self.count
    }

    /// The frame at `at`, counted from the first.
    pub const fn get(self, at: u64) -> Option<FrameRef> {
        if at >= self.count {
            return None;
        }
        // Stays in the pool, as the range does: the addition does not reach the pool's bits.
        FrameRef::from_bits(self.first.bits() + at as u32)
    }

    /// The part of `count` frames that begins at `at`, counted from the first. `(0, 0)` is all.
    pub const fn narrow(self, at: u64, count: u64) -> Option<FrameRange> {
        let whole = Span {
            first: 0,
            count: self.count,
        };
        match whole.narrow(at, count) {
            Some(part) => match self.get(part.first) {
                Some(first) => Some(FrameRange {
                    first,
                    count: part.count,
                }),
                None => None,
            },
            None => None,
        }
    }
}

/// The payload of a copy that refers to `count` parts from `at` on of what its source refers to;
/// `(0, 0)` is all, and all there is for types without parts.
///
/// # Errors
///
/// [`Refused::BadRange`]; [`Refused::Corrupt`] if the source's payload is none of its type.
pub fn narrow(ty: CapType, payload: [u64; 3], at: u64, count: u64) -> Result<[u64; 3], Refused> {
    let part = match ty {
        CapType::Memory => FrameRange::from_payload(payload)
            .ok_or(Refused::Corrupt)?
            .narrow(at, count)
            .map(FrameRange::payload),
        CapType::Frame => Span::pages(payload)
            .ok_or(Refused::Corrupt)?
            .narrow(at, count)
            .map(Span::payload),
        CapType::Liveness => Span::entries(payload)
            .ok_or(Refused::Corrupt)?
            .narrow(at, count)
            .map(Span::payload),
        CapType::ThreadIds => Span::thread_ids(payload)
            .ok_or(Refused::Corrupt)?
            .narrow(at, count)
            .map(Span::payload),
        _ => (at == 0 && count == 0).then_some(payload),
    };
    part.ok_or(Refused::BadRange)
}
