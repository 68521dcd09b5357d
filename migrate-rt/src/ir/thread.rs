//! The few places of neutral IR where every ISA has an instruction of its own: the thread pointer, and
//! the data stack pointer in the thread control block.
//!
//! In [`NeutralIr`](super::NeutralIr) they are calls of functions that nobody defines. In
//! [`IsaIr`](super::IsaIr) they are inline assembly that no pass looks into: behind a migration the
//! registers hold nothing, so what was read before must not be taken for what is read now.

use crate::llvm::{Line, declares};
use crate::spine::{FRAME, SET_FRAME};
use dyad_abi::Isa;

/// The stub for what cannot be inlined.
const THREAD: &str = "dyad_tcb";

/// What a call becomes: template and constraints, by ISA index.
const INLINED: [(&str, [&str; 2]); 3] = [
    (
        THREAD,
        [
            r#"asm sideeffect "movq %fs:0, $0", "=r""#,
            r#"asm sideeffect "mrs $0, tpidr_el0", "=r""#,
        ],
    ),
    (
        FRAME,
        [
            r#"asm sideeffect "movq %fs:16, $0", "=r""#,
            r#"asm sideeffect "mrs $0, tpidr_el0\0Aldr $0, [$0, #16]", "=r""#,
        ],
    ),
    (
        SET_FRAME,
        [
            r#"asm sideeffect "movq $0, %fs:16", "r""#,
            r#"asm sideeffect "mrs x16, tpidr_el0\0Astr $0, [x16, #16]", "r,~{x16}""#,
        ],
    ),
];

const _: () = assert!(core::mem::offset_of!(dyad_abi::user::Tcb, data_sp) == 16);

/// The module with the calls as the back end of `isa` is to see them.
pub(super) fn lower(text: &str, isa: Isa) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match Line::of(line) {
            Line::Declare if [FRAME, SET_FRAME].iter().any(|n| declares(line, n)) => continue,
            Line::Body => out.push_str(&inlined(line, isa)),
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

fn inlined(line: &str, isa: Isa) -> String {
    for (name, asm) in INLINED {
        let callee = format!("@{name}(");
        let (Some(at), Some(call)) = (line.find(&callee), line.find("call ")) else {
            continue;
        };
        if call > at {
            continue;
        }
        let (before, after) = (&line[..at], &line[at + callee.len() - 1..]);
        return format!("{before}{}{after}", asm[isa.index()]);
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_isa_has_its_own_instruction() {
        let ir = "declare ptr @dyad.frame() #1\n  %a = tail call noundef ptr @dyad_tcb() #3, !dbg !4\n\
                  \x20 %b = call ptr @dyad.frame()\n  call void @dyad.frame.set(ptr %b)\n";
        let [x, a] = Isa::ALL.map(|isa| lower(ir, isa));
        assert!(
            x.contains(
                r#"%a = tail call noundef ptr asm sideeffect "movq %fs:0, $0", "=r"() #3, !dbg !4"#
            ),
            "{x}"
        );
        assert!(
            x.contains(r#"call void asm sideeffect "movq $0, %fs:16", "r"(ptr %b)"#),
            "{x}"
        );
        assert!(a.contains(r#"call void asm sideeffect "mrs x16, tpidr_el0\0Astr $0, [x16, #16]", "r,~{x16}"(ptr %b)"#), "{a}");
        assert!(!x.contains("declare") && !a.contains("@dyad"));
    }
}
