//! Assembly of a client's bytes into whole lines.
//!
//! A client's text comes in pieces. What is written to the device at once should be a line, so that lines of
//! different clients do not mix. A longer line is written in pieces, which the launcher joins.

use dyad_abi::record::{LAST, MORE, PIECE};
use dyad_abi::user::MAX_WRITE;

use crate::text::Text;

/// Longest head of a piece of a line.
pub const MAX_HEAD: usize = 12;
/// Longest line that is written at once: with its head and its end, it is one system call, so that no other client's
/// line comes in between.
pub const MAX_LINE: usize = MAX_WRITE - MAX_HEAD - 1;

/// The bytes as text: those that are not UTF-8 become question marks.
pub fn printable(bytes: &mut [u8]) -> &str {
    while let Err(e) = core::str::from_utf8(bytes) {
        let from = e.valid_up_to();
        let bad = e.error_len().unwrap_or(bytes.len() - from);
        bytes[from..from + bad].fill(b'?');
    }
    core::str::from_utf8(bytes).unwrap_or("")
}

/// What a piece of text is of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// A piece that others follow.
    More,
    /// The last piece.
    Last,
}

/// A line, or a piece of a line of a stream, as the device gets it. Bytes that are not UTF-8 become question marks, and so do
/// those by which the head of a piece begins: a client cannot write one.
pub fn written<'t>(into: &'t mut [u8; MAX_WRITE], stream: u64, line: &[u8], part: Part) -> &'t str {
    let head: Text<MAX_HEAD> = match part {
        Part::Whole => Text::of(format_args!("")),
        Part::More => Text::of(format_args!("{}{stream}{}", PIECE as char, MORE as char)),
        Part::Last => Text::of(format_args!("{}{stream}{}", PIECE as char, LAST as char)),
    };
    let head = head.as_str().as_bytes();
    let len = line.len().min(MAX_LINE);
    let (begin, rest) = into.split_at_mut(head.len());
    begin.copy_from_slice(head);
    for (to, &byte) in rest.iter_mut().zip(&line[..len]) {
        *to = if byte == PIECE { b'?' } else { byte };
    }
    rest[len] = b'\n';
    printable(&mut into[..head.len() + len + 1])
}

/// The beginning of a line, waiting for its end.
pub struct LineBuffer {
    text: [u8; MAX_LINE],
    used: usize,
    /// Whether pieces of the line have been written.
    is_split: bool,
}

impl Default for LineBuffer {
    fn default() -> LineBuffer {
        LineBuffer::new()
    }
}

/// The length of the bytes without a character at their end of which bytes are missing.
fn whole_characters(bytes: &[u8]) -> usize {
    let last = bytes.iter().rposition(|b| b & 0xc0 != 0x80).unwrap_or(0);
    match core::str::from_utf8(&bytes[last..]) {
        Err(e) if e.error_len().is_none() && last != 0 => last,
        _ => bytes.len(),
    }
}

impl LineBuffer {
    /// Empty.
    pub const fn new() -> LineBuffer {
        LineBuffer {
            text: [0; MAX_LINE],
            used: 0,
            is_split: false,
        }
    }

    /// Takes bytes; `line` is called with each line that is complete, without its newline. A line that is longer
    /// than [`MAX_LINE`] comes in pieces that end at characters.
    pub fn push(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8], Part)) {
        for &byte in bytes {
            if byte == b'\n' {
                self.end(&mut line);
                continue;
            }
            if self.used >= MAX_LINE {
                self.split(&mut line);
            }
            self.text[self.used] = byte;
            self.used += 1;
        }
    }

    /// Ends the line that has been begun, if one has.
    pub fn flush(&mut self, mut line: impl FnMut(&[u8], Part)) {
        if self.used > 0 || self.is_split {
            self.end(&mut line);
        }
    }

    /// Makes the buffer of a thread that has ended in the middle of [`push`](LineBuffer::push) usable.
    pub fn repair(&mut self) {
        self.used = self.used.min(MAX_LINE);
    }

    /// Writes what there is as the end of its line. The buffer is empty before that, so that nothing is written
    /// twice if the thread ends meanwhile.
    fn end(&mut self, line: &mut impl FnMut(&[u8], Part)) {
        let used = core::mem::take(&mut self.used).min(MAX_LINE);
        let part = match core::mem::take(&mut self.is_split) {
            true => Part::Last,
            false => Part::Whole,
        };
        line(&self.text[..used], part);
    }

    /// Writes what there is as a piece of its line, but for the beginning of a character.
    fn split(&mut self, line: &mut impl FnMut(&[u8], Part)) {
        let used = core::mem::take(&mut self.used).min(MAX_LINE);
        self.is_split = true;
        let cut = whole_characters(&self.text[..used]);
        line(&self.text[..cut], Part::More);
        self.text.copy_within(cut..used, 0);
        self.used = used - cut;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::string::String;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn lines_of_any_length_come_whole_and_no_character_is_cut(
            pieces in prop::collection::vec("[aä€😀\n]{0,700}", 0..8),
            chunk in 1usize..600,
        ) {
            let mut buffer = LineBuffer::new();
            let mut out: Vec<String> = Vec::new();
            let mut is_open = false;
            let mut take = |piece: &[u8], part| {
                assert!(piece.len() <= MAX_LINE);
                // Each piece is text by itself.
                let piece = core::str::from_utf8(piece).unwrap();
                assert_eq!(is_open, part == Part::Last || (part == Part::More && is_open));
                match out.last_mut().filter(|_| is_open) {
                    Some(line) => line.push_str(piece),
                    None => out.push(piece.into()),
                }
                is_open = part == Part::More;
            };
            let text = pieces.concat();
            for bytes in text.as_bytes().chunks(chunk) {
                buffer.push(bytes, &mut take);
            }
            buffer.flush(&mut take);
            prop_assert!(!is_open);
            let lines: Vec<String> = text.lines().map(Into::into).collect();
            prop_assert_eq!(out, lines);
        }

        #[test]
        fn bytes_that_are_no_text_are_kept(
            bytes in prop::collection::vec(0x80u8..=0xff, 0..3000)
        ) {
            let mut buffer = LineBuffer::new();
            let mut out = Vec::new();
            buffer.push(&bytes, |piece, _| out.extend_from_slice(piece));
            buffer.flush(|piece, _| out.extend_from_slice(piece));
            prop_assert_eq!(out, bytes);
        }
    }

    /// The text would be joined to the line of another client.
    #[test]
    fn no_client_writes_the_head_of_a_piece() {
        let text = std::format!("{0}7{1}of {0} another", PIECE as char, MORE as char);
        for (part, head) in [
            (Part::Whole, ""),
            (Part::More, "\u{1d}5+"),
            (Part::Last, "\u{1d}5."),
        ] {
            let mut into = [0; MAX_WRITE];
            let is = written(&mut into, 5, text.as_bytes(), part);
            assert_eq!(is, std::format!("{head}?7+of ? another\n"));
        }
    }

    #[test]
    fn what_is_not_text_becomes_question_marks() {
        let mut bytes = *b"a\xffb\xc3\xa4\xf0\x9f\n\xc3";
        assert_eq!(printable(&mut bytes), "a?b\u{e4}??\n?");
        assert_eq!(printable(&mut []), "");
    }

    /// A thread ends while it writes a line, of any length, and another one goes on.
    #[test]
    fn what_a_thread_leaves_in_the_middle_of_a_line_is_usable() {
        for len in [1, 2, 100, MAX_LINE - 1, MAX_LINE, MAX_LINE + 7] {
            let mut buffer = LineBuffer::new();
            let mut text = std::vec![b'x'; len];
            text[len - 1] = b'\n';
            let ended = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
                buffer.push(&text, |_, _| {
                    std::panic::resume_unwind(std::boxed::Box::new(()))
                });
            }));
            assert!(ended.is_err());
            buffer.repair();
            let mut out = Vec::new();
            buffer.push(b"whole\n", |l, _| out.push(l.to_vec()));
            assert_eq!(out, [b"whole"], "{len}");
        }
        // A beginning stays one.
        let mut buffer = LineBuffer::new();
        buffer.push(b"be", |_, _| {});
        buffer.repair();
        let mut out = Vec::new();
        buffer.push(b"gun\n", |l, _| out.push(l.to_vec()));
        assert_eq!(out, [b"begun".to_vec()]);
    }
}
