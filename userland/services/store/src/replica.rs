//! The store as replicas that agree by two-phase commit: each node has all keys in memory of its own, reads are local, and a put
//! asks all other nodes first. This is what a store over messages does, to compare with one that all nodes read in place.
//!
//! ```text
//!   coordinator:  put ─▶ lock, Prepare to all ─▶ all have voted yes: log, apply, answer ─▶ Commit to all
//!   participant:           lock, Vote ───────────────────────────────────────────────────▶ apply, unlock
//! ```
//!
//! | rule | why |
//! |---|---|
//! | a key is locked for one put at a time | puts of a key come in one order on all nodes |
//! | who has voted yes keeps reads of the key waiting until it learns the decision | another node may have answered the put already |
//! | a coordinator that has not decided answers reads with the old value | no node has the new one yet |
//! | of two puts of a key the older one goes first: its coordinator votes no for the younger one, and that of the younger one gives up for the older one | no two puts wait for each other, and none waits for ever |
//! | a commit is logged before another node is told | if the coordinator dies, the others find what it has decided |
//!
//! [`Replica::step`] decides; who drives it executes the actions in their order. Messages of a pair of nodes arrive in the
//! order in which they were sent; those of a dead node before its death is told.

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use dyad_abi::NodeId;
use dyad_abi::ident::MAX_NODES;

use crate::key::Key;

/// A put that is being agreed on. Of two, the lesser one is the older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Txn {
    /// When the put was asked for: a count that grows with each message.
    pub stamp: u64,
    /// Its coordinator.
    pub node: NodeId,
    /// How often it has been tried before.
    pub attempt: u32,
}

impl Txn {
    const fn age(self) -> (u64, usize) {
        (self.stamp, self.node.index())
    }
}

/// What replicas tell each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// May this be put?
    Prepare {
        /// The put.
        txn: Txn,
        /// What is put.
        key: Key,
        /// Its value.
        value: Vec<u8>,
    },
    /// The answer.
    Vote {
        /// To which question.
        txn: Txn,
        /// Whether the key is locked for it.
        yes: bool,
    },
    /// The decision.
    Decide {
        /// About which put.
        txn: Txn,
        /// Whether it is made.
        commits: bool,
    },
}

/// What a replica is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client wants a value.
    Get {
        /// Who.
        client: u64,
        /// Which.
        key: Key,
    },
    /// A client gives a key a value.
    Put {
        /// Who.
        client: u64,
        /// Which.
        key: Key,
        /// The value.
        value: Vec<u8>,
    },
    /// A message has come.
    Received {
        /// From whom.
        from: NodeId,
        /// What.
        message: Message,
    },
    /// A node has died, and these are the last puts that it has decided to make.
    Down {
        /// Which.
        node: NodeId,
        /// The puts in its log.
        committed: Vec<Txn>,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a message.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// Note in the node's log, which survives it, that the put is made.
    Log {
        /// Which.
        txn: Txn,
    },
    /// A client's put is made.
    Done {
        /// Whose.
        client: u64,
    },
    /// A client's value, if there is one.
    Value {
        /// Whose.
        client: u64,
        /// The key, to be looked up in [`Values`].
        key: Key,
    },
}

/// The keys of a replica.
pub trait Values {
    /// Gives a key a value.
    fn put(&mut self, key: Key, value: &[u8]);
}

/// A put of a client of this node.
#[derive(Clone, Debug)]
struct Asked {
    client: u64,
    key: Key,
    value: Vec<u8>,
    stamp: u64,
    attempts: u32,
}

/// Why a key is locked.
#[derive(Clone, Debug)]
struct Lock {
    txn: Txn,
    value: Vec<u8>,
    /// At the coordinator: the client, and nodes that have not voted, by bit.
    own: Option<(u64, u8)>,
}

/// What waits for a key.
#[derive(Clone, Debug, Default)]
struct Waiting {
    /// Clients that read.
    reads: Vec<u64>,
    /// Puts of clients of this node.
    puts: VecDeque<Asked>,
    /// Puts of other nodes that are older than the one that has the lock.
    prepares: Vec<(Txn, Vec<u8>)>,
}

const _: () = assert!(MAX_NODES <= 8);

/// Rules that tests take away.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacks {
    /// Reads do not wait for a decision.
    ReadsWait,
    /// Who is told first: the others, then the log.
    LogFirst,
    /// A dead coordinator's puts are undone whatever its log says.
    LogRead,
    /// The first vote decides.
    AllVote,
    /// A younger put gets the vote, too.
    OlderFirst,
}

/// A node's part.
#[derive(Clone, Debug)]
pub struct Replica<V> {
    me: NodeId,
    /// Live nodes, by bit.
    alive: u8,
    clock: u64,
    /// The keys that this node has.
    pub values: V,
    locks: BTreeMap<Key, Lock>,
    waiting: BTreeMap<Key, Waiting>,
    #[cfg(test)]
    lacks: Option<Lacks>,
}

impl<V: Values> Replica<V> {
    /// The replica of node `me` among these nodes.
    pub fn new(me: NodeId, nodes: impl Iterator<Item = NodeId>, values: V) -> Replica<V> {
        Replica {
            me,
            alive: nodes.fold(0, |all, n| all | 1 << n.index()),
            clock: 0,
            values,
            locks: BTreeMap::new(),
            waiting: BTreeMap::new(),
            #[cfg(test)]
            lacks: None,
        }
    }

    fn others(&self) -> u8 {
        self.alive & !(1 << self.me.index())
    }

    fn tell_others(&self, message: &Message, out: &mut Vec<Action>) {
        for to in NodeId::first(MAX_NODES).filter(|n| self.others() >> n.index() & 1 != 0) {
            let message = message.clone();
            out.push(Action::Send { to, message });
        }
    }

    /// Takes an event, and says what is to be done. What makes no sense changes nothing.
    pub fn step(&mut self, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        match event {
            Event::Get { client, key } => self.read(client, key, &mut out),
            Event::Put { client, key, value } => {
                self.clock += 1;
                let asked = Asked {
                    client,
                    key,
                    value,
                    stamp: self.clock,
                    attempts: 0,
                };
                self.waiting.entry(key).or_default().puts.push_back(asked);
                self.go_on(key, &mut out);
            }
            Event::Received { from, message } => match message {
                Message::Prepare { txn, key, value } if txn.node == from => {
                    self.clock = self.clock.max(txn.stamp);
                    self.prepare(txn, key, value, &mut out);
                }
                Message::Vote { txn, yes } => self.vote(from, txn, yes, &mut out),
                Message::Decide { txn, commits } if txn.node == from => {
                    self.decided(txn, commits, &mut out);
                }
                Message::Prepare { .. } | Message::Decide { .. } => {}
            },
            Event::Down { node, committed } => self.down(node, &committed, &mut out),
        }
        out
    }

    fn read(&mut self, client: u64, key: Key, out: &mut Vec<Action>) {
        let waits = self.locks.get(&key).is_some_and(|l| l.own.is_none());
        #[cfg(test)]
        let waits = waits && self.lacks != Some(Lacks::ReadsWait);
        match waits {
            true => self.waiting.entry(key).or_default().reads.push(client),
            false => out.push(Action::Value { client, key }),
        }
    }

    /// The key is not locked: whatever waits goes on, and the oldest put first.
    fn go_on(&mut self, key: Key, out: &mut Vec<Action>) {
        if self.locks.contains_key(&key) {
            return;
        }
        let Some(waiting) = self.waiting.get_mut(&key) else {
            return;
        };
        let reads = core::mem::take(&mut waiting.reads);
        out.extend(
            reads
                .into_iter()
                .map(|client| Action::Value { client, key }),
        );
        waiting
            .prepares
            .sort_by_key(|(txn, _)| core::cmp::Reverse(txn.age()));
        let theirs = waiting.prepares.last().map(|(txn, _)| txn.age());
        let ours = waiting.puts.front().map(|p| (p.stamp, self.me.index()));
        match (theirs, ours) {
            (None, None) => drop(self.waiting.remove(&key)),
            (Some(theirs), ours) if ours.is_none_or(|ours| theirs < ours) => {
                if let Some((txn, value)) = waiting.prepares.pop() {
                    self.lock(txn, key, value, out);
                }
            }
            _ => {
                if let Some(asked) = waiting.puts.pop_front() {
                    self.propose(asked, out);
                }
            }
        }
    }

    /// Locks a key for another node's put, which has the vote.
    fn lock(&mut self, txn: Txn, key: Key, value: Vec<u8>, out: &mut Vec<Action>) {
        let own = None;
        self.locks.insert(key, Lock { txn, value, own });
        let message = Message::Vote { txn, yes: true };
        out.push(Action::Send {
            to: txn.node,
            message,
        });
    }

    /// Asks the others for a put of a client. The key is not locked.
    fn propose(&mut self, asked: Asked, out: &mut Vec<Action>) {
        let Asked {
            client,
            key,
            value,
            stamp,
            attempts,
        } = asked;
        let txn = Txn {
            stamp,
            node: self.me,
            attempt: attempts,
        };
        let own = Some((client, self.others()));
        let message = Message::Prepare {
            txn,
            key,
            value: value.clone(),
        };
        self.locks.insert(key, Lock { txn, value, own });
        self.tell_others(&message, out);
        self.decide_if_all_voted(key, out);
    }

    fn decide_if_all_voted(&mut self, key: Key, out: &mut Vec<Action>) {
        let Some(Lock {
            txn,
            own: Some((client, 0)),
            ..
        }) = self.locks.get(&key)
        else {
            return;
        };
        let (txn, client, commits) = (*txn, *client, true);
        let told = Message::Decide { txn, commits };
        #[cfg(test)]
        if self.lacks == Some(Lacks::LogFirst) {
            self.tell_others(&told, out);
        }
        out.push(Action::Log { txn });
        #[cfg(test)]
        let tells = self.lacks != Some(Lacks::LogFirst);
        #[cfg(not(test))]
        let tells = true;
        if tells {
            self.tell_others(&told, out);
        }
        out.push(Action::Done { client });
        self.decided(txn, commits, out);
    }

    /// Another node asks for a put.
    fn prepare(&mut self, txn: Txn, key: Key, value: Vec<u8>, out: &mut Vec<Action>) {
        let Some(lock) = self.locks.get(&key) else {
            return self.lock(txn, key, value, out);
        };
        let is_older = txn.age() < lock.txn.age();
        #[cfg(test)]
        let is_older = is_older || self.lacks == Some(Lacks::OlderFirst);
        match (is_older, lock.own.is_some()) {
            // A younger one is tried again when this one is over.
            (false, _) => {
                let message = Message::Vote { txn, yes: false };
                out.push(Action::Send {
                    to: txn.node,
                    message,
                });
            }
            // This node's own one gives up. It has not been decided, or the key would not be locked.
            (true, true) => {
                self.withdraw(key, out);
                self.lock(txn, key, value, out);
            }
            // The vote was given away; the one that has it is younger, and finds the older one at that one's coordinator.
            (true, false) => {
                let waiting = self.waiting.entry(key).or_default();
                waiting.prepares.push((txn, value));
            }
        }
    }

    /// This node's put of a key is tried again later.
    fn withdraw(&mut self, key: Key, out: &mut Vec<Action>) {
        let Some(lock) = self.locks.remove(&key) else {
            return;
        };
        let Some((client, _)) = lock.own else { return };
        let (txn, commits) = (lock.txn, false);
        self.tell_others(&Message::Decide { txn, commits }, out);
        let again = Asked {
            client,
            key,
            value: lock.value,
            stamp: txn.stamp,
            attempts: txn.attempt + 1,
        };
        self.waiting.entry(key).or_default().puts.push_front(again);
    }

    fn key_of(&self, txn: Txn) -> Option<Key> {
        let mut all = self.locks.iter();
        all.find(|(_, lock)| lock.txn == txn).map(|(&key, _)| key)
    }

    fn vote(&mut self, from: NodeId, txn: Txn, yes: bool, out: &mut Vec<Action>) {
        // Votes for what has been given up are late.
        let Some(key) = self.key_of(txn) else { return };
        if !yes {
            self.withdraw(key, out);
            return self.go_on(key, out);
        }
        if let Some(Lock {
            own: Some((_, missing)),
            ..
        }) = self.locks.get_mut(&key)
        {
            *missing &= !(1 << from.index());
            #[cfg(test)]
            if self.lacks == Some(Lacks::AllVote) {
                *missing = 0;
            }
            self.decide_if_all_voted(key, out);
        }
    }

    /// A put is decided: of this node, or of another one.
    fn decided(&mut self, txn: Txn, commits: bool, out: &mut Vec<Action>) {
        let Some(key) = self.key_of(txn) else {
            // It may wait still.
            for waiting in self.waiting.values_mut() {
                waiting.prepares.retain(|(other, _)| *other != txn);
            }
            return;
        };
        if let Some(lock) = self.locks.remove(&key)
            && commits
        {
            self.values.put(key, &lock.value);
        }
        self.go_on(key, out);
    }

    /// A node has died: what it had decided is done, its other puts are not, and its vote is not waited for.
    fn down(&mut self, node: NodeId, committed: &[Txn], out: &mut Vec<Action>) {
        self.alive &= !(1 << node.index());
        for waiting in self.waiting.values_mut() {
            waiting.prepares.retain(|(txn, _)| txn.node != node);
        }
        let keys: Vec<Key> = self.locks.keys().copied().collect();
        for key in keys {
            let Some(lock) = self.locks.get_mut(&key) else {
                continue;
            };
            if let Some((_, missing)) = &mut lock.own {
                *missing &= !(1 << node.index());
                self.decide_if_all_voted(key, out);
            } else if lock.txn.node == node {
                let txn = lock.txn;
                let commits = committed.contains(&txn);
                #[cfg(test)]
                let commits = commits && self.lacks != Some(Lacks::LogRead);
                self.decided(txn, commits, out);
            }
        }
    }
}
