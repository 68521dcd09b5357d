//! The actor: the one thread that carries out what the page protocol decides, and exchanges messages.

extern crate alloc;

mod ahead;
mod asks;
mod deaths;
mod roster;
mod text;
mod threads;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::service::peer::{Counted, ImageRange, Setup, Transport, slot};
use dyad_abi::service::{program, thread_id};
use dyad_abi::user::{
    DATA_STACK_STRIDE, DATA_STACKS_BASE, HEAP_BASE, HEAP_END, MAX_PROGRAM_THREADS, PAGE_SIZE,
    STACK_STRIDE, stack_slot,
};
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_dsm::weakening::Rules;
use dyad_dsm::wire::{self, HEADER};
use dyad_dsm::{Access, Config, Event, Incarnation, NodeSet, Page, Range, ThreadNo, Time};
use dyad_msg::bulk::Head;
use dyad_services::ranges::{Limits, Ranges};
use dyad_services::rt;
use dyad_sys::cap::{Cap, Receive, Send, Until};
use dyad_sys::marker;

use crate::links::{Link, Sleep, Transit};
use crate::memory::Frames;
use crate::parts;
use crate::port::{Outside, Pages, kind};
use crate::service::{self, ORIGIN};
use crate::slots::SLOTS;
use ahead::Ahead;
use asks::{Asker, Asks};
use deaths::Deaths;
use roster::Threads;

/// Limits of the memory of a program, as the pager's.
const LIMITS: Limits = Limits {
    start: HEAP_BASE,
    end: HEAP_END,
    bytes: 256 << 30,
    window: 256 << 20,
};
/// Ranges of memory that a program may have, beside its data and stacks.
const RANGES: usize = 48;

/// How long the actor looks whether something comes, in nanoseconds: if all threads that are here wait for an answer, and
/// if there is none.
const SPIN_FOR_ANSWER_NS: u64 = 200_000;
const SPIN_NS: u64 = 20_000;
/// Records that may wait for room in rings before no thread of the process is heard.
const MAX_UNSENT: usize = 64;
/// Looks between two looks at the time.
const SPINS: u32 = 64;

/// What has been counted, for init.
pub static COUNTERS: [AtomicU64; Counted::ALL.len()] =
    [const { AtomicU64::new(0) }; Counted::ALL.len()];

struct Actor {
    here: NodeId,
    pages: Pages,
    outside: Outside,
    ranges: Ranges<RANGES>,
    sleep: Sleep,
    /// The threads of the program.
    threads: Threads,
    /// Pages that go before threads.
    ahead: Ahead,
    /// What the threads that are here have asked.
    asks: Asks,
    /// Nodes that have died.
    deaths: Deaths,
    /// Where threads of the program begin.
    entry: u64,
    isa: Isa,
    /// Who waits until a range is on no node any more.
    unmapping: Vec<(Range, Asker)>,
    /// When the first record comes that is on its way.
    comes_at: Option<u64>,
    /// Since when there has been nothing to do.
    idle_since: Option<u64>,
    /// Records that found a full ring.
    unsent: Vec<(NodeId, Head, Vec<u64>)>,
    other_messages: u64,
    doorbells: u64,
}

/// Runs for ever.
pub fn run(here: NodeId, isa: Isa, setup: &'static Setup) -> Result<core::convert::Infallible> {
    let info = rt::info()?;
    let nodes = NodeId::first(info.system.node_count as usize);
    let frames = Frames::new(isa, setup);
    let incarnation = |n: usize| info.system.nodes[n].incarnation as u16;
    let config = Config {
        me: here,
        origin: ORIGIN,
        nodes: NodeSet::first(info.system.node_count as usize),
        incarnations: core::array::from_fn(|n| Incarnation(incarnation(n))),
        frames: frames.count(),
        rules: Rules::default(),
    };
    let links = nodes.filter(|&n| n != here).map(|n| Link::new(here, n));
    let links: Vec<Link> = links.collect();
    let mut actor = Actor {
        here,
        pages: Pages::new(config),
        outside: Outside::new(here, frames, (links, Transit::of(info)?), setup),
        ranges: Ranges::new(LIMITS),
        sleep: Sleep::new(here),
        threads: Threads::new(here),
        ahead: Ahead::default(),
        asks: Asks::default(),
        deaths: Deaths::default(),
        entry: setup.entry,
        isa,
        unmapping: Vec::new(),
        comes_at: None,
        idle_since: None,
        unsent: Vec::new(),
        other_messages: 0,
        doorbells: 0,
    };
    if here == ORIGIN {
        actor.regions(setup)?;
        actor.begin_first();
    }
    while !SLOTS.has_ended() {
        actor.turn()?;
    }
    // What it works with is taken away.
    SLOTS.stop();
    loop {
        Cap::<Receive>::at(slot::ACTOR).receive(0, Until::Never)?;
    }
}

/// Sleeps until the actor is told something, or that time has come.
fn sleep(until: Until) -> Result<()> {
    // Who has asked meanwhile has set the bit that ends this at once.
    match Cap::<Receive>::at(slot::ACTOR).receive(0, until) {
        Ok(_) | Err(Error::TimedOut) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Looks for messages while nothing else runs on this node, and tells the actor.
pub fn poll(here: NodeId) -> Result<core::convert::Infallible> {
    let own = Sleep::new(here);
    while !SLOTS.has_ended() {
        if own.has_pending() {
            Cap::<Send>::at(slot::doorbell(here)).send()?;
        }
        dyad_sys::raw::relax();
    }
    loop {
        // Nothing is ever sent there.
        Cap::<Receive>::at(slot::ACTOR).receive(1, Until::Never)?;
    }
}

fn pages(start: u64, len: u64) -> Result<Range> {
    let first = Page::of(start).ok_or(Error::BadAddress)?;
    Range::new(first, len / PAGE_SIZE).ok_or(Error::BadAddress)
}

impl Actor {
    fn now(&self) -> Result<Time> {
        rt::hardware(self.here).now().map(Time)
    }

    fn step(&mut self, event: Event) -> core::result::Result<(), dyad_dsm::Refusal> {
        let now = self.now().unwrap_or(Time(0));
        self.pages.step(now, event, &mut self.outside)
    }

    /// What the program may use from the start: its data, and the stacks of its threads.
    fn regions(&mut self, setup: &Setup) -> Result<()> {
        let count = (setup.range_count as usize).min(setup.ranges.len());
        let first = thread_id(program::FIRST, 0);
        let slots = MAX_PROGRAM_THREADS;
        let natives = Isa::ALL.map(|isa| {
            let start = stack_slot(isa, first).1 - STACK_STRIDE;
            (start, slots * STACK_STRIDE)
        });
        let data = DATA_STACKS_BASE + u64::from(first) * DATA_STACK_STRIDE;
        let image = setup.ranges[..count].iter().map(|r| (r.start, r.len));
        let stacks = natives
            .into_iter()
            .chain([(data, slots * DATA_STACK_STRIDE)]);
        for (start, len) in image.chain(stacks) {
            let range = pages(start, len)?;
            self.step(Event::Map { range }).map_err(|_| Error::Full)?;
        }
        // What the program begins with is here, as if its first thread had written it.
        self.outside.reads_image = true;
        for &ImageRange { start, filled, .. } in &setup.ranges[..count] {
            for address in (start..start + filled).step_by(PAGE_SIZE as usize) {
                let page = Page::of(address).ok_or(Error::BadAddress)?;
                let thread = ThreadNo::new(0).ok_or(Error::BadArgument)?;
                let (want, pc) = (Access::Write, address);
                let fault = Event::Fault {
                    thread,
                    page,
                    want,
                    pc,
                };
                self.step(fault).map_err(|_| Error::Corrupt)?;
            }
        }
        self.outside.reads_image = false;
        self.pages.clear_counters();
        Ok(())
    }

    /// Does all that there is to do, then sleeps.
    fn turn(&mut self) -> Result<()> {
        let mut busy = self.sleep.pending() != 0;
        self.comes_at = None;
        for link in 0..self.outside.links.len() {
            busy |= self.receive(link)?;
        }
        busy |= self.look_for_deaths()?;
        // Who asks waits while what was asked before has no room.
        let posted = match self.unsent.len() < MAX_UNSENT {
            true => SLOTS.posted(),
            false => 0,
        };
        busy |= posted != 0;
        for n in (0..MAX_PROGRAM_THREADS).filter(|n| posted >> n & 1 != 0) {
            self.asked(n);
        }
        busy |= self.expire()?;
        self.fetch();
        self.resend();
        self.finish_unmapping();
        if let Some((what, e)) = self.outside.failed {
            service::group_fails(self.here, what, e);
        }
        self.tell()?;
        self.count();
        if busy {
            self.idle_since = None;
            return Ok(());
        }
        let (here, waiting) = self.threads.here();
        let only_waits = here != 0 && here == waiting;
        if only_waits {
            marker::awaits();
        }
        let rested = self.rest();
        if only_waits {
            marker::comes();
        }
        rested
    }

    /// There is nothing to do: waits until there may be, or until the time has come for something.
    fn rest(&mut self) -> Result<()> {
        let deferred = self.outside.deferred.iter().map(|&(_, until)| until.0);
        let mut until = deferred.chain(self.comes_at).min();
        if self.has_backlog() {
            // A ring that was full does not tell that it has room.
            let again = self.now()?.after(SPIN_NS).0;
            until = Some(until.map_or(again, |until| until.min(again)));
        }
        if self.spins(until)? {
            return Ok(());
        }
        let until = until.into_iter().chain(self.tells_at()).min();
        let until = until.map_or(Until::Never, Until::Deadline);
        if self.outside.way.transport == Transport::Poll {
            // The thread that polls finds what has come meanwhile.
            return sleep(until);
        }
        if self.sleep.prepare() {
            sleep(until)?;
            self.sleep.over();
        }
        Ok(())
    }

    /// Tells the other actors of what has been sent.
    fn tell(&mut self) -> Result<()> {
        let (here, way) = (self.here, self.outside.way);
        for link in &mut self.outside.links {
            self.doorbells += u64::from(link.tell(here, way, || rt::hardware(here).now())?);
        }
        Ok(())
    }

    /// When the first of the other actors is to be told of something.
    fn tells_at(&self) -> Option<u64> {
        self.outside.links.iter().filter_map(|l| l.told_at).min()
    }

    /// Whether something waits for room in a ring.
    fn has_backlog(&self) -> bool {
        let links = self.outside.links.iter();
        !self.unsent.is_empty() || links.map(|l| self.pages.unsent(l.node)).sum::<usize>() > 0
    }

    /// Looks for a moment whether something comes, if no thread of the process could run meanwhile: sleeping costs a
    /// doorbell and a wake-up. `true`: there is something to do.
    fn spins(&mut self, until: Option<u64>) -> Result<bool> {
        let limit = match self.threads.here() {
            (0, _) if self.outside.coming == 0 => SPIN_NS,
            (here, waiting) if here == waiting => SPIN_FOR_ANSWER_NS,
            _ => return Ok(false),
        };
        // As long as if no time passed on the way.
        let now = self.now()?.0;
        let since = *self.idle_since.get_or_insert(now);
        let end = since + limit + self.outside.way.round_trip();
        let mut until = until.unwrap_or(u64::MAX);
        loop {
            for _ in 0..SPINS {
                if self.sleep.has_pending() || SLOTS.has_posted() && self.unsent.len() < MAX_UNSENT
                {
                    return Ok(true);
                }
                if self.outside.way.takes_time() {
                    break;
                }
                dyad_sys::raw::relax();
            }
            until = until.min(self.outside.comes_next()?.unwrap_or(until));
            let now = self.now()?.0;
            if self.tells_at().is_some_and(|at| now >= at) {
                self.tell()?;
            }
            // While something is on its way from here, it is told of in time.
            let on_its_way = self.outside.way.takes_time() && self.tells_at().is_some();
            match now {
                now if now >= until => return Ok(true),
                now if now >= end && !on_its_way => return Ok(false),
                _ => {}
            }
        }
    }

    /// Takes what has come by a link. Whether anything has.
    fn receive(&mut self, link: usize) -> Result<bool> {
        let mut any = false;
        loop {
            let from = &mut self.outside.links[link];
            let node = from.node;
            if self.deaths.has(node) {
                return Ok(any);
            }
            let Some(record) = from.receiver.next(&from.back).map_err(|_| Error::Corrupt)? else {
                return Ok(any);
            };
            let now = self.outside.time_of_messages()?;
            let from = &mut self.outside.links[link];
            match self.outside.way.comes_at(&record.head, now) {
                Ok(None) => {}
                Ok(Some(at)) => {
                    self.comes_at = Some(self.comes_at.map_or(at, |first| first.min(at)));
                    return Ok(any);
                }
                Err(_) => {
                    from.receiver.done(&from.back, &record);
                    self.refuse();
                    continue;
                }
            }
            any = true;
            self.outside.incoming = Some((link, record));
            self.outside.come_at = parts::now();
            match record.head[0] >> 8 {
                kind::PAGE => self.page_message(node, &record.head),
                kind::MOVED => self.moved(link, &record),
                kind::ASK => self.asked_by(&record.head),
                kind::ANSWER => {
                    let [_, n, status, value, number, ..] = record.head;
                    self.answered((n, number), [status, value]);
                }
                kind::WAKE => {
                    let [_, n, taken, ..] = record.head;
                    self.wake(n, taken != 0);
                }
                kind::TEXT => self.text_has_come(link, &record),
                kind::PREPARE => self.asked_to_prepare(node, record.head[1]),
                kind::READY => self.is_ready(node, record.head[1]),
                kind::FETCH => self.asked_to_fetch(link, &record),
                kind::FETCHED => self.pages_are_there(node, record.head[1]),
                kind::ENDED => self.threads.has_ended(record.head[1]),
                kind::AT => self.threads.reported(&record.head),
                kind::SAID => self.has_said(node, record.head[1]),
                kind::SETTLED => self.settled(),
                _ => self.refuse(),
            }
            self.outside.incoming = None;
            self.outside.come_at = None;
            let from = &mut self.outside.links[link];
            from.receiver.done(&from.back, &record);
        }
    }

    fn refuse(&self) {
        COUNTERS[Counted::Refused as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn page_message(&mut self, from: NodeId, head: &Head) {
        let mut header = [0; HEADER];
        for (bytes, word) in header.as_chunks_mut().0.iter_mut().zip(&head[1..]) {
            *bytes = word.to_le_bytes();
        }
        let contents = dyad_msg::bulk::lines_behind(head) as usize * 64;
        match wire::decode_header(&header, contents) {
            // What is refused has been counted.
            Ok(message) => drop(self.step(Event::Received { from, message })),
            Err(_) => self.refuse(),
        }
        // Of what comes before threads, a page has perhaps come: then the next one is asked for.
        self.fetch();
    }

    fn send(&mut self, to: NodeId, head: Head, words: &[u64]) {
        if self.deaths.has(to) {
            return;
        }
        self.other_messages += 1;
        let word = |i: usize| words.get(i).copied().unwrap_or(0);
        let waits = self.unsent.iter().any(|(node, ..)| *node == to);
        if waits || !self.outside.push(to, &head, word) {
            self.unsent.push((to, head, words.to_vec()));
        }
    }

    /// Sends what has found a full ring, as far as there is room now.
    fn resend(&mut self) {
        let mut full = NodeSet::EMPTY;
        for (to, head, words) in core::mem::take(&mut self.unsent) {
            let word = |i: usize| words.get(i).copied().unwrap_or(0);
            if full.has(to) || !self.outside.push(to, &head, word) {
                full = full.with(to);
                self.unsent.push((to, head, words));
            }
        }
        for link in 0..self.outside.links.len() {
            let to = self.outside.links[link].node;
            if self.pages.unsent(to) > 0 {
                let _ = self.step(Event::Room { to });
            }
        }
    }

    /// Tells the protocol of holds that have ended. Whether any has.
    fn expire(&mut self) -> Result<bool> {
        if self.outside.deferred.is_empty() {
            return Ok(false);
        }
        let now = self.now()?;
        let is_over = |&(_, until): &(Page, Time)| until <= now;
        let Some(at) = self.outside.deferred.iter().position(is_over) else {
            return Ok(false);
        };
        let (page, _) = self.outside.deferred.swap_remove(at);
        let _ = self.step(Event::Expired { page });
        Ok(true)
    }

    fn count(&self) {
        let c = self.pages.counters();
        let (frames, tables) = self.outside.frames.used();
        for (counted, value) in [
            (Counted::Faults, c.faults),
            (Counted::PageMessages, c.page_messages()),
            (Counted::Contents, c.contents),
            (Counted::Invalidations, c.invalidate),
            (Counted::Local, c.local),
            (Counted::Deferred, c.deferred),
            (Counted::Delayed, c.delayed),
            (Counted::Received, c.received),
            (Counted::Filled, c.filled),
            (Counted::Replicas, c.replicas),
            (Counted::OtherMessages, self.other_messages),
            (Counted::Doorbells, self.doorbells),
            (Counted::Bytes, self.outside.bytes),
            (Counted::Ahead, self.ahead.pages),
            (Counted::Frames, frames),
            (Counted::Tables, tables),
        ] {
            COUNTERS[counted as usize].store(value, Ordering::Relaxed);
        }
    }
}
