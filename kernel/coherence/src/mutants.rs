//! Mutants: a program without something that it does at one place in the source.
//!
//! A place has a name that does not change with line numbers, and the variable `DYAD_MUTANT` can
//! select it for a run of a test:
//!
//! ```text
//! DYAD_MUTANT=flush/captbl::slot::slot_activate::writeback cargo test -p dyad-captbl
//!             ^     ^       ^     ^              ^
//!             |     |       |     function       call; `#2`: the second such call in the function
//!             |     crate   module
//!             class: `flush` (of a memory with caches), `order` (of a model with loom)
//! ```
//!
//! `flush/?` and `order/?` print the names of all places that the test comes to (with `--nocapture`).
//! A name that no place has selects nothing, and the test passes: a test that selects mutants has to
//! see it fail (`tests/mutants` does). Calls in test code (`tests/`) are no places.

use core::fmt::{self, Debug};
use core::panic::Location;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::string::String;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::vec::Vec;

/// The mutant that the variable `DYAD_MUTANT` selects for this process, if it is of a class: its
/// name there.
pub fn selected(class: &str) -> Option<&'static str> {
    static SELECTED: OnceLock<Option<String>> = OnceLock::new();
    let name = SELECTED.get_or_init(|| std::env::var("DYAD_MUTANT").ok());
    name.as_deref()?.strip_prefix(class)?.strip_prefix('/')
}

/// A kind of step that can be omitted at a place.
pub trait Kind: Copy + Debug + Ord {
    /// Class of the mutants that lack it.
    const CLASS: &'static str;
}

/// A place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site<K> {
    /// The file.
    pub file: &'static str,
    /// The line in it.
    pub line: u32,
    column: u32,
    /// The kind of access.
    pub kind: K,
}

impl<K: Debug> fmt::Display for Site<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}:{}", self.kind, self.file, self.line)
    }
}

impl<K: Kind> Site<K> {
    /// The name by which the place can be selected; `None` if the source is not available.
    pub fn name(&self) -> Option<String> {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let source = std::fs::read_to_string(root.join(self.file)).ok()?;
        let (function, call, nth) = enclosing(&source, self.line, self.column)?;
        let of = |tree| self.file.strip_prefix(tree);
        let module = of("kernel/").or_else(|| of("userland/"))?;
        let module = module.strip_suffix(".rs")?;
        let parts = module.split('/');
        let mut parts: Vec<_> = parts
            .filter(|p| !["src", "lib", "mod"].contains(p))
            .collect();
        parts.extend([function, call]);
        let nth = match nth {
            1 => String::new(),
            n => std::format!("#{n}"),
        };
        Some(std::format!("{}/{}{nth}", K::CLASS, parts.join("::")))
    }

    /// Whether the site has this name within its class. For `?` prints the name of the site.
    fn is_named(&self, wanted: &str) -> bool {
        let name = self.name();
        if wanted == "?" {
            std::eprintln!(
                "{}",
                name.unwrap_or_else(|| std::format!("{self} has no name"))
            );
            return false;
        }
        let name = name.as_deref().and_then(|n| n.strip_prefix(K::CLASS));
        name.and_then(|n| n.strip_prefix('/')) == Some(wanted)
    }
}

/// The function around a place in the source, the name of the function that is called there, and the number of
/// this call among the calls of that name in the function.
fn enclosing(source: &str, line: u32, column: u32) -> Option<(&str, &str, usize)> {
    let lines: Vec<_> = source.lines().take(line as usize).collect();
    let (last, before) = lines.split_last()?;
    let ident = |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_');
    let (at, _) = last.char_indices().nth(column as usize - 1)?;
    let call = last[at..].split_at(ident(&last[at..])?).0;
    let name = |line: &'_ &str| {
        let code = line.trim_start();
        let start = code.find("fn ").filter(|_| !code.starts_with("//"))?;
        let qualifiers = code[..start].split_whitespace();
        let allowed = ["const", "unsafe", "async"];
        (qualifiers.into_iter())
            .all(|q| q.starts_with("pub") || allowed.contains(&q))
            .then_some(())?;
        Some(start + 3 + line.len() - code.len())
    };
    let (first, start) =
        (before.iter().enumerate().rev()).find_map(|(i, l)| Some((i, name(l)?)))?;
    let function = &before[first][start..];
    let function = function.split_at(ident(function)?).0;
    let calls = |line: &str| {
        let found = line.match_indices(call);
        found
            .filter(|&(i, _)| {
                let after = line[i + call.len()..].chars().next();
                let is_call = line[..i].ends_with(['.', ':']) && after == Some('(');
                is_call && !line.trim_start().starts_with("//")
            })
            .count()
    };
    let earlier: usize = before[first..].iter().map(|l| calls(l)).sum();
    Some((function, call, 1 + earlier + calls(&last[..at])))
}

/// The places of a program that are omitted, and those that it has reached. Clones share their records.
#[derive(Clone, Debug)]
pub struct Sites<K> {
    without: BTreeSet<Site<K>>,
    selected: Option<&'static str>,
    /// Whether each is left out.
    seen: Arc<Mutex<BTreeMap<Site<K>, bool>>>,
}

impl<K: Kind> Sites<K> {
    /// All places of a program are kept, except for the one that `DYAD_MUTANT` selects.
    pub fn all() -> Sites<K> {
        Sites {
            selected: selected(K::CLASS),
            ..Sites::without([])
        }
    }

    /// Some places of a program are omitted, whatever `DYAD_MUTANT` selects.
    pub fn without(sites: impl IntoIterator<Item = Site<K>>) -> Sites<K> {
        Sites {
            without: sites.into_iter().collect(),
            selected: None,
            seen: Arc::default(),
        }
    }

    /// The places that the program has reached.
    pub fn seen(&self) -> BTreeSet<Site<K>> {
        self.lock().keys().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Site<K>, bool>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a place; whether it is left out.
    pub(crate) fn skips(&self, caller: &'static Location<'static>, kind: K) -> bool {
        if caller.file().contains("tests/") {
            return false;
        }
        let site = Site {
            file: caller.file(),
            line: caller.line(),
            column: caller.column(),
            kind,
        };
        let left_out = || {
            let chosen = self.selected.is_some_and(|wanted| site.is_named(wanted));
            chosen || self.without.contains(&site)
        };
        *self.lock().entry(site).or_insert_with(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::enclosing;

    const SOURCE: &str = "\
fn first(mem: &M) { mem.store(1); }
    pub(super) const fn second(&self) {
        // self.mem.store(0) is not a call
        self.mem.store(1);
        let f = |x| self.mem.load(x).store_through(2) + self.mem.store(3);
        Mem::store(4);
";

    #[test]
    fn places_have_names_that_do_not_depend_on_lines() {
        let at = |line: usize, text| {
            let column = SOURCE.lines().nth(line - 1).unwrap().rfind(text).unwrap();
            enclosing(SOURCE, line as u32, column as u32 + 1).unwrap()
        };
        assert_eq!(at(4, "store"), ("second", "store", 1));
        assert_eq!(at(5, "store_through"), ("second", "store_through", 1));
        assert_eq!(at(5, "store("), ("second", "store", 2));
        assert_eq!(at(6, "store("), ("second", "store", 3));
        assert_eq!(enclosing(SOURCE, 1, 20), None);
    }
}
