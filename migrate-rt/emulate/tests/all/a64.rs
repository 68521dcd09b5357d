//! AArch64 instructions, one at a time: the interpreter against a machine.
//!
//! What the machine gives is recorded in `vectors/a64.txt`, one hash for all cases of a form.
//! `DYAD_TIER=long cargo test -p dyad-emulate a64::` runs more cases on the machine itself, a host of
//! this ISA or `qemu-aarch64` (package qemu-user), and shows each difference. With `DYAD_RECORD=1` in
//! addition, and `machine` as a filter, it writes the file.

use crate::a64_forms;
use crate::support;

use a64_forms::forms;
use dyad_abi::Isa;
use dyad_emulate::Refusal;
use std::collections::BTreeMap;
use std::fmt::Write;
use support::a64::{Case, Form, difference, program};
use support::{hash, machine};

/// Cases of a form that are recorded.
const RECORDED: u64 = 300;

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/a64.txt");

fn runner() -> Option<&'static str> {
    cfg!(not(target_arch = "aarch64")).then_some("qemu-aarch64")
}

/// The results of the first `count` cases of a form that the interpreter executes.
fn interpret(form: &Form, count: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..count)
        .filter_map(|i| {
            let mut case = Case::new(form, i);
            let before = case.record();
            Some((before, case.run()?))
        })
        .collect()
}

fn line(results: impl Iterator<Item = impl AsRef<[u8]>>) -> String {
    let mut all = Vec::new();
    let mut count = 0;
    for result in results {
        all.extend(hash(result.as_ref()).to_le_bytes());
        count += 1;
    }
    format!("{count} {:016x}", hash(&all))
}

#[test]
fn instructions_do_what_was_recorded() {
    let text = std::fs::read_to_string(VECTORS).unwrap();
    let recorded: BTreeMap<_, _> = text
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| l.split_once(": ").unwrap())
        .collect();
    let mut wrong = String::new();
    for form in forms() {
        let results = interpret(form, RECORDED);
        let found = line(results.iter().map(|(_, after)| after));
        match recorded.get(form.name) {
            Some(expected) if **expected == *found => {}
            expected => {
                let _ = writeln!(wrong, "{}: {found}, recorded: {expected:?}", form.name);
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "forms with other results than recorded (the head of this file says how to see more):\n{wrong}"
    );
    assert_eq!(
        recorded.len(),
        forms().count(),
        "forms that are recorded but not tested"
    );
}

#[test]
fn instructions_do_what_the_machine_does() {
    let record = std::env::var_os("DYAD_RECORD").is_some();
    if !support::long() && !record {
        eprintln!("skipped: set DYAD_TIER=long to run instructions on a machine");
        return;
    }
    let program = machine::assemble(Isa::Aarch64, &program(), "a64-machine");
    let count = std::env::var("DYAD_CASES").map_or(1000, |n| n.parse().unwrap());
    let only = std::env::var("DYAD_FORM").ok();
    let mut wrong = String::new();
    let mut vectors = String::from(
        "# Results of AArch64 instructions: form, cases, hash. Written by\n\
         # DYAD_RECORD=1 cargo test -p dyad-emulate a64::machine\n",
    );
    let mut cases = 0;
    for form in forms() {
        if only.as_ref().is_some_and(|name| !form.name.contains(name)) {
            continue;
        }
        let results = interpret(form, count);
        assert!(
            results.len() as u64 * 20 >= count,
            "{}: {} cases of {count} can be executed",
            form.name,
            results.len()
        );
        cases += results.len();
        let before: Vec<_> = results.iter().map(|(before, _)| before.clone()).collect();
        let machine = machine::execute(&program, runner(), &before);
        let mut shown = 0;
        for (i, (before, after)) in results.iter().enumerate() {
            let same = machine.get(i) == Some(after);
            if same || shown == 3 {
                continue;
            }
            shown += 1;
            let word = u32::from_le_bytes(before[288..292].try_into().unwrap());
            let detail = match machine.get(i) {
                Some(machine) => difference(after, machine),
                None => "\n  the machine takes an exception, here or before".into(),
            };
            let _ = writeln!(wrong, "{}: word {word:#010x}{detail}", form.name);
        }
        if record {
            let known = interpret(form, RECORDED).len();
            let found = line(machine.iter().take(known));
            let _ = writeln!(vectors, "{}: {found}", form.name);
        }
    }
    assert!(wrong.is_empty(), "differences:\n{wrong}");
    eprintln!("{cases} cases of {} forms agree", forms().count());
    if record && only.is_none() {
        std::fs::write(VECTORS, vectors).unwrap();
    }
}

#[test]
fn refused_instructions_change_nothing() {
    let mut refused = 0;
    for form in forms() {
        for index in 0..50 {
            let mut whole = Case::new(form, index);
            if whole.run().is_none() {
                continue;
            }
            for budget in 0..whole.memory.accesses {
                let mut case = Case::new(form, index);
                let before = case.record();
                case.memory.budget = Some(budget);
                let outcome = support::step(&mut case.state, &mut case.memory);
                let fault = matches!(outcome, Err(Refusal::Fault { .. }));
                assert!(fault, "{}: {outcome:?}", form.name);
                assert!(case.record() == before, "{}: {:#x}", form.name, case.word);
                refused += 1;
            }
        }
    }
    assert!(refused > 500, "{refused}");
}
