//! Tokens of a line of textual IR.
//!
//! The dialect is that of the pinned LLVM's printer. Nothing is guessed: a character that can be no
//! part of it makes the line one that cannot be read, and with it the program one that is refused.

use std::ops::Range;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub kind: Kind,
    /// Where it is in the line; quotes and sigils included.
    pub at: Range<usize>,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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

/// The tokens of `line`, without its comment. `Err` has the place that cannot be read.
pub(super) fn tokens(line: &str) -> Result<Vec<Token>, usize> {
    let bytes = line.as_bytes();
    let quoted = |from: usize| -> Result<usize, usize> {
        let len = bytes[from + 1..].iter().position(|b| *b == b'"');
        Ok(from + 2 + len.ok_or(from)?)
    };
    let plain = |from: usize, also: &[u8]| {
        let rest = &bytes[from..];
        let len = rest.iter().position(|b| !is_name(*b) && !also.contains(b));
        from + len.unwrap_or(rest.len())
    };
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        let next = bytes.get(at + 1).copied().unwrap_or(0);
        let (kind, end) = match b {
            b' ' | b'\t' => {
                at += 1;
                continue;
            }
            b';' => break,
            b'%' | b'@' if next == b'"' => (sigil(b), quoted(at + 1)?),
            b'%' | b'@' | b'#' if is_name(next) => (sigil(b), plain(at + 1, b"")),
            b'!' if is_name(next) => (Kind::Meta, plain(at + 1, b"\\")),
            b'"' => (Kind::Text, quoted(at)?),
            b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'<' | b'>' | b',' | b'=' | b'*' | b':'
            | b'|' | b'!' => (Kind::Mark(b), at + 1),
            _ if is_name(b) || b == b'+' => (Kind::Word, plain(at, b"+")),
            _ => return Err(at),
        };
        out.push(Token { kind, at: at..end });
        at = end;
    }
    Ok(out)
}

fn sigil(b: u8) -> Kind {
    match b {
        b'%' => Kind::Local,
        b'@' => Kind::Global,
        _ => Kind::Attr,
    }
}

/// A line with its tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lexed<'a> {
    pub line: &'a str,
    pub tokens: &'a [Token],
}

impl<'a> Lexed<'a> {
    /// The text of token `i`, sigils and quotes included; empty if there is no such token.
    pub fn text(&self, i: usize) -> &'a str {
        self.tokens.get(i).map_or("", |t| &self.line[t.at.clone()])
    }

    pub fn kind(&self, i: usize) -> Option<Kind> {
        self.tokens.get(i).map(|t| t.kind)
    }

    /// The name of token `i` without its sigil.
    pub fn name(&self, i: usize) -> &'a str {
        self.text(i).get(1..).unwrap_or("")
    }

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
        let tokens = tokens(line).unwrap();
        let lexed = Lexed {
            line,
            tokens: &tokens,
        };
        (0..tokens.len())
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
        assert!(tokens("store i8 ^, ptr %p").is_err() && tokens(r#"%"open"#).is_err());
    }

    #[test]
    fn types_and_brackets_are_found() {
        let line = "[2 x { i64, <4 x float> }] ptr addrspace(257) %T nonnull";
        let tokens = tokens(line).unwrap();
        let l = Lexed {
            line,
            tokens: &tokens,
        };
        let end = l.past_type(0).unwrap();
        assert_eq!(l.squeezed(0..end), "[2 x{i64,<4 x float>}]");
        let second = l.past_type(end).unwrap();
        assert_eq!(l.squeezed(end..second), "ptr addrspace(257)");
        let third = l.past_type(second).unwrap();
        assert_eq!(l.past_type(third), None, "an attribute is no type");
    }
}
