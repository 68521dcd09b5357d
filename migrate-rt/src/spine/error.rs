//! What keeps a program from being made migratable, where, and what to do about it.

use super::inst::Odd;
use crate::files::FileError;
use crate::llvm::Unreadable;
use crate::process::ToolError;
use crate::source::{Group, Origin, Place, by_function, findings, remedy_of_others};
use crate::verify::VerifyError;
use std::fmt;

/// Most functions that are shown.
const FUNCTIONS: usize = 8;
/// Most kinds of refusals that are shown of a function.
const KINDS: usize = 3;

/// Why a program's threads cannot be made to migrate.
#[derive(Debug)]
pub enum SpineError {
    /// Something in the program that cannot be on the stack of a thread that migrates.
    Refused(Vec<Refusal>),
    /// IR that the pass does not understand.
    Unreadable {
        /// The function it is in, if it is in one.
        function: String,
        /// The line.
        line: String,
    },
    /// A tool failed.
    Tool(ToolError),
    /// A file could not be read or written.
    File(FileError),
    /// What the back ends say about sites makes no sense.
    Sites(String),
    /// Machine code that would lose something in a migration.
    Verify(VerifyError),
}

/// Something that a thread that migrates cannot have on its stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The function, demangled.
    pub function: String,
    /// Where, if the program has line tables.
    pub source: Option<Place>,
    /// What it is.
    pub what: Refused,
}

/// What cannot be on the stack of a thread that migrates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Inline assembly.
    Assembly,
    /// A call with varying arguments, or with a structure that is copied to the native stack.
    Odd(Odd),
    /// Arguments of which back ends do not agree with the convention where they are.
    Arguments,
    /// A local variable whose size is not known when the program is built.
    DynamicSize,
    /// A local variable with an alignment that data stacks do not have.
    Alignment(u64),
    /// A frame that could jump over the guard of the data stack.
    Large(u64),
    /// A local variable of a type whose size is not known here.
    Type(String),
    /// A function that is entered from outside of the program is called through pointers, by calls that
    /// may reach functions that migrate.
    Entry,
    /// A function of one ISA only from which a migration point can be reached.
    OneIsa,
    /// Points in the loops of a function that is entered from outside of the program.
    PointsOutside,
    /// A call that has to be the last thing its function does.
    MustTail,
    /// A migration point of plain threads in a program whose main function is a task.
    NoRoot,
    /// The root is used by the program itself.
    RootUsed,
    /// An alias of a function that may migrate.
    Alias,
}

impl Refused {
    /// What the program's author can do.
    pub fn remedy(&self) -> &'static str {
        match self {
            Refused::Assembly => "move it into an #[inline(never)] function that never migrates",
            Refused::Odd(Odd::Varargs) => {
                "call it in an #[inline(never)] function that never migrates"
            }
            Refused::Odd(Odd::ByValue) => "pass a reference instead of the structure",
            Refused::Arguments => {
                "give it fewer arguments, for example one reference to a structure of them"
            }
            Refused::DynamicSize => "put it on the heap: Vec or Box",
            Refused::Alignment(_) => {
                "put it on the heap (Box), or give its type an alignment of at most 16"
            }
            Refused::Large(_) => "put large arrays on the heap: Vec or Box",
            Refused::Type(_) => {
                "keep values of that type in an #[inline(never)] function that never migrates"
            }
            Refused::Entry => {
                "do not take its address as that of an ordinary function: call another one there that calls it"
            }
            Refused::OneIsa => {
                "take the migration point out of what it calls, or move that to its callers: they may migrate before and behind the call"
            }
            Refused::PointsOutside => {
                "put the loops into a function of their own, with #[dyad::points(loops)], and call that from one that is not entered from outside"
            }
            Refused::MustTail => "call the function in the usual way",
            Refused::NoRoot => {
                "make the main function a plain one: #[dyad::main] fn main(); in a task, use dyad::task::migrate(isa).await"
            }
            Refused::RootUsed => "use #[dyad::main] once, and leave what it makes alone",
            Refused::Alias => "mark the function #[inline(never)]",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Assembly => f.write_str("inline assembly in a function that may migrate"),
            Refused::Odd(Odd::Varargs) => {
                f.write_str("a call with varying arguments may migrate")
            }
            Refused::Odd(Odd::ByValue) => {
                f.write_str("a call that may migrate passes a structure on the native stack")
            }
            Refused::Arguments => f.write_str(
                "may migrate, and has arguments that have no place: a structure passed as a value, or a vector of 8 bytes, behind 12 words (x86-64; 24 on AArch64) or 8 floating-point numbers",
            ),
            Refused::DynamicSize => f.write_str(
                "a local variable, in a function that may migrate, of a size that is only known at run time",
            ),
            Refused::Alignment(align) => write!(
                f,
                "a local variable, in a function that may migrate, is aligned to {align} bytes; data stacks have 16"
            ),
            Refused::Large(size) => write!(
                f,
                "local variables of a function that may migrate take {size} bytes, at most {} are possible",
                super::MAX_FRAME
            ),
            Refused::Type(ty) => write!(
                f,
                "a local variable of type {ty}, whose size on both ISAs is not known, in a function that may migrate"
            ),
            Refused::Entry => f.write_str(
                "is entered from outside of the program or runs on one ISA only, and is called through pointers like functions that may migrate",
            ),
            Refused::OneIsa => f.write_str(
                "runs on one ISA only (#[dyad::isa]), but can reach a migration point: its caller may be on the other ISA, where its frame cannot follow",
            ),
            Refused::PointsOutside => f.write_str(
                "has migration points in its loops, but is entered from outside of the program: no thread can move in it",
            ),
            Refused::MustTail => f.write_str("a call that may migrate must be a tail call"),
            Refused::NoRoot => {
                f.write_str("has migration points of plain threads, but the main function is a task")
            }
            Refused::RootUsed => f.write_str("uses the root of its own threads"),
            Refused::Alias => f.write_str("may migrate, and has a second name"),
        }
    }
}

/// The refusals in one function.
struct OfFunction<'a>(&'a Group<'a, Refusal>);

impl fmt::Display for OfFunction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Group {
            origin,
            function,
            found,
        } = self.0;
        write!(f, "{} in ", findings(found.len()))?;
        match *function {
            super::ROOT => {
                f.write_str("the program, the main function with what is inlined into it")?;
            }
            _ => write!(f, "{origin}, function {function}")?,
        }
        let is_own = matches!(origin, Origin::Own { .. }) || *function == super::ROOT;
        let mut shown: Vec<(&Refused, Vec<&Refusal>)> = Vec::new();
        for &refusal in found {
            match shown.iter_mut().find(|(what, _)| **what == refusal.what) {
                Some((_, all)) => all.push(refusal),
                None => shown.push((&refusal.what, vec![refusal])),
            }
        }
        for (what, all) in shown.iter().take(KINDS) {
            write!(f, "\n    {what}")?;
            if let Some(place) = all.iter().find_map(|r| r.source.as_ref()) {
                write!(f, " ({place})")?;
            }
            if all.len() > 1 {
                write!(f, ", and {} more", all.len() - 1)?;
            }
            if is_own {
                write!(f, "\n      do: {}", what.remedy())?;
            }
        }
        if let Some(rest) = shown.get(KINDS..).filter(|rest| !rest.is_empty()) {
            let others = rest.iter().map(|(_, all)| all.len()).sum();
            write!(f, "\n    {} of other kinds", findings(others))?;
        }
        if is_own {
            return Ok(());
        }
        let places = found.iter().filter_map(|r| r.source.as_ref());
        write!(f, "\n    do: {}", remedy_of_others(places))
    }
}

impl SpineError {
    pub(super) fn unreadable(function: &str, line: &str) -> SpineError {
        SpineError::Unreadable {
            function: crate::demangle(function),
            line: line.to_owned(),
        }
    }

    /// The error, of a function.
    pub(super) fn of(self, name: &str) -> SpineError {
        match self {
            SpineError::Unreadable { function, line } if function.is_empty() => {
                SpineError::unreadable(name, &line)
            }
            other => other,
        }
    }
}

impl fmt::Display for SpineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpineError::Refused(all) => {
                let count = findings(all.len());
                write!(f, "threads of the program cannot migrate: {count}")?;
                let groups = by_function(all, |r| (&r.function, r.source.as_ref()));
                for group in groups.iter().take(FUNCTIONS) {
                    write!(f, "\n  {}", OfFunction(group))?;
                }
                if let Some(rest) = groups.get(FUNCTIONS..).filter(|rest| !rest.is_empty()) {
                    let count = findings(rest.iter().map(|g| g.found.len()).sum());
                    write!(f, "\n  and {count} in {} more functions", rest.len())?;
                }
                Ok(())
            }
            SpineError::Unreadable { function, line } => write!(
                f,
                "{function}: the spine pass does not understand `{line}`\n\
                 do: move what the function does there into an #[inline(never)] function that never migrates, \
                 and report the line"
            ),
            SpineError::Tool(e) => write!(
                f,
                "the optimiser does not take what the spine pass has made: {e}"
            ),
            SpineError::File(e) => e.fmt(f),
            SpineError::Sites(why) => write!(f, "migration sites: {why}"),
            SpineError::Verify(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for SpineError {}

impl From<Unreadable> for SpineError {
    fn from(e: Unreadable) -> SpineError {
        SpineError::unreadable(&e.function, &e.line)
    }
}

impl From<FileError> for SpineError {
    fn from(e: FileError) -> SpineError {
        SpineError::File(e)
    }
}

impl From<ToolError> for SpineError {
    fn from(e: ToolError) -> SpineError {
        SpineError::Tool(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    fn refusal(function: &str, what: Refused, file: &str, used_at: Option<&str>) -> Refusal {
        let source = |file: &str| Source {
            file: file.to_owned(),
            line: 7,
        };
        Refusal {
            function: function.to_owned(),
            source: Some(Place {
                at: source(file),
                used_at: used_at.map(source),
            }),
            what,
        }
    }

    #[test]
    fn refusals_are_told_by_crate_and_function() {
        let far = "/home/u/.cargo/registry/src/index-1a/memchr-2.7.4/src/memrchr.rs";
        let foreign = |what| refusal("memchr::memrchr", what, far, Some("src/main.rs"));
        let own = |n: usize| {
            let function = format!("app::f{n}");
            refusal(&function, Refused::DynamicSize, "src/main.rs", None)
        };
        let mut all = vec![
            foreign(Refused::Assembly),
            own(0),
            foreign(Refused::Assembly),
            foreign(Refused::Large(1 << 20)),
        ];
        all.extend((1..9).map(own));
        let text = SpineError::Refused(all).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..2],
            [
                "threads of the program cannot migrate: 12 findings",
                "  3 findings in crate memchr 2.7.4, function memchr::memrchr",
            ]
        );
        assert!(lines[2].starts_with("    inline assembly in a function that may migrate (/home"));
        assert!(lines[2].ends_with("used at src/main.rs:7), and 1 more"));
        assert!(lines[3].starts_with("    local variables of a function that may migrate take"));
        assert!(
            lines[4].starts_with(
                "    do: call it only where it reaches no migration point (from src/main.rs:7)"
            ),
            "{text}"
        );
        assert_eq!(lines[5], "  1 finding in crate app, function app::f0");
        assert_eq!(
            lines[7],
            format!("      do: {}", Refused::DynamicSize.remedy())
        );
        assert_eq!(lines.last(), Some(&"  and 2 findings in 2 more functions"));
    }
}
