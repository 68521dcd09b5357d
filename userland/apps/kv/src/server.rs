//! Servers.
//!
//! A call's tag says what is asked for, its bytes are the key and, of a put, the value. The answer's tag says how it went.

use dyad::msg::{Endpoint, Envelope, Error as MsgError, Kind as Sent, Mode};
use dyad::prelude::task::*;
use dyad_quiet::Rounds;
use dyad_store::{Key, MAX_VALUE, StoreError, Table, Writer};
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

/// The value that items have at the start: number 0, then what fills the value.
pub fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![number as u8; bytes];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// The rounds of a node, so many each second.
pub struct Pace {
    rounds: Rounds,
    every: u64,
    next: u64,
}

impl Pace {
    pub fn new(rounds: Rounds, per_second: u64) -> Pace {
        Pace {
            rounds,
            every: 1_000_000_000_u64
                .checked_div(per_second)
                .unwrap_or(u64::MAX),
            next: 0,
        }
    }

    /// Goes on with a round if it is time. Whether it is over.
    pub fn step(&mut self, mem: &Memory, now: u64) -> bool {
        if now < self.next {
            return false;
        }
        let over = self.rounds.step(mem);
        if over {
            self.next = now.saturating_add(self.every);
        }
        over
    }

    /// Goes on with a round at once.
    pub fn hurry(&mut self, mem: &Memory) {
        self.rounds.step(mem);
    }
}

/// Serves until all clients have said that they end. Gives how many calls that were.
pub fn serve(shared: &Shared, own: usize) -> Result<u64> {
    let mut end = shared.network.endpoint(own, Mode::Polling)?;
    let served = match shared.plan.kind {
        Kind::Lib | Kind::Partitioned => shards(shared, own, &mut end),
        Kind::TwoPhase => Node::new(shared, own)?.serve(shared, &mut end),
    };
    end.close();
    served
}

/// A server that has some of the shards.
fn shards(shared: &Shared, own: usize, end: &mut Endpoint) -> Result<u64> {
    let plan = shared.plan;
    let place = layout(&plan)?;
    // A part of its own is in memory of its own.
    let mem = match plan.kind {
        Kind::Partitioned => Memory::new(place.bytes()),
        _ => shared.common.clone(),
    };
    let node = shared.node(own);
    let (table, mut writer) = (Table::new(place), Writer::new(place, node));
    for item in 0..plan.items {
        let key = Key(key(item));
        if shared.server_of(key) == own {
            let put = writer.put(&mem, key, &value(0, plan.value));
            put.map_err(|e| Error::msg(format!("{e}")))?;
        }
    }
    shared
        .ready
        .fetch_add(1, core::sync::atomic::Ordering::Release);
    let mut pace = Pace::new(table.rounds(node), plan.rounds);
    let mut found = vec![0; MAX_VALUE];
    let mut bytes = Vec::new();
    let (mut served, mut ended) = (0, 0);
    while ended < plan.clients {
        let now = Instant::now().as_nanos();
        if pace.step(&mem, now) {
            collect(shared, &mut writer, &mem, node);
        }
        let call = match end.recv(&mut bytes, Some(now + 100_000)) {
            Ok(call) => call,
            Err(MsgError::TimedOut) => continue,
            Err(e) => return Err(e.into()),
        };
        let asked = match (call.kind, call.tag, split(&bytes)) {
            (Sent::Call, tag, Some(asked)) => (tag, asked),
            (_, END, _) => {
                ended += 1;
                continue;
            }
            _ => continue,
        };
        served += 1;
        match asked {
            (GET, (key, _)) => {
                let section = table.sections().begin(&mem, node, 0);
                let entry = table.get(&mem, key, &mut found, &section);
                drop(section);
                match entry {
                    Some(entry) => answer(end, &call, DONE, &found[..entry.length])?,
                    None => answer(end, &call, ABSENT, &[])?,
                }
            }
            (_, (key, value)) => {
                let mut put = writer.put(&mem, key, value);
                if put == Err(StoreError::Again) {
                    pace.hurry(&mem);
                    collect(shared, &mut writer, &mem, node);
                    put = writer.put(&mem, key, value);
                }
                let status = match put {
                    Ok(_) => DONE,
                    // The client's node goes through a round before the client asks again.
                    Err(StoreError::Again) => AGAIN,
                    Err(_) => REFUSED,
                };
                answer(end, &call, status, &[])?;
            }
        }
    }
    Ok(served)
}

fn collect(shared: &Shared, writer: &mut Writer, mem: &Memory, node: NodeId) {
    match shared.plan.kind {
        Kind::Lib => writer.collect(mem, shared.nodes.iter().copied()),
        _ => writer.collect(mem, core::iter::once(node)),
    };
}

pub fn answer(end: &mut Endpoint, call: &Envelope, status: u64, bytes: &[u8]) -> Result<()> {
    Ok(end.reply(call, status, bytes, None)?)
}
