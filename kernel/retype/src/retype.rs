//! The rows `X -> untyped` and `untyped -> Y` of blocks of any size, found by the number of their first frame.

use dyad_abi::user::PAGE_SIZE;
use dyad_coherence::{GlobalMem, Word};
use dyad_shm::frame::{Epoch, FrameRef, Version, WeakRef};
use dyad_shm::protocol::{EpochSource, Intents, Log, Parts};

use crate::error::Refused;
use crate::executed;
use crate::row::{self, GivenUp, Record};
use crate::table::{FrameTable, offset};
use crate::word::{FrameType, FrameWord, Order, Refs, Use};

/// An untyped block that this node has claimed and initialises. It must be finished or abandoned.
#[derive(Debug)]
#[must_use = "the block stays in RETYPING until the claim is finished or abandoned"]
pub struct Claim {
    head: FrameRef,
    version: Version,
    order: Order,
    initialised: u64,
}

impl Claim {
    /// First frame of the block.
    pub const fn head(&self) -> FrameRef {
        self.head
    }

    /// Size of the block.
    pub const fn order(&self) -> Order {
        self.order
    }

    /// The next frame to initialise; `None`: the claim can be finished.
    #[inline]
    pub fn next_frame(&self) -> Option<FrameRef> {
        match self.initialised {
            n if n >= self.order.frames() => None,
            0 => Some(self.head),
            n => offset(self.head, n),
        }
    }

    /// Declares that no frame of the block has been used since the pools were formatted: its stamp is
    /// [`Epoch::ZERO`]. All frames are then zero, and no node has lines of them to drop, so no frame has to
    /// be initialised.
    #[inline]
    pub fn never_used(&mut self) {
        self.initialised = self.order.frames();
    }

    /// Declares that the [next frame](Claim::next_frame) is initialised: writes its contents back, and drops
    /// this node's copies. A node is not asked later to drop lines of frames that it has neither mapped nor
    /// read. Code in the frame is handed on ([`executed`]); that of the head was when the block was claimed.
    ///
    /// # Errors
    ///
    /// [`Refused::Contended`] if other CPUs change the frame's record at each attempt: the frame still has to be done.
    #[inline]
    pub fn frame_done<M: GlobalMem + ?Sized>(
        &mut self,
        table: &FrameTable<'_, M>,
    ) -> Result<(), Refused> {
        if let Some(frame) = self.next_frame() {
            if self.initialised != 0 {
                executed::hand_on(&table.record_of(frame)?.w1())?;
            }
            table.mem.invalidate(frame.address(), PAGE_SIZE);
            self.initialised += 1;
        }
        Ok(())
    }
}

impl<M: GlobalMem + ?Sized> FrameTable<'_, M> {
    #[inline]
    pub(crate) fn owned(&self, version: Version) -> FrameWord {
        FrameWord::new(version, FrameType::Retyping(self.node))
    }

    /// Takes a head from the state `expected` to RETYPING; says in which state it is if not.
    pub(crate) fn take(
        &self,
        head: FrameRef,
        raw: u64,
        version: Version,
    ) -> Result<FrameWord, Refused> {
        let owned = self.owned(version);
        match self.cas(head, raw, owned)? {
            Ok(()) => Ok(owned),
            Err(now) => {
                let word = FrameWord::from_bits(now).ok_or(Refused::Corrupt)?;
                Err(match word.ty {
                    FrameType::Untyped(_) => Refused::Contended,
                    other => Refused::unusable(other),
                })
            }
        }
    }

    /// The row `X -> untyped`: untypes the block that `weak` heads and that has the use `used`. The block can
    /// be claimed once every node has been quiet since the epoch returned.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed, but for [`Refused::Lost`].
    pub fn to_untyped(
        &self,
        weak: WeakRef,
        used: Use,
        epochs: &impl EpochSource,
        intents: &impl Intents,
        log: &impl Log,
    ) -> Result<Epoch, Refused> {
        let record = self.record_of(weak.frame)?;
        let what = GivenUp {
            head: weak,
            raw: record.w0().load(),
            owned: self.owned(weak.version).bits(),
            // Frames of user memory are logged by the rows that unmap them.
            logged: matches!(used, Use::Kernel(_)).then_some(record.at),
        };
        let next = |raw| {
            let word = FrameWord::from_bits(raw).ok_or(Refused::Corrupt)?;
            given_up(word, weak.version, used)
        };
        let services = Parts {
            epochs,
            intents,
            log,
        };
        row::give_up(&record, &what, next, &services)
    }

    /// Logs that a frame is no longer the kernel object that it was. Logged are the frame's word, by which
    /// other CPUs check weak references, and the object's lines.
    pub(crate) fn log_given_up(&self, frame: FrameRef, log: &impl Log) -> Result<(), Refused> {
        log.line(self.record(frame)?);
        log.object(frame);
        Ok(())
    }

    /// First half of the row `untyped -> Y`: takes the untyped block that starts at `head`. With
    /// `version`, only if the block still has it.
    ///
    /// The caller gives every frame its contents ([`Claim::next_frame`], [`Claim::frame_done`]),
    /// and then [finishes](FrameTable::from_untyped_finish) or
    /// [abandons](FrameTable::from_untyped_abandon) the claim.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    pub fn from_untyped_begin(
        &self,
        head: FrameRef,
        version: Option<Version>,
        epochs: &impl EpochSource,
        intents: &impl Intents,
    ) -> Result<Claim, Refused> {
        let record = self.record_of(head)?;
        let raw = record.w0().load();
        let word = FrameWord::from_bits(raw).ok_or(Refused::Corrupt)?;
        let FrameType::Untyped(order) = word.ty else {
            return Err(Refused::unusable(word.ty));
        };
        if version.is_some_and(|v| v != word.version) {
            return Err(Refused::Stale);
        }
        let owned = self.owned(word.version).bits();
        row::claim(&record, head, raw, owned, epochs, intents)?;
        Ok(Claim {
            head,
            version: word.version,
            order,
            initialised: 0,
        })
    }

    /// Second half of the row `untyped -> Y`: the block is in use from now on.
    ///
    /// # Errors
    ///
    /// [`Refused::Unfinished`] and, for kernel objects, [`Refused::WrongOrder`]: the claim has
    /// been abandoned. [`Refused::Lost`].
    #[inline]
    pub fn from_untyped_finish(
        &self,
        claim: Claim,
        used: Use,
        intents: &impl Intents,
    ) -> Result<WeakRef, Refused> {
        let ty = match used {
            Use::User => FrameType::User(claim.order),
            Use::Kernel(kind) => FrameType::Kernel(kind),
        };
        let why = if claim.next_frame().is_some() {
            Some(Refused::Unfinished)
        } else if matches!(used, Use::Kernel(_)) && claim.order != Order::FRAME {
            Some(Refused::WrongOrder)
        } else {
            None
        };
        if let Some(why) = why {
            self.from_untyped_abandon(claim, intents)?;
            return Err(why);
        }
        self.finish(&claim, FrameWord::new(claim.version, ty), intents)?;
        Ok(WeakRef {
            frame: claim.head,
            version: claim.version,
        })
    }

    /// Returns a claimed block to untyped, whatever its contents. It needs no new stamp, because no reference
    /// to it can exist since it was claimed. This node's stores to the current frame are written back first:
    /// later they would undo stores of the next user.
    ///
    /// # Errors
    ///
    /// [`Refused::Lost`].
    pub fn from_untyped_abandon(
        &self,
        claim: Claim,
        intents: &impl Intents,
    ) -> Result<(), Refused> {
        if let Some(frame) = claim.next_frame() {
            self.mem.invalidate(frame.address(), PAGE_SIZE);
        }
        let again = FrameWord::given_up(claim.version, claim.order);
        self.finish(&claim, again, intents)
    }

    fn finish(&self, claim: &Claim, to: FrameWord, intents: &impl Intents) -> Result<(), Refused> {
        let words = (self.owned(claim.version).bits(), to.bits());
        row::finish(&self.record_of(claim.head)?, words, intents)
    }
}

/// The next word of a block that may be untyped.
fn given_up(word: FrameWord, version: Version, used: Use) -> Result<u64, Refused> {
    match word.ty {
        FrameType::Reserved | FrameType::Retired => return Err(Refused::unusable(word.ty)),
        _ if word.version != version => return Err(Refused::Stale),
        FrameType::User(_) | FrameType::Kernel(_) if word.ty.in_use() == Some(used) => {}
        other => return Err(Refused::unusable(other)),
    }
    if !lacks!("retype::given_up::references") && word.refs != Refs::ZERO {
        return Err(Refused::InUse);
    }
    let order = match word.ty {
        FrameType::User(order) => order,
        _ => Order::FRAME,
    };
    let next = if lacks!("retype::given_up::version") {
        FrameWord::new(version, FrameType::Untyped(order))
    } else {
        FrameWord::given_up(version, order)
    };
    Ok(next.bits())
}
