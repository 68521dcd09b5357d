//! What the page protocol decides, done.

extern crate alloc;

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use dyad_abi::service::peer::{IMAGE, Setup};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{NodeId, Result};
use dyad_dsm::wire::{self, HEADER};
use dyad_dsm::{Action, Cause, Dsm, Message, Outcome, Page, Port, Source, Time};
use dyad_msg::bulk::{Head, LINES_MASK, Record};

use crate::links::Link;
use crate::memory::{Frames, PAGE_WORDS};
use crate::slots;

/// Nodes of a group.
pub const NODES: usize = 2;
/// Chunks of page records.
pub const CHUNKS: usize = 256;
/// Page records of a chunk: those of a page table.
pub const PAGES: usize = 512;
const THREADS: usize = 64;
const REGIONS: usize = 64;
const QUEUE: usize = dyad_dsm::node::outbox_bound(NODES, THREADS, REGIONS);

/// The page protocol on this node.
pub type Pages = Dsm<NODES, CHUNKS, PAGES, THREADS, QUEUE, REGIONS>;

/// Kinds of records, in the tag of their heads.
pub mod kind {
    /// A message of the page protocol: its header, and a page behind it or nothing.
    pub const PAGE: u64 = 1;
    /// A thread goes on here: number, program counter, stack pointer, frame pointer, whether it has been woken; its control
    /// block.
    pub const MOVED: u64 = 2;
    /// A thread asks: number, operation, three arguments, its node.
    pub const ASK: u64 = 3;
    /// The answer: number, status, value.
    pub const ANSWER: u64 = 4;
    /// A thread is to be woken: number, whether it has been taken off the list of those that wait for a word.
    pub const WAKE: u64 = 5;
    /// Text for the console: number, operation, offset, length; the text.
    pub const TEXT: u64 = 6;
}

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
    /// The record that is being received, and the link that it has come by.
    pub incoming: Option<(usize, Record)>,
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
    pub fn new(frames: Frames, links: Vec<Link>, setup: &'static Setup) -> Outside {
        Outside {
            frames,
            links,
            incoming: None,
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

    /// Sends a record; `false`: there is no room.
    pub fn push(&mut self, to: NodeId, head: &Head, word: impl Fn(usize) -> u64) -> bool {
        let Some(link) = self.link(to).map(|i| &mut self.links[i]) else {
            return false;
        };
        let sent = link.sender.get_mut().push(&link.out, head, word).is_ok();
        if sent {
            link.untold = true;
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
        for n in (0..64).filter(|n| threads >> n & 1 != 0) {
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
