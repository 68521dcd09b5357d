//! The libraries of `tools`: imports go one way, between crates and between the modules of one crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The text of a file without comments and unit tests.
fn code(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = text.lines().filter(|l| !l.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// All source files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false if path.extension().is_some_and(|e| e == "rs") => all.push(path),
            false => {}
        }
    }
    all
}

/// The modules that a text names as `crate::name` or in `crate::{...}`.
fn named(code: &str) -> BTreeSet<String> {
    let word = |text: &str| -> String {
        let is_part = |c: &char| c.is_ascii_lowercase() || *c == '_';
        text.trim_start().chars().take_while(is_part).collect()
    };
    let mut all = BTreeSet::new();
    for (at, found) in code.match_indices("crate::") {
        if code[..at].ends_with('$') {
            continue;
        }
        let rest = &code[at + found.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            all.insert(word(rest));
            continue;
        };
        let mut depth = 0;
        let mut start = true;
        for (i, c) in list.char_indices() {
            if start && depth == 0 {
                all.insert(word(&list[i..]));
            }
            start = c == ',' || (start && c.is_whitespace());
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    all.remove("");
    all
}

/// Which modules the modules of a crate use.
fn uses(crate_dir: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let src = crate_dir.join("src");
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files(&src) {
        let module = file.strip_prefix(&src).unwrap().iter().next().unwrap();
        let module = Path::new(module).file_stem().unwrap().to_str().unwrap();
        let used = named(&code(&file)).into_iter().filter(|m| m != module);
        all.entry(module.into()).or_default().extend(used);
    }
    all
}

/// A module that uses itself by way of others, with the way.
fn circle(uses: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn visit(
        at: &str,
        uses: &BTreeMap<String, BTreeSet<String>>,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> bool {
        if way.iter().any(|m| m == at) {
            way.push(at.into());
            return true;
        }
        if !done.insert(at.into()) {
            return false;
        }
        way.push(at.into());
        let next = uses.get(at).into_iter().flatten();
        if next.into_iter().any(|m| visit(m, uses, way, done)) {
            return true;
        }
        way.pop();
        false
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|module| {
        let mut way = Vec::new();
        visit(module, uses, &mut way, &mut done).then_some(way)
    })
}

#[test]
fn modules_of_the_libraries_have_no_circles() {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for library in ["launcher", "measure", "report"] {
        let uses = uses(&tools.join(library));
        assert!(
            uses.values().any(|used| !used.is_empty()),
            "{library}: {uses:?}"
        );
        assert_eq!(circle(&uses), None, "{library}");
    }
}

#[test]
fn libraries_do_not_depend_on_what_uses_them() {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest =
        |name: &str| std::fs::read_to_string(tools.join(name).join("Cargo.toml")).unwrap();
    assert!(manifest("xtask").contains("dyad-measure"));
    assert!(manifest("measure").contains("dyad-launcher"));
    for (library, user) in [
        ("launcher", "dyad-measure"),
        ("launcher", "xtask."),
        ("launcher", "dyad-report"),
        ("measure", "xtask."),
        ("report", "xtask."),
    ] {
        assert!(!manifest(library).contains(user), "{library}: {user}");
    }
}

#[test]
fn circles_are_found() {
    let text = "use crate::{b, c::{d, e},\n    f};\nlet x = crate::g::h(); $crate::i!();";
    let names: Vec<String> = named(text).into_iter().collect();
    assert_eq!(names, ["b", "c", "f", "g"]);
    let of = |pairs: &[(&str, &str)]| {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in pairs {
            all.entry((*from).into()).or_default().insert((*to).into());
        }
        circle(&all)
    };
    assert_eq!(of(&[("a", "b"), ("a", "c"), ("b", "c")]), None);
    assert!(of(&[("a", "b"), ("b", "c"), ("c", "b")]).is_some());
}
