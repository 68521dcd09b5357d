//! Recovery: what survivors do with what a dead node held.
//!
//! | module | concern |
//! |---|---|
//! | [`life`] | who is silent, who has come, who is gone; where the run loop enters |
//! | here | the order of steps, and the count of references |
//! | [`budget`] | what a piece of it may cost |
//! | `walk` | walks over objects |
//! | `rows` | the rows that the dead CPUs were in, by their intents |
//! | [`threads`] | what becomes of the dead node's threads |
//! | [`endpoints`] | lists and waiters that it has left behind |
//! | [`half_woken`] | threads of live nodes that it was just waking |
//!
//! The run loop calls it by a pointer that boot has set ([`look_after_others`](dyad_machine::cpu::CpuLocal)); the
//! [core](dyad_core) knows nothing of it.
//! What it counts with is in [`dyad_audit`].
//!
//! One node does it, in bounded pieces between two turns of its run loop; its other CPUs and all
//! other nodes go on meanwhile. Nothing of it is kept but in private memory: if the recoverer dies,
//! the next one starts over, and every repair can be repeated.
//!
//! ```text
//! claim; DEAD -> RECOVERING
//!   rows        frames and slots in the middle of a change are given up
//!   freeze      what entries were being put into or taken out of takes no new references
//!   between     every live CPU is seen between two rows
//!   places      entries that were being emptied: a page's is empty now, a table's leads there again
//!   count       references are counted, in all objects of the system
//!   between     again
//!   set         the counts become the references, unless some have been given back meanwhile: count
//!   clear       unfreeze; the dead node's intents are cleared
//!   threads     each goes on where it can, or returns with an error, or stops; those of live nodes that
//!               are blocked and wait nowhere are noted. In all spaces, region slots that the dead node
//!               was changing are free again
//!   settle      a round, so that no CPU has an older owner of a thread in hand
//!   endpoints   schedulers' lists of the dead node's CPUs; waiters that do not wait
//!   half_woken      what was noted and is so still is woken
//!   lost        schedulers are told of threads that are on no list although they say so, and of all that
//!               are ready or sleep
//!   finish      frames that its faults had taken; doorbell; RECOVERING -> VACANT; claim dropped
//! ```
//!
//! # Why the count is right
//!
//! At *between*, recovery reads every live CPU's intent and waits until it has seen it clear. A row records
//! its intent before it takes its first reference and clears it after it has given back its last, so a CPU
//! whose intent is seen to be clear is in no row. Intents are read at memory, need no help from
//! user level, and the rows need not look whether a frame is frozen when they give references back.
//!
//! | a row of a live CPU | is |
//! |---|---|
//! | that takes a reference, begun before the freeze | over before counting begins (first *between*): it is counted, or has been undone |
//! | that takes a reference, begun later | refused: frozen |
//! | that gives a reference back, over before *set* | noticed: the record has fewer references than before counting |
//! | that gives a reference back, seen at work in the second *between* | waited for; then its record has fewer references, and that is noticed |
//! | that gives a reference back, begun after the second *between* | counted, as its entry was there; it gives back one of those |
//! | that closes a table's entry and opens it again | waited for: counting does not go past entries that live nodes are changing |
//!
//! Another node that has died and is not recovered yet is in no row; what it left is counted as it
//! is, and counted again when it is recovered.
//!
//! # Bounds
//!
//! A turn of the run loop does one piece, between two moments at which interrupts are taken. A piece ends
//! when its [`budget`] is used up, wherever it is then: in the middle of a walk over frames, of the entries
//! of an object, of a list of threads. What it goes on with is an object by frame and version; one that has
//! been given up meanwhile is left out, because all that it held has been given back. Recovery takes three
//! walks over all frames; more only while others give references back to the same 16 frames.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "host"))]
extern crate std;

#[macro_use(lacks)]
extern crate dyad_coherence;

pub mod budget;
pub mod endpoints;
pub mod half_woken;
#[cfg(any(test, feature = "host"))]
pub mod host;
pub mod life;
mod rows;
pub mod threads;
mod walk;

#[cfg(test)]
mod tests;

pub use life::{Life, look_after_others};

use dyad_abi::ident::{MAX_CPUS, MAX_NODES};
use dyad_abi::{CpuId, NodeId};
use dyad_captbl::Owner;
use dyad_quiesce::Claim;
use dyad_retype::Refs;
use dyad_shm::FrameRef;
use dyad_shm::frame::{Epoch, WeakRef};
use dyad_shm::intent::Row;
use dyad_shm::protocol::Intents;
use dyad_shm::superblock::{NodeState, activity};

use dyad_machine::kernel_ctx::KernelCtx;
use dyad_machine::{Platform, clock, console, info, warn};
use dyad_object::space::Space;
use dyad_object::thread::Thread;

use dyad_audit::references::{Tally, entries, refers};

use budget::Budget;
use walk::{Walk, Walked};

/// Blocks that the rows of a node can be about.
const BLOCKS: usize = 2 * MAX_CPUS;
/// How long recovery waits for a quiescence round. Recovery then continues without one: no CPU drives rounds,
/// and only a wake-up that was in progress at the moment of death can be lost.
const SETTLE_NS: u64 = 1_000_000_000;

/// When the next piece is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// No work is left.
    Idle,
    /// After others have had their turn.
    Soon,
    /// Recovery waits for other nodes.
    Later,
    /// A node has been recovered.
    Done(NodeId),
}

/// How far a recovery has come: one variant for each step, with what it needs to continue after a piece.
/// Steps over CPUs carry the number of the next CPU, walks over objects their position.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Rows(usize),
    /// This step and those up to [`Phase::Set`] are done only if a row of the dead node may have left
    /// references that no entry holds, or entries without a reference.
    Freeze,
    Between(Seen),
    Places(usize),
    Count(Walk),
    BetweenAgain(Seen),
    Set,
    Clear,
    Threads(Walk),
    /// Waits until all CPUs have been quiet since `stamp`, or until fused time `until`.
    Settle {
        stamp: Epoch,
        until: u64,
    },
    Endpoints(endpoints::Walk),
    /// Wakes the noted threads, beginning with number `from`. `sure`: see [`Phase::Lost`].
    Wake {
        from: usize,
        sure: bool,
    },
    /// Tells schedulers about threads that may have been lost. `sure`: a quiescence round has passed, so it
    /// is known which threads are on lists.
    Lost {
        walk: Walk,
        sure: bool,
    },
    /// Gives back the frames that CPUs worked on last, beginning with this number.
    GiveBack(usize),
    Finish,
}

/// CPUs that have been seen between two rows.
type Seen = [u8; MAX_NODES];

/// The recovery of one node.
#[derive(Debug)]
pub struct Recovery {
    claim: Claim,
    dead: Owner,
    phase: Phase,
    tally: Tally<BLOCKS>,
    /// For each CPU the object of its last row, and whether that lies in the supply of a space.
    last: [Option<(WeakRef, bool)>; MAX_CPUS],
    /// The second frame of the last row of each CPU, if the row was replacing one frame by another.
    replaced: [Option<(WeakRef, bool)>; MAX_CPUS],
    /// Threads that the dead node may have been waking.
    half_woken: half_woken::HalfWoken,
    /// Walks that have begun to find them.
    walks: u32,
}

/// Does one piece of the pending recovery. `state` is the state of this node's recovery.
pub fn step<P: Platform>(cx: &KernelCtx, state: &mut Option<Recovery>) -> Pace {
    let Some(r) = state else {
        return match victim(cx) {
            Some(dead) => begin::<P>(cx, dead, state),
            None => Pace::Idle,
        };
    };
    // Others have taken this node for dead and go on without it. What it has repaired stays so: every
    // repair can be repeated, and its successor begins from the start.
    if !r.is_mine(cx) {
        *state = None;
        return Pace::Soon;
    }
    match r.piece::<P>(cx) {
        Pace::Done(_) => match state.take() {
            Some(r) => r.finish::<P>(cx),
            None => Pace::Idle,
        },
        pace => pace,
    }
}

/// A node that has died and is not recovered yet. Each turn of the run loop looks for one.
fn victim(cx: &KernelCtx) -> Option<NodeId> {
    cx.node.others().find(|&n| {
        let state = cx.node.word_of(n).state;
        matches!(state, NodeState::Dead | NodeState::Recovering)
    })
}

/// Claims a dead node, if that is this node's job: the live node with the lowest number does it.
///
/// Not inlined: a [`Recovery`] is large, and turns that find no dead node must neither reserve stack for one nor copy
/// one.
#[cold]
#[inline(never)]
fn begin<P: Platform>(cx: &KernelCtx, victim: NodeId, state: &mut Option<Recovery>) -> Pace {
    let node = cx.node;
    if node.first_live() != Some(node.id()) && !lacks!("begin::first") {
        return Pace::Idle;
    }
    // Refused if another CPU, of any node, recovers a node.
    let Ok(claim) = cx.epochs().recover(victim, node.id(), cx.cpu()) else {
        return Pace::Idle;
    };
    warn!(
        P,
        "node {victim} is dead (incarnation {}), recovering",
        claim.incarnation()
    );
    *state = Some(Recovery {
        dead: Owner {
            node: victim,
            incarnation: claim.incarnation(),
        },
        claim,
        phase: Phase::Rows(0),
        tally: Tally::new(),
        last: [None; MAX_CPUS],
        replaced: [None; MAX_CPUS],
        half_woken: half_woken::HalfWoken::NONE,
        walks: 0,
    });
    Pace::Soon
}

impl Recovery {
    /// Whether this node still recovers the dead node: the dead node's state, its incarnation, and the claim
    /// are unchanged.
    fn is_mine(&self, cx: &KernelCtx) -> bool {
        let word = cx.node.word_of(self.dead.node);
        word.state == NodeState::Recovering
            && word.incarnation == self.dead.incarnation
            && cx.epochs().holds(&self.claim)
    }

    /// One piece; [`Pace::Done`]: all is repaired.
    fn piece<P: Platform>(&mut self, cx: &KernelCtx) -> Pace {
        match self.phase {
            Phase::Rows(cpu) => self.rows(cx, cpu),
            Phase::Freeze => self.freeze(cx),
            Phase::Between(seen) => self.between(cx, seen, Phase::Between, Phase::Places(0)),
            Phase::Places(cpu) => self.places(cx, cpu),
            Phase::Count(cursor) => self.count(cx, cursor),
            Phase::BetweenAgain(seen) => self.between(cx, seen, Phase::BetweenAgain, Phase::Set),
            Phase::Set => self.set(cx),
            Phase::Clear => self.clear(cx),
            Phase::Threads(cursor) => self.threads::<P>(cx, cursor),
            Phase::Settle { stamp, until } => {
                let over = clock::now::<P>().0 >= until;
                let settled = cx.node.tables.quiesced(stamp);
                if !over && !settled {
                    return Pace::Later;
                }
                let mut walk = endpoints::Walk::START;
                walk.unsure = !settled;
                self.go(Phase::Endpoints(walk))
            }
            Phase::Endpoints(mut walk) => {
                let next = match walk.piece::<P>(cx, self.dead.node) {
                    true => Phase::Wake {
                        from: 0,
                        sure: !walk.unsure,
                    },
                    false => Phase::Endpoints(walk),
                };
                self.go(next)
            }
            Phase::Wake { from, sure } => self.wake::<P>(cx, from, sure),
            Phase::Lost { walk, sure } => self.lost::<P>(cx, walk, sure),
            Phase::GiveBack(from) => self.give_back(cx, from),
            Phase::Finish => Pace::Done(self.dead.node),
        }
    }

    /// Goes on with a phase, in the next piece.
    fn go(&mut self, phase: Phase) -> Pace {
        self.phase = phase;
        Pace::Soon
    }

    /// The CPUs of a node; all nodes have as many.
    fn cpus(&self, cx: &KernelCtx) -> impl Iterator<Item = CpuId> + use<> {
        CpuId::first(cx.node.params.cpus)
    }

    /// The rows of one CPU that are about frames and slots; notes what the others are about.
    fn rows(&mut self, cx: &KernelCtx, cpu: usize) -> Pace {
        let Some(c) = self.cpus(cx).nth(cpu) else {
            return self.go(Phase::Freeze);
        };
        self.last[cpu] = rows::last(cx, self.dead.node, c).map(|what| (what, false));
        self.replaced[cpu] = None;
        if let Some(record) = cx.epochs().intents(self.dead.node, c).read() {
            if record.row == Row::Replace {
                self.replaced[cpu] = record.table.map(|what| (what, false));
            }
            match rows::repair(cx, self.dead, &record) {
                // Others are at work on the same words.
                Err(_) => return Pace::Later,
                Ok(blocks) => {
                    for block in blocks.into_iter().flatten() {
                        let (head, frames) = block;
                        self.tally.add(head, frames);
                    }
                }
            }
        }
        self.go(Phase::Rows(cpu + 1))
    }

    /// Rows that take references are refused from here on; those that give them back go on.
    fn freeze(&mut self, cx: &KernelCtx) -> Pace {
        if self.tally.blocks().is_empty() || lacks!("freeze::count") {
            return self.go(Phase::Clear);
        }
        let frozen = self.tally.blocks().iter().try_for_each(|c| {
            match cx.frames().freeze(c.head) {
                Err(dyad_retype::Refused::Contended) => Err(()),
                // What is not in use has no references.
                Ok(_) | Err(_) => Ok(()),
            }
        });
        match frozen {
            Ok(()) => self.go(Phase::Between([0; MAX_NODES])),
            Err(()) => Pace::Later,
        }
    }

    /// Looks once at every CPU that has not been seen between two rows.
    fn between(
        &mut self,
        cx: &KernelCtx,
        mut seen: Seen,
        same: fn(Seen) -> Phase,
        next: Phase,
    ) -> Pace {
        let mut all = true;
        for n in cx.node.all() {
            if !cx.node.is_live(n) {
                continue;
            }
            for c in self.cpus(cx) {
                let bit = 1 << c.index();
                if seen[n.index()] & bit == 0 {
                    // This CPU itself is between two rows here.
                    let clear = cx.epochs().intents(n, c).read().is_none();
                    seen[n.index()] |= if clear { bit } else { 0 };
                    all &= clear || lacks!("between::wait");
                }
            }
        }
        match all {
            true => self.go(next),
            false => {
                self.phase = same(seen);
                Pace::Later
            }
        }
    }

    /// The entries that the dead node's rows were about. After the first *between*: no live CPU is in a
    /// row about the same entry that began before the freeze.
    fn places(&mut self, cx: &KernelCtx, cpu: usize) -> Pace {
        let Some(c) = self.cpus(cx).nth(cpu) else {
            return self.begin_count(cx);
        };
        if let Some(record) = cx.epochs().intents(self.dead.node, c).read() {
            rows::place(cx, self.dead, &record);
        }
        self.go(Phase::Places(cpu + 1))
    }

    /// Notes what the records say now: [`set`](Self::set) takes the count only for a record that says
    /// the same then.
    fn begin_count(&mut self, cx: &KernelCtx) -> Pace {
        for c in self.tally.blocks_mut() {
            c.found = 0;
            c.before = match cx.frames().read(c.head) {
                Ok((word, _)) => word.refs,
                Err(_) => Refs::ZERO,
            };
        }
        self.go(Phase::Count(Walk::START))
    }

    /// Counts in the next few entries. An entry that is being changed is counted later, and so are those
    /// behind it.
    ///
    /// The entries of an object need not be counted at one moment: no row moves a reference from one entry to
    /// another without taking one, and those that are given back meanwhile are noticed when the counts are
    /// set.
    fn count(&mut self, cx: &KernelCtx, mut walk: Walk) -> Pace {
        let mut budget = Budget::WHOLE;
        while budget.is_left() {
            let (object, kind, from) = match walk.next(cx, &mut budget, refers) {
                Walked::Object(object, kind, from) => (object, kind, from),
                Walked::Working => break,
                Walked::End => return self.go(Phase::BetweenAgain([0; MAX_NODES])),
            };
            let all = entries(kind);
            let some = budget.affords(budget::ENTRY) as usize;
            let to = all.min(from.saturating_add(some));
            budget.spend(budget::OBJECT + (to - from) as u64 * budget::ENTRY);
            let wait = |who: Option<NodeId>| who.is_none_or(|n| cx.node.is_live(n));
            if let Err(at) = self
                .tally
                .count_in(cx, (object.frame, kind), from..to, wait)
            {
                walk.within = Some((object, kind, at));
                self.phase = Phase::Count(walk);
                return Pace::Later;
            }
            if to < all {
                walk.within = Some((object, kind, to));
            }
        }
        self.go(Phase::Count(walk))
    }

    /// Makes the counts the references, each by one compare-and-swap against what the record said before
    /// counting. One that has changed has been given back meanwhile, and all are counted anew: the
    /// entries that they were counted in may be others by now.
    fn set(&mut self, cx: &KernelCtx) -> Pace {
        let mut again = false;
        for c in self.tally.blocks() {
            let found = Refs::new(c.found).unwrap_or(Refs::MAX);
            match cx.frames().recount_from(c.head, c.before, found) {
                Ok(true) => {}
                Ok(false) | Err(dyad_retype::Refused::Contended) => again = true,
                // It was not in use.
                Err(_) => {}
            }
        }
        match again {
            true => self.begin_count(cx),
            false => self.go(Phase::Clear),
        }
    }

    /// Unfreezes before it clears the intents: if this node dies in between, the next recoverer finds
    /// the same blocks again.
    fn clear(&mut self, cx: &KernelCtx) -> Pace {
        for c in self.tally.blocks() {
            if let Err(dyad_retype::Refused::Contended) = cx.frames().unfreeze(c.head) {
                return Pace::Later;
            }
        }
        for c in self.cpus(cx) {
            cx.epochs().intents(self.dead.node, c).clear();
        }
        self.go(Phase::Threads(Walk::START))
    }

    /// The dead node's threads, and all spaces ([`space`](Self::space)), in one walk.
    fn threads<P: Platform>(&mut self, cx: &KernelCtx, mut walk: Walk) -> Pace {
        let mut budget = Budget::WHOLE;
        while budget.is_left() {
            let wanted = |k| k == Thread::KIND || k == Space::KIND;
            let (object, kind, from) = match walk.next(cx, &mut budget, wanted) {
                Walked::Object(object, kind, from) => (object, kind, from),
                Walked::Working => break,
                Walked::End => {
                    let stamp = cx.epochs().now();
                    let until = clock::now::<P>().0.saturating_add(SETTLE_NS);
                    return self.go(Phase::Settle { stamp, until });
                }
            };
            let frame = object.frame;
            if kind == Space::KIND {
                let next = self.space(cx, frame, from, &mut budget);
                walk.within = next.map(|from| (object, kind, from));
                continue;
            }
            budget.spend(budget::THREAD);
            threads::doubt(cx, frame);
            self.half_woken.look(cx, frame);
            if let Some(handed) = threads::repair::<P>(cx, self.dead, frame) {
                handed.announce::<P>(cx);
            }
        }
        self.go(Phase::Threads(walk))
    }

    /// Wakes the next few of the noted threads that have not changed. If more threads were found than could
    /// be noted, the walk that finds them is repeated: the threads that remain half woken are few, at most
    /// one for each CPU that has died.
    fn wake<P: Platform>(&mut self, cx: &KernelCtx, mut from: usize, sure: bool) -> Pace {
        let mut budget = Budget::WHOLE;
        while budget.is_left() && self.half_woken.wake::<P>(cx, from) {
            budget.spend(budget::TOLD);
            from += 1;
        }
        if !budget.is_left() {
            return self.go(Phase::Wake { from, sure });
        }
        self.walks += 1;
        let walk = Walk::START;
        match self.half_woken.end() || self.walks >= half_woken::WALKS {
            true => self.go(Phase::Lost { walk, sure }),
            false => self.go(Phase::Threads(walk)),
        }
    }

    /// Tells schedulers about threads that are on no list although their event says so, and about threads
    /// that a scheduler may not know of.
    fn lost<P: Platform>(&mut self, cx: &KernelCtx, mut walk: Walk, sure: bool) -> Pace {
        let mut budget = Budget::WHOLE;
        while budget.is_left() {
            match walk.next(cx, &mut budget, |k| k == Thread::KIND) {
                Walked::Object(object, ..) => {
                    budget.spend(budget::TOLD);
                    threads::tell_lost::<P>(cx, object.frame, sure);
                    half_woken::tell::<P>(cx, object.frame);
                }
                Walked::Working => break,
                Walked::End => return self.go(Phase::GiveBack(0)),
            }
        }
        self.go(Phase::Lost { walk, sure })
    }

    /// Frees region slots of this space that the dead node was changing. Then examines the frames of the last
    /// rows, beginning with number `from`, and notes which lie in a supply of this space: faults took those,
    /// and only recovery can give them back. Returns the number to continue with if the budget does not
    /// suffice for all.
    fn space(
        &mut self,
        cx: &KernelCtx,
        frame: FrameRef,
        from: usize,
        budget: &mut Budget,
    ) -> Option<usize> {
        let space = cx.node.map.get::<Space>(frame.address())?;
        if from == 0 {
            budget.spend(budget::REGIONS);
            if !lacks!("space::regions") {
                space.repair_regions(cx.words(), self.dead.node);
            }
        }
        let all = self.last.iter_mut().chain(&mut self.replaced);
        // 0 is before the region slots.
        for (n, last) in (1..).zip(all).skip(from.saturating_sub(1)) {
            let Some((what, supplied)) = last else {
                continue;
            };
            if !budget.is_left() {
                return Some(n);
            }
            budget.spend(budget::SUPPLIED);
            *supplied |= space.is_supplied(cx.words(), what.frame);
        }
        None
    }

    /// Gives the next few of the frames back that faults of the dead node had taken.
    fn give_back(&mut self, cx: &KernelCtx, from: usize) -> Pace {
        let mut budget = Budget::WHOLE;
        let all = self.last.into_iter().chain(self.replaced);
        for (n, last) in all.enumerate().skip(from) {
            if !budget.is_left() {
                return self.go(Phase::GiveBack(n));
            }
            if let Some((what, true)) = last {
                budget.spend(budget::GIVEN_BACK);
                rows::give_back(cx, what);
            }
        }
        self.go(Phase::Finish)
    }

    /// Completes the recovery: only the dead node's place is still to be released.
    fn finish<P: Platform>(self, cx: &KernelCtx) -> Pace {
        let node = cx.node;
        let n = self.dead.node;
        for c in CpuId::first(MAX_CPUS) {
            // No node gives work to this CPU.
            let cpu = node.sb.cpu(n, c);
            cx.words().write(&cpu.activity, activity::OFFLINE);
        }
        cx.words().replace(&node.sb.node(n).doorbell, 0);
        if cx.epochs().recovered(self.claim).is_err() {
            return Pace::Soon;
        }
        // A line takes thousands of instructions.
        P::breathe();
        console::counter::<P>(dyad_abi::record::name::RECOVERED, 1);
        P::breathe();
        info!(P, "node {n} is recovered");
        Pace::Done(n)
    }
}
