//! Where in the source an instruction comes from.

use std::collections::HashMap;

/// The locations of a module.
pub(crate) struct Places<'a> {
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
            if field(scope, "file: ").is_some() {
                return self.in_file(scope, line);
            }
            scope = *self.metadata.get(field(scope, "scope: ")?)?;
        }
        None
    }

    /// File and line of an instruction, or of the function that a header is of.
    pub fn of_line(&self, line: &str) -> Option<String> {
        match line.starts_with("define ") {
            true => self.of_function(line),
            false => self.source(line),
        }
    }

    /// File and line of a function, from its header.
    pub fn of_function(&self, header: &str) -> Option<String> {
        let (_, rest) = header.rsplit_once("!dbg ")?;
        let function = *self.metadata.get(word(rest))?;
        self.in_file(function, field(function, "line: ")?)
    }

    /// A line of the file that a scope is in.
    fn in_file(&self, scope: &str, line: &str) -> Option<String> {
        let file = self.metadata.get(field(scope, "file: ")?)?;
        let text = |key| {
            let (_, rest) = file.split_once(key)?;
            rest.split('"').next()
        };
        let (name, dir) = (text("filename: \"")?, text("directory: \"").unwrap_or(""));
        Some(match name.starts_with('/') || dir.is_empty() {
            true => format!("{name}:{line}"),
            false => format!("{dir}/{name}:{line}"),
        })
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
        assert_eq!(
            places
                .of_function("define internal void @f() #1 !dbg !4 {")
                .as_deref(),
            Some("/app/src/main.rs:40")
        );
        assert_eq!(places.of_function("define internal void @f() {"), None);
        assert_eq!(places.source("call void @f()"), None);
        assert_eq!(places.source("call void @f(), !dbg !8"), None);
    }
}
