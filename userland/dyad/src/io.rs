//! Standard input: the bytes that `cargo xtask run --stdin FILE` gives the program, and on the host those of the
//! process.
//!
//! ```no_run
//! # fn main() -> dyad::Result<()> {
//! let mut line = dyad::prelude::thread::String::new();
//! while dyad::io::stdin().read_line(&mut line)? != 0 {
//!     dyad::println!("{} characters", line.trim_end().chars().count());
//!     line.clear();
//! }
//! # Ok(())
//! # }
//! ```
//!
//! All input is there when the program starts, so nothing here waits. Threads on all nodes read from one position; each
//! byte comes to one reader.

use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::{Error, Result};

dyad_rt::program_local! {
    /// How many bytes were read.
    static READ: AtomicUsize = AtomicUsize::new(0);
}

/// The standard input of the program.
pub fn stdin() -> Stdin {
    Stdin(())
}

/// The standard input of the program; see [`stdin`].
#[derive(Clone, Copy, Debug)]
pub struct Stdin(());

impl Stdin {
    /// Appends the next line, with the `\n` at its end, to `line`. Returns its length in bytes: 0 at the end of the
    /// input.
    ///
    /// # Errors
    ///
    /// If the line is not UTF-8, or memory is exhausted. The line counts as read.
    pub fn read_line(self, line: &mut String) -> Result<usize> {
        append(line, take(length_of_line)?)
    }

    /// The lines that are left, without the `\n` or `\r\n` at their ends.
    pub fn lines(self) -> impl Iterator<Item = Result<String>> {
        core::iter::from_fn(move || {
            let mut line = String::new();
            match self.read_line(&mut line) {
                Ok(0) => None,
                Err(e) => Some(Err(e)),
                Ok(_) => {
                    let text = line.strip_suffix('\n').unwrap_or(&line);
                    let len = text.strip_suffix('\r').filter(|_| text.len() < line.len());
                    line.truncate(len.unwrap_or(text).len());
                    Some(Ok(line))
                }
            }
        })
    }

    /// Reads as many bytes as there are and fit. Returns how many: 0 at the end of the input.
    ///
    /// # Errors
    ///
    /// None that a correct system returns.
    pub fn read(self, into: &mut [u8]) -> Result<usize> {
        let bytes = take(|rest| rest.len().min(into.len()))?;
        into[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Appends all that is left to `into`. Returns how many bytes that were.
    ///
    /// # Errors
    ///
    /// If memory is exhausted. The input counts as read.
    pub fn read_to_end(self, into: &mut Vec<u8>) -> Result<usize> {
        let bytes = take(<[u8]>::len)?;
        into.try_reserve(bytes.len())?;
        into.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Appends all that is left to `into`. Returns how many bytes that were.
    ///
    /// # Errors
    ///
    /// If it is not UTF-8, or memory is exhausted. The input counts as read.
    pub fn read_to_string(self, into: &mut String) -> Result<usize> {
        append(into, take(<[u8]>::len)?)
    }
}

fn length_of_line(rest: &[u8]) -> usize {
    let end = rest.iter().position(|&b| b == b'\n');
    end.map_or(rest.len(), |n| n + 1)
}

/// Takes bytes from the front of those that are left; `count` says how many.
fn take(count: impl Fn(&[u8]) -> usize) -> Result<&'static [u8]> {
    let input = dyad_sys::input()?;
    Ok(READ.with_any(|read| {
        let mut from = read.load(Ordering::Relaxed);
        loop {
            let rest = input.get(from..).unwrap_or_default();
            let taken = &rest[..count(rest)];
            let to = from + taken.len();
            match read.compare_exchange_weak(from, to, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return taken,
                // Another thread has read.
                Err(now) => from = now,
            }
        }
    }))
}

fn append(into: &mut String, bytes: &[u8]) -> Result<usize> {
    let text = core::str::from_utf8(bytes)
        .map_err(|_| Error::msg("the standard input is not valid UTF-8"))?;
    into.try_reserve(text.len())?;
    into.push_str(text);
    Ok(text.len())
}
