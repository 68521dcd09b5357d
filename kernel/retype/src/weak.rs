//! Weak references: they keep nothing alive and one load tells whether they still mean what they
//! meant.

use dyad_coherence::GlobalMem;
use dyad_shm::frame::{FrameRef, Version};

use crate::error::Refused;
use crate::rules::Rules;
use crate::table::FrameTable;
use crate::word::Use;

/// A frame and the version it had.
///
/// A reference that [`check`](FrameTable::check)s can be used until this CPU leaves the kernel,
/// whatever happens to the frame: it is not reused before every node has been quiet.
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

impl<M: GlobalMem + ?Sized, R: Rules> FrameTable<'_, M, R> {
    /// Whether `weak` still refers to a frame used for `wanted`. A frozen frame still is what it
    /// was.
    ///
    /// # Errors
    ///
    /// [`Refused::Stale`] if the frame has changed hands, else why it is not what is wanted.
    pub fn check(&self, weak: WeakRef, wanted: Use) -> Result<(), Refused> {
        let (_, word) = self.word(weak.frame)?;
        if word.version != weak.version {
            return Err(Refused::Stale);
        }
        match word.ty.in_use() {
            Some(used) if used == wanted => Ok(()),
            Some(_) => Err(Refused::WrongType),
            None => Err(Refused::unusable(word.ty)),
        }
    }
}
