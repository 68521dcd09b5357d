//! Replicas with clients, messages of any delay, and a node that dies in the middle of a step: histories are linearizable, all
//! clients of live nodes are answered, and live replicas agree; and each rule is needed.

extern crate std;

use super::*;
use alloc::collections::BTreeSet;
use alloc::vec;
use dyad_linear::{INITIAL, NEVER, Operation, check};
use dyad_random::SplitMix64;
use std::format;
use std::string::{String, ToString};

const NODES: usize = 3;
const CLIENTS: u64 = 4;
const KEYS: u64 = 2;
const OPERATIONS: u64 = 40;
const SEEDS: u64 = if cfg!(miri) { 3 } else { 600 };

impl Values for BTreeMap<Key, Vec<u8>> {
    fn put(&mut self, key: Key, value: &[u8]) {
        self.insert(key, value.to_vec());
    }
}

type Node = Replica<BTreeMap<Key, Vec<u8>>>;

struct World {
    nodes: Vec<Node>,
    dead: BTreeSet<usize>,
    /// Deaths that nodes have not been told of yet: whom, of whom.
    untold: Vec<(usize, usize)>,
    rings: BTreeMap<(usize, usize), VecDeque<Message>>,
    logs: Vec<Vec<Txn>>,
    /// The operation of each client that is under way.
    open: BTreeMap<u64, Operation>,
    history: Vec<Operation>,
    now: u64,
}

fn node(n: usize) -> NodeId {
    NodeId::new(n as u64).unwrap()
}

fn key(n: u64) -> Key {
    Key(u128::from(n).to_le_bytes())
}

fn home(client: u64) -> usize {
    client as usize % NODES
}

impl World {
    fn new(lacks: Option<Lacks>) -> World {
        let new = |n| Replica {
            lacks,
            ..Replica::new(node(n), NodeId::first(NODES), BTreeMap::new())
        };
        World {
            nodes: (0..NODES).map(new).collect(),
            dead: BTreeSet::new(),
            untold: Vec::new(),
            rings: BTreeMap::new(),
            logs: vec![Vec::new(); NODES],
            open: BTreeMap::new(),
            history: Vec::new(),
            now: 0,
        }
    }

    /// A node takes an event. With `dies_after`, it dies after so many of its actions.
    fn step(&mut self, n: usize, event: Event, dies_after: Option<usize>) {
        self.now += 1;
        let actions = self.nodes[n].step(event);
        let whole = actions.len();
        for action in actions.into_iter().take(dies_after.unwrap_or(whole)) {
            self.now += 1;
            match action {
                Action::Send { to, message } => {
                    self.rings
                        .entry((n, to.index()))
                        .or_default()
                        .push_back(message);
                }
                Action::Log { txn } => self.logs[n].push(txn),
                Action::Done { client } => self.ends(client, None),
                Action::Value { client, key } => {
                    let value = self.nodes[n].values.get(&key);
                    let number = |v: &Vec<u8>| u64::from_le_bytes(v[..].try_into().unwrap());
                    self.ends(client, Some(value.map_or(INITIAL, number)));
                }
            }
        }
        if dies_after.is_some() {
            self.dead.insert(n);
            let others = (0..NODES).filter(|&o| o != n);
            self.untold.extend(others.map(|o| (o, n)));
            for client in (0..CLIENTS).filter(|&c| home(c) == n) {
                self.history.extend(self.open.remove(&client));
            }
        }
    }

    fn ends(&mut self, client: u64, read: Option<u64>) {
        if let Some(mut operation) = self.open.remove(&client) {
            operation.end = self.now;
            operation.value = read.unwrap_or(operation.value);
            self.history.push(operation);
        }
    }

    /// One of the things that can happen next happens. `false`: nothing can.
    fn anything(&mut self, random: &mut SplitMix64, begun: &mut u64, kill_at: u64) -> bool {
        let full = |(&(from, to), ring): (&(usize, usize), &VecDeque<Message>)| {
            (!ring.is_empty() && !self.dead.contains(&to)).then_some((from, to))
        };
        let rings: Vec<_> = self.rings.iter().filter_map(full).collect();
        // A death is told when all that had been sent has come.
        let told = |&(to, of): &(usize, usize)| {
            !self.dead.contains(&to) && self.rings.get(&(of, to)).is_none_or(VecDeque::is_empty)
        };
        let deaths: Vec<_> = self.untold.iter().copied().filter(told).collect();
        let idle = |c: &u64| !self.open.contains_key(c) && !self.dead.contains(&home(*c));
        let clients: Vec<u64> = match *begun < OPERATIONS {
            true => (0..CLIENTS).filter(idle).collect(),
            false => Vec::new(),
        };
        let choices = rings.len() + deaths.len() + clients.len();
        if choices == 0 {
            return false;
        }
        let mut choice = random.below(choices as u64) as usize;
        let (n, event) = if let Some(&(from, to)) = rings.get(choice) {
            let message = self
                .rings
                .get_mut(&(from, to))
                .and_then(VecDeque::pop_front);
            let from = node(from);
            let message = message.unwrap();
            (to, Event::Received { from, message })
        } else {
            choice -= rings.len();
            if let Some(&(to, of)) = deaths.get(choice) {
                self.untold.retain(|&d| d != (to, of));
                let committed = self.logs[of].clone();
                let node = node(of);
                (to, Event::Down { node, committed })
            } else {
                let client = clients[choice - deaths.len()];
                *begun += 1;
                let (writes, register) = (random.below(2) == 0, random.below(KEYS));
                let operation = Operation {
                    register,
                    value: *begun,
                    writes,
                    begin: self.now + 1,
                    end: NEVER,
                };
                self.open.insert(client, operation);
                let key = key(register);
                let value = begun.to_le_bytes().to_vec();
                let event = match writes {
                    true => Event::Put { client, key, value },
                    false => Event::Get { client, key },
                };
                (home(client), event)
            }
        };
        // The others go on.
        let dies = self.now >= kill_at && self.dead.is_empty();
        let dies_after = dies.then(|| random.below(5) as usize);
        self.step(n, event, dies_after);
        true
    }
}

fn run(seed: u64, lacks: Option<Lacks>) -> Result<(), String> {
    let mut random = SplitMix64(seed);
    let mut world = World::new(lacks);
    let kill_at = match seed % 3 {
        0 => u64::MAX,
        _ => 20 + random.below(200),
    };
    let mut begun = 0;
    let mut steps = 0;
    while world.anything(&mut random, &mut begun, kill_at) {
        steps += 1;
        if steps > 20_000 {
            return Err("it does not end".to_string());
        }
    }
    if let Some((client, operation)) = world.open.iter().next() {
        return Err(format!("client {client} is not answered: {operation:?}"));
    }
    check(&world.history).map_err(|v| v.to_string())?;
    let live = (0..NODES).filter(|n| !world.dead.contains(n));
    let mut values = live.map(|n| &world.nodes[n].values);
    let first = values.next();
    match values.all(|v| Some(v) == first) {
        true => Ok(()),
        false => Err("replicas differ".to_string()),
    }
}

#[test]
fn histories_are_linearizable_and_all_are_answered() {
    for seed in 0..SEEDS {
        run(seed, None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
#[cfg_attr(miri, ignore)]
fn each_rule_is_needed() {
    for lacks in [
        Lacks::ReadsWait,
        Lacks::LogFirst,
        Lacks::LogRead,
        Lacks::AllVote,
        Lacks::OlderFirst,
    ] {
        let found = (0..10 * SEEDS).find_map(|seed| run(seed, Some(lacks)).err());
        std::println!("{lacks:?}: {found:?}");
        assert!(found.is_some(), "{lacks:?} is not missed");
    }
}
