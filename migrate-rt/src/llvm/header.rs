//! What stands around the names of functions: linkage, conventions, types of results, parameters.

use super::{Kind, Lexed};
use std::ops::Range;

/// Attributes and flags that come before a type.
const BEFORE_TYPE: [&str; 46] = [
    "noundef",
    "zeroext",
    "signext",
    "nonnull",
    "noalias",
    "inreg",
    "noext",
    "nnan",
    "ninf",
    "nsz",
    "arcp",
    "contract",
    "afn",
    "reassoc",
    "fast",
    "internal",
    "private",
    "hidden",
    "protected",
    "default",
    "dso_local",
    "dso_preemptable",
    "external",
    "weak",
    "weak_odr",
    "linkonce",
    "linkonce_odr",
    "available_externally",
    "common",
    "appending",
    "extern_weak",
    "unnamed_addr",
    "local_unnamed_addr",
    "captures",
    "range",
    "align",
    "dereferenceable",
    "dereferenceable_or_null",
    "nofpclass",
    "nocapture",
    "returned",
    "readonly",
    "readnone",
    "writeonly",
    "initializes",
    "dead_on_return",
];

const CONVENTIONS: [&str; 5] = ["ccc", "fastcc", "coldcc", "preserve_nonecc", "tailcc"];

/// What stands between `call`, `define` or `declare` and the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The token of the convention; empty for the C convention.
    pub convention: Range<usize>,
    /// The token where the result's type starts.
    pub result: usize,
    /// The token behind the result's type.
    pub end: usize,
}

/// Reads from the token behind `call`, `define` or `declare` to the end of the result's type.
pub fn prefix(l: &Lexed<'_>, from: usize) -> Option<Prefix> {
    let mut i = from;
    let mut convention = from..from;
    loop {
        if CONVENTIONS.iter().any(|c| l.is_word(i, c)) {
            convention = i..i + 1;
            i += 1;
        } else if BEFORE_TYPE.iter().any(|w| l.is_word(i, w)) {
            i += 1;
            if l.is_mark(i, b'(') {
                i = l.past_bracket(i)?;
            } else if l.is_word(i - 1, "align") {
                i += 1;
            }
        } else {
            let end = l.past_type(i)?;
            return Some(Prefix {
                convention,
                result: i,
                end,
            });
        }
    }
}

/// The header of a function's definition or declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The token of the convention; empty for the C convention.
    pub convention: Range<usize>,
    /// Tokens of the result's type.
    pub result: Range<usize>,
    /// The token of the name.
    pub name: usize,
    /// Tokens between the parentheses.
    pub parameters: Range<usize>,
}

impl Header {
    /// Reads a line that starts with `define` or `declare`.
    pub fn read(l: &Lexed<'_>) -> Option<Header> {
        let p = prefix(l, 1)?;
        let open = p.end + 1;
        let is_named = l.kind(p.end) == Some(Kind::Global) && l.is_mark(open, b'(');
        let end = l.past_bracket(open).filter(|_| is_named)?;
        Some(Header {
            convention: p.convention,
            result: p.result..p.end,
            name: p.end,
            parameters: open + 1..end - 1,
        })
    }

    /// The token behind the list of parameters.
    pub fn end(&self) -> usize {
        self.parameters.end + 1
    }

    /// The token with the name of the section that the function is put into, in quotes.
    pub fn section(&self, l: &Lexed<'_>) -> Option<usize> {
        let at = (self.end()..l.tokens.len()).find(|&i| l.is_word(i, "section"))?;
        (l.kind(at + 1) == Some(Kind::Text)).then_some(at + 1)
    }
}

/// The parts of a list, by the commas on its own level.
pub fn parts(l: &Lexed<'_>, list: Range<usize>) -> Vec<Range<usize>> {
    let (mut out, mut start, mut depth) = (Vec::new(), list.start, 0usize);
    for i in list.clone() {
        match l.kind(i) {
            Some(Kind::Mark(b'(' | b'[' | b'{' | b'<')) => depth += 1,
            Some(Kind::Mark(b')' | b']' | b'}' | b'>')) => depth = depth.saturating_sub(1),
            Some(Kind::Mark(b',')) if depth == 0 => {
                out.push(start..i);
                start = i + 1;
            }
            _ => {}
        }
    }
    if start < list.end {
        out.push(start..list.end);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::lex;
    use super::*;

    #[test]
    fn headers_have_convention_result_name_parameters_and_section() {
        let line = "define internal fastcc noundef range(i64 0, 5) { i64, i1 } @\"a(b\"(ptr align 8 %x, i64 %y) \
                    unnamed_addr #1 section \".text.(a)\" align 16 !dbg !4 {";
        let l = lex(line).unwrap();
        let h = Header::read(&l).unwrap();
        let text = |r: &Range<usize>| l.span(r.start, r.end);
        assert_eq!(text(&h.convention), "fastcc");
        assert_eq!(text(&h.result), "{ i64, i1 }");
        assert_eq!(l.name(h.name), "\"a(b\"");
        let list: Vec<_> = parts(&l, h.parameters.clone()).iter().map(text).collect();
        assert_eq!(list, ["ptr align 8 %x", "i64 %y"]);
        assert_eq!(l.text(h.section(&l).unwrap()), "\".text.(a)\"");
        let l = lex("declare void @f()").unwrap();
        let h = Header::read(&l).unwrap();
        assert!(h.convention.is_empty() && h.parameters.is_empty());
        assert_eq!(h.section(&l), None);
        // A call is none, nor is a function without a list.
        for line in ["define void f()", "define void @f", "define @f()"] {
            assert_eq!(Header::read(&lex(line).unwrap()), None, "{line}");
        }
    }
}
