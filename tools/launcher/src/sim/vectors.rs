//! Where traps enter a kernel, from its image: the plugin prices a trap at the first instruction of its vector.

use std::path::Path;

use dyad_abi::Isa;
use goblin::elf::Elf;

/// Name of the symbol at the first exception vector of a kernel.
const fn symbol(isa: Isa) -> &'static str {
    match isa {
        Isa::X86_64 => "vector_stubs",
        Isa::Aarch64 => "exception_vectors",
    }
}

/// The address of a kernel's first exception vector.
///
/// # Errors
///
/// If the image cannot be read, or does not say.
pub fn of_image(isa: Isa, path: &Path) -> Result<u64, String> {
    address_of(path, symbol(isa))
}

/// The address of a symbol in an ELF file.
fn address_of(path: &Path, name: &str) -> Result<u64, String> {
    let image = path.display();
    let bytes = std::fs::read(path).map_err(|e| format!("cannot read {image}: {e}"))?;
    let elf = Elf::parse(&bytes).map_err(|e| format!("{image} is no ELF file: {e}"))?;
    let mut symbols = elf.syms.iter();
    symbols
        .find(|s| elf.strtab.get_at(s.st_name) == Some(name))
        .map(|s| s.st_value)
        .ok_or_else(|| format!("{image} has no symbol {name}, so traps would have no price"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_found_by_name() {
        let own = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&own).unwrap();
        let entry = Elf::parse(&bytes).unwrap().entry;
        assert_eq!(address_of(&own, "_start"), Ok(entry));
        for isa in Isa::ALL {
            let missing = of_image(isa, &own).unwrap_err();
            assert!(missing.contains(symbol(isa)), "{missing}");
        }
        assert!(of_image(Isa::X86_64, Path::new("/no/such/kernel")).is_err());
    }
}
