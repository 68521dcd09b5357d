//! The rules that keep capability tables safe, each of which a test can take away.
//!
//! A [`Table`](crate::Table) follows all of them unless it is made with another type parameter.

dyad_coherence::rules! {
    /// A slot is reserved before its stamp is looked at (S3).
    ReserveBeforeCheck,
    /// A slot is filled only if every node has been quiet since its stamp.
    ActivateChecksStamp,
    /// A slot has its contents before it is ACTIVE.
    FillBeforeActive,
    /// A slot that has been filled and an entry that has got a leaf are logged.
    PublishLogs,
    /// A slot is taken by compare-and-swap, so that one of two gets it.
    ActivateChecksFree,
    /// A slot is CLOSING until it has its stamp (C1).
    ClosingUntilStamped,
    /// A slot or entry that is given up is stamped.
    GiveUpStamps,
    /// The stamp is read after the compare-and-swap that unpublishes (C1b).
    StampAfterCas,
    /// What has been unpublished is in the log before the stamp is taken.
    LogBeforeStamp,
    /// Only what has the right may be copied.
    CopyChecksRight,
    /// A copy permits no more than its source.
    CopyNarrowsRights,
    /// A copy refers to no more than its source.
    CopyNarrowsPayload,
    /// A copy of a guarded capability is guarded.
    CopyKeepsGuard,
    /// A guarded capability gets no other guard.
    CopyRefusesSecondGuard,
    /// An edge is pinned before it exists (P1).
    PinsBeforeEntry,
    /// An edge that could not be made gives its pins back.
    FailureUnpins,
    /// An entry is used again only if every node has been quiet since its stamp.
    ConsChecksStamp,
    /// An entry is replaced only if it has the stamp that was checked.
    ConsComparesEntry,
    /// No leaf is taken out while it or its root is being recovered.
    DeconsChecksFrozen,
    /// An edge gives its pins back after it has been unpublished.
    UnpublishBeforeUnpin,
    /// Recovery takes only from the incarnation that has died.
    RecoveryChecksIncarnation,
    /// A recoverer makes itself the owner of a slot before it stores to it.
    RecoveryTakesOver,
    /// Recovery knows CLOSING besides RESERVED (D3).
    RecoveryKnowsClosing,
    /// What a dead node may have changed is logged by who recovers it.
    RecoveryLogs,
    /// A guard is alive only as long as its frame has the version it was made with.
    GuardChecksFrame,
    /// A guard is alive only as long as its entry has the count it was made with.
    GuardChecksCount,
    /// A revocation is logged.
    RevokeLogs,
}
