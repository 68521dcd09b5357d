//! Rows that change entries: map, map from peer, unmap, protect. An edge of a capability table is
//! made and undone by the same rows.

use crate::ops::{EARLY, Next};
use crate::scenario::{Kind, OWNER, Scenario, Weakening as W};
use crate::state::{FRAME, Op, Pte, REFERENCE, State, TABLE, Type};

/// Where map from peer begins.
pub(crate) const LOOK: u8 = 9;

const PIN_TABLE: u8 = 0;
const PIN_FRAME: u8 = 1;
const LOAD: u8 = 2;
const AWAIT: u8 = 3;
const INSTALL: u8 = 4;
const LOOK_AGAIN: u8 = 5;
const UNPIN_FRAME: u8 = 6;
const UNPIN_TABLE: u8 = 7;
const LATE_PINS: u8 = 8;

const CHECK: u8 = 0;
const CLOSE: u8 = 1;
const STAMP: u8 = 2;
const EMPTY: u8 = 3;
const LOG: u8 = 4;
const GIVE_BACK: u8 = 5;
const GIVE_BACK_TABLE: u8 = 6;
const WRITE_BACK: u8 = 7;
const SWAP: u8 = 8;
const LOG_ENTRY: u8 = 10;

impl State {
    pub(crate) fn map(&mut self, c: &Scenario, op: Op) -> Next {
        let e = usize::from(op.entry);
        let owned = e == OWNER;
        let late = c.lacks(W::PinsAfterEntry);
        match op.pc {
            LOOK => match self.entries[OWNER] {
                Pte::Present { contents, .. } => {
                    let next = Op {
                        seen: contents,
                        pc: PIN_FRAME,
                        ..op
                    };
                    ("map from peer: reads its entry", Some(next))
                }
                _ => ("map from peer: it has none", None),
            },
            PIN_TABLE => {
                let t = &mut self.frames[TABLE];
                let frozen = t.ty.is_frozen() && !c.lacks(W::MapIgnoresFrozen);
                if !t.resolves() || frozen {
                    return ("map: table refused", None);
                }
                t.refs += i8::from(!c.lacks(W::P1TableNotPinned) && !late);
                ("map: pins the table", op.to(PIN_FRAME))
            }
            PIN_FRAME => {
                let f = &mut self.frames[FRAME];
                let wanted = if c.edge { Type::Kernel } else { Type::User };
                let ty = if c.lacks(W::MapIgnoresFrozen) {
                    f.ty.thawed()
                } else {
                    f.ty
                };
                let any = op.kind == Kind::MapPeer || c.lacks(W::M1TypeOnly);
                if ty == wanted && (any || f.version == REFERENCE) {
                    f.refs += i8::from(!late);
                    ("map: pins the frame", op.to(LOAD))
                } else if owned {
                    ("map: frame refused", op.to(UNPIN_TABLE))
                } else {
                    ("map: frame refused", None)
                }
            }
            LOAD => match self.entries[e] {
                Pte::Empty(stamp) => {
                    let next = Op {
                        stamp,
                        pc: AWAIT,
                        node: if c.edge { 0 } else { op.entry },
                        ..op
                    };
                    ("map: finds an empty entry", Some(next))
                }
                _ => ("map: entry in use", op.to(UNPIN_FRAME)),
            },
            AWAIT if c.lacks(W::EmptyNotAwaited) || self.is_quiet(c, op.node.into(), op.stamp) => {
                let next = if c.edge {
                    Some(op.next_node(c, INSTALL))
                } else {
                    op.to(INSTALL)
                };
                ("map: a node has no old translation", next)
            }
            AWAIT => ("map: not quiesced", op.to(UNPIN_FRAME)),
            INSTALL if self.entries[e] == Pte::Empty(op.stamp) => {
                self.entries[e] = Pte::Present {
                    contents: self.frames[FRAME].contents,
                    write: true,
                };
                self.sealed = false;
                let owner = &self.nodes[e];
                self.doubled |= owner.cpus.iter().any(|cpu| cpu.tlb.is_some())
                    || owner.line.is_some_and(Pte::is_present);
                let look = op.kind == Kind::MapPeer && !c.lacks(W::A2NoSecondLook);
                let next = match (look, late) {
                    (true, _) => op.to(LOOK_AGAIN),
                    (_, true) => op.to(LATE_PINS),
                    _ => None,
                };
                ("map: installs the entry", next)
            }
            INSTALL => ("map: loses the entry", op.to(UNPIN_FRAME)),
            LOOK_AGAIN => match self.entries[OWNER] {
                Pte::Present { contents, .. } if contents == op.seen => {
                    ("map from peer: nothing has changed", None)
                }
                _ => {
                    let undo = Op {
                        kind: Kind::Unmap,
                        pc: CHECK,
                        node: 0,
                        ..op
                    };
                    ("map from peer: undoes it", Some(undo))
                }
            },
            LATE_PINS => {
                self.frames[FRAME].refs += 1;
                self.frames[TABLE].refs += 1;
                ("map: pins late", None)
            }
            UNPIN_FRAME => {
                self.frames[FRAME].refs -= i8::from(!late);
                let next = if owned { op.to(UNPIN_TABLE) } else { None };
                ("map: gives the frame back", next)
            }
            _ => {
                self.frames[TABLE].refs -= i8::from(!c.lacks(W::P1TableNotPinned) && !late);
                ("map: gives the table back", None)
            }
        }
    }

    pub(crate) fn unmap(&mut self, c: &Scenario, op: Op, n: usize) -> Next {
        let e = usize::from(op.entry);
        let late_log = c.lacks(W::LogAfterReference);
        let closing = Pte::Closing(n as u8);
        let private = c.private_entries();
        let unpin_first = c.lacks(W::UnpinBeforeClosing);
        match op.pc {
            EARLY => {
                let next = Op {
                    stamp: self.epoch,
                    pc: CHECK,
                    node: 1,
                    ..op
                };
                ("unmap: takes its stamp early", Some(next))
            }
            CHECK => {
                let table = e == OWNER && self.frames[TABLE].ty.is_frozen();
                let frozen = self.frames[FRAME].ty.is_frozen() || table;
                if frozen && !c.lacks(W::UnmapIgnoresFrozen) {
                    // Whoever unmaps from all tables begins again later.
                    return ("unmap: frozen", None);
                }
                if unpin_first && self.entries[e].is_present() {
                    self.frames[FRAME].refs -= 1;
                }
                ("unmap: not frozen", op.to(CLOSE))
            }
            CLOSE => {
                let seen = match private {
                    Some(_) => *self.nodes[n].line.get_or_insert(self.entries[e]),
                    None => self.entries[e],
                };
                if !seen.is_present() {
                    return ("unmap: nothing there", self.after_unmap(c, op));
                }
                let next = match private {
                    Some(true) => op.to(WRITE_BACK),
                    _ if c.lacks(W::UnmapBySwap) => return ("unmap: looks", op.to(SWAP)),
                    None if c.incoherent && !c.lacks(W::EntryLoggedLate) => op.to(LOG_ENTRY),
                    _ if op.node == 1 => op.to(EMPTY),
                    _ => op.to(STAMP),
                };
                if private.is_some() {
                    self.nodes[n].line = Some(closing);
                    self.nodes[n].dirty = true;
                } else {
                    self.entries[e] = closing;
                }
                self.sealed = false;
                ("unmap: closes the entry", next)
            }
            SWAP => {
                self.entries[e] = closing;
                ("unmap: swaps the entry", op.to(STAMP))
            }
            LOG_ENTRY => {
                self.log_entry(c, e);
                let next = if op.node == 1 { EMPTY } else { STAMP };
                ("unmap: logs the entry", op.to(next))
            }
            WRITE_BACK => {
                self.entries[e] = closing;
                self.nodes[n].dirty = false;
                ("unmap: writes back", op.to(STAMP))
            }
            STAMP => {
                let next = Op {
                    stamp: self.epoch,
                    pc: EMPTY,
                    ..op
                };
                ("unmap: takes its stamp", Some(next))
            }
            EMPTY => {
                if private.is_some() {
                    self.nodes[n].line = Some(Pte::Empty(op.stamp));
                    self.nodes[n].dirty = false;
                    self.entries[e] = Pte::Empty(op.stamp);
                } else if self.entries[e] == closing {
                    self.entries[e] = Pte::Empty(op.stamp);
                }
                let next = if late_log { GIVE_BACK } else { LOG };
                ("unmap: empties the entry", op.to(next))
            }
            LOG => {
                // What an edge led to is logged when it is given up.
                if !c.edge {
                    self.log_frame();
                }
                if c.lacks(W::EntryLoggedLate) {
                    self.log_entry(c, e);
                }
                let next = if late_log {
                    self.after_unpin(c, op)
                } else {
                    op.to(GIVE_BACK)
                };
                ("unmap: logs the frame", next)
            }
            GIVE_BACK => {
                self.frames[FRAME].refs -= i8::from(!unpin_first);
                let next = if late_log {
                    op.to(LOG)
                } else {
                    self.after_unpin(c, op)
                };
                ("unmap: gives the frame back", next)
            }
            _ => {
                self.frames[TABLE].refs -= i8::from(!c.lacks(W::P1TableNotPinned));
                ("unmap: gives the table back", self.after_unmap(c, op))
            }
        }
    }

    fn after_unpin(&mut self, c: &Scenario, op: Op) -> Option<Op> {
        if usize::from(op.entry) == OWNER {
            op.to(GIVE_BACK_TABLE)
        } else {
            self.after_unmap(c, op)
        }
    }

    /// On to the other table, if the page is to be unmapped from all.
    fn after_unmap(&mut self, c: &Scenario, op: Op) -> Option<Op> {
        if op.kind != Kind::UnmapAll {
            return None;
        }
        let first = if c.lacks(W::A2PeersFirst) { 0 } else { OWNER };
        if usize::from(op.entry) != first {
            self.gone = true;
            return None;
        }
        let other = (1 - first) as u8;
        Some(Op {
            entry: other,
            pc: CHECK,
            node: 0,
            ..op
        })
    }

    pub(crate) fn protect(&mut self, c: &Scenario, op: Op) -> Next {
        let e = usize::from(op.entry);
        let narrow = |contents| Pte::Present {
            contents,
            write: false,
        };
        match op.pc {
            EARLY => {
                let next = Op {
                    stamp: self.epoch,
                    pc: 0,
                    node: 1,
                    ..op
                };
                ("protect: takes its stamp early", Some(next))
            }
            0 => match self.entries[e] {
                Pte::Present {
                    contents,
                    write: true,
                } => {
                    if c.lacks(W::ProtectByStore) {
                        let next = Op {
                            seen: contents,
                            pc: 4,
                            ..op
                        };
                        return ("protect: loads the entry", Some(next));
                    }
                    self.entries[e] = narrow(contents);
                    let next = match (c.incoherent && !c.lacks(W::EntryLoggedLate), op.node == 1) {
                        (true, _) => 3,
                        (_, true) => 2,
                        _ => 1,
                    };
                    ("protect: narrows the entry", op.to(next))
                }
                _ => ("protect: nothing to narrow", None),
            },
            1 => {
                let next = Op {
                    stamp: self.epoch,
                    pc: 2,
                    ..op
                };
                ("protect: takes its stamp", Some(next))
            }
            2 => {
                let quiet = self.is_quiet(c, e, op.stamp) || c.lacks(W::ProtectCountsAtOnce);
                if !quiet {
                    return ("protect: does not count yet", None);
                }
                self.sealed |= matches!(self.entries[e], Pte::Present { write: false, .. });
                ("protect: counts", None)
            }
            3 => {
                self.log_entry(c, e);
                (
                    "protect: logs the entry",
                    op.to(if op.node == 1 { 2 } else { 1 }),
                )
            }
            _ => {
                self.entries[e] = narrow(op.seen);
                ("protect: stores the entry", op.to(1))
            }
        }
    }
}
