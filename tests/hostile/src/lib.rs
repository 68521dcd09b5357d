//! What test programs in the place of init share: `attack`, `adversary`, `storm`, which are hostile, `bounds` and
//! `quiescence`.
//!
//! | module | what |
//! |---|---|
//! | [`image`] | the pages of the program that all components share |
//! | [`parts`] | capability table and address space of a component |
//! | [`report`] | what components and the warden tell each other |
//! | [`workers`] | a thread on every CPU |
//!
//! Here are the beginning and the end of a run, its options, and what is said.
#![no_std]
#![deny(unsafe_code)]

pub mod image;
pub mod parts;
pub mod report;
pub mod workers;

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use dyad_abi::record::{EXIT_BOOT, EXIT_FAILED, EXIT_OK};
use dyad_abi::user::ReportKind;
use dyad_abi::{Error, Result};
use dyad_services::first::{HOME, shut_down};
use dyad_services::rt;
use dyad_services::text::Text;

/// Whether the first thread has begun.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// The life of the first thread: plays once, says why it cannot, and ends the run.
pub fn first<E: fmt::Display>(
    program: &str,
    play: impl FnOnce() -> core::result::Result<bool, E>,
) -> ! {
    let fails = |what: &str, why: fmt::Arguments<'_>| {
        let name = Text::<64>::of(format_args!("{program}.{what}"));
        check(name.as_str(), false, why)
    };
    // Only the first thread begins here, and once.
    if BEGUN.swap(true, Ordering::Relaxed) {
        let (place, id) = (rt::hardware(HOME).where_am_i(), dyad_sys::thread::id());
        fails(
            "begins-once",
            format_args!("begins again: {place:?}, thread id {id:?}"),
        );
        shut_down(EXIT_FAILED)
    }
    match play() {
        Ok(true) => shut_down(EXIT_OK),
        Ok(false) => shut_down(EXIT_FAILED),
        Err(e) => {
            say(format_args!("cannot begin: {e}"));
            fails("start", format_args!("{e}"));
            shut_down(EXIT_BOOT)
        }
    }
}

/// Writes a line to the console of the first node.
pub fn say(what: fmt::Arguments<'_>) {
    let text = Text::<320>::of(format_args!("{what}\n"));
    // A console that refuses leaves no way to say so.
    let _ = rt::hardware(HOME).write(text.as_str());
}

/// Reports a check. Gives whether it holds.
pub fn check(name: &str, ok: bool, detail: fmt::Arguments<'_>) -> bool {
    let detail = Text::<256>::of(detail);
    let _ = rt::hardware(HOME).report(ReportKind::Check, ok.into(), name, detail.as_str());
    ok
}

/// What went wrong, and in which step.
#[derive(Clone, Copy, Debug)]
pub struct Broken {
    /// The step.
    pub what: &'static str,
    /// Why it was refused.
    pub error: Error,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

/// Names the step in which something was refused.
///
/// # Errors
///
/// Those of `result`.
pub fn during<T>(what: &'static str, result: Result<T>) -> core::result::Result<T, Broken> {
    result.map_err(|error| Broken { what, error })
}

/// The options of the run.
#[derive(Clone, Copy, Debug)]
pub struct Options(&'static str);

impl Options {
    /// Those that the program was started with.
    ///
    /// # Errors
    ///
    /// `BadArgument` if they are no text.
    pub fn read() -> Result<Options> {
        let info = rt::info()?;
        let len = (info.args_len as usize).min(info.args.len());
        let text = core::str::from_utf8(&info.args[..len]).map_err(|_| Error::BadArgument)?;
        Ok(Options(text))
    }

    /// Whether an option is given.
    pub fn has(self, name: &str) -> bool {
        self.0.split_whitespace().any(|w| w == name)
    }

    /// The word behind an option.
    pub fn value(self, name: &str) -> Option<&'static str> {
        let mut words = self.0.split_whitespace();
        words.by_ref().find(|&w| w == name)?;
        words.next()
    }

    /// The number behind an option.
    ///
    /// # Errors
    ///
    /// `BadArgument` if the option is given without a number.
    pub fn number(self, name: &str) -> Result<Option<u64>> {
        let value = self.value(name).and_then(|v| v.parse().ok());
        match self.has(name) && value.is_none() {
            true => Err(Error::BadArgument),
            false => Ok(value),
        }
    }
}
