//! What in a line of IR belongs to one target.

use super::ViolationKind;
use crate::llvm::symbol_at;
use dyad_abi::marker::{Marker, PREFIX};

/// Constraints of inline assembly that mean the same for every target.
fn neutral_constraints(constraints: &str) -> bool {
    constraints.split(',').all(|c| {
        matches!(
            c,
            "" | "r" | "m" | "*m" | "i" | "=r" | "=&r" | "0" | "~{memory}" | "~{cc}"
        )
    })
}

/// A template of inline assembly that means the same for every target: nothing, which is a barrier
/// for the optimiser (`core::hint::black_box`), a comment, or no-operations and the markers of measurements.
fn neutral_template(template: &str) -> bool {
    let word = |line: &str| -> Option<u32> { line.strip_prefix(".4byte ")?.parse().ok() };
    let mut lines = template.split("\\0A").filter(|line| !line.is_empty());
    while let Some(line) = lines.next() {
        if line == "nop" || is_comment(line) {
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

/// Whether a line of inline assembly is one comment, such as `/* ${0} */`, which names an operand and does nothing.
/// Both assemblers know this form.
pub(crate) fn is_comment(line: &str) -> bool {
    let inside = line
        .trim()
        .strip_prefix("/*")
        .and_then(|l| l.strip_suffix("*/"));
    inside.is_some_and(|l| !l.contains("*/"))
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
pub(super) fn without_attributes(line: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::neutral_template;

    #[test]
    fn a_comment_is_neutral_and_what_is_beside_it_is_not() {
        for neutral in ["", "nop", "/* ${0} */", " /* $0 $1 */", "/* a */\\0Anop"] {
            assert!(neutral_template(neutral), "{neutral}");
        }
        for other in [
            "/* a */ ret",
            "/* a */ ret /* b */",
            "/* ${0}",
            "/*/",
            "ret /* a */",
            "/* a\\0A*/ ret",
            "// a",
        ] {
            assert!(!neutral_template(other), "{other}");
        }
    }
}
