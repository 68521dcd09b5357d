//! IR that no longer belongs to a target, and IR that belongs to one ISA.
//!
//! The front end's IR is textual and its dialect is pinned with the toolchain. It is neutral but
//! for a short list of things, which this module rewrites, and refuses what it does not know:
//!
//! | in the front end's IR | in [`NeutralIr`] | because |
//! |---|---|---|
//! | `llvm.aarch64.isb` (`core::hint::spin_loop`) | call of the stub `dyad_relax` | no other back end knows it |
//! | reading and setting the data-independent timing mode | 0, and a fence | one ISA has it |
//! | conditional moves of the crate `cmov`, as AArch64 assembly | `icmp` and `select` | both back ends have an instruction for it |
//! | `unnamed_addr` on data | dropped | back ends merge such constants, each in its own way: addresses would differ |
//! | `private` data and functions | `internal` | private names are not in symbol tables, so equality could not be checked |
//! | `target-cpu`, `target-features` attributes | dropped | they name the front end's target |
//! | one section for all functions of an ISA | one for each function | each has a slot of its own |
//! | other target intrinsics, inline and module assembly, TLS, scalable vectors | error | |
//!
//! What becomes different per ISA are the calls of the stubs that invoke services: [`NeutralIr`]
//! calls them like other functions, [`IsaIr`] so that no register survives, with their arguments
//! where kernels want them. And calls for the thread pointer and the data stack become instructions.
//! Functions of the other ISA begin with what decides whether they run here.
//!
//! Passes over IR belong between [`NeutralIr::from_post_lto`] and [`NeutralIr::for_isa`]; what they
//! produce comes back in through [`NeutralIr::check`].

mod convention;
mod crossing;
mod error;
mod float;
mod invocation;
mod select;
mod target;
mod thread;
mod timing;

pub use error::{IrError, Violation, ViolationKind};
pub(crate) use target::is_comment;

use crate::llvm::{Global, Line, declares, module_target, with_module_target};
use crate::source::Symbols;
use dyad_abi::Isa;
use std::fmt::Write;

/// Intrinsics of the front end's target with their replacement, a stub of every ISA without
/// arguments or result.
const MAPPED: [(&str, &str); 1] = [("llvm.aarch64.isb", "dyad_relax")];

const AARCH64_TRIPLE: &str = "aarch64-unknown-none";
const AARCH64_LAYOUT: &str =
    "e-m:e-p270:32:32-p271:32:32-p272:64:64-i8:8:32-i16:16:32-i64:64-i128:128-n32:64-S128-Fn32";
const X86_64_TRIPLE: &str = "x86_64-unknown-none-elf";
const X86_64_LAYOUT: &str =
    "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128";

/// A module that every back end compiles to the same functions and the same data.
///
/// Its data layout is the front end's, which differs from the other one only in preferred
/// alignments (explicit in the IR) and in the list of native integer widths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeutralIr(String);

/// A module for the back end of one ISA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsaIr {
    isa: Isa,
    text: String,
}

impl NeutralIr {
    /// Makes the front end's IR neutral.
    ///
    /// # Errors
    ///
    /// Everything in it that cannot be made neutral.
    pub fn from_post_lto(text: &str) -> Result<NeutralIr, IrError> {
        let text: &str = &float::one_meaning(text);
        let mut out = String::with_capacity(text.len() + 64);
        let mut used = [false; MAPPED.len()];
        for line in text.lines() {
            match Line::of(line) {
                Line::Global(global) => global.without_identity_loss(&mut out),
                Line::Define(name) => {
                    let line = line.replacen("define private ", "define internal ", 1);
                    out.push_str(&crossing::own_section(&line, name.unwrap_or_default()));
                }
                Line::Body if line.contains(" asm sideeffect \"") => {
                    out.push_str(&timing::without_mode(line));
                }
                Line::Body if line.contains(" asm \"") => out.push_str(&select::portable(line)),
                Line::Attributes => out.push_str(&target::without_attributes(line)),
                Line::Declare if MAPPED.iter().any(|(from, _)| declares(line, from)) => continue,
                Line::Body if line.contains("@llvm.aarch64.") => {
                    out.push_str(&map_intrinsics(line, &mut used));
                }
                _ => out.push_str(line),
            }
            out.push('\n');
        }
        for ((_, stub), used) in MAPPED.iter().zip(used) {
            if used && !out.lines().any(|l| declares(l, stub)) {
                let _ = writeln!(out, "declare void @{stub}() nounwind");
            }
        }
        NeutralIr::check(out)
    }

    /// Takes IR that is already neutral, for example what a pass over [`NeutralIr::text`] has
    /// produced.
    ///
    /// # Errors
    ///
    /// Everything in it that is not neutral.
    pub fn check(text: String) -> Result<NeutralIr, IrError> {
        if module_target(&text) != (Some(AARCH64_LAYOUT), Some(AARCH64_TRIPLE)) {
            return Err(IrError::OtherTarget);
        }
        let symbols = std::cell::OnceCell::new();
        let mut found = Vec::new();
        let mut function = None;
        for line in text.lines() {
            let mut refuse = |kind| {
                found.push(Violation {
                    function: function.map(str::to_owned),
                    source: symbols.get_or_init(|| Symbols::of(&text)).of_line(line),
                    kind,
                });
            };
            match Line::of(line) {
                Line::Define(name) => {
                    target::code(line, &mut refuse);
                    crossing::check(line, &mut refuse);
                    function = name;
                }
                Line::End => function = None,
                Line::Global(global) => {
                    global_violations(&global, &mut refuse);
                    if let Some(stub) = invocation::misused(line) {
                        refuse(ViolationKind::InvocationStub(stub));
                    }
                }
                Line::ModuleAsm => refuse(ViolationKind::ModuleAsm(line.to_owned())),
                Line::Body | Line::Declare => {
                    target::code(line, &mut refuse);
                    if let Some(stub) = invocation::misused(line) {
                        refuse(ViolationKind::InvocationStub(stub));
                    }
                }
                Line::Attributes if target::without_attributes(line) != line => {
                    refuse(ViolationKind::TargetAttributes);
                }
                _ => (),
            }
        }
        // A declaration says nothing more than the calls do.
        let in_functions = found.iter().any(|v| v.function.is_some());
        found.retain(|v| {
            v.function.is_some()
                || !in_functions
                || !matches!(v.kind, ViolationKind::TargetIntrinsic(_))
        });
        match found.is_empty() {
            true => Ok(NeutralIr(text)),
            false => Err(IrError::Refused(found)),
        }
    }

    /// The module.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether the module defines a function of that name.
    pub fn defines(&self, name: &str) -> bool {
        let defined = |l| matches!(Line::of(l), Line::Define(Some(n)) if n == name);
        self.0.lines().any(defined)
    }

    /// Whether the module uses a function of that name that is not in it.
    pub fn declares(&self, name: &str) -> bool {
        self.0.lines().any(|l| declares(l, name))
    }

    /// Whether the module has functions that run on one ISA only.
    pub fn crosses(&self) -> bool {
        let only = |l| matches!(Line::of(l), Line::Define(_)) && crossing::is_only(l);
        self.0.lines().any(only)
    }

    /// The module for the back end of `isa`.
    pub fn for_isa(&self, isa: Isa) -> IsaIr {
        let text = thread::lower(&invocation::lower(&self.0, isa), isa);
        let text = crossing::lower(&text, isa);
        // Passes over neutral IR may have made minima of their own.
        let text = float::one_meaning(&text);
        let text = convention::not_overridden(&text);
        let text = match isa {
            Isa::Aarch64 => float::choices_of_bits(&text),
            Isa::X86_64 => with_module_target(&text, X86_64_LAYOUT, X86_64_TRIPLE),
        };
        IsaIr { isa, text }
    }
}

impl IsaIr {
    /// The ISA it is for.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The module.
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn map_intrinsics(line: &str, used: &mut [bool; MAPPED.len()]) -> String {
    let mut line = line.to_owned();
    for ((from, to), used) in MAPPED.iter().zip(used) {
        let call = format!("call void @{from}(");
        if let Some(at) = line.find(&call)
            && let Some(close) = line[at..].find(')')
        {
            line.replace_range(at..at + close + 1, &format!("call void @{to}()"));
            *used = true;
        }
    }
    line
}

fn global_violations(global: &Global<'_>, refuse: &mut dyn FnMut(ViolationKind)) {
    let name = || crate::demangle(global.name);
    for word in global.prefix() {
        match word {
            "unnamed_addr" | "local_unnamed_addr" | "private" => {
                return refuse(ViolationKind::Mergeable(name()));
            }
            "ifunc" => refuse(ViolationKind::Ifunc(name())),
            _ if word.starts_with("thread_local") => refuse(ViolationKind::ThreadLocal(name())),
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests;
