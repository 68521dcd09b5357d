//! A program as the verifier reads it, for people who want to know why it was rejected.

use super::arch::Arch;
use super::graph::{Code, word};
use super::image::Image;
use super::lanes::Lanes;
use super::{a64, x86};
use dyad_abi::Isa;

/// An instruction as the verifier reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Symbol of its function.
    pub function: String,
    /// Its address.
    pub va: u64,
    /// Its length in bytes.
    pub len: u8,
    /// Its text.
    pub text: String,
    /// Whether spine functions may have it.
    pub accepted: bool,
    /// Registers that it reads, in whole or in part, addresses included.
    pub reads: Vec<String>,
    /// Registers that it changes, in whole or in part.
    pub changes: Vec<String>,
}

/// Lists all functions of the program `file` for `isa`, by address.
///
/// # Errors
///
/// Says why the file cannot be used.
pub fn listing(isa: Isa, file: &[u8]) -> Result<Vec<Listed>, String> {
    let image = Image::parse(isa, file)?;
    let arch = Arch::of(isa);
    let mut listed = Vec::new();
    for function in image.functions() {
        for insn in Code::decode(isa, function).insns {
            let at = usize::try_from(insn.va - function.va).unwrap_or(usize::MAX);
            let bytes = function.bytes.get(at..).unwrap_or_default();
            let names = |lanes: Lanes| lanes.owners().into_iter().map(|o| arch.name(o)).collect();
            listed.push(Listed {
                function: function.name.clone(),
                va: insn.va,
                len: insn.len,
                text: text(isa, bytes, insn.va),
                accepted: insn.refused.is_none(),
                reads: names(insn.all_reads()),
                changes: names(insn.all_changes()),
            });
        }
    }
    Ok(listed)
}

/// The text of the instruction at the start of `bytes`.
pub(super) fn text(isa: Isa, bytes: &[u8], va: u64) -> String {
    match isa {
        Isa::X86_64 => x86::text(bytes, va),
        Isa::Aarch64 => a64::text(word(bytes), va),
    }
}
