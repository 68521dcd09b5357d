//! Messages by kind, and what was refused.

use crate::event::Refusal;
use crate::wire::{Body, Grant};

/// What one node has counted. Messages are counted by their sender, when they go out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Requests and pulls.
    pub request: u64,
    /// Messages with the contents of a page: to the origin, and grants.
    pub contents: u64,
    /// Grants without contents: zero pages, and rights to contents that the holder has.
    pub without: u64,
    /// Invalidations and their acknowledgements.
    pub invalidate: u64,
    /// Refused requests.
    pub refused: u64,
    /// Messages about regions.
    pub region: u64,
    /// Faults that needed another node. On two nodes each takes two page messages.
    pub faults: u64,
    /// Faults of the origin that needed no other node: first touches, lost pages.
    pub local: u64,
    /// Faults that waited for the request of another thread.
    pub joined: u64,
    /// Faults that found the right already there.
    pub spurious: u64,
    /// Orders that waited for the end of a hold.
    pub deferred: u64,
    /// Orders for a page that the node did not have.
    pub absent: u64,
    /// Messages that found a full ring and went out later.
    pub delayed: u64,
    /// Messages about pages that have come in.
    pub received: u64,
    /// Of these, those with the contents of a page.
    pub filled: u64,
    /// Pages of which a node that is not the origin has got a copy; one that it has lost meanwhile, too.
    pub replicas: u64,
    /// Messages and calls that were refused, by reason: indexed with [`Refusal::index`].
    pub refusals: [u64; Refusal::COUNT],
}

impl Counters {
    /// Messages about pages, with or without contents: all but those about regions.
    pub const fn page_messages(&self) -> u64 {
        self.request + self.contents + self.without + self.invalidate + self.refused
    }

    /// All that was refused.
    pub fn refusals(&self) -> u64 {
        self.refusals.iter().sum()
    }

    pub(crate) fn sent(&mut self, body: Body) {
        let counter = match body {
            Body::Request { .. } | Body::Pull { .. } => &mut self.request,
            Body::Contents { .. } => &mut self.contents,
            Body::Grant {
                grant: Grant::Contents,
                ..
            } => &mut self.contents,
            Body::Grant { .. } => &mut self.without,
            Body::Invalidate { .. } | Body::Ack { .. } => &mut self.invalidate,
            Body::Nak { .. } => &mut self.refused,
            Body::Drop { .. } | Body::Dropped { .. } => &mut self.region,
        };
        *counter += 1;
    }
}
