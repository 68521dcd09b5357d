//! What can happen next: rounds, idleness, the MMU, crashes and joins. Operations are in `ops`,
//! recovery in `recovery`.

use crate::model::{Action, Step};
use crate::scenario::{CPUS, Kind, NODES, OWNER, Scenario, Weakening as W};
use crate::state::{FRAME, Life, Node, Op, Phase, Pte, Round, State, Translation};

/// Collects what can happen next.
pub(crate) struct Out<'a> {
    pub next: &'a mut Vec<Action>,
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
        self.next.push(Action::new(step, s));
    }
}

impl State {
    pub(crate) fn successors(&self, c: &Scenario, next: &mut Vec<Action>) {
        next.clear();
        for node in (0..c.nodes).filter(|n| c.stalled >> n & 1 == 0) {
            for cpu in 0..c.cpus_of(node) {
                let mut out = Out { next, node, cpu };
                self.cpu_steps(c, &mut out);
            }
            let mut out = Out { next, node, cpu: 0 };
            self.round_steps(c, &mut out);
            self.line_steps(c, &mut out);
            self.join_steps(c, &mut out);
        }
        for node in 0..c.nodes {
            let mut out = Out { next, node, cpu: 0 };
            self.crash(c, &mut out);
            self.suspicion(c, &mut out);
        }
    }

    /// Whether a node counts as quiet since a stamp.
    pub(crate) fn is_quiet(&self, c: &Scenario, node: usize, stamp: u8) -> bool {
        let n = &self.nodes[node];
        n.life != Life::Live
            || n.awake == 0
            || n.published > stamp
            || n.suspect && c.lacks(W::SuspectsDoNotCount)
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
        let outside = cpu.op.is_none_or(Op::waits_outside) || c.lacks(W::AcknowledgeInKernel);
        if outside && cpu.phase == Phase::Up && node.request > cpu.acknowledged {
            let mut s = *self;
            let mine = &mut s.nodes[n].cpus[k];
            if !self.frames[FRAME].resolves() && !c.lacks(W::B2NoRevalidation) {
                mine.current = 0;
            }
            mine.tlb = None;
            mine.acknowledged = node.request;
            out.push("acknowledges", s);
        }
        match cpu.op {
            Some(op) if op.kind == Kind::Recover => self.recovery_step(c, op, out),
            Some(op) => self.op_step(c, op, out),
            None if matches!(node.life, Life::Live | Life::Joining) => {
                if self.ops < c.ops && cpu.phase == Phase::Up {
                    for &kind in c.kinds.iter().filter(|&&kind| c.may_start(n, kind)) {
                        let mut s = *self;
                        s.ops += 1;
                        // The first step goes with the decision: nothing shared lies between.
                        s.op_step(c, Op::start(kind, c), out);
                    }
                }
                if node.life == Life::Live && cpu.phase == Phase::Up {
                    self.start_recovery(c, out);
                }
            }
            None => {}
        }
    }

    fn mmu_steps(&self, c: &Scenario, out: &mut Out<'_>) {
        let (n, k) = (out.node, out.cpu);
        let Some(&entry) = self.entries.get(n).filter(|_| !c.edge) else {
            return;
        };
        let tlb = self.nodes[n].cpus[k].tlb;
        if tlb.is_none() {
            let mut s = *self;
            let found = if c.incoherent {
                *s.nodes[n].line.get_or_insert(entry)
            } else {
                entry
            };
            if let Pte::Present { contents, write } = found {
                s.nodes[n].cpus[k].tlb = Some(Translation { contents, write });
                out.push("MMU fills the TLB", s);
            }
        }
        if c.incoherent && tlb.is_some() && self.nodes[n].data.is_none() {
            let mut s = *self;
            s.nodes[n].data = Some(self.frames[FRAME].memory);
            out.push("user code touches the page", s);
        }
    }

    /// What only happens to lines where a weakening makes them newer than memory.
    fn line_steps(&self, c: &Scenario, out: &mut Out<'_>) {
        let n = out.node;
        let node = &self.nodes[n];
        let hardware = c.lacks(W::I6AccessedNotPreset);
        if !hardware && c.private_entries().is_none() {
            return;
        }
        if hardware && node.line.is_some_and(Pte::is_present) && !node.dirty {
            let mut s = *self;
            s.nodes[n].dirty = true;
            out.push("MMU sets a bit in its line of the entry", s);
        }
        if node.line.is_some() {
            let mut s = *self;
            s.drop_line(n);
            out.push("the line of the entry is evicted", s);
        }
    }

    /// First part of a round: the lines of entries and slots that logs name.
    fn drop_logged(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        if node.entry_logged {
            self.drop_line(n);
        }
        let node = &mut self.nodes[n];
        if node.slot_logged {
            node.slot = None;
        }
        (node.entry_logged, node.slot_logged) = (false, false);
        node.taken |= node.logged;
        node.logged = false;
    }

    fn drop_line(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        if let Some(line) = node.line.take()
            && node.dirty
        {
            self.entries[OWNER] = line;
        }
        node.dirty = false;
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
                let mine = &mut s.nodes[n];
                mine.asked = 0;
                if c.tlb_first() {
                    mine.round = Round::Early(e);
                    mine.request = e;
                    mine.asked = mine.awake;
                } else {
                    mine.round = Round::Lines(e);
                }
                if c.lacks(W::AsksBeforeLines) {
                    mine.asked = mine.awake;
                }
                out.push("round: takes an epoch", s);
            }
            Round::Lines(e) => {
                let mut s = *self;
                s.drop_logged(n);
                let mine = &mut s.nodes[n];
                if mine.taken && c.lacks(W::FramesBeforeTlb) {
                    mine.data = None;
                    mine.taken = false;
                }
                mine.request = e;
                mine.round = Round::Waiting(e);
                if !c.lacks(W::AsksBeforeLines) {
                    mine.asked = mine.awake;
                }
                out.push("round: drops lines, asks CPUs", s);
            }
            Round::Waiting(e) | Round::Early(e) => {
                self.see_who_is_past(n, e, out);
                if !self.all_acknowledged(c, n, e) {
                    return;
                }
                let mut s = *self;
                if matches!(node.round, Round::Early(_)) {
                    s.drop_logged(n);
                }
                let mine = &mut s.nodes[n];
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
        let mut asked = (0..CPUS).filter(|k| node.asked >> k & 1 != 0);
        let past = |k: usize| self.is_past(n, k, e);
        if c.lacks(W::OneCpuAcknowledges) {
            asked.any(past)
        } else {
            asked.all(past)
        }
    }

    /// Whether a CPU has acknowledged, or sleeps.
    fn is_past(&self, n: usize, k: usize, e: u8) -> bool {
        let node = &self.nodes[n];
        node.awake >> k & 1 == 0 || node.cpus[k].acknowledged >= e
    }

    /// The round looks at one CPU after the other. What the last one does is part of publishing.
    fn see_who_is_past(&self, n: usize, e: u8, out: &mut Out<'_>) {
        let asked = self.nodes[n].asked;
        if asked.count_ones() < 2 {
            return;
        }
        for k in (0..CPUS).filter(|k| asked >> k & 1 != 0) {
            if self.is_past(n, k, e) {
                let mut s = *self;
                s.nodes[n].asked &= !(1 << k);
                out.push("round: sees that a CPU is past the request", s);
            }
        }
    }

    fn idle_steps(&self, c: &Scenario, out: &mut Out<'_>) {
        let (n, k) = (out.node, out.cpu);
        if c.idle >> n & c.idle_cpus >> k & 1 == 0 {
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
                    mine.cpus[k].tlb = None;
                    mine.cpus[k].phase = Phase::Leaving;
                    mine.leaving = true;
                    mine.round = Round::Quiet;
                    out.push("idle: the last one", s);
                } else {
                    mine.cpus[k].tlb = None;
                    mine.cpus[k].phase = Phase::Asleep;
                    mine.awake &= !bit;
                    mine.leaving = false;
                    out.push("idle: sleeps beside others", s);
                }
            }
            Phase::Leaving => {
                if !c.lacks(W::Z3IdleWithoutCacheFlush) {
                    // Everything, not what logs name: others may unmap it while this node sleeps.
                    (mine.line, mine.data, mine.slot) = (None, None, None);
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
                if c.lacks(W::WakePublishes) {
                    mine.published = self.epoch;
                }
                if c.lacks(W::WakeAcknowledges) {
                    mine.cpus[k].acknowledged = self.epoch;
                }
                out.push("wakes, withdraws", s);
            }
            _ => {}
        }
    }

    /// The launcher notices at once: later would be a stall before.
    fn crash(&self, c: &Scenario, out: &mut Out<'_>) {
        let n = out.node;
        let next = c.victims.get(usize::from(self.crashes));
        let lives = matches!(self.nodes[n].life, Life::Live | Life::Joining);
        if next != Some(&(n as u8)) || !lives {
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
        mine.die();
        out.push("dies", s);
    }

    /// Node 1 is suspected, whether it has stopped or not, and trusted again.
    fn suspicion(&self, c: &Scenario, out: &mut Out<'_>) {
        if c.suspicion && out.node == OWNER {
            let mut s = *self;
            s.nodes[OWNER].suspect ^= true;
            let what = if self.nodes[OWNER].suspect {
                "is trusted again"
            } else {
                "is suspected"
            };
            out.push(what, s);
        }
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
            (mine.entry_logged, mine.slot_logged) = (false, false);
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

impl Node {
    fn die(&mut self) {
        (self.line, self.data, self.slot, self.dirty) = (None, None, None, false);
        self.round = Round::Quiet;
        for cpu in &mut self.cpus {
            cpu.phase = Phase::Off;
            cpu.op = None;
            (cpu.tlb, cpu.current) = (None, 0);
        }
    }
}

const _: () = assert!(OWNER < NODES);
