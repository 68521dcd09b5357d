//! Clients.

use core::sync::atomic::Ordering;

use dyad::msg::{Endpoint, Error as MsgError, Level};
use dyad::prelude::task::*;
use dyad::sys::marker;
use dyad::thread;
use dyad_store::{Key, MAX_VALUE, Table};
use dyad_ycsb::{Load, Request, key};

use crate::memory::Memory;
use crate::server::{ABSENT, AGAIN, DONE, END, GET, PUT, Pace, extend_with_value};
use crate::{ASKING, Kind, Plan, Shared, layout};

/// Bytes of a key.
const KEY: usize = 16;

/// What a client has done.
#[derive(Default)]
pub struct Asked {
    pub gets: Vec<u32>,
    pub puts: Vec<u32>,
    pub elapsed: Duration,
    /// Puts that had to be asked for again.
    pub again: u64,
    /// Requests whose server was lost.
    pub unanswered: u64,
    /// Rounds that it has gone through while it asked.
    pub rounds: u64,
    begun: usize,
}

struct Client<'s> {
    shared: &'s Shared,
    end: Endpoint,
    table: Table,
    mem: Memory,
    pace: Pace,
    /// Its number.
    own: usize,
    node: NodeId,
    /// A value that was read in place.
    found: Vec<u8>,
    /// What a server has said.
    reply: Vec<u8>,
    /// What a server is asked.
    bytes: Vec<u8>,
    again: u64,
}

/// Asks as the plan says. `n` is the number of the client.
pub fn ask(shared: &Shared, n: usize) -> Result<Asked> {
    let plan = shared.plan;
    let station = plan.servers + n;
    let node = shared.node(station);
    let place = layout(&plan)?;
    let table = Table::new(place);
    let mut client = Client {
        shared,
        end: shared.network.endpoint(station, shared.mode())?,
        table,
        mem: shared.common.clone(),
        pace: Pace::new(table.rounds(node), plan.rounds),
        own: n,
        node,
        found: vec![0; MAX_VALUE],
        reply: Vec::with_capacity(MAX_VALUE),
        bytes: Vec::with_capacity(KEY + MAX_VALUE),
        again: 0,
    };
    let mut load = Load::new(
        plan.mix,
        plan.choice,
        plan.items,
        (n as u64, plan.clients as u64),
        plan.seed,
    );
    let mut asked = Asked::default();
    for times in [&mut asked.gets, &mut asked.puts] {
        times.reserve(plan.requests as usize);
    }
    shared.wait(&client.end);
    println!("kv: client {n} begins");
    marker::window::<ASKING, _>(|| asked.all(&mut client, &mut load))?;
    asked.again = client.again;
    asked.rounds = client.pace.made();
    for server in 0..plan.servers {
        match client.end.send(server, Level::Normal, END, &[], None) {
            Ok(()) | Err(MsgError::NodeDead { .. }) => {}
            Err(e) => return Err(e.into()),
        }
    }
    // Puts of others may wait for rounds of this node.
    shared.finished.fetch_or(1 << n, Ordering::Release);
    let stations = plan.servers..plan.servers + plan.clients;
    while !shared.all(&client.end, &shared.finished, stations.clone()) {
        client.pace.hurry(&client.mem);
        thread::yield_now();
    }
    Ok(asked)
}

impl Asked {
    /// All requests of a client.
    fn all(&mut self, client: &mut Client<'_>, load: &mut Load) -> Result<()> {
        let plan = client.shared.plan;
        let start = Instant::now();
        for count in 1..=plan.requests {
            let request = load.draw();
            let number = (client.own as u64 + 1) << 40 | count;
            if !matches!(request, Request::Put(_) | Request::Insert(_)) {
                self.one(client, request.item(), None)?;
            }
            if !matches!(request, Request::Get(_)) {
                self.one(client, request.item(), Some(number))?;
            }
            if plan.kind == Kind::Lib {
                client.pace.step(&client.mem, Instant::now().as_nanos());
            }
        }
        self.elapsed = start.elapsed();
        Ok(())
    }

    /// A get, or the put of a number.
    fn one(&mut self, client: &mut Client<'_>, item: u64, number: Option<u64>) -> Result<()> {
        let log = &client.shared.logs[client.own];
        log.begin(self.begun, item, number, client.shared.moment());
        let start = Instant::now();
        let found = match number {
            Some(number) => client.put(item, number)?.then_some(number),
            None => client.get(item)?,
        };
        let took = start.elapsed().as_nanos();
        let times = if number.is_some() {
            &mut self.puts
        } else {
            &mut self.gets
        };
        match found {
            Some(found) => {
                log.end(self.begun, found, client.shared.moment());
                times.push(u32::try_from(took).unwrap_or(u32::MAX));
            }
            None => self.unanswered += 1,
        }
        self.begun += 1;
        Ok(())
    }
}

impl Client<'_> {
    /// Asks a server for something about a key. `None`: it is lost, whatever it has done.
    fn call(&mut self, server: usize, tag: u64, bytes: &[u8]) -> Result<Option<u64>> {
        let reply = &mut self.reply;
        match self
            .end
            .call(server, Level::Normal, tag, bytes, reply, None)
        {
            Ok(told) => Ok(Some(told.tag)),
            Err(MsgError::NodeDead { .. }) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// The server of a key.
    fn server_of(&self, key: Key) -> usize {
        let Plan { kind, servers, .. } = self.shared.plan;
        match kind {
            // Any will do.
            Kind::TwoPhase => self.shared.heir(&self.end, self.own % servers),
            _ => self.shared.server_of(&self.end, key),
        }
    }

    /// The number of an item's value; 0 if it is not there, or as it was at the start. `None` without an answer.
    fn get(&mut self, item: u64) -> Result<Option<u64>> {
        let key = Key(key(item));
        let value = if self.shared.plan.kind == Kind::Lib {
            let section = self.table.sections().begin(&self.mem, self.node, 0);
            let entry = self.table.get(&self.mem, key, &mut self.found, &section);
            entry.map(|e| &self.found[..e.length])
        } else {
            let server = self.server_of(key);
            match self.call(server, GET, &key.0)? {
                Some(DONE) => Some(&self.reply[..]),
                Some(ABSENT) => None,
                Some(n) => return Err(Error::msg(format!("a get is answered with {n}"))),
                None => return Ok(None),
            }
        };
        let Some(value) = value else {
            return Ok(Some(0));
        };
        let (number, rest) = value
            .split_first_chunk()
            .ok_or(Error::msg("a value is too short"))?;
        let number = u64::from_le_bytes(*number);
        let whole = rest.iter().all(|&b| b == number as u8);
        match whole {
            true => Ok(Some(number)),
            false => Err(Error::msg(format!("item {item}: a value of several puts"))),
        }
    }

    /// Whether an item has been given a number; `false` without an answer.
    fn put(&mut self, item: u64, number: u64) -> Result<bool> {
        let key = Key(key(item));
        let mut bytes = core::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.extend(key.0);
        extend_with_value(&mut bytes, number, self.shared.plan.value);
        let done = loop {
            let server = self.server_of(key);
            match self.call(server, PUT, &bytes)? {
                Some(DONE) => break true,
                Some(AGAIN) => {
                    self.again += 1;
                    self.pace.hurry(&self.mem);
                }
                Some(n) => return Err(Error::msg(format!("a put is answered with {n}"))),
                None => break false,
            }
        };
        self.bytes = bytes;
        Ok(done)
    }
}
