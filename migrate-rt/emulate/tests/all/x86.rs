//! x86-64 instructions, one at a time: the interpreter against this computer.
//!
//! Hosts of another ISA run the cases with `qemu-x86_64` (package qemu-user), and only with
//! the tier `long`, which runs more cases everywhere.

use crate::support;
use crate::x86_forms;

use dyad_abi::Isa;
use dyad_emulate::Refusal;
use std::fmt::Write;
use support::machine;
use support::x86::{BYTES, Case, difference, program};
use x86_forms::forms;

const NATIVE: bool = cfg!(all(target_arch = "x86_64", target_os = "linux"));

#[test]
fn instructions_do_what_the_machine_does() {
    if !NATIVE && !support::long() {
        eprintln!("skipped: this is no x86-64 host; set DYAD_TIER=long to use qemu-x86_64");
        return;
    }
    let program = machine::assemble(Isa::X86_64, &program(), "x86-machine");
    let runner = (!NATIVE).then_some("qemu-x86_64");
    let count = dyad_tier::size(300, 1000, 3000);
    let count = std::env::var("DYAD_CASES").map_or(count, |n| n.parse().unwrap());
    let only = std::env::var("DYAD_FORM").ok();
    let mut wrong = String::new();
    let mut executed = 0;
    for form in forms() {
        if only.as_ref().is_some_and(|name| !form.name.contains(name)) {
            continue;
        }
        let cases: Vec<_> = (0..count)
            .filter_map(|i| {
                let mut case = Case::new(form, i);
                let before = case.record();
                let after = case.run()?;
                Some((case, before, after))
            })
            .collect();
        assert!(
            cases.len() as u64 * 10 >= count * 3,
            "{}: {} cases of {count} can be executed",
            form.name,
            cases.len()
        );
        executed += cases.len();
        let before: Vec<_> = cases.iter().map(|(_, before, _)| before.clone()).collect();
        let machine = machine::execute(&program, runner, &before);
        let mut shown = 0;
        for (i, (case, before, after)) in cases.iter().enumerate() {
            let after = case.defined(after);
            let found = machine.get(i).map(|m| case.defined(m));
            if found.as_ref() == Some(&after) || shown == 3 {
                continue;
            }
            shown += 1;
            let bytes: String = case.bytes.iter().map(|b| format!("{b:02x}")).collect();
            let detail = match found {
                Some(found) => difference(&after, &found),
                None => "\n  the machine takes an exception, here or before".into(),
            };
            assert_eq!(before[BYTES], case.bytes[0]);
            let _ = writeln!(wrong, "{}: {bytes}{detail}", form.name);
        }
    }
    assert!(wrong.is_empty(), "differences:\n{wrong}");
    eprintln!("{executed} cases of {} forms agree", forms().count());
}

#[test]
fn refused_instructions_change_nothing() {
    let mut refused = 0;
    for form in forms() {
        for index in 0..50 {
            let mut whole = Case::new(form, index);
            if whole.run().is_none() || form.kind == support::x86::Kind::String {
                continue;
            }
            for budget in 0..whole.memory.accesses {
                let mut case = Case::new(form, index);
                let before = case.record();
                case.memory.budget = Some(budget);
                let outcome = support::step(&mut case.state, &mut case.memory);
                let fault = matches!(outcome, Err(Refusal::Fault { .. }));
                assert!(fault, "{}: {outcome:?}", form.name);
                assert!(case.record() == before, "{}: {:x?}", form.name, case.bytes);
                refused += 1;
            }
        }
    }
    assert!(refused > 500, "{refused}");
}
