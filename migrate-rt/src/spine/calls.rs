//! First half of the pass: conventions and sites.
//!
//! Each call that may migrate becomes
//!
//! ```text
//!   %r = notail call preserve_nonecc T @callee(...)
//!   call void (i64, i32, ...) @llvm.experimental.stackmap(i64 SITE, i32 0)
//! ```

use super::attrs::{self, Groups};
use super::error::{Refused, SpineError};
use super::graph::Graph;
use super::inst::{Call, Callee, Inst, Odd};
use super::words::Words;
use super::{LEAF, Report, Site};
use crate::ir::is_comment;
use crate::llvm::{
    Block, FAST_MATH_FLAGS, Function, Header, Item, Kind, Lexed, Module, declares, lex, parts,
};
use crate::source::Lines;
use std::collections::HashMap;

/// What stops a thread that comes where it cannot.
const TRAP: &str = "llvm.trap";

/// The convention in which callees preserve nothing.
pub(super) const CONVENTION: &str = "preserve_nonecc";

/// Rewrites the functions of a module. Gives the sites, by number.
///
/// # Errors
///
/// If an instruction cannot be understood; what cannot be on the spine goes to `report`.
pub(super) fn rewrite(
    module: &mut Module,
    graph: &Graph,
    report: &mut Report,
) -> Result<Vec<Site>, SpineError> {
    let lines: Vec<String> = module.lines().map(str::to_owned).collect();
    let places = Lines::of(lines.iter().map(String::as_str));
    let mut groups = Groups::of(module);
    let mut sites = Vec::new();
    for item in &mut module.items {
        match item {
            Item::Function(f) => {
                let mut pass = Pass {
                    graph,
                    places: &places,
                    groups: &mut groups,
                    report,
                    sites: &mut sites,
                    words: Words::default(),
                };
                pass.function(f).map_err(|e| e.of(&f.name))?;
            }
            Item::Line(line) if declares(line, LEAF) => {
                *line = format!("declare {CONVENTION} void @{LEAF}()");
            }
            Item::Line(_) => {}
        }
    }
    groups.add_to(module);
    for (name, arguments) in [("llvm.experimental.stackmap", "i64, i32, ..."), (TRAP, "")] {
        if !module.lines().any(|l| declares(l, name)) {
            let line = format!("declare void @{name}({arguments})");
            module.items.push(Item::Line(line));
        }
    }
    Ok(sites)
}

struct Pass<'a> {
    graph: &'a Graph,
    places: &'a Lines<'a>,
    groups: &'a mut Groups,
    report: &'a mut Report,
    sites: &'a mut Vec<Site>,
    words: Words,
}

impl Pass<'_> {
    fn function(&mut self, f: &mut Function) -> Result<(), SpineError> {
        if !self.graph.spine.contains(&f.name) {
            for block in &mut f.blocks {
                for inst in std::mem::take(&mut block.insts) {
                    match self.spine_call(&inst)? {
                        Some(call) => block.insts.extend(self.converted(&inst, &call)?),
                        None => block.insts.push(inst),
                    }
                }
            }
            return Ok(());
        }
        f.name_all()?;
        let parameters = self.header(f)?;
        if let Some(entry) = f.blocks.first_mut() {
            entry.insts.splice(0..0, parameters);
        }
        let mut blocks = std::mem::take(&mut f.blocks);
        for (n, block) in blocks.iter_mut().enumerate() {
            for inst in std::mem::take(&mut block.insts) {
                let l = lex(&inst)?;
                match Inst::read(&l)? {
                    Inst::Record => continue,
                    Inst::Alloca { fixed: true, .. } if n == 0 => {}
                    Inst::Alloca { .. } => self.refuse(f, &inst, Refused::DynamicSize),
                    Inst::Call(call) => {
                        self.look_at(f, &inst, &l, &call);
                        if self.graph.is_spine_call(&call) {
                            let id = self.site(f, &inst, &call);
                            block.insts.extend(self.converted(&inst, &call)?);
                            block.insts.push(stackmap(id));
                            continue;
                        }
                    }
                    // Nothing that returns may stand before an unreachable end: the stack map would be
                    // taken away.
                    Inst::End { to, is_return }
                        if to.is_empty()
                            && !is_return
                            && !block.insts.last().is_some_and(|last| is_trap(last)) =>
                    {
                        block.insts.push(format!("call void @{TRAP}()"));
                    }
                    _ => {}
                }
                block.insts.push(inst);
            }
        }
        f.blocks = blocks;
        Ok(())
    }

    /// Rewrites the header of a spine function. Gives the instructions that make parameters of what is passed for them.
    fn header(&mut self, f: &mut Function) -> Result<Vec<String>, SpineError> {
        let l = lex(&f.header)?;
        let bad = || SpineError::unreadable("", &f.header);
        let h = Header::read(&l).ok_or_else(bad)?;
        let (mut args, mut made) = (Vec::new(), Vec::new());
        for (n, part) in parts(&l, h.parameters.clone()).into_iter().enumerate() {
            if l.is_word(part.start, "...") {
                args.push("...".to_owned());
                let source = self.places.of_function(&f.header);
                self.report
                    .refuse(&f.name, source, Refused::Odd(Odd::Varargs));
                continue;
            }
            let end = l.past_type(part.start).ok_or_else(bad)?;
            let ty = l.span(part.start, end);
            let named = part.end - 1;
            let (name, attributes) = match l.kind(named) {
                Some(Kind::Local) if named >= end => (Some(l.name(named)), end..named),
                _ => (None, end..part.end),
            };
            let text = match self.graph.is_shared(&f.name) {
                true => without(&l, attributes, &[MISLEADING, EXTENDED].concat()),
                false => without(&l, attributes, &MISLEADING),
            };
            let name = name.map_or_else(|| format!("spine.arg.{n}"), str::to_owned);
            if let Some((words, insts)) = self.words.parameters(ty, &name) {
                args.extend(words);
                made.extend(insts);
                continue;
            }
            let text = if text.is_empty() {
                text
            } else {
                format!("{text} ")
            };
            args.push(format!("{ty} {text}%{name}"));
        }
        let mut before = String::new();
        for i in 0..h.result.start {
            if !h.convention.contains(&i) && !EXTENDED.contains(&l.text(i)) {
                before.push_str(l.text(i));
                before.push(' ');
            }
        }
        let result = l.span(h.result.start, h.name + 1);
        let mut after = String::new();
        for i in h.end()..l.tokens.len() {
            after.push(' ');
            match l.kind(i) {
                Some(Kind::Attr) => {
                    after.push('#');
                    after.push_str(&self.groups.on_spine(l.name(i)));
                }
                _ => after.push_str(l.text(i)),
            }
        }
        let before = before_type(&before);
        let header = format!("{before}{result}({}){after}", args.join(", "));
        f.header = attrs::insert_attributes(&header, attrs::SPINE).ok_or_else(bad)?;
        Ok(made)
    }

    fn spine_call(&self, inst: &str) -> Result<Option<Call>, SpineError> {
        let line = lex(inst)?;
        Ok(match Inst::read(&line)? {
            Inst::Call(call) if self.graph.is_spine_call(&call) => Some(call),
            _ => None,
        })
    }

    /// A call in the convention of the spine, behind the instructions that make what it passes.
    fn converted(&mut self, inst: &str, call: &Call) -> Result<Vec<String>, SpineError> {
        let l = lex(inst)?;
        let mut insts = Vec::new();
        let mut out = l.span(0, call.tail.unwrap_or(call.at)).to_owned();
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str("notail call ");
        let before: Vec<&str> = (call.at + 1..call.result)
            .filter(|i| !call.convention.contains(i))
            .map(|i| l.text(i))
            .filter(|w| !EXTENDED.contains(w))
            .collect();
        // Fast-math flags come before the convention; calls that return none have none.
        let (flags, rest): (Vec<&str>, Vec<&str>) = before
            .into_iter()
            .partition(|w| FAST_MATH_FLAGS.contains(w));
        for word in flags.into_iter().chain([CONVENTION]).chain(rest) {
            out.push_str(word);
            out.push(' ');
        }
        out.push_str(l.span(call.result, call.args.start));
        let misleading: &[&str] = match lacks!("spine::calls::misleading") {
            true => &[],
            false => &MISLEADING,
        };
        let mut args = Vec::new();
        for part in parts(&l, call.args.clone()) {
            let words = match l.past_type(part.start) {
                Some(end) => self.words.arguments(&l, &part, end)?,
                None => None,
            };
            match words {
                Some((made, words)) => {
                    insts.extend(made);
                    args.extend(words);
                }
                None => args.push(without(&l, part, misleading)),
            }
        }
        out.push_str(&args.join(", "));
        for i in call.args.end..l.tokens.len() {
            match l.kind(i) {
                Some(Kind::Attr) => {
                    out.push_str(" #");
                    out.push_str(&self.groups.on_spine(l.name(i)));
                }
                Some(Kind::Mark(b')')) if i == call.args.end => out.push(')'),
                Some(Kind::Mark(b',')) => out.push(','),
                _ => {
                    out.push(' ');
                    out.push_str(l.text(i));
                }
            }
        }
        insts.push(out);
        Ok(insts)
    }

    fn site(&mut self, f: &Function, inst: &str, call: &Call) -> u64 {
        let id = self.sites.len() as u64 + 1;
        let targets = self.graph.targets(call);
        let recursive = matches!(&call.callee, Callee::Named(name) if *name == f.name)
            || targets.contains(&f.name);
        self.sites.push(Site {
            id,
            function: f.name.trim_matches('"').to_owned(),
            source: self.places.of_instruction(inst),
            targets,
            recursive,
        });
        id
    }

    /// Refuses calls that cannot be on the spine.
    fn look_at(&mut self, f: &Function, inst: &str, l: &Lexed<'_>, call: &Call) {
        let spine = self.graph.is_spine_call(call);
        let odd = call.odd.filter(|_| spine && !lacks!("spine::calls::odd"));
        if let Some(odd) = odd {
            self.refuse(f, inst, Refused::Odd(odd));
        }
        if call.tail.is_some_and(|t| l.is_word(t, "musttail")) && !lacks!("spine::calls::musttail")
        {
            self.refuse(f, inst, Refused::MustTail);
        }
        // An empty template is a barrier for the optimiser and nothing else, and so is a comment; a marker
        // is a no-operation.
        if call.callee == Callee::Asm {
            let text = (call.callee_at..call.args.start).find(|i| l.kind(*i) == Some(Kind::Text));
            let template = text.map_or("", |i| l.text(i).trim_matches('"'));
            let harmless =
                |t: &str| t.is_empty() || t == "nop" || t.starts_with(".4byte ") || is_comment(t);
            if !template.split("\\0A").all(harmless) {
                self.refuse(f, inst, Refused::Assembly);
            }
        }
    }

    fn refuse(&mut self, f: &Function, inst: &str, what: Refused) {
        self.report
            .refuse(&f.name, self.places.of_instruction(inst), what);
    }
}

/// What stands before the result's type in a header, with the convention of the spine.
fn before_type(words: &str) -> String {
    let mut out = words.to_owned();
    // The convention stands before attributes of the result and behind linkage.
    const LINKAGE: [&str; 10] = [
        "define",
        "internal",
        "private",
        "hidden",
        "protected",
        "dso_local",
        "weak",
        "weak_odr",
        "linkonce_odr",
        "external",
    ];
    let at = out
        .split_inclusive(' ')
        .take_while(|w| LINKAGE.contains(&w.trim_end()))
        .map(str::len)
        .sum();
    out.insert_str(at, &format!("{CONVENTION} "));
    out
}

/// Attributes of arguments that back ends take for more than `preserve_none` says: x86-64 functions keep an
/// argument with `sret` to return it, and AArch64 callers of a function that returns its first argument
/// (`returned`) take it that the registers of the C convention are preserved.
const MISLEADING: [&str; 2] = ["sret", "returned"];

/// Attributes of a value whose upper bits the other side of the call has set. Where functions are called
/// through pointers, the other side may have a type without them: `i8` for `i1 zeroext`. Who takes an argument
/// through a pointer does not rely on them; who gives one keeps to them. No result has them: the x86-64 back end extends
/// results to a byte, and what is above it may be from before a site.
const EXTENDED: [&str; 2] = ["zeroext", "signext"];

/// Tokens without some attributes, and what stands in parentheses behind those.
fn without(l: &Lexed<'_>, range: std::ops::Range<usize>, attributes: &[&str]) -> String {
    let mut out = String::new();
    // Where the token before ends, unless it was left out.
    let mut end = None;
    let mut i = range.start;
    while i < range.end {
        if attributes.iter().any(|a| l.is_word(i, a)) {
            i += 1;
            if l.is_mark(i, b'(') {
                i = l.past_bracket(i).unwrap_or(range.end);
            }
            end = None;
            continue;
        }
        let at = &l.tokens[i].at;
        match end {
            Some(end) => out.push_str(&l.line[end..at.start]),
            None if !out.is_empty() && !l.is_mark(i, b',') => out.push(' '),
            None => {}
        }
        out.push_str(l.text(i));
        end = Some(at.end);
        i += 1;
    }
    out
}

fn is_trap(inst: &str) -> bool {
    inst.contains(&format!("call void @{TRAP}()"))
}

pub(super) fn stackmap(id: u64) -> String {
    format!("call void (i64, i32, ...) @llvm.experimental.stackmap(i64 {id}, i32 0)")
}

/// Has phis name the block from which control comes now.
pub(super) fn redirect(
    blocks: &mut [Block],
    last: &HashMap<String, String>,
) -> Result<(), SpineError> {
    if last.is_empty() || lacks!("spine::calls::redirect") {
        return Ok(());
    }
    for block in blocks {
        for inst in &mut block.insts {
            let l = lex(inst)?;
            if Inst::read(&l)? != Inst::Phi {
                break;
            }
            // Blocks stand behind the comma of each pair; values before it.
            let is_block = |i: usize| {
                l.is_mark(i - 1, b',') && l.kind(i) == Some(Kind::Local) && l.is_mark(i + 1, b']')
            };
            let mut out = String::new();
            let mut done = 0;
            for i in (1..l.tokens.len()).filter(|i| is_block(*i)) {
                if let Some(new) = last.get(l.name(i)) {
                    let at = &l.tokens[i].at;
                    out.push_str(&inst[done..at.start]);
                    out.push('%');
                    out.push_str(new);
                    done = at.end;
                }
            }
            out.push_str(&inst[done..]);
            *inst = out;
        }
    }
    Ok(())
}
