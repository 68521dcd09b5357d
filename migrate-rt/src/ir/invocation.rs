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

use super::scan::{self, Line};
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

/// Where `@stub` is in `line`, outside of strings: the stub, the place, and whether a parenthesis
/// follows.
fn find(line: &str) -> Option<(&'static str, usize, bool)> {
    let mut quoted = false;
    line.char_indices().find_map(|(at, c)| {
        quoted ^= c == '"';
        let rest = line[at..].strip_prefix('@').filter(|_| !quoted)?;
        let stub = STUBS.into_iter().find(|stub| {
            let after = rest.strip_prefix(stub);
            after.is_some_and(|a| !a.starts_with(scan::is_name_character))
        })?;
        Some((stub, at, rest[stub.len()..].starts_with('(')))
    })
}

/// Where the convention and the unused arguments go into a call or a declaration of a stub.
fn places(line: &str) -> Option<(usize, usize)> {
    let (stub, at, true) = find(line)? else {
        return None;
    };
    let before = match Line::of(line) {
        Line::Declare => ["declare dso_local ", "declare "]
            .into_iter()
            .find(|p| line.starts_with(p))?
            .len(),
        Line::Body => line[..at].rfind("call ")? + "call ".len(),
        _ => return None,
    };
    // One such name in a line, and the line is about it.
    let open = at + 1 + stub.len() + 1;
    find(&line[open..]).is_none().then_some((before, open))
}

/// The stub that `line` uses in another way than calling it, if it does.
pub(super) fn misused(line: &str) -> Option<String> {
    let (stub, ..) = find(line)?;
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
