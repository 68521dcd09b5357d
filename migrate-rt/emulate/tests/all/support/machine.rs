//! Cases that run on a real machine, or on what counts as one: a static program that reads a state
//! from its input, executes one instruction in it, and writes the state to its output, again and
//! again.
//!
//! Its memory, the same for both ISAs:
//!
//! | address | contents |
//! |---|---|
//! | [`TEXT`] | the program |
//! | [`CODE`] | slots to land in, the instruction at [`HERE`] among them |
//! | [`RECORD`] | the state: registers, then [`SCRATCH`], memory that the instruction may use |

use super::{scratch, workspace};
use dyad_abi::Isa;
use migrate_rt::toolchain::Toolchain;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const TEXT: u64 = 0x1000_0000;
pub const CODE: u64 = 0x11ff_0000;
/// Where the instruction is.
pub const HERE: u64 = CODE + 64;
pub const RECORD: u64 = 0x1200_0000;
/// Bytes of a record.
pub const RECORD_LEN: usize = 2048;
/// Offset of the memory in a record.
pub const SCRATCH_AT: usize = 1024;
/// Address of the memory.
pub const SCRATCH: u64 = RECORD + SCRATCH_AT as u64;

/// Assembles and links a program. The toolchain's assembler is the back end's.
pub fn assemble(isa: Isa, source: &str, name: &str) -> PathBuf {
    let tools = Toolchain::find(workspace()).unwrap();
    let dir = scratch(name);
    let triple = match isa {
        Isa::X86_64 => "x86_64-unknown-none-elf",
        Isa::Aarch64 => "aarch64-unknown-none",
    };
    let mut ir = format!("target triple = \"{triple}\"\n");
    for line in source.lines() {
        ir.push_str(&format!("module asm \"{}\"\n", line.replace('"', "\\22")));
    }
    let path = |name: &str| dir.join(name);
    std::fs::write(path("program.ll"), ir).unwrap();
    let script = format!(
        "ENTRY(_start)\n\
         PHDRS {{ text PT_LOAD FLAGS(5); code PT_LOAD FLAGS(7); data PT_LOAD FLAGS(6); }}\n\
         SECTIONS {{\n. = {TEXT:#x}; .text : {{ *(.text) }} :text\n\
         . = {CODE:#x}; .code : {{ *(.code) }} :code\n\
         . = {RECORD:#x}; .record : {{ *(.record) }} :data\n/DISCARD/ : {{ *(.note*) *(.comment) }} }}\n"
    );
    std::fs::write(path("layout.ld"), script).unwrap();
    run(Command::new(&tools.llc)
        .args(["-filetype=obj", "-o"])
        .args([path("program.o"), path("program.ll")]));
    run(Command::new(&tools.lld)
        .args(["-flavor", "gnu", "-static", "-z", "noexecstack", "-T"])
        .args([
            path("layout.ld"),
            "-o".into(),
            path("program"),
            path("program.o"),
        ]));
    path("program")
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
}

/// Runs all records; gives as many as came back. There are fewer if an instruction is an exception.
pub fn execute(program: &Path, runner: Option<&str>, records: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (input, output) = (program.with_extension("in"), program.with_extension("out"));
    std::fs::write(&input, records.concat()).unwrap();
    let mut command = match runner {
        Some(runner) => {
            let mut command = Command::new(runner);
            command.arg(program);
            command
        }
        None => Command::new(program),
    };
    let status = command
        .stdin(File::open(&input).unwrap())
        .stdout(File::create(&output).unwrap())
        .status()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let results = std::fs::read(&output).unwrap();
    let results: Vec<_> = results
        .chunks_exact(RECORD_LEN)
        .map(<[u8]>::to_vec)
        .collect();
    if results.len() < records.len() {
        eprintln!("record {} of {}: {status}", results.len(), records.len());
    }
    results
}
