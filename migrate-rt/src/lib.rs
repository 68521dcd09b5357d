//! Build side of user programs: one front end, two back ends, one bundle.
//!
//! A user program is compiled once, to the LLVM IR of the whole program after link-time
//! optimisation, and from there once per ISA. Names, types, layouts, vtables and call sites are
//! therefore the same by construction; what remains is to give everything the same *address*, and
//! to prove it on what comes out. Each stage has a type of its own, and only the stage before can
//! make it:
//!
//! ```text
//!  crate ──frontend──> PreLto ──optimise──> PostLto ──ir──> NeutralIr ──ir──> IsaIr ──codegen──> Object
//!                                                           ^                                    |
//!                                             passes over IR slot in here                      align
//!                                                                                                v
//!                                 bundle <──bundle── ELF per ISA <──link── script per ISA <──── Plan
//! ```
//!
//! | stage | fails closed on |
//! |---|---|
//! | [`ir`] | target intrinsics, inline assembly, constants the back ends may merge, TLS |
//! | [`spine`] | in programs whose threads migrate: what cannot be on the stack of such a thread |
//! | [`align`] | anything that exists, or has another size, on one ISA only; shared data that points to per-ISA data |
//! | [`link`] | symbols nobody defines |
//! | [`bundle`] | a shared byte or a symbol address that differs, writable per-ISA data, sections nobody asked for |
//! | [`verify`] | machine code in which anything is live, in a register or on the native stack, where a thread may change its ISA |
//!
//! [`build::build_app`] is the driver. [`layout`] compares the type layouts of two front ends; it is
//! a regression test of the assumption that even two front ends agree.
#![forbid(unsafe_code)]

#[macro_use]
mod lacks;
pub mod align;
pub mod build;
pub mod bundle;
pub mod codegen;
pub mod frontend;
pub mod ir;
pub mod layout;
pub mod link;
pub mod llvm;
pub mod object;
pub mod optimise;
pub mod source;
pub mod spine;
pub mod toolchain;
pub mod verify;

mod files;
mod process;

pub use files::FileError;
pub use process::{ToolError, ToolErrorKind};

/// The name of the entry point of every program.
pub const ENTRY: &str = "_dyad_start";
/// The name of the place where invocations of a service enter.
pub const INVOKED: &str = "_dyad_invoked";
/// The name of the function that a program defines to be a service.
pub const SERVICE: &str = "dyad_invoked";
/// Names of that function in services with a limit on how deep an invocation may be, and the limits.
pub const DOORS: [(&str, u64); 2] = [
    ("dyad_invoked_to_4", dyad_abi::service::SERVED.depth),
    ("dyad_invoked_to_6", dyad_abi::service::SERVED_BY_INIT.depth),
];

/// A symbol name for people.
pub fn demangle(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}
