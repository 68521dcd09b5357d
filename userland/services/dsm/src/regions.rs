//! Regions: the ranges of pages that may be used. The origin knows them.
//!
//! ```text
//!   unmap ──▶ no request is served any more (NAK gone) ──▶ no page is busy ──▶ DROP to all ──▶ DROPPED from all
//!         ──▶ the origin's own copies go ──▶ Unmapped
//! ```
//!
//! The origin's own frames go last: a grant that waits in an outbox is copied from them, and it is received before
//! the DROP behind it.

use dyad_abi::NodeId;

use crate::event::{Action, Port, Refusal};
use crate::ids::{NodeSet, Page, Range, Seq, Time};
use crate::node::Dsm;
use crate::record::Queued;
use crate::weakening::Weakening;
use crate::wire::{Body, Cause};

/// A region, at the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Its pages.
    pub range: Range,
    /// How far it has been dropped, if at all.
    pub state: RegionState,
}

/// How far a region has been dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionState {
    /// Its pages may be used.
    Live,
    /// This many of its pages are busy. No further request is served.
    Finishing(u64),
    /// These nodes have not dropped it.
    Dropping(NodeSet),
}

impl<
    const NODES: usize,
    const CHUNKS: usize,
    const PAGES: usize,
    const THREADS: usize,
    const QUEUE: usize,
    const REGIONS: usize,
> Dsm<NODES, CHUNKS, PAGES, THREADS, QUEUE, REGIONS>
{
    /// Whether a page is in a region that is not being dropped.
    pub(crate) fn is_live(&self, page: Page) -> bool {
        let live = |r: &Region| r.state == RegionState::Live && r.range.contains(page);
        self.regions.iter().any(live)
    }

    pub(crate) fn map(&mut self, range: Range) -> Result<(), Refusal> {
        if !self.is_origin() {
            return Err(Refusal::Role);
        }
        if self.regions.iter().any(|r| r.range.overlaps(range)) {
            return Err(Refusal::Region);
        }
        let state = RegionState::Live;
        let region = Region { range, state };
        self.regions.push(region).map_err(|_| Refusal::Full)
    }

    pub(crate) fn unmap(
        &mut self,
        now: Time,
        range: Range,
        port: &mut impl Port,
    ) -> Result<(), Refusal> {
        if !self.is_origin() {
            return Err(Refusal::Role);
        }
        let busy = self.table.records(range);
        let busy = busy.filter(|(_, r)| r.busy.is_some()).count() as u64;
        let live = |r: &&mut Region| r.range == range && r.state == RegionState::Live;
        let region = self.regions.iter_mut().find(live);
        region.ok_or(Refusal::Region)?.state = RegionState::Finishing(busy);
        for place in 0..self.table.places() {
            let page = self.table.page_at(place).filter(|&p| range.contains(p));
            let Some((page, record)) = page.and_then(|p| Some((p, self.table.get_mut(p)?))) else {
                continue;
            };
            let queue = core::mem::take(&mut record.queue);
            for &Queued { node, seq, .. } in queue.iter() {
                self.nak(node, page, seq, Cause::Gone, port);
            }
            self.drain(now, port);
        }
        if busy == 0 {
            self.begin_drop(range, port);
        }
        Ok(())
    }

    /// A page is not busy any more.
    pub(crate) fn idle(&mut self, page: Page, port: &mut impl Port) {
        let mut ready = None;
        for region in self.regions.iter_mut() {
            if region.range.contains(page)
                && let RegionState::Finishing(busy) = &mut region.state
            {
                *busy = busy.saturating_sub(1);
                ready = (*busy == 0).then_some(region.range);
            }
        }
        if let Some(range) = ready {
            self.begin_drop(range, port);
        }
    }

    fn begin_drop(&mut self, range: Range, port: &mut impl Port) {
        let all = self.others();
        let awaited = match self.lacks(Weakening::DropNotAwaited) {
            true => NodeSet::EMPTY,
            false => all,
        };
        for region in self.regions.iter_mut().filter(|r| r.range == range) {
            region.state = RegionState::Dropping(awaited);
        }
        for node in all.iter() {
            self.send(node, Body::Drop { range }, port);
        }
        if awaited.is_empty() {
            self.finish_drop(range, port);
        }
    }

    pub(crate) fn dropped(
        &mut self,
        from: NodeId,
        range: Range,
        port: &mut impl Port,
    ) -> Result<(), Refusal> {
        let mut wait = None;
        for region in self.regions.iter_mut().filter(|r| r.range == range) {
            if let RegionState::Dropping(nodes) = &mut region.state
                && nodes.has(from)
            {
                *nodes = nodes.without(from);
                wait = Some(*nodes);
            }
        }
        if wait.ok_or(Refusal::NotAwaited)?.is_empty() {
            self.finish_drop(range, port);
        }
        Ok(())
    }

    fn finish_drop(&mut self, range: Range, port: &mut impl Port) {
        self.drop_range(range, port);
        self.regions.retain(|r| r.range != range);
        port.act(Action::Unmapped { range });
    }

    /// A node has died: it need not drop anything any more.
    pub(crate) fn drops_without(&mut self, node: NodeId, port: &mut impl Port) {
        let mut over = self.regions;
        over.retain(|r| r.state == RegionState::Dropping(NodeSet::one(node)));
        for region in self.regions.iter_mut() {
            if let RegionState::Dropping(nodes) = &mut region.state {
                *nodes = nodes.without(node);
            }
        }
        for region in over.iter() {
            self.finish_drop(region.range, port);
        }
    }

    pub(crate) fn nak(
        &mut self,
        to: NodeId,
        page: Page,
        seq: Seq,
        cause: Cause,
        port: &mut impl Port,
    ) {
        self.send(to, Body::Nak { page, seq, cause }, port);
    }
}

impl Region {
    /// Whether its pages may be used.
    pub fn is_live(&self) -> bool {
        self.state == RegionState::Live
    }
}
