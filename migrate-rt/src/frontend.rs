//! The front end: a crate and its dependencies, by cargo, to one module of IR before link-time
//! optimisation.
//!
//! Cargo decides what has to be done. The settings that the back ends rely on are given on its
//! command line, where they beat manifests, configuration files and the environment, so crates
//! outside of this workspace are built in the same way.
//!
//! The compiler makes bitcode of each crate, and the linker gets it (`inputs`): neither link-time optimisation nor code
//! generation of the front end's target is done, as nobody would use the result ([`optimise`](crate::optimise)).

mod inputs;
mod needs_std;
mod oversize;

pub use needs_std::NeedsStd;
pub use oversize::Oversize;

pub use self::inputs::Inputs;
use crate::files::{self, FileError};
use crate::llvm::Unreadable;
use crate::process::{ToolError, ToolErrorKind, run};
use crate::toolchain::{FRONT_TARGET, Toolchain, clean_command};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The profile of user programs.
const PROFILE: &str = "user";

/// What the profile must be, whatever manifests say.
const PROFILE_SETTINGS: [(&str, &str); 7] = [
    ("inherits", "\"release\""),
    ("lto", "false"),
    ("codegen-units", "1"),
    ("panic", "\"abort\""),
    ("incremental", "false"),
    ("strip", "\"none\""),
    // Line tables survive the pipeline; types and variables are not needed.
    ("debug", "\"line-tables-only\""),
];

/// Settings by which crates are told to leave out what is written for one ISA: their own switches, which are flags of the
/// compiler and not features. The `aes` crate has intrinsics of AArch64 whether or not the target has vector registers.
const PORTABLE: [&str; 1] = ["--cfg=aes_backend=\"soft\""];

const RUSTFLAGS: [&str; 4] = [
    "-Csymbol-mangling-version=v0",
    "-Crelocation-model=static",
    "-Clinker-plugin-lto",
    "-Clinker-flavor=ld.lld",
];

/// What to compile.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// Directory of the crate's manifest.
    pub manifest_dir: &'a Path,
    /// Name of the binary.
    pub bin: &'a str,
    /// Features to turn on.
    pub features: &'a [String],
    /// Where cargo runs: decides configuration files.
    pub workspace_root: &'a Path,
    /// Cargo's target directory, which many programs may share.
    pub target_dir: &'a Path,
}

/// The bitcode of a whole program before link-time optimisation, for the front end's target.
#[derive(Clone, Debug)]
pub struct PreLto {
    /// The file it is in.
    pub path: PathBuf,
    /// The bitcode.
    pub bytes: Vec<u8>,
}

/// The IR of a whole program after link-time optimisation.
#[derive(Clone, Debug)]
pub struct PostLto {
    /// The file it is in.
    pub path: PathBuf,
    /// The IR.
    pub text: String,
}

/// What the crate that compiles C in build scripts says when that fails.
const C_COMPILER: &str = "error occurred in cc-rs:";

/// Why there is no IR.
#[derive(Debug)]
pub enum FrontendError {
    /// The manifest cannot be read.
    Manifest(FileError),
    /// The manifest is not one of a package.
    NoPackage {
        /// The manifest.
        manifest: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A name that a bundle cannot have.
    Name {
        /// The name.
        name: String,
    },
    /// Cargo could not be run.
    Cargo(ToolError),
    /// The program does not compile.
    Compile {
        /// Name of the binary.
        bin: String,
        /// What cargo and the compiler said.
        diagnostics: String,
    },
    /// The program or its crates want the standard library.
    NeedsStd(NeedsStd),
    /// Cargo is content, but there is no IR.
    NoIr {
        /// Name of the binary.
        bin: String,
    },
    /// The program's statics do not fit into the window for data.
    Oversize {
        /// Name of the binary.
        bin: String,
        /// What is too much.
        oversize: Oversize,
    },
    /// The optimiser failed.
    Optimiser(ToolError),
    /// A line of the program's IR cannot be read.
    Unreadable(Unreadable),
    /// A result cannot be read.
    File(FileError),
}

impl fmt::Display for FrontendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrontendError::Manifest(e) => write!(
                f,
                "no user program here: {e}\ngive the directory of a crate, or make one with `cargo xtask new NAME`"
            ),
            FrontendError::NoPackage { manifest, reason } => {
                write!(
                    f,
                    "{} is not the manifest of a program: {reason}",
                    manifest.display()
                )
            }
            FrontendError::Name { name } => write!(
                f,
                "a program cannot be named {name:?}: names are 1 to {} letters, digits, '_' or '-'",
                dyad_abi::bundle::MAX_NAME
            ),
            FrontendError::Cargo(e) => e.fmt(f),
            FrontendError::Compile { bin, diagnostics } => {
                write!(f, "{bin} does not compile:\n{}", diagnostics.trim_end())?;
                match diagnostics.contains(C_COMPILER) {
                    true => write!(
                        f,
                        "\na crate compiles C or assembly in its build script, which is for one ISA only\n\
                         do: give it the feature that keeps it from that, for example `pure` of blake3"
                    ),
                    false => Ok(()),
                }
            }
            FrontendError::NeedsStd(why) => why.fmt(f),
            FrontendError::NoIr { bin } => write!(
                f,
                "the compiler left no IR of {bin}: it has to be a binary target with `#![no_std]` and `#![no_main]`"
            ),
            FrontendError::Oversize { bin, oversize } => {
                let Oversize {
                    bytes,
                    limit,
                    largest: (symbol, size),
                } = oversize;
                write!(
                    f,
                    "{bin} is too large: its data takes {bytes} bytes, and there is room for {limit}; {size} bytes of it \
                     are {}: put large data on the heap",
                    crate::demangle(symbol)
                )
            }
            FrontendError::Optimiser(e) => write!(f, "the program cannot be optimised: {e}"),
            FrontendError::Unreadable(e) => write!(f, "the program cannot be optimised: {e}"),
            FrontendError::File(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for FrontendError {}

/// The name of the package whose manifest is in `manifest_dir`, if a bundle can have it.
///
/// # Errors
///
/// If there is no such manifest or no such name.
pub fn package_name(manifest_dir: &Path) -> Result<String, FrontendError> {
    let manifest = manifest_dir.join("Cargo.toml");
    let text = files::read(&manifest).map_err(FrontendError::Manifest)?;
    let reason = |reason: String| FrontendError::NoPackage {
        manifest: manifest.clone(),
        reason,
    };
    let table: toml::Table = String::from_utf8_lossy(&text)
        .parse()
        .map_err(|e: toml::de::Error| reason(e.to_string()))?;
    let name = table
        .get("package")
        .and_then(|p| p.get("name"))
        .and_then(|n| n.as_str())
        .ok_or_else(|| reason("it has no package.name".to_owned()))?;
    check_name(name)?;
    Ok(name.to_owned())
}

/// Refuses names that a bundle cannot have.
///
/// # Errors
///
/// If `name` is one.
pub fn check_name(name: &str) -> Result<(), FrontendError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if name.is_empty() || name.len() > dyad_abi::bundle::MAX_NAME || !name.bytes().all(plain) {
        return Err(FrontendError::Name {
            name: name.to_owned(),
        });
    }
    Ok(())
}

fn cargo(tools: &Toolchain, source: &Source<'_>, linker: &Path) -> std::process::Command {
    let all = RUSTFLAGS.into_iter().chain(PORTABLE);
    let mut flags: Vec<OsString> = all.map(OsString::from).collect();
    let mut flag = OsString::from("-Clinker=");
    flag.push(linker);
    flags.push(flag);
    let mut command = clean_command(&tools.cargo, source.workspace_root);
    command
        .env("RUSTC", &tools.rustc)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join(OsStr::new("\x1f")))
        .env("CARGO_TERM_PROGRESS_WHEN", "never")
        .env("CARGO_TERM_COLOR", "never")
        .args(["rustc", "--profile", PROFILE, "--target", FRONT_TARGET])
        .arg("--manifest-path")
        .arg(source.manifest_dir.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(source.target_dir)
        .args(["--bin", source.bin]);
    for (key, value) in PROFILE_SETTINGS {
        command
            .arg("--config")
            .arg(format!("profile.{PROFILE}.{key}={value}"));
    }
    if !source.features.is_empty() {
        command.arg("--features").arg(source.features.join(","));
    }
    command
}

/// Whether two paths name the same file, or at least the same contents.
fn same_file(a: &Path, b: &Path) -> bool {
    let (Ok(ma), Ok(mb)) = (std::fs::metadata(a), std::fs::metadata(b)) else {
        return false;
    };
    if (ma.dev(), ma.ino()) == (mb.dev(), mb.ino()) {
        return true;
    }
    // Where hard links do not work cargo copies.
    ma.len() == mb.len() && std::fs::read(a).is_ok_and(|a| std::fs::read(b).is_ok_and(|b| a == b))
}

/// What is wrong with a program that does not compile.
fn failure(tools: &Toolchain, source: &Source<'_>, diagnostics: String) -> FrontendError {
    let package = package_name(source.manifest_dir);
    let names = (package.as_deref().unwrap_or(source.bin), source.bin);
    match needs_std::look(tools, source.manifest_dir, names, &diagnostics) {
        Some(why) => FrontendError::NeedsStd(why),
        None => FrontendError::Compile {
            bin: source.bin.to_owned(),
            diagnostics,
        },
    }
}

/// Compiles a program, or finds that nothing has changed. Lines that cargo and the compiler print
/// go to `on_line`.
///
/// # Errors
///
/// See [`FrontendError`].
pub fn compile(
    tools: &Toolchain,
    source: &Source<'_>,
    on_line: &mut dyn FnMut(&str),
) -> Result<Inputs, FrontendError> {
    let mut build = |command: &mut std::process::Command| {
        run(command, on_line).map_err(|e| match e.kind {
            ToolErrorKind::Failed { stderr, .. } => failure(tools, source, stderr),
            _ => FrontendError::Cargo(e),
        })
    };
    let linker = inputs::script(source.target_dir).map_err(FrontendError::File)?;
    build(&mut cargo(tools, source, &linker))?;
    let dir = source.target_dir.join(FRONT_TARGET).join(PROFILE);
    let program = dir.join(source.bin);
    match Inputs::of(&program) {
        Some(inputs) => Ok(inputs),
        None => {
            // Cargo does not know of the kept objects, so if somebody has deleted
            // them the unit has to look changed: remove the program itself.
            let deps = dir.join("deps");
            for e in std::fs::read_dir(&deps).into_iter().flatten().flatten() {
                if same_file(&e.path(), &program) {
                    std::fs::remove_file(e.path()).map_err(|error| {
                        FrontendError::File(FileError::new("remove", &e.path())(error))
                    })?;
                }
            }
            build(&mut cargo(tools, source, &linker))?;
            Inputs::of(&program).ok_or_else(|| FrontendError::NoIr {
                bin: source.bin.to_owned(),
            })
        }
    }
}

/// Refuses textual IR of a program whose statics do not fit into the window for data, before anybody reads it.
///
/// # Errors
///
/// If it is one, or cannot be looked into.
pub(crate) fn check_size(bin: &str, path: &Path) -> Result<(), FrontendError> {
    match oversize(path).map_err(FrontendError::File)? {
        None => Ok(()),
        Some(oversize) => Err(FrontendError::Oversize {
            bin: bin.to_owned(),
            oversize,
        }),
    }
}

/// Whether the program's statics are more than there is room for.
fn oversize(path: &Path) -> Result<Option<Oversize>, FileError> {
    let failed = |e| FileError::new("read", path)(e);
    if !oversize::is_suspect(std::fs::metadata(path).map_err(failed)?.len()) {
        return Ok(None);
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    oversize::look(std::io::BufReader::with_capacity(1 << 20, file)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_that_compile_c_are_told_from_errors_of_the_program() {
        let error = |diagnostics: &str| {
            let (bin, diagnostics) = ("b3".to_owned(), diagnostics.to_owned());
            FrontendError::Compile { bin, diagnostics }.to_string()
        };
        let text = error("  error occurred in cc-rs: command did not execute successfully\n");
        assert!(text.ends_with("for example `pure` of blake3"), "{text}");
        assert!(!error("error[E0425]: cannot find value `x`\n").contains("do:"));
    }
}
