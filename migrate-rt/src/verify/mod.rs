//! Proof, on machine code, that threads can migrate.
//!
//! The spine pass sees to it that nothing is live in registers or on native stacks where a thread may
//! change its ISA. Back ends know nothing of that promise and have been seen to break it (a constant
//! kept in a stack slot across a call). The verifier therefore reads what was linked, instruction by
//! instruction, and takes nobody's word: every instruction of every spine function has to be known
//! and has to be reached from the function's entry, and what each of them reads has to have been made
//! since the last site. Whatever it does not understand is a finding, and a finding fails the build.
//!
//! [`program`] is the whole of it. The rules, and what they take for granted, are described at the
//! analysis (`check`); decoding and the effects of instructions are `x86` and `a64`.

mod a64;
mod abi;
mod arch;
mod check;
mod finding;
mod graph;
mod image;
mod insn;
mod lanes;
mod listing;
mod liveness;
mod report;
mod spine;
mod state;
mod x86;

pub use abi::{Conventions, Signature};
pub use finding::{Finding, Kind};
pub use listing::{Listed, listing};
pub use report::VerifyError;
pub use spine::{SiteAt, SpineInfo, same_sites};

use crate::source::{Place, Source};
use arch::Arch;
use check::{Context, Log, Target};
use dyad_abi::Isa;
use graph::{Code, Returning};
use image::{Function, Image};
use insn::{Flow, Insn};
use lanes::Lanes;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// What has been verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Spine functions.
    pub functions: usize,
    /// Instructions in them: each was decoded, is known, and is reached from its function's entry, or
    /// is padding behind the end of a flow.
    pub instructions: usize,
    /// Of these, padding.
    pub padding: usize,
    /// Sites, each behind a call.
    pub sites: usize,
    /// Reads of native stack slots, frame records left aside.
    pub slot_loads: usize,
    /// Of these, reads below the stack pointer (x86-64 has a red zone).
    pub red_zone: usize,
    /// Reads of registers, counted by instruction and register.
    pub register_reads: usize,
    /// Calls through pointers that have no site: none of the functions that they may reach migrates.
    pub plain_indirect_calls: usize,
}

/// Verifies that the threads of the program `file` for `isa` can migrate at the sites of `spine`, and
/// nowhere else need to be able to.
///
/// # Errors
///
/// Everything that keeps them from it, in order of address.
pub fn program(isa: Isa, file: &[u8], spine: &SpineInfo) -> Result<Coverage, VerifyError> {
    let image = match Image::parse(isa, file) {
        Ok(image) => image,
        Err(why) => {
            return Err(VerifyError(vec![bare(
                isa,
                Kind::BadImage,
                "the program",
                why,
            )]));
        }
    };
    let mut verifier = Verifier::new(isa, &image, spine);
    verifier.run();
    verifier.findings.sort_by_key(|f| (f.va, f.kind));
    match verifier.findings.is_empty() {
        true => Ok(verifier.coverage),
        false => Err(VerifyError(verifier.findings)),
    }
}

/// Where the calls return to that stand last before some places, each given with the first address of
/// its function. `None` for a place without a call before it.
///
/// # Errors
///
/// Says why the program cannot be used.
pub fn calls_before(
    isa: Isa,
    file: &[u8],
    places: &[(u64, u64)],
) -> Result<Vec<Option<u64>>, String> {
    let image = Image::parse(isa, file)?;
    let mut returns: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    let found = places.iter().map(|(va, at)| {
        let returns = returns
            .entry(*va)
            .or_insert_with(|| returns_of(isa, &image, *va));
        returns.range(..=at).next_back().copied()
    });
    Ok(found.collect())
}

/// Where the first call in the function of that name returns to.
///
/// # Errors
///
/// Says why the program cannot be used.
pub fn first_return(isa: Isa, file: &[u8], name: &str) -> Result<Option<u64>, String> {
    let image = Image::parse(isa, file)?;
    let function = image.named(name).map(|f| f.va);
    Ok(function.and_then(|va| returns_of(isa, &image, va).first().copied()))
}

/// Return addresses of the calls in the function at `va`.
fn returns_of(isa: Isa, image: &Image<'_>, va: u64) -> BTreeSet<u64> {
    let function = image.starting_at(va).into_iter();
    let insns = function.flat_map(|f| Code::decode(isa, f).insns);
    let calls = insns.filter(|i| matches!(i.flow, Flow::Call(_) | Flow::IndirectCall));
    calls.map(|i| i.end()).collect()
}

/// A finding that is about no instruction.
fn bare(isa: Isa, kind: Kind, function: &str, detail: String) -> Finding {
    Finding {
        isa,
        kind,
        function: crate::demangle(function),
        va: 0,
        instruction: String::new(),
        source: None,
        detail,
    }
}

/// A spine function in the making.
struct Body<'a> {
    function: &'a Function<'a>,
    code: Code,
    states: Vec<Option<state::State>>,
}

struct Verifier<'a> {
    arch: Arch,
    image: &'a Image<'a>,
    spine: &'a SpineInfo,
    /// By function.
    sites: HashMap<&'a str, Vec<&'a SiteAt>>,
    /// First addresses of spine functions and leaves.
    migrating: BTreeSet<u64>,
    findings: Vec<Finding>,
    coverage: Coverage,
    /// By the first address of a function: functions that call it, and where they do.
    calls: OnceCell<BTreeMap<u64, Vec<(u64, u64)>>>,
}

impl<'a> Verifier<'a> {
    fn new(isa: Isa, image: &'a Image<'a>, spine: &'a SpineInfo) -> Verifier<'a> {
        let names = spine.functions.iter().chain(&spine.leaves);
        let mut sites: HashMap<&str, Vec<&SiteAt>> = HashMap::new();
        for site in &spine.sites {
            sites.entry(&site.function).or_default().push(site);
        }
        Verifier {
            sites,
            arch: Arch::of(isa),
            image,
            spine,
            migrating: names.filter_map(|n| Some(image.named(n)?.va)).collect(),
            findings: Vec::new(),
            coverage: Coverage::default(),
            calls: OnceCell::new(),
        }
    }

    fn run(&mut self) {
        let functions = self.functions();
        self.check_sites(&functions);
        let conventions = self.spine.conventions.iter();
        for (function, detail) in conventions.flat_map(|c| &c.broken) {
            self.bare(Kind::Convention, function, detail.as_str());
        }
        let (isa, image) = (self.arch.isa, self.image);
        let returning = Returning::of(isa, image, functions.iter().map(|f| f.va));
        let nothing = |_: &SiteAt, _: &Insn| Lanes::NONE;
        let bodies: Vec<Body<'_>> = functions
            .into_iter()
            .map(|function| {
                let code = Code::decode(isa, function);
                let context = self.context(&function.name, &nothing);
                let states =
                    check::states(&context, &code, |i| successors(&context, &returning, i));
                Body {
                    function,
                    code,
                    states,
                }
            })
            .collect();
        let reads = self.entry_reads(&bodies, &returning);
        let needs = |site: &SiteAt, insn: &Insn| self.needs(&reads, site, insn);
        let mut found = Vec::new();
        let mut coverage = Coverage::default();
        for body in &bodies {
            let context = self.context(&body.function.name, &needs);
            let (findings, covered) = self.report(&context, body, &returning);
            found.extend(findings);
            add(&mut coverage, &covered);
        }
        self.findings.extend(found);
        self.coverage = coverage;
    }

    /// The spine functions that the program has.
    fn functions(&mut self) -> Vec<&'a Function<'a>> {
        let names: BTreeSet<&str> = self.spine.functions.iter().map(String::as_str).collect();
        let sited = self.spine.sites.iter().map(|s| s.function.as_str());
        let unknown: BTreeSet<&str> = sited.filter(|n| !names.contains(n)).collect();
        let mut functions = BTreeMap::new();
        for name in names.iter().chain(&unknown) {
            match self.image.named(name) {
                // Two names of one function are one function.
                Some(function) if names.contains(name) => {
                    functions.insert(function.va, function);
                }
                Some(_) => self.bare(
                    Kind::NoFunction,
                    name,
                    "it has sites, but is no spine function",
                ),
                None => self.bare(Kind::NoFunction, name, "no function of that name has code"),
            }
        }
        functions.into_values().collect()
    }

    fn bare(&mut self, kind: Kind, function: &str, detail: impl Into<String>) {
        let finding = bare(self.arch.isa, kind, function, detail.into());
        self.findings.push(finding);
    }

    /// Numbers and addresses are unique, and each address is in its function.
    fn check_sites(&mut self, functions: &[&Function<'_>]) {
        let (mut ids, mut addresses) = (BTreeMap::new(), BTreeMap::new());
        let spine = self.spine;
        for site in &spine.sites {
            let SiteAt { id, ret, .. } = site;
            if ids.insert(*id, *ret).is_some() {
                let detail = format!("site {id} is there twice");
                self.bare(Kind::DuplicateSite, &site.function, detail);
            }
            if let Some(other) = addresses.insert(*ret, *id) {
                let detail = format!("sites {other} and {id} are at one address, {ret:#x}");
                self.bare(Kind::DuplicateSite, &site.function, detail);
            }
            let function = self.image.named(&site.function);
            let inside = function.is_some_and(|f| (f.va..=f.end()).contains(ret));
            if !inside && functions.iter().any(|f| f.name == site.function) {
                let detail = format!("site {id} at {ret:#x} is outside of the function");
                self.bare(Kind::NoCallAtSite, &site.function, detail);
            }
        }
    }

    fn target(&self, va: u64) -> Target {
        match self.image.starting_at(va) {
            _ if self.migrating.contains(&va) => Target::Spine,
            Some(_) => Target::Plain,
            None => Target::Nothing,
        }
    }

    /// What the function of that name is checked against.
    fn context<'b>(
        &'b self,
        function: &str,
        needs: &'b dyn Fn(&SiteAt, &Insn) -> Lanes,
    ) -> Context<'b> {
        let sites = self.sites.get(function).into_iter().flatten().copied();
        Context {
            arch: &self.arch,
            function: self.image.named(function).map_or("", |f| &f.name),
            conventions: self.spine.conventions.as_ref(),
            sites: sites.map(|s| (s.ret, s)).collect(),
            plain_calls: &self.spine.plain,
            target: self,
            needs,
        }
    }

    /// What the callee of a site reads, of what the C convention preserves.
    fn needs(&self, reads: &BTreeMap<u64, Lanes>, site: &SiteAt, insn: &Insn) -> Lanes {
        let lanes = |va: &u64| reads.get(va).copied().unwrap_or(Lanes::NONE);
        let all = match insn.flow {
            Flow::Call(to) => lanes(&to),
            _ if site.targets.is_empty() => reads.values().copied().fold(Lanes::NONE, Lanes::or),
            _ => {
                let targets = site.targets.iter().filter_map(|t| self.image.named(t));
                targets.map(|f| lanes(&f.va)).fold(Lanes::NONE, Lanes::or)
            }
        };
        all.and(self.arch.callee_saved)
    }

    /// What each spine function reads of its caller's registers, by address.
    fn entry_reads(&self, bodies: &[Body<'_>], returning: &Returning) -> BTreeMap<u64, Lanes> {
        let nothing = |_: &SiteAt, _: &Insn| Lanes::NONE;
        let mut reads: BTreeMap<u64, Lanes> = BTreeMap::new();
        // By body: those whose reads it asks for. What none of them changes does not change.
        let mut asks: Vec<Option<BTreeSet<u64>>> = vec![Some(BTreeSet::new()); bodies.len()];
        let mut changed: BTreeSet<u64> = bodies.iter().map(|b| b.function.va).collect();
        let mut first = true;
        while !changed.is_empty() {
            let before = std::mem::take(&mut changed);
            for (body, asks) in bodies.iter().zip(&mut asks) {
                let concerned = match &*asks {
                    Some(asks) => asks
                        .iter()
                        .any(|va| before.contains(va) || changed.contains(va)),
                    None => true,
                };
                if !first && !concerned {
                    continue;
                }
                let context = self.context(&body.function.name, &nothing);
                let sites = context.sites.values();
                *asks = self.asked(body, sites);
                let called = |insn: &Insn| match context.sites.get(&insn.end()) {
                    Some(site) => self.needs(&reads, site, insn),
                    None => Lanes::NONE,
                };
                let found = liveness::entry_reads(
                    &context,
                    &body.code,
                    &body.states,
                    |i| successors(&context, returning, i),
                    called,
                );
                if reads.insert(body.function.va, found) != Some(found) {
                    changed.insert(body.function.va);
                }
            }
            first = false;
        }
        reads
    }

    /// The functions of which a body's calls with sites want to know what they read; `None`: all.
    fn asked<'b>(
        &self,
        body: &Body<'_>,
        sites: impl Iterator<Item = &'b &'b SiteAt>,
    ) -> Option<BTreeSet<u64>> {
        let insns = body.code.insns.iter();
        let direct: BTreeMap<u64, u64> = insns
            .filter_map(|insn| match insn.flow {
                Flow::Call(to) => Some((insn.end(), to)),
                _ => None,
            })
            .collect();
        let mut asked = BTreeSet::new();
        for site in sites {
            match direct.get(&site.ret) {
                Some(to) => drop(asked.insert(*to)),
                None if site.targets.is_empty() => return None,
                None => {}
            }
            let targets = site.targets.iter().filter_map(|t| self.image.named(t));
            asked.extend(targets.map(|f| f.va));
        }
        Some(asked)
    }

    /// Goes over a function whose states are known, and says what is wrong.
    fn report(
        &self,
        context: &Context<'_>,
        body: &Body<'_>,
        returning: &Returning,
    ) -> (Vec<Finding>, Coverage) {
        let mut log = Log::default();
        let mut findings = Vec::new();
        let mut covered = Coverage {
            functions: 1,
            instructions: body.code.insns.len(),
            ..Coverage::default()
        };
        for (insn, state) in body.code.insns.iter().zip(&body.states) {
            match state {
                Some(state) => {
                    let mut state = state.clone();
                    context.step(insn, &mut state, &mut log);
                    let (target, next) = successors(context, returning, insn);
                    if let Some(to) = target.filter(|to| body.code.at(*to).is_none()) {
                        context.leave(to, &state, &mut log);
                    }
                    if next.is_some_and(|to| body.code.at(to).is_none()) {
                        let detail = "control runs off the function's end".to_owned();
                        log.findings.push((Kind::FlowLeaves, detail));
                    }
                    covered.sites += usize::from(context.is_site(insn));
                }
                None if insn.padding => covered.padding += 1,
                None => log.findings.push((Kind::Unreached, String::new())),
            }
            for (kind, detail) in log.findings.drain(..) {
                findings.push(self.finding(body.function, insn, kind, detail));
            }
        }
        for (ret, site) in &context.sites {
            let calls = |(insn, state): (&Insn, &Option<state::State>)| {
                state.is_some() && insn.end() == *ret && context.is_site(insn)
            };
            if !body.code.insns.iter().zip(&body.states).any(calls) {
                let detail = format!("site {} at {ret:#x} is behind no call", site.id);
                findings.push(bare(
                    self.arch.isa,
                    Kind::NoCallAtSite,
                    &site.function,
                    detail,
                ));
            }
        }
        covered.slot_loads = log.slot_loads;
        covered.red_zone = log.red_zone;
        covered.register_reads = log.register_reads;
        covered.plain_indirect_calls = log.plain_indirect_calls;
        (findings, covered)
    }

    fn finding(&self, function: &Function<'_>, insn: &Insn, kind: Kind, detail: String) -> Finding {
        let at = usize::try_from(insn.va - function.va).unwrap_or(usize::MAX);
        let bytes = function.bytes.get(at..).unwrap_or_default();
        let mut source = self.image.source(insn.va);
        if let Some(place) = &mut source
            && place.own().is_none()
        {
            place.used_at = self.called_at(function.va);
        }
        Finding {
            isa: self.arch.isa,
            kind,
            function: crate::demangle(&function.name),
            va: insn.va,
            instruction: listing::text(self.arch.isa, bytes, insn.va),
            source,
            detail,
        }
    }

    /// A line of the program's own source that calls the function at `va`, by way of as few functions as
    /// possible.
    fn called_at(&self, va: u64) -> Option<Source> {
        let calls = self.calls.get_or_init(|| {
            let mut calls: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
            for function in self.image.functions() {
                for insn in Code::decode(self.arch.isa, function).insns {
                    if let Flow::Call(to) | Flow::Jump(to) = insn.flow
                        && to != function.va
                        && self.image.starting_at(to).is_some()
                    {
                        calls.entry(to).or_default().push((function.va, insn.va));
                    }
                }
            }
            calls
        });
        let mut seen = BTreeSet::from([va]);
        let mut next = VecDeque::from([va]);
        while let Some(to) = next.pop_front() {
            for &(caller, at) in calls.get(&to).into_iter().flatten() {
                let place = self.image.source(at);
                if let Some(own) = place.as_ref().and_then(Place::own) {
                    return Some(own.clone());
                }
                if seen.insert(caller) {
                    next.push_back(caller);
                }
            }
        }
        None
    }
}

/// Where control may go from `insn`. Behind a call with a site it may come back, whatever the callee's
/// own code says: the pass has put something there.
fn successors(
    context: &Context<'_>,
    returning: &Returning,
    insn: &Insn,
) -> (Option<u64>, Option<u64>) {
    match context.is_site(insn) {
        true => (None, Some(insn.end())),
        false => returning.successors(insn),
    }
}

impl check::Targets for Verifier<'_> {
    fn target(&self, va: u64) -> Target {
        self.target(va)
    }

    fn name(&self, va: u64) -> Option<&str> {
        self.image.starting_at(va).map(|f| f.name.as_str())
    }
}

fn add(all: &mut Coverage, one: &Coverage) {
    all.functions += one.functions;
    all.instructions += one.instructions;
    all.padding += one.padding;
    all.sites += one.sites;
    all.slot_loads += one.slot_loads;
    all.red_zone += one.red_zone;
    all.register_reads += one.register_reads;
    all.plain_indirect_calls += one.plain_indirect_calls;
}
