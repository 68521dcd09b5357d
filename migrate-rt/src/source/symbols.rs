//! Where a symbol is defined.
//!
//! Functions have a line in the module's metadata. Statics have none: programs are compiled with line
//! tables only, and the rest of debugging information would make every build slower for the sake of
//! messages. But a symbol has the path of its item, units of compilation name the roots of their crates, and
//! modules are files with known names, so the definition is looked up in the source.

use super::{Lines, Place, Source};
use crate::llvm::Line;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The symbols of a module.
pub(crate) struct Symbols<'a> {
    ir: &'a str,
    lines: Lines<'a>,
    /// Roots of crates, by name.
    roots: BTreeMap<&'a str, PathBuf>,
}

impl<'a> Symbols<'a> {
    pub fn of(ir: &'a str) -> Symbols<'a> {
        let lines = Lines::of(ir.lines());
        let roots = lines.roots().map(|(name, root)| (name, root.into()));
        let roots = roots.collect();
        Symbols { ir, lines, roots }
    }

    /// The place of an instruction, of the function that a header is of, or of the static that a line
    /// defines.
    pub fn of_line(&self, line: &str) -> Option<Place> {
        match Line::of(line) {
            Line::Global(global) => self.place(global.name),
            _ => self.lines.of_line(line),
        }
    }

    /// Where it is defined, if that can be found.
    pub fn place(&self, symbol: &str) -> Option<Place> {
        let is_header =
            |line: &&str| matches!(Line::of(line), Line::Define(Some(name)) if name == symbol);
        if let Some(header) = self.ir.lines().find(is_header) {
            return self.lines.of_function(header);
        }
        let at = self.of_static(&crate::demangle(symbol))?;
        Some(Place { at, used_at: None })
    }

    /// Looks a static up by its path.
    fn of_static(&self, path: &str) -> Option<Source> {
        // Passes append numbers.
        let path = path.split('.').next()?;
        let (modules, name) = match path.rsplit_once("::") {
            Some((modules, name)) => (modules, name),
            // Its name is not mangled: any crate of the program can have it.
            None => {
                let mut roots = self.roots.values();
                return roots.find_map(|root| in_crate(root, path));
            }
        };
        // What is in a function or an implementation is in the file of that.
        let modules = modules.split(['<', '{']).next()?.trim_end_matches(':');
        let modules: Vec<&str> = modules.split("::").collect();
        let (of, modules) = modules.split_first()?;
        let root = self.roots.get(of)?;
        let dir = root.parent()?;
        (0..=modules.len()).rev().find_map(|n| {
            let module = modules[..n].join("/");
            let files = match n {
                0 => vec![root.clone()],
                _ => vec![
                    dir.join(format!("{module}.rs")),
                    dir.join(module).join("mod.rs"),
                ],
            };
            let scope = modules.get(n..).and_then(|rest| rest.last());
            let mut files = files.iter();
            files.find_map(|file| in_file(file, scope.copied(), name))
        })
    }
}

/// Looks a static up in all files of a crate, if it is one of the program itself.
fn in_crate(root: &Path, name: &str) -> Option<Source> {
    let own = Source {
        file: root.to_str()?.to_owned(),
        line: 1,
    };
    let mut dirs = vec![root.parent()?.to_path_buf()];
    while let Some(dir) = dirs.pop().filter(|_| own.is_own()) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs")
                && let Some(found) = in_file(&path, None, name)
            {
                return Some(found);
            }
        }
    }
    None
}

/// Looks a static up in a file: the first one behind the header of its function or inline module, or the
/// first one.
fn in_file(file: &Path, scope: Option<&str>, name: &str) -> Option<Source> {
    let text = std::fs::read_to_string(file).ok()?;
    let defines = |line: &str| {
        let words = |keyword: &str, name: &str| {
            let (before, after) = line.split_once(keyword)?;
            let after = after.strip_prefix("mut ").unwrap_or(after);
            let rest = after.strip_prefix(name)?;
            let ends = !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            (ends && !before.contains("//") && !before.contains('"')).then_some(())
        };
        let begins = |scope: &str| words("fn ", scope).or_else(|| words("mod ", scope));
        (
            words("static ", name).is_some(),
            scope.is_some_and(|s| begins(s).is_some()),
        )
    };
    let mut first = None;
    let mut inside = scope.is_none();
    for (n, line) in (1..).zip(text.lines()) {
        let (is_static, begins) = defines(line);
        inside |= begins;
        if is_static {
            first.get_or_insert(n);
            if inside {
                first = Some(n);
                break;
            }
        }
    }
    Some(Source {
        file: file.to_str()?.to_owned(),
        line: first?,
    })
}

#[cfg(test)]
mod tests {
    use super::Symbols;
    use std::path::Path;

    /// Finds a path in a crate of these files.
    fn found(name: &str, files: &[(&str, &str)], path: &str) -> Option<String> {
        let dir = std::env::temp_dir().join(format!("migrate-rt-{name}-{}", std::process::id()));
        for (file, text) in files {
            let file = dir.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let ir = format!(
            "!1 = !DIFile(filename: \"src/main.rs/@/app.8c1d-cgu.0\", directory: \"{}\")\n",
            dir.display()
        );
        let found = Symbols::of(&ir).of_static(path);
        std::fs::remove_dir_all(&dir).unwrap();
        let short = |file: &str| {
            Path::new(file)
                .strip_prefix(&dir)
                .map(|f| f.display().to_string())
        };
        found.map(|s| format!("{}:{}", short(&s.file).unwrap(), s.line))
    }

    #[test]
    fn statics_are_found_by_their_path() {
        let files = [
            (
                "src/main.rs",
                "mod a;\n// static TOP: u8\nstatic TOPS: u8 = 1;\npub static TOP: u8 = 1;\n",
            ),
            (
                "src/a.rs",
                "mod b;\nmod inline {\n    static mut IN: u8 = 0;\n}\nfn f() {\n    static IN: u8 = 0;\n}\n",
            ),
            (
                "src/a/b/mod.rs",
                "static\tODD: u8 = 0;\n\nstatic DEEP: u8 = 0;\n",
            ),
        ];
        let cases = [
            ("app::TOP", Some("src/main.rs:4")),
            ("app::TOP.0", Some("src/main.rs:4")),
            ("app::a::inline::IN", Some("src/a.rs:3")),
            ("app::a::f::IN", Some("src/a.rs:6")),
            ("app::a::f::{closure#0}::IN", Some("src/a.rs:6")),
            ("app::a::b::DEEP", Some("src/a/b/mod.rs:3")),
            ("app::a::b::NONE", None),
            ("other::TOP", None),
            ("DEEP", Some("src/a/b/mod.rs:3")),
        ];
        for (n, (path, want)) in cases.into_iter().enumerate() {
            let found = found(&format!("statics-{n}"), &files, path);
            assert_eq!(found.as_deref(), want, "{path}");
        }
    }

    #[test]
    fn functions_have_a_line_of_their_own() {
        let ir = "define internal void @f(ptr %x) #1 !dbg !4 {\n\
             define void @g() #1 !dbg !6 {\n\
             !4 = distinct !DISubprogram(name: \"f\", scope: !9, file: !5, line: 40)\n\
             !6 = distinct !DISubprogram(name: \"g\", scope: !9, file: !5, line: 50)\n\
             !5 = !DIFile(filename: \"src/main.rs\", directory: \"/app\")\n";
        let symbols = Symbols::of(ir);
        let place = |name| symbols.place(name).map(|p| p.to_string());
        assert_eq!(place("g").as_deref(), Some("/app/src/main.rs:50"));
        assert_eq!(place("h"), None);
    }
}
