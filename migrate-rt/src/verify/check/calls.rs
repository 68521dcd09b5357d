//! What calls and returns hand over: every byte of an argument or a result has to be from after the last site.

use super::{Context, Log};
use crate::verify::abi::{self, Place, Signature};
use crate::verify::finding::Kind;
use crate::verify::lanes::{GENERAL, Lanes, Owner};
use crate::verify::spine::SiteAt;
use crate::verify::state::State;
use std::borrow::Cow;

/// What is known of what a call passes.
enum Passed<'a> {
    /// One of these.
    One(Vec<Cow<'a, Signature>>),
    /// Nothing: only what was copied has a meaning.
    Unknown,
    /// Nothing, though the IR should say.
    Missing,
}

impl Context<'_> {
    /// What the call of `to`, or through a pointer, passes, which returns to `ret`.
    fn passed(&self, site: Option<&SiteAt>, to: Option<u64>, ret: u64) -> Passed<'_> {
        let Some(conventions) = self.conventions else {
            return Passed::Unknown;
        };
        let known: Vec<_> = match (site, to) {
            (Some(site), _) => {
                let one = conventions.sites.get(&site.id);
                one.map(Cow::Borrowed).into_iter().collect()
            }
            (None, Some(to)) => {
                let name = self.target.name(to).unwrap_or_default();
                let own = conventions.functions.get(name).map(Cow::Borrowed);
                match own.or_else(|| abi::of_library(name).map(Cow::Owned)) {
                    Some(one) => vec![one],
                    // A routine of a library of the ISA: it takes no scalars that are narrower than a register's
                    // half.
                    None => return Passed::Unknown,
                }
            }
            (None, None) => match self.plain_calls.get(&ret) {
                // It is one of these, if it was not made of several calls.
                Some(marks) if !lacks!("verify::passed::marks") => {
                    let own = marks.iter().map(|id| conventions.sites.get(id));
                    let own: Option<Vec<_>> = own.map(|s| s.map(Cow::Borrowed)).collect();
                    own.unwrap_or_default()
                }
                _ => {
                    let all = conventions.plain.get(self.function).into_iter().flatten();
                    all.map(Cow::Borrowed).collect()
                }
            },
        };
        match known.is_empty() {
            true => Passed::Missing,
            false => Passed::One(known),
        }
    }

    /// Checks what a call passes, with the stack pointer at `sp` from the CFA.
    pub(super) fn passes(
        &self,
        site: Option<&SiteAt>,
        (to, ret): (Option<u64>, u64),
        sp: i64,
        state: &State,
        log: &mut Log,
    ) {
        let known = match self.passed(site, to, ret) {
            Passed::One(known) => known,
            Passed::Unknown => {
                let kept = match site {
                    Some(_) => Lanes::NONE,
                    None => self.arch.callee_saved,
                };
                return self.copied(self.arch.arguments.minus(kept), state, log);
            }
            Passed::Missing if lacks!("verify::passes::missing") => return,
            Passed::Missing => {
                let detail = "the IR of the function has no such call";
                return log.find(Kind::Convention, detail);
            }
        };
        for signature in known {
            let Some(places) = signature.arguments(self.arch.isa) else {
                let types = &signature.arguments;
                let detail = format!("where the arguments are ({types}) is not known");
                log.find(Kind::Convention, detail);
                continue;
            };
            for place in places {
                match place {
                    Place::Lanes(lanes) => self.meant(lanes, state, log),
                    Place::Stack(..) if lacks!("verify::passes::stack") => {}
                    Place::Stack(at, bytes) => self.on_stack(sp + at, bytes, state, log),
                }
            }
        }
    }

    /// Checks what a jump to a function that cannot migrate passes.
    pub(super) fn passes_on(&self, to: u64, state: &State, log: &mut Log) {
        let Passed::One(known) = self.passed(None, Some(to), 0) else {
            return self.copied(self.arch.arguments, state, log);
        };
        for place in known
            .iter()
            .flat_map(|s| s.arguments(self.arch.isa))
            .flatten()
        {
            match place {
                Place::Lanes(lanes) => self.meant(lanes, state, log),
                // They are where the caller has put its own.
                Place::Stack(at, _) if state.passed && !lacks!("verify::passes-on::stack") => log
                    .find(
                        Kind::IncomingArgument,
                        format!("argument at CFA+{at} is handed on, behind a site"),
                    ),
                Place::Stack(..) => {}
            }
        }
        if known.iter().any(|s| s.arguments(self.arch.isa).is_none()) {
            log.find(Kind::Convention, "where the arguments are is not known");
        }
    }

    /// The bytes of registers in which the function's result is, if that is known.
    pub(in crate::verify) fn gives_back_where(&self) -> Option<Lanes> {
        let own = self.conventions?.functions.get(self.function)?;
        own.results(self.arch.isa)
    }

    /// Checks what a return gives back.
    pub(super) fn gives_back(&self, state: &State, log: &mut Log) {
        let Some(conventions) = self.conventions else {
            return self.copied(self.arch.returned, state, log);
        };
        let own = conventions.functions.get(self.function);
        match own.map(|s| s.results(self.arch.isa)) {
            Some(Some(lanes)) => {
                for owner in lanes.owners() {
                    let register = match owner {
                        Owner::General(r) => Lanes::general(r, 8),
                        Owner::Vector(r) => Lanes::vector(r, 16),
                        Owner::Flags => Lanes::NONE,
                    };
                    self.meant(lanes.and(register), state, log);
                }
            }
            Some(None) => log.find(Kind::Convention, "where the result is is not known"),
            None => log.find(Kind::Convention, "the IR has no such function"),
        }
    }

    /// Bytes of a register that have a meaning, unless nothing has been put into it.
    fn meant(&self, lanes: Lanes, state: &State, log: &mut Log) {
        for owner in lanes.owners() {
            let register = match owner {
                Owner::General(r) => Lanes::general(r, 8),
                Owner::Vector(r) => Lanes::vector(r, 16),
                Owner::Flags => continue,
            };
            let of_it = match lacks!("verify::meant::first-byte") {
                true => lanes.and(first_bytes()),
                false => lanes.and(register),
            };
            if !of_it.and(state.fresh.or(state.carried)).is_empty() {
                self.present(of_it, state, log);
            }
        }
    }

    /// Bytes of the native stack that the callee takes for an argument.
    fn on_stack(&self, at: i64, bytes: u16, state: &State, log: &mut Log) {
        let bytes = match lacks!("verify::on-stack::first-byte") {
            true => 1,
            false => bytes,
        };
        let end = at + i64::from(bytes);
        log.slot_loads += 1;
        if let Some(first) = (at..end).find(|b| !state.whole.has(*b)) {
            let kind = match state.passed {
                true => Kind::SlotAcrossSite,
                false => Kind::UndefinedSlot,
            };
            log.find(
                kind,
                format!(
                    "argument in slot CFA{at:+}, {bytes} bytes, of which CFA{first:+} is not written on every path"
                ),
            );
        }
    }

    /// Which of the registers have a meaning is not known, but what was copied into one has.
    fn copied(&self, lanes: Lanes, before: &State, log: &mut Log) {
        // The upper part of a vector register is garbage more often than not; so is, on x86-64, what is
        // above the first byte of a general-purpose register in which a byte was made.
        let bytes = (0..GENERAL as u8).map(|r| Lanes::general(r, 1));
        let low = bytes.fold(Lanes::vectors(0..32, 4), Lanes::or);
        let carried = lanes.and(low).and(before.carried);
        if !carried.is_empty() && !lacks!("verify::copied") {
            self.present(carried, before, log);
        }
    }
}

/// The lowest byte of each register.
fn first_bytes() -> Lanes {
    let general = (0..GENERAL as u8).map(|r| Lanes::general(r, 1));
    let vectors = (0..32).map(|r| Lanes::vector(r, 1));
    general.chain(vectors).fold(Lanes::NONE, Lanes::or)
}
