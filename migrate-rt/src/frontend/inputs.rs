//! What the compiler hands to the linker, and one module of it.
//!
//! With `linker-plugin-lto` the compiler leaves link-time optimisation to the linker: objects of crates are bitcode. The
//! linker here is a shell script. It keeps the objects of the program, which the compiler removes after the link, and
//! writes a list of them and of the libraries to the program's file. Cargo puts that file in a known place on every call,
//! so the list always belongs to the build that has just been asked for.
//!
//! ```text
//!  program's file:  FORMAT
//!                   /.../deps/hop-0123.inputs        directory with the objects
//!                   /.../deps/libdyad-4567.rlib      libraries, in link order
//! ```
//!
//! | member of a library | is |
//! |---|---|
//! | bitcode | linked |
//! | ELF with a section `.llvmbc` | one of the standard library: the section is linked |
//! | other ELF | machine code of the front end's target, which no program can use: left out, so what is in it stays undefined |

use super::{FrontendError, PreLto, check_size};
use crate::files::{self, FileError};
use crate::optimise;
use crate::process::{assemble, run_quiet};
use crate::toolchain::{Toolchain, clean_command};
use goblin::archive::Archive;
use goblin::elf::Elf;
use std::path::{Path, PathBuf};

/// First line of the list. Other lists are of other versions of the script.
const FORMAT: &str = "inputs of a link, 1";

/// The linker: `-o` names the program's file.
const SCRIPT: &str = r#"#!/bin/sh
set -e
out= last=
for a do
    if [ "$last" = -o ]; then out=$a; fi
    last=$a
done
kept=$out.inputs
rm -rf "$kept"
mkdir "$kept"
{
    echo "inputs of a link, 1"
    echo "$kept"
    for a do
        case $a in
        *.o) cp "$a" "$kept" ;;
        *.rlib) echo "$a" ;;
        esac
    done
} >"$out"
"#;

/// Bitcode begins with this.
const BITCODE: [u8; 4] = *b"BC\xc0\xde";
/// The module that is made of the inputs, among the objects. It is made once, so the name changes with how it is made.
const LINKED: &str = "linked.2.bc";
/// The object whose undefined symbols are what the program exports.
const EXPORTS: &str = "symbols.o";
/// Functions in machine code, which each ISA has of its own.
const BUILTINS: &str = "libcompiler_builtins-";

/// Writes the script into a directory, unless it is there, and returns its path.
pub(super) fn script(dir: &Path) -> Result<PathBuf, FileError> {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join("inputs.sh");
    if std::fs::read(&path).is_ok_and(|text| text == SCRIPT.as_bytes()) {
        return Ok(path);
    }
    std::fs::create_dir_all(dir).map_err(FileError::new("create", dir))?;
    // Others may be running it, so the file is replaced and not written.
    let own = dir.join(format!("inputs.{}", std::process::id()));
    files::write(&own, SCRIPT.as_bytes())?;
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&own, executable).map_err(FileError::new("make executable", &own))?;
    files::publish(&own, &path)?;
    Ok(path)
}

/// What a program consists of.
#[derive(Debug)]
pub struct Inputs {
    /// Directory with the program's own objects.
    kept: PathBuf,
    libraries: Vec<PathBuf>,
}

impl Inputs {
    /// Reads the list that the script has written. `None`: there is none, or the objects have been removed.
    pub(super) fn of(program: &Path) -> Option<Inputs> {
        let text = std::fs::read_to_string(program).ok()?;
        let mut lines = text.lines();
        if lines.next()? != FORMAT {
            return None;
        }
        let kept = PathBuf::from(lines.next()?);
        kept.join(EXPORTS).is_file().then(|| Inputs {
            kept,
            libraries: lines.map(PathBuf::from).collect(),
        })
    }

    /// The module of all that the program can reach, made when it is asked for the first time.
    ///
    /// # Errors
    ///
    /// If a tool fails, a file cannot be read, or the program is too large.
    pub fn join(&self, tools: &Toolchain, bin: &str) -> Result<PreLto, FrontendError> {
        let path = self.link(tools, bin)?;
        let bytes = files::read(&path).map_err(FrontendError::File)?;
        Ok(PreLto { path, bytes })
    }

    fn link(&self, tools: &Toolchain, bin: &str) -> Result<PathBuf, FrontendError> {
        let linked = self.kept.join(LINKED);
        if linked.is_file() {
            return Ok(linked);
        }
        let (modules, exports) = self.modules().map_err(FrontendError::File)?;
        let [all, lean] = ["all.bc", "lean.bc"].map(|name| self.kept.join(name));
        let mut link = clean_command(&tools.link, &self.kept);
        link.arg("-o").arg(&all).args(&modules);
        run_quiet(&mut link).map_err(FrontendError::Optimiser)?;
        let mut opt = clean_command(&tools.opt, &self.kept);
        opt.arg("-passes=internalize,globaldce")
            .arg(format!(
                "-internalize-public-api-list={}",
                exports.join(",")
            ))
            .arg("-o")
            .args([&lean, &all]);
        run_quiet(&mut opt).map_err(FrontendError::Optimiser)?;
        let bitcode = files::read(&lean).map_err(FrontendError::File)?;
        if optimise::concerns(&bitcode) {
            let text = self.kept.join("lean.ll");
            let mut print = clean_command(&tools.opt, &self.kept);
            print
                .args(["-disable-verify", "-passes=verify", "-S", "-o"])
                .args([&text, &lean]);
            run_quiet(&mut print).map_err(FrontendError::Optimiser)?;
            check_size(bin, &text)?;
            let module = files::read(&text).map_err(FrontendError::File)?;
            let module = optimise::prepared(&String::from_utf8_lossy(&module))
                .map_err(FrontendError::Unreadable)?;
            files::write(&text, module.as_bytes()).map_err(FrontendError::File)?;
            assemble(tools, &text, &lean).map_err(FrontendError::Optimiser)?;
            let _ = std::fs::remove_file(&text);
        }
        files::publish(&lean, &linked).map_err(FrontendError::File)?;
        // Copies, many times as large as the module.
        let copies = modules
            .iter()
            .filter(|m| m.extension().is_some_and(|e| e == "bc"));
        for path in copies.chain([&all]) {
            let _ = std::fs::remove_file(path);
        }
        Ok(linked)
    }

    /// Files of bitcode, the program's first, and the names of what the program exports.
    fn modules(&self) -> Result<(Vec<PathBuf>, Vec<String>), FileError> {
        let mut modules = Vec::new();
        let mut exports = Vec::new();
        let mut objects: Vec<PathBuf> = std::fs::read_dir(&self.kept)
            .map_err(FileError::new("read", &self.kept))?
            .filter_map(|e| Some(e.ok()?.path()))
            .filter(|p| p.extension().is_some_and(|e| e == "o"))
            .collect();
        objects.sort();
        for path in objects {
            let bytes = files::read(&path)?;
            if path.file_name().is_some_and(|n| n == EXPORTS) {
                exports = exported(&bytes);
            } else if bytes.starts_with(&BITCODE) {
                modules.push(path);
            }
        }
        for (n, library) in self.libraries.iter().enumerate() {
            let name = library.file_name().map(|n| n.to_string_lossy());
            if name.is_some_and(|n| n.starts_with(BUILTINS)) {
                continue;
            }
            let bytes = files::read(library)?;
            for (m, module) in members(&bytes).into_iter().enumerate() {
                let path = self.kept.join(format!("library{n}-{m}.bc"));
                files::write(&path, module)?;
                modules.push(path);
            }
        }
        Ok((modules, exports))
    }
}

/// What the program exports to the per-ISA stubs. What it exports to the standard library has mangled names, and needs
/// no place of its own.
fn exported(object: &[u8]) -> Vec<String> {
    let Ok(elf) = Elf::parse(object) else {
        return Vec::new();
    };
    let names = elf.syms.iter().filter(|s| s.st_shndx == 0);
    let names = names.filter_map(|s| elf.strtab.get_at(s.st_name));
    let mut names: Vec<String> = names
        .filter(|n| !n.is_empty() && !n.starts_with("_R"))
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// The bitcode in a library.
fn members(library: &[u8]) -> Vec<&[u8]> {
    let Ok(archive) = Archive::parse(library) else {
        return Vec::new();
    };
    (0..archive.len())
        .filter_map(|n| {
            let member = archive.get_at(n)?;
            let start = usize::try_from(member.offset).ok()?;
            bitcode(library.get(start..start.checked_add(member.size())?)?)
        })
        .collect()
}

/// The bitcode of an object.
fn bitcode(object: &[u8]) -> Option<&[u8]> {
    if object.starts_with(&BITCODE) {
        return Some(object);
    }
    let elf = Elf::parse(object).ok()?;
    let section = elf
        .section_headers
        .iter()
        .find(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(".llvmbc"))?;
    object.get(section.file_range()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_list_names_what_a_linker_would_get() {
        let dir = std::env::temp_dir().join(format!("dyad-inputs-{}", std::process::id()));
        files::fresh_dir(&dir).unwrap();
        let path = script(&dir).unwrap();
        assert_eq!(script(&dir).unwrap(), path);
        let program = dir.join("a program");
        assert!(Inputs::of(&program).is_none());
        for object in [EXPORTS, "of it.o"] {
            files::write(&dir.join(object), object.as_bytes()).unwrap();
        }
        let link = |objects: &[&str]| {
            let status = Command::new(&path)
                .args(["-flavor", "gnu"])
                .args(objects.iter().map(|o| dir.join(o)))
                .args(["-Bstatic", "/libs/libone-1.rlib", "-o"])
                .arg(&program)
                .args(["/libs/libtwo-2.rlib", "-O1"])
                .status();
            status.unwrap().success()
        };
        assert!(link(&[EXPORTS, "of it.o"]));
        let inputs = Inputs::of(&program).unwrap();
        let libraries = ["/libs/libone-1.rlib", "/libs/libtwo-2.rlib"].map(PathBuf::from);
        assert_eq!(inputs.libraries, libraries);
        let kept = |name: &str| std::fs::read(inputs.kept.join(name)).ok();
        assert_eq!(kept("of it.o").as_deref(), Some(&b"of it.o"[..]));
        // A later link leaves nothing of an earlier one, and one that fails is no program.
        assert!(link(&[EXPORTS]));
        assert_eq!(kept("of it.o"), None);
        assert!(!link(&["not there.o"]));
        assert!(Inputs::of(&program).is_none());
        // Files of other versions are not read.
        files::write(&program, b"inputs of a link, 0\n/\n").unwrap();
        assert!(Inputs::of(&program).is_none());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn bitcode_is_found_by_itself_only() {
        assert_eq!(
            bitcode(b"BC\xc0\xde and more"),
            Some(&b"BC\xc0\xde and more"[..])
        );
        assert_eq!(bitcode(b"\x7fELF"), None);
        assert_eq!(members(b"!<arch>\n"), Vec::<&[u8]>::new());
        assert_eq!(members(b"no library"), Vec::<&[u8]>::new());
        assert_eq!(exported(b""), Vec::<String>::new());
    }
}
