//! Do the interpreters know what compilers emit? Goes over every instruction of user programs.
//!
//! The programs are built here; with `DYAD_ELFS=DIR`, all `*.x86_64.elf` and `*.aarch64.elf` below that
//! directory are looked at instead, such as `target/user` after `cargo xtask build`.

use crate::support;

use dyad_abi::Isa;
use dyad_emulate::{Access, Cpu, Fault, Memory, Refusal, Width, a64, x86};
use goblin::elf::{Elf, sym};
use migrate_rt::build::{AppRequest, build_app};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use support::workspace;

/// Memory in which everything succeeds: the instruction and zeros.
struct Anything<'a>(&'a [u8]);

impl Memory for Anything<'_> {
    fn fetch(&mut self, va: u64, bytes: &mut [u8]) -> Result<usize, Fault> {
        assert_eq!(va, 0, "{:?}", Access::Fetch);
        let len = self.0.len().min(bytes.len());
        bytes[..len].copy_from_slice(&self.0[..len]);
        Ok(len)
    }

    fn load<const N: usize>(&mut self, _: u64) -> Result<[u8; N], Fault> {
        Ok([0; N])
    }

    fn store<const N: usize>(&mut self, _: u64, _: [u8; N]) -> Result<(), Fault> {
        Ok(())
    }

    fn compare_exchange(&mut self, _: u64, _: Width, old: u128, _: u128) -> Result<u128, Fault> {
        Ok(old)
    }
}

/// Why an instruction is not executed; `None` if it is.
fn refused(mut cpu: impl Cpu, code: &[u8]) -> Option<&'static str> {
    match cpu.step(&mut Anything(code)) {
        Ok(_) | Err(Refusal::Fault { .. }) => None,
        Err(Refusal::Unknown { .. }) => Some("unknown"),
        Err(Refusal::Unsupported { .. }) => Some("unsupported"),
    }
}

#[derive(Default)]
struct Census {
    instructions: u64,
    refused: BTreeMap<(String, &'static str), u64>,
}

impl Census {
    fn code(&mut self, isa: Isa, code: &[u8]) {
        let mut at = 0;
        while at < code.len() {
            let (len, why) = match isa {
                Isa::Aarch64 => (4, refused(a64::State::default(), &code[at..])),
                Isa::X86_64 => match x86::length(&code[at..]) {
                    Some(len) => (len, refused(x86::State::default(), &code[at..at + len])),
                    // Where the next one begins is not known either.
                    None => (code.len() - at, Some("unknown")),
                },
            };
            self.instructions += 1;
            if let Some(why) = why {
                let bytes = &code[at..code.len().min(at + len)];
                let text = bytes.iter().map(|b| format!("{b:02x}")).collect();
                *self.refused.entry((text, why)).or_default() += 1;
            }
            at += len;
        }
    }

    /// All functions of a program.
    fn program(&mut self, isa: Isa, path: &Path) {
        let bytes = std::fs::read(path).unwrap();
        let elf = Elf::parse(&bytes).unwrap();
        for symbol in elf.syms.iter().filter(|s| s.st_type() == sym::STT_FUNC) {
            let section = &elf.section_headers[symbol.st_shndx];
            let at = (symbol.st_value - section.sh_addr + section.sh_offset) as usize;
            self.code(isa, &bytes[at..at + symbol.st_size as usize]);
        }
    }
}

fn elfs_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            elfs_below(&path, found);
        } else if path.extension().is_some_and(|e| e == "elf") {
            found.push(path);
        }
    }
}

/// Programs with integers, floating point, vectors, atomics, collections and services' stubs; the tier `quick` builds the
/// first one.
const PROGRAMS: [&str; 3] = ["apps/hop", "apps/npb", "services/init"];

fn programs() -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os("DYAD_ELFS") {
        let mut found = Vec::new();
        elfs_below(Path::new(&dir), &mut found);
        return found;
    }
    // Where runs build them too, so that nothing is built twice.
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("user");
    let build = |name: &str| {
        let dir = workspace().join("userland").join(name);
        let app = build_app(&AppRequest::new(&dir, workspace(), &out));
        app.unwrap_or_else(|e| panic!("{name}: {e}")).elfs
    };
    let count = dyad_tier::size(1, PROGRAMS.len(), PROGRAMS.len());
    PROGRAMS[..count].iter().flat_map(|p| build(p)).collect()
}

#[test]
fn all_instructions_of_user_programs_are_known() {
    let programs = programs();
    let mut refused = String::new();
    for isa in Isa::ALL {
        let suffix = format!(".{isa}.elf");
        let mut census = Census::default();
        let mut count = 0;
        for path in &programs {
            if path.to_string_lossy().ends_with(&suffix) {
                census.program(isa, path);
                count += 1;
            }
        }
        assert!(count > 0, "no programs for {isa}");
        let bad: u64 = census.refused.values().sum();
        eprintln!(
            "{isa}: {count} programs, {} instructions, {bad} not known",
            census.instructions
        );
        for ((bytes, why), times) in &census.refused {
            refused.push_str(&format!("{isa}: {bytes} {why}, {times} times\n"));
        }
    }
    assert!(refused.is_empty(), "{refused}");
}
