//! Names of the in-kernel tests, from the kernel images.

use std::path::Path;

use dyad_abi::Isa;
use goblin::elf::Elf;

/// Length of a name field, and of an entry: `dyad_core::ktest::Entry`.
const NAME: usize = 64;
const ENTRY: usize = NAME + 8 + 8;

/// Names of tests begin so that are in no suite: those with a bug in them, and those that only make
/// what the simulator is validated with.
const APART: [&str; 2] = ["seeded_", "marked_"];

/// The tests that both kernels have, in alphabetical order.
pub fn from_images() -> Result<Vec<String>, String> {
    let [x86, arm] = Isa::ALL.map(|isa| {
        let image =
            dyad_launcher::build::kernel(isa, dyad_launcher::build::Kernel::Ktest, &mut |what| {
                eprintln!("{what:?}")
            })
            .map_err(|e| e.to_string())?;
        read(&image)
    });
    let (x86, arm) = (x86?, arm?);
    if x86 != arm {
        return Err(format!(
            "the kernels have different tests:\n{x86:?}\n{arm:?}"
        ));
    }
    // See `pair_race.rs` and `pair_patterns.rs` in `kernel/core/ktest`.
    let apart = |n: &String| APART.iter().any(|head| n.starts_with(head));
    let x86: Vec<String> = x86.into_iter().filter(|n| !apart(n)).collect();
    if x86.is_empty() {
        return Err("the kernels have no tests".into());
    }
    Ok(x86)
}

fn read(image: &Path) -> Result<Vec<String>, String> {
    let bad = |e: &dyn std::fmt::Display| format!("{}: {e}", image.display());
    let bytes = std::fs::read(image).map_err(|e| bad(&e))?;
    let elf = Elf::parse(&bytes).map_err(|e| bad(&e))?;
    let address = |name: &str| {
        elf.syms
            .iter()
            .find(|s| elf.strtab.get_at(s.st_name) == Some(name))
            .map(|s| s.st_value)
            .ok_or_else(|| bad(&format!("no symbol {name}")))
    };
    let (start, end) = (address("__start_ktests")?, address("__stop_ktests")?);
    let segment = elf
        .program_headers
        .iter()
        .find(|p| p.vm_range().contains(&(start as usize)))
        .ok_or_else(|| bad(&"the tests are in no segment"))?;
    let at = (start - segment.p_vaddr + segment.p_offset) as usize;
    let section = bytes
        .get(at..at + (end - start) as usize)
        .ok_or_else(|| bad(&"the tests are outside of the file"))?;
    let mut names: Vec<String> = section
        .chunks_exact(ENTRY)
        .map(|e| {
            let name = &e[..NAME];
            let end = name.iter().position(|&b| b == 0).unwrap_or(NAME);
            String::from_utf8_lossy(&name[..end]).into_owned()
        })
        .collect();
    names.sort();
    Ok(names)
}
