//! Console output: log lines, records, output of programs.
//!
//! Lines are built in a buffer and written whole under a lock of the node, so that lines of different CPUs do
//! not mix. The lock is taken with a bound: a CPU that died holding it (a panic inside the console) must not
//! silence the others. [`dyad_abi::record`] defines the form of lines.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use dyad_abi::record::{LOG, Level, PIECE, RECORD};
use spin::Mutex;

use crate::Platform;
use crate::clock;

/// Longest line; longer ones are cut and marked.
const LINE: usize = 1000;

/// A line that is being built, with room for the mark of a cut and the newline.
struct Line {
    bytes: [u8; LINE + 8],
    len: usize,
    cut: bool,
}

impl Line {
    const fn new() -> Line {
        Line {
            bytes: [0; LINE + 8],
            len: 0,
            cut: false,
        }
    }

    fn push(&mut self, b: u8) {
        if self.len < LINE {
            self.bytes[self.len] = b;
            self.len += 1;
        } else {
            self.cut = true;
        }
    }

    /// Appends both bytes, or none.
    fn push_pair(&mut self, pair: [u8; 2]) {
        match self.bytes[..LINE].get_mut(self.len..self.len + 2) {
            Some(room) => {
                room.copy_from_slice(&pair);
                self.len += 2;
            }
            None => self.cut = true,
        }
    }

    fn finish(&mut self) -> &[u8] {
        if self.cut {
            self.bytes[self.len..self.len + 3].copy_from_slice(b"...");
            self.len += 3;
        }
        self.bytes[self.len] = b'\n';
        &self.bytes[..=self.len]
    }
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for b in s.bytes() {
            // A newline inside a message would start an unframed line.
            self.push(if b < 0x20 && b != b'\t' { b' ' } else { b });
        }
        Ok(())
    }
}

/// The lock of the console. It is no mutex, because a waiter must be able to give up.
static BUSY: AtomicBool = AtomicBool::new(false);
/// Longest wait for the lock: far longer than a line takes.
const PATIENCE_NS: u64 = 200_000_000;

/// Writes a line, whole if the lock is free in time. Otherwise the lock's owner has most likely died: the
/// line is written all the same, and the lock is left alone.
fn put<P: Platform>(bytes: &[u8]) {
    let start = P::clock_ns();
    let mut held = true;
    while BUSY
        .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        if P::clock_ns().wrapping_sub(start) > PATIENCE_NS {
            held = false;
            break;
        }
        P::relax();
    }
    P::serial_write(bytes);
    if held {
        BUSY.store(false, Ordering::Release);
    }
}

/// Writes one log line.
pub fn log<P: Platform>(level: Level, text: fmt::Arguments<'_>) {
    let mut line = Line::new();
    line.push(LOG);
    let _ = write!(
        line,
        "{} {} {} {}",
        P::cpu(),
        clock::now::<P>().0,
        level.letter(),
        text
    );
    put::<P>(line.finish());
}

/// Logs at level Info.
#[macro_export]
macro_rules! info {
    ($P:ty, $($arg:tt)*) => {
        $crate::console::log::<$P>(dyad_abi::record::Level::Info, format_args!($($arg)*))
    };
}
/// Logs at level Debug.
#[macro_export]
macro_rules! debug {
    ($P:ty, $($arg:tt)*) => {
        $crate::console::log::<$P>(dyad_abi::record::Level::Debug, format_args!($($arg)*))
    };
}
/// Logs at level Warn.
#[macro_export]
macro_rules! warn {
    ($P:ty, $($arg:tt)*) => {
        $crate::console::log::<$P>(dyad_abi::record::Level::Warn, format_args!($($arg)*))
    };
}
/// Logs at level Error.
#[macro_export]
macro_rules! error {
    ($P:ty, $($arg:tt)*) => {
        $crate::console::log::<$P>(dyad_abi::record::Level::Error, format_args!($($arg)*))
    };
}

/// How many reports caused by programs a node writes at once.
pub const BURST: u64 = 64;
/// Time after which one more report may be written.
pub const INTERVAL_NS: u64 = 50_000_000;

/// A token bucket that limits the reports of a node. Reports without a token are counted, and the count is
/// printed with the next report, or when the node ends.
#[derive(Debug)]
pub struct Budget {
    tokens: u64,
    /// The time of the last token.
    since: u64,
    left_out: u64,
}

impl Budget {
    /// A full bucket.
    pub const fn new() -> Budget {
        Budget {
            tokens: BURST,
            since: 0,
            left_out: 0,
        }
    }

    /// Takes a token, at a time in nanoseconds. `Some(n)`: the report may be written, and `n` reports were
    /// left out before it.
    pub fn take(&mut self, now: u64) -> Option<u64> {
        let come = now.wrapping_sub(self.since) / INTERVAL_NS;
        // Also if time has gone back: joining sets the clock.
        self.tokens = self.tokens.saturating_add(come).min(BURST);
        if come != 0 {
            self.since = now;
        }
        match self.tokens.checked_sub(1) {
            Some(tokens) => {
                self.tokens = tokens;
                Some(core::mem::take(&mut self.left_out))
            }
            None => {
                self.left_out += 1;
                None
            }
        }
    }

    /// Returns how many reports were left out since the last call, and resets the count.
    pub fn left_out(&mut self) -> u64 {
        core::mem::take(&mut self.left_out)
    }
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new()
    }
}

/// The report budget of this node.
static REPORTS: Mutex<Budget> = Mutex::new(Budget::new());

/// Whether this node may write one more report that a program has caused. If not, the report is counted.
pub fn may_report<P: Platform>() -> bool {
    let taken = REPORTS.lock().take(P::clock_ns());
    if let Some(n @ 1..) = taken {
        say_left_out::<P>(n);
    }
    taken.is_some()
}

/// Prints how many reports were left out since this was last printed.
pub fn flush_reports<P: Platform>() {
    let n = REPORTS.lock().left_out();
    if n != 0 {
        say_left_out::<P>(n);
    }
}

fn say_left_out<P: Platform>(n: u64) {
    log::<P>(
        Level::Warn,
        format_args!("{n} reports were left out: there were too many"),
    );
}

/// Logs a line that a program, or a message of another node, can cause any number of times, within the node's
/// budget.
pub fn log_limited<P: Platform>(level: Level, text: fmt::Arguments<'_>) {
    if may_report::<P>() {
        log::<P>(level, text);
    }
}

/// A member of a record.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// A text.
    Text(fmt::Arguments<'a>),
    /// A number.
    Number(u64),
    /// A truth value.
    Bool(bool),
    /// An array of addresses, as hexadecimal texts.
    Addresses(&'a [u64]),
}

/// A JSON string inside a line. Control bytes other than a newline become spaces, because they could end the
/// record or begin another one.
struct Escaped<'a>(&'a mut Line);

impl Write for Escaped<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for b in s.bytes() {
            match b {
                b'"' | b'\\' => self.0.push_pair([b'\\', b]),
                b'\n' => self.0.push_pair([b'\\', b'n']),
                0..0x20 => self.0.push(b' '),
                _ => self.0.push(b),
            }
        }
        Ok(())
    }
}

/// Writes one record: `{"type":kind, ...members}`.
pub fn record<P: Platform>(kind: &str, members: &[(&str, Value<'_>)]) {
    let mut line = Line::new();
    line.push(RECORD);
    let _ = write!(line, "{{\"type\":\"{kind}\"");
    for (name, value) in members {
        let _ = write!(line, ",\"{name}\":");
        match value {
            Value::Text(t) => {
                line.push(b'"');
                let _ = Escaped(&mut line).write_fmt(*t);
                line.push(b'"');
            }
            Value::Number(n) => {
                let _ = write!(line, "{n}");
            }
            Value::Bool(b) => {
                let _ = write!(line, "{b}");
            }
            Value::Addresses(list) => {
                line.push(b'[');
                for (i, a) in list.iter().enumerate() {
                    let _ = write!(line, "{}\"{a:#x}\"", if i == 0 { "" } else { "," });
                }
                line.push(b']');
            }
        }
    }
    line.push(b'}');
    put::<P>(line.finish());
}

/// Records that the node has reached a boot phase.
pub fn phase<P: Platform>(name: &str) {
    record::<P>("phase", &[("name", Value::Text(format_args!("{name}")))]);
}

/// Records a check of this run.
pub fn check<P: Platform>(name: impl fmt::Display, ok: bool, detail: fmt::Arguments<'_>) {
    check_of::<P>(0, name, ok, detail);
}

/// Records a check that a program has reported; program 0 is the kernel.
pub fn check_of<P: Platform>(
    program: u64,
    name: impl fmt::Display,
    ok: bool,
    detail: fmt::Arguments<'_>,
) {
    let members = [
        ("name", Value::Text(format_args!("{name}"))),
        ("ok", Value::Bool(ok)),
        ("detail", Value::Text(detail)),
        ("program", Value::Number(program)),
    ];
    record::<P>("check", &members[..3 + usize::from(program != 0)]);
}

/// Records a counter; the run's counter is the sum over all records of that name.
pub fn counter<P: Platform>(name: impl fmt::Display, value: u64) {
    counter_of::<P>(0, name, value);
}

/// Records a counter that a program has reported; program 0 is the kernel.
pub fn counter_of<P: Platform>(program: u64, name: impl fmt::Display, value: u64) {
    let members = [
        ("name", Value::Text(format_args!("{name}"))),
        ("value", Value::Number(value)),
        ("program", Value::Number(program)),
    ];
    record::<P>("counter", &members[..2 + usize::from(program != 0)]);
}

/// The unfinished line of the program on this node.
static USER_LINE: Mutex<Line> = Mutex::new(Line::new());

/// Longest line of user output that is kept whole, without the last character: the head of a log line and the
/// last character fit beside it.
const USER_TEXT: usize = LINE - 64;

/// Takes output of the program, up to the end of a line. A complete line is written; the rest is kept until
/// its newline comes or [`flush_user`] is called. A line that is too long ends after a character. Returns the
/// number of bytes taken.
pub fn user<P: Platform>(bytes: &[u8]) -> usize {
    let mut line = USER_LINE.lock();
    for (n, &b) in bytes.iter().enumerate() {
        let continues = b & 0xc0 == 0x80 && line.len < USER_TEXT + 3;
        if line.len >= USER_TEXT && b != b'\n' && !continues {
            emit_user::<P>(&mut line);
            return n;
        }
        if b == b'\n' {
            emit_user::<P>(&mut line);
            return n + 1;
        }
        // Control bytes could forge records. Those who write here directly may write pieces of lines.
        let begins_piece = b == PIECE && line.len == 0;
        line.push(if (b < 0x20 && b != b'\t' && !begins_piece) || b == 0x7f {
            b'?'
        } else {
            b
        });
    }
    bytes.len()
}

/// Writes the unfinished line of the program, if there is one.
pub fn flush_user<P: Platform>() {
    let mut line = USER_LINE.lock();
    if line.len > 0 {
        emit_user::<P>(&mut line);
    }
}

/// Writes the program's unfinished line as a log line, and begins its next one.
fn emit_user<P: Platform>(text: &mut Line) {
    let mut line = Line::new();
    line.push(LOG);
    let _ = write!(
        line,
        "{} {} {} ",
        P::cpu(),
        clock::now::<P>().0,
        Level::User.letter()
    );
    let head = line.len;
    let n = text.len.min(LINE - head);
    line.bytes[head..head + n].copy_from_slice(&text.bytes[..n]);
    line.len = head + n;
    text.len = 0;
    text.cut = false;
    put::<P>(line.finish());
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::String;

    use super::*;

    #[test]
    fn a_burst_of_reports_is_written_and_the_rest_is_counted() {
        let mut budget = Budget::new();
        let start = 1_000 * INTERVAL_NS;
        for _ in 0..BURST {
            assert_eq!(budget.take(start), Some(0));
        }
        for _ in 0..5 {
            assert_eq!(budget.take(start + INTERVAL_NS - 1), None);
        }
        // One token has come since; what was left out is said with it, once.
        assert_eq!(budget.take(start + INTERVAL_NS), Some(5));
        assert_eq!(budget.take(start + INTERVAL_NS), None);
        assert_eq!(budget.take(start + 3 * INTERVAL_NS), Some(1));
        assert_eq!(budget.take(start + 3 * INTERVAL_NS), Some(0));
        assert_eq!(budget.take(start + 3 * INTERVAL_NS), None);
        assert_eq!(budget.left_out(), 1);
        assert_eq!(budget.left_out(), 0);
    }

    #[test]
    fn no_more_than_a_burst_is_saved_up() {
        let mut budget = Budget::new();
        let later = 10_000 * INTERVAL_NS;
        let written = (0..2 * BURST).filter(|_| budget.take(later).is_some());
        assert_eq!(written.count() as u64, BURST);
    }

    /// The last bytes of a line.
    fn end(line: &mut Line) -> String {
        String::from_utf8_lossy(line.finish()).into_owned()
    }

    #[test]
    fn what_is_escaped_is_never_cut_in_the_middle() {
        for room in 0..4 {
            let mut line = Line::new();
            for _ in 0..LINE - room {
                line.push(b'x');
            }
            let _ = Escaped(&mut line).write_str("\"\"");
            let text = end(&mut line);
            let escapes = text.matches("\\\"").count();
            assert_eq!(escapes, room / 2, "{room}");
            assert_eq!(text.matches('"').count(), escapes);
            assert!(text.ends_with("...\n"));
        }
    }
}
