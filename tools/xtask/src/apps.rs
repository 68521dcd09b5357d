//! From what the user calls a program to a checked bundle.

use std::path::{Path, PathBuf};

use dyad_abi::Isa;
use dyad_abi::bundle::Bundle;

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
    /// What its build has verified, if its threads migrate.
    pub verified: Option<String>,
}

/// Names of the programs in `userland/apps`.
pub fn available() -> Vec<String> {
    let dir = paths::workspace_root().join("userland/apps");
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|e| is_program(&e.path()))
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort();
    names
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
    if plain_name {
        // Programs that exist for tests are beside these, and not among those that are listed.
        for place in ["userland/apps", "tests"] {
            let dir = paths::workspace_root().join(place).join(app);
            if is_program(&dir) {
                return Ok(Source::Package(dir));
            }
        }
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
            e.contains("npb-is") && e.contains("cargo xtask new hopp"),
            "{e}"
        );
        assert!(
            !available().contains(&"npb".to_string()),
            "a library is not a program"
        );
        for bad in ["../nowhere", "./x", "none.bundle"] {
            assert!(matches!(find(bad), Err(Error::Usage(_))), "{bad}");
        }
        assert!(matches!(find("hop"), Ok(Source::Package(_))));
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
