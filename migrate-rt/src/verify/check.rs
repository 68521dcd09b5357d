//! The analysis of one function: what each instruction does to a [`State`], and what is wrong with it.
//!
//! # What is proven
//!
//! The analysis goes forward along all paths of a function, and joins what it knows where paths meet.
//! For registers (byte by byte, and flags) it knows which hold a value that was made since the last
//! site, for bytes of the native frame likewise; a read of anything else is a finding. So nothing
//! that an instruction computes with was left in a register or on the native stack before a site.
//! Copies do not count as reads, nor does arithmetic on a register or a slot whose low byte is fresh, with what is
//! above it: a stale value may be moved, but not looked at, stored to memory
//! other than the frame, used as an address, or be in an argument register at a call or a result
//! register at a return.
//!
//! Addresses of the native frame are followed as distances from the CFA through moves and additions
//! of constants. Any other use of them is a finding, so no access through another pointer can be to
//! the frame, and every slot that an instruction touches is known exactly.
//!
//! # What is taken for granted
//!
//! - Where arguments and results are is known from the IR that the back ends got ([`Conventions`]): all bytes
//!   of each that have a meaning, in registers and on the native stack. A register of these that nothing has been
//!   put into since the last call is an argument without a value: no back end expects a value behind a call in a
//!   register that a convention lets the callee destroy. In registers that the C convention preserves,
//!   what the callee's own code reads has to be there.
//! - Functions that are not on the spine never migrate, and what they read of the registers that the C
//!   convention preserves is theirs by that convention alone: a `preserve_none` function has to be on
//!   the spine, or its callers may hand it anything. The pass says which functions are; calls that
//!   reach spine functions by name are checked.

mod access;
mod calls;
mod sum;

use super::abi::Conventions;
use super::arch::Arch;
use super::finding::Kind;
use super::graph::Code;
use super::insn::{Flow, Insn, Refused};
use super::lanes::{DEEPEST, GENERAL, Lanes, Owner};
use super::spine::SiteAt;
use super::state::{Origin, State};
use std::collections::{BTreeMap, BTreeSet};

/// Where, from the CFA, the caller's frame pointer is.
pub(super) const RECORD: i64 = -16;

/// What a jump or call leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A function that may migrate.
    Spine,
    /// Another function.
    Plain,
    /// Nothing that starts there.
    Nothing,
}

/// Says what jumps and calls lead to.
pub(super) trait Targets {
    /// What starts at `va`.
    fn target(&self, va: u64) -> Target;
    /// The name of the function that starts at `va`.
    fn name(&self, va: u64) -> Option<&str>;
}

/// What the function is checked against.
pub(super) struct Context<'a> {
    pub arch: &'a Arch,
    /// The function's symbol.
    pub function: &'a str,
    /// What the IR says of calls.
    pub conventions: Option<&'a Conventions>,
    /// Sites of the function by return address.
    pub sites: BTreeMap<u64, &'a SiteAt>,
    /// Numbers of plain calls through pointers, by return address.
    pub plain_calls: &'a BTreeMap<u64, BTreeSet<u64>>,
    /// What is at an address.
    pub target: &'a dyn Targets,
    /// Lanes that a site's callee reads, of those that the C convention preserves.
    pub needs: &'a dyn Fn(&SiteAt, &Insn) -> Lanes,
}

/// What a check has found and counted.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Kind and detail.
    pub findings: Vec<(Kind, String)>,
    pub slot_loads: usize,
    pub red_zone: usize,
    pub register_reads: usize,
    pub plain_indirect_calls: usize,
    /// Slots that a register was saved to as the caller had it: distance from the CFA, lane.
    saved: BTreeSet<(i64, u16)>,
}

impl Log {
    fn find(&mut self, kind: Kind, detail: impl Into<String>) {
        self.findings.push((kind, detail.into()));
    }
}

impl Context<'_> {
    /// What is known at the function's entry.
    pub fn entry(&self) -> State {
        let arch = self.arch;
        let mut origin = [Origin::Plain; GENERAL as usize];
        origin[usize::from(arch.sp)] = Origin::Cfa(arch.entry_sp);
        origin[usize::from(arch.fp)] = Origin::CallerFrame;
        let mut fresh = arch.arguments.or(arch.pointers());
        if let Some(link) = arch.link {
            origin[usize::from(link)] = Origin::ReturnAddress;
            fresh = fresh.or(Lanes::general(link, 8));
        }
        State {
            fresh,
            stale: Lanes::NONE,
            carried: Lanes::NONE,
            callers: arch.everything_else(),
            origin,
            stored: Default::default(),
            whole: Default::default(),
            saved_frame: false,
            saved_return: arch.link.is_none(),
            passed: false,
        }
    }

    /// Whether `insn` is a call with a site behind it.
    pub fn is_site(&self, insn: &Insn) -> bool {
        matches!(insn.flow, Flow::Call(_) | Flow::IndirectCall)
            && self.sites.contains_key(&insn.end())
    }

    /// Lets `insn` take effect on `state`.
    pub fn step(&self, insn: &Insn, state: &mut State, log: &mut Log) {
        match insn.refused {
            Some(Refused::Unknown) if !lacks!("verify::step::unknown") => {
                return log.find(Kind::UnknownInstruction, "");
            }
            Some(Refused::Forbidden(what)) if !lacks!("verify::step::forbidden") => {
                return log.find(Kind::ForbiddenInstruction, what);
            }
            _ => {}
        }
        let before = state.clone();
        for access in &insn.accesses {
            self.access(insn, access, &before, state, log);
        }
        if !lacks!("verify::step::reads") {
            self.observe(insn.reads, &before, log);
        }
        for derive in &insn.derives {
            let sources = derive.from.into_iter().flatten();
            for i in 0..derive.lanes {
                let first = i / derive.element * derive.element;
                let from = sources
                    .clone()
                    .flat_map(|s| (s + first)..(s + first + derive.element));
                state.carry(&before, derive.to + i, from);
            }
            for source in sources {
                self.plain(Lanes::range(source, derive.lanes), &before, log);
            }
            self.forget(Lanes::range(derive.to, derive.lanes), state, log);
        }
        for sum in &insn.sums {
            self.sum(insn, sum, &before, state, log);
        }
        state.spoil(insn.spoils);
        state.set(insn.sets);
        self.forget(insn.sets, state, log);
        for offset in &insn.offsets {
            log.register_reads += 1;
            state.offset(*offset);
            if offset.to == self.arch.sp {
                self.stack_moved(state, log);
            }
        }
        self.control(insn, state, log);
    }

    /// Registers that get another value have nothing to do with the stack any more.
    fn forget(&self, lanes: Lanes, state: &mut State, log: &mut Log) {
        for owner in lanes.owners() {
            let Owner::General(reg) = owner else { continue };
            state.origin[usize::from(reg)] = Origin::Plain;
            if reg == self.arch.sp && !lacks!("verify::forget::stack-pointer") {
                state.origin[usize::from(reg)] = Origin::Unclear;
                log.find(Kind::DynamicStack, "the stack pointer is computed");
            }
        }
    }

    fn stack_moved(&self, state: &mut State, log: &mut Log) {
        match state.origin[usize::from(self.arch.sp)] {
            Origin::Cfa(at) if (DEEPEST..=0).contains(&at) => state.cut(at - self.arch.red_zone),
            _ => log.find(
                Kind::DynamicStack,
                "the stack pointer is no known distance from the frame's start",
            ),
        }
    }

    /// The stack pointer's distance from the CFA.
    fn sp(&self, state: &State) -> Option<i64> {
        match state.origin[usize::from(self.arch.sp)] {
            Origin::Cfa(at) => Some(at),
            _ => None,
        }
    }

    /// Values are computed with: they must be there, and be no addresses of the native stack.
    fn observe(&self, lanes: Lanes, before: &State, log: &mut Log) {
        self.present(lanes, before, log);
        if !lacks!("verify::observe::addresses") {
            self.plain(lanes, before, log);
        }
    }

    fn present(&self, lanes: Lanes, before: &State, log: &mut Log) {
        log.register_reads += lanes.owners().len();
        let missing = match lacks!("verify::present::stale") {
            true => lanes.minus(before.fresh.or(before.stale)),
            false => lanes.minus(before.fresh),
        };
        for owner in missing.owners() {
            let stale = missing
                .iter()
                .any(|l| super::lanes::owner(l) == owner && before.stale.has(l));
            let name = self.arch.name(owner);
            match stale {
                true => log.find(
                    Kind::RegisterAcrossSite,
                    format!("{name} may be from before a site"),
                ),
                false => log.find(Kind::UndefinedRegister, format!("{name} has no value here")),
            }
        }
    }

    fn plain(&self, lanes: Lanes, before: &State, log: &mut Log) {
        for (reg, origin) in (0..).zip(before.origin) {
            let what = match origin {
                Origin::Plain => continue,
                Origin::CallerFrame => "holds the caller's frame pointer",
                Origin::ReturnAddress => "holds the return address",
                Origin::Cfa(_) => "holds an address in the native stack",
                Origin::Unclear => "may hold an address in the native stack",
            };
            if !lanes.and(Lanes::general(reg, 8)).is_empty() {
                let name = self.arch.name(Owner::General(reg));
                log.find(Kind::FrameAddress, format!("{name} {what}"));
            }
        }
    }

    fn control(&self, insn: &Insn, state: &mut State, log: &mut Log) {
        match insn.flow {
            Flow::Next | Flow::Jump(_) | Flow::Branch(_) | Flow::Trap => {}
            Flow::Call(to) => self.call(insn, Some(to), state, log),
            Flow::IndirectCall => self.call(insn, None, state, log),
            Flow::IndirectJump if lacks!("verify::control::indirect-jump") => {}
            Flow::IndirectJump => log.find(Kind::IndirectJump, ""),
            Flow::Return(through) => {
                if self.arch.link.is_some_and(|link| link != through)
                    && !lacks!("verify::control::link-register")
                {
                    log.find(Kind::IndirectJump, "a return through another register");
                }
                if let Some(why) = self.caller_restored(state)
                    && !lacks!("verify::control::restored")
                {
                    log.find(Kind::BadReturn, why);
                }
                if !lacks!("verify::control::results") {
                    self.gives_back(state, log);
                }
                if !lacks!("verify::control::returned-address") {
                    self.plain(self.arch.returned, state, log);
                }
            }
        }
    }

    /// Says what keeps `state` from being what the caller had.
    fn caller_restored(&self, state: &State) -> Option<&'static str> {
        let arch = self.arch;
        let is = |reg: u8, origin| state.origin[usize::from(reg)] == origin;
        if !is(arch.sp, Origin::Cfa(arch.entry_sp)) {
            return Some("the stack pointer is not the caller's");
        }
        if !is(arch.fp, Origin::CallerFrame) {
            return Some("the frame pointer is not the caller's");
        }
        if arch
            .link
            .is_some_and(|link| !is(link, Origin::ReturnAddress))
        {
            return Some("the link register does not hold the return address");
        }
        None
    }

    /// A jump out of the function.
    pub fn leave(&self, to: u64, state: &State, log: &mut Log) {
        match self.target.target(to) {
            Target::Spine if lacks!("verify::leave::spine") => {}
            Target::Spine => log.find(Kind::TailCall, "to a function that can migrate"),
            Target::Nothing => log.find(
                Kind::FlowLeaves,
                format!("{to:#x} is no instruction of the function, and no function"),
            ),
            Target::Plain => {
                if let Some(why) = self.caller_restored(state)
                    && !lacks!("verify::leave::restored")
                {
                    log.find(Kind::TailCall, why);
                }
                if !lacks!("verify::leave::arguments") {
                    self.passes_on(to, state, log);
                }
                self.plain(self.arch.arguments, state, log);
            }
        }
    }

    fn call(&self, insn: &Insn, to: Option<u64>, state: &mut State, log: &mut Log) {
        let arch = self.arch;
        let site = self.sites.get(&insn.end());
        let handed = arch.everything_else().minus(match site {
            Some(_) => Lanes::NONE,
            None => arch.callee_saved,
        });
        // The call itself overwrites the link register.
        let link = arch.link.map_or(Lanes::NONE, |l| Lanes::general(l, 8));
        if !lacks!("verify::call::addresses") {
            self.plain(handed.minus(link), state, log);
        }
        let Some(sp) = self.sp(state) else {
            return log.find(Kind::DynamicStack, "the stack pointer is not known here");
        };
        if !lacks!("verify::call::arguments") {
            self.passes(site.copied(), (to, insn.end()), sp, state, log);
        }
        let kept = match site {
            Some(site) => {
                self.at_site(site, insn, sp, state, log);
                if !lacks!("verify::call::slots") {
                    state.stored.clear();
                }
                if !lacks!("verify::call::whole-slots") {
                    state.whole.clear();
                }
                state.passed = !lacks!("verify::call::passed");
                Lanes::NONE
            }
            None => {
                match to.map(|to| self.target.target(to)) {
                    Some(Target::Spine) if lacks!("verify::call::without-site") => {}
                    Some(Target::Spine) => log.find(Kind::CallWithoutSite, ""),
                    Some(Target::Nothing) => {
                        log.find(Kind::FlowLeaves, "the callee is no function");
                    }
                    Some(Target::Plain) => {}
                    None => log.plain_indirect_calls += 1,
                }
                if !lacks!("verify::call::below-stack") {
                    state.cut(sp);
                }
                arch.callee_saved
            }
        };
        let kept = kept.or(arch.pointers());
        let gone = arch.everything_else().minus(kept);
        if !lacks!("verify::call::registers") {
            state.spoil(gone);
        }
        if site.is_some() {
            state.stale = gone;
        }
        state.set(arch.returned);
        for owner in gone.owners() {
            if let Owner::General(reg) = owner {
                state.origin[usize::from(reg)] = Origin::Plain;
            }
        }
    }

    fn at_site(&self, site: &SiteAt, insn: &Insn, sp: i64, state: &State, log: &mut Log) {
        let arch = self.arch;
        let id = site.id;
        match arch.sp_at_site(site.frame) {
            Some(expected) if expected == sp || lacks!("verify::site::frame-size") => {}
            _ => log.find(
                Kind::FrameSize,
                format!(
                    "the stack pointer is at CFA{sp:+}, the stack map of site {id} says {} bytes",
                    site.frame
                ),
            ),
        }
        let record =
            state.saved_frame && state.saved_return || lacks!("verify::site::frame-record");
        if !record || state.origin[usize::from(arch.fp)] != Origin::Cfa(RECORD) {
            log.find(
                Kind::FrameRecord,
                format!(
                    "no frame record at CFA{RECORD:+} with the frame pointer on it, at site {id}"
                ),
            );
        }
        self.present((self.needs)(site, insn), state, log);
    }
}

/// The states before each instruction of `code`; none where control does not come.
pub(super) fn states(
    context: &Context<'_>,
    code: &Code,
    successors: impl Fn(&Insn) -> (Option<u64>, Option<u64>),
) -> Vec<Option<State>> {
    let mut states: Vec<Option<State>> = vec![None; code.insns.len()];
    if let Some(first) = states.first_mut() {
        *first = Some(context.entry());
    }
    // In order of address, which is close to the order of flow.
    let mut open = BTreeSet::from([0]);
    while let Some(i) = open.pop_first() {
        let (Some(insn), Some(Some(state))) = (code.insns.get(i), states.get(i)) else {
            continue;
        };
        let mut state = state.clone();
        context.step(insn, &mut state, &mut Log::default());
        let (target, next) = successors(insn);
        for to in target.into_iter().chain(next).filter_map(|to| code.at(to)) {
            let changed = match &mut states[to] {
                Some(known) => known.join(&state),
                unknown => {
                    *unknown = Some(state.clone());
                    true
                }
            };
            if changed {
                open.insert(to);
            }
        }
    }
    states
}
