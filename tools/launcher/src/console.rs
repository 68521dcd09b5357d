//! Reading consoles: from bytes of a serial line to log lines, records and raw text.
//!
//! The form is defined in [`dyad_abi::record`]. Anything that does not have it is raw text and is
//! kept: firmware, a kernel that has not got so far, a line damaged by a dying machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dyad_abi::record::{LAST, LOG, Level, MORE, PIECE, RECORD};
use dyad_abi::service::program;
use serde::Deserialize;

/// Longest line kept together; longer ones are split.
const MAX_LINE: usize = 64 * 1024;
/// Most bytes of a line that is joined of pieces.
const MAX_JOINED: usize = 1 << 20;
/// Most bytes of all lines of a console that have begun and not ended.
const MAX_HELD: usize = 8 << 20;
/// Most lines of a console that have begun and not ended; a piece of another one is a line of its own.
const MAX_STREAMS: usize = 1024;

/// One line of a console.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A log line.
    Log {
        /// CPU that wrote it.
        cpu: u32,
        /// Fused time in nanoseconds.
        ns: u64,
        /// Importance.
        level: Level,
        /// What it says.
        text: String,
    },
    /// A piece of a log line; see [`Joiner`].
    Piece {
        /// The stream that it belongs to.
        stream: u64,
        /// Whether it is the last one of its line.
        is_last: bool,
        /// The log line.
        line: Box<Line>,
    },
    /// A record.
    Record(Record),
    /// Anything else.
    Raw(String),
}

/// A record, as [`dyad_abi::record`] lists them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Record {
    /// Boot progress.
    Phase {
        /// What the node is doing.
        name: String,
    },
    /// A check of this run.
    Check {
        /// Its name.
        name: String,
        /// Whether it passed.
        ok: bool,
        /// More about it.
        #[serde(default)]
        detail: String,
        /// The program that has reported it.
        #[serde(default)]
        program: Option<u64>,
    },
    /// A counter; the run's value is the sum over nodes.
    Counter {
        /// Its name.
        name: String,
        /// To be added.
        value: u64,
        /// The program that has reported it.
        #[serde(default)]
        program: Option<u64>,
    },
    /// A kernel panic.
    Panic {
        /// CPU.
        cpu: u32,
        /// Message.
        message: String,
        /// Where in the source.
        #[serde(default)]
        location: String,
    },
    /// A backtrace.
    Backtrace {
        /// CPU.
        cpu: u32,
        /// `kernel` or `user`.
        what: String,
        /// Addresses in hexadecimal, innermost first.
        pcs: Vec<String>,
    },
    /// What a CPU was doing when it was asked.
    Status {
        /// CPU.
        cpu: u32,
        /// What it was doing.
        doing: String,
    },
    /// Progress of an in-kernel test.
    Ktest {
        /// Its name.
        name: String,
        /// `start`, `ok`, `failed` or `skipped`.
        state: String,
        /// More about it.
        #[serde(default)]
        detail: String,
    },
    /// The node is about to exit.
    Exit {
        /// Exit code.
        code: u32,
        /// Why.
        #[serde(default)]
        reason: String,
    },
}

impl Record {
    /// Reads a record. Its texts are [escaped](escape).
    fn decode(bytes: &[u8]) -> Option<Record> {
        let mut record: Record = serde_json::from_slice(bytes).ok()?;
        let texts: &mut [&mut String] = match &mut record {
            Record::Phase { name } | Record::Counter { name, .. } => &mut [name],
            Record::Check { name, detail, .. } => &mut [name, detail],
            Record::Panic {
                message, location, ..
            } => &mut [message, location],
            Record::Backtrace { what, .. } => &mut [what],
            Record::Status { doing, .. } => &mut [doing],
            Record::Ktest {
                name,
                state,
                detail,
            } => &mut [name, state, detail],
            Record::Exit { reason, .. } => &mut [reason],
        };
        for text in texts {
            **text = escape(text);
        }
        Some(record)
    }

    /// The program beside the program, if it has reported this check or counter.
    pub fn beside(&self) -> Option<u64> {
        match self {
            Record::Check { program, .. } | Record::Counter { program, .. } => {
                program.filter(|&p| p > program::FIRST)
            }
            _ => None,
        }
    }

    /// The addresses of a backtrace; what is no address is left out.
    pub fn addresses(pcs: &[String]) -> Vec<u64> {
        pcs.iter()
            .filter_map(|p| u64::from_str_radix(p.trim_start_matches("0x"), 16).ok())
            .collect()
    }
}

impl Line {
    /// Reads one line (without its line end). What precedes the first control byte, if anything,
    /// is raw text of its own.
    pub fn decode(bytes: &[u8]) -> Vec<Line> {
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let start = bytes
            .iter()
            .position(|&b| b == LOG || b == RECORD)
            .unwrap_or(bytes.len());
        let (raw, framed) = bytes.split_at(start);
        let mut lines = Vec::new();
        if !raw.is_empty() {
            lines.push(Line::Raw(printable(raw)));
        }
        if let Some((&kind, rest)) = framed.split_first() {
            let line = if kind == LOG {
                Line::log(rest)
            } else {
                Record::decode(rest).map(Line::Record)
            };
            lines.push(line.unwrap_or_else(|| Line::Raw(printable(rest))));
        }
        lines
    }

    fn log(bytes: &[u8]) -> Option<Line> {
        // The head of a piece is in front of the text.
        let at = bytes.splitn(4, |&b| b == b' ').nth(3).unwrap_or_default();
        if let Some(piece) = at.strip_prefix(&[PIECE]) {
            let end = piece.iter().position(|&b| b == MORE || b == LAST)?;
            let stream = std::str::from_utf8(&piece[..end]).ok()?.parse().ok()?;
            let head = &bytes[..bytes.len() - at.len()];
            return Some(Line::Piece {
                stream,
                is_last: piece[end] == LAST,
                line: Box::new(Line::log(&[head, &piece[end + 1..]].concat())?),
            });
        }
        let text = printable(bytes);
        let mut parts = text.splitn(4, ' ');
        let cpu = parts.next()?.parse().ok()?;
        let ns = parts.next()?.parse().ok()?;
        let mut letters = parts.next()?.chars();
        let level = Level::from_letter(letters.next()?)?;
        if letters.next().is_some() {
            return None;
        }
        let text = parts.next().unwrap_or_default().to_string();
        Some(Line::Log {
            cpu,
            ns,
            level,
            text,
        })
    }
}

/// Joins the pieces of long lines.
///
/// What a guest prints without an end of line is held here until the end comes, so there are bounds: `MAX_JOINED` for a
/// line, `MAX_HELD` for all lines together, `MAX_STREAMS` for their number. What is beyond is left out of the line, and
/// a mark at its end says how many bytes that were.
#[derive(Debug, Default)]
pub struct Joiner {
    begun: BTreeMap<u64, Begun>,
    /// Bytes of text of all lines that have begun.
    held: usize,
}

/// A line of which the last piece has not come.
#[derive(Debug)]
struct Begun {
    line: Line,
    /// Bytes that are left out.
    omitted: u64,
}

impl Begun {
    fn text(&mut self) -> Option<&mut String> {
        match &mut self.line {
            Line::Log { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The line, with the mark if anything was left out.
    fn end(mut self) -> Line {
        let omitted = self.omitted;
        if omitted > 0
            && let Some(text) = self.text()
        {
            // Writing to a string does not fail.
            let _ = write!(text, " [... {omitted} bytes left out]");
        }
        self.line
    }
}

impl Joiner {
    /// Takes a line, and returns it if it is whole: a line in pieces is with its last one. CPU and time are those
    /// of the first.
    pub fn join(&mut self, line: Line) -> Option<Line> {
        let Line::Piece {
            stream,
            is_last,
            line,
        } = line
        else {
            return Some(line);
        };
        let (mut begun, more) = match (self.begun.remove(&stream), *line) {
            (Some(begun), Line::Log { text, .. }) => (begun, text),
            (None, mut line) => {
                let text = match &mut line {
                    Line::Log { text, .. } => std::mem::take(text),
                    _ => String::new(),
                };
                (Begun { line, omitted: 0 }, text)
            }
            // No piece has anything else in it.
            (Some(begun), line) => {
                self.begun.insert(stream, begun);
                return Some(line);
            }
        };
        let before = begun.text().map_or(0, |t| t.len());
        self.held -= before;
        let room = (MAX_JOINED - before).min(MAX_HELD - self.held - before);
        let fits = more.floor_char_boundary(room);
        if let Some(text) = begun.text() {
            text.push_str(&more[..fits]);
        }
        begun.omitted += (more.len() - fits) as u64;
        if is_last || self.begun.len() >= MAX_STREAMS {
            return Some(begun.end());
        }
        self.put(stream, begun);
        None
    }

    fn put(&mut self, stream: u64, mut begun: Begun) {
        self.held += begun.text().map_or(0, |t| t.len());
        self.begun.insert(stream, begun);
    }

    /// The lines that have not been ended when the console closes.
    pub fn finish(&mut self) -> impl Iterator<Item = Line> + use<> {
        self.held = 0;
        std::mem::take(&mut self.begun)
            .into_values()
            .map(Begun::end)
    }
}

/// Text that cannot confuse a terminal, from bytes.
pub fn printable(bytes: &[u8]) -> String {
    escape(&String::from_utf8_lossy(bytes).replace('\r', ""))
}

/// The text as one line that shows what is in it: what could move the cursor, begin a line, or show
/// characters in another order is written as an escape sequence of Rust.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out.push(c),
            c if c.is_control() || is_format(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// Whether a character separates lines, changes the direction of text, or is an invisible tag.
fn is_format(c: char) -> bool {
    matches!(
        c,
        '\u{61c}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Collects bytes into lines.
#[derive(Debug, Default)]
pub struct Splitter {
    partial: Vec<u8>,
}

impl Splitter {
    /// Adds bytes; `each` gets every line that is complete.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for part in bytes.split_inclusive(|&b| b == b'\n') {
            self.partial.extend_from_slice(part);
            let complete = self.partial.strip_suffix(b"\n");
            if let Some(line) = complete {
                each(line);
                self.partial.clear();
            } else if self.partial.len() >= MAX_LINE {
                each(&self.partial);
                self.partial.clear();
            }
        }
    }

    /// What is left when the console closes.
    pub fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            each(&self.partial);
            self.partial.clear();
        }
    }
}

#[cfg(test)]
mod tests;
