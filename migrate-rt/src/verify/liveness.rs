//! What a spine function reads of what its caller leaves in registers.
//!
//! A backward analysis, over registers and over the function's own slots, so that a register that is
//! only pushed to make room does not count. It looks at registers that the C convention preserves:
//! those are the arguments that a caller could believe to have survived an earlier call.

use super::check::{Context, Target};
use super::graph::Code;
use super::insn::{Flow, Insn, Transfer};
use super::lanes::{Bytes, Lanes};
use super::state::State;
use std::ops::Range;

/// Registers and bytes of the frame whose values are used later on.
#[derive(Clone, Debug, Default, PartialEq)]
struct Live {
    lanes: Lanes,
    bytes: Bytes,
}

impl Live {
    fn or(&mut self, other: &Live) {
        self.lanes = self.lanes.or(other.lanes);
        self.bytes.or(&other.bytes);
    }
}

/// The lanes that are read before they are written from the function's entry on. `called` says what
/// the callee of a call reads.
pub(super) fn entry_reads(
    context: &Context<'_>,
    code: &Code,
    states: &[Option<State>],
    successors: impl Fn(&Insn) -> (Option<u64>, Option<u64>),
    called: impl Fn(&Insn) -> Lanes,
) -> Lanes {
    let mut before: Vec<Live> = vec![Live::default(); code.insns.len()];
    loop {
        let mut changed = false;
        for (i, insn) in code.insns.iter().enumerate().rev() {
            let Some(state) = &states[i] else { continue };
            let mut live = Live::default();
            let (target, next) = successors(insn);
            for to in target.into_iter().chain(next) {
                match code.at(to) {
                    Some(to) => live.or(&before[to]),
                    // A function that cannot migrate has the C convention, in which these are no
                    // arguments. Whatever else is jumped to may read them all.
                    None => {
                        let arguments = match context.target.target(to) {
                            Target::Plain => {
                                context.arch.arguments.minus(context.arch.callee_saved)
                            }
                            _ => context.arch.arguments,
                        };
                        live.lanes = live.lanes.or(arguments);
                    }
                }
            }
            step(context, insn, state, &mut live, &called);
            if live != before[i] {
                before[i] = live;
                changed = true;
            }
        }
        if !changed {
            return before.first().map_or(Lanes::NONE, |live| live.lanes);
        }
    }
}

/// From what is live behind `insn` to what is live before it.
fn step(
    context: &Context<'_>,
    insn: &Insn,
    state: &State,
    live: &mut Live,
    called: &impl Fn(&Insn) -> Lanes,
) {
    let arch = context.arch;
    match insn.flow {
        Flow::Return(_) => live.lanes = context.gives_back_where().unwrap_or(arch.returned),
        Flow::Call(_) | Flow::IndirectCall => {
            let site = context.sites.contains_key(&insn.end());
            live.lanes = match site {
                true => Lanes::NONE,
                false => live.lanes.and(arch.callee_saved),
            };
            if site {
                live.bytes.clear();
            }
            live.lanes = live.lanes.or(called(insn));
        }
        _ => {}
    }
    let mut used = insn.reads;
    for offset in insn.offsets.iter().rev() {
        let (to, from) = (Lanes::general(offset.to, 8), Lanes::general(offset.from, 8));
        if !live.lanes.and(to).is_empty() {
            live.lanes = live.lanes.minus(to).or(from);
        }
    }
    let after = live.clone();
    // Bytes of a slot that sums take for an operand.
    let mut summed = Bytes::default();
    live.lanes = live.lanes.minus(insn.sets).minus(insn.spoils);
    for derive in &insn.derives {
        let to = Lanes::range(derive.to, derive.lanes);
        live.lanes = live.lanes.minus(to);
        // Byte by byte: what is above a byte that was made alone is copied along, and means nothing.
        for i in (0..derive.lanes).filter(|i| after.lanes.has(derive.to + i)) {
            let first = i / derive.element * derive.element;
            for from in derive.from.into_iter().flatten() {
                used = used.or(Lanes::range(from + first, derive.element));
            }
        }
    }
    for sum in &insn.sums {
        live.lanes = live.lanes.minus(sum.result()).minus(sum.flags);
        used = used.or(sum.lowest());
        let slot = context.summed_slot(insn, state);
        let mut take = |bytes: Range<u16>| {
            if let Some(at) = slot {
                bytes.for_each(|b| summed.set(at + i64::from(b), true));
            }
        };
        take(0..sum.lanes.min(1));
        let wanted = |i: &u16| match (sum.to, slot) {
            (Some(to), _) => after.lanes.has(to + i),
            (None, Some(at)) => after.bytes.has(at + i64::from(*i)),
            // What is in memory that is no slot is read elsewhere.
            (None, None) => true,
        };
        for i in (0..sum.lanes).filter(wanted) {
            sum.sources(i).for_each(|lane| used.insert(lane));
            take(sum.bytes(i));
        }
        if !after.lanes.and(sum.flags).is_empty() {
            sum.all().for_each(|lane| used.insert(lane));
            take(0..sum.width);
        }
    }
    for access in &insn.accesses {
        for reg in access.place.base.into_iter().chain(access.place.index) {
            used = used.or(Lanes::general(reg, 8));
        }
        let slot = context.slot(access, state);
        let bytes = slot.map(|at| at..at + i64::from(access.bytes));
        match (access.transfer, bytes) {
            (Transfer::Load(to), bytes) => {
                live.lanes = live.lanes.minus(Lanes::range(to, access.bytes));
                bytes
                    .into_iter()
                    .flatten()
                    .zip(to..)
                    .filter(|(_, lane)| after.lanes.has(*lane))
                    .for_each(|(b, _)| live.bytes.set(b, true));
            }
            (Transfer::Observe, bytes) => {
                bytes
                    .into_iter()
                    .flatten()
                    .for_each(|b| live.bytes.set(b, true));
            }
            (Transfer::Store(from), Some(bytes)) => {
                for (b, lane) in bytes.zip(from..) {
                    if after.bytes.has(b) {
                        used = used.or(Lanes::range(lane, 1));
                    }
                    live.bytes.set(b, false);
                }
            }
            (Transfer::Store(from) | Transfer::Result(Some(from)), None) => {
                used = used.or(Lanes::range(from, access.bytes));
            }
            (Transfer::Define | Transfer::Result(_), bytes) => {
                bytes
                    .into_iter()
                    .flatten()
                    .for_each(|b| live.bytes.set(b, false));
            }
            (Transfer::Operand, _) => {}
        }
    }
    live.bytes.or(&summed);
    live.lanes = live.lanes.or(used);
}
