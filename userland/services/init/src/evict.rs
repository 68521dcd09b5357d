//! Blocks that are taken from nodes for others: *eviction*. The warden that leads carries it out beside the
//! program, a piece at a time.
//!
//! ```text
//!  IDLE ──a node wishes, another one can give──▶ the block is closed to faults of its owner,
//!   ▲                                            all CPUs have left what they were doing
//!   │                                              │
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
//!   └── kernel objects, or no frame to move to: it stays where it was ◀──┘
//! ```
//!
//! Pages are where programs find them all the time but between PARK and MOVE: who touches one then tries
//! again until it is back. Pages of a block are found by going through the one address space whose faults
//! take frames of it.
//!
//! # If the leader dies
//!
//! Another one leads, and goes on: everything is in the books. If it had the books in hand they are not to
//! be relied on; then all parked pages are made usable again where they are, and no block is handed out
//! any more.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, Ordering};

use dyad_abi::cap::Step;
use dyad_abi::ident::MAX_NODES;
use dyad_abi::user::{PAGE_SIZE, USER_END, USER_MIN};
use dyad_abi::{Error, NodeId, Result};
use dyad_blocks::{Block, Holding, Need, Run, State};
use dyad_services::rt;

use crate::blocks::{self, Bank, Cost, Who, Wish, here, pool};
use crate::memory::CXL;

/// Pages that are parked at a time.
const BATCH: u64 = 64;
/// Most calls for them: each looks at a few hundred entries.
const CALLS: u32 = 64;
/// How often the address space is gone through before the block counts as one that cannot be emptied.
const PASSES: u32 = 4;
/// The pause between two pieces, in which others of this CPU run.
const PAUSE_NS: u64 = 200_000;
/// The pause when somebody or something else is in the way: frames that have not quiesced, mostly.
const LATER_NS: u64 = 2_000_000;
/// How often that may be in a row.
const PATIENCE: u32 = 5_000;

/// The block that is being taken from a node.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    block: Option<Block>,
    /// Where the next pages are looked for; up to where they are parked.
    at: u64,
    parked: u64,
    passes: u32,
    in_vain: u32,
    /// What all pieces before this one have cost.
    cost: Cost,
    /// When this one began.
    since: Cost,
    /// What its owner had before.
    before: Holding,
}

impl Leaving {
    /// None.
    pub const fn new() -> Leaving {
        Leaving {
            block: None,
            at: 0,
            parked: 0,
            passes: 0,
            in_vain: 0,
            cost: Cost::ZERO,
            since: Cost::ZERO,
            before: Holding::new(),
        }
    }

    /// Whether there is one.
    pub const fn is_busy(&self) -> bool {
        self.block.is_some()
    }
}

/// What a node could give away.
#[derive(Clone, Copy, Default)]
struct Offer {
    need: Need,
    block: Option<Block>,
}

/// Does a piece of what there is to do. Gives how long to wait before the next one, in ns; `None` if there
/// is nothing.
pub fn tend(node: NodeId) -> Option<u64> {
    let me = Who::warden(node)?;
    match blocks::with(me, piece) {
        Ok(pause) => pause,
        Err(Error::Again) => Some(LATER_NS),
        Err(Error::NodeDead) => {
            static DONE: AtomicBool = AtomicBool::new(false);
            if !DONE.swap(true, Ordering::AcqRel) {
                crate::service::say(format_args!(
                    "the books of memory were lost with a node: no more blocks"
                ));
                blocks::give_up();
            }
            None
        }
        Err(e) => {
            crate::service::say(format_args!("cannot move memory: {e}"));
            // Nobody is to wait for what does not come.
            let cancelled = blocks::with(me, |bank| {
                cancel(bank);
                Ok(())
            });
            match cancelled {
                Err(Error::Again) => Some(LATER_NS),
                _ => None,
            }
        }
    }
}

/// No block is taken from anybody, whatever is under way: those who wait are told so.
fn cancel(bank: &mut Bank) {
    if let Some(block) = bank.leaving.block
        && let State::Leaving { from, .. } = bank.book.state(block)
    {
        let run = bank.run(block);
        // Whatever cannot be undone stays as it is; nothing is lost.
        let undone = stay(bank, block, &run, from);
        if let Err(e) = undone {
            crate::service::say(format_args!("a block stays half empty: {e}"));
        }
    }
    bank.leaving = Leaving::new();
    for wish in &mut bank.wishes {
        *wish = match *wish {
            Wish::None => Wish::None,
            _ => Wish::Refused,
        };
    }
}

fn piece(bank: &mut Bank) -> Result<Option<u64>> {
    bank.leaving.since = Cost::now();
    let pause = if bank.leaving.is_busy() {
        go_on(bank)?
    } else {
        let wishes = |w: Wish| matches!(w, Wish::Asked | Wish::Waiting);
        match NodeId::first(MAX_NODES).find(|n| wishes(bank.wishes[n.index()])) {
            Some(to) => begin(bank, to)?,
            None => return Ok(None),
        }
    };
    // When it is over the cost has been noted.
    if bank.leaving.is_busy() {
        let piece = Cost::now().since(bank.leaving.since);
        bank.leaving.cost = bank.leaving.cost.and(piece);
    }
    Ok(Some(pause))
}

/// Looks for a block for a node that wishes one.
fn begin(bank: &mut Bank, to: NodeId) -> Result<u64> {
    let mut offers = [Offer::default(); MAX_NODES];
    let nodes = rt::info()?.system.node_count as usize;
    for node in NodeId::first(nodes) {
        offers[node.index()] = offer(bank, node, to)?;
    }
    let mut needs = offers.map(|o| o.need);
    let asks = &mut needs[to.index()];
    // What it asks for; and faults do not find frames that have not quiesced.
    asks.used = (asks.used + 1 + asks.owned / 128).min(asks.owned);
    let lives = rt::hardware(to).node_state(to)?.is_live();
    if !lives || !needs[to.index()].is_pressed() {
        bank.wishes[to.index()] = Wish::None;
        return Ok(0);
    }
    // One may have come free since.
    if bank.assign(to)? {
        bank.holdings[to.index()].open_to_limit();
        bank.wishes[to.index()] = Wish::None;
        bank.apply(to)?;
        return Ok(0);
    }
    let chosen = bank
        .book
        .victim(to, &needs)
        .and_then(|from| Some((from, offers[from.index()].block?)));
    let Some((from, block)) = chosen else {
        refuse(bank, to);
        return Ok(0);
    };
    let run = bank.run(block);
    let before = bank.holdings[from.index()];
    bank.holdings[from.index()].remove(&run)?;
    bank.book.begin(block, to)?;
    let since = bank.leaving.since;
    bank.leaving = Leaving {
        block: Some(block),
        since,
        at: USER_MIN,
        parked: USER_MIN,
        before,
        ..Leaving::new()
    };
    bank.apply(from)?;
    Ok(0)
}

/// There is no block for a node. If nobody waits for one it can go on for a while, and ask again.
fn refuse(bank: &mut Bank, to: NodeId) {
    let wish = &mut bank.wishes[to.index()];
    *wish = match *wish {
        Wish::Waiting => Wish::Refused,
        _ => Wish::None,
    };
}

/// What a node has and needs, and the block of it that another one could take and that is least used.
fn offer(bank: &Bank, node: NodeId, to: NodeId) -> Result<Offer> {
    let holding = &bank.holdings[node.index()];
    // What is kept for tables is not to be had for pages.
    let kept = holding.kept();
    let mut used = kept;
    for (n, run) in holding.runs().iter().enumerate() {
        let mut run = *run;
        if n == 0 {
            run.frames -= kept;
        }
        let counted = Bank::count(&run)?;
        used += counted.looked - counted.untyped;
    }
    let mut best: Option<(u64, Block)> = None;
    for block in bank.book.blocks() {
        let run = bank.run(block);
        let takes = bank.holdings[to.index()]
            .fits(run.pool, run.first)
            .is_some();
        if bank.book.state(block) != State::Owned(node) || !holding.may_lose(&run) || !takes {
            continue;
        }
        let counted = Bank::count(&run)?;
        // Kernel objects stay where they are.
        if counted.other() == 0 && best.is_none_or(|(least, _)| counted.user < least) {
            best = Some((counted.user, block));
        }
    }
    let block = best.map(|(_, block)| block);
    Ok(Offer {
        need: Need {
            owned: holding.frames(),
            used,
            gives: block.is_some(),
        },
        block,
    })
}

/// Goes on with the block that leaves.
fn go_on(bank: &mut Bank) -> Result<u64> {
    let Some(block) = bank.leaving.block else {
        return Ok(0);
    };
    let State::Leaving { from, .. } = bank.book.state(block) else {
        return Err(Error::Corrupt);
    };
    let run = bank.run(block);
    let done = match bank.leaving.at < bank.leaving.parked {
        true => move_pages(bank, &run, from),
        false => park_pages(bank, &run, from),
    };
    match done {
        Ok(()) => bank.leaving.in_vain = 0,
        Err(Error::Again | Error::TimedOut) if bank.leaving.in_vain < PATIENCE => {
            bank.leaving.in_vain += 1;
            return Ok(LATER_NS);
        }
        // There is nowhere to move it to, or it never comes to an end.
        Err(Error::NoMemory | Error::Again | Error::TimedOut) => {
            return stay(bank, block, &run, from);
        }
        Err(e) => return Err(e),
    }
    if bank.leaving.at < bank.leaving.parked || bank.leaving.at < USER_END {
        return Ok(PAUSE_NS);
    }
    // Faults that were under way when the block was closed are over when every CPU has answered.
    match drop_translations(bank) {
        Err(Error::Again | Error::TimedOut) if bank.leaving.in_vain < PATIENCE => {
            bank.leaving.in_vain += 1;
            return Ok(LATER_NS);
        }
        other => other?,
    }
    let emptied = Cost::now();
    let counted = Bank::count(&run)?;
    if counted.other() != 0 {
        return stay(bank, block, &run, from);
    }
    if counted.user == 0 {
        return leave(bank, block, run, emptied);
    }
    bank.leaving.passes += 1;
    if bank.leaving.passes >= PASSES {
        return stay(bank, block, &run, from);
    }
    // Faults that had a frame in hand have put it somewhere meanwhile; or one was lost with a node.
    give_back_lost(&run)?;
    (bank.leaving.at, bank.leaving.parked) = (USER_MIN, USER_MIN);
    Ok(LATER_NS)
}

/// Parks the next pages, and has all CPUs drop their translations of them.
fn park_pages(bank: &mut Bank, run: &Run, from: NodeId) -> Result<()> {
    let space = bank.space()?;
    let memory = (pool(run.pool), run.first, run.frames);
    let (mut parked, mut calls) = (0, 0);
    while parked < BATCH && calls < CALLS && bank.leaving.parked < USER_END {
        let at = bank.leaving.parked;
        let left = (at, (USER_END - at) / PAGE_SIZE);
        // SAFETY: 1. The space is a program's. 2. Its CPUs drop translations below, before anything is
        // moved.
        let (looked, done) = match unsafe { space.evacuate(Step::Park, left, memory, from) } {
            Err(Error::Again) if parked != 0 => break,
            other => other?,
        };
        bank.leaving.parked += looked * PAGE_SIZE;
        parked += done;
        calls += 1;
    }
    if parked == 0 {
        bank.leaving.at = bank.leaving.parked;
        return Ok(());
    }
    drop_translations(bank)
}

fn drop_translations(bank: &Bank) -> Result<()> {
    bank.space()?.shootdown(bank.leaving.at, PAGE_SIZE)
}

/// Moves pages that are parked.
fn move_pages(bank: &mut Bank, run: &Run, from: NodeId) -> Result<()> {
    let space = bank.space()?;
    let memory = (pool(run.pool), run.first, run.frames);
    if bank.leaving.in_vain != 0 {
        // It may have been the translations that could not be dropped.
        drop_translations(bank)?;
    }
    while bank.leaving.at < bank.leaving.parked {
        let left = (bank.leaving.parked - bank.leaving.at) / PAGE_SIZE;
        // SAFETY: 1. All CPUs have dropped their translations since these pages were parked.
        let moved = unsafe { space.evacuate(Step::Move, (bank.leaving.at, left), memory, from) };
        let (looked, done) = moved?;
        bank.leaving.at += looked * PAGE_SIZE;
        bank.moved[from.index()] += done;
    }
    Ok(())
}

/// Gives frames of a block back that nothing refers to: what nodes that have died had in hand.
fn give_back_lost(run: &Run) -> Result<()> {
    for at in run.first..run.first + run.frames {
        let word = pool(run.pool).inspect(at)?;
        // Type 4 is user memory, the lowest 24 bits count references.
        if word >> 29 & 7 == 4 && word & 0xff_ffff == 0 {
            let _ = pool(run.pool).retype_untyped(at);
        }
    }
    Ok(())
}

/// The block is empty: it is the other node's. Its frames have been looked at since `emptied`.
fn leave(bank: &mut Bank, block: Block, run: Run, emptied: Cost) -> Result<u64> {
    let (from, to) = bank.book.done(block)?;
    bank.evicted[from.index()] += 1;
    let leaving = bank.leaving;
    bank.offline[here().index()] = leaving.cost.and(emptied.since(leaving.since));
    bank.leaving = Leaving::new();
    let holding = &mut bank.holdings[to.index()];
    holding.add(run)?;
    holding.open_to_limit();
    bank.apply(to)?;
    bank.again[here().index()] = Cost::now().since(emptied);
    let counted = offer(bank, from, to)?.need;
    if counted.used < bank.holdings[from.index()].limit() {
        bank.holdings[from.index()].close_to_limit();
        bank.apply(from)?;
    }
    // The wish stays: until the node is not pressed any more, or pressures are equal.
    Ok(PAUSE_NS)
}

/// The block cannot be emptied: it stays where it was.
fn stay(bank: &mut Bank, block: Block, run: &Run, from: NodeId) -> Result<u64> {
    unpark(bank.space()?, run, from)?;
    let State::Leaving { to, .. } = bank.book.state(block) else {
        return Err(Error::Corrupt);
    };
    bank.book.abandon(block)?;
    bank.holdings[from.index()] = bank.leaving.before;
    bank.holdings[from.index()].open_all();
    bank.leaving = Leaving::new();
    bank.refused[from.index()] += 1;
    refuse(bank, to);
    bank.apply(from)?;
    Ok(PAUSE_NS)
}

/// Makes all parked pages of some frames usable again.
fn unpark(space: dyad_sys::cap::Cap<dyad_sys::cap::Space>, run: &Run, node: NodeId) -> Result<()> {
    let memory = (pool(run.pool), run.first, run.frames);
    let (mut at, mut in_vain) = (USER_MIN, 0);
    while at < USER_END {
        let left = (at, (USER_END - at) / PAGE_SIZE);
        // SAFETY: 1. Nothing is parked or moved.
        match unsafe { space.evacuate(Step::Unpark, left, memory, node) } {
            Ok((looked, _)) => at += looked * PAGE_SIZE,
            Err(Error::Again) if in_vain < PATIENCE => {
                in_vain += 1;
                dyad_sys::raw::relax();
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Makes all parked pages of an address space usable again, whatever the books say.
pub fn unpark_all(space: dyad_sys::cap::Cap<dyad_sys::cap::Space>) {
    for n in 0..=CXL {
        let frames = dyad_services::pool::PoolMemory::or_none(n);
        let run = Run {
            pool: n,
            first: 0,
            frames: dyad_services::frames::Pool::frames(&frames),
        };
        if run.frames != 0
            && let Err(e) = unpark(space, &run, here())
        {
            crate::service::say(format_args!("pages stay parked: {e}"));
        }
    }
}
