//! Walks over the objects of all pools, a piece at a time: a walk may stop in the middle of an object.

use dyad_audit::scan::{Cursor, Next};
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_retype::{FrameType, FrameWord, KernelKind, Use};
use dyad_shm::frame::WeakRef;

use crate::budget::{self, Budget};

/// A walk over all objects, which may be in the middle of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    cursor: Cursor,
    /// The current object, its kind, and how far it has been processed.
    pub(crate) within: Option<(WeakRef, KernelKind, usize)>,
}

impl Walk {
    /// A walk that has not begun.
    pub(crate) const START: Walk = Walk {
        cursor: Cursor::START,
        within: None,
    };

    /// The object to process now, and the position in it. An object that has been given up since the last
    /// piece is left out.
    pub(crate) fn next(
        &mut self,
        cx: &KernelCtx,
        budget: &mut Budget,
        wanted: impl Fn(KernelKind) -> bool,
    ) -> Walked {
        if let Some((object, kind, from)) = self.within.take()
            && is_still(cx, object, kind)
        {
            return Walked::Object(object, kind, from);
        }
        next_object(cx, &mut self.cursor, budget, wanted)
    }
}

/// The result of a step of a walk over objects.
pub(crate) enum Walked {
    /// An object, its kind, and the position from which it is to be processed.
    Object(WeakRef, KernelKind, usize),
    /// No object yet: the budget is used up.
    Working,
    /// The end.
    End,
}

/// The next object of a kind that is wanted.
pub(crate) fn next_object(
    cx: &KernelCtx,
    cursor: &mut Cursor,
    budget: &mut Budget,
    wanted: impl Fn(KernelKind) -> bool,
) -> Walked {
    let given = budget.affords(budget::RECORD) as u32;
    let mut records = given;
    let is_wanted = |word: &FrameWord| matches!(object_kind(word.ty), Some(kind) if wanted(kind));
    let walked = loop {
        match cursor.next_that(cx.node, &mut records, is_wanted) {
            Next::Block(frame, word) => {
                if let Some(kind) = object_kind(word.ty) {
                    let version = word.version;
                    break Walked::Object(WeakRef { frame, version }, kind, 0);
                }
            }
            Next::Damaged(_) => {}
            Next::Working => break Walked::Working,
            Next::End => break Walked::End,
        }
    };
    budget.spend(u64::from(given - records) * budget::RECORD);
    walked
}

/// The kind of object in a frame of a type, including frozen ones.
const fn object_kind(ty: FrameType) -> Option<KernelKind> {
    match ty {
        FrameType::Kernel(kind) | FrameType::Frozen(Use::Kernel(kind)) => Some(kind),
        _ => None,
    }
}

/// Whether an object still exists that a walk has reached.
pub(crate) fn is_still(cx: &KernelCtx, object: WeakRef, kind: KernelKind) -> bool {
    let now = cx.frames().read(object.frame);
    now.is_ok_and(|(word, _)| object_kind(word.ty) == Some(kind) && word.version == object.version)
}
