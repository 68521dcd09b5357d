//! Queues: lines that memories give and take, and that links carry, wait for each other.
//!
//! ```text
//!   memory of node 0 ── out ──┐        ┌── in ──▶ node 1
//!                             ├─ link ─┤
//!   memory of the device ─────┘        └── out ── ...
//! ```
//!
//! | channel | carries |
//! |---|---|
//! | memory of a node | what this memory gives and takes: private memory and the node's pool |
//! | memory of the device | the same |
//! | link into a node | lines that come to the node |
//! | link out of a node | lines that leave the node |
//!
//! A line passes the channels of its way one after the other, and waits for a slot of each ([`Calendar`]). The time of the
//! slot itself is part of the latency of the memory. Messages without a line take no slot. Where all nodes have one last level,
//! nothing is on a link.
//!
//! | line | its way | the access waits |
//! |---|---|---|
//! | from memory | memory of the home, link from there to the requester | yes |
//! | forwarded | link from the owner to the requester, over the home if nodes answer the home | yes |
//! | written because another node has asked for it | link from the owner to the home, memory of the home | no |
//! | the same, if the home has had it from the owner by its way | memory of the home | no |
//! | written because it is evicted | the same as two lines above | no |
//! | flushed, cleaned, or taken away by the device | the same | yes |
//!
//! All lines of an access are asked for when it begins, or when what it has waited for before has come.

use std::sync::atomic::AtomicU64;

use super::{Core, Word};
use crate::calendar::{Calendar, slot_ps, words};
use crate::config::{Level, MemoryModel, SimConfig};
use crate::memory::Home;

/// A channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Of a memory.
    Memory(Home),
    /// From the link into a node.
    In(usize),
    /// From a node out to the link.
    Out(usize),
}

impl Channel {
    /// All channels of a system of `nodes`, in the order of [`Channel::index`].
    fn all(nodes: usize) -> impl Iterator<Item = Channel> {
        let memories = (0..nodes).map(Home::Node).chain([Home::Device]);
        let links = (0..nodes).flat_map(|node| [Channel::In(node), Channel::Out(node)]);
        memories.map(Channel::Memory).chain(links)
    }

    const fn index(self, nodes: usize) -> usize {
        match self {
            Channel::Memory(Home::Node(node)) => node,
            Channel::Memory(Home::Device) => nodes,
            Channel::In(node) => nodes + 1 + 2 * node,
            Channel::Out(node) => nodes + 2 + 2 * node,
        }
    }

    /// Its bandwidth in MB/s.
    const fn bandwidth(self, config: &SimConfig) -> u64 {
        match self {
            Channel::Memory(Home::Node(_)) => config.bandwidth.memory,
            Channel::Memory(Home::Device) => config.bandwidth.device,
            Channel::In(_) | Channel::Out(_) => config.bandwidth.link,
        }
    }

    /// Words of its calendar.
    fn words(self, config: &SimConfig) -> usize {
        slot_ps(self.bandwidth(config)).map_or(0, |slot| words(slot, &config.clock))
    }
}

/// The route of a line.
#[derive(Clone, Copy, Debug)]
enum Route {
    /// From memory to the requester.
    Fill,
    /// From its owner to the requester.
    Forward,
    /// From its owner to memory, while the access waits.
    Flush,
    /// The same, while no access waits. The line can be forwarded to the requester too.
    WriteBack { forwarded: bool },
}

/// All channels, as one CPU uses them.
#[derive(Clone, Debug)]
pub struct Queues<'a> {
    /// By [`Channel::index`]; `None`: no limit.
    calendars: Box<[Option<Calendar<'a>>]>,
    nodes: usize,
    linked: bool,
    /// The time of a CPU.
    now: fn(u32) -> u64,
    cpu: u32,
    cycle_ps: u64,
    /// When the access at hand asks for its next line, in picoseconds.
    at: u64,
}

impl<'a> Queues<'a> {
    /// Words of all calendars of a system. There are none unless caches take time and a channel has a limit.
    pub fn words(config: &SimConfig) -> usize {
        match config.level {
            Level::Timing => Channel::all(config.nodes.len())
                .map(|channel| channel.words(config))
                .sum(),
            Level::Count | Level::Cache => 0,
        }
    }

    /// For a CPU of the driver of the model, whose time is `now(cpu)` picoseconds, in `node`. `area` has
    /// [`Queues::words`] words, initially zero. `None`: nothing has a limit.
    pub fn new(
        config: &SimConfig,
        node: usize,
        mut area: &'a [AtomicU64],
        now: fn(u32) -> u64,
        cpu: u32,
    ) -> Option<Queues<'a>> {
        if area.is_empty() {
            return None;
        }
        let nodes = config.nodes.len();
        let calendars = Channel::all(nodes).map(|channel| {
            let (words, rest) = area.split_at(channel.words(config));
            area = rest;
            slot_ps(channel.bandwidth(config)).map(|slot| Calendar::new(words, slot))
        });
        Some(Queues {
            calendars: calendars.collect(),
            nodes,
            linked: config.model != MemoryModel::FullyShared,
            now,
            cpu,
            cycle_ps: config.nodes[node].cycle_ps.max(1),
            at: 0,
        })
    }

    /// An access begins, after it has waited for so many cycles.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, cycles: u64) {
        self.at = (self.now)(self.cpu) + cycles * self.cycle_ps;
    }

    /// When a line that is asked for at a time gets its slot of a channel.
    fn pass(&self, channel: Channel, at: u64) -> u64 {
        let calendar = &self.calendars[channel.index(self.nodes)];
        at + calendar.map_or(0, |calendar| calendar.reserve(at))
    }

    /// The same for the memory of a home.
    fn memory(&self, home: Home, at: u64) -> u64 {
        let home = match home {
            // There is no device where nothing is on a link.
            Home::Device if !self.linked => Home::Node(0),
            home => home,
        };
        self.pass(Channel::Memory(home), at)
    }

    /// The same for the link from one place to another.
    fn link(&self, from: Home, to: Home, mut at: u64) -> u64 {
        if from == to || !self.linked {
            return at;
        }
        if let Home::Node(node) = from {
            at = self.pass(Channel::Out(node), at);
        }
        if let Home::Node(node) = to {
            at = self.pass(Channel::In(node), at);
        }
        at
    }

    /// The access waits until a time. Returns the wait in whole cycles.
    fn wait_until(&mut self, time: u64) -> u64 {
        let cycles = (time - self.at).div_ceil(self.cycle_ps);
        self.at += cycles * self.cycle_ps;
        cycles
    }

    /// How many slots of a channel are taken.
    #[cfg(test)]
    pub(crate) fn reserved(&self, channel: Channel) -> u64 {
        self.calendars[channel.index(self.nodes)].map_or(0, |calendar| calendar.reserved())
    }
}

impl<'a> Core<'a> {
    /// Lines wait for the channels of their ways.
    pub fn heed_queues(&mut self, queues: Option<Queues<'a>>) {
        self.queues = queues;
    }

    /// The queues of this CPU.
    #[cfg(test)]
    pub(crate) const fn queues(&self) -> Option<&Queues<'a>> {
        self.queues.as_ref()
    }

    /// An access begins that may ask for lines, after it has waited for so many cycles.
    #[inline(always)]
    pub(super) fn begin_queues(&mut self, cycles: u64) {
        if let Some(queues) = &mut self.queues {
            queues.begin(cycles);
        }
    }

    /// Books the way of a line from memory.
    #[inline(always)]
    pub(super) fn queue_fill(&mut self, line: u64) -> u64 {
        match self.queues {
            Some(_) => self.book_queue(Route::Fill, Word::default(), line),
            None => 0,
        }
    }

    /// Books the way of a line from the cache of the node that has modified it.
    #[inline(always)]
    pub(super) fn queue_forward(&mut self, before: Word, line: u64) -> u64 {
        match self.queues {
            Some(_) => self.book_queue(Route::Forward, before, line),
            None => 0,
        }
    }

    /// Books the way of a line to memory, for which the access waits.
    #[inline(always)]
    pub(super) fn queue_flush(&mut self, before: Word, line: u64) -> u64 {
        match self.queues {
            Some(_) => self.book_queue(Route::Flush, before, line),
            None => 0,
        }
    }

    /// A line goes to memory, for which no access waits. `forwarded` says whether it goes to this CPU too.
    #[inline(always)]
    pub(super) fn queue_writeback(&mut self, before: Word, line: u64, forwarded: bool) {
        if self.queues.is_some() {
            self.book_queue(Route::WriteBack { forwarded }, before, line);
        }
    }

    /// A line goes its way. Returns the cycles that the access waits for it. `before` says who has the line: this CPU's
    /// node if no node does.
    #[cold]
    #[inline(never)]
    fn book_queue(&mut self, route: Route, before: Word, line: u64) -> u64 {
        let Some(queues) = &mut self.queues else {
            return 0;
        };
        let me = Home::Node(self.me.node);
        let owner = before.owner().map_or(me, |(node, _)| Home::Node(node));
        let home = self.memory.home(line).unwrap_or(me);
        let (at, through_home) = (queues.at, self.me.through_home);
        let time = match route {
            Route::Fill => queues.link(home, me, queues.memory(home, at)),
            Route::Forward if through_home => queues.link(home, me, queues.link(owner, home, at)),
            Route::Forward => queues.link(owner, me, at),
            Route::Flush => queues.memory(home, queues.link(owner, home, at)),
            Route::WriteBack { forwarded } => {
                // What is forwarded comes by its home, or goes to it.
                let comes_by = forwarded && (through_home || home == me);
                let comes = match comes_by {
                    true => at,
                    false => queues.link(owner, home, at),
                };
                queues.memory(home, comes);
                return 0;
            }
        };
        let cycles = queues.wait_until(time);
        self.counts.queue_cycles += cycles;
        cycles
    }
}
