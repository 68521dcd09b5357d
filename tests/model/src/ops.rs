//! The rows of operations, one shared access per step.

use crate::state::{Kind, Op, Pte, REFERENCE, Scenario, Slot, State, Type, Weakening as W};
use crate::step::Out;

/// Where weakened rows begin that take their stamp first.
const EARLY: u8 = 9;

impl Op {
    pub(crate) fn start(kind: Kind, c: &Scenario) -> Op {
        let early = kind == Kind::ToUntyped && c.lacks(W::A1dStampBeforeRetyping)
            || kind == Kind::Deactivate && c.lacks(W::C1bSlotStampBeforeClosing);
        let late = kind == Kind::Activate && c.lacks(W::S3CheckBeforeReserve);
        Op {
            kind,
            pc: if early {
                EARLY
            } else if late {
                1
            } else {
                0
            },
            stamp: 0,
            seen: 0,
            node: 0,
        }
    }
}

impl State {
    pub(crate) fn op_step(&self, c: &Scenario, op: Op, out: &mut Out<'_>) {
        let (mut s, n, k) = (*self, out.node, out.cpu);
        let (what, next) = match op.kind {
            Kind::Map => s.map(c, op),
            Kind::Unmap => s.unmap(c, op, n as u8),
            Kind::ToUntyped => s.untype(op, n as u8),
            Kind::ToKernel | Kind::ToUser => s.retype(c, op, n),
            Kind::Read => s.read(op),
            Kind::Dispatch => {
                if s.ty == Type::Kernel && s.version == REFERENCE {
                    s.nodes[n].cpus[k].current = s.contents + 1;
                }
                ("dispatch", None)
            }
            Kind::Activate => s.activate(c, op, n as u8),
            Kind::Deactivate => s.deactivate(op, n as u8),
            Kind::Lookup => s.lookup(op),
            Kind::Recover => unreachable!("has steps of its own"),
        };
        let cpu = &mut s.nodes[n].cpus[k];
        cpu.op = next;
        cpu.intent = next.map(|op| op.kind).filter(|kind| {
            use Kind::{Activate, Deactivate, Map, Unmap};
            matches!(kind, Map | Unmap | Activate | Deactivate)
        });
        out.push(what, s);
    }

    fn map(&mut self, c: &Scenario, op: Op) -> (&'static str, Option<Op>) {
        let to = |pc| Some(Op { pc, ..op });
        match op.pc {
            0 if self.ty == Type::User && self.version == REFERENCE => {
                self.refs += 1;
                ("map: pins the frame", to(1))
            }
            0 => ("map: refused", None),
            1 => match self.pte {
                Pte::Empty(stamp) => {
                    let found = Op { stamp, pc: 2, ..op };
                    ("map: finds an empty entry", Some(found))
                }
                _ => ("map: entry in use", to(4)),
            },
            2 if self.is_quiet(c, crate::state::OWNER, op.stamp) => {
                ("map: the old translation is gone", to(3))
            }
            2 => ("map: not quiesced", to(4)),
            3 if self.pte == Pte::Empty(op.stamp) => {
                self.pte = Pte::Present(self.contents);
                ("map: installs the entry", None)
            }
            3 => ("map: loses the entry", to(4)),
            _ => {
                self.refs -= 1;
                ("map: gives the frame back", None)
            }
        }
    }

    fn unmap(&mut self, c: &Scenario, op: Op, n: u8) -> (&'static str, Option<Op>) {
        let to = |pc| Some(Op { pc, ..op });
        let late_log = c.lacks(W::LogAfterReference);
        match op.pc {
            0 if self.ty == Type::Frozen => ("unmap: frozen", None),
            0 => ("unmap: not frozen", to(1)),
            1 => match self.pte {
                Pte::Present(_) => {
                    self.pte = Pte::Closing(n);
                    ("unmap: closes the entry", to(2))
                }
                _ => ("unmap: nothing there", None),
            },
            2 => {
                let stamp = self.epoch;
                ("unmap: takes its stamp", Some(Op { stamp, pc: 3, ..op }))
            }
            3 => {
                if self.pte == Pte::Closing(n) {
                    self.pte = Pte::Empty(op.stamp);
                }
                let next = if late_log { 5 } else { 4 };
                ("unmap: empties the entry", to(next))
            }
            4 => {
                self.log_frame();
                let next = if late_log { None } else { to(5) };
                ("unmap: logs the frame", next)
            }
            _ => {
                self.refs -= 1;
                let next = if late_log { to(4) } else { None };
                ("unmap: gives the frame back", next)
            }
        }
    }

    /// The frame is in the logs, for every node.
    pub(crate) fn log_frame(&mut self) {
        for node in &mut self.nodes {
            node.logged = true;
        }
    }

    fn untype(&mut self, op: Op, n: u8) -> (&'static str, Option<Op>) {
        let early = op.node == 1;
        match op.pc {
            EARLY => {
                let stamp = self.epoch;
                let next = Op {
                    stamp,
                    pc: 0,
                    node: 1,
                    ..op
                };
                ("to untyped: takes its stamp early", Some(next))
            }
            0 if matches!(self.ty, Type::User | Type::Kernel) && self.refs == 0 => {
                self.ty = Type::Retyping(n);
                let pc = if early { 2 } else { 1 };
                ("to untyped: takes the frame", Some(Op { pc, ..op }))
            }
            0 => ("to untyped: refused", None),
            1 => {
                let stamp = self.epoch;
                let next = Op { stamp, pc: 2, ..op };
                ("to untyped: takes its stamp", Some(next))
            }
            2 => {
                self.w1 = self.w1.max(op.stamp);
                ("to untyped: stamps the frame", Some(Op { pc: 3, ..op }))
            }
            _ => {
                if self.ty == Type::Retyping(n) {
                    self.ty = Type::Untyped;
                    self.version += 1;
                }
                ("to untyped: done", None)
            }
        }
    }

    fn retype(&mut self, c: &Scenario, op: Op, n: usize) -> (&'static str, Option<Op>) {
        let mine = Type::Retyping(n as u8);
        match op.pc {
            0 if self.ty == Type::Untyped => {
                let seen = self.version;
                let next = Op { seen, pc: 1, ..op };
                ("from untyped: loads w0", Some(next))
            }
            0 => ("from untyped: refused", None),
            1 => {
                let stamp = self.w1;
                let next = Op { stamp, pc: 2, ..op };
                ("from untyped: loads w1", Some(next))
            }
            2 if self.is_quiet(c, op.node.into(), op.stamp) => {
                ("from untyped: a node is quiet", Some(op.next_node(c, 3)))
            }
            2 => ("from untyped: not quiesced", None),
            3 if self.ty == Type::Untyped && self.version == op.seen => {
                self.ty = mine;
                ("from untyped: takes the frame", Some(Op { pc: 4, ..op }))
            }
            3 => ("from untyped: loses the frame", None),
            4 => {
                self.contents += 1;
                self.nodes[n].data = None;
                ("from untyped: initialises", Some(Op { pc: 5, ..op }))
            }
            _ => {
                if self.ty == mine {
                    self.ty = if op.kind == Kind::ToKernel {
                        Type::Kernel
                    } else {
                        Type::User
                    };
                }
                ("from untyped: done", None)
            }
        }
    }

    fn read(&self, op: Op) -> (&'static str, Option<Op>) {
        match op.pc {
            0 if self.ty == Type::Kernel && self.version == REFERENCE => {
                let seen = self.contents;
                let next = Op { seen, pc: 1, ..op };
                ("read: resolves a reference", Some(next))
            }
            0 => ("read: reference is stale", None),
            _ => ("read: uses it, leaves the kernel", None),
        }
    }

    fn activate(&mut self, c: &Scenario, op: Op, n: u8) -> (&'static str, Option<Op>) {
        let late = c.lacks(W::S3CheckBeforeReserve);
        let to = |pc| Some(Op { pc, ..op });
        match op.pc {
            0 if self.slot == Slot::Free => {
                self.slot = Slot::Reserved(n);
                ("activate: reserves", to(if late { 3 } else { 1 }))
            }
            0 => ("activate: slot in use", None),
            1 if late && self.slot != Slot::Free => ("activate: slot in use", None),
            1 => {
                let stamp = self.slot_epoch;
                let next = Op { stamp, pc: 2, ..op };
                ("activate: loads the epoch", Some(next))
            }
            2 if self.is_quiet(c, op.node.into(), op.stamp) => {
                let then = if late { 0 } else { 3 };
                ("activate: a node is quiet", Some(op.next_node(c, then)))
            }
            2 => {
                if !late {
                    self.slot = Slot::Free;
                }
                ("activate: not quiesced", None)
            }
            3 => {
                self.filled += 1;
                ("activate: fills the slot", to(4))
            }
            _ => {
                self.slot = Slot::Active;
                ("activate: done", None)
            }
        }
    }

    fn deactivate(&mut self, op: Op, n: u8) -> (&'static str, Option<Op>) {
        let early = op.node == 1;
        match op.pc {
            EARLY => {
                let stamp = self.epoch;
                let next = Op {
                    stamp,
                    pc: 0,
                    node: 1,
                    ..op
                };
                ("deactivate: takes its stamp early", Some(next))
            }
            0 if self.slot == Slot::Active => {
                self.slot = Slot::Closing(n);
                let pc = if early { 2 } else { 1 };
                ("deactivate: closes", Some(Op { pc, ..op }))
            }
            0 => ("deactivate: not active", None),
            1 => {
                let stamp = self.epoch;
                let next = Op { stamp, pc: 2, ..op };
                ("deactivate: takes its stamp", Some(next))
            }
            2 => {
                self.slot_epoch = op.stamp;
                ("deactivate: stamps the slot", Some(Op { pc: 3, ..op }))
            }
            _ => {
                self.slot = Slot::Free;
                ("deactivate: done", None)
            }
        }
    }

    fn lookup(&self, op: Op) -> (&'static str, Option<Op>) {
        match op.pc {
            0 if self.slot == Slot::Active => {
                let seen = self.filled;
                let next = Op { seen, pc: 1, ..op };
                ("lookup: finds it active", Some(next))
            }
            0 => ("lookup: not active", None),
            _ => ("lookup: reads it, leaves the kernel", None),
        }
    }
}

impl Op {
    /// On to the next node, or to `pc` after the last.
    pub(crate) fn next_node(self, c: &Scenario, pc: u8) -> Op {
        if usize::from(self.node) + 1 == c.nodes {
            Op {
                pc,
                node: 0,
                ..self
            }
        } else {
            Op {
                node: self.node + 1,
                ..self
            }
        }
    }
}
