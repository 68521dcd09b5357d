//! The contents of a slot besides its state: the words w2 to w7.

use dyad_abi::cap::{CapType, Rights};
use dyad_shm::LayoutHash;
use dyad_shm::frame::{FrameRef, WeakRef};

use crate::LIVENESS_ENTRIES;

const NONE: u64 = Contents::NONE;
const _: () = assert!(FrameRef::from_bits(NONE as u32).is_none());

const ENTRY_SHIFT: u32 = 48;

/// The liveness entry that a capability depends on: it is dead if the frame is no liveness frame of
/// that version any more, or the entry has another count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GuardRef {
    frame: WeakRef,
    entry: u16,
    expected: u64,
}

impl GuardRef {
    /// One past the largest count that can be expected.
    pub const COUNTS: u64 = 1 << ENTRY_SHIFT;

    /// The guard, if a liveness frame has such an entry and the count has room in a slot.
    pub const fn new(frame: WeakRef, entry: u64, expected: u64) -> Option<GuardRef> {
        if entry < LIVENESS_ENTRIES && expected < GuardRef::COUNTS {
            Some(GuardRef {
                frame,
                entry: entry as u16,
                expected,
            })
        } else {
            None
        }
    }

    /// The liveness frame.
    pub const fn frame(self) -> WeakRef {
        self.frame
    }

    /// Index of the entry.
    pub const fn entry(self) -> u64 {
        self.entry as u64
    }

    /// The count at which the capability is alive.
    pub const fn expected(self) -> u64 {
        self.expected
    }
}

/// A capability, as it is written to and read from a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Contents {
    /// The type of the capability.
    pub ty: CapType,
    /// The operations that the capability permits.
    pub rights: Rights,
    /// The object's frame, if there is one.
    pub object: Option<WeakRef>,
    /// The guard of the capability, if it has one.
    pub guard: Option<GuardRef>,
    /// More, by type.
    pub payload: [u64; 3],
}

impl Contents {
    /// The word for no object or no guard. No frame has this number.
    pub const NONE: u64 = u64::MAX;
    /// Words of a slot after the header and the stamp.
    pub const WORDS: usize = 6;

    #[inline]
    pub(crate) const fn words(&self) -> [u64; Contents::WORDS] {
        let object = match self.object {
            Some(weak) => weak.bits(),
            None => NONE,
        };
        let (guard, count) = match self.guard {
            Some(g) => (g.frame.bits(), g.entry() << ENTRY_SHIFT | g.expected),
            None => (NONE, 0),
        };
        let [a, b, c] = self.payload;
        [object, guard, count, a, b, c]
    }

    /// Decodes the words of an ACTIVE slot; `None` if they are malformed (damaged memory).
    #[inline]
    pub(crate) const fn from_words(
        (ty, rights): (CapType, Rights),
        [object, guard, count, a, b, c]: [u64; Contents::WORDS],
    ) -> Option<Contents> {
        let object = if object == NONE {
            None
        } else {
            match WeakRef::from_bits(object) {
                None => return None,
                some => some,
            }
        };
        let guard = if guard == NONE {
            if count != 0 {
                return None;
            }
            None
        } else {
            let Some(frame) = WeakRef::from_bits(guard) else {
                return None;
            };
            let expected = count & (GuardRef::COUNTS - 1);
            match GuardRef::new(frame, count >> ENTRY_SHIFT, expected) {
                None => return None,
                some => some,
            }
        };
        Some(Contents {
            ty,
            rights,
            object,
            guard,
            payload: [a, b, c],
        })
    }
}

/// Adds the words of two capabilities to the layout hash: one with every field other than zero, one
/// with neither object nor guard.
pub(crate) const fn samples(h: LayoutHash) -> LayoutHash {
    let weak = WeakRef::from_bits(1 << 32 | 1);
    let mut sample = Contents {
        ty: CapType::Captbl,
        rights: Rights::NONE,
        object: weak,
        guard: match weak {
            Some(frame) => GuardRef::new(frame, 1, 1),
            None => None,
        },
        payload: [1, 2, 3],
    };
    let h = words(h, &sample);
    (sample.object, sample.guard) = (None, None);
    words(h, &sample)
}

const fn words(h: LayoutHash, sample: &Contents) -> LayoutHash {
    let (words, mut h, mut i) = (sample.words(), h, 0);
    while i < words.len() {
        h = h.word(words[i]);
        i += 1;
    }
    h
}
