//! Tokens of a line of textual IR.
//!
//! The dialect is that of the pinned LLVM's printer. Nothing is guessed: a character that can be no
//! part of it makes the line one that cannot be read, and with it the program one that is refused.

use super::Unreadable;
use std::ops::Range;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// What the token is.
    pub kind: Kind,
    /// Where the token is in the line, quotes and sigils included.
    pub at: Range<usize>,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `%name`
    Local,
    /// `@name`
    Global,
    /// `!name` or `!12`
    Meta,
    /// `#12`, or the name of a debug record
    Attr,
    /// A keyword, a type, a number.
    Word,
    /// `"text"`
    Text,
    /// Any of `()[]{}<>,=*:|!`
    Mark(u8),
}

fn is_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$' | b'-')
}

/// The tokens of a line, one after the other, up to its comment. An error has the place that cannot be read.
struct Tokens<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Tokens<'_> {
    /// The end of the text in quotes that starts at `from`.
    fn quoted(&self, from: usize) -> Result<usize, usize> {
        let len = self.bytes[from + 1..].iter().position(|b| *b == b'"');
        Ok(from + 2 + len.ok_or(from)?)
    }

    /// The end of the name at `from`, which may have the characters `also`.
    fn plain(&self, from: usize, also: &[u8]) -> usize {
        let rest = &self.bytes[from..];
        let len = rest.iter().position(|b| !is_name(*b) && !also.contains(b));
        from + len.unwrap_or(rest.len())
    }

    fn token(&self, at: usize, b: u8) -> Result<(Kind, usize), usize> {
        let next = self.bytes.get(at + 1).copied().unwrap_or(0);
        Ok(match b {
            b'%' | b'@' if next == b'"' => (sigil(b), self.quoted(at + 1)?),
            b'%' | b'@' | b'#' if is_name(next) => (sigil(b), self.plain(at + 1, b"")),
            b'!' if is_name(next) => (Kind::Meta, self.plain(at + 1, b"\\")),
            b'"' => (Kind::Text, self.quoted(at)?),
            b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'<' | b'>' | b',' | b'=' | b'*' | b':'
            | b'|' | b'!' => (Kind::Mark(b), at + 1),
            _ if is_name(b) || b == b'+' => (Kind::Word, self.plain(at, b"+")),
            _ => return Err(at),
        })
    }
}

impl Iterator for Tokens<'_> {
    type Item = Result<Token, usize>;

    fn next(&mut self) -> Option<Result<Token, usize>> {
        let blanks = self.bytes[self.at..].iter();
        self.at += blanks.take_while(|b| matches!(b, b' ' | b'\t')).count();
        let at = self.at;
        let b = *self.bytes.get(at).filter(|b| **b != b';')?;
        let token = self
            .token(at, b)
            .map(|(kind, end)| Token { kind, at: at..end });
        self.at = token.as_ref().map_or(self.bytes.len(), |t| t.at.end);
        Some(token)
    }
}

/// The tokens of a line without its comment. An error has the place that cannot be read.
fn tokens(line: &str) -> Result<Vec<Token>, usize> {
    let bytes = line.as_bytes();
    Tokens { bytes, at: 0 }.collect()
}

/// Reads a line.
///
/// # Errors
///
/// If the line is not in the dialect.
pub fn lex(line: &str) -> Result<Lexed<'_>, Unreadable> {
    let tokens = tokens(line).map_err(|_| Unreadable::new("", line))?;
    Ok(Lexed { line, tokens })
}

/// The type that a text starts with; `None` if it starts with no type, or ends before the type does. What
/// follows the type is not read.
pub fn leading_type(text: &str) -> Option<Lexed<'_>> {
    let bytes = text.as_bytes();
    let mut l = Lexed {
        line: text,
        tokens: Vec::new(),
    };
    let mut depth = 0usize;
    for token in (Tokens { bytes, at: 0 }) {
        let token = token.ok()?;
        let kind = token.kind;
        l.tokens.push(token);
        match kind {
            Kind::Mark(b'(' | b'[' | b'{' | b'<') => depth += 1,
            Kind::Mark(b')' | b']' | b'}' | b'>') => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return l.past_type(0).map(|_| l);
        }
    }
    None
}

fn sigil(b: u8) -> Kind {
    match b {
        b'%' => Kind::Local,
        b'@' => Kind::Global,
        _ => Kind::Attr,
    }
}

/// A line with its tokens.
#[derive(Clone, Debug)]
pub struct Lexed<'a> {
    /// The line.
    pub line: &'a str,
    /// Its tokens.
    pub tokens: Vec<Token>,
}

impl<'a> Lexed<'a> {
    /// The text of token `i`, sigils and quotes included; empty if there is no such token.
    pub fn text(&self, i: usize) -> &'a str {
        self.tokens.get(i).map_or("", |t| &self.line[t.at.clone()])
    }

    /// What token `i` is.
    pub fn kind(&self, i: usize) -> Option<Kind> {
        self.tokens.get(i).map(|t| t.kind)
    }

    /// The name of token `i` without its sigil.
    pub fn name(&self, i: usize) -> &'a str {
        self.text(i).get(1..).unwrap_or("")
    }

    /// Whether token `i` is that punctuation mark.
    pub fn is_mark(&self, i: usize, mark: u8) -> bool {
        self.kind(i) == Some(Kind::Mark(mark))
    }

    /// Whether token `i` is that keyword.
    pub fn is_word(&self, i: usize, word: &str) -> bool {
        self.kind(i) == Some(Kind::Word) && self.text(i) == word
    }

    /// The token behind the bracket that closes the one at `i`.
    pub fn past_bracket(&self, i: usize) -> Option<usize> {
        let mut depth = 0usize;
        for j in i..self.tokens.len() {
            match self.kind(j) {
                Some(Kind::Mark(b'(' | b'[' | b'{' | b'<')) => depth += 1,
                Some(Kind::Mark(b')' | b']' | b'}' | b'>')) => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(j + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The token behind the type that starts at `i`.
    pub fn past_type(&self, i: usize) -> Option<usize> {
        match self.kind(i)? {
            Kind::Mark(b'[' | b'{' | b'<') => self.past_bracket(i),
            Kind::Local => Some(i + 1),
            Kind::Word if is_type(self.text(i)) => match self.is_word(i + 1, "addrspace") {
                true => self.past_bracket(i + 2),
                false => Some(i + 1),
            },
            _ => None,
        }
    }

    /// What is between two tokens, without blanks, so that equal types have equal texts.
    pub fn squeezed(&self, range: Range<usize>) -> String {
        let mut out = String::new();
        for i in range {
            // `[2 x i64]` and `x86_fp80` must not run together.
            if out.ends_with(|c: char| c.is_ascii_alphanumeric())
                && self.kind(i) == Some(Kind::Word)
            {
                out.push(' ');
            }
            out.push_str(self.text(i));
        }
        out
    }

    /// The line's text from the start of token `from` to the end of token `to - 1`.
    pub fn span(&self, from: usize, to: usize) -> &'a str {
        match (self.tokens.get(from), self.tokens.get(to.wrapping_sub(1))) {
            (Some(a), Some(b)) if from < to => &self.line[a.at.start..b.at.end],
            _ => "",
        }
    }
}

/// Whether a word is the name of a type.
fn is_type(word: &str) -> bool {
    let integer = |w: &str| {
        w.strip_prefix('i')
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    integer(word)
        || matches!(
            word,
            "void" | "ptr" | "half" | "bfloat" | "float" | "double" | "fp128" | "metadata"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        let lexed = lex(line).unwrap();
        (0..lexed.tokens.len())
            .map(|i| lexed.text(i).to_owned())
            .collect()
    }

    #[test]
    fn lines_fall_into_tokens() {
        let line = r#"  %"a b" = call fastcc { i64, i1 } @f.1(ptr align 8 %x, i64 -1) #3, !dbg !7 ; note %y"#;
        let all = texts(line);
        assert_eq!(
            all.join(" "),
            r#"%"a b" = call fastcc { i64 , i1 } @f.1 ( ptr align 8 %x , i64 -1 ) #3 , !dbg !7"#
        );
        assert_eq!(texts(r#"store double 0x3FF0000000000000, ptr %p"#).len(), 6);
        assert_eq!(texts("float 1.000000e+00")[1], "1.000000e+00");
        // What is in quotes is never looked into.
        assert_eq!(texts(r#"asm "call @f(%x)", "=r,;""#).len(), 4);
        assert!(lex("store i8 ^, ptr %p").is_err() && lex(r#"%"open"#).is_err());
    }

    #[test]
    fn types_and_brackets_are_found() {
        let line = "[2 x { i64, <4 x float> }] ptr addrspace(257) %T nonnull";
        let l = lex(line).unwrap();
        let end = l.past_type(0).unwrap();
        assert_eq!(l.squeezed(0..end), "[2 x{i64,<4 x float>}]");
        let second = l.past_type(end).unwrap();
        assert_eq!(l.squeezed(end..second), "ptr addrspace(257)");
        let third = l.past_type(second).unwrap();
        assert_eq!(l.past_type(third), None, "an attribute is no type");
    }
    #[test]
    fn a_type_is_read_without_what_follows() {
        let of = |text| leading_type(text).map(|l| l.squeezed(0..l.tokens.len()));
        let packed = "<{ [3 x i8], ptr }> <{ [3 x i8] c\"^\" ...";
        assert_eq!(of(packed).as_deref(), Some("<{[3 x i8],ptr}>"));
        assert_eq!(of("i64 ^").as_deref(), Some("i64"));
        assert_eq!(of("[3 x i8"), None);
        assert_eq!(of("zeroinitializer"), None);
    }
}
