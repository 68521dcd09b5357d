//! Code in a frame: which nodes may hold translations of it, and which of them have been asked to drop them.
//!
//! The second word of a record has two bits for each node, *executed* and *asked*:
//!
//! | executed | asked | state | meaning |
//! |---|---|---|---|
//! | 0 | 0 | clean | the node has never executed the frame |
//! | 1 | 0 | executed | the node may hold translations of what is or was in the frame |
//! | 1 | 1 | asked | as before, and the node is to rewrite the frame |
//! | 0 | 1 | rewritten | the node has rewritten the frame since it was asked, and has dropped its translations |
//!
//! | step | from -> to | by | rule |
//! |---|---|---|---|
//! | [`ask`] | executed -> asked | who wants to execute the frame | only who has taken this step sends a message: one for each node and frame |
//! | [`done`] | asked -> rewritten | the node, after it has rewritten the frame | in every other state a message is old, and changes nothing |
//! | [`begin`] | clean, rewritten -> executed, all nodes in one CAS | who wants to execute the frame | never while a node is in one of the other two states |
//! | `hand_on` | rewritten -> executed | who retypes the frame | what the former owner has asked for does not count for the next |
//! | [`take_back`] | asked -> executed | who has asked, and could not send | |
//! | [`gone`] | all -> clean | who finds the node dead | the translations died with the machine |
//!
//! The bits are the request; a message is only a hint to look at them. A message that is lost (its sender has died, the ring
//! was begun anew) is sent again, and one that comes late finds another state than *asked*.
//!
//! *Rewritten* is no state of rest: the node may still execute the frame through an older mapping, and translate it again.
//! The state holds for the owner of the frame who has asked. `hand_on` ends it before the frame has another owner: after that
//! each node that has ever executed the frame is asked again.
//!
//! | order | why |
//! |---|---|
//! | a message: the second word is read, then the first | a frame that was asked for before it was untyped is seen as asked for by a claim, whose words are read in the other order |
//! | the frame is in use as user memory when the first word is read; then it is rewritten | it is no kernel object before the CPU that rewrites it has been quiet |

use dyad_abi::NodeId;
use dyad_coherence::Word;

use crate::TRIES;
use crate::error::Refused;
use crate::word::StampWord;

const ASKED: u32 = StampWord::ASKED_SHIFT;

/// The bit of a node.
pub const fn bit(n: NodeId) -> u8 {
    1 << n.index()
}

const fn executed(raw: u64) -> u8 {
    raw as u8
}

const fn asked(raw: u64) -> u8 {
    (raw >> ASKED) as u8
}

/// Changes a word as `next` says, unless it says that nothing is to be done. Returns the word that was there.
fn change(word: &impl Word, next: impl Fn(u64) -> Option<u64>) -> Result<u64, Refused> {
    let mut raw = word.load();
    for _ in 0..TRIES {
        let Some(new) = next(raw) else {
            return Ok(raw);
        };
        match word.replace(raw, new) {
            Ok(_) => return Ok(raw),
            Err(now) => raw = now,
        }
    }
    Err(Refused::Contended)
}

/// What a call of [`ask`] has found: a bit for each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Nodes that have been asked by this call, and get a message.
    pub now: u8,
    /// Nodes that had been asked before.
    pub before: u8,
}

/// Asks those of these nodes that may hold translations to rewrite the frame.
///
/// # Errors
///
/// [`Refused::Contended`].
pub fn ask(word: &impl Word, nodes: u8) -> Result<Asked, Refused> {
    let stale = |raw| executed(raw) & !asked(raw) & nodes;
    let raw = change(word, |raw| {
        (stale(raw) != 0).then_some(raw | u64::from(stale(raw)) << ASKED)
    })?;
    let before = executed(raw) & asked(raw) & nodes;
    let now = match lacks!("executed::ask::once") {
        true => stale(raw) | before,
        false => stale(raw),
    };
    Ok(Asked { now, before })
}

/// Whether a node has been asked, and has not rewritten the frame since.
pub fn is_asked(word: &impl Word, node: NodeId) -> bool {
    wanted(word.load(), node)
}

fn wanted(raw: u64, node: NodeId) -> bool {
    let asked = asked(raw) & bit(node) != 0 || lacks!("executed::done::asked");
    executed(raw) & bit(node) != 0 && asked
}

/// Notes that this node has rewritten the frame, if it has been asked to.
///
/// # Errors
///
/// [`Refused::Contended`]: the node is still asked.
pub fn done(word: &impl Word, node: NodeId) -> Result<(), Refused> {
    let b = u64::from(bit(node));
    change(word, |raw| {
        wanted(raw, node).then_some(raw & !b | b << ASKED)
    })
    .map(drop)
}

/// Whether this node may hold translations, whatever it has been asked.
pub fn is_stale(word: &impl Word, node: NodeId) -> bool {
    executed(word.load()) & bit(node) != 0
}

/// Notes that these nodes may execute the frame. The nodes in `rewritten` have rewritten it during this call.
///
/// # Errors
///
/// [`Refused::NotQuiesced`] if another of these nodes may hold translations; [`Refused::Contended`]. Nothing has changed.
pub fn begin(word: &impl Word, nodes: u8, rewritten: u8) -> Result<(), Refused> {
    let stale = |raw| executed(raw) & nodes & !rewritten != 0 && !lacks!("executed::begin::stale");
    let all = u64::from(nodes);
    let raw = change(word, |raw| {
        (!stale(raw)).then_some((raw | all) & !(all << ASKED))
    })?;
    match stale(raw) {
        true => Err(Refused::NotQuiesced),
        false => Ok(()),
    }
}

/// Notes that a node has not been told.
///
/// # Errors
///
/// [`Refused::Contended`].
pub fn take_back(word: &impl Word, node: NodeId) -> Result<(), Refused> {
    let b = bit(node);
    change(word, |raw| {
        (executed(raw) & asked(raw) & b != 0).then_some(raw & !(u64::from(b) << ASKED))
    })
    .map(drop)
}

/// Notes that a node has died: its translations are gone.
///
/// # Errors
///
/// [`Refused::Contended`].
pub fn gone(word: &impl Word, node: NodeId) -> Result<(), Refused> {
    let both = u64::from(bit(node)) << ASKED | u64::from(bit(node));
    change(word, |raw| (raw & both != 0).then_some(raw & !both)).map(drop)
}

/// Whether [`hand_on`] may have something to do.
#[inline(always)]
pub(crate) const fn is_noted(raw: u64) -> bool {
    raw >> ASKED != 0
}

/// Ends what was done for the former owner of a frame. The frame is in RETYPING at this node.
///
/// # Errors
///
/// [`Refused::Contended`].
#[cold]
pub(crate) fn hand_on(word: &impl Word) -> Result<(), Refused> {
    if lacks!("executed::hand_on") {
        return Ok(());
    }
    change(word, |raw| {
        let rewritten = u64::from(asked(raw) & !executed(raw));
        (rewritten != 0).then_some((raw | rewritten) & !(rewritten << ASKED))
    })
    .map(drop)
}
