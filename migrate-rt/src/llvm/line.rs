//! The kind of a line.
//!
//! The printer of the pinned LLVM puts every global, attribute group, declaration and function
//! header on a line of its own. Text in quotes is data and is never looked into.

/// What a line is.
pub enum Line<'a> {
    /// The definition of a global variable or an alias.
    Global(Global<'a>),
    /// A function header, with the function's name.
    Define(Option<&'a str>),
    /// The end of a function.
    End,
    /// The declaration of a function.
    Declare,
    /// A group of attributes.
    Attributes,
    /// Inline assembly of the module.
    ModuleAsm,
    /// Something inside a function.
    Body,
    /// A comment, metadata, a type, an empty line.
    Other,
}

impl<'a> Line<'a> {
    /// The kind of a line.
    pub fn of(line: &'a str) -> Line<'a> {
        match line.as_bytes().first() {
            Some(b'@') => Global::of(line).map_or(Line::Other, Line::Global),
            Some(b' ' | b'\t') => Line::Body,
            Some(b'}') => Line::End,
            Some(b'd') if line.starts_with("define ") => Line::Define(function_name(line)),
            Some(b'd') if line.starts_with("declare ") => Line::Declare,
            Some(b'a') if line.starts_with("attributes #") => Line::Attributes,
            Some(b'm') if line.starts_with("module asm ") => Line::ModuleAsm,
            _ => Line::Other,
        }
    }
}

/// The definition of a global variable or an alias: `@name = prefix kind rest`, where the prefix
/// is linkage, visibility and the like.
pub struct Global<'a> {
    line: &'a str,
    /// The name, without quotes.
    pub name: &'a str,
    /// From the first word after `=` to the first word that is not part of the prefix.
    prefix: std::ops::Range<usize>,
}

impl<'a> Global<'a> {
    fn of(line: &'a str) -> Option<Global<'a>> {
        let (name, end) = symbol_at(line, 0)?;
        let start = end + line.get(end..)?.strip_prefix(" = ").map(|_| 3)?;
        let mut at = start;
        for word in line[start..].split(' ') {
            if matches!(word, "global" | "constant" | "alias" | "ifunc") {
                let keep = if word == "ifunc" { at + word.len() } else { at };
                return Some(Global {
                    line,
                    name,
                    prefix: start..keep,
                });
            }
            at += word.len() + 1;
        }
        None
    }

    /// What follows the word `global` or `constant`: the type, then the contents.
    pub fn content(&self) -> Option<&'a str> {
        let rest = self.line.get(self.prefix.end..)?;
        ["global ", "constant "]
            .into_iter()
            .find_map(|kind| rest.strip_prefix(kind))
    }

    /// The words of the prefix.
    pub fn prefix(&self) -> impl Iterator<Item = &'a str> {
        self.line[self.prefix.clone()].split_whitespace()
    }

    /// Writes the definition so that the global keeps an address and a name of its own.
    pub fn without_identity_loss(&self, out: &mut String) {
        out.push_str(&self.line[..self.prefix.start]);
        for word in self.prefix() {
            match word {
                "unnamed_addr" | "local_unnamed_addr" => continue,
                "private" => out.push_str("internal"),
                word => out.push_str(word),
            }
            out.push(' ');
        }
        out.push_str(self.line[self.prefix.end..].trim_start());
    }
}

/// The symbol `@name` or `@"name"` that starts at `at`, and where it ends.
pub fn symbol_at(line: &str, at: usize) -> Option<(&str, usize)> {
    let rest = line.get(at..)?.strip_prefix('@')?;
    if let Some(quoted) = rest.strip_prefix('"') {
        let len = quoted.find('"')?;
        return Some((&quoted[..len], at + len + 3));
    }
    let len = rest.find(|c| !is_name_character(c)).unwrap_or(rest.len());
    Some((&rest[..len], at + 1 + len))
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '-')
}

fn function_name(line: &str) -> Option<&str> {
    symbol_at(line, line.find('@')?).map(|(name, _)| name)
}

/// Whether `line` is the declaration of the function `name`.
pub fn declares(line: &str, name: &str) -> bool {
    matches!(Line::of(line), Line::Declare) && function_name(line) == Some(name)
}

const LAYOUT: &str = "target datalayout = \"";
const TRIPLE: &str = "target triple = \"";

/// Data layout and triple of a module.
pub fn module_target(text: &str) -> (Option<&str>, Option<&str>) {
    let find = |key: &str| {
        text.lines()
            .find_map(|l| l.strip_prefix(key)?.strip_suffix('"'))
    };
    (find(LAYOUT), find(TRIPLE))
}

/// The module with another data layout and triple.
pub fn with_module_target(text: &str, layout: &str, triple: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    for line in text.lines() {
        if line.starts_with(LAYOUT) {
            out.push_str(LAYOUT);
            out.push_str(layout);
            out.push('"');
        } else if line.starts_with(TRIPLE) {
            out.push_str(TRIPLE);
            out.push_str(triple);
            out.push('"');
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    out
}
