//! The links: objects and builtins of one ISA, placed by the aligner's script.

use crate::files::{self, FileError};
use crate::process::{ToolError, ToolErrorKind, run_quiet};
use crate::toolchain::{Toolchain, clean_command};
use dyad_abi::Isa;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Why a link failed.
#[derive(Debug)]
pub enum LinkError {
    /// Symbols that neither the program, nor the stubs, nor the builtins define.
    Undefined {
        /// The ISA.
        isa: Isa,
        /// The symbols, and where each of them is used first, as the linker says.
        symbols: Vec<(String, Option<String>)>,
    },
    /// Another failure of the linker.
    Lld {
        /// The ISA.
        isa: Isa,
        /// How.
        source: ToolError,
    },
    /// A file could not be read or written.
    File(FileError),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::Undefined { isa, symbols } => {
                write!(f, "nobody defines these functions for {isa}:")?;
                for (symbol, user) in symbols {
                    write!(f, "\n  {}", crate::demangle(symbol))?;
                    if let Some(user) = user {
                        write!(f, ", used at {user}")?;
                    }
                }
                write!(
                    f,
                    "\nfloating-point functions are in the crate libm (default-features = false); there is no C library"
                )
            }
            LinkError::Lld { isa, source } => {
                write!(f, "the program cannot be linked for {isa}: {source}")
            }
            LinkError::File(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for LinkError {}

/// The first use of a symbol, from what the linker says behind its name:
///
/// ```text
/// >>> referenced by main.rs:12 (/app/src/main.rs:12)
/// >>>               app.o:(app::main)
/// ```
///
/// Without line tables the first line has no more than a file.
fn used_at<'a>(mut said: impl Iterator<Item = &'a str>) -> Option<String> {
    let line = said.next()?.strip_prefix(">>> referenced by ")?;
    let section = said.next().and_then(|l| l.strip_prefix(">>> "));
    let place = match (line.split_once(" ("), line.contains(':'), section) {
        (Some((_, full)), ..) => full.trim_end_matches(')'),
        (None, false, Some(section)) => section,
        (None, ..) => line,
    };
    Some(place.trim().to_owned())
}

fn undefined(stderr: &str) -> Vec<(String, Option<String>)> {
    let mut symbols = BTreeMap::new();
    let mut lines = stderr.lines();
    while let Some(line) = lines.next() {
        if let Some((_, symbol)) = line.split_once("undefined symbol: ") {
            let place = used_at(lines.clone());
            symbols.entry(symbol.trim().to_owned()).or_insert(place);
        }
    }
    symbols.into_iter().collect()
}

/// Links `files`, names of object files in `dir`, with the builtins of `isa` to `dir/output`. Gives
/// the linked program.
///
/// # Errors
///
/// See [`LinkError`].
pub fn link(
    tools: &Toolchain,
    isa: Isa,
    dir: &Path,
    script: &str,
    files: &[&str],
    output: &str,
) -> Result<Vec<u8>, LinkError> {
    let script_path = dir.join("layout.ld");
    files::write(&script_path, script.as_bytes()).map_err(LinkError::File)?;
    let emulation = match isa {
        Isa::X86_64 => "elf_x86_64",
        Isa::Aarch64 => "aarch64elf",
    };
    // Relative names, so that the script's file patterns match. No --gc-sections: what it removes
    // depends on the ISA. Relaxation keeps the size of code on both ISAs, and the x86-64 builtins
    // need it: without it their calls go through a table that counts as writable data.
    let mut command = clean_command(&tools.lld, dir);
    command
        .args(["-flavor", "gnu", "-m", emulation])
        .args(["-static", "--no-gc-sections", "--build-id=none"])
        .args(["-z", "max-page-size=4096", "-z", "noexecstack"])
        .args(["--no-demangle", "--error-limit=0", "--no-undefined"])
        .args(["-T", "layout.ld"])
        .args(["-o", output])
        .args(files)
        .args(tools.builtins(isa));
    run_quiet(&mut command).map_err(|source| {
        if let ToolErrorKind::Failed { stderr, .. } = &source.kind {
            let symbols = undefined(stderr);
            if !symbols.is_empty() {
                return LinkError::Undefined { isa, symbols };
            }
        }
        LinkError::Lld { isa, source }
    })?;
    files::read(&dir.join(output)).map_err(LinkError::File)
}
