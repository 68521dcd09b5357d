//! A linked program, as far as a bundle needs it.

use super::PackError;
use crate::align::{PRIVATE, PRIVATE_DATA, PRIVATE_RELRO, SharedKind, TEXT, TEXT_OUTSIDE, only};
use crate::codegen::GATES;
use crate::object::machine;
use dyad_abi::Isa;
use goblin::elf::{Elf, header, section_header as sh, sym};
use std::collections::BTreeMap;

/// A section of a linked program.
pub(super) struct ImageSection<'a> {
    name: String,
    pub va: u64,
    pub mem_len: u64,
    pub bytes: &'a [u8],
    pub exec: bool,
}

/// A linked program.
pub(super) struct Image<'a> {
    pub isa: Isa,
    pub entry: u64,
    sections: Vec<ImageSection<'a>>,
    /// Addresses of what has to be at the same address everywhere, by name, sorted.
    pub symbols: BTreeMap<String, Vec<u64>>,
}

impl<'a> Image<'a> {
    pub fn read(isa: Isa, file: &'a [u8]) -> Result<Image<'a>, PackError> {
        let unreadable = |reason: String| PackError::Unreadable { isa, reason };
        let elf = Elf::parse(file).map_err(|e| unreadable(e.to_string()))?;
        if elf.header.e_type != header::ET_EXEC || elf.header.e_machine != machine(isa) {
            return Err(unreadable(format!("it is not an executable for {isa}")));
        }
        let mut sections = Vec::new();
        // Whether symbols of a section are aligned, by section index.
        let mut aligned = Vec::new();
        for s in &elf.section_headers {
            let name = elf.shdr_strtab.get_at(s.sh_name).unwrap_or("").to_owned();
            let in_memory = s.sh_flags & u64::from(sh::SHF_ALLOC) != 0 && s.sh_size > 0;
            let shared = SharedKind::ALL
                .into_iter()
                .find(|k| k.output_section() == name);
            let is_only = Isa::ALL.iter().any(|&isa| name == only(isa));
            aligned.push(in_memory && (shared.is_some() || name == TEXT || is_only));
            if !in_memory {
                continue;
            }
            let (write, exec) = (
                s.sh_flags & u64::from(sh::SHF_WRITE) != 0,
                s.sh_flags & u64::from(sh::SHF_EXECINSTR) != 0,
            );
            let expected = match (shared, name.as_str()) {
                (Some(kind), _) => (kind != SharedKind::ReadOnly, false),
                (_, TEXT | TEXT_OUTSIDE) => (false, true),
                _ if is_only => (false, true),
                (_, PRIVATE) => (false, false),
                (_, PRIVATE_RELRO) => (true, false),
                (_, PRIVATE_DATA) => {
                    return Err(PackError::PrivateData {
                        isa,
                        bytes: s.sh_size,
                    });
                }
                _ => return Err(PackError::UnknownSection { isa, section: name }),
            };
            if (write, exec) != expected {
                return Err(PackError::UnknownSection { isa, section: name });
            }
            let bytes = match s.sh_type {
                sh::SHT_NOBITS => &[],
                _ => usize::try_from(s.sh_offset)
                    .ok()
                    .and_then(|at| file.get(at..)?.get(..usize::try_from(s.sh_size).ok()?))
                    .ok_or_else(|| unreadable(format!("{name} is not in the file")))?,
            };
            sections.push(ImageSection {
                name,
                va: s.sh_addr,
                mem_len: s.sh_size,
                bytes,
                exec,
            });
        }
        let mut symbols: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for s in &elf.syms {
            let name = elf.strtab.get_at(s.st_name).unwrap_or("");
            let thing = matches!(
                s.st_type(),
                sym::STT_FUNC | sym::STT_OBJECT | sym::STT_NOTYPE
            );
            // `$x`, `$d` and `.L` symbols mark positions for one ISA's tools.
            // Each ISA's gates are in its own window.
            let gates = name == GATES;
            let mark = name.is_empty() || name.starts_with('$') || name.starts_with(".L") || gates;
            if thing && !mark && aligned.get(s.st_shndx) == Some(&true) {
                symbols.entry(name.to_owned()).or_default().push(s.st_value);
            }
        }
        symbols.values_mut().for_each(|vas| vas.sort_unstable());
        if !symbols.contains_key(crate::ENTRY) {
            return Err(PackError::NoEntry);
        }
        Ok(Image {
            isa,
            entry: elf.entry,
            sections,
            symbols,
        })
    }

    pub fn section(&self, name: &str) -> Option<&ImageSection<'a>> {
        self.sections.iter().find(|s| s.name == name)
    }

    /// What this ISA has in a version of its own: functions of the other ISA among it, which begin here
    /// with what decides whether they cross.
    pub fn private(&self) -> impl Iterator<Item = &ImageSection<'a>> {
        self.sections.iter().filter(|s| {
            matches!(
                s.name.as_str(),
                TEXT | TEXT_OUTSIDE | PRIVATE | PRIVATE_RELRO
            ) || Isa::ALL.iter().any(|&isa| s.name == only(isa))
        })
    }

    /// The symbol that starts at `va` or last before it.
    pub fn symbol_at(&self, va: u64) -> Option<String> {
        self.symbols
            .iter()
            .flat_map(|(name, vas)| vas.iter().map(move |&at| (at, name)))
            .filter(|&(at, _)| at <= va)
            .max_by_key(|&(at, _)| at)
            .map(|(_, name)| name.clone())
    }
}
