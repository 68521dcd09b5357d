//! The book names what the ABI has: every type, operation, right, kind and error, with its number.
//!
//! The pages are text for people; what is compared are the rows of their tables.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use dyad_abi::Error;
use dyad_abi::cap::{CapType, ObjectKind, RegionKind, Stopped, Woken, authority};

fn reference() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src/reference")
}

fn page(name: &str) -> String {
    let path = reference().join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// File name of a type's page.
fn file(ty: CapType) -> String {
    let mut name = String::from("capabilities/");
    for (i, c) in ty.name().char_indices() {
        if i > 0 && c.is_ascii_uppercase() {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name + ".md"
}

/// Number and name of each operation of a type.
fn operations(ty: CapType) -> Vec<(u32, &'static str)> {
    authority::of(ty).map(|o| (o.number, o.name)).collect()
}

/// The cells of each row of the tables below a heading.
fn rows(text: &str, heading: &str) -> Vec<Vec<String>> {
    text.lines()
        .skip_while(|l| *l != heading)
        .skip(1)
        .take_while(|l| !l.starts_with("## "))
        .filter_map(|l| l.strip_prefix('|')?.strip_suffix('|'))
        .map(|l| l.split('|').map(|c| c.trim().to_string()).collect())
        .collect()
}

/// What stands in back quotes in a text.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
#[cfg_attr(miri, ignore = "compares texts")]
fn every_type_has_its_page_and_a_row_of_the_index() {
    let index = page("capabilities/README.md");
    for &ty in CapType::ALL {
        let file = file(ty);
        let text = page(&file);
        assert_eq!(text.lines().next(), Some(&*format!("# {}", ty.name())));
        let name = file.trim_start_matches("capabilities/");
        let row = format!("| [{}]({name}) | {} |", ty.name(), ty as u32);
        assert!(index.contains(&row), "the index has no row {row}");
        for heading in ["Operations", "Errors", "Cost", "What happens when"] {
            let there = text.lines().any(|l| l.strip_prefix("## ") == Some(heading));
            assert!(there, "{file} has no section {heading}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "compares texts")]
fn every_operation_is_on_the_page_of_its_type_with_its_number_and_its_errors() {
    for &ty in CapType::ALL {
        let file = file(ty);
        let text = page(&file);
        let listed: Vec<Vec<String>> = rows(&text, "## Operations")
            .into_iter()
            .filter(|r| r[0].parse::<u32>().is_ok())
            .collect();
        let said: Vec<(u32, &str)> = listed
            .iter()
            .map(|r| (r[0].parse().expect("a number"), r[1].trim_matches('`')))
            .collect();
        assert_eq!(said, operations(ty), "{file}");
        let errors = rows(&text, "## Errors");
        for row in &listed {
            let only_a_right = row[3].starts_with("only a right");
            let has_errors = errors.iter().any(|e| e[0] == row[1]);
            assert!(only_a_right || has_errors, "{file}: errors of {}", row[1]);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "compares texts")]
fn errors_of_operations_are_errors() {
    let names: BTreeSet<String> = Error::ALL.iter().map(|e| format!("{e:?}")).collect();
    for &ty in CapType::ALL {
        let file = file(ty);
        for row in rows(&page(&file), "## Errors") {
            for name in row.get(1).map(|cell| quoted(cell)).into_iter().flatten() {
                assert!(names.contains(name), "{file}: {name} is no error");
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "compares texts")]
fn every_error_has_its_code_and_its_text() {
    let said: Vec<Vec<String>> = rows(&page("syscalls.md"), "## Errors")
        .into_iter()
        .filter(|r| r[0].parse::<u64>().is_ok())
        .map(|r| r[..3].to_vec())
        .collect();
    let real: Vec<Vec<String>> = Error::ALL
        .iter()
        .map(|e| vec![e.code().to_string(), format!("{e:?}"), e.text().into()])
        .collect();
    assert_eq!(said, real);
}

#[test]
#[cfg_attr(miri, ignore = "compares texts")]
fn kinds_and_reasons_are_named_where_they_are_used() {
    macro_rules! named {
        ($kind:ident, $ty:ident) => {
            let file = file(CapType::$ty);
            let text = page(&file);
            let names = quoted(&text);
            for k in $kind::ALL {
                assert!(names.contains(k.name()), "{file} does not name {k:?}");
            }
        };
    }
    named!(ObjectKind, Memory);
    named!(RegionKind, Space);
    named!(Stopped, Thread);
    named!(Woken, Receive);
}
