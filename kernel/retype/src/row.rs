//! The rows `X -> untyped`, `untyped -> Y` and pin, on the record of a block's head, independently of how the
//! caller finds the record.
//!
//! | row | word of the head | steps, in order |
//! |---|---|---|
//! | [`give_up`] | X, no references -> RETYPING -> UNTYPED, next version | intent; CAS; log the object and its word; fence, load E; stamp; CAS; intent cleared |
//! | [`pin`] | X, n references -> X, n + 1 | CAS: type, version, room for one more: one word decides, nothing can change between check and use |
//! | [`unpin`] | X, n references -> X, n - 1 | add |
//! | [`claim`] | UNTYPED -> RETYPING | load the stamp; quiesced; intent; CAS of the whole word |
//! | [`finish`] | RETYPING -> Y, or UNTYPED, next version | CAS; intent cleared |
//!
//! | instantiation | record | used by |
//! |---|---|---|
//! | [`FrameTable`](crate::FrameTable) | found by the number of the frame, words of any memory ([`RecordAt`]) | operations, page faults, recovery; blocks of any size |
//! | fast path of Memory capabilities | remembered, coherent caches | [`retype`], [`give_up_frame`] of one frame, pins of pages and tables |
//!
//! Words are compared as they are: the caller says which word a row starts from and which it leaves behind
//! ([`plain`]).

use dyad_coherence::{GlobalMem, Word, WordAt};
use dyad_shm::frame::{Epoch, FrameRef, WeakRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::pool::PhysAddr;
use dyad_shm::protocol::{EpochSource, Intents, Services};

use crate::error::Refused;
use crate::plain;
use crate::table::W1_OFFSET;
use crate::word::{FrameType, FrameWord, Refs};
use crate::{TRIES, executed};

/// The record of one frame.
pub trait Record {
    /// The first word of the record: version, type and references.
    fn w0(&self) -> impl Word;

    /// The second word of the record: the stamp.
    fn w1(&self) -> impl Word;
}

/// The record at an address.
#[derive(Debug)]
pub struct RecordAt<'m, M: ?Sized> {
    pub(crate) mem: &'m M,
    pub(crate) at: PhysAddr,
}

impl<M: GlobalMem + ?Sized> Record for RecordAt<'_, M> {
    #[inline]
    fn w0(&self) -> impl Word {
        let (mem, at) = (self.mem, self.at);
        WordAt { mem, at }
    }

    #[inline]
    fn w1(&self) -> impl Word {
        let (mem, at) = (self.mem, self.at.add(W1_OFFSET));
        WordAt { mem, at }
    }
}

/// The reason why a word is not the one that a row starts from.
#[cold]
fn instead(now: u64) -> Refused {
    match FrameWord::from_bits(now).map(|w| w.ty) {
        None => Refused::Corrupt,
        Some(FrameType::Untyped(_)) => Refused::Contended,
        Some(other) => Refused::unusable(other),
    }
}

/// The row pin: one more reference, as long as the word is `value` but for its references. `raw` is the word as the caller
/// has found it.
///
/// # Errors
///
/// The word that is there instead; one that is `value` but for its references has no room for one more, or others are
/// always faster.
#[inline(always)]
pub fn pin(word: &impl Word, raw: u64, value: u64) -> Result<(), u64> {
    if !pinnable(raw, value) {
        return Err(raw);
    }
    match word.replace(raw, raw + 1) {
        Ok(_) => Ok(()),
        Err(now) => pin_again(*word, now, value),
    }
}

/// Others have pinned or unpinned it meanwhile, or changed it.
#[cold]
fn pin_again(word: impl Word, mut raw: u64, value: u64) -> Result<(), u64> {
    for _ in 1..TRIES {
        if !pinnable(raw, value) {
            break;
        }
        let more = raw + 1;
        match word.replace(raw, more) {
            Ok(_) => return Ok(()),
            Err(now) => raw = now,
        }
    }
    Err(raw)
}

/// Whether a word is `value` but for its references, and has room for one more.
#[inline(always)]
pub fn pinnable(raw: u64, value: u64) -> bool {
    // Less than the most references above a word that has none: one comparison for both.
    let most = Refs::MAX.get() as u64 + u64::from(lacks!("row::pinnable::room"));
    raw.wrapping_sub(value) < most
}

/// Whether a word is `value`, whatever its references are.
#[inline(always)]
pub fn is_but_for_references(raw: u64, value: u64) -> bool {
    raw.wrapping_sub(value) <= Refs::MAX.get() as u64
}

/// Gives a reference back that the caller has: its own keeps the count above zero, so that one step is enough. `false` is
/// damage: the record shows that the caller cannot have one, and nothing has changed.
#[inline(always)]
pub fn unpin(word: &impl Word) -> bool {
    let has = word.add(u64::MAX) & Refs::MAX.get() as u64 != 0;
    if !has {
        // The count must not run into the fields above it.
        word.add(1);
    }
    has
}

/// Replaces the word of a frame that this node holds in RETYPING.
#[inline(always)]
pub(crate) fn publish(record: &impl Record, owned: u64, new: u64) -> Result<(), Refused> {
    // Only a recovering node can have changed the word in between.
    record
        .w0()
        .replace(owned, new)
        .map(drop)
        .map_err(|_| Refused::Lost)
}

/// Makes the stamp of a frame at least `epoch`, and keeps the bits of the nodes that have executed the frame.
#[inline(always)]
pub(crate) fn stamp(record: &impl Record, epoch: Epoch) -> Result<(), Refused> {
    let (w1, raw) = (record.w1(), record.w1().load());
    let Some(new) = plain::stamped(raw, epoch) else {
        return Ok(());
    };
    match w1.replace(raw, new) {
        Ok(_) => Ok(()),
        Err(now) => stamp_again(w1, now, epoch),
    }
}

/// Retries the stamp after another node has recorded that it has executed the frame.
#[cold]
fn stamp_again(w1: impl Word, mut raw: u64, epoch: Epoch) -> Result<(), Refused> {
    for _ in 1..TRIES {
        let Some(new) = plain::stamped(raw, epoch) else {
            return Ok(());
        };
        match w1.replace(raw, new) {
            Ok(_) => return Ok(()),
            Err(now) => raw = now,
        }
    }
    Err(Refused::Contended)
}

/// A block that is to be untyped.
#[derive(Clone, Copy, Debug)]
pub struct GivenUp {
    /// The head of the block.
    pub head: WeakRef,
    /// The head's word, as the caller has found it.
    pub raw: u64,
    /// The head's word while this node holds the block ([`plain::retyping`]).
    pub owned: u64,
    /// The address of the record, if other nodes may hold copies of it and of the block: for kernel objects
    /// where caches are not coherent. (User memory is logged by the rows that unmap it.)
    pub logged: Option<PhysAddr>,
}

/// The row `X -> untyped`. `next` computes the next word of a block, or the reason why it may not be untyped.
/// The block can be claimed once every node has been quiet since the epoch returned.
///
/// # Errors
///
/// As `next`; [`Refused::Contended`]; nothing has changed. [`Refused::Lost`].
#[inline(always)]
pub fn give_up(
    record: &impl Record,
    what: &GivenUp,
    next: impl Fn(u64) -> Result<u64, Refused>,
    services: &impl Services,
) -> Result<Epoch, Refused> {
    let (frame, version) = (what.head.frame, what.head.version);
    services.begin(&IntentRecord::frame(Row::ToUntyped, frame, version));
    let done = unpublish(record, what, next, services);
    services.clear();
    done
}

/// The row `X -> untyped` of one frame, where caches are coherent: for user memory, or an object of one of
/// these kinds (bits by number). `retyping` is the low half of its word while this node holds it
/// ([`plain::retyping`]).
///
/// # Errors
///
/// As [`give_up`]; [`Refused::InUse`] for whatever else the frame is.
#[inline(always)]
pub fn give_up_frame(
    record: &impl Record,
    frame: FrameRef,
    retyping: u64,
    kinds: u32,
    services: &impl Services,
) -> Result<Epoch, Refused> {
    let raw = record.w0().load();
    let version = plain::version_number(raw);
    let what = GivenUp {
        head: WeakRef { frame, version },
        raw,
        owned: plain::version(raw) | retyping,
        logged: None,
    };
    let next = |raw| plain::given_up(raw, kinds).ok_or(Refused::InUse);
    give_up(record, &what, next, services)
}

#[inline(always)]
fn unpublish(
    record: &impl Record,
    what: &GivenUp,
    next: impl Fn(u64) -> Result<u64, Refused>,
    services: &impl Services,
) -> Result<Epoch, Refused> {
    let log = |now: bool| {
        if let Some(at) = what.logged
            && now
            && !lacks!("row::give_up::log")
        {
            // The word, by which others check weak references, and the lines of the object.
            services.line(at);
            services.object(what.head.frame);
        }
    };
    let after_cas = !lacks!("row::give_up::log-after-cas");
    let before_stamp = !lacks!("row::give_up::log-before-stamp");
    let early = lacks!("row::give_up::stamp-after-cas").then(|| services.now());
    log(!after_cas);
    let (from, to) = take(record, what, next)?;
    log(after_cas && before_stamp);
    let now = early.unwrap_or_else(|| services.now());
    log(!before_stamp);
    if !lacks!("row::give_up::stamp")
        && let Err(why) = stamp(record, now)
    {
        publish(record, what.owned, from)?;
        return Err(why);
    }
    publish(record, what.owned, to)?;
    Ok(now)
}

/// Changes a block to RETYPING. Returns its previous word, and the word that it will get.
#[inline(always)]
fn take(
    record: &impl Record,
    what: &GivenUp,
    next: impl Fn(u64) -> Result<u64, Refused>,
) -> Result<(u64, u64), Refused> {
    let to = next(what.raw)?;
    match record.w0().replace(what.raw, what.owned) {
        Ok(_) => Ok((what.raw, to)),
        Err(now) => take_again(record.w0(), *what, now, next),
    }
}

/// Retries [`take`] after references have changed, or refuses a word of another state.
#[cold]
fn take_again(
    word: impl Word,
    what: GivenUp,
    mut raw: u64,
    next: impl Fn(u64) -> Result<u64, Refused>,
) -> Result<(u64, u64), Refused> {
    for _ in 1..TRIES {
        if plain::version(raw) != plain::version(what.raw) && !lacks!("row::take_again::version") {
            return Err(Refused::Stale);
        }
        let to = next(raw)?;
        match word.replace(raw, what.owned) {
            Ok(_) => return Ok((raw, to)),
            Err(now) => raw = now,
        }
    }
    Err(Refused::Contended)
}

/// First half of the row `untyped -> Y`: changes the untyped block whose head has the word `raw` to RETYPING,
/// which is `owned` with the version of `raw`. The intent stays. Returns the epoch at which the block was
/// untyped: [`Epoch::ZERO`] if it has never been used.
///
/// # Errors
///
/// [`Refused::NotQuiesced`]; or, if the word has changed, the reason why the frame cannot be claimed now.
/// Nothing has changed, and there is no intent.
#[inline(always)]
pub fn claim(
    record: &impl Record,
    head: FrameRef,
    raw: u64,
    owned: u64,
    epochs: &impl EpochSource,
    intents: &impl Intents,
) -> Result<Epoch, Refused> {
    // After the word: a stamp that comes later comes with another word, and the CAS fails.
    let w1 = record.w1().load();
    let stamp = plain::stamp(w1);
    if !lacks!("row::claim::stamp") && !epochs.quiesced(stamp) {
        return Err(Refused::NotQuiesced);
    }
    let (raw, owned) = match lacks!("row::claim::whole-word") {
        true => {
            let now = record.w0().load();
            (now, plain::version(now) | plain::low(owned))
        }
        false => (raw, owned),
    };
    let version = plain::version_number(raw);
    intents.begin(&IntentRecord::frame(Row::FromUntyped, head, version));
    match record.w0().replace(raw, owned) {
        Ok(_) => {
            if executed::is_noted(w1)
                && let Err(why) = executed::hand_on(&record.w1())
            {
                let again = plain::abandoned(raw);
                finish(record, (owned, again), intents)?;
                return Err(why);
            }
            Ok(stamp)
        }
        Err(now) => {
            intents.clear();
            Err(instead(now))
        }
    }
}

/// Second half of the row `untyped -> Y`: the block gets the word `to`, whether it is in use with that or untyped again.
///
/// # Errors
///
/// [`Refused::Lost`].
#[inline(always)]
pub fn finish(
    record: &impl Record,
    (owned, to): (u64, u64),
    intents: &impl Intents,
) -> Result<(), Refused> {
    let done = publish(record, owned, to);
    intents.clear();
    done
}

/// The row `untyped -> Y` of one frame that is a block of its own. `retyping` and `used` are the low halves
/// of its word while this node holds it ([`plain::retyping`]) and afterwards ([`plain::used`]). `zero` fills
/// the frame with zeros, in memory, and keeps no copy of it; it is not called if the frame has never been
/// used.
///
/// # Errors
///
/// As [`claim`]; [`Refused::NoFrame`] if `zero` says no: the frame is untyped again then.
#[inline(always)]
pub fn retype(
    record: &impl Record,
    frame: FrameRef,
    (retyping, used): (u64, u64),
    zero: impl FnOnce() -> bool,
    services: &impl Services,
) -> Result<WeakRef, Refused> {
    let raw = record.w0().load();
    if !plain::is(raw, plain::UNTYPED) {
        return Err(instead(raw));
    }
    let version = plain::version(raw);
    let owned = version | retyping;
    let stamp = claim(record, frame, raw, owned, services, services)?;
    if stamp == Epoch::ZERO || lacks!("row::retype::zero") || zero() {
        finish(record, (owned, version | used), services)?;
        let version = plain::version_number(raw);
        return Ok(WeakRef { frame, version });
    }
    let again = plain::abandoned(raw);
    finish(record, (owned, again), services)?;
    Err(Refused::NoFrame)
}
