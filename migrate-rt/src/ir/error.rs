//! What is refused, and what to do about it.

use crate::source::Place;
use std::fmt;

/// Why IR was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IrError {
    /// It is not for the front end's target, or its data layout is another one.
    OtherTarget,
    /// It contains what no neutral module may contain.
    Refused(Vec<Violation>),
}

/// One thing that no neutral module may contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The function it is in, as it is named in the IR.
    pub function: Option<String>,
    /// Where, if that can be found.
    pub source: Option<Place>,
    /// What it is.
    pub kind: ViolationKind,
}

/// What a neutral module may not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// An intrinsic of one target.
    TargetIntrinsic(String),
    /// Inline assembly, by its template.
    InlineAsm(String),
    /// Assembly outside of functions.
    ModuleAsm(String),
    /// Data that back ends may merge or rename.
    Mergeable(String),
    /// A thread-local variable.
    ThreadLocal(String),
    /// A symbol resolved at load time.
    Ifunc(String),
    /// A vector whose size depends on the machine.
    ScalableVector,
    /// A function attribute that names a target.
    TargetAttributes,
    /// A use of a stub that invokes services, other than calling it.
    InvocationStub(String),
    /// A function of one ISA only takes or returns what cannot cross.
    Crossing(String),
}

/// How many violations are printed.
const SHOWN: usize = 8;

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ViolationKind::TargetIntrinsic(name) if name.starts_with("llvm.va_") => f.write_str(
                "takes varying arguments, which are in other places on every ISA: pass a slice",
            ),
            ViolationKind::TargetIntrinsic(name) => write!(
                f,
                "uses the intrinsic {name}, which exists on one ISA only: use portable code instead of core::arch \
                 (in a dependency: turn off its SIMD or `arch` feature)"
            ),
            ViolationKind::InlineAsm(template) => write!(
                f,
                "has inline assembly ({template:?}), which exists on one ISA only: call a function of dyad instead"
            ),
            ViolationKind::ModuleAsm(line) => write!(
                f,
                "global_asm! ({line}) exists on one ISA only: call a function of dyad instead"
            ),
            ViolationKind::Mergeable(name) => write!(
                f,
                "{name} may be merged with other constants, differently on every ISA: it must be neither private nor unnamed_addr"
            ),
            ViolationKind::ThreadLocal(name) => write!(
                f,
                "{name} is thread-local: there is no ELF TLS, use the slots of the thread control block"
            ),
            ViolationKind::Ifunc(name) => {
                write!(f, "{name} is resolved at load time, which programs do not do")
            }
            ViolationKind::ScalableVector => {
                f.write_str("uses scalable vectors, which exist on one ISA only: use fixed-size ones")
            }
            ViolationKind::InvocationStub(name) => write!(
                f,
                "does something else with {name} than to call it: use dyad_sys::raw"
            ),
            ViolationKind::Crossing(what) => write!(
                f,
                "runs on one ISA only, and {what}: such functions are `extern \"C\"`, take at most six integers or pointers and eight floating-point numbers, and return one of these (use #[dyad::isa])"
            ),
            ViolationKind::TargetAttributes => f.write_str(
                "functions have attributes that name a target CPU or feature: make the module neutral first",
            ),
        }
    }
}

impl fmt::Display for IrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IrError::OtherTarget => f.write_str(
                "the IR is not that of the pinned front end (another target or data layout): build with the pinned toolchain",
            ),
            IrError::Refused(all) => {
                f.write_str("the program is not the same on every ISA:")?;
                for v in all.iter().take(SHOWN) {
                    f.write_str("\n  ")?;
                    match (&v.function, &v.source) {
                        (Some(name), Some(source)) => {
                            write!(f, "{} ({source}): ", crate::demangle(name))?;
                        }
                        (Some(name), None) => write!(f, "{}: ", crate::demangle(name))?,
                        (None, Some(source)) => write!(f, "{source}: ")?,
                        (None, None) => {}
                    }
                    write!(f, "{}", v.kind)?;
                }
                if all.len() > SHOWN {
                    write!(f, "\n  and {} more", all.len() - SHOWN)?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for IrError {}
