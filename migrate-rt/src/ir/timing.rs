//! The mode in which instructions take a time that does not depend on data (`PSTATE.DIT`).
//!
//! Crates that compare secrets set the mode around the comparison, on AArch64 only. x86-64 programs have no such
//! mode to set, and a program may go on there at any point, so a program has none on either ISA: the mode reads
//! as 0 and setting it does nothing. What crates do to have no branch or table depend on data stays.

use std::borrow::Cow;

/// Assembly that reads the mode, sets it, and waits until it is set. Barriers keep their order.
const READS: &str = "asm sideeffect \"mrs ${0}, dit\", \"=r\"()";
const SETS: [&str; 2] = [
    "call void asm sideeffect \"msr dit, #1\", \"~{cc},~{memory}\"()",
    "call void asm sideeffect \"msr dit, ${0}\", \"r,~{cc},~{memory}\"(i64 ",
];
const WAITS: [&str; 2] = [
    "call void asm sideeffect \"sb\", \"~{cc},~{memory}\"()",
    "call void asm sideeffect \"dsb nsh\\0Aisb sy\", \"~{cc},~{memory}\"()",
];

/// The line without the mode.
pub(super) fn without_mode(line: &str) -> Cow<'_, str> {
    if !line.contains(" asm sideeffect \"") {
        return Cow::Borrowed(line);
    }
    let has = |what: &[&str]| what.iter().any(|w| line.contains(w));
    if has(&SETS) || has(&WAITS) {
        return Cow::Borrowed("  fence seq_cst");
    }
    match line.split_once(" = ") {
        Some((result, call)) if call.contains(&format!("i64 {READS}")) => {
            Cow::Owned(format!("{result} = freeze i64 0"))
        }
        _ => Cow::Borrowed(line),
    }
}

#[cfg(test)]
mod tests {
    use super::without_mode;

    #[test]
    fn the_mode_is_gone_and_other_assembly_stays() {
        let memory = "\"~{cc},~{memory}\"() #3, !dbg !4";
        for (line, becomes) in [
            (
                "  %7 = tail call i64 asm sideeffect \"mrs ${0}, dit\", \"=r\"() #3, !dbg !4"
                    .to_owned(),
                "  %7 = freeze i64 0",
            ),
            (
                format!("  tail call void asm sideeffect \"msr dit, #1\", {memory}"),
                "  fence seq_cst",
            ),
            (
                "  call void asm sideeffect \"msr dit, ${0}\", \"r,~{cc},~{memory}\"(i64 %7)"
                    .to_owned(),
                "  fence seq_cst",
            ),
            (
                format!("  call void asm sideeffect \"dsb nsh\\0Aisb sy\", {memory}"),
                "  fence seq_cst",
            ),
            (
                format!("  call void asm sideeffect \"sb\", {memory}"),
                "  fence seq_cst",
            ),
        ] {
            assert_eq!(without_mode(&line), becomes);
        }
        for other in [
            "  %7 = call i64 asm sideeffect \"mrs ${0}, nzcv\", \"=r\"()",
            "  call void asm sideeffect \"msr dit, #1\\0Aret\", \"~{cc},~{memory}\"()",
            "  call void @sb()",
        ] {
            assert_eq!(without_mode(other), other);
        }
    }
}
