//! The bundler: two linked programs, proven equal where they must be, to one file.
//!
//! It trusts nothing that came before. It reads the linked programs again and requires that
//!
//! 1. every section that takes memory is one that the aligner asked for;
//! 2. shared sections have the same address, length and *bytes* on every ISA;
//! 3. everything that the aligner has given a slot is in its slot;
//! 4. every symbol in aligned code and shared memory exists on every ISA, at the same address;
//! 5. no ISA has writable data of its own;
//! 6. the entry points are the same.
//!
//! The file it makes is then read by the parser that kernels use.

mod error;
mod image;
mod write;

pub use error::PackError;
pub use write::{Contents, write};

use crate::align::{Plan, SharedKind};
use crate::files::{self, FileError};
use dyad_abi::bundle::{Bundle, BundleError, Scope};
use dyad_abi::{ABI_VERSION, Isa};
use image::Image;
use std::fmt::{self, Write};
use std::path::Path;

/// A bundle with what was found out about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The file.
    pub bytes: Vec<u8>,
    /// Symbols that have been found at the same address on every ISA.
    pub equal_symbols: usize,
    /// Bytes that have been found equal on every ISA.
    pub equal_bytes: u64,
}

/// Makes the bundle of the program `name`, laid out by `plan`, from its linked programs, by ISA
/// index.
///
/// # Errors
///
/// Anything that is not the same on every ISA and has to be.
pub fn pack(name: &str, plan: &Plan, programs: [&[u8]; 2]) -> Result<Packed, PackError> {
    let [x, a] = programs;
    let images = [Image::read(Isa::X86_64, x)?, Image::read(Isa::Aarch64, a)?];
    let [x, a] = &images;
    let mut contents = Vec::new();
    let mut equal_bytes = 0;
    for kind in SharedKind::ALL {
        let section = kind.output_section();
        let (x, a) = (x.section(section), a.section(section));
        match (x, a) {
            (None, None) => continue,
            (Some(xs), Some(asec)) => {
                if (xs.va, xs.mem_len) != (asec.va, asec.mem_len) {
                    return Err(PackError::Placement { section });
                }
                if let Some(at) = first_difference(xs.bytes, asec.bytes) {
                    let va = xs.va + at;
                    return Err(PackError::Bytes {
                        section,
                        va,
                        symbol: images[1].symbol_at(va),
                    });
                }
                equal_bytes += xs.bytes.len() as u64;
                contents.push(Contents {
                    scope: Scope::Shared,
                    va: xs.va,
                    mem_len: xs.mem_len,
                    bytes: xs.bytes,
                    write: kind != SharedKind::ReadOnly,
                    exec: false,
                });
            }
            _ => return Err(PackError::Placement { section }),
        }
    }
    for image in &images {
        in_their_slots(plan, image)?;
    }
    let equal_symbols = compare_symbols(x, a)?;
    if x.entry != a.entry {
        return Err(PackError::Entry {
            entries: [x.entry, a.entry],
        });
    }
    for image in &images {
        contents.extend(image.private().map(|s| Contents {
            scope: Scope::Isa(image.isa),
            va: s.va,
            mem_len: s.mem_len,
            bytes: s.bytes,
            write: false,
            exec: s.exec,
        }));
    }
    contents.sort_by_key(|c| (c.va, c.scope.flags()));
    // Checked above: it is a symbol of aligned code, so it has one address.
    let invoked = x.symbols.get(crate::INVOKED).map_or(0, |vas| vas[0]);
    let bytes = write(
        name,
        x.entry,
        u32::try_from(invoked).unwrap_or(u32::MAX),
        &contents,
    );
    Bundle::parse(&bytes).map_err(PackError::Malformed)?;
    Ok(Packed {
        bytes,
        equal_symbols,
        equal_bytes,
    })
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<u64> {
    let at = a.iter().zip(b).position(|(a, b)| a != b);
    let at = at.or((a.len() != b.len()).then_some(a.len().min(b.len())));
    at.map(|at| at as u64)
}

fn in_their_slots(plan: &Plan, image: &Image<'_>) -> Result<(), PackError> {
    for slot in plan.slots() {
        for name in &slot.symbols {
            let vas = image.symbols.get(name);
            let inside = |va: &u64| (slot.va..slot.va + slot.size).contains(va);
            if !vas.is_some_and(|vas| vas.iter().any(inside)) {
                return Err(PackError::Slot {
                    name: name.clone(),
                    isa: image.isa,
                    va: slot.va,
                });
            }
        }
    }
    Ok(())
}

fn compare_symbols(x: &Image<'_>, a: &Image<'_>) -> Result<usize, PackError> {
    for (image, other) in [(x, a), (a, x)] {
        for (name, vas) in &image.symbols {
            match other.symbols.get(name) {
                Some(theirs) if theirs == vas => (),
                Some(_) => {
                    return Err(PackError::Symbol {
                        name: name.to_string(),
                    });
                }
                None => {
                    return Err(PackError::SymbolMissing {
                        name: name.to_string(),
                        isa: other.isa,
                    });
                }
            }
        }
    }
    Ok(x.symbols.values().map(Vec::len).sum())
}

/// Why a bundle could not be described.
#[derive(Debug)]
pub enum DescribeError {
    /// It cannot be read.
    File(FileError),
    /// It is not a bundle of this ABI version.
    Bundle(BundleError),
}

impl fmt::Display for DescribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DescribeError::File(e) => e.fmt(f),
            DescribeError::Bundle(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for DescribeError {}

/// A text about the bundle at `path`: name, entry point, segments.
///
/// # Errors
///
/// If there is no well-formed bundle of this ABI version.
pub fn describe(path: &Path) -> Result<String, DescribeError> {
    let file = files::read(path).map_err(DescribeError::File)?;
    let bundle = Bundle::parse(&file).map_err(DescribeError::Bundle)?;
    let mut out = format!(
        "{}: {} bytes, ABI version {ABI_VERSION}, entry {:#x}{}\n\
         isa      rights address             memory       file\n",
        bundle.name(),
        file.len(),
        bundle.entry(),
        bundle
            .invoked()
            .map_or(String::new(), |at| format!(", invoked at {at:#x}")),
    );
    for s in bundle.segments() {
        let isa = match s.scope {
            Scope::Shared => "shared",
            Scope::Isa(isa) => isa.name(),
        };
        let rights = match (s.write, s.exec) {
            (true, _) => "rw-",
            (_, true) => "r-x",
            _ => "r--",
        };
        let _ = writeln!(
            out,
            "{isa:<8} {rights}    {:#010x} {:>14} {:>10}",
            s.va,
            s.mem_len,
            s.bytes.len()
        );
    }
    Ok(out)
}
