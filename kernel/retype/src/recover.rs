//! Recovery of the frames of a dead node: the row `recover`.
//!
//! ```text
//! per intent of the dead node
//!   to_untyped, from_untyped, split, merge:  recover_frame
//!   map, unmap, cons, decons:  freeze frame and table; a round of all live nodes; entries; recount; unfreeze
//! ```
//!
//! Every step can be repeated by the recoverer of a recoverer that has died. **There is one
//! recoverer at a time in the whole system**, one CPU of one node, whichever nodes have died:
//!
//! | two at once | what happens |
//! |---|---|
//! | [`recover_frame`](FrameTable::recover_frame) | the faster one ends, the dead node comes back and claims the frame again; an intent that was written before its compare-and-swap names the version that the frame still has, so the slower one takes it from a node that lives |
//! | freeze to unfreeze | the word does not say who has frozen a frame: the slower one sets a count that was true before the faster one let new references in |

use dyad_abi::NodeId;
use dyad_coherence::GlobalMem;
use dyad_shm::frame::{FrameRef, WeakRef};
use dyad_shm::protocol::{EpochSource, Log};

use crate::TRIES;
use crate::error::Refused;
use crate::table::FrameTable;
use crate::word::{FrameType, FrameWord, Refs, Use};

impl<M: GlobalMem + ?Sized> FrameTable<'_, M> {
    /// Untypes a block on behalf of the node that died while it was changing it. `intent` is the frame in the
    /// node's intent record. Returns `false` if the node was not changing the block any more, or a recoverer
    /// that has died has recovered it.
    ///
    /// The frame is logged in each case: the node may have come past its change, and not to its
    /// log.
    ///
    /// # Errors
    ///
    /// [`Refused::NoFrame`]; [`Refused::Corrupt`]; [`Refused::Contended`]: try again.
    pub fn recover_frame(
        &self,
        intent: WeakRef,
        dead: NodeId,
        epochs: &impl EpochSource,
        log: &impl Log,
    ) -> Result<bool, Refused> {
        let head = intent.frame;
        let (raw, word) = self.word(head)?;
        if !lacks!("recover::retyping::log") {
            self.log_given_up(head, log)?;
        }
        if word.ty != FrameType::Retyping(dead)
            || !lacks!("recover::retyping::version") && word.version != intent.version
        {
            return Ok(false);
        }
        // No other CPU splits or merges this block; if another node recovers it first, the CAS fails.
        let order = self.order_by_tails(head);
        if !lacks!("recover::retyping::stamp") {
            self.stamp(head, epochs.now())?;
        }
        let after = if !lacks!("recover::retyping::next-version") {
            FrameWord::given_up(word.version, order)
        } else {
            FrameWord::new(word.version, FrameType::Untyped(order))
        };
        Ok(self.cas(head, raw, after)?.is_ok())
    }

    /// Stops new references to the block around `frame`; those that are being given back still
    /// are, by rows that [have asked](FrameTable::may_unpin) before. Returns what the block is used
    /// for. What follows sees the intents of those rows.
    ///
    /// # Errors
    ///
    /// Why not: the block is not in use, or has been contended ([`Refused::Contended`]).
    pub fn freeze(&self, frame: FrameRef) -> Result<Use, Refused> {
        let (head, _, _) = self.find_head(frame)?;
        let used = self.change(head, |word| match (word.ty, word.ty.in_use()) {
            (FrameType::Frozen(was), _) => Ok((None, was)),
            (_, Some(used)) => Ok((
                Some(FrameWord {
                    ty: FrameType::Frozen(used),
                    ..word
                }),
                used,
            )),
            (other, None) => Err(Refused::unusable(other)),
        })?;
        self.mem.fence();
        Ok(used)
    }

    /// Sets the reference count of a frozen block to `counted`, the number of references found after every
    /// live node has been quiet since the block was frozen.
    ///
    /// # Errors
    ///
    /// [`Refused::WrongType`] if the block is not frozen; otherwise the reason why the frame cannot be
    /// changed.
    pub fn recount(&self, frame: FrameRef, counted: Refs) -> Result<(), Refused> {
        let (head, _, _) = self.find_head(frame)?;
        self.change(head, |word| match word.ty {
            FrameType::Frozen(_) => Ok((
                Some(FrameWord {
                    refs: counted,
                    ..word
                }),
                (),
            )),
            _ => Err(Refused::WrongType),
        })
    }

    /// Recounts like [`recount`](FrameTable::recount), but only if the block still has the references that it
    /// had before they were counted. Returns `false` if some have been removed meanwhile, and must be counted
    /// again. No references are added to a frozen block, so an equal number means the same references.
    ///
    /// # Errors
    ///
    /// As [`recount`](FrameTable::recount).
    pub fn recount_from(
        &self,
        frame: FrameRef,
        before: Refs,
        counted: Refs,
    ) -> Result<bool, Refused> {
        let (head, _, _) = self.find_head(frame)?;
        self.change(head, |word| match word.ty {
            FrameType::Frozen(_) if word.refs == before => Ok((
                Some(FrameWord {
                    refs: counted,
                    ..word
                }),
                true,
            )),
            FrameType::Frozen(_) => Ok((None, false)),
            _ => Err(Refused::WrongType),
        })
    }

    /// Unfreezes a block: it gets its earlier state back. Has no effect on a block that is in use already.
    ///
    /// # Errors
    ///
    /// Why not: the block is not in use, or has been contended ([`Refused::Contended`]).
    pub fn unfreeze(&self, frame: FrameRef) -> Result<(), Refused> {
        let (head, _, _) = self.find_head(frame)?;
        self.change(head, |word| match word.ty {
            FrameType::Frozen(was) => {
                let ty = match was {
                    // Tails do not change while their block is in use.
                    Use::User => FrameType::User(self.order_by_tails(head)),
                    Use::Kernel(kind) => FrameType::Kernel(kind),
                };
                Ok((Some(FrameWord { ty, ..word }), ()))
            }
            FrameType::User(_) | FrameType::Kernel(_) => Ok((None, ())),
            other => Err(Refused::unusable(other)),
        })
    }

    /// Replaces a head's word by what `f` makes of it, if anything.
    fn change<T>(
        &self,
        head: FrameRef,
        f: impl Fn(FrameWord) -> Result<(Option<FrameWord>, T), Refused>,
    ) -> Result<T, Refused> {
        let (mut raw, mut word) = self.word(head)?;
        for _ in 0..TRIES {
            let (new, result) = f(word)?;
            let Some(new) = new else {
                return Ok(result);
            };
            match self.cas(head, raw, new)? {
                Ok(()) => return Ok(result),
                Err(now) => {
                    raw = now;
                    word = FrameWord::from_bits(now).ok_or(Refused::Corrupt)?;
                }
            }
        }
        Err(Refused::Contended)
    }
}
