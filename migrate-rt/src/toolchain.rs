//! The tools of the pinned toolchain: found in its own directory, so that no other LLVM on the
//! machine can get in between.

use crate::process::{ToolError, run_quiet};
use dyad_abi::Isa;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Target of the one front end: `panic=abort`, no outlined atomics, and no vector registers that crates could take
/// paths of their own for. [`optimise`](crate::optimise) gives programs their registers.
pub const FRONT_TARGET: &str = "aarch64-unknown-none-softfloat";
/// Target whose compiler builtins AArch64 programs are linked with.
const BUILTINS_TARGET: &str = "aarch64-unknown-none";

/// The tools.
#[derive(Clone, Debug)]
pub struct Toolchain {
    /// Release of the compiler, such as `1.95.0`.
    pub release: String,
    /// What changes when any of the tools changes.
    pub identity: String,
    /// Directory of the toolchain.
    pub sysroot: PathBuf,
    /// Cargo.
    pub cargo: PathBuf,
    /// The Rust compiler.
    pub rustc: PathBuf,
    /// The back end.
    pub llc: PathBuf,
    /// The IR optimiser.
    pub opt: PathBuf,
    /// What makes bitcode of textual IR.
    pub assembler: PathBuf,
    /// The linker of IR modules.
    pub link: PathBuf,
    /// The linker.
    pub lld: PathBuf,
    /// Libraries of compiler builtins, in link order, by ISA index.
    pub builtins: [Vec<PathBuf>; 2],
}

/// Why there is no usable toolchain.
#[derive(Debug)]
pub enum ToolchainError {
    /// The compiler could not be asked.
    Rustc(ToolError),
    /// The compiler's answer makes no sense.
    Answer(String),
    /// Not the release that the workspace pins.
    Release {
        /// The release that would be used.
        found: String,
        /// The release that is pinned.
        pinned: String,
    },
    /// A tool of a component is missing.
    Tool {
        /// Name of the tool.
        tool: &'static str,
        /// Release of the toolchain it belongs to.
        release: String,
    },
    /// The standard library of a target is missing.
    Target {
        /// The target.
        target: &'static str,
        /// Release of the toolchain it belongs to.
        release: String,
    },
}

impl fmt::Display for ToolchainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToolchainError::Rustc(e) => write!(
                f,
                "{e}\nuser programs need the Rust toolchain of rust-toolchain.toml: install rustup, it does the rest"
            ),
            ToolchainError::Answer(a) => write!(f, "rustc gives an unexpected answer: {a:?}"),
            ToolchainError::Release { found, pinned } => write!(
                f,
                "rustc is release {found}, but user programs are built with {pinned} only (the pipeline \
                 depends on its IR)\nrun through rustup, or: rustup toolchain install {pinned}"
            ),
            ToolchainError::Tool { tool, release } => write!(
                f,
                "the toolchain has no {tool}\ndo: rustup component add llvm-tools --toolchain {release}"
            ),
            ToolchainError::Target { target, release } => write!(
                f,
                "the toolchain has no compiler builtins for {target}\ndo: rustup target add {target} --toolchain {release}"
            ),
        }
    }
}

impl std::error::Error for ToolchainError {}

/// The channel that a workspace pins, if it pins one.
fn pinned(workspace_root: &Path) -> Option<String> {
    let text = std::fs::read_to_string(workspace_root.join("rust-toolchain.toml")).ok()?;
    let table: toml::Table = text.parse().ok()?;
    Some(table.get("toolchain")?.get("channel")?.as_str()?.to_owned())
}

/// The pipeline depends on the IR dialect and on hidden back-end options, so no other release will do.
fn require(found: &str, pinned: Option<String>) -> Result<(), ToolchainError> {
    match pinned {
        Some(pinned) if pinned != found => Err(ToolchainError::Release {
            found: found.to_owned(),
            pinned,
        }),
        _ => Ok(()),
    }
}

fn builtins_of(sysroot: &Path, target: &str) -> Option<PathBuf> {
    let dir = sysroot.join("lib/rustlib").join(target).join("lib");
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .ok()?
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| {
            let name = p.file_name().map(|n| n.to_string_lossy());
            name.is_some_and(|n| n.starts_with("libcompiler_builtins-") && n.ends_with(".rlib"))
        })
        .collect();
    found.sort();
    found.into_iter().next()
}

/// Variables with which a surrounding cargo or rustup would make the result depend on who asks.
const FOREIGN_VARIABLES: [&str; 10] = [
    "RUSTUP_TOOLCHAIN",
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_INCREMENTAL",
    "CARGO_TARGET_DIR",
];

/// A command that does not depend on the environment of its caller.
pub(crate) fn clean_command(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir);
    for name in FOREIGN_VARIABLES {
        command.env_remove(name);
    }
    command
}

impl Toolchain {
    /// Finds the toolchain that the workspace at `workspace_root` pins.
    ///
    /// # Errors
    ///
    /// Whatever is missing, with the command that installs it.
    pub fn find(workspace_root: &Path) -> Result<Toolchain, ToolchainError> {
        let ask = |program: &Path, args: &[&str]| {
            run_quiet(clean_command(program, workspace_root).args(args))
                .map(|out| out.stdout)
                .map_err(ToolchainError::Rustc)
        };
        let sysroot = PathBuf::from(ask(Path::new("rustc"), &["--print", "sysroot"])?.trim());
        let rustc = sysroot.join("bin/rustc");
        let version = ask(&rustc, &["-vV"])?;
        let line = |key: &str| {
            version
                .lines()
                .find_map(|l| l.strip_prefix(key)?.strip_prefix(": "))
                .map(str::to_owned)
                .ok_or_else(|| ToolchainError::Answer(version.clone()))
        };
        let (release, host) = (line("release")?, line("host")?);
        require(&release, pinned(workspace_root))?;
        let llvm = sysroot.join("lib/rustlib").join(&host).join("bin");
        let tool = |tool: &'static str| {
            let path = llvm.join(tool);
            if path.is_file() {
                return Ok(path);
            }
            Err(ToolchainError::Tool {
                tool,
                release: release.clone(),
            })
        };
        let builtins = |target: &'static str| {
            builtins_of(&sysroot, target).ok_or_else(|| ToolchainError::Target {
                target,
                release: release.clone(),
            })
        };
        // The front end needs the standard library of its own target.
        builtins(FRONT_TARGET)?;
        Ok(Toolchain {
            cargo: sysroot.join("bin/cargo"),
            rustc,
            llc: tool("llc")?,
            opt: tool("opt")?,
            assembler: tool("llvm-as")?,
            link: tool("llvm-link")?,
            lld: tool("rust-lld")?,
            builtins: [
                // The hard-float library has no memory functions, the soft-float one has.
                vec![
                    builtins("x86_64-unknown-linux-gnu")?,
                    builtins("x86_64-unknown-none")?,
                ],
                vec![builtins(BUILTINS_TARGET)?],
            ],
            identity: version.split_whitespace().collect::<Vec<_>>().join(" "),
            release,
            sysroot,
        })
    }

    /// The libraries of compiler builtins of an ISA, in link order.
    pub fn builtins(&self, isa: Isa) -> &[PathBuf] {
        &self.builtins[isa.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let pin = pinned(root).expect("the workspace pins a toolchain");
        assert!(require(&pin, Some(pin.clone())).is_ok());
        let text = require("1.2.3", Some(pin.clone())).unwrap_err().to_string();
        assert!(
            text.contains("is release 1.2.3") && text.contains(&format!("install {pin}")),
            "{text}"
        );

        // A toolchain without one of the components.
        assert!(builtins_of(root, BUILTINS_TARGET).is_none());
        let target = ToolchainError::Target {
            target: BUILTINS_TARGET,
            release: pin,
        };
        assert!(
            target
                .to_string()
                .contains("rustup target add aarch64-unknown-none")
        );
    }
}
