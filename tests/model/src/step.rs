//! What can happen next: rounds, idleness, the MMU, crashes and joins. Operations are in `ops`,
//! recovery in `recovery`.

use crate::checker::Step;
use crate::state::{CPUS, Kind, Life, NODES, OWNER, Op, Phase, REFERENCE, Round, Scenario, State};
use crate::state::{Pte, Type, Weakening as W};

/// Collects what can happen next.
pub(crate) struct Out<'a> {
    pub next: &'a mut Vec<(Step, State)>,
    pub node: usize,
    pub cpu: usize,
}

impl Out<'_> {
    pub(crate) fn push(&mut self, what: &'static str, s: State) {
        let step = Step {
            node: self.node as u8,
            cpu: self.cpu as u8,
            what,
        };
        self.next.push((step, s));
    }
}

impl State {
    pub(crate) fn successors(&self, c: &Scenario, next: &mut Vec<(Step, State)>) {
        next.clear();
        for node in 0..c.nodes {
            for cpu in 0..c.cpus_of(node) {
                let mut out = Out { next, node, cpu };
                self.cpu_steps(c, &mut out);
            }
            let mut out = Out { next, node, cpu: 0 };
            self.round_steps(c, &mut out);
            self.crash(c, &mut out);
            self.join_steps(c, &mut out);
        }
    }

    /// Whether a node counts as quiet since a stamp.
    pub(crate) fn is_quiet(&self, c: &Scenario, node: usize, stamp: u8) -> bool {
        let n = &self.nodes[node];
        n.life != Life::Live
            || n.awake == 0
            || n.published > stamp
            || c.lacks(W::A1bPublishedAsMuch) && n.published == stamp
    }

    fn cpu_steps(&self, c: &Scenario, out: &mut Out<'_>) {
        let (n, k) = (out.node, out.cpu);
        let node = &self.nodes[n];
        let cpu = &node.cpus[k];
        if cpu.phase == Phase::Off {
            return;
        }
        self.idle_steps(c, out);
        if !matches!(cpu.phase, Phase::Up | Phase::Unannounced) {
            return;
        }
        self.mmu_steps(c, out);
        let outside = cpu.op.is_none_or(|op| op.waits_outside());
        if outside && cpu.phase == Phase::Up && node.request > cpu.acknowledged {
            let mut s = *self;
            let current = self.ty == Type::Kernel && self.version == REFERENCE;
            let mine = &mut s.nodes[n].cpus[k];
            if !current && !c.lacks(W::B2NoRevalidation) {
                mine.current = 0;
            }
            mine.tlb = 0;
            mine.acknowledged = node.request;
            out.push("acknowledges", s);
        }
        match cpu.op {
            Some(op) if op.kind == Kind::Recover => self.recovery_step(c, op, out),
            Some(op) => self.op_step(c, op, out),
            None if matches!(node.life, Life::Live | Life::Joining) => {
                let acts = c.actors >> n & 1 != 0 && cpu.phase == Phase::Up;
                if self.ops < c.ops && acts {
                    for &kind in c.kinds {
                        let mut s = *self;
                        s.ops += 1;
                        // The first step goes with the decision: nothing shared lies between.
                        s.op_step(c, Op::start(kind, c), out);
                    }
                }
                if k == 0 && node.life == Life::Live {
                    self.start_recovery(c, out);
                }
            }
            None => {}
        }
    }

    fn mmu_steps(&self, c: &Scenario, out: &mut Out<'_>) {
        let (n, k) = (out.node, out.cpu);
        let tlb = self.nodes[n].cpus[k].tlb;
        if n == OWNER && tlb == 0 {
            let mut s = *self;
            let pte = if c.incoherent {
                *s.nodes[n].line.get_or_insert(self.pte)
            } else {
                self.pte
            };
            if let Pte::Present(g) = pte {
                s.nodes[n].cpus[k].tlb = g + 1;
                out.push("MMU fills the TLB", s);
            }
        }
        if c.incoherent && tlb != 0 && self.nodes[n].data.is_none() {
            let mut s = *self;
            s.nodes[n].data = Some(self.contents);
            out.push("user code touches the page", s);
        }
    }

    fn round_steps(&self, c: &Scenario, out: &mut Out<'_>) {
        let n = out.node;
        let node = &self.nodes[n];
        if node.life != Life::Live || node.awake == 0 {
            return;
        }
        match node.round {
            Round::Quiet if self.epoch < c.last_epoch => {
                let mut s = *self;
                s.epoch += 1;
                let e = s.epoch;
                if c.lacks(W::I5TlbBeforeCache) {
                    s.nodes[n].round = Round::Early(e);
                    s.nodes[n].request = e;
                } else {
                    s.nodes[n].round = Round::Lines(e);
                }
                out.push("round: takes an epoch", s);
            }
            Round::Lines(e) => {
                let mut s = *self;
                let mine = &mut s.nodes[n];
                mine.line = None;
                mine.taken |= mine.logged;
                mine.logged = false;
                if mine.taken && c.lacks(W::FramesBeforeTlb) {
                    mine.data = None;
                    mine.taken = false;
                }
                mine.request = e;
                mine.round = Round::Waiting(e);
                out.push("round: drops lines, asks CPUs", s);
            }
            Round::Waiting(e) | Round::Early(e) if self.all_acknowledged(c, n, e) => {
                let mut s = *self;
                let mine = &mut s.nodes[n];
                if matches!(node.round, Round::Early(_)) {
                    mine.line = None;
                    mine.taken |= mine.logged;
                    mine.logged = false;
                }
                if mine.taken {
                    mine.data = None;
                    mine.taken = false;
                }
                mine.published = mine.published.max(e);
                mine.round = Round::Quiet;
                out.push("round: drops user frames, publishes", s);
            }
            _ => {}
        }
    }

    fn all_acknowledged(&self, c: &Scenario, n: usize, e: u8) -> bool {
        let node = &self.nodes[n];
        let mut awake = (0..CPUS).filter(|k| node.awake >> k & 1 != 0);
        let past = |k: usize| node.cpus[k].acknowledged >= e;
        if c.lacks(W::OneCpuAcknowledges) {
            awake.any(past)
        } else {
            awake.all(past)
        }
    }

    fn idle_steps(&self, c: &Scenario, out: &mut Out<'_>) {
        let (n, k) = (out.node, out.cpu);
        if c.idle >> n & 1 == 0 {
            return;
        }
        let node = &self.nodes[n];
        let bit = 1 << k;
        let mut s = *self;
        let mine = &mut s.nodes[n];
        match node.cpus[k].phase {
            Phase::Up if node.life == Life::Live && node.cpus[k].op.is_none() => {
                mine.cpus[k].current = 0;
                if node.awake == bit {
                    mine.cpus[k].tlb = 0;
                    mine.cpus[k].phase = Phase::Leaving;
                    mine.leaving = true;
                    mine.round = Round::Quiet;
                    out.push("idle: the last one", s);
                } else {
                    mine.cpus[k].tlb = 0;
                    mine.cpus[k].phase = Phase::Asleep;
                    mine.awake &= !bit;
                    mine.leaving = false;
                    out.push("idle: sleeps beside others", s);
                }
            }
            Phase::Leaving => {
                if !c.lacks(W::Z3IdleWithoutCacheFlush) {
                    // Everything, not what logs name: others may unmap it while this node sleeps.
                    (mine.line, mine.data) = (None, None);
                }
                if c.lacks(W::IdleFlushesLoggedOnly) {
                    mine.line = node.line;
                    mine.data = node.data.filter(|_| !node.logged && !node.taken);
                }
                mine.cpus[k].phase = Phase::Flushed;
                out.push("idle: drops all lines", s);
            }
            Phase::Flushed => {
                let visited = !node.leaving && !c.lacks(W::VisitForgotten);
                if node.awake == bit && !visited {
                    mine.awake = 0;
                    mine.leaving = false;
                    mine.cpus[k].phase = Phase::Asleep;
                    out.push("idle: sleeps, nobody is awake", s);
                } else {
                    mine.cpus[k].phase = Phase::Up;
                    out.push("idle: somebody else was awake, starts over", s);
                }
            }
            Phase::Asleep if c.lacks(W::L2UseBeforeWithdrawal) => {
                mine.cpus[k].phase = Phase::Unannounced;
                out.push("runs without having withdrawn", s);
            }
            Phase::Asleep | Phase::Unannounced => {
                mine.awake |= bit;
                mine.cpus[k].phase = Phase::Up;
                if c.lacks(W::WakeAcknowledges) {
                    mine.cpus[k].acknowledged = self.epoch;
                }
                out.push("wakes, withdraws", s);
            }
            _ => {}
        }
    }

    /// Node 0 may die, then the last one; the launcher notices at once.
    fn crash(&self, c: &Scenario, out: &mut Out<'_>) {
        let n = out.node;
        let turn = if self.crashes == 0 { 0 } else { c.nodes - 1 };
        if self.crashes >= c.crashes || n != turn || self.nodes[n].life != Life::Live {
            return;
        }
        let mut s = *self;
        s.crashes += 1;
        let mine = &mut s.nodes[n];
        mine.life = Life::Dead;
        if c.lacks(W::D4DeclaredDeadWhileRunning) {
            out.push("is declared dead and goes on", s);
            return;
        }
        (mine.line, mine.data) = (None, None);
        mine.round = Round::Quiet;
        for cpu in &mut mine.cpus {
            cpu.phase = Phase::Off;
            cpu.op = None;
            (cpu.tlb, cpu.current) = (0, 0);
        }
        out.push("dies", s);
    }

    fn join_steps(&self, c: &Scenario, out: &mut Out<'_>) {
        let n = out.node;
        let node = &self.nodes[n];
        let free = node.life == Life::Vacant || node.life == Life::Dead && c.lacks(W::JoinFromDead);
        let mut s = *self;
        let mine = &mut s.nodes[n];
        if free && self.joins < c.joins {
            s.joins += 1;
            mine.life = Life::Joining;
            mine.awake = 0;
            mine.leaving = false;
            (mine.logged, mine.taken) = (false, false);
            if c.lacks(W::UseBeforeLive) {
                mine.cpus[0].phase = Phase::Up;
            }
            if c.lacks(W::JoinBeforePublication) {
                mine.life = Life::Live;
                mine.cpus[0].phase = Phase::Up;
            }
            out.push("join: takes the place, empty caches", s);
            return;
        }
        let unpublished = node.life == Life::Joining
            || node.life == Life::Live
                && c.lacks(W::JoinBeforePublication)
                && node.cpus[0].phase == Phase::Up;
        if unpublished && node.awake == 0 && self.epoch < c.last_epoch {
            s.epoch += 1;
            mine.published = s.epoch;
            mine.awake = 1;
            out.push("join: publishes", s);
        } else if node.life == Life::Joining && node.awake != 0 {
            mine.life = Life::Live;
            mine.cpus[0].phase = Phase::Up;
            out.push("join: is live", s);
        }
    }
}

const _: () = assert!(OWNER < NODES);
