//! Servers.
//!
//! A call's tag says what is asked for, its bytes are the key and, of a put, the value. The answer's tag says how it went.

use alloc::collections::VecDeque;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad::msg::{Endpoint, Envelope, Error as MsgError, Kind as Sent};
use dyad::prelude::task::*;
use dyad_quiet::Rounds;
use dyad_store::{Cursor, Entry, Key, MAX_VALUE, SHARDS, Shard, StoreError, Table, Writer, lines};
use dyad_ycsb::key;

use crate::memory::Memory;
use crate::replicas::Node;
use crate::{Kind, Shared, layout};

/// What calls ask for.
pub const GET: u64 = 1;
pub const PUT: u64 = 2;
/// The client has no further question: a message, not a call.
pub const END: u64 = 3;
/// How it went.
pub const DONE: u64 = 0;
pub const ABSENT: u64 = 1;
pub const AGAIN: u64 = 2;
pub const REFUSED: u64 = 3;

/// The key and the rest of a call.
pub fn split(bytes: &[u8]) -> Option<(Key, &[u8])> {
    let (key, value) = bytes.split_first_chunk()?;
    Some((Key(*key), value))
}

/// A value of so many bytes, at least 8: the number, then what fills it.
pub fn extend_with_value(to: &mut Vec<u8>, number: u64, bytes: usize) {
    to.extend(number.to_le_bytes());
    to.resize(to.len() + bytes - 8, number as u8);
}

/// The same, alone.
pub fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = Vec::new();
    extend_with_value(&mut value, number, bytes);
    value
}

/// The rounds of a node, so many each second.
pub struct Pace {
    rounds: Rounds,
    every: u64,
    next: u64,
    /// Rounds that are over.
    made: u64,
}

impl Pace {
    pub fn new(rounds: Rounds, per_second: u64) -> Pace {
        Pace {
            rounds,
            every: 1_000_000_000_u64
                .checked_div(per_second)
                .unwrap_or(u64::MAX),
            next: 0,
            made: 0,
        }
    }

    /// Rounds that are over.
    pub const fn made(&self) -> u64 {
        self.made
    }

    /// Goes on with a round if it is time. Whether it is over.
    pub fn step(&mut self, mem: &Memory, now: u64) -> bool {
        if now < self.next {
            return false;
        }
        let over = self.hurry(mem);
        if over {
            self.next = now.saturating_add(self.every);
        }
        over
    }

    /// Goes on with a round at once. Whether it is over.
    pub fn hurry(&mut self, mem: &Memory) -> bool {
        let over = self.rounds.step(mem);
        self.made += u64::from(over);
        over
    }
}

/// What a server has done.
pub struct Served {
    /// Calls that it has answered.
    pub calls: u64,
    /// Messages that it has sent to other servers.
    pub sent: u64,
    /// Rounds that it has gone through.
    pub rounds: u64,
    /// Nanoseconds from retiring a block to its reuse, of each block that can be reused.
    pub reclaimed: Vec<u64>,
    /// Lines of its items.
    pub in_use: u64,
    /// Lines that it has, and how many of these it has found: in use, free, or waiting for readers.
    pub lines: u64,
    pub lines_found: u64,
}

impl Served {
    /// Looks where the lines are of a writer that has the lines of these nodes, and the keys of these shards.
    pub fn new(
        calls: u64,
        mem: &Memory,
        (table, writer): (&Table, &Writer),
        node: NodeId,
        nodes: impl Iterator<Item = NodeId>,
        is_own: impl Fn(Key) -> bool,
    ) -> Served {
        let section = table.sections().begin(mem, node, 0);
        let (mut at, mut in_use) = (Some(Cursor::default()), 0);
        while let Some(from) = at {
            let each = |key, entry: Entry| in_use += u64::from(is_own(key)) * lines(entry.length);
            at = table.scan(mem, from, each, &section);
        }
        let (free, retired) = writer.room();
        Served {
            calls,
            sent: 0,
            rounds: 0,
            reclaimed: Vec::new(),
            in_use,
            lines: writer.lines_of(nodes),
            lines_found: in_use + free + retired,
        }
    }
}

/// Clients that have no further question.
pub struct Ended {
    clients: u64,
    said: AtomicU64,
}

impl Ended {
    pub fn new(shared: &Shared) -> Ended {
        Ended {
            clients: shared.plan.clients as u64,
            said: AtomicU64::new(0),
        }
    }

    /// The client of a station has said so.
    pub fn says(&self, shared: &Shared, station: usize) {
        let n = station.wrapping_sub(shared.plan.servers) as u64;
        if n < self.clients {
            self.said.fetch_or(1 << n, Ordering::Relaxed);
        }
    }

    /// Whether all have said so, or are lost.
    pub fn all(&self, shared: &Shared, end: &Endpoint) -> bool {
        let servers = shared.plan.servers;
        shared.all(end, &self.said, servers..servers + shared.plan.clients)
    }
}

/// Serves until all clients have said that they end, or are lost.
pub fn serve(shared: &Shared, own: usize) -> Result<Served> {
    let mut end = shared.network.endpoint(own, shared.mode())?;
    let served = match shared.plan.kind {
        Kind::Lib | Kind::Partitioned => Shards::new(shared, own)?.serve(&mut end),
        Kind::TwoPhase => Node::new(shared, own)?.serve(shared, &mut end),
    };
    end.close();
    served
}

/// A server that has some of the shards.
struct Shards<'s> {
    shared: &'s Shared,
    own: usize,
    node: NodeId,
    mem: Memory,
    table: Table,
    writer: Writer,
    pace: Pace,
    /// Servers whose shards this one has, by bit: its own, and those that it has inherited.
    has: u64,
    found: Vec<u8>,
    /// When the blocks were retired that cannot be reused yet, oldest first.
    retired: VecDeque<u64>,
    reclaimed: Vec<u64>,
}

impl<'s> Shards<'s> {
    fn new(shared: &'s Shared, own: usize) -> Result<Shards<'s>> {
        let plan = shared.plan;
        let place = layout(&plan)?;
        let node = shared.node(own);
        let table = Table::new(place);
        // Half of the requests, as in mix A; with more the heap grows once.
        let retired = (plan.requests / 2) as usize;
        let mut all = Shards {
            shared,
            own,
            node,
            // A part of its own is in memory of its own.
            mem: match plan.kind {
                Kind::Partitioned => Memory::new(place.bytes()),
                _ => shared.common.clone(),
            },
            table,
            writer: Writer::new(place, node),
            pace: Pace::new(table.rounds(node), plan.rounds),
            has: 1 << own,
            found: vec![0; MAX_VALUE],
            retired: VecDeque::with_capacity(retired),
            reclaimed: Vec::with_capacity(retired),
        };
        for item in 0..plan.items {
            let key = Key(key(item));
            if all.has(key) {
                let put = all.writer.put(&all.mem, key, &value(0, plan.value));
                put.map_err(|e| Error::msg(format!("{e}")))?;
            }
        }
        shared.ready.fetch_or(1 << own, Ordering::Release);
        Ok(all)
    }

    fn has(&self, key: Key) -> bool {
        self.has >> self.shared.first_server_of(key.shard()) & 1 != 0
    }

    /// Takes the shards and the lines of lost servers over, if they are this one's now.
    fn inherit(&mut self, end: &Endpoint) {
        if self.shared.plan.kind != Kind::Lib {
            return;
        }
        let shared = self.shared;
        // Looked at until nothing changes: a server that is lost may have inherited from another.
        let mut now = self.has;
        loop {
            let mine = (0..shared.plan.servers).filter(|&n| shared.heir(end, n) == self.own);
            let mine = mine.fold(0, |all, n| all | 1 << n);
            if mine == now {
                break;
            }
            now = mine;
        }
        let new = now & !self.has;
        if new == 0 {
            return;
        }
        self.has |= new;
        let is_new = |server: usize| new >> server & 1 != 0;
        let shards = (0..SHARDS).map(Shard::new);
        let shards = shards.filter(|&s| is_new(shared.first_server_of(s)));
        let nodes = (0..shared.plan.servers).filter(|&n| is_new(n));
        let nodes = nodes.map(|n| shared.node(n));
        self.writer.adopt(&self.mem, shards, nodes);
    }

    fn collect(&mut self, end: &Endpoint) {
        let free = match self.shared.plan.kind {
            Kind::Lib => self.writer.collect(&self.mem, self.shared.nodes_left(end)),
            _ => self.writer.collect(&self.mem, core::iter::once(self.node)),
        };
        if free != 0 {
            let now = Instant::now().as_nanos();
            let free = free.min(self.retired.len());
            let waited = self.retired.drain(..free).map(|then| now - then);
            self.reclaimed.extend(waited);
        }
    }

    fn serve(&mut self, end: &mut Endpoint) -> Result<Served> {
        let shared = self.shared;
        let ended = Ended::new(shared);
        let mut bytes = Vec::new();
        let mut calls = 0;
        while !ended.all(shared, end) {
            let now = Instant::now().as_nanos();
            if self.pace.step(&self.mem, now) {
                self.collect(end);
            }
            let call = match end.recv(&mut bytes, Some(now + 100_000)) {
                Ok(call) => call,
                Err(MsgError::TimedOut) => continue,
                Err(MsgError::NodeDead { .. }) => {
                    self.inherit(end);
                    continue;
                }
                Err(e) => return Err(e.into()),
            };
            match (call.kind, call.tag, split(&bytes)) {
                (Sent::Call, tag, Some((key, value))) => {
                    calls += 1;
                    self.answer(end, &call, tag, key, value)?;
                }
                (_, END, _) => ended.says(shared, call.from),
                _ => {}
            }
        }
        self.inherit(end);
        let nodes = (0..shared.plan.servers).filter(|&n| self.has >> n & 1 != 0);
        let nodes = nodes.map(|n| shared.node(n));
        let store = (&self.table, &self.writer);
        let is_own = |key| self.has(key);
        let served = Served::new(calls, &self.mem, store, self.node, nodes, is_own);
        Ok(Served {
            rounds: self.pace.made(),
            reclaimed: core::mem::take(&mut self.reclaimed),
            ..served
        })
    }

    fn answer(
        &mut self,
        end: &mut Endpoint,
        call: &Envelope,
        tag: u64,
        key: Key,
        value: &[u8],
    ) -> Result<()> {
        if tag == GET {
            let section = self.table.sections().begin(&self.mem, self.node, 0);
            let entry = self.table.get(&self.mem, key, &mut self.found, &section);
            drop(section);
            return match entry {
                Some(entry) => answer(end, call, DONE, &self.found[..entry.length]),
                None => answer(end, call, ABSENT, &[]),
            };
        }
        if !self.has(key) {
            // The client may know before this server that the server of the key is lost.
            self.inherit(end);
        }
        if !self.has(key) {
            return answer(end, call, REFUSED, &[]);
        }
        let (_, retired) = self.writer.room();
        let mut put = self.writer.put(&self.mem, key, value);
        if put == Err(StoreError::Again) {
            self.pace.hurry(&self.mem);
            self.collect(end);
            put = self.writer.put(&self.mem, key, value);
        }
        if put.is_ok() && self.writer.room().1 > retired {
            self.retired.push_back(Instant::now().as_nanos());
        }
        let status = match put {
            Ok(_) => DONE,
            // The client's node goes through a round before the client asks again.
            Err(StoreError::Again) => AGAIN,
            Err(_) => REFUSED,
        };
        answer(end, call, status, &[])
    }
}

/// Answers a call, if who called is not lost.
pub fn answer(end: &mut Endpoint, call: &Envelope, status: u64, bytes: &[u8]) -> Result<()> {
    match end.reply(call, status, bytes, None) {
        Ok(()) | Err(MsgError::NodeDead { .. }) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
