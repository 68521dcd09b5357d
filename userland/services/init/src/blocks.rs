//! The block allocator: carries out what [`dyad_blocks`] decides, for the run's program. (A program
//! beside it has a supply of fixed size.)
//!
//! It is part of init because init has what it takes: the memory of all pools, and the address spaces of
//! programs. The pager comes here when a fault finds no memory; the fault is tried again.
//!
//! ```text
//!   fault finds nothing open ─▶ pager ─▶ MEMORY ─┬─ a block is free ──────▶ the node's; open up to 70 %
//!                                                ├─ none, 30 % closed ────▶ open all
//!                                                └─ none, all open ───────▶ NoMemory: the thread ends
//! ```
//!
//! # Who has the books
//!
//! One lock, which is tried: who does not get it comes again. Its holder's node is noted, so that a
//! holder that has died is not waited for: what it was doing may be half done, so nothing is handed out
//! any more.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::CapIndex;
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::memory::{Question, is_block_size};
use dyad_abi::service::slot;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, NodeId, Result};
use dyad_blocks::{Book, Holding, MAX_RUNS, Run, State};
use dyad_services::rt;
use dyad_sys::Lock;
use dyad_sys::cap::{Cap, Memory, Space};

use crate::build::{Builder, SPARE};
use crate::memory::CXL;
use crate::program::{HOME, Program};
use crate::trouble::{Done, During};
use crate::wardens;

/// Most blocks: 8 local pools of 16 GiB and 512 GiB of the CXL pool, in the smallest blocks.
const MAX_BLOCKS: usize = 640 << 5;
/// A node whose pool has less than this beside the first whole block, in frames, begins with that block.
const MIN_HOME: u64 = 2048;

/// All that is known.
struct Bank {
    book: Book<MAX_BLOCKS>,
    holdings: [Holding; MAX_NODES],
    /// Whose memory this is, and its address space; 0: nobody's.
    program: u64,
    space: u32,
    at_start: [u64; MAX_NODES],
    shared_at_start: u64,
    requests: [u64; MAX_NODES],
    assigned: [u64; MAX_NODES],
}

// All zeros, so that it takes no room in the image.
static BANK: Lock<Bank> = Lock::new(Bank {
    book: Book::new(),
    holdings: [Holding::new(); MAX_NODES],
    program: 0,
    space: 0,
    at_start: [0; MAX_NODES],
    shared_at_start: 0,
    requests: [0; MAX_NODES],
    assigned: [0; MAX_NODES],
});
/// `incarnation << 32 | node + 1` of who has the books.
static HOLDER: AtomicU64 = AtomicU64::new(0);

/// Does something with the books.
///
/// # Errors
///
/// `Again` if somebody else has them; `NodeDead` if that one has died.
fn with<T>(f: impl FnOnce(&mut Bank) -> Result<T>) -> Result<T> {
    let Some(mut bank) = BANK.try_lock() else {
        let holder = HOLDER.load(Ordering::Acquire);
        return Err(match NodeId::new((holder & 0xff).wrapping_sub(1)) {
            Some(node) if !wardens::lives(node, (holder >> 32) as u32) => Error::NodeDead,
            _ => Error::Again,
        });
    };
    let here = rt::hardware(HOME).where_am_i()?.node;
    let life = rt::hardware(HOME).node_state(here)?.incarnation;
    HOLDER.store(wardens::name(here, life), Ordering::Release);
    let done = f(&mut bank);
    HOLDER.store(0, Ordering::Release);
    done
}

const fn pool(n: usize) -> Cap<Memory> {
    Cap::at(slot::memory(n))
}

impl Bank {
    fn space(&self) -> Result<Cap<Space>> {
        CapIndex::new(self.space.into())
            .filter(|_| self.space != 0)
            .map(Cap::at)
            .ok_or(Error::NoMemory)
    }

    /// Tells the kernel what is open to faults on a node.
    fn apply(&self, node: NodeId) -> Result<()> {
        let space = self.space()?;
        let mut runs = 0;
        for run in self.holdings[node.index()].open_runs() {
            let memory = (pool(run.pool), run.first, run.frames);
            space.supply_run(node, runs, Some(memory))?;
            runs += 1;
        }
        for empty in runs..MAX_RUNS as u64 {
            space.supply_run(node, empty, None)?;
        }
        Ok(())
    }

    /// Gives a node a block that is free; whether there is one that it can take.
    fn assign(&mut self, node: NodeId) -> Result<bool> {
        let holding = &mut self.holdings[node.index()];
        let Some(block) = self
            .book
            .choose(node, |pool, first| holding.fits(pool, first))
        else {
            return Ok(false);
        };
        let (pool, first) = self.book.place(block);
        holding.add(Run {
            pool,
            first,
            frames: self.book.block_frames(),
        })?;
        self.book.assign(block, node)?;
        self.assigned[node.index()] += 1;
        Ok(true)
    }

    /// Faults on a node have taken all that was open to them.
    fn request(&mut self, node: NodeId) -> Result<()> {
        let n = node.index();
        self.requests[n] += 1;
        let before = self.holdings[n].open();
        while self.holdings[n].limit() <= before && self.assign(node)? {}
        let holding = &mut self.holdings[n];
        holding.open_to_limit();
        if holding.open() == before {
            holding.open_all();
        }
        if holding.open() == before {
            return Err(Error::NoMemory);
        }
        self.apply(node)
    }

    fn answer(&self, question: Question, node: NodeId) -> u64 {
        let n = node.index();
        let holding = &self.holdings[n];
        match question {
            Question::BlockSize => self.book.block_frames() * PAGE_SIZE,
            Question::Blocks => self.book.blocks().count() as u64,
            Question::Free => self.book.count(State::Free),
            Question::Owned => self.book.count(State::Owned(node)),
            Question::Frames => holding.frames(),
            Question::AtStart => self.at_start[n],
            Question::Open => holding.open(),
            Question::SharedAtStart => self.shared_at_start,
            Question::Requests => self.requests[n],
            Question::Assigned => self.assigned[n],
        }
    }
}

/// Faults of a program on a node find no memory any more: sees to it that they do.
///
/// # Errors
///
/// `NoMemory` if there is none; `Again` if somebody else has the books.
pub fn more(program: u64, node: NodeId) -> Result<()> {
    with(|bank| match bank.program == program && program != 0 {
        true => bank.request(node),
        false => Err(Error::NoMemory),
    })
    .map_err(|e| match e {
        Error::Again => e,
        _ => Error::NoMemory,
    })
}

/// Answers a question.
///
/// # Errors
///
/// `BadArgument` if there is no such question; `NoSuchNode`; as [`with`].
pub fn state(question: u64, node: u64) -> Result<u64> {
    let question = Question::from_number(question).ok_or(Error::BadArgument)?;
    let nodes = rt::info()?.system.node_count as usize;
    let node = NodeId::new(node)
        .filter(|n| n.index() < nodes)
        .ok_or(Error::NoSuchNode)?;
    with(|bank| Ok(bank.answer(question, node)))
}

impl Builder {
    /// Gives a program what it begins with, and makes all other memory blocks that it can get.
    pub fn provide(&mut self, p: &mut Program) -> Done<()> {
        let frames = self.info.block_size / PAGE_SIZE;
        if !is_block_size(self.info.block_size) {
            return Err(Error::BadArgument).during("size of blocks");
        }
        let mut bank = BANK.lock();
        let bank = &mut *bank;
        bank.book.set_block(frames);
        (bank.program, bank.space) = (p.number, p.space.index().get());
        for node in self.nodes() {
            let (start, len) = self.store.longest(node.index()).during("blocks")?;
            let whole = self.store.whole_blocks(node.index(), (start, len), frames);
            let (first, blocks) = whole.during("blocks")?;
            // Nearly all of it, if there is no whole block in it.
            let head = match blocks {
                0 => len.saturating_sub(SPARE),
                _ => first - start,
            };
            let holding = &mut bank.holdings[node.index()];
            let mut lends = (first, blocks);
            let mut home = head;
            if head < MIN_HOME && blocks > 0 {
                (home, lends) = (head + frames, (first + frames, blocks - 1));
            }
            let arena = self.store.carve(node.index(), home).during("supply")?;
            let run = Run {
                pool: node.index(),
                first: arena.first(),
                frames: home,
            };
            p.supply(&mut self.store, node, arena).during("supply")?;
            holding.add(run).during("supply")?;
            holding.open_to_limit();
            bank.at_start[node.index()] = home;
            self.lend(p, &mut bank.book, node.index(), lends, frames)?;
        }
        let (start, len) = self.store.longest(CXL).during("blocks")?;
        let whole = self.store.whole_blocks(CXL, (start, len), frames);
        let lends = whole.during("blocks")?;
        if lends.1 > 0 && lends.0 > start {
            // What lies before the first whole block stays untyped, and nobody's.
            self.store.carve(CXL, lends.0 - start).during("blocks")?;
        }
        self.lend(p, &mut bank.book, CXL, lends, frames)?;
        for node in self.nodes() {
            bank.apply(node).during("supply")?;
        }
        Ok(())
    }

    fn lend(
        &mut self,
        p: &mut Program,
        book: &mut Book<MAX_BLOCKS>,
        pool: usize,
        (first, blocks): (u64, u64),
        frames: u64,
    ) -> Done<()> {
        if blocks > 0 {
            let arena = self.store.carve(pool, blocks * frames).during("blocks")?;
            if arena.first() != first {
                return Err(Error::Corrupt).during("blocks");
            }
            book.add_pool(pool, first, blocks).during("blocks")?;
            p.lent[pool] = Some(arena);
        }
        Ok(())
    }
}
