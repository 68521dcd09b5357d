//! Floating point that means the same on both ISAs.
//!
//! | what the front end leaves | what its ISAs make of it | what becomes of it here |
//! |---|---|---|
//! | `llvm.minnum`, `llvm.maxnum` (`f64::min`, `max`) | which zero of two, and whether a signalling NaN counts as a number, is the back end's choice | `llvm.minimumnum`, `llvm.maximumnum`: minimumNumber and maximumNumber of IEEE 754-2019, with -0 below +0 |
//! | `llvm.vector.reduce.fmin`, `fmax` | likewise | these, element by element |
//! | fast-math flags | what is done with them depends on the ISA's instructions | nothing: they are dropped |
//! | a choice between two values that were compared | AArch64: `fminnm`, which takes a signalling NaN for one that is quiet | a choice between their bits, on AArch64 |
//!
//! What may still differ is which NaN an operation gives: see the book.

use crate::llvm::{FAST_MATH_FLAGS, Kind, Lexed, Line, lex, parts};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// What depends on the back end, and what means the same.
const INTRINSICS: [(&str, &str); 2] = [
    ("@llvm.minnum.", "@llvm.minimumnum."),
    ("@llvm.maxnum.", "@llvm.maximumnum."),
];
/// Reductions, and what they are of two elements.
const REDUCTIONS: [(&str, &str); 2] = [
    ("@llvm.vector.reduce.fmin.", "@llvm.minimumnum."),
    ("@llvm.vector.reduce.fmax.", "@llvm.maximumnum."),
];
const OPERATIONS: [&str; 12] = [
    "call", "fadd", "fcmp", "fdiv", "fmul", "fneg", "fpext", "fptrunc", "frem", "fsub", "phi",
    "select",
];

/// The module with one meaning for all floating-point operations. Declarations of what is gone go, too; the
/// tools add those of intrinsics that are missing.
pub(super) fn one_meaning(text: &str) -> Cow<'_, str> {
    let concerned = |line: &str| match Line::of(line) {
        Line::Body => without_flags(line).is_some() || names_any(line),
        Line::Declare => names_any(line),
        _ => false,
    };
    if !text.lines().any(concerned) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 1024);
    for line in text.lines() {
        match Line::of(line) {
            Line::Declare if names_any(line) => continue,
            Line::Body => {
                let line = without_flags(line).map_or(Cow::Borrowed(line), Cow::Owned);
                match reduction(&line) {
                    Some(lines) => out.push_str(&lines),
                    None => {
                        let renamed = INTRINSICS
                            .iter()
                            .fold(line.into_owned(), |l, (from, to)| l.replace(from, to));
                        out.push_str(&renamed);
                    }
                }
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    Cow::Owned(out)
}

fn names_any(line: &str) -> bool {
    let names = INTRINSICS.iter().chain(&REDUCTIONS).map(|(from, _)| from);
    line.contains("@llvm.") && names.into_iter().any(|n| line.contains(n))
}

/// The line without fast-math flags, if it has any.
fn without_flags(line: &str) -> Option<String> {
    // Most lines have no flag where flags are, and are not looked into.
    let mut words = line.split_once(" = ")?.1.split(' ').take(3);
    words.find(|w| FAST_MATH_FLAGS.contains(w))?;
    let l = lex(line).ok()?;
    let is_any = |i: usize, words: &[&str]| words.iter().any(|w| l.is_word(i, w));
    let first = 2 + usize::from(is_any(2, &["tail", "notail", "musttail"]));
    if !l.is_mark(1, b'=') || !is_any(first, &OPERATIONS) {
        return None;
    }
    let flags = first + 1;
    let end = (flags..l.tokens.len()).find(|&i| !is_any(i, &FAST_MATH_FLAGS))?;
    let (from, to) = (l.tokens[flags].at.start, l.tokens[end].at.start);
    (end > flags).then(|| format!("{}{}", &line[..from], &line[to..]))
}

/// The text of some tokens.
fn span<'a>(l: &Lexed<'a>, tokens: &Range<usize>) -> &'a str {
    l.span(tokens.start, tokens.end)
}

/// The debugging location at the end of an instruction, with the comma before it; empty if it has none.
fn location(l: &Lexed<'_>) -> String {
    let at = (0..l.tokens.len()).find(|&i| l.kind(i) == Some(Kind::Meta) && l.text(i) == "!dbg");
    at.map_or_else(String::new, |i| format!(", {}", l.span(i, l.tokens.len())))
}

/// A reduction as operations on its elements.
fn reduction(line: &str) -> Option<String> {
    let (from, of_two) = REDUCTIONS.iter().find(|(from, _)| line.contains(from))?;
    let l = lex(line).ok()?;
    let name = l.name(0);
    let is_callee = |&i: &usize| l.kind(i) == Some(Kind::Global) && l.text(i).starts_with(from);
    let open = (2..l.tokens.len()).find(is_callee)? + 1;
    // `<4 x float> %v`; the operand is a value, since constants have been folded.
    let ty = open + 1..l.past_type(open + 1)?;
    let vector = l.span(ty.end, l.past_bracket(open)? - 1);
    let count: usize = l.text(ty.start + 1).parse().ok()?;
    let element = l.text(ty.start + 3);
    let kind = ["half", "float", "double"]
        .iter()
        .position(|k| *k == element)?;
    let function = format!("{of_two}{}", ["f16", "f32", "f64"][kind]);
    let (ty, place) = (span(&l, &ty), location(&l));
    let temporary = |what: &str, i: usize| format!("%dyad.{what}.{}.{i}", name.trim_matches('"'));
    let mut out = String::new();
    for i in 0..count {
        let one = temporary("element", i);
        out.push_str(&format!(
            "  {one} = extractelement {ty} {vector}, i64 {i}{place}\n"
        ));
    }
    let mut so_far = temporary("element", 0);
    for i in 1..count {
        let (one, next) = (
            temporary("element", i),
            match i + 1 == count {
                true => format!("%{name}"),
                false => temporary("reduced", i),
            },
        );
        out.push_str(&format!(
            "  {next} = call {element} {function}({element} {so_far}, {element} {one}){place}\n"
        ));
        so_far = next;
    }
    out.pop();
    (count > 1).then_some(out)
}

/// The module for AArch64, with choices between compared floating-point values made between their bits.
pub(super) fn choices_of_bits(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 1024);
    let mut rest = text;
    while let Some(start) = rest.find("\ndefine ") {
        let end = rest[start..]
            .find("\n}\n")
            .map_or(rest.len(), |n| start + n + 3);
        out.push_str(&rest[..start]);
        function(&rest[start..end], &mut out);
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// Operands of a comparison.
type Compared<'a> = (&'a str, &'a str);

fn function(text: &str, out: &mut String) {
    let compared = text.lines().filter(|l| l.contains(" = fcmp "));
    let comparisons: HashMap<&str, Compared<'_>> = compared.filter_map(comparison).collect();
    if comparisons.is_empty() {
        return out.push_str(text);
    }
    for line in text.split_inclusive('\n') {
        match choice(line.trim_end_matches('\n'), &comparisons) {
            Some(lines) => out.push_str(&lines),
            None => out.push_str(line),
        }
    }
}

/// The result and the operands of `%r = fcmp PREDICATE TYPE a, b`.
fn comparison(line: &str) -> Option<(&str, Compared<'_>)> {
    let l = lex(line).ok()?;
    let ty = 4;
    let operands = l.past_type(ty)?..l.tokens.len();
    match &parts(&l, operands)[..] {
        [a, b, ..] if l.is_word(2, "fcmp") => Some((l.text(0), (span(&l, a), span(&l, b)))),
        _ => None,
    }
}

/// A choice between values of which one was compared, as a choice between bits.
fn choice(line: &str, comparisons: &HashMap<&str, Compared<'_>>) -> Option<String> {
    let l = Some(line).filter(|l| l.contains(" = select "))?;
    let l = lex(l).ok().filter(|l| l.is_word(2, "select"))?;
    let operands = parts(&l, 3..l.tokens.len());
    // Type and value of an operand.
    let typed = |n: usize| {
        let operand: &Range<usize> = operands.get(n)?;
        let end = l.past_type(operand.start)?;
        Some((l.span(operand.start, end), l.span(end, operand.end)))
    };
    let (result, (of, condition)) = (l.text(0), typed(0)?);
    let ((ty, yes), (_, no)) = (typed(1)?, typed(2)?);
    let bits = match ty.strip_prefix('<') {
        None => scalar_bits(ty)?.to_owned(),
        Some(vector) => {
            let (count, element) = vector.strip_suffix('>')?.split_once(" x ")?;
            format!("<{count} x {}>", scalar_bits(element)?)
        }
    };
    let (a, b) = comparisons.get(condition)?;
    let shared = |v: &str| v.starts_with('%') && (v == *a || v == *b);
    if !shared(yes) && !shared(no) {
        return None;
    }
    let place = operands[3..]
        .iter()
        .map(|p| format!(", {}", span(&l, p)))
        .collect::<String>();
    let name = l.name(0).trim_matches('"');
    let temporary = |what: &str| format!("%dyad.{what}.{name}");
    let (t, f, r) = (temporary("yes"), temporary("no"), temporary("bits"));
    Some(format!(
        "  {t} = bitcast {ty} {yes} to {bits}{place}\n  {f} = bitcast {ty} {no} to {bits}{place}\n\
         \x20 {r} = select {of} {condition}, {bits} {t}, {bits} {f}{place}\n\
         \x20 {result} = bitcast {bits} {r} to {ty}{place}\n"
    ))
}

fn scalar_bits(ty: &str) -> Option<&'static str> {
    match ty {
        "half" => Some("i16"),
        "float" => Some("i32"),
        "double" => Some("i64"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minima_and_maxima_have_one_meaning() {
        let ir = "declare double @llvm.minnum.f64(double, double) #3\n\
                  \x20 %1 = tail call nsz double @llvm.minnum.f64(double %a, double %b), !dbg !4\n\
                  \x20 %2 = call noundef <4 x float> @llvm.maxnum.v4f32(<4 x float> %c, <4 x float> %d)\n\
                  \x20 %3 = fadd reassoc nsz double %1, %b\n\
                  \x20 %4 = fadd double %1, %b\n\
                  \x20 %nnan = call double @f(double %1)\n";
        let expected = "  %1 = tail call double @llvm.minimumnum.f64(double %a, double %b), !dbg !4\n\
                  \x20 %2 = call noundef <4 x float> @llvm.maximumnum.v4f32(<4 x float> %c, <4 x float> %d)\n\
                  \x20 %3 = fadd double %1, %b\n\
                  \x20 %4 = fadd double %1, %b\n\
                  \x20 %nnan = call double @f(double %1)\n";
        assert_eq!(one_meaning(ir), expected);
        assert_eq!(one_meaning(expected), expected);
        let reduced =
            "  %14 = tail call double @llvm.vector.reduce.fmin.v3f64(<3 x double> %rdx), !dbg !9";
        assert_eq!(
            one_meaning(reduced),
            "  %dyad.element.14.0 = extractelement <3 x double> %rdx, i64 0, !dbg !9\n\
             \x20 %dyad.element.14.1 = extractelement <3 x double> %rdx, i64 1, !dbg !9\n\
             \x20 %dyad.element.14.2 = extractelement <3 x double> %rdx, i64 2, !dbg !9\n\
             \x20 %dyad.reduced.14.1 = call double @llvm.minimumnum.f64(double %dyad.element.14.0, double %dyad.element.14.1), !dbg !9\n\
             \x20 %14 = call double @llvm.minimumnum.f64(double %dyad.reduced.14.1, double %dyad.element.14.2), !dbg !9\n"
        );
    }

    #[test]
    fn choices_between_compared_values_are_between_bits() {
        let module =
            |body: &str| format!("\ndefine double @f(double %a) {{\n{body}  ret double %r\n}}\n");
        let compare = "  %c = fcmp olt double %a, 1.000000e+00\n";
        let select = "  %r = select i1 %c, double %a, double 1.000000e+00, !dbg !3\n";
        let found = choices_of_bits(&module(&format!("{compare}{select}")));
        assert!(
            found.contains(
                "%dyad.bits.r = select i1 %c, i64 %dyad.yes.r, i64 %dyad.no.r, !dbg !3\n"
            ) && found.contains("  %r = bitcast i64 %dyad.bits.r to double, !dbg !3\n"),
            "{found}"
        );
        let vector = "  %c = fcmp ogt <2 x float> <float 1.0, float 2.0>, %v\n\
                      \x20 %r = select <2 x i1> %c, <2 x float> %v, <2 x float> splat (float 1.0)\n";
        let found = choices_of_bits(&module(vector));
        assert!(
            found.contains("bitcast <2 x float> splat (float 1.0) to <2 x i32>"),
            "{found}"
        );
        // What was not compared, and what is no floating point, stays.
        for other in [
            "  %r = select i1 %c, double %x, double 1.000000e+00\n",
            "  %r = select i1 %d, double %a, double 1.000000e+00\n",
            "  %r = select i1 %c, i64 %a, i64 1\n",
        ] {
            let module = module(&format!("{compare}{other}"));
            assert_eq!(choices_of_bits(&module), module);
        }
    }
}
