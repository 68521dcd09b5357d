//! The rules that keep frames safe, each of which a test can take away.
//!
//! A [`FrameTable`](crate::FrameTable) follows all of them unless it is made with another type
//! parameter.

dyad_coherence::rules! {
    /// A reference is taken only if the version is the one the capability was made for (M1).
    PinChecksVersion,
    /// A reference is taken only if the frame is used for what is wanted.
    PinChecksUse,
    /// No reference is taken if there is no room for it.
    PinChecksRoom,
    /// No row that gives a reference back begins while the frame is frozen.
    UnpinChecksFrozen,
    /// Frames are given up only without references.
    GiveUpChecksRefs,
    /// A frame that is given up is stamped.
    GiveUpStamps,
    /// A kernel object that is given up is logged, and the word that says so.
    GiveUpLogs,
    /// It is logged after the compare-and-swap that ends the old use.
    LogAfterCas,
    /// It is logged before the stamp is read.
    LogBeforeStamp,
    /// The stamp is read after the compare-and-swap that ends the old use (A1c, A1d).
    StampAfterCas,
    /// A frame that is given up gets a new version.
    GiveUpBumpsVersion,
    /// A claim replaces the word that was read before the stamp was, not a newer one.
    ClaimComparesWholeWord,
    /// A claim waits until every node has been quiet since the stamp.
    ClaimChecksStamp,
    /// A frame is recovered only if it has the version that the dead node left it with.
    RecoveryChecksVersion,
    /// A frame that is recovered gets a new version (D1).
    RecoveryBumpsVersion,
    /// A frame that is recovered is stamped.
    RecoveryStamps,
    /// What a dead node may have given up is logged by who recovers it.
    RecoveryLogs,
    /// Two blocks become one with the newer of their stamps.
    MergeKeepsNewerStamp,
    /// The new half of a block is stamped as the block was.
    SplitCopiesStamp,
}
