//! What must hold in every state.

use crate::scenario::{Kind, OWNER, Scenario, Weakening as W};
use crate::state::{FRAME, Frame, Life, Op, Pte, REFERENCE, Slot, State, TABLE, Type};

impl State {
    /// What must never be.
    pub(crate) fn violation(&self, c: &Scenario) -> Option<&'static str> {
        let frame = &self.frames[FRAME];
        for (n, node) in self.nodes.iter().enumerate() {
            for cpu in &node.cpus {
                if let Some(t) = cpu.tlb {
                    if t.contents != frame.contents {
                        return Some("a TLB reaches a frame that was reused");
                    }
                    if t.write && self.sealed && n == OWNER {
                        return Some("a TLB lets write what counts as read-only");
                    }
                }
                if cpu.current != 0 && cpu.current - 1 != frame.contents {
                    return Some("the current thread's frame was reused");
                }
                if let Some(v) = cpu.op.and_then(|op| self.violation_of(n, op)) {
                    return Some(v);
                }
            }
        }
        let stale = |data: Option<u8>| data.is_some_and(|g| g != frame.contents);
        if c.incoherent && self.nodes.iter().any(|n| stale(n.data)) {
            return Some("a cached line has contents from before the reuse");
        }
        let old = |slot: Option<(bool, u8)>| slot.is_some_and(|(on, g)| on && g != self.filled);
        if self.nodes.iter().any(|n| old(n.slot)) {
            return Some("a cached slot has contents from before the reuse");
        }
        if let Some(v) = self
            .entries
            .iter()
            .find_map(|&e| self.entry_violation(c, e))
        {
            return Some(v);
        }
        let table = &self.frames[TABLE];
        if self.entries[OWNER].is_present()
            && !matches!(table.ty, Type::Kernel | Type::FrozenKernel)
        {
            return Some("a live entry is in what was its table");
        }
        if c.incoherent && in_use(frame) && frame.memory != frame.contents {
            return Some("a frame is in use before its contents are in memory");
        }
        if frame.ty == Type::Kernel && frame.version == REFERENCE && frame.contents != REFERENCE {
            return Some("an old reference resolves to a new object");
        }
        if frame.refs < 0 || table.refs < 0 {
            return Some("fewer than no references");
        }
        if self.doubled {
            return Some("an address has two translations");
        }
        self.leak(c)
    }

    fn entry_violation(&self, c: &Scenario, entry: Pte) -> Option<&'static str> {
        let Pte::Present { contents, .. } = entry else {
            return None;
        };
        let frame = &self.frames[FRAME];
        if contents != frame.contents {
            return Some("an entry maps a frame that was reused");
        }
        if contents != REFERENCE {
            return Some("an old capability maps a new frame");
        }
        let right = match frame.ty {
            Type::User | Type::FrozenUser => !c.edge,
            Type::Kernel | Type::FrozenKernel => c.edge,
            _ => false,
        };
        (!right).then_some("an entry maps a frame of another type")
    }

    fn violation_of(&self, n: usize, op: Op) -> Option<&'static str> {
        let mine = Type::Retyping(n as u8);
        match op.kind {
            Kind::Read if op.pc == 1 && op.seen != self.frames[FRAME].contents => {
                Some("an object was reused between check and use")
            }
            Kind::Walk if op.pc == 1 && op.seen != self.frames[TABLE].contents => {
                Some("a table was reused under a walker")
            }
            Kind::Walk if op.pc == 2 && op.seen != self.frames[FRAME].contents => {
                Some("an object was reused between check and use")
            }
            Kind::Lookup if op.pc == 1 && op.seen != self.filled => {
                Some("a slot was filled again under a reader")
            }
            Kind::ToKernel | Kind::ToUser | Kind::TableToUser
                if op.pc >= 4 && op.pc <= 6 && self.frames[op.kind.frame()].ty != mine =>
            {
                Some("a node initialises a frame that it has lost")
            }
            _ => None,
        }
    }

    /// When nothing is in progress and nobody dead, everything is accounted for.
    fn leak(&self, c: &Scenario) -> Option<&'static str> {
        let busy = self.nodes.iter().any(|n| {
            matches!(n.life, Life::Dead | Life::Recovering) || n.cpus.iter().any(|c| c.op.is_some())
        });
        if busy {
            return None;
        }
        let present = |e: usize| i8::from(self.entries[e].is_present());
        if self.frames[FRAME].refs != present(0) + present(OWNER) {
            return Some("references and entries differ when nothing is in progress");
        }
        if self.frames[TABLE].refs != present(OWNER) && !c.lacks(W::P1TableNotPinned) {
            return Some("pins of the table and entries differ when nothing is in progress");
        }
        let closing = |e: &Pte| matches!(e, Pte::Closing(_));
        let stuck = |f: &Frame| matches!(f.ty, Type::Retyping(_)) || f.ty.is_frozen();
        if self.entries.iter().any(closing) || self.frames.iter().any(stuck) {
            return Some("a frame or entry is stuck");
        }
        if matches!(self.slot, Slot::Reserved(_) | Slot::Closing(_)) {
            return Some("a slot is stuck");
        }
        if self.gone && present(0) != 0 && present(OWNER) == 0 {
            return Some("a page is mapped that was unmapped everywhere");
        }
        None
    }
}

fn in_use(frame: &Frame) -> bool {
    matches!(frame.ty, Type::User | Type::Kernel) || frame.ty.is_frozen()
}
