//! What is known before an instruction, on every path to it.

use super::insn::Offset;
use super::lanes::{Bytes, GENERAL, Lanes, general};

/// Where the value of a general-purpose register comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Not from the native stack.
    Plain,
    /// It is the address that far from the CFA.
    Cfa(i64),
    /// It is the caller's frame pointer.
    CallerFrame,
    /// It is the return address.
    ReturnAddress,
    /// It may have to do with the native stack.
    Unclear,
}

impl Origin {
    fn join(self, other: Origin) -> Origin {
        if self == other { self } else { Origin::Unclear }
    }

    /// With a constant added.
    pub fn plus(self, by: i64) -> Origin {
        match self {
            Origin::Cfa(at) => at.checked_add(by).map_or(Origin::Unclear, Origin::Cfa),
            Origin::CallerFrame | Origin::ReturnAddress if by != 0 => Origin::Unclear,
            origin => origin,
        }
    }
}

/// What is known before an instruction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    /// Lanes with a value that was made since the last site, or the entry.
    pub fresh: Lanes,
    /// Lanes that may have a value from before a site.
    pub stale: Lanes,
    /// Lanes that are not fresh, but were copied to since: somebody means their value.
    pub carried: Lanes,
    /// Lanes that still have the caller's value.
    pub callers: Lanes,
    /// Of general-purpose registers.
    pub origin: [Origin; GENERAL as usize],
    /// Bytes of the frame that were stored since the last site, or the entry.
    pub stored: Bytes,
    /// Of these, those with a fresh value.
    pub whole: Bytes,
    /// The caller's frame pointer is in the frame record.
    pub saved_frame: bool,
    /// The return address is in the frame record.
    pub saved_return: bool,
    /// There may have been a site.
    pub passed: bool,
}

impl State {
    /// What holds when either holds. Says whether that is less than what held here.
    pub fn join(&mut self, other: &State) -> bool {
        let before = self.clone();
        self.fresh = self.fresh.and(other.fresh);
        self.stale = self.stale.or(other.stale);
        self.carried = self.carried.or(other.carried);
        self.callers = self.callers.and(other.callers);
        for (mine, its) in self.origin.iter_mut().zip(other.origin) {
            *mine = mine.join(its);
        }
        self.stored.and(&other.stored);
        self.whole.and(&other.whole);
        self.saved_frame &= other.saved_frame;
        self.saved_return &= other.saved_return;
        self.passed |= other.passed;
        *self != before
    }

    /// Gives lanes a value.
    pub fn set(&mut self, lanes: Lanes) {
        self.fresh = self.fresh.or(lanes);
        self.stale = self.stale.minus(lanes);
        self.carried = self.carried.minus(lanes);
        self.callers = self.callers.minus(lanes);
    }

    /// Takes the value of lanes away.
    pub fn spoil(&mut self, lanes: Lanes) {
        self.fresh = self.fresh.minus(lanes);
        self.stale = self.stale.minus(lanes);
        self.carried = self.carried.minus(lanes);
        self.callers = self.callers.minus(lanes);
    }

    /// Carries the value of lanes `from` in `before` over to lane `to`.
    pub fn carry(&mut self, before: &State, to: u16, mut from: impl Iterator<Item = u16> + Clone) {
        let stale = from.clone().any(|lane| before.stale.has(lane));
        let fresh = from.all(|lane| before.fresh.has(lane));
        self.arrive(to, fresh, stale);
    }

    /// Gives lane `to` a value that is fresh, or may be stale, or neither.
    pub fn arrive(&mut self, to: u16, fresh: bool, stale: bool) {
        self.fresh.set(to, fresh);
        self.stale.set(to, stale);
        self.carried.set(to, !fresh);
        self.callers.remove(to);
    }

    /// Does address arithmetic.
    pub fn offset(&mut self, offset: Offset) {
        let Offset { to, from, by } = offset;
        if by == 0 {
            // A move. What is narrower than the register keeps what garbage is above it.
            let before = self.clone();
            for lane in 0..8 {
                let (to, from) = (general(to, lane), general(from, lane));
                self.carry(&before, to, [from].into_iter());
            }
            self.origin[usize::from(to)] = self.origin[usize::from(from)];
            return;
        }
        let source = Lanes::general(from, 8);
        let fresh = source.and(self.fresh) == source;
        let stale = !source.and(self.stale).is_empty();
        for lane in Lanes::general(to, 8).iter() {
            self.arrive(lane, fresh, stale);
        }
        self.origin[usize::from(to)] = self.origin[usize::from(from)].plus(by);
    }

    /// Forgets the bytes of the frame below `at`.
    pub fn cut(&mut self, at: i64) {
        self.stored.clear_below(at);
        self.whole.clear_below(at);
    }
}
