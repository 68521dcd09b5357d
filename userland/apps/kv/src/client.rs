//! Clients.

use core::sync::atomic::Ordering;

use dyad::msg::{Endpoint, Level, Mode};
use dyad::prelude::task::*;
use dyad::thread;
use dyad_linear::Operation;
use dyad_store::{Key, MAX_VALUE, Table};
use dyad_ycsb::{Load, Request, key};

use crate::memory::Memory;
use crate::server::{ABSENT, AGAIN, DONE, END, GET, PUT, Pace, value};
use crate::{Kind, Shared, layout};

/// What a client has done.
#[derive(Default)]
pub struct Asked {
    pub gets: Vec<u32>,
    pub puts: Vec<u32>,
    pub history: Vec<Operation>,
    pub elapsed: Duration,
    /// Puts that had to be asked for again.
    pub again: u64,
}

struct Client<'s> {
    shared: &'s Shared,
    end: Endpoint,
    table: Table,
    mem: Memory,
    pace: Pace,
    /// The server of a client, where any will do.
    near: usize,
    node: NodeId,
    found: Vec<u8>,
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
        end: shared.network.endpoint(station, Mode::Polling)?,
        table,
        mem: shared.common.clone(),
        pace: Pace::new(table.rounds(node), plan.rounds),
        near: n % plan.servers,
        node,
        found: vec![0; MAX_VALUE],
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
    shared.wait();
    let start = Instant::now();
    for count in 1..=plan.requests {
        let request = load.draw();
        let number = (n as u64 + 1) << 40 | count;
        if !matches!(request, Request::Put(_) | Request::Insert(_)) {
            asked.one(&mut client, request.item(), None)?;
        }
        if !matches!(request, Request::Get(_)) {
            asked.one(&mut client, request.item(), Some(number))?;
        }
        if plan.kind == Kind::Lib {
            client.pace.step(&client.mem, Instant::now().as_nanos());
        }
    }
    asked.elapsed = start.elapsed();
    asked.again = client.again;
    for server in 0..plan.servers {
        client.end.send(server, Level::Normal, END, &[], None)?;
    }
    // Puts of others may wait for rounds of this node.
    shared.finished.fetch_add(1, Ordering::Release);
    while shared.finished.load(Ordering::Acquire) < plan.clients as u64 {
        client.pace.hurry(&client.mem);
        thread::yield_now();
    }
    Ok(asked)
}

impl Asked {
    /// A get, or the put of a number.
    fn one(&mut self, client: &mut Client<'_>, item: u64, number: Option<u64>) -> Result<()> {
        let begin = client.shared.moment();
        let start = Instant::now();
        let found = match number {
            Some(number) => {
                client.put(item, number)?;
                number
            }
            None => client.get(item)?,
        };
        let took = start.elapsed().as_nanos();
        let end = client.shared.moment();
        let times = if number.is_some() {
            &mut self.puts
        } else {
            &mut self.gets
        };
        times.push(u32::try_from(took).unwrap_or(u32::MAX));
        self.history.push(Operation {
            register: item,
            value: found,
            writes: number.is_some(),
            begin,
            end,
        });
        Ok(())
    }
}

impl Client<'_> {
    /// The number of an item's value; 0 if it is not there, or as it was at the start.
    fn get(&mut self, item: u64) -> Result<u64> {
        let key = key(item);
        let length = match self.shared.plan.kind {
            Kind::Lib => {
                let section = self.table.sections().begin(&self.mem, self.node, 0);
                let entry = self
                    .table
                    .get(&self.mem, Key(key), &mut self.found, &section);
                entry.map(|e| e.length)
            }
            kind => {
                let server = match kind {
                    Kind::Partitioned => self.shared.server_of(Key(key)),
                    _ => self.near,
                };
                let told =
                    self.end
                        .call(server, Level::Normal, GET, &key, &mut self.found, None)?;
                match told.tag {
                    DONE => Some(self.found.len()),
                    ABSENT => None,
                    n => return Err(Error::msg(format!("a get is answered with {n}"))),
                }
            }
        };
        let Some(length) = length else { return Ok(0) };
        let number = self.found[..length]
            .first_chunk()
            .map(|n| u64::from_le_bytes(*n));
        let number = number.ok_or(Error::msg("a value is too short"))?;
        let whole = self.found[8..length].iter().all(|&b| b == number as u8);
        match whole {
            true => Ok(number),
            false => Err(Error::msg(format!("item {item}: a value of several puts"))),
        }
    }

    fn put(&mut self, item: u64, number: u64) -> Result<()> {
        let mut bytes = key(item).to_vec();
        bytes.extend(value(number, self.shared.plan.value));
        let server = match self.shared.plan.kind {
            Kind::TwoPhase => self.near,
            _ => self.shared.server_of(Key(key(item))),
        };
        let mut reply = Vec::new();
        loop {
            let told = self
                .end
                .call(server, Level::Normal, PUT, &bytes, &mut reply, None)?;
            match told.tag {
                DONE => return Ok(()),
                AGAIN => {
                    self.again += 1;
                    self.pace.hurry(&self.mem);
                }
                n => return Err(Error::msg(format!("a put is answered with {n}"))),
            }
        }
    }
}
