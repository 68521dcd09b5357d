//! What the page protocol decides, done.

extern crate alloc;

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::peer::{IMAGE, Setup};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{NodeId, Result};
use dyad_dsm::wire::{self, HEADER};
use dyad_dsm::{Action, Cause, Dsm, Message, Outcome, Page, Port, Source, Time};
use dyad_msg::bulk::{Head, LINES_MASK, Record};
use dyad_services::rt;

use crate::links::{COMES_AT, Link, Transit};
use crate::memory::{Frames, PAGE_WORDS};
use crate::parts;
use crate::slots::{self, SLOTS};

/// Most nodes of a group.
pub const NODES: usize = MAX_NODES;
/// Chunks of page records.
pub const CHUNKS: usize = 256;
/// Page records of a chunk: those of a page table.
pub const PAGES: usize = 512;
const THREADS: usize = 64;
const REGIONS: usize = 64;
/// Pages at a time that are asked for on behalf of a thread that is to bring them: half of what a ring has room for, so that their
/// contents do not wait for room.
pub const PIPELINE: usize = 8;
/// Each page that is on its way for a thread counts as another thread that waits.
const QUEUE: usize = dyad_dsm::node::outbox_bound(NODES, THREADS + PIPELINE, REGIONS);

/// The page protocol on this node.
pub type Pages = Dsm<NODES, CHUNKS, PAGES, THREADS, QUEUE, REGIONS>;

/// Kinds of records, in the tag of their heads.
pub mod kind {
    /// A message of the page protocol: its header, and a page behind it or nothing.
    pub const PAGE: u64 = 1;
    /// A thread goes on here: number, program counter, stack pointer, frame pointer, whether it has been woken, number of the
    /// move; its control block.
    pub const MOVED: u64 = 2;
    /// A thread asks: number, operation, three arguments, its node and the number of the question.
    pub const ASK: u64 = 3;
    /// The answer: number, status, value, number of the question.
    pub const ANSWER: u64 = 4;
    /// A thread is to be woken: number, whether it has been taken off the list of those that wait for a word.
    pub const WAKE: u64 = 5;
    /// The kernel thread of a thread that is to begin is to begin here as well: number.
    pub const PREPARE: u64 = 7;
    /// It has begun: number.
    pub const READY: u64 = 8;
    /// To the origin: a thread has ended: number.
    pub const ENDED: u64 = 9;
    /// Text for the console: number, operation, offset, length, number of the question; the text.
    pub const TEXT: u64 = 6;
    /// Pages are to be fetched before a thread comes: its number, how many ranges, whether these are the last; the ranges,
    /// each first page and number of pages.
    pub const FETCH: u64 = 10;
    /// They are there: number.
    pub const FETCHED: u64 = 11;
    /// To the origin: a thread is on a node, as far as the sender knows: number, node, number of its move.
    pub const AT: u64 = 12;
    /// To the origin: the sender has received all that a dead node had sent, and has reported threads that it had sent there:
    /// number of that node.
    pub const SAID: u64 = 13;
    /// From the origin: what was lost with dead nodes is known.
    pub const SETTLED: u64 = 14;
}

/// Words of the head of a page message, behind its header: when what it answers had come, and when it was sent itself.
const CAME_AT: usize = 5;
const WENT_AT: usize = 6;
const _: () = assert!(HEADER / 8 < CAME_AT);

/// Lines of a page.
const PAGE_LINES: u64 = PAGE_SIZE / 64;

/// Word 0 of a head.
pub const fn tag(kind: u64, lines: u64) -> u64 {
    kind << 8 | lines & LINES_MASK
}

/// What the handler of a fault is told.
pub mod told {
    /// The thread executes its instruction again.
    pub const RETRY: u64 = 0;
    /// The page is in no region.
    pub const GONE: u64 = 1;
    /// There is no memory for it.
    pub const NO_MEMORY: u64 = 2;
    /// It was lost with a node, or the group has ended.
    pub const LOST: u64 = 3;
}

/// Everything that actions are about.
pub struct Outside {
    /// Frames, window, page tables.
    pub frames: Frames,
    /// Rings to the other nodes.
    pub links: Vec<Link>,
    /// How messages travel.
    pub way: Transit,
    here: NodeId,
    /// The record that is being received, and the link that it has come by.
    pub incoming: Option<(usize, Record)>,
    /// When it has come, if parts of faults are measured.
    pub come_at: Option<u64>,
    /// The thread whose fault is being served.
    pub faulting: Option<u64>,
    /// Threads that are about to come and have pages fetched, by bit: none of them waits for a page here itself.
    pub coming: u64,
    /// The page whose contents go with the next message.
    copied: Option<Page>,
    /// Pages whose hold ends, and when.
    pub deferred: Vec<(Page, Time)>,
    /// Ranges that are on no node any more.
    pub unmapped: Vec<dyad_dsm::Range>,
    /// Whether threads that are woken are none of the process: the actor reads the image in.
    pub reads_image: bool,
    setup: &'static Setup,
    /// Bytes of messages.
    pub bytes: u64,
    /// An action that could not be done: the group ends.
    pub failed: Option<(&'static str, dyad_abi::Error)>,
}

impl Outside {
    /// Nothing has happened yet.
    pub fn new(
        here: NodeId,
        frames: Frames,
        (links, way): (Vec<Link>, Transit),
        setup: &'static Setup,
    ) -> Outside {
        Outside {
            frames,
            links,
            way,
            here,
            incoming: None,
            come_at: None,
            faulting: None,
            coming: 0,
            copied: None,
            deferred: Vec::new(),
            unmapped: Vec::new(),
            reads_image: false,
            setup,
            bytes: 0,
            failed: None,
        }
    }

    fn link(&self, to: NodeId) -> Option<usize> {
        self.links.iter().position(|l| l.node == to)
    }

    /// Whether a node has sent a record that has not been received yet, though it may not have come.
    ///
    /// # Errors
    ///
    /// `Corrupt` for a ring that its sender cannot have made.
    pub fn has_record(&mut self, from: NodeId) -> Result<bool> {
        let Some(link) = self.link(from).map(|i| &mut self.links[i]) else {
            return Ok(false);
        };
        let next = link.receiver.next(&link.back);
        Ok(next.map_err(|_| dyad_abi::Error::Corrupt)?.is_some())
    }

    /// A node has died: its actor is told nothing more.
    pub fn forget(&mut self, node: NodeId) {
        if let Some(link) = self.link(node).map(|i| &mut self.links[i]) {
            link.untold = false;
            link.told_at = None;
        }
    }

    /// The time, if messages take some; else 0.
    ///
    /// # Errors
    ///
    /// As the kernel says.
    pub fn time_of_messages(&self) -> Result<u64> {
        match self.way.takes_time() {
            true => rt::hardware(self.here).now(),
            false => Ok(0),
        }
    }

    /// When the first record comes that is on its way: also if the actor has not been told of it yet.
    ///
    /// # Errors
    ///
    /// `Corrupt` for a ring that its sender cannot have made.
    pub fn comes_next(&mut self) -> Result<Option<u64>> {
        if !self.way.takes_time() {
            return Ok(None);
        }
        let mut first = None;
        for link in &mut self.links {
            let next = link.receiver.next(&link.back);
            if let Some(record) = next.map_err(|_| dyad_abi::Error::Corrupt)? {
                let at = record.head[COMES_AT];
                first = Some(first.map_or(at, |first: u64| first.min(at)));
            }
        }
        Ok(first)
    }

    /// Sends a record; `false`: there is no room. It is on its way from when all of it is written.
    pub fn push(&mut self, to: NodeId, head: &Head, word: impl Fn(usize) -> u64) -> bool {
        let (here, way) = (self.here, self.way);
        let (faulting, come_at) = (self.faulting, self.come_at);
        let mut comes_at = None;
        let seal = |head: &mut Head| {
            if head[0] >> 8 == kind::PAGE
                && let Some(now) = parts::now()
            {
                match (faulting, come_at) {
                    (Some(n), _) => parts::sent(n, now),
                    (None, Some(come)) => (head[CAME_AT], head[WENT_AT]) = (come, now),
                    (None, None) => {}
                }
            }
            if way.takes_time() {
                // Without a clock nothing would ever come; then it comes at once.
                head[COMES_AT] = way.comes(head, rt::hardware(here).now().unwrap_or(0));
                comes_at = Some(head[COMES_AT]);
            }
        };
        let Some(link) = self.link(to).map(|i| &mut self.links[i]) else {
            return false;
        };
        let sender = link.sender.get_mut();
        let sent = sender.push(&link.out, head, word, seal).is_ok();
        if sent {
            link.untold = true;
            link.told_at = link.told_at.or(comes_at);
            self.bytes += HEADER as u64 + (head[0] & LINES_MASK) * 64;
        }
        sent
    }

    fn send(&mut self, to: NodeId, message: &Message) -> Result<()> {
        let header = wire::encode(message);
        let mut head = [0; 8];
        for (word, bytes) in head[1..].iter_mut().zip(header.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let page = self.copied.take();
        let done = match page {
            Some(page) => {
                let (frame, _) = self.frames.frame(page)?;
                let from = self.frames.words(frame);
                head[0] = tag(kind::PAGE, PAGE_LINES);
                self.push(to, &head, |i| from[i % PAGE_WORDS].load(Ordering::Relaxed))
            }
            None => {
                head[0] = tag(kind::PAGE, 0);
                self.push(to, &head, |_| 0)
            }
        };
        match done {
            true => Ok(()),
            // It was asked whether there is room.
            false => Err(dyad_abi::Error::Full),
        }
    }

    fn fill(&mut self, page: Page, source: Source) -> Result<()> {
        let (frame, zero) = self.frames.frame(page)?;
        let to = self.frames.words(frame);
        match (source, self.incoming) {
            (Source::Zero, _) if self.reads_image => self.read_image(page, to),
            (Source::Zero, _) => {
                if !zero {
                    to.iter().for_each(|word| word.store(0, Ordering::Relaxed));
                }
            }
            (Source::Message, Some((link, record))) => {
                let link = &self.links[link];
                link.receiver.copy(&link.back, &record, |i, word| {
                    to[i % PAGE_WORDS].store(word, Ordering::Relaxed);
                });
            }
            (Source::Message, None) => return Err(dyad_abi::Error::Corrupt),
        }
        Ok(())
    }

    /// Fills a page with what the image has there.
    fn read_image(&self, page: Page, to: &[core::sync::atomic::AtomicU64; PAGE_WORDS]) {
        let mut from = IMAGE;
        let count = (self.setup.range_count as usize).min(self.setup.ranges.len());
        for range in &self.setup.ranges[..count] {
            let within = page.address().wrapping_sub(range.start);
            if within < range.filled {
                copy_image(from + within, to);
            }
            from += range.filled;
        }
    }

    fn wake(&self, threads: u64, outcome: Outcome) {
        if self.reads_image {
            return;
        }
        let told = match outcome {
            Outcome::Retry => told::RETRY,
            Outcome::Refused(Cause::Gone) => told::GONE,
            Outcome::Refused(Cause::NoMemory) => told::NO_MEMORY,
            Outcome::Refused(Cause::Lost) | Outcome::Ended => told::LOST,
        };
        let threads = threads & !self.coming;
        for n in (0..64).filter(|n| threads >> n & 1 != 0) {
            if let (Some((_, record)), Some(come)) = (self.incoming, self.come_at)
                && let Some(now) = parts::now()
            {
                let there = [record.head[CAME_AT], record.head[WENT_AT]];
                parts::done(n, there, (come, now));
            }
            slots::answer(n, [told, 0, 0, 0]);
        }
    }
}

#[allow(unsafe_code)]
fn copy_image(from: u64, to: &[core::sync::atomic::AtomicU64; PAGE_WORDS]) {
    use core::ptr::with_exposed_provenance;
    // SAFETY: 1. Init maps the filled pages of all ranges there, one behind the other, readable, for as long as the peer
    // lives, and nothing writes them.
    let from = unsafe { &*with_exposed_provenance::<[u64; PAGE_WORDS]>(from as usize) };
    for (to, &word) in to.iter().zip(from) {
        to.store(word, Ordering::Relaxed);
    }
}

impl Port for Outside {
    fn has_room(&self, to: NodeId) -> bool {
        self.link(to).is_some_and(|i| {
            let link = &self.links[i];
            let room = link.sender.borrow_mut().has_room(&link.out, PAGE_LINES);
            room.unwrap_or(false)
        })
    }

    fn not_resumed(&self, threads: u64) -> u64 {
        SLOTS.not_resumed(threads)
    }

    fn act(&mut self, action: Action) {
        let (what, done) = match action {
            Action::Protect { page, right } => ("protecting", self.frames.protect(page, right)),
            // The actor runs, so the only CPU of this node is in the peer's address space: it has dropped its
            // translations of the process, and walks the tables again when it enters that.
            Action::Quiesce { .. } => ("quiescence", Ok(())),
            Action::CopyOut { page, .. } => {
                self.copied = Some(page);
                return;
            }
            Action::Send { to, message } => ("sending", self.send(to, &message)),
            Action::Fill { page, source } => ("filling", self.fill(page, source)),
            Action::Map { page, right } => ("mapping", self.frames.map(page, right)),
            Action::Wake { threads, outcome } => {
                self.wake(threads, outcome);
                return;
            }
            Action::Defer { page, until } => {
                self.deferred.push((page, until));
                return;
            }
            Action::Unmap { range } => ("unmapping", self.frames.unmap(range)),
            Action::Free { range } => {
                self.frames.free(range);
                return;
            }
            Action::Unmapped { range } => {
                self.unmapped.push(range);
                return;
            }
            Action::End => ("the group", Err(dyad_abi::Error::NodeDead)),
        };
        if let Err(e) = done
            && self.failed.is_none()
        {
            self.failed = Some((what, e));
        }
    }
}
