//! Arithmetic of which the low bytes are what matters: in registers, and in slots of the native frame.

use super::{Context, Log};
use crate::verify::insn::{Insn, Sum, Transfer};
use crate::verify::state::State;
use std::ops::Range;

impl Context<'_> {
    /// Computes a sum. The accesses of the instruction have been made.
    pub(super) fn sum(
        &self,
        insn: &Insn,
        sum: &Sum,
        before: &State,
        state: &mut State,
        log: &mut Log,
    ) {
        if !lacks!("verify::step::sums") {
            self.observe(sum.lowest(), before, log);
        }
        let slot = self.summed_slot(insn, before);
        for i in 0..sum.lanes {
            let (fresh, stale) = computed(before, sum.sources(i), slot, sum.bytes(i));
            match (sum.to, slot) {
                (Some(to), _) => state.arrive(to + i, fresh, stale),
                (None, Some(at)) => state.whole.set(at + i64::from(i), fresh),
                // The access has seen to it that the operands are fresh.
                (None, None) => {}
            }
        }
        let (fresh, stale) = computed(before, sum.all(), slot, 0..sum.width);
        for flag in sum.flags.iter() {
            state.arrive(flag, fresh, stale);
        }
        self.forget(sum.result(), state, log);
    }

    /// The slot of the native frame in which the sum of `insn` has an operand: its distance from the CFA. The
    /// arguments of the function are no such slots: they are fresh, or there is a finding.
    pub fn summed_slot(&self, insn: &Insn, before: &State) -> Option<i64> {
        let mut accesses = insn.accesses.iter();
        let operand = accesses.find(|a| a.transfer == Transfer::Operand)?;
        self.slot(operand, before).filter(|at| *at < 0)
    }
}

/// Whether a value is fresh that is computed of `lanes` and of `bytes` of a slot, and whether it may be stale.
fn computed(
    before: &State,
    lanes: impl Iterator<Item = u16>,
    slot: Option<i64>,
    bytes: Range<u16>,
) -> (bool, bool) {
    let (mut fresh, mut stale) = (true, false);
    for lane in lanes {
        fresh &= before.fresh.has(lane);
        stale |= before.stale.has(lane);
    }
    let mut bytes = slot.into_iter().flat_map(|at| {
        let (start, end) = (i64::from(bytes.start), i64::from(bytes.end));
        at + start..at + end
    });
    if !bytes.all(|b| before.whole.has(b)) && !lacks!("verify::sum::slot") {
        fresh = false;
        stale |= before.passed;
    }
    (fresh, stale)
}
