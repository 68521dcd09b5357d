//! CPUs that fall asleep and wake up. The crate's header has the states.
//!
//! | step | order | otherwise |
//! |---|---|---|
//! | all of the caches, then TLB, then the CAS that clears the bit | in this order | reuse under stale copies |
//! | the CAS, fence, then the last look for work | both before halting | sleeps through work |
//! | wake: set the bit, fence, then the first use | before any use | reuse under a running CPU |

use dyad_abi::{CpuId, NodeId};
use dyad_coherence::GlobalMem;

use crate::round::{Dropping, NodeHardware, Round, State};
use crate::words::{Publication, Quiescence};

/// The outcome of a step of falling asleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// All steps are used up; call again, unless there is work.
    Working,
    /// Another CPU fell asleep or woke up meanwhile; call again, unless there is work.
    Contended,
    /// There is work; the CPU is awake.
    Work,
    /// The CPU is asleep: it must halt, and touch nothing shared before
    /// [`wake`](Quiescence::wake).
    Asleep,
}

impl Round {
    /// Lets this CPU fall asleep, by at most `steps` steps. `work` is called after the node has published
    /// that the CPU sleeps. Between calls the CPU stays in the kernel and reads shared words only at memory;
    /// if it uses any others, [`stay`](Round::stay) makes it start over. A round under way is abandoned if
    /// this is the last CPU.
    pub fn idle_step<M: GlobalMem>(
        &mut self,
        q: &Quiescence<'_, M>,
        hardware: &impl NodeHardware,
        cpu: CpuId,
        steps: u32,
        work: impl FnOnce() -> bool,
    ) -> Idle {
        let at = q.published(self.node);
        let mine = Publication::bit(cpu);
        for _ in 0..steps {
            match self.state {
                State::Leaving {
                    drop: Dropping::Done,
                } => {
                    hardware.flush_tlb();
                    let seen = q.publication(self.node).bits();
                    let alone = seen & (Publication::LEAVING | 0xff) == Publication::LEAVING | mine;
                    self.state = State::Quiet;
                    let gone = seen & !(Publication::LEAVING | mine);
                    if !alone || q.mem.cas(at, seen, gone).is_err() {
                        return Idle::Contended;
                    }
                    return q.recheck(self.node, cpu, work);
                }
                State::Leaving { drop } => self.leave_step(hardware, drop),
                _ => {
                    hardware.detach();
                    if q.publication(self.node).awake() as u64 != mine {
                        return q.idle_beside_others(self.node, cpu, hardware, work);
                    }
                    q.mem.or(at, Publication::LEAVING);
                    self.leave();
                }
            }
        }
        Idle::Working
    }

    /// Ends an attempt to fall asleep because there is work.
    pub fn stay(&mut self) {
        if matches!(self.state, State::Leaving { .. }) {
            self.state = State::Quiet;
        }
    }
}

impl<M: GlobalMem> Quiescence<'_, M> {
    /// Falls asleep without the node's [`Round`], which another CPU has: then this is not the
    /// last one awake. [`Idle::Contended`] if it is, or if others fall asleep or wake up.
    pub fn idle_beside_others(
        &self,
        node: NodeId,
        cpu: CpuId,
        hardware: &impl NodeHardware,
        work: impl FnOnce() -> bool,
    ) -> Idle {
        let mine = Publication::bit(cpu);
        hardware.detach();
        hardware.flush_tlb();
        self.mem.fence();
        let seen = self.publication(node).bits();
        let others = seen & 0xff & !mine;
        let gone = seen & !(Publication::LEAVING | mine);
        if others == 0 || self.mem.cas(self.published(node), seen, gone).is_err() {
            return Idle::Contended;
        }
        self.recheck(node, cpu, work)
    }

    /// The last look for work, after others have been told that this CPU sleeps.
    fn recheck(&self, node: NodeId, cpu: CpuId, work: impl FnOnce() -> bool) -> Idle {
        self.mem.fence();
        if work() {
            self.wake(node, cpu);
            return Idle::Work;
        }
        Idle::Asleep
    }

    /// Takes this CPU back into the protocol, before it uses anything shared.
    pub fn wake(&self, node: NodeId, cpu: CpuId) {
        self.mem.or(self.published(node), Publication::bit(cpu));
        self.mem.fence();
    }
}
