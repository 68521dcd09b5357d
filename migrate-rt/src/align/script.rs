//! The plan as a linker script per ISA.

use super::{Plan, SharedKind, Slot};
use dyad_abi::Isa;
use dyad_abi::user::{ISA_RO_BASE, PAGE_SIZE, SHARED_BASE, only_window};
use std::fmt::Write;

/// Aligned code.
pub(crate) const TEXT: &str = ".text";
/// Code of the builtins.
pub(crate) const TEXT_OUTSIDE: &str = ".text.outside";
/// Section of the object file with the gates of an ISA.
pub(crate) const GATES: &str = ".text.only_gates";
/// Functions of an ISA. In the program of the other one they have their addresses too, and begin with what
/// decides whether they cross.
pub(crate) const fn only(isa: Isa) -> &'static str {
    match isa {
        Isa::X86_64 => ".text.only_x86_64",
        Isa::Aarch64 => ".text.only_aarch64",
    }
}
/// Constants of one ISA.
pub(crate) const PRIVATE: &str = ".isa_ro";
/// Constants of the builtins that hold addresses: writable to a dynamic linker, of which there is
/// none, so programs get them read-only.
pub(crate) const PRIVATE_RELRO: &str = ".isa_relro";
/// What no program may have: writable data of the builtins.
pub(crate) const PRIVATE_DATA: &str = ".isa_data";

/// Halfway between the per-ISA constants and the shared memory.
const PRIVATE_RELRO_BASE: u64 = ISA_RO_BASE.midpoint(SHARED_BASE);

/// A section with input section patterns, in a segment of its own: in one segment the file would
/// have holes as large as those between the addresses.
fn section(out: &mut String, name: &str, at: &str, inputs: &str) {
    let _ = writeln!(out, "  {name} {at} : {{\n{inputs}  }} :{}", segment(name));
}

fn segment(name: &str) -> String {
    name.replace('.', "p_")
}

/// Input patterns that put every section into its slot. The location counter inside of an output
/// section is absolute in lld.
fn slots(slots: &[Slot]) -> String {
    slots.iter().fold(String::new(), |mut out, s| {
        let _ = writeln!(
            out,
            "    . = {:#x}; \"{}\"(\"{}\")",
            s.va, s.file, s.section
        );
        out
    })
}

impl Plan {
    /// Input patterns for sections of the builtins. Sections of the program are placed by name: one
    /// that has been forgotten must not slip in here but stay without a place, which is an error.
    fn builtins(&self, sections: &[&str]) -> String {
        let files: Vec<_> = self.files.iter().map(|f| format!("\"{f}\"")).collect();
        sections.iter().fold(String::new(), |mut out, section| {
            let _ = writeln!(out, "    *(EXCLUDE_FILE({}) {section})", files.join(" "));
            out
        })
    }

    /// The linker script for `isa`.
    pub fn script(&self, isa: Isa) -> String {
        let mut body = String::new();
        let mut names = Vec::new();
        let mut add = |name: &'static str, at: &str, inputs: &str| {
            section(&mut body, name, at, inputs);
            names.push(name);
        };
        let start = |slots: &[Slot]| slots.first().map(|s| format!("{:#x}", s.va));
        if let Some(at) = start(&self.text) {
            add(TEXT, &at, &slots(&self.text));
        }
        let crosses = self.only.iter().any(|slots| !slots.is_empty());
        for window in Isa::ALL.into_iter().filter(|_| crosses) {
            let at = format!("{:#x}", only_window(window).0);
            let gates = match window == isa {
                true => format!("    . = {at}; *(\"{GATES}\")\n"),
                false => String::new(),
            };
            let inputs = gates + &slots(&self.only[window.index()]);
            if !inputs.is_empty() {
                add(only(window), &at, &inputs);
            }
        }
        for kind in SharedKind::ALL {
            let placed = &self.shared[kind as usize];
            if let Some(at) = start(placed) {
                add(kind.output_section(), &at, &slots(placed));
            }
        }
        let outside = self.text_end.next_multiple_of(PAGE_SIZE);
        let code = self.builtins(&[".text", ".text.*"]);
        add(TEXT_OUTSIDE, &format!("{outside:#x}"), &code);
        let private =
            self.private[isa.index()]
                .iter()
                .fold(String::new(), |mut out, (file, section)| {
                    let _ = writeln!(out, "    \"{file}\"(\"{section}\")");
                    out
                });
        let private = private + &self.builtins(&[".rodata", ".rodata.*"]);
        add(PRIVATE, &format!("{ISA_RO_BASE:#x}"), &private);
        // `DW.ref` is a pointer that unwinding tables use, and those are not kept.
        let relro = [
            ".data.rel.ro",
            ".data.rel.ro.*",
            ".data.DW.ref.*",
            ".got",
            ".got.*",
        ];
        let relro = self.builtins(&relro);
        add(PRIVATE_RELRO, &format!("{PRIVATE_RELRO_BASE:#x}"), &relro);
        let data = self.builtins(&[".data", ".data.*", ".bss", ".bss.*", "COMMON"]);
        add(PRIVATE_DATA, &format!("ALIGN({PAGE_SIZE:#x})"), &data);

        let mut out = format!("ENTRY({})\nPHDRS {{\n", crate::ENTRY);
        for name in names {
            let _ = writeln!(out, "  {} PT_LOAD;", segment(name));
        }
        let stack_maps = crate::spine::sites::SECTION;
        let maps = self
            .files
            .iter()
            .map(|f| format!("\"{f}\"(.llvm_stackmaps)"));
        let maps = maps.collect::<Vec<_>>().join(" ");
        let _ = write!(
            out,
            "}}\nSECTIONS {{\n{body}  {stack_maps} 0 (INFO) : {{ {maps} }}\n  /DISCARD/ : {{ *(.eh_frame .eh_frame_hdr .gcc_except_table \
             .gcc_except_table.* .comment .note .note.* .ARM.*) }}\n}}\n"
        );
        out
    }
}
