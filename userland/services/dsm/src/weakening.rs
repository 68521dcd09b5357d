//! Rules of the protocol that tests take away, one at a time. Each must be missed by a test.
//!
//! Without the feature `weakened`, which only tests enable, no rule can be taken away: `Rules::lacks` is `false`.

/// What is no longer so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weakening {
    /// A grant or refusal with any sequence number counts.
    SeqIgnored,
    /// The contents of a page are copied before it is protected.
    CopyBeforeProtect,
    /// Old translations are not waited for.
    NoQuiesce,
    /// An invalidation is acknowledged before the page is protected.
    AckBeforeProtect,
    /// Contents are left out if the requester had a copy when its request arrived.
    ContentsOnRequest,
    /// A request is served while another one of the page is being served.
    NoBusy,
    /// A granted page can be taken away at once.
    NoHold,
    /// Pages are free before the other nodes have dropped them.
    DropNotAwaited,
    /// An older frame serves after the death of the owner.
    StaleFrame,
    /// A message that finds a full ring is not sent.
    OutboxDropped,
    /// A node with unsent messages receives none.
    FullRingBlocks,
    /// Messages of an earlier life of a node count.
    IncarnationIgnored,
    /// A page is taken away although the thread that it was granted to has not run yet.
    WokenNotHeeded,
    /// An order during a hold is obeyed later, and forgotten.
    DeferredForgotten,
    /// An older instruction is kept waiting by the long hold too.
    LongHoldForAll,
}

/// The rules of a node: all, or all but one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    #[cfg(feature = "weakened")]
    lacks: Option<Weakening>,
}

impl Rules {
    /// All rules but one.
    #[cfg(feature = "weakened")]
    pub const fn without(rule: Weakening) -> Rules {
        Rules { lacks: Some(rule) }
    }

    /// Whether a rule is taken away.
    #[cfg(feature = "weakened")]
    pub(crate) fn lacks(self, rule: Weakening) -> bool {
        self.lacks == Some(rule)
    }

    /// Whether a rule is taken away.
    #[cfg(not(feature = "weakened"))]
    pub(crate) const fn lacks(self, _: Weakening) -> bool {
        false
    }
}
