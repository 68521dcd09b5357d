//! Whole computations, interpreted from the call to the return on both ISAs: results are those of
//! the same source on this computer.

#[path = "programs/suite.rs"]
mod suite;
use crate::support;

use dyad_abi::Isa;
use dyad_emulate::{End, Run, a64, x86};
use goblin::elf::{Elf, program_header::PT_LOAD};
use migrate_rt::codegen;
use migrate_rt::frontend::PreLto;
use migrate_rt::ir::NeutralIr;
use migrate_rt::optimise::optimise;
use migrate_rt::toolchain::{FRONT_TARGET, Toolchain};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use support::memory::{Use, Windows};
use support::workspace;

/// The crate around the computations.
const CRATE: &str = "#![no_std]\n#![no_main]\n#![allow(dead_code)]\n\
    #[panic_handler] fn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }\n\
    #[unsafe(no_mangle)] pub extern \"C\" fn _start() -> usize {\
    suite::COMPUTATIONS.as_ptr() as usize }\n";

/// A program in memory, with the addresses of its functions.
struct Program {
    memory: Windows,
    functions: BTreeMap<String, u64>,
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
}

/// Compiles the computations as user programs are compiled.
fn programs() -> [Program; 2] {
    let tools = Toolchain::find(workspace()).unwrap();
    let dir = support::scratch("programs");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/programs/suite.rs");
    let text = format!("{CRATE}#[path = {source:?}] mod suite;\n");
    std::fs::write(dir.join("crate.rs"), text).unwrap();
    run(Command::new(&tools.rustc)
        .current_dir(&dir)
        .args(["--target", FRONT_TARGET, "--edition", "2024"])
        .args(["-C", "opt-level=3", "-C", "panic=abort", "-C", "lto=fat"])
        .args(["-C", "relocation-model=static", "-C", "codegen-units=1"])
        .args(["-C", "symbol-mangling-version=v0"])
        .args(["-C", "linker-flavor=ld", "-C", "linker=/bin/true"])
        .args(["--emit=link=linked", "-C", "save-temps", "crate.rs"]));
    let kept = std::fs::read_dir(&dir).unwrap();
    let path = (kept.map(|e| e.unwrap().path()))
        .find(|p| p.to_string_lossy().ends_with(".lto.after-restriction.bc"))
        .unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let ir = optimise(&tools, "program", &PreLto { path, bytes }, &dir).unwrap();
    let neutral = NeutralIr::from_post_lto(&ir.text).unwrap();
    Isa::ALL.map(|isa| {
        let dir = dir.join(isa.name());
        std::fs::create_dir_all(&dir).unwrap();
        codegen::compile(&tools, &neutral.for_isa(isa), &dir, "program").unwrap();
        run(Command::new(&tools.lld)
            .args(["-flavor", "gnu", "-static", "--image-base=0x10000000"])
            .args([dir.join("program.o"), "-o".into(), dir.join("program")])
            .args(tools.builtins(isa))
            .args(["--defsym=rust_eh_personality=0"]));
        load(&std::fs::read(dir.join("program")).unwrap())
    })
}

const STACK: u64 = 0x7000_0000;
const STACK_LEN: u64 = 1 << 16;
/// Where computations return to.
const BACK: u64 = 0x7fff_0000;

fn load(bytes: &[u8]) -> Program {
    let elf = Elf::parse(bytes).unwrap();
    let mut memory = Windows::default();
    for segment in elf.program_headers.iter().filter(|h| h.p_type == PT_LOAD) {
        let mut contents = bytes[segment.file_range()].to_vec();
        contents.resize(segment.p_memsz as usize, 0);
        let r#use = match (segment.is_executable(), segment.is_write()) {
            (true, _) => Use::Code,
            (_, true) => Use::Data,
            _ => Use::ReadOnly,
        };
        memory.add(segment.p_vaddr, contents, r#use);
    }
    memory.add(STACK, vec![0xdd; STACK_LEN as usize], Use::Data);
    let name = |at| elf.strtab.get_at(at).unwrap_or_default().to_owned();
    let functions = elf.syms.iter().map(|s| (name(s.st_name), s.st_value));
    Program {
        functions: functions.collect(),
        memory,
    }
}

const LIMIT: u64 = 50_000_000;

fn on_x86(program: &Program, function: u64, argument: u64) -> (Run, u64) {
    let mut memory = program.memory.clone();
    let mut state = x86::State {
        rip: function,
        ..x86::State::default()
    };
    let top = STACK + STACK_LEN - 64;
    state.gpr = [0xaaaa_aaaa_aaaa_aaaa; 16];
    state.gpr[7] = argument;
    state.gpr[4] = top - 8;
    support::memory::put(&mut memory, top - 8, BACK);
    let run = support::run(&mut state, &mut memory, |pc| pc == BACK, LIMIT, 1 << 14);
    assert!(
        run.end != End::Stop || state.gpr[4] == top,
        "{:#x}",
        state.gpr[4]
    );
    (run, state.gpr[0])
}

fn on_a64(program: &Program, function: u64, argument: u64) -> (Run, u64) {
    let mut memory = program.memory.clone();
    let mut state = a64::State {
        pc: function,
        sp: STACK + STACK_LEN - 64,
        x: [0xaaaa_aaaa_aaaa_aaaa; 31],
        ..a64::State::default()
    };
    state.x[0] = argument;
    state.x[30] = BACK;
    let sp = state.sp;
    let run = support::run(&mut state, &mut memory, |pc| pc == BACK, LIMIT, 1 << 14);
    assert!(run.end != End::Stop || state.sp == sp, "{:#x}", state.sp);
    (run, state.x[0])
}

#[test]
fn computations_give_the_same_results_interpreted() {
    let [x86, a64] = programs();
    let mut total = [0; 2];
    for (name, native) in suite::COMPUTATIONS {
        for seed in [1, 0x0123_4567_89ab_cdef, u64::MAX] {
            let expected = native(seed);
            let results = [
                on_x86(&x86, x86.functions[name], seed),
                on_a64(&a64, a64.functions[name], seed),
            ];
            for (isa, (run, result)) in Isa::ALL.into_iter().zip(results) {
                assert_eq!(run.end, End::Stop, "{name}({seed}) on {isa}: {run:x?}");
                assert_eq!(result, expected, "{name}({seed}) on {isa}");
                total[isa.index()] += run.steps;
            }
        }
    }
    eprintln!("instructions: {total:?}");
    // Neither compiler has computed the results beforehand.
    assert!(total.iter().all(|&steps| steps > 1_000_000), "{total:?}");
}
