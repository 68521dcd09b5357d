//! The back ends: the IR of one ISA to an object file, and the few routines that have to be
//! written per ISA.
//!
//! Every function and every datum gets a section of its own, so that the aligner can place it.
//! The options beyond that keep the two back ends from taking decisions of their own about data
//! (global merging, promoted constants) or from carrying machine-level values across calls, which
//! migration inside of calls relies on.

use crate::files::{self, FileError};
use crate::ir::IsaIr;
use crate::process::{ToolError, run_quiet};
use crate::toolchain::Toolchain;
use dyad_abi::Isa;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// Options of both back ends.
const FLAGS: [&str; 11] = [
    "-O3",
    "-filetype=obj",
    "--relocation-model=static",
    // Kernels follow frame records to say where a faulting program came from.
    "--frame-pointer=all",
    "--function-sections",
    "--data-sections",
    "-disable-machine-licm",
    "-disable-machine-cse",
    "-disable-constant-hoisting",
    "-disable-tail-duplicate",
    "-disable-early-taildup",
];

/// Options of the back end of an ISA.
pub fn flags(isa: Isa) -> impl Iterator<Item = &'static str> {
    let own: &[&str] = match isa {
        Isa::X86_64 => &[
            "-mcpu=x86-64",
            "--code-model=small",
            "-no-x86-call-frame-opt",
        ],
        Isa::Aarch64 => &[
            // One class of atomics on both ISAs, as in the kernels: single instructions, no
            // load-exclusive loops.
            "-mattr=+v8a,+lse,+neon,+fp-armv8,+strict-align",
            // A fused multiply-add rounds once, the two instructions of baseline x86-64 twice.
            "-fp-contract=off",
            "-aarch64-enable-global-merge=false",
            "-aarch64-enable-promote-const=false",
        ],
    };
    FLAGS
        .into_iter()
        .chain(["-tail-dup-placement=false"])
        .chain(own.iter().copied())
}

/// Why there is no object file.
#[derive(Debug)]
pub enum CodegenError {
    /// The back end failed.
    Llc {
        /// For which ISA.
        isa: Isa,
        /// How.
        source: ToolError,
    },
    /// A file could not be read or written.
    File(FileError),
}

impl fmt::Display for CodegenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodegenError::Llc { isa, source } => write!(
                f,
                "the {isa} back end cannot compile the program: {source}\n\
                 the IR uses something this ISA does not have; look for core::arch or vector code in the function named above"
            ),
            CodegenError::File(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for CodegenError {}

/// Compiles `ir` to the object file `dir/name.o`; `dir/name.ll` keeps the input. Gives the object.
///
/// # Errors
///
/// See [`CodegenError`].
pub fn compile(
    tools: &Toolchain,
    ir: &IsaIr,
    dir: &Path,
    name: &str,
) -> Result<Vec<u8>, CodegenError> {
    llc(tools, ir.isa(), ir.text(), dir, name)
}

/// Compiles the routines of `isa` to the object file `dir/name.o`.
///
/// # Errors
///
/// See [`CodegenError`].
pub fn compile_stubs(
    tools: &Toolchain,
    isa: Isa,
    dir: &Path,
    name: &str,
) -> Result<Vec<u8>, CodegenError> {
    llc(tools, isa, &stubs(isa), dir, name)
}

fn llc(
    tools: &Toolchain,
    isa: Isa,
    text: &str,
    dir: &Path,
    name: &str,
) -> Result<Vec<u8>, CodegenError> {
    let (input, object) = (
        dir.join(format!("{name}.ll")),
        dir.join(format!("{name}.o")),
    );
    files::write(&input, text.as_bytes()).map_err(CodegenError::File)?;
    let mut command = Command::new(&tools.llc);
    command.args(flags(isa)).arg("-o").arg(&object).arg(&input);
    run_quiet(&mut command).map_err(|source| CodegenError::Llc { isa, source })?;
    files::read(&object).map_err(CodegenError::File)
}

/// The per-ISA routines: name, x86-64 body, AArch64 body. They follow the C convention.
///
/// The toolchain has no assembler, but module assembly in an otherwise empty IR module is one.
const STUBS: [(&str, &str, &str); 5] = [
    // The kernel takes argument 2 in r10, because `syscall` overwrites rcx.
    (
        "dyad_syscall",
        "movq %rcx, %r10; syscall; retq",
        "svc #0; ret",
    ),
    ("dyad_isa", "xorl %eax, %eax; retq", "mov x0, #1; ret"),
    ("dyad_relax", "pause; retq", "isb; ret"),
    (
        "dyad_tcb",
        "movq %fs:0, %rax; retq",
        "mrs x0, tpidr_el0; ret",
    ),
    // Compiler builtins name it; nothing unwinds.
    ("rust_eh_personality", "ud2", "brk #1"),
];

const _: () = assert!(Isa::X86_64 as u8 == 0 && Isa::Aarch64 as u8 == 1);

/// Names of the routines that exist per ISA.
pub fn stub_names() -> impl Iterator<Item = &'static str> {
    STUBS.iter().map(|s| s.0)
}

fn stubs(isa: Isa) -> String {
    let (triple, comment) = match isa {
        Isa::X86_64 => ("x86_64-unknown-none-elf", '@'),
        Isa::Aarch64 => ("aarch64-unknown-none", '%'),
    };
    let mut out = format!("target triple = \"{triple}\"\n");
    for (name, x86_64, aarch64) in STUBS {
        let body = match isa {
            Isa::X86_64 => x86_64,
            Isa::Aarch64 => aarch64,
        };
        let head = format!(
            ".section .text.{name},\\22ax\\22,{comment}progbits; .globl {name}; \
             .type {name},{comment}function; .p2align 4; {name}:"
        );
        out.push_str(&format!("module asm \"{head}\"\n"));
        out.push_str(&format!("module asm \"{body}\"\n"));
        out.push_str(&format!("module asm \".size {name}, .-{name}\"\n"));
    }
    out
}
