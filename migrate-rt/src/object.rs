//! What the aligner needs to know about a relocatable object file.

use dyad_abi::Isa;
use goblin::elf::{Elf, header, reloc, section_header as sh, sym};
use std::fmt;

/// A section that takes memory in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Length in bytes; not 0.
    pub size: u64,
    /// Alignment, at least 1.
    pub align: u64,
    /// `SHF_*` flags.
    pub flags: u64,
    /// `SHT_*` type.
    pub kind: u32,
    /// Names of the symbols defined in it.
    pub symbols: Vec<String>,
    /// Functions among them.
    pub functions: usize,
    /// References in it to other places.
    pub references: Vec<Reference>,
}

impl Section {
    /// Whether it holds code.
    pub fn is_code(&self) -> bool {
        self.flags & u64::from(sh::SHF_EXECINSTR) != 0
    }

    /// Whether the program may write it.
    pub fn is_writable(&self) -> bool {
        self.flags & u64::from(sh::SHF_WRITE) != 0
    }

    /// Whether linkers merge equal entries in it.
    pub fn is_mergeable(&self) -> bool {
        self.flags & u64::from(sh::SHF_MERGE) != 0
    }

    /// Whether there is a copy per thread.
    pub fn is_tls(&self) -> bool {
        self.flags & u64::from(sh::SHF_TLS) != 0
    }

    /// Whether it is all zeros and takes no space in files.
    pub fn is_zeros(&self) -> bool {
        self.kind == sh::SHT_NOBITS
    }

    /// Whether it lists functions to run before or after the program.
    pub fn is_constructor_list(&self) -> bool {
        matches!(
            self.kind,
            sh::SHT_INIT_ARRAY | sh::SHT_FINI_ARRAY | sh::SHT_PREINIT_ARRAY
        ) || self.name.starts_with(".ctors")
            || self.name.starts_with(".dtors")
    }
}

/// A place in a section that the linker fills in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Where to.
    pub target: Target,
    /// Whether it is a call or a jump, so that the address itself does not become data.
    pub branch: bool,
}

/// What a reference refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Something in the section of that name in the same object.
    Section(String),
    /// A symbol that another object defines.
    Symbol(String),
}

/// An object file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its ISA.
    pub isa: Isa,
    /// The name under which it is linked.
    pub file: String,
    /// Sections that take memory, in file order. Unwinding tables are left out: nothing unwinds;
    /// stack maps as well: they are read when the program is linked, and take no memory.
    pub sections: Vec<Section>,
}

/// An object file that cannot be read.
#[derive(Debug)]
pub struct ObjectError {
    /// Which file.
    pub file: String,
    /// Why not.
    pub reason: String,
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is not a usable object file: {}",
            self.file, self.reason
        )
    }
}

impl std::error::Error for ObjectError {}

pub(crate) fn machine(isa: Isa) -> u16 {
    match isa {
        Isa::X86_64 => header::EM_X86_64,
        Isa::Aarch64 => header::EM_AARCH64,
    }
}

fn is_branch(isa: Isa, kind: u32) -> bool {
    match isa {
        Isa::X86_64 => kind == reloc::R_X86_64_PLT32,
        Isa::Aarch64 => matches!(kind, reloc::R_AARCH64_CALL26 | reloc::R_AARCH64_JUMP26),
    }
}

impl Object {
    /// Reads the object file `bytes` of `isa`, which is linked under the name `file`.
    ///
    /// # Errors
    ///
    /// If it is not an ELF object of that ISA.
    pub fn parse(isa: Isa, file: &str, bytes: &[u8]) -> Result<Object, ObjectError> {
        let error = |reason: String| ObjectError {
            file: file.to_owned(),
            reason,
        };
        let elf = Elf::parse(bytes).map_err(|e| error(e.to_string()))?;
        if elf.header.e_type != header::ET_REL || elf.header.e_machine != machine(isa) {
            return Err(error(format!("it is not a relocatable file for {isa}")));
        }
        let name =
            |s: &sh::SectionHeader| elf.shdr_strtab.get_at(s.sh_name).unwrap_or("").to_owned();
        let wanted = |s: &sh::SectionHeader| {
            s.sh_flags & u64::from(sh::SHF_ALLOC) != 0
                && s.sh_size > 0
                && !matches!(
                    elf.shdr_strtab.get_at(s.sh_name),
                    Some(".eh_frame" | ".llvm_stackmaps")
                )
        };
        // By section index, to attach symbols and references.
        let mut sections: Vec<Option<Section>> = elf
            .section_headers
            .iter()
            .map(|s| {
                wanted(s).then(|| Section {
                    name: name(s),
                    size: s.sh_size,
                    align: s.sh_addralign.max(1),
                    flags: s.sh_flags,
                    kind: s.sh_type,
                    symbols: Vec::new(),
                    functions: 0,
                    references: Vec::new(),
                })
            })
            .collect();
        for s in &elf.syms {
            let named = elf.strtab.get_at(s.st_name).unwrap_or("");
            // `$x`, `$d` and `.L` symbols mark positions for tools, not things.
            if !named.is_empty()
                && !named.starts_with('$')
                && !named.starts_with(".L")
                && s.st_type() != sym::STT_SECTION
                && let Some(Some(section)) = sections.get_mut(s.st_shndx)
            {
                section.symbols.push(named.to_owned());
                section.functions += usize::from(s.st_type() == sym::STT_FUNC);
            }
        }
        for (index, relocs) in &elf.shdr_relocs {
            let Some(header) = elf.section_headers.get(*index) else {
                continue;
            };
            let Some(Some(section)) = sections.get_mut(header.sh_info as usize) else {
                continue;
            };
            for r in relocs.iter() {
                let symbol = elf
                    .syms
                    .get(r.r_sym)
                    .ok_or_else(|| error(format!("a relocation names symbol {}", r.r_sym)))?;
                let target = match elf.section_headers.get(symbol.st_shndx) {
                    Some(s) if symbol.st_shndx != 0 => Target::Section(name(s)),
                    _ => Target::Symbol(elf.strtab.get_at(symbol.st_name).unwrap_or("").to_owned()),
                };
                section.references.push(Reference {
                    target,
                    branch: is_branch(isa, r.r_type),
                });
            }
        }
        Ok(Object {
            isa,
            file: file.to_owned(),
            sections: sections.into_iter().flatten().collect(),
        })
    }

    /// The section of that name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| s.name == name)
    }
}
