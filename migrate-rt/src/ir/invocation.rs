//! Calls of the stubs that invoke services.
//!
//! An invocation destroys every register but the stack pointer. The C convention would have the
//! stub save all callee-saved ones on every call, whatever the caller needs. So these stubs have
//! LLVM's convention in which callees save nothing, `preserve_none`: the compiler saves what is
//! live, in loops before the loop. (Stable Rust has no name for it, hence this pass.)
//!
//! That convention passes arguments in other registers first, so that they need not be moved when
//! one such function calls another. Here they are to be where kernels want them, which are those of
//! the C convention; they come after [`skipped`] others, which are given nothing.
//!
//! | | first | then |
//! |---|---|---|
//! | x86-64 | `r12 r13 r14 r15` | `rdi rsi rdx rcx r8 r9` |
//! | AArch64 | `x20` to `x28` | `x0` to `x5` |

use crate::llvm::{Kind, Line, lex};
use dyad_abi::Isa;

/// The stubs.
pub(crate) const STUBS: [&str; 3] = ["dyad_invoke", "dyad_invoke1", "dyad_request"];

const CONVENTION: &str = "preserve_nonecc ";

/// Argument registers before those of the C convention.
const fn skipped(isa: Isa) -> usize {
    match isa {
        Isa::X86_64 => 4,
        Isa::Aarch64 => 9,
    }
}

/// The first stub that a line names, if it names one.
fn named(line: &str) -> Option<&'static str> {
    // Most lines name none, and are not looked into.
    if !STUBS.iter().any(|stub| line.contains(stub)) {
        return None;
    }
    let Ok(l) = lex(line) else {
        return STUBS.into_iter().find(|stub| line.contains(stub));
    };
    let mut symbols = (0..l.tokens.len()).filter(|&i| l.kind(i) == Some(Kind::Global));
    symbols.find_map(|i| STUBS.into_iter().find(|stub| l.name(i) == *stub))
}

/// Where the convention and the unused arguments go into a call or a declaration of a stub.
fn places(line: &str) -> Option<(usize, usize)> {
    named(line)?;
    let l = lex(line).ok()?;
    let is_stub = |&i: &usize| l.kind(i) == Some(Kind::Global) && STUBS.contains(&l.name(i));
    let mut stubs = (0..l.tokens.len()).filter(is_stub);
    // One such name in a line, and the line is about it.
    let (Some(stub), None) = (stubs.next(), stubs.next()) else {
        return None;
    };
    let word = match Line::of(line) {
        Line::Declare if l.is_word(1, "dso_local") => 1,
        Line::Declare => 0,
        Line::Body => (0..stub).rev().find(|&i| l.is_word(i, "call"))?,
        _ => return None,
    };
    let is_called = l.is_mark(stub + 1, b'(');
    let (before, open) = (l.tokens.get(word + 1)?, l.tokens.get(stub + 1)?);
    is_called.then_some((before.at.start, open.at.end))
}

/// The stub that `line` uses in another way than calling it, if it does.
pub(super) fn misused(line: &str) -> Option<String> {
    let stub = named(line)?;
    places(line).is_none().then(|| stub.to_owned())
}

/// The module with the calls as the back end of `isa` is to see them.
pub(super) fn lower(text: &str, isa: Isa) -> String {
    let mut out = String::with_capacity(text.len() + 1024);
    for line in text.lines() {
        match places(line) {
            Some((before, open)) => {
                let unused = match Line::of(line) {
                    Line::Declare => "i64, ",
                    _ => "i64 poison, ",
                };
                out.push_str(&line[..before]);
                out.push_str(CONVENTION);
                out.push_str(&line[before..open]);
                out.push_str(&unused.repeat(skipped(isa)));
                out.push_str(&line[open..]);
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}
