//! A module as functions of blocks of instructions, each still text, and back.

use super::{Kind, Unreadable, lex};
use std::fmt::Write;

/// A module.
pub struct Module {
    /// Lines and functions, in their order.
    pub items: Vec<Item>,
}

/// A part of it.
pub enum Item {
    /// A line outside of functions.
    Line(String),
    /// A function with a body.
    Function(Function),
}

/// A function with a body.
#[derive(Clone)]
pub struct Function {
    /// From `define` to the opening brace.
    pub header: String,
    /// Name, with quotes if it needs them.
    pub name: String,
    /// Its blocks; the first one is the entry.
    pub blocks: Vec<Block>,
}

/// A block.
#[derive(Clone)]
pub struct Block {
    /// Its label, as it is referred to without the sigil.
    pub label: String,
    /// Its instructions; one that is printed on several lines is on one here.
    pub insts: Vec<String>,
}

/// The label that an entry block without one gets.
const ENTRY: &str = "spine.entry";

impl Module {
    /// Reads a module.
    ///
    /// # Errors
    ///
    /// Says which line cannot be read.
    pub fn parse(text: &str) -> Result<Module, Unreadable> {
        let mut items = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if !line.starts_with("define ") {
                items.push(Item::Line(line.to_owned()));
                continue;
            }
            let mut body = Vec::new();
            loop {
                match lines.next() {
                    Some("}") => break,
                    Some(line) => body.push(line),
                    None => return Err(Unreadable::new("", line)),
                }
            }
            items.push(Item::Function(Function::parse(line, &body)?));
        }
        Ok(Module { items })
    }

    /// The lines outside of functions.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.items.iter().filter_map(|i| match i {
            Item::Line(l) => Some(l.as_str()),
            Item::Function(_) => None,
        })
    }

    /// The module's text.
    pub fn print(&self) -> String {
        let mut out = String::new();
        for item in &self.items {
            match item {
                Item::Line(line) => {
                    out.push_str(line);
                    out.push('\n');
                }
                Item::Function(f) => f.print(&mut out),
            }
        }
        out
    }
}

impl Function {
    fn parse(header: &str, body: &[&str]) -> Result<Function, Unreadable> {
        let l = lex(header)?;
        let at = (0..l.tokens.len())
            .find(|i| l.kind(*i) == Some(Kind::Global) && l.is_mark(i + 1, b'('))
            .ok_or_else(|| Unreadable::new("", header))?;
        let name = l.name(at).to_owned();
        let mut function = Function {
            header: header.to_owned(),
            name,
            blocks: Vec::new(),
        };
        // Without a label, the entry block has the number behind those of unnamed arguments.
        let unnamed = l.past_bracket(at + 1).map_or(0, |end| {
            (at..end)
                .filter(|i| l.kind(*i) == Some(Kind::Local))
                .filter(|i| l.name(*i).bytes().all(|b| b.is_ascii_digit()))
                .count()
        });
        let mut implicit = false;
        let mut open: Option<String> = None;
        for line in body {
            let text = line.trim();
            if text.is_empty() || text.starts_with(';') {
                continue;
            }
            if let Some(mut whole) = open.take() {
                whole.push(' ');
                whole.push_str(without_comment(text));
                match text.starts_with(']') {
                    true => function.push(whole),
                    false => open = Some(whole),
                }
                continue;
            }
            if !line.starts_with(' ') {
                let label = label(text).ok_or_else(|| Unreadable::new(&function.name, text))?;
                function.blocks.push(Block {
                    label: label.to_owned(),
                    insts: Vec::new(),
                });
                continue;
            }
            if function.blocks.is_empty() {
                implicit = true;
                function.blocks.push(Block {
                    label: ENTRY.to_owned(),
                    insts: Vec::new(),
                });
            }
            let text = without_comment(text);
            match text.ends_with('[') {
                true => open = Some(text.to_owned()),
                false => function.push(text.to_owned()),
            }
        }
        if open.is_some() || function.blocks.is_empty() {
            return Err(Unreadable::new(&function.name, header));
        }
        if implicit {
            let number = unnamed.to_string();
            for inst in function.blocks.iter_mut().flat_map(|b| &mut b.insts) {
                *inst = rename(inst, |name| (name == number).then(|| ENTRY.to_owned()))?;
            }
        }
        Ok(function)
    }

    /// Whether nothing outside of the program knows of it.
    pub fn is_internal(&self) -> bool {
        let words = self.header.split(' ').take(4);
        words.into_iter().any(|w| w == "internal" || w == "private")
    }

    /// Gives names to the values and blocks that have numbers: those must be in order, which they are
    /// not any more when instructions are moved. No value of a program has such a name: no name of Rust begins with
    /// a dollar sign, and the optimiser puts what it adds behind names.
    ///
    /// # Errors
    ///
    /// If an instruction cannot be read.
    pub fn name_all(&mut self) -> Result<(), Unreadable> {
        let is_number = |n: &str| n.bytes().all(|b| b.is_ascii_digit());
        let new = |n: &str| is_number(n).then(|| format!("${n}"));
        self.header = rename(&self.header, new)?;
        for block in &mut self.blocks {
            if let Some(label) = new(&block.label) {
                block.label = label;
            }
            for inst in &mut block.insts {
                *inst = rename(inst, new)?;
            }
        }
        Ok(())
    }

    fn push(&mut self, inst: String) {
        if let Some(block) = self.blocks.last_mut() {
            block.insts.push(inst);
        }
    }

    fn print(&self, out: &mut String) {
        out.push_str(&self.header);
        out.push('\n');
        for block in &self.blocks {
            let _ = writeln!(out, "{}:", block.label);
            for inst in &block.insts {
                let _ = writeln!(out, "  {inst}");
            }
            out.push('\n');
        }
        out.push_str("}\n");
    }

    /// The instructions of all blocks.
    pub fn insts(&self) -> impl Iterator<Item = &String> {
        self.blocks.iter().flat_map(|b| &b.insts)
    }
}

fn label(text: &str) -> Option<&str> {
    if let Some(rest) = text.strip_prefix('"') {
        let end = rest.find('"')? + 2;
        return text[end..].starts_with(':').then_some(&text[..end]);
    }
    let (name, _) = text.split_once(':')?;
    (!name.is_empty() && !name.contains(' ')).then_some(name)
}

fn without_comment(text: &str) -> &str {
    let mut quoted = false;
    let end = text.bytes().position(|b| {
        quoted ^= b == b'"';
        b == b';' && !quoted
    });
    text[..end.unwrap_or(text.len())].trim_end()
}

/// `inst` with other names for some of the values and blocks it refers to.
///
/// # Errors
///
/// If it cannot be read.
pub fn rename(inst: &str, new: impl Fn(&str) -> Option<String>) -> Result<String, Unreadable> {
    let l = lex(inst)?;
    let mut out = String::with_capacity(inst.len());
    let mut done = 0;
    for i in (0..l.tokens.len()).filter(|i| l.kind(*i) == Some(Kind::Local)) {
        if let Some(name) = new(l.name(i)) {
            let at = &l.tokens[i].at;
            out.push_str(&inst[done..at.start]);
            out.push('%');
            out.push_str(&name);
            done = at.end;
        }
    }
    out.push_str(&inst[done..]);
    Ok(out)
}
