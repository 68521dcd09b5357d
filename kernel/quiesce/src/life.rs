//! The life of nodes, as far as reuse depends on it.
//!
//! | row | who | order |
//! |---|---|---|
//! | join: VACANT → JOINING, incarnation + 1; flush; publish; LIVE; fence | the node | publication before LIVE, LIVE before the first shared access |
//! | suspect, trust: LIVE ↔ SUSPECT | any node | - |
//! | die: → DEAD | the launcher, when the machine is gone | kill before DEAD |
//! | recover: claim; DEAD → RECOVERING; repair; publication cleared; VACANT; claim dropped | one CPU of the system | the claim is held throughout |
//!
//! There is one claim in the whole system, whichever node has died, in one word of the superblock:
//!
//! ```text
//! recoverer   incarnation of the holder:32 | 0:8 | victim + 1:8 | cpu:8 | node + 1:8     (0: no recoverer)
//! ```
//!
//! Frozen frames do not say who has frozen them, and versions do not tell a late recoverer that the
//! dead node has come back. So neither another node nor another CPU of the holder's gets a second
//! claim, for the same victim or another. If the holder's incarnation has died, another node takes
//! the claim over with one CAS, for whichever victim, and does the work from the start: every repair
//! is idempotent. What the first one had begun for another victim is begun anew later.

use dyad_abi::ident::MAX_CPUS;
use dyad_abi::{CpuId, NodeId};
use dyad_coherence::GlobalMem;
use dyad_shm::superblock::{NodeState, NodeWord};

use core::sync::atomic::Ordering;

use crate::error::Error;
use crate::round::{NodeHardware, Round};
use crate::words::{Publication, Quiescence};

/// The right to recover a dead node, held by one CPU of the system at a time.
#[derive(Debug)]
#[must_use = "a claim that is not completed keeps all nodes dead until its holder dies"]
pub struct Claim {
    victim: NodeId,
    incarnation: u32,
    word: u64,
}

impl Claim {
    /// The dead node.
    pub const fn victim(&self) -> NodeId {
        self.victim
    }

    /// The incarnation that has died.
    pub const fn incarnation(&self) -> u32 {
        self.incarnation
    }
}

/// How often other CPUs may change their bits while a node publishes that it joins.
const PUBLISH_TRIES: usize = 64;

const VICTIM_SHIFT: u32 = 16;
/// Holder and incarnation.
const HOLDER: u64 = !(0xff << VICTIM_SHIFT);

const fn claim_word(victim: NodeId, by: NodeId, cpu: CpuId, holder: NodeWord) -> u64 {
    (holder.incarnation as u64) << 32
        | (victim.index() as u64 + 1) << VICTIM_SHIFT
        | (cpu.index() as u64) << 8
        | (by.index() as u64 + 1)
}

impl<M: GlobalMem> Quiescence<'_, M> {
    fn change(&self, node: NodeId, from: NodeWord, to: NodeWord) -> Result<(), Error> {
        self.mem
            .cas(self.state(node), from.bits(), to.bits())
            .map(|_| ())
            .map_err(|_| Error::Contended)
    }

    fn move_on(&self, node: NodeId, from: &[NodeState], to: NodeState) -> Result<(), Error> {
        let seen = self.node(node)?;
        if !from.contains(&seen.state) {
            return Err(Error::State(seen.state));
        }
        self.change(node, seen, NodeWord { state: to, ..seen })
    }

    /// Marks a node whose heartbeat has been missing for too long as suspect. It still counts.
    pub fn suspect(&self, node: NodeId) -> Result<(), Error> {
        self.move_on(node, &[NodeState::Live], NodeState::Suspect)
    }

    /// Takes a suspicion back.
    pub fn trust(&self, node: NodeId) -> Result<(), Error> {
        self.move_on(node, &[NodeState::Suspect], NodeState::Live)
    }

    /// Declares a node dead. The caller must know that the machine has ended, as the launcher does once it
    /// has reaped the process: a node that still runs would keep using memory that others reuse.
    pub fn die(&self, node: NodeId) -> Result<(), Error> {
        let alive = [NodeState::Joining, NodeState::Live, NodeState::Suspect];
        self.move_on(node, &alive, NodeState::Dead)
    }

    /// Lets a vacant place be taken: caches and TLBs are flushed, all that was stamped before is
    /// seen, and only then does the node count. No shared access but this one may come earlier,
    /// by any of its CPUs. Returns the node's rounds and its incarnation.
    pub fn join(
        &self,
        node: NodeId,
        cpu: CpuId,
        hardware: &impl NodeHardware,
    ) -> Result<(Round, u32), Error> {
        let vacant = self.node(node)?;
        if vacant.state != NodeState::Vacant {
            return Err(Error::State(vacant.state));
        }
        let joining = NodeWord {
            state: NodeState::Joining,
            incarnation: vacant.incarnation.wrapping_add(1),
        };
        self.change(node, vacant, joining)?;
        let round = self.publish_joining(node, cpu, hardware)?;
        let live = NodeWord {
            state: NodeState::Live,
            ..joining
        };
        self.change(node, joining, live)?;
        self.mem.fence();
        Ok((round, live.incarnation))
    }

    /// The middle of [`join`](Quiescence::join), for a node that is JOINING already: drops everything
    /// its caches and TLBs may hold and publishes that it has. It may become LIVE then.
    pub fn publish_joining(
        &self,
        node: NodeId,
        cpu: CpuId,
        hardware: &impl NodeHardware,
    ) -> Result<Round, Error> {
        // Cursors come before the flush: what is logged meanwhile is read in the first round.
        let round = Round::new(self, node);
        let mut piece = 0;
        // Bounded by the hardware's size; nothing waits for a node that joins.
        while !hardware.flush_everything(piece) {
            piece += 1;
        }
        hardware.flush_tlb();
        let epoch = self.advance()?;
        // Other CPUs of this node may be awake already: their bits stay.
        for _ in 0..=MAX_CPUS * PUBLISH_TRIES {
            let seen = self.publication(node);
            let word = Publication::joined(epoch, cpu).with_awake(seen.awake());
            let at = self.published(node);
            if self.mem.cas(at, seen.bits(), word.bits()).is_ok() {
                return Ok(round);
            }
        }
        Err(Error::Contended)
    }

    /// Claims a dead node for recovery by a CPU of node `by`. [`Error::Claimed`] if another CPU of the system
    /// recovers any node; if that CPU's node has died as well, its claim is taken over. A CPU that calls this
    /// again has dropped its earlier claim.
    pub fn recover(&self, victim: NodeId, by: NodeId, cpu: CpuId) -> Result<Claim, Error> {
        let dead = self.node(victim)?;
        if !matches!(dead.state, NodeState::Dead | NodeState::Recovering) {
            return Err(Error::State(dead.state));
        }
        let word = claim_word(victim, by, cpu, self.node(by)?);
        let at = self.recoverer();
        let held = self.mem.load_fresh(at, Ordering::Acquire);
        if held & HOLDER != word & HOLDER
            && let Some(holder) = self.live_holder(held)
        {
            return Err(Error::Claimed(holder));
        }
        self.mem.cas(at, held, word).map_err(|_| Error::Contended)?;
        // The victim may have been recovered between the look at its state and the claim.
        let seen = self.node(victim)?;
        let taken = match seen.state {
            _ if seen.incarnation != dead.incarnation => Err(Error::Contended),
            NodeState::Recovering => Ok(()),
            NodeState::Dead => self.move_on(victim, &[NodeState::Dead], NodeState::Recovering),
            other => Err(Error::State(other)),
        };
        match taken {
            Ok(()) => Ok(Claim {
                victim,
                incarnation: dead.incarnation,
                word,
            }),
            Err(e) => {
                let _ = self.mem.cas(at, word, 0);
                Err(e)
            }
        }
    }

    /// The holder of a claim, if the incarnation that took it is still there.
    fn live_holder(&self, claim: u64) -> Option<NodeId> {
        let holder = NodeId::new((claim & 0xff).checked_sub(1)?)?;
        let now = self.node(holder).ok()?;
        let same = u64::from(now.incarnation) == claim >> 32;
        let lives = matches!(now.state, NodeState::Live | NodeState::Suspect);
        (same && lives).then_some(holder)
    }

    /// Whether a claim still is its holder's: it has not been taken over.
    pub fn holds(&self, claim: &Claim) -> bool {
        self.mem.load_fresh(self.recoverer(), Ordering::Acquire) == claim.word
    }

    /// Ends a recovery: the node's CPUs are free, and its place may be taken again. All its intents must have
    /// been repaired and cleared.
    pub fn recovered(&self, claim: Claim) -> Result<(), Error> {
        let victim = claim.victim;
        if !self.holds(&claim) {
            return Err(Error::Contended);
        }
        // No CPU is awake there. The epoch stays: it only ever grows.
        let gone = Publication::LEAVING | 0xff;
        self.mem.and(self.published(victim), !gone);
        let done = self.move_on(victim, &[NodeState::Recovering], NodeState::Vacant);
        let dropped = self.mem.cas(self.recoverer(), claim.word, 0);
        done.and(dropped.map(|_| ()).map_err(|_| Error::Contended))
    }
}
