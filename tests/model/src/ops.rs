//! The rows of operations, one shared access per step. Rows never wait: each step leads somewhere
//! whatever other nodes do.

use crate::scenario::{Kind, OWNER, Scenario, Weakening as W};
use crate::state::{FRAME, Op, Pte, Slot, State, TABLE, Type};
use crate::step::Out;

/// Where weakened rows begin that take their stamp first. They then have `node` = 1.
pub(crate) const EARLY: u8 = 12;

/// Where giving up begins if the log comes first.
const EARLY_LOG: u8 = 5;

/// A step's name, and what comes next.
pub(crate) type Next = (&'static str, Option<Op>);

impl Kind {
    /// The frame that rows of this kind retype.
    pub(crate) fn frame(self) -> usize {
        match self {
            Kind::TableToUntyped | Kind::TableToUser => TABLE,
            _ => FRAME,
        }
    }
}

impl Op {
    pub(crate) fn start(kind: Kind, c: &Scenario) -> Op {
        let early = match kind {
            Kind::ToUntyped => W::A1dStampBeforeRetyping,
            Kind::Deactivate => W::C1bSlotStampBeforeClosing,
            Kind::Unmap => W::A1cStampBeforeClosing,
            _ => W::ProtectStampsEarly,
        };
        let may = matches!(
            kind,
            Kind::ToUntyped | Kind::Deactivate | Kind::Unmap | Kind::Protect
        );
        let late = kind == Kind::Activate && c.lacks(W::S3CheckBeforeReserve);
        Op {
            kind,
            pc: if may && c.lacks(early) {
                EARLY
            } else if kind == Kind::ToUntyped && c.lacks(W::GiveUpLogsEarly) {
                EARLY_LOG
            } else if kind == Kind::MapPeer {
                crate::mapping::LOOK
            } else {
                u8::from(late)
            },
            stamp: 0,
            seen: 0,
            node: 0,
            entry: match kind {
                Kind::MapPeer => 0,
                Kind::UnmapAll if c.lacks(W::A2PeersFirst) => 0,
                _ => OWNER as u8,
            },
        }
    }

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

    pub(crate) fn to(self, pc: u8) -> Option<Op> {
        Some(Op { pc, ..self })
    }
}

impl State {
    pub(crate) fn op_step(&self, c: &Scenario, op: Op, out: &mut Out<'_>) {
        let (mut s, n, k) = (*self, out.node, out.cpu);
        let (what, next) = match op.kind {
            Kind::Map | Kind::MapPeer => s.map(c, op),
            Kind::Unmap | Kind::UnmapAll => s.unmap(c, op, n),
            Kind::Protect => s.protect(c, op),
            Kind::ToUntyped | Kind::TableToUntyped => s.untype(c, op, n as u8),
            Kind::ToKernel | Kind::ToUser | Kind::TableToUser => s.retype(c, op, n),
            Kind::Read => s.read(c, op, n),
            Kind::Walk => s.walk(c, op, n),
            Kind::Dispatch => {
                if s.frames[FRAME].resolves() {
                    s.nodes[n].cpus[k].current = s.frames[FRAME].contents + 1;
                }
                ("dispatch", None)
            }
            Kind::Activate => s.activate(c, op, n as u8),
            Kind::Deactivate => s.deactivate(c, op, n as u8),
            Kind::Lookup => s.lookup(c, op, n),
            Kind::Recover => unreachable!("has steps of its own"),
        };
        let version = s.frames[FRAME].version;
        let cpu = &mut s.nodes[n].cpus[k];
        let before = cpu.intent.map_or(version, |(.., v)| v);
        cpu.op = next;
        cpu.intent = next.and_then(|op| {
            use Kind::{Activate, Deactivate, Map, MapPeer, Unmap, UnmapAll};
            use Kind::{ToKernel, ToUntyped, ToUser};
            match op.kind {
                Map | Unmap | MapPeer | UnmapAll | Activate | Deactivate => {
                    Some((op.kind, op.entry, 0))
                }
                ToKernel | ToUntyped | ToUser if c.lacks(W::RecoverWithoutClaim) => {
                    Some((op.kind, 0, before))
                }
                _ => None,
            }
        });
        out.push(what, s);
    }

    /// The frame is in the logs, for every node.
    pub(crate) fn log_frame(&mut self) {
        for node in &mut self.nodes {
            node.logged = true;
        }
    }

    /// Puts the line of an entry into the logs of all nodes that may have a copy.
    pub(crate) fn log_entry(&mut self, c: &Scenario, entry: usize) {
        for (n, node) in self.nodes.iter_mut().enumerate() {
            node.entry_logged |= c.incoherent && (c.edge || n == entry);
        }
    }

    pub(crate) fn log_slot(&mut self, c: &Scenario) {
        for node in &mut self.nodes {
            node.slot_logged |= c.incoherent;
        }
    }

    fn untype(&mut self, c: &Scenario, op: Op, n: u8) -> Next {
        let early = op.node == 1;
        let any = c.lacks(W::GiveUpIgnoresRefs);
        let epoch = self.epoch;
        let f = &mut self.frames[op.kind.frame()];
        match op.pc {
            EARLY => {
                let next = Op {
                    stamp: epoch,
                    pc: 0,
                    node: 1,
                    ..op
                };
                ("to untyped: takes its stamp early", Some(next))
            }
            0 if matches!(f.ty, Type::User | Type::Kernel) && (f.refs == 0 || any) => {
                // Unmap has logged user frames.
                let weak = c.lacks(W::GiveUpWithoutLog) || c.lacks(W::GiveUpLogsEarly);
                let log = f.ty == Type::Kernel && c.incoherent && !weak;
                f.ty = Type::Retyping(n);
                let next = match (log, early) {
                    (true, _) => 1,
                    (false, false) => 2,
                    (false, true) => 3,
                };
                ("to untyped: takes the frame", op.to(next))
            }
            0 => ("to untyped: refused", None),
            1 => {
                self.log_frame();
                let next = if early { 3 } else { 2 };
                ("to untyped: logs the frame", op.to(next))
            }
            2 => {
                let next = Op {
                    stamp: epoch,
                    pc: 3,
                    ..op
                };
                ("to untyped: takes its stamp", Some(next))
            }
            EARLY_LOG => {
                self.log_frame();
                ("to untyped: logs the frame early", op.to(0))
            }
            3 => {
                f.w1 = f.w1.max(op.stamp);
                ("to untyped: stamps the frame", op.to(4))
            }
            _ => {
                if f.ty == Type::Retyping(n) {
                    f.ty = Type::Untyped;
                    f.version += 1;
                }
                ("to untyped: done", None)
            }
        }
    }

    fn retype(&mut self, c: &Scenario, op: Op, n: usize) -> Next {
        let mine = Type::Retyping(n as u8);
        let at = op.kind.frame();
        let frame = self.frames[at];
        let early = c.lacks(W::PublishBeforeWriteBack);
        let stamp_first = c.lacks(W::ClaimLoadsStampFirst);
        let type_only = c.lacks(W::ClaimTypeOnly);
        let quiet = op.pc == 2 && self.is_quiet(c, op.node.into(), op.stamp);
        let f = &mut self.frames[at];
        match op.pc {
            0 if stamp_first && op.node == 0 => {
                let next = Op {
                    stamp: frame.w1,
                    node: 1,
                    ..op
                };
                ("from untyped: loads w1 first", Some(next))
            }
            0 if frame.ty == Type::Untyped => {
                let next = Op {
                    seen: frame.version,
                    pc: if stamp_first { 2 } else { 1 },
                    node: 0,
                    ..op
                };
                ("from untyped: loads w0", Some(next))
            }
            0 => ("from untyped: refused", None),
            1 => {
                let next = Op {
                    stamp: frame.w1,
                    pc: 2,
                    ..op
                };
                ("from untyped: loads w1", Some(next))
            }
            2 if quiet => ("from untyped: a node is quiet", Some(op.next_node(c, 3))),
            2 => ("from untyped: not quiesced", None),
            3 if frame.ty == Type::Untyped && (frame.version == op.seen || type_only) => {
                f.ty = mine;
                ("from untyped: takes the frame", op.to(4))
            }
            3 => ("from untyped: loses the frame", None),
            4 => {
                f.contents += 1;
                if at == FRAME && c.incoherent {
                    self.nodes[n].data = Some(frame.contents + 1);
                } else {
                    f.memory = f.contents;
                }
                let next = if c.incoherent && !early { 5 } else { 6 };
                ("from untyped: initialises", op.to(next))
            }
            5 | 7 => {
                f.memory = f.contents;
                if at == FRAME && !c.lacks(W::WriteBackKeepsLine) {
                    self.nodes[n].data = None;
                }
                let next = if early { None } else { op.to(6) };
                ("from untyped: writes back", next)
            }
            _ => {
                if frame.ty == mine {
                    f.ty = if op.kind == Kind::ToKernel {
                        Type::Kernel
                    } else {
                        Type::User
                    };
                }
                let next = if early { op.to(7) } else { None };
                ("from untyped: done", next)
            }
        }
    }

    fn read(&mut self, c: &Scenario, op: Op, n: usize) -> Next {
        let frame = self.frames[FRAME];
        match op.pc {
            0 if frame.resolves() => {
                let next = Op {
                    seen: frame.contents,
                    pc: 1,
                    ..op
                };
                ("read: resolves a reference", Some(next))
            }
            0 => ("read: reference is stale", None),
            _ => {
                if c.incoherent {
                    self.nodes[n].data.get_or_insert(frame.memory);
                }
                ("read: uses it, leaves the kernel", None)
            }
        }
    }

    /// Goes by this node's copies of the entry and of what it leads to.
    fn walk(&mut self, c: &Scenario, op: Op, n: usize) -> Next {
        let table = self.frames[TABLE];
        let entry = self.entries[OWNER];
        let node = &mut self.nodes[n];
        match op.pc {
            0 if table.resolves() => {
                let next = Op {
                    seen: table.contents,
                    pc: 1,
                    ..op
                };
                ("walk: resolves the table", Some(next))
            }
            0 => ("walk: reference is stale", None),
            1 => match if c.incoherent {
                *node.line.get_or_insert(entry)
            } else {
                entry
            } {
                Pte::Present { contents, .. } => {
                    let next = Op {
                        seen: contents,
                        pc: 2,
                        ..op
                    };
                    ("walk: follows the entry", Some(next))
                }
                _ => ("walk: nothing there", None),
            },
            _ => {
                if c.incoherent {
                    node.data.get_or_insert(self.frames[FRAME].memory);
                }
                ("walk: uses it, leaves the kernel", None)
            }
        }
    }

    fn activate(&mut self, c: &Scenario, op: Op, n: u8) -> Next {
        let late = c.lacks(W::S3CheckBeforeReserve);
        let early = c.lacks(W::ActiveBeforeFill);
        match op.pc {
            0 if self.slot == Slot::Free => {
                self.slot = Slot::Reserved(n);
                // The compare-and-swap leaves no copy.
                self.nodes[usize::from(n)].slot = None;
                ("activate: reserves", op.to(if late { 3 } else { 1 }))
            }
            0 => ("activate: slot in use", None),
            1 if late && self.slot != Slot::Free => ("activate: slot in use", None),
            1 => {
                let stamp = self.slot_epoch;
                let next = Op { stamp, pc: 2, ..op };
                ("activate: loads the epoch", Some(next))
            }
            2 if self.is_quiet(c, op.node.into(), op.stamp) => {
                let then = match (late, early) {
                    (true, _) => 0,
                    (_, true) => 4,
                    _ => 3,
                };
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
                let next = if early { None } else { op.to(4) };
                ("activate: fills the slot", next)
            }
            _ => {
                self.slot = Slot::Active;
                let next = if early { op.to(3) } else { None };
                ("activate: is active", next)
            }
        }
    }

    fn deactivate(&mut self, c: &Scenario, op: Op, n: u8) -> Next {
        let early = op.node == 1;
        let late_log = c.lacks(W::SlotLoggedLate);
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
                let next = match (c.incoherent && !late_log, early) {
                    (true, _) => 4,
                    (_, true) => 2,
                    _ => 1,
                };
                ("deactivate: closes", op.to(next))
            }
            0 => ("deactivate: not active", None),
            1 => {
                let stamp = self.epoch;
                let next = Op { stamp, pc: 2, ..op };
                ("deactivate: takes its stamp", Some(next))
            }
            2 => {
                self.slot_epoch = op.stamp;
                ("deactivate: stamps the slot", op.to(3))
            }
            4 => {
                self.log_slot(c);
                (
                    "deactivate: logs the slot",
                    op.to(if early { 2 } else { 1 }),
                )
            }
            _ => {
                self.slot = Slot::Free;
                if late_log {
                    self.log_slot(c);
                }
                ("deactivate: done", None)
            }
        }
    }

    /// Goes by this node's copy of the slot.
    fn lookup(&mut self, c: &Scenario, op: Op, n: usize) -> Next {
        let now = (self.slot == Slot::Active, self.filled);
        let (active, filled) = if c.incoherent && op.pc == 0 {
            *self.nodes[n].slot.get_or_insert(now)
        } else {
            now
        };
        match op.pc {
            0 if active => {
                let seen = filled;
                let next = Op { seen, pc: 1, ..op };
                ("lookup: finds it active", Some(next))
            }
            0 => ("lookup: not active", None),
            _ => ("lookup: reads it, leaves the kernel", None),
        }
    }
}
