//! How the peers of a group agree on which threads a death takes.
//!
//! A message follows a thread by the nodes that it has been on, and one of them may die. So the origin knows where each thread is:
//! it sends a thread away itself, or the node to which another one has sent a thread reports that. Each [`Move`] of a
//! thread has a number, and the report with the largest one holds.
//!
//! ```text
//!   node a dies.  Each node that lives:  receives all that a had sent ──▶ reports threads that it has sent to a ──▶ SAID(a)
//!                 origin, when all have said so:  threads whose last report names a are lost
//! ```
//!
//! Records of a pair of nodes keep their order, so what a living node has received from `a` is reported before its SAID. A thread
//! that `a` had sent to a living node is there then, and reported. A thread that a living node has sent to another one is reported
//! by the sender at the latest, and not on `a`. What remains had come to `a`, or was on its way there.

use dyad_abi::NodeId;
use dyad_abi::ident::MAX_NODES;

/// Where a thread is after a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The node.
    pub node: NodeId,
    /// How often the thread, or an earlier one of its number, has begun or moved until then.
    pub number: u64,
}

impl Move {
    /// The later one of two reports.
    #[must_use]
    pub const fn or(self, other: Move) -> Move {
        match other.number > self.number {
            true => other,
            false => self,
        }
    }
}

/// Nodes as bits.
pub type Nodes = u64;

/// The bit of a node.
pub const fn bit(node: NodeId) -> Nodes {
    1 << node.index()
}

/// What the origin has heard of deaths.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    /// Nodes that have died, and whose records the origin has all received.
    dead: Nodes,
    /// Those of them whose threads are lost already.
    settled: Nodes,
    /// Which nodes have said so of a node.
    said: [Nodes; MAX_NODES],
}

impl Rounds {
    /// The origin has received all that a node had sent before it died.
    pub const fn died(&mut self, node: NodeId) {
        self.dead |= bit(node);
    }

    /// A node says that it has received all that a dead node had sent, and reported what it has sent there.
    pub const fn said(&mut self, from: NodeId, dead: NodeId) {
        self.said[dead.index()] |= bit(from);
    }

    /// Whether threads that were last on dead nodes are lost now: `living` are all other nodes that live. `true` once for each
    /// death: all deaths that the origin knows of are looked at together.
    pub fn settle(&mut self, living: Nodes) -> bool {
        let open = |n: &NodeId| self.dead >> n.index() & 1 != 0;
        let living = living & !self.dead;
        let mut dead = NodeId::first(MAX_NODES).filter(open);
        let all = dead.all(|n| self.said[n.index()] & living == living);
        let settles = all && self.settled != self.dead;
        if settles {
            self.settled = self.dead;
        }
        settles
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::collections::VecDeque;
    use std::vec::Vec;

    use dyad_random::SplitMix64;

    const NODES: usize = 4;

    fn node(n: usize) -> NodeId {
        NodeId::new(n as u64).unwrap()
    }

    /// What is on its way.
    #[derive(Clone, Copy, Debug)]
    enum Record {
        Thread(u64),
        Report(Move),
        Said(usize),
    }

    /// One thread on some nodes with FIFO channels between them. Node 0 is the origin.
    struct World {
        random: SplitMix64,
        /// Where the thread is; `None`: on its way, or lost.
        at: Option<usize>,
        moves: u64,
        /// Of each node, the last move of the thread that it knows.
        last: [Move; NODES],
        ways: [[VecDeque<Record>; NODES]; NODES],
        alive: [bool; NODES],
        /// Whom each node has been told of.
        drained: [[bool; NODES]; NODES],
        rounds: Rounds,
        lost: bool,
    }

    impl World {
        fn new(seed: u64) -> World {
            World {
                random: SplitMix64(seed),
                at: Some(0),
                moves: 0,
                last: [Move {
                    node: node(0),
                    number: 0,
                }; NODES],
                ways: Default::default(),
                alive: [true; NODES],
                drained: Default::default(),
                rounds: Rounds::default(),
                lost: false,
            }
        }

        fn below(&mut self, n: usize) -> usize {
            self.random.below(n as u64) as usize
        }

        fn leave(&mut self, from: usize, to: usize) {
            self.moves += 1;
            self.last[from] = Move {
                node: node(to),
                number: self.moves,
            };
            self.at = None;
            self.ways[from][to].push_back(Record::Thread(self.moves));
        }

        fn receive(&mut self, from: usize, to: usize) {
            if !self.alive[to] || self.drained[to][from] {
                return;
            }
            match self.ways[from][to].pop_front() {
                Some(Record::Thread(number)) => {
                    assert!(!self.lost, "a thread that is lost has come");
                    self.at = Some(to);
                    let here = node(to);
                    self.last[to] = Move { node: here, number };
                    if to != 0 && from != 0 {
                        let report = Record::Report(self.last[to]);
                        self.ways[to][0].push_back(report);
                    }
                }
                Some(Record::Report(report)) => self.last[0] = self.last[0].or(report),
                Some(Record::Said(dead)) => self.rounds.said(node(from), node(dead)),
                None => {}
            }
        }

        /// A node learns of a death when it has received everything.
        fn hear(&mut self, me: usize, dead: usize) {
            let told = self.alive[me] && !self.alive[dead] && !self.drained[me][dead];
            if !told || !self.ways[dead][me].is_empty() {
                return;
            }
            self.drained[me][dead] = true;
            if me == 0 {
                self.rounds.died(node(dead));
            } else {
                if self.last[me].node == node(dead) {
                    let report = Record::Report(self.last[me]);
                    self.ways[me][0].push_back(report);
                }
                self.ways[me][0].push_back(Record::Said(dead));
            }
        }

        fn settle(&mut self) {
            let living = (1..NODES).filter(|&n| !self.drained[0][n]);
            let living = living.fold(0, |all, n| all | bit(node(n)));
            if self.rounds.settle(living) {
                let there = self.last[0].node;
                self.lost |= self.drained[0][there.index()];
            }
            let is_gone = |n: usize| !self.alive[n];
            // Only what is nowhere among the living is lost.
            if self.lost {
                assert!(self.at.is_none_or(is_gone), "a thread that lives is lost");
            }
        }

        fn kill(&mut self, dead: usize) {
            self.alive[dead] = false;
            // What had no room in rings is lost, from the end.
            for to in 0..NODES {
                let keep = self.below(self.ways[dead][to].len() + 1);
                self.ways[dead][to].truncate(keep);
            }
            if self.at == Some(dead) {
                self.at = None;
            }
        }
    }

    #[test]
    fn threads_are_lost_if_they_are_on_no_living_node() {
        for seed in 0..4_000 {
            let mut w = World::new(seed);
            let deaths = 1 + w.below(2);
            let kills: Vec<usize> = (0..deaths).map(|_| w.below(60)).collect();
            for step in 0..400 {
                if kills.contains(&step) {
                    let dead = 1 + w.below(NODES - 1);
                    w.kill(dead);
                }
                let (a, b) = (w.below(NODES), w.below(NODES));
                match w.below(3) {
                    // A node that is known to have died is refused.
                    0 if w.at == Some(a) && a != b && !w.drained[a][b] && step < 80 => {
                        w.leave(a, b);
                    }
                    1 => w.hear(a, b),
                    _ => w.receive(a, b),
                }
                w.settle();
            }
            // All that is on its way comes.
            for _ in 0..200 {
                for (a, b) in (0..NODES).flat_map(|a| (0..NODES).map(move |b| (a, b))) {
                    w.receive(a, b);
                    w.hear(a, b);
                }
                w.settle();
            }
            assert_eq!(w.lost, w.at.is_none(), "seed {seed}");
        }
    }
}
