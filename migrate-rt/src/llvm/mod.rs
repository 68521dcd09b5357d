//! The reader of LLVM's textual IR.
//!
//! All stages of the pipeline that look into IR use this module: [`ir`](crate::ir) (what belongs to a
//! target), [`spine`](crate::spine) (the pass and what it tells the verifier), [`source`](crate::source)
//! (line tables), and the check for programs that are too large. The dialect is that of the printer of
//! the pinned LLVM. The reader has three levels, so that a stage pays for what it needs:
//!
//! | level | unit | used for |
//! |---|---|---|
//! | [`Line`] | the kind of a line, by its first characters | passes over whole programs, which have tens of megabytes of IR |
//! | [`Lexed`] | the tokens of one line; [`Header`] and [`parts`] on top of them | headers, calls, declarations, globals |
//! | [`Module`] | functions as blocks of instructions | passes that change functions |
//!
//! [`Metadata`] reads nodes of debugging information. The reader never guesses: text outside of the
//! dialect is [`Unreadable`].

mod header;
mod lex;
mod line;
mod metadata;
mod module;

pub use header::{Header, Prefix, parts, prefix};
pub use lex::{Kind, Lexed, Token, leading_type, lex};
pub use line::{Global, Line, declares, module_target, symbol_at, with_module_target};
pub use metadata::{Metadata, field, text};
pub use module::{Block, Function, Item, Module, rename};

use std::fmt;

/// Flags of floating-point instructions that permit a back end to change results.
pub const FAST_MATH_FLAGS: [&str; 8] = [
    "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "fast",
];

/// A line that is not in the dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The symbol of the function that the line is in; empty if it is in none, or in one that is not known
    /// here.
    pub function: String,
    /// The line.
    pub line: String,
}

impl Unreadable {
    /// An error about a line of a function.
    pub fn new(function: &str, line: &str) -> Unreadable {
        Unreadable {
            function: function.to_owned(),
            line: line.to_owned(),
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown line of IR `{}`", self.line)
    }
}

impl std::error::Error for Unreadable {}
