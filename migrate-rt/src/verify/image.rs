//! The linked program: its functions, their bytes, and where they come from.

use crate::object::machine;
use crate::source::{Place, Source};
use dyad_abi::Isa;
use gimli::{EndianSlice, LittleEndian};
use goblin::elf::{Elf, program_header, sym};
use std::collections::BTreeMap;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A function in the program.
#[derive(Clone, Debug)]
pub(super) struct Function<'a> {
    /// Its symbol.
    pub name: String,
    /// Its first address.
    pub va: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl Function<'_> {
    /// The address behind it.
    pub fn end(&self) -> u64 {
        self.va + self.bytes.len() as u64
    }
}

/// A linked program.
pub(super) struct Image<'a> {
    /// Functions with a size, by first address; the first of several names.
    functions: BTreeMap<u64, Function<'a>>,
    /// First addresses, by every name; none of names that stand for several functions.
    names: BTreeMap<String, Option<u64>>,
    lines: Option<addr2line::Context<Slice<'a>>>,
}

impl<'a> Image<'a> {
    /// Reads the program of `isa` in `file`.
    ///
    /// # Errors
    ///
    /// Says why it cannot be used.
    pub fn parse(isa: Isa, file: &'a [u8]) -> Result<Image<'a>, String> {
        let elf = Elf::parse(file).map_err(|e| e.to_string())?;
        if elf.header.e_machine != machine(isa) {
            return Err(format!("it is not a program for {isa}"));
        }
        let bytes = |va: u64, size: u64| {
            let segment = elf.program_headers.iter().find(|p| {
                p.p_type == program_header::PT_LOAD
                    && p.p_flags & program_header::PF_X != 0
                    && va >= p.p_vaddr
                    && va
                        .checked_add(size)
                        .is_some_and(|end| end <= p.p_vaddr.saturating_add(p.p_filesz))
            })?;
            let start = usize::try_from(va - segment.p_vaddr + segment.p_offset).ok()?;
            file.get(start..start.checked_add(usize::try_from(size).ok()?)?)
        };
        let mut functions = BTreeMap::new();
        let mut names: BTreeMap<String, Option<u64>> = BTreeMap::new();
        for s in elf.syms.iter().filter(|s| s.st_type() == sym::STT_FUNC) {
            let Some(name) = elf.strtab.get_at(s.st_name) else {
                continue;
            };
            let Some(bytes) = bytes(s.st_value, s.st_size).filter(|b| !b.is_empty()) else {
                continue;
            };
            let va = names.entry(name.to_owned()).or_insert(Some(s.st_value));
            *va = va.filter(|va| *va == s.st_value);
            functions.entry(s.st_value).or_insert_with(|| Function {
                name: name.to_owned(),
                va: s.st_value,
                bytes,
            });
        }
        Ok(Image {
            functions,
            names,
            lines: lines(&elf, file),
        })
    }

    /// The function of that name, if there is just one.
    pub fn named(&self, name: &str) -> Option<&Function<'a>> {
        self.functions.get(&(*self.names.get(name)?)?)
    }

    /// All functions, by address.
    pub fn functions(&self) -> impl Iterator<Item = &Function<'a>> {
        self.functions.values()
    }

    /// The function that starts there.
    pub fn starting_at(&self, va: u64) -> Option<&Function<'a>> {
        self.functions.get(&va)
    }

    /// The place that an instruction comes from.
    pub fn source(&self, va: u64) -> Option<Place> {
        let lines = self.lines.as_ref()?;
        let source = |location: addr2line::Location<'_>| {
            Some(Source {
                file: location.file?.to_owned(),
                line: location.line?,
            })
        };
        let mut frames = lines.find_frames(va).skip_all_loads().ok()?;
        let chain = std::iter::from_fn(|| frames.next().ok()?);
        let inlined = Place::of_chain(chain.filter_map(|f| source(f.location?)));
        inlined.or_else(|| Place::of_chain(source(lines.find_location(va).ok()??)))
    }
}

/// The line table of the program, if it has a valid one. Programs without a line table are verified
/// nevertheless.
fn lines<'a>(elf: &Elf<'_>, file: &'a [u8]) -> Option<addr2line::Context<Slice<'a>>> {
    let section = |id: gimli::SectionId| -> Result<Slice<'a>, gimli::Error> {
        let header = elf
            .section_headers
            .iter()
            .find(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(id.name()));
        let bytes = header.and_then(|s| file.get(s.file_range()?));
        Ok(EndianSlice::new(bytes.unwrap_or_default(), LittleEndian))
    };
    addr2line::Context::from_dwarf(gimli::Dwarf::load(section).ok()?).ok()
}
