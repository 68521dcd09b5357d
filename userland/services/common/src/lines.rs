//! Assembly of a client's bytes into whole lines.
//!
//! A client's text comes in pieces. What is written to the device at once should be a line, so that lines of
//! different clients do not mix. A line that is too long is cut.

/// Longest line.
pub const MAX_LINE: usize = 480;

/// The bytes as text: those that are not UTF-8 become question marks.
pub fn printable(bytes: &mut [u8]) -> &str {
    while let Err(e) = core::str::from_utf8(bytes) {
        let from = e.valid_up_to();
        let bad = e.error_len().unwrap_or(bytes.len() - from);
        bytes[from..from + bad].fill(b'?');
    }
    core::str::from_utf8(bytes).unwrap_or("")
}

/// The beginning of a line, waiting for its end.
pub struct LineBuffer {
    text: [u8; MAX_LINE],
    used: usize,
}

impl Default for LineBuffer {
    fn default() -> LineBuffer {
        LineBuffer::new()
    }
}

impl LineBuffer {
    /// Empty.
    pub const fn new() -> LineBuffer {
        LineBuffer {
            text: [0; MAX_LINE],
            used: 0,
        }
    }

    /// Takes bytes; `line` is called with each line that is complete, with its newline.
    pub fn push(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) {
        for &byte in bytes {
            // One place is kept for the newline of a line that has to be cut.
            if self.used == MAX_LINE - 1 && byte != b'\n' {
                self.end(&mut line);
            }
            self.text[self.used] = byte;
            self.used += 1;
            if byte == b'\n' {
                line(&self.text[..self.used]);
                self.used = 0;
            }
        }
    }

    /// Ends the line that has been begun, if one has.
    pub fn flush(&mut self, mut line: impl FnMut(&[u8])) {
        if self.used > 0 {
            self.end(&mut line);
        }
    }

    /// Makes the buffer of a thread that has ended in the middle of [`push`](LineBuffer::push) usable: a line that was
    /// just being written is not written again.
    pub fn repair(&mut self) {
        let used = self.used.min(MAX_LINE);
        let is_whole = self.text[..used].last() == Some(&b'\n');
        self.used = if is_whole || used == MAX_LINE {
            0
        } else {
            used
        };
    }

    fn end(&mut self, line: &mut impl FnMut(&[u8])) {
        self.text[self.used] = b'\n';
        line(&self.text[..=self.used]);
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn nothing_is_lost_and_every_line_is_whole(
            pieces in prop::collection::vec("[ab\n]{0,700}", 0..8)
        ) {
            let mut buffer = LineBuffer::new();
            let mut out: Vec<Vec<u8>> = Vec::new();
            for piece in &pieces {
                buffer.push(piece.as_bytes(), |l| out.push(l.to_vec()));
            }
            buffer.flush(|l| out.push(l.to_vec()));
            for line in &out {
                prop_assert!(line.len() <= MAX_LINE);
                prop_assert_eq!(line.iter().position(|&b| b == b'\n'), Some(line.len() - 1));
            }
            let letters = |text: &[u8]| -> Vec<u8> {
                text.iter().copied().filter(|&b| b != b'\n').collect()
            };
            prop_assert_eq!(letters(&out.concat()), letters(pieces.concat().as_bytes()));
            let newlines = pieces.concat().matches('\n').count();
            prop_assert!(out.len() >= newlines);
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
                buffer.push(&text, |_| {
                    std::panic::resume_unwind(std::boxed::Box::new(()))
                });
            }));
            assert!(ended.is_err());
            buffer.repair();
            let mut out = Vec::new();
            buffer.push(b"whole\n", |l| out.push(l.to_vec()));
            assert_eq!(
                out.last().map(Vec::as_slice),
                Some(&b"whole\n"[..]),
                "{len}"
            );
        }
        // A beginning stays one.
        let mut buffer = LineBuffer::new();
        buffer.push(b"be", |_| {});
        buffer.repair();
        let mut out = Vec::new();
        buffer.push(b"gun\n", |l| out.push(l.to_vec()));
        assert_eq!(out, [b"begun\n".to_vec()]);
    }

    #[test]
    fn the_longest_line_is_not_cut() {
        let mut buffer = LineBuffer::new();
        let mut count = 0;
        let mut text = [b'x'; MAX_LINE];
        text[MAX_LINE - 1] = b'\n';
        buffer.push(&text, |l| {
            assert_eq!(l, text);
            count += 1;
        });
        buffer.flush(|_| count += 1);
        assert_eq!(count, 1);
    }
}
