//! Accesses to memory: what they do to the native frame.

use super::{Context, Log, RECORD};
use crate::verify::finding::Kind;
use crate::verify::insn::{Access, Insn, Place, Transfer};
use crate::verify::lanes::{DEEPEST, Lanes, Owner, general, owner};
use crate::verify::state::{Origin, State};

/// Where an access goes.
enum Resolved {
    /// To the native frame, or near it: distance from the CFA.
    Slot(i64),
    /// To memory that is no native stack.
    Elsewhere,
    /// Unknown; there is a finding about it already.
    Nowhere,
}

impl Context<'_> {
    fn resolve(&self, place: &Place, before: &State, log: &mut Log) -> Resolved {
        for reg in place.base.into_iter().chain(place.index) {
            if !lacks!("verify::resolve::base") {
                self.present(Lanes::general(reg, 8), before, log);
            }
        }
        if let Some(index) = place.index {
            self.plain(Lanes::general(index, 8), before, log);
        }
        let Some(base) = place.base else {
            return Resolved::Elsewhere;
        };
        match before.origin[usize::from(base)] {
            Origin::Plain => Resolved::Elsewhere,
            Origin::Cfa(at) if place.index.is_none() && !place.elsewhere => {
                match at.checked_add(place.offset) {
                    Some(at) => Resolved::Slot(at),
                    None => Resolved::Nowhere,
                }
            }
            Origin::Cfa(_) if lacks!("verify::resolve::unknown-slot") => Resolved::Nowhere,
            Origin::Cfa(_) => {
                log.find(Kind::UnknownSlot, "the slot depends on a register");
                Resolved::Nowhere
            }
            _ if base == self.arch.sp => {
                log.find(Kind::DynamicStack, "the stack pointer is not known here");
                Resolved::Nowhere
            }
            _ => {
                self.plain(Lanes::general(base, 8), before, log);
                Resolved::Nowhere
            }
        }
    }

    /// Where `access` of `insn` goes, for the analysis of liveness.
    pub fn slot(&self, access: &Access, before: &State) -> Option<i64> {
        match self.resolve(&access.place, before, &mut Log::default()) {
            Resolved::Slot(at) => Some(at),
            Resolved::Elsewhere | Resolved::Nowhere => None,
        }
    }

    /// Makes an access: checks it, and says what memory and registers are afterwards.
    pub(super) fn access(
        &self,
        insn: &Insn,
        access: &Access,
        before: &State,
        state: &mut State,
        log: &mut Log,
    ) {
        let resolved = self.resolve(&access.place, before, log);
        if let Transfer::Load(to) = access.transfer {
            let lanes = Lanes::range(to, access.bytes);
            state.set(lanes);
            self.forget(lanes, state, log);
        }
        match resolved {
            Resolved::Slot(at) => self.slot_access(insn, access, at, before, state, log),
            Resolved::Elsewhere => {
                if let Transfer::Store(from) | Transfer::Result(Some(from)) = access.transfer
                    && !lacks!("verify::access::store")
                {
                    self.observe(Lanes::range(from, access.bytes), before, log);
                }
            }
            Resolved::Nowhere => {}
        }
    }

    fn slot_access(
        &self,
        insn: &Insn,
        access: &Access,
        at: i64,
        before: &State,
        state: &mut State,
        log: &mut Log,
    ) {
        let end = at + i64::from(access.bytes);
        let load = matches!(
            access.transfer,
            Transfer::Load(_) | Transfer::Observe | Transfer::Operand
        );
        if load && at >= 0 {
            if before.passed && !lacks!("verify::slot::incoming") {
                log.find(
                    Kind::IncomingArgument,
                    format!("argument at CFA+{at}, behind a site"),
                );
            }
            return;
        }
        let moved = insn.offsets.iter().filter(|o| o.to == self.arch.sp);
        let Some(sp) = self.sp(before) else {
            return log.find(Kind::DynamicStack, "the stack pointer is not known here");
        };
        let lowest = sp.min(sp + moved.map(|o| o.by).sum::<i64>());
        if (at < lowest - self.arch.red_zone || end > 0 || at < DEEPEST)
            && !lacks!("verify::slot::outside")
        {
            return log.find(
                Kind::OutsideFrame,
                format!("bytes from CFA{at:+} to CFA{end:+}, with the stack pointer at CFA{sp:+}"),
            );
        }
        if end > RECORD && !lacks!("verify::slot::record") {
            return self.record_access(access, at, before, state, log);
        }
        if load {
            log.slot_loads += 1;
            log.red_zone += usize::from(at < lowest);
        }
        match access.transfer {
            Transfer::Load(_) | Transfer::Observe | Transfer::Operand => {
                // Bytes that need a value, and not only a copy of what is stale.
                let observed = match access.transfer {
                    Transfer::Observe => at..end,
                    Transfer::Operand => at..at + 1,
                    _ => at..at,
                };
                let good = |b: i64| {
                    before.stored.has(b)
                        && (!observed.contains(&b)
                            || before.whole.has(b)
                            || lacks!("verify::slot::observed"))
                };
                if !(at..end).all(good) && !lacks!("verify::slot::load") {
                    let restores = match access.transfer {
                        Transfer::Load(to) => log.saved.contains(&(at, to)),
                        _ => false,
                    };
                    let kind = match before.passed {
                        true if restores => Kind::SavedRegister,
                        true => Kind::SlotAcrossSite,
                        false => Kind::UndefinedSlot,
                    };
                    let first = (at..end).find(|b| !good(*b)).unwrap_or(at);
                    log.find(
                        kind,
                        format!("slot CFA{at:+}, {} bytes, of which CFA{first:+} is not written on every path", access.bytes),
                    );
                } else if let Transfer::Load(to) = access.transfer {
                    for (lane, byte) in (to..).zip(at..end) {
                        let whole = before.whole.has(byte) || lacks!("verify::slot::load-copies");
                        state.arrive(lane, whole, !whole && before.passed);
                    }
                }
            }
            Transfer::Store(from) => {
                let lanes = Lanes::range(from, access.bytes);
                self.plain(lanes, before, log);
                if lanes
                    .minus(before.callers.and(self.arch.callee_saved))
                    .is_empty()
                {
                    log.saved.insert((at, from));
                }
                for (lane, byte) in (from..).zip(at..end) {
                    state.stored.set(byte, true);
                    let whole = before.fresh.has(lane) || lacks!("verify::slot::store-copies");
                    state.whole.set(byte, whole);
                }
            }
            // The sum takes the bytes of a result out again that have no new value.
            Transfer::Define | Transfer::Result(_) => {
                for byte in at..end {
                    state.stored.set(byte, true);
                    state.whole.set(byte, true);
                }
            }
        }
    }

    /// The frame record is written once, and read by what takes the frame down.
    fn record_access(
        &self,
        access: &Access,
        at: i64,
        before: &State,
        state: &mut State,
        log: &mut Log,
    ) {
        let frame = (RECORD, general(self.arch.fp, 0));
        let back = self.arch.link.map(|link| (RECORD + 8, general(link, 0)));
        let origin = |lane| match owner(lane) {
            Owner::General(reg) => before.origin[usize::from(reg)],
            _ => Origin::Plain,
        };
        match access.transfer {
            _ if access.bytes != 8 => {}
            Transfer::Store(from) if (at, from) == frame && origin(from) == Origin::CallerFrame => {
                state.saved_frame = true;
                return;
            }
            Transfer::Store(from)
                if Some((at, from)) == back && origin(from) == Origin::ReturnAddress =>
            {
                state.saved_return = true;
                return;
            }
            Transfer::Load(to) if (at, to) == frame && before.saved_frame => {
                state.origin[usize::from(self.arch.fp)] = Origin::CallerFrame;
                return;
            }
            Transfer::Load(to) if Some((at, to)) == back && before.saved_return => {
                if let Some(link) = self.arch.link {
                    state.origin[usize::from(link)] = Origin::ReturnAddress;
                }
                return;
            }
            _ => {}
        }
        if matches!(
            access.transfer,
            Transfer::Store(_) | Transfer::Define | Transfer::Result(_)
        ) && !lacks!("verify::record::overwritten")
        {
            state.saved_frame &= at + i64::from(access.bytes) <= RECORD || at >= RECORD + 8;
            state.saved_return &= at + i64::from(access.bytes) <= RECORD + 8;
        }
        log.find(
            Kind::FrameRecord,
            format!("{} bytes at CFA{at:+} are the frame record's", access.bytes),
        );
    }
}
