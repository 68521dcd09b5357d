//! Blocks that are taken from nodes for others: *eviction*. The leader carries it out beside the
//! program, a piece at a time.
//!
//! ```text
//!  IDLE ──a node wishes, another one can give──▶ the block is closed to faults of its owner
//!   ▲                                              │
//!   │             ┌────────────────────────────────▼──┐
//!   │             │ PARK: up to 64 pages of the block  │◀───────────────┐
//!   │             └──────────────┬─────────────────────┘                │
//!   │               all CPUs have dropped their translations            │
//!   │             ┌──────────────▼─────────────────────┐  the next ones │
//!   │             │ MOVE: to frames elsewhere of the    │───────────────┘
//!   │             │ owner's; their contents with them  │
//!   │             └──────────────┬─────────────────────┘
//!   │                            │ the whole address space has been gone through
//!   ├── every frame is untyped: the block is the other node's ◀─────────┤
//!   └── STAYS: kernel objects, no frame to move to, no node to get it ◀──┘
//!       any more: its pages are made usable again, and it is its owner's
//! ```
//!
//! Pages are where programs find them all the time but between PARK and MOVE: who touches one then tries
//! again until it is back. Pages of a block are found by going through the one address space whose faults
//! take frames of it.
//!
//! # What can go wrong
//!
//! | | then |
//! |---|---|
//! | the kernel says `Again` or `TimedOut` | the same piece again later, at most [`PATIENCE`] times in a row |
//! | it says `NoMemory` to a move, or `Again` too often, or the block does not become empty | the block stays |
//! | it says anything else | all wishes are refused, and the block stays |
//! | the block's pages cannot be made usable | tried again until they can; wishes are refused meanwhile |
//! | who leads dies between two pieces | another one goes on: everything is in the books |
//! | who leads dies in a piece | the books are lost; all parked pages are made usable where they are ([`make_usable`]), and no block is handed out any more |
//! | the node dies that the block is taken from | nothing changes: its memory stays |
//! | the node dies that is to get it | the block stays |
//!
//! Bounds: a piece asks the kernel at most as often as [`CALLS`] says, or for each block and run once.

use dyad_abi::cap::Step;
use dyad_abi::ident::MAX_NODES;
use dyad_abi::user::{PAGE_SIZE, USER_END, USER_MIN};
use dyad_abi::{Error, NodeId, Result};

use crate::books::{Books, Wish, count};
use crate::{Block, Cost, Kernel, Run, State};

/// Pages that are parked at a time.
pub const BATCH: u64 = 64;
/// The largest number of calls for one batch: each examines a few hundred entries.
pub const CALLS: u32 = 64;
/// How often the address space is walked before the block is considered impossible to empty.
pub const PASSES: u32 = 4;
/// The pause between two pieces, in which others of this CPU run.
pub const PAUSE_NS: u64 = 200_000;
/// The pause before an operation is repeated, usually because frames have not quiesced.
pub const LATER_NS: u64 = 2_000_000;
/// How often an operation may be repeated in a row.
pub const PATIENCE: u32 = 5_000;

/// The block that is being taken from a node.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    block: Option<Block>,
    /// Whether the kernel has been told that faults must not take frames of it.
    closed: bool,
    /// Whether the block is to stay with its owner.
    stays: bool,
    /// Address of the next page to process. Pages from here up to `parked` are parked.
    at: u64,
    parked: u64,
    /// Whether all CPUs have dropped their translations since they were.
    dropped: bool,
    passes: u32,
    in_vain: u32,
    /// Cost of all earlier pieces.
    cost: Cost,
    /// Start of the current piece.
    since: Cost,
}

impl Leaving {
    /// No block.
    pub const fn new() -> Leaving {
        Leaving {
            block: None,
            closed: false,
            stays: false,
            at: 0,
            parked: 0,
            dropped: false,
            passes: 0,
            in_vain: 0,
            cost: Cost::ZERO,
            since: Cost::ZERO,
        }
    }

    /// Whether there is one.
    pub const fn is_busy(&self) -> bool {
        self.block.is_some()
    }

    /// The block that is being taken.
    pub const fn block(&self) -> Option<Block> {
        self.block
    }
}

impl Default for Leaving {
    fn default() -> Leaving {
        Leaving::new()
    }
}

/// The result of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tended {
    /// Pause before the next piece in nanoseconds; `None`: no work is left.
    pub pause: Option<u64>,
    /// An unexpected error, reported once for each block.
    pub trouble: Option<Error>,
}

impl<const N: usize> Books<N> {
    /// Does one piece of the pending work.
    pub fn tend(&mut self, k: &impl Kernel) -> Tended {
        self.leaving.since = k.now();
        let done = if self.leaving.is_busy() {
            self.go_on(k)
        } else {
            let wishes = |n: &NodeId| self.wishes[n.index()].is_open();
            match NodeId::first(MAX_NODES).find(wishes) {
                Some(to) => self.begin(k, to),
                None => return Tended::default(),
            }
        };
        // When it is over the cost has been noted.
        if self.leaving.is_busy() {
            let piece = k.now().since(self.leaving.since);
            self.leaving.cost = self.leaving.cost.and(piece);
        }
        let mut trouble = None;
        let pause = match done {
            Ok(pause) => {
                self.leaving.in_vain = 0;
                pause
            }
            Err(Error::Again | Error::TimedOut) if self.leaving.in_vain < PATIENCE => {
                self.leaving.in_vain += 1;
                LATER_NS
            }
            Err(e) => {
                trouble = Some(e).filter(|_| !self.leaving.stays);
                self.give_up_wishes(k);
                LATER_NS
            }
        };
        Tended {
            pause: Some(pause),
            trouble,
        }
    }

    /// Ends all waits for blocks that will not come: tells the waiting threads, and leaves a block that is
    /// being taken with its owner.
    fn give_up_wishes(&mut self, k: &impl Kernel) {
        self.leaving.stays = self.leaving.is_busy();
        self.leaving.in_vain = 0;
        NodeId::first(MAX_NODES).for_each(|n| self.refuse(k, n));
    }

    /// Looks for a block for a node that wishes one.
    fn begin(&mut self, k: &impl Kernel, to: NodeId) -> Result<u64> {
        if !k.lives(to)? {
            self.wishes[to.index()] = Wish::None;
            return Ok(0);
        }
        let mut offers = [Default::default(); MAX_NODES];
        for node in NodeId::first(k.nodes()) {
            offers[node.index()] = self.offer(k, node, to)?;
        }
        let mut needs = offers.map(|(need, _)| need);
        let asks = &mut needs[to.index()];
        // What it asks for; and faults do not find frames that have not quiesced.
        asks.used = (asks.used + 1 + asks.owned / 128).min(asks.owned);
        if !needs[to.index()].is_pressed() {
            // If the kernel could not be told of the last block that it was given.
            self.apply(k, to)?;
            self.wishes[to.index()] = Wish::None;
            return Ok(0);
        }
        // One may have come free since.
        if self.assign(k, to)? {
            self.holdings[to.index()].open_to_limit();
            self.wishes[to.index()] = Wish::None;
            self.apply(k, to)?;
            return Ok(0);
        }
        let chosen = self
            .book
            .victim(to, &needs)
            .and_then(|from| Some((from, offers[from.index()].1?)));
        let Some((from, block)) = chosen else {
            self.refuse(k, to);
            return Ok(0);
        };
        let run = self.run(block);
        self.book.begin(block, to)?;
        if let Err(e) = self.holdings[from.index()].remove(&run) {
            self.book.abandon(block)?;
            return Err(e);
        }
        self.leaving = Leaving {
            block: Some(block),
            at: USER_MIN,
            parked: USER_MIN,
            in_vain: self.leaving.in_vain,
            since: self.leaving.since,
            ..Leaving::new()
        };
        self.close(k, from)?;
        Ok(0)
    }

    /// Faults of its owner take no frames of the block that leaves.
    fn close(&mut self, k: &impl Kernel, from: NodeId) -> Result<()> {
        self.apply(k, from)?;
        self.leaving.closed = true;
        Ok(())
    }

    /// Goes on with the block that leaves.
    fn go_on(&mut self, k: &impl Kernel) -> Result<u64> {
        let Some(block) = self.leaving.block else {
            return Ok(0);
        };
        let State::Leaving { from, to } = self.book.state(block) else {
            // Nobody has anything to do with it.
            self.leaving = Leaving::new();
            return Err(Error::Corrupt);
        };
        let run = self.run(block);
        if self.leaving.stays {
            return self.stay(k, block, &run);
        }
        if !k.lives(to)? {
            self.wishes[to.index()] = Wish::None;
            self.leaving.stays = true;
            return Ok(0);
        }
        if !self.leaving.closed {
            self.close(k, from)?;
            return Ok(0);
        }
        let done = match self.leaving.at < self.leaving.parked {
            true => self.move_pages(k, &run, from),
            false => self.park_pages(k, &run, from),
        };
        match done {
            Ok(()) => {}
            Err(e @ (Error::Again | Error::TimedOut)) if self.leaving.in_vain < PATIENCE => {
                return Err(e);
            }
            // There is nowhere to move it to, or it never comes to an end.
            Err(Error::NoMemory | Error::Again | Error::TimedOut) => {
                self.leaving.stays = true;
                return Ok(0);
            }
            Err(e) => return Err(e),
        }
        if self.leaving.at < self.leaving.parked || self.leaving.at < USER_END {
            return Ok(PAUSE_NS);
        }
        // Faults that were under way when the block was closed are over when every CPU has answered.
        k.shootdown(self.leaving.at)?;
        let emptied = k.now();
        let counted = count(k, &run)?;
        let takes = self.holdings[to.index()].fits(run.pool, run.first);
        if counted.other() == 0 && counted.user == 0 && takes.is_some() {
            return self.leave(k, block, run, emptied);
        }
        self.leaving.passes += 1;
        if counted.other() != 0 || counted.user == 0 || self.leaving.passes >= PASSES {
            self.leaving.stays = true;
            return Ok(0);
        }
        // Faults that had a frame in hand have put it somewhere meanwhile; or one was lost with a node.
        k.give_back_lost(&run)?;
        (self.leaving.at, self.leaving.parked) = (USER_MIN, USER_MIN);
        Ok(LATER_NS)
    }

    /// Parks the next pages, and has all CPUs drop their translations of them.
    fn park_pages(&mut self, k: &impl Kernel, run: &Run, from: NodeId) -> Result<()> {
        let (mut parked, mut calls) = (0, 0);
        self.leaving.dropped = false;
        while parked < BATCH && calls < CALLS && self.leaving.parked < USER_END {
            let at = self.leaving.parked;
            let left = (at, (USER_END - at) / PAGE_SIZE);
            let (looked, done) = match k.evacuate(Step::Park, left, run, from) {
                Err(Error::Again) if parked != 0 => break,
                other => other?,
            };
            self.leaving.parked += looked * PAGE_SIZE;
            parked += done;
            calls += 1;
        }
        if parked == 0 {
            self.leaving.at = self.leaving.parked;
            return Ok(());
        }
        self.drop_translations(k)
    }

    fn drop_translations(&mut self, k: &impl Kernel) -> Result<()> {
        k.shootdown(self.leaving.at)?;
        self.leaving.dropped = true;
        Ok(())
    }

    /// Moves pages that are parked.
    fn move_pages(&mut self, k: &impl Kernel, run: &Run, from: NodeId) -> Result<()> {
        let left = |leaving: &Leaving| (leaving.at, (leaving.parked - leaving.at) / PAGE_SIZE);
        if self.leaving.in_vain != 0 {
            // A fault may have been showing the page in another table when it was parked.
            self.leaving.dropped = false;
            k.evacuate(Step::Park, left(&self.leaving), run, from)?;
        }
        if !self.leaving.dropped {
            self.drop_translations(k)?;
        }
        while self.leaving.at < self.leaving.parked {
            let (looked, done) = k.evacuate(Step::Move, left(&self.leaving), run, from)?;
            self.leaving.at += looked * PAGE_SIZE;
            self.counts[from.index()].moved += done;
        }
        Ok(())
    }

    /// The block is empty: it is the other node's. Its frames have been looked at since `emptied`.
    fn leave(&mut self, k: &impl Kernel, block: Block, run: Run, emptied: Cost) -> Result<u64> {
        let (from, to) = self.book.done(block)?;
        let here = k.here().index();
        self.counts[from.index()].evicted += 1;
        let leaving = self.leaving;
        self.counts[here].offline = leaving.cost.and(emptied.since(leaving.since));
        self.leaving = Leaving::new();
        let holding = &mut self.holdings[to.index()];
        holding.add(run)?;
        holding.open_to_limit();
        self.apply(k, to)?;
        self.counts[here].again = k.now().since(emptied);
        let (need, _) = self.offer(k, from, to)?;
        if need.used < self.holdings[from.index()].limit() {
            self.holdings[from.index()].close_to_limit();
            self.apply(k, from)?;
        }
        // The wish stays: until the node is not pressed any more, or pressures are equal.
        Ok(PAUSE_NS)
    }

    /// The block stays where it was.
    fn stay(&mut self, k: &impl Kernel, block: Block, run: &Run) -> Result<u64> {
        let State::Leaving { from, to } = self.book.state(block) else {
            return Err(Error::Corrupt);
        };
        make_usable(k, run, from)?;
        self.holdings[from.index()].put_back(*run)?;
        self.book.abandon(block)?;
        self.holdings[from.index()].open_all();
        self.leaving = Leaving::new();
        self.counts[from.index()].refused += 1;
        self.refuse(k, to);
        self.apply(k, from)?;
        Ok(PAUSE_NS)
    }
}

/// Makes all parked pages of some frames usable again.
///
/// # Errors
///
/// As the kernel says: those behind may still be parked.
pub fn make_usable(k: &impl Kernel, run: &Run, node: NodeId) -> Result<()> {
    let mut at = USER_MIN;
    while at < USER_END {
        let left = (at, (USER_END - at) / PAGE_SIZE);
        let (looked, _) = k.evacuate(Step::Unpark, left, run, node)?;
        at += looked * PAGE_SIZE;
    }
    Ok(())
}
