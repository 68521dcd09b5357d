//! The state of one node, and the step function.

use dyad_abi::NodeId;

use crate::counters::Counters;
use crate::event::{Action, Event, Outcome, Port, Refusal};
use crate::ids::{Incarnation, NodeSet, Page, Right, Seq, Time, Txn};
use crate::list::List;
use crate::record::{Queued, Record};
use crate::regions::Region;
use crate::table::Table;
use crate::weakening::{Rules, Weakening};
use crate::wire::{self, Body, Message};

/// How long a granted page stays, in nanoseconds: the thread that asked executes its instruction meanwhile.
pub const HOLD_NS: u64 = 2_000;
/// How long a granted page stays beyond that for a thread that other threads of its CPU keep from running, in
/// nanoseconds: some slices.
pub const WOKEN_NS: u64 = 20_000_000;
/// When it is first looked whether that thread has run meanwhile, in nanoseconds; then after twice the time, and so on.
pub const LOOK_NS: u64 = 50_000;
/// How long the first page of an instruction stays that needs a second page, in nanoseconds.
pub const LONG_HOLD_NS: u64 = 200_000;

/// An outbox of this length never runs over: each request that is out leads to one message at a time to a node, a
/// thread waits for one request, and each region is dropped once.
pub const fn outbox_bound(nodes: usize, threads: usize, regions: usize) -> usize {
    (nodes + 1) * threads + regions
}

/// What a node begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The node.
    pub me: NodeId,
    /// The node with the directory.
    pub origin: NodeId,
    /// All nodes of the group.
    pub nodes: NodeSet,
    /// The incarnation of each node, by number; those of other nodes count at the origin only.
    pub incarnations: [Incarnation; dyad_abi::ident::MAX_NODES],
    /// Frames that pages may use.
    pub frames: u32,
    /// The rules, all of them but in tests.
    pub rules: Rules,
}

/// An instruction that has faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Instruction {
    /// Its address.
    pub(crate) pc: u64,
    /// The page that it faulted at last.
    pub(crate) page: Page,
    /// The page that it faulted at before, if it is another one.
    pub(crate) first: Option<Page>,
    /// Since when it waits.
    pub(crate) since: Time,
}

/// One node: its holder, and the directory if it is the origin.
///
/// | parameter | what |
/// |---|---|
/// | `NODES` | most nodes of the group; nodes are numbered below |
/// | `CHUNKS`, `PAGES` | chunks of records, and records in each: [`Table`] |
/// | `THREADS` | threads of the program on this node, at most [`MAX_THREADS`](crate::ids::MAX_THREADS) |
/// | `QUEUE` | messages to one node that wait for room: at least [`outbox_bound`] |
/// | `REGIONS` | ranges of pages that may be used, at the origin |
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dsm<
    const NODES: usize,
    const CHUNKS: usize,
    const PAGES: usize,
    const THREADS: usize,
    const QUEUE: usize,
    const REGIONS: usize,
> {
    pub(crate) me: NodeId,
    pub(crate) origin: NodeId,
    pub(crate) rules: Rules,
    pub(crate) incarnations: [Incarnation; dyad_abi::ident::MAX_NODES],
    pub(crate) alive: NodeSet,
    /// All nodes of the group, dead ones too.
    pub(crate) group: NodeSet,
    pub(crate) ended: bool,
    pub(crate) table: Table<Record<NODES>, CHUNKS, PAGES>,
    pub(crate) frames: u32,
    pub(crate) regions: List<Region, REGIONS>,
    /// Number of the last request of this node.
    pub(crate) seq: Seq,
    /// Number of the last transaction.
    pub(crate) txn: Txn,
    /// Number of the last request that each node has made here.
    pub(crate) requests: [Seq; NODES],
    /// What this node has sent to itself and not done yet. It is done page by page, and one page causes few messages.
    pub(crate) local: List<Message, 8>,
    pub(crate) outbox: [List<Message, QUEUE>; NODES],
    /// The last fault of each thread.
    pub(crate) last: [Option<Instruction>; THREADS],
    pub(crate) counters: Counters,
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
    /// A node that has no page yet.
    pub const fn new(config: Config) -> Self {
        Dsm {
            me: config.me,
            origin: config.origin,
            rules: config.rules,
            incarnations: config.incarnations,
            alive: config.nodes,
            group: config.nodes,
            ended: false,
            table: Table::new(),
            frames: config.frames,
            regions: List::new(),
            seq: Seq(0),
            txn: Txn(0),
            requests: [Seq(0); NODES],
            local: List::new(),
            outbox: [const { List::new() }; NODES],
            last: [None; THREADS],
            counters: Counters {
                request: 0,
                contents: 0,
                without: 0,
                invalidate: 0,
                refused: 0,
                region: 0,
                faults: 0,
                local: 0,
                joined: 0,
                spurious: 0,
                deferred: 0,
                absent: 0,
                delayed: 0,
                received: 0,
                filled: 0,
                replicas: 0,
                refusals: [0; Refusal::COUNT],
            },
        }
    }

    /// Does what an event asks for. The port gets the actions in the order in which they are to be executed.
    ///
    /// # Errors
    ///
    /// Why the event is refused. The refusal is counted, and nothing else has changed.
    pub fn step(&mut self, now: Time, event: Event, port: &mut impl Port) -> Result<(), Refusal> {
        let done = self.event(now, event, port);
        self.drain(now, port);
        if let Err(why) = done {
            self.counters.refusals[why.index()] += 1;
        }
        done
    }

    /// Decodes a message and does what it asks for.
    ///
    /// # Errors
    ///
    /// As for [`Dsm::step`], and [`Refusal::Wire`] if the bytes are no message.
    pub fn receive(
        &mut self,
        now: Time,
        from: NodeId,
        bytes: &[u8],
        port: &mut impl Port,
    ) -> Result<(), Refusal> {
        match wire::decode(bytes) {
            Ok((message, _)) => self.step(now, Event::Received { from, message }, port),
            Err(error) => {
                let why = Refusal::Wire(error);
                self.counters.refusals[why.index()] += 1;
                Err(why)
            }
        }
    }

    /// What has been counted.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Forgets what has been counted: for models, in which numbers would make states different.
    pub fn clear_counters(&mut self) {
        self.counters = Counters::default();
    }

    /// The records of pages.
    pub const fn table(&self) -> &Table<Record<NODES>, CHUNKS, PAGES> {
        &self.table
    }

    /// The record of a page, if it has one.
    pub fn record(&self, page: Page) -> Option<&Record<NODES>> {
        self.table.get(page)
    }

    /// What this node may do with a page.
    pub fn right(&self, page: Page) -> Right {
        self.table.get(page).map_or(Right::None, |r| r.right)
    }

    /// Frames that are not set aside for a page.
    pub const fn free_frames(&self) -> u32 {
        self.frames
    }

    /// Messages that wait for room in the ring to a node.
    pub fn unsent(&self, to: NodeId) -> usize {
        self.outbox.get(to.index()).map_or(0, List::len)
    }

    /// The messages that wait for room in the ring to a node, in their order.
    pub fn unsent_to(&self, to: NodeId) -> impl Iterator<Item = &Message> + Clone {
        self.outbox
            .get(to.index())
            .into_iter()
            .flat_map(|o| o.iter())
    }

    /// Whether the group has ended here.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// The regions, at the origin.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter()
    }

    pub(crate) fn lacks(&self, rule: Weakening) -> bool {
        self.rules.lacks(rule)
    }

    pub(crate) const fn is_origin(&self) -> bool {
        self.me.index() == self.origin.index()
    }

    fn event(&mut self, now: Time, event: Event, port: &mut impl Port) -> Result<(), Refusal> {
        if self.ended {
            if let Event::Fault { thread, .. } = event {
                let (threads, outcome) = (thread.bit(), Outcome::Ended);
                port.act(Action::Wake { threads, outcome });
                return Ok(());
            }
            return Err(Refusal::Ended);
        }
        match event {
            Event::Fault {
                thread,
                page,
                want,
                pc,
            } => {
                self.fault(now, thread, page, want, pc, port);
                Ok(())
            }
            Event::Received { from, message } => {
                self.admit(from, &message)?;
                self.counters.received += u64::from(!message.body.is_of_regions());
                self.counters.filled += u64::from(message.body.has_contents());
                self.dispatch(now, from, message, port)
            }
            Event::Expired { page } => {
                self.expired(now, page, port);
                Ok(())
            }
            Event::Room { to } => {
                self.flush(to, port);
                Ok(())
            }
            Event::Map { range } => self.map(range),
            Event::Unmap { range } => self.unmap(now, range, port),
            Event::Down { node } => self.down(now, node, port),
            Event::Up { node, incarnation } => self.up(node, incarnation),
        }
    }

    /// Whether this sender may send such a message to this node. What it says is looked at later.
    fn admit(&self, from: NodeId, message: &Message) -> Result<(), Refusal> {
        if from == self.me || from.index() >= NODES || !self.alive.has(from) {
            return Err(Refusal::Sender);
        }
        let holder = match message.body.is_for_origin() {
            true if self.is_origin() => from,
            false if from == self.origin => self.me,
            _ => return Err(Refusal::Role),
        };
        let of_this_life = self.incarnations[holder.index()] == message.incarnation;
        if !of_this_life && !self.lacks(Weakening::IncarnationIgnored) {
            return Err(Refusal::Incarnation);
        }
        if self.lacks(Weakening::FullRingBlocks) && self.outbox.iter().any(|o| !o.is_empty()) {
            return Err(Refusal::Blocked);
        }
        Ok(())
    }

    fn dispatch(
        &mut self,
        now: Time,
        from: NodeId,
        message: Message,
        port: &mut impl Port,
    ) -> Result<(), Refusal> {
        match message.body {
            Body::Request {
                page,
                want,
                seq,
                since,
            } => {
                let had = false;
                let node = from;
                let queued = Queued {
                    node,
                    want,
                    seq,
                    since,
                    had,
                };
                self.request(page, queued, port)
            }
            Body::Ack { page, txn } => self.answer(from, page, txn, false, port),
            Body::Contents { page, txn } => self.answer(from, page, txn, true, port),
            Body::Dropped { range } => self.dropped(from, range, port),
            Body::Drop { range } => {
                self.drop_range(range, port);
                self.send(self.origin, Body::Dropped { range }, port);
                Ok(())
            }
            Body::Pull { .. } | Body::Invalidate { .. } => self.ordered(now, message.body, port),
            Body::Grant { .. } => self.granted(now, message.body, from, port),
            Body::Nak { page, seq, cause } => self.refused(page, seq, cause, port),
        }
    }

    /// Does what this node has sent to itself.
    pub(crate) fn drain(&mut self, now: Time, port: &mut impl Port) {
        while let Some(message) = self.local.pop_front() {
            // Nothing that this node says to itself is refused, but for weakened rules.
            if let Err(why) = self.dispatch(now, self.me, message, port) {
                self.counters.refusals[why.index()] += 1;
            }
        }
    }

    /// Sends a message, or leaves it in the outbox.
    pub(crate) fn send(&mut self, to: NodeId, body: Body, port: &mut impl Port) {
        let holder = if body.is_for_origin() { self.me } else { to };
        let Some(&incarnation) = self.incarnations.get(holder.index()) else {
            return;
        };
        let message = Message { incarnation, body };
        if to == self.me {
            if self.local.push(message).is_err() {
                self.end(port);
            }
            return;
        }
        if !self.alive.has(to) {
            return;
        }
        let Some(outbox) = self.outbox.get_mut(to.index()) else {
            return;
        };
        if outbox.is_empty() && port.has_room(to) {
            self.put_out(to, message, port);
        } else if !self.rules.lacks(Weakening::OutboxDropped) {
            self.counters.delayed += 1;
            // The outbox has room for all that the threads of the group can cause.
            if outbox.push(message).is_err() {
                self.end(port);
            }
        }
    }

    fn put_out(&mut self, to: NodeId, message: Message, port: &mut impl Port) {
        self.counters.sent(message.body);
        if message.body.has_contents() && !self.has_copied(message.body) {
            let page = message.body.range().first();
            port.act(Action::CopyOut { page, to });
        }
        port.act(Action::Send { to, message });
    }

    /// Whether a weakened rule has copied the contents already.
    fn has_copied(&self, body: Body) -> bool {
        matches!(body, Body::Contents { .. }) && self.lacks(Weakening::CopyBeforeProtect)
    }

    /// Sends what waits for room.
    fn flush(&mut self, to: NodeId, port: &mut impl Port) {
        while let Some(outbox) = self.outbox.get_mut(to.index())
            && !outbox.is_empty()
            && port.has_room(to)
            && let Some(message) = outbox.pop_front()
        {
            self.put_out(to, message, port);
        }
    }

    /// Ends the group on this node: all threads that wait are told.
    pub(crate) fn end(&mut self, port: &mut impl Port) {
        if core::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut threads = 0;
        for i in 0..self.table.places() {
            let page = self.table.page_at(i);
            if let Some(record) = page.and_then(|p| self.table.get_mut(p)) {
                threads |= core::mem::take(&mut record.waiters);
                record.pend = None;
            }
        }
        if threads != 0 {
            let outcome = Outcome::Ended;
            port.act(Action::Wake { threads, outcome });
        }
        port.act(Action::End);
    }
}
