//! Why two linked programs do not make a bundle.

use dyad_abi::Isa;
use dyad_abi::bundle::BundleError;
use std::fmt;

/// Why two linked programs do not make a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackError {
    /// A program cannot be read.
    Unreadable {
        /// Its ISA.
        isa: Isa,
        /// Why.
        reason: String,
    },
    /// A section that takes memory and that nobody asked for.
    UnknownSection {
        /// The ISA.
        isa: Isa,
        /// Its name.
        section: String,
    },
    /// Writable data that one ISA has for itself.
    PrivateData {
        /// The ISA.
        isa: Isa,
        /// Its size.
        bytes: u64,
    },
    /// A shared section with different addresses or lengths.
    Placement {
        /// Its name.
        section: &'static str,
    },
    /// A shared byte that differs.
    Bytes {
        /// The section.
        section: &'static str,
        /// Its address.
        va: u64,
        /// The datum it belongs to.
        symbol: Option<String>,
    },
    /// Something that the linker has not put where the aligner wants it.
    Slot {
        /// Its name.
        name: String,
        /// The ISA.
        isa: Isa,
        /// Where it should be.
        va: u64,
    },
    /// A symbol with different addresses.
    Symbol {
        /// Its name.
        name: String,
    },
    /// A symbol that one ISA does not have.
    SymbolMissing {
        /// Its name.
        name: String,
        /// The ISA that does not have it.
        isa: Isa,
    },
    /// There is no entry point.
    NoEntry,
    /// Different entry points.
    Entry {
        /// By ISA index.
        entries: [u64; 2],
    },
    /// The file would not be accepted by kernels.
    Malformed(BundleError),
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PackError::Unreadable { isa, reason } => {
                write!(f, "the linked program for {isa} cannot be used: {reason}")
            }
            PackError::UnknownSection { isa, section } => write!(
                f,
                "the program has a section {section} on {isa} that has no place in the layout"
            ),
            PackError::PrivateData { isa, bytes } => write!(
                f,
                "a library brings {bytes} bytes of writable data that only {isa} has: it would not migrate"
            ),
            PackError::Placement { section } => {
                write!(f, "{section} is not in the same place on both ISAs")
            }
            PackError::Bytes {
                section,
                va,
                symbol,
            } => {
                write!(f, "the byte at {va:#x} in {section}")?;
                if let Some(symbol) = symbol {
                    write!(f, " ({})", crate::demangle(symbol))?;
                }
                f.write_str(" is not the same on both ISAs")
            }
            PackError::Slot { name, isa, va } => write!(
                f,
                "{} should be at {va:#x} on {isa}, but the linker has put it elsewhere",
                crate::demangle(name)
            ),
            PackError::Symbol { name } => write!(
                f,
                "{} is not at the same address on both ISAs",
                crate::demangle(name)
            ),
            PackError::SymbolMissing { name, isa } => {
                write!(f, "{} does not exist on {isa}", crate::demangle(name))
            }
            PackError::NoEntry => write!(
                f,
                "the program has no entry point `{}`: mark its main function with #[dyad::task]",
                crate::ENTRY
            ),
            PackError::Entry { entries: [x, a] } => write!(
                f,
                "the entry point is {x:#x} on x86_64 but {a:#x} on aarch64"
            ),
            PackError::Malformed(e) => write!(f, "kernels would refuse this program: {e}"),
        }
    }
}

impl std::error::Error for PackError {}
