//! The list of reads that may be stale, from a kernel's image: see [`dyad_shm::permitted`].

use std::collections::BTreeMap;
use std::path::Path;

use dyad_shm::permitted::{ENTRY_BYTES, Permitted, SECTION};
use goblin::elf::Elf;

/// Addresses of loads, and why each may be stale.
pub type List = BTreeMap<u64, Permitted>;

/// Reads the list of an image. An image without the section has none.
///
/// # Errors
///
/// If it cannot be read or understood.
pub fn of_image(path: &Path) -> Result<List, String> {
    let name = path.display();
    let bytes = std::fs::read(path).map_err(|e| format!("cannot read {name}: {e}"))?;
    let elf = Elf::parse(&bytes).map_err(|e| format!("{name} is no ELF file: {e}"))?;
    let section = elf.section_headers.iter().find(|s| {
        let named = elf.shdr_strtab.get_at(s.sh_name);
        named == Some(SECTION)
    });
    let Some(range) = section.and_then(|s| s.file_range()) else {
        return Ok(List::new());
    };
    let entries = bytes.get(range);
    entries
        .and_then(parse)
        .ok_or_else(|| format!("the list of permitted reads in {name} is damaged"))
}

fn parse(section: &[u8]) -> Option<List> {
    let (entries, rest) = section.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() {
        return None;
    }
    let word = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
    let entry = |e: &[u8; ENTRY_BYTES]| {
        let why = u32::try_from(word(&e[8..])?).ok()?;
        Some((word(&e[..8])?, Permitted::from_number(why)?))
    };
    entries.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_address_and_reason() {
        let entry = |at: u64, why: u64| [at.to_le_bytes(), why.to_le_bytes()].concat();
        let section = [entry(0xffff_ffff_8000_1234, 0), entry(7, 3)].concat();
        let list = parse(&section).unwrap();
        assert_eq!(list[&0xffff_ffff_8000_1234], Permitted::Placement);
        assert_eq!(list[&7], Permitted::Lookup);
        assert_eq!(parse(&[]), Some(List::new()));
        assert_eq!(parse(&section[1..]), None);
        assert_eq!(parse(&entry(7, 99)), None, "no such reason");
    }

    #[test]
    fn this_program_has_no_list() {
        let exe = std::env::current_exe().unwrap();
        assert_eq!(of_image(&exe), Ok(List::new()));
        assert!(of_image(Path::new("/nonexistent")).is_err());
    }
}
