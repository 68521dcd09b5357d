//! How far the messages of the coherence protocol go: the home of a line decides.
//!
//! ```text
//!   requester ── request ──▶ home ── snoop ──▶ node that has the line
//!       ▲                     ▲                        │
//!       │                     └── answer (over home) ──┤
//!       └──────────────── answer (direct) ─────────────┘
//! ```
//!
//! A hop is one way over the link. What a message costs within a node is in other prices.

use crate::config::{MemoryModel, SimConfig, SnoopCosts};
use crate::memory::Home;

/// Paths from one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paths {
    node: usize,
    hop: u64,
    home: u64,
    through_home: bool,
}

impl Paths {
    /// Paths from `node`. Where all nodes have one last level there is no link.
    pub(super) fn new(config: &SimConfig, node: usize) -> Self {
        let SnoopCosts {
            hop,
            home,
            through_home,
            ..
        } = config.nodes[node].snoop;
        let linked = config.model != MemoryModel::FullyShared;
        Self {
            node,
            hop: if linked { hop } else { 0 },
            home: if linked { home } else { 0 },
            through_home,
        }
    }

    fn is_home(&self, home: Home) -> bool {
        home == Home::Node(self.node)
    }

    /// Cycles of a request to the home of a line and of the answer.
    pub(super) fn there_and_back(&self, home: Home) -> u64 {
        match self.is_home(home) {
            true => self.home,
            false => 2 * self.hop,
        }
    }

    /// Cycles of a request from a device to nodes and of the answers.
    pub(super) const fn device_to_nodes(&self) -> u64 {
        2 * self.hop
    }

    /// Cycles that asking `peers` (nodes, by bit) adds: the home asks them at once, and itself over no link.
    pub(super) fn detour(&self, home: Home, peers: u64) -> u64 {
        let at_home = match home {
            Home::Node(node) => 1 << node,
            Home::Device => 0,
        };
        if peers & !at_home == 0 {
            0
        } else if self.is_home(home) || self.through_home {
            2 * self.hop
        } else {
            self.hop
        }
    }
}
