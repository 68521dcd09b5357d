//! The life of nodes, as far as reuse depends on it.
//!
//! | row | who | order |
//! |---|---|---|
//! | join: VACANT → JOINING, incarnation + 1; flush; publish; LIVE; fence | the node | publication before LIVE, LIVE before the first shared access |
//! | suspect, trust: LIVE ↔ SUSPECT | any node | - |
//! | die: → DEAD | the launcher, when the machine is gone | kill before DEAD |
//! | recover: claim; DEAD → RECOVERING; repair; publication cleared; VACANT; claim dropped | one live node | the claim is held throughout |
//!
//! A claim names its holder's incarnation. If that has died, another node takes the claim over
//! with one CAS and does the work again from the start: every repair is idempotent.

use dyad_abi::ident::MAX_CPUS;
use dyad_abi::{CpuId, NodeId};
use dyad_coherence::GlobalMem;
use dyad_shm::superblock::{NodeState, NodeWord};

use core::sync::atomic::Ordering;

use crate::error::Error;
use crate::round::{NodeHardware, Round};
use crate::words::{Publication, Quiescence};

/// The right to recover a dead node, held by one live node at a time.
#[derive(Debug)]
#[must_use = "a claim that is not completed keeps the node dead until its holder dies"]
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

/// Incarnations are kept to 24 bits in claims; they only have to differ from the one before.
const INCARNATION: u32 = (1 << 24) - 1;

/// How often each other CPU may change its bit while a node publishes that it joins.
const PUBLISH_TRIES: usize = 64;

const fn claim_word(victim: NodeWord, by: NodeId, holder: NodeWord) -> u64 {
    (victim.incarnation as u64) << 32
        | ((holder.incarnation & INCARNATION) as u64) << 8
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

    /// Says that a node has not been heard of for too long. It goes on counting.
    pub fn suspect(&self, node: NodeId) -> Result<(), Error> {
        self.move_on(node, &[NodeState::Live], NodeState::Suspect)
    }

    /// Takes a suspicion back.
    pub fn trust(&self, node: NodeId) -> Result<(), Error> {
        self.move_on(node, &[NodeState::Suspect], NodeState::Live)
    }

    /// Declares a node dead. Only for whoever knows that its machine does not run any more, as the
    /// launcher does once it has reaped it: a node that goes on running would go on using what
    /// others reuse.
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

    /// Claims a dead node for recovery by node `by`. [`Error::Claimed`] if another live node has
    /// it; if that one has died as well, its claim is taken over.
    pub fn recover(&self, victim: NodeId, by: NodeId) -> Result<Claim, Error> {
        let dead = self.node(victim)?;
        if !matches!(dead.state, NodeState::Dead | NodeState::Recovering) {
            return Err(Error::State(dead.state));
        }
        let word = claim_word(dead, by, self.node(by)?);
        let at = self.claim_word(victim);
        let held = self.mem.load_fresh(at, Ordering::Acquire);
        if held != word {
            if let Some(holder) = self.live_holder(held) {
                return Err(Error::Claimed(holder));
            }
            self.mem.cas(at, held, word).map_err(|_| Error::Contended)?;
        }
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
        let same = u64::from(now.incarnation & INCARNATION) == claim >> 8 & u64::from(INCARNATION);
        let lives = matches!(now.state, NodeState::Live | NodeState::Suspect);
        (same && lives).then_some(holder)
    }

    /// Ends a recovery: the node's CPUs are nobody's, and its place may be taken again. All its
    /// intents must have been repaired and cleared.
    pub fn recovered(&self, claim: Claim) -> Result<(), Error> {
        let victim = claim.victim;
        let held = self
            .mem
            .load_fresh(self.claim_word(victim), Ordering::Acquire);
        if held != claim.word {
            return Err(Error::Contended);
        }
        // Nobody is awake there. The epoch stays: it only ever grows.
        let gone = Publication::LEAVING | 0xff;
        self.mem.and(self.published(victim), !gone);
        let done = self.move_on(victim, &[NodeState::Recovering], NodeState::Vacant);
        let dropped = self.mem.cas(self.claim_word(victim), claim.word, 0);
        done.and(dropped.map(|_| ()).map_err(|_| Error::Contended))
    }
}
