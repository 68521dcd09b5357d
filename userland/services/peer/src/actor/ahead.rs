//! Pages that go to another node before a thread does.
//!
//! The node that the thread leaves says which pages it has. The other node asks for each of them to write, as if the thread had
//! faulted there already, several at a time: ordinary requests, so the directory and the rights of both nodes change by the rows
//! of the page protocol, and nothing is to be undone if a page is wanted elsewhere meanwhile. The thread is sent when all have
//! been answered.
//!
//! ```text
//!   a:  MOVE with AHEAD ──▶ FETCH ranges ─┐                        ┌─▶ MOVED ─┐
//!   b:                                    └▶ requests ◀─▶ grants ──┴ FETCHED  └▶ goes on
//! ```
//!
//! Times of a move: asked, listed (FETCH is sent), pages (FETCHED is here), sent, came.

extern crate alloc;

use alloc::vec;
use alloc::vec::Vec;

use dyad_abi::user::{MAX_PROGRAM_THREADS, PAGE_SIZE, stack_slot};
use dyad_abi::{Error, NodeId};
use dyad_dsm::{Access, Event, Page, Range, Right, ThreadNo};
use dyad_msg::bulk::{Record, lines_behind};

use super::Actor;
use super::roster::Going;
use crate::port::{PAGES, PIPELINE, kind, tag};

/// Ranges of a record: as many as the contents of a page would take.
const RANGES: usize = PAGE_SIZE as usize / 16;
/// Most ranges that a thread brings: no list of a node whose pages are in use is longer, as each names a page that it has.
const MOST: usize = 1 << 16;

/// A thread that waits until its pages are on the other node.
struct Leaving {
    n: u64,
    node: NodeId,
    going: Going,
    /// When it had asked, and when its pages had been named.
    times: [u64; 2],
}

/// A thread whose pages come here.
struct Coming {
    n: u64,
    thread: ThreadNo,
    from: NodeId,
    ranges: Vec<Range>,
    /// The page that is asked for next: its range, and its place there.
    next: (usize, u64),
    /// No other ranges follow.
    is_complete: bool,
    /// Pages that have been asked for.
    out: Vec<Page>,
}

impl Coming {
    fn next(&mut self) -> Option<Page> {
        let (at, within) = self.next;
        let range = self.ranges.get(at)?;
        self.next = match within + 1 < range.pages() {
            true => (at, within + 1),
            false => (at + 1, 0),
        };
        Page::new(range.first().number() + within)
    }
}

/// Threads that bring pages.
#[derive(Default)]
pub(super) struct Ahead {
    leaving: Vec<Leaving>,
    coming: Vec<Coming>,
    /// Pages that have come.
    pub(super) pages: u64,
}

impl Actor {
    /// Thread `n` leaves when the pages that are here have gone.
    pub(super) fn leave_after_pages(&mut self, n: u64, node: NodeId, going: Going, asked: u64) {
        let words = self.held_for(n);
        let records = words.len().div_ceil(2 * RANGES).max(1);
        for i in 0..records {
            let part = words.chunks(2 * RANGES).nth(i).unwrap_or(&[]);
            let lines = part.len().div_ceil(8) as u64;
            let (ranges, last) = (part.len() as u64 / 2, u64::from(i + 1 == records));
            let head = [tag(kind::FETCH, lines), n, ranges, last, 0, 0, 0, 0];
            self.send(node, head, part);
        }
        self.ahead.leaving.retain(|l| l.n != n);
        self.ahead.leaving.push(Leaving {
            n,
            node,
            going,
            times: [asked, self.time()],
        });
    }

    /// The pages that this node has, but for the native stack that thread `n` has used here: its frames have been laid out on
    /// that of the other ISA. Each range is two words.
    fn held_for(&self, n: u64) -> Vec<u64> {
        let id = dyad_abi::service::thread_id(dyad_abi::service::program::FIRST, n);
        let (bottom, top) = stack_slot(self.isa, id);
        let table = self.pages.table();
        // Most chunks are not in use.
        let chunks = (0..table.places()).step_by(PAGES);
        let used = chunks.filter(|&at| table.page_at(at).is_some());
        let pages = used.flat_map(|at| (at..at + PAGES).filter_map(|at| table.page_at(at)));
        let held = pages.filter(|&page| self.pages.right(page) != Right::None);
        let mut words: Vec<u64> = Vec::new();
        for page in held.filter(|page| !(bottom..top).contains(&page.address())) {
            match words.as_chunks_mut().0.last_mut() {
                Some([first, pages]) if *first + *pages == page.number() => *pages += 1,
                _ => words.extend([page.number(), 1]),
            }
        }
        words
    }

    /// Pages are to be here before thread `n`.
    pub(super) fn asked_to_fetch(&mut self, link: usize, record: &Record) {
        let [_, n, ranges, last, ..] = record.head;
        let from = &self.outside.links[link];
        let node = from.node;
        let thread = u8::try_from(n).ok().and_then(ThreadNo::new);
        let (Some(thread), true) = (thread, n < MAX_PROGRAM_THREADS) else {
            return self.refuse();
        };
        let count = usize::try_from(ranges).unwrap_or(usize::MAX);
        if count > RANGES || lines_behind(&record.head) != ranges.div_ceil(4) {
            return self.refuse();
        }
        let mut words = vec![0; 2 * count];
        from.receiver.copy(&from.back, record, |i, word| {
            if let Some(to) = words.get_mut(i) {
                *to = word;
            }
        });
        let known = self.ahead.coming.iter().position(|c| c.n == n);
        let at = known.unwrap_or_else(|| {
            self.ahead.coming.push(Coming {
                n,
                thread,
                from: node,
                ranges: Vec::new(),
                next: (0, 0),
                is_complete: false,
                out: Vec::new(),
            });
            self.ahead.coming.len() - 1
        });
        let coming = &mut self.ahead.coming[at];
        let named = words
            .as_chunks()
            .0
            .iter()
            .map(|&[first, pages]| Range::new(Page::new(first)?, pages));
        let named: Option<Vec<Range>> = named.collect();
        match named {
            Some(named) if coming.from == node && coming.ranges.len() + named.len() <= MOST => {
                coming.ranges.extend(named);
                coming.is_complete |= last != 0;
                self.outside.coming |= thread.bit();
            }
            _ => self.refuse(),
        }
    }

    /// Asks for pages of threads that come, as many at a time as may be on their way, and tells of those that have all.
    pub(super) fn fetch(&mut self) {
        let mut at = 0;
        while let Some(coming) = self.ahead.coming.get_mut(at) {
            let bit = coming.thread.bit();
            let pages = &self.pages;
            let waits = |page: &Page| pages.record(*page).is_some_and(|r| r.waiters & bit != 0);
            coming.out.retain(waits);
            if coming.out.len() < PIPELINE
                && let Some(page) = coming.next()
            {
                let (thread, want) = (coming.thread, Access::Write);
                coming.out.push(page);
                self.ahead.pages += 1;
                // Each page is asked for by an instruction of its own, so none is held for another one.
                let pc = page.address();
                // If it is refused, the thread asks for it itself.
                let _ = self.step(Event::Fault {
                    thread,
                    page,
                    want,
                    pc,
                });
                continue;
            }
            let (n, from) = (coming.n, coming.from);
            match coming.is_complete && coming.out.is_empty() {
                true => {
                    self.outside.coming &= !bit;
                    self.ahead.coming.swap_remove(at);
                    self.send(from, [tag(kind::FETCHED, 0), n, 0, 0, 0, 0, 0, 0], &[]);
                }
                false => at += 1,
            }
        }
    }

    /// A node has died: threads that were about to go there stay, and those that were about to come do not.
    pub(super) fn without_ahead(&mut self, node: NodeId) {
        let leaving = core::mem::take(&mut self.ahead.leaving);
        let (there, rest) = leaving.into_iter().partition(|l| l.node == node);
        self.ahead.leaving = rest;
        for Leaving { n, .. } in there {
            crate::slots::answer(n, [Error::NodeDead.code(), 0, 0, 0]);
        }
        // They are lost. Their bits stay: pages that have been asked for wake no thread when they come.
        self.ahead.coming.retain(|c| c.from != node);
    }

    /// The pages of a thread that leaves are on the other node.
    pub(super) fn pages_are_there(&mut self, from: NodeId, n: u64) {
        let leaving = &mut self.ahead.leaving;
        let Some(at) = leaving.iter().position(|l| l.n == n && l.node == from) else {
            return self.refuse();
        };
        let Leaving {
            node, going, times, ..
        } = leaving.swap_remove(at);
        let [asked, listed] = times;
        let times = [asked, listed, self.time()];
        self.depart(n, node, going, times);
    }
}
