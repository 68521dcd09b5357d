//! The threads of the program as one node knows them, and the list of those that wait for words.

extern crate alloc;

use alloc::boxed::Box;

use dyad_abi::user::{MAX_PROGRAM_THREADS, Tcb};
use dyad_abi::{Error, NodeId, Result};
use dyad_msg::bulk::Head;
use dyad_services::rounds::Move;

use super::Vec;
use super::asks::Asker;
use crate::service::ORIGIN;
use crate::slots::SLOTS;

const THREADS: usize = MAX_PROGRAM_THREADS as usize;
/// Words of a control block that travel with a thread: all that its layout names.
pub(super) const BLOCK_WORDS: usize = size_of::<Tcb>() / 8;

/// How a thread goes on: program counter, stack pointer, frame pointer or argument.
pub(super) type Going = [u64; 3];

/// A control block that travels.
pub(super) type Block = [u64; BLOCK_WORDS];

/// Who has a thread begin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Starter {
    /// The system: it is the program's first thread.
    System,
    /// Another thread, which is answered.
    Thread(Asker),
}

/// A thread of the program, as this node knows it.
pub(super) struct One {
    /// The process has a kernel thread for it.
    pub(super) exists: bool,
    /// That waits here until the thread comes, or begins again.
    pub(super) parked: bool,
    /// It begins when that waits.
    pub(super) begins: bool,
    /// It has come before that waited, with its control block: until then that is the kernel thread's own.
    pub(super) arrived: Option<Box<(Going, Block)>>,
    /// Where it has gone from here.
    pub(super) gone: Option<NodeId>,
    /// How often a thread of this number has begun or moved, as far as this node knows.
    pub(super) moves: u64,
    /// At the origin: who has started it, if it was to begin elsewhere.
    pub(super) started_by: Option<Asker>,
    /// Nodes whose kernel thread of this number has begun, by bit. Where a thread begins, the others are asked first: a
    /// thread that goes there lays out its frames on the stack on which that begins.
    pub(super) ready: u64,
    /// Nodes that wait until the kernel thread here has begun, by bit.
    pub(super) asked_by: u64,
    /// Who waits until all others have begun.
    pub(super) waits_for_others: Option<Starter>,
}

impl One {
    const NONE: One = One {
        exists: false,
        parked: false,
        begins: false,
        arrived: None,
        gone: None,
        moves: 0,
        started_by: None,
        ready: 0,
        asked_by: 0,
        waits_for_others: None,
    };
}

/// The threads of the program.
pub(super) struct Threads {
    here: NodeId,
    all: [One; THREADS],
    /// At the origin: threads that have been started and have not ended, wherever they are, one bit for each number. The
    /// origin alone says who begins, so no thread begins twice.
    live: u64,
    /// At the origin: those of them that are lost.
    lost: u64,
    /// Threads that have been taken off the list of those that wait for a word, and have not looked yet.
    pub(super) taken: u64,
    /// At the origin: threads that wait for words.
    pub(super) futex: Futex,
}

impl Threads {
    /// No thread has begun. The first one is alive at the origin.
    pub(super) fn new(here: NodeId) -> Threads {
        Threads {
            here,
            all: [const { One::NONE }; THREADS],
            live: 1,
            lost: 0,
            taken: 0,
            futex: Futex(Vec::new()),
        }
    }

    pub(super) fn one(&mut self, n: u64) -> Result<&mut One> {
        let n = usize::try_from(n).ok();
        n.and_then(|n| self.all.get_mut(n)).ok_or(Error::NotFound)
    }

    /// The node to ask about a thread; `None`: it is here.
    ///
    /// # Errors
    ///
    /// `NotFound` at the origin: it has ended, or never begun.
    pub(super) fn way_to(&mut self, n: u64) -> Result<Option<NodeId>> {
        let (here, live) = (self.here, self.live);
        let one = self.one(n)?;
        match one.gone {
            _ if here == ORIGIN && live >> n & 1 == 0 => Err(Error::NotFound),
            // The thread is about to begin here. Its old record names the origin, and the origin names this node: two peers
            // would pass the message back and forth.
            _ if one.waits_for_others.is_some() => Ok(None),
            Some(node) => Ok(Some(node)),
            None if one.exists => Ok(None),
            None if here == ORIGIN => Err(Error::NotFound),
            None => Ok(Some(ORIGIN)),
        }
    }

    /// At the origin: thread `n` may begin, on a node that is told so.
    ///
    /// # Errors
    ///
    /// `NodeDead` if it was lost; `Again` if it has begun and the origin does not know that it has ended; `BadArgument` if there is no such number, or
    /// it is the first thread's.
    pub(super) fn claim(&mut self, n: u64) -> Result<()> {
        if n == 0 || n >= MAX_PROGRAM_THREADS {
            return Err(Error::BadArgument);
        }
        if self.lost >> n & 1 != 0 {
            return Err(Error::NodeDead);
        }
        if self.live >> n & 1 != 0 {
            return Err(Error::Again);
        }
        self.live |= 1 << n;
        Ok(())
    }

    /// Thread `n` begins or moves once more. Gives the number of that.
    pub(super) fn has_moved(&mut self, n: u64) -> u64 {
        self.one(n).map_or(0, |one| {
            one.moves += 1;
            one.moves
        })
    }

    /// The origin says that thread `n` is to begin here, and which of its moves that is.
    pub(super) fn begins_as(&mut self, n: u64, number: u64) {
        if let Ok(one) = self.one(n) {
            one.moves = number;
        }
    }

    /// At the origin: thread `n` is to begin elsewhere. Who has started it is answered here if that node dies.
    pub(super) fn is_started_by(&mut self, n: u64, asker: Asker) {
        if let Ok(one) = self.one(n) {
            one.started_by = Some(asker);
        }
    }

    /// At the origin: thread `n` has ended, or could not begin.
    pub(super) fn has_ended(&mut self, n: u64) {
        self.live &= !(1 << (n % MAX_PROGRAM_THREADS));
    }

    /// How many threads are here, and how many of them wait for an answer.
    pub(super) fn here(&self) -> (u32, u32) {
        let (mut here, mut waiting) = (0, 0);
        for (n, one) in (0..).zip(&self.all) {
            if one.exists && one.gone.is_none() && !one.parked {
                here += 1;
                waiting += u32::from(SLOTS.waits(n));
            }
        }
        (here, waiting)
    }

    /// A thread is on another node from here on.
    pub(super) fn has_gone(&mut self, n: u64, node: NodeId) {
        if let Ok(one) = self.one(n) {
            one.gone = Some(node);
        }
    }

    /// At the origin: the node that a thread has come to says so, or one that has sent it to a node that has died.
    pub(super) fn reported(&mut self, head: &Head) {
        let [_, n, node, number, ..] = *head;
        let (Ok(one), Some(node)) = (self.one(n), NodeId::new(node)) else {
            return;
        };
        let before = Move {
            node,
            number: one.moves,
        };
        let after = before.or(Move { node, number });
        if after != before {
            one.moves = after.number;
            one.gone = Some(after.node);
        }
    }

    /// Threads that are about to begin here, and wait for other nodes.
    pub(super) fn waiting_for_others(&self) -> Vec<u64> {
        let all = (0..).zip(&self.all);
        let waiting = all.filter(|(_, one)| one.waits_for_others.is_some());
        waiting.map(|(n, _)| n).collect()
    }

    /// A node has died, and asks nothing any more. Threads that had gone there are looked for at the origin. Gives those, each with
    /// the number of its move.
    pub(super) fn without(&mut self, node: NodeId) -> Vec<(u64, u64)> {
        let mut there = Vec::new();
        for (n, one) in (0..).zip(&mut self.all) {
            one.asked_by &= !(1 << node.index());
            if self.here != ORIGIN && one.gone == Some(node) {
                one.gone = Some(ORIGIN);
                there.push((n, one.moves));
            }
        }
        there
    }

    /// At the origin: the threads that were last on dead nodes are lost. Gives them by bit, and who has started them.
    pub(super) fn lose(&mut self, is_dead: impl Fn(NodeId) -> bool) -> (u64, Vec<Asker>) {
        let (mut lost, mut starters) = (0, Vec::new());
        let live = self.live & !self.lost;
        for (n, one) in (0..).zip(&mut self.all) {
            let begins_here = one.waits_for_others.is_some();
            if live >> n & 1 != 0 && !begins_here && one.gone.is_some_and(&is_dead) {
                lost |= 1 << n;
                starters.extend(one.started_by.take());
            }
        }
        self.lost |= lost;
        self.futex.0.retain(|(waiter, _)| lost >> waiter.n & 1 == 0);
        (lost, starters)
    }

    /// Whether thread `n` has been taken off the list, of which it learns now.
    pub(super) fn takes_back(&mut self, n: u64) -> bool {
        let bit = 1 << (n % MAX_PROGRAM_THREADS);
        let was = self.taken & bit != 0;
        self.taken &= !bit;
        was
    }
}

/// Threads that wait for words, in the order in which they came: at the origin.
pub(super) struct Futex(Vec<(Asker, u64)>);

impl Futex {
    /// A thread is about to wait for a word.
    pub(super) fn begin(&mut self, asker: Asker, key: u64) -> Result<u64> {
        self.0.retain(|(waiter, _)| waiter.n != asker.n);
        self.0.push((asker, key));
        Ok(0)
    }

    /// A thread does not wait any more. 1: it has been taken.
    pub(super) fn end(&mut self, asker: Asker) -> Result<u64> {
        let before = self.0.len();
        self.0.retain(|(waiter, _)| waiter.n != asker.n);
        Ok(u64::from(self.0.len() == before))
    }

    /// Takes the first thread that waits for a word.
    pub(super) fn take(&mut self, key: u64) -> Option<Asker> {
        let at = self.0.iter().position(|&(_, k)| k == key)?;
        Some(self.0.remove(at).0)
    }
}
