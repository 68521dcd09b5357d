//! The state of every block, and what follows from it.

use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::memory::PRESSURE;
use dyad_abi::{Error, NodeId, Result};

/// Number of pools: one for each node, and the one without a node.
pub const POOLS: usize = MAX_NODES + 1;
const LEAVING: u8 = 0x80;

/// A block: its number, in order of pools and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(u32);

/// The owner of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The block has no owner.
    Free,
    /// A node's.
    Owned(NodeId),
    /// Being taken from a node, for another one.
    Leaving {
        /// The previous owner.
        from: NodeId,
        /// The next owner.
        to: NodeId,
    },
}

impl State {
    const fn bits(self) -> u8 {
        match self {
            State::Free => 0,
            State::Owned(n) => 1 + n.index() as u8,
            State::Leaving { from, to } => LEAVING | (from.index() as u8) << 3 | to.index() as u8,
        }
    }

    fn from_bits(b: u8) -> State {
        let node = |n: u8| NodeId::new(n as u64);
        let parts = match b {
            0 => return State::Free,
            b if b & LEAVING != 0 => (node(b >> 3 & 7), node(b & 7)),
            b => (node(b - 1), None),
        };
        match parts {
            (Some(from), Some(to)) => State::Leaving { from, to },
            (Some(n), None) => State::Owned(n),
            // No state has these bits.
            _ => State::Free,
        }
    }
}

/// The memory that a node has and needs, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Frames that it owns.
    pub owned: u64,
    /// Owned frames that are in use.
    pub used: u64,
    /// Whether anything can be taken from it now: it lives, and has a block that nothing fixed is in.
    pub gives: bool,
}

impl Need {
    /// Whether more than [`PRESSURE`] per cent are in use.
    pub const fn is_pressed(&self) -> bool {
        self.used as u128 * 100 > self.owned as u128 * PRESSURE as u128
    }

    /// Whether this pressure is below that of `other`.
    pub const fn is_below(&self, other: &Need) -> bool {
        (self.used as u128 * other.owned as u128) < other.used as u128 * self.owned as u128
    }

    /// The need of the node without `frames` of its frames; `None` if it uses more than would be left.
    pub const fn without(&self, frames: u64) -> Option<Need> {
        match self.owned.checked_sub(frames) {
            Some(owned) if self.used < owned => Some(Need { owned, ..*self }),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// First frame of the first block, counted from the start of the pool.
    start: u64,
    /// First block.
    first: u32,
    blocks: u32,
}

/// All blocks: at most `N`.
#[derive(Debug)]
pub struct Book<const N: usize> {
    states: [u8; N],
    parts: [Part; POOLS],
    used: u32,
    frames: u64,
    /// Number of blocks that each node owns. `leaving` is the number of blocks that are being taken away.
    owned: [u32; MAX_NODES],
    leaving: u32,
}

impl<const N: usize> Book<N> {
    /// A book without blocks: all zeros.
    pub const fn new() -> Book<N> {
        Book {
            states: [0; N],
            parts: [Part {
                start: 0,
                first: 0,
                blocks: 0,
            }; POOLS],
            used: 0,
            frames: 0,
            owned: [0; MAX_NODES],
            leaving: 0,
        }
    }

    /// Says how many frames a block has. Before any is added.
    pub fn set_block(&mut self, frames: u64) {
        self.frames = frames;
    }

    /// Frames of a block.
    pub const fn block_frames(&self) -> u64 {
        self.frames
    }

    /// Adds the blocks of a pool, the first of which begins at frame `start` of the pool. Each pool may be
    /// added once.
    ///
    /// # Errors
    ///
    /// `Full` if there is no room for that many blocks; `BadArgument` if there is no such pool, or it has
    /// been added already.
    pub fn add_pool(&mut self, pool: usize, start: u64, blocks: u64) -> Result<()> {
        let part = self.parts.get_mut(pool).ok_or(Error::BadArgument)?;
        if part.blocks != 0 {
            return Err(Error::BadArgument);
        }
        let blocks = u32::try_from(blocks).map_err(|_| Error::Full)?;
        let end = self.used.checked_add(blocks).ok_or(Error::Full)?;
        if end as usize > N {
            return Err(Error::Full);
        }
        *part = Part {
            start,
            first: self.used,
            blocks,
        };
        self.used = end;
        Ok(())
    }

    /// All blocks.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = Block> + use<N> {
        (0..self.used).map(Block)
    }

    /// The owner of a block.
    pub fn state(&self, block: Block) -> State {
        State::from_bits(self.states[block.0 as usize])
    }

    fn set(&mut self, block: Block, state: State) {
        let was = self.state(block);
        if let Some(count) = self.counted(was) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = self.counted(state) {
            *count += 1;
        }
        self.states[block.0 as usize] = state.bits();
    }

    /// The count that a block in this state is part of. Free blocks are the rest.
    fn counted(&mut self, state: State) -> Option<&mut u32> {
        match state {
            State::Free => None,
            State::Owned(node) => Some(&mut self.owned[node.index()]),
            State::Leaving { .. } => Some(&mut self.leaving),
        }
    }

    /// Number of blocks without an owner.
    pub fn count_free(&self) -> u64 {
        let others = self.owned.iter().sum::<u32>() + self.leaving;
        self.used.saturating_sub(others).into()
    }

    /// Number of blocks that a node owns, without those that are being taken from it.
    pub fn count_owned(&self, node: NodeId) -> u64 {
        self.owned[node.index()].into()
    }

    /// Pool and first frame of a block.
    pub fn place(&self, block: Block) -> (usize, u64) {
        let part = self
            .parts
            .iter()
            .position(|p| (p.first..p.first + p.blocks).contains(&block.0));
        match part {
            Some(pool) => {
                let p = &self.parts[pool];
                (pool, p.start + u64::from(block.0 - p.first) * self.frames)
            }
            None => (0, 0),
        }
    }

    /// The free block that a node gets next: from its own pool if there is one, else from the pool without a
    /// node, else from another node's pool. Within a pool, blocks that lengthen a run of the node come first,
    /// then the order is by address. `fits` says whether the node can take a block that begins there, and
    /// whether the block lengthens a run.
    pub fn choose(&self, node: NodeId, fits: impl Fn(usize, u64) -> Option<bool>) -> Option<Block> {
        let rank = |block: Block| {
            let (pool, first) = self.place(block);
            let lengthens = fits(pool, first)?;
            let far = match pool {
                p if p == node.index() => 0,
                MAX_NODES => 1,
                _ => 2,
            };
            Some((far, !lengthens, block))
        };
        self.blocks()
            .filter(|&b| self.state(b) == State::Free)
            .filter_map(rank)
            .min()
            .map(|(_, _, block)| block)
    }

    /// Gives a free block to a node.
    ///
    /// # Errors
    ///
    /// `Exists` if it is not free.
    pub fn assign(&mut self, block: Block, node: NodeId) -> Result<()> {
        if self.state(block) != State::Free {
            return Err(Error::Exists);
        }
        self.set(block, State::Owned(node));
        Ok(())
    }

    /// The node that a block is to be taken from, for `to`: the one under the least pressure of those whose
    /// pressure would still be below that of `to` afterwards. `None`: pressures are as equal as they can be.
    pub fn victim(&self, to: NodeId, needs: &[Need; MAX_NODES]) -> Option<NodeId> {
        let asks = &needs[to.index()];
        let mut best: Option<(NodeId, Need)> = None;
        for node in NodeId::first(MAX_NODES).filter(|&n| n != to) {
            let need = needs[node.index()];
            let Some(left) = need.without(self.frames).filter(|_| need.gives) else {
                continue;
            };
            let better = best.is_none_or(|(_, known)| need.is_below(&known));
            if left.is_below(asks) && better {
                best = Some((node, need));
            }
        }
        best.map(|(node, _)| node)
    }

    /// Begins to take a block from its owner, for another node.
    ///
    /// # Errors
    ///
    /// `Denied` if the block has no owner, is being taken already, or is owned by `to`.
    pub fn begin(&mut self, block: Block, to: NodeId) -> Result<NodeId> {
        match self.state(block) {
            State::Owned(from) if from != to => {
                self.set(block, State::Leaving { from, to });
                Ok(from)
            }
            _ => Err(Error::Denied),
        }
    }

    /// A block that leaves is empty: it is the other node's. Gives from whom and to whom.
    ///
    /// # Errors
    ///
    /// `Denied` if it does not leave.
    pub fn done(&mut self, block: Block) -> Result<(NodeId, NodeId)> {
        match self.state(block) {
            State::Leaving { from, to } => {
                self.set(block, State::Owned(to));
                Ok((from, to))
            }
            _ => Err(Error::Denied),
        }
    }

    /// A block cannot leave: it stays where it was.
    ///
    /// # Errors
    ///
    /// `Denied` if it does not leave.
    pub fn abandon(&mut self, block: Block) -> Result<NodeId> {
        match self.state(block) {
            State::Leaving { from, .. } => {
                self.set(block, State::Owned(from));
                Ok(from)
            }
            _ => Err(Error::Denied),
        }
    }
}

impl<const N: usize> Default for Book<N> {
    fn default() -> Book<N> {
        Book::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn node(n: usize) -> NodeId {
        NodeId::new(n as u64).unwrap()
    }

    fn book(blocks: [u64; 3]) -> Book<64> {
        let mut b = Book::new();
        b.set_block(8192);
        for (pool, n) in [(0, blocks[0]), (1, blocks[1]), (MAX_NODES, blocks[2])] {
            b.add_pool(pool, 8192, n).unwrap();
        }
        b
    }

    #[test]
    fn states_round_trip() {
        let nodes = || NodeId::first(MAX_NODES);
        let leaving = nodes().flat_map(|from| nodes().map(move |to| State::Leaving { from, to }));
        let all = [State::Free]
            .into_iter()
            .chain(nodes().map(State::Owned))
            .chain(leaving);
        for state in all {
            assert_eq!(State::from_bits(state.bits()), state);
        }
    }

    #[test]
    fn own_blocks_come_first_then_shared_ones_then_others() {
        let mut b = book([2, 1, 2]);
        let mut got = Vec::new();
        while let Some(block) = b.choose(node(1), |_, _| Some(false)) {
            b.assign(block, node(1)).unwrap();
            got.push(b.place(block));
        }
        let shared = MAX_NODES;
        let expected = [
            (1, 8192),
            (shared, 8192),
            (shared, 16384),
            (0, 8192),
            (0, 16384),
        ];
        assert_eq!(got, expected);
        assert_eq!(b.assign(Block(0), node(0)), Err(Error::Exists));
        assert_eq!(b.count_free(), 0);
    }

    #[test]
    fn a_block_that_lengthens_a_run_is_preferred_and_one_that_does_not_fit_is_left() {
        let b = book([0, 0, 3]);
        let chosen = b.choose(node(0), |_, first| Some(first == 16384));
        assert_eq!(chosen.map(|c| b.place(c).1), Some(16384));
        assert_eq!(b.choose(node(0), |_, _| None), None);
    }

    #[test]
    fn a_book_has_room_for_so_many_blocks() {
        let mut b = Book::<4>::new();
        assert_eq!(b.add_pool(0, 0, 5), Err(Error::Full));
        assert_eq!(b.add_pool(0, 0, 4), Ok(()));
        assert_eq!(b.add_pool(1, 0, 1), Err(Error::Full));
        assert_eq!(b.add_pool(0, 0, 0), Err(Error::BadArgument));
        assert_eq!(b.add_pool(POOLS, 0, 0), Err(Error::BadArgument));
    }

    #[test]
    fn seventy_per_cent_is_not_passed_at_seventy_per_cent() {
        let need = |used| Need {
            owned: 1000,
            used,
            gives: true,
        };
        assert!(!need(700).is_pressed());
        assert!(need(701).is_pressed());
    }

    #[test]
    fn a_block_leaves_once_and_comes_back_if_it_cannot() {
        let mut b = book([1, 1, 0]);
        let block = Block(0);
        assert_eq!(b.begin(block, node(1)), Err(Error::Denied));
        b.assign(block, node(0)).unwrap();
        assert_eq!(b.begin(block, node(0)), Err(Error::Denied));
        assert_eq!(b.begin(block, node(1)), Ok(node(0)));
        assert_eq!(b.begin(block, node(1)), Err(Error::Denied));
        assert_eq!(b.assign(block, node(1)), Err(Error::Exists));
        assert_eq!(b.abandon(block), Ok(node(0)));
        assert_eq!(b.state(block), State::Owned(node(0)));
        assert_eq!(b.done(block), Err(Error::Denied));
        b.begin(block, node(1)).unwrap();
        assert_eq!(b.done(block), Ok((node(0), node(1))));
        assert_eq!(b.state(block), State::Owned(node(1)));
    }

    proptest! {
        /// Nodes with random needs ask in random order until nothing changes any more.
        #[test]
        fn every_block_has_one_owner_and_pressures_meet(
            blocks in [0u64..12, 0u64..12, 0u64..20],
            homes in [100u64..8192, 100u64..8192, 100u64..8192],
            load in [0u64..70, 0u64..70, 0u64..70],
            order in prop::collection::vec(0usize..3, 1..40),
        ) {
            const B: u64 = 8192;
            let mut b = book(blocks);
            let total: u64 = blocks.iter().sum();
            let mut needs = [Need::default(); MAX_NODES];
            for n in 0..3 {
                needs[n] = Need { owned: homes[n], used: 0, gives: true };
            }
            let mut steps = 0;
            for who in order.into_iter().chain([0, 1, 2, 0, 1, 2]) {
                let to = node(who);
                // What it would use, if it had it.
                let wish = load[who] * B / 4;
                loop {
                    let mine = &mut needs[who];
                    mine.used = wish.min(mine.owned);
                    if !mine.is_pressed() {
                        break;
                    }
                    if let Some(free) = b.choose(to, |_, _| Some(false)) {
                        b.assign(free, to).unwrap();
                        needs[who].owned += B;
                        continue;
                    }
                    for need in &mut needs[..3] {
                        prop_assert!(need.used <= need.owned);
                    }
                    let asked = needs[who];
                    let gives = core::array::from_fn(|n| Need {
                        gives: b.count_owned(node(n)) > 0,
                        ..needs[n]
                    });
                    let Some(victim) = b.victim(to, &gives) else {
                        // As equal as it can be: nobody could give one and still be below.
                        for n in (0..3).filter(|&n| n != who && gives[n].gives) {
                            if let Some(left) = needs[n].without(B) {
                                prop_assert!(!left.is_below(&asked));
                            }
                        }
                        break;
                    };
                    prop_assert_ne!(victim, to);
                    let block = b.blocks().find(|&x| b.state(x) == State::Owned(victim)).unwrap();
                    let before = (b.count_free(), b.count_owned(victim), b.count_owned(to));
                    b.begin(block, to).unwrap();
                    let meanwhile = (before.0, before.1 - 1, before.2);
                    prop_assert_eq!((b.count_free(), b.count_owned(victim), b.count_owned(to)), meanwhile);
                    b.done(block).unwrap();
                    let from = &mut needs[victim.index()];
                    from.owned -= B;
                    // It has what it needs, and is still better off than who asked.
                    prop_assert!(from.used < from.owned && from.is_below(&asked));
                    needs[who].owned += B;
                    steps += 1;
                    prop_assert!(steps < 2000, "no end");
                }
                let count = |state| b.blocks().filter(|&x| b.state(x) == state).count() as u64;
                prop_assert_eq!(b.count_free(), count(State::Free));
                for n in (0..3).map(node) {
                    prop_assert_eq!(b.count_owned(n), count(State::Owned(n)));
                }
                let owned: u64 = (0..3).map(|n| b.count_owned(node(n))).sum();
                prop_assert_eq!(owned + b.count_free(), total);
                for n in 0..3 {
                    let blocks = b.count_owned(node(n));
                    prop_assert_eq!(needs[n].owned, homes[n] + blocks * B);
                }
            }
        }
    }
}
