//! What is said to people, on the standard streams.
//!
//! The macros are those of the standard library, which would end the command with a panic if nobody
//! listens any more: in `cargo xtask bench migration | head -1` the runs and the files are wanted
//! nevertheless.

macro_rules! print {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = std::write!(std::io::stdout(), $($what)*);
    }};
}

macro_rules! println {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = std::writeln!(std::io::stdout(), $($what)*);
    }};
}

macro_rules! eprint {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = std::write!(std::io::stderr(), $($what)*);
    }};
}

macro_rules! eprintln {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _ = std::writeln!(std::io::stderr(), $($what)*);
    }};
}
