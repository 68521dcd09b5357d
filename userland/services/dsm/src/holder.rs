//! The rows of the holder, H1 to H10.

use dyad_abi::NodeId;

use crate::event::{Action, Outcome, Port, Refusal, Source};
use crate::ids::{Access, NodeSet, Page, Range, Right, Seq, ThreadNo, Time};
use crate::node::{Dsm, HOLD_NS, Instruction, LONG_HOLD_NS, WOKEN_NS};
use crate::record::{Order, Pend, Record};
use crate::weakening::Weakening;
use crate::wire::{Body, Cause, Grant};

impl<
    const NODES: usize,
    const CHUNKS: usize,
    const PAGES: usize,
    const THREADS: usize,
    const QUEUE: usize,
    const REGIONS: usize,
> Dsm<NODES, CHUNKS, PAGES, THREADS, QUEUE, REGIONS>
{
    /// H1, H2: a thread lacks a right.
    pub(crate) fn fault(
        &mut self,
        now: Time,
        thread: ThreadNo,
        page: Page,
        want: Access,
        pc: u64,
        port: &mut impl Port,
    ) {
        let since = self.extend(now, thread, page, pc);
        let frames = self.frames;
        let threads = thread.bit();
        let no_memory = Outcome::Refused(Cause::NoMemory);
        let Ok(record) = self.table.get_or_insert(page) else {
            let outcome = no_memory;
            return port.act(Action::Wake { threads, outcome });
        };
        if record.right.allows(want) {
            self.counters.spurious += 1;
            let outcome = Outcome::Retry;
            return port.act(Action::Wake { threads, outcome });
        }
        if record.pend.is_some() {
            self.counters.joined += 1;
            record.waiters |= threads;
            return;
        }
        // The frame is set aside now: a grant never fails for lack of memory.
        if !record.frame && frames == 0 {
            let outcome = no_memory;
            return port.act(Action::Wake { threads, outcome });
        }
        if !record.frame {
            record.frame = true;
            self.frames -= 1;
        }
        self.seq.0 += 1;
        let seq = self.seq;
        record.pend = Some(Pend { want, seq });
        record.waiters = threads;
        if !self.is_origin() {
            self.counters.faults += 1;
        }
        self.send(
            self.origin,
            Body::Request {
                page,
                want,
                seq,
                since,
            },
            port,
        );
    }

    /// An instruction that faults at a second page keeps its first page for longer. Returns since when it waits.
    fn extend(&mut self, now: Time, thread: ThreadNo, page: Page, pc: u64) -> Time {
        // A thread with a number that this node does not have is served, without the long hold.
        let Some(last) = self.last.get_mut(thread.index()) else {
            return now;
        };
        let before = last.filter(|l| l.pc == pc && l.page != page);
        let first = before.map(|l| l.page);
        let since = before.map_or(now, |l| l.since);
        *last = Some(Instruction {
            pc,
            page,
            first,
            since,
        });
        if let Some(record) = first.and_then(|p| self.table.get_mut(p))
            && record.right != Right::None
        {
            record.long_until = now.after(LONG_HOLD_NS);
            record.long_since = since;
        }
        since
    }

    /// Threads get a page. An instruction that has both its pages now is executed: the long hold ends, and what the
    /// thread faults at next is another instruction, even if it has the same address.
    fn complete(&mut self, now: Time, page: Page, threads: u64) {
        for (n, last) in self.last.iter_mut().enumerate() {
            let Some(done) = last.filter(|l| threads >> n & 1 != 0 && l.page == page) else {
                continue;
            };
            if let Some(record) = done.first.and_then(|p| self.table.get_mut(p))
                && record.right != Right::None
            {
                record.long_until = record.long_until.min(now.after(HOLD_NS));
                record.hold_until = record.hold_until.max(record.long_until);
                *last = None;
            }
        }
    }

    /// H3, H4: a request is granted.
    pub(crate) fn granted(
        &mut self,
        now: Time,
        body: Body,
        from: NodeId,
        port: &mut impl Port,
    ) -> Result<(), Refusal> {
        let Body::Grant {
            page,
            seq,
            grant,
            right,
        } = body
        else {
            return Err(Refusal::Role);
        };
        let (any, no_hold) = (
            self.lacks(Weakening::SeqIgnored),
            self.lacks(Weakening::NoHold),
        );
        let own = from == self.me;
        let record = Self::asked(self.table.get_mut(page), seq, any)?;
        match grant {
            Grant::Same if record.right == Right::None => return Err(Refusal::NoContents),
            Grant::Same => {}
            Grant::Zero => port.act(Action::Fill {
                page,
                source: Source::Zero,
            }),
            // What the origin has received for itself is in its frame.
            Grant::Contents if own => {}
            Grant::Contents => port.act(Action::Fill {
                page,
                source: Source::Message,
            }),
        }
        match core::mem::replace(&mut record.leaf, true) {
            true => port.act(Action::Protect { page, right }),
            false => {
                self.counters.replicas += u64::from(!own);
                port.act(Action::Map { page, right });
            }
        }
        record.right = right;
        record.pend = None;
        record.long_until = Time(0);
        record.hold_until = if no_hold { now } else { now.after(HOLD_NS) };
        let (threads, outcome) = (core::mem::take(&mut record.waiters), Outcome::Retry);
        record.woken = threads;
        record.woken_until = now.after(WOKEN_NS);
        self.complete(now, page, threads);
        port.act(Action::Wake { threads, outcome });
        Ok(())
    }

    /// A request is refused.
    pub(crate) fn refused(
        &mut self,
        page: Page,
        seq: Seq,
        cause: Cause,
        port: &mut impl Port,
    ) -> Result<(), Refusal> {
        let any = self.lacks(Weakening::SeqIgnored);
        let record = Self::asked(self.table.get_mut(page), seq, any)?;
        record.pend = None;
        let threads = core::mem::take(&mut record.waiters);
        let outcome = Outcome::Refused(cause);
        let is_unused = record.right == Right::None;
        port.act(Action::Wake { threads, outcome });
        // A page outside all regions keeps no frame. The directory's record stays while its region is being dropped.
        if cause == Cause::Gone && is_unused && !self.regions.iter().any(|r| r.range.contains(page))
        {
            self.drop_range(Range::one(page), port);
        }
        Ok(())
    }

    /// The record of a page whose request with this number is out.
    fn asked(
        record: Option<&mut Record<NODES>>,
        seq: Seq,
        any: bool,
    ) -> Result<&mut Record<NODES>, Refusal> {
        let is_out = |r: &&mut Record<NODES>| r.pend.is_some_and(|p| p.seq == seq || any);
        record.filter(is_out).ok_or(Refusal::Stale)
    }

    /// H5 to H9: the origin wants the page, or that this node has it no more.
    pub(crate) fn ordered(
        &mut self,
        now: Time,
        body: Body,
        port: &mut impl Port,
    ) -> Result<(), Refusal> {
        let (page, order) = match body {
            Body::Pull {
                page,
                want,
                txn,
                node,
                since,
            } => {
                let contents = true;
                let order = Order {
                    want,
                    contents,
                    txn,
                    node,
                    since,
                };
                (page, order)
            }
            Body::Invalidate {
                page,
                txn,
                node,
                since,
            } => {
                let (want, contents) = (Access::Write, false);
                let order = Order {
                    want,
                    contents,
                    txn,
                    node,
                    since,
                };
                (page, order)
            }
            _ => return Err(Refusal::Role),
        };
        let (me, rules) = (self.me, self.rules);
        let forget = self.lacks(Weakening::DeferredForgotten);
        let record = match self.table.get_mut(page) {
            Some(record) if record.right != Right::None => record,
            _ => {
                self.counters.absent += 1;
                let txn = order.txn;
                self.send(self.origin, Body::Ack { page, txn }, port);
                return Ok(());
            }
        };
        if record.deferred.is_some() {
            return Err(Refusal::SecondOrder);
        }
        if let Some(until) = record.waits_until(now, &order, me, rules, port) {
            if !forget {
                record.deferred = Some(order);
            }
            self.counters.deferred += 1;
            port.act(Action::Defer { page, until });
            return Ok(());
        }
        self.obey(page, order, port);
        Ok(())
    }

    /// H5, H6, H7: protect, quiesce, copy, send, in this order.
    fn obey(&mut self, page: Page, order: Order, port: &mut impl Port) {
        let (no_quiesce, early_copy, early_ack) = (
            self.lacks(Weakening::NoQuiesce),
            self.lacks(Weakening::CopyBeforeProtect),
            self.lacks(Weakening::AckBeforeProtect),
        );
        let (to, txn) = (self.origin, order.txn);
        if early_copy && order.contents {
            port.act(Action::CopyOut { page, to });
        }
        if early_ack && !order.contents {
            self.send(to, Body::Ack { page, txn }, port);
        }
        let Some(record) = self.table.get_mut(page) else {
            return;
        };
        let right = match order.want {
            Access::Read => Right::Read,
            Access::Write => Right::None,
        };
        record.deferred = None;
        if record.right > right {
            record.right = right;
            port.act(Action::Protect { page, right });
            if !no_quiesce {
                let range = Range::one(page);
                port.act(Action::Quiesce { range });
            }
        }
        if order.contents {
            self.send(to, Body::Contents { page, txn }, port);
        } else if !early_ack {
            self.send(to, Body::Ack { page, txn }, port);
        }
    }

    /// H8: a hold may be over.
    pub(crate) fn expired(&mut self, now: Time, page: Page, port: &mut impl Port) {
        let (me, rules) = (self.me, self.rules);
        let Some(record) = self.table.get_mut(page) else {
            return;
        };
        for time in [&mut record.hold_until, &mut record.long_until] {
            if *time <= now {
                *time = Time(0);
            }
        }
        let Some(order) = record.deferred else { return };
        match record.waits_until(now, &order, me, rules, port) {
            Some(until) => port.act(Action::Defer { page, until }),
            None => self.obey(page, order, port),
        }
    }

    /// H10: forgets the pages of a range.
    pub(crate) fn drop_range(&mut self, range: Range, port: &mut impl Port) {
        let (mut threads, mut leaves, mut frames) = (0, false, 0);
        for (_, record) in self.table.records(range) {
            threads |= record.waiters;
            leaves |= record.leaf;
            frames += u32::from(record.frame);
        }
        if threads != 0 {
            let outcome = Outcome::Refused(Cause::Gone);
            port.act(Action::Wake { threads, outcome });
        }
        if leaves {
            port.act(Action::Unmap { range });
            port.act(Action::Quiesce { range });
        }
        if frames != 0 {
            port.act(Action::Free { range });
        }
        self.frames += frames;
        self.table.erase(range);
    }

    /// The origin, or at the origin a holder, has died.
    pub(crate) fn down(
        &mut self,
        now: Time,
        node: NodeId,
        port: &mut impl Port,
    ) -> Result<(), Refusal> {
        if node == self.me || node.index() >= NODES || !self.alive.has(node) {
            return Err(Refusal::Sender);
        }
        self.alive = self.alive.without(node);
        if let Some(outbox) = self.outbox.get_mut(node.index()) {
            *outbox = Default::default();
        }
        if node == self.origin {
            self.end(port);
        } else if self.is_origin() {
            self.holder_died(now, node, port);
        }
        Ok(())
    }

    /// The nodes beside this one that live.
    pub(crate) fn others(&self) -> NodeSet {
        self.alive.without(self.me)
    }
}
