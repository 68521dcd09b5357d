//! Text output to the console of the node that the program is on.

use core::fmt::{self, Write};

use dyad_sys as sys;

/// Collects the text of one call, so that a line is normally one system call. Lives on the stack, because it
/// must work when the heap is exhausted.
struct Buffer {
    bytes: [u8; 512],
    len: usize,
}

impl Buffer {
    fn flush(&mut self) {
        let mut text = core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default();
        // A console that takes nothing more is no reason to fail.
        while !text.is_empty()
            && let Ok(taken) = patiently(|| sys::write(text))
            && let Some(rest) = text.get(taken..)
            && taken != 0
        {
            text = rest;
        }
        self.len = 0;
    }
}

/// How long text and reports wait after the program has exceeded its output rate, and how often they are
/// retried: ten seconds in all. Output of a service on its caller's time does not wait.
const PAUSE_NS: u64 = 10_000_000;
const TRIES: u32 = 1000;
/// How many of the retries follow without a pause.
const HASTE: u32 = 20;

/// Calls `ask`, a request to the console, until it returns anything but `Again`, for a bounded time.
pub fn patiently<T>(mut ask: impl FnMut() -> sys::Result<T>) -> sys::Result<T> {
    for n in 0..TRIES {
        match ask() {
            // Another thread of the program is at it.
            Err(sys::Error::Again) if n < HASTE && !sys::in_invocation() => sys::yield_now(),
            Err(sys::Error::Again) if !sys::in_invocation() => {
                let again = sys::now()? + PAUSE_NS;
                while sys::now()? < again {
                    // Not asleep: that would take what has come in at the program's endpoint.
                    sys::yield_now();
                }
            }
            done => return done,
        }
    }
    Err(sys::Error::Again)
}

impl Write for Buffer {
    fn write_str(&mut self, mut s: &str) -> fmt::Result {
        while !s.is_empty() {
            let room = self.bytes.len() - self.len;
            let (now, later) = s.split_at(s.floor_char_boundary(room));
            self.bytes[self.len..self.len + now.len()].copy_from_slice(now.as_bytes());
            self.len += now.len();
            s = later;
            if !s.is_empty() {
                self.flush();
            }
        }
        Ok(())
    }
}

/// Writes formatted text; the macros call this.
pub fn write(text: fmt::Arguments<'_>) {
    let mut buffer = Buffer {
        bytes: [0; 512],
        len: 0,
    };
    // The buffer takes everything; a failing `Display` has said all it could.
    let _ = buffer.write_fmt(text);
    buffer.flush();
}

/// Prints formatted text.
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::console::write(::core::format_args!($($text)*)) };
}

/// Prints formatted text and ends the line.
#[macro_export]
macro_rules! println {
    () => { $crate::console::write(::core::format_args!("\n")) };
    ($($text:tt)*) => {
        $crate::console::write(::core::format_args!("{}\n", ::core::format_args!($($text)*)))
    };
}

/// Prints formatted text; programs have one console, so this is [`print!`](crate::print).
#[macro_export]
macro_rules! eprint {
    ($($text:tt)*) => { $crate::print!($($text)*) };
}

/// Prints formatted text and ends the line; programs have one console, so this is
/// [`println!`](crate::println).
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::println!($($text)*) };
}
