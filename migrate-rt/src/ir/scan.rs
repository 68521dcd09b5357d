//! Reading textual IR line by line, as far as the pipeline needs it.
//!
//! The printer of the pinned LLVM puts every global, attribute group, declaration and function
//! header on a line of its own. Text in quotes is data and is never looked into.

use super::ViolationKind;
use dyad_abi::marker::{Marker, PREFIX};

/// What a line is.
pub(super) enum Line<'a> {
    Global(Global<'a>),
    /// A function header, with the function's name.
    Define(Option<&'a str>),
    /// The end of a function.
    End,
    Declare,
    Attributes,
    ModuleAsm,
    /// Something inside a function.
    Body,
    Other,
}

impl<'a> Line<'a> {
    pub(super) fn of(line: &'a str) -> Line<'a> {
        match line.as_bytes().first() {
            Some(b'@') => Global::of(line).map_or(Line::Other, Line::Global),
            Some(b' ' | b'\t') => Line::Body,
            Some(b'}') => Line::End,
            Some(b'd') if line.starts_with("define ") => Line::Define(function_name(line)),
            Some(b'd') if line.starts_with("declare ") => Line::Declare,
            Some(b'a') if line.starts_with("attributes #") => Line::Attributes,
            Some(b'm') if line.starts_with("module asm ") => Line::ModuleAsm,
            _ => Line::Other,
        }
    }
}

/// The definition of a global variable or an alias: `@name = prefix kind rest`, where the prefix
/// is linkage, visibility and the like.
pub(super) struct Global<'a> {
    line: &'a str,
    pub(super) name: &'a str,
    /// From the first word after `=` to the first word that is not part of the prefix.
    prefix: std::ops::Range<usize>,
}

impl<'a> Global<'a> {
    fn of(line: &'a str) -> Option<Global<'a>> {
        let (name, end) = symbol_at(line, 0)?;
        let start = end + line.get(end..)?.strip_prefix(" = ").map(|_| 3)?;
        let mut at = start;
        for word in line[start..].split(' ') {
            if matches!(word, "global" | "constant" | "alias" | "ifunc") {
                let keep = if word == "ifunc" { at + word.len() } else { at };
                return Some(Global {
                    line,
                    name,
                    prefix: start..keep,
                });
            }
            at += word.len() + 1;
        }
        None
    }

    pub(super) fn prefix(&self) -> impl Iterator<Item = &'a str> {
        self.line[self.prefix.clone()].split_whitespace()
    }

    /// Writes the definition so that the global keeps an address and a name of its own.
    pub(super) fn without_identity_loss(&self, out: &mut String) {
        out.push_str(&self.line[..self.prefix.start]);
        for word in self.prefix() {
            match word {
                "unnamed_addr" | "local_unnamed_addr" => continue,
                "private" => out.push_str("internal"),
                word => out.push_str(word),
            }
            out.push(' ');
        }
        out.push_str(self.line[self.prefix.end..].trim_start());
    }
}

/// The symbol `@name` or `@"name"` that starts at `at`, and where it ends.
fn symbol_at(line: &str, at: usize) -> Option<(&str, usize)> {
    let rest = line.get(at..)?.strip_prefix('@')?;
    if let Some(quoted) = rest.strip_prefix('"') {
        let len = quoted.find('"')?;
        return Some((&quoted[..len], at + len + 3));
    }
    let len = rest.find(|c| !is_name_character(c)).unwrap_or(rest.len());
    Some((&rest[..len], at + 1 + len))
}

/// Whether names that are not in quotes may have this character.
pub(super) fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '-')
}

fn function_name(line: &str) -> Option<&str> {
    symbol_at(line, line.find('@')?).map(|(name, _)| name)
}

/// Whether the declaration `line` is of the function `name`.
pub(super) fn names(line: &str, name: &str) -> bool {
    function_name(line) == Some(name)
}

/// Constraints of inline assembly that mean the same for every target.
fn neutral_constraints(constraints: &str) -> bool {
    constraints.split(',').all(|c| {
        matches!(
            c,
            "" | "r" | "m" | "*m" | "i" | "=r" | "=&r" | "0" | "~{memory}"
        )
    })
}

/// A template of inline assembly that means the same for every target: nothing, which is a barrier
/// for the optimiser (`core::hint::black_box`), or no-operations and the markers of measurements.
fn neutral_template(template: &str) -> bool {
    let word = |line: &str| -> Option<u32> { line.strip_prefix(".4byte ")?.parse().ok() };
    let mut lines = template.split("\\0A").filter(|line| !line.is_empty());
    while let Some(line) = lines.next() {
        if line == "nop" {
            continue;
        }
        let is_prefix = word(line) == Some(PREFIX);
        let marker = lines.next().and_then(word).and_then(Marker::from_word);
        if !is_prefix || marker.is_none() {
            return false;
        }
    }
    true
}

/// Calls `refuse` for everything in a line of code that belongs to one target.
pub(super) fn code(line: &str, refuse: &mut dyn FnMut(ViolationKind)) {
    if !(line.contains("@llvm.") || line.contains("asm") || line.contains("vscale")) {
        return;
    }
    let parts: Vec<_> = line.split('"').collect();
    let string = |i: usize| parts.get(i).copied().unwrap_or_default();
    // Every second part is the inside of a string.
    for (i, part) in parts.iter().enumerate().step_by(2) {
        for (at, _) in part.match_indices("@llvm.") {
            let Some((name, _)) = symbol_at(part, at) else {
                continue;
            };
            let family = name.split('.').nth(1).unwrap_or_default();
            if matches!(family, "aarch64" | "arm" | "x86") || name.starts_with("llvm.va_") {
                refuse(ViolationKind::TargetIntrinsic(name.to_owned()));
            }
        }
        if part.contains("<vscale x ") {
            refuse(ViolationKind::ScalableVector);
        }
        if part.contains(" asm ") {
            // `asm ... "template", "constraints"`.
            let (template, constraints) = (string(i + 1), string(i + 3));
            if !neutral_template(template) || !neutral_constraints(constraints) {
                refuse(ViolationKind::InlineAsm(template.to_owned()));
            }
        }
    }
}

/// An attribute group without what names a target.
pub(super) fn without_target_attributes(line: &str) -> String {
    let mut line = line.to_owned();
    for key in [
        "\"target-cpu\"=\"",
        "\"target-features\"=\"",
        "\"tune-cpu\"=\"",
    ] {
        while let Some(start) = line.find(key) {
            let value = start + key.len();
            let end = line[value..]
                .find('"')
                .map_or(line.len(), |n| value + n + 1);
            let end = if line[end..].starts_with(' ') {
                end + 1
            } else {
                end
            };
            line.replace_range(start..end, "");
        }
    }
    line
}

const LAYOUT: &str = "target datalayout = \"";
const TRIPLE: &str = "target triple = \"";

/// Data layout and triple of a module.
pub(super) fn module_target(text: &str) -> (Option<&str>, Option<&str>) {
    let find = |key: &str| {
        text.lines()
            .find_map(|l| l.strip_prefix(key)?.strip_suffix('"'))
    };
    (find(LAYOUT), find(TRIPLE))
}

/// The module with another data layout and triple.
pub(super) fn with_module_target(text: &str, layout: &str, triple: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    for line in text.lines() {
        if line.starts_with(LAYOUT) {
            out.push_str(LAYOUT);
            out.push_str(layout);
            out.push('"');
        } else if line.starts_with(TRIPLE) {
            out.push_str(TRIPLE);
            out.push_str(triple);
            out.push('"');
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    out
}
