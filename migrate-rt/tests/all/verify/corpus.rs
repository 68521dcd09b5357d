//! What the verifier makes of instructions, against what LLVM makes of them.
//!
//! The decoders are other people's, the tables of what instructions read and write are our own. LLVM's
//! disassembler is a witness for both: it has to know every instruction that the verifier accepts, and
//! to name the same registers.

use super::fixture::Program;
use crate::common::{build_sample, shared, tools};
use dyad_abi::Isa;
use migrate_rt::verify::{Listed, listing};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// LLVM's text of every instruction, by address.
fn objdump(file: &Path) -> BTreeMap<u64, String> {
    let tool = tools().llc.with_file_name("llvm-objdump");
    let output = Command::new(tool)
        .args(["-d", "--no-show-raw-insn", "--mattr=+lse,+neon,+fp-armv8"])
        .arg(file)
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |l: &str| {
        let (va, text) = l.trim_start().split_once(':')?;
        let text = text
            .split(['<', '/', '#'])
            .next()?
            .trim()
            .replace('\t', " ");
        let unknown = text.is_empty();
        let va = u64::from_str_radix(va, 16).ok()?;
        Some((va, if unknown { "unknown".to_owned() } else { text }))
    };
    // Labels end in a colon, instructions do not.
    let lines = text.lines().filter(|l| !l.trim_end().ends_with(':'));
    lines.filter_map(line).collect()
}

/// The registers in LLVM's text of an AArch64 instruction, but for zero.
fn a64_registers(text: &str) -> BTreeSet<String> {
    let operands = text.split_once(' ').map_or("", |(_, o)| o);
    let words = operands.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .filter_map(|word| match word {
            "sp" | "wsp" => Some("sp".to_owned()),
            _ => {
                let (kind, number) = word.split_at_checked(1)?;
                let number: u8 = number.parse().ok().filter(|n| *n < 32)?;
                match kind {
                    "w" | "x" => Some(format!("x{number}")),
                    "b" | "h" | "s" | "d" | "q" | "v" => Some(format!("v{number}")),
                    _ => None,
                }
            }
        })
        .collect()
}

/// The registers in LLVM's text of an x86-64 instruction.
fn x86_registers(text: &str) -> BTreeSet<String> {
    const LEGACY: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '%');
    words
        .filter_map(|word| {
            let name = word.strip_prefix('%')?;
            if name.starts_with("xmm") {
                return Some(name.to_owned());
            }
            if let Some(number) = name
                .strip_prefix('r')
                .filter(|n| n.starts_with(|c: char| c.is_ascii_digit()))
            {
                return Some(format!("r{}", number.trim_end_matches(['d', 'w', 'b'])));
            }
            let stem = name.trim_start_matches(['r', 'e']).trim_end_matches('l');
            let legacy = LEGACY.iter().find(|l| {
                **l == stem
                    || (l.ends_with('x') && [&l[..1], &format!("{}h", &l[..1])].contains(&stem))
            })?;
            Some(format!("r{legacy}"))
        })
        .collect()
}

fn registers(listed: &Listed) -> BTreeSet<String> {
    let all = listed.reads.iter().chain(&listed.changes);
    all.filter(|r| *r != "the flags").cloned().collect()
}

/// The registers that an AArch64 instruction has to be said to change: its first operand, of most.
fn a64_destination(text: &str) -> Option<String> {
    let (mnemonic, operands) = text.split_once(' ')?;
    let none = [
        "st", "cmp", "cmn", "tst", "ccm", "fcmp", "fccmp", "b", "cb", "tb", "prf", "ret", "cas",
        "swp", "ld",
    ];
    let read_only = none.iter().any(|n| mnemonic.starts_with(n));
    let bits = ["bic", "bif", "bit", "bsl", "bfi", "bfxil", "bfc"];
    if read_only && !bits.contains(&mnemonic) {
        return None;
    }
    a64_registers(&format!("_ {}", operands.split(',').next()?))
        .into_iter()
        .next()
}

/// Random words: all that the verifier accepts, LLVM knows, with the same registers.
#[test]
fn a64_table_agrees_with_llvm_on_random_words() {
    const WORDS: usize = 60_000;
    let mut seed = dyad_random::GOLDEN;
    let mut assembly = String::from(".globl f\n.type f,%function\nf:\n");
    for _ in 0..WORDS {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        assembly.push_str(&format!(".inst {:#x}\n", (seed >> 20) as u32));
    }
    assembly.push_str(".size f,.-f\n");
    let program = Program::assemble(Isa::Aarch64, "words", &assembly);
    let (mut accepted, mut wrong) = (0, Vec::new());
    let mut mnemonics: BTreeSet<String> = BTreeSet::new();
    let witness = objdump(&program.path);
    for listed in listing(Isa::Aarch64, &program.file).unwrap() {
        if !listed.accepted {
            continue;
        }
        accepted += 1;
        let text = &witness[&listed.va];
        let mnemonic = text.split(' ').next().unwrap_or("");
        mnemonics.insert(mnemonic.to_owned());
        // Returns are checked where they happen; prefetches touch nothing.
        if matches!(mnemonic, "ret" | "prfm" | "prfum") {
            continue;
        }
        let changed = a64_destination(text).is_none_or(|d| listed.changes.contains(&d));
        if text == "unknown" || registers(&listed) != a64_registers(text) || !changed {
            wrong.push(format!("`{text}`: {listed:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {accepted}:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(30)].join("\n")
    );
    // A test that sees next to nothing proves nothing.
    assert!(
        accepted > WORDS / 10 && mnemonics.len() > 250,
        "{accepted} {}",
        mnemonics.len()
    );
}

/// Everything that the back ends emit for a program, libraries included: known, and read as LLVM reads
/// it. What is not accepted is state that does not travel.
#[test]
fn all_of_a_program_is_known() {
    let app = build_sample(&shared(), &[]).unwrap();
    for isa in Isa::ALL {
        let path = app.elfs[isa.index()].clone();
        let file = std::fs::read(&path).unwrap();
        let witness = objdump(&path);
        let (mut count, mut wrong) = (0, Vec::new());
        for listed in listing(isa, &file).unwrap() {
            count += 1;
            let text = &witness[&listed.va];
            let (ours, theirs) = (
                registers(&listed),
                match isa {
                    Isa::X86_64 => x86_registers(text),
                    Isa::Aarch64 => a64_registers(text),
                },
            );
            let special = [
                "nop", "nopl", "nopw", "syscall", "svc", "isb", "std", "cld", "br", "ret", "prfm",
                "jmpq",
            ];
            let mnemonic = text.split(' ').next().unwrap_or("");
            let special = special.contains(&mnemonic) || text.contains(" nop");
            let agree = match isa {
                // Multiplications, string instructions and the like do not name all of theirs.
                Isa::X86_64 => ours.is_superset(&theirs),
                Isa::Aarch64 => ours == theirs,
            };
            let good = special || (listed.accepted && agree);
            if !good {
                wrong.push(format!("`{text}`: {listed:?}"));
            }
        }
        assert!(
            wrong.is_empty(),
            "{isa}: {} of {count}:\n{}",
            wrong.len(),
            wrong[..wrong.len().min(30)].join("\n")
        );
        assert!(count > 1000, "{isa}: {count}");
    }
}
