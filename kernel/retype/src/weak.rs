//! Weak references: they keep nothing alive and one load tells whether they still mean what they
//! meant. One that [`check`](FrameTable::check)s can be used until this CPU leaves the kernel,
//! whatever happens to the frame: it is not reused before every node has been quiet.

use dyad_coherence::GlobalMem;
use dyad_shm::frame::WeakRef;

use crate::error::Refused;
use crate::rules::Rules;
use crate::table::FrameTable;
use crate::word::Use;

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
