//! The rules that keep capability tables safe, each of which a test can take away.
//!
//! A [`Table`](crate::Table) follows all of them unless it is made with another type parameter.
//! They are constants: what is not taken away costs nothing.

/// Which rules are followed. The names in parentheses are those of the protocol's traces.
pub trait Rules {
    /// A slot is reserved before its stamp is looked at (S3).
    const RESERVE_BEFORE_CHECK: bool = true;
    /// A slot is filled only if every node has been quiet since its stamp.
    const ACTIVATE_CHECKS_STAMP: bool = true;
    /// A slot has its contents before it is ACTIVE.
    const FILL_BEFORE_ACTIVE: bool = true;
    /// A slot that has been filled and an entry that has got a leaf are logged.
    const PUBLISH_LOGS: bool = true;
    /// A slot is taken by compare-and-swap, so that one of two gets it.
    const ACTIVATE_CHECKS_FREE: bool = true;
    /// A slot is CLOSING until it has its stamp (C1).
    const CLOSING_UNTIL_STAMPED: bool = true;
    /// A slot or entry that is given up is stamped.
    const GIVE_UP_STAMPS: bool = true;
    /// The stamp is read after the compare-and-swap that unpublishes (C1b).
    const STAMP_AFTER_CAS: bool = true;
    /// What has been unpublished is in the log before the stamp is taken.
    const LOG_BEFORE_STAMP: bool = true;
    /// Only what has the right may be copied.
    const COPY_CHECKS_RIGHT: bool = true;
    /// A copy permits no more than its source.
    const COPY_NARROWS_RIGHTS: bool = true;
    /// A copy refers to no more than its source.
    const COPY_NARROWS_PAYLOAD: bool = true;
    /// A copy of a guarded capability is guarded.
    const COPY_KEEPS_GUARD: bool = true;
    /// A guarded capability gets no other guard.
    const COPY_REFUSES_SECOND_GUARD: bool = true;
    /// An edge is pinned before it exists (P1).
    const PINS_BEFORE_ENTRY: bool = true;
    /// An edge that could not be made gives its pins back.
    const FAILURE_UNPINS: bool = true;
    /// An entry is used again only if every node has been quiet since its stamp.
    const CONS_CHECKS_STAMP: bool = true;
    /// An entry is replaced only if it has the stamp that was checked.
    const CONS_COMPARES_ENTRY: bool = true;
    /// No leaf is taken out while it or its root is being recovered.
    const DECONS_CHECKS_FROZEN: bool = true;
    /// An edge gives its pins back after it has been unpublished.
    const UNPUBLISH_BEFORE_UNPIN: bool = true;
    /// Recovery takes only from the incarnation that has died.
    const RECOVERY_CHECKS_INCARNATION: bool = true;
    /// A recoverer makes itself the owner of a slot before it stores to it.
    const RECOVERY_TAKES_OVER: bool = true;
    /// Recovery knows CLOSING besides RESERVED (D3).
    const RECOVERY_KNOWS_CLOSING: bool = true;
    /// What a dead node may have changed is logged by who recovers it.
    const RECOVERY_LOGS: bool = true;
    /// A guard is alive only as long as its frame has the version it was made with.
    const GUARD_CHECKS_FRAME: bool = true;
    /// A guard is alive only as long as its entry has the count it was made with.
    const GUARD_CHECKS_COUNT: bool = true;
    /// A revocation is logged.
    const REVOKE_LOGS: bool = true;
}

/// All of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocol;

impl Rules for Protocol {}
