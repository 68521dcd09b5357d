//! Names of items are those of the book's glossary: no item has a name of the column *not*.
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use dyad_launcher::paths;

/// Names that items still have, and of how many items. Counts may only fall: lower them when items are renamed.
const LEFT: &[(&str, usize)] = &[
    ("Kept", 1),
    ("Place", 11),
    ("Seen", 4),
    ("Touched", 1),
    ("Way", 1),
    ("attend", 3),
    ("carry", 1),
    ("doing", 1),
    ("end", 1),
    ("give_up", 9),
    ("holds", 9),
    ("kept", 7),
    ("known", 9),
    ("learn", 2),
    ("may", 1),
    ("meet", 2),
    ("put", 10),
    ("quick", 2),
    ("remembered", 3),
    ("take", 9),
    ("view", 2),
];

/// What comes before the name of an item.
const ITEMS: [&str; 8] = [
    "fn", "struct", "enum", "trait", "type", "mod", "const", "static",
];

/// The names of the column *not*, with what they stand for: `fn` and `mod` for these alone, else any item.
fn refused(glossary: &str) -> BTreeMap<String, Option<&'static str>> {
    let mut all = BTreeMap::new();
    for row in glossary.lines().filter_map(|l| l.strip_suffix(" |")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [_, _, _, not] = cells[..] else { continue };
        for name in not.split('`').skip(1).step_by(2) {
            match name.split_once(' ') {
                Some(("fn", name)) => all.insert(name.to_string(), Some("fn")),
                Some(("mod", name)) => all.insert(name.to_string(), Some("mod")),
                _ => all.insert(name.to_string(), None),
            };
        }
    }
    all
}

/// The item that a line declares: what it is, its name, and whether it is indented.
fn declared(line: &str) -> Option<(&'static str, &str, bool)> {
    let code = line.trim_start();
    if code.starts_with("//") {
        return None;
    }
    let mut words = code.split_whitespace();
    let what = words.find_map(|w| match w {
        "pub" | "unsafe" | "async" | "extern" | "\"C\"" => None,
        w if w.starts_with("pub(") => None,
        w => Some(w),
    })?;
    let mut what = ITEMS.into_iter().find(|i| *i == what)?;
    let mut name = words.next()?;
    // `const fn name`, `const unsafe fn name`
    while what == "const" && ["fn", "unsafe", "async", "extern"].contains(&name) {
        if name == "fn" {
            what = "fn";
        }
        name = words.next()?;
    }
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some((
        what,
        &name[..end.unwrap_or(name.len())],
        code.len() < line.len(),
    ))
}

fn search(dir: &Path, each: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(dir).expect("directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !path.join("CACHEDIR.TAG").is_file() && !path.ends_with(".git") {
                search(&path, each);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            each(&path, &fs::read_to_string(&path).expect("source"));
        }
    }
}

#[test]
fn no_item_has_a_name_that_the_glossary_refuses() {
    let root = paths::workspace_root();
    let glossary = fs::read_to_string(root.join("book/src/glossary.md")).expect("glossary");
    let refused = refused(&glossary);
    assert!(
        refused.len() > 30,
        "the glossary refuses names: {refused:?}"
    );
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    search(&root, &mut |path, text| {
        for (n, line) in text.lines().enumerate() {
            let Some((what, name, indented)) = declared(line) else {
                continue;
            };
            let is_refused = match refused.get(name) {
                None => false,
                Some(None) => true,
                Some(Some("fn")) => what == "fn" && !indented,
                Some(Some(only)) => what == *only,
            };
            if is_refused {
                let path = path.strip_prefix(&root).unwrap_or(path);
                let at = format!("{}:{}: {what} {name}", path.display(), n + 1);
                found.entry(name.into()).or_default().push(at);
            }
        }
    });
    let mut wrong = Vec::new();
    for (name, places) in &found {
        let left = LEFT.iter().find(|(n, _)| n == name).map_or(0, |(_, n)| *n);
        if places.len() > left {
            let places = places.join("\n  ");
            wrong.push(format!("{name}: {left} may be left, not\n  {places}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn items_are_found_with_their_names() {
    for (line, item) in [
        (
            "pub(crate) const unsafe fn take<T>(x: T) {",
            Some(("fn", "take", false)),
        ),
        ("    fn take(&mut self) {", Some(("fn", "take", true))),
        ("pub struct Seen;", Some(("struct", "Seen", false))),
        ("const LIMIT: u64 = 3;", Some(("const", "LIMIT", false))),
        ("// fn take() {", None),
        ("let take = 3;", None),
    ] {
        assert_eq!(declared(line), item, "{line}");
    }
    let row = "| retype | make | seL4 | `put_to_use`, `fn put`, `mod what` |";
    let refused = refused(row);
    assert_eq!(refused["put_to_use"], None);
    assert_eq!((refused["put"], refused["what"]), (Some("fn"), Some("mod")));
}
