//! `cargo xtask new`: a program to start from.

use std::path::{Path, PathBuf};

use clap::Args;

use dyad_launcher::error::Error;
use dyad_launcher::{apps, paths};

/// Longest name: a bundle has room for 31 bytes.
const MAX_NAME: usize = 31;
/// Names that cannot be packages of this workspace.
const TAKEN: [&str; 6] = ["dyad", "help", "test", "core", "alloc", "std"];
const TASK: &str = include_str!("../../templates/task.rs");
const THREAD: &str = include_str!("../../templates/thread.rs");

#[derive(Debug, Args)]
pub(super) struct NewArgs {
    /// Its name: lower-case letters, digits, - and _, starting with a letter
    name: String,
    /// Make it in this directory instead of userland/apps, as a workspace of its own
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Make a program of async tasks, which move where they wait; this is the default
    #[arg(long)]
    task: bool,
    /// Make a program of plain threads, which move anywhere
    #[arg(long, conflicts_with = "task")]
    thread: bool,
}

pub(super) fn new(args: &NewArgs) -> Result<u8, Error> {
    check_name(&args.name).map_err(Error::Usage)?;
    let parent = match &args.path {
        Some(dir) => std::path::absolute(dir)
            .map_err(|e| Error::Usage(format!("cannot use {}: {e}", dir.display())))?,
        None => paths::workspace_root().join("userland/apps"),
    };
    let dir = parent.join(&args.name);
    let in_workspace = args.path.is_none().then(|| apps::directory(&args.name));
    let there = in_workspace.flatten().or(dir.exists().then(|| dir.clone()));
    if let Some(there) = there {
        return Err(Error::Usage(format!(
            "{} exists already: choose another name or remove it",
            paths::shown(&there)
        )));
    }
    let app = match &args.path {
        Some(_) => dir.display().to_string(),
        None => args.name.clone(),
    };
    let outside = args.path.is_some();
    let main = if args.thread { THREAD } else { TASK };
    create(&dir, &args.name, &app, outside, main)
        .map_err(|e| Error::io(format_args!("cannot create {}", dir.display()), e))?;
    println!("made {}", paths::shown(&dir));
    println!("run it with: cargo xtask run --app {app}");
    Ok(0)
}

fn create(dir: &Path, name: &str, app: &str, outside: bool, main: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(dir.join("src"))?;
    std::fs::write(dir.join("Cargo.toml"), manifest(name, outside))?;
    let main = main.replace("@NAME@", name).replace("@APP@", app);
    std::fs::write(dir.join("src/main.rs"), main)
}

fn manifest(name: &str, outside: bool) -> String {
    let bin = format!(
        "\n[[bin]]\nname = \"{name}\"\npath = \"src/main.rs\"\ntest = false\nbench = false\n\n\
         [dependencies]\n"
    );
    if outside {
        let dyad = paths::workspace_root().join("userland/dyad");
        format!(
            "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{bin}dyad = {{ \
             path = {:?} }}\n\n# Not part of the workspace it is built with.\n[workspace]\n",
            dyad.display().to_string()
        )
    } else {
        format!(
            "[package]\nname = \"{name}\"\ndescription = \"A program that runs on both ISAs\"\n\
             version.workspace = true\nedition.workspace = true\nrust-version.workspace = true\n\
             license.workspace = true\npublish.workspace = true\n\n[lints]\nworkspace = true\n\
             {bin}dyad.workspace = true\n"
        )
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let rule = "lower-case letters, digits, - and _, starting with a letter";
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(good) {
        return Err(format!(
            "{name:?} cannot be the name of a program: use {rule}"
        ));
    }
    if name.len() > MAX_NAME {
        return Err(format!(
            "{name:?} is too long for the name of a program: use at most {MAX_NAME} characters"
        ));
    }
    if TAKEN.contains(&name) {
        return Err(format!(
            "{name:?} is the name of something else: choose another"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_must_be_names() {
        for good in ["a", "my-app", "x2_y"] {
            assert_eq!(check_name(good), Ok(()));
        }
        for bad in [
            "",
            "2x",
            "My",
            "a b",
            "../x",
            "a/b",
            "dyad",
            "ä",
            &"x".repeat(32),
        ] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn manifests_are_manifests() {
        for outside in [false, true] {
            let table: toml::Table = manifest("thing", outside).parse().unwrap();
            assert_eq!(table["package"]["name"].as_str(), Some("thing"));
            assert!(table["dependencies"].get("dyad").is_some());
            assert_eq!(table.contains_key("workspace"), outside);
        }
    }
}
