//! Attributes that make a back end ignore the convention of a call.
//!
//! | attribute | back end | what it does to a `preserve_none` call |
//! |---|---|---|
//! | `returned` of the first parameter | AArch64 | takes the mask of AAPCS calls that return their first argument: x19 to x28 count as preserved |
//! | `no_caller_saved_registers` | x86-64 | counts all registers as preserved |
//!
//! The test goes over every attribute of parameters, functions and results that LLVM knows. Passes infer
//! `returned`, so attributes are dropped last, from what a back end reads.

use crate::llvm::{Kind, Line, lex};
use std::borrow::Cow;

/// Convention of calls behind which nothing is left in registers.
const CONVENTION: &str = "preserve_nonecc";
const PARAMETER: &str = "returned";
const FUNCTION: &str = "\"no_caller_saved_registers\"";

/// The module without attributes that override the convention of calls.
pub(super) fn not_overridden(text: &str) -> Cow<'_, str> {
    let concerned = |line: &str| match Line::of(line) {
        Line::Body | Line::Define(_) | Line::Declare => {
            line.contains(CONVENTION) && (line.contains(PARAMETER) || line.contains(FUNCTION))
        }
        Line::Attributes => line.contains(FUNCTION),
        _ => false,
    };
    if !text.lines().any(concerned) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match concerned(line) {
            true => out.push_str(&without(line)),
            false => out.push_str(line),
        }
        out.push('\n');
    }
    Cow::Owned(out)
}

/// The line without the attributes. A line that cannot be read stays; the verifier judges what comes of it.
fn without(line: &str) -> String {
    let Ok(l) = lex(line) else {
        return line.to_owned();
    };
    let mut out = String::with_capacity(line.len());
    let mut done = 0;
    for (i, token) in l.tokens.iter().enumerate() {
        let dropped = match token.kind {
            Kind::Word => l.is_word(i, PARAMETER),
            Kind::Text => l.text(i) == FUNCTION,
            _ => false,
        };
        if dropped {
            out.push_str(line[done..token.at.start].trim_end_matches(' '));
            done = token.at.end;
        }
    }
    out.push_str(&line[done..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attributes_of_calls_that_preserve_nothing_are_dropped() {
        let kept = "declare ptr @f(ptr returned)\n\
                    \x20 %returned = call preserve_nonecc ptr @f(ptr %returned, i64 1)\n\
                    \x20 call void @g(ptr c\"returned preserve_nonecc\")\n";
        assert_eq!(not_overridden(kept), kept);
        let dropped = "declare preserve_nonecc ptr @f(ptr noundef returned, i64)\n\
                       define preserve_nonecc ptr @\"returned b\"(ptr returned align 8 %returned) {\n\
                       \x20 %x = call preserve_nonecc ptr %p(ptr noundef nonnull returned %returned), !dbg !3\n\
                       \x20 %y = call preserve_nonecc i64 @h(i64 1) \"no_caller_saved_registers\"\n\
                       attributes #1 = { nounwind \"no_caller_saved_registers\" \"k\"=\"returned\" }\n";
        assert_eq!(
            not_overridden(dropped),
            "declare preserve_nonecc ptr @f(ptr noundef, i64)\n\
             define preserve_nonecc ptr @\"returned b\"(ptr align 8 %returned) {\n\
             \x20 %x = call preserve_nonecc ptr %p(ptr noundef nonnull %returned), !dbg !3\n\
             \x20 %y = call preserve_nonecc i64 @h(i64 1)\n\
             attributes #1 = { nounwind \"k\"=\"returned\" }\n"
        );
    }
}
