//! The book is true: the tutorial's commands run as written, and links lead somewhere.
//!
//! In the tier `full` the tutorial is run in a copy of the workspace below the target directory, so that the tree
//! stays as it is. In the other tiers its core is: the steps before the line [`CORE_ENDS`], in the workspace itself,
//! with the program in a directory below the target directory (`cargo xtask new NAME --path DIR`). The module [`pages`]
//! says what the blocks of a page mean.
use crate::pages;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use dyad_launcher::paths;
use dyad_tier::Tier;

use pages::{Step, play, steps};

/// The line of the tutorial that ends its core.
const CORE_ENDS: &str = "<!-- The core ends here. -->";

#[test]
fn the_tutorial_runs_as_written() {
    match Tier::now() {
        Tier::Full => whole(),
        Tier::Long => core(),
        // `new` builds and runs a program as well.
        Tier::Quick => {}
    }
}

/// Every step, in a copy of the workspace.
fn whole() {
    pages::in_fresh_copy(|copy| {
        let text = fs::read_to_string(copy.join("book/src/tutorial.md")).expect("tutorial");
        let steps = steps(&text);
        assert!(steps.len() > 10, "the tutorial has commands: {steps:?}");
        play(steps, copy);
    });
}

/// The first steps, where everything has been built already.
fn core() {
    let root = paths::workspace_root();
    let text = fs::read_to_string(root.join("book/src/tutorial.md")).expect("tutorial");
    let (core, _) = text.split_once(CORE_ENDS).expect("the tutorial has a core");
    let dir = paths::target_dir().join("qemu-tests/core");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a directory");
    let apps = dir.display().to_string();
    let core = core
        .replace(
            "cargo xtask new myapp",
            &format!("cargo xtask new myapp --path {apps}"),
        )
        .replace("--app myapp", &format!("--app {apps}/myapp"))
        .replace("made userland/apps/myapp", "made .../myapp")
        .replace(
            "run it with: cargo xtask run --app",
            "... cargo xtask run --app",
        )
        .replace("userland/apps", &apps)
        .replace("--json out.json", &format!("--json {apps}/out.json"));
    let steps = steps(&core);
    let is_run = |s: &&Step| matches!(s, Step::Run { command, .. } if command.contains(&apps));
    assert!(steps.iter().filter(is_run).count() >= 3, "{steps:?}");
    // The tool as this test was built with it, so that no command builds it again.
    let tool = Step::Run {
        command: format!(
            "cargo() {{ test \"$1\" = xtask && shift && {} \"$@\"; }}",
            env!("CARGO_BIN_EXE_xtask")
        ),
        output: Vec::new(),
    };
    play([vec![tool], steps].concat(), &root);
}

fn documents(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            documents(&path, found);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
}

/// Targets of links and images in a Markdown text, without fragments and other places' addresses. Blocks of code have no
/// links.
fn links(text: &str) -> Vec<String> {
    let outside: Vec<&str> = text.split("\n```").step_by(2).collect();
    outside
        .iter()
        .flat_map(|part| part.split("](").skip(1))
        .filter_map(|after| after.split_once(')'))
        .map(|(target, _)| target.split('#').next().unwrap_or_default().to_string())
        .filter(|t| !t.is_empty() && !t.contains("://"))
        .collect()
}

#[test]
fn links_lead_somewhere_and_every_chapter_is_in_the_summary() {
    let root = paths::workspace_root();
    let book = root.join("book/src");
    let mut all: Vec<PathBuf> = ["README.md", "CAVEATS.md", "CHANGELOG.md"]
        .map(|f| root.join(f))
        .into();
    documents(&book, &mut all);
    let mut wrong = Vec::new();
    let summary = fs::read_to_string(book.join("SUMMARY.md")).expect("summary");
    let listed: BTreeSet<PathBuf> = links(&summary).iter().map(|l| book.join(l)).collect();
    for document in &all {
        let text = fs::read_to_string(document).expect("document");
        let dir = document.parent().unwrap_or(&root);
        for link in links(&text) {
            if !dir.join(&link).exists() {
                wrong.push(format!("{}: {link} leads nowhere", document.display()));
            }
        }
        let chapter = document.starts_with(&book) && !document.ends_with("SUMMARY.md");
        if chapter && !listed.contains(document) {
            wrong.push(format!("{} is not in the summary", document.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
