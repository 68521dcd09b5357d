//! Nodes of metadata: `!4 = distinct !DISubprogram(name: "f", scope: !9, file: !5, line: 40)`.

use std::collections::HashMap;

/// The numbered nodes of a module.
pub struct Metadata<'a>(HashMap<&'a str, &'a str>);

impl<'a> Metadata<'a> {
    /// Collects the nodes from the lines of a module.
    pub fn of(lines: impl Iterator<Item = &'a str>) -> Metadata<'a> {
        let nodes = lines.filter(|l| l.starts_with('!'));
        Metadata(nodes.filter_map(|l| l.split_once(" = ")).collect())
    }

    /// The node of a name such as `!4`.
    pub fn node(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).copied()
    }

    /// All nodes of a kind, such as `!DIFile`, that are not marked as distinct.
    pub fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &'a str> + '_ {
        let nodes = self.0.values().copied();
        nodes.filter(move |node| node.strip_prefix(kind).is_some_and(|r| r.starts_with('(')))
    }

    /// The node that a field of `node` names.
    pub fn follow(&self, node: &'a str, key: &str) -> Option<&'a str> {
        self.node(field(node, key)?)
    }

    /// The node that the debugging location of an instruction or of a header names.
    pub fn debug_location(&self, line: &str) -> Option<&'a str> {
        let (_, rest) = line.rsplit_once("!dbg ")?;
        self.node(word(rest))
    }
}

/// A field of a node that is a number, a keyword or the name of another node.
pub fn field<'t>(node: &'t str, key: &str) -> Option<&'t str> {
    let key = format!("{key}: ");
    Some(word(node.split_once(key.as_str())?.1))
}

/// A field of a node that is in quotes.
pub fn text<'t>(node: &'t str, key: &str) -> Option<&'t str> {
    let key = format!("{key}: \"");
    node.split_once(key.as_str())?.1.split('"').next()
}

fn word(text: &str) -> &str {
    let end = text.find([',', ')', ' ']).unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_fields() {
        let module = "!4 = distinct !DISubprogram(name: \"f, g\", file: !5, line: 40)\n\
                      !5 = !DIFile(filename: \"a.rs\", directory: \"/app\")\n%x = add i64 1, 2\n";
        let nodes = Metadata::of(module.lines());
        let function = nodes.debug_location("define void @f() !dbg !4 {").unwrap();
        assert_eq!(text(function, "name"), Some("f, g"));
        assert_eq!(field(function, "line"), Some("40"));
        assert_eq!(field(function, "column"), None);
        let file = nodes.follow(function, "file").unwrap();
        assert_eq!(text(file, "directory"), Some("/app"));
        assert_eq!(nodes.of_kind("!DIFile").collect::<Vec<_>>(), [file]);
        assert_eq!(nodes.debug_location("call void @f(), !dbg !9"), None);
    }
}
