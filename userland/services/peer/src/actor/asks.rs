//! What threads ask, here or on other nodes, and how they get their answers.

use dyad_abi::service::{pager, process};
use dyad_abi::user::{MAX_PROGRAM_THREADS, PAGE_SIZE};
use dyad_abi::{Error, NodeId, Result};
use dyad_dsm::{Access, Event, Page, ThreadNo};
use dyad_msg::bulk::Head;

use super::roster::Starter;
use super::{Actor, pages};
use crate::parts;
use crate::port::{kind, tag, told};
use crate::service::{self, ORIGIN};
use crate::slots::{self, SLOTS};

const THREADS: usize = MAX_PROGRAM_THREADS as usize;

/// A thread that has asked for something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Asker {
    /// Its node.
    pub(super) node: NodeId,
    /// Its number.
    pub(super) n: u64,
    /// The number of what it asks, by which an answer to something else is told apart.
    pub(super) number: u64,
}

impl Asker {
    /// Node and number of the question as one word.
    const fn words(self) -> u64 {
        self.number << 8 | self.node.index() as u64
    }

    fn from_words(n: u64, of: u64) -> Option<Asker> {
        let (node, number) = (NodeId::new(of & 0xff)?, of >> 8);
        Some(Asker { node, n, number })
    }
}

/// What one thread has asked last.
#[derive(Clone, Copy)]
struct Asked {
    number: u64,
    /// Another peer was to answer it, or to pass it on.
    to: Option<NodeId>,
    /// A node has died since that may have been on the way.
    in_doubt: bool,
}

/// What the threads that are here have asked last.
pub(super) struct Asks([Asked; THREADS]);

impl Default for Asks {
    fn default() -> Asks {
        let none = Asked {
            number: 0,
            to: None,
            in_doubt: false,
        };
        Asks([none; THREADS])
    }
}

impl Asks {
    /// Thread `n` asks something.
    fn begin(&mut self, node: NodeId, n: u64) -> Asker {
        let asked = &mut self.0[n as usize % THREADS];
        let number = asked.number + 1;
        *asked = Asked {
            number,
            to: None,
            in_doubt: false,
        };
        Asker { node, n, number }
    }

    /// It is sent to another peer.
    pub(super) fn passed_on(&mut self, asker: Asker, to: NodeId) {
        let asked = &mut self.0[asker.n as usize % THREADS];
        if asked.number == asker.number {
            asked.to = Some(to);
        }
    }

    /// Whether thread `n` waits for the answer to this.
    fn waits(&self, n: u64, number: u64) -> bool {
        let asked = usize::try_from(n).ok().and_then(|n| self.0.get(n));
        asked.is_some_and(|a| a.number == number) && SLOTS.waits(n)
    }

    /// A node has died: threads whose questions had been sent there are answered. Others that follow threads may have been on
    /// that node on their way.
    pub(super) fn without(&mut self, node: NodeId) {
        for (n, asked) in (0..).zip(&mut self.0) {
            if !SLOTS.waits(n) || asked.to.is_none() {
                continue;
            }
            let what = SLOTS.words(n)[0];
            match asked.to == Some(node) {
                true => answer_without(n, what),
                false => asked.in_doubt |= follows_threads(what),
            }
        }
    }

    /// All that had been on a dead node has been passed on or is lost: who still waits is answered.
    pub(super) fn end_doubt(&mut self) {
        for (n, asked) in (0..).zip(&mut self.0) {
            if core::mem::take(&mut asked.in_doubt) && SLOTS.waits(n) {
                answer_without(n, SLOTS.words(n)[0]);
            }
        }
    }
}

/// Whether a question goes where another thread is.
const fn follows_threads(what: u64) -> bool {
    matches!(what, service::ask::WAKE | service::ask::REQUEST)
}

/// The answer that a dead node does not give.
const fn unanswered(what: u64) -> Result<u64> {
    match what {
        // All threads wake after a death.
        service::ask::WAKE => Ok(0),
        _ => Err(Error::NodeDead),
    }
}

fn answer_without(n: u64, what: u64) {
    let status = unanswered(what).err().map_or(0, Error::code);
    slots::answer(n, [status, 0, 0, 0]);
}

impl Actor {
    /// A thread of the process has asked.
    pub(super) fn asked(&mut self, n: u64) {
        let [what, a, b, c, d] = SLOTS.words(n);
        let asker = self.asks.begin(self.here, n);
        match what {
            service::ask::FAULT => {
                let (Some(page), Some(thread)) = (Page::of(a), ThreadNo::new(n as u8)) else {
                    return slots::answer(n, [told::GONE, 0, 0, 0]);
                };
                let want = if b == 2 { Access::Write } else { Access::Read };
                let fault = Event::Fault {
                    thread,
                    page,
                    want,
                    pc: c,
                };
                if let Some(now) = parts::now() {
                    parts::asked(n, now);
                }
                self.outside.faulting = Some(n);
                let served = self.step(fault);
                self.outside.faulting = None;
                if served.is_err() {
                    slots::answer(n, [told::GONE, 0, 0, 0]);
                }
            }
            service::ask::MOVE => self.leave(n, a, [b, c, d]),
            service::ask::ARRIVED => self.waits_to_come(n),
            service::ask::END_THREAD => self.ends(n),
            service::ask::CONSOLE => self.text(asker, [a, b, c]),
            service::ask::FUTEX_END if self.threads.takes_back(n) => slots::answer(n, [0, 1, 0, 0]),
            _ => self.serve(asker, [what, a, b, c]),
        }
    }

    /// An operation that a thread asks for, here or wherever it is done.
    pub(super) fn serve(&mut self, asker: Asker, [what, a, b, c]: [u64; 4]) {
        let done = match what {
            // Of threads, where they are.
            service::ask::WAKE | service::ask::REQUEST => match self.threads.way_to(a) {
                // On the way of a thread that may be lost. If it is not, all threads wake once that is known.
                Ok(Some(node)) if self.deaths.has(node) => unanswered(what),
                Ok(Some(node)) => return self.pass_on(node, asker, [what, a, b, c]),
                Ok(None) if what == service::ask::WAKE => {
                    self.wake(a, false);
                    Ok(0)
                }
                Ok(None) => self.request(a, b, c),
                // It has ended: no thread waits there.
                Err(_) if what == service::ask::WAKE && a < MAX_PROGRAM_THREADS => Ok(0),
                Err(e) => Err(e),
            },
            service::ask::BEGIN if self.here != ORIGIN => {
                self.threads.begins_as(a, b);
                return self.begin_when_ready(Starter::Thread(asker), a);
            }
            _ if self.here != ORIGIN => return self.pass_on(ORIGIN, asker, [what, a, b, c]),
            service::ask::START => return self.start(asker, a, b),
            service::ask::MAP => self.map(a),
            service::ask::UNMAP => match self.unmap(asker, a, b) {
                Ok(()) => return,
                Err(e) => Err(e),
            },
            service::ask::FUTEX_BEGIN => self.threads.futex.begin(asker, a),
            service::ask::FUTEX_END => self.threads.futex.end(asker),
            service::ask::FUTEX_WAKE => Ok(self.futex_wake(a, b)),
            _ => Err(Error::BadArgument),
        };
        self.answer(asker, done);
    }

    /// Has another peer do it, which answers the thread.
    pub(super) fn pass_on(&mut self, to: NodeId, asker: Asker, [what, a, b, c]: [u64; 4]) {
        if asker.node == self.here {
            self.asks.passed_on(asker, to);
        }
        let (n, of) = (asker.n, asker.words());
        self.send(to, [tag(kind::ASK, 0), n, what, a, b, c, of, 0], &[]);
    }

    /// A thread of another node asks.
    pub(super) fn asked_by(&mut self, head: &Head) {
        let [_, n, what, a, b, c, of, _] = *head;
        match Asker::from_words(n, of) {
            Some(asker) => self.serve(asker, [what, a, b, c]),
            None => self.refuse(),
        }
    }

    pub(super) fn answer(&mut self, asker: Asker, done: Result<u64>) {
        let (status, value) = match done {
            Ok(value) => (0, value),
            Err(e) => (e.code(), 0),
        };
        let Asker { node, n, number } = asker;
        match node == self.here {
            true => self.answered((n, number), [status, value]),
            false => {
                let head = [tag(kind::ANSWER, 0), n, status, value, number, 0, 0, 0];
                self.send(node, head, &[]);
            }
        }
    }

    /// A thread of the process gets the answer to what it has asked under a number. It may have another one already, as a node
    /// on the way has died.
    pub(super) fn answered(&mut self, (n, number): (u64, u64), [status, value]: [u64; 2]) {
        if !self.asks.waits(n, number) {
            return;
        }
        if SLOTS.words(n)[0] == service::ask::FUTEX_END {
            // It learns by this answer that it has been taken.
            self.threads.takes_back(n);
        }
        slots::answer(n, [status, value, 0, 0]);
    }

    fn map(&mut self, len: u64) -> Result<u64> {
        let range = self.ranges.map(len)?;
        let all = pages(range.start, range.len)?;
        if self.step(Event::Map { range: all }).is_err() {
            self.ranges.unmap(range)?;
            return Err(Error::Full);
        }
        Ok(range.start)
    }

    fn unmap(&mut self, asker: Asker, start: u64, len: u64) -> Result<()> {
        let range = self.ranges.find(start, len)?;
        let all = pages(range.start, range.len)?;
        // Another thread may be giving the same range back, and waits: its entry stays.
        self.step(Event::Unmap { range: all })
            .map_err(|_| Error::NotFound)?;
        // It is answered in this turn at the earliest, behind this.
        self.unmapping.push((all, asker));
        Ok(())
    }

    /// Answers those whose ranges are on no node any more.
    pub(super) fn finish_unmapping(&mut self) {
        for range in core::mem::take(&mut self.outside.unmapped) {
            let Some(at) = self.unmapping.iter().position(|&(r, _)| r == range) else {
                continue;
            };
            let (_, asker) = self.unmapping.swap_remove(at);
            let freed = self
                .ranges
                .find(range.first().address(), range.pages() * PAGE_SIZE);
            let done = freed.and_then(|range| self.ranges.unmap(range));
            self.answer(asker, done.map(|()| 0));
        }
    }
}

// The operations that handlers pass on are numbered apart.
const _: () = assert!(
    service::ask::MAP != service::ask::UNMAP
        && pager::MAP_ANON == service::ask::MAP - service::ask::FIRST_OF_PAGER
        && process::MOVE != process::ARRIVED
);
