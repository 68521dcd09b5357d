//! Frame records: one [`FrameEntry`] per 4 KiB frame of every pool.
//!
//! ```text
//! w0 = version:32 | type:3 | kind:5 | refs:24      (type, version and references change in one CAS)
//! w1 = asked:8 | epoch:48 | executed_on:8           (bits n: what node n may hold translations of)
//! ```
//!
//! TCG notices self-modifying code only for stores of its own machine, so code that another
//! machine writes into a frame leaves stale translations behind. The `executed_on` bits say who
//! may hold some; see [`FrameEntry::w1`].

use core::sync::atomic::AtomicU64;

use dyad_abi::NodeId;
use dyad_abi::user::PAGE_SIZE;

use crate::map::Shared;
use crate::pool::{PhysAddr, PoolId};

/// A frame, by pool and index: 4 bits of pool, 28 bits of frame number. Fits the weak references
/// `{FrameRef, version}` of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct FrameRef(u32);

const PAGE_BITS: u32 = PAGE_SIZE.trailing_zeros();

impl FrameRef {
    const INDEX_BITS: u32 = 28;

    /// The frame that contains `pa`, if `pa` can be in a pool.
    pub const fn of(pa: PhysAddr) -> Option<FrameRef> {
        let Some(pool) = PoolId::of(pa) else {
            return None;
        };
        let index = (pa.0 - pool.base().0) / PAGE_SIZE;
        if index >> FrameRef::INDEX_BITS != 0 {
            return None;
        }
        Some(FrameRef(
            (pool.index() as u32) << FrameRef::INDEX_BITS | index as u32,
        ))
    }

    /// Start of the frame.
    #[inline]
    pub const fn address(self) -> PhysAddr {
        self.pool().base().add(self.index() << PAGE_BITS)
    }

    /// The pool the frame is in.
    #[inline]
    pub const fn pool(self) -> PoolId {
        match NodeId::new((self.0 >> FrameRef::INDEX_BITS) as u64) {
            Some(n) => PoolId::Local(n),
            None => PoolId::Cxl,
        }
    }

    /// Index of the frame within its pool.
    pub const fn index(self) -> u64 {
        (self.0 & ((1 << FrameRef::INDEX_BITS) - 1)) as u64
    }

    /// The number stored in shared words.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The frame with this number, if its pool exists.
    pub const fn from_bits(bits: u32) -> Option<FrameRef> {
        if (bits >> FrameRef::INDEX_BITS) as usize <= PoolId::Cxl.index() {
            Some(FrameRef(bits))
        } else {
            None
        }
    }
}

/// A value of the shared epoch word, or a stamp taken from it: 48 bits, as many as a publication
/// word has room for. At a thousand rounds a second they last 8,900 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Epoch(u64);

impl Epoch {
    /// Bits of an epoch.
    pub const BITS: u32 = 48;
    /// The epoch before every epoch of a running system.
    pub const ZERO: Epoch = Epoch(0);
    /// The last epoch. No node publishes a later one, so a frame or slot with this stamp is not reused while
    /// any node is awake.
    pub const MAX: Epoch = Epoch((1 << Epoch::BITS) - 1);

    /// The epoch with this number, if it has one.
    pub const fn new(n: u64) -> Option<Epoch> {
        if n >> Epoch::BITS == 0 {
            Some(Epoch(n))
        } else {
            None
        }
    }

    /// The epoch with this number, or [`Epoch::MAX`] for numbers beyond it: a stamp from damaged
    /// memory then blocks reuse instead of allowing it.
    pub const fn saturating(n: u64) -> Epoch {
        match Epoch::new(n) {
            Some(e) => e,
            None => Epoch::MAX,
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A count of the uses of a frame: a reference to an older version is dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Version(pub u32);

impl Version {
    /// The last version. There is none after it: see the RETIRED state of frames.
    pub const MAX: Version = Version(u32::MAX);

    /// The version after this one.
    pub const fn next(self) -> Option<Version> {
        match self.0.checked_add(1) {
            Some(v) => Some(Version(v)),
            None => None,
        }
    }
}

/// A frame and its version at one time: a reference that keeps nothing alive, and that one load checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WeakRef {
    /// The frame.
    pub frame: FrameRef,
    /// The version of the frame at which the reference is good.
    pub version: Version,
}

impl WeakRef {
    /// The number stored in shared words: `version:32 | frame:32`.
    pub const fn bits(self) -> u64 {
        (self.version.0 as u64) << 32 | self.frame.bits() as u64
    }

    /// The reference for a number that [`bits`](WeakRef::bits) has returned. For any other number the
    /// reference is to nothing.
    #[inline(always)]
    pub const fn from_checked(w: u64) -> WeakRef {
        WeakRef {
            frame: FrameRef(w as u32),
            version: Version((w >> 32) as u32),
        }
    }

    /// The reference with this number, if the pool of its frame can exist.
    pub const fn from_bits(w: u64) -> Option<WeakRef> {
        match FrameRef::from_bits(w as u32) {
            Some(frame) => Some(WeakRef {
                frame,
                version: Version((w >> 32) as u32),
            }),
            None => None,
        }
    }
}

/// The shared record of one frame.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub struct FrameEntry {
    /// Version, type, kind and reference count.
    pub w0: AtomicU64,
    /// Epoch stamp, and the bit set of nodes that may hold translations of code in this frame. Such a node must
    /// store to every word of the frame itself before it may execute new contents.
    pub w1: AtomicU64,
}

// SAFETY: 1. only atomic words; 2. every bit pattern is a value of them; 3. no pointers.
unsafe impl Shared for FrameEntry {}

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_abi::boot::CXL_BASE;

    #[test]
    fn references_round_trip() {
        for pa in [
            0x4_0000_0000,
            0x8_0000_3000,
            0x20_0000_1000,
            CXL_BASE,
            CXL_BASE + 0x7f_ffff_f000,
        ] {
            let r = FrameRef::of(PhysAddr(pa)).unwrap();
            assert_eq!(r.address(), PhysAddr(pa));
            assert_eq!(FrameRef::from_bits(r.bits()), Some(r));
        }
        assert_eq!(FrameRef::of(PhysAddr(0x1000)), None);
        assert_eq!(FrameRef::from_bits(9 << 28), None);
        assert_eq!(WeakRef::from_bits(9 << 28), None, "no such pool");
    }

    #[test]
    fn epochs_and_versions_end_where_their_fields_end() {
        assert_eq!(Epoch::new(Epoch::MAX.get()), Some(Epoch::MAX));
        assert_eq!(Epoch::new(Epoch::MAX.get() + 1), None);
        assert_eq!(Epoch::saturating(u64::MAX), Epoch::MAX);
        assert_eq!(Version(7).next(), Some(Version(8)));
        assert_eq!(Version::MAX.next(), None);
    }
}
