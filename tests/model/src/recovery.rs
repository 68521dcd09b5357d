//! The recover row.

use crate::state::{Kind, Life, Op, Phase, Pte, Scenario, Slot, State, Type, Weakening as W};
use crate::step::Out;

const SCAN: u8 = 0;
const STAMP_FRAME: u8 = 1;
const UNTYPE: u8 = 2;
const MAPPINGS: u8 = 3;
const STAMP: u8 = 4;
const ROUND: u8 = 5;
const ENTRY: u8 = 6;
const COUNT: u8 = 7;
const WRITE: u8 = 8;
const UNFREEZE: u8 = 9;
const SLOTS: u8 = 10;
const FREE: u8 = 11;
const DONE: u8 = 12;

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
            let victim = &self.nodes[d];
            let held = victim.claim.checked_sub(1).is_some_and(|h| {
                let holder = &self.nodes[usize::from(h)];
                holder.life == Life::Live && holder.cpus[0].op.is_some()
            });
            let may = match victim.life {
                Life::Dead => true,
                Life::Recovering => !held || c.lacks(W::RecoverWithoutClaim),
                _ => false,
            };
            if may && d != out.node {
                let mut s = *self;
                s.nodes[d].life = Life::Recovering;
                s.nodes[d].claim = out.node as u8 + 1;
                let op = Op {
                    kind: Kind::Recover,
                    pc: SCAN,
                    stamp: 0,
                    seen: d as u8,
                    node: 0,
                };
                s.nodes[out.node].cpus[out.cpu].op = Some(op);
                out.push("recover: claims the node", s);
            }
        }
    }

    fn intends(&self, d: usize, kinds: [Kind; 2]) -> bool {
        let mut intents = self.nodes[d].cpus.iter().filter_map(|cpu| cpu.intent);
        intents.any(|i| kinds.contains(&i))
    }

    pub(crate) fn recovery_step(&self, c: &Scenario, op: Op, out: &mut Out<'_>) {
        let mut s = *self;
        let d = op.seen & 3;
        let victim = usize::from(d);
        let to = |pc| Some(Op { pc, ..op });
        let (what, next) = match op.pc {
            SCAN if s.ty == Type::Retyping(d) => ("recover: finds a frame", to(STAMP_FRAME)),
            SCAN => ("recover: no frame of the dead", to(MAPPINGS)),
            STAMP_FRAME => {
                s.w1 = s.w1.max(s.epoch);
                ("recover: stamps the frame", to(UNTYPE))
            }
            UNTYPE => {
                if s.ty == Type::Retyping(d) {
                    s.ty = Type::Untyped;
                    s.version += u8::from(!c.lacks(W::D1RecoverWithoutVersion));
                }
                ("recover: frame is untyped", to(MAPPINGS))
            }
            MAPPINGS => {
                let mapping = s.intends(victim, [Kind::Map, Kind::Unmap]);
                if s.ty == Type::User && mapping && !c.lacks(W::D2RecoverWithoutMappings) {
                    s.ty = Type::Frozen;
                }
                if s.ty == Type::Frozen {
                    let next = if c.lacks(W::RecountWithoutRound) {
                        ENTRY
                    } else {
                        STAMP
                    };
                    ("recover: frame is frozen", to(next))
                } else {
                    ("recover: no mapping in progress", to(SLOTS))
                }
            }
            STAMP => {
                let stamp = s.epoch;
                let next = Op {
                    stamp,
                    pc: ROUND,
                    ..op
                };
                ("recover: takes a stamp", Some(next))
            }
            ROUND if s.is_quiet(c, op.node.into(), op.stamp) => {
                ("recover: a node is quiet", Some(op.next_node(c, ENTRY)))
            }
            ROUND => return,
            ENTRY => {
                if s.pte == Pte::Closing(d) {
                    s.pte = Pte::Empty(s.epoch);
                    s.log_frame();
                }
                ("recover: empties a closing entry", to(COUNT))
            }
            COUNT => {
                let present = u8::from(matches!(s.pte, Pte::Present(_)));
                let next = Op {
                    pc: WRITE,
                    seen: op.seen | present << 2,
                    ..op
                };
                ("recover: counts", Some(next))
            }
            WRITE => {
                s.refs = i8::from(op.seen >> 2 != 0);
                ("recover: writes the count", to(UNFREEZE))
            }
            UNFREEZE => {
                if s.ty == Type::Frozen {
                    s.ty = Type::User;
                }
                ("recover: frame is a user frame again", to(SLOTS))
            }
            SLOTS => {
                let dying = s.slot == Slot::Reserved(d) || s.slot == Slot::Closing(d);
                if dying && !c.lacks(W::D3RecoverWithoutSlots) {
                    s.slot_epoch = s.epoch;
                    ("recover: stamps a slot", to(FREE))
                } else {
                    ("recover: no slot of the dead", to(DONE))
                }
            }
            FREE => {
                s.slot = Slot::Free;
                ("recover: frees the slot", to(DONE))
            }
            _ => {
                let dead = &mut s.nodes[victim];
                for cpu in &mut dead.cpus {
                    cpu.intent = None;
                }
                dead.awake = 0;
                if !dead.cpus.iter().any(|cpu| cpu.phase == Phase::Up) {
                    dead.leaving = false;
                }
                dead.life = Life::Vacant;
                dead.claim = 0;
                s.recoveries += 1;
                ("recover: the place is vacant", None)
            }
        };
        s.nodes[out.node].cpus[out.cpu].op = next;
        out.push(what, s);
    }
}
