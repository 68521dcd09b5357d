//! Instructions, as far as the pass has to understand them: calls, local variables and their direct
//! uses, ends of blocks. All others are opaque uses of the values they name.

use super::error::SpineError;
use super::types;
use crate::llvm::{Kind, Lexed, parts, prefix};
use std::ops::Range;

/// What an instruction is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Inst {
    Call(Call),
    /// A local variable: result, type, alignment, and whether its size is a constant.
    Alloca {
        name: String,
        ty: String,
        align: u64,
        fixed: bool,
    },
    /// A plain load: result's type, address.
    Load {
        ty: String,
        from: String,
    },
    /// A plain store: the value's type, the token range of the value, the address.
    Store {
        ty: String,
        value: Range<usize>,
        to: String,
    },
    Phi,
    /// The end of a block, with the blocks that may follow.
    End {
        to: Vec<String>,
        is_return: bool,
    },
    /// A debug record.
    Record,
    /// Anything else. It computes with values, or touches memory through pointers.
    Other,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The token `call`.
    pub at: usize,
    /// `tail`, `notail` or `musttail`, if it is there.
    pub tail: Option<usize>,
    /// Tokens of the convention.
    pub convention: Range<usize>,
    /// The token where the result's type starts.
    pub result: usize,
    pub callee: Callee,
    /// The token of the callee.
    pub callee_at: usize,
    /// Tokens between the parentheses.
    pub args: Range<usize>,
    /// What the call has in common with those that may reach the same functions: see [`signature`].
    pub signature: String,
    /// Whether it passes a copy of a structure on the stack, or an unknown number of arguments.
    pub odd: Option<Odd>,
}

/// What a call is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Callee {
    /// A function, by its name.
    Named(String),
    /// Whatever a pointer points to.
    Pointer,
    /// Inline assembly.
    Asm,
}

/// What cannot be on the spine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Odd {
    /// Arguments of which neither number nor types are known.
    Varargs,
    /// A structure that is passed as a copy on the native stack.
    ByValue,
}

/// The class of calls: `result(arguments)`, in the letters of [`types::class`].
pub(super) fn signature(l: &Lexed<'_>, result: Range<usize>, arguments: &str) -> String {
    let result = types::class(l.span(result.start, result.end));
    format!("{result}({arguments})")
}

/// Classes of the arguments in a list, as one text, and what is odd about them.
pub(super) fn argument_types(l: &Lexed<'_>, list: Range<usize>) -> Option<(String, Option<Odd>)> {
    let (mut out, mut odd) = (String::new(), None);
    for part in parts(l, list) {
        if l.is_word(part.start, "...") {
            odd = Some(Odd::Varargs);
            continue;
        }
        let end = l.past_type(part.start)?;
        out.push_str(&types::class(l.span(part.start, end)));
        let by_value = [
            "byval",
            "inalloca",
            "preallocated",
            "byref",
            "nest",
            "swiftself",
        ];
        if (end..part.end).any(|i| by_value.iter().any(|w| l.is_word(i, w))) {
            odd = Some(Odd::ByValue);
        }
    }
    Some((out, odd))
}

impl Inst {
    /// Reads an instruction.
    ///
    /// # Errors
    ///
    /// If it is a call, a local variable or an end of a block that cannot be understood.
    pub fn read(l: &Lexed<'_>) -> Result<Inst, SpineError> {
        let bad = || SpineError::unreadable("", l.line);
        if l.kind(0) == Some(Kind::Attr) {
            return Ok(Inst::Record);
        }
        let (result, op) = match (l.kind(0), l.is_mark(1, b'=')) {
            (Some(Kind::Local), true) => (Some(l.name(0)), 2),
            _ => (None, 0),
        };
        let word = match l.kind(op) {
            Some(Kind::Word) => l.text(op),
            _ => return Err(bad()),
        };
        match word {
            "tail" | "notail" | "musttail" if l.is_word(op + 1, "call") => {
                call(l, op + 1, Some(op)).map(Inst::Call).ok_or_else(bad)
            }
            "call" => call(l, op, None).map(Inst::Call).ok_or_else(bad),
            "invoke" | "callbr" | "landingpad" | "resume" | "catchswitch" | "catchpad"
            | "catchret" | "cleanuppad" | "cleanupret" | "indirectbr" | "va_arg" => Err(bad()),
            "alloca" => alloca(l, op, result).ok_or_else(bad),
            "load" => Ok(load(l, op).unwrap_or(Inst::Other)),
            "store" => Ok(store(l, op).unwrap_or(Inst::Other)),
            "phi" => Ok(Inst::Phi),
            "ret" | "br" | "switch" | "unreachable" => Ok(Inst::End {
                to: (op..l.tokens.len())
                    .filter(|i| l.is_word(*i, "label"))
                    .map(|i| l.name(i + 1).to_owned())
                    .collect(),
                is_return: word == "ret",
            }),
            _ => Ok(Inst::Other),
        }
    }
}

fn call(l: &Lexed<'_>, at: usize, tail: Option<usize>) -> Option<Call> {
    let p = prefix(l, at + 1)?;
    let mut i = p.end;
    let mut varargs = false;
    // The type of the whole function is only printed where it has varying arguments.
    if l.is_mark(i, b'(') {
        varargs = true;
        i = l.past_bracket(i)?;
    }
    let callee_at = i;
    let callee = match l.kind(i)? {
        Kind::Global => Callee::Named(l.name(i).to_owned()),
        Kind::Local => Callee::Pointer,
        Kind::Word if l.is_word(i, "asm") => {
            while !l.is_mark(i + 1, b'(') {
                i += 1;
                l.kind(i)?;
            }
            Callee::Asm
        }
        // A constant expression, such as a cast of an address.
        Kind::Word if l.is_mark(i + 1, b'(') => {
            i = l.past_bracket(i + 1)? - 1;
            Callee::Pointer
        }
        _ => return None,
    };
    let open = i + 1;
    let args = open + 1..l.past_bracket(open)? - 1;
    let (types, odd) = argument_types(l, args.clone())?;
    Some(Call {
        at,
        tail,
        convention: p.convention,
        result: p.result,
        callee,
        callee_at,
        args,
        signature: signature(l, p.result..p.end, &types),
        odd: odd.or(varargs.then_some(Odd::Varargs)),
    })
}

fn alloca(l: &Lexed<'_>, op: usize, result: Option<&str>) -> Option<Inst> {
    let end = l.past_type(op + 1)?;
    let mut align = 1;
    let mut fixed = true;
    for part in parts(l, end..l.tokens.len()) {
        match () {
            () if part.is_empty() || l.kind(part.start) == Some(Kind::Meta) => {}
            () if l.is_word(part.start, "align") => align = l.text(part.start + 1).parse().ok()?,
            // A number of elements.
            () => fixed = false,
        }
    }
    Some(Inst::Alloca {
        name: result?.to_owned(),
        ty: l.span(op + 1, end).to_owned(),
        align,
        fixed,
    })
}

/// A load of a whole variable: `load T, ptr %p, ...`.
fn load(l: &Lexed<'_>, op: usize) -> Option<Inst> {
    let end = l.past_type(op + 1)?;
    let at = end + 2;
    let good = l.is_mark(end, b',') && l.is_word(end + 1, "ptr") && l.kind(at) == Some(Kind::Local);
    good.then(|| Inst::Load {
        ty: l.squeezed(op + 1..end),
        from: l.name(at).to_owned(),
    })
}

/// A store to a whole variable: `store T value, ptr %p, ...`.
fn store(l: &Lexed<'_>, op: usize) -> Option<Inst> {
    let end = l.past_type(op + 1)?;
    let list = parts(l, op + 1..l.tokens.len());
    let to = list.get(1)?;
    let good = l.is_word(to.start, "ptr") && l.kind(to.start + 1) == Some(Kind::Local);
    good.then(|| Inst::Store {
        ty: l.squeezed(op + 1..end),
        value: end..list[0].end,
        to: l.name(to.start + 1).to_owned(),
    })
}
