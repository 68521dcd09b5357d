//! What a node knows of one page: as a holder, and at the origin as the directory.

use dyad_abi::NodeId;

use crate::event::Port;
use crate::ids::{Access, NodeSet, Right, Seq, Time, Txn};
use crate::list::List;
use crate::node::{LOOK_NS, WOKEN_NS};
use crate::table::Item;
use crate::weakening::{Rules, Weakening};

/// Who has copies of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Copies {
    /// No node has had the page yet: it is zero.
    #[default]
    Untouched,
    /// One node may write it.
    Exclusive(NodeId),
    /// These nodes may read it.
    Shared(NodeSet),
    /// The only copy was on a node that died.
    Lost,
}

/// The request of this node that is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pend {
    /// The access of the thread that asked first.
    pub want: Access,
    /// Its number.
    pub seq: Seq,
}

/// What the origin tells a holder to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    /// The access of the node that asks: what is to be given up for it.
    pub want: Access,
    /// Whether the contents are wanted.
    pub contents: bool,
    /// The transaction.
    pub txn: Txn,
    /// The node that asks.
    pub node: NodeId,
    /// Since when its instruction waits.
    pub since: Time,
}

/// The request that the directory serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Busy {
    /// The node that asked; `None` if it has died.
    pub node: Option<NodeId>,
    /// What it wants.
    pub want: Access,
    /// The number of its request.
    pub seq: Seq,
    /// Since when its instruction waits.
    pub since: Time,
    /// The number of the transaction.
    pub txn: Txn,
    /// The nodes that have not answered.
    pub wait: NodeSet,
    /// The node that was asked for contents.
    pub source: Option<NodeId>,
    /// Whether the contents are in the origin's frame.
    pub filled: bool,
}

/// A request that waits until the page is not busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Queued {
    /// The node that asks.
    pub node: NodeId,
    /// What it wants.
    pub want: Access,
    /// The number of the request.
    pub seq: Seq,
    /// Since when the instruction waits.
    pub since: Time,
    /// Whether it had a copy when the request came: for a weakened rule only, else `false`.
    pub had: bool,
}

/// The record of a page on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record<const NODES: usize> {
    /// What this node may do with the page.
    pub right: Right,
    /// Whether a frame of this node is set aside for the page.
    pub frame: bool,
    /// Whether the address space has a leaf for the page.
    pub leaf: bool,
    /// The request that is out.
    pub pend: Option<Pend>,
    /// Threads that wait for its answer.
    pub waiters: u64,
    /// The order that waits for the end of the hold.
    pub deferred: Option<Order>,
    /// No node gets the page before.
    pub hold_until: Time,
    /// Threads that the last grant has woken, which have perhaps not run since.
    pub woken: u64,
    /// Until when that is reason enough to keep the page.
    pub woken_until: Time,
    /// No node whose instruction waits for less time than the one here gets it before.
    pub long_until: Time,
    /// Since when the instruction waits for which the page is held long.
    pub long_since: Time,
    /// At the origin: who has copies.
    pub copies: Copies,
    /// At the origin: the request that is being served.
    pub busy: Option<Busy>,
    /// At the origin: requests that wait, at most one of each node.
    pub queue: List<Queued, NODES>,
}

impl<const NODES: usize> Item for Record<NODES> {
    const NEW: Record<NODES> = Record {
        right: Right::None,
        frame: false,
        leaf: false,
        pend: None,
        waiters: 0,
        deferred: None,
        hold_until: Time(0),
        woken: 0,
        woken_until: Time(0),
        long_until: Time(0),
        long_since: Time(0),
        copies: Copies::Untouched,
        busy: None,
        queue: List::new(),
    };
}

impl<const NODES: usize> Record<NODES> {
    /// The time at which an order that waits here is looked at again; `None`: it does not wait.
    pub(crate) fn waits_until(
        &mut self,
        now: Time,
        order: &Order,
        me: NodeId,
        rules: Rules,
        port: &impl Port,
    ) -> Option<Time> {
        let until = self.held_for(order, me, rules.lacks(Weakening::LongHoldForAll));
        if now < until {
            return Some(until);
        }
        self.woken = port.not_resumed(self.woken);
        let waits = self.woken != 0 && now < self.woken_until;
        let heeds = !rules.lacks(Weakening::WokenNotHeeded);
        // After as long again as it has waited: looks take time from the thread.
        let since = self.woken_until.0.saturating_sub(WOKEN_NS);
        (waits && heeds).then(|| now.after(LOOK_NS.max(now.0.saturating_sub(since))))
    }

    /// The time until which an order waits here, on node `me`.
    pub(crate) fn held_for(&self, order: &Order, me: NodeId, long_for_all: bool) -> Time {
        // Two nodes with two pages each could wait for each other. So the older instruction gets both. A later
        // instruction is younger, so no node has to wait for ever.
        let is_younger = (order.since, order.node) > (self.long_since, me);
        match is_younger || long_for_all {
            true => self.hold_until.max(self.long_until),
            false => self.hold_until,
        }
    }
}
