//! Second half of the pass: what is live across a site goes to a frame on the data stack.
//!
//! By now every value that is used in another block than the one that makes it is in a local variable.
//! A variable that is only loaded and stored as a whole can be a register again; if it is live across
//! a site, it is stored to the frame before the call, unless the frame has its value already, and
//! loaded from there behind it. So nothing is paid where no call may migrate: loops without a site run
//! in registers. All other variables, which have an address, live in the frame.
//!
//! The frame's address is asked for behind every site, since it would not survive one either. It is
//! the thread's data stack pointer, which callees leave as it was.

use super::error::{Refused, SpineError};
use super::inst::Inst;
use super::types::layout;
use super::{FRAME, MAX_FRAME, Report, SET_FRAME};
use crate::llvm::{Block, Function, Kind, lex};
use crate::source::Place;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Alignment of data stacks and of frames on them.
const DATA_ALIGN: u64 = 16;

/// A local variable.
#[derive(Clone, Debug)]
struct Variable {
    ty: String,
    align: u64,
    size: u64,
    /// Whether it is only loaded and stored as a whole.
    whole: bool,
}

/// Gives `f`, which is at `source`, its frame. Gives the frame's size.
///
/// # Errors
///
/// If an instruction cannot be understood; what cannot be in a frame goes to `report`.
pub(super) fn build(
    f: &mut Function,
    source: Option<Place>,
    report: &mut Report,
) -> Result<u64, SpineError> {
    let mut variables = variables(f, &source, report)?;
    find_addresses(f, &mut variables)?;
    for v in variables.values_mut() {
        // Vectors that nobody has the address of are loaded and stored with what alignment there is.
        if v.align > DATA_ALIGN && !v.whole {
            report.refuse(&f.name, source.clone(), Refused::Alignment(v.align));
        }
        v.align = v.align.min(DATA_ALIGN);
    }
    let graph = Flow::of(f, &variables)?;
    let live = graph.live_across();
    let dirty = graph.dirty(&live);
    let across: BTreeSet<&str> = live.values().flatten().map(String::as_str).collect();
    // The largest alignment first, so that there are no gaps.
    let mut placed: Vec<(&String, &Variable)> = variables
        .iter()
        .filter(|(name, v)| !v.whole || across.contains(name.as_str()))
        .collect();
    placed.sort_by_key(|(_, v)| std::cmp::Reverse(v.align));
    let mut offsets: HashMap<String, u64> = HashMap::new();
    let mut size = 0u64;
    for (name, v) in placed {
        size = size.next_multiple_of(v.align);
        offsets.insert(name.clone(), size);
        // A variable without a size has an address, too, and so needs a frame.
        size = size.saturating_add(v.size.max(1));
    }
    size = size
        .checked_next_multiple_of(DATA_ALIGN)
        .unwrap_or(u64::MAX);
    if size > MAX_FRAME {
        report.refuse(&f.name, source, Refused::Large(size));
        return Ok(size);
    }
    let has_frame = size > 0;
    let mut writer = Writer {
        offsets: &offsets,
        variables: &variables,
        size,
        next: 0,
    };
    let mut blocks = Vec::new();
    for (n, block) in f.blocks.iter().enumerate() {
        let mut out = Vec::new();
        let mut started = n != 0 || !has_frame;
        for (i, inst) in block.insts.iter().enumerate() {
            let l = lex(inst)?;
            let read = Inst::read(&l)?;
            if let Inst::Alloca { name, .. } = &read {
                // Those that can be registers stay, to be made registers.
                if variables.get(name).is_some_and(|v| v.whole) {
                    out.push(inst.clone());
                }
                continue;
            }
            if !started {
                writer.enter(&mut out);
                started = true;
            }
            if is_lifetime(inst) && writer.names_frame(inst)? {
                continue;
            }
            let is_site = inst.contains("@llvm.experimental.stackmap(");
            if let Some(site) = next_is_site(&block.insts, i)
                && has_frame
            {
                writer.save(&mut out, dirty.get(&site));
            }
            if matches!(
                read,
                Inst::End {
                    is_return: true,
                    ..
                }
            ) && has_frame
            {
                writer.leave(&mut out);
            }
            writer.inst(inst, &mut out)?;
            if is_site && has_frame {
                let site = site_of(inst);
                writer.restore(&mut out, live.get(&site));
            }
        }
        blocks.push(Block {
            label: block.label.clone(),
            insts: out,
        });
    }
    f.blocks = blocks;
    Ok(size)
}

fn is_lifetime(inst: &str) -> bool {
    inst.contains("@llvm.lifetime.")
}

/// The number in a site's stack map.
fn site_of(inst: &str) -> String {
    let (_, rest) = inst.split_once("stackmap(i64 ").unwrap_or(("", ""));
    rest.split(',').next().unwrap_or("").to_owned()
}

/// The site whose call is instruction `i`. Between the call and the stack map there is at most the
/// store of the call's result.
fn next_is_site(insts: &[String], i: usize) -> Option<String> {
    let is_call = |inst: &String| inst.contains("call preserve_nonecc ");
    if !is_call(insts.get(i)?) {
        return None;
    }
    let behind = insts[i + 1..]
        .iter()
        .take(2)
        .take_while(|inst| !is_call(inst));
    let map = behind
        .into_iter()
        .find(|inst| inst.contains("@llvm.experimental.stackmap("))?;
    Some(site_of(map))
}

fn variables(
    f: &Function,
    source: &Option<Place>,
    report: &mut Report,
) -> Result<BTreeMap<String, Variable>, SpineError> {
    let mut variables = BTreeMap::new();
    for inst in f.insts() {
        let line = lex(inst)?;
        let Inst::Alloca {
            name, ty, align, ..
        } = Inst::read(&line)?
        else {
            continue;
        };
        match layout(&ty) {
            Some((size, natural)) => {
                let align = align.max(natural);
                let line = lex(&ty)?;
                let ty = line.squeezed(0..line.tokens.len());
                variables.insert(
                    name,
                    Variable {
                        ty,
                        align,
                        size,
                        whole: true,
                    },
                );
            }
            None => report.refuse(&f.name, source.clone(), Refused::Type(ty)),
        }
    }
    Ok(variables)
}

/// Finds the variables that are used in another way than to load and store them as a whole.
fn find_addresses(
    f: &Function,
    variables: &mut BTreeMap<String, Variable>,
) -> Result<(), SpineError> {
    for inst in f.insts() {
        let l = lex(inst)?;
        let direct = match Inst::read(&l)? {
            Inst::Alloca { .. } => continue,
            Inst::Load { ty, from } => Some((ty, from)),
            Inst::Store { ty, to, value } => {
                let itself = value.into_iter().any(|i| l.name(i) == to);
                (!itself).then_some((ty, to))
            }
            _ => None,
        };
        for i in (0..l.tokens.len()).filter(|i| l.kind(*i) == Some(Kind::Local)) {
            let name = l.name(i);
            let good = match &direct {
                Some((ty, to)) if to == name => variables.get(name).is_some_and(|v| v.ty == *ty),
                _ => false,
            };
            if !good && let Some(v) = variables.get_mut(name) {
                v.whole = false;
            }
        }
    }
    Ok(())
}

/// The function's flow: what happens to whole variables in each block, and the blocks that may follow.
struct Flow {
    events: Vec<Vec<(EventKind, String)>>,
    next: Vec<Vec<usize>>,
}

/// What happens to the variable, or at the site, of that name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EventKind {
    Load,
    Store,
    Site,
}

impl Flow {
    fn of(f: &Function, variables: &BTreeMap<String, Variable>) -> Result<Flow, SpineError> {
        let index: HashMap<&str, usize> = f
            .blocks
            .iter()
            .enumerate()
            .map(|(i, b)| (b.label.as_str(), i))
            .collect();
        let whole = |name: &str| variables.get(name).is_some_and(|v| v.whole);
        let mut flow = Flow {
            events: Vec::new(),
            next: Vec::new(),
        };
        for block in &f.blocks {
            let (mut events, mut next) = (Vec::new(), Vec::new());
            for (i, inst) in block.insts.iter().enumerate() {
                let line = lex(inst)?;
                let read = Inst::read(&line)?;
                match &read {
                    Inst::Load { from, .. } if whole(from) => {
                        events.push((EventKind::Load, from.clone()));
                    }
                    Inst::Store { to, .. } if whole(to) => {
                        events.push((EventKind::Store, to.clone()));
                    }
                    _ => {
                        let site = next_is_site(&block.insts, i);
                        events.extend(site.map(|site| (EventKind::Site, site)));
                    }
                }
                if let Inst::End { to, .. } = read {
                    for label in to {
                        let unknown = || SpineError::unreadable(&f.name, inst);
                        next.push(*index.get(label.as_str()).ok_or_else(unknown)?);
                    }
                }
            }
            flow.events.push(events);
            flow.next.push(next);
        }
        Ok(flow)
    }

    /// The variables that are live across each site.
    fn live_across(&self) -> HashMap<String, BTreeSet<String>> {
        let count = self.events.len();
        let mut live_in: Vec<BTreeSet<&str>> = vec![BTreeSet::new(); count];
        let mut across: HashMap<String, BTreeSet<String>> = HashMap::new();
        let mut open: BTreeSet<usize> = (0..count).collect();
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (i, next) in self.next.iter().enumerate() {
            for n in next {
                before[*n].push(i);
            }
        }
        while let Some(i) = open.pop_last() {
            let mut live: BTreeSet<&str> = self.next[i]
                .iter()
                .flat_map(|n| live_in[*n].iter().copied())
                .collect();
            for (kind, name) in self.events[i].iter().rev() {
                match kind {
                    EventKind::Load => drop(live.insert(name)),
                    EventKind::Store => drop(live.remove(name.as_str())),
                    EventKind::Site => {
                        let here = across.entry(name.clone()).or_default();
                        here.extend(live.iter().map(|n| n.to_string()));
                    }
                }
            }
            if live != live_in[i] {
                live_in[i] = live;
                open.extend(before[i].iter().copied());
            }
        }
        across
    }

    /// Of the variables that are live across each site, those whose value the frame may not have.
    fn dirty(&self, live: &HashMap<String, BTreeSet<String>>) -> HashMap<String, BTreeSet<String>> {
        let count = self.events.len();
        let mut at_start: Vec<Option<BTreeSet<&str>>> = vec![None; count];
        if let Some(first) = at_start.first_mut() {
            *first = Some(BTreeSet::new());
        }
        let nothing = BTreeSet::new();
        let mut found: HashMap<String, BTreeSet<String>> = HashMap::new();
        let mut open = BTreeSet::from([0]);
        while let Some(i) = open.pop_first() {
            let Some(mut dirty) = at_start[i].clone() else {
                continue;
            };
            for (kind, name) in &self.events[i] {
                match kind {
                    EventKind::Load => {}
                    EventKind::Store => drop(dirty.insert(name)),
                    EventKind::Site => {
                        let kept = live.get(name).unwrap_or(&nothing);
                        let saved = kept.iter().filter(|n| dirty.contains(n.as_str()));
                        found
                            .entry(name.clone())
                            .or_default()
                            .extend(saved.cloned());
                        dirty.retain(|n| !kept.contains(*n));
                    }
                }
            }
            for n in &self.next[i] {
                let changed = match &mut at_start[*n] {
                    Some(known) => {
                        let before = known.len();
                        known.extend(dirty.iter().copied());
                        known.len() != before
                    }
                    unknown => {
                        *unknown = Some(dirty.clone());
                        true
                    }
                };
                if changed {
                    open.insert(*n);
                }
            }
        }
        found
    }
}

/// Writes instructions of a function with a frame.
struct Writer<'a> {
    offsets: &'a HashMap<String, u64>,
    variables: &'a BTreeMap<String, Variable>,
    size: u64,
    next: usize,
}

impl Writer<'_> {
    fn name(&mut self) -> String {
        self.next += 1;
        format!("%spine.value.{}", self.next)
    }

    fn enter(&mut self, out: &mut Vec<String>) {
        let (top, base) = (self.name(), self.name());
        out.push("%spine.base = alloca ptr, align 8".to_owned());
        out.push(format!("{top} = call ptr @{FRAME}()"));
        out.push(format!(
            "{base} = getelementptr i8, ptr {top}, i64 -{}",
            self.size
        ));
        out.push(format!("call void @{SET_FRAME}(ptr {base})"));
        out.push(format!("store ptr {base}, ptr %spine.base, align 8"));
    }

    fn leave(&mut self, out: &mut Vec<String>) {
        let (base, top) = (self.base(out), self.name());
        out.push(format!(
            "{top} = getelementptr i8, ptr {base}, i64 {}",
            self.size
        ));
        out.push(format!("call void @{SET_FRAME}(ptr {top})"));
    }

    fn base(&mut self, out: &mut Vec<String>) -> String {
        let base = self.name();
        out.push(format!("{base} = load ptr, ptr %spine.base, align 8"));
        base
    }

    fn slot(&mut self, base: &str, offset: u64, out: &mut Vec<String>) -> String {
        let slot = self.name();
        out.push(format!(
            "{slot} = getelementptr inbounds i8, ptr {base}, i64 {offset}"
        ));
        slot
    }

    /// Stores, before a call, what is live across its site and not in the frame yet.
    fn save(&mut self, out: &mut Vec<String>, dirty: Option<&BTreeSet<String>>) {
        let Some(dirty) = dirty.filter(|d| !d.is_empty()) else {
            return;
        };
        let base = self.base(out);
        for name in dirty {
            let (Some(offset), Some(v)) = (self.offsets.get(name), self.variables.get(name)) else {
                continue;
            };
            let (value, ty, align) = (self.name(), &v.ty, v.align);
            out.push(format!("{value} = load {ty}, ptr %{name}, align {align}"));
            let slot = self.slot(&base, *offset, out);
            out.push(format!("store {ty} {value}, ptr {slot}, align {align}"));
        }
    }

    /// Finds the frame again behind a site, and loads what was live across it.
    fn restore(&mut self, out: &mut Vec<String>, live: Option<&BTreeSet<String>>) {
        let base = self.name();
        out.push(format!("{base} = call ptr @{FRAME}()"));
        out.push(format!("store ptr {base}, ptr %spine.base, align 8"));
        for name in live.into_iter().flatten() {
            let (Some(offset), Some(v)) = (self.offsets.get(name), self.variables.get(name)) else {
                continue;
            };
            let slot = self.slot(&base, *offset, out);
            let (value, ty, align) = (self.name(), &v.ty, v.align);
            out.push(format!("{value} = load {ty}, ptr {slot}, align {align}"));
            out.push(format!("store {ty} {value}, ptr %{name}, align {align}"));
        }
    }

    /// Whether `name` lives in the frame all the time.
    fn in_frame(&self, name: &str) -> Option<u64> {
        self.variables.get(name).filter(|v| !v.whole)?;
        self.offsets.get(name).copied()
    }

    fn names_frame(&self, inst: &str) -> Result<bool, SpineError> {
        let l = lex(inst)?;
        Ok((0..l.tokens.len())
            .any(|i| l.kind(i) == Some(Kind::Local) && self.in_frame(l.name(i)).is_some()))
    }

    /// An instruction, with addresses in the frame for variables that live there.
    fn inst(&mut self, inst: &str, out: &mut Vec<String>) -> Result<(), SpineError> {
        let l = lex(inst)?;
        let used: BTreeSet<&str> = (0..l.tokens.len())
            .filter(|i| l.kind(*i) == Some(Kind::Local) && self.in_frame(l.name(*i)).is_some())
            .map(|i| l.name(i))
            .collect();
        if used.is_empty() {
            out.push(inst.to_owned());
            return Ok(());
        }
        let base = self.base(out);
        let mut names = HashMap::new();
        for name in used {
            let offset = self.in_frame(name).unwrap_or(0);
            let slot = self.slot(&base, offset, out);
            names.insert(name.to_owned(), slot.trim_start_matches('%').to_owned());
        }
        out.push(super::calls::renamed(inst, &names)?);
        Ok(())
    }
}
