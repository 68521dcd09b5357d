//! The recover row.

use crate::scenario::{CPUS, Kind, OWNER, Scenario, Weakening as W};
use crate::state::{FRAME, Life, Op, Phase, Pte, Slot, State, TABLE, Type};
use crate::step::Out;

const SCAN: u8 = 0;
const STAMP_FRAME: u8 = 1;
const UNTYPE: u8 = 2;
const SCAN_TABLE: u8 = 3;
const FREEZE: u8 = 4;
const FREEZE_TABLE: u8 = 5;
const STAMP: u8 = 6;
const ROUND: u8 = 7;
const CLOSE: u8 = 8;
const LOG: u8 = 9;
const COUNT: u8 = 10;
const WRITE: u8 = 11;
const WRITE_TABLE: u8 = 12;
const THAW: u8 = 13;
const THAW_TABLE: u8 = 14;
const SLOTS: u8 = 15;
const FREE: u8 = 16;
const DONE: u8 = 17;

/// In `seen`: the dead node, and what this recoverer has frozen.
const VICTIM: u8 = 3;
const FROZE: u8 = 4;
const FROZE_TABLE: u8 = 8;

const MAPPINGS: [Kind; 4] = [Kind::Map, Kind::Unmap, Kind::MapPeer, Kind::UnmapAll];

impl Op {
    /// Whether the CPU is outside of the kernel between steps: a recoverer that waits for a round
    /// must not keep its own node from one.
    pub(crate) fn waits_outside(self) -> bool {
        self.kind == Kind::Recover && self.pc == ROUND
    }
}

impl State {
    /// Claims a dead node, or takes over the claim of a recoverer that is dead itself.
    pub(crate) fn start_recovery(&self, c: &Scenario, out: &mut Out<'_>) {
        for d in 0..c.nodes {
            let life = self.nodes[d].life;
            let dead = matches!(life, Life::Dead | Life::Recovering);
            if !dead || d == out.node || !self.may_claim(c, d, out.node) {
                continue;
            }
            let mut s = *self;
            s.nodes[d].life = Life::Recovering;
            s.nodes[d].claim = (out.node * CPUS + out.cpu) as u8 + 1;
            let op = Op {
                kind: Kind::Recover,
                pc: SCAN,
                stamp: self.intended_version(d),
                seen: d as u8,
                node: 0,
                entry: 0,
            };
            s.nodes[out.node].cpus[out.cpu].op = Some(op);
            out.push("recover: claims the node", s);
        }
    }

    /// One CPU of the system recovers at a time: the word does not say who has frozen a frame.
    fn may_claim(&self, c: &Scenario, victim: usize, by: usize) -> bool {
        !(0..c.nodes).any(|d| {
            let Some(holder) = self.nodes[d].claim.checked_sub(1).map(usize::from) else {
                return false;
            };
            let (node, cpu) = (holder / CPUS, holder % CPUS);
            let busy = self.nodes[node].life == Life::Live
                && self.nodes[node].cpus[cpu].op.is_some_and(|op| {
                    op.kind == Kind::Recover && usize::from(op.seen & VICTIM) == d
                });
            let excludes = match c.weakening {
                Some(W::RecoverWithoutClaim) => false,
                Some(W::ClaimPerVictim) => d == victim,
                Some(W::ClaimPerNode) => node != by,
                _ => true,
            };
            busy && excludes
        })
    }

    fn intends(&self, d: usize, kinds: &[Kind]) -> bool {
        let mut intents = self.nodes[d].cpus.iter().filter_map(|cpu| cpu.intent);
        intents.any(|(kind, ..)| kinds.contains(&kind))
    }

    /// Version + 1 of the frame that the victim was retyping, if its intents say so.
    fn intended_version(&self, d: usize) -> u8 {
        let intents = self.nodes[d].cpus.iter().filter_map(|cpu| cpu.intent);
        let mut retypes = intents.filter(|(kind, ..)| !MAPPINGS.contains(kind));
        retypes.next().map_or(0, |(.., version)| version + 1)
    }

    /// Whether the frame is what the victim was retyping. Without claims, recoverers compare the
    /// version that they have read in its intent.
    fn is_lost(&self, c: &Scenario, op: Op) -> bool {
        let f = &self.frames[FRAME];
        let intended = !c.lacks(W::RecoverWithoutClaim) || op.stamp == f.version + 1;
        f.ty == Type::Retyping(op.seen & VICTIM) && intended
    }

    pub(crate) fn recovery_step(&self, c: &Scenario, op: Op, out: &mut Out<'_>) {
        let mut s = *self;
        let d = op.seen & VICTIM;
        let victim = usize::from(d);
        let at = usize::from(op.entry);
        let lost = Type::Retyping(d);
        let (what, next) = match op.pc {
            SCAN if s.is_lost(c, op) => {
                let version = s.frames[FRAME].version;
                let next = Op {
                    node: version,
                    ..op
                };
                ("recover: finds a frame", next.to(STAMP_FRAME))
            }
            SCAN => ("recover: no frame of the dead", op.to(SCAN_TABLE)),
            SCAN_TABLE if s.frames[TABLE].ty == lost => {
                let next = Op {
                    entry: TABLE as u8,
                    node: s.frames[TABLE].version,
                    ..op
                };
                ("recover: finds the table", next.to(STAMP_FRAME))
            }
            SCAN_TABLE => ("recover: the table is not lost", op.to(FREEZE)),
            STAMP_FRAME => {
                if at == FRAME && !c.lacks(W::RecoverFrameWithoutLog) {
                    s.log_frame();
                }
                let f = &mut s.frames[at];
                if !c.lacks(W::RecoverWithoutStamp) {
                    f.w1 = f.w1.max(s.epoch);
                }
                ("recover: logs and stamps the frame", op.to(UNTYPE))
            }
            UNTYPE => {
                let f = &mut s.frames[at];
                if f.ty == lost && f.version == op.node {
                    f.ty = Type::Untyped;
                    f.version += u8::from(!c.lacks(W::D1RecoverWithoutVersion));
                }
                let next = Op {
                    entry: 0,
                    node: 0,
                    ..op
                };
                let to = if at == FRAME { SCAN_TABLE } else { FREEZE };
                ("recover: frame is untyped", next.to(to))
            }
            FREEZE => {
                let mapping = s.intends(victim, &MAPPINGS) && !c.lacks(W::D2RecoverWithoutMappings);
                if !mapping {
                    ("recover: no mapping in progress", op.to(SLOTS))
                } else {
                    let next = Op {
                        seen: op.seen | if s.freeze(FRAME) { FROZE } else { 0 },
                        ..op
                    };
                    ("recover: freezes the frame", next.to(FREEZE_TABLE))
                }
            }
            FREEZE_TABLE => {
                let next = Op {
                    seen: op.seen | if s.freeze(TABLE) { FROZE_TABLE } else { 0 },
                    ..op
                };
                let skip = c.lacks(W::RecountWithoutRound);
                let to = if skip { CLOSE } else { STAMP };
                ("recover: freezes the table", next.to(to))
            }
            STAMP => {
                let next = Op {
                    stamp: s.epoch,
                    ..op
                };
                ("recover: takes a stamp", next.to(ROUND))
            }
            ROUND if s.is_quiet(c, op.node.into(), op.stamp) => {
                ("recover: a node is quiet", Some(op.next_node(c, CLOSE)))
            }
            ROUND => return,
            CLOSE => {
                let closed = s.close_for(c, victim, at);
                let closed_only = c.lacks(W::RecoveryLogsClosedOnly);
                if closed && closed_only {
                    s.log_frame();
                }
                let next = Op {
                    stamp: 0,
                    entry: 1 - op.entry,
                    ..op
                };
                let to = match (at, closed_only) {
                    (0, _) => CLOSE,
                    (_, false) => LOG,
                    (_, true) => COUNT,
                };
                ("recover: sees to an entry", next.to(to))
            }
            LOG => {
                s.log_frame();
                ("recover: logs the frame", op.to(COUNT))
            }
            COUNT => {
                let present = u8::from(s.entries[at].is_present());
                let next = Op {
                    stamp: op.stamp | present << at,
                    entry: 1,
                    pc: if at == 0 { COUNT } else { WRITE },
                    ..op
                };
                ("recover: counts", Some(next))
            }
            WRITE => {
                if op.seen & FROZE != 0 {
                    s.frames[FRAME].refs = op.stamp.count_ones() as i8;
                }
                ("recover: writes the count", op.to(WRITE_TABLE))
            }
            WRITE_TABLE => {
                let skip = c.lacks(W::D2RecoverWithoutTable);
                if op.seen & FROZE_TABLE != 0 && !skip {
                    s.frames[TABLE].refs = (op.stamp >> OWNER & 1) as i8;
                }
                ("recover: writes the table's count", op.to(THAW))
            }
            THAW => {
                s.frames[FRAME].ty = s.frames[FRAME].ty.thawed();
                ("recover: the frame is what it was", op.to(THAW_TABLE))
            }
            THAW_TABLE => {
                s.frames[TABLE].ty = s.frames[TABLE].ty.thawed();
                ("recover: the table is what it was", op.to(SLOTS))
            }
            SLOTS => {
                let dying = s.slot == Slot::Reserved(d) || s.slot == Slot::Closing(d);
                if dying && !c.lacks(W::D3RecoverWithoutSlots) {
                    if !c.lacks(W::RecoverSlotWithoutLog) {
                        s.log_slot(c);
                    }
                    if !c.lacks(W::RecoverSlotWithoutStamp) {
                        s.slot_epoch = s.epoch;
                    }
                    ("recover: logs and stamps a slot", op.to(FREE))
                } else {
                    ("recover: no slot of the dead", op.to(DONE))
                }
            }
            FREE => {
                s.slot = Slot::Free;
                ("recover: frees the slot", op.to(DONE))
            }
            _ => {
                s.vacate(victim);
                ("recover: the place is vacant", None)
            }
        };
        s.nodes[out.node].cpus[out.cpu].op = next;
        out.push(what, s);
    }

    /// Whether the frame is frozen now, by this recoverer or one before it.
    fn freeze(&mut self, at: usize) -> bool {
        let f = &mut self.frames[at];
        f.ty = f.ty.frozen();
        f.ty.is_frozen()
    }

    /// Empties an entry that the dead node was closing, or was about to close, or had made by a
    /// map that was not over: from a peer's entry, it may be out of date.
    fn close_for(&mut self, c: &Scenario, victim: usize, entry: usize) -> bool {
        let named = self.nodes[victim].cpus.iter().any(|cpu| {
            cpu.intent
                .is_some_and(|(kind, e, _)| MAPPINGS.contains(&kind) && usize::from(e) == entry)
        });
        let half = named && self.entries[entry].is_present() && !c.lacks(W::RecoveryKeepsHalfMaps);
        let close = half || self.entries[entry] == Pte::Closing(victim as u8);
        // Also for the dead node, which may have changed it and not come to its log.
        self.log_entry(c, entry);
        if close {
            self.entries[entry] = Pte::Empty(self.epoch);
            self.sealed = false;
        }
        close
    }

    fn vacate(&mut self, victim: usize) {
        let dead = &mut self.nodes[victim];
        if dead.life != Life::Recovering {
            return;
        }
        for cpu in &mut dead.cpus {
            cpu.intent = None;
        }
        dead.awake = 0;
        if !dead.cpus.iter().any(|cpu| cpu.phase == Phase::Up) {
            dead.leaving = false;
        }
        dead.life = Life::Vacant;
        dead.claim = 0;
        self.recoveries += 1;
    }
}
