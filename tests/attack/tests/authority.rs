//! The book's table of authority, compared with the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use attack_list::ATTACKS;
use dyad_abi::Error;
use dyad_abi::cap::authority::{self, Authority};
use dyad_abi::cap::{CapType, Rights};

/// States of threads, as the kernel names them; of frames; and of everything else.
const STATES: [&str; 12] = [
    "None", "Ready", "Running", "Transit", "Blocked", "Stopped", "Gone", "Changing", "Untyped",
    "User", "Kernel", "alive",
];

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../book/src/reference/capabilities")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The page of a type, as the index of the pages names it.
fn page_of(ty: CapType) -> String {
    let index = page("README.md");
    let row = format!("| [{}](", ty.name());
    let name = index
        .lines()
        .find_map(|l| l.strip_prefix(&row)?.split(')').next());
    page(name.unwrap_or_else(|| panic!("the index has no {}", ty.name())))
}

/// The cells of each row of the section *Authority* of a type's page.
fn rows(ty: CapType) -> Vec<Vec<String>> {
    page_of(ty)
        .lines()
        .skip_while(|l| *l != "## Authority")
        .skip(1)
        .take_while(|l| !l.starts_with("## "))
        .filter_map(|l| l.strip_prefix("| `")?.strip_suffix(" |"))
        .map(|l| {
            format!("`{l}")
                .split(" | ")
                .map(|c| c.trim().to_string())
                .collect()
        })
        .collect()
}

fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// What an operation needs, as the table says it.
fn needs(row: &Authority) -> String {
    let argument = |a: &authority::Argument| {
        let ty = a.ty.map_or("any type", CapType::name);
        let mut rights = Vec::new();
        if a.rights.contains(Rights::COPY) {
            rights.push("`COPY`".to_string());
        }
        if let Some(ty) = a.ty {
            let of = authority::of(ty).filter(|o| a.rights.contains(Rights(1 << o.number)));
            rights.extend(of.map(|o| format!("`{}`", o.name)));
        }
        let rights = match rights.is_empty() {
            true => "no right".to_string(),
            false => rights.join(", "),
        };
        let none = if a.optional { ", or none" } else { "" };
        let guard = if a.may_be_guarded {
            ""
        } else {
            ", without a guard"
        };
        format!("argument {}: {ty} with {rights}{none}{guard}", a.at)
    };
    let all: Vec<String> = row.arguments.iter().map(argument).collect();
    all.join("; ")
}

#[test]
fn every_operation_has_its_row_in_order() {
    for &ty in CapType::ALL {
        let said: Vec<String> = rows(ty).into_iter().map(|r| r[0].clone()).collect();
        let real: Vec<String> = authority::of(ty).map(|o| format!("`{}`", o.name)).collect();
        assert_eq!(said, real, "{}", ty.name());
    }
}

#[test]
fn rows_need_what_the_code_says() {
    for &ty in CapType::ALL {
        for (said, real) in rows(ty).iter().zip(authority::of(ty)) {
            assert_eq!(said.len(), 7, "{}.{}", ty.name(), real.name);
            assert_eq!(said[2], needs(&real), "{}.{}", ty.name(), real.name);
            assert_eq!(
                said[1].starts_with("only a right"),
                real.only_a_right,
                "{}.{}",
                ty.name(),
                real.name
            );
        }
    }
}

#[test]
fn states_and_errors_that_rows_name_exist() {
    let errors: BTreeSet<String> = Error::ALL.iter().map(|e| format!("{e:?}")).collect();
    for &ty in CapType::ALL {
        for row in rows(ty) {
            let name = format!("{}.{}", ty.name(), row[0]);
            let states = quoted(&row[4]);
            assert!(!states.is_empty(), "{name} works in no state");
            for state in states {
                assert!(STATES.contains(&state), "{name}: no state is {state}");
            }
            let refused = quoted(&row[5]);
            assert!(!refused.is_empty(), "{name} refuses nothing");
            for error in refused {
                assert!(errors.contains(error), "{name}: no error is {error}");
            }
        }
    }
}

#[test]
fn rows_name_attacks_that_try_the_operation() {
    for &ty in CapType::ALL {
        for (row, real) in rows(ty).iter().zip(authority::of(ty)) {
            let name = format!("{}.{}", ty.name(), real.name);
            let attacks = quoted(&row[6]);
            assert!(!attacks.is_empty(), "nobody attacks {name}");
            for attack in attacks {
                let known = ATTACKS.iter().find(|a| a.name == attack);
                let known = known.unwrap_or_else(|| panic!("{name}: no attack is {attack}"));
                let tries = known.tries(ty.name(), real.name);
                assert!(tries, "{name}: {attack} does not try it");
            }
        }
    }
}
