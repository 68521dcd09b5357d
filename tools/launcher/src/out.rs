//! What is said to people, on the standard streams.
//!
//! The macros are those of the standard library, but for two things. The standard library's would end the
//! command with a panic if nobody listens any more: in `cargo xtask bench migration | head -1` the runs and
//! the files are wanted nevertheless. And when results go to standard output as JSON, everything for people
//! goes to standard error.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static RESULTS_ON_STDOUT: AtomicBool = AtomicBool::new(false);

/// Standard output is for results from now on.
pub fn leave_stdout_to_results() {
    RESULTS_ON_STDOUT.store(true, Relaxed);
}

/// The stream for people: standard output, or standard error if results go to standard output.
#[derive(Debug)]
pub enum People {
    /// Standard output.
    Out(std::io::Stdout),
    /// Standard error.
    Err(std::io::Stderr),
}

/// The stream for people.
pub fn people() -> People {
    match RESULTS_ON_STDOUT.load(Relaxed) {
        false => People::Out(std::io::stdout()),
        true => People::Err(std::io::stderr()),
    }
}

impl Write for People {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            People::Out(out) => out.write(bytes),
            People::Err(err) => err.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            People::Out(out) => out.flush(),
            People::Err(err) => err.flush(),
        }
    }
}

impl People {
    /// Whether a terminal shows the stream.
    pub fn is_terminal(&self) -> bool {
        match self {
            People::Out(out) => out.is_terminal(),
            People::Err(err) => err.is_terminal(),
        }
    }
}

/// `print!` to the stream for people.
#[macro_export]
macro_rules! print {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = std::write!($crate::out::people(), $($what)*);
    }};
}

/// `println!` to the stream for people.
#[macro_export]
macro_rules! println {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = std::writeln!($crate::out::people(), $($what)*);
    }};
}

/// `eprint!` that takes no notice of a closed stream.
#[macro_export]
macro_rules! eprint {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = std::write!(std::io::stderr(), $($what)*);
    }};
}

/// `eprintln!` that takes no notice of a closed stream.
#[macro_export]
macro_rules! eprintln {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = std::writeln!(std::io::stderr(), $($what)*);
    }};
}
