//! Servers that have all keys each, and agree on puts.

use alloc::collections::BTreeMap;
use core::sync::atomic::Ordering;

use dyad::msg::{Endpoint, Envelope, Error as MsgError, Kind as Sent, Level};
use dyad::prelude::task::*;
use dyad_coherence::GlobalMem;
use dyad_quiet::Rounds;
use dyad_shm::PhysAddr;
use dyad_store::replica::{Action, Event, Message, Replica, Txn, Values};
use dyad_store::{Key, MAX_VALUE, StoreError, Table, Writer};
use dyad_ycsb::key;

use crate::memory::Memory;
use crate::server::{ABSENT, DONE, END, Ended, GET, Served, answer, split, value};
use crate::{Shared, layout};

/// What messages between servers are about: the tag.
const PREPARE: u64 = 8;
const YES: u64 = 9;
const NO: u64 = 10;
const COMMIT: u64 = 11;
const ABORT: u64 = 12;
/// Puts that a log has room for: more than can be under way.
const LOG: u64 = 64;

/// A table in memory of its server's own, which has no other readers.
struct Own {
    mem: Memory,
    table: Table,
    writer: Writer,
    rounds: Rounds,
    node: NodeId,
    /// Why a put that was agreed on could not be made, which ends the server.
    failed: Option<StoreError>,
}

impl Values for Own {
    fn put(&mut self, key: Key, value: &[u8]) {
        let mut put = self.writer.put(&self.mem, key, value);
        if put == Err(StoreError::Again) {
            // The round after the one that begins the next epoch makes room: it has no other readers.
            for _ in 0..2 {
                self.writer.collect(&self.mem, core::iter::once(self.node));
                self.rounds.step(&self.mem);
            }
            self.writer.collect(&self.mem, core::iter::once(self.node));
            put = self.writer.put(&self.mem, key, value);
        }
        self.failed = self.failed.or(put.err());
    }
}

/// A server.
pub struct Node {
    replica: Replica<Own>,
    own: usize,
    /// Its log, in memory that all nodes share.
    log: Memory,
    logged: u64,
    /// Messages to other servers.
    sent: u64,
    /// Calls that are not answered, by client.
    calls: BTreeMap<u64, Envelope>,
    found: Vec<u8>,
}

fn words(txn: Txn) -> [u64; 2] {
    let place = (txn.node.index() as u64) << 32 | u64::from(txn.attempt);
    [txn.stamp, place]
}

fn txn([stamp, place]: [u64; 2]) -> Option<Txn> {
    Some(Txn {
        stamp,
        node: NodeId::new(place >> 32)?,
        attempt: place as u32,
    })
}

fn encode(message: &Message) -> (u64, Vec<u8>) {
    let (tag, of) = match message {
        Message::Prepare { txn, .. } => (PREPARE, *txn),
        Message::Vote { txn, yes } => (if *yes { YES } else { NO }, *txn),
        Message::Decide { txn, commits } => (if *commits { COMMIT } else { ABORT }, *txn),
    };
    let mut bytes: Vec<u8> = words(of).iter().flat_map(|w| w.to_le_bytes()).collect();
    if let Message::Prepare { key, value, .. } = message {
        bytes.extend(key.0);
        bytes.extend(value);
    }
    (tag, bytes)
}

fn decode(tag: u64, bytes: &[u8]) -> Option<Message> {
    let (stamp, rest) = bytes.split_first_chunk()?;
    let (place, rest) = rest.split_first_chunk()?;
    let txn = txn([u64::from_le_bytes(*stamp), u64::from_le_bytes(*place)])?;
    Some(match tag {
        PREPARE => {
            let (key, value) = split(rest)?;
            let value = value.to_vec();
            Message::Prepare { txn, key, value }
        }
        YES | NO => Message::Vote {
            txn,
            yes: tag == YES,
        },
        COMMIT | ABORT => Message::Decide {
            txn,
            commits: tag == COMMIT,
        },
        _ => return None,
    })
}

impl Node {
    /// Server `own`, with all items.
    pub fn new(shared: &Shared, own: usize) -> Result<Node> {
        let place = layout(&shared.plan)?;
        let node = shared.node(own);
        let mut values = Own {
            mem: Memory::new(place.bytes()),
            table: Table::new(place),
            writer: Writer::new(place, node),
            rounds: Table::new(place).rounds(node),
            node,
            failed: None,
        };
        for item in 0..shared.plan.items {
            values.put(Key(key(item)), &value(0, shared.plan.value));
        }
        // Replicas are told apart by their stations' numbers.
        let stations = NodeId::first(shared.plan.servers);
        let me = NodeId::new(own as u64).ok_or(Error::msg("too many servers"))?;
        shared.ready.fetch_or(1 << own, Ordering::Release);
        Ok(Node {
            replica: Replica::new(me, stations, values),
            own,
            log: shared.common.clone(),
            logged: 0,
            sent: 0,
            calls: BTreeMap::new(),
            found: vec![0; MAX_VALUE],
        })
    }

    /// Serves until all clients have ended, or are lost.
    pub fn serve(&mut self, shared: &Shared, end: &mut Endpoint) -> Result<Served> {
        let ended = Ended::new(shared);
        let mut bytes = Vec::new();
        let (mut calls, mut down) = (0, Vec::new());
        // Other servers may need a vote until all clients of all servers have ended.
        while !ended.all(shared, end) {
            let wait = if down.is_empty() { 1_000_000 } else { 0 };
            let until = Instant::now().as_nanos() + wait;
            let event = match end.recv(&mut bytes, Some(until)) {
                Ok(call) => match (call.kind, call.tag, split(&bytes)) {
                    (Sent::Call, tag, Some((key, value))) => {
                        calls += 1;
                        let client = call.from as u64;
                        self.calls.insert(client, call);
                        match tag {
                            GET => Event::Get { client, key },
                            _ => Event::Put {
                                client,
                                key,
                                value: value.to_vec(),
                            },
                        }
                    }
                    (_, END, _) => {
                        ended.says(shared, call.from);
                        continue;
                    }
                    (_, tag, _) => {
                        let from = NodeId::new(call.from as u64);
                        let (Some(message), Some(from)) = (decode(tag, &bytes), from) else {
                            continue;
                        };
                        Event::Received { from, message }
                    }
                },
                Err(MsgError::NodeDead { station }) => {
                    // It is told when all has been received that it had sent.
                    if station < shared.plan.servers && !down.contains(&station) {
                        down.push(station);
                    }
                    continue;
                }
                Err(MsgError::TimedOut) => {
                    let Some(station) = down.pop() else { continue };
                    let committed = self.logged_by(station);
                    let Some(node) = NodeId::new(station as u64) else {
                        continue;
                    };
                    Event::Down { node, committed }
                }
                Err(e) => return Err(e.into()),
            };
            for action in self.replica.step(event) {
                self.act(action, end)?;
            }
            if let Some(why) = self.replica.values.failed {
                return Err(Error::msg(format!("a put that was agreed on: {why}")));
            }
        }
        let Own {
            mem,
            table,
            writer,
            node,
            ..
        } = &self.replica.values;
        let nodes = core::iter::once(*node);
        let served = Served::new(calls, mem, (table, writer), *node, nodes, |_| true);
        Ok(Served {
            sent: self.sent,
            ..served
        })
    }

    /// What a server has logged lately.
    fn logged_by(&self, server: usize) -> Vec<Txn> {
        let entries = (0..LOG).map(|n| (server as u64 * LOG + n) * 16);
        let words = entries.map(|at| {
            self.log.invalidate(PhysAddr(at), 16);
            [at, at + 8].map(|at| self.log.load(PhysAddr(at), Ordering::Acquire))
        });
        words.filter_map(txn).collect()
    }

    fn act(&mut self, action: Action, end: &mut Endpoint) -> Result<()> {
        match action {
            Action::Send { to, message } => {
                let (tag, bytes) = encode(&message);
                self.sent += 1;
                match end.send(to.index(), Level::Normal, tag, &bytes, None) {
                    // Who is lost or has closed needs no votes.
                    Ok(()) | Err(MsgError::NodeDead { .. } | MsgError::Closed) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            Action::Log { txn } => {
                let entry = (self.own as u64 * LOG + self.logged % LOG) * 16;
                for (word, at) in words(txn).into_iter().zip([0, 8]) {
                    let at = PhysAddr(entry + at);
                    self.log.store(at, word, Ordering::Release);
                }
                self.log.writeback(PhysAddr(entry), 16);
                self.logged += 1;
            }
            Action::Done { client } => {
                if let Some(call) = self.calls.remove(&client) {
                    answer(end, &call, DONE, &[])?;
                }
            }
            Action::Value { client, key } => {
                let values = &self.replica.values;
                let section = values.table.sections().begin(&values.mem, values.node, 0);
                let entry = values
                    .table
                    .get(&values.mem, key, &mut self.found, &section);
                drop(section);
                if let Some(call) = self.calls.remove(&client) {
                    match entry {
                        Some(entry) => answer(end, &call, DONE, &self.found[..entry.length])?,
                        None => answer(end, &call, ABSENT, &[])?,
                    }
                }
            }
        }
        Ok(())
    }
}
