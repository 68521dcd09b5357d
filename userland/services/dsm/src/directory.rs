//! The rows of the origin, O1 to O7, and what it does when a node dies.

use dyad_abi::NodeId;

use crate::event::{Action, Port, Refusal, Source};
use crate::ids::{Access, Incarnation, NodeSet, Page, Right, Seq, Time, Txn};
use crate::node::Dsm;
use crate::record::{Busy, Copies, Queued, Record};
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
    /// A node asks for a page.
    pub(crate) fn request(
        &mut self,
        page: Page,
        mut queued: Queued,
        port: &mut impl Port,
    ) -> Result<(), Refusal> {
        let Queued {
            node: from, seq, ..
        } = queued;
        // Requests of a node come in the order of their numbers: anything else is forged or a duplicate.
        match self.requests.get_mut(from.index()) {
            Some(last) if seq > *last => *last = seq,
            _ => return Err(Refusal::Stale),
        }
        if !self.is_live(page) {
            self.count_local(from);
            self.nak(from, page, seq, Cause::Gone, port);
            return Ok(());
        }
        let (no_busy, on_request) = (
            self.lacks(Weakening::NoBusy),
            self.lacks(Weakening::ContentsOnRequest),
        );
        let Ok(record) = self.table.get_or_insert(page) else {
            self.count_local(from);
            self.nak(from, page, seq, Cause::NoMemory, port);
            return Ok(());
        };
        // The holder has one request for a page at a time. A second one is forged, and gets no answer.
        let is_out = record.queue.iter().any(|q| q.node == from)
            || record.busy.is_some_and(|b| b.node == Some(from));
        if is_out && !no_busy {
            return Err(Refusal::Stale);
        }
        queued.had = on_request && holders(record.copies).has(from);
        record.queue.push(queued).map_err(|_| Refusal::Stale)?;
        if no_busy {
            record.busy = None;
        }
        self.serve(page, port);
        Ok(())
    }

    /// Serves the requests that wait, until the page is busy.
    fn serve(&mut self, page: Page, port: &mut impl Port) {
        while let Some(record) = self.table.get_mut(page)
            && record.busy.is_none()
            && let Some(next) = record.queue.pop_front()
        {
            self.serve_one(page, next, port);
        }
    }

    fn serve_one(&mut self, page: Page, q: Queued, port: &mut impl Port) {
        let me = self.me;
        let Some(record) = self.table.get_mut(page) else {
            return;
        };
        let copies = record.copies;
        let has = holders(copies).has(q.node);
        let done = match (copies, q.want) {
            (Copies::Lost, _) => {
                self.nak(q.node, page, q.seq, Cause::Lost, port);
                true
            }
            // O1
            (Copies::Untouched, _) => {
                record.copies = Copies::Exclusive(q.node);
                self.grant(page, q, Grant::Zero, Right::Write, port);
                true
            }
            // O6
            (Copies::Exclusive(_), _) if has => {
                self.grant(page, q, Grant::Same, Right::Write, port);
                true
            }
            (Copies::Shared(_), Access::Read) if has => {
                self.grant(page, q, Grant::Same, Right::Read, port);
                true
            }
            // O2, from the origin's own copy
            (Copies::Shared(set), Access::Read) if set.has(me) => {
                record.copies = Copies::Shared(set.with(q.node));
                self.grant(page, q, Grant::Contents, Right::Read, port);
                true
            }
            // O2
            (Copies::Shared(set), Access::Read) => {
                let source = set.prefer(me);
                self.begin(page, q, NodeSet::EMPTY, source, port)
            }
            // Only without the rule that contents follow from the set.
            (Copies::Exclusive(owner), Access::Write) if q.had => {
                self.begin(page, q, NodeSet::one(owner), None, port)
            }
            // O3, O5
            (Copies::Exclusive(owner), _) => self.begin(page, q, NodeSet::EMPTY, Some(owner), port),
            // O4: whether contents are needed follows from the set as it is now
            (Copies::Shared(set), Access::Write) => {
                let others = set.without(q.node);
                if has && others.is_empty() {
                    record.copies = Copies::Exclusive(q.node);
                    self.grant(page, q, Grant::Same, Right::Write, port);
                    true
                } else {
                    let source = match has || q.had {
                        true => None,
                        false => others.prefer(me),
                    };
                    self.begin(page, q, others, source, port)
                }
            }
        };
        if done {
            self.count_local(q.node);
        }
    }

    /// Begins a transaction: the source gives contents, the others give up the page. Returns whether it is over
    /// already, without a message to another node.
    fn begin(
        &mut self,
        page: Page,
        q: Queued,
        others: NodeSet,
        source: Option<NodeId>,
        port: &mut impl Port,
    ) -> bool {
        let me = self.me;
        let wait = source.map_or(others, |s| others.with(s));
        if source.is_some_and(|s| s != me) && !self.has_frame_for(page) {
            // Contents pass through a frame of the origin.
            self.nak(q.node, page, q.seq, Cause::NoMemory, port);
            return true;
        }
        self.txn = Txn(self.txn.0 + 1);
        let txn = self.txn;
        if let Some(record) = self.table.get_mut(page) {
            record.busy = Some(Busy {
                node: Some(q.node),
                want: q.want,
                seq: q.seq,
                since: q.since,
                txn,
                wait,
                source,
                filled: false,
            });
        }
        if q.node == me && !wait.without(me).is_empty() {
            self.counters.faults += 1;
        }
        for to in wait.iter() {
            let (want, node, since) = (q.want, q.node, q.since);
            let order = match source == Some(to) {
                true => Body::Pull {
                    page,
                    want,
                    txn,
                    node,
                    since,
                },
                false => Body::Invalidate {
                    page,
                    txn,
                    node,
                    since,
                },
            };
            self.send(to, order, port);
        }
        false
    }

    /// Sets a frame of the origin aside for a page, if there is none yet.
    fn has_frame_for(&mut self, page: Page) -> bool {
        let frames = self.frames;
        let Some(record) = self.table.get_mut(page) else {
            return false;
        };
        if !record.frame {
            if frames == 0 {
                return false;
            }
            record.frame = true;
            self.frames -= 1;
        }
        true
    }

    fn grant(&mut self, page: Page, q: Queued, grant: Grant, right: Right, port: &mut impl Port) {
        let seq = q.seq;
        let body = Body::Grant {
            page,
            seq,
            grant,
            right,
        };
        self.send(q.node, body, port);
    }

    fn count_local(&mut self, node: NodeId) {
        if node == self.me {
            self.counters.local += 1;
        }
    }

    /// A holder has done what it was told, with or without contents.
    pub(crate) fn answer(
        &mut self,
        from: NodeId,
        page: Page,
        txn: Txn,
        contents: bool,
        port: &mut impl Port,
    ) -> Result<(), Refusal> {
        let me = self.me;
        let record = self.table.get_mut(page).ok_or(Refusal::NotAwaited)?;
        let busy = record.busy.as_mut().ok_or(Refusal::NotAwaited)?;
        let is_source = busy.source == Some(from);
        if busy.txn != txn || !busy.wait.has(from) || contents && !is_source {
            return Err(Refusal::NotAwaited);
        }
        busy.wait = busy.wait.without(from);
        busy.filled |= contents;
        if contents && from != me {
            let source = Source::Message;
            port.act(Action::Fill { page, source });
        }
        if is_source && !contents {
            // It does not have what the directory thinks: it is not asked again.
            record.copies = match record.copies {
                Copies::Shared(set) => Copies::Shared(set.without(from)),
                copies => copies,
            };
        }
        self.finish(page, port);
        Ok(())
    }

    /// Ends the transaction of a page if all answers are there.
    fn finish(&mut self, page: Page, port: &mut impl Port) {
        let alive = self.alive;
        let Some(record) = self.table.get_mut(page) else {
            return;
        };
        let Some(busy) = record.busy.filter(|b| b.wait.is_empty()) else {
            return;
        };
        record.busy = None;
        // A reader leaves the owner its copy; a writer leaves no copy.
        let left = match (busy.want, record.copies) {
            (Access::Write, _) => NodeSet::EMPTY,
            (Access::Read, Copies::Exclusive(owner)) if alive.has(owner) && busy.filled => {
                NodeSet::one(owner)
            }
            (Access::Read, Copies::Shared(set)) => set,
            (Access::Read, _) => NodeSet::EMPTY,
        };
        let is_missing = busy.source.is_some() && !busy.filled;
        let Some(node) = busy.node else {
            // The requester has died. What was given up for it is lost.
            record.copies = shared_or_lost(left);
            return self.over(page, port);
        };
        let q = Queued {
            node,
            want: busy.want,
            seq: busy.seq,
            since: busy.since,
            had: false,
        };
        if is_missing {
            record.copies = shared_or_lost(left);
            if left.is_empty() {
                self.nak(node, page, busy.seq, Cause::Lost, port);
            } else {
                let source = left.prefer(self.me);
                if !self.begin(page, q, NodeSet::EMPTY, source, port) {
                    return;
                }
            }
            return self.over(page, port);
        }
        let grant = match busy.source {
            Some(_) => Grant::Contents,
            None => Grant::Same,
        };
        match busy.want {
            Access::Write => {
                record.copies = Copies::Exclusive(node);
                self.grant(page, q, grant, Right::Write, port);
            }
            Access::Read => {
                record.copies = Copies::Shared(left.with(node));
                self.grant(page, q, grant, Right::Read, port);
            }
        }
        self.over(page, port);
    }

    /// A page is not busy any more.
    fn over(&mut self, page: Page, port: &mut impl Port) {
        self.serve(page, port);
        if self.table.get(page).is_some_and(|r| r.busy.is_none()) {
            self.idle(page, port);
        }
    }

    /// A holder has died: its requests go, its answers count as given, its only copies are lost.
    pub(crate) fn holder_died(&mut self, now: Time, node: NodeId, port: &mut impl Port) {
        let (me, stale) = (self.me, self.lacks(Weakening::StaleFrame));
        for place in 0..self.table.places() {
            let page = self.table.page_at(place);
            let Some((page, record)) = page.and_then(|p| Some((p, self.table.get_mut(p)?))) else {
                continue;
            };
            record.queue.retain(|q| q.node != node);
            if let Some(busy) = &mut record.busy {
                busy.wait = busy.wait.without(node);
                busy.node = busy.node.filter(|&n| n != node);
            }
            let is_busy = record.busy.is_some();
            record.copies = match record.copies {
                Copies::Exclusive(owner) if owner == node && stale && record.frame => {
                    record.right = Right::Read;
                    Copies::Shared(NodeSet::one(me))
                }
                Copies::Exclusive(owner) if owner == node && !is_busy => Copies::Lost,
                Copies::Shared(set) if set.has(node) => match set.without(node) {
                    set if set.is_empty() && !is_busy => Copies::Lost,
                    set => Copies::Shared(set),
                },
                copies => copies,
            };
            self.finish(page, port);
            self.drain(now, port);
        }
        self.drops_without(node, port);
    }

    /// A node has joined again. It has no page, and its requests begin with number 1.
    pub(crate) fn up(&mut self, node: NodeId, incarnation: Incarnation) -> Result<(), Refusal> {
        if !self.is_origin() {
            return Err(Refusal::Role);
        }
        if !self.group.has(node) || self.alive.has(node) {
            return Err(Refusal::Sender);
        }
        if incarnation <= self.incarnations[node.index()] {
            return Err(Refusal::Incarnation);
        }
        self.alive = self.alive.with(node);
        self.incarnations[node.index()] = incarnation;
        self.requests[node.index()] = Seq(0);
        Ok(())
    }
}

/// The nodes that have a copy.
fn holders(copies: Copies) -> NodeSet {
    match copies {
        Copies::Exclusive(owner) => NodeSet::one(owner),
        Copies::Shared(set) => set,
        Copies::Untouched | Copies::Lost => NodeSet::EMPTY,
    }
}

fn shared_or_lost(set: NodeSet) -> Copies {
    match set.is_empty() {
        true => Copies::Lost,
        false => Copies::Shared(set),
    }
}

impl<const NODES: usize> Record<NODES> {
    /// The nodes that have a copy, as far as the directory knows.
    pub fn holders(&self) -> NodeSet {
        holders(self.copies)
    }
}
