//! Second half of the pass: what is live across a site goes to a frame on the data stack.
//!
//! A value that is live across a site is stored to the frame before the call, unless the frame has it already, and
//! loaded from there behind it, if it is used before the next one. So nothing is paid where no call may migrate: loops
//! without a site run in registers. Behind a site the value has another name; where several names meet, they become one
//! by a phi. Local variables live in the frame.
//!
//! The frame's address is asked for behind every site where something needs it, since it would not survive one either.
//! It is the thread's data stack pointer, which callees leave as it was.

use super::body::{
    Block as BlockNumber, Body, END, From, Live, Made, Position, Read, Registers, Role, Value,
};
use super::error::{Refused, SpineError};
use super::result::{argument, result};
use super::types::layout;
use super::{FRAME, MAX_FRAME, Report, SET_FRAME};
use crate::llvm::{Block, Function, Lexed, lex};
use crate::source::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Alignment of data stacks and of frames on them.
const DATA_ALIGN: u64 = 16;

/// A place in the frame.
struct Slot {
    ty: String,
    align: u64,
    size: u64,
    offset: u64,
}

/// A value that crosses sites.
struct Crossing {
    slot: Slot,
    registers: Registers,
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
    let (size, blocks) = {
        let header = lex(&f.header)?;
        let body = Body::of(f, &header)?;
        let mut frame = Frame::of(&body, &header, f, source.clone(), report)?;
        let size = frame.layout();
        if size > MAX_FRAME {
            report.refuse(&f.name, source, Refused::Large(size));
            return Ok(size);
        }
        frame.find_base();
        (size, frame.write())
    };
    f.blocks = blocks;
    Ok(size)
}

/// The frame of a function.
struct Frame<'a> {
    body: &'a Body<'a>,
    /// Local variables, by value.
    variables: BTreeMap<Value, Slot>,
    crossing: BTreeMap<Value, Crossing>,
    /// By site: what is stored before it.
    saves: Vec<Vec<Value>>,
    /// By site: what is loaded behind it.
    loads: Vec<Vec<Value>>,
    /// By block: what is used there and comes from elsewhere.
    into: Vec<Vec<(Value, From)>>,
    /// By block: variables whose addresses go to phis of the blocks behind.
    handed: Vec<BTreeSet<Value>>,
    /// Where the frame's address comes from.
    base: Registers,
    size: u64,
}

impl<'a> Frame<'a> {
    fn of(
        body: &'a Body<'a>,
        header: &Lexed<'_>,
        f: &Function,
        source: Option<Place>,
        report: &mut Report,
    ) -> Result<Frame<'a>, SpineError> {
        let mut frame = Frame {
            body,
            variables: BTreeMap::new(),
            crossing: BTreeMap::new(),
            saves: vec![Vec::new(); body.sites.len()],
            loads: vec![Vec::new(); body.sites.len()],
            into: vec![Vec::new(); body.labels.len()],
            handed: vec![BTreeSet::new(); body.labels.len()],
            base: Registers::default(),
            size: 0,
        };
        let slot = |ty: String, align: u64, report: &mut Report| {
            let found = layout(&ty).map(|(size, natural)| Slot {
                ty: ty.clone(),
                align: align.max(natural),
                size,
                offset: 0,
            });
            if found.is_none() {
                report.refuse(&f.name, source.clone(), Refused::Type(ty));
            }
            found
        };
        for read in body.blocks.iter().flatten() {
            if let (Role::Alloca { ty, align }, Some(value)) = (&read.role, read.makes)
                && let Some(mut slot) = slot(ty.clone(), *align, report)
            {
                if slot.align > DATA_ALIGN {
                    report.refuse(&f.name, source.clone(), Refused::Alignment(slot.align));
                    slot.align = DATA_ALIGN;
                }
                frame.variables.insert(value, slot);
            }
        }
        let mut live = Live::default();
        for value in 0..body.names.len() {
            if frame.variables.contains_key(&value) {
                continue;
            }
            let crossed = body.crossed(value, &mut live);
            if crossed.is_empty() {
                continue;
            }
            let made = body.made[value];
            let ty = match usize::try_from(made.at) {
                Ok(at) => {
                    let line = &body.blocks[made.block][at].line;
                    let unknown = || SpineError::unreadable(&f.name, line.line);
                    result(line).ok_or_else(unknown)?
                }
                Err(_) => {
                    let unknown = || SpineError::unreadable(&f.name, header.line);
                    argument(header, body.names[value]).ok_or_else(unknown)?
                }
            };
            // Vectors are loaded and stored with what alignment there is.
            let Some(mut slot) = slot(ty, 1, report) else {
                continue;
            };
            slot.align = slot.align.min(DATA_ALIGN);
            let stored = body.first_crossed(value, &crossed, &live);
            for site in &stored {
                frame.saves[*site].push(value);
            }
            let stored = stored
                .iter()
                .map(|s| (body.sites[*s].block, body.sites[*s].at));
            let uses = body.uses[value].iter().copied().chain(stored);
            let registers = body.registers(made, uses, |s| crossed.binary_search(&s).is_ok());
            for site in &registers.loads {
                frame.loads[*site].push(value);
            }
            for (block, from) in &registers.into {
                frame.into[*block].extend(from.map(|from| (value, from)));
            }
            frame.crossing.insert(value, Crossing { slot, registers });
        }
        Ok(frame)
    }

    /// Gives everything its place. Gives the frame's size.
    fn layout(&mut self) -> u64 {
        let crossing = self.crossing.values_mut().map(|c| &mut c.slot);
        let mut all: Vec<&mut Slot> = self.variables.values_mut().chain(crossing).collect();
        // The largest alignment first, so that there are no gaps.
        all.sort_by_key(|slot| std::cmp::Reverse(slot.align));
        let mut size = 0u64;
        for slot in all {
            size = size.next_multiple_of(slot.align);
            slot.offset = size;
            // A variable without a size has an address, too, and so needs a frame.
            size = size.saturating_add(slot.size.max(1));
        }
        self.size = size
            .checked_next_multiple_of(DATA_ALIGN)
            .unwrap_or(u64::MAX);
        self.size
    }

    /// Finds out where the frame's address is needed.
    fn find_base(&mut self) {
        let mut uses: Vec<(BlockNumber, Position)> = Vec::new();
        for (number, block) in self.body.blocks.iter().enumerate() {
            for (at, read) in block.iter().enumerate() {
                let here = (number, at as Position);
                for (token, value) in &read.uses {
                    if !self.variables.contains_key(value) || is_lifetime(&read.line) {
                        continue;
                    }
                    match self.body.comes_from(read, *token) {
                        Some(from) => {
                            self.handed[from].insert(*value);
                            uses.push((from, END));
                        }
                        None => uses.push(here),
                    }
                }
                let saves = matches!(read.role, Role::Site(s) if !self.saves[s].is_empty());
                if saves || read.role == Role::Return {
                    uses.push(here);
                }
            }
        }
        if self.size > 0 {
            self.base = self.body.registers(ENTRY, uses.into_iter(), |_| true);
            for (site, loads) in self.loads.iter().enumerate() {
                if !loads.is_empty() {
                    self.base.loads.insert(site);
                }
            }
        }
    }

    /// The name of a value, which is not a local variable.
    fn name(&self, value: Value, from: From) -> String {
        match from {
            From::Made => format!("%{}", self.body.names[value]),
            From::Site(site) => format!("%$r.{site}.{value}"),
            From::Phi(block) => format!("%$p.{block}.{value}"),
        }
    }

    fn write(&self) -> Vec<Block> {
        let mut writer = Writer {
            frame: self,
            now: vec![From::Made; self.body.names.len()],
            base: From::Made,
            next: 0,
        };
        let blocks = 0..self.body.labels.len();
        blocks.map(|block| writer.block(block)).collect()
    }
}

/// Where the frame's address is made.
const ENTRY: Made = Made { block: 0, at: -1 };

fn base_name(from: From) -> String {
    match from {
        From::Made => "%$base".to_owned(),
        From::Site(site) => format!("%$base.r.{site}"),
        From::Phi(block) => format!("%$base.p.{block}"),
    }
}

fn is_lifetime(line: &Lexed<'_>) -> bool {
    line.line.contains("@llvm.lifetime.")
}

/// Writes the function with its frame.
struct Writer<'a> {
    frame: &'a Frame<'a>,
    /// By value: where it comes from now.
    now: Vec<From>,
    /// Where the frame's address comes from now.
    base: From,
    next: usize,
}

impl Writer<'_> {
    fn block(&mut self, number: BlockNumber) -> Block {
        let (frame, body) = (self.frame, self.frame.body);
        let mut out = Vec::with_capacity(body.blocks[number].len());
        for (value, from) in &frame.into[number] {
            self.now[*value] = *from;
            if *from == From::Phi(number) {
                let registers = &frame.crossing[value].registers;
                let ty = &frame.crossing[value].slot.ty;
                let at_end = |block| body.at_end(registers, body.made[*value], block);
                let name = |block| frame.name(*value, at_end(block));
                out.push(phi(body, number, &frame.name(*value, *from), ty, name));
            }
        }
        if let Some(Some(from)) = frame.base.into.get(&number) {
            self.base = *from;
            if *from == From::Phi(number) {
                let name = |block| base_name(body.at_end(&frame.base, ENTRY, block));
                out.push(phi(body, number, &base_name(*from), "ptr", name));
            }
        }
        let mut entered = number != 0 || frame.size == 0;
        let last = body.blocks[number].len().saturating_sub(1);
        for (at, read) in body.blocks[number].iter().enumerate() {
            let is_variable = |v: &Value| frame.variables.contains_key(v);
            if matches!(read.role, Role::Alloca { .. })
                && read.makes.as_ref().is_some_and(is_variable)
                || is_lifetime(&read.line) && read.uses.iter().any(|(_, v)| is_variable(v))
            {
                continue;
            }
            if !entered {
                self.enter(&mut out);
                entered = true;
            }
            if at == last {
                for value in &frame.handed[number] {
                    let name = handed(number, *value);
                    self.address(&name, frame.variables[value].offset, &mut out);
                }
            }
            if let Role::Site(site) = read.role {
                self.save(site, &mut out);
            }
            if read.role == Role::Return && frame.size > 0 {
                self.leave(&mut out);
            }
            self.inst(read, &mut out);
            if let Some(value) = read.makes {
                self.now[value] = From::Made;
            }
            if read.role == Role::StackMap
                && let Some(Role::Site(site)) =
                    body.blocks[number].get(at - 1).map(|r| r.role.clone())
            {
                self.restore(site, &mut out);
            }
        }
        Block {
            label: body.labels[number].to_owned(),
            insts: out,
        }
    }

    fn temporary(&mut self) -> String {
        self.next += 1;
        format!("%$t.{}", self.next)
    }

    fn enter(&mut self, out: &mut Vec<String>) {
        let (top, size) = (self.temporary(), self.frame.size);
        self.base = From::Made;
        let base = base_name(self.base);
        out.push(format!("{top} = call ptr @{FRAME}()"));
        out.push(format!("{base} = getelementptr i8, ptr {top}, i64 -{size}"));
        out.push(format!("call void @{SET_FRAME}(ptr {base})"));
    }

    fn leave(&mut self, out: &mut Vec<String>) {
        let (base, top, size) = (base_name(self.base), self.temporary(), self.frame.size);
        out.push(format!("{top} = getelementptr i8, ptr {base}, i64 {size}"));
        out.push(format!("call void @{SET_FRAME}(ptr {top})"));
    }

    /// Writes the address of a place in the frame.
    fn address(&mut self, name: &str, offset: u64, out: &mut Vec<String>) {
        let base = base_name(self.base);
        out.push(format!(
            "{name} = getelementptr inbounds i8, ptr {base}, i64 {offset}"
        ));
    }

    /// Stores, before a call, what is live across its site and not in the frame yet.
    fn save(&mut self, site: usize, out: &mut Vec<String>) {
        let frame = self.frame;
        for value in &frame.saves[site] {
            let Slot {
                ty, align, offset, ..
            } = &frame.crossing[value].slot;
            let (slot, name) = (self.temporary(), frame.name(*value, self.now[*value]));
            self.address(&slot, *offset, out);
            out.push(format!("store {ty} {name}, ptr {slot}, align {align}"));
        }
    }

    /// Finds the frame again behind a site, and loads what is used before the next one.
    fn restore(&mut self, site: usize, out: &mut Vec<String>) {
        let frame = self.frame;
        if frame.base.loads.contains(&site) {
            self.base = From::Site(site);
            out.push(format!("{} = call ptr @{FRAME}()", base_name(self.base)));
        }
        for value in &frame.loads[site] {
            let Slot {
                ty, align, offset, ..
            } = &frame.crossing[value].slot;
            let slot = self.temporary();
            self.address(&slot, *offset, out);
            self.now[*value] = From::Site(site);
            let name = frame.name(*value, self.now[*value]);
            out.push(format!("{name} = load {ty}, ptr {slot}, align {align}"));
        }
    }

    /// An instruction, with the names that values have now.
    fn inst(&mut self, read: &Read<'_>, out: &mut Vec<String>) {
        let (frame, body) = (self.frame, self.frame.body);
        let line = read.line.line;
        let mut text = String::with_capacity(line.len() + 16);
        let mut done = 0;
        for (token, value) in &read.uses {
            let from = body.comes_from(read, *token);
            let name = match (frame.variables.get(value), frame.crossing.get(value), from) {
                (Some(_), _, Some(from)) => handed(from, *value),
                (Some(slot), _, None) => {
                    let name = self.temporary();
                    self.address(&name, slot.offset, out);
                    name
                }
                (None, Some(c), Some(from)) => {
                    frame.name(*value, body.at_end(&c.registers, body.made[*value], from))
                }
                (None, Some(_), None) => frame.name(*value, self.now[*value]),
                (None, None, _) => continue,
            };
            let at = &read.line.tokens[*token].at;
            text.push_str(&line[done..at.start]);
            text.push_str(&name);
            done = at.end;
        }
        text.push_str(&line[done..]);
        out.push(text);
    }
}

/// The name of a local variable's address for phis of the blocks behind.
fn handed(block: BlockNumber, value: Value) -> String {
    format!("%$h.{block}.{value}")
}

/// A phi at the start of a block.
fn phi(
    body: &Body<'_>,
    block: BlockNumber,
    name: &str,
    ty: &str,
    of: impl Fn(BlockNumber) -> String,
) -> String {
    let mut out = format!("{name} = phi {ty} ");
    for (n, from) in body.before[block].iter().enumerate() {
        let comma = if n > 0 { ", " } else { "" };
        let _ = write!(out, "{comma}[ {}, %{} ]", of(*from), body.labels[*from]);
    }
    out
}
