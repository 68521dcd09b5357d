//! Floating-point arguments of functions of one ISA, in floating-point registers.
//!
//! The front end's target passes floating-point numbers as integers. Between the program's own functions that is
//! no matter. A function of one ISA, however, has six integer and eight floating-point registers for its arguments, as
//! kernels carry these over. So it gets the types back that it has in the source, and a function in front of it that
//! is called as the front end wants it:
//!
//! ```text
//!   define i64 @f(i64 %0, ptr %1) section ".text.only_x86_64"       what the front end makes of f(f64, &T) -> f64
//!
//!   define double @f(double, ptr) section ".text.only_x86_64"       what is made of it
//!   define i64 @f.bits(i64, ptr)    calls @f; everybody else calls it, and has its address
//! ```
//!
//! `#[dyad::isa]` says what the types are: beside the static `ADDRESS`, which keeps the function's address, it puts a
//! static `KINDS` with a letter for each argument and for the result, [`FLOAT`] or another one.

use crate::llvm::{Header, Kind, Line, Unreadable, lex, parts, rename};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

/// How the names of the two statics end.
const ADDRESS: &str = "7ADDRESS";
pub(super) const KINDS: &str = "5KINDS";
/// The letter of a floating-point number in `KINDS`.
const FLOAT: char = 'f';
/// What is behind the name of the function in front.
const BITS: &str = ".bits";

/// A value that changes its type.
#[derive(Clone, Copy)]
struct Change {
    /// The type that the front end has made.
    bits: &'static str,
    /// The type of the source.
    float: &'static str,
}

fn change(ty: &str) -> Option<Change> {
    let (bits, float) = match ty {
        "i64" => ("i64", "double"),
        "i32" => ("i32", "float"),
        _ => return None,
    };
    Some(Change { bits, float })
}

/// The module with the functions of one ISA as the source has them.
///
/// # Errors
///
/// If a line cannot be read.
pub(super) fn in_registers(text: &str) -> Result<String, Unreadable> {
    let kinds = kinds(text);
    if kinds.is_empty() {
        return Ok(text.to_owned());
    }
    let mut out = String::with_capacity(text.len() + 4096);
    let mut in_front = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let function = match Line::of(line) {
            Line::Define(Some(name)) => kinds.get(name).map(|k| (name, *k)),
            Line::Global(g) if g.name.ends_with(ADDRESS) => {
                out.push_str(line);
                out.push('\n');
                continue;
            }
            _ => None,
        };
        let Some((name, kinds_of)) = function else {
            push(&mut out, &redirected(line, &kinds)?);
            continue;
        };
        let body: Vec<&str> = lines.by_ref().take_while(|l| *l != "}").collect();
        let function = Function::read(line, kinds_of)?;
        function.print(&body, &kinds, &mut out)?;
        let group = function.attributes.as_deref().unwrap_or_default();
        function.print_front(line, name, &attributes(text, group), &mut in_front);
    }
    out.push_str(&in_front);
    Ok(out)
}

/// The attributes of a group, but for the one that keeps a function out of its callers.
fn attributes(text: &str, group: &str) -> String {
    let start = format!("attributes {group} = {{ ");
    let line = text.lines().find_map(|l| l.strip_prefix(&start));
    let all = line.and_then(|l| l.strip_suffix(" }")).unwrap_or_default();
    let words = all.split(' ').filter(|w| *w != "noinline");
    words.collect::<Vec<_>>().join(" ")
}

fn push(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

/// Functions with floating-point numbers among their arguments, or as their result, and the letters of their types.
fn kinds(text: &str) -> BTreeMap<&str, &str> {
    let mut letters: BTreeMap<&str, &str> = BTreeMap::new();
    let mut functions: BTreeMap<&str, &str> = BTreeMap::new();
    for line in text.lines() {
        let Line::Global(global) = Line::of(line) else {
            continue;
        };
        if let Some(path) = global.name.strip_suffix(KINDS)
            && let Some((_, rest)) = line.split_once(" c\"")
            && let Some((kinds, _)) = rest.split_once('"')
        {
            letters.insert(path, kinds);
        }
        if let Some(path) = global.name.strip_suffix(ADDRESS)
            && let Some((_, rest)) = line.rsplit_once('@')
            && let Some(name) = rest.split([',', ' ', '\t', ']', '}']).next()
        {
            functions.insert(path, name);
        }
    }
    let both = functions.into_iter();
    let both = both.filter_map(|(path, function)| Some((function, *letters.get(path)?)));
    both.filter(|(_, k)| k.contains(FLOAT)).collect()
}

/// The line, with uses of the functions replaced by those of the ones in front of them.
fn redirected(line: &str, kinds: &BTreeMap<&str, &str>) -> Result<String, Unreadable> {
    if !kinds.keys().any(|name| line.contains(name)) || line.starts_with('!') {
        return Ok(line.to_owned());
    }
    let l = lex(line)?;
    let mut out = String::with_capacity(line.len() + BITS.len());
    let mut done = 0;
    for i in (0..l.tokens.len()).filter(|i| l.kind(*i) == Some(Kind::Global)) {
        if kinds.contains_key(l.name(i)) {
            let end = l.tokens[i].at.end;
            out.push_str(&line[done..end]);
            out.push_str(BITS);
            done = end;
        }
    }
    out.push_str(&line[done..]);
    Ok(out)
}

/// A parameter.
struct Parameter {
    /// All of it, in the header.
    at: Range<usize>,
    /// Its type, in the header.
    ty: Range<usize>,
    /// Its name, with the sign in front of it.
    name: String,
    change: Option<Change>,
}

/// The header of a function that is to have its types back.
struct Function<'a> {
    header: &'a str,
    /// The result's type, in the header.
    result: Range<usize>,
    returns: Option<Change>,
    parameters: Vec<Parameter>,
    /// The name of the group of its attributes.
    attributes: Option<String>,
}

impl<'a> Function<'a> {
    fn read(header: &'a str, kinds: &str) -> Result<Function<'a>, Unreadable> {
        let unknown = || Unreadable::new("", header);
        let l = lex(header)?;
        let h = Header::read(&l).ok_or_else(unknown)?;
        let bytes = |tokens: Range<usize>| match tokens.is_empty() {
            true => 0..0,
            false => l.tokens[tokens.start].at.start..l.tokens[tokens.end - 1].at.end,
        };
        let list = parts(&l, h.parameters.clone());
        let mut letters = kinds.chars();
        let mut parameters = Vec::new();
        for part in list {
            let ty = bytes(part.start..l.past_type(part.start).ok_or_else(unknown)?);
            let last = part.end - 1;
            if l.kind(last) != Some(Kind::Local) {
                return Err(unknown());
            }
            let change = match letters.next() {
                Some(FLOAT) => Some(change(&header[ty.clone()]).ok_or_else(unknown)?),
                Some(_) => None,
                None => return Err(unknown()),
            };
            parameters.push(Parameter {
                at: bytes(part),
                ty,
                name: header[l.tokens[last].at.clone()].to_owned(),
                change,
            });
        }
        let result = bytes(h.result.clone());
        let returns = match (letters.next(), letters.next()) {
            (Some(FLOAT), None) => Some(change(&header[result.clone()]).ok_or_else(unknown)?),
            (Some(_), None) => None,
            _ => return Err(unknown()),
        };
        let group = (h.end()..l.tokens.len()).find(|i| l.kind(*i) == Some(Kind::Attr));
        Ok(Function {
            header,
            result,
            returns,
            parameters,
            attributes: group.map(|i| header[l.tokens[i].at.clone()].to_owned()),
        })
    }

    /// The header with the types of the source, and parameters of other names for what changes.
    fn with_floats(&self) -> String {
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        if let Some(change) = self.returns {
            edits.push((self.result.clone(), change.float.to_owned()));
        }
        for p in &self.parameters {
            if let Some(change) = p.change {
                edits.push((
                    p.at.clone(),
                    format!("{} {}", change.float, float_of(&p.name)),
                ));
            }
        }
        let mut out = String::new();
        let mut done = 0;
        for (at, text) in edits {
            out.push_str(&self.header[done..at.start]);
            out.push_str(&text);
            done = at.end;
        }
        out.push_str(&self.header[done..]);
        out
    }

    /// The function, which has its types back.
    fn print(
        &self,
        body: &[&str],
        kinds: &BTreeMap<&str, &str>,
        out: &mut String,
    ) -> Result<(), Unreadable> {
        push(out, &self.with_floats());
        let mut body = body.iter().copied().peekable();
        match body.peek() {
            Some(first) if !first.starts_with(' ') => {
                push(out, first);
                body.next();
            }
            // The first block's label is the number behind those of the parameters.
            _ => {
                let numbered = |p: &&Parameter| p.name[1..].bytes().all(|b| b.is_ascii_digit());
                let _ = writeln!(out, "{}:", self.parameters.iter().filter(numbered).count());
            }
        }
        for p in &self.parameters {
            if let Some(Change { bits, float }) = p.change {
                let (from, to) = (float_of(&p.name), bits_of(&p.name));
                let _ = writeln!(out, "  {to} = bitcast {float} {from} to {bits}");
            }
        }
        let changed = |name: &str| {
            let same = |p: &&Parameter| p.change.is_some() && &p.name[1..] == name;
            let p = self.parameters.iter().find(same)?;
            Some(bits_of(&p.name)[1..].to_owned())
        };
        let mut returns = 0;
        for line in body {
            let line = redirected(&rename(line, changed)?, kinds)?;
            match (self.returns, line.trim_start().strip_prefix("ret ")) {
                (Some(Change { bits, float }), Some(value)) => {
                    let value = value.strip_prefix(bits).unwrap_or(value).trim_start();
                    let (value, rest) = value.split_once(',').unwrap_or((value, ""));
                    let comma = if rest.is_empty() { "" } else { "," };
                    let _ = writeln!(
                        out,
                        "  %dyad.r{returns} = bitcast {bits} {value} to {float}"
                    );
                    let _ = writeln!(out, "  ret {float} %dyad.r{returns}{comma}{rest}");
                    returns += 1;
                }
                _ => push(out, &line),
            }
        }
        push(out, "}");
        Ok(())
    }

    /// The function in front of it.
    fn print_front(&self, header: &str, name: &str, attributes: &str, out: &mut String) {
        let result = &header[self.result.clone()];
        let list: Vec<String> = (self.parameters.iter())
            .map(|p| format!("{} {}", &header[p.ty.clone()], bits_of(&p.name)))
            .collect();
        let _ = writeln!(
            out,
            "\ndefine internal {result} @{name}{BITS}({}) unnamed_addr {attributes} {{",
            list.join(", ")
        );
        let mut arguments = Vec::new();
        for p in &self.parameters {
            let (from, to) = (bits_of(&p.name), float_of(&p.name));
            match p.change {
                Some(Change { bits, float }) => {
                    let _ = writeln!(out, "  {to} = bitcast {bits} {from} to {float}");
                    arguments.push(format!("{float} {to}"));
                }
                None => arguments.push(format!("{} {from}", &header[p.ty.clone()])),
            }
        }
        let arguments = arguments.join(", ");
        let _ = match (self.returns, result) {
            (Some(Change { bits, float }), _) => write!(
                out,
                "  %dyad.r = call {float} @{name}({arguments})\n  \
                 %dyad.b = bitcast {float} %dyad.r to {bits}\n  ret {bits} %dyad.b\n}}\n"
            ),
            (None, "void") => write!(out, "  call void @{name}({arguments})\n  ret void\n}}\n"),
            (None, ty) => write!(
                out,
                "  %dyad.r = call {ty} @{name}({arguments})\n  ret {ty} %dyad.r\n}}\n"
            ),
        };
    }
}

/// The name of a parameter as a floating-point number.
fn float_of(name: &str) -> String {
    format!("%dyad.f{}", &name[1..])
}

/// The name of a parameter's bits.
fn bits_of(name: &str) -> String {
    format!("%dyad.b{}", &name[1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_one_isa_have_their_types_back() {
        let text = "\
@_R1a7ADDRESS = internal constant ptr @_R1f, align 8
@_R1a5KINDS = internal constant [4 x i8] c\"fwff\", align 1
@_R1b7ADDRESS = internal constant <{ ptr }> <{ ptr @_R1g }>, align 8
@_R1b5KINDS = internal constant [1 x i8] c\"w\", align 1
@table = internal constant [2 x ptr] [ptr @_R1f, ptr @_R1g]

define internal i64 @_R1f(i64 %0, ptr noundef readonly %1, i32 %2) unnamed_addr #3 section \".text.only_x86_64\" !dbg !4 {
  %4 = call i64 @_R1f(i64 %0, ptr %1, i32 %2) #5, !dbg !6
  br i1 true, label %5, label %6

5:
  ret i64 %4, !dbg !7

6:
  ret i64 0
}
attributes #3 = { noinline nounwind \"target-features\"=\"+neon\" }
";
        let expected = "\
@_R1a7ADDRESS = internal constant ptr @_R1f, align 8
@_R1a5KINDS = internal constant [4 x i8] c\"fwff\", align 1
@_R1b7ADDRESS = internal constant <{ ptr }> <{ ptr @_R1g }>, align 8
@_R1b5KINDS = internal constant [1 x i8] c\"w\", align 1
@table = internal constant [2 x ptr] [ptr @_R1f.bits, ptr @_R1g]

define internal double @_R1f(double %dyad.f0, ptr noundef readonly %1, float %dyad.f2) unnamed_addr #3 section \".text.only_x86_64\" !dbg !4 {
3:
  %dyad.b0 = bitcast double %dyad.f0 to i64
  %dyad.b2 = bitcast float %dyad.f2 to i32
  %4 = call i64 @_R1f.bits(i64 %dyad.b0, ptr %1, i32 %dyad.b2) #5, !dbg !6
  br i1 true, label %5, label %6

5:
  %dyad.r0 = bitcast i64 %4 to double
  ret double %dyad.r0, !dbg !7

6:
  %dyad.r1 = bitcast i64 0 to double
  ret double %dyad.r1
}
attributes #3 = { noinline nounwind \"target-features\"=\"+neon\" }

define internal i64 @_R1f.bits(i64 %dyad.b0, ptr %dyad.b1, i32 %dyad.b2) unnamed_addr nounwind \"target-features\"=\"+neon\" {
  %dyad.f0 = bitcast i64 %dyad.b0 to double
  %dyad.f2 = bitcast i32 %dyad.b2 to float
  %dyad.r = call double @_R1f(double %dyad.f0, ptr %dyad.b1, float %dyad.f2)
  %dyad.b = bitcast double %dyad.r to i64
  ret i64 %dyad.b
}
";
        assert_eq!(in_registers(text).unwrap(), expected);
        // What has another number of arguments than is said cannot be read.
        let other = text.replace("c\"fwff\"", "c\"fff\"");
        assert!(in_registers(&other).is_err());
    }
}
