//! The block allocator: carries out what [`dyad_blocks`] decides, for the run's program. (A program
//! beside it has a supply of fixed size.)
//!
//! It is part of init because init has what it takes: the memory of all pools, and the address spaces of
//! programs. The pager comes here when a fault finds no memory; the fault is tried again.
//!
//! ```text
//!   fault finds nothing open ─▶ pager ─▶ MEMORY ─┬─ a block is free ──────▶ the node's; open up to 70 %
//!                                                ├─ none, 30 % closed ────▶ open all, ask for eviction
//!                                                └─ none, all open ───────▶ again, if a block may come;
//!                                                       else NoMemory: the thread ends
//! ```
//!
//! Blocks are taken from other nodes by the warden that leads ([`evict`](crate::evict)), beside the
//! program.
//!
//! # Who has the books
//!
//! One holder at a time, an invocation or a warden, which the word of their [`Keeper`] names. Who does not get them comes
//! again, but not if the holder has ended. What the holder was doing may be half done then, so nothing is handed out any
//! more. Only threads of the program whose memory it is, and wardens, take the books, so a program that has a thread of
//! its own end here, or wait for a CPU, harms itself. Questions are answered without the books: the holder stores the
//! [`Answers`] before it gives the books back.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::CapIndex;
use dyad_abi::ident::MAX_NODES;
use dyad_abi::service::memory::{Question, is_block_size};
use dyad_abi::service::{slot, thread_of_id};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, NodeId, Result};
use dyad_blocks::{Answers, Book, Books, Run, Start};
use dyad_services::keeper::Keeper;
use dyad_services::robust::is_inside;
use dyad_services::rt::{self, Call};
use dyad_sys::cap::{Cap, Memory};

use crate::build::{Builder, SPARE};
use crate::evict::Calls;
use crate::memory::CXL;
use crate::program::{HOME, Program};
use crate::threads;
use crate::trouble::{Done, During};
use crate::wardens;

/// Most blocks: 8 local pools of 16 GiB and 512 GiB of the CXL pool, in the smallest blocks.
const MAX_BLOCKS: usize = 640 << 5;
/// A node whose pool has less than this beside the first whole block, in frames, begins with that block.
const MIN_HOME: u64 = 2048;
/// How often the books are asked for when a program has ended.
const TRIES: u32 = 1000;

/// All that is known.
pub struct Bank {
    pub books: Books<MAX_BLOCKS>,
    /// Whose memory this is, and its address space; 0: no program's.
    program: u64,
    space: u32,
    start: Start,
}

/// The books. `KEEPER` names the thread that may access them.
struct Banks(UnsafeCell<Bank>);

// SAFETY: 1. Only who has its turn of `KEEPER` looks at the books, but for the start, before anybody else runs.
unsafe impl Sync for Banks {}

// All zeros, so that it takes no room in the image.
static BANK: Banks = Banks(UnsafeCell::new(Bank {
    books: Books::new(),
    program: 0,
    space: 0,
    start: Start {
        nodes: [0; MAX_NODES],
        shared: 0,
    },
}));
/// What programs may ask about the books.
static ANSWERS: Answers = Answers::new();
/// The program's address space, for threads that cannot have the books; 0: none.
static SPACE: AtomicU64 = AtomicU64::new(0);
/// The number of the program whose memory this is; 0: none.
static PROGRAM: AtomicU64 = AtomicU64::new(0);
/// Who has the books: a [`Who`].
static KEEPER: Keeper = Keeper::new();

/// A holder of something of init that one thread has at a time: an invocation, or a warden. A name of
/// [`Keeper`]s.
///
/// | bits | of an invocation | of a warden |
/// |---|---|---|
/// | 31 | 0 | 1 |
/// | 24 to 27 | 0 | its node |
/// | 0 to 23 | the token: thread id << 8, depth | the node's incarnation |
#[derive(Clone, Copy, Debug)]
pub struct Who(u32);

impl Who {
    const WARDEN: u32 = 1 << 31;
    const NODE_SHIFT: u32 = 24;
    const LIFE: u32 = (1 << Who::NODE_SHIFT) - 1;

    /// An invocation of init by a thread of a program.
    ///
    /// # Errors
    ///
    /// `Denied` if its thread is none of a program that is no service.
    pub fn invocation(call: &Call) -> Result<Who> {
        threads::thread_of(call)?;
        u32::try_from(call.token)
            .map(Who)
            .map_err(|_| Error::Denied)
    }

    /// The warden of a node, in the node's present life: it is started again with its node.
    pub fn warden(node: NodeId) -> Option<Who> {
        let life = rt::hardware(node).node_state(node).ok()?.incarnation;
        wardens::own(node)?;
        let node = (node.index() as u32) << Who::NODE_SHIFT;
        Some(Who(Who::WARDEN | node | life & Who::LIFE))
    }

    /// The name.
    pub const fn name(self) -> u32 {
        self.0
    }

    /// Whose name that is.
    pub const fn of(name: u32) -> Who {
        Who(name)
    }

    /// The program and the number of a thread that has invoked init.
    pub fn thread(self) -> Option<(u64, u64)> {
        let is_invocation = self.0 & Who::WARDEN == 0;
        is_invocation.then(|| thread_of_id(u64::from(self.0) >> 8))
    }

    /// Whether it goes on, or may. One that was ready on a node that has died goes on elsewhere.
    pub fn goes_on(self) -> bool {
        let name = self.0;
        if name & Who::WARDEN == 0 {
            return is_inside(name.into());
        }
        let node = NodeId::new((name >> Who::NODE_SHIFT & 0xf).into());
        let thread = node.and_then(|n| Some((n, wardens::own(n)?)));
        thread.is_some_and(|(node, thread)| {
            wardens::is_in_life(node, name & Who::LIFE) && !threads::has_gone(thread)
        })
    }
}

/// Does something with the books, and stores the answers to questions about them.
///
/// # Errors
///
/// `Again` if another thread has them; `NodeDead` if that thread is lost.
pub fn with<T>(me: Who, f: impl FnOnce(&mut Bank) -> Result<T>) -> Result<T> {
    let turn = KEEPER.enter(me.name(), |other| Who(other).goes_on())?;
    // SAFETY: 1. It is this thread's turn, and of a holder that has ended nothing is run any more. 2. While the
    // system is built no other thread runs.
    let bank = unsafe { &mut *BANK.0.get() };
    let done = f(bank);
    bank.store_answers();
    drop(turn);
    done
}

/// The memory of a pool.
pub const fn pool(n: usize) -> Cap<Memory> {
    Cap::at(slot::memory(n))
}

/// The node that this runs on.
pub fn here() -> NodeId {
    rt::hardware(HOME).where_am_i().map_or(HOME, |w| w.node)
}

impl Bank {
    /// The kernel, for the address space whose memory this is.
    pub fn calls(&self) -> Calls {
        let space = CapIndex::new(self.space.into()).filter(|_| self.space != 0);
        Calls(space.map(Cap::at))
    }

    /// Stores the answers to questions about the books, for programs.
    fn store_answers(&self) {
        ANSWERS.store(&self.books, &self.start);
    }
}

/// Gets memory for faults of a program on a node, which find none any more.
///
/// # Errors
///
/// `NoMemory` if there is none, or the books are lost; `Again` if another thread has them.
pub fn more(me: Who, program: u64, node: NodeId) -> Result<()> {
    // Threads of other programs are not to hold what is not theirs.
    if PROGRAM.load(Ordering::Acquire) != program {
        return Err(Error::NoMemory);
    }
    with(me, |bank| match bank.program == program && program != 0 {
        true => bank.books.request(&bank.calls(), node),
        false => Err(Error::NoMemory),
    })
    .map_err(|e| match e {
        Error::Again => e,
        _ => Error::NoMemory,
    })
}

/// The books are lost: pages that were parked come back, and nothing else happens any more.
pub fn give_up() {
    let space = SPACE.load(Ordering::Acquire);
    if let Some(space) = CapIndex::new(space).filter(|_| space != 0) {
        crate::evict::unpark_all(Cap::at(space));
    }
}

/// A program has ended: nothing of its memory is handed out any more.
pub fn end(me: Who, program: u64) {
    SPACE.store(0, Ordering::Release);
    for _ in 0..TRIES {
        let done = with(me, |bank| {
            if bank.program == program {
                bank.program = 0;
                bank.space = 0;
                bank.books.forget_wishes();
            }
            Ok(())
        });
        match done {
            Err(Error::Again) => dyad_sys::yield_now(),
            _ => return,
        }
    }
}

/// Answers a question, without the books.
///
/// # Errors
///
/// `Denied` if the caller is no thread of a program that is no service; `BadArgument` if there is no such question;
/// `NoSuchNode`; `NodeDead` if the books are lost.
pub fn state(call: &Call, question: u64, node: u64) -> Result<u64> {
    threads::thread_of(call)?;
    let question = Question::from_number(question).ok_or(Error::BadArgument)?;
    let nodes = rt::info()?.system.node_count as usize;
    let node = NodeId::new(node)
        .filter(|n| n.index() < nodes)
        .ok_or(Error::NoSuchNode)?;
    match KEEPER.is_lost() {
        true => Err(Error::NodeDead),
        false => Ok(ANSWERS.load(question, node)),
    }
}

impl Builder {
    /// Gives a program what it begins with, and makes all other memory blocks that it can get.
    pub fn provide(&mut self, p: &mut Program) -> Done<()> {
        let frames = self.info.block_size / PAGE_SIZE;
        if !is_block_size(self.info.block_size) {
            return Err(Error::BadArgument).during("size of blocks");
        }
        // SAFETY: 1. The system is being built: no other thread runs.
        let bank = unsafe { &mut *BANK.0.get() };
        bank.books.book.set_block(frames);
        (bank.program, bank.space) = (p.number, p.space.index().get());
        SPACE.store(bank.space.into(), Ordering::Release);
        PROGRAM.store(bank.program, Ordering::Release);
        for node in self.nodes() {
            let (start, len) = self.store.longest(node.index()).during("blocks")?;
            let whole = self.store.whole_blocks(node.index(), (start, len), frames);
            let (first, blocks) = whole.during("blocks")?;
            // Nearly all of it, if there is no whole block in it.
            let head = match blocks {
                0 => len.saturating_sub(SPARE),
                _ => first - start,
            };
            let holding = &mut bank.books.holdings[node.index()];
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
            bank.start.nodes[node.index()] = home;
            self.lend(p, &mut bank.books.book, node.index(), lends, frames)?;
        }
        let (start, len) = self.store.longest(CXL).during("blocks")?;
        let whole = self.store.whole_blocks(CXL, (start, len), frames);
        let lends = whole.during("blocks")?;
        if lends.1 > 0 && lends.0 > start {
            // What lies before the first whole block stays untyped, and without an owner.
            self.store.carve(CXL, lends.0 - start).during("blocks")?;
        }
        self.lend(p, &mut bank.books.book, CXL, lends, frames)?;
        for node in self.nodes() {
            bank.books.apply(&bank.calls(), node).during("supply")?;
        }
        bank.store_answers();
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
