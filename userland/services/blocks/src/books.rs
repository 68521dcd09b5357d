//! All that is known about who owns what, and what nodes wish: who has it has the right to decide
//! (`dyad_services::keeper`).
//!
//! ```text
//!   wish of a node:   NONE ──all open, some left──▶ ASKED ──┬─▶ NONE      it has a block, or needs none
//!                      │ ▲                           │      │
//!                      │ └──────── told ─────────┐   │ used up
//!                      └──nothing left──▶ WAITING ◀──┘      │
//!                                            │  └───────────┘
//!                                            └──no block──▶ REFUSED
//! ```

use dyad_abi::cap::Counted;
use dyad_abi::ident::MAX_NODES;
use dyad_abi::{Error, NodeId, Result};

use crate::evict::Leaving;
use crate::{Block, Book, Cost, Holding, Kernel, MAX_RUNS, Need, Run, State};

/// Whether a node wants a block of another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Wish {
    /// No.
    #[default]
    None = 0,
    /// Yes, and it has some frames left meanwhile.
    Asked,
    /// Yes, and a thread waits for it.
    Waiting,
    /// A thread has waited, and there is no block: pressures are equal, or blocks cannot be emptied.
    Refused,
}

impl Wish {
    /// Whether it has not been decided yet.
    pub const fn is_open(self) -> bool {
        matches!(self, Wish::Asked | Wish::Waiting)
    }
}

/// Time for which a refusal holds, in nanoseconds: waiting threads ask more often, and pressures change.
const FRESH_NS: u64 = 1_000_000_000;

/// Counts of events of a node's memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// How often faults on the node have found no open frame.
    pub requests: u64,
    /// Free blocks that it was given.
    pub assigned: u64,
    /// Blocks that were taken from it.
    pub evicted: u64,
    /// Pages that were moved out of blocks of it.
    pub moved: u64,
    /// Blocks that could not be taken from it after all.
    pub refused: u64,
    /// What the last free block has cost that *this node has put to use*; of the next two as well.
    pub online: Cost,
    /// The last block that it has emptied.
    pub offline: Cost,
    /// The last block that it has put to use after that.
    pub again: Cost,
}

/// The books, for at most `N` blocks.
#[derive(Debug)]
pub struct Books<const N: usize> {
    /// The owner of each block.
    pub book: Book<N>,
    /// The frames that each node owns.
    pub holdings: [Holding; MAX_NODES],
    /// The request of each node whose frames are all open.
    pub wishes: [Wish; MAX_NODES],
    /// The time at which each node was last refused.
    refused_at: [u64; MAX_NODES],
    /// The block that is being taken from a node.
    pub leaving: Leaving,
    /// Counts of events so far.
    pub counts: [Counts; MAX_NODES],
}

impl<const N: usize> Books<N> {
    /// Empty books: all zeros.
    pub const fn new() -> Books<N> {
        const NOTHING: Counts = Counts {
            requests: 0,
            assigned: 0,
            evicted: 0,
            moved: 0,
            refused: 0,
            online: Cost::ZERO,
            offline: Cost::ZERO,
            again: Cost::ZERO,
        };
        Books {
            book: Book::new(),
            holdings: [Holding::new(); MAX_NODES],
            wishes: [Wish::None; MAX_NODES],
            refused_at: [0; MAX_NODES],
            leaving: Leaving::new(),
            counts: [NOTHING; MAX_NODES],
        }
    }

    /// Whether there is something that the leader has to do.
    pub fn is_busy(&self) -> bool {
        self.leaving.is_busy() || self.wishes.iter().any(|w| w.is_open())
    }

    /// Clears all requests, because the program has ended.
    pub fn forget_wishes(&mut self) {
        self.wishes = [Wish::None; MAX_NODES];
        self.leaving = Leaving::new();
    }

    /// The frames of a block.
    pub fn run(&self, block: Block) -> Run {
        let (pool, first) = self.book.place(block);
        Run {
            pool,
            first,
            frames: self.book.block_frames(),
        }
    }

    /// Tells the kernel which frames are open to faults on a node.
    ///
    /// # Errors
    ///
    /// Errors of the kernel; it may have been told a part.
    pub fn apply(&self, k: &impl Kernel, node: NodeId) -> Result<()> {
        let mut runs = 0;
        for run in self.holdings[node.index()].open_runs() {
            k.supply(node, runs, Some(&run))?;
            runs += 1;
        }
        for empty in runs..MAX_RUNS {
            k.supply(node, empty, None)?;
        }
        Ok(())
    }

    /// Gives a node a block that is free; whether there is one that it can take. No frame of it may be in
    /// use.
    ///
    /// A node that is just losing a block gets none: it must be able to have that one back.
    ///
    /// # Errors
    ///
    /// `Corrupt` if a frame is; as the kernel says.
    pub fn assign(&mut self, k: &impl Kernel, node: NodeId) -> Result<bool> {
        if self.loses(node) {
            return Ok(false);
        }
        let before = k.now();
        let holding = &mut self.holdings[node.index()];
        let Some(block) = self
            .book
            .choose(node, |pool, first| holding.fits(pool, first))
        else {
            return Ok(false);
        };
        let run = self.run(block);
        if count(k, &run)?.untyped != run.frames {
            return Err(Error::Corrupt);
        }
        self.holdings[node.index()].add(run)?;
        self.book.assign(block, node)?;
        self.counts[node.index()].assigned += 1;
        self.counts[k.here().index()].online = k.now().since(before);
        Ok(true)
    }

    /// Whether a block is just being taken from a node.
    fn loses(&self, node: NodeId) -> bool {
        let state = self.leaving.block().map(|b| self.book.state(b));
        matches!(state, Some(State::Leaving { from, .. }) if from == node)
    }

    /// Faults on a node have taken all that was open to them.
    ///
    /// # Errors
    ///
    /// `Again` if a block may come; `NoMemory` if there is none; as the kernel says.
    pub fn request(&mut self, k: &impl Kernel, node: NodeId) -> Result<()> {
        let n = node.index();
        self.counts[n].requests += 1;
        let before = self.holdings[n].open();
        while !self.holdings[n].has_room(before) && self.assign(k, node)? {}
        let holding = &mut self.holdings[n];
        holding.open_to_limit();
        let mut asks = false;
        if holding.open() == before {
            holding.open_all();
            asks = true;
        }
        if holding.open() == before {
            if self.wishes[n] == Wish::Refused {
                // The next thread may ask again.
                self.wishes[n] = Wish::None;
                if k.now().ns.saturating_sub(self.refused_at[n]) <= FRESH_NS {
                    return Err(Error::NoMemory);
                }
            }
            if self.wishes[n] != Wish::Waiting {
                self.wishes[n] = Wish::Waiting;
                k.call_leader();
            }
            return Err(Error::Again);
        }
        if asks {
            self.wishes[n] = Wish::Asked;
            k.call_leader();
        }
        self.apply(k, node)
    }

    /// Refuses a block to a node. If no thread waits for the block, the node can continue for a while and ask
    /// again.
    pub(crate) fn refuse(&mut self, k: &impl Kernel, to: NodeId) {
        let wish = &mut self.wishes[to.index()];
        match *wish {
            Wish::Waiting => {
                *wish = Wish::Refused;
                self.refused_at[to.index()] = k.now().ns;
            }
            Wish::Asked => *wish = Wish::None,
            Wish::None | Wish::Refused => {}
        }
    }

    /// The memory that a node has and needs, and its least used block that another node could take.
    pub(crate) fn offer(
        &self,
        k: &impl Kernel,
        node: NodeId,
        to: NodeId,
    ) -> Result<(Need, Option<Block>)> {
        let holding = &self.holdings[node.index()];
        // What is kept for tables is not to be had for pages.
        let kept = holding.kept();
        let mut used = kept;
        for (n, run) in holding.runs().iter().enumerate() {
            let mut run = *run;
            if n == 0 {
                run.frames -= kept;
            }
            let counted = count(k, &run)?;
            used += counted.looked - counted.untyped;
        }
        let mut best: Option<(u64, Block)> = None;
        for block in self.book.blocks() {
            let run = self.run(block);
            let takes = self.holdings[to.index()].fits(run.pool, run.first);
            if self.book.state(block) != State::Owned(node)
                || !holding.may_lose(&run)
                || takes.is_none()
            {
                continue;
            }
            let counted = count(k, &run)?;
            // Kernel objects stay where they are.
            if counted.other() == 0 && best.is_none_or(|(least, _)| counted.user < least) {
                best = Some((counted.user, block));
            }
        }
        let block = best.map(|(_, block)| block);
        let need = Need {
            owned: holding.frames(),
            used,
            gives: block.is_some(),
        };
        Ok((need, block))
    }
}

impl<const N: usize> Default for Books<N> {
    fn default() -> Books<N> {
        Books::new()
    }
}

/// Counts the uses of the frames of a run: examines each block and, at the end, each frame.
pub(crate) fn count(k: &impl Kernel, run: &Run) -> Result<Counted> {
    let mut all = Counted::default();
    while all.looked < run.frames {
        let left = Run {
            first: run.first + all.looked,
            frames: run.frames - all.looked,
            ..*run
        };
        let part = k.count(&left)?;
        if part.looked == 0 {
            return Err(Error::Corrupt);
        }
        all.looked += part.looked;
        all.untyped += part.untyped;
        all.user += part.user;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use dyad_abi::cap::Step;

    use super::*;

    /// Pages are everywhere in what the second node owns, and nowhere else; none is moved.
    struct Still {
        full: [u64; 4],
        lives: Cell<bool>,
        ns: Cell<u64>,
        /// How often the leader has been called.
        called: Cell<u32>,
    }

    const SHARED: usize = MAX_NODES;
    const BLOCK: u64 = 4;

    fn id(n: u64) -> NodeId {
        NodeId::new(n).unwrap()
    }

    fn block(n: u64) -> Run {
        Run {
            pool: SHARED,
            first: n * BLOCK,
            frames: BLOCK,
        }
    }

    impl Kernel for Still {
        fn nodes(&self) -> usize {
            2
        }

        fn here(&self) -> NodeId {
            id(0)
        }

        fn lives(&self, node: NodeId) -> Result<bool> {
            Ok(node == id(0) || self.lives.get())
        }

        fn now(&self) -> Cost {
            Cost {
                instructions: 0,
                ns: self.ns.get(),
            }
        }

        fn count(&self, run: &Run) -> Result<Counted> {
            let full = run.pool == SHARED && self.full.contains(&(run.first / BLOCK));
            let looked = run.frames.min(BLOCK);
            Ok(Counted {
                looked,
                untyped: if full { 0 } else { looked },
                user: if full { looked } else { 0 },
            })
        }

        fn supply(&self, _: NodeId, _: usize, _: Option<&Run>) -> Result<()> {
            Ok(())
        }

        fn evacuate(&self, _: Step, at: (u64, u64), _: &Run, _: NodeId) -> Result<(u64, u64)> {
            Ok((at.1, 0))
        }

        fn shootdown(&self, _: u64) -> Result<()> {
            Ok(())
        }

        fn give_back_lost(&self, _: &Run) -> Result<()> {
            Ok(())
        }

        fn call_leader(&self) {
            self.called.set(self.called.get() + 1);
        }
    }

    /// Each node has as many runs as it can have. Only block 6 of the first one fits the second one, and
    /// only block 14 is free.
    fn full_books() -> (Still, Books<16>) {
        let k = Still {
            full: [8, 10, 12, 5],
            lives: Cell::new(true),
            ns: Cell::new(0),
            called: Cell::new(0),
        };
        let mut b = Books::new();
        b.book.set_block(BLOCK);
        b.book.add_pool(SHARED, 0, 16).unwrap();
        let all: [Block; 16] = {
            let mut blocks = b.book.blocks();
            core::array::from_fn(|_| blocks.next().unwrap())
        };
        for (node, blocks) in [(0, [0, 2, 4, 6]), (1, k.full)] {
            let home = Run {
                pool: node as usize,
                first: 0,
                frames: BLOCK,
            };
            b.holdings[node as usize].add(home).unwrap();
            for n in blocks {
                b.holdings[node as usize].add(block(n)).unwrap();
                b.book.assign(all[n as usize], id(node)).unwrap();
            }
            b.holdings[node as usize].open_all();
            assert_eq!(b.holdings[node as usize].runs().len(), MAX_RUNS);
        }
        for n in [1, 3, 7, 9, 11, 13, 15] {
            b.book.assign(all[n], id(2)).unwrap();
        }
        (k, b)
    }

    /// Otherwise there might be no room for the block that it is losing, if that stays after all.
    #[test]
    fn a_node_that_is_losing_a_block_gets_none_meanwhile() {
        let (k, mut b) = full_books();
        assert_eq!(b.request(&k, id(1)), Err(Error::Again));
        assert!(b.tend(&k).pause.is_some() && b.leaving.is_busy());
        assert_eq!(b.run(b.leaving.block().unwrap()), block(6));
        assert_eq!(b.holdings[0].runs().len(), MAX_RUNS - 1);
        assert_eq!(b.request(&k, id(0)), Err(Error::Again));
        // Who was to get it dies: it stays.
        k.lives.set(false);
        while b.leaving.is_busy() {
            assert_eq!(b.tend(&k).trouble, None);
        }
        assert!(b.holdings[0].runs().contains(&block(6)));
        assert_eq!(b.holdings[0].frames(), 5 * BLOCK);
        assert_eq!((b.wishes[1], b.counts[0].refused), (Wish::None, 1));
    }

    #[test]
    fn who_waits_for_a_block_that_stays_is_refused() {
        let (k, mut b) = full_books();
        assert_eq!(b.request(&k, id(1)), Err(Error::Again));
        assert!(b.tend(&k).pause.is_some() && b.leaving.is_busy());
        // Its pages cannot be moved.
        let k = Still {
            full: [8, 10, 12, 6],
            ..k
        };
        while b.leaving.is_busy() {
            assert_eq!(b.tend(&k).trouble, None);
        }
        assert!(b.holdings[0].runs().contains(&block(6)));
        assert_eq!(b.request(&k, id(1)), Err(Error::NoMemory));
    }

    #[test]
    fn a_refusal_is_one_for_a_while() {
        let (k, mut b) = full_books();
        b.wishes[1] = Wish::Waiting;
        b.refuse(&k, id(1));
        assert_eq!(b.request(&k, id(1)), Err(Error::NoMemory));
        // Who asks then asks anew.
        assert_eq!(b.request(&k, id(1)), Err(Error::Again));
        b.refuse(&k, id(1));
        k.ns.set(FRESH_NS + 1);
        assert_eq!(b.request(&k, id(1)), Err(Error::Again));
        assert!(b.is_busy());
        b.wishes[1] = Wish::Asked;
        b.refuse(&k, id(1));
        assert!(b.wishes[1] == Wish::None && !b.is_busy());
        // A program that has ended wants nothing any more.
        b.wishes[1] = Wish::Waiting;
        b.forget_wishes();
        assert!(!b.is_busy());
    }

    /// The leader looks for a block while the node still has frames, not only when a thread waits.
    #[test]
    fn the_leader_is_called_when_the_last_frames_are_opened() {
        let (k, mut b) = full_books();
        b.holdings[0].close_to_limit();
        let limit = b.holdings[0].open();
        assert_eq!(b.request(&k, id(0)), Ok(()));
        assert!(b.holdings[0].open() > limit);
        assert_eq!((b.wishes[0], k.called.get()), (Wish::Asked, 1));
        // Nothing is left.
        assert_eq!(b.request(&k, id(0)), Err(Error::Again));
        assert_eq!((b.wishes[0], k.called.get()), (Wish::Waiting, 2));
        // It has been called for that.
        assert_eq!(b.request(&k, id(0)), Err(Error::Again));
        assert_eq!(k.called.get(), 2);
    }

    #[test]
    fn a_block_in_use_is_given_to_no_node() {
        let (k, mut b) = full_books();
        let k = Still {
            full: [8, 10, 12, 14],
            ..k
        };
        let run = Run {
            pool: 0,
            first: 0,
            frames: BLOCK,
        };
        b.holdings[0] = Default::default();
        b.holdings[0].add(run).unwrap();
        assert_eq!(b.assign(&k, id(0)), Err(Error::Corrupt));
    }
}
