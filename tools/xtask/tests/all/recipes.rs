//! The recipes of the book's part *Changing Dyad*: each is carried out on a copy of the workspace, which is then built and
//! tested as the recipe says.
//!
//! Recipes add up: each is carried out on what those before it have left, so that the copy is built once.
use crate::pages;

use std::collections::BTreeSet;
use std::fs;

use dyad_launcher::paths;
use dyad_tier::Tier;

use pages::{Step, edit, play, steps};

/// The recipes in the order in which they are carried out, and in how many files of the system, its book included,
/// they may put something. Tests that a recipe extends are not counted.
const RECIPES: [(&str, usize); RECIPE_COUNT] = [
    ("program", 3),
    ("operation", 4),
    ("object-type", 13),
    ("service", 7),
    ("memory-model", 4),
    ("profile", 3),
    ("key", 12),
    ("isa", 2),
];
const RECIPE_COUNT: usize = 8;

fn recipe(name: &str) -> Vec<Step> {
    let path = paths::workspace_root().join(format!("book/src/changing/{name}.md"));
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    steps(&text)
}

/// Whether a file is a test: what it holds is no part of the system.
fn is_test(path: &str) -> bool {
    path.starts_with("tests/")
        || ["/tests/", "/ktest/", "/host/"]
            .iter()
            .any(|d| path.contains(d))
}

#[test]
fn every_page_of_the_part_is_a_recipe() {
    let dir = paths::workspace_root().join("book/src/changing");
    let found: BTreeSet<String> = (fs::read_dir(dir).expect("the part").flatten())
        .filter_map(|e| Some(e.file_name().to_str()?.strip_suffix(".md")?.to_string()))
        .filter(|name| name != "README")
        .collect();
    let known = RECIPES.iter().map(|(name, _)| (*name).to_string());
    assert_eq!(found, known.collect());
}

#[test]
fn recipes_touch_few_files_and_end_with_a_test() {
    for (name, most) in RECIPES {
        let steps = recipe(name);
        let files: BTreeSet<&str> = (steps.iter().filter_map(Step::file))
            .filter(|path| !is_test(path))
            .collect();
        assert!(files.len() <= most, "{name} touches {files:?}");
        assert!(!files.is_empty(), "{name} changes nothing");
        let ends = matches!(steps.last(), Some(Step::Run { output, .. }) if !output.is_empty());
        assert!(
            ends,
            "{name} does not end with a command and what it prints"
        );
    }
}

/// In the tier long their commands are run, too: they build and test for minutes.
#[test]
fn recipes_work_as_written() {
    pages::in_fresh_copy(|copy| {
        for (name, _) in RECIPES {
            eprintln!("recipe: {name}");
            match Tier::now() {
                Tier::Quick | Tier::Full => edit(recipe(name), copy),
                Tier::Long => play(recipe(name), copy),
            }
        }
    });
}
