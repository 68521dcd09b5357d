//! Where in the source an instruction comes from.

use std::collections::HashMap;

/// The locations of a module.
pub(super) struct Places<'a> {
    metadata: HashMap<&'a str, &'a str>,
}

impl<'a> Places<'a> {
    pub fn of(lines: impl Iterator<Item = &'a str>) -> Places<'a> {
        Places {
            metadata: lines
                .filter(|l| l.starts_with('!'))
                .filter_map(|l| l.split_once(" = "))
                .collect(),
        }
    }

    /// File and line of an instruction: of the outermost place, if it was inlined.
    pub fn source(&self, inst: &str) -> Option<String> {
        let (_, rest) = inst.rsplit_once("!dbg ")?;
        let mut at = *self.metadata.get(word(rest))?;
        // Chains of inlined calls are short; a cycle would be a broken module.
        for _ in 0..64 {
            match field(at, "inlinedAt: ") {
                Some(outer) => at = *self.metadata.get(outer)?,
                None => break,
            }
        }
        let line = field(at, "line: ").unwrap_or("0");
        let mut scope = *self.metadata.get(field(at, "scope: ")?)?;
        for _ in 0..64 {
            if let Some(file) = field(scope, "file: ") {
                let file = self.metadata.get(file)?;
                let text = |key| {
                    let (_, rest) = file.split_once(key)?;
                    rest.split('"').next()
                };
                let (name, dir) = (text("filename: \"")?, text("directory: \"").unwrap_or(""));
                return Some(match name.starts_with('/') || dir.is_empty() {
                    true => format!("{name}:{line}"),
                    false => format!("{dir}/{name}:{line}"),
                });
            }
            scope = *self.metadata.get(field(scope, "scope: ")?)?;
        }
        None
    }
}

fn word(text: &str) -> &str {
    let end = text.find([',', ')', ' ']).unwrap_or(text.len());
    &text[..end]
}

fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    Some(word(text.split_once(key)?.1))
}

#[cfg(test)]
mod tests {
    use super::Places;

    #[test]
    fn the_outermost_place_is_named() {
        let module = "!1 = !DILocation(line: 7, column: 3, scope: !2, inlinedAt: !3)\n\
             !2 = !DILexicalBlock(scope: !4, line: 6)\n\
             !3 = distinct !DILocation(line: 42, column: 9, scope: !4)\n\
             !4 = distinct !DISubprogram(name: \"f\", scope: !9, file: !5, line: 40)\n\
             !5 = !DIFile(filename: \"src/main.rs\", directory: \"/app\")\n";
        let places = Places::of(module.lines());
        assert_eq!(
            places.source("call void @f(), !dbg !1").as_deref(),
            Some("/app/src/main.rs:42")
        );
        assert_eq!(places.source("call void @f()"), None);
        assert_eq!(places.source("call void @f(), !dbg !8"), None);
    }
}
