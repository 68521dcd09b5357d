//! Names of items are those of the book's glossary: no item has a name of the column *not*. Words that hide the noun of a
//! sentence, and values with such names in the kernel, are counted; a count may only fall.

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
    ("known", 7),
    ("learn", 2),
    ("may", 1),
    ("meet", 2),
    ("put", 10),
    ("quick", 2),
    ("remembered", 3),
    ("take", 9),
    ("view", 2),
];

/// How often each word may still occur: `words.tsv`. [`in_text`] and [`values`] say where it is counted.
const WORDS: &str = include_str!("words.tsv");
/// The files that have the words because they are about them.
const ABOUT_WORDS: [&str; 2] = ["tools/xtask/tests/glossary.rs", "book/src/glossary.md"];
/// A count that is lower than its line of the table by more than this must be entered there.
const SLACK: usize = 5;

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

fn search(dir: &Path, kinds: &[&str], each: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(dir).expect("directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !path.join("CACHEDIR.TAG").is_file() && !path.ends_with(".git") {
                search(&path, kinds, each);
            }
        } else if let Some(kind) = path.extension().and_then(|e| e.to_str())
            && kinds.contains(&kind)
        {
            each(&path, &fs::read_to_string(&path).expect("text"));
        }
    }
}

/// Whether a character is part of a word or a name.
fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Finds `word` as a whole word in `text`. Each item is the text before one occurrence, and the text behind it.
fn places<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    text.match_indices(word).filter_map(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        (!before.ends_with(in_word) && !after.starts_with(in_word)).then_some((before, after))
    })
}

/// How often a text, which is in lower case, has a word in comments, prose and strings; of `comment: WORDS`, how many
/// comments consist of these words only.
fn in_text(text: &str, word: &str) -> usize {
    let Some(whole) = word.strip_prefix("comment: ") else {
        return places(text, word).count();
    };
    let comments = text
        .lines()
        .filter_map(|l| l.split_once("// ").or(l.split_once("/// ")));
    (comments.filter(|(before, _)| !before.ends_with(in_word)))
        .filter(|(_, comment)| comment.trim_end_matches('.') == whole)
        .count()
}

/// How many lines of code name a value so: a local, a parameter, a binding of a pattern or a field of a literal.
/// Names of items, and those that come after a dot or a path, are not counted.
fn values(text: &str, name: &str) -> usize {
    let code = text.lines().map(|l| l.split("//").next().unwrap_or(""));
    code.filter(|line| {
        places(line, name).any(|(before, after)| {
            let quoted = before.matches('"').count() % 2 == 1;
            let path = before.ends_with(['.', ':', '\'', '`']) && !before.ends_with("..");
            let item = ITEMS.iter().any(|i| before.trim_end().ends_with(i));
            !quoted
                && !path
                && !item
                && !after.starts_with(['(', '!', '<'])
                && !after.starts_with("::")
        })
    })
    .count()
}

/// Counts of the table that do not fit.
fn ratchet(found: &BTreeMap<&str, (usize, usize)>) -> Vec<String> {
    (found.iter())
        .filter_map(|(word, (allowed, count))| match () {
            () if count > allowed => Some(format!(
                "`{word}`: {count}, of at most {allowed}: name the noun (see the glossary)"
            )),
            () if count + SLACK < *allowed => Some(format!(
                "`{word}`: {count}; enter that in words.tsv, which says {allowed}"
            )),
            () => None,
        })
        .collect()
}

#[test]
fn words_that_hide_the_noun_become_fewer() {
    let root = paths::workspace_root();
    let mut found = BTreeMap::new();
    for line in WORDS.lines().skip(1) {
        let (word, allowed) = line.split_once('\t').expect("two columns");
        found.insert(word, (allowed.parse().expect("a count"), 0));
    }
    assert!(found.len() > 5, "the table has lines: {found:?}");
    search(&root, &["rs", "md", "toml"], &mut |path, text| {
        let path = path.strip_prefix(&root).unwrap_or(path);
        let path = path.to_str().expect("UTF-8");
        if ABOUT_WORDS.contains(&path) {
            return;
        }
        let lower = text.to_lowercase();
        let mut parts = path.split('/');
        let kernel = parts.next() == Some("kernel") && parts.nth(1) == Some("src");
        for (word, (_, count)) in &mut found {
            *count += match word.strip_prefix("value: ") {
                None => in_text(&lower, word),
                Some(name) if kernel => values(text, name),
                Some(_) => 0,
            };
        }
    });
    let wrong = ratchet(&found);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn words_and_values_are_counted() {
    let text = "/// the same.\n// the same as before\nx // the same\nnobody's nobody_else as above";
    for (word, count) in [
        ("comment: the same", 2),
        ("the same", 3),
        ("nobody", 1),
        ("as above", 1),
        ("above a", 0),
    ] {
        assert_eq!(in_text(text, word), count, "{word}");
    }
    for (line, count) in [
        ("let view = x;", 1),
        ("let Some(mut view) = x;", 1),
        ("fn f(a: u8, view: &View) {", 1),
        ("map(|view| view.x())", 1),
        ("Found { view, .. }", 1),
        ("fn view(&self) {", 0),
        ("self.view.set(view_of(x)); // view", 0),
        ("view(x) + m::view", 0),
        ("(\"a view of\")", 0),
        ("0..view", 1),
    ] {
        assert_eq!(values(line, "view"), count, "{line}");
    }
    let fits = |allowed, count| ratchet(&BTreeMap::from([("w", (allowed, count))])).is_empty();
    assert!(fits(9, 9) && fits(9, 9 - SLACK));
    assert!(!fits(9, 10) && !fits(9, 9 - SLACK - 1));
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
    search(&root, &["rs"], &mut |path, text| {
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
