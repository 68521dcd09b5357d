//! What the IR that back ends get says of every call and every function: convention, arguments, result.
//!
//! The verifier reads this from the pass's result, not from what the pass has decided: which functions have
//! the convention of the spine, of which the address is taken, and what every call through a pointer takes
//! its callee for. A call through a pointer whose convention one of the functions has not that it may reach is
//! a finding.

use super::error::SpineError;
use super::inst::{Callee, Inst};
use super::{BLOCKS, KEPT, is_of_one_isa, types};
use crate::llvm::{Function, Header, Item, Kind, Lexed, Line, Module, lex, parts};
use crate::verify::{Conventions, Signature};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::calls::CONVENTION as PRESERVES_NOTHING;

/// Conventions in which arguments are where the C convention has them.
const PLAIN: [&str; 4] = ["", "ccc", "fastcc", "coldcc"];

/// A call of a function.
struct Made {
    by: String,
    to: Option<String>,
    signature: Signature,
}

/// Reads a module.
///
/// # Errors
///
/// If a call or a header cannot be read.
pub(super) fn read(text: &str) -> Result<Conventions, SpineError> {
    let module = Module::parse(text)?;
    let mut found = Conventions::default();
    let mut taken = BTreeSet::new();
    let mut kept = BTreeSet::new();
    let mut one_isa = BTreeSet::new();
    let mut calls = Vec::new();
    for item in &module.items {
        match item {
            Item::Line(line) if matches!(Line::of(line), Line::Declare) => {
                let (name, signature) = header(line)?;
                found.functions.insert(name, signature);
            }
            Item::Line(line) if line.starts_with('@') => {
                let l = lex(line)?;
                let names = (1..l.tokens.len()).filter(|i| l.kind(*i) == Some(Kind::Global));
                let names = names.map(|i| plain_name(l.name(i)));
                match l.name(0) {
                    BLOCKS => {}
                    name if name.contains(KEPT) => kept.extend(names),
                    _ => taken.extend(names),
                }
            }
            Item::Line(_) => {}
            Item::Function(f) => {
                let (name, signature) = header(&f.header)?;
                if is_of_one_isa(&f.header) {
                    one_isa.insert(name.clone());
                }
                found.functions.insert(name, signature);
                function(f, &mut found, &mut taken, &mut calls).map_err(|e| e.of(&f.name))?;
            }
        }
    }
    taken.extend(kept.difference(&one_isa).cloned());
    check(&mut found, &taken, &calls);
    Ok(found)
}

fn plain_name(name: &str) -> String {
    name.trim_matches('"').to_owned()
}

/// Name and signature of a definition or a declaration.
fn header(line: &str) -> Result<(String, Signature), SpineError> {
    let bad = || SpineError::unreadable("", line);
    let l = lex(line)?;
    let h = Header::read(&l).ok_or_else(bad)?;
    let name = plain_name(l.name(h.name));
    let before = 1..h.result.start;
    let signature = signature(&l, &h.convention, before, h.result, h.parameters);
    Ok((name, signature.ok_or_else(bad)?))
}

/// The signature of a call or a function, by its tokens: convention, what stands before the result's type, that
/// type, arguments.
fn signature(
    l: &Lexed<'_>,
    convention: &Range<usize>,
    before: Range<usize>,
    result: Range<usize>,
    arguments: Range<usize>,
) -> Option<Signature> {
    let convention = l.span(convention.start, convention.end);
    let mut out = Signature {
        preserves_nothing: convention == PRESERVES_NOTHING,
        arguments: String::new(),
        result: letters(l, result, before),
    };
    for part in parts(l, arguments) {
        let odd = |i| {
            ["byval", "inalloca", "preallocated", "nest"]
                .iter()
                .any(|w| l.is_word(i, w))
        };
        if l.is_word(part.start, "...") || part.clone().any(odd) {
            out.arguments.push('?');
            continue;
        }
        let end = l.past_type(part.start)?;
        let aggregate = !matches!(l.kind(part.start), Some(Kind::Word));
        let one = letters(l, part.start..end, end..part.end);
        // In the C convention of AArch64 the address of a result is no argument.
        let address = (end..part.end).any(|i| l.is_word(i, "sret"))
            && !out.preserves_nothing
            && !lacks!("spine::conventions::sret");
        match aggregate && !one.contains(['u', 'v']) {
            true => out.arguments.push_str(&format!("|{one}|")),
            false if address => out.arguments.push('s'),
            false => out.arguments.push_str(&one),
        }
    }
    if !out.preserves_nothing && !PLAIN.contains(&convention) {
        out.arguments.push('?');
    }
    Some(out)
}

/// The letters of a type, with the attributes of a value.
fn letters(l: &Lexed<'_>, ty: Range<usize>, mut attributes: Range<usize>) -> String {
    let is_bit = ty.len() == 1 && l.is_word(ty.start, "i1");
    let letters = types::letters(l.span(ty.start, ty.end)).unwrap_or_else(|| "?".to_owned());
    let extended = attributes.any(|i| l.is_word(i, "zeroext") || l.is_word(i, "signext"));
    let extended = extended && !lacks!("spine::conventions::extended");
    if extended && is_bit {
        return "Z".to_owned();
    }
    match extended && ["b", "h"].contains(&letters.as_str()) {
        true => letters.to_uppercase(),
        false => letters,
    }
}

fn function(
    f: &Function,
    found: &mut Conventions,
    taken: &mut BTreeSet<String>,
    calls: &mut Vec<Made>,
) -> Result<(), SpineError> {
    for block in &f.blocks {
        let mut last: Option<Signature> = None;
        for inst in &block.insts {
            let l = lex(inst)?;
            let mut direct = None;
            if let Inst::Call(call) = Inst::read(&l)? {
                if let Callee::Named(name) = &call.callee
                    && name == "llvm.experimental.stackmap"
                {
                    let id = (call.args.clone()).find_map(|i| l.text(i).parse::<u64>().ok());
                    let call = last.take().zip(id);
                    let bad = || SpineError::unreadable(&f.name, inst);
                    let (signature, id) = call.ok_or_else(bad)?;
                    found.sites.insert(id, signature);
                    continue;
                }
                let before = call.at + 1..call.result;
                let end = l.past_type(call.result).unwrap_or(call.result);
                let result = call.result..end;
                let read = signature(&l, &call.convention, before, result, call.args.clone())
                    .ok_or_else(|| SpineError::unreadable(&f.name, inst))?;
                if let Callee::Named(_) = call.callee {
                    direct = Some(call.callee_at);
                }
                let to = match &call.callee {
                    Callee::Named(name) => Some(plain_name(name)),
                    Callee::Pointer => None,
                    Callee::Asm => continue,
                };
                if to.is_none() && !read.preserves_nothing {
                    let all = found.plain.entry(plain_name(&f.name)).or_default();
                    all.push(read.clone());
                }
                last = Some(read.clone());
                calls.push(Made {
                    by: plain_name(&f.name),
                    to,
                    signature: read,
                });
            }
            let names = (0..l.tokens.len())
                .filter(|i| l.kind(*i) == Some(Kind::Global) && Some(*i) != direct);
            taken.extend(names.map(|i| plain_name(l.name(i))));
        }
    }
    Ok(())
}

/// Finds calls in a convention that a function has not that they may reach.
fn check(found: &mut Conventions, taken: &BTreeSet<String>, calls: &[Made]) {
    // By class: a function of each convention of which the address is taken.
    let mut classes: BTreeMap<String, [Option<&str>; 2]> = BTreeMap::new();
    for name in taken {
        if let Some(signature) = found.functions.get(name) {
            let members = classes.entry(signature.class()).or_default();
            members[usize::from(signature.preserves_nothing)] = Some(name);
        }
    }
    let mut broken = Vec::new();
    for call in calls {
        let other = usize::from(!call.signature.preserves_nothing);
        let reached = match &call.to {
            None if lacks!("spine::conventions::pointers") => None,
            None => classes.get(&call.signature.class()).and_then(|m| m[other]),
            Some(name) if name.starts_with("llvm.") => None,
            Some(name) => {
                let callee = found.functions.get_key_value(name);
                callee
                    .filter(|(_, s)| {
                        s.preserves_nothing != call.signature.preserves_nothing
                            && !lacks!("spine::conventions::names")
                    })
                    .map(|(name, _)| name.as_str())
            }
        };
        if let Some(name) = reached {
            let [own, its] = match call.signature.preserves_nothing {
                true => ["preserve_none", "the C convention"],
                false => ["the C convention", "preserve_none"],
            };
            let through = if call.to.is_none() {
                " through a pointer"
            } else {
                ""
            };
            let name = crate::demangle(name);
            let detail = format!("a call{through} in {own} may reach {name}, which has {its}");
            broken.push((call.by.clone(), detail));
        }
    }
    broken.sort();
    broken.dedup();
    found.broken = broken;
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "@t = internal global [2 x ptr] [ptr @a, ptr @b]\n";

    fn broken(text: &str) -> Vec<String> {
        let all = read(text).unwrap().broken;
        all.into_iter()
            .map(|(by, what)| format!("{by}: {what}"))
            .collect()
    }

    #[test]
    fn calls_in_another_convention_than_what_they_reach_are_found() {
        let module = |a: &str, b: &str, call: &str| {
            format!(
                "{TABLE}define internal {a} @a(ptr %p, i1 zeroext %q) {{\n  ret i64 0\n}}\n\
                 define internal {b} @b(i64 %p, i8 %q) {{\n  ret i64 0\n}}\n\
                 define void @c(ptr %f) {{\n  {call}\n  ret void\n}}\n"
            )
        };
        let none = "preserve_nonecc i64";
        let calls =
            |convention: &str, arguments: &str| format!("%r = call {convention} %f({arguments})");
        for arguments in ["ptr null, i8 0", "i64 0, i1 zeroext false"] {
            assert_eq!(
                broken(&module(none, none, &calls(none, arguments))),
                [""; 0]
            );
            assert_eq!(
                broken(&module("i64", "i64", &calls("i64", arguments))),
                [""; 0]
            );
            assert_eq!(
                broken(&module(none, none, &calls("i64", arguments))),
                [
                    "c: a call through a pointer in the C convention may reach b, which has preserve_none"
                ]
            );
            // One of a class is enough.
            for (a, b) in [(none, "i64"), ("i64", none)] {
                for call in [none, "i64"] {
                    assert_eq!(
                        broken(&module(a, b, &calls(call, arguments))).len(),
                        1,
                        "{a} {b}"
                    );
                }
            }
        }
        // The spine has no argument for the address of a result but an ordinary one.
        let stored = |convention: &str| {
            format!(
                "@t = internal global ptr @a\ndefine internal {convention} void @a(ptr %p, i64 %n) {{\n  ret void\n}}\n\
                 define void @c(ptr %f) {{\n  call void %f(ptr sret([24 x i8]) %f, i64 1)\n  ret void\n}}\n"
            )
        };
        assert_eq!(broken(&stored("preserve_nonecc")).len(), 1);
        assert_eq!(broken(&stored("")), [""; 0]);
        // Other widths, other results and functions whose address is not taken are no part of it.
        for other in ["ptr null, i32 0", "ptr null, i8 0, i8 0"] {
            assert_eq!(broken(&module(none, none, &calls("i64", other))), [""; 0]);
        }
        let apart = module(none, none, &calls("i64", "ptr null, i8 0")).replace(TABLE, "");
        assert_eq!(broken(&apart), [""; 0]);
        assert_eq!(
            broken(&module(
                none,
                none,
                "%r = call i64 @a(ptr null, i1 zeroext false)"
            )),
            ["c: a call in the C convention may reach a, which has preserve_none"]
        );
    }

    #[test]
    fn what_calls_pass_is_read() {
        let found = read(
            "declare void @d(ptr sret([24 x i8]), i16 signext)\n\
             define internal preserve_nonecc { i64, i1 } @a(ptr %p, i1 zeroext %q, { ptr, i32 } %r) {\n\
             \x20 %x = call preserve_nonecc zeroext i1 %p(i128 0, i8 0, float 0.0)\n\
             \x20 call void (i64, i32, ...) @llvm.experimental.stackmap(i64 7, i32 0)\n\
             \x20 %y = call <2 x double> %p(<2 x float> zeroinitializer)\n  ret { i64, i1 } poison\n}\n",
        )
        .unwrap();
        let read = |s: &Signature| (s.preserves_nothing, s.arguments.clone(), s.result.clone());
        let is = |n: bool, a: &str, r: &str| (n, a.to_owned(), r.to_owned());
        assert_eq!(read(&found.functions["d"]), is(false, "sH", ""));
        assert_eq!(read(&found.functions["a"]), is(true, "lZ|li|", "lb"));
        assert_eq!(read(&found.sites[&7]), is(true, "Lbf", "Z"));
        assert_eq!(found.plain["a"].len(), 1);
        assert_eq!(read(&found.plain["a"][0]), is(false, "u", "v"));
    }
}
