//! Weak references: they keep nothing alive, and one load checks whether they are still valid. A reference
//! that [`check`](FrameTable::check) accepts can be used until this CPU leaves the kernel, whatever happens
//! to the frame: it is not reused before every node has been quiet.

use core::sync::atomic::Ordering;

use dyad_coherence::GlobalMem;
use dyad_shm::frame::WeakRef;
use dyad_shm::permitted::Permitted;

use crate::error::Refused;
use crate::table::FrameTable;
use crate::word::{FrameType, FrameWord, KernelKind, Refs, Use};

impl<M: GlobalMem + ?Sized> FrameTable<'_, M> {
    /// Whether `object` still is a kernel object of this kind: the check of every use of a capability. It is
    /// one load of this node's copy. Where caches are not coherent, an object that another node has untyped
    /// may pass until this node's next round, and is not reused before.
    #[inline]
    pub fn is_object(&self, object: WeakRef, kind: KernelKind) -> bool {
        let Some(at) = self.record_at(object.frame) else {
            return false;
        };
        let raw = (self.mem).load_permitted::<{ Permitted::Object as u32 }>(at, Ordering::Acquire);
        self.is_object_by(raw, object, kind)
    }

    /// Whether `object` still is a kernel object of this kind, by the word of its frame, which the caller has
    /// read.
    #[inline]
    pub fn is_object_by(&self, raw: u64, object: WeakRef, kind: KernelKind) -> bool {
        let wanted = FrameWord::new(object.version, FrameType::Kernel(kind)).bits();
        // References are the lowest bits. What is frozen still is what it was.
        (raw ^ wanted) >> Refs::BITS == 0 || self.check(object, Use::Kernel(kind)).is_ok()
    }

    /// Whether `weak` still refers to a frame used for `wanted`. A frozen frame counts as in use.
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
