//! From what the user calls a program to a checked bundle.

use std::path::{Path, PathBuf};

use dyad_abi::Isa;
use dyad_abi::bundle::Bundle;
use migrate_rt::build::Report;

use crate::error::Error;
use crate::{paths, suggest};

/// What the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A program's package directory.
    Package(PathBuf),
    /// A finished bundle.
    Bundle(PathBuf),
}

/// A program that can be run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The bundle's bytes; valid.
    pub bundle: Vec<u8>,
    /// Where they were read.
    pub path: PathBuf,
    /// ELF files with names and lines, by ISA.
    pub elfs: [Option<PathBuf>; 2],
    /// What its build has done. A bundle that was only read has none.
    pub report: Option<Report>,
}

/// Where programs are, with the heading that a list of them has: what users want to see comes first.
const PLACES: [(&str, &str); 2] = [
    ("userland/apps", "programs"),
    ("tests/programs", "programs that exist for tests"),
];
/// Where programs are that only one test uses: `--app` finds them by name, and no list has them.
const UNLISTED: &str = "tests";
/// What `--app` takes for a request for the list.
pub const HELP: &str = "help";

/// Names of the programs in `userland/apps`, then of those in `tests/programs`.
pub fn available() -> Vec<String> {
    listed().flat_map(|(_, names)| names).collect()
}

/// The list that `--app help` prints.
pub fn help() -> String {
    let mut text = String::new();
    for (heading, names) in listed() {
        text.push_str(&format!("{heading}:\n"));
        for name in names {
            text.push_str(&format!("  {name}\n"));
        }
    }
    text.push_str("`cargo xtask run --app NAME` runs one of them, hop if none is named.\n");
    text
}

/// The headings of [`PLACES`], each with the programs there, in the order of the alphabet.
fn listed() -> impl Iterator<Item = (&'static str, Vec<String>)> {
    PLACES
        .map(|(dir, heading)| {
            let dir = paths::workspace_root().join(dir);
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            let mut names: Vec<String> = entries
                .filter(|e| is_program(&e.path()))
                .filter_map(|e| e.file_name().into_string().ok())
                .collect();
            names.sort();
            (heading, names)
        })
        .into_iter()
}

/// The directory of the program of this name, if the workspace has one.
pub fn directory(name: &str) -> Option<PathBuf> {
    let places = PLACES.map(|(dir, _)| dir).into_iter().chain([UNLISTED]);
    let mut dirs = places.map(|place| paths::workspace_root().join(place).join(name));
    dirs.find(|dir| is_program(dir))
}

fn is_program(dir: &Path) -> bool {
    dir.join("Cargo.toml").is_file() && dir.join("src/main.rs").is_file()
}

/// Finds what `--app` names.
///
/// # Errors
///
/// If there is nothing of that name; the message lists what there is.
pub fn find(app: &str) -> Result<Source, Error> {
    let path = Path::new(app);
    if path.extension().is_some_and(|e| e == "bundle") {
        return match path.is_file() {
            true => Ok(Source::Bundle(path.to_path_buf())),
            false => Err(Error::Usage(format!("there is no bundle {app}"))),
        };
    }
    let plain_name = path.components().count() == 1 && !app.starts_with('.');
    if plain_name && let Some(dir) = directory(app) {
        return Ok(Source::Package(dir));
    }
    if is_program(path) {
        return std::path::absolute(path)
            .map(Source::Package)
            .map_err(|e| Error::Usage(format!("cannot use the directory {app}: {e}")));
    }
    if !plain_name {
        return Err(Error::Usage(format!(
            "{app} is not a program: a program's directory has Cargo.toml and src/main.rs \
             (`cargo xtask new NAME --path DIR` makes one)"
        )));
    }
    let names = available();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Err(Error::Usage(format!(
        "{}; `cargo xtask new {app}` makes a new one",
        suggest::not_one_of("program", app, &names)
    )))
}

/// Reads a bundle and checks it.
///
/// # Errors
///
/// If it cannot be read or is not a valid bundle of this version.
pub fn read_bundle(path: &Path) -> Result<Vec<u8>, Error> {
    let shown = paths::shown(path);
    let bytes = std::fs::read(path)
        .map_err(|e| Error::Usage(format!("cannot read the bundle {shown}: {e}")))?;
    match Bundle::parse(&bytes) {
        Ok(_) => Ok(bytes),
        Err(e) => Err(Error::Usage(format!(
            "{shown} cannot be run: {e}. Build the program again, for example with \
             `cargo xtask build --app NAME`"
        ))),
    }
}

/// The name of the program in a bundle.
///
/// # Errors
///
/// If it is not a valid bundle.
pub fn name(bundle: &[u8]) -> Result<String, Error> {
    match Bundle::parse(bundle) {
        Ok(b) => Ok(b.name().to_string()),
        Err(e) => Err(Error::Build(format!("not a bundle: {e}"))),
    }
}

/// ELF files beside a bundle, as the pipeline leaves them.
pub fn elfs_beside(bundle: &Path) -> [Option<PathBuf>; 2] {
    Isa::ALL.map(|isa| {
        let elf = bundle.with_extension(format!("{isa}.elf"));
        elf.is_file().then_some(elf)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_programs_are_answered_with_the_known_ones() {
        let e = find("hopp").unwrap_err().to_string();
        assert!(e.contains("did you mean \"hop\"?"), "{e}");
        assert!(
            e.contains("npb") && e.contains("cargo xtask new hopp"),
            "{e}"
        );
        assert!(
            !available().contains(&"workloads".to_string()),
            "a library is not a program"
        );
        for bad in ["../nowhere", "./x", "none.bundle"] {
            assert!(matches!(find(bad), Err(Error::Usage(_))), "{bad}");
        }
        for (name, dir) in [
            ("hop", "userland/apps/hop"),
            ("storm", "tests/programs/storm"),
            ("attack", "tests/attack"),
        ] {
            let dir = Source::Package(paths::workspace_root().join(dir));
            assert_eq!(find(name).ok(), Some(dir));
        }
    }

    #[test]
    fn programs_of_users_are_listed_before_those_of_tests() {
        let text = help();
        let at = |line: &str| {
            let found = text.lines().position(|l| l == line);
            found.unwrap_or_else(|| panic!("no line {line:?} in:\n{text}"))
        };
        assert!(at("programs:") < at("  hop"));
        assert!(at("  npb") < at("programs that exist for tests:"));
        assert!(at("programs that exist for tests:") < at("  storm"));
        assert!(!text.contains("attack"), "{text}");
    }

    #[test]
    fn a_file_that_is_no_bundle_is_refused_before_anything_starts() {
        let path = std::env::temp_dir().join(format!("x{}.bundle", std::process::id()));
        std::fs::write(&path, b"not an ELF file").unwrap();
        let e = read_bundle(&path).unwrap_err().to_string();
        assert!(e.contains("cannot be run"), "{e}");
        std::fs::remove_file(&path).unwrap();
    }
}
