//! The rules that keep frames safe, each of which a test can take away.
//!
//! A [`FrameTable`](crate::FrameTable) follows all of them unless it is made with another type
//! parameter. They are constants: what is not taken away costs nothing.

/// Which rules are followed. The names in parentheses are those of the protocol's traces.
pub trait Rules {
    /// A reference is taken only if the version is the one the capability was made for (M1).
    const PIN_CHECKS_VERSION: bool = true;
    /// A reference is taken only if the frame is used for what is wanted.
    const PIN_CHECKS_USE: bool = true;
    /// No reference is taken if there is no room for it.
    const PIN_CHECKS_ROOM: bool = true;
    /// No row that gives a reference back begins while the frame is frozen.
    const UNPIN_CHECKS_FROZEN: bool = true;
    /// Frames are given up only without references.
    const GIVE_UP_CHECKS_REFS: bool = true;
    /// A frame that is given up is stamped.
    const GIVE_UP_STAMPS: bool = true;
    /// A kernel object that is given up is logged, and the word that says so.
    const GIVE_UP_LOGS: bool = true;
    /// It is logged after the compare-and-swap that ends the old use.
    const LOG_AFTER_CAS: bool = true;
    /// It is logged before the stamp is read.
    const LOG_BEFORE_STAMP: bool = true;
    /// The stamp is read after the compare-and-swap that ends the old use (A1c, A1d).
    const STAMP_AFTER_CAS: bool = true;
    /// A frame that is given up gets a new version.
    const GIVE_UP_BUMPS_VERSION: bool = true;
    /// A claim replaces the word that was read before the stamp was, not a newer one.
    const CLAIM_COMPARES_WHOLE_WORD: bool = true;
    /// A claim waits until every node has been quiet since the stamp.
    const CLAIM_CHECKS_STAMP: bool = true;
    /// A frame is recovered only if it has the version that the dead node left it with.
    const RECOVERY_CHECKS_VERSION: bool = true;
    /// A frame that is recovered gets a new version (D1).
    const RECOVERY_BUMPS_VERSION: bool = true;
    /// A frame that is recovered is stamped.
    const RECOVERY_STAMPS: bool = true;
    /// What a dead node may have given up is logged by who recovers it.
    const RECOVERY_LOGS: bool = true;
    /// Two blocks become one with the newer of their stamps.
    const MERGE_KEEPS_NEWER_STAMP: bool = true;
    /// The new half of a block is stamped as the block was.
    const SPLIT_COPIES_STAMP: bool = true;
}

/// All of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocol;

impl Rules for Protocol {}
