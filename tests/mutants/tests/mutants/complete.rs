//! Whether the register is complete, and whether kernels are free of what it selects.

use std::collections::BTreeSet;
use std::path::Path;

use dyad_mutants::{Class, Test};
use dyad_tier::Tier;
use libtest_mimic::{Failed, Trial};

use crate::long;
use crate::programs::{cargo, places, programs, root};

/// What is tested about the register.
pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("register::names_differ_and_classes_are_there", || {
            names_differ_and_classes_are_there()
        }),
        Trial::test(
            "register::every_check_has_a_mutant",
            every_check_has_a_mutant,
        ),
        Trial::test(
            "register::every_place_has_a_mutant",
            every_place_has_a_mutant,
        )
        // It builds all tests that come to places.
        .with_ignored_flag(Tier::now() == Tier::Quick),
        Trial::test(
            "register::rows_of_the_book_are_there",
            rows_of_the_book_are_there,
        ),
        Trial::test(
            "register::kernels_are_built_without",
            kernels_are_built_without,
        ),
        Trial::test("register::images_have_no_mutants", images_have_no_mutants)
            .with_ignored_flag(!long()),
    ]
}

fn same(what: &str, found: BTreeSet<String>, expected: BTreeSet<String>) -> Result<(), Failed> {
    let unknown: Vec<_> = found.difference(&expected).collect();
    let gone: Vec<_> = expected.difference(&found).collect();
    if unknown.is_empty() && gone.is_empty() {
        return Ok(());
    }
    Err(format!("{what} without a mutant: {unknown:#?}; not there any more: {gone:#?}").into())
}

fn registered(class: &str) -> BTreeSet<String> {
    let names = dyad_mutants::all().map(|m| m.name.as_str());
    names
        .filter(|n| n.starts_with(class))
        .map(String::from)
        .collect()
}

fn names_differ_and_classes_are_there() -> Result<(), Failed> {
    let names: BTreeSet<_> = dyad_mutants::all().map(|m| &m.name).collect();
    if names.len() != dyad_mutants::all().count() {
        return Err("two mutants have the same name".into());
    }
    for class in Class::ALL {
        let count = dyad_mutants::all().filter(|m| m.class == class).count();
        if count == 0 {
            return Err(format!("no mutant of class {class:?}").into());
        }
        println!("{class:?}: {count}");
    }
    Ok(())
}

fn every_check_has_a_mutant() -> Result<(), Failed> {
    let mut found = BTreeSet::new();
    let mut twice = Vec::new();
    let kernel: Result<Vec<_>, _> = std::fs::read_dir(root().join("kernel"))?.collect();
    let mut dirs: Vec<_> = kernel?.iter().map(|dir| dir.path()).collect();
    dirs.push(root().join("migrate-rt"));
    for dir in dirs {
        let krate = dir.file_name().unwrap_or_default().to_string_lossy();
        each_source(&dir.join("src"), &mut |text| {
            for (at, call) in text.match_indices("lacks!(\"") {
                let line = text[..at].lines().next_back();
                if line.is_some_and(|l| l.trim_start().starts_with("//")) {
                    continue;
                }
                let name = text[at + call.len()..]
                    .split('"')
                    .next()
                    .unwrap_or_default();
                // Of the macro's own tests.
                if name.starts_with("tests::") {
                    continue;
                }
                let name = format!("check/{krate}::{name}");
                if !found.insert(name.clone()) {
                    twice.push(name);
                }
            }
        })?;
    }
    if !twice.is_empty() {
        return Err(format!("two checks of the same name: {twice:?}").into());
    }
    same("checks", found, registered("check/"))
}

fn each_source(dir: &Path, each: &mut impl FnMut(&str)) -> Result<(), Failed> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            each_source(&path, each)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            each(&std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// What the tests that catch mutants come to is registered, or known to be spare.
fn every_place_has_a_mutant() -> Result<(), Failed> {
    let mut expected = BTreeSet::new();
    for class in ["flush", "order"] {
        let of_class = |m: &&dyad_mutants::Mutant| m.name.starts_with(class);
        let tests: BTreeSet<_> = (dyad_mutants::all().filter(of_class))
            .flat_map(|m| m.caught_by.iter().filter_map(|t| Test::parse(t)))
            .collect();
        for test in tests {
            let text = places(test, class)?;
            let prefix = format!("{class}/");
            expected.extend(
                text.lines()
                    .filter(|l| l.starts_with(&prefix))
                    .map(String::from),
            );
        }
    }
    let spare = dyad_mutants::spare().flat_map(|s| s.names.iter().cloned());
    let mut known: BTreeSet<_> = registered("flush/");
    known.extend(registered("order/"));
    known.extend(spare);
    let unknown: Vec<_> = expected.difference(&known).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(format!("places without a mutant: {unknown:#?}").into())
}

/// Functions and tests that the table of rows names.
fn rows_of_the_book_are_there() -> Result<(), Failed> {
    let page = root().join("book/src/architecture/rows.md");
    let text = std::fs::read_to_string(page)?;
    let rows: Vec<_> = (text.lines())
        .filter(|l| l.starts_with("| ") && l.contains("::"))
        .collect();
    if rows.len() < 10 {
        return Err(format!("{} rows in the table", rows.len()).into());
    }
    for row in rows {
        let names = row.split('`').skip(1).step_by(2);
        for name in names.filter(|n| n.contains("::") || n.contains('/')) {
            let (krate, rest) = match name.split_once('/') {
                Some(parts) => parts,
                None => name.split_once("::").ok_or("a name without a crate")?,
            };
            let function = rest.rsplit(['/', ':']).next().unwrap_or_default();
            let mut there = false;
            for dir in ["src", "host", "ktest", "tests"] {
                let dir = root().join("kernel").join(krate).join(dir);
                if dir.is_dir() {
                    each_source(&dir, &mut |text| {
                        there |= text.contains(&format!("fn {function}("))
                            || text.contains(&format!("fn {function}<"));
                    })?;
                }
            }
            if !there {
                return Err(format!("{name}: no such function").into());
            }
        }
    }
    Ok(())
}

/// Kernels depend on the memory back ends of the hardware only, and on no test library: what reads
/// `DYAD_MUTANT` needs both a feature and the standard library.
fn kernels_are_built_without() -> Result<(), Failed> {
    for (name, target) in [
        ("kernel-x86_64", "x86_64-unknown-none"),
        ("kernel-aarch64", "aarch64-unknown-none-softfloat"),
    ] {
        // The list of permitted reads is no mutant.
        for (features, coherent) in [("", "[]"), ("listed", "[listed]"), ("ktest", "[listed]")] {
            let mut tree = cargo();
            tree.args([
                "tree",
                "--package",
                name,
                "--target",
                target,
                "--prefix",
                "none",
            ]);
            tree.args([
                "--edges",
                "normal",
                "--format",
                "{p} [{f}]",
                "--features",
                features,
            ]);
            let output = tree.output()?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
            }
            let text = String::from_utf8_lossy(&output.stdout);
            let coherence = text.lines().find(|l| l.starts_with("dyad-coherence "));
            let coherence = coherence.ok_or("no kernel without dyad-coherence")?;
            if !coherence.ends_with(coherent) {
                return Err(format!("{name}: {coherence}").into());
            }
            let on_host = |l: &&str| {
                let features = l.rsplit_once('[').map_or("", |(_, features)| features);
                l.starts_with("dyad-") && features.contains("host")
            };
            if let Some(l) = text.lines().find(on_host) {
                return Err(format!("{name}: {l}").into());
            }
            if let Some(l) = text.lines().find(|l| l.starts_with("loom ")) {
                return Err(format!("{name}: {l}").into());
            }
        }
    }
    Ok(())
}

/// No image has the name of the variable; the test of the core, which it selects mutants of, has.
fn images_have_no_mutants() -> Result<(), Failed> {
    let has = |path: &Path| -> Result<bool, Failed> {
        let bytes = std::fs::read(path)?;
        Ok(bytes.windows(11).any(|w| w == b"DYAD_MUTANT"))
    };
    let core = programs()?.get(&("core".into(), "unit".into()));
    if !has(core.ok_or("no tests of the core")?)? {
        return Err("the tests of the core do not select mutants".into());
    }
    for (name, target) in [
        ("kernel-x86_64", "x86_64-unknown-none"),
        ("kernel-aarch64", "aarch64-unknown-none-softfloat"),
    ] {
        let mut build = cargo();
        build.args([
            "build",
            "--profile",
            "kernel",
            "--package",
            name,
            "--target",
            target,
        ]);
        build.arg("--message-format=json-render-diagnostics");
        let output = build.output()?;
        let messages = String::from_utf8_lossy(&output.stdout);
        let image = messages
            .lines()
            .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok())
            .find_map(|v| v["executable"].as_str().map(String::from));
        let Some(image) = image else {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        };
        if has(Path::new(&image))? {
            return Err(format!("{image} selects mutants").into());
        }
    }
    Ok(())
}
