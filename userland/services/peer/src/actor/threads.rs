//! Threads of the program: how they come, go, begin and end.

extern crate alloc;

use alloc::boxed::Box;
use core::sync::atomic::Ordering;

use dyad_abi::ident::{ISA_COUNT, MAX_NODES};
use dyad_abi::service::peer::{Counted, slot};
use dyad_abi::service::{INFO_BASE, process, program, thread_id};
use dyad_abi::user::migrate_word::REQUEST;
use dyad_abi::user::{MAX_PROGRAM_THREADS, Tcb, request, stack_slot};
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_msg::bulk::{Record, lines_behind};
use dyad_services::rt;
use dyad_sys::cap::{Cap, Receive, Send, Until};

use super::asks::Asker;
use super::roster::{BLOCK_WORDS, Block, Going, Starter};
use super::{Actor, COUNTERS};
use crate::port::{kind, tag};
use crate::service::{self, INIT, ORIGIN};
use crate::slots;

/// Behind it are the times of the move up to then.
const MOVED_WORDS: usize = BLOCK_WORDS + 8;
const MOVED_LINES: u64 = MOVED_WORDS as u64 / 8;

/// The bit of [`process::MOVE`] that says so, as it is beside the number of the node.
const AHEAD: u64 = process::AHEAD >> 8;

impl Actor {
    /// The kernel thread of thread `n` waits until that comes.
    pub(super) fn waits_to_come(&mut self, n: u64) {
        let Ok(one) = self.threads.one(n) else {
            return;
        };
        let (asked_by, begins) = (core::mem::take(&mut one.asked_by), one.begins);
        for node in NodeId::first(MAX_NODES).filter(|n| asked_by >> n.index() & 1 != 0) {
            self.send(node, [tag(kind::READY, 0), n, 0, 0, 0, 0, 0, 0], &[]);
        }
        if begins {
            return self.begins(n);
        }
        let Ok(one) = self.threads.one(n) else {
            return;
        };
        match one.arrived.take() {
            Some(come) => self.comes(n, &come),
            None => one.parked = true,
        }
    }

    /// The kernel thread of a thread that is to begin here waits. Those on the other nodes have begun before.
    fn begins(&mut self, n: u64) {
        let Ok(one) = self.threads.one(n) else {
            return;
        };
        one.parked = false;
        one.begins = false;
        self.go_on(n, [0; 3]);
    }

    /// Whether the kernel threads of a thread have begun on all other nodes.
    fn others_are_ready(&mut self, n: u64) -> bool {
        let links = self.outside.links.iter();
        let living = links.filter(|l| !self.deaths.has(l.node));
        let others: u64 = living.map(|l| 1 << l.node.index()).sum();
        self.threads
            .one(n)
            .is_ok_and(|one| one.ready & others == others)
    }

    /// Asks the other nodes to have the kernel thread of a thread begin: of each ISA one after the other, as the native stack
    /// on which they begin is the same page of the program. Whether all have done so.
    pub(super) fn prepare(&mut self, n: u64, after: Option<NodeId>) -> bool {
        if self.others_are_ready(n) {
            return true;
        }
        let ready = self.threads.one(n).map_or(0, |one| one.ready);
        let isa_of = |node: NodeId| rt::info().map(|i| i.system.nodes[node.index()].isa).ok();
        let mut asked = [None; ISA_COUNT];
        for node in self.living() {
            let isa = isa_of(node);
            let is_next = after.is_none_or(|ready| isa_of(ready) == isa);
            let asked = asked.iter_mut().find(|a| a.is_none_or(|a| Some(a) == isa));
            match asked {
                Some(asked) if asked.is_none() && is_next && ready >> node.index() & 1 == 0 => {
                    *asked = isa;
                    self.send(node, [tag(kind::PREPARE, 0), n, 0, 0, 0, 0, 0, 0], &[]);
                }
                _ => {}
            }
        }
        false
    }

    /// The program's first thread begins, at the origin.
    pub(super) fn begin_first(&mut self) {
        self.begin_when_ready(Starter::System, 0);
    }

    /// The kernel thread of a thread that begins on another node is to begin here.
    pub(super) fn asked_to_prepare(&mut self, from: NodeId, n: u64) {
        let Ok(one) = self.threads.one(n) else {
            return self.refuse();
        };
        if one.exists && one.asked_by == 0 {
            self.send(from, [tag(kind::READY, 0), n, 0, 0, 0, 0, 0, 0], &[]);
            return;
        }
        one.asked_by |= 1 << from.index();
        if one.exists {
            return;
        }
        one.gone = Some(from);
        self.make_while_it_runs(n);
    }

    /// Makes a kernel thread, unless the program is ending: init refuses then, and no thread waits for it any more.
    fn make_while_it_runs(&mut self, n: u64) {
        match self.make(n) {
            Ok(()) | Err(Error::Denied) => {}
            Err(e) => self.outside.failed = Some(("starting a thread", e)),
        }
    }

    /// The kernel thread of a thread has begun on another node.
    pub(super) fn is_ready(&mut self, from: NodeId, n: u64) {
        let Ok(one) = self.threads.one(n) else {
            return self.refuse();
        };
        one.ready |= 1 << from.index();
        self.begin_if_ready(from, n);
    }

    /// The kernel thread of a thread has begun on a node, or that node has died: the thread begins here, if it is to and was
    /// waiting for no other node.
    pub(super) fn begin_if_ready(&mut self, from: NodeId, n: u64) {
        let starter = self.threads.one(n).map_or(None, |one| one.waits_for_others);
        if !self.prepare(n, Some(from)) {
            return;
        }
        if let Some(starter) = starter {
            if let Ok(one) = self.threads.one(n) {
                one.waits_for_others = None;
            }
            self.begin_when_ready(starter, n);
        }
    }

    /// A thread that has come goes on, with the control block that it has brought.
    fn comes(&self, n: u64, (going, words): &(Going, Block)) {
        // Its address and its number are the same here.
        let block = service::control_block(n).iter().zip(words).skip(2);
        for (to, &word) in block {
            to.store(word, Ordering::Relaxed);
        }
        self.go_on(n, *going);
    }

    fn go_on(&self, n: u64, [pc, sp, last]: Going) {
        slots::answer(n, [0, pc, sp, last]);
    }

    /// A thread goes to another node, now or after the pages that this node has.
    pub(super) fn leave(&mut self, n: u64, place: u64, going: Going) {
        let asked = self.time();
        let ahead = place & AHEAD != 0;
        let node = match self.node_of(place & !AHEAD) {
            Ok(node) if node != self.here => node,
            Err(e @ Error::NodeDead) => return slots::answer(n, [e.code(), 0, 0, 0]),
            _ => return slots::answer(n, [Error::NoSuchNode.code(), 0, 0, 0]),
        };
        match ahead {
            true => self.leave_after_pages(n, node, going, asked),
            false => self.depart(n, node, going, [asked; 3]),
        }
    }

    /// The fused time, in nanoseconds; 0 if there is none.
    pub(super) fn time(&self) -> u64 {
        self.now().map_or(0, |now| now.0)
    }

    /// A thread goes to another node. The times: when it had asked, when its pages were named, when they were there.
    pub(super) fn depart(
        &mut self,
        n: u64,
        node: NodeId,
        [pc, sp, fp]: Going,
        [asked, listed, pages]: [u64; 3],
    ) {
        let block = service::control_block(n);
        let mut words: [u64; MOVED_WORDS] = core::array::from_fn(|i| match block.get(i) {
            Some(word) => word.load(Ordering::Relaxed),
            None => 0,
        });
        // What has been sent to wake it goes with it.
        let woken = Cap::<Receive>::at(slot::WAITS).receive(n, Until::Now);
        let woken = u64::from(woken.is_ok_and(|bits| bits != 0));
        self.threads.has_gone(n, node);
        let moves = self.threads.has_moved(n);
        self.waits_to_come(n);
        let head = [
            tag(kind::MOVED, MOVED_LINES),
            n,
            pc,
            sp,
            fp,
            woken,
            moves,
            0,
        ];
        words[BLOCK_WORDS..][..4].copy_from_slice(&[asked, listed, pages, self.time()]);
        self.send(node, head, &words);
    }

    /// A thread comes here.
    pub(super) fn moved(&mut self, link: usize, record: &Record) {
        let [_, n, pc, sp, last, woken, moves, _] = record.head;
        if n >= MAX_PROGRAM_THREADS || lines_behind(&record.head) != MOVED_LINES {
            return self.refuse();
        }
        let mut times = [0; 5];
        times[4] = self.time();
        let mut come = Box::new(([pc, sp, last], [0; BLOCK_WORDS]));
        let from = &self.outside.links[link];
        from.receiver.copy(&from.back, record, |i, word| {
            match i.checked_sub(BLOCK_WORDS) {
                None => come.1[i] = word,
                Some(i @ 0..4) => times[i] = word,
                Some(_) => {}
            }
        });
        for (counter, time) in COUNTERS[Counted::MoveAsked as usize..].iter().zip(times) {
            counter.store(time, Ordering::Relaxed);
        }
        let from = from.node;
        if from != ORIGIN && self.here != ORIGIN {
            self.report(n, self.here, moves);
        }
        let Ok(one) = self.threads.one(n) else {
            return;
        };
        one.gone = None;
        one.moves = moves;
        match core::mem::take(&mut one.parked) {
            true => self.comes(n, &come),
            false => {
                one.arrived = Some(come);
                if !one.exists {
                    self.make_while_it_runs(n);
                }
            }
        }
        if woken != 0 {
            self.wake(n, false);
        }
    }

    /// Has init start the kernel thread of thread `n` in the process.
    fn make(&mut self, n: u64) -> Result<()> {
        INIT.request([process::START, n, self.here.index() as u64, 0])?;
        self.threads.one(n)?.exists = true;
        Ok(())
    }

    /// The node of a place where a thread is to begin, or go. It lives, as far as this peer knows.
    pub(super) fn node_of(&self, place: u64) -> Result<NodeId> {
        if place >> 8 != 0 {
            return Err(Error::BadArgument);
        }
        let known = |node: &NodeId| {
            *node == self.here || self.outside.links.iter().any(|l| l.node == *node)
        };
        let node = NodeId::new(place).filter(known).ok_or(Error::NoSuchNode)?;
        match self.deaths.has(node) {
            true => Err(Error::NodeDead),
            false => Ok(node),
        }
    }

    /// Thread `n` is to begin at a place: the origin decides whether it may, and tells the node.
    pub(super) fn start(&mut self, asker: Asker, n: u64, place: u64) {
        let may = self
            .node_of(place)
            .and_then(|node| self.threads.claim(n).map(|()| node));
        match may {
            Ok(node) => {
                let moves = self.threads.has_moved(n);
                if node == self.here {
                    return self.begin_when_ready(Starter::Thread(asker), n);
                }
                self.threads.has_gone(n, node);
                self.threads.is_started_by(n, asker);
                self.pass_on(node, asker, [service::ask::BEGIN, n, moves, 0]);
            }
            Err(e) => self.answer(asker, Err(e)),
        }
    }

    /// Thread `n` begins here, when its kernel threads elsewhere have begun. Who asks is answered then.
    pub(super) fn begin_when_ready(&mut self, starter: Starter, n: u64) {
        if !self.prepare(n, None) {
            let before = match self.threads.one(n) {
                Ok(one) => one.waits_for_others.replace(starter),
                Err(_) => return self.refuse(),
            };
            // A kernel thread that says that it has ended, though it has not begun, lets its number be started again.
            if let Some(Starter::Thread(before)) = before {
                self.answer(before, Err(Error::Again));
            }
            return;
        }
        match (self.begin(n), starter) {
            (begun, Starter::Thread(asker)) => {
                if begun.is_err() {
                    self.tell_end(n);
                }
                self.answer(asker, begun);
            }
            (Ok(_), Starter::System) => {}
            (Err(e), Starter::System) => self.outside.failed = Some(("the first thread", e)),
        }
    }

    /// Tells the origin that a thread does not live any more.
    fn tell_end(&mut self, n: u64) {
        match self.here == ORIGIN {
            true => self.threads.has_ended(n),
            false => {
                // Where it begins next, the origin knows.
                self.threads.has_gone(n, ORIGIN);
                self.send(ORIGIN, [tag(kind::ENDED, 0), n, 0, 0, 0, 0, 0, 0], &[]);
            }
        }
    }

    /// Thread `n`, whose kernel thread waits or is made now, begins.
    fn begin(&mut self, n: u64) -> Result<u64> {
        let (entry, isa) = (self.entry, self.isa);
        let one = self.threads.one(n)?;
        let id = thread_id(program::FIRST, n);
        one.begins = true;
        one.gone = None;
        match core::mem::take(&mut one.parked) {
            true => {
                let (_, top) = stack_slot(isa, id);
                let sp = match isa {
                    // As after a call.
                    Isa::X86_64 => top - 8,
                    Isa::Aarch64 => top,
                };
                self.go_on(n, [entry | process::WITH_ARGUMENT, sp, INFO_BASE | n]);
            }
            false => self.make(n)?,
        }
        Ok(id.into())
    }

    /// Thread `n` has ended: its kernel thread waits until it begins again.
    pub(super) fn ends(&mut self, n: u64) {
        match self.threads.one(n) {
            Ok(one) if n != 0 => {
                one.parked = true;
                self.tell_end(n);
            }
            _ => slots::answer(n, [Error::Denied.code(), 0, 0, 0]),
        }
    }

    /// Wakes thread `n`, which is here or is looked for.
    pub(super) fn wake(&mut self, n: u64, taken: bool) {
        match self.threads.way_to(n) {
            Ok(None) => {
                if taken {
                    self.threads.taken |= 1 << n;
                }
                // If it does not wait, the bit ends its next wait.
                let _ = Cap::<Send>::at(slot::thread(n)).send();
            }
            Ok(Some(node)) => {
                let head = [tag(kind::WAKE, 0), n, taken.into(), 0, 0, 0, 0, 0];
                self.send(node, head, &[]);
            }
            // It has ended.
            Err(_) => {}
        }
    }

    /// Changes what thread `n`, which is here, is asked to do at its next migration point.
    pub(super) fn request(&mut self, n: u64, old: u64, new: u64) -> Result<u64> {
        if new != request::NONE {
            let node = request::node(new).ok_or(Error::NoSuchNode)?;
            self.node_of(node.index() as u64)?;
            if !rt::hardware(self.here).node_state(node)?.is_live() {
                return Err(Error::NodeDead);
            }
        }
        const WORD: usize = core::mem::offset_of!(Tcb, migrate) / 8 + REQUEST;
        let word = &service::control_block(n)[WORD];
        let was = word
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            .unwrap_or_else(|was| was);
        if was == old && new != request::NONE && n == 0 {
            self.wake(n, false);
        }
        Ok(was)
    }

    /// Wakes up to `count` threads that wait for a word.
    pub(super) fn futex_wake(&mut self, key: u64, count: u64) -> u64 {
        let mut woken = 0;
        while woken < count
            && let Some(Asker { n, .. }) = self.threads.futex.take(key)
        {
            self.wake(n, true);
            woken += 1;
        }
        woken
    }
}
