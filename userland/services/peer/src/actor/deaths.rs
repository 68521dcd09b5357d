//! The death of a node that is not the origin: what was there is lost, and all else goes on.
//!
//! ```text
//!   init: DIED(a) ──▶ records of a, until there is none ──▶ pages, moves, questions, threads that wait to begin: without a
//!         ──▶ AT of each thread that was sent to a, SAID(a) ──▶ origin: SETTLED, and the lost threads to init
//! ```

use dyad_abi::service::process;
use dyad_abi::{Error, NodeId, Result};
use dyad_dsm::{Event, NodeSet};
use dyad_services::rounds::{Rounds, bit};

use super::{Actor, Vec};
use crate::port::{kind, tag};
use crate::service::{INIT, ORIGIN};
use crate::slots;

/// Deaths, as this actor knows them.
pub(super) struct Deaths {
    /// Nodes that have died, and whose records have all been received.
    dead: NodeSet,
    /// At the origin: what other nodes have said.
    rounds: Rounds,
}

impl Default for Deaths {
    fn default() -> Deaths {
        Deaths {
            dead: NodeSet::EMPTY,
            rounds: Rounds::default(),
        }
    }
}

impl Deaths {
    /// Whether a node has died, and all that it had sent has been received.
    pub(super) const fn has(&self, node: NodeId) -> bool {
        self.dead.has(node)
    }
}

impl Actor {
    /// The other nodes that live, as far as this actor knows.
    pub(super) fn living(&self) -> Vec<NodeId> {
        let all = self.outside.links.iter().map(|l| l.node);
        all.filter(|&n| !self.deaths.has(n)).collect()
    }

    /// Looks whether init has told of deaths. Whether one has been dealt with.
    pub(super) fn look_for_deaths(&mut self) -> Result<bool> {
        let told = slots::deaths();
        let mut any = false;
        for node in self.living() {
            // A record that is on its way counts as sent.
            if told >> node.index() & 1 != 0 && !self.outside.has_record(node)? {
                self.without(node);
                any = true;
            }
        }
        Ok(any)
    }

    /// A node has died, and all that it had sent has been received.
    fn without(&mut self, node: NodeId) {
        self.deaths.dead = self.deaths.dead.with(node);
        self.outside.forget(node);
        self.unsent.retain(|(to, ..)| *to != node);
        // An actor whose origin has died fails here.
        let _ = self.step(Event::Down { node });
        self.without_ahead(node);
        self.asks.without(node);
        for (n, moves) in self.threads.without(node) {
            self.report(n, node, moves);
        }
        for n in self.threads.waiting_for_others() {
            self.begin_if_ready(node, n);
        }
        if self.here == ORIGIN {
            self.deaths.rounds.died(node);
            self.settle();
        } else {
            let node = node.index() as u64;
            self.send(ORIGIN, [tag(kind::SAID, 0), node, 0, 0, 0, 0, 0, 0], &[]);
        }
    }

    /// Tells the origin where a thread is.
    pub(super) fn report(&mut self, n: u64, node: NodeId, number: u64) {
        let node = node.index() as u64;
        let head = [tag(kind::AT, 0), n, node, number, 0, 0, 0, 0];
        self.send(ORIGIN, head, &[]);
    }

    /// At the origin: another node has received all that a dead one had sent.
    pub(super) fn has_said(&mut self, from: NodeId, dead: u64) {
        match NodeId::new(dead) {
            Some(dead) if self.here == ORIGIN => {
                self.deaths.rounds.said(from, dead);
                self.settle();
            }
            _ => self.refuse(),
        }
    }

    /// At the origin: once all nodes that live have said what they know, threads that were on dead nodes are lost.
    fn settle(&mut self) {
        let living = self.living();
        let all = living.iter().fold(0, |all, &n| all | bit(n));
        if !self.deaths.rounds.settle(all) {
            return;
        }
        let dead = self.deaths.dead;
        let (lost, starters) = self.threads.lose(|n| dead.has(n));
        for starter in starters {
            self.answer(starter, Err(Error::NodeDead));
        }
        for node in living {
            self.send(node, [tag(kind::SETTLED, 0), 0, 0, 0, 0, 0, 0, 0], &[]);
        }
        self.settled();
        if let Err(e) = INIT.request([process::LOST, lost, 0, 0]) {
            self.outside.failed = Some(("lost threads", e));
        }
    }

    /// What was lost with dead nodes is known.
    pub(super) fn settled(&mut self) {
        self.asks.end_doubt();
    }
}
