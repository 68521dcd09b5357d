//! How long messages between nodes take.

/// The ways of messages between nodes, counted one by one.
pub(super) struct Ways {
    /// Cycles of a hop, and of a look into the directory of the own memory.
    pub(super) hop: u64,
    pub(super) look: u64,
    pub(super) over_home: bool,
    pub(super) asker: usize,
    /// `None`: a device.
    pub(super) home: Option<usize>,
}

impl Ways {
    /// From a node to another, or to or from a device.
    fn hop(&self, from: Option<usize>, to: Option<usize>) -> u64 {
        if from == to { 0 } else { self.hop }
    }

    /// A request and its answer, without anybody asked.
    pub(super) fn plain(&self) -> u64 {
        let look = if self.home == Some(self.asker) {
            self.look
        } else {
            0
        };
        look + self.hop(Some(self.asker), self.home) + self.hop(self.home, Some(self.asker))
    }

    /// What asking these nodes adds: the slowest of them counts.
    pub(super) fn asked(&self, peers: &[usize]) -> u64 {
        let back = self.hop(self.home, Some(self.asker));
        let one = |&peer: &usize| {
            let there = self.hop(self.home, Some(peer));
            let answer = if self.over_home {
                self.hop(Some(peer), self.home) + back
            } else {
                self.hop(Some(peer), Some(self.asker))
            };
            there + answer - back
        };
        peers.iter().map(one).max().unwrap_or(0)
    }
}
