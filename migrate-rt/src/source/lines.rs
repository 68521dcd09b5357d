//! Where in the source an instruction comes from, by the metadata of textual IR.

use super::{Place, Source};
use crate::llvm::{Line, Metadata, field, text};

/// Chains of scopes and of inlined calls are short; a cycle would be a broken module.
const LONGEST: usize = 64;

/// The locations of a module.
pub(crate) struct Lines<'a> {
    nodes: Metadata<'a>,
}

impl<'a> Lines<'a> {
    pub fn of(lines: impl Iterator<Item = &'a str>) -> Lines<'a> {
        Lines {
            nodes: Metadata::of(lines),
        }
    }

    /// The place of an instruction.
    pub fn of_instruction(&self, inst: &str) -> Option<Place> {
        let mut at = Some(self.nodes.debug_location(inst)?);
        let chain = std::iter::from_fn(|| {
            let location = at?;
            at = self.nodes.follow(location, "inlinedAt");
            self.of_location(location)
        });
        Place::of_chain(chain.take(LONGEST))
    }

    /// The place of an instruction, or of the function that a header is of.
    pub fn of_line(&self, line: &str) -> Option<Place> {
        match Line::of(line) {
            Line::Define(_) => self.of_function(line),
            _ => self.of_instruction(line),
        }
    }

    /// The place of a function, from its header.
    pub fn of_function(&self, header: &str) -> Option<Place> {
        let function = self.nodes.debug_location(header)?;
        let at = self.in_file(function, field(function, "line")?)?;
        Some(Place { at, used_at: None })
    }

    /// Files of the crates' roots, by the crate's name.
    pub fn roots(&self) -> impl Iterator<Item = (&'a str, String)> + '_ {
        self.nodes.of_kind("!DIFile").filter_map(|file| {
            // PATH/@/CRATE.HASH-cgu.N
            let (dir, name) = file_name(file)?;
            let (root, unit) = name.split_once("/@/")?;
            Some((unit.split_once('.')?.0, joined(dir, root)))
        })
    }

    fn of_location(&self, location: &'a str) -> Option<Source> {
        let line = field(location, "line").unwrap_or("0");
        let mut scope = self.nodes.follow(location, "scope")?;
        for _ in 0..LONGEST {
            if field(scope, "file").is_some() {
                return self.in_file(scope, line);
            }
            scope = self.nodes.follow(scope, "scope")?;
        }
        None
    }

    /// A line of the file that a scope is in.
    fn in_file(&self, scope: &'a str, line: &str) -> Option<Source> {
        let (dir, name) = file_name(self.nodes.follow(scope, "file")?)?;
        Some(Source {
            file: joined(dir, name),
            line: line.parse().ok()?,
        })
    }
}

/// Directory and name of a file.
fn file_name(node: &str) -> Option<(&str, &str)> {
    Some((
        text(node, "directory").unwrap_or(""),
        text(node, "filename")?,
    ))
}

fn joined(dir: &str, name: &str) -> String {
    match name.starts_with('/') || dir.is_empty() {
        true => name.to_owned(),
        false => format!("{dir}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    const MODULE: &str = "!1 = !DILocation(line: 7, column: 3, scope: !2, inlinedAt: !3)\n\
         !2 = !DILexicalBlock(scope: !4, line: 6)\n\
         !3 = distinct !DILocation(line: 42, column: 9, scope: !4)\n\
         !4 = distinct !DISubprogram(name: \"f\", scope: !9, file: !5, line: 40)\n\
         !5 = !DIFile(filename: \"src/main.rs\", directory: \"/app\")\n\
         !6 = !DILocation(line: 12, column: 3, scope: !7, inlinedAt: !1)\n\
         !7 = distinct !DISubprogram(name: \"g\", scope: !9, file: !8, line: 11)\n\
         !8 = !DIFile(filename: \"/rustc/1/library/core/src/hint.rs\", directory: \"/rustc/1\")\n\
         !10 = !DIFile(filename: \"src/main.rs/@/app.8c1d-cgu.0\", directory: \"/app\")\n";

    #[test]
    fn the_innermost_own_place_is_named() {
        let lines = Lines::of(MODULE.lines());
        let of = |inst: &str| lines.of_instruction(inst).map(|p| p.to_string());
        assert_eq!(
            of("call void @f(), !dbg !1").as_deref(),
            Some("/app/src/main.rs:7")
        );
        assert_eq!(
            of("call void @f(), !dbg !6").as_deref(),
            Some("/rustc/1/library/core/src/hint.rs:12, used at /app/src/main.rs:7")
        );
        assert_eq!(of("call void @f()"), None);
        assert_eq!(of("call void @f(), !dbg !9"), None);
        let header = "define internal void @f() #1 !dbg !4 {";
        let function = lines.of_function(header).map(|p| p.to_string());
        assert_eq!(function.as_deref(), Some("/app/src/main.rs:40"));
        assert_eq!(lines.of_function("define internal void @f() {"), None);
    }

    #[test]
    fn crates_have_roots() {
        let lines = Lines::of(MODULE.lines());
        let roots: Vec<_> = lines.roots().collect();
        assert_eq!(roots, [("app", "/app/src/main.rs".to_owned())]);
    }
}
